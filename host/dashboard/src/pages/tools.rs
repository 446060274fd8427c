//! The tools that a requestor may call, and the form to call one.

use bulkhead_domain::hex;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::tool::{TaskSupport, Tool, ToolAnnotations};
use bulkhead_protocol::OfferedTool;
use maud::{Markup, html};

use super::lists::counted;
use super::schema_table::schema_table;
use super::{Frame, filter_text, more, token};
use crate::arguments::{self, AS_JSON, JSON_FIELD};
use crate::columns::TOOLS;
use crate::request::Form;
use crate::sessions::Session;
use crate::text;

/// Characters of a description in a list of the dashboard.
const SUMMARY_CHARS_MAX: usize = 120;
/// Digits of a version's digest that tell it apart.
const DIGITS: usize = 12;

/// A page of tools.
pub(crate) struct ToolsPage<'a> {
    pub(crate) tools: &'a [OfferedTool],
    pub(crate) name: Option<&'a str>,
    pub(crate) next: Option<String>,
}

pub(crate) fn tools(frame: &Frame<'_>, page: &ToolsPage<'_>) -> Markup {
    frame.show(
        "Tools",
        html! {
            form.filter method="get" action="/tools" {
                (filter_text("name", "Name", page.name))
                button type="submit" { "Filter" }
                a href="/tools" { "Show all" }
            }
            @if page.tools.is_empty() {
                p { @if page.name.is_some() { "No tool fits the filter." } @else { "There is no tool that you may call." } }
            } @else {
                (counted(page.tools.len(), page.next.is_some(), "tool", "tools"))
                (TOOLS.show(None, html! {
                    @for offered in page.tools {
                        @let tool = offered.tool();
                        tr {
                            td { a href={ "/tools/" (tool.name) } { code { (text::line(&tool.name)) } } }
                            td { (text::line(&offered.plugin().name)) }
                            td { (summary(tool)) }
                            td { (as_task(tool.task_support)) }
                        }
                    }
                }))
            }
            (more(page.next.as_deref()))
        },
    )
}

fn summary(tool: &Tool) -> String {
    let title = tool.title.as_deref().unwrap_or(&tool.description);
    let line = text::line(title.lines().next().unwrap_or_default());
    if line.chars().nth(SUMMARY_CHARS_MAX).is_none() {
        return line;
    }
    line.chars().take(SUMMARY_CHARS_MAX).chain(['…']).collect()
}

fn as_task(support: TaskSupport) -> &'static str {
    match support {
        TaskSupport::Forbidden => "no",
        TaskSupport::Optional => "yes",
        TaskSupport::Required => "only",
    }
}

/// One tool, with what was filled in and why it was refused.
pub(crate) struct ToolPage<'a> {
    pub(crate) offered: &'a OfferedTool,
    pub(crate) rights: &'a Rights,
    pub(crate) refused: Option<(&'a Form, &'a str)>,
}

pub(crate) fn tool(frame: &Frame<'_>, session: &Session, page: &ToolPage<'_>) -> Markup {
    let tool = page.offered.tool();
    let version: String = hex(&page.offered.plugin().digest).chars().take(DIGITS).collect();
    frame.show(
        &text::line(&tool.name),
        html! {
            dl {
                @if let Some(title) = &tool.title { dt { "Title" } dd { (text::line(title)) } }
                dt { "Plugin" } dd { (text::line(&page.offered.plugin().name)) " " code { (version) } }
                @if let Some(hints) = &tool.annotations { @for (label, hint) in hints_of(hints) { dt { (label) } dd { (hint) } } }
                dt { "As a task" } dd { (as_task(tool.task_support)) }
            }
            blockquote { (text::block(&tool.description)) }
            p.note { "The text above is the plugin's, and so is what it says of itself." }
            h2 { "Arguments" }
            (schema_table("Arguments", tool.input_schema.as_str()))
            @if let Some(schema) = &tool.output_schema {
                h2 { "Result" }
                (schema_table("Result", schema.as_str()))
            }
            h2 { "Call it" }
            @if tool.task_support == TaskSupport::Forbidden {
                p { "This tool cannot be called as a task: call it with an MCP client." }
            } @else if !page.rights.has(Need::Tasks) {
                p { "Your token does not allow tasks: call it with an MCP client." }
            } @else {
                (call(session, tool, page.refused))
            }
        },
    )
}

/// What a plugin says that its tool does.
fn hints_of(hints: &ToolAnnotations) -> impl Iterator<Item = (&'static str, &'static str)> {
    let hints = [
        ("Only reads", hints.read_only),
        ("Destroys", hints.destructive),
        ("Can be repeated", hints.idempotent),
        ("Reaches outside", hints.open_world),
    ];
    hints.into_iter().filter_map(|(label, hint)| Some((label, if hint? { "yes" } else { "no" })))
}

fn call(session: &Session, tool: &Tool, refused: Option<(&Form, &str)>) -> Markup {
    let action = format!("/tools/{}/call", tool.name);
    let (name, json) = AS_JSON;
    let filled = refused.map(|(form, _)| form);
    let is_json = filled.is_some_and(|form| form.get(name) == Some(json));
    let fields = arguments::show(tool.input_schema.as_str(), filled.filter(|_| !is_json));
    let text = filled.and_then(|form| form.get(JSON_FIELD)).unwrap_or("{}");
    let as_json = html! {
        form method="post" action=(action) {
            (token(session, &action))
            input type="hidden" name=(name) value=(json);
            label { "A JSON object"
                textarea.json name=(JSON_FIELD) rows="6" spellcheck="false" { "\n" (text) }
            }
            button.plain[fields.is_some()] type="submit" { "Call it as a task" }
        }
    };
    html! {
        @if let Some((_, why)) = refused { p.notice.bad.lines role="alert" { (text::block(why)) } }
        @if let Some(fields) = &fields {
            form method="post" action=(action) {
                (token(session, &action))
                (fields)
                button type="submit" { "Call it as a task" }
            }
            details open[is_json] { summary { "Arguments as JSON" } (as_json) }
        } @else { (as_json) }
    }
}
