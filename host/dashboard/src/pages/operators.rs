//! The whole host, for operators. Nothing here holds arguments, answers or results.

use bulkhead_control::commands::TaskFilter;
use bulkhead_control::views::{InputView, TaskDetailsView, TaskPageView, TaskStatus, TransitionView};
use bulkhead_plugins::Digest;
use maud::{Markup, html};

use super::bulk;
use super::{Frame, address, button, copied, filter_text, live, more, notice, status, status_choice, table, words};
use crate::sessions::Session;
use crate::text;

/// Rows of a list of plugins, versions or tenants on one page of the dashboard.
pub(crate) const ROWS_MAX: usize = 100;
/// Digits of a version's digest that tell it apart.
const DIGITS: usize = 12;

pub(crate) fn digits(version: &Digest) -> String {
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
        (live("tasks", html! {
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
        }))
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
        (live("task", html! { dl {
            dt { "Status" } dd { (status(task.status)) }
            @if let Some(message) = &task.status_message { dt { "Message" } dd { (text::line(message)) } }
            @if let Some(error) = &details.error { dt { "Error" } dd { (text::line(error)) } }
            dt { "Task" } dd { (copied(&task.id)) }
            dt { "Requestor" } dd { (named(task.requestor.as_deref())) " of tenant " (named(task.tenant.as_deref())) }
            dt { "Plugin" } dd { (text::line(&details.plugin)) " " code { (details.plugin_sha256.chars().take(DIGITS).collect::<String>()) } }
            dt { "Created" } dd { (frame.when(task.created_at)) }
            dt { "Changed" } dd { (frame.when(task.updated_at)) }
            @if let Some(at) = task.expires_at { dt { "Expires" } dd { (frame.when(at)) } }
            dt { "Run" } dd { (details.attempt) }
            @if let Some(durable) = &details.durable { dt { "Durable" } dd { (text::line(&durable.to_string())) } }
            @if let Some(at) = details.dormant_since { dt { "Dormant" } dd { "since " (frame.when(at)) } }
            @for input in &details.inputs { dt { "Question" } dd { code { (text::line(&input.key)) } " " (answered(input)) } }
        } }))
        (live("actions", html! { div.actions {
            @if !is_over {
                @if details.held { (action("release", "Release", "plain")) }
                @else if task.status == TaskStatus::Paused { (action("resume", "Resume", "plain")) }
                @else { (action("pause", "Pause", "plain")) }
                (action("cancel", "Cancel the task", "plain"))
            }
            details { summary { "Purge…" }
                p { "The task is stopped and removed, with everything that belongs to it." }
                (action("purge", "Purge the task", "bad"))
            }
            a href={ "/tasks/" (task.id) } { "Reload" }
        } }))
        h2 { "Timeline" }
        (live("timeline", html! { ol {
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
        } }))
        p.note { "Arguments, answers and results are shown to the requestor alone." }
    })
}

fn happened(transition: TransitionView) -> String {
    match transition {
        TransitionView::Started { attempt } => format!("started, run {attempt}"),
        TransitionView::InputRequested { requests } => format!("asked: {requests}"),
        TransitionView::Answered { open } => format!("a question was answered; {open} are open"),
        TransitionView::Paused => "paused".to_owned(),
        TransitionView::Resumed => "resumed".to_owned(),
        TransitionView::Interrupted => "the run was lost with its host".to_owned(),
        TransitionView::Cancelled { from } => format!("cancelled; it was {}", words(from.name())),
        TransitionView::Succeeded => "succeeded".to_owned(),
        TransitionView::ToolError => "ended with an error of the tool".to_owned(),
        TransitionView::Failed => "failed".to_owned(),
        TransitionView::Dormant => "left memory until it goes on".to_owned(),
        TransitionView::Woken { attempt, cause } => format!("went on: {cause} (attempt {attempt})"),
        TransitionView::Continued { attempt } => {
            format!("the host ended; the task went on (attempt {attempt})")
        }
    }
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
