//! The switch from one table of plugins to another.

use serde::{Deserialize, Serialize};

use super::change::{ChangeTarget, PluginChange};
use super::definition::hashes;
use super::difference::Changes;
use super::entry::{CanaryRow, Entry, Stage};
use super::{AcceptChanges, Digest, Error, Inner, Plugins, State, find, pinning, version};
use bulkhead_domain::task::PluginVersion;
use bulkhead_metrics::families::PLUGIN_SWITCHES;
use bulkhead_runtime::{Canary, LoadedPlugin};

/// What to switch to, as an operator names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// A digest, or how it begins; `None`: the version that was staged last.
    pub version: Option<String>,
}

/// What a switch did, or what it would have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchResult {
    /// Whether it was done. Else `held` says what needs the operator's word.
    pub done: bool,
    pub plugins: Vec<SwitchedPlugin>,
    pub held: Vec<String>,
}

/// One plugin of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchedPlugin {
    pub name: String,
    pub from: Option<Digest>,
    pub to: Option<Digest>,
    pub turn: SwitchEffect,
    /// `None`: there was no version before, or it could not be loaded, or there is none now.
    pub changes: Option<Changes>,
}

/// What a change means for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchEffect {
    /// All of them have another version now.
    Switched,
    /// All of them have what a part of them had.
    Promoted,
    /// A part of them has another version now.
    CanaryBegun,
    /// Another part of them has it.
    CanaryChanged,
    /// None of them has it any more.
    CanaryEnded,
    /// All of them have the version before: the new one failed.
    TakenBack,
}

impl SwitchEffect {
    /// As operators and metrics see it.
    fn name(self) -> &'static str {
        match self {
            Self::Switched => "switched",
            Self::Promoted => "promoted",
            Self::CanaryBegun => "canary_begun",
            Self::CanaryChanged => "canary_changed",
            Self::CanaryEnded => "canary_ended",
            Self::TakenBack => "taken_back",
        }
    }
}

impl Plugins {
    /// Makes these versions the active ones, all of them in one step or none.
    ///
    /// Without `accept` nothing is done when something that was accepted before would change: `held` says what.
    ///
    /// # Errors
    ///
    /// A plugin or version is not there, cannot be loaded, or offers what another plugin offers.
    pub async fn activate(&self, targets: &[Target], accept: bool) -> Result<SwitchResult, Error> {
        self.switch(&self.resolve(targets).await?, accept).await
    }

    /// As [`Self::activate`], for versions that nobody has to look up.
    ///
    /// # Errors
    ///
    /// As [`Self::activate`].
    pub async fn switch(&self, versions: &[PluginVersion], accept: bool) -> Result<SwitchResult, Error> {
        self.exchange(self.moves(versions).await?, accept).await
    }

    async fn moves(&self, versions: &[PluginVersion]) -> Result<Vec<PluginChange>, Error> {
        let mut moves: Vec<PluginChange> = Vec::new();
        for version in versions {
            let name = version.name.clone();
            if moves.iter().any(|known| known.name == name) {
                return Err(Error::Invalid(format!("{name} is named twice")));
            }
            moves.push(PluginChange { name, to: ChangeTarget::Version(self.ready(version).await?) });
        }
        Ok(moves)
    }

    /// Takes the canaries of these plugins back; where one has none, goes back to the version that was active before.
    /// No compiler runs.
    ///
    /// # Errors
    ///
    /// As [`Self::activate`].
    pub async fn rollback(&self, names: &[String]) -> Result<SwitchResult, Error> {
        let mut versions = Vec::new();
        let mut moves = Vec::new();
        {
            let state = self.settled().await?;
            for name in names {
                let entry = state.entry(name)?;
                if entry.head.canary.is_some() {
                    moves.push(PluginChange {
                        name: name.clone(),
                        to: ChangeTarget::NoCanary { version: None, why: None },
                    });
                    continue;
                }
                let previous = entry
                    .head
                    .previous
                    .ok_or_else(|| Error::Invalid(format!("no version of {name} was active before the present one")))?;
                if let Some(gone) = entry.versions.get(&previous).and_then(|version| version.taken_back.as_ref()) {
                    return Err(Error::Invalid(format!(
                        "the version of {name} before the present one failed and was taken back ({}); `bulkhead plugin activate \
                         {name}@{previous}` switches to it all the same",
                        gone.why
                    )));
                }
                versions.push(version(name, previous));
            }
        }
        moves.extend(self.moves(&versions).await?);
        self.exchange(moves, true).await
    }

