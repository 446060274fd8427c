//! The whole host, for operators. Nothing here holds arguments, answers or results.

use std::cmp::Ordering;

use bulkhead_control::commands::TaskFilter;
use bulkhead_control::views::{InputView, TaskDetailsView, TaskPageView, TaskStatus, TaskView, TransitionView};
use bulkhead_domain::UnixMs;
use bulkhead_plugins::Digest;
use maud::{Markup, html};

use super::bulk;
use super::lists::{Filter, ListAddress, SortOrder, counted, suggested};
use super::timeline::Lifetime;
use super::{Frame, address, button, copied, live, more, notice, status, status_choice, words};
use crate::chart::clock_time;
use crate::columns::TASKS;
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
pub(crate) struct AllTasks<'a> {
    pub(crate) filter: TaskFilter,
    pub(crate) page: TaskPageView,
    pub(crate) sort: SortOrder<'a>,
    /// Why there is nothing that the filter could mean.
    pub(crate) absent: Option<String>,
}

/// Times that a filter offers: how long ago, and its words.
const SINCE: [(u64, &str); 4] = [
    (900_000, "the last 15 minutes"),
    (3_600_000, "the last hour"),
    (86_400_000, "the last day"),
    (604_800_000, "the last week"),
];

pub(crate) fn all_tasks(frame: &Frame<'_>, session: &Session, page: &AllTasks<'_>) -> Markup {
    let AllTasks { filter, page: TaskPageView { tasks, more: has_more, next }, sort, absent } = page;
    let since = filter.since.map(|since| since.to_string());
    let one = |name, label, value| Filter { name, label, value };
    let filters = [
        one("status", "Status", filter.status.as_deref()),
        one("tenant", "Tenant", filter.tenant.as_deref()),
        one("requestor", "Requestor", filter.requestor.as_deref()),
        one("plugin", "Plugin", filter.plugin.as_deref()),
        one("tool", "Tool", filter.tool.as_deref()),
        one("since", "Created since", since.as_deref()),
    ];
    let [_, of_tenant, of_requestor, of_plugin, of_tool, _] = &filters;
    let at = ListAddress { path: "/tasks", filters: &filters, sort: Some(*sort) };
    let mut sorted: Vec<_> = tasks.iter().collect();
    sorted.sort_by(|one, other| sort.directed(compare(sort.key, one, other)));
    let names = |name: fn(&TaskView) -> Option<&str>| tasks.iter().filter_map(name).map(text::line).collect::<Vec<_>>();
    frame.show("Tasks", html! {
        (at.chips(|filter, value| match (filter.name, page.filter.since) {
            ("since", Some(since)) => frame.when(since),
            _ => html! { (text::line(value)) },
        }))
        form.filter method="get" action="/tasks" {
            (status_choice(filter.status.as_deref()))
            (suggested(of_tenant, names(|task| task.tenant.as_deref())))
            (suggested(of_requestor, names(|task| task.requestor.as_deref())))
            (suggested(of_plugin, Vec::new()))
            (suggested(of_tool, names(|task| Some(&task.tool))))
            (since_choice(filter.since, frame.now))
            button type="submit" { "Filter" }
            a href="/tasks" { "Reload all" }
        }
        (live("tasks", html! {
        @if let Some(absent) = absent { (notice("bad", absent)) }
        @else if tasks.is_empty() { p { @if *has_more { "No task here fits the filter; there are more." } @else { "No task fits." } } } @else {
            (counted(tasks.len(), *has_more, "task", "tasks"))
            (bulk::form(session, TASKS.show(Some(&at), html! {
                @for task in &sorted {
                    tr {
                        td {
                            (bulk::choice(&task.id)) " "
                            a href={ "/tasks/" (task.id) } { (text::line(&task.tool)) } " "
                            code { (task.id.chars().take(8).collect::<String>()) }
                        }
                        td { (status(task.status)) }
                        td { (named(task.requestor.as_deref())) }
                        td { (named(task.tenant.as_deref())) }
                        td { (text::line(task.status_message.as_deref().unwrap_or_default())) }
                        td { (frame.when(task.updated_at)) }
                    }
                }
            })))
        }
        (more(next.as_deref().map(|next| at.with(&[("after", Some(next))])).as_deref()))
        }))
    })
}

