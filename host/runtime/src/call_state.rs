//! What a running call and its controls share: signals, pause, and the two clocks.
//!
//! Owns the one gate that a call passes at every epoch tick and at every import. Must not know why a signal was sent.
//! Invariant: while a call is paused or waits for its client or for a permit, neither clock runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::call_activity::CallActivity;
use super::wasi_context::StderrTail;
use bulkhead_calls::journal::JournalReport;
use bulkhead_calls::{CallContext, CallLevers, ClientView, Spent};
use bulkhead_traces::{Kind, Span};

/// CPU time that a replay may take beside twice of what it does again: a start, and code that is not compiled yet.
const REPLAY_CPU_BASE: Duration = Duration::from_secs(2);

/// The state behind the levers of a call.
#[derive(Debug, Default)]
pub(crate) struct CallState {
    cancelled: AtomicBool,
    cancel_signal: Notify,
    cooperative: AtomicBool,
    steering: AtomicBool,
    paused: AtomicBool,
    resumed: Notify,
    cpu_us: AtomicU64,
    /// What the call had used before its host stopped, while its journal is replayed.
    before: Mutex<Option<Spent>>,
    /// CPU time that the replay may take, in microseconds; 0 while none is under way.
    replay_us_max: AtomicU64,
    /// Empty until the call begins.
    activity: OnceLock<CallActivity>,
    task_id: OnceLock<String>,
    audience: Mutex<Option<ClientView>>,
    wall: Mutex<Wall>,
    /// None of a call that is not recorded.
    pub(super) span: Option<Span>,
    /// Of a guest that runs no program.
    pub(super) stderr: StderrTail,
    /// Of a call with a journal that is over.
    journal: OnceLock<Box<JournalReport>>,
    /// Whether everything that the call has begun outside is in its journal.
    can_leave_memory: AtomicBool,
    /// CPU time that the call had used where it would begin again, in microseconds.
    cpu_at_beginning_us: AtomicU64,
    /// Told when the wall clock starts again, since its timer is then out of date.
    supervisor: AtomicWaker,
}

/// A stopwatch that several reasons can hold at once.
#[derive(Debug, Default)]
struct Wall {
    used: Duration,
    since: Option<Instant>,
    holds: u32,
}

