//! The threads that connections live on.
//!
//! Owns a runtime of one thread for each lane, and which of them a connection gets: the one with the fewest. A thread that waits for its
//! own connections alone is woken by the kernel when one of them has something, and by nobody else; where all threads share all
//! connections, a tenth of the processors' time was spent waiting for each other. Invariant: whatever a connection starts goes on until
//! the lanes are dropped, whether or not the connection is still there.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// See the module.
pub struct Lanes(Vec<Lane>);

struct Lane {
    /// `None` only while it is dropped. One that can get another thread when a reader of the store has to block its own.
    runtime: Option<Runtime>,
    /// Every connection holds one.
    places: Arc<()>,
}

impl Lane {
    fn connections(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Whoever drops the lanes may be on a thread that must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Lanes {
    /// One more than there are processors: quick calls begin on these threads, and one that is not quick after all holds its thread up
    /// for a tick.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start() -> io::Result<Self> {
        Self::of(thread::available_parallelism().map_or(1, NonZero::get).saturating_add(1))
    }

    fn of(count: usize) -> io::Result<Self> {
        let lane = |_| {
            let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("edge").enable_all().build()?;
            Ok(Lane { runtime: Some(runtime), places: Arc::default() })
        };
        (0..count).map(lane).collect::<io::Result<_>>().map(Self)
    }

    /// Serves a connection on the lane that has the fewest.
    pub(super) fn spawn<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let least = self.0.iter().min_by_key(|lane| lane.connections());
        let Some((runtime, place)) = least.and_then(|lane| Some((lane.runtime.as_ref()?, Arc::clone(&lane.places))))
        else {
            return;
        };
        runtime.spawn(async move {
            // A stream belongs to the runtime that it was made in. It fails only on a socket that is gone.
            if let Ok(stream) = stream.into_std().and_then(TcpStream::from_std) {
                serve(stream).await;
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod unit {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_are_spread_and_leave_their_place() {
        let lanes = Lanes::of(2).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (accepted, _) = listener.accept().await.unwrap();
            lanes.spawn(accepted, |mut stream| async move {
                let mut byte = [0];
                if stream.read_exact(&mut byte).await.is_ok() {
                    let _ = stream.write_all(&byte).await;
                }
            });
        }
        let counts = || lanes.0.iter().map(Lane::connections).collect::<Vec<_>>();
        assert_eq!(counts(), [2, 2]);
        for client in &mut clients {
            client.write_all(b"x").await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"x");
        }
        for _ in 0..500 {
            if counts() == [0, 0] {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        panic!("places are kept: {:?}", counts());
    }
}
