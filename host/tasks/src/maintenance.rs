//! What the engine does by itself: recover at start, expire on time, keep leases, and drain at the end.

use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::admission::{IdleState, Purpose};
use super::engine::{HEARTBEAT, Inner, LEASE_MS, Tasks};
use super::resuming::{holding, interruption};
use super::run::{RunStart, is_paused, is_running};
use super::watchers::NotificationMark;
use bulkhead_domain::lifecycle::{Event, Interruption};
use bulkhead_domain::task::{Active, Phase, Task};

/// Tasks that one look at the store takes on.
const BATCH: usize = 256;

/// The sweeper looks at least this often, whatever it knows of the next expiry: another process may share the store.
const SWEEP_MS_MAX: u64 = 1_000;

/// What one look spends on keys of plugins and used single-use tokens: tasks and leases wait for it.
const SWEEP_ROWS_MAX: Duration = Duration::from_millis(500);

/// Idle rate-limit entries are forgotten this often.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Tasks that wait for their turn, again or still.
    pub queued: usize,
    /// Tasks that were running and can only be reported as lost.
    pub interrupted: usize,
    /// Paused tasks that had not started.
    pub paused: usize,
    /// Tasks that go on where they were.
    pub resumed: usize,
}

impl Inner {
    /// A task's expiry became known. The sweeper is woken only for what cannot wait for its next look: waking it for every
    /// creation would make it walk the index thousands of times a second.
    pub(super) fn may_expire(&self, task: &Task) {
        let next_look = self.clock.now().saturating_add(SWEEP_MS_MAX);
        if task.expires_at().is_some_and(|at| at < next_look) {
            self.sooner.notify_one();
        }
    }
}

impl Tasks {
    /// Takes over what no living host runs: queued tasks keep their place, interrupted ones fail honestly or run again where
    /// operator and tool allow it. To be called once, before the first request.
    pub async fn recover(&self) -> Result<Recovered, Error> {
        let inner = &self.inner;
        let mut recovered = Recovered::default();
        let missed_notifications = inner.watchers.mark();
        // All of them before the first goes on: one that waits to go on has no lease, and would be taken over twice.
        let mut claimed = Vec::new();
        loop {
            let batch = inner.store.claim(inner.clock.steady(), inner.lease(), BATCH).await;
            let batch = batch.map_err(|error| inner.store_error(error))?;
            let last = batch.len() < BATCH;
            claimed.extend(batch);
            if last {
                break;
            }
        }
        for task in claimed {
            self.recover_task(task, missed_notifications, &mut recovered).await;
        }
        if let Some(metrics) = inner.metrics.get() {
            let Recovered { queued, paused, interrupted, resumed } = recovered;
            metrics.recovered([queued, paused, interrupted, resumed].map(|count| count as u64));
        }
        Ok(recovered)
    }

    async fn recover_task(&self, task: Task, missed_notifications: NotificationMark, recovered: &mut Recovered) {
        let inner = &self.inner;
        let (mut task, mut goes_on) = (Arc::new(task), false);
        if is_running(&task) {
            let how = interruption(inner, &task).await;
            match inner.apply(&task.requestor, task.id, Event::Interrupt { how }, None).await {
                Ok(applied) => (task, goes_on) = (applied.after, how == Interruption::Resume),
                Err(error) => return tracing::warn!(task.id = %task.id, "a task could not be recovered: {error:?}"),
            }
        }
        if goes_on {
            task = self.held(task).await;
        }
        // What was acknowledged is taken even if the operator has lowered the limit since.
        let place = |task: &Task| inner.admission.keep(&task.requestor, IdleState::Queued);
        let (count, begin) = match task.phase {
            Phase::Ended(_) => {
                recovered.interrupted += 1;
                return;
            }
            Phase::Paused { .. } if goes_on => (&mut recovered.resumed, RunStart::Resumed(place(&task), None)),
            Phase::Active(_) if goes_on => {
                let request = inner.admission.enqueue(&task.requestor, Purpose::Task).ok();
                (&mut recovered.resumed, RunStart::Resumed(place(&task), request))
            }
            Phase::Paused { .. } => (&mut recovered.paused, RunStart::Queued(place(&task), None)),
            Phase::Active(_) => (&mut recovered.queued, inner.queue(&task.requestor, place(&task))),
        };
        *count += 1;
        inner.start_run(task, begin, None, missed_notifications).await;
    }

    /// The task, paused if it was resumed too often already.
    async fn held(&self, task: Arc<Task>) -> Arc<Task> {
        let inner = &self.inner;
        let Some(why) = holding(inner, &task).await.filter(|_| !is_paused(&task)) else { return task };
        let pause = Event::Pause { message: Some(why.to_owned()) };
        match inner.apply(&task.requestor, task.id, pause, None).await {
            Ok(applied) => applied.after,
            Err(error) => {
                tracing::warn!(task.id = %task.id, "a task could not be held: {error:?}");
                task
            }
        }
    }

