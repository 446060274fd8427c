//! What the engine does by itself: expire on time, keep leases, wake sleepers, go on with a takeover, and drain at the
//! end.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::engine::{EngineContext, LEASE_MS, Tasks};
use crate::parts::activity::RequestorActivity;
use bulkhead_domain::task::Task;

pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// Tasks that one look at the store takes on.
const BATCH: usize = 256;

/// The sweeper looks at least this often, whatever it knows of the next expiry: another process may share the store.
const SWEEP_MS_MAX: u64 = 1_000;

/// What one look spends on keys of plugins and used single-use tokens: tasks wait for it.
const SWEEP_ROWS_MAX: Duration = Duration::from_millis(500);

/// Idle rate-limit entries are forgotten this often.
const FORGET_EVERY: Duration = Duration::from_secs(60);

impl EngineContext {
    /// A task's expiry became known. The sweeper is woken only for what cannot wait for its next look: waking it for
    /// every creation would make it walk the index thousands of times a second.
    pub(crate) fn may_expire(&self, task: &Task) {
        let next_look = self.clock.now().saturating_add(SWEEP_MS_MAX);
        if task.expires_at().is_some_and(|at| at < next_look) {
            self.sooner.notify_one();
        }
    }
}

impl Tasks {
    /// Expires tasks, keeps leases alive, takes over what the store did not let it before, forgets idle requestors and
    /// writes what tenants used, until dropped.
    pub async fn run_maintenance(&self) {
        // A task of its own: another host takes over what a host holds that is late, and a sweep may take long.
        let mut heartbeat = JoinSet::new();
        let tasks = self.clone();
        heartbeat.spawn(async move { tasks.keep_leases().await });
        tokio::join!(
            self.maintain(),
            self.write_usage_until_dropped(),
            self.look_after_dormant(),
            Box::pin(self.work_with_others())
        );
    }

    async fn keep_leases(&self) {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        // After a stop of the process one is as good as all that were missed.
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat.tick().await;
            self.extend_lease().await;
        }
    }

    async fn maintain(&self) {
        let mut forget = tokio::time::interval(FORGET_EVERY);
        loop {
            self.go_on_taking_over().await;
            let sweep_in = self.sweep().await;
            tokio::select! {
                () = tokio::time::sleep(sweep_in) => {}
                () = self.inner.sooner.notified() => {}
                _ = forget.tick() => {
                    self.inner.availability.forget_idle();
                    self.inner.shares.with_activity(RequestorActivity::forget_idle);
                    if let Some(activity) = self.inner.activity.get() {
                        activity.forget_idle(std::time::Instant::now());
                    }
                }
            }
        }
    }

    pub(crate) async fn extend_lease(&self) {
        let until = self.inner.clock.steady().saturating_add(LEASE_MS);
        if let Err(error) = self.inner.store.heartbeat(self.inner.node(), until).await {
            tracing::warn!("the lease could not be extended: {error}");
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
                    Ok(()) => inner.audit.note_task("task.expired", requestor, *id),
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
        let inner = &self.inner;
        let begun = std::time::Instant::now();
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
}
