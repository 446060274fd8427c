//! What happens to versions after a switch: they drain, retire, and go.
//!
//! Invariant: a version's files stay as long as a task that is not over belongs to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::entry::{Entry, Stage};
use super::registry::Draft;
use super::{Digest, DrainThen, Error, Inner, Plugins, State, version};
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::PluginVersion;

/// How often versions are looked at while any drains.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Otherwise only now and then: another process may have staged something.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(60);
/// Retired versions of a plugin that are kept for going back to.
const RETIRED_KEPT: usize = 8;
/// A call may have found its tool before a switch and begin after it; nothing waits this long for its permit.
const RETIRED_KEPT_MS: UnixMs = 3_600_000;

impl Plugins {
    /// Looks after versions that drain, lists that change, canaries that fail and tasks that diverge, until dropped.
    pub async fn run_maintenance(&self) {
        let watches = (self.watch_canaries(), self.watch_divergences());
        let others = self.follow_other_hosts();
        tokio::join!(self.maintain_versions(), self.relist_changed(), watches.0, watches.1, others);
    }

    async fn maintain_versions(&self) {
        if let Err(error) = self.clear_out().await {
            tracing::warn!(%error, "components that nobody uses any more cannot be removed");
        }
        loop {
            let drains = match self.look().await {
                Ok(drains) => drains,
                Err(error) => {
                    tracing::warn!(%error, "draining versions cannot be looked after");
                    true
                }
            };
            tokio::select! {
                () = tokio::time::sleep(if drains { LOOK_EVERY } else { LOOK_EVERY_IDLE }) => {}
                () = self.inner.drains.notified() => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Removes the files of components that are no version of anything: of earlier runs with `--plugin`, or of a host
    /// that was killed while it took them in.
    pub(super) async fn clear_out(&self) -> Result<(), Error> {
        let inner = Arc::clone(&self.inner);
        let state = inner.state.lock().await;
        let mut used: HashSet<_> = inner.calls.tasks().await?.into_keys().map(|version| version.digest).collect();
        used.extend(state.table.iter().map(|plugin| plugin.version.digest));
        used.extend(state.book.iter().flat_map(|(_, entry)| entry.versions.keys()).map(|digest| digest.0));
        drop(state);
        // Whatever comes in meanwhile is young.
        let sandbox = Arc::clone(&inner.sandbox);
        let removed = tokio::task::spawn_blocking(move || sandbox.remove_others(used.into_iter())).await;
        removed.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(Error::Files)
    }

    /// Retires what has drained, ends what drains for too long, forgets what is too old. Returns whether anything still
    /// drains.
    pub(super) async fn look(&self) -> Result<bool, Error> {
        let inner = &self.inner;
        // Until the end: a switch in between could make a version active again whose calls are ended here.
        let mut state = self.settled().await?;
        let tasks = inner.calls.tasks().await?;
        let now = inner.clock.now();
        let mut drains = false;
        let mut overdue = Vec::new();
        let mut old = Vec::new();
        let mut pinned = HashSet::new();
        let mut retired = Vec::new();
        for (name, entry) in state.book.iter() {
            pinned.extend(entry.head.previous.map(|digest| version(name, digest)));
            for (digest, since) in draining(entry) {
                let version = version(name, digest);
                // Of a plugin that is pinned the book knows another version.
                if state.runs(&version) {
                    continue;
                }
                if inner.in_use(&version, &tasks) == 0 {
                    retired.push(version);
                    continue;
                }
                drains = true;
                let policy = inner.policy(name);
                if policy.drain_ms > 0 && now >= since.saturating_add(policy.drain_ms) {
                    overdue.push((version.clone(), policy.drain_then));
                }
                pinned.insert(version);
            }
            old.extend(too_old(name, entry, now));
        }
        inner.retire(&mut state, &retired, now).await?;
        inner.watch(&state);
        inner.sandbox.retain(&pinned);
        for (late, how) in overdue {
            if state.ended.insert(late.clone()) {
                let choice = format!("{how:?}").to_lowercase();
                let digest = Digest(late.digest);
                tracing::warn!(plugin.name = late.name, plugin.version = %digest, choice, "still drains after drain_ms");
            }
            if how != DrainThen::Wait {
                inner.calls.end(&late, how).await;
                inner.sandbox.withdraw(&late);
            }
        }
        for gone in old.into_iter().filter(|gone| inner.in_use(gone, &tasks) == 0) {
            inner.forget(&mut state, &gone).await?;
        }
        Ok(drains)
    }
}

impl Inner {
    /// Notes that nothing runs on these versions any more.
    async fn retire(&self, state: &mut State, versions: &[PluginVersion], now: UnixMs) -> Result<(), Error> {
        if versions.is_empty() {
            return Ok(());
        }
        let mut draft = Draft::default();
        for gone in versions {
            let entry = draft.entry(&state.book, &gone.name);
            if let Some(row) = entry.versions.get_mut(&Digest(gone.digest)) {
                row.retired_at = Some(now);
            }
        }
        state.book.commit(&*self.store, draft).await?;
        for gone in versions {
            state.ended.remove(gone);
            tracing::info!(plugin.name = gone.name, plugin.version = %Digest(gone.digest), "retired");
        }
        Ok(())
    }

    /// Calls and tasks of a version. A task that runs is also a call; what counts is whether there is any.
    pub(super) fn in_use(&self, version: &PluginVersion, tasks: &HashMap<PluginVersion, usize>) -> usize {
        tasks.get(version).copied().unwrap_or_default().max(self.sandbox.calls(version))
    }
}

fn draining(entry: &Entry) -> impl Iterator<Item = (Digest, UnixMs)> {
    entry.versions.iter().filter_map(|(digest, version)| {
        let drains = entry.stage(digest) == Some(Stage::Draining);
        version.left_at.filter(|_| drains).map(|since| (*digest, since))
    })
}

/// Retired versions beyond those that are worth keeping.
fn too_old(name: &str, entry: &Entry, now: UnixMs) -> Vec<PluginVersion> {
    let mut retired: Vec<_> = entry
        .versions
        .iter()
        .filter(|(digest, _)| entry.stage(digest) == Some(Stage::Retired) && entry.head.previous != Some(**digest))
        .map(|(digest, row)| (row.left_at.unwrap_or_default(), *digest))
        .collect();
    retired.sort_unstable();
    let surplus = retired.len().saturating_sub(RETIRED_KEPT);
    let past = retired.into_iter().take(surplus).filter(|(left_at, _)| now >= left_at.saturating_add(RETIRED_KEPT_MS));
    past.map(|(_, digest)| version(name, digest)).collect()
}
