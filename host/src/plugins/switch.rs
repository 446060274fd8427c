//! The switch from one table of plugins to another.

use std::collections::HashMap;

use serde::Serialize;

use super::book::{CanaryRow, Draft, Entry, Stage};
use super::definition::hashes;
use super::difference::Changes;
use super::{Digest, Error, Inner, Plugins, State, find, version};
use crate::runtime::{Canary, LoadedPlugin};
use crate::tasks::Trial;

/// What to switch to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// A digest, or how it begins; `None`: the version that was staged last.
    pub version: Option<String>,
}

/// What a switch did, or what it would have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Switched {
    /// Whether it was done. Else `held` says what needs the operator's word.
    pub done: bool,
    pub plugins: Vec<SwitchedPlugin>,
    pub held: Vec<String>,
}

/// One plugin of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchedPlugin {
    pub name: String,
    pub from: Option<Digest>,
    pub to: Option<Digest>,
    pub turn: Turn,
    /// `None`: there was no version before, or it could not be loaded, or there is none now.
    pub changes: Option<Changes>,
}

/// What a change means for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
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
}

/// A plugin with what becomes of it.
pub(super) struct Move {
    pub(super) name: String,
    pub(super) to: To,
}

pub(super) enum To {
    Version(LoadedPlugin),
    /// Out of service.
    Nothing,
    /// A part of the requestors gets this.
    Canary(Box<LoadedPlugin>, CanaryRow),
    /// Everybody has the active version again.
    NoCanary {
        /// Only if it is this one.
        version: Option<Digest>,
        why: Option<String>,
    },
}

impl Plugins {
    /// Makes these versions the active ones, all of them in one step or none.
    ///
    /// Without `accept` nothing is done when something that was accepted before would change: `held` says what.
    ///
    /// # Errors
    ///
    /// A plugin or version is not there, cannot be loaded, or offers what another plugin offers.
    pub async fn activate(&self, targets: &[Target], accept: bool) -> Result<Switched, Error> {
        let mut moves = Vec::new();
        for (target, digest) in targets.iter().zip(self.resolve(targets).await?) {
            let to = To::Version(self.ready(&target.name, digest).await?);
            moves.push(Move { name: target.name.clone(), to });
        }
        self.exchange(moves, accept).await
    }

    /// Takes the canaries of these plugins back; where one has none, goes back to the version that was active before. No compiler
    /// runs.
    ///
    /// # Errors
    ///
    /// As [`Self::activate`].
    pub async fn rollback(&self, names: &[String]) -> Result<Switched, Error> {
        let (mut targets, mut moves) = (Vec::new(), Vec::new());
        {
            let state = self.settled().await?;
            for name in names {
                let entry = state.entry(name)?;
                if entry.head.canary.is_some() {
                    moves.push(Move { name: name.clone(), to: To::NoCanary { version: None, why: None } });
                    continue;
                }
                let previous = entry
                    .head
                    .previous
                    .ok_or_else(|| Error::Invalid(format!("no version of {name} was active before the present one")))?;
                targets.push(Target { name: name.clone(), version: Some(previous.to_string()) });
            }
        }
        for (target, digest) in targets.iter().zip(self.resolve(&targets).await?) {
            let to = To::Version(self.ready(&target.name, digest).await?);
            moves.push(Move { name: target.name.clone(), to });
        }
        self.exchange(moves, true).await
    }

    /// Takes a plugin out of the table. Its calls go on, as after a switch; `rollback` and `activate` bring it back.
    ///
    /// # Errors
    ///
    /// There is no such plugin, or it is not active.
    pub async fn remove(&self, name: &str) -> Result<Switched, Error> {
        {
            let state = self.settled().await?;
            let entry = state.entry(name)?;
            if entry.head.active.is_none() {
                return Err(Error::Invalid(format!("{name} is not active; name a version to remove that")));
            }
        }
        self.exchange(vec![Move { name: name.to_owned(), to: To::Nothing }], true).await
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
        if self.inner.in_use(&gone, &self.inner.calls.tasks().await?) > 0 {
            return Err(Error::Invalid(format!("calls of {digest} are left: `bulkhead plugin versions {name}`")));
        }
        self.inner.forget(&mut state, &gone).await?;
        Ok(digest)
    }

    /// Switches to what was loaded a moment ago.
    #[cfg(test)]
    pub(super) async fn switch_to(&self, name: &str, to: LoadedPlugin) -> Result<Switched, Error> {
        self.exchange(vec![Move { name: name.to_owned(), to: To::Version(to) }], false).await
    }

