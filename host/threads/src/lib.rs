//! Threads for guests, and for work on messages: one per core, without timers or sockets, which belong to the host's
//! I/O runtime.
//!
//! Owns when each guest is polled. Must not know what a guest does nor whose it is: it sees a future and a [`Share`].
//! Invariants: a guest is polled by one thread at a time, and in the order of [`FairQueue`]; a guest that was stopped
//! is dropped by the next thread whose turn is over, however far back it stands.
//!
//! A guest that computes comes back at every epoch tick and stands in line again, so a turn is a tick at most. A call
//! that is over before its first tick pays what any executor costs: one push and one pop under a lock.
//!
//! The queue is fair over opaque shares, one for each tenant, and within a share over its parts, one for each
//! requestor, so that `runtime` does not learn whose call it runs. What is charged is CPU time, by weight. A tick comes
//! early when a call arrives that is first in line and has nothing running. A call that its client waits for may have
//! its first turn on the thread that read the request ([`first_slice`]). Timers, DNS and sockets belong to the I/O
//! runtime, so a guest that spins never delays another's wake-up, and a health check by such a first turn at most. Work
//! on large messages ([`MessageWorkers`]) has a second set of threads with the same queue, and its time is charged to
//! the share that its tenant's guests have here.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod first_slice;
mod message_workers;
mod meter;
mod pulse;
mod queue;

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

pub use message_workers::MessageWorkers;
use meter::Meter;
pub use meter::poll_spent;
pub use pulse::GuestPulse;
use queue::FairQueue;
pub use queue::Share;

/// How much nicer guests are than the host's own threads: enough that a health check never queues behind a guest that
/// computes.
const GUEST_NICENESS: i32 = 5;

/// The least time between two early ticks. A tick is early when a call becomes ready whose share is first and has
/// nothing running.
const HURRY_EVERY: Duration = Duration::from_millis(1);

/// How long work on a message is expected to take before it is known.
const MESSAGE_TURN: Duration = Duration::from_millis(10);

type GuestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Stops the work that it belongs to; harmless when that has ended.
pub trait Stop: fmt::Debug + Send + Sync {
    /// The work ends within a tick.
    fn stop(self: Arc<Self>);
}

impl Stop for tokio::task::JoinHandle<()> {
    fn stop(self: Arc<Self>) {
        self.abort();
    }
}

/// The threads; see the module. Dropping them ends them at their next tick, and every guest that is ready.
pub struct Threads(Arc<Pool>);

struct Pool {
    line: Mutex<RunQueue>,
    came: Condvar,
    threads: usize,
    /// Whether turns are short enough for the thread of a request.
    has_first_slices: bool,
    /// Where guests wait: for timers and sockets that they begin.
    io: tokio::runtime::Handle,
    /// Told when all threads have ended.
    ended: Condvar,
    /// Ends the present turn of every guest.
    tick: Box<dyn Fn() + Send + Sync>,
}

struct RunQueue {
    fair: FairQueue<Arc<Guest>>,
    /// To be dropped.
    stopped: Vec<Arc<Guest>>,
    /// Threads that wait for a ready call, and those of them that were woken.
    idle: usize,
    woken: usize,
    /// Guests that have their first slices on other threads than these.
    first_slices: usize,
    /// Threads that have not ended.
    living: usize,
    hurried_at: Option<Instant>,
    closed: bool,
}

/// A future on these threads.
struct Guest {
    pool: Arc<Pool>,
    share: Share,
    state: AtomicU8,
    /// Locked by the one thread that `state` names, so no thread ever waits.
    work: Mutex<Option<GuestFuture>>,
}

/// Stands in line.
const QUEUED: u8 = 1;
/// A thread polls it.
const RUNNING: u8 = 2;
/// Was woken while it was polled.
const WOKEN: u8 = 4;
/// Is over, or is to be.
const STOPPED: u8 = 8;

/// What a thread has to do.
enum SchedulerStep {
    Poll(Share, Arc<Guest>),
    Drop(Arc<Guest>),
}

/// A turn that is over.
struct FinishedSlice {
    share: Share,
    used: Duration,
    /// It wants another one.
    again: Option<Arc<Guest>>,
}

impl Threads {
    /// Starts one thread per core. What waits in a guest waits on `io`; `tick` ends the present turn of every guest,
    /// and a turn is about `turn` long.
    pub fn start(
        io: &tokio::runtime::Handle,
        turn: Duration,
        tick: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_with("guest", cores(), io, FairQueue::new(micros(turn)), tick)
    }

    /// Starts threads for other work of the same shares: one per core, but two at least, so that one long turn does not
    /// delay all others. Nothing ends a turn there but the work itself.
    fn start_message_workers(io: &tokio::runtime::Handle) -> io::Result<Self> {
        Self::start_with("message", cores().max(2), io, FairQueue::secondary(micros(MESSAGE_TURN)), || {})
    }

