//! Standard input and output for tokio, whose own are threads, and a component has none.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wasip2::cli::stdin::get_stdin;
use wasip2::io::poll::Pollable;
use wasip2::io::streams::{InputStream, StreamError};

pub(crate) struct Input {
    // In this order: the former is made of the latter, and goes first.
    ready: Pollable,
    stream: InputStream,
}

impl Input {
    pub(crate) fn new() -> Self {
        let stream = get_stdin();
        Self { ready: stream.subscribe(), stream }
    }
}

impl AsyncRead for Input {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ready.ready() {
            // Looks again after what else there is to do. The host makes a server wait that does nothing but look.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.stream.read(buffer.remaining() as u64) {
            Ok(bytes) => buffer.put_slice(&bytes),
            Err(StreamError::Closed) => {}
            Err(StreamError::LastOperationFailed(error)) => {
                return Poll::Ready(Err(io::Error::other(error.to_debug_string())));
            }
        }
        Poll::Ready(Ok(()))
    }
}

pub(crate) struct Output;

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(io::stdout().write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(io::stdout().flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
