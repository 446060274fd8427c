//! What a version changes for clients, as text that an operator reads before they switch to it.
//!
//! Invariants: what a plugin wrote is text, without what nobody sees, and bounded; where something is cut, the page
//! says so; the forms that switch come behind the last of the changes.

use bulkhead_plugins::{
    Difference, DifferenceKind, Direction, GrantDifference, Stage, TextDifference, ToolDifference, ToolPart,
    VersionChanges, VersionView,
};
use maud::{Markup, html};

use super::operators::digits;
use super::plugins::{canary_form, confirmed, granted, orders, plugin_path, stage, version_field, version_path};
use super::{Frame, address, fitting, more, table, token};
use crate::columns::GRANT_CHANGES;
use crate::orders::Order;
use crate::sessions::Session;
use crate::text;

/// Bytes of a page that tools take; one that is larger has a page to itself.
const TOOLS_BYTES: usize = 24_000;
/// Bytes of a page that imports take, grants, and what is held back.
const LIST_BYTES: usize = 6_000;
/// Characters of a part of a tool that a page of the dashboard shows as a whole.
const WHOLE_CHARS_MAX: usize = 40_000;

pub(crate) struct ChangesPage<'a> {
    pub(crate) changes: &'a VersionChanges,
    /// Of what was read, for what is accepted.
    pub(crate) mark: &'a str,
    pub(crate) versions: &'a [VersionView],
    pub(crate) orders: &'a [Order],
    /// The only one that is shown, as a whole.
    pub(crate) tool: Option<&'a str>,
    /// The tool that the page before ended with.
    pub(crate) after: Option<&'a str>,
}

pub(crate) fn changes(frame: &Frame<'_>, session: &Session, page: &ChangesPage<'_>) -> Markup {
    let changes = page.changes;
    let name = &changes.name;
    let path = version_path(&changes.name, &changes.version);
    let (tools, next) = tools(page, &path);
    let is_first = page.after.is_none() && page.tool.is_none();
    frame.show(&text::line(&format!("{name} {}", digits(&changes.version))), html! {
        p { a href=(plugin_path(name)) { "Plugin " (text::line(name)) } }
        (orders(frame, page.orders, 1, false))
        @if let Some(tool) = page.tool {
            p { "Only the tool " code { (text::line(tool)) } ". " a href=(path) { "All that the version changes" } }
        }
        @if is_first { (facts(frame, page)) }
        h2 {
            @match &changes.active {
                Some(active) if *active == changes.version => "This is the active version",
                Some(active) => { "What it changes of the active version " code { (digits(active)) } },
                None => "No version is active: all of it is new",
            }
        }
        @if is_first { (beside_tools(changes)) }
        @for tool in &tools { (tool) }
        (more(next.as_deref()))
        @if page.tool.is_none() {
            @if next.is_some() { p { "Read the rest of the changes first: the switch is behind the last of them." } }
            @else { (switches(session, page)) }
        }
    })
}

fn facts(frame: &Frame<'_>, page: &ChangesPage<'_>) -> Markup {
    let Some(row) = page.versions.iter().find(|row| row.version == page.changes.version) else { return html! {} };
    html! {
        dl {
            dt { "Version" } dd { code { (row.version) } }
            dt { "Stage" } dd { (stage(row.state)) }
            dt { "From" } dd { (text::line(&row.source)) }
            @if !row.origin.is_empty() && row.origin != row.source { dt { "Resolved" } dd { (text::line(&row.origin)) } }
            dt { "Signed by" } dd { @if row.signed_by.is_empty() { "no key that a [[trust]] rule asks for" } @else { (text::line(&row.signer_names().join(", "))) } }
            dt { "Staged" } dd { (frame.when(row.staged_at)) }
            @if let Some(at) = row.activated_at { dt { "Active" } dd { (frame.when(at)) } }
            dt { "Size" } dd { (text::bytes(row.bytes)) }
            dt { "Calls, tasks" } dd { (row.calls) ", " (row.tasks) }
            @if let Some(back) = &row.taken_back { dt { "Taken back" } dd { (frame.when(back.at)) ": " (text::line(&back.why)) } }
        }
    }
}