    fn start_with(
        name: &str,
        count: usize,
        io: &tokio::runtime::Handle,
        fair: FairQueue<Arc<Guest>>,
        tick: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let has_first_slices = fair.turn() <= Duration::from_millis(first_slice::FIRST_SLICE_MS_MAX);
        let line = RunQueue {
            fair,
            stopped: Vec::new(),
            idle: 0,
            woken: 0,
            first_slices: 0,
            living: 0,
            hurried_at: None,
            closed: false,
        };
        let threads = Self(Arc::new(Pool {
            line: Mutex::new(line),
            came: Condvar::new(),
            threads: count,
            has_first_slices,
            io: io.clone(),
            ended: Condvar::new(),
            tick: Box::new(tick),
        }));
        for _ in 0..count {
            let pool = Arc::clone(&threads.0);
            pool.line.lock().living += 1;
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                if let Err(error) = rustix::process::nice(GUEST_NICENESS) {
                    tracing::debug!(%error, "guest threads keep the host's priority");
                }
                let _io = pool.io.enter();
                pool.serve();
                pool.thread_ended();
            })?;
        }
        Ok(threads)
    }

    /// Puts a future in line.
    pub fn spawn(&self, share: &Share, work: impl Future<Output = ()> + Send + 'static) -> Arc<dyn Stop> {
        spawn(&self.0, share, work)
    }

    /// Gives a future its first turn on this thread if that delays nobody, else puts it in line; see [`first_slice`].
    pub fn begin(&self, share: &Share, work: impl Future<Output = ()> + Send + 'static) -> Arc<dyn Stop> {
        let guest = Guest::new(&self.0, share, work);
        self.0.begin(Arc::clone(&guest));
        guest
    }

    /// The same as [`Self::spawn`] for one whose result is wanted. Nothing comes if it panics.
    pub fn run<T: Send + 'static>(
        &self,
        share: &Share,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        run(&self.0, share, work)
    }

    /// Ends the threads with every guest that is ready, and waits for turns in progress, for so long at most. Guests
    /// hold timers of the I/O runtime, which must not be gone before them. Whether all have ended.
    pub fn end(&self, within: Duration) -> bool {
        self.0.close();
        (self.0.tick)();
        let mut line = self.0.line.lock();
        !self.0.ended.wait_while_for(&mut line, |line| !line.has_ended(), within).timed_out()
    }

    /// What says whether these threads go on.
    pub fn pulse(&self) -> GuestPulse {
        GuestPulse::new(Arc::clone(&self.0), pulse::Times::default())
    }
}

fn spawn(pool: &Arc<Pool>, share: &Share, work: impl Future<Output = ()> + Send + 'static) -> Arc<dyn Stop> {
    let guest = Guest::new(pool, share, work);
    pool.push(Arc::clone(&guest));
    guest
}

fn run<T: Send + 'static>(
    pool: &Arc<Pool>,
    share: &Share,
    work: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    spawn(pool, share, async move {
        // Who asked may have gone, also while the work stood in line.
        if !sender.is_closed() {
            let _ = sender.send(work.await);
        }
    });
    receiver
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").finish_non_exhaustive()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Guests come to their next tick and are dropped there; waiting for that would block whoever drops the sandbox.
        self.0.close();
    }
}

impl Pool {
    fn is_closed(&self) -> bool {
        self.line.lock().closed
    }

    fn close(&self) {
        self.line.lock().closed = true;
        self.came.notify_all();
    }

    /// Puts a guest in line that says that it is queued.
    fn push(&self, guest: Arc<Guest>) {
        let share = guest.share.clone();
        self.add(guest, |line, guest| line.fair.push(&share, guest));
    }

    /// Has a guest dropped that nobody polls.
    fn push_stopped(&self, guest: Arc<Guest>) {
        self.add(guest, |line, guest| {
            line.stopped.push(guest);
            false
        });
    }

    /// Adds a guest to what the threads have to do, and wakes one of them for it; `add` says whether it should not have
    /// to wait for one.
    fn add(&self, guest: Arc<Guest>, add: impl FnOnce(&mut RunQueue, Arc<Guest>) -> bool) {
        let mut line = self.line.lock();
        if line.closed {
            drop(line);
            guest.discard();
            return;
        }
        let first = add(&mut line, guest);
        let tell = line.tell_one();
        let hurry = first && !tell && line.may_hurry();
        drop(line);
        if tell {
            self.came.notify_one();
        }
        if hurry {
            (self.tick)();
        }
    }

    fn thread_ended(&self) {
        let mut line = self.line.lock();
        line.living = line.living.saturating_sub(1);
        self.tell_ended(&line);
    }

