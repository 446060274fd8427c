//! MCP Apps (SEP-1865): tools with a view, which clients show in a frame, and whose calls come over the client's own
//! connection.
//!
//! Owns what the metadata of a tool says of its view and of who calls it, and which tool a view means by a name. Must
//! not know what a view is made of. Invariants: a model finds no tool that is for views alone; a name that a tool has
//! is that tool's, and one that only its plugin knows it by means a tool only where one alone is meant.

use std::sync::Arc;

use serde::Deserialize;

use bulkhead_calls::{Catalog, ToolEntry};
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::Tool;

/// What the metadata of a tool says.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ToolUi {
    resource_uri: Option<String>,
    /// None: both may call it.
    visibility: Option<Vec<String>>,
}

impl ToolUi {
    /// Metadata that is none of this extension says nothing.
    fn of(tool: &Tool) -> Option<Self> {
        let member = |name: &str| tool.meta.iter().find(|(key, _)| key == name).map(|(_, json)| json.as_str());
        // Where it stood in an earlier draft.
        let flat = || member("ui/resourceUri").and_then(|json| serde_json::from_str(json).ok());
        let nested = member("ui").and_then(|json| serde_json::from_str::<Self>(json).ok());
        match nested {
            Some(Self { resource_uri: None, visibility }) => Some(Self { resource_uri: flat(), visibility }),
            Some(ui) => Some(ui),
            None => flat().map(|uri| Self { resource_uri: Some(uri), visibility: None }),
        }
    }

    fn is_for(&self, caller: &str) -> bool {
        self.visibility.as_ref().is_none_or(|callers| callers.iter().any(|known| known == caller))
    }
}

/// The view that a client shows for a tool's results.
pub(crate) fn view_of(tool: &Tool) -> Option<String> {
    ToolUi::of(tool)?.resource_uri
}

fn has_view(tool: &Tool) -> bool {
    view_of(tool).is_some()
}

fn is_for_view(tool: &Tool) -> bool {
    ToolUi::of(tool).is_none_or(|ui| ui.is_for("app"))
}

/// Whether a client shows a view for any tool that `may` be called.
pub(crate) fn any_view(catalog: &Catalog, may: impl Fn(&Tool) -> bool) -> bool {
    catalog.tools().iter().any(|entry| has_view(&entry.tool) && may(&entry.tool))
}

/// Whether a model may find and call a tool.
pub(crate) fn is_for_model(tool: &Tool) -> bool {
    ToolUi::of(tool).is_none_or(|ui| ui.is_for("model"))
}

/// Whether clients have to see a tool in a list, although models search for tools: only there they see that it has a
/// view.
pub(crate) fn is_listed(tool: &Tool) -> bool {
    ToolUi::of(tool).is_some_and(|ui| ui.resource_uri.is_some() || !ui.is_for("model"))
}

/// The tool that a view means by a name that none has as clients see it: the only one that is for views and that a
/// plugin with a view knows by this name. `may`: whether the requestor may call a tool. A client does not say which
/// view calls.
pub(crate) fn meant_by_view<'a>(
    catalog: &'a Catalog,
    name: &str,
    may: impl Fn(&Tool) -> bool,
) -> Option<&'a ToolEntry> {
    if catalog.get(name).is_some() {
        return None;
    }
    let tools = || catalog.tools().iter();
    let is_of_app = |entry: &&ToolEntry| tools().any(|other| other.plugin == entry.plugin && has_view(&other.tool));
    let named = tools().map(|entry| &**entry).filter(|entry| entry.is_own_name(name) && may(&entry.tool));
    let mut meant = named.filter(|entry| is_for_view(&entry.tool)).filter(is_of_app);
    meant.next().filter(|_| meant.next().is_none())
}

