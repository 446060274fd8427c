//! What a client is told when the host stops before the end of its request.
//!
//! Owns that last answer. Invariant: an answer that is there in time goes before it, and nothing comes after it; what
//! the request was about is dropped with it, which stops a plain call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::watch;

use super::refusal::Refusal;
use bulkhead_net::server::Phase;
use bulkhead_protocol::{Exchange, Frame};

/// The exchange of a request with this id. Its last frame says so when the host stops before it has one.
pub(super) fn answered_at_end(exchange: Exchange, id: Option<String>, phase: &watch::Sender<Phase>) -> Exchange {
    AnsweredAtEnd { exchange: Some(exchange), id, phase: phase.clone(), ending: None }.boxed()
}

struct AnsweredAtEnd {
    exchange: Option<Exchange>,
    id: Option<String>,
    phase: watch::Sender<Phase>,
    /// Made when there is something to wait for.
    ending: Option<BoxFuture<'static, ()>>,
}

impl Stream for AnsweredAtEnd {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let Self { exchange, id, phase, ending } = &mut *self;
        let Some(running) = exchange else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = running.poll_next_unpin(cx) {
            return Poll::Ready(frame);
        }
        ready!(ending.get_or_insert_with(|| until_ending(phase.subscribe()).boxed()).poll_unpin(cx));
        *exchange = None;
        Poll::Ready(Some(Frame::from(Refusal::stopped().to(id.take()).body())))
    }
}

/// Done when what still runs has to answer.
pub(super) async fn until_ending(mut phase: watch::Receiver<Phase>) {
    // Without a sender there is no host any more.
    let _ = phase.wait_for(|phase| *phase >= Phase::Ending).await;
}