    /// To be called where a thread or a first slice is over.
    fn tell_ended(&self, line: &RunQueue) {
        if line.has_ended() {
            self.ended.notify_all();
        }
    }

    /// One thread, to the end.
    fn serve(&self) {
        let mut over = None;
        let mut meter = Meter::new();
        while let Some(turn) = self.next(over.take()) {
            match turn {
                SchedulerStep::Drop(guest) => guest.discard(),
                SchedulerStep::Poll(share, guest) => {
                    let begun = Instant::now();
                    let again = guest.poll();
                    over = Some(FinishedSlice { share, used: meter.spent(begun.elapsed()), again });
                }
            }
        }
        let mut line = self.line.lock();
        let stopped = std::mem::take(&mut line.stopped);
        let ready = line.fair.drain();
        drop(line);
        stopped.into_iter().chain(ready).for_each(|guest| guest.discard());
    }

    /// Takes note of the last turn and waits for the next one; `None` when the pool is closed.
    fn next(&self, over: Option<FinishedSlice>) -> Option<SchedulerStep> {
        let mut line = self.line.lock();
        if let Some(FinishedSlice { share, used, again }) = over {
            line.fair.charge(&share, micros(used));
            if let Some(guest) = again {
                line.fair.push(&share, guest);
            }
        }
        loop {
            if line.closed {
                return None;
            }
            if let Some(guest) = line.stopped.pop() {
                return Some(SchedulerStep::Drop(guest));
            }
            if let Some((share, guest)) = line.fair.pop() {
                return Some(SchedulerStep::Poll(share, guest));
            }
            line.idle += 1;
            self.came.wait(&mut line);
            line.idle -= 1;
            line.woken = line.woken.saturating_sub(1);
        }
    }
}

impl RunQueue {
    /// Whether no guest has a turn any more.
    fn has_ended(&self) -> bool {
        self.living == 0 && self.first_slices == 0
    }

    /// Whether a waiting thread must be woken; it counts as woken from now on.
    fn tell_one(&mut self) -> bool {
        let waits = self.idle > self.woken;
        self.woken += usize::from(waits);
        waits
    }

    fn may_hurry(&mut self) -> bool {
        let now = Instant::now();
        let may = self.hurried_at.is_none_or(|at| now.saturating_duration_since(at) >= HURRY_EVERY);
        if may {
            self.hurried_at = Some(now);
        }
        may
    }
}

impl Guest {
    /// One that says that it is queued.
    fn new(pool: &Arc<Pool>, share: &Share, work: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::clone(pool),
            share: share.clone(),
            state: AtomicU8::new(QUEUED),
            work: Mutex::new(Some(Box::pin(work))),
        })
    }

    /// Polls it once. Gives it back if it wants another turn.
    fn poll(self: Arc<Self>) -> Option<Arc<Self>> {
        let claim = |state| (state & STOPPED == 0).then_some(RUNNING);
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, claim).is_err() {
            // It is among the stopped ones.
            return None;
        }
        let waker = Waker::from(Arc::clone(&self));
        let mut work = self.work.lock();
        let polled = match work.as_mut() {
            Some(work) => {
                let mut context = Context::from_waker(&waker);
                catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context))).unwrap_or_else(|_| {
                    tracing::error!("a guest's thread caught a panic");
                    Poll::Ready(())
                })
            }
            None => Poll::Ready(()),
        };
        drop(work);
        if polled.is_ready() {
            self.discard();
            return None;
        }
        let leave = |state| match state {
            state if state & STOPPED != 0 => Some(STOPPED),
            state if state & WOKEN != 0 => Some(QUEUED),
            _ => Some(0),
        };
        let left = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave).unwrap_or(STOPPED);
        if left & STOPPED != 0 {
            self.discard();
            return None;
        }
        (left & WOKEN != 0).then_some(self)
    }

    /// Ends it for good. Only the thread that has exclusive use of it may do so.
    fn discard(&self) {
        self.state.store(STOPPED, Ordering::Release);
        let work = self.work.lock().take();
        if catch_unwind(AssertUnwindSafe(|| drop(work))).is_err() {
            tracing::error!("a guest panicked when it was dropped");
        }
    }
}

impl Wake for Guest {
    fn wake(self: Arc<Self>) {
        let wake = |state| match state {
            state if state & RUNNING != 0 => Some(state | WOKEN),
            0 => Some(QUEUED),
            _ => None,
        };
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, wake) == Ok(0) {
            Arc::clone(&self.pool).push(self);
        }
    }
}

impl Stop for Guest {
    fn stop(self: Arc<Self>) {
        let before = self.state.fetch_or(STOPPED, Ordering::AcqRel);
        // One that is polled is dropped by the thread that polls it.
        if before & (RUNNING | STOPPED) == 0 {
            Arc::clone(&self.pool).push_stopped(self);
        }
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").finish_non_exhaustive()
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
