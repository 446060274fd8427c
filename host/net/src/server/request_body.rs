//! The bodies of requests, and what services leave of them unread.
//!
//! Owns the end of a connection on which a request was answered before its body had come. Must not know why it was
//! answered. Invariant: either the rest is read, within bounds, and the next request of the connection is served, or
//! the answer says `Connection: close`.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

/// What is read and thrown away of a body after its request was answered, in bytes.
const UNREAD_BYTES_MAX: u64 = 64 << 10;
/// How long that may take, in milliseconds; longer, and the connection ends.
const UNREAD_MS_MAX: u64 = 2_000;

/// The body of a request. One that is dropped before its end leaves the rest to its connection.
pub struct RequestBody {
    /// `None` once it was read to its end.
    incoming: Option<Incoming>,
    unread: UnreadBody,
}

/// The rest of the body of the latest request of a connection.
#[derive(Clone, Default)]
pub(super) struct UnreadBody(Arc<Mutex<Rest>>);

#[derive(Default)]
enum Rest {
    /// There is none, or nobody may leave it any more: the request was answered.
    #[default]
    None,
    /// The request is not answered, and its body is the service's.
    Awaited,
    /// The service is done with it, and the request is not answered.
    Left(Incoming),
    /// The request is answered, and the rest is thrown away until then.
    Discarded(Incoming, Pin<Box<Sleep>>),
}

impl UnreadBody {
    /// The body of a request that begins.
    pub(super) fn body(&self, incoming: Incoming) -> RequestBody {
        if incoming.is_end_stream() {
            return RequestBody { incoming: None, unread: Self::default() };
        }
        *self.0.lock() = Rest::Awaited;
        RequestBody { incoming: Some(incoming), unread: self.clone() }
    }

    /// Decides what becomes of the rest, when the request is answered. `may_read`: its client sends it, and may send
    /// another request.
    pub(super) fn end<B>(&self, response: &mut Response<B>, may_read: impl FnOnce() -> bool) {
        let mut rest = self.0.lock();
        let Rest::Left(incoming) = mem::take(&mut *rest) else { return };
        let is_small = incoming.size_hint().upper().is_some_and(|bytes| bytes <= UNREAD_BYTES_MAX);
        if is_small && may_read() {
            *rest = Rest::Discarded(incoming, Box::pin(sleep(Duration::from_millis(UNREAD_MS_MAX))));
        } else {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Throws away what has come. To be called after the connection was polled, by what drives it.
    pub(super) fn poll_discard(&self, cx: &mut Context<'_>) {
        let mut rest = self.0.lock();
        let Rest::Discarded(incoming, until) = &mut *rest else { return };
        let is_over = loop {
            match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => break true,
                Poll::Pending => break until.as_mut().poll(cx).is_ready(),
            }
        };
        if is_over {
            *rest = Rest::None;
        }
    }
}

/// Whether a client with such a request sends its body only when it is told to.
pub(super) fn waits_to_send(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(incoming).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.incoming = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) {
            let mut rest = self.unread.0.lock();
            if matches!(*rest, Rest::Awaited) {
                *rest = Rest::Left(incoming);
            }
        }
    }
}
