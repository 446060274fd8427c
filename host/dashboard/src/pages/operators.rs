//! The whole host, for operators. Nothing here holds arguments, answers or results.

use bulkhead_control::commands::TaskFilter;
use bulkhead_control::views::{
    AuditHealth, DrainView, HealthView, InputView, LimitCounts, LimitsView, PluginListView, TaskDetailsView,
    TaskPageView, TaskStatus, TenantListView, TenantView, TransitionView,
};
use bulkhead_plugins::{Digest, PluginState};
use maud::{Markup, html};

use super::{
    Frame, address, button, copied, filter_text, live, meter, more, notice, status, status_choice, table, words,
};
use crate::sessions::Session;
use crate::text;

/// Rows of a list of plugins, versions or tenants on one page of the dashboard.
pub(crate) const ROWS_MAX: usize = 100;
/// Of the fullest limits, those that the first page of the dashboard shows.
const FULLEST_SHOWN_MAX: usize = 10;
/// Of a tenant's limits, those that the dashboard's list of tenants shows.
const FULLEST_OF_TENANT_MAX: usize = 3;
/// Digits of a version's digest that tell it apart.
const DIGITS: usize = 12;
/// From this part on a limit needs attention, in percent.
const FULL_PERCENT: u64 = 90;

/// What the first page shows.
pub(crate) struct Overview {
    pub(crate) health: HealthView,
    pub(crate) drain: DrainView,
    pub(crate) limits: LimitsView,
    pub(crate) plugins: PluginListView,
}

/// A limit that is in use, and whose.
struct Used<'a> {
    owner: String,
    limit: &'a str,
    in_use: u64,
    max: u64,
}

impl Used<'_> {
    fn percent(&self) -> u64 {
        self.in_use.saturating_mul(100) / self.max.max(1)
    }
}

fn used(owner: String, limits: &LimitCounts) -> impl Iterator<Item = Used<'_>> {
    limits.iter().filter(|(_, count)| count.in_use > 0).map(move |(limit, count)| Used {
        owner: owner.clone(),
        limit,
        in_use: count.in_use,
        max: count.max,
    })
}

/// The fullest first.
fn fullest(limits: &LimitsView) -> Vec<Used<'_>> {
    let host = used("the host".to_owned(), &limits.host);
    let tenants = limits.tenants.iter().flat_map(|it| used(format!("tenant {}", it.tenant), &it.limits));
    let requestors =
        limits.requestors.iter().flat_map(|it| used(format!("{}@{}", it.requestor, it.tenant), &it.limits));
    let mut all: Vec<_> = host.chain(tenants).chain(requestors).collect();
    all.sort_by_key(|used| std::cmp::Reverse(used.percent()));
    all
}

pub(crate) fn overview(frame: &Frame<'_>, page: &Overview) -> Markup {
    let (fullest, needs) = (fullest(&page.limits), needs_attention(page));
    let of_host = |name: &str| page.limits.host.get(name).copied();
    frame.show("Overview", html! {
        (live("overview", html! {
        h2 { "Needs attention" }
        @if needs.is_empty() { p { "Nothing." } } @else {
            ul.needs { @for (said, place) in &needs { li { @if let Some(place) = place { a href=(place) { (said) } } @else { (said) } } } }
        }
        h2 { "Now" }
        dl.numbers {
            @for (label, name) in [
                ("Calls running", "calls_running_total"), ("Calls queued", "calls_queued_total"),
                ("Calls resting", "calls_resting_total"), ("Tasks queued", "tasks_queued_total"),
            ] {
                @if let Some(count) = of_host(name) { dt { (label) } dd { (meter(count.in_use, count.max)) } }
            }
            dt { "Plain calls" } dd { (page.drain.plain_calls) }
            dt { "Tasks running" } dd { (page.drain.tasks_running) }
            dt { "Tasks waiting for an answer" } dd {
                a href="/tasks?status=input_required" { (page.drain.tasks_waiting) }
            }
            dt { "Tasks paused" } dd { a href="/tasks?status=paused" { (page.drain.tasks_paused) } }
            dt { "Plugins served" } dd { (page.health.plugins.serving) " of " (page.health.plugins.configured) }
            @if let Some(free) = page.health.disk_free_bytes { dt { "Disk free" } dd { (text::bytes(free)) } }
        }
        p { a href="/" { "Reload" } }
        h2 { "The fullest limits" }
        @if fullest.is_empty() { p { "No limit is in use." } } @else {
            (table("The fullest limits", &["Whose", "Limit", "In use"], html! {
                @for used in fullest.iter().take(FULLEST_SHOWN_MAX) {
                    tr {
                        td { (text::line(&used.owner)) }
                        td { code { (used.limit) } }
                        td { (meter(used.in_use, used.max)) }
                    }
                }
            }))
        }
        }))
    })
}

