//! Plugins and their versions, for operators.
//!
//! Invariant: what a form orders is said in words beside its button, and it names the version that the page was about.

use std::cmp::Ordering;

use bulkhead_config::amounts::granted_amount;
use bulkhead_control::views::{PluginGrantsView, PluginListView};
use bulkhead_plugins::{CanaryView, Digest, GrantRow, PluginHealth, PluginState, PluginView, Stage, VersionView};
use maud::{Markup, html};

use super::lists::{ListAddress, ListPosition, counted};
use super::operators::{digits, path_segment, rows};
use super::plugin_tools::PluginTools;
use super::{Frame, fitting, live, more, table, token};
use crate::columns::{GRANTS, PLUGINS, TENANT_GRANTS, VERSIONS};
use crate::orders::Order;
use crate::sessions::Session;
use crate::text;

/// Orders on the page of all plugins, and on that of one.
const ORDERS_SHOWN: usize = 10;
const ORDERS_OF_ONE_SHOWN: usize = 3;
/// Problems of a plugin on its page.
const PROBLEMS_SHOWN: usize = 3;
/// Bytes of a page that each of these takes: the last orders, what became of one of them, the faults of a plugin, its
/// versions, imports and grants.
const ORDERS_BYTES: usize = 6_000;
const OUTCOME_BYTES: usize = 1_500;
const FAULTS_BYTES: usize = 2_500;
const VERSIONS_BYTES: usize = 36_000;
const IMPORTS_BYTES: usize = 2_000;
const GRANTS_BYTES: usize = 4_000;

pub(crate) struct PluginsPage<'a> {
    pub(crate) view: &'a PluginListView,
    pub(crate) orders: &'a [Order],
    pub(crate) position: ListPosition<'a>,
}

pub(crate) struct PluginPage<'a> {
    /// None: nothing of it runs or should run.
    pub(crate) plugin: Option<&'a PluginView>,
    pub(crate) versions: &'a bulkhead_control::views::PluginVersionsView,
    /// Of the active version, if there is one.
    pub(crate) grants: Option<&'a PluginGrantsView>,
    /// None: nobody is offered any.
    pub(crate) tools: Option<&'a PluginTools<'a>>,
    pub(crate) orders: &'a [Order],
}

/// The page of a plugin.
pub(crate) fn plugin_path(name: &str) -> String {
    format!("/plugins/{}", path_segment(name))
}

/// The page of what a version changes.
pub(crate) fn version_path(name: &str, version: &Digest) -> String {
    format!("{}/{version}/changes", plugin_path(name))
}

/// A form behind a word: the first click shows what it does, the second does it.
pub(super) fn confirmed(session: &Session, action: &str, label: &str, says: Markup) -> Markup {
    html! {
        details { summary { (label) "…" }
            form method="post" action=(action) {
                (token(session, action))
                (says)
                button.bad type="submit" { (label) }
            }
        }
    }
}

pub(super) fn version_field(version: &Digest) -> Markup {
    html! { input type="hidden" name="version" value=(version); }
}

pub(super) fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Staged => "staged",
        Stage::Checked => "checked",
        Stage::Active => "active",
        Stage::Canary => "canary",
        Stage::Draining => "draining",
        Stage::Retired => "retired",
    }
}

pub(crate) fn plugins(frame: &Frame<'_>, session: &Session, page: &PluginsPage<'_>) -> Markup {
    let sort = page.position.sort;
    let mut sorted: Vec<_> = page.view.plugins.iter().collect();
    sorted.sort_by(|one, other| sort.directed(compare(sort.key, one, other)));
    let (shown, next) = rows(&sorted, page.position.from);
    let at = ListAddress { path: "/plugins", filters: &[], sort: Some(sort) };
    let next = next.map(|next| at.with(&[("from", Some(&next.to_string()))]));
    frame.show("Plugins", html! {
        (live("orders", orders(frame, page.orders, ORDERS_SHOWN, true)))
        (live("plugins", html! { @if page.view.plugins.is_empty() { p { "There is no plugin yet." } } @else {
            (counted(sorted.len(), false, "plugin", "plugins"))
            (PLUGINS.show(Some(&at), html! {
                @for plugin in shown {
                    tr {
                        td { a href=(plugin_path(&plugin.name)) { (text::cell(&plugin.name)) } }
                        td { (plugin.state.name()) }
                        td { code { (plugin.active.as_ref().map(digits).unwrap_or_default()) } }
                        td { (plugin.tools) }
                        td { (plugin.calls) }
                        td { (plugin.tasks) }
                        td { @if let Some(canary) = &plugin.canary { code { (digits(&canary.version)) } " " (canary.percent) " %" } @else { "–" } }
                        td { (text::cell(&health(plugin))) }
                    }
                }
            }))
        } }))
        (more(next.as_deref()))
        (stage_form(session))
    })
}

