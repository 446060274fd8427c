//! The tools that a requestor may call, and the form to call one.

use bulkhead_domain::hex;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::tool::{TaskSupport, Tool, ToolAnnotations};
use bulkhead_protocol::OfferedTool;
use maud::{Markup, html};

use super::lists::counted;
use super::schema_table::schema_table;
use super::{Frame, TOKEN_FIELD, filter_text, more};
use crate::arguments::{self, AS_JSON, JSON_FIELD};
use crate::columns::TOOLS;
use crate::digests::form_token;
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
            @if let Some((_, why)) = page.refused { p.notice.bad.lines role="alert" { (text::block(why)) } }
            (call(session, tool, page.rights, page.refused.map(|(form, _)| form)))
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

/// The ways in which a requestor may call a tool here, each with the address that does it.
fn ways(tool: &Tool, rights: &Rights) -> Vec<(String, &'static str)> {
    let plainly = (format!("/tools/{}/try", tool.name), "Call it");
    let as_task = (format!("/tools/{}/call", tool.name), "Call it as a task");
    let has_tasks = rights.has(Need::Tasks);
    let is_for = [(plainly, tool.task_support != TaskSupport::Required), (as_task, is_task(tool) && has_tasks)];
    is_for.into_iter().filter(|(_, is_there)| *is_there).map(|(way, _)| way).collect()
}

fn is_task(tool: &Tool) -> bool {
    tool.task_support != TaskSupport::Forbidden
}

/// The form of a call, with what was filled in before.
pub(super) fn call(session: &Session, tool: &Tool, rights: &Rights, filled: Option<&Form>) -> Markup {
    let (name, json) = AS_JSON;
    let ways = ways(tool, rights);
    let Some((action, _)) = ways.first() else {
        return html! { p { "This tool is called as a task only, and your token does not allow tasks." } };
    };
    let is_json = filled.is_some_and(|form| form.get(name) == Some(json));
    let fields = arguments::show(tool.input_schema.as_str(), filled.filter(|_| !is_json));
    let text = filled.and_then(|form| form.get(JSON_FIELD)).unwrap_or("{}");
    let as_json = html! {
        form method="post" action=(action) {
            input type="hidden" name=(name) value=(json);
            label { "A JSON object"
                textarea.json name=(JSON_FIELD) rows="6" spellcheck="false" { "\n" (text) }
            }
            (buttons(session, &ways, fields.is_some()))
        }
    };
    html! {
        @if let Some(fields) = &fields {
            form method="post" action=(action) {
                (fields)
                (buttons(session, &ways, false))
            }
            details open[is_json] { summary { "Arguments as JSON" } (as_json) }
        } @else { (as_json) }
        @if is_task(tool) && !rights.has(Need::Tasks) {
            p.note { "Your token does not allow tasks: a call that takes long is stopped here." }
        }
    }
}

/// A button for each way, with the token of its address.
fn buttons(session: &Session, ways: &[(String, &str)], is_plain: bool) -> Markup {
    html! {
        p.ways {
            @for (index, (action, label)) in ways.iter().enumerate() {
                button.plain[is_plain || index > 0] type="submit" formaction=(action) name=(TOKEN_FIELD) value=(form_token(&session.key, action)) { (label) }
                " "
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_called_in_the_ways_that_it_and_its_requestor_have() {
        let session = Session::of_operator();
        let shown = |task_support, rights: &Rights| {
            call(&session, &Tool { task_support, ..Tool::sample("dice") }, rights, None).into_string()
        };
        let plainly = "formaction=\"/tools/dice/try\"";
        let as_task = "formaction=\"/tools/dice/call\"";
        let all = Rights::default();
        for (support, expected) in [
            (TaskSupport::Forbidden, [true, false]),
            (TaskSupport::Optional, [true, true]),
            (TaskSupport::Required, [false, true]),
        ] {
            let shown = shown(support, &all);
            assert_eq!([plainly, as_task].map(|part| shown.contains(part)), expected, "{support:?}: {shown}");
        }
        // Each button has the token of its own address.
        let both = shown(TaskSupport::Optional, &all);
        for action in ["/tools/dice/try", "/tools/dice/call"] {
            let token = form_token(&session.key, action);
            assert!(both.contains(&format!("formaction=\"{action}\" name=\"form_token\" value=\"{token}\"")), "{both}");
        }
    }
}