/// The order of two tasks by a column.
fn compare(key: &str, one: &TaskView, other: &TaskView) -> Ordering {
    let by = match key {
        "tool" => one.tool.cmp(&other.tool),
        "status" => one.status.name().cmp(other.status.name()),
        "requestor" => one.requestor.cmp(&other.requestor),
        "tenant" => one.tenant.cmp(&other.tenant),
        _ => one.updated_at.cmp(&other.updated_at),
    };
    by.then_with(|| one.id.cmp(&other.id))
}

/// Since when tasks were created. What is chosen is a moment, so that the address means the same tomorrow.
fn since_choice(chosen: Option<UnixMs>, now: UnixMs) -> Markup {
    html! {
        label { "Created "
            select name="since" {
                option value="" { "at any time" }
                @if let Some(since) = chosen { option value=(since) selected { "since " (clock_time(since)) " UTC" } }
                @for (ago_ms, words) in SINCE { option value=(now.saturating_sub(ago_ms)) { (words) } }
            }
        }
    }
}

fn named(name: Option<&str>) -> String {
    name.map_or_else(|| "–".to_owned(), text::line)
}

/// One task, of any requestor.
pub(crate) struct AnyTask<'a> {
    pub(crate) task: &'a TaskDetailsView,
    /// Why an order was not carried out.
    pub(crate) refused: Option<&'a str>,
    pub(crate) trace_link: Option<&'a str>,
}

