//! Versions whose tasks do something else than their journals say when they are brought back: after some of them in a
//! day, new calls of such a version keep no journals, until an operator says otherwise.
//!
//! Owns that decision, and the operator's own. Must not touch a task: one that has a journal goes on by it. Invariants:
//! what is decided is in the store with the version, so that a restart changes nothing; where the configuration says
//! `durable = "required"` or `"off"`, that holds, whatever was decided.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::{Demotion, Version};
use super::health::Divergence;
use super::registry::Draft;
use super::switch::Target;
use super::{Digest, Error, Inner, Plugins, State, find, version};
use bulkhead_audit as audit;
use bulkhead_calls::Durability;
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::PluginVersion;

/// So many divergences of a version within [`WITHIN_MS`] demote it.
const DIVERGENCES_MAX: usize = 3;
const WITHIN_MS: UnixMs = 86_400_000;

/// How much of a digest a command needs.
const DIGITS_SHOWN: usize = 12;

/// Between two tries to write a divergence down, while the store refuses.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const DIVERGED: &str = "three of its tasks did something else within a day when they were brought back";
const BY_OPERATOR: &str = "the operator says so";

/// Whether new calls of a version keep journals, as `plugin durable` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionDurability {
    pub name: String,
    pub version: Digest,
    pub durable: bool,
    /// Whether it was otherwise before.
    pub changed: bool,
}

impl Version {
    /// Notes a divergence. Returns whether it is one too many.
    fn note_divergence(&mut self, at: UnixMs) -> bool {
        self.divergences.retain(|before| before.saturating_add(WITHIN_MS) > at);
        self.divergences.push(at);
        self.divergences.sort_unstable();
        let surplus = self.divergences.len().saturating_sub(DIVERGENCES_MAX);
        self.divergences.drain(..surplus);
        self.divergences.len() == DIVERGENCES_MAX
    }
}

impl Plugins {
    /// Writes divergences down as they come, and demotes versions. One that cannot be written down is tried again.
    pub(super) async fn watch_divergences(&self) {
        loop {
            let divergence = self.inner.health.next_divergence().await;
            let mut warned = false;
            while let Err(error) = self.note_divergence(&divergence).await {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(plugin.name = divergence.0.name, %error, "a divergence cannot be written down yet");
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    pub(super) async fn note_divergence(&self, divergence: &Divergence) -> Result<(), Error> {
        let (version, at) = divergence;
        let inner = &self.inner;
        let mut state = self.settled().await?;
        let digest = Digest(version.digest);
        let mut draft = Draft::default();
        // Of a version that was removed meanwhile, or that `--plugin` names, nothing is remembered.
        if state.book.get(&version.name).is_none_or(|entry| !entry.versions.contains_key(&digest)) {
            return Ok(());
        }
        let Some(row) = draft.entry(&state.book, &version.name).versions.get_mut(&digest) else { return Ok(()) };
        let may_be_demoted = inner.policy(&version.name).source.durable == Durability::Auto;
        let is_demoted = row.note_divergence(*at) && row.demoted.is_none() && may_be_demoted;
        if is_demoted {
            row.demoted = Some(Demotion { at: *at, why: DIVERGED.to_owned() });
        }
        state.book.commit(&*inner.store, draft).await?;
        if is_demoted {
            let name = &version.name;
            let begins = digest.to_string().chars().take(DIGITS_SHOWN).collect::<String>();
            tracing::warn!(
                plugin.name = name,
                plugin.version = %digest,
                "new calls of this version keep no journals: {DIVERGED}; `bulkhead plugin durable {name}@{begins} on` lets them again"
            );
            inner.audit.note(|| audit::Entry::new("plugin.demoted").plugin(version).because(DIVERGED));
            inner.show_demoted(&state);
        }
        Ok(())
    }

    /// Says whether new calls of a version keep journals: of the active one, where none is named.
    ///
    /// # Errors
    ///
    /// There is no such version, or the configuration says otherwise.
    pub async fn set_durable(&self, target: &Target, durable: bool) -> Result<VersionDurability, Error> {
        let inner = &self.inner;
        let name = &target.name;
        let mut state = self.settled().await?;
        let entry = state.entry(name)?;
        let digest = match &target.version {
            Some(begins) => find(name, entry, begins)?,
            None => entry.head.active.ok_or_else(|| {
                Error::Invalid(format!(
                    "{name} is not active: name a version; `bulkhead plugin versions {name}` shows them"
                ))
            })?,
        };
        match (inner.policy(name).source.durable, durable) {
            (Durability::Off, true) => {
                return Err(Error::Invalid(format!(
                    "the configuration says durable = \"off\" for {name}: change it there"
                )));
            }
            (Durability::Required, false) => {
                return Err(Error::Invalid(format!(
                    "the configuration says durable = \"required\" for {name}: change it there"
                )));
            }
            _ => {}
        }
        let mut draft = Draft::default();
        let row = draft.entry(&state.book, name).versions.get_mut(&digest);
        let row = row.ok_or_else(|| Error::NotFound(format!("{name} has no version {digest}")))?;
        let changed = row.demoted.is_some() == durable;
        if changed {
            row.demoted = (!durable).then(|| Demotion { at: inner.clock.now(), why: BY_OPERATOR.to_owned() });
            row.divergences.clear();
            state.book.commit(&*inner.store, draft).await?;
            inner.show_demoted(&state);
        }
        Ok(VersionDurability { name: name.clone(), version: digest, durable, changed })
    }
}

impl Inner {
    /// Why new calls of a version keep no journals, where the configuration leaves that open.
    pub(super) fn demotion(&self, name: &str, row: &Version) -> Option<Demotion> {
        row.demoted.clone().filter(|_| self.policies.load().of(name).source.durable == Durability::Auto)
    }

    /// Tells the engine which versions are demoted.
    pub(super) fn show_demoted(&self, state: &State) {
        let demoted = |(name, entry): (&String, &super::Entry)| -> Vec<PluginVersion> {
            let versions = entry.versions.iter().filter(|(_, row)| self.demotion(name, row).is_some());
            versions.map(|(digest, _)| version(name, *digest)).collect()
        };
        self.health.set_demoted(state.book.iter().flat_map(demoted).collect());
    }
}