/// Imports and grants.
fn beside_tools(changes: &VersionChanges) -> Markup {
    let imports = [("Needs now", &changes.imports_added), ("Needs no more", &changes.imports_removed)];
    let is_same =
        changes.tools.is_empty() && changes.grants.is_empty() && imports.iter().all(|(_, list)| list.is_empty());
    html! {
        @if is_same && changes.active != Some(changes.version) { p { "Nothing that clients see, and nothing that it may reach." } }
        @for (label, list) in imports.iter().filter(|(_, list)| !list.is_empty()) {
            h3 { (label) }
            @let (shown, left) = fitting(list, LIST_BYTES, |import| html! { li { code { (text::line(import)) } } });
            ul { @for import in &shown { (import) } }
            (left_out(left))
        }
        @if !changes.grants.is_empty() {
            h3 { "Grants" }
            @let (shown, left) = fitting(&changes.grants, LIST_BYTES, grant);
            (table("Grants that differ", GRANT_CHANGES, html! { @for row in &shown { (row) } }))
            (left_out(left))
        }
    }
}

fn left_out(left: usize) -> Markup {
    html! { @if left > 0 { p { (left) " more: " code { "bulkhead plugin changes" } " shows them." } } }
}

fn grant(row: &GrantDifference) -> Markup {
    let side = |value: &str| granted(&row.grant, value);
    let turn = |before: &str, after: &str| match before == after {
        true => side(after),
        false => format!("{} → {}", side(before), side(after)),
    };
    html! {
        tr {
            td { code { (text::line(&row.grant)) } }
            td { (turn(&row.wanted_before, &row.wanted)) }
            td { (turn(&row.effective_before, &row.effective)) }
        }
    }
}

/// The tools of this page, and the address of the next.
fn tools(page: &ChangesPage<'_>, path: &str) -> (Vec<Markup>, Option<String>) {
    let all = &page.changes.tools;
    let begin = page.after.map_or(0, |after| all.partition_point(|tool| tool.tool.as_str() <= after));
    let mut shown = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    for tool in all.iter().skip(begin) {
        let markup = show_tool(tool, path, page.tool.is_some());
        bytes += markup.0.len();
        if bytes > TOOLS_BYTES && !shown.is_empty() {
            return (shown, last.map(|last: &str| address(path, &[("after", Some(last))])));
        }
        shown.push(markup);
        last = Some(tool.tool.as_str());
    }
    (shown, None)
}

fn show_tool(tool: &ToolDifference, path: &str, is_whole: bool) -> Markup {
    let what = match tool.kind {
        DifferenceKind::Added => "New tool",
        DifferenceKind::Removed => "Tool that goes",
        DifferenceKind::Changed => "Changed tool",
    };
    let differences = [("Input", &tool.input), ("Output", &tool.output)];
    html! {
        section {
            h3 { (what) " " code { (text::line(&tool.tool)) } }
            @for (label, list) in differences.iter().filter(|(_, list)| !list.is_empty()) {
                ul { @for difference in list.iter() { (show_difference(label, difference)) } }
            }
            @for part in &tool.parts { (show_part(part, is_whole)) }
            @if tool.cut && !is_whole {
                p { "Some of it is cut. " a href=(address(path, &[("tool", Some(&tool.tool))])) { "The whole tool" } }
            }
        }
    }
}

fn show_difference(label: &str, difference: &Difference) -> Markup {
    let direction = match difference.direction {
        Direction::Added => "added",
        Direction::Narrowed => "narrowed",
        Direction::Widened => "widened",
    };
    let path = if difference.path.is_empty() { "/" } else { &difference.path };
    html! { li { (label) " " strong { (direction) } " at " code { (text::line(path)) } ": " (text::line(&difference.what)) } }
}

