//! A stream into a file that counts what it writes before it does.
//!
//! Owns when a write goes on: at once where there is room, after a measurement where that is not known. Invariant: a
//! guest that writes no more than it was told it may, and when it may, never traps: where there is no room, it reads of
//! a full disk.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use wasmtime_wasi::p2::DynOutputStream;
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{OutputStream, StreamError, StreamResult};

use super::quota::{Addition, DirectoryFull, DirectoryQuota, UnderWay};

/// A stream into a file, with the count in front.
pub(super) struct Counted {
    inner: DynOutputStream,
    file: Arc<std::fs::File>,
    quota: DirectoryQuota,
    /// Where the next byte goes; `None`: to the end.
    offset: Option<u64>,
    state: State,
}

enum State {
    Ready,
    /// The directory is measured, to see whether there is room for these bytes.
    Measuring(tokio::task::JoinHandle<Result<UnderWay, DirectoryFull>>, Bytes),
    /// They are being written.
    Writing(#[expect(dead_code, reason = "held until they are written")] UnderWay),
    Failed,
    Closed,
}

impl Counted {
    pub(super) fn new(
        inner: DynOutputStream,
        file: Arc<std::fs::File>,
        quota: DirectoryQuota,
        offset: Option<u64>,
    ) -> Self {
        Self { inner, file, quota, offset, state: State::Ready }
    }

    fn addition(&self, bytes: &Bytes) -> Addition {
        let length = bytes.len() as u64;
        match self.offset {
            Some(offset) => Addition::UpTo(Arc::clone(&self.file), offset.saturating_add(length)),
            None => Addition::Bytes(length),
        }
    }

    fn pass(&mut self, bytes: Bytes, taken: UnderWay) -> StreamResult<()> {
        if let Some(offset) = &mut self.offset {
            *offset = offset.saturating_add(bytes.len() as u64);
        }
        self.state = State::Writing(taken);
        self.inner.write(bytes)
    }

    /// It is known whether there is room for what waits.
    fn settle(&mut self, measured: Result<UnderWay, DirectoryFull>) {
        let State::Measuring(_, bytes) = std::mem::replace(&mut self.state, State::Failed) else { return };
        if let Ok(taken) = measured
            && self.pass(bytes, taken).is_err()
        {
            self.state = State::Failed;
        }
    }

    /// Says once that there is no room.
    fn failure(&mut self) -> StreamResult<()> {
        match self.state {
            State::Failed => {
                self.state = State::Closed;
                Err(full())
            }
            State::Closed => Err(StreamError::Closed),
            State::Ready | State::Measuring(..) | State::Writing(_) => Ok(()),
        }
    }
}

fn full() -> StreamError {
    StreamError::LastOperationFailed(io::Error::from(DirectoryFull).into())
}

#[async_trait::async_trait]
impl Pollable for Counted {
    async fn ready(&mut self) {
        if let State::Measuring(measuring, _) = &mut self.state {
            let measured = measuring.await.unwrap_or(Err(DirectoryFull));
            self.settle(measured);
        }
        if matches!(self.state, State::Failed | State::Closed) {
            return;
        }
        self.inner.ready().await;
        self.state = State::Ready;
    }
}

#[async_trait::async_trait]
impl OutputStream for Counted {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.failure()?;
        if matches!(self.state, State::Measuring(..) | State::Writing(_)) {
            // One at a time: otherwise each of them would be another task of the host.
            return Err(StreamError::trap("write not permitted: check_write not called first"));
        }
        let addition = self.addition(&bytes);
        if let Some(taken) = self.quota.try_take(&addition) {
            return self.pass(bytes, taken);
        }
        let quota = self.quota.clone();
        self.state = State::Measuring(tokio::spawn(async move { quota.take(&addition).await }), bytes);
        Ok(())
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.ready().await;
        self.failure()?;
        let addition = self.addition(&bytes);
        let Ok(_taken) = self.quota.take(&addition).await else {
            self.state = State::Closed;
            return Err(full());
        };
        if let Some(offset) = &mut self.offset {
            *offset = offset.saturating_add(bytes.len() as u64);
        }
        self.inner.blocking_write_and_flush(bytes).await
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.failure()?;
        self.inner.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        // A guest may look again and again without ever waiting.
        if let State::Measuring(measuring, _) = &mut self.state
            && let Some(measured) = measuring.now_or_never()
        {
            self.settle(measured.unwrap_or(Err(DirectoryFull)));
        }
        self.failure()?;
        if matches!(self.state, State::Measuring(..)) {
            return Ok(0);
        }
        let free = self.inner.check_write()?;
        if free > 0 && matches!(self.state, State::Writing(_)) {
            self.state = State::Ready;
        }
        Ok(free)
    }