    pub(super) async fn resolve(&self, targets: &[Target]) -> Result<Vec<Digest>, Error> {
        let state = self.settled().await?;
        let mut found = HashMap::new();
        let mut digests = Vec::new();
        for Target { name, version } in targets {
            let entry = state.entry(name)?;
            let digest = match version {
                Some(begins) => find(name, entry, begins)?,
                None => latest(entry).ok_or_else(|| {
                    Error::Invalid(format!("no version of {name} is staged that was not active yet: name a version"))
                })?,
            };
            if found.insert(name.clone(), digest).is_some() {
                return Err(Error::Invalid(format!("{name} is named twice")));
            }
            digests.push(digest);
        }
        Ok(digests)
    }

    /// The one place where the table changes: check, commit, publish, tell.
    pub(super) async fn exchange(&self, moves: Vec<Move>, accept: bool) -> Result<Switched, Error> {
        let inner = &self.inner;
        let mut state = self.settled().await?;
        let mut switched = Switched { done: false, plugins: Vec::new(), held: Vec::new() };
        let (mut table, mut canaries) = (state.table.clone(), state.canaries.clone());
        for one in &moves {
            let (plugin, held) = self.step(&state, one)?;
            switched.plugins.push(plugin);
            switched.held.extend(held);
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
        for one in &moves {
            state.broken.remove(&one.name);
            if let Some(to) = one.to.loaded() {
                state.fresh.retain(|_, fresh| fresh.version != to.version);
                state.ended.remove(&to.version);
            }
        }
        for (one, plugin) in moves.iter().zip(&switched.plugins) {
            if let (To::Version(to), Turn::Switched) = (&one.to, plugin.turn) {
                inner.calls.forgive(&to.version);
            }
        }
        drop(state);
        inner.drains.notify_one();
        switched.done = true;
        Ok(switched)
    }

    /// What one move does, and what of it needs the operator's word.
    fn step(&self, state: &State, one: &Move) -> Result<(SwitchedPlugin, Vec<String>), Error> {
        let name = &one.name;
        if state.pinned.contains(name) {
            return Err(Error::Invalid(format!(
                "{name} is pinned by --plugin for this run: start the host without it to switch"
            )));
        }
        let entry = state.entry(name)?;
        let active = state.table.iter().find(|plugin| plugin.version.name == *name);
        let canary = entry.head.canary.as_ref().map(|canary| canary.version);
        let to = one.to.loaded();
        let digest = to.map(|to| Digest(to.version.digest));
        // It may have been removed while it was loaded.
        if let Some(gone) = digest.filter(|digest| !entry.versions.contains_key(digest)) {
            return Err(Error::NotFound(format!("{gone} of {name} was removed meanwhile: add it again")));
        }
        let turn = match (&one.to, canary) {
            (To::Version(_), Some(canary)) if Some(canary) == digest => Turn::Promoted,
            (To::Version(_) | To::Nothing, None) => Turn::Switched,
            (To::Canary(..), Some(canary)) if Some(canary) == digest => Turn::CanaryChanged,
            (To::Canary(..), None) if active.is_some() && entry.head.active != digest => Turn::CanaryBegun,
            (To::NoCanary { version, .. }, Some(canary)) if version.is_none_or(|version| version == canary) => {
                Turn::CanaryEnded
            }
            (_, Some(canary)) => {
                return Err(Error::Invalid(format!(
                    "{name} has the canary {canary}: `bulkhead plugin promote {name}` makes it the active version, \
                     `bulkhead plugin rollback {name}` takes it back"
                )));
            }
            (To::NoCanary { .. }, None) => return Err(Error::Invalid(format!("{name} has no canary"))),
            (To::Canary(..), None) if active.is_none() => {
                return Err(Error::Invalid(format!(
                    "{name} is not active, so there is nothing that a canary could stand beside: activate a version first"
                )));
            }
            (To::Canary(..), None) => {
                return Err(Error::Invalid(format!("everybody has this version of {name} already")));
            }
        };
        let held = to.map(|to| self.held(name, entry, active, to)).unwrap_or_default();
        let changes = active.zip(to).map(|(from, to)| Changes::between(from, to));
        let (from, to) = match turn {
            Turn::CanaryEnded => (canary, entry.head.active),
            _ => (entry.head.active, digest),
        };
        Ok((SwitchedPlugin { name: name.clone(), from, to, turn, changes }, held))
    }

    /// From here on a host that starts has the new versions.
    async fn commit(&self, state: &mut State, moves: &[Move]) -> Result<(), Error> {
        let now = self.inner.clock.now();
        let mut draft = Draft::default();
        for one in moves {
            let entry = draft.entry(&state.book, &one.name);
            match &one.to {
                To::Version(to) => {
                    let digest = Digest(to.version.digest);
                    entry.activate(Some(digest), now);
                    entry.accept(&digest, hashes(to));
                }
                To::Nothing => entry.activate(None, now),
                To::Canary(to, row) => {
                    entry.begin_canary(row.clone());
                    entry.accept(&row.version, hashes(to));
                }
                To::NoCanary { why, .. } => entry.end_canary(why.clone(), now),
            }
        }
        state.book.commit(&*self.inner.store, draft).await?;
        for Move { name, to } in moves {
            let digest = to.loaded().map_or("none".to_owned(), |to| Digest(to.version.digest).to_string());
            match to {
                To::Version(_) | To::Nothing => {
                    tracing::info!(plugin.name = name, plugin.version = digest, "switched");
                }
                To::Canary(..) => {
                    tracing::info!(
                        plugin.name = name,
                        plugin.version = digest,
                        "a part of the requestors gets a canary"
                    );
                }
                To::NoCanary { why: None, .. } => tracing::info!(plugin.name = name, "the canary was taken back"),
                To::NoCanary { why: Some(why), .. } => {
                    tracing::warn!(plugin.name = name, why, "the canary failed and was taken back");
                }
            }
        }
        Ok(())
    }

    /// What of a switch needs the operator's word. A version that was active before has it.
    pub(super) fn held(
        &self,
        name: &str,
        entry: &Entry,
        active: Option<&LoadedPlugin>,
        to: &LoadedPlugin,
    ) -> Vec<String> {
        let digest = Digest(to.version.digest);
        if entry.versions.get(&digest).is_some_and(|version| version.activated_at.is_some()) {
            return Vec::new();
        }
        // So does a canary, as it was begun.
        if entry.is_canary(&digest)
            && hashes(to).all(|(tool, hash)| entry.accepted_for(&digest, &tool) == Some(&Digest(hash)))
        {
            return Vec::new();
        }
        let policy = self.inner.policy(name).accept_changes;
        let changes = active.map(|active| Changes::between(active, to)).unwrap_or_default();
        let mut held = changes.held_back(policy);
        if policy == super::AcceptChanges::Anything {
            return held;
        }
        // Tools that the active version does not have, or whose accepted definition is not the active one's.
        let known = |tool: &str| active.is_some_and(|active| active.own_tools().any(|(name, _)| name == tool));
        let others = hashes(to).filter(|(tool, _)| !known(tool));
        held.extend(others.filter_map(|(tool, hash)| {
            let accepted = entry.accepted.get(&tool)?;
            (*accepted != Digest(hash)).then(|| format!("the tool {tool} is not the one that was accepted before"))
        }));
        held.into_iter().map(|what| format!("{name}: {what}")).collect()
    }
}

impl Inner {
    /// Exchanges the catalog, tells clients of the lists that differ, and watches the canaries.
    pub(super) fn publish(
        &self,
        state: &mut State,
        table: Vec<LoadedPlugin>,
        canaries: Vec<Canary>,
    ) -> Vec<crate::runtime::LoadError> {
        let published = self.sandbox.publish_with(table, canaries);
        (state.table, state.canaries) = (published.plugins, published.canaries);
        self.calls.lists_changed(&published.lists);
        let trial = |canary: &Canary| {
            let name = &canary.plugin.version.name;
            let bounds = state.book.get(name)?.head.canary.as_ref()?.bounds;
            let against = state.table.iter().find(|plugin| plugin.version.name == *name);
            let against = against.map(|plugin| plugin.version.clone());
            Some(Trial { version: canary.plugin.version.clone(), against, bounds })
        };
        self.calls.watch(state.canaries.iter().filter_map(trial).collect());
        published.refused
    }
}

impl To {
    /// The version that it is about, ready to be published.
    fn loaded(&self) -> Option<&LoadedPlugin> {
        match self {
            Self::Version(to) => Some(to),
            Self::Canary(to, _) => Some(to),
            Self::Nothing | Self::NoCanary { .. } => None,
        }
    }
}

impl Move {
    fn apply(&self, table: &mut Vec<LoadedPlugin>, canaries: &mut Vec<Canary>) {
        let is_it = |plugin: &LoadedPlugin| plugin.version.name == self.name;
        match &self.to {
            To::Version(to) => {
                canaries.retain(|canary| !is_it(&canary.plugin));
                match table.iter_mut().find(|plugin| is_it(plugin)) {
                    Some(place) => *place = to.clone(),
                    None => table.push(to.clone()),
                }
            }
            To::Nothing => table.retain(|plugin| !is_it(plugin)),
            To::Canary(to, row) => {
                let canary = Canary { plugin: LoadedPlugin::clone(to), route: row.route(&self.name) };
                match canaries.iter_mut().find(|canary| is_it(&canary.plugin)) {
                    Some(place) => *place = canary,
                    None => canaries.push(canary),
                }
            }
            To::NoCanary { .. } => canaries.retain(|canary| !is_it(&canary.plugin)),
        }
    }
}

/// The version that was staged last, of those that were never active.
fn latest(entry: &Entry) -> Option<Digest> {
    let fresh = entry.versions.iter().filter(|(digest, version)| {
        matches!(entry.stage(digest), Some(Stage::Staged | Stage::Checked)) && version.activated_at.is_none()
    });
    fresh.max_by_key(|(_, version)| version.staged_at).map(|(digest, _)| *digest)
}
