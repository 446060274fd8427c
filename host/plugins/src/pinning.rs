//! Who has a say when a version changes a definition that was accepted.
//!
//! The plugin's `accept_changes` says which changes need the operator's word at all. The rule that a component's source
//! came under, and each tenant, may say something else: that every change is held back, that changes are taken and
//! noted, or that they are taken. Invariant: of those who get a version, the strictest decides for all of them; only
//! the operator's own word goes over it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::definition::{described, hashes, skill_key};
use super::difference::Changes;
use super::entry::{CanaryRow, Entry};
use super::{AcceptChanges, Digest, Inner, Policies};
use bulkhead_audit as audit;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::text::escaped;
use bulkhead_runtime::{LoadedPlugin, SkillSummary, ViewReach};

/// Changes that the host's log names one by one.
const NOTED_MAX: usize = 32;

/// What becomes of a changed definition (`changed_definitions`), the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// Nothing, until the operator accepts it.
    Hold,
    /// It is taken, and the difference is in the log and in the audit log.
    Show,
    /// It is taken.
    Allow,
}

/// What holds for one version and those who get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PinningDecision {
    /// Which changes pass without the operator's word.
    pub(super) passing: AcceptChanges,
    /// Whether those that pass are noted.
    pub(super) shown: bool,
}

/// `own` is the plugin's `accept_changes`, `tenants` what each of those says who get the version.
fn say(own: AcceptChanges, source: Option<Pinning>, tenants: &[Option<Pinning>]) -> PinningDecision {
    let says = |pinning| source == Some(pinning) || tenants.contains(&Some(pinning));
    let all_say = source.is_some() || tenants.iter().all(Option::is_some);
    let passing = match () {
        () if says(Pinning::Hold) => AcceptChanges::Nothing,
        () if all_say => AcceptChanges::Anything,
        () => own,
    };
    PinningDecision { passing, shown: says(Pinning::Show) }
}

impl Policies {
    /// What holds for a version. `canary`: who gets it, if that is not everybody.
    pub(super) fn say(
        &self,
        name: &str,
        entry: Option<&Entry>,
        digest: &Digest,
        canary: Option<&CanaryRow>,
    ) -> PinningDecision {
        let version = entry.and_then(|entry| entry.versions.get(digest));
        let tenants: Vec<_> = match canary.filter(|canary| canary.share == 0) {
            Some(canary) => {
                let ids = canary.tenants.iter().map(|tenant| TenantId::parse(&tenant.id));
                ids.map(|id| self.tenants.get(&id?).copied()).collect()
            }
            // Also those that say nothing.
            None => self.tenants.values().copied().map(Some).chain([None]).collect(),
        };
        let decision = say(self.of(name).accept_changes, version.and_then(|version| version.pinning), &tenants);
        PinningDecision { shown: decision.shown || version.is_some_and(|version| version.shows_changes), ..decision }
    }

    /// What holds for a version as it runs or would be run: to its part of the requestors while it is a canary.
    pub(super) fn pinning_decision(&self, name: &str, entry: Option<&Entry>, digest: &Digest) -> PinningDecision {
        let canary = entry.and_then(|entry| entry.head.canary.as_ref()).filter(|canary| canary.version == *digest);
        self.say(name, entry, digest, canary)
    }
}

impl Inner {
    /// Records the changes that were accepted, for operators who list them.
    pub(super) fn show(&self, version: &PluginVersion, changes: &[String]) {
        if changes.is_empty() {
            return;
        }
        let digest = Digest(version.digest);
        for change in changes.iter().take(NOTED_MAX) {
            tracing::warn!(plugin.name = version.name, plugin.version = %digest, change, "an accepted definition changed");
        }
        let entry = || audit::Entry::new("plugin.definitions_changed").plugin(version);
        self.audit.note(|| entry().count(changes.len() as u64).because(&changes.join("; ")));
    }
}

/// Accepts what a version offers.
pub(super) fn accept(entry: &mut Entry, plugin: &LoadedPlugin) {
    let digest = Digest(plugin.version.digest);
    entry.accept(&digest, hashes(plugin));
    if !entry.is_canary(&digest) {
        entry.head.mcp = plugin.mcp_server().is_some();
    }
}

/// What a version changes of what was accepted, as far as that is not within `passing`, one sentence each.
pub(super) fn changes(
    entry: &Entry,
    active: Option<&LoadedPlugin>,
    to: &LoadedPlugin,
    passing: AcceptChanges,
) -> Vec<String> {
    let mut found = active.map(|active| Changes::between(active, to)).unwrap_or_default().held_back(passing);
    if passing == AcceptChanges::Anything {
        return found;
    }
    found.extend(active.map(|active| reaching_further(active.views(), to.views())).unwrap_or_default());
    found.extend(active.map(|active| changed_skills(active.skills(), to.skills())).unwrap_or_default());
    // Tools, views and skills that the active version does not have, or whose accepted definition is not the active
    // one's.
    let tools = active.iter().flat_map(|active| active.own_tools()).map(|(tool, _)| tool);
    let views = active.iter().flat_map(|active| active.views()).map(|(uri, _)| uri.as_str());
    let skills = active.iter().flat_map(|active| active.skills().keys()).map(|name| skill_key(name));
    let known: BTreeSet<_> = tools.chain(views).map(str::to_owned).chain(skills).collect();
    let others = hashes(to).filter(|(tool, _)| !known.contains(tool));
    found.extend(others.filter_map(|(tool, hash)| {
        let accepted = entry.accepted.get(&tool)?;
        (*accepted != Digest(hash)).then(|| format!("{} is not the one that was accepted before", described(&tool)))
    }));
    found
}

