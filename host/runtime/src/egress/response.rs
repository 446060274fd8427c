//! What comes back of a request: a head, and a body that ends in time and in size.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use super::request_quota::RequestSlot;

/// Bytes of a response body. Stops a guest from making the host read for ever.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

pub(super) type Response = http::Response<WasiBody>;

/// A response, and what moves its bytes.
pub(crate) type Exchange = Result<(Response, Pin<Driver>), Error>;

pub(super) type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// A response body that ends in time and in size.
pub(super) struct BoundedResponseBody {
    body: hyper::body::Incoming,
    bytes_left: u64,
    until: Instant,
    between: Duration,
    timer: Pin<Box<Sleep>>,
    _slot: RequestSlot,
}

impl BoundedResponseBody {
    pub(super) fn new(body: hyper::body::Incoming, until: Instant, between: Duration, slot: RequestSlot) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(until.min(Instant::now() + between)));
        Self { body, bytes_left: RESPONSE_BYTES_MAX, until, between, timer, _slot: slot }
    }
}

impl Body for BoundedResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => match this.timer.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(Error::HttpResponseTimeout))),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                let Some(left) = this.bytes_left.checked_sub(bytes) else {
                    return Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(RESPONSE_BYTES_MAX)))));
                };
                this.bytes_left = left;
                let next = this.until.min(Instant::now() + this.between);
                this.timer.as_mut().reset(next);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Error::Hyper(error)))),
            Poll::Ready(None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
