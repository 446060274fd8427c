//! How long requests take, and how they end, for the metrics.
//!
//! Owns the clock of a request, from its receipt to its final frame. Must not change what is answered, and must not take a label from a
//! message: what is asked for is named by its entry in the catalog. Invariant: a request is counted once, also one that its client gives
//! up, which has no answer.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use futures::Stream;

use super::jsonrpc::Message;
use super::methods::Method;
use super::{Exchange, Frame, Peer, Received, Rejection, modern, trace};
use bulkhead_domain::task::Era;
use bulkhead_metrics::{Answer, Metrics, Transport};
use bulkhead_runtime::{PromptEntry, ToolEntry};

/// What of the catalog a request asks for, once that is known.
pub(crate) struct Asked(OnceLock<Entry>);

enum Entry {
    Tool(Arc<ToolEntry>),
    Prompt(Arc<PromptEntry>),
}

impl Asked {
    pub(crate) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// It calls this tool.
    pub(crate) fn tool(&self, entry: &Arc<ToolEntry>) {
        self.0.get_or_init(|| Entry::Tool(Arc::clone(entry)));
    }

    /// It wants this prompt.
    pub(crate) fn prompt(&self, entry: &Arc<PromptEntry>) {
        self.0.get_or_init(|| Entry::Prompt(Arc::clone(entry)));
    }
}

/// A request that is not answered yet.
pub(crate) struct Measure {
    metrics: Metrics,
    since: Instant,
    /// Its place in the table of methods; none is in no table.
    method: Option<usize>,
    version: &'static str,
    transport: Transport,
    /// Of the caller's trace.
    trace_id: Option<String>,
    entry: Option<Entry>,
}

impl Measure {
    /// Nothing is measured of what is no request, or where nothing is counted.
    pub(crate) fn begin(metrics: &Metrics, peer: &Peer<'_>, era: Era, message: &Message<'_>) -> Option<Self> {
        let Message::Request { method, params, .. } = message else { return None };
        if !metrics.is_on() {
            return None;
        }
        let version = match (era, &peer.session) {
            (Era::Modern, _) => modern::VERSION,
            (Era::Legacy, session) => session.as_ref().map_or("", |session| session.settled.version.name()),
        };
        Some(Self {
            metrics: metrics.clone(),
            since: Instant::now(),
            method: Method::named(method, era).map(|method| method as usize),
            version,
            transport: if peer.connection.is_some() { Transport::Stdio } else { Transport::Http },
            trace_id: params.and_then(trace::trace_id),
            entry: None,
        })
    }

    /// Counts the request when what became of it is over.
    pub(crate) fn follow(mut self, asked: Asked, received: Received) -> Received {
        self.entry = asked.0.into_inner();
        match received {
            Received::Exchange(exchange) => Received::Exchange(Box::pin(Measured { measure: Some(self), exchange })),
            Received::Opened { session, reply } => {
                self.version = session.settled.version.name();
                self.ended(Answer::Result, None);
                Received::Opened { session, reply }
            }
            Received::Rejected { rejection, body } => {
                // The bodies of these are written in one place each, with this code.
                if matches!(rejection, Rejection::SessionRequired) {
                    self.ended(Answer::Error(-32600), None);
                }
                Received::Rejected { rejection, body }
            }
            other => other,
        }
    }

    fn ended(self, answer: Answer, limit: Option<&'static str>) {
        if let Some(limit) = limit {
            self.metrics.refused(limit);
        }
        let operation = match &self.entry {
            Some(Entry::Tool(entry)) => &entry.metrics.operation,
            Some(Entry::Prompt(entry)) => &entry.metrics,
            None => self.metrics.operations().of(self.method),
        };
        operation.ended(self.since.elapsed(), answer, self.version, self.transport, self.trace_id.as_deref());
    }
}

struct Measured {
    /// Taken at the final frame.
    measure: Option<Measure>,
    exchange: Exchange,
}

impl Stream for Measured {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        let polled = self.exchange.as_mut().poll_next(context);
        if let Poll::Ready(Some(Frame { message, last: true, .. })) = &polled
            && let Some(measure) = self.measure.take()
        {
            let ending = message.how_ended();
            measure.ended(ending.answer, ending.limit);
        }
        polled
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Its client gave it up, or is gone.
        if let Some(measure) = self.measure.take() {
            measure.ended(Answer::Abandoned, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VERSIONS;
    use crate::methods::methods;

    #[test]
    fn tables_of_the_metrics_are_those_of_the_protocol() {
        assert_eq!(bulkhead_metrics::VERSIONS, VERSIONS);
        for era in [Era::Legacy, Era::Modern] {
            for (name, method) in methods(era) {
                assert_eq!(bulkhead_metrics::METHODS.get(method as usize), Some(&name));
            }
        }
    }
}