/// The views that may reach something else than before, one sentence each. One that is new reached nothing.
fn reaching_further(old: &BTreeMap<String, ViewReach>, new: &BTreeMap<String, ViewReach>) -> Vec<String> {
    let nothing = ViewReach::default();
    let mut found = Vec::new();
    for (uri, reach) in new {
        let before = old.get(uri).unwrap_or(&nothing).parts();
        let after = reach.parts();
        if before != after {
            let listed = |parts: &[String]| if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
            let sentence = format!("may reach {}; it could reach {}", listed(&after), listed(&before));
            found.push(format!("{} {}", described(uri), escaped(&sentence)));
        }
    }
    found
}

/// The skills that say something else than before, or nothing any more, one sentence each. A new one is as a new tool.
fn changed_skills(old: &BTreeMap<String, SkillSummary>, new: &BTreeMap<String, SkillSummary>) -> Vec<String> {
    let what = |name: &String, skill: &SkillSummary| match new.get(name) {
        None => Some("is removed"),
        Some(now) => (now.digest != skill.digest).then_some("changes"),
    };
    let changed = old.iter().filter_map(|(name, skill)| Some((name, what(name, skill)?)));
    changed.map(|(name, what)| format!("{} {what}", described(&skill_key(name)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn skill_that_changes_or_goes_needs_the_operators_word() {
        let skills = |skills: &[(&str, u8)]| -> BTreeMap<String, SkillSummary> {
            let summary = |digest| SkillSummary { digest: [digest; 32], files: 1, bytes: 9 };
            skills.iter().map(|(name, digest)| ((*name).to_owned(), summary(*digest))).collect()
        };
        let old = skills(&[("deploy", 1), ("review", 1)]);
        for (new, expected) in [
            (skills(&[("deploy", 1), ("review", 1), ("test", 1)]), vec![]),
            (skills(&[("deploy", 2), ("review", 1)]), vec!["the skill deploy changes"]),
            (skills(&[("deploy", 1)]), vec!["the skill review is removed"]),
        ] {
            assert_eq!(changed_skills(&old, &new), expected);
        }
    }

    #[test]
    fn view_that_reaches_something_else_needs_the_operators_word() {
        let views = |uris: &[(&str, serde_json::Value)]| -> BTreeMap<String, ViewReach> {
            uris.iter().map(|(uri, ui)| ((*uri).to_owned(), ViewReach::of_ui(ui))).collect()
        };
        let connect = |domain: &str| json!({"csp": {"connectDomains": [domain]}});
        let old = views(&[("ui://a", connect("https://a.org")), ("ui://b", json!({}))]);
        for (new, expected) in [
            (views(&[("ui://a", connect("https://a.org")), ("ui://c", json!({}))]), vec![]),
            (
                views(&[("ui://a", connect("https://b.org"))]),
                vec![
                    "the view ui://a may reach connectDomains https://b.org; it could reach connectDomains https://a.org",
                ],
            ),
            (
                views(&[("ui://a", json!({})), ("ui://c", json!({"permissions": {"camera": {}}}))]),
                vec![
                    "the view ui://a may reach nothing; it could reach connectDomains https://a.org",
                    "the view ui://c may reach permission camera; it could reach nothing",
                ],
            ),
        ] {
            assert_eq!(reaching_further(&old, &new), expected);
        }
    }

    #[test]
    fn strictest_pinning_among_affected_tenants_decides() {
        use AcceptChanges::{Anything, Compatible, Nothing};
        use Pinning::{Allow, Hold, Show};
        for (own, source, tenants, passing, shown) in [
            (Nothing, None, &[None][..], Nothing, false),
            (Compatible, None, &[None], Compatible, false),
            (Nothing, Some(Allow), &[None], Anything, false),
            (Nothing, Some(Show), &[None], Anything, true),
            (Anything, Some(Hold), &[None], Nothing, false),
            // One tenant cannot let pass for the others what they did not, but can hold back for all.
            (Nothing, None, &[Some(Allow), None], Nothing, false),
            (Anything, None, &[Some(Show), None], Anything, true),
            (Anything, Some(Allow), &[Some(Hold), None], Nothing, false),
            (Nothing, Some(Allow), &[Some(Show), None], Anything, true),
            // A canary for these tenants alone.
            (Nothing, None, &[Some(Allow)], Anything, false),
            (Nothing, None, &[Some(Allow), Some(Show)], Anything, true),
            (Nothing, None, &[Some(Allow), Some(Hold)], Nothing, false),
            (Nothing, Some(Hold), &[Some(Allow)], Nothing, false),
        ] {
            let expected = PinningDecision { passing, shown };
            assert_eq!(say(own, source, tenants), expected, "{own:?} {source:?} {tenants:?}");
        }
    }
}
