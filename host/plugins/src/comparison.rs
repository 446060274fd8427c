//! What a switch to a version would change, in full, for an operator to read before they accept it.
//!
//! Owns what is shown of a definition that differs. Must not judge: what needs the operator's word, the switch says.
//! Invariants: what was compared is what a switch to it takes; without a tool named, what comes of any two versions is
//! bounded, and says where it was cut; of a tool that is named, all is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical::canonical;
use super::definition::{annotations, schema};
use super::difference::{ToolChange, ToolPart};
use super::entry::Stage;
use super::grants::{self, GrantRow};
use super::switch::latest;
use super::{Difference, Digest, Error, Plugins, Target, find, version};
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::Tool;
use bulkhead_runtime::LoadedPlugin;

/// Characters of each side of a definition that are shown of a tool that nobody named.
const EXCERPT_CHARS: usize = 400;
/// Characters that are shown in front of the place where two texts begin to differ.
const BEFORE_CHARS: usize = 40;
/// Differences of a schema that are shown of a tool that nobody named.
const DIFFERENCES_SHOWN: usize = 16;

/// A version against the active one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionChanges {
    pub name: String,
    pub version: Digest,
    pub state: Stage,
    /// What it is compared with; none: no version is active, and all is new.
    pub active: Option<Digest>,
    /// By name.
    pub tools: Vec<ToolDifference>,
    pub imports_added: Vec<String>,
    pub imports_removed: Vec<String>,
    pub grants: Vec<GrantDifference>,
    /// What of it needs the operator's word when everybody gets the version, one sentence each.
    pub held: Vec<String>,
}

/// A tool that comes, goes, or has another definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDifference {
    pub tool: String,
    pub kind: DifferenceKind,
    pub parts: Vec<TextDifference>,
    pub input: Vec<Difference>,
    pub output: Vec<Difference>,
    /// Whether there is more of it than this, which is there when the tool is named.
    pub cut: bool,
}

/// What becomes of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    Added,
    Removed,
    Changed,
}

/// A part of a definition as text, as far as it differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDifference {
    pub part: ToolPart,
    /// None: there is none.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Something that can be granted and is asked for otherwise, or comes out otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantDifference {
    pub grant: String,
    pub wanted_before: String,
    pub wanted: String,
    pub effective_before: String,
    pub effective: String,
}

impl Plugins {
    /// Compares a version with the active one. `tool`: only this one, but all of it.
    ///
    /// # Errors
    ///
    /// There is no such plugin or version, or it cannot be loaded.
    pub async fn compare(&self, target: &Target, tool: Option<&str>) -> Result<VersionChanges, Error> {
        let version = self.target(target).await?;
        let loaded = self.ready(&version).await?;
        let name = version.name;
        let digest = Digest(version.digest);
        let (stage, active, held) = {
            let mut state = self.inner.state.lock().await;
            let entry = state.entry(&name)?;
            let gone = || Error::NotFound(format!("{digest} of {name} was removed meanwhile"));
            let stage = entry.stage(&digest).ok_or_else(gone)?;
            let active = state.table.iter().find(|plugin| plugin.version.name == name).cloned();
            let held = self.held(&name, entry, active.as_ref(), &loaded, None);
            let policies = self.inner.policies.load();
            let terms = &policies.of(&name).source;
            let runs_on_them = state.running(&loaded.version).is_some_and(|running| running.is_under(terms));
            if !runs_on_them && loaded.is_under(terms) {
                // A plugin may list other tools each time: what is switched to is what was read.
                state.fresh.insert(name.clone(), loaded.clone());
            }
            (stage, active, held)
        };
        let from = active.as_ref();
        let imports_before = from.map(LoadedPlugin::imports).unwrap_or_default();
        let imports = loaded.imports();
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|name| !those.contains(name)).cloned().collect()
        };
        Ok(VersionChanges {
            version: digest,
            state: stage,
            active: from.map(|active| Digest(active.version.digest)),
            tools: tools(from, &loaded, tool),
            imports_added: only(&imports, &imports_before),
            imports_removed: only(&imports_before, &imports),
            grants: grant_differences(from, &loaded),
            held,
            name,
        })
    }

    /// The version that is meant; without one, the canary, else what was staged last, else the active one.
    pub(super) async fn target(&self, target: &Target) -> Result<PluginVersion, Error> {
        let name = &target.name;
        let state = self.inner.state.lock().await;
        let entry = state.entry(name)?;
        let canary = || entry.head.canary.as_ref().map(|canary| canary.version);
        let digest = match &target.version {
            Some(begins) => find(name, entry, begins)?,
            None => canary()
                .or_else(|| latest(entry))
                .or(entry.head.active)
                .ok_or_else(|| Error::Invalid(format!("no version of {name} is staged or active: name a version")))?,
        };
        Ok(version(name, digest))
    }
}

