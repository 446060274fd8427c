//! The threads that connections live on.
//!
//! Owns a runtime of one thread for each lane, and which of them a connection gets: the one with the fewest. A thread that waits for its
//! own connections alone is woken by the kernel when one of them has something, and by nobody else; where all threads share all
//! connections, a tenth of the processors' time was spent waiting for each other. A connection that carries a large body is served by
//! threads beside the lanes until its next small request, because moving megabytes would hold up the others. Invariants: whatever a
//! connection starts goes on until the lanes are dropped, whether or not the connection is still there; one thread at a time serves it.

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

/// How much nicer the threads beside the lanes are: as nice as those of guests.
const ASIDE_NICENESS: i32 = 5;

/// See the module.
pub struct ConnectionWorkers {
    lanes: Vec<Worker>,
    aside: Worker,
}

/// Where a connection would like to be served: on its lane, or aside.
#[derive(Clone, Debug, Default)]
pub struct WorkerPreference(Option<Arc<AtomicBool>>);

impl WorkerPreference {
    /// Goes there, unless the connection is there already or there are no lanes.
    pub async fn take(&self, aside: bool) {
        let Some(wish) = &self.0 else { return };
        if wish.load(Ordering::Relaxed) != aside {
            wish.store(aside, Ordering::Relaxed);
            // Whoever polls the connection looks at the wish when it waits.
            tokio::task::yield_now().await;
        }
    }

    fn is_aside(&self) -> bool {
        self.0.as_ref().is_some_and(|wish| wish.load(Ordering::Relaxed))
    }
}

/// A connection with where it may be served.
struct ScheduledConnection {
    serving: Pin<Box<dyn Future<Output = ()> + Send>>,
    seat: WorkerPreference,
    lane: Handle,
    aside: Handle,
}

impl ScheduledConnection {
    /// Serves it where it likes to be, until it would rather be elsewhere, and so on.
    fn serve(mut self) {
        let is_aside = self.seat.is_aside();
        let runtime = if is_aside { self.aside.clone() } else { self.lane.clone() };
        runtime.spawn(async move {
            let moves = poll_fn(|cx| match self.serving.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending if self.seat.is_aside() != is_aside => Poll::Ready(true),
                Poll::Pending => Poll::Pending,
            });
            if moves.await {
                self.serve();
            }
        });
    }
}

struct Worker {
    /// `None` only while it is dropped. One that can get another thread when a reader of the store has to block its own.
    runtime: Option<Runtime>,
    /// Every connection holds one.
    places: Arc<()>,
}

impl Worker {
    fn connections(&self) -> usize {
        Arc::strong_count(&self.places) - 1
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Whoever drops the lanes may be on a thread that must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ConnectionWorkers {
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
            Ok(Worker { runtime: Some(runtime), places: Arc::default() })
        };
        let aside =
            Builder::new_multi_thread().thread_name("edge-aside").on_thread_start(be_nice).enable_all().build()?;
        let aside = Worker { runtime: Some(aside), places: Arc::default() };
        Ok(Self { lanes: (0..count).map(lane).collect::<io::Result<_>>()?, aside })
    }

    /// Serves a connection on the lane that has the fewest.
    pub(super) fn spawn<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream, WorkerPreference) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(lane) = self.lanes.iter().min_by_key(|lane| lane.connections()) else { return };
        let handle = |lane: &Worker| Some(lane.runtime.as_ref()?.handle().clone());
        let (Some(aside), Some(own)) = (handle(&self.aside), handle(lane)) else { return };
        let (place, seat) = (Arc::clone(&lane.places), WorkerPreference(Some(Arc::default())));
        let taken = seat.clone();
        let serving = Box::pin(async move {
            // A stream belongs to the runtime that it was made in. It fails only on a socket that is gone.
            if let Ok(stream) = stream.into_std().and_then(TcpStream::from_std) {
                serve(stream, taken).await;
            }
            drop(place);
        });
        ScheduledConnection { serving, seat, lane: own, aside }.serve();
    }
}

fn be_nice() {
    if let Err(error) = rustix::process::nice(ASIDE_NICENESS) {
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
        let lanes = ConnectionWorkers::of(2).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (accepted, _) = listener.accept().await.unwrap();
            lanes.spawn(accepted, |mut stream, _| async move {
                let mut byte = [0];
                if stream.read_exact(&mut byte).await.is_ok() {
                    let _ = stream.write_all(&byte).await;
                }
            });
        }
        let counts = || lanes.lanes.iter().map(Worker::connections).collect::<Vec<_>>();
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

    #[tokio::test]
    async fn connection_moves_between_workers_with_its_socket() {
        let lanes = ConnectionWorkers::of(1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        lanes.spawn(accepted, |mut stream, seat| async move {
            for aside in [false, true, true, false, true] {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                seat.take(aside).await;
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
        assert_eq!(names, "edge\nedge-aside\nedge-aside\nedge\nedge-aside\n");
    }
}
