//! Event streams as response bodies.
//!
//! Owns what is written to a stream and when. Invariant: a body does something only when the connection has room for
//! it, so that a client which does not read costs one connection and the bounded log behind it; and nothing is written
//! once the credential that it came with has ended, except the result that ends a subscription and says nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{HeaderValue, header};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::answer::{Chunks, Recipient};
use crate::session::{LiveSession, SessionRequest};
use crate::sse::{EventLog, KEEPALIVE, Next};
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::rights::Rights;
use bulkhead_identity::auth::Revalidation;
use bulkhead_limits::Permit;
use bulkhead_protocol::{Exchange, Frame, Mcp};

use bulkhead_net::server::Phase;

/// The first revision whose clients know an event without data for what it is; older ones try to parse it.
const PRIMING_SINCE: &str = "2025-11-25";
/// How long a subscription may take to end. It has nothing to wait for.
const RESULT_AT_END: Duration = Duration::from_secs(1);

/// A response that is a stream of events.
pub(super) fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// What a new stream begins with.
pub(super) fn opening(log: &EventLog, version: &str) -> Bytes {
    if version >= PRIMING_SINCE { log.priming() } else { KEEPALIVE }
}

/// A stream without a session: no ids, nothing to resume, and over with the connection.
pub(super) struct Direct<H> {
    frames: Exchange,
    /// Released when the stream ends.
    _held: H,
    revalidation: Revalidation,
    /// Asks for a result when the credential ends; then nothing but that is written.
    end: Option<watch::Sender<bool>>,
    keepalive: Duration,
    recipient: Recipient,
    /// What is being written, with the room for it.
    writing: (Chunks, Option<Permit>),
    over: bool,
}

impl<H: Send + 'static> Direct<H> {
    pub(super) fn new(
        frames: Exchange,
        held: H,
        revalidation: Revalidation,
        end: Option<watch::Sender<bool>>,
        keepalive: Duration,
        recipient: Recipient,
    ) -> Self {
        Self { frames, _held: held, revalidation, end, keepalive, recipient, writing: Default::default(), over: false }
    }

    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut direct| async move {
            let bytes = direct.next().await?;
            Some((Ok::<_, Infallible>(bytes), direct))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.revalidation.check().await.is_err() {
            return self.result_at_end().await;
        }
        if let Some(chunk) = self.writing.0.next() {
            return Some(chunk);
        }
        if self.over {
            return None;
        }
        self.writing.1 = None;
        tokio::select! {
            biased;
            frame = self.frames.next() => {
                self.write(frame?)?;
                self.writing.0.next()
            }
            _ = self.revalidation.ended() => self.result_at_end().await,
            () = sleep(self.keepalive) => Some(KEEPALIVE),
        }
    }

    /// `None` ends the stream: a message that answers nothing has no room. Its client is too slow, and asks again what
    /// it wants to know.
    fn write(&mut self, frame: Frame) -> Option<()> {
        let (message, permit) = match frame.last {
            true => self.recipient.response(frame.message),
            false => self.recipient.room(&frame.message).ok().map(|permit| (frame.message, permit))?,
        };
        self.writing = (Chunks::event("", message), permit);
        self.over = frame.last;
        Some(())
    }

    /// The result of a subscription whose credential has ended. What it had to tell before that is not written any
    /// more; in the middle of an event there is no place for a result.
    async fn result_at_end(&mut self) -> Option<Bytes> {
        let end = self.end.take().filter(|_| self.writing.0.left() == 0 && !self.over)?;
        end.send_replace(true);
        let result = async {
            loop {
                let frame = self.frames.next().await?;
                if frame.last {
                    return Some(frame);
                }
            }
        };
        let frame = tokio::time::timeout(RESULT_AT_END, result).await.ok().flatten()?;
        self.write(frame)?;
        self.writing.0.next()
    }
}

