//! What operators see of plugins.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::definition::{described, hashes};
use super::entry::{CanaryRow, Demotion, Entry, Stage, TakenBack, Version};
use super::health::{CallCounts, CanaryThresholds, PluginHealth};
use super::policy_reload::waiting_for_acceptance;
use super::{ConfiguredPlugin, Digest, Error, Plugins, State, version};
use bulkhead_calls::Executor as _;
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::LoadedPlugin;

/// One line of `plugin list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginView {
    pub name: String,
    pub state: PluginState,
    pub active: Option<Digest>,
    pub previous: Option<Digest>,
    pub tools: usize,
    /// How many of them the configuration hides from every client, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_hidden: Option<usize>,
    pub versions: usize,
    /// Where the active version came from.
    pub source: Option<String>,
    pub activated_at: Option<UnixMs>,
    /// Running and waiting, on whichever version.
    pub calls: usize,
    /// Tasks that are not over, on whichever version.
    pub tasks: usize,
    /// Why it does not run.
    pub problems: Vec<String>,
    pub health: PluginHealth,
    pub canary: Option<CanaryView>,
    /// What the host took out of service by itself last.
    pub taken_back: Option<TakenBackView>,
    /// Why new calls of the active version keep no journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted: Option<Demotion>,
    /// The version that was staged last, if it was never switched to and came after the active one: it waits for an
    /// operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Digest>,
}

/// Whether a plugin runs, or why it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PluginState {
    Active,
    /// It runs because `--plugin` says so, whatever the store remembers.
    Pinned,
    /// It runs, and a requestor is kept from it for a while.
    Quarantined,
    Broken,
    /// Its component is still to be fetched.
    Awaited,
    /// The configuration has named it and does so no more.
    Unconfigured,
    Removed,
    /// No version of it was ever switched to.
    Staged,
}

impl PluginState {
    /// As operators and metrics see it, and as it is in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pinned => "pinned",
            Self::Quarantined => "quarantined",
            Self::Broken => "broken",
            Self::Awaited => "awaited",
            Self::Unconfigured => "unconfigured",
            Self::Removed => "removed",
            Self::Staged => "staged",
        }
    }
}

/// How many plugins should run, how many do, and the names of those that do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginCensus {
    pub configured: usize,
    pub serving: usize,
    pub broken: Vec<String>,
    pub awaited: Vec<String>,
}

/// A version that a part of the requestors gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CanaryView {
    pub version: Digest,
    /// Of the requestors that are in none of the tenants.
    pub percent: f64,
    pub tenants: Vec<String>,
    pub since: UnixMs,
    pub bounds: CanaryThresholds,
    /// Within the window of the bounds; `None`: it does not run.
    pub seen: Option<CallCounts>,
    pub health: PluginHealth,
}

/// A version that the host took out of service by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakenBackView {
    pub version: Digest,
    #[serde(flatten)]
    pub taken_back: TakenBack,
}

/// One line of `plugin versions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionView {
    pub version: Digest,
    pub state: Stage,
    /// As it was asked for.
    pub source: String,
    /// As it was resolved.
    pub origin: String,
    /// Ids of the keys that it had to be signed with, and was.
    pub signed_by: Vec<String>,
    /// The same keys with where the rules have them now, once [`ComponentFetcher`](crate::sources::ComponentFetcher)
    /// has put them in.
    #[serde(default)]
    pub signers: Vec<Signer>,
    pub bytes: u64,
    pub tools: usize,
    pub staged_at: UnixMs,
    pub activated_at: Option<UnixMs>,
    pub left_at: Option<UnixMs>,
    pub retired_at: Option<UnixMs>,
    pub taken_back: Option<TakenBack>,
    /// Why new calls of it keep no journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted: Option<Demotion>,
    pub calls: usize,
    pub tasks: usize,
}

