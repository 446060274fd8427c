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
    pub(crate) form: Markup,
    pub(crate) refused: Option<&'a str>,
}

pub(crate) fn tool(frame: &Frame<'_>, page: &ToolPage<'_>) -> Markup {
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
            @if let Some(why) = page.refused { p.notice.bad.lines role="alert" { (text::block(why)) } }
            (page.form)
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

/// What decides how a requestor may call a tool here, beside the tool.
pub(crate) struct CallerWays<'a> {
    pub(crate) rights: &'a Rights,
    /// Whether there is a view of it that is shown.
    pub(crate) has_view: bool,
}

/// The ways in which a requestor may call a tool here, each with the address that does it.
fn ways(tool: &Tool, caller: &CallerWays<'_>) -> Vec<(String, &'static str)> {
    let way = |way: &str, label| (format!("/tools/{}/{way}", tool.name), label);
    let is_plain = tool.task_support != TaskSupport::Required;
    let all = [
        (way("try", "Call it"), is_plain),
        (way("call", "Call it as a task"), is_task(tool) && caller.rights.has(Need::Tasks)),
        (way("view", "Call it and show its view"), is_plain && caller.has_view),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(way, _)| way).collect()
}

fn is_task(tool: &Tool) -> bool {
    tool.task_support != TaskSupport::Forbidden
}

/// The form of a call, with what was filled in before.
pub(crate) fn call_form(session: &Session, tool: &Tool, caller: &CallerWays<'_>, filled: Option<&Form>) -> Markup {
    let (name, json) = AS_JSON;
    let ways = ways(tool, caller);
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
        @if is_task(tool) && !caller.rights.has(Need::Tasks) {
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
        let rights = Rights::default();
        let shown = |task_support, has_view| {
            let tool = Tool { task_support, ..Tool::sample("dice") };
            call_form(&session, &tool, &CallerWays { rights: &rights, has_view }, None).into_string()
        };
        let buttons = ["try", "call", "view"].map(|way| format!("formaction=\"/tools/dice/{way}\""));
        for (support, has_view, expected) in [
            (TaskSupport::Forbidden, false, [true, false, false]),
            (TaskSupport::Optional, false, [true, true, false]),
            (TaskSupport::Optional, true, [true, true, true]),
            (TaskSupport::Required, true, [false, true, false]),
        ] {
            let shown = shown(support, has_view);
            let found = [0, 1, 2].map(|way: usize| shown.contains(&buttons[way]));
            assert_eq!(found, expected, "{support:?} {has_view}: {shown}");
        }
        // Each button has the token of its own address.
        let both = shown(TaskSupport::Optional, false);
        for action in ["/tools/dice/try", "/tools/dice/call"] {
            let token = form_token(&session.key, action);
            assert!(both.contains(&format!("formaction=\"{action}\" name=\"form_token\" value=\"{token}\"")), "{both}");
        }
    }
}
