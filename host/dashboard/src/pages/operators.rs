//! The whole host, for operators. Nothing here holds arguments, answers or results.

use bulkhead_control::commands::TaskFilter;
use bulkhead_control::views::{
    InputView, PluginListView, PluginVersionsView, TaskDetailsView, TaskPageView, TaskStatus, TransitionView,
};
use bulkhead_plugins::{Digest, PluginView, Stage, VersionView};
use maud::{Markup, html};

use super::bulk;
use super::{Frame, address, button, filter_text, more, notice, status, status_choice, table, words};
use crate::sessions::Session;
use crate::text;

/// Rows of a list of plugins, versions or tenants on one page of the dashboard.
pub(crate) const ROWS_MAX: usize = 100;
/// Digits of a version's digest that tell it apart.
const DIGITS: usize = 12;

pub(super) fn digits(version: &Digest) -> String {
    version.to_string().chars().take(DIGITS).collect()
}

/// A name as a part of an address.
pub(super) fn path_segment(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

/// A page of everybody's tasks.
pub(crate) struct AllTasks {
    pub(crate) filter: TaskFilter,
    pub(crate) page: TaskPageView,
    /// Why there is nothing that the filter could mean.
    pub(crate) absent: Option<String>,
}

pub(crate) fn all_tasks(frame: &Frame<'_>, session: &Session, page: &AllTasks) -> Markup {
    let AllTasks { filter, page, absent } = page;
    let next = page.next.as_deref().map(|after| {
        let TaskFilter { tenant, requestor, plugin, status } = filter;
        address(
            "/tasks",
            &[
                ("status", status.as_deref()),
                ("tenant", tenant.as_deref()),
                ("requestor", requestor.as_deref()),
                ("plugin", plugin.as_deref()),
                ("after", Some(after)),
            ],
        )
    });
    frame.show("Tasks", html! {
        form.filter method="get" action="/tasks" {
            (status_choice(filter.status.as_deref()))
            (filter_text("tenant", "Tenant", filter.tenant.as_deref()))
            (filter_text("requestor", "Requestor", filter.requestor.as_deref()))
            (filter_text("plugin", "Plugin", filter.plugin.as_deref()))
            button type="submit" { "Filter" }
            a href="/tasks" { "Reload all" }
        }
        @if let Some(absent) = absent { (notice("bad", absent)) }
        @else if page.tasks.is_empty() { p { @if page.more { "No task here fits the filter; there are more." } @else { "No task fits." } } } @else {
            (bulk::form(session, html! {
                (table("Tasks", &["Choose", "Status", "Tool", "Requestor", "Tenant", "Message", "Changed", "Task"], html! {
                    @for task in &page.tasks {
                        tr {
                            td { (bulk::choice(&task.id)) }
                            td { (status(task.status)) }
                            td { (text::line(&task.tool)) }
                            td { (named(task.requestor.as_deref())) }
                            td { (named(task.tenant.as_deref())) }
                            td { (text::line(task.status_message.as_deref().unwrap_or_default())) }
                            td { (frame.when(task.updated_at)) }
                            td { a href={ "/tasks/" (task.id) } { code { (task.id.chars().take(8).collect::<String>()) } } }
                        }
                    }
                }))
            }))
        }
        (more(next.as_deref()))
    })
}

fn named(name: Option<&str>) -> String {
    name.map_or_else(|| "–".to_owned(), text::line)
}

/// One task, of any requestor.
pub(crate) struct AnyTask<'a> {
    pub(crate) task: &'a TaskDetailsView,
    /// Why an order was not carried out.
    pub(crate) refused: Option<&'a str>,
}

