//! The tools of a plugin, for operators: how each is called, and what it says of itself.
//!
//! Must not call one.

use bulkhead_control::views::{ActivityCountsView, ActivityView, PluginUsageView};
use bulkhead_domain::tool::Tool;
use maud::{Markup, html};

use super::operators::{ROWS_MAX, path_segment};
use super::schema_table::schema_table;
use super::tiles::CALLS_FOR_P99;
use super::{Frame, address, table};
use crate::columns::PLUGIN_TOOLS;
use crate::text;

/// Days of calls on the page of a plugin.
pub(crate) const USAGE_DAYS: u32 = 7;

/// What is known of the tools of a plugin.
pub(crate) struct PluginTools<'a> {
    /// As clients see them.
    pub(crate) offered: Vec<&'a Tool>,
    /// What was counted while operators looked.
    pub(crate) activity: ActivityView,
    pub(crate) usage: PluginUsageView,
}

impl PluginTools<'_> {
    pub(super) fn show(&self, plugin: &str) -> Markup {
        let counts = |tool: &str| {
            let row = |row: &&bulkhead_control::views::ActivityRowView| {
                row.plugin.as_deref() == Some(plugin) && row.tool.as_deref() == Some(tool)
            };
            self.activity.rows.iter().find(row).map(|row| row.counts.clone()).unwrap_or_default()
        };
        let days = |tool: &str| {
            let of_tool = self.usage.usage.iter().filter(|day| day.tool.as_deref() == Some(tool));
            of_tool.fold((0, 0), |(calls, errors), day| (calls + day.calls, errors + day.errors))
        };
        html! {
            h2 { "Tools" }
            @if self.offered.is_empty() { p { "None is offered." } } @else {
                (table("Tools", PLUGIN_TOOLS, html! {
                    @for tool in self.offered.iter().take(ROWS_MAX) {
                        @let lately = counts(&tool.name);
                        @let (calls, errors) = days(&tool.name);
                        tr {
                            td { a href=(tool_path(plugin, &tool.name)) { code { (text::cell(&tool.name)) } } }
                            td { (text::count(calls)) }
                            td { (text::count(errors)) }
                            td { (text::count(lately.calls())) }
                            td { (text::count(lately.errors())) }
                            td { (p99(&lately)) }
                        }
                    }
                }))
                @if self.offered.len() > ROWS_MAX { p { (self.offered.len() - ROWS_MAX) " more: " code { "bulkhead plugin usage" } " shows them." } }
                p.note { "Lately: in the last " (text::duration(self.activity.sampled_ms)) ", while operators looked. " code { "bulkhead plugin usage " (text::line(plugin)) } " has 90 days." }
            }
            p {
                a href=(address("/tasks", &[("plugin", Some(plugin))])) { "Its tasks" } " · "
                a href="/denials" { "Denials" } " · "
                a href=(address("/audit", &[("event", Some("plugin."))])) { "Lines of the audit log about plugins" }
            }
        }
    }
}

/// With a word where it is of too few calls.
fn p99(lately: &ActivityCountsView) -> Markup {
    html! {
        @match lately.busy_percentile_us(99) {
            None => "–",
            Some(us) => {
                (text::duration_of_ms(us as f64 / 1_000.0))
                @if lately.calls() < CALLS_FOR_P99 { small { "of few calls" } }
            }
        }
    }
}

/// The page of a tool, for operators.
fn tool_path(plugin: &str, tool: &str) -> String {
    format!("/plugins/{}/tools/{}", path_segment(plugin), path_segment(tool))
}

/// One tool, as clients are told of it.
pub(crate) fn plugin_tool(frame: &Frame<'_>, plugin: &str, tool: &Tool) -> Markup {
    frame.show(&text::line(&tool.name), html! {
        dl {
            @if let Some(title) = &tool.title { dt { "Title" } dd { (text::line(title)) } }
            dt { "Plugin" } dd { a href={ "/plugins/" (path_segment(plugin)) } { (text::line(plugin)) } }
            dt { "Its tasks" } dd { a href=(address("/tasks", &[("tool", Some(&tool.name))])) { "Tasks of this tool" } }
        }
        blockquote { (text::block(&tool.description)) }
        p.note { "The text above is the plugin's, and so is what it says of itself." }
        h2 { "Arguments" }
        (schema_table("Arguments", tool.input_schema.as_str()))
        @if let Some(schema) = &tool.output_schema {
            h2 { "Result" }
            (schema_table("Result", schema.as_str()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_a_plugin_have_their_calls_errors_and_p99() {
        let query = Tool::sample("csv_query");
        let idle = Tool::sample("csv_idle");
        let activity = serde_json::from_str(
            r#"{"sampled_ms":600000,"rows":[
            {"plugin":"csv","tool":"csv_query","outcomes":{"ok":98,"trap":2,"cancelled":1},"refused":0,"cpu_us":1,"busy":[[1000,99],[50000,2]]},
            {"plugin":"text","tool":"csv_idle","outcomes":{"ok":5},"refused":0,"cpu_us":1,"busy":[[1000,5]]}],
            "others":{"outcomes":{},"refused":0,"cpu_us":0,"busy":[]}}"#,
        )
        .unwrap();
        let usage = serde_json::from_str(
            r#"{"name":"csv","usage":[{"day":"2026-11-24","tool":"csv_query","calls":1200,"errors":3},
            {"day":"2026-11-25","tool":"csv_query","calls":34,"errors":1},{"day":"2026-11-25","tool":null,"calls":9,"errors":9}],"more":false}"#,
        )
        .unwrap();
        let shown = PluginTools { offered: vec![&query, &idle], activity, usage }.show("csv").into_string();
        let row = "<a href=\"/plugins/csv/tools/csv_query\"><code>csv_query</code></a></td>\
            <td>1,234</td><td>4</td><td>101</td><td>2</td><td>50 ms</td>";
        assert!(shown.contains(row), "{shown}");
        assert!(
            shown.contains("csv_idle</code></a></td><td>0</td><td>0</td><td>0</td><td>0</td><td>–</td>"),
            "{shown}"
        );
        assert!(shown.contains("in the last 10 min") && shown.contains("/tasks?plugin=csv"), "{shown}");
    }
}
