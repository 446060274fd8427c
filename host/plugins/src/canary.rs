//! Canaries: a version that a part of the requestors gets beside the active one, until it is promoted or taken back.
//!
//! Owns how one is begun, widened and judged. Invariant: who is in is in the store with the version and with what was
//! accepted of it, so that a restart changes nothing for anybody; taking one back compiles nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::change::{ChangeTarget, PluginChange};
use super::entry::{CanaryRow, Entry, Tenant};
use super::health::{CanaryStats, Verdict};
use super::switch::{SwitchResult, Target};
use super::{CanaryThresholds, Digest, Error, Inner, Plugins, State, find, version};
use bulkhead_domain::route::WHOLE;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::LoadedPlugin;

/// Between two tries to take a failed canary back, while the store refuses.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Who is to get a version. What is not said stays as it was, and is nobody at first.
#[derive(Clone, Debug)]
pub struct CanaryRequest {
    /// Without a version: the canary, else what was staged last.
    pub target: Target,
    /// Of the requestors that are in none of the tenants, in hundredths of a percent.
    pub share: Option<u16>,
    pub tenants: Option<Vec<Tenant>>,
    pub bounds: CanaryThresholdOverrides,
}

/// Bounds as far as they are said; see [`CanaryThresholds`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CanaryThresholdOverrides {
    pub fault_percent_max: Option<u8>,
    pub latency_percent_max: Option<u32>,
    pub window_ms: Option<u64>,
    pub calls_min: Option<u32>,
}

impl CanaryThresholdOverrides {
    fn over(&self, base: CanaryThresholds) -> CanaryThresholds {
        CanaryThresholds {
            fault_percent_max: self.fault_percent_max.unwrap_or(base.fault_percent_max),
            latency_percent_max: self.latency_percent_max.unwrap_or(base.latency_percent_max),
            window_ms: self.window_ms.unwrap_or(base.window_ms),
            calls_min: self.calls_min.unwrap_or(base.calls_min),
        }
    }
}

impl Plugins {
    /// Gives a version to a part of the requestors, or the canary to another part. A larger share keeps those who are
    /// in.
    ///
    /// Without `accept` nothing is done when something that was accepted before would change for them: `held` says
    /// what.
    ///
    /// # Errors
    ///
    /// The plugin is not active, has another canary, or the version is not there or cannot be loaded; it offers what
    /// another plugin or its canary offers; nobody would get it.
    pub async fn begin_canary(&self, request: CanaryRequest, accept: bool) -> Result<SwitchResult, Error> {
        let name = request.target.name.clone();
        let known = {
            let state = self.settled().await?;
            let entry = state.entry(&name)?;
            match &request.target.version {
                Some(begins) => Some(find(&name, entry, begins)?),
                None => entry.head.canary.as_ref().map(|canary| canary.version),
            }
        };
        let version = match known {
            Some(digest) => version(&name, digest),
            None => self
                .resolve(std::slice::from_ref(&request.target))
                .await?
                .into_iter()
                .next()
                .ok_or_else(|| Error::NotFound(format!("no version of {name} is staged: name a version")))?,
        };
        let loaded = self.ready(&version).await?;
        let digest = Digest(version.digest);
        let row = {
            let state = self.settled().await?;
            self.row(&name, state.entry(&name)?, digest, request)?
        };
        self.exchange(vec![PluginChange { name, to: ChangeTarget::Canary(Box::new(loaded), row) }], accept).await
    }

    fn row(&self, name: &str, entry: &Entry, digest: Digest, request: CanaryRequest) -> Result<CanaryRow, Error> {
        let before = entry.head.canary.as_ref().filter(|canary| canary.version == digest);
        let row = CanaryRow {
            version: digest,
            since: before.map_or_else(|| self.inner.clock.now(), |before| before.since),
            share: request.share.or(before.map(|before| before.share)).unwrap_or(0).min(WHOLE),
            tenants: request.tenants.or(before.map(|before| before.tenants.clone())).unwrap_or_default(),
            bounds: request.bounds.over(before.map_or(self.inner.policy(name).canary, |before| before.bounds)),
        };
        if row.share == 0 && row.tenants.is_empty() {
            return Err(Error::Invalid(
                "nobody would get it: give a share (--canary 10%) or a tenant (--tenant acme)".to_owned(),
            ));
        }
        match row.bounds.problem() {
            Some(problem) => Err(Error::Invalid(problem.to_owned())),
            None => Ok(row),
        }
    }

