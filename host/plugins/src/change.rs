//! What becomes of one plugin in a change, from the question whether it makes sense to the rows that say that it was
//! done.

use super::difference::Changes;
use super::entry::CanaryRow;
use super::pinning::accept;
use super::registry::Draft;
use super::switch::{SwitchEffect, SwitchedPlugin};
use super::{Digest, Error, Plugins, State};
use bulkhead_runtime::{Canary, LoadedPlugin};

/// A plugin with what becomes of it.
pub(super) struct PluginChange {
    pub(super) name: String,
    pub(super) to: ChangeTarget,
}

pub(super) enum ChangeTarget {
    Version(LoadedPlugin),
    /// Out of service.
    Nothing,
    /// The version before again: the active one failed.
    Back {
        to: LoadedPlugin,
        from: Digest,
        why: String,
    },
    /// A part of the requestors gets this.
    Canary(Box<LoadedPlugin>, CanaryRow),
    /// All requestors have the active version again.
    NoCanary {
        /// Only if it is this one.
        version: Option<Digest>,
        why: Option<String>,
    },
}

impl Plugins {
    /// What one move does, and what of it needs the operator's word.
    pub(super) fn step(&self, state: &State, one: &PluginChange) -> Result<(SwitchedPlugin, Vec<String>), Error> {
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
        // It may have been loaded on terms that are no more.
        if to.is_some_and(|to| !to.is_under(&self.inner.policies.load().of(name).source)) {
            return Err(Error::Invalid(format!("what the configuration says of {name} changed meanwhile: try again")));
        }
        let turn = match (&one.to, canary) {
            (ChangeTarget::Back { from, .. }, None) if entry.head.active == Some(*from) => SwitchEffect::TakenBack,
            (ChangeTarget::Back { .. }, None) => return Err(Error::Invalid(format!("{name} was switched meanwhile"))),
            (ChangeTarget::Version(_), Some(canary)) if Some(canary) == digest => SwitchEffect::Promoted,
            (ChangeTarget::Version(_) | ChangeTarget::Nothing, None) => SwitchEffect::Switched,
            (ChangeTarget::Canary(..), Some(canary)) if Some(canary) == digest => SwitchEffect::CanaryChanged,
            (ChangeTarget::Canary(..), None) if active.is_some() && entry.head.active != digest => {
                SwitchEffect::CanaryBegun
            }
            (ChangeTarget::NoCanary { version, .. }, Some(canary))
                if version.is_none_or(|version| version == canary) =>
            {
                SwitchEffect::CanaryEnded
            }
            (_, Some(canary)) => {
                return Err(Error::Invalid(format!(
                    "{name} has the canary {canary}: `bulkhead plugin promote {name}` makes it the active version, \
                     `bulkhead plugin rollback {name}` takes it back"
                )));
            }
            (ChangeTarget::NoCanary { .. }, None) => return Err(Error::Invalid(format!("{name} has no canary"))),
            (ChangeTarget::Canary(..), None) if active.is_none() => {
                return Err(Error::Invalid(format!(
                    "{name} is not active, so there is nothing that a canary could stand beside: activate a version first"
                )));
            }
            (ChangeTarget::Canary(..), None) => {
                return Err(Error::Invalid(format!("everybody has this version of {name} already")));
            }
        };
        let held = to.map(|to| self.held(name, entry, active, to, one.to.canary())).unwrap_or_default();
        let changes = active.zip(to).map(|(from, to)| Changes::between(from, to));
        let (from, to) = match turn {
            SwitchEffect::CanaryEnded => (canary, entry.head.active),
            _ => (entry.head.active, digest),
        };
        Ok((SwitchedPlugin { name: name.clone(), from, to, turn, changes }, held))
    }

    /// From here on a host that starts has the new versions.
    pub(super) async fn commit(&self, state: &mut State, moves: &[PluginChange]) -> Result<(), Error> {
        let now = self.inner.clock.now();
        let mut draft = Draft::default();
        for one in moves {
            let entry = draft.entry(&state.book, &one.name);
            match &one.to {
                ChangeTarget::Version(to) => {
                    let digest = Digest(to.version.digest);
                    entry.activate(Some(digest), now);
                    accept(entry, to);
                }
                ChangeTarget::Nothing => entry.activate(None, now),
                ChangeTarget::Back { to, from, why } => {
                    let digest = Digest(to.version.digest);
                    entry.activate(Some(digest), now);
                    // What the failed version offered was accepted over it; a start compares with what is accepted.
                    accept(entry, to);
                    entry.take_back(from, why.clone(), now);
                }
                ChangeTarget::Canary(to, row) => {
                    entry.begin_canary(row.clone());
                    accept(entry, to);
                }
                ChangeTarget::NoCanary { why, .. } => entry.end_canary(why.clone(), now),
            }
        }
        state.book.commit(&*self.inner.store, draft).await?;
        for PluginChange { name, to } in moves {
            let digest = to.loaded().map_or("none".to_owned(), |to| Digest(to.version.digest).to_string());
            match to {
                ChangeTarget::Version(_) | ChangeTarget::Nothing => {
                    tracing::info!(plugin.name = name, plugin.version = digest, "switched");
                }
                ChangeTarget::Back { why, .. } => {
                    tracing::error!(
                        plugin.name = name,
                        plugin.version = digest,
                        why,
                        "the new version failed: switched back"
                    );
                }
                ChangeTarget::Canary(..) => {
                    tracing::info!(
                        plugin.name = name,
                        plugin.version = digest,
                        "a part of the requestors gets a canary"
                    );
                }
                ChangeTarget::NoCanary { why: None, .. } => {
                    tracing::info!(plugin.name = name, "the canary was taken back")
                }
                ChangeTarget::NoCanary { why: Some(why), .. } => {
                    tracing::warn!(plugin.name = name, why, "the canary failed and was taken back");
                }
            }
        }
        Ok(())
    }
}

impl ChangeTarget {
    /// The version that it is about, ready to be published.
    pub(super) fn loaded(&self) -> Option<&LoadedPlugin> {
        match self {
            Self::Version(to) | Self::Back { to, .. } => Some(to),
            Self::Canary(to, _) => Some(to),
            Self::Nothing | Self::NoCanary { .. } => None,
        }
    }
}

impl ChangeTarget {
    /// Who gets it, if it is for a part of the requestors.
    pub(super) fn canary(&self) -> Option<&CanaryRow> {
        if let Self::Canary(_, row) = self { Some(row) } else { None }
    }
}

impl PluginChange {
    pub(super) fn apply(&self, table: &mut Vec<LoadedPlugin>, canaries: &mut Vec<Canary>) {
        let is_it = |plugin: &LoadedPlugin| plugin.version.name == self.name;
        match &self.to {
            ChangeTarget::Version(to) | ChangeTarget::Back { to, .. } => {
                canaries.retain(|canary| !is_it(&canary.plugin));
                match table.iter_mut().find(|plugin| is_it(plugin)) {
                    Some(version) => *version = to.clone(),
                    None => table.push(to.clone()),
                }
            }
            ChangeTarget::Nothing => table.retain(|plugin| !is_it(plugin)),
            ChangeTarget::Canary(to, row) => {
                let canary = Canary { plugin: LoadedPlugin::clone(to), route: row.route(&self.name) };
                match canaries.iter_mut().find(|canary| is_it(&canary.plugin)) {
                    Some(version) => *version = canary,
                    None => canaries.push(canary),
                }
            }
            ChangeTarget::NoCanary { .. } => canaries.retain(|canary| !is_it(&canary.plugin)),
        }
    }
}