fn tools(old: Option<&LoadedPlugin>, new: &LoadedPlugin, named: Option<&str>) -> Vec<ToolDifference> {
    let mut both: BTreeMap<&str, (Option<&Tool>, Option<&Tool>)> = BTreeMap::new();
    for (name, tool) in old.iter().flat_map(|plugin| plugin.own_tools()) {
        both.entry(name).or_default().0 = Some(tool);
    }
    for (name, tool) in new.own_tools() {
        both.entry(name).or_default().1 = Some(tool);
    }
    let both = both.into_iter().filter(|(name, _)| named.is_none_or(|named| named == *name));
    both.filter_map(|(name, (old, new))| ToolDifference::between(name, old, new, named.is_some())).collect()
}

impl ToolDifference {
    fn between(name: &str, old: Option<&Tool>, new: Option<&Tool>, is_whole: bool) -> Option<Self> {
        let (kind, changed, mut input, mut output) = match (old, new) {
            (Some(old), Some(new)) => {
                let ToolChange { changed, input, output, .. } = ToolChange::between(name, old, new)?;
                (DifferenceKind::Changed, changed, input, output)
            }
            (None, _) => (DifferenceKind::Added, ToolPart::ALL.to_vec(), Vec::new(), Vec::new()),
            (_, None) => (DifferenceKind::Removed, ToolPart::ALL.to_vec(), Vec::new(), Vec::new()),
        };
        let mut cut = false;
        let mut parts = Vec::new();
        for part in changed {
            let side = |tool: Option<&Tool>| tool.and_then(|tool| text(tool, part));
            let mut before = side(old);
            let mut after = side(new);
            if before.is_none() && after.is_none() {
                continue;
            }
            if !is_whole {
                let begins = before.as_deref().zip(after.as_deref()).map_or(0, |(a, b)| differ_at(a, b));
                for side in [&mut before, &mut after].into_iter().flatten() {
                    cut |= excerpt(side, begins.saturating_sub(BEFORE_CHARS));
                }
            }
            parts.push(TextDifference { part, before, after });
        }
        if !is_whole {
            cut |= input.len().max(output.len()) > DIFFERENCES_SHOWN;
            for differences in [&mut input, &mut output] {
                differences.truncate(DIFFERENCES_SHOWN);
                for Difference { path, what, .. } in differences {
                    cut |= excerpt(path, 0) | excerpt(what, 0);
                }
            }
        }
        Some(Self { tool: name.to_owned(), kind, parts, input, output, cut })
    }
}

/// A part of a definition as people read it.
fn text(tool: &Tool, part: ToolPart) -> Option<String> {
    match part {
        ToolPart::Title => tool.title.clone(),
        ToolPart::Description => Some(tool.description.clone()),
        ToolPart::Annotations => match annotations(tool) {
            Value::Null => None,
            hints => Some(indented(&hints)),
        },
        ToolPart::InputSchema => Some(indented(&schema(&tool.input_schema))),
        ToolPart::OutputSchema => tool.output_schema.as_ref().map(|output| indented(&schema(output))),
    }
}

/// With its members in one order, whatever order they came in.
fn indented(value: &Value) -> String {
    let sorted: Value = serde_json::from_str(&canonical(value)).unwrap_or_default();
    serde_json::to_string_pretty(&sorted).unwrap_or_default()
}