impl VersionView {
    /// The keys that have signed it, for people. A host of an earlier version sends ids alone.
    pub fn signer_names(&self) -> Vec<String> {
        match self.signers.is_empty() {
            true => self.signed_by.clone(),
            false => self.signers.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A key that has signed a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signer {
    /// Its id.
    pub key: String,
    /// Where the operator has it; `None`: no rule names it any more.
    pub file: Option<PathBuf>,
    /// The sources of the first rule that names it.
    pub rule: Option<String>,
}

/// The file's name, which people know, with the id.
impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_ref().and_then(|file| file.file_name()) {
            Some(file) => write!(f, "{} ({})", file.to_string_lossy(), self.key),
            None => f.write_str(&self.key),
        }
    }
}

/// What `plugin verify` read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verified {
    pub versions: usize,
    pub bytes: u64,
    pub sound: bool,
    pub problems: Vec<IntegrityProblem>,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IntegrityProblem {
    pub name: String,
    pub version: Option<Digest>,
    pub problem: String,
}

impl Plugins {
    /// Every plugin, by name.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn list(&self) -> Result<Vec<PluginView>, Error> {
        let tasks = self.inner.calls.tasks().await?;
        let mut listed = self.lines().await;
        for line in &mut listed {
            line.tasks = tasks.iter().filter(|(version, _)| version.name == line.name).map(|(_, count)| count).sum();
        }
        Ok(listed)
    }

    /// How many plugins there are and which do not run. Reads no store.
    pub async fn census(&self) -> PluginCensus {
        let mut totals = PluginCensus::default();
        for PluginView { name, state, .. } in self.lines().await {
            match state {
                PluginState::Active | PluginState::Pinned | PluginState::Quarantined => totals.serving += 1,
                PluginState::Broken => totals.broken.push(name),
                PluginState::Awaited => totals.awaited.push(name),
                PluginState::Unconfigured | PluginState::Removed | PluginState::Staged => continue,
            }
            totals.configured += 1;
        }
        totals
    }