    /// Makes canaries the active versions of their plugins, all at once. They are ready: nothing is compiled.
    ///
    /// # Errors
    ///
    /// One of the plugins has no canary, or it cannot run any more.
    pub async fn promote(&self, names: &[String]) -> Result<SwitchResult, Error> {
        let mut canaries = Vec::new();
        {
            let state = self.settled().await?;
            for name in names {
                let canary = state.entry(name)?.head.canary.as_ref();
                let canary = canary.ok_or_else(|| Error::Invalid(format!("{name} has no canary to promote")))?;
                canaries.push(version(name, canary.version));
            }
        }
        self.switch(&canaries, false).await
    }

    /// Takes versions back that fail, as soon as they do. One that cannot be taken back is tried again, and keeps no
    /// other waiting for longer than [`RETRY_AFTER`].
    pub(super) async fn watch_canaries(&self) {
        loop {
            let mut is_one_left = false;
            for Verdict { version, why } in self.inner.health.verdicts().await {
                if let Err(error) = self.take_back(&version, why).await {
                    tracing::warn!(plugin.name = version.name, %error, "a version that failed cannot be taken back yet");
                    is_one_left = true;
                }
            }
            if is_one_left {
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Takes a version back, for everybody at once: a canary, or one that was switched to a while ago.
    pub(super) async fn take_back(&self, version: &PluginVersion, why: String) -> Result<(), Error> {
        let name = version.name.clone();
        let from = Digest(version.digest);
        let previous = {
            let state = self.settled().await?;
            let entry = state.entry(&name)?;
            if !entry.is_canary(&from) && self.inner.watched_until(&state, version).is_none() {
                // Time or an operator was faster.
                self.inner.watch(&state);
                return Ok(());
            }
            entry.head.previous.filter(|_| !entry.is_canary(&from))
        };
        let to = match previous {
            Some(previous) => ChangeTarget::Back { to: self.ready(&super::version(&name, previous)).await?, from, why },
            None => ChangeTarget::NoCanary { version: Some(from), why: Some(why) },
        };
        self.exchange(vec![PluginChange { name, to }], true).await.map(drop)
    }
}

impl Inner {
    /// Watches every canary, and the active versions that were switched to not long ago.
    pub(super) fn watch(&self, state: &State) {
        let active = |name: &str| state.table.iter().find(|plugin| plugin.version.name == name);
        let canaries = state.canaries.iter().filter_map(|canary| {
            let name = &canary.plugin.version.name;
            let bounds = state.book.get(name)?.head.canary.as_ref()?.bounds;
            let against = active(name).map(|plugin| plugin.version.clone());
            Some(CanaryStats { version: canary.plugin.version.clone(), against, bounds })
        });
        let new = |plugin: &LoadedPlugin| {
            self.watched_until(state, &plugin.version)?;
            let bounds = self.policy(&plugin.version.name).canary;
            Some(CanaryStats { version: plugin.version.clone(), against: None, bounds })
        };
        self.health.watch(canaries.chain(state.table.iter().filter_map(new)).collect());
    }

    /// Until when an active version is watched, if it still is.
    fn watched_until(&self, state: &State, version: &PluginVersion) -> Option<u64> {
        let name = &version.name;
        let entry = state.book.get(name).filter(|_| !state.pinned.contains(name))?;
        let is_alone = entry.head.active == Some(Digest(version.digest)) && entry.head.canary.is_none();
        let until = entry.watched_until(self.policy(name).watch_switch_ms).filter(|_| is_alone)?;
        (self.clock.now() < until).then_some(until)
    }
}