    /// Expires tasks, keeps leases alive, forgets idle requestors and writes what tenants used, until dropped.
    pub async fn run_maintenance(&self) {
        tokio::join!(self.maintain(), self.write_usage_until_dropped());
    }

    async fn maintain(&self) {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut forget = tokio::time::interval(FORGET_EVERY);
        loop {
            let sweep_in = self.sweep().await;
            tokio::select! {
                () = tokio::time::sleep(sweep_in) => {}
                () = self.inner.sooner.notified() => {}
                _ = heartbeat.tick() => {
                    let until = self.inner.clock.steady().saturating_add(LEASE_MS);
                    if let Err(error) = self.inner.store.heartbeat(self.inner.node, until).await {
                        tracing::warn!("the lease could not be extended: {error}");
                    }
                }
                _ = forget.tick() => {
                    self.inner.availability.forget_idle();
                    self.inner.forget_idle_activity();
                }
            }
        }
    }

    /// Removes expired tasks; returns the time until the next look.
    async fn sweep(&self) -> Duration {
        let inner = &self.inner;
        let mut failed: usize;
        loop {
            let expired = match inner.store.expired(inner.clock.now(), BATCH).await {
                Ok(expired) => expired,
                Err(error) => {
                    tracing::warn!("expired tasks cannot be listed: {error}");
                    self.sweep_rows().await;
                    return Duration::from_millis(SWEEP_MS_MAX);
                }
            };
            failed = 0;
            for (requestor, id) in &expired {
                match inner.expire(requestor, *id).await {
                    Ok(()) => inner.note_task("task.expired", requestor, *id),
                    // Those after it must not wait for one that cannot be read.
                    Err(error) => {
                        failed += 1;
                        if failed == 1 {
                            tracing::warn!(task.id = %id, "an expired task cannot be removed: {error}");
                        }
                    }
                }
            }
            if failed > 1 {
                tracing::warn!("{failed} expired tasks cannot be removed");
            }
            if expired.len() < BATCH || failed == expired.len() {
                break;
            }
        }
        self.sweep_rows().await;
        if failed > 0 {
            // Their time is over: what comes next would be at once, again and again.
            return Duration::from_millis(SWEEP_MS_MAX);
        }
        let next = inner.store.next_expiry().await.ok().flatten();
        let ms = next.map_or(SWEEP_MS_MAX, |at| at.saturating_sub(inner.clock.now()).clamp(1, SWEEP_MS_MAX));
        Duration::from_millis(ms)
    }

    /// Removes keys of plugins and used single-use tokens whose time is over, for as long as one look may take.
    async fn sweep_rows(&self) {
        let (inner, begun) = (&self.inner, std::time::Instant::now());
        loop {
            let now = inner.clock.now();
            let (keys, tokens) =
                tokio::join!(inner.service_stores.keyvalues.sweep(now, BATCH), inner.replay_guard.sweep(now, BATCH));
            match keys.and_then(|keys| Ok(keys.max(tokens?))) {
                Ok(BATCH) if begun.elapsed() < SWEEP_ROWS_MAX => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!("expired keys of plugins or used single-use tokens cannot be removed: {error}");
                    return;
                }
            }
        }
    }

    /// Whether anything may still end by itself: what runs or sleeps does, what waits for an answer or is paused does not.
    pub(super) fn works(&self) -> bool {
        let inner = &self.inner;
        inner.availability.plain_calls() > 0 || inner.watchers.tasks().iter().any(|task| is_active(task))
    }

    /// Refuses new calls, lets running ones end for up to `grace`, then marks what is left as interrupted and closes the store.
    /// Queued tasks stay queued for the next start.
    pub async fn drain(&self, grace: Duration) -> Result<(), Error> {
        let inner = &self.inner;
        self.stop_accepting();
        let over = async {
            while self.works() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(grace, over).await;
        for task in inner.watchers.tasks().into_iter().filter(|task| is_running(task)) {
            let event = Event::Interrupt { how: interruption(inner, &task).await };
            if let Err(error) = inner.apply(&task.requestor, task.id, event, None).await {
                tracing::warn!(task.id = %task.id, "a running task could not be marked as interrupted: {error:?}");
            }
        }
        self.write_usage().await;
        inner.store.close().await.map_err(|error| inner.store_error(error))
    }
}

fn is_active(task: &Task) -> bool {
    task.phase == Phase::Active(Active::Running)
}
