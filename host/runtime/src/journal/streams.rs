//! Bodies of outgoing HTTP: what a journaled guest writes them into, and those of which the beginning was taken
//! already.
//!
//! Owns how much of requests a journaled call may have the host hold. Invariant: whether a journaled guest may write
//! does not depend on who reads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use wasmtime_wasi_http::{Error, WasiBody};
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{DynOutputStream, OutputStream, StreamError, StreamResult};

use crate::limits::{HeldBytes, MemoryUse};

/// An outgoing body of a journaled call. All of it is held until it is complete.
pub(super) struct HeldBody {
    pub(super) inner: DynOutputStream,
    /// What the guest writes is charged to its memory.
    pub(super) memory: Arc<MemoryUse>,
}

#[async_trait::async_trait]
impl Pollable for HeldBody {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

#[async_trait::async_trait]
impl OutputStream for HeldBody {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.memory.hold(bytes.len() as u64).map_err(|hit| StreamError::Trap(hit.into()))?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.inner.check_write()
    }
}

/// A body that is charged to its guest for as long as anybody can read it.
pub(super) struct Charged {
    inner: WasiBody,
    _held: HeldBytes,
}

impl Charged {
    pub(super) fn new(inner: WasiBody, held: HeldBytes) -> Self {
        Self { inner, _held: held }
    }
}

impl Body for Charged {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }
}

/// A body whose beginning was read already.
pub(super) struct Prefixed {
    beginning: Option<Bytes>,
    rest: WasiBody,
}

impl Prefixed {
    pub(super) fn new(beginning: Bytes, rest: WasiBody) -> Self {
        Self { beginning: Some(beginning).filter(|bytes| !bytes.is_empty()), rest }
    }
}

impl Body for Prefixed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.beginning.take() {
            Some(beginning) => Poll::Ready(Some(Ok(Frame::data(beginning)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    #[test]
    fn body_begins_with_what_was_read_already() {
        let rest = Full::new(Bytes::from_static(b" and the rest")).map_err(|never| match never {}).boxed_unsync();
        let body = Prefixed::new(Bytes::from_static(b"the beginning"), rest);
        let body = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        assert_eq!(body, "the beginning and the rest");
    }
}