/// Reads a log to a connection.
pub(super) struct Reader {
    log: Arc<EventLog>,
    number: u64,
    after: u64,
    opening: Option<Bytes>,
    /// What is left of the event that is being written.
    writing: Chunks,
    changed: watch::Receiver<()>,
    keepalive: Duration,
    /// For a standalone stream: where its messages come from. They are taken only when the connection has room.
    source: Option<(Source, SharedClock)>,
    open: SessionRequest,
    revalidation: Revalidation,
}

impl Reader {
    pub(super) fn new(
        log: Arc<EventLog>,
        after: u64,
        opening: Option<Bytes>,
        open: SessionRequest,
        revalidation: Revalidation,
        keepalive: Duration,
    ) -> Self {
        let (number, changed) = log.read();
        let writing = Chunks::default();
        Self { log, number, after, opening, writing, changed, keepalive, source: None, open, revalidation }
    }

    pub(super) fn with_source(mut self, source: Source, now: SharedClock) -> Self {
        self.source = Some((source, now));
        self
    }

    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut reader| async move {
            let bytes = reader.next().await?;
            Some((Ok::<_, Infallible>(bytes), reader))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.revalidation.check().await.is_err() {
            return None;
        }
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        if let Some(chunk) = self.writing.next() {
            return Some(chunk);
        }
        let silence = sleep(self.keepalive);
        tokio::pin!(silence);
        loop {
            match self.log.next(self.number, self.after) {
                Next::Event { number, text } => {
                    self.after = number;
                    self.writing = text;
                    return self.writing.next();
                }
                Next::Over => return None,
                Next::Wait => {}
            }
            tokio::select! {
                biased;
                _ = self.open.live.ended.wait() => return None,
                _ = self.revalidation.ended() => return None,
                _ = self.changed.changed() => {}
                frame = next_of(&mut self.source) => self.log.push(frame?.message, false),
                () = &mut silence => return Some(KEEPALIVE),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((_, now)) = &self.source {
            self.log.finish(now.steady());
        }
        self.log.leave(self.number);
    }
}

/// The next message of a standalone stream; for any other kind there never is one.
async fn next_of(source: &mut Option<(Source, SharedClock)>) -> Option<Frame> {
    match source {
        Some((source, _)) => source.next().await,
        None => std::future::pending().await,
    }
}

/// The messages of a session that belong to no request. Of several sources of a session the newest gives them, and when
/// it goes the one before it: so each message is on exactly one stream.
pub(super) struct Source {
    mcp: Arc<dyn Mcp>,
    live: Arc<LiveSession>,
    rights: Rights,
    number: u64,
    numbers: watch::Receiver<Vec<u64>>,
    frames: Option<Exchange>,
    phase: watch::Receiver<Phase>,
}

impl Source {
    pub(super) fn new(
        mcp: Arc<dyn Mcp>,
        live: Arc<LiveSession>,
        rights: Rights,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let mut number = 0;
        live.standalone().send_modify(|numbers| {
            number = numbers.last().map_or(0, |last| last + 1);
            numbers.push(number);
        });
        let numbers = live.standalone().subscribe();
        // A call of the session may have to ask on it before the stream is first read.
        let frames = Some(mcp.standalone(&live.session, rights.clone()));
        Self { mcp, live, rights, number, numbers, frames, phase }
    }

    /// `None` when the session is over or the host is going down.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let newest = self.numbers.borrow_and_update().last() == Some(&self.number);
            if !newest {
                self.frames = None;
            }
            let Self { mcp, live, rights, frames, .. } = self;
            let frame = async {
                match newest {
                    true => {
                        let again = || mcp.standalone(&live.session, rights.clone());
                        frames.get_or_insert_with(again).next().await
                    }
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.phase.wait_for(|phase| *phase > Phase::Serving) => return None,
                _ = self.numbers.changed() => {}
                frame = frame => return frame,
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // The stream goes first: the next one must find what it did not give.
        self.frames = None;
        let number = self.number;
        self.live.standalone().send_modify(|numbers| numbers.retain(|other| *other != number));
    }
}