/// The order of two plugins by a column.
fn compare(key: &str, one: &PluginView, other: &PluginView) -> Ordering {
    let by = match key {
        "state" => one.state.name().cmp(other.state.name()),
        "tools" => one.tools.cmp(&other.tools),
        "calls" => one.calls.cmp(&other.calls),
        "tasks" => one.tasks.cmp(&other.tasks),
        _ => Ordering::Equal,
    };
    by.then_with(|| one.name.cmp(&other.name))
}

/// Takes a component in. From a file of the machine that is done there.
fn stage_form(session: &Session) -> Markup {
    let action = "/plugins/stage";
    html! {
        h2 { "Stage a component" }
        form method="post" action=(action) {
            (token(session, action))
            label { "Source" small { "https://HOST/PATH or oci://REGISTRY/REPOSITORY:TAG" }
                input type="text" name="source" required maxlength="800" pattern="(https|oci)://.+";
            }
            label { "Plugin" small { "As the component says, if this is empty" } input type="text" name="name" maxlength="64"; }
            label { "SHA-256" small { "What it must be, if something is here" } input type="text" name="sha256" maxlength="71"; }
            button type="submit" { "Stage" }
        }
        p.note { "It is fetched, verified, compiled and compared. Calls notice nothing until you switch to it." }
    }
}

fn health(plugin: &PluginView) -> String {
    if let Some(problem) = plugin.problems.first() {
        return text::line(problem);
    }
    if let Some(quarantine) = quarantine(&plugin.health) {
        return quarantine;
    }
    let last = plugin.health.last_faults.last();
    last.map_or_else(
        || "no faults".to_owned(),
        |fault| text::line(&format!("last fault: {}: {}", fault.tool, fault.reason)),
    )
}

fn quarantine(health: &PluginHealth) -> Option<String> {
    match (health.everyone_until, health.requestors_kept_away) {
        (Some(_), _) => Some("kept from everyone".to_owned()),
        (None, 0) => None,
        (None, kept) => Some(format!("{kept} requestors kept away")),
    }
}

pub(crate) fn plugin(frame: &Frame<'_>, session: &Session, page: &PluginPage<'_>) -> Markup {
    let name = &page.versions.name;
    let versions = &page.versions.versions;
    let (rows, left) = fitting(versions, VERSIONS_BYTES, |version| version_row(frame, name, version));
    frame.show(&text::line(&format!("Plugin {name}")), html! {
        (orders(frame, page.orders, ORDERS_OF_ONE_SHOWN, false))
        @if let Some(plugin) = page.plugin {
            dl {
                dt { "State" } dd { (plugin.state.name()) }
                @for problem in plugin.problems.iter().take(PROBLEMS_SHOWN) { dt { "Problem" } dd { (text::line(problem)) } }
                @if let Some(back) = &plugin.taken_back {
                    dt { "Taken back" } dd {
                        code { (digits(&back.version)) } " " (frame.when(back.taken_back.at)) ": " (text::line(&back.taken_back.why))
                    }
                }
                @if let Some(demoted) = &plugin.demoted {
                    dt { "No journals" } dd {
                        (frame.when(demoted.at)) ": " (text::line(&demoted.why)) "; " code { "bulkhead plugin durable " (name) " on" } " lets new calls keep them."
                    }
                }
                (faults(frame, &plugin.health))
            }
            @if let Some(canary) = &plugin.canary { (show_canary(frame, session, name, canary)) }
        }
        @if let Some(tools) = page.tools { (tools.show(name)) }
        h2 { "Versions" }
        @if versions.is_empty() { p { "None is kept." } } @else {
            (table("Versions", VERSIONS, html! {
                @for row in &rows { (row) }
            }))
            @if left > 0 { p { (left) " more: " code { "bulkhead plugin versions" } " shows them." } }
            p.note { "The page of a version shows what it changes, and switches to it." }
        }
        (plugin_actions(session, name, page))
        @if let Some(grants) = page.grants { (show_grants(grants)) }
    })
}

fn version_row(frame: &Frame<'_>, name: &str, version: &VersionView) -> Markup {
    html! {
        tr {
            td { a href={ (plugin_path(name)) "/" (digits(&version.version)) "/changes" } { code { (digits(&version.version)) } } }
            td { (stage(version.state)) @if version.taken_back.is_some() { ", taken back" } @if version.demoted.is_some() { ", no journals" } }
            td { (text::cell(&version.source)) }
            td { (text::cell(&version.signer_names().join(", "))) }
            td { (frame.when(version.staged_at)) }
            td { (text::bytes(version.bytes)) }
            td { (version.tools) }
            td { (version.calls) }
            td { (version.tasks) }
        }
    }
}