pub(crate) fn any_task(frame: &Frame<'_>, session: &Session, page: &AnyTask<'_>) -> Markup {
    let details = page.task;
    let task = &details.task;
    let action =
        |what: &str, label: &str, class: &str| button(session, &format!("/tasks/{}/{what}", task.id), label, class);
    let answered = |input: &InputView| if input.answered { "answered" } else { "open" };
    let is_over = matches!(
        task.status,
        TaskStatus::Succeeded | TaskStatus::ToolError | TaskStatus::Failed | TaskStatus::Cancelled
    );
    frame.show(&text::line(&task.tool), html! {
        @if let Some(refused) = page.refused { (notice("bad", refused)) }
        dl {
            dt { "Status" } dd { (status(task.status)) }
            @if let Some(said) = &task.status_message { dt { "Message" } dd { (text::line(said)) } }
            @if let Some(error) = &details.error { dt { "Error" } dd { (text::line(error)) } }
            dt { "Task" } dd { code { (task.id) } }
            dt { "Requestor" } dd { (named(task.requestor.as_deref())) " of tenant " (named(task.tenant.as_deref())) }
            dt { "Plugin" } dd { (text::line(&details.plugin)) " " code { (details.plugin_sha256.chars().take(DIGITS).collect::<String>()) } }
            dt { "Created" } dd { (frame.when(task.created_at)) }
            dt { "Changed" } dd { (frame.when(task.updated_at)) }
            @if let Some(at) = task.expires_at { dt { "Expires" } dd { (frame.when(at)) } }
            dt { "Run" } dd { (details.attempt) }
            @for input in &details.inputs { dt { "Question" } dd { code { (text::line(&input.key)) } " " (answered(input)) } }
        }
        div.actions {
            @if !is_over {
                @if task.status == TaskStatus::Paused { (action("resume", "Resume", "plain")) }
                @else { (action("pause", "Pause", "plain")) }
                (action("cancel", "Cancel the task", "plain"))
            }
            details { summary { "Purge…" }
                p { "The task is stopped and removed, with everything that belongs to it." }
                (action("purge", "Purge the task", "bad"))
            }
            a href={ "/tasks/" (task.id) } { "Reload" }
        }
        h2 { "Timeline" }
        ol {
            li { (frame.when(task.created_at)) " created" }
            @if let Some(timeline) = &details.timeline {
                @for (place, entry) in timeline.entries.iter().enumerate() {
                    @if let Some(gap) = timeline.left_out.filter(|gap| gap.after == place) {
                        li { "… " (gap.count) " more, which are not kept" }
                    }
                    li { (frame.when(entry.at)) " " (happened(entry.transition)) }
                }
            } @else if task.updated_at > task.created_at {
                li { (frame.when(task.updated_at)) " " (status(task.status)) }
            }
        }
        p.note { "Arguments, answers and results are shown to the requestor alone." }
    })
}

fn happened(transition: TransitionView) -> String {
    match transition {
        TransitionView::Started { attempt } => format!("started, run {attempt}"),
        TransitionView::InputRequested { requests } => format!("asked {requests} questions"),
        TransitionView::Answered { open } => format!("a question was answered; {open} are open"),
        TransitionView::Paused => "paused".to_owned(),
        TransitionView::Resumed => "resumed".to_owned(),
        TransitionView::Interrupted => "the run was lost with its host".to_owned(),
        TransitionView::Cancelled { from } => format!("cancelled; it was {}", words(from.name())),
        TransitionView::Succeeded => "succeeded".to_owned(),
        TransitionView::ToolError => "ended with an error of the tool".to_owned(),
        TransitionView::Failed => "failed".to_owned(),
    }
}

/// The plugins after the one of this name.
pub(crate) fn plugins(frame: &Frame<'_>, view: &PluginListView, after: Option<&str>) -> Markup {
    let (shown, next) = rows(&view.plugins, after, |plugin| &plugin.name, "/plugins");
    frame.show("Plugins", html! {
        @if view.plugins.is_empty() {
            p { "There is no plugin. Add one with " code { "bulkhead plugin add FILE.wasm" } "." }
        } @else {
            (table("Plugins", &["Plugin", "State", "Active", "Tools", "Calls", "Tasks", "Canary", "Health"], html! {
                @for plugin in shown {
                    tr {
                        td { a href={ "/plugins/" (path_segment(&plugin.name)) } { (text::line(&plugin.name)) } }
                        td { (plugin.state.name()) }
                        td { code { (plugin.active.as_ref().map(digits).unwrap_or_default()) } }
                        td { (plugin.tools) }
                        td { (plugin.calls) }
                        td { (plugin.tasks) }
                        td { @if let Some(canary) = &plugin.canary { code { (digits(&canary.version)) } " " (canary.percent) " %" } @else { "–" } }
                        td { (health(plugin)) }
                    }
                }
            }))
        }
        (more(next.as_deref()))
    })
}

