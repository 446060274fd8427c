//! Watches a guest from outside: its CPU time, its wall clock, and its unsent events.
//!
//! Owns the one place where a guest is polled. Invariant: every guest comes back here at least once per epoch tick, and
//! nothing that it does can move the two budgets.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::call_state::CallState;
use super::events::Outbox;
use bulkhead_domain::limits::CallLimits;
use bulkhead_threads::poll_spent;

/// Deadlines closer together than this are one.
const TIMER_SLACK: Duration = Duration::from_millis(1);

/// Why a guest was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Cpu,
    Wall,
}

/// A guest with its budgets.
pub(super) struct Supervised<'a, T> {
    guest: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    shared: Arc<CallState>,
    outbox: Outbox,
    cpu_max: Duration,
    wall_max: Duration,
    /// Made when the guest first waits: most never do.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, T> Supervised<'a, T> {
    /// The wall clock starts now.
    pub(super) fn new(
        guest: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
        shared: Arc<CallState>,
        outbox: Outbox,
        limits: &CallLimits,
    ) -> Self {
        shared.start();
        let cpu_max = Duration::from_millis(limits.cpu_ms);
        let wall_max = Duration::from_millis(limits.wall_ms);
        Self { guest, shared, outbox, cpu_max, wall_max, timer: None }
    }

    /// When to look again if nothing happens before: the deadline, or the next event that the rate allows.
    fn due(&self) -> Result<Option<Instant>, Stopped> {
        let event = self.outbox.deliver();
        let (elapsed, held) = self.shared.wall_elapsed();
        if elapsed >= self.wall_max {
            return Err(Stopped::Wall);
        }
        let deadline = (!held).then(|| Instant::now() + (self.wall_max - elapsed));
        Ok(event.into_iter().chain(deadline).min())
    }

    fn set_timer(&mut self, due: Instant) -> Pin<&mut Sleep> {
        let due = tokio::time::Instant::from_std(due);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        let set = timer.deadline();
        if due > set + TIMER_SLACK || due + TIMER_SLACK < set {
            timer.as_mut().reset(due);
        }
        timer.as_mut()
    }
}

impl<T> Future for Supervised<'_, T> {
    type Output = Result<T, Stopped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let begun = Instant::now();
        let polled = this.guest.as_mut().poll(cx);
        let cpu = this.shared.add_cpu(poll_spent(begun.elapsed()));
        if let Poll::Ready(returned) = polled {
            return Poll::Ready(Ok(returned));
        }
        if cpu > this.shared.cpu_max(this.cpu_max) {
            return Poll::Ready(Err(Stopped::Cpu));
        }
        this.shared.register_supervisor(cx.waker());
        loop {
            match this.due() {
                Err(stopped) => return Poll::Ready(Err(stopped)),
                Ok(None) => return Poll::Pending,
                Ok(Some(due)) => {
                    if this.set_timer(due).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}