/// What a person should look at, worst first, each with the page that says more.
fn needs_attention(page: &Overview) -> Vec<(String, Option<String>)> {
    let mut needs = Vec::new();
    let Overview { health, limits, plugins, .. } = page;
    let reasons = health.reasons.iter().map(|reason| (text::line(reason), None));
    needs.extend(reasons);
    if !health.store.writable {
        let why = health.store.problem.as_deref().unwrap_or("no reason is known");
        needs.push((text::line(&format!("The store takes no writes: {why}")), None));
    }
    if health.audit == AuditHealth::Refused {
        needs.push(("The disk does not take the audit log.".to_owned(), None));
    }
    if !health.guests.running {
        needs.push(("The guests' threads do not go on.".to_owned(), None));
    }
    if health.draining {
        needs.push(("The host drains: it takes nothing new.".to_owned(), None));
    }
    for plugin in plugins.plugins.iter().filter(|plugin| plugin.state != PluginState::Removed) {
        let place = || Some(format!("/plugins/{}", path_segment(&plugin.name)));
        let mut say = |what: String| needs.push((text::line(&format!("Plugin {}: {what}", plugin.name)), place()));
        match plugin.state {
            PluginState::Broken => {
                say(plugin.problems.first().cloned().unwrap_or_else(|| "it does not run".to_owned()))
            }
            PluginState::Awaited => say("its component is still to be fetched".to_owned()),
            PluginState::Quarantined => {
                say(format!("{} requestors are kept from it", plugin.health.requestors_kept_away))
            }
            _ => {}
        }
        if let Some(back) = &plugin.taken_back {
            say(format!("version {} was taken back: {}", digits(&back.version), back.taken_back.why));
        }
    }
    let full = fullest(limits).into_iter().take_while(|used| used.percent() >= FULL_PERCENT).take(FULLEST_SHOWN_MAX);
    needs.extend(
        full.map(|used| (text::line(&format!("{}: {} is at {} %", used.owner, used.limit, used.percent())), None)),
    );
    needs
}

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
}

pub(crate) fn all_tasks(frame: &Frame<'_>, AllTasks { filter, page }: &AllTasks) -> Markup {
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
        @if page.tasks.is_empty() { p { @if page.more { "No task here fits the filter; there are more." } @else { "No task fits." } } } @else {
            (table("Tasks", &["Status", "Tool", "Requestor", "Tenant", "Message", "Changed", "Task"], html! {
                @for task in &page.tasks {
                    tr {
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
            @if let Some(said) = &task.status_message { dt { "Message" } dd { (text::line(said)) } }
            @if let Some(error) = &details.error { dt { "Error" } dd { (text::line(error)) } }
            dt { "Task" } dd { (copied(&task.id)) }
            dt { "Requestor" } dd { (named(task.requestor.as_deref())) " of tenant " (named(task.tenant.as_deref())) }
            dt { "Plugin" } dd { (text::line(&details.plugin)) " " code { (details.plugin_sha256.chars().take(DIGITS).collect::<String>()) } }
            dt { "Created" } dd { (frame.when(task.created_at)) }
            dt { "Changed" } dd { (frame.when(task.updated_at)) }
            @if let Some(at) = task.expires_at { dt { "Expires" } dd { (frame.when(at)) } }
            dt { "Run" } dd { (details.attempt) }
            @for input in &details.inputs { dt { "Question" } dd { code { (text::line(&input.key)) } " " (answered(input)) } }
        } }))
        (live("actions", html! { div.actions {
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

/// The tenants after the one of this name.
pub(crate) fn tenants(frame: &Frame<'_>, view: &TenantListView, limits: &LimitsView, after: Option<&str>) -> Markup {
    let (shown, next) = rows(&view.tenants, after, |tenant| &tenant.name, "/tenants");
    let used_by = |tenant: &TenantView| {
        let limits = limits.tenants.iter().find(|it| it.tenant == tenant.name).map(|it| &it.limits);
        let mut used: Vec<_> = limits.into_iter().flat_map(|limits| used(String::new(), limits)).collect();
        used.sort_by_key(|used| std::cmp::Reverse(used.percent()));
        used
    };
    frame.show(
        "Tenants",
        html! {
            @if view.tenants.is_empty() {
                p { "There is no tenant yet. " code { "bulkhead token create" } " makes the first requestor of one." }
            } @else {
                (table("Tenants", &["Tenant", "Requestors", "Tokens", "Tasks", "Stored", "Fullest limits"], html! {
                    @for tenant in shown {
                        tr {
                            td { a href={ "/tenants/" (path_segment(&tenant.name)) } { (text::line(&tenant.name)) } }
                            td { (tenant.requestors) }
                            td { (tenant.tokens) }
                            td { (text::count(tenant.tasks)) }
                            td { (text::bytes(tenant.bytes)) }
                            td { @for used in used_by(tenant).iter().take(FULLEST_OF_TENANT_MAX) {
                                div { code { (used.limit) } " " (used.percent()) " %" }
                            } }
                        }
                    }
                }))
            }
            (more(next.as_deref()))
        },
    )
}

/// One tenant, with everything that is in use of its limits and of those of its requestors.
pub(crate) fn tenant(frame: &Frame<'_>, name: &str, limits: &LimitsView) -> Markup {
    let counts = |counts: &LimitCounts| {
        html! {
            @for (limit, count) in counts { tr { td { code { (limit) } } td { (meter(count.in_use, count.max)) } } }
        }
    };
    frame.show(&text::line(&format!("Tenant {name}")), html! {
        p { a href=(address("/tasks", &[("tenant", Some(name))])) { "Its tasks" } }
        @for tenant in &limits.tenants {
            h2 { "Limits" }
            (table("Limits of the tenant", &["Limit", "In use"], counts(&tenant.limits)))
        }
        h2 { "Requestors that use something" }
        @if limits.requestors.is_empty() { p { "None at the moment." } }
        @else {
            (table("Requestors", &["Requestor", "Limit", "In use"], html! {
                @for requestor in &limits.requestors {
                    @for used in used(requestor.requestor.clone(), &requestor.limits) {
                        tr { td { (text::line(&used.owner)) } td { code { (used.limit) } } td { (meter(used.in_use, used.max)) } }
                    }
                }
            }))
            @if limits.more { p { "There are more: " code { "bulkhead limits --tenant" } " shows them." } }
        }
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
