//! The switch from one table of plugins to another.

use std::collections::HashMap;

use serde::Serialize;

use super::book::{Draft, Entry, Stage};
use super::definition::hashes;
use super::difference::Changes;
use super::{Digest, Error, Inner, Plugins, State, find, version};
use crate::runtime::LoadedPlugin;

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
    /// `None`: there was no version before, or it could not be loaded, or there is none now.
    pub changes: Option<Changes>,
}

/// A plugin with what becomes of it.
struct Move {
    name: String,
    to: Option<LoadedPlugin>,
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
            moves.push(Move { name: target.name.clone(), to: Some(self.ready(&target.name, digest).await?) });
        }
        self.exchange(moves, accept).await
    }

    /// Goes back to the versions that were active before. No compiler runs.
    ///
    /// # Errors
    ///
    /// As [`Self::activate`].
    pub async fn rollback(&self, names: &[String]) -> Result<Switched, Error> {
        let mut targets = Vec::new();
        {
            let state = self.inner.state.lock().await;
            for name in names {
                let entry = state.entry(name)?;
                let previous = entry
                    .head
                    .previous
                    .ok_or_else(|| Error::Invalid(format!("no version of {name} was active before the present one")))?;
                targets.push(Target { name: name.clone(), version: Some(previous.to_string()) });
            }
        }
        self.activate(&targets, true).await
    }

    /// Takes a plugin out of the table. Its calls go on, as after a switch; `rollback` and `activate` bring it back.
    ///
    /// # Errors
    ///
    /// There is no such plugin, or it is not active.
    pub async fn remove(&self, name: &str) -> Result<Switched, Error> {
        {
            let state = self.inner.state.lock().await;
            let entry = state.entry(name)?;
            if entry.head.active.is_none() {
                return Err(Error::Invalid(format!("{name} is not active; name a version to remove that")));
            }
        }
        self.exchange(vec![Move { name: name.to_owned(), to: None }], true).await
    }

    /// Removes a version that nothing runs on, with its files.
    ///
    /// # Errors
    ///
    /// There is no such version, it is active, or calls of it are left.
    pub async fn remove_version(&self, name: &str, begins: &str) -> Result<Digest, Error> {
        let mut state = self.inner.state.lock().await;
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
        self.exchange(vec![Move { name: name.to_owned(), to: Some(to) }], false).await
    }

    async fn resolve(&self, targets: &[Target]) -> Result<Vec<Digest>, Error> {
        let state = self.inner.state.lock().await;
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
    async fn exchange(&self, moves: Vec<Move>, accept: bool) -> Result<Switched, Error> {
        let inner = &self.inner;
        let mut state = inner.state.lock().await;
        if let Some(pinned) = moves.iter().find(|one| state.pinned.contains(&one.name)) {
            return Err(Error::Invalid(format!(
                "{} is pinned by --plugin for this run: start the host without it to switch",
                pinned.name
            )));
        }
        let mut switched = Switched { done: false, plugins: Vec::new(), held: Vec::new() };
        let mut table = state.table.clone();
        for one in &moves {
            let at = table.iter().position(|plugin| plugin.version.name == one.name);
            let active = at.and_then(|at| table.get(at)).cloned();
            let entry = state.entry(&one.name)?;
            if let Some(to) = &one.to {
                // It may have been removed while it was loaded.
                let digest = Digest(to.version.digest);
                if !entry.versions.contains_key(&digest) {
                    return Err(Error::NotFound(format!(
                        "{digest} of {} was removed meanwhile: add it again",
                        one.name
                    )));
                }
                switched.held.extend(self.held(&one.name, entry, active.as_ref(), to));
            }
            let changes = active.as_ref().zip(one.to.as_ref()).map(|(from, to)| Changes::between(from, to));
            let to = one.to.as_ref().map(|to| Digest(to.version.digest));
            switched.plugins.push(SwitchedPlugin { name: one.name.clone(), from: entry.head.active, to, changes });
            match (at.and_then(|at| table.get_mut(at)), &one.to, at) {
                (Some(place), Some(to), _) => *place = to.clone(),
                (None, Some(to), _) => table.push(to.clone()),
                (Some(_), None, Some(at)) => drop(table.remove(at)),
                _ => {}
            }
        }
        if !switched.held.is_empty() && !accept {
            return Ok(switched);
        }
        let clashes = inner.sandbox.clashes(&table, &state.canaries);
        if !clashes.is_empty() {
            return Err(Error::Refused(clashes));
        }
        self.commit(&mut state, &moves).await?;
        inner.publish(&mut state, table);
        for one in &moves {
            state.broken.remove(&one.name);
            if let Some(to) = &one.to {
                state.fresh.retain(|_, fresh| fresh.version != to.version);
                state.ended.remove(&to.version);
                inner.calls.forgive(&to.version);
            }
        }
        drop(state);
        inner.drains.notify_one();
        switched.done = true;
        Ok(switched)
    }

    /// From here on a host that starts has the new versions.
    async fn commit(&self, state: &mut State, moves: &[Move]) -> Result<(), Error> {
        let now = self.inner.clock.now();
        let mut draft = Draft::default();
        for one in moves {
            let entry = draft.entry(&state.book, &one.name);
            entry.activate(one.to.as_ref().map(|to| Digest(to.version.digest)), now);
            if let Some(to) = &one.to {
                entry.accepted.extend(hashes(to).map(|(tool, hash)| (tool, Digest(hash))));
            }
        }
        state.book.commit(&*self.inner.store, draft).await?;
        for one in moves {
            let to = one.to.as_ref().map_or("none".to_owned(), |to| Digest(to.version.digest).to_string());
            tracing::info!(plugin.name = one.name, plugin.version = to, "switched");
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
    /// Exchanges the catalog and tells clients of the lists that differ.
    pub(super) fn publish(&self, state: &mut State, table: Vec<LoadedPlugin>) -> Vec<crate::runtime::LoadError> {
        let (lists, refused) = self.sandbox.publish(table.clone());
        let is_out = |plugin: &LoadedPlugin| refused.iter().any(|error| error.plugin == plugin.version.name);
        state.table = table.into_iter().filter(|plugin| !is_out(plugin)).collect();
        self.calls.lists_changed(&lists);
        refused
    }
}

/// The version that was staged last, of those that were never active.
fn latest(entry: &Entry) -> Option<Digest> {
    let fresh = entry.versions.iter().filter(|(digest, version)| {
        matches!(entry.stage(digest), Some(Stage::Staged | Stage::Checked)) && version.activated_at.is_none()
    });
    fresh.max_by_key(|(_, version)| version.staged_at).map(|(digest, _)| *digest)
}