/// How many characters two texts have in common at the beginning.
fn differ_at(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

/// Leaves so much of a text as is shown, from a place on. Returns whether anything is missing.
fn excerpt(text: &mut String, from: usize) -> bool {
    let mut shown: String = text.chars().skip(from).take(EXCERPT_CHARS).collect();
    let is_cut = shown.len() < text.len();
    if from > 0 {
        shown.insert(0, '…');
    }
    if is_cut && text.chars().nth(from + EXCERPT_CHARS).is_some() {
        shown.push('…');
    }
    *text = shown;
    is_cut
}

/// What is asked for or comes out otherwise. Without an active version it is compared with nothing.
fn grant_differences(old: Option<&LoadedPlugin>, new: &LoadedPlugin) -> Vec<GrantDifference> {
    let before = old.map(grants::rows).unwrap_or_default();
    let after = grants::rows(new);
    let none = "-".to_owned();
    let of = |rows: &[GrantRow], grant: &str| match rows.iter().find(|row| row.grant == grant) {
        Some(row) => (row.wanted.clone(), row.effective.clone()),
        None => (none.clone(), none.clone()),
    };
    let gone = before.iter().filter(|row| after.iter().all(|other| other.grant != row.grant));
    let all = after.iter().chain(gone).map(|row| &row.grant);
    let difference = |grant: &String| {
        let (wanted_before, effective_before) = of(&before, grant);
        let (wanted, effective) = of(&after, grant);
        let differs = (&wanted_before, &effective_before) != (&wanted, &effective);
        let grant = grant.clone();
        differs.then_some(GrantDifference { grant, wanted_before, wanted, effective_before, effective })
    };
    all.filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::Json;

    use super::*;

    fn tool(description: &str) -> Tool {
        Tool { description: description.to_owned(), ..Tool::sample("t") }
    }

    #[test]
    fn excerpt_begins_where_the_texts_begin_to_differ() {
        let same = "s".repeat(10_000);
        let tail = "t".repeat(10_000);
        let old = tool(&format!("{same}old{tail}"));
        let new = tool(&format!("{same}new{tail}"));
        let found = ToolDifference::between("t", Some(&old), Some(&new), false).unwrap();
        assert_eq!((found.kind, found.cut, found.parts.len()), (DifferenceKind::Changed, true, 1));
        let after = found.parts[0].after.as_deref().unwrap();
        assert!(after.starts_with(&format!("…{}new", "s".repeat(BEFORE_CHARS))) && after.ends_with('…'), "{after}");
        assert_eq!(after.chars().count(), EXCERPT_CHARS + 2);
        let whole = ToolDifference::between("t", Some(&old), Some(&new), true).unwrap();
        assert!(!whole.cut && whole.parts[0].after.as_ref() == Some(&new.description));
    }

    #[test]
    fn tool_that_comes_or_goes_shows_all_its_parts() {
        let new = Tool { title: Some("T".to_owned()), ..tool("It is new.") };
        let found = ToolDifference::between("t", None, Some(&new), false).unwrap();
        let parts: Vec<_> = found.parts.iter().map(|part| (part.part, part.before.is_none())).collect();
        let expected = [ToolPart::Title, ToolPart::Description, ToolPart::InputSchema].map(|part| (part, true));
        assert_eq!((found.kind, parts), (DifferenceKind::Added, expected.to_vec()));
        let found = ToolDifference::between("t", Some(&new), None, false).unwrap();
        assert!(found.kind == DifferenceKind::Removed && found.parts.iter().all(|part| part.after.is_none()));
        assert_eq!(ToolDifference::between("t", Some(&new), Some(&new), false), None);
    }

    #[test]
    fn words_inside_a_schema_are_shown_although_it_takes_the_same() {
        let schema = |said: &str| {
            let text = format!(r#"{{"type":"object","properties":{{"a":{{"description":"{said}"}}}}}}"#);
            Tool { input_schema: Json::new(text), ..tool("d") }
        };
        let found = ToolDifference::between("t", Some(&schema("a")), Some(&schema("b")), false).unwrap();
        assert!(found.input.is_empty());
        assert!(found.parts[0].after.as_ref().is_some_and(|text| text.contains(r#""description": "b""#)), "{found:?}");
    }

    #[test]
    fn many_long_differences_are_cut() {
        let schema = |last: usize| {
            let members: Vec<_> =
                (0..last).map(|at| format!(r#""{}{at}":{{"type":"string"}}"#, "m".repeat(1_000))).collect();
            let required: Vec<_> = (0..last).map(|at| format!(r#""{}{at}""#, "m".repeat(1_000))).collect();
            let members = members.join(",");
            let required = required.join(",");
            let text = format!(r#"{{"type":"object","properties":{{{members}}},"required":[{required}]}}"#);
            Tool { input_schema: Json::new(text), ..tool("d") }
        };
        let found = ToolDifference::between("t", Some(&schema(1)), Some(&schema(90)), false).unwrap();
        assert!(found.cut && found.input.len() <= DIFFERENCES_SHOWN);
        let bytes = serde_json::to_string(&found).unwrap().len();
        assert!(bytes < 20_000, "{bytes}");
    }
}