    /// Takes a plugin out of the table. Its calls go on, as after a switch; `rollback` and `activate` bring it back.
    ///
    /// # Errors
    ///
    /// There is no such plugin, or it is not active.
    pub async fn remove(&self, name: &str) -> Result<SwitchResult, Error> {
        {
            let state = self.settled().await?;
            let entry = state.entry(name)?;
            if entry.head.active.is_none() {
                return Err(Error::Invalid(format!("{name} is not active; name a version to remove that")));
            }
        }
        self.exchange(vec![PluginChange { name: name.to_owned(), to: ChangeTarget::Nothing }], true).await
    }

    /// Removes a version that nothing runs on, with its files.
    ///
    /// # Errors
    ///
    /// There is no such version, it is active, or calls of it are left.
    pub async fn remove_version(&self, name: &str, begins: &str) -> Result<Digest, Error> {
        let mut state = self.settled().await?;
        let entry = state.entry(name)?;
        let digest = find(name, entry, begins)?;
        let gone = version(name, digest);
        if self.inner.adding.contains(&digest.0) {
            return Err(Error::Invalid(format!("{digest} is being added at this moment: try again")));
        }
        if self.inner.in_use(&gone, &self.inner.calls.tasks().await?) > 0 {
            return Err(Error::Invalid(format!("calls of {digest} are left: `bulkhead plugin versions {name}`")));
        }
        self.inner.forget(&mut state, &gone).await?;
        Ok(digest)
    }

    /// Switches to what was loaded a moment ago.
    #[cfg(test)]
    pub(super) async fn switch_to(&self, name: &str, to: LoadedPlugin) -> Result<SwitchResult, Error> {
        self.exchange(vec![PluginChange { name: name.to_owned(), to: ChangeTarget::Version(to) }], false).await
    }

    pub(super) async fn resolve(&self, targets: &[Target]) -> Result<Vec<PluginVersion>, Error> {
        let state = self.settled().await?;
        let mut versions: Vec<PluginVersion> = Vec::new();
        for Target { name, version: named } in targets {
            let entry = state.entry(name)?;
            let digest = match named {
                Some(begins) => find(name, entry, begins)?,
                // One that should run and does not is looked at again.
                None => latest(entry).or_else(|| state.stopped(name, entry)).ok_or_else(|| {
                    Error::Invalid(format!("no version of {name} is staged that was not active yet: name a version"))
                })?,
            };
            if versions.iter().any(|known| known.name == *name) {
                return Err(Error::Invalid(format!("{name} is named twice")));
            }
            versions.push(version(name, digest));
        }
        Ok(versions)
    }

    /// The one place where the table changes: check, commit, publish, tell.
    pub(super) async fn exchange(&self, moves: Vec<PluginChange>, accept: bool) -> Result<SwitchResult, Error> {
        let inner = &self.inner;
        let mut state = self.settled().await?;
        let mut switched = SwitchResult { done: false, plugins: Vec::new(), held: Vec::new() };
        let mut table = state.table.clone();
        let mut canaries = state.canaries.clone();
        let mut shown = Vec::new();
        for one in &moves {
            let (plugin, held) = self.step(&state, one)?;
            switched.plugins.push(plugin);
            switched.held.extend(held);
            shown.push(self.shown(&state, one));
            one.apply(&mut table, &mut canaries);
        }
        if !switched.held.is_empty() && !accept {
            return Ok(switched);
        }
        let clashes = inner.sandbox.clashes(&table, &canaries);
        if !clashes.is_empty() {
            return Err(Error::Refused(clashes));
        }
        if let Err(error) = self.commit(&mut state, &moves).await {
            // Whether it is in the store after all is looked at soon.
            inner.drains.notify_one();
            return Err(error);
        }
        inner.publish(&mut state, table, canaries);
        for (one, shown) in moves.iter().zip(shown) {
            if let Some(to) = one.to.loaded() {
                inner.show(&to.version, &shown);
            }
            state.broken.remove(&one.name);
            state.noticed.remove(&one.name);
            inner.set_lacking(&one.name, false);
            if let Some(to) = one.to.loaded() {
                state.fresh.retain(|_, fresh| fresh.version != to.version);
                state.ended.remove(&to.version);
            }
        }
        for (one, plugin) in moves.iter().zip(&switched.plugins) {
            // Whoever goes on with a version goes on with what is known of it.
            let is_fresh =
                matches!(plugin.turn, SwitchEffect::Switched | SwitchEffect::CanaryBegun | SwitchEffect::TakenBack);
            if let Some(to) = one.to.loaded().filter(|_| is_fresh) {
                inner.health.close_breaker(&to.version);
            }
        }
        drop(state);
        for plugin in switched.plugins.iter().filter(|plugin| plugin.to.is_some()) {
            inner.metrics.plugin_event(&PLUGIN_SWITCHES, &plugin.name, plugin.turn.name());
        }
        inner.drains.notify_one();
        switched.done = true;
        Ok(switched)
    }

