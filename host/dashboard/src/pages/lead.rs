//! One tenant, for its lead. Nothing here holds arguments, answers or results, or what belongs to another tenant.

use bulkhead_control::commands::TaskFilter;
use bulkhead_control::views::{LimitsView, TaskDetailsView, TaskPageView, TaskStatus};
use bulkhead_plugins::PluginView;
use maud::{Markup, html};

use super::limits::counts;
use super::lists::counted;
use super::operators::{ROWS_MAX, digits};
use super::{Frame, address, button, filter_text, more, notice, status, status_choice, table};
use crate::columns::{LED_PLUGINS, LED_TASKS, LIMITS};
use crate::sessions::Session;
use crate::text;

/// The limits of a tenant and of its requestors.
pub(crate) fn led_tenant(frame: &Frame<'_>, limits: &LimitsView) -> Markup {
    frame.show(
        "Tenant",
        html! {
            ul {
                li { a href="/tenant/tasks" { "Tasks of the tenant" } }
                li { a href="/tenant/plugins" { "Plugins" } }
                li { a href="/tenant/denials" { "Denials" } }
                li { a href="/tenant/audit" { "Audit log" } }
            }
            @for tenant in &limits.tenants {
                h2 { "Limits of " (text::line(&tenant.tenant)) }
                (counts("Limits of the tenant", LIMITS, &tenant.limits))
            }
            h2 { "Requestors" }
            @if limits.requestors.is_empty() { p { "No requestor uses anything now." } }
            @for requestor in &limits.requestors {
                details { summary { (text::line(&requestor.requestor)) }
                    p { a href=(address("/tenant/tasks", &[("requestor", Some(&requestor.requestor))])) { "Its tasks" } }
                    (counts(&text::line(&requestor.requestor), LIMITS, &requestor.limits))
                }
            }
            @if limits.more { p { "There are more requestors." } }
        },
    )
}

/// A page of a tenant's tasks.
pub(crate) struct LedTasks {
    pub(crate) filter: TaskFilter,
    pub(crate) page: TaskPageView,
}

pub(crate) fn led_tasks(frame: &Frame<'_>, LedTasks { filter, page }: &LedTasks) -> Markup {
    let TaskFilter { requestor, plugin, status: chosen, .. } = filter;
    let requestor = requestor.as_deref();
    let plugin = plugin.as_deref();
    let chosen = chosen.as_deref();
    let next = page.next.as_deref().map(|after| {
        let query = [("status", chosen), ("requestor", requestor), ("plugin", plugin), ("after", Some(after))];
        address("/tenant/tasks", &query)
    });
    frame.show(
        "Tasks of the tenant",
        html! {
            form.filter method="get" action="/tenant/tasks" {
                (status_choice(chosen))
                (filter_text("requestor", "Requestor", requestor))
                (filter_text("plugin", "Plugin", plugin))
                button type="submit" { "Filter" }
                a href="/tenant/tasks" { "Reload all" }
            }
            @if page.tasks.is_empty() { p { "No task fits." } } @else {
                (counted(page.tasks.len(), page.more, "task", "tasks"))
                (LED_TASKS.show(None, html! {
                    @for task in &page.tasks {
                        tr {
                            td { a href={ "/tenant/tasks/" (task.id) } { (text::line(&task.tool)) } " " code { (task.id.chars().take(8).collect::<String>()) } }
                            td { (status(task.status)) }
                            td { (text::line(task.requestor.as_deref().unwrap_or("–"))) }
                            td { (text::line(task.status_message.as_deref().unwrap_or_default())) }
                            td { (frame.when(task.updated_at)) }
                        }
                    }
                }))
            }
            (more(next.as_deref()))
        },
    )
}

/// The plugins of a tenant.
pub(crate) struct LedPlugins<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) plugins: &'a [PluginView],
}