/// The trace of a task, where traces are shown somewhere.
fn trace(link: Option<&str>, id: Option<&str>) -> Markup {
    let Some(id) = id else { return html! {} };
    html! {
        dt { "Trace" }
        dd {
            @match link {
                Some(link) => a href=(link.replace("{trace_id}", id)) rel="noopener noreferrer" { code { (id) } },
                None => code { (id) },
            }
        }
    }
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
    let lifetime = Lifetime {
        created_at: task.created_at,
        updated_at: task.updated_at,
        status: task.status,
        timeline: details.timeline.as_ref(),
    };
    let tenant = task.tenant.as_deref();
    let tasks_by = |name: &str, value: &str| address("/tasks", &[(name, Some(value))]);
    frame.show(&text::line(&task.tool), html! {
        @if let Some(refused) = page.refused { (notice("bad", refused)) }
        (live("task", html! { dl {
            dt { "Status" } dd { (status(task.status)) }
            @if let Some(message) = &task.status_message { dt { "Message" } dd { (text::line(message)) } }
            @if let Some(error) = &details.error { dt { "Error" } dd { (text::line(error)) } }
            dt { "Task" } dd { (copied(&task.id)) }
            dt { "Took" } dd { (lifetime.took(frame.now)) }
            dt { "Tool" } dd { a href=(tasks_by("tool", &task.tool)) { (text::line(&task.tool)) } }
            dt { "Requestor" } dd {
                @match (&task.requestor, tenant) {
                    (Some(requestor), Some(tenant)) => {
                        a href=(address("/tasks", &[("tenant", Some(tenant)), ("requestor", Some(requestor))])) { (text::line(requestor)) }
                        " of tenant " a href={ "/tenants/" (path_segment(tenant)) } { (text::line(tenant)) }
                    },
                    (requestor, tenant) => { (named(requestor.as_deref())) " of tenant " (named(tenant)) },
                }
            }
            dt { "Plugin" } dd { a href={ "/plugins/" (path_segment(&details.plugin)) } { (text::line(&details.plugin)) } " " code { (details.plugin_sha256.chars().take(DIGITS).collect::<String>()) } }
            dt { "Created" } dd { (frame.when(task.created_at)) }
            dt { "Changed" } dd { (frame.when(task.updated_at)) }
            @if let Some(at) = task.expires_at { dt { "Expires" } dd { (frame.when(at)) } }
            dt { "Run" } dd { (details.attempt) }
            @if let Some(durable) = &details.durable { dt { "Durable" } dd { (text::line(&durable.to_string())) } }
            @if let Some(at) = details.dormant_since { dt { "Dormant" } dd { "since " (frame.when(at)) } }
            @for input in &details.inputs { dt { "Question" } dd { code { (text::line(&input.key)) } " " (answered(input)) } }
            (trace(page.trace_link, details.trace_id.as_deref()))
            dt { "Log" } dd { a href=(address("/audit", &[("event", Some("task.")), ("tenant", tenant), ("show", Some("all"))])) { "Lines of the audit log about tasks" } }
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
        (live("timeline", html! { (lifetime.drawn(frame.now)) ol {
            li { (frame.when(task.created_at)) " created" }
            @if let Some(timeline) = &details.timeline {
                @for (place, entry) in timeline.entries.iter().enumerate() {
                    @if let Some(gap) = timeline.left_out.filter(|gap| gap.after == place) {
                        li { "… " (gap.count) " more, which are not kept" }
                    }
                    li { (frame.when(entry.at)) " " (happened(entry.transition)) (lifetime.lasted(place, frame.now)) }
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

/// The rows from a place on, and the place where the next page begins.
pub(super) fn rows<T>(all: &[T], from: usize) -> (&[T], Option<usize>) {
    let rest = all.get(from..).unwrap_or_default();
    let shown = rest.get(..rest.len().min(ROWS_MAX)).unwrap_or_default();
    (shown, (rest.len() > shown.len()).then(|| from.saturating_add(shown.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Form;

    #[test]
    fn list_goes_on_where_its_page_ended() {
        let all: Vec<_> = (0..250).collect();
        let (first, next) = rows(&all, 0);
        assert_eq!((first.len(), next), (100, Some(100)));
        let (last, next) = rows(&all, 200);
        assert_eq!((last.len(), last[0], next), (50, 200, None));
        assert!(rows(&all, 251).0.is_empty() && rows(&all, usize::MAX).0.is_empty());
    }

    fn task(id: &str, tool: &str, updated_at: u64) -> TaskView {
        serde_json::from_value(serde_json::json!({
            "id": id, "status": "running", "tool": tool, "requestor": "anna", "tenant": "acme", "created_at": 0,
            "updated_at": updated_at, "expires_at": null, "status_message": "busy"
        }))
        .unwrap()
    }

    fn listed(query: &str, tasks: Vec<TaskView>) -> String {
        let query = Form::parse(query.as_bytes());
        let filter = TaskFilter {
            tenant: query.filled("tenant").map(str::to_owned),
            since: query.filled("since").and_then(|since| since.parse().ok()),
            ..TaskFilter::default()
        };
        let page = TaskPageView { tasks, more: true, next: Some("a.b.c".to_owned()) };
        let page = AllTasks { filter, page, sort: SortOrder::read(&query, "-changed"), absent: None };
        all_tasks(&Frame { session: None, here: "/tasks", address: "", now: 90_000 }, &Session::of_operator(), &page)
            .into_string()
    }

    #[test]
    fn name_of_a_task_is_its_link_and_stands_first() {
        let shown = listed("tenant=acme&since=30000", vec![task("01", "wait", 1), task("02", "echo", 2)]);
        for part in [
            "<a href=\"/tasks/02\">echo</a> <code>02</code></td>",
            "2 tasks on this page; there are more",
            "<a href=\"/tasks?since=30000&amp;sort=-changed\" title=\"Without this filter\">Tenant: ",
            "<datalist id=\"known-tool\"><option value=\"echo\"></option><option value=\"wait\"></option></datalist>",
            "<option value=\"30000\" selected>since 00:00:30 UTC</option>",
            "/tasks?tenant=acme&amp;since=30000&amp;sort=-changed&amp;after=a.b.c",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.find("/tasks/02") < shown.find("/tasks/01"), "the last changed first");
        let by_tool = listed("sort=-tool", vec![task("01", "wait", 1), task("02", "echo", 2)]);
        assert!(by_tool.find("/tasks/01") < by_tool.find("/tasks/02"));
    }

    #[test]
    fn page_of_a_hundred_tasks_is_small() {
        let tasks = (0..100).map(|number| task(&format!("{number:032x}"), "a_tool_of_some_length", number)).collect();
        let shown = listed("", tasks);
        assert!(shown.len() <= 60 << 10, "{} bytes", shown.len());
    }

    #[test]
    fn trace_is_a_link_where_an_address_is_configured() {
        let shown = |link, id| trace(link, id).into_string();
        let linked = shown(Some("https://t.example/{trace_id}?a=1"), Some("0af7"));
        assert!(
            linked.contains("href=\"https://t.example/0af7?a=1\" rel=\"noopener noreferrer\"><code>0af7"),
            "{linked}"
        );
        assert_eq!(shown(None, Some("0af7")), "<dt>Trace</dt><dd><code>0af7</code></dd>");
        assert_eq!(shown(Some("https://t.example/{trace_id}"), None), "");
    }

    #[test]
    fn name_in_an_address_is_one_segment() {
        assert_eq!(path_segment("a b/c?d#e"), "a%20b%2Fc%3Fd%23e");
    }
}