/// Who is kept away, and the last faults.
fn faults(frame: &Frame<'_>, health: &PluginHealth) -> Markup {
    let newest: Vec<_> = health.last_faults.iter().rev().collect();
    let (faults, _) = fitting(&newest, FAULTS_BYTES, |fault| {
        html! { dt { "Fault" } dd { (frame.when(fault.at)) " " (text::line(&fault.tool)) ": " (text::line(&fault.reason)) } }
    });
    html! {
        @if let Some(quarantine) = quarantine(health) {
            dt { "Quarantine" } dd {
                (quarantine) @if let Some(until) = health.everyone_until { ", next try " (frame.when(until)) }
            }
        }
        @for fault in &faults { (fault) }
    }
}

fn show_canary(frame: &Frame<'_>, session: &Session, name: &str, canary: &CanaryView) -> Markup {
    let path = plugin_path(name);
    let tenants = text::line(&canary.tenants.join(", "));
    let bounds = &canary.bounds;
    html! {
        h2 { "Canary " code { (digits(&canary.version)) } }
        dl {
            dt { "Who has it" } dd {
                (canary.percent) " % of the requestors" @if !tenants.is_empty() { ", and tenants " (tenants) } ", since " (frame.when(canary.since))
            }
            dt { "Window" } dd {
                (text::duration(bounds.window_ms)) ": "
                @match canary.seen {
                    Some(seen) => { (text::count(seen.calls as u64)) " calls, " (text::count(seen.faults as u64)) " faults" },
                    None => "no calls are counted",
                }
            }
            dt { "Taken back" } dd {
                "when more than " (bounds.fault_percent_max) " % of at least " (bounds.calls_min) " calls break"
                @if bounds.latency_percent_max > 0 {
                    ", or when they take more than " (bounds.latency_percent_max) " % of the time of the active version"
                }
            }
            dt { "Verdict" } dd { (verdict(canary)) }
            (faults(frame, &canary.health))
        }
        div.actions {
            (confirmed(session, &format!("{path}/promote"), "Promote", html! {
                (version_field(&canary.version)) p { "Everybody gets " code { (digits(&canary.version)) } ". Calls that run keep their version." }
            }))
            (confirmed(session, &format!("{path}/take-back"), "Take back", html! {
                (version_field(&canary.version)) p { "Everybody gets the active version. Tasks of the canary stay on it." }
            }))
            details { summary { "Change…" } (canary_form(session, name, &canary.version, Some(canary.percent), None)) }
        }
    }
}

/// Gives a version to a part of the requestors. `changes`: the mark and whether something is held back.
pub(super) fn canary_form(
    session: &Session,
    name: &str,
    version: &Digest,
    percent: Option<f64>,
    accept: Option<&Markup>,
) -> Markup {
    let action = format!("{}/canary", plugin_path(name));
    html! {
        form method="post" action=(action) {
            (token(session, &action))
            (version_field(version))
            @if let Some(accept) = accept { (accept) }
            label { "Per cent of the requestors"
                input type="number" name="percent" min="0" max="100" step="0.01" value=(percent.unwrap_or(10.0));
            }
            label { "Tenants" small { "Names, with commas between; all of each" } input type="text" name="tenants" maxlength="1000"; }
            label { "Window in minutes" small { "Empty: as the plugin has it" } input type="number" name="window" min="1" max="43200"; }
            label { "Per cent of calls that may break" input type="number" name="faults" min="0" max="100"; }
            label { "Calls that a verdict takes" input type="number" name="calls" min="1" max="4096"; }
            button type="submit" { "Give it to them" }
        }
    }
}

/// What the tally comes to.
fn verdict(canary: &CanaryView) -> String {
    let needed = u64::from(canary.bounds.calls_min);
    match canary.seen {
        None => "none: it does not run here".to_owned(),
        Some(_) if canary.health.is_quarantined() => "it keeps breaking for some".to_owned(),
        Some(seen) if (seen.calls as u64) < needed => format!("none yet: it takes {} calls", text::count(needed)),
        Some(seen) if seen.faults * 100 > usize::from(canary.bounds.fault_percent_max) * seen.calls => {
            "over its bound, but not without the calls of one requestor or tenant".to_owned()
        }
        Some(_) => "within its bounds so far".to_owned(),
    }
}

