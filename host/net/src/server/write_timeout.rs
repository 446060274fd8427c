//! A connection whose peer has to read.
//!
//! Owns the clock on writes. Invariant: a write that makes no progress for too long fails, so that a client that
//! stops reading cannot hold a connection and the messages for it for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream with that clock.
pub(super) struct Stalling<T> {
    inner: T,
    timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> Stalling<T> {
    pub(super) fn new(inner: T, timeout: Duration) -> Self {
        Self { inner, timeout, stalled: None }
    }

    /// Passes a result on, and turns a wait that lasts too long into an error.
    fn watched<R>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watched(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watched(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.watched(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watched(cx, result)
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const TIMEOUT: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn write_times_out_for_stalled_peer_not_slow_one() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Stalling::new(ours, TIMEOUT);
        let slow = tokio::spawn(async move {
            let mut buffer = [0; 16];
            for _ in 0..8 {
                sleep(TIMEOUT / 5).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
            theirs
        });
        ours.write_all(&[7; 128]).await.unwrap();
        let theirs = slow.await.unwrap();
        let error = ours.write_all(&[7; 128]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
