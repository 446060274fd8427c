//! A request as a stream of frames, without a task of the scheduler behind it.
//!
//! The work is a future that sends messages on its way and returns the response. It makes progress only while the
//! stream is polled, and only when everything sent so far was taken: that is the whole flow control.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::encoded_message::EncodedMessage;
use super::error::Rejection;

/// One JSON-RPC message for the client.
#[derive(Clone, Debug)]
pub struct Frame {
    pub message: EncodedMessage,
    /// The response that ends its exchange.
    pub last: bool,
    /// Set on the response to a modern request that was refused: the status, where one can still be chosen.
    pub rejection: Option<Rejection>,
}

/// The frames of one request, in order; the last one has `last` set and nothing follows it. A request that its client
/// cancelled (`notifications/cancelled`) ends without a last frame: nothing must be answered then.
///
/// Dropping it before that abandons the request. A plain call works only while its exchange is polled; when it is
/// dropped, the call stops (a modern one after the grace period of a guest that looks for signals). So the transport
/// drops the exchange of a modern request when its client is gone, which cancels it, and goes on with that of a legacy
/// one. Tasks go on in any case.
pub type Exchange = Pin<Box<dyn Stream<Item = Frame> + Send>>;

/// Sends the messages of an exchange that come before its response. Cheap to clone; what is sent after the end is
/// dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameSender(Arc<Mutex<VecDeque<EncodedMessage>>>);

impl FrameSender {
    /// Sends a message; `None` (it could not be written) sends nothing.
    pub(crate) fn send(&self, message: impl Into<Option<String>>) {
        if let Some(message) = message.into() {
            self.send_line(message.into());
        }
    }

    /// Sends a message that may be large.
    pub(crate) fn send_line(&self, message: EncodedMessage) {
        self.0.lock().push_back(message);
    }

    /// Waits until everything that was sent has been taken.
    pub(crate) async fn taken(&self) {
        while !self.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Whether everything that was sent has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn next(&self) -> Option<EncodedMessage> {
        self.0.lock().pop_front()
    }
}

/// A message on the way to the response.
impl Frame {
    fn before_last(message: EncodedMessage) -> Self {
        Self { message, last: false, rejection: None }
    }
}

/// A response.
impl From<EncodedMessage> for Frame {
    fn from(message: EncodedMessage) -> Self {
        Self { message, last: true, rejection: None }
    }
}

impl From<String> for Frame {
    fn from(message: String) -> Self {
        EncodedMessage::from(message).into()
    }
}

struct Streaming<W> {
    sender: FrameSender,
    work: Option<Pin<Box<W>>>,
    response: Option<Frame>,
}

impl<W, R> Stream for Streaming<W>
where
    W: Future<Output = Option<R>>,
    R: Into<Frame>,
{
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        loop {
            if let Some(message) = self.sender.next() {
                return Poll::Ready(Some(Frame::before_last(message)));
            }
            let Some(work) = &mut self.work else {
                return Poll::Ready(self.response.take());
            };
            match work.as_mut().poll(context) {
                Poll::Ready(response) => (self.work, self.response) = (None, response.map(Into::into)),
                Poll::Pending => match self.sender.next() {
                    Some(message) => return Poll::Ready(Some(Frame::before_last(message))),
                    None => return Poll::Pending,
                },
            }
        }
    }
}

/// An exchange whose work may send messages first. `None` as response: the request was cancelled, nothing ends it.
pub(crate) fn streaming<W, R>(work: impl FnOnce(FrameSender) -> W) -> Exchange
where
    W: Future<Output = Option<R>> + Send + 'static,
    R: Into<Frame> + 'static,
{
    let sender = FrameSender::default();
    let work = Box::pin(work(sender.clone()));
    Box::pin(Streaming { sender, work: Some(work), response: None })
}

/// An exchange whose response is there.
pub(crate) fn immediate(response: impl Into<Frame>) -> Exchange {
    Box::pin(futures::stream::iter([response.into()]))
}

/// An exchange of one frame that takes some waiting.
pub(crate) fn deferred<R: Into<Frame>>(response: impl Future<Output = R> + Send + 'static) -> Exchange {
    Box::pin(futures::stream::once(async { response.await.into() }))
}

/// Waits until then; for ever without a time.
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;

    #[tokio::test]
    async fn exchange_frames_keep_order_and_end_with_response() {
        let exchange = streaming(|sender| async move {
            sender.send("a".to_owned());
            sender.send("b".to_owned());
            tokio::task::yield_now().await;
            sender.send("c".to_owned());
            Some("end".to_owned())
        });
        let frames: Vec<_> = exchange.map(|frame| (frame.message.into_text(), frame.last)).collect().await;
        let said: Vec<_> = frames.iter().map(|(message, last)| (message.as_str(), *last)).collect();
        assert_eq!(said, [("a", false), ("b", false), ("c", false), ("end", true)]);
    }

    #[tokio::test]
    async fn a_cancelled_exchange_ends_without_a_response() {
        assert!(streaming(|_| async { None::<String> }).next().await.is_none());
    }
}