fn health(plugin: &PluginView) -> String {
    if let Some(problem) = plugin.problems.first() {
        return text::line(problem);
    }
    match (plugin.health.requestors_kept_away, plugin.health.last_faults.last()) {
        (0, None) => "no faults".to_owned(),
        (0, Some(fault)) => text::line(&format!("last fault: {}: {}", fault.tool, fault.reason)),
        (kept, _) => format!("{kept} requestors kept away"),
    }
}

/// The versions of one plugin.
pub(crate) struct PluginVersionsPage {
    pub(crate) plugin: Option<PluginView>,
    pub(crate) versions: PluginVersionsView,
}

pub(crate) fn plugin(frame: &Frame<'_>, page: &PluginVersionsPage) -> Markup {
    let stage = |version: &VersionView| match version.state {
        Stage::Staged => "staged",
        Stage::Checked => "checked",
        Stage::Active => "active",
        Stage::Canary => "canary",
        Stage::Draining => "draining",
        Stage::Retired => "retired",
    };
    frame.show(&text::line(&format!("Plugin {}", page.versions.name)), html! {
        @if let Some(plugin) = &page.plugin {
            dl {
                dt { "State" } dd { (plugin.state.name()) }
                @for problem in plugin.problems.iter().take(ROWS_MAX) { dt { "Problem" } dd { (text::line(problem)) } }
                @if let Some(canary) = &plugin.canary {
                    dt { "Canary" } dd {
                        code { (digits(&canary.version)) } " for " (canary.percent) " % of the requestors, since " (frame.when(canary.since))
                        @if let Some(seen) = canary.seen { ": " (seen.calls) " calls, " (seen.faults) " faults" }
                    }
                }
                @if let Some(back) = &plugin.taken_back {
                    dt { "Taken back" } dd {
                        code { (digits(&back.version)) } " " (frame.when(back.taken_back.at)) ": " (text::line(&back.taken_back.why))
                    }
                }
                @for fault in plugin.health.last_faults.iter().rev() {
                    dt { "Fault" } dd { (frame.when(fault.at)) " " (text::line(&fault.tool)) ": " (text::line(&fault.reason)) }
                }
            }
        }
        h2 { "Versions" }
        (table("Versions", &["Version", "Stage", "From", "Signed by", "Staged", "Size", "Tools", "Calls", "Tasks"], html! {
            @for version in page.versions.versions.iter().take(ROWS_MAX) {
                tr {
                    td { code { (digits(&version.version)) } }
                    td { (stage(version)) }
                    td { (text::line(&version.source)) }
                    td { (text::line(&version.signed_by.join(", "))) }
                    td { (frame.when(version.staged_at)) }
                    td { (text::bytes(version.bytes)) }
                    td { (version.tools) }
                    td { (version.calls) }
                    td { (version.tasks) }
                }
            }
        }))
        p.note { "To switch versions: " code { "bulkhead plugin activate" } ", " code { "promote" } " and " code { "rollback" } " on the machine of the host." }
    })
}

/// The rows after a name, and the address of the next page. The list is in the order of names.
pub(super) fn rows<'a, T>(
    all: &'a [T],
    after: Option<&str>,
    name: impl Fn(&T) -> &str,
    path: &str,
) -> (&'a [T], Option<String>) {
    let begin = after.map_or(0, |after| all.partition_point(|row| name(row) <= after));
    let rest = all.get(begin..).unwrap_or_default();
    let shown = rest.get(..rest.len().min(ROWS_MAX)).unwrap_or_default();
    let next =
        (rest.len() > shown.len()).then(|| shown.last().map(|last| address(path, &[("after", Some(name(last)))])));
    (shown, next.flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_names_goes_on_after_the_last_one() {
        let names: Vec<_> = (0..250).map(|number| format!("n {number:03}")).collect();
        let (first, next) = rows(&names, None, |name| name, "/plugins");
        assert_eq!((first.len(), next.as_deref()), (100, Some("/plugins?after=n+099")));
        let (last, next) = rows(&names, Some("n 199"), |name| name, "/plugins");
        assert_eq!((last.len(), last[0].as_str(), next), (50, "n 200", None));
        assert!(rows(&names, Some("z"), |name| name, "/plugins").0.is_empty());
    }

    #[test]
    fn name_in_an_address_is_one_segment() {
        assert_eq!(path_segment("a b/c?d#e"), "a%20b%2Fc%3Fd%23e");
    }
}
