//! What is known of one plugin: its versions, who gets which of them, and what was accepted of their tools.
//!
//! Pure values, as the book keeps them. Invariant: a version is in one stage at a time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CanaryThresholds, Digest, Pinning, Provenance};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::route::Route;
use bulkhead_runtime::REQUEST_TOOL;

/// Characters of a source that are kept: a row is small, and people have seen enough.
const SOURCE_CHARS_MAX: usize = 800;

/// What is known of a plugin as such.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PluginHead {
    pub(super) active: Option<Digest>,
    /// What `rollback` goes back to.
    pub(super) previous: Option<Digest>,
    /// It came by way of the configuration, and goes with its entry there.
    pub(super) configured: bool,
    /// What a part of the requestors gets instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) canary: Option<CanaryRow>,
    /// Whether what was accepted last are the tools of an MCP server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) mcp: bool,
    /// Grows with every change of anything below the name.
    pub(super) changes: u64,
}

/// A version that a part of the requestors gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CanaryRow {
    pub(super) version: Digest,
    pub(super) since: UnixMs,
    /// Hundredths of a percent.
    pub(super) share: u16,
    pub(super) tenants: Vec<Tenant>,
    pub(super) bounds: CanaryThresholds,
}

/// A tenant, with the name that people know it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub name: String,
    /// As [`TenantId`] writes itself.
    pub id: String,
}

impl CanaryRow {
    /// Who gets it.
    pub(super) fn route(&self, plugin: &str) -> Route {
        let tenants = self.tenants.iter().filter_map(|tenant| TenantId::parse(&tenant.id)).collect();
        Route::new(plugin, &self.version.0, self.share, tenants)
    }
}

/// Why the host took a version out of service by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    pub at: UnixMs,
    pub why: String,
}

/// Why new calls of a version keep no journals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demotion {
    pub at: UnixMs,
    pub why: String,
}

/// One version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Version {
    /// Where the component came from, as it was asked for.
    pub(super) source: String,
    /// As that was resolved, if it was.
    pub(super) origin: String,
    /// Ids of the keys that it had to be signed with.
    pub(super) signed_by: Vec<String>,
    pub(super) bytes: u64,
    pub(super) tools: usize,
    pub(super) staged_at: UnixMs,
    /// When it passed every check.
    pub(super) checked_at: Option<UnixMs>,
    /// When it became active for the last time.
    pub(super) activated_at: Option<UnixMs>,
    /// When another version took its place.
    pub(super) left_at: Option<UnixMs>,
    /// When its last call had ended.
    pub(super) retired_at: Option<UnixMs>,
    /// What the rule that its source came under says of definitions that change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinning: Option<Pinning>,
    /// Whether such a rule wants changes noted that another one lets pass.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) shows_changes: bool,
    /// Set until it is switched to again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) taken_back: Option<TakenBack>,
    /// When tasks of it did something else than their journals say: the last of them, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) divergences: Vec<UnixMs>,
    /// Set until an operator says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) demoted: Option<Demotion>,
}

/// Where a version stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its bytes are here.
    Staged,
    /// It passed every check, and may be switched to.
    Checked,
    /// New calls go to it.
    Active,
    /// New calls of a part of the requestors go to it.
    Canary,
    /// Calls that began with it go on.
    Draining,
    /// Nothing runs on it any more; it can be switched to.
    Retired,
}

/// Everything about one plugin.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) head: PluginHead,
    /// As it was read.
    pub(super) head_row: Option<Vec<u8>>,
    pub(super) versions: BTreeMap<Digest, Version>,
    /// The accepted definition of each tool, also of those that are gone.
    pub(super) accepted: BTreeMap<String, Digest>,
    /// The same for the canary, where one was begun.
    pub(super) canary_accepted: BTreeMap<String, Digest>,
}

impl Version {
    /// One whose bytes have just come.
    pub(super) fn staged(provenance: &Provenance, bytes: u64, now: UnixMs) -> Self {
        let mut version = Self { bytes, staged_at: now, ..Self::default() };
        version.came(provenance);
        version
    }

    /// Notes where its bytes came from. Returns whether that is news.
    pub(super) fn came(&mut self, provenance: &Provenance) -> bool {
        let shown =
            |text: &str| text.chars().filter(|character| !character.is_control()).take(SOURCE_CHARS_MAX).collect();
        let Provenance { source, origin, signed_by, pinning, shows_changes } = provenance;
        // A signature that was once there does not go away because somebody hands in the same bytes without it.
        let signed_by = if signed_by.is_empty() { &self.signed_by } else { signed_by };
        let came: (String, String, _) = (shown(source), shown(origin), signed_by.clone());
        let rules = (*pinning, *shows_changes);
        let before = (&self.source, &self.origin, &self.signed_by, (self.pinning, self.shows_changes));
        let is_news = before != (&came.0, &came.1, &came.2, rules);
        (self.source, self.origin, self.signed_by) = came;
        (self.pinning, self.shows_changes) = rules;
        is_news
    }
}