    async fn cancel(&mut self) {
        // What is being written stays counted until it is.
        self.inner.cancel().await;
        if let State::Measuring(measuring, _) = std::mem::replace(&mut self.state, State::Closed) {
            measuring.abort();
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let State::Measuring(measuring, _) = &self.state {
            measuring.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::quota::Quotas;
    use super::super::walk::ENTRY_BYTES;
    use super::*;
    use crate::blocking::Blocking;
    use bulkhead_domain::requestor::TenantId;

    /// A file that takes one write at a time, and is done with it when the test says so.
    #[derive(Clone, Default)]
    struct Slow(Arc<parking_lot::Mutex<(bool, usize)>>);

    #[async_trait::async_trait]
    impl Pollable for Slow {
        async fn ready(&mut self) {
            self.0.lock().0 = false;
        }
    }

    #[async_trait::async_trait]
    impl OutputStream for Slow {
        fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
            let mut state = self.0.lock();
            assert!(!state.0, "a write before the last one is done");
            *state = (true, state.1 + bytes.len());
            Ok(())
        }

        fn flush(&mut self) -> StreamResult<()> {
            Ok(())
        }

        fn check_write(&mut self) -> StreamResult<usize> {
            Ok(if self.0.lock().0 { 0 } else { 4096 })
        }
    }

    fn stream(bytes_max: u64) -> (tempfile::TempDir, Slow, Counted) {
        let folder = tempfile::tempdir().unwrap();
        let blocking = Blocking::of(&Arc::default(), TenantId([7; 16]));
        let quota = Quotas::default().of_directory(folder.path(), bytes_max, &blocking).unwrap();
        let file = Arc::new(std::fs::File::create(folder.path().join("a")).unwrap());
        let slow = Slow::default();
        (folder, slow.clone(), Counted::new(Box::new(slow), file, quota, None))
    }

    /// As often as it takes; at once where nothing is measured.
    async fn until_free(stream: &mut Counted) -> StreamResult<usize> {
        loop {
            match stream.check_write() {
                Ok(0) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    }

    #[tokio::test]
    async fn counted_stream_check_write_does_not_trap() {
        let (_folder, slow, mut stream) = stream(10 * ENTRY_BYTES);
        for round in 1..=3 {
            assert_eq!(until_free(&mut stream).await.unwrap(), 4096);
            stream.write(Bytes::from_static(b"words")).unwrap();
            // Nothing is known of the directory at first: it is measured before the bytes go on.
            while slow.0.lock().1 < round * 5 {
                assert_eq!(stream.check_write().unwrap(), 0, "not before it is written");
                tokio::task::yield_now().await;
            }
            assert_eq!(stream.check_write().unwrap(), 0);
            assert!(matches!(stream.write(Bytes::from_static(b"x")), Err(StreamError::Trap(_))), "nobody said it may");
            slow.0.lock().0 = false;
        }
        assert_eq!(slow.0.lock().1, 15);
    }

    #[tokio::test]
    async fn full_directory_quota_is_an_error_not_a_trap() {
        let (_folder, slow, mut stream) = stream(ENTRY_BYTES);
        stream.write(Bytes::from_static(b"words")).unwrap();
        let refused = until_free(&mut stream).await;
        assert!(matches!(&refused, Err(StreamError::LastOperationFailed(error)) if error.to_string().contains("28")));
        assert!(matches!(stream.check_write(), Err(StreamError::Closed)));
        assert!(matches!(stream.write(Bytes::from_static(b"x")), Err(StreamError::Closed)));
        assert!(matches!(stream.flush(), Err(StreamError::Closed)));
        let more = stream.blocking_write_and_flush(Bytes::from_static(b"x")).await;
        assert!(matches!(more, Err(StreamError::Closed)), "{more:?}");
        assert_eq!(slow.0.lock().1, 0);
    }
}