/// What can be done with the plugin as a whole.
fn plugin_actions(session: &Session, name: &str, page: &PluginPage<'_>) -> Markup {
    let (path, Some(plugin)) = (plugin_path(name), page.plugin) else { return html! {} };
    // What runs is no business of the store, or nothing is there.
    if plugin.state == PluginState::Pinned || page.versions.versions.is_empty() {
        return html! {};
    }
    let in_stage = |stage: Stage| page.versions.versions.iter().find(|row| row.state == stage).map(|row| row.version);
    let active = in_stage(Stage::Active);
    let has_canary = in_stage(Stage::Canary).is_some();
    html! {
        div.actions {
            (confirmed(session, &format!("{path}/update"), "Look for a new version", html! {
                p { "What is at the source of this plugin is fetched and staged. Nothing is switched." }
            }))
            @if let Some(previous) = plugin.previous.filter(|_| !has_canary) {
                (confirmed(session, &format!("{path}/rollback"), "Roll back", html! {
                    @if let Some(active) = &active { (version_field(active)) }
                    p { "Everybody gets " code { (digits(&previous)) } ", which was active before. Nothing is compiled." }
                }))
            }
            @if let Some(active) = active.filter(|_| !has_canary) {
                (confirmed(session, &format!("{path}/remove"), "Take out of service", html! {
                    (version_field(&active))
                    p { "Clients do not see its tools any more. Calls that run go on; rolling back brings it back." }
                }))
            }
        }
    }
}

/// What is needed, asked for, granted and left.
fn show_grants(view: &PluginGrantsView) -> Markup {
    let (imports, imports_left) =
        fitting(&view.imports, IMPORTS_BYTES, |import| html! { li { code { (text::cell(import)) } } });
    let (tenants, tenants_left) = fitting(&view.tenants, GRANTS_BYTES, |tenant| {
        let name = text::cell(tenant.tenant.as_deref().unwrap_or("without a name"));
        html! {
            details { summary { "In calls of tenant " (name) }
                (grant_rows(&format!("Grants in calls of tenant {name}"), &tenant.grants, GRANTS_BYTES / 2))
            }
        }
    });
    html! {
        h2 { "Grants of " code { (digits(&view.version)) } }
        details { summary { (view.imports.len()) " imports" }
            ul { @for import in &imports { (import) } }
            (more_grants(imports_left, ""))
        }
        (grant_rows("Grants", &view.everybody, GRANTS_BYTES))
        @for tenant in &tenants { (tenant) }
        (more_grants(tenants_left, " tenants"))
    }
}

fn more_grants(left: usize, of: &str) -> Markup {
    html! { @if left > 0 { p { (left) " more" (of) ": " code { "bulkhead plugin grants" } " shows them." } } }
}

fn grant_rows(label: &str, rows: &[GrantRow], bytes_max: usize) -> Markup {
    let has_left = rows.iter().any(|row| row.left.is_some());
    let columns = if has_left { TENANT_GRANTS } else { GRANTS };
    let (shown, left) = fitting(rows, bytes_max, |row| {
        let side = |value: &str| granted(&row.grant, value);
        html! {
            tr {
                td { code { (text::line(&row.grant)) } }
                td { (side(&row.wanted)) }
                td { (side(&row.granted)) }
                @if has_left { td { (side(row.left.as_deref().unwrap_or_default())) } }
                td { (side(&row.effective)) }
            }
        }
    });
    html! {
        (table(label, columns, html! { @for row in &shown { (row) } }))
        (more_grants(left, ""))
    }
}

/// What one side says of a grant.
pub(super) fn granted(grant: &str, value: &str) -> String {
    granted_amount(grant, value).unwrap_or_else(|| text::line(value))
}

/// What was ordered last, and what came of it.
pub(super) fn orders(frame: &Frame<'_>, orders: &[Order], most: usize, named: bool) -> Markup {
    let newest = orders.get(..most.min(orders.len())).unwrap_or_default();
    let (shown, _) = fitting(newest, ORDERS_BYTES, |order| show_order(frame, order, named));
    html! { @for order in &shown { (order) } }
}

fn show_order(frame: &Frame<'_>, order: &Order, named: bool) -> Markup {
    let class = match &order.outcome {
        None => "ask",
        Some(outcome) if outcome.is_done => "",
        Some(_) => "bad",
    };
    html! {
        div.notice.(class) role="status" {
            p {
                @if let Some(plugin) = order.plugin.as_deref().filter(|_| named) {
                    a href=(plugin_path(plugin)) { (text::line(plugin)) } ": "
                }
                (order.what) ", " (frame.when(order.begun)) " by " (order.who) ": "
                @match &order.outcome {
                    None => { "under way. " a href="" { "Reload" } },
                    Some(outcome) if outcome.is_done => "done",
                    Some(_) => strong { "not done" },
                }
            }
            @if let Some(outcome) = &order.outcome {
                @if !outcome.messages.is_empty() {
                    @let (messages, left) = fitting(&outcome.messages, OUTCOME_BYTES, |line| html! { li { (line) } });
                    ul { @for line in &messages { (line) } @if left > 0 { li { (left) " more" } } }
                }
                @if let Some(place) = &outcome.leads_to { p { a href=(place) { "What it changes" } } }
            }
        }
    }
}