    /// Every plugin by name, without its tasks.
    async fn lines(&self) -> Vec<PluginView> {
        let state = self.inner.state.lock().await;
        let mut listed: Vec<_> = state.book.iter().map(|(name, entry)| self.line(&state, name, Some(entry))).collect();
        // Those of which the store knows nothing: pinned ones, those that are still to come, and those that were never
        // sound.
        let others = state
            .table
            .iter()
            .map(|plugin| plugin.version.name.clone())
            .chain(state.broken.keys().cloned())
            .chain(state.noticed.keys().cloned())
            .chain(state.awaited.iter().map(ConfiguredPlugin::label));
        for name in others.filter(|name| state.book.get(name).is_none()) {
            if !listed.iter().any(|line| line.name == name) {
                listed.push(self.line(&state, &name, None));
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed
    }

    /// The versions that are offered to requestors that are in no canary.
    pub fn versions_offered(&self) -> HashSet<PluginVersion> {
        let catalog = self.inner.sandbox.catalog();
        let tools = catalog.tools().iter().map(|tool| &tool.plugin);
        tools.chain(catalog.libraries().iter().map(|library| &library.plugin)).cloned().collect()
    }

    /// Whether a version of this plugin is offered to requestors that are in no canary. Cheap: strangers may ask for
    /// it.
    pub fn is_offered(&self, name: &str) -> bool {
        let catalog = self.inner.sandbox.catalog();
        catalog.libraries().iter().any(|library| library.plugin.name == name)
            || catalog.tools().iter().any(|tool| tool.plugin.name == name)
    }

    /// Whether a plugin does not run because its component is not in the data directory. Cheap, like the one above.
    pub fn lacks_component(&self) -> bool {
        !self.inner.lacking.load().is_empty()
    }

    /// Whether new calls go to this version.
    pub async fn is_running(&self, version: &PluginVersion) -> bool {
        self.inner.state.lock().await.runs(version)
    }

    fn line(&self, state: &State, name: &str, entry: Option<&Entry>) -> PluginView {
        let running = state.table.iter().find(|plugin| plugin.version.name == name);
        let head = entry.map(|entry| &entry.head);
        let active = running.map(|plugin| Digest(plugin.version.digest)).or(head.and_then(|head| head.active));
        let row = entry.zip(active).and_then(|(entry, active)| entry.versions.get(&active));
        let health = running.map(|plugin| self.health(&plugin.version)).unwrap_or_default();
        let line_state = match (running, head.map(|head| (head.active, head.previous))) {
            (Some(_), _) if state.pinned.contains(name) => PluginState::Pinned,
            (Some(_), _) if health.is_quarantined() => PluginState::Quarantined,
            (Some(_), _) => PluginState::Active,
            _ if state.broken.contains_key(name) || state.noticed.contains_key(name) => PluginState::Broken,
            (None, _) if state.awaited(name).is_some() => PluginState::Awaited,
            (None, Some((Some(_), _))) => PluginState::Unconfigured,
            (None, Some((None, Some(_)))) => PluginState::Removed,
            (None, _) => PluginState::Staged,
        };
        let digests = entry.map(|entry| entry.versions.keys().copied().collect::<Vec<_>>()).unwrap_or_default();
        let known = digests.iter().chain(active.as_ref().filter(|active| !digests.contains(active)));
        PluginView {
            name: name.to_owned(),
            state: line_state,
            active,
            previous: head.and_then(|head| head.previous),
            tools: running.map_or_else(|| row.map_or(0, |row| row.tools), |plugin| plugin.tools.len()),
            tools_hidden: running
                .map(|plugin| plugin.tools.len() - plugin.shown_tools().count())
                .filter(|hidden| *hidden > 0),
            versions: digests.len(),
            source: row.map(|row| row.source.clone()),
            activated_at: row.and_then(|row| row.activated_at),
            calls: known.map(|digest| self.inner.sandbox.calls(&version(name, *digest))).sum(),
            tasks: 0,
            problems: self.problems(state, name, running),
            health,
            canary: entry.and_then(|entry| self.canary(name, entry)),
            taken_back: entry.and_then(taken_back),
            demoted: row.and_then(|row| self.inner.demotion(name, row)),
            waiting: entry.and_then(|entry| waiting(entry, row)),
        }
    }

    fn canary(&self, name: &str, entry: &Entry) -> Option<CanaryView> {
        let CanaryRow { version: digest, since, share, tenants, bounds } = entry.head.canary.clone()?;
        let version = version(name, digest);
        Some(CanaryView {
            version: digest,
            percent: f64::from(share) / 100.0,
            tenants: tenants.into_iter().map(|tenant| tenant.name).collect(),
            since,
            bounds,
            seen: self.inner.health.call_counts(&version, self.inner.clock.now()),
            health: self.health(&version),
        })
    }

    /// Why it does not run, be it only that it has not come yet, or not as the configuration says, then what is wrong
    /// with a file; the same is said once.
    fn problems(&self, state: &State, name: &str, running: Option<&LoadedPlugin>) -> Vec<String> {
        let awaited = || state.awaited(name).into_iter().collect();
        let mut problems = state.broken.get(name).cloned().unwrap_or_else(awaited);
        let policies = self.inner.policies.load();
        let terms = &policies.of(name).source;
        let waiting = running.filter(|running| !state.pinned.contains(name) && !running.is_under(terms));
        problems.extend(waiting.map(|running| waiting_for_acceptance(&running.version)));
        for problem in state.noticed.get(name).into_iter().flatten() {
            if !problems.contains(problem) {
                problems.push(problem.clone());
            }
        }
        problems
    }

    fn health(&self, version: &PluginVersion) -> PluginHealth {
        self.inner.health.health(version, self.inner.clock.now())
    }

    /// The versions of a plugin, newest first.
    ///
    /// # Errors
    ///
    /// There is no such plugin.
    pub async fn versions(&self, name: &str) -> Result<Vec<VersionView>, Error> {
        let tasks = self.inner.calls.tasks().await?;
        let state = self.inner.state.lock().await;
        let entry = state.entry(name)?;
        let mut versions: Vec<_> = entry
            .versions
            .iter()
            .filter_map(|(digest, row)| {
                let version = version(name, *digest);
                Some(VersionView {
                    version: *digest,
                    state: entry.stage(digest)?,
                    source: row.source.clone(),
                    origin: row.origin.clone(),
                    signed_by: row.signed_by.clone(),
                    // The plugins do not know the rules.
                    signers: Vec::new(),
                    bytes: row.bytes,
                    tools: row.tools,
                    staged_at: row.staged_at,
                    activated_at: row.activated_at,
                    left_at: row.left_at,
                    retired_at: row.retired_at,
                    taken_back: row.taken_back.clone(),
                    demoted: self.inner.demotion(name, row),
                    calls: self.inner.sandbox.calls(&version),
                    tasks: tasks.get(&version).copied().unwrap_or_default(),
                })
            })
            .collect();
        versions.sort_by_key(|line| std::cmp::Reverse((line.staged_at, line.activated_at)));
        Ok(versions)
    }

    /// Reads every kept component again, and compares what runs with what was accepted.
    ///
    /// # Errors
    ///
    /// There is no plugin of this name.
    pub async fn verify(&self, name: Option<&str>) -> Result<Verified, Error> {
        let (wanted, mut problems) = {
            let state = self.inner.state.lock().await;
            name.map(|name| state.entry(name)).transpose()?;
            let of_name = |other: &str| name.is_none_or(|name| name == other);
            let mut wanted = Vec::new();
            for (name, entry) in state.book.iter().filter(|(name, _)| of_name(name)) {
                wanted.extend(entry.versions.keys().map(|digest| (name.clone(), *digest)));
            }
            let canaries = state.canaries.iter().map(|canary| &canary.plugin);
            let unpinned =
                state.table.iter().chain(canaries).filter(|plugin| !state.pinned.contains(&plugin.version.name));
            let problems: Vec<_> = unpinned
                .filter(|plugin| of_name(&plugin.version.name))
                .filter_map(|plugin| Some((state.book.get(&plugin.version.name)?, plugin)))
                .flat_map(|(entry, plugin)| unaccepted(entry, plugin))
                .collect();
            (wanted, problems)
        };
        let sandbox = std::sync::Arc::clone(&self.inner.sandbox);
        let read = tokio::task::spawn_blocking(move || {
            let mut found = Verified { versions: wanted.len(), bytes: 0, sound: true, problems: Vec::new() };
            for (name, digest) in wanted {
                match sandbox.kept().verify(&digest.0) {
                    Ok(bytes) => found.bytes += bytes,
                    Err(problem) => found.problems.push(IntegrityProblem { name, version: Some(digest), problem }),
                }
            }
            found
        });
        let mut found = read.await.map_err(|error| Error::Files(std::io::Error::other(error)))?;
        found.problems.append(&mut problems);
        found.sound = found.problems.is_empty();
        Ok(found)
    }
}

fn waiting(entry: &Entry, active: Option<&Version>) -> Option<Digest> {
    let (digest, row) = entry.versions.iter().max_by_key(|(_, row)| row.staged_at)?;
    let is_new = row.activated_at.is_none() && row.taken_back.is_none();
    let came_later = active.is_none_or(|active| active.activated_at < Some(row.staged_at));
    (is_new && came_later && entry.stage(digest) == Some(Stage::Checked)).then_some(*digest)
}

fn taken_back(entry: &Entry) -> Option<TakenBackView> {
    let versions = entry.versions.iter().filter_map(|(digest, row)| Some((*digest, row.taken_back.clone()?)));
    let last = versions.max_by_key(|(_, taken_back)| taken_back.at);
    last.map(|(version, taken_back)| TakenBackView { version, taken_back })
}

/// Tools and views that run with another definition than the one that was accepted.
fn unaccepted(entry: &Entry, plugin: &LoadedPlugin) -> Vec<IntegrityProblem> {
    let digest = Digest(plugin.version.digest);
    let other = hashes(plugin).filter(|(tool, hash)| entry.accepted_for(&digest, tool) != Some(&Digest(*hash)));
    let unsound = |(tool, _): (String, [u8; 32])| IntegrityProblem {
        name: plugin.version.name.clone(),
        version: Some(digest),
        problem: format!("{} is not defined as it was accepted", described(&tool)),
    };
    other.map(unsound).collect()
}
