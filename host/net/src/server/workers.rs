//! The threads that connections live on.
//!
//! Owns the workers, each a runtime of one thread, and assigns a connection to the one with the fewest. A thread that
//! waits for its own connections alone is woken by the kernel only when one of them has data; where all threads shared
//! all connections, a tenth of the processors' time was spent waiting for each other. A connection that carries a large
//! body is served by separate threads until its next small request, because moving megabytes would hold up the others.
//! Invariants: whatever a connection starts goes on until the workers are dropped, whether or not the connection is
//! still there; one thread at a time serves it.

use std::future::poll_fn;
use std::io;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

/// Niceness of the threads for large bodies: that of guests.
const LARGE_BODY_NICENESS: i32 = 5;

/// See the module.
pub struct ConnectionWorkers {
    workers: Vec<Worker>,
    large_bodies: Worker,
}

/// Where a connection should be served: by its own worker, or by the threads for large bodies.
#[derive(Clone, Debug, Default)]
pub struct WorkerPreference(Option<Arc<AtomicBool>>);

impl WorkerPreference {
    /// Moves the connection there, unless it is there already or the server has no workers.
    pub async fn set_large_body(&self, is_large: bool) {
        let Some(preferred) = &self.0 else { return };
        if preferred.load(Ordering::Relaxed) != is_large {
            preferred.store(is_large, Ordering::Relaxed);
            // The connection moves when its future is pending.
            tokio::task::yield_now().await;
        }
    }

    fn has_large_body(&self) -> bool {
        self.0.as_ref().is_some_and(|preferred| preferred.load(Ordering::Relaxed))
    }
}

/// A connection and the runtimes that may serve it.
struct ScheduledConnection {
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
    preference: WorkerPreference,
    worker: Handle,
    large_bodies: Handle,
}

impl ScheduledConnection {
    /// Serves the connection on the preferred runtime and moves it when the preference changes.
    fn serve(mut self) {
        let is_large = self.preference.has_large_body();
        let runtime = if is_large { self.large_bodies.clone() } else { self.worker.clone() };
        runtime.spawn(async move {
            let moves = poll_fn(|cx| match self.serving.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending if self.preference.has_large_body() != is_large => Poll::Ready(true),
                Poll::Pending => Poll::Pending,
            });
            if moves.await {
                self.serve();
            }
        });
    }
}

struct Worker {
    /// `None` only while it is dropped. One that can get another thread when a reader of the store has to block its
    /// own.
    runtime: Option<Runtime>,
    /// Every connection holds a clone.
    connections: Arc<()>,
}

impl Worker {
    fn connections(&self) -> usize {
        Arc::strong_count(&self.connections) - 1
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The last owner may be on a thread that must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ConnectionWorkers {
    /// One more than there are processors: quick calls begin on these threads, and one that is not quick after all
    /// holds its thread up for a tick.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start() -> io::Result<Self> {
        Self::of(thread::available_parallelism().map_or(1, NonZero::get).saturating_add(1))
    }

    fn of(count: usize) -> io::Result<Self> {
        let worker = |_| {
            let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("edge").enable_all().build()?;
            Ok(Worker { runtime: Some(runtime), connections: Arc::default() })
        };
        let large_bodies =
            Builder::new_multi_thread().thread_name("edge-large").on_thread_start(be_nice).enable_all().build()?;
        let large_bodies = Worker { runtime: Some(large_bodies), connections: Arc::default() };
        Ok(Self { workers: (0..count).map(worker).collect::<io::Result<_>>()?, large_bodies })
    }

    /// Serves a connection on the worker that has the fewest.
    pub(super) fn spawn<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream, WorkerPreference) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.connections()) else { return };
        let handle = |worker: &Worker| Some(worker.runtime.as_ref()?.handle().clone());
        let (Some(large_bodies), Some(own)) = (handle(&self.large_bodies), handle(worker)) else { return };
        let counted = Arc::clone(&worker.connections);
        let preference = WorkerPreference(Some(Arc::default()));
        let own_preference = preference.clone();
        let serving = Box::pin(async move {
            // A stream belongs to the runtime that it was made in. It fails only on a socket that is gone.
            if let Ok(stream) = stream.into_std().and_then(TcpStream::from_std) {
                serve(stream, own_preference).await;
            }
            drop(counted);
        });
        ScheduledConnection { serving, preference, worker: own, large_bodies }.serve();
    }
}

fn be_nice() {
    if let Err(error) = rustix::process::nice(LARGE_BODY_NICENESS) {
        tracing::debug!(%error, "threads for large bodies keep the host's priority");
    }
}

#[cfg(test)]
mod unit {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_are_spread_over_workers_and_released() {
        let workers = ConnectionWorkers::of(2).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (accepted, _) = listener.accept().await.unwrap();
            workers.spawn(accepted, |mut stream, _| async move {
                let mut byte = [0];
                if stream.read_exact(&mut byte).await.is_ok() {
                    let _ = stream.write_all(&byte).await;
                }
            });
        }
        let counts = || workers.workers.iter().map(Worker::connections).collect::<Vec<_>>();
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
        panic!("connections stay counted: {:?}", counts());
    }

    #[tokio::test]
    async fn connection_moves_between_workers_with_its_socket() {
        let workers = ConnectionWorkers::of(1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        workers.spawn(accepted, |mut stream, preference| async move {
            for is_large in [false, true, true, false, true] {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                preference.set_large_body(is_large).await;
                let name = thread::current().name().unwrap_or_default().to_owned();
                stream.write_all(format!("{name}\n").as_bytes()).await.unwrap();
            }
        });
        let mut names = String::new();
        for _ in 0..5 {
            client.write_all(b"x").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        client.read_to_string(&mut names).await.unwrap();
        assert_eq!(names, "edge\nedge-large\nedge-large\nedge\nedge-large\n");
    }
}