impl Entry {
    pub(super) fn stage(&self, digest: &Digest) -> Option<Stage> {
        let version = self.versions.get(digest)?;
        Some(match (self.head.active, version.left_at, version.retired_at, version.checked_at) {
            (Some(active), ..) if active == *digest => Stage::Active,
            _ if self.is_canary(digest) => Stage::Canary,
            (_, Some(_), None, _) => Stage::Draining,
            (_, Some(_), Some(_), _) => Stage::Retired,
            (.., Some(_)) => Stage::Checked,
            _ => Stage::Staged,
        })
    }

    pub(super) fn is_canary(&self, digest: &Digest) -> bool {
        self.head.canary.as_ref().is_some_and(|canary| canary.version == *digest)
    }

    /// The one tool of a web service or of a command of this name, if that is all that was ever accepted of it: it
    /// keeps that until its operator says otherwise.
    pub(super) fn kept_program<'a>(&self, name: &'a str) -> Option<&'a str> {
        let tool = [REQUEST_TOOL, name].into_iter().find(|tool| self.accepted.contains_key(*tool))?;
        (!self.head.mcp && self.accepted.len() == 1).then_some(tool)
    }

    /// What was accepted as the definition of a tool, for this version.
    pub(super) fn accepted_for(&self, digest: &Digest, tool: &str) -> Option<&Digest> {
        let own = self.is_canary(digest).then(|| self.canary_accepted.get(tool)).flatten();
        own.or_else(|| self.accepted.get(tool))
    }

    /// Accepts definitions of tools of a version.
    pub(super) fn accept(&mut self, digest: &Digest, hashes: impl Iterator<Item = (String, [u8; 32])>) {
        let accepted = if self.is_canary(digest) { &mut self.canary_accepted } else { &mut self.accepted };
        accepted.extend(hashes.map(|(tool, hash)| (tool, Digest(hash))));
    }

    /// Gives a version to a part of the requestors. What is accepted of it stays its own until it is active.
    pub(super) fn begin_canary(&mut self, canary: CanaryRow) {
        if let Some(version) = self.versions.get_mut(&canary.version) {
            (version.left_at, version.retired_at, version.taken_back) = (None, None, None);
        }
        self.head.canary = Some(canary);
    }

    /// Takes the canary back; its calls drain.
    pub(super) fn end_canary(&mut self, why: Option<String>, now: UnixMs) {
        self.canary_accepted.clear();
        let gone = self.head.canary.take().and_then(|canary| self.versions.get_mut(&canary.version));
        if let Some(version) = gone {
            (version.left_at, version.taken_back) = (Some(now), why.map(|why| TakenBack { at: now, why }));
        }
    }

    /// Takes a tenant, by its id, out of the canary, which ends where nobody is left in it.
    pub(super) fn leave_canary(&mut self, tenant: &str, now: UnixMs) {
        let Some(canary) = &mut self.head.canary else { return };
        canary.tenants.retain(|one| one.id != tenant);
        if canary.share == 0 && canary.tenants.is_empty() {
            self.end_canary(None, now);
        }
    }

    /// Notes why a version went that failed.
    pub(super) fn take_back(&mut self, digest: &Digest, why: String, now: UnixMs) {
        if let Some(version) = self.versions.get_mut(digest) {
            version.taken_back = Some(TakenBack { at: now, why });
        }
    }

    /// Until when the active version is watched after a switch to it; `None`: there is no older one to go back to that
    /// did not fail.
    pub(super) fn watched_until(&self, watch_ms: u64) -> Option<UnixMs> {
        let of = |digest: Option<Digest>| digest.and_then(|digest| self.versions.get(&digest));
        if self.head.active == self.head.previous {
            return None;
        }
        let active = of(self.head.active)?;
        let previous = of(self.head.previous)?;
        // Who went back to an older version did so on purpose.
        let goes_forward = active.staged_at >= previous.staged_at && previous.taken_back.is_none();
        active.activated_at.filter(|_| goes_forward && watch_ms > 0).map(|at| at.saturating_add(watch_ms))
    }

    /// Makes a version the active one, or none; the one before it begins to drain.
    pub(super) fn activate(&mut self, digest: Option<Digest>, now: UnixMs) {
        if let Some(before) = self.head.active.filter(|before| Some(*before) != digest) {
            if let Some(version) = self.versions.get_mut(&before) {
                version.left_at = Some(now);
            }
            self.head.previous = Some(before);
        }
        self.head.active = digest;
        if digest.is_some_and(|digest| self.is_canary(&digest)) {
            self.head.canary = None;
            self.accepted.append(&mut self.canary_accepted);
        }
        if let Some(version) = digest.and_then(|digest| self.versions.get_mut(&digest)) {
            (version.activated_at, version.left_at, version.retired_at) = (Some(now), None, None);
            version.taken_back = None;
        }
    }
}