impl Wall {
    fn elapsed(&self, now: Instant) -> Duration {
        self.used + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl CallState {
    /// Of a call that this span is of.
    pub(super) fn recorded(span: Option<Span>) -> Self {
        Self { span, ..Self::default() }
    }

    /// Starts the wall clock, unless the call is paused already.
    pub(super) fn start(&self) {
        let mut wall = self.wall.lock();
        if wall.holds == 0 && wall.since.is_none() {
            wall.since = Some(Instant::now());
        }
    }

    /// How long the call has run, and whether its clock is stopped.
    pub(super) fn wall_elapsed(&self) -> (Duration, bool) {
        let wall = self.wall.lock();
        (wall.elapsed(Instant::now()), wall.holds > 0)
    }

    pub(super) fn register_supervisor(&self, waker: &Waker) {
        self.supervisor.register(waker);
    }

    /// Stops the wall clock until the guard is dropped.
    pub(super) fn hold(self: &Arc<Self>) -> ClockPause {
        self.stop_wall();
        ClockPause(Arc::clone(self))
    }

    fn stop_wall(&self) {
        let mut wall = self.wall.lock();
        wall.holds += 1;
        if let Some(since) = wall.since.take() {
            wall.used += since.elapsed();
        }
    }

    fn start_wall(&self) {
        let mut wall = self.wall.lock();
        wall.holds = wall.holds.saturating_sub(1);
        if wall.holds == 0 {
            wall.since = Some(Instant::now());
        }
        drop(wall);
        self.supervisor.wake();
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Comes back when the call may go on: at once, unless it is paused.
    pub(super) async fn turn(&self) {
        while self.is_paused() {
            let resumed = self.resumed.notified();
            tokio::pin!(resumed);
            // Registered before the second look, so that a resume in between is not missed.
            resumed.as_mut().enable();
            if !self.is_paused() {
                return;
            }
            resumed.await;
        }
    }

    pub(super) fn add_cpu(&self, used: Duration) -> Duration {
        let used = u64::try_from(used.as_micros()).unwrap_or(u64::MAX);
        if let Some(activity) = self.activity.get() {
            activity.cpu_used(used);
        }
        Duration::from_micros(self.cpu_us.fetch_add(used, Ordering::Relaxed).saturating_add(used))
    }

    /// Counts the call there, too, from now on.
    pub(super) fn count_in(&self, activity: CallActivity) {
        self.activity.get_or_init(|| activity);
    }

    pub(super) fn activity(&self) -> Option<&CallActivity> {
        self.activity.get()
    }

    /// The call does again what it had used this for. That has a budget of its own: it is not the guest's doing that it
    /// runs again.
    pub(super) fn replay(&self, before: Spent) {
        let budget = before.cpu.saturating_mul(2).saturating_add(REPLAY_CPU_BASE);
        self.replay_us_max.store(u64::try_from(budget.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        *self.before.lock() = Some(before);
    }

    /// The replay is over: from here on the call uses its own budgets, where it had come to.
    pub(super) fn go_on(&self) {
        let Some(before) = self.before.lock().take() else { return };
        self.replay_us_max.store(0, Ordering::Relaxed);
        self.cpu_us.store(u64::try_from(before.cpu.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut wall = self.wall.lock();
        wall.used = before.wall;
        wall.since = wall.since.map(|_| Instant::now());
        drop(wall);
        self.supervisor.wake();
    }

    /// CPU time that the call may take at the moment, if its own limit is this.
    pub(super) fn cpu_max(&self, limit: Duration) -> Duration {
        match self.replay_us_max.load(Ordering::Relaxed) {
            0 => limit,
            us => Duration::from_micros(us),
        }
    }

    /// CPU time so far.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_us.load(Ordering::Relaxed))
    }

    /// The guest looked at its signals, so it deserves a grace period.
    pub(crate) fn look(&self) -> (bool, bool) {
        self.cooperative.store(true, Ordering::Release);
        (self.cancelled.load(Ordering::Acquire), self.steering.load(Ordering::Acquire))
    }

    /// Comes back once the call is cancelled.
    pub(crate) async fn cancel_signalled(&self) {
        let signalled = self.cancel_signal.notified();
        if !self.cancelled.load(Ordering::Acquire) {
            signalled.await;
        }
    }

    pub(super) fn has_steering(&self) -> bool {
        self.steering.load(Ordering::Acquire)
    }

    /// The current client: that of the latest request, else that of the request that began the call.
    pub(crate) fn audience(&self, facts: &CallContext) -> ClientView {
        let later = *self.audience.lock();
        let &CallContext { features, log_level, wants_progress, .. } = facts;
        later.unwrap_or(ClientView { features, log_level, wants_progress })
    }

    /// Whether everything that the call has begun outside is in its journal from here on.
    pub(super) fn set_can_leave_memory(&self, can_leave_memory: bool) {
        self.can_leave_memory.store(can_leave_memory, Ordering::Release);
    }

    /// The call would begin again where it had used so much.
    pub(super) fn set_cpu_at_beginning(&self, cpu: Duration) {
        let us = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        self.cpu_at_beginning_us.store(us, Ordering::Release);
    }

    /// What came of the journal.
    pub(super) fn keep_report(&self, report: JournalReport) {
        self.journal.get_or_init(|| Box::new(report));
    }

    /// Why the call has no journal, where it was to have one.
    pub(super) fn why_not_journaled(&self) -> String {
        self.journal.get().map(|report| report.status.to_string()).unwrap_or_default()
    }

    pub(super) fn task_id(&self) -> Option<&str> {
        self.task_id.get().map(String::as_str)
    }

    pub(super) fn set_task_id(&self, id: String) {
        // A call becomes a task at most once: the first id stays.
        self.task_id.get_or_init(|| id);
    }
}

/// Holds the wall clock of a call.
pub(super) struct ClockPause(Arc<CallState>);

impl Drop for ClockPause {
    fn drop(&mut self) {
        self.0.start_wall();
    }
}

impl CallLevers for CallState {
    fn signal_cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.cancel_signal.notify_waiters();
    }

    fn is_cooperative(&self) -> bool {
        self.cooperative.load(Ordering::Acquire)
    }

    fn pause(&self) {
        if !self.paused.swap(true, Ordering::AcqRel) {
            self.stop_wall();
        }
    }

    fn resume(&self) {
        if self.paused.swap(false, Ordering::AcqRel) {
            self.start_wall();
            self.resumed.notify_waiters();
        }
    }

    fn promoted(&self, task_id: &str) {
        self.set_task_id(task_id.to_owned());
    }

    fn set_client(&self, client: ClientView) {
        *self.audience.lock() = Some(client);
    }

    fn steering_pending(&self, pending: bool) {
        self.steering.store(pending, Ordering::Release);
    }

    fn note(&self, what: &'static str) {
        if let Some(span) = &self.span {
            span.event(what);
        }
    }

    fn begin_span(&self, name: &'static str) -> Option<Span> {
        self.span.as_ref()?.child(name, Kind::Client)
    }

    fn journal(&self) -> Option<&JournalReport> {
        self.journal.get().map(|report| &**report)
    }

    fn can_leave_memory(&self) -> bool {
        self.can_leave_memory.load(Ordering::Acquire)
    }

    fn cpu_ms(&self) -> u64 {
        self.cpu_us.load(Ordering::Relaxed) / 1000
    }

    fn cpu_ms_to_repeat(&self) -> u64 {
        let from = self.cpu_at_beginning_us.load(Ordering::Acquire);
        self.cpu_us.load(Ordering::Relaxed).saturating_sub(from) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_go_on_where_the_killed_run_had_come_to() {
        let state = CallState::default();
        let limit = Duration::from_millis(1_000);
        let ms = Duration::from_millis;
        state.start();
        state.replay(Spent { cpu: ms(900), wall: ms(60_000) });
        assert_eq!(state.cpu_max(limit), ms(3_800), "a replay has a budget of its own");
        assert_eq!(state.add_cpu(ms(950)), ms(950));
        state.go_on();
        assert_eq!((state.cpu(), state.cpu_max(limit)), (ms(900), limit), "what the replay took is not the guest's");
        assert_eq!(state.add_cpu(ms(50)), ms(950));
        let (wall, _) = state.wall_elapsed();
        assert!(wall >= ms(60_000) && wall < ms(120_000), "{wall:?}");
        state.go_on();
        assert_eq!(state.cpu(), ms(950), "a call goes on once");
    }

    #[test]
    fn guest_sees_what_the_levers_signal() {
        let state = CallState::default();
        assert!(!state.is_cooperative());
        assert_eq!(state.look(), (false, false));
        state.signal_cancel();
        state.steering_pending(true);
        assert_eq!(state.look(), (true, true));
        assert!(state.is_cooperative());
    }
}