pub(crate) fn led_plugins(frame: &Frame<'_>, page: &LedPlugins<'_>) -> Markup {
    frame.show(
        "Plugins of the tenant",
        html! {
            @if page.plugins.is_empty() { p { "Your tenant is shown no plugin." } } @else {
                (table("Plugins of the tenant", LED_PLUGINS, html! {
                    @for plugin in page.plugins.iter().take(ROWS_MAX) {
                        tr {
                            td { (text::line(&plugin.name)) }
                            td { (plugin.state.name()) }
                            td { code { (plugin.active.as_ref().map(digits).unwrap_or_default()) } }
                            td { @if let Some(at) = plugin.activated_at { (frame.when(at)) } @else { "–" } }
                            td { (canary(page.tenant, plugin)) }
                        }
                    }
                }))
                @if page.plugins.len() > ROWS_MAX { p { "There are more plugins." } }
            }
            p.note { "A canary is a version that is being tried. Operators switch." }
        },
    )
}

/// Which version is tried with the tenant; other tenants are not named.
fn canary(tenant: &str, plugin: &PluginView) -> Markup {
    let Some(canary) = &plugin.canary else { return html! { "–" } };
    html! {
        code { (digits(&canary.version)) } " "
        @if canary.tenants.iter().any(|name| name == tenant) { "for all of your requestors" }
        @else { "for " (canary.percent) " % of the requestors" }
    }
}

/// One task of a tenant.
pub(crate) struct LedTask<'a> {
    pub(crate) task: &'a TaskDetailsView,
    pub(crate) may_control: bool,
    /// Why an order was not carried out.
    pub(crate) refused: Option<&'a str>,
}

pub(crate) fn led_task(frame: &Frame<'_>, session: &Session, page: &LedTask<'_>) -> Markup {
    let task = &page.task.task;
    let address = format!("/tenant/tasks/{}", task.id);
    let action = |what: &str, label: &str| button(session, &format!("{address}/{what}"), label, "plain");
    let is_over = matches!(
        task.status,
        TaskStatus::Succeeded | TaskStatus::ToolError | TaskStatus::Failed | TaskStatus::Cancelled
    );
    frame.show(
        &text::line(&task.tool),
        html! {
            @if let Some(refused) = page.refused { (notice("bad", refused)) }
            dl {
                dt { "Status" } dd { (status(task.status)) }
                @if let Some(message) = &task.status_message { dt { "Message" } dd { (text::line(message)) } }
                dt { "Task" } dd { code { (task.id) } }
                dt { "Requestor" } dd { (text::line(task.requestor.as_deref().unwrap_or("–"))) }
                dt { "Plugin" } dd { (text::line(&page.task.plugin)) }
                dt { "Created" } dd { (frame.when(task.created_at)) }
                dt { "Changed" } dd { (frame.when(task.updated_at)) }
                @if let Some(at) = task.expires_at { dt { "Expires" } dd { (frame.when(at)) } }
                dt { "Run" } dd { (page.task.attempt) }
            }
            div.actions {
                @if page.may_control && !is_over {
                    @if task.status != TaskStatus::Paused { (action("pause", "Pause")) }
                    @else if !page.task.held { (action("resume", "Resume")) }
                    (action("cancel", "Cancel the task"))
                }
                a href=(address) { "Reload" }
            }
            p.note { "Arguments, answers and results are shown to the requestor alone." }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lead_is_shown_no_button_that_releases_a_held_task() {
        let frame = Frame { session: None, here: "", address: "", now: 1 };
        let shown = |held: bool| {
            let task: TaskDetailsView = serde_json::from_value(serde_json::json!({
                "id": "01", "status": "paused", "tool": "echo", "requestor": "anna", "tenant": "acme", "created_at": 0,
                "updated_at": 0, "expires_at": null, "status_message": "it is held", "plugin": "text", "plugin_sha256": "aa",
                "call_id": "02", "attempt": 1, "revision": 1, "inputs": [], "steering_waiting": 0, "error": null, "held": held
            }))
            .unwrap();
            let page = LedTask { task: &task, may_control: true, refused: None };
            led_task(&frame, &Session::of_operator(), &page).into_string()
        };
        assert!(shown(false).contains("/tenant/tasks/01/resume"));
        let held = shown(true);
        assert!(!held.contains("/resume") && held.contains("/tenant/tasks/01/cancel"), "{held}");
    }
}