/// The tool that a view of one plugin means by a name, where it is known whose view calls: one of this plugin that is
/// for views, by the name that clients see or by its own.
pub(crate) fn meant_by_view_of<'a>(
    catalog: &'a Catalog,
    plugin: &PluginVersion,
    name: &str,
    may: impl Fn(&Tool) -> bool,
) -> Option<&'a Arc<ToolEntry>> {
    let is_meant = |entry: &&Arc<ToolEntry>| entry.plugin == *plugin && is_for_view(&entry.tool) && may(&entry.tool);
    let meant = || catalog.tools().iter().filter(is_meant);
    meant().find(|entry| entry.tool.name == name).or_else(|| meant().find(|entry| entry.is_own_name(name)))
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::Json;
    use bulkhead_domain::limits::CallLimits;

    use super::*;

    fn tool(name: &str, key: &str, json: &str) -> Tool {
        Tool { meta: vec![(key.to_owned(), Json::new(json))], ..Tool::sample(name) }
    }

    #[test]
    fn metadata_says_who_sees_a_tool() {
        let cases = [
            ("ui", r#"{"resourceUri":"ui://a"}"#, (true, true, true)),
            ("ui", r#"{"resourceUri":"ui://a","visibility":["model"]}"#, (true, true, true)),
            ("ui", r#"{"visibility":["app"]}"#, (false, false, true)),
            ("ui", r#"{"visibility":["model","app"]}"#, (false, true, false)),
            ("ui", r#"{"resourceUri":"ui://a","visibility":["app"]}"#, (true, false, true)),
            ("ui", r#"{"resourceUri":1}"#, (false, true, false)),
            ("ui", "7", (false, true, false)),
            ("ui/resourceUri", r#""ui://a""#, (true, true, true)),
            ("other", r#"{"resourceUri":"ui://a"}"#, (false, true, false)),
        ];
        for (key, json, expected) in cases {
            let tool = tool("t", key, json);
            assert_eq!((has_view(&tool), is_for_model(&tool), is_listed(&tool)), expected, "{key} {json}");
        }
    }

    /// An entry whose plugin knows it by another name than its clients.
    fn entry(plugin: &str, own: &str, tool: Tool) -> Arc<ToolEntry> {
        let entry = ToolEntry::sample(plugin, tool, CallLimits::generous());
        Arc::new(ToolEntry { plugin_tool: own.into(), base_name: own.into(), ..entry })
    }

    #[test]
    fn view_means_the_only_tool_that_its_plugin_knows_by_a_name() {
        let view = |name: &str| tool(name, "ui", r#"{"resourceUri":"ui://chart"}"#);
        let app_only = |name: &str| tool(name, "ui", r#"{"visibility":["app"]}"#);
        let model_only = |name: &str| tool(name, "ui", r#"{"visibility":["model"]}"#);
        let catalog = Catalog::new(vec![
            entry("chart", "show", view("c_show")),
            entry("chart", "points", app_only("c_points")),
            entry("chart", "greet", model_only("c_greet")),
            entry("chart", "twice", Tool::sample("c_twice")),
            entry("chart", "taken", Tool::sample("c_taken")),
            entry("other", "open", view("o_open")),
            entry("other", "twice", Tool::sample("o_twice")),
            entry("plain", "list", Tool::sample("p_list")),
            entry("plain", "taken", Tool::sample("taken")),
        ]);
        let meant = |name: &str| meant_by_view(&catalog, name, |_| true).map(|entry| entry.tool.name.as_str());
        for (name, expected) in [
            ("show", Some("c_show")),
            ("points", Some("c_points")),
            ("open", Some("o_open")),
            // It is no view's to call.
            ("greet", None),
            // Two views may mean theirs.
            ("twice", None),
            // A tool has the name.
            ("taken", None),
            ("c_points", None),
            // Its plugin has no view.
            ("list", None),
            ("nothing", None),
        ] {
            assert_eq!(meant(name), expected, "{name}");
        }
        assert!(
            meant_by_view(&catalog, "points", |tool| tool.name != "c_points").is_none(),
            "none that may not be called"
        );
    }

    #[test]
    fn view_whose_plugin_is_known_means_tools_of_that_plugin_alone() {
        let app_only = |name: &str| tool(name, "ui", r#"{"visibility":["app"]}"#);
        let model_only = |name: &str| tool(name, "ui", r#"{"visibility":["model"]}"#);
        let catalog = Catalog::new(vec![
            entry("chart", "points", app_only("c_points")),
            entry("chart", "twice", Tool::sample("c_twice")),
            entry("chart", "greet", model_only("c_greet")),
            entry("other", "twice", Tool::sample("o_twice")),
            entry("other", "c_points", Tool::sample("taken")),
        ]);
        let plugin = catalog.get("c_points").unwrap().plugin.clone();
        let meant = |name: &str| {
            meant_by_view_of(&catalog, &plugin, name, |tool| tool.name != "none").map(|entry| entry.tool.name.as_str())
        };
        for (name, expected) in [
            ("points", Some("c_points")),
            ("c_points", Some("c_points")),
            ("twice", Some("c_twice")),
            // Of another plugin, not for views, or not there.
            ("o_twice", None),
            ("taken", None),
            ("greet", None),
            ("nothing", None),
        ] {
            assert_eq!(meant(name), expected, "{name}");
        }
        assert!(meant_by_view_of(&catalog, &plugin, "points", |_| false).is_none(), "none that may not be called");
    }
}