/// Both sides of a part. The words are the plugin's.
fn show_part(part: &TextDifference, is_whole: bool) -> Markup {
    let label = match part.part {
        ToolPart::Title => "Title",
        ToolPart::Description => "Description",
        ToolPart::Annotations => "Annotations",
        ToolPart::InputSchema => "Input schema",
        ToolPart::OutputSchema => "Output schema",
    };
    let side = |when: &str, class: &str, text: Option<&str>| {
        html! {
            @if let Some(text) = text {
                pre.(class) tabindex="0" role="group" aria-label={ (label) ", " (when) } { (text::passage(text, WHOLE_CHARS_MAX)) }
            }
        }
    };
    let hidden =
        |text: &Option<String>| text.as_ref().map_or(0, |text| text.chars().count().saturating_sub(WHOLE_CHARS_MAX));
    let hidden = hidden(&part.before).max(hidden(&part.after));
    html! {
        p.part { (label) @if part.before.is_some() && part.after.is_some() { ", before and after" } }
        (side("before", "before", part.before.as_deref()))
        (side("after", "after", part.after.as_deref()))
        @if is_whole && hidden > 0 { p { (text::count(hidden as u64)) " characters are not shown: " code { "bulkhead plugin changes --tool" } " shows them." } }
    }
}

/// What can be done with the version, behind all that it changes.
fn switches(session: &Session, page: &ChangesPage<'_>) -> Markup {
    let changes = page.changes;
    let name = &changes.name;
    let version = &changes.version;
    let path = plugin_path(&changes.name);
    let row = page.versions.iter().find(|row| row.version == *version);
    let has_canary = page.versions.iter().any(|row| row.state == Stage::Canary);
    let is_unused = row.is_some_and(|row| row.calls == 0 && row.tasks == 0);
    let accept = accept(page);
    html! {
        @match changes.state {
            Stage::Active => {},
            Stage::Canary => p { "It is the canary: " a href=(path) { "promote it or take it back" } "." },
            _ if has_canary => p { "The plugin has a canary: " a href=(path) { "promote it or take it back" } " first." },
            _ => {
                h2 { "Switch" }
                (held(&changes.held))
                @let action = format!("{path}/activate");
                form method="post" action=(action) {
                    (token(session, &action))
                    (version_field(version))
                    (accept)
                    p { "Everybody gets this version. Calls that run keep theirs." }
                    button type="submit" { "Activate " (digits(version)) }
                }
                @if changes.active.is_some() {
                    details { summary { "Give it to a part of the requestors first…" }
                        (canary_form(session, name, version, None, Some(&accept)))
                    }
                }
            },
        }
        @if is_unused && !matches!(changes.state, Stage::Active | Stage::Canary) {
            (confirmed(session, &format!("{path}/remove-version"), "Remove this version", html! {
                (version_field(version))
                p { "Its component goes from this host. It can be staged again." }
            }))
        }
    }
}

/// What needs the operator's word.
fn held(held: &[String]) -> Markup {
    let (shown, left) = fitting(held, LIST_BYTES, |what| html! { li { (text::line(what)) } });
    html! {
        @if !held.is_empty() {
            div.notice.ask role="status" {
                p { strong { "These changes of what was accepted need your word:" } }
                ul { @for what in &shown { (what) } }
                @if left > 0 { p { (left) " more, all of them above." } }
            }
        }
    }
}

/// The operator's word, where one is needed.
fn accept(page: &ChangesPage<'_>) -> Markup {
    html! {
        @if !page.changes.held.is_empty() {
            input type="hidden" name="mark" value=(page.mark);
            label.switch {
                input type="checkbox" name="accept" value="yes" required; " I have read these changes and accept them"
            }
        }
    }
}
