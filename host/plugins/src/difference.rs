//! What a switch would change for clients, and whether that needs the operator's word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::definition::{annotations, schema};
use super::schema::{Difference, Direction, compare};
use bulkhead_domain::tool::Tool;
use bulkhead_runtime::LoadedPlugin;

/// Which changes of accepted definitions an operator lets pass without being asked (`accept_changes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptChanges {
    /// None; tools may be added.
    #[default]
    Nothing,
    /// Also other descriptions, wider inputs and narrower outputs: every caller of the tool still can.
    Compatible,
    /// All.
    Anything,
}

/// The difference between two versions of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub tools_added: Vec<String>,
    pub tools_removed: Vec<String>,
    pub tools_changed: Vec<ToolChange>,
}

/// One tool that both versions have, with another definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChange {
    pub tool: String,
    pub changed: Vec<ToolPart>,
    pub input: Vec<Difference>,
    pub output: Vec<Difference>,
}

/// A part of a tool's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolPart {
    Title,
    Description,
    Annotations,
    InputSchema,
    OutputSchema,
}

impl ToolPart {
    pub const ALL: [Self; 5] =
        [Self::Title, Self::Description, Self::Annotations, Self::InputSchema, Self::OutputSchema];

    /// As it is in JSON and in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Description => "description",
            Self::Annotations => "annotations",
            Self::InputSchema => "input_schema",
            Self::OutputSchema => "output_schema",
        }
    }
}

impl Changes {
    /// Compares the tools of two versions, by their own names.
    pub(super) fn between(old: &LoadedPlugin, new: &LoadedPlugin) -> Self {
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (old.own_tools().collect(), new.own_tools().collect());
        let only = |a: &BTreeMap<&str, &Tool>, b: &BTreeMap<&str, &Tool>| {
            a.keys().filter(|name| !b.contains_key(*name)).map(|name| (*name).to_owned()).collect()
        };
        let both = old.iter().filter_map(|(name, old)| Some((*name, *old, *new.get(name)?)));
        Self {
            tools_added: only(&new, &old),
            tools_removed: only(&old, &new),
            tools_changed: both.filter_map(|(name, old, new)| ToolChange::between(name, old, new)).collect(),
        }
    }

    /// What of it needs the operator's word under a policy, one sentence each.
    pub(super) fn held_back(&self, policy: AcceptChanges) -> Vec<String> {
        if policy == AcceptChanges::Anything {
            return Vec::new();
        }
        let removed = self.tools_removed.iter().map(|tool| format!("the tool {tool} is removed"));
        let changed = self.tools_changed.iter().filter_map(|change| {
            let what = change.held_back(policy);
            (!what.is_empty()).then(|| format!("the tool {} changes: {}", change.tool, what.join(", ")))
        });
        removed.chain(changed).collect()
    }
}

impl ToolChange {
    pub(super) fn between(name: &str, old: &Tool, new: &Tool) -> Option<Self> {
        let value = |tool: &Tool| (schema(&tool.input_schema), tool.output_schema.as_ref().map(schema));
        let (input_before, output_before) = value(old);
        let (input_after, output_after) = value(new);
        let free = serde_json::Value::Bool(true);
        let changed: Vec<_> = [
            (ToolPart::Title, old.title != new.title),
            (ToolPart::Description, old.description != new.description),
            (ToolPart::Annotations, annotations(old) != annotations(new)),
            (ToolPart::InputSchema, input_before != input_after),
            (ToolPart::OutputSchema, output_before != output_after),
        ]
        .into_iter()
        .filter_map(|(what, differs)| differs.then_some(what))
        .collect();
        let input = compare(&input_before, &input_after);
        let output = compare(output_before.as_ref().unwrap_or(&free), output_after.as_ref().unwrap_or(&free));
        (!changed.is_empty()).then(|| Self { tool: name.to_owned(), changed, input, output })
    }

    fn held_back(&self, policy: AcceptChanges) -> Vec<&'static str> {
        let narrowed = self.input.iter().any(|difference| difference.direction == Direction::Narrowed);
        let promises_less = self.output.iter().any(|difference| difference.direction != Direction::Narrowed);
        let wrong = |part: &ToolPart| match (policy, part) {
            (AcceptChanges::Anything, _) => false,
            (AcceptChanges::Nothing, _) | (AcceptChanges::Compatible, ToolPart::Annotations) => true,
            (AcceptChanges::Compatible, ToolPart::InputSchema) => narrowed,
            (AcceptChanges::Compatible, ToolPart::OutputSchema) => promises_less,
            (AcceptChanges::Compatible, _) => false,
        };
        let word = |part: ToolPart| match part {
            ToolPart::InputSchema if narrowed => "narrowed input_schema",
            part => part.name(),
        };
        self.changed.iter().copied().filter(wrong).map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::Json;
    use bulkhead_domain::tool::ToolAnnotations;

    fn tool(input: &str) -> Tool {
        Tool { description: "Does it.".into(), input_schema: Json::new(input), ..Tool::sample("t") }
    }

    const CLOSED: &str = r#"{"type":"object","properties":{"a":{"type":"string"}}}"#;

    fn held(old: &Tool, new: &Tool) -> [Vec<&'static str>; 3] {
        let change = ToolChange::between("t", old, new);
        [AcceptChanges::Nothing, AcceptChanges::Compatible, AcceptChanges::Anything]
            .map(|policy| change.as_ref().map(|change| change.held_back(policy)).unwrap_or_default())
    }

    #[test]
    fn accept_changes_policy_holds_back_tool_changes() {
        let old = tool(CLOSED);
        let none = || Vec::<&str>::new();
        let spelled = tool(r#"{ "properties": {"a": {"type": "string"}}, "type": "object" }"#);
        assert_eq!(held(&old, &spelled), [none(), none(), none()], "the same schema in other words");
        let described = Tool { description: "Does it well.".into(), ..old.clone() };
        assert_eq!(held(&old, &described), [vec!["description"], none(), none()]);
        let hints = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        let hinted = Tool { annotations: Some(hints), ..old.clone() };
        assert_eq!(held(&old, &hinted), [vec!["annotations"], vec!["annotations"], none()]);
        let wider = tool(r#"{"type":"object","properties":{"a":{"type":["string","null"]}}}"#);
        assert_eq!(held(&old, &wider), [vec!["input_schema"], none(), none()]);
        let narrower = vec!["narrowed input_schema"];
        assert_eq!(held(&wider, &old), [narrower.clone(), narrower, none()]);
        let promising = Tool { output_schema: Some(Json::new(CLOSED)), ..old.clone() };
        assert_eq!(held(&old, &promising), [vec!["output_schema"], none(), none()]);
        assert_eq!(held(&promising, &old), [vec!["output_schema"], vec!["output_schema"], none()]);
    }

    #[test]
    fn removed_tool_is_held_back_but_not_added_one() {
        let changes = Changes { tools_added: vec!["b".into()], ..Changes::default() };
        assert_eq!(changes.held_back(AcceptChanges::Nothing), Vec::<String>::new());
        let changes = Changes { tools_removed: vec!["a".into()], ..Changes::default() };
        assert_eq!(changes.held_back(AcceptChanges::Compatible), ["the tool a is removed"]);
        assert_eq!(changes.held_back(AcceptChanges::Anything), Vec::<String>::new());
    }
}