    /// What of a switch needs the operator's word. A version that was active before has it. `canary`: who is to get it,
    /// if that is not everybody.
    pub(super) fn held(
        &self,
        name: &str,
        entry: &Entry,
        active: Option<&LoadedPlugin>,
        to: &LoadedPlugin,
        canary: Option<&CanaryRow>,
    ) -> Vec<String> {
        let digest = Digest(to.version.digest);
        if entry.versions.get(&digest).is_some_and(|version| version.activated_at.is_some()) {
            return Vec::new();
        }
        let policies = self.inner.policies.load();
        let say = policies.say(name, Some(entry), &digest, canary);
        // So has a canary, as it was begun, unless those who get it now have another say than those who had it.
        if entry.is_canary(&digest)
            && policies.pinning_decision(name, Some(entry), &digest).passing == say.passing
            && hashes(to).all(|(tool, hash)| entry.accepted_for(&digest, &tool) == Some(&Digest(hash)))
        {
            return Vec::new();
        }
        let held = pinning::changes(entry, active, to, say.passing);
        held.into_iter().map(|what| format!("{name}: {what}")).collect()
    }

    /// The changes of a switch that operators list, whether or not they need the operator's word.
    fn shown(&self, state: &State, one: &PluginChange) -> Vec<String> {
        let (Some(to), Some(entry)) = (one.to.loaded(), state.book.get(&one.name)) else { return Vec::new() };
        let digest = Digest(to.version.digest);
        if !self.inner.policies.load().say(&one.name, Some(entry), &digest, one.to.canary()).shown {
            return Vec::new();
        }
        let active = state.table.iter().find(|plugin| plugin.version.name == one.name);
        pinning::changes(entry, active, to, AcceptChanges::Nothing)
    }
}

impl Inner {
    /// Exchanges the catalog, tells clients of the lists that differ, watches the canaries, tells the engine who is
    /// demoted, and counts for the plugins that are there.
    pub(super) fn publish(
        &self,
        state: &mut State,
        table: Vec<LoadedPlugin>,
        canaries: Vec<Canary>,
    ) -> Vec<bulkhead_runtime::LoadError> {
        let published = self.sandbox.publish_with(table, canaries);
        let before = std::mem::replace(&mut state.table, published.plugins);
        state.canaries = published.canaries;
        self.count_for(&before, &state.table);
        self.calls.lists_changed(&published.lists);
        self.watch(state);
        self.show_demoted(state);
        published.refused
    }

    /// Shows the numbers of plugins that have come, and forgets those of plugins that are gone.
    fn count_for(&self, before: &[LoadedPlugin], now: &[LoadedPlugin]) {
        let lacks = |table: &[LoadedPlugin], one: &LoadedPlugin| {
            table.iter().all(|other| other.version.name != one.version.name)
        };
        before
            .iter()
            .filter(|plugin| lacks(now, plugin))
            .for_each(|gone| self.metrics.forget_plugin(&gone.version.name));
        now.iter().filter(|plugin| lacks(before, plugin)).for_each(|come| self.metrics.show_plugin(&come.version.name));
    }
}

/// The version that was staged last, of those that were never active.
pub(super) fn latest(entry: &Entry) -> Option<Digest> {
    let fresh = entry.versions.iter().filter(|(digest, version)| {
        matches!(entry.stage(digest), Some(Stage::Staged | Stage::Checked)) && version.activated_at.is_none()
    });
    fresh.max_by_key(|(_, version)| version.staged_at).map(|(digest, _)| *digest)
}
