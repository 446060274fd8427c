//! Pages: functions from typed values to markup.
//!
//! Must not ask anybody for anything, and must not write a text without escaping it. Invariant: a button that changes
//! something is a form with the token of its session and address.

mod audit;
mod bulk;
mod hosts;
mod lead;
mod limits;
pub(crate) mod lists;
pub(crate) mod live;
mod login;
mod media;
mod operators;
mod overview;
mod own;
mod plugin_changes;
#[cfg(test)]
mod plugin_tests;
mod plugin_tools;
mod plugins;
mod schema_table;
mod tenants;
mod tiles;
mod timeline;
mod tokens;
mod tools;
mod tries;
mod views;

use bulkhead_control::views::TaskStatus;
use bulkhead_domain::UnixMs;
use bulkhead_domain::rights::Need;
use bulkhead_domain::timestamp::iso8601;
use maud::{DOCTYPE, Markup, html};

pub(crate) use audit::{AuditFilter, Denials, LogReader, audit, denials};
pub(crate) use bulk::{BulkResult, bulk_results, confirm_bulk};
pub(crate) use hosts::host;
pub(crate) use lead::{LedPlugins, LedTask, LedTasks, led_plugins, led_task, led_tasks, led_tenant};
pub(crate) use limits::{OwnLimits, own_limits};
pub(crate) use login::{ConfirmCode, Login, confirm_code, logged_in, login};
pub(crate) use media::{image, media_type};
pub(crate) use operators::{AllTasks, AnyTask, all_tasks, any_task, digits};
pub(crate) use overview::{Overview, overview};
pub(crate) use own::{OwnTask, OwnTasks, own_task, own_tasks};
pub(crate) use plugin_changes::{ChangesPage, changes};
pub(crate) use plugin_tools::{PluginTools, USAGE_DAYS, plugin_tool};
pub(crate) use plugins::{PluginPage, PluginsPage, plugin, plugin_path, plugins, version_path};
pub(crate) use tenants::{DAYS_SHOWN, TenantPage, tenant, tenants};
pub(crate) use tokens::{Tokens, token_created, tokens};
pub(crate) use tools::{CallerWays, ToolPage, ToolsPage, call_form, tool, tools};
pub(crate) use tries::{Listed, ListedPage, TriedPage, prompt_again, prompts, resource_again, resources, tried};
pub(crate) use views::{ShownView, no_view, view};

use crate::assets::{SCRIPT_PATH, STYLE_PATH};
use crate::columns::{Columns, class_of};
use crate::digests::form_token;
use crate::host_name::{HOST_NAME, VERSION};
use crate::sessions::{Session, Viewer};
use crate::text;
use live::live;

/// Where the way of showing times is chosen.
pub(crate) const TIMES: &str = "/times";

/// The field of a form that holds its token.
pub(crate) const TOKEN_FIELD: &str = "form_token";

/// The pages that the head of every page leads to.
const OPERATORS: [(&str, &str); 8] = [
    ("/", "Overview"),
    ("/tasks", "Tasks"),
    ("/plugins", "Plugins"),
    ("/tenants", "Tenants"),
    ("/denials", "Denials"),
    ("/audit", "Audit"),
    ("/tokens", "Tokens"),
    ("/hosts", "Host"),
];
/// The page that leads of a tenant have besides.
const LEAD: (&str, &str) = ("/tenant", "Tenant");
const REQUESTORS: [(&str, &str); 5] = [
    ("/tasks", "My tasks"),
    ("/tools", "Tools"),
    ("/resources", "Resources"),
    ("/prompts", "Prompts"),
    ("/limits", "Limits"),
];

/// What stands around a page.
pub(crate) struct Frame<'a> {
    /// None: nobody is logged in.
    pub(crate) session: Option<&'a Session>,
    /// Which of the pages above it belongs to.
    pub(crate) here: &'a str,
    /// Where the page itself is; empty: it is none to come back to.
    pub(crate) address: &'a str,
    pub(crate) now: UnixMs,
}

impl Frame<'_> {
    pub(crate) fn show(&self, title: &str, main: Markup) -> Markup {
        let reloads = live::reloads_without_script(&main);
        // For the times on it. Pages that say nothing, such as that of what is absent, are the same whenever they are
        // asked for.
        let now = live::goes_on(&main).then_some(self.now);
        let host = self.host();
        let is_switched = main.0.contains("<time") && !self.address.is_empty();
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) @if let Some(host) = host { " · " (host) } " · Bulkhead" }
                    link rel="stylesheet" href=(*STYLE_PATH);
                    link rel="icon" href="data:,";
                    @if self.session.is_some() { script src=(*SCRIPT_PATH) defer {} }
                    @if reloads { noscript { meta http-equiv="refresh" content=(live::RELOAD_SECONDS); } }
                }
                body data-now=[now] {
                    a.skip href="#main" { "Skip to the page" }
                    header { (self.head()) }
                    main id="main" { h1 { (title) } (main) }
                    @if let Some(session) = self.session.filter(|_| is_switched) {
                        footer { (self.times_switch(session)) }
                    }
                }
            }
        }
    }

    /// The machine, for operators: it is no requestor's business.
    fn host(&self) -> Option<&'static str> {
        let is_operator = self.session.is_some_and(|session| matches!(session.viewer, Viewer::Operator));
        Some(HOST_NAME.as_str()).filter(|name| is_operator && !name.is_empty())
    }

    fn head(&self) -> Markup {
        let Some(session) = self.session else { return html! { p.brand { "Bulkhead" } } };
        let (pages, lead, who) = match &session.viewer {
            Viewer::Operator => (&OPERATORS[..], None, "operator".to_owned()),
            Viewer::Requestor { rights, .. } => {
                let (tenant, name) = rights.names();
                let lead = rights.has(Need::Tenant).then_some(&LEAD);
                (&REQUESTORS[..], lead, text::line(&format!("{name}@{tenant}")))
            }
        };
        html! {
            p.brand { "Bulkhead " small { (VERSION) @if let Some(host) = self.host() { " on " (host) } } }
            nav aria-label="Pages" {
                @for (place, name) in pages.iter().chain(lead) {
                    a href=(place) aria-current=[(*place == self.here).then_some("page")] { (name) }
                }
            }
            form.find method="get" action="/tasks" role="search" {
                input type="search" name="id" placeholder="Task id" aria-label="Find a task by its id" maxlength="64" required autocomplete="off" spellcheck="false";
            }
            p.who { (who) }
            (button(session, "/logout", "Log out", "plain"))
        }
    }

    /// The button to the other way of showing times.
    fn times_switch(&self, session: &Session) -> Markup {
        let (label, exact) = match session.has_exact_times() {
            true => ("Relative times", "0"),
            false => ("Exact times", "1"),
        };
        html! {
            form.button method="post" action=(address(TIMES, &[("exact", Some(exact)), ("to", Some(self.address))])) {
                (token(session, TIMES))
                button.plain type="submit" { (label) }
            }
        }
    }

    /// A time: how long ago with the exact one beside it, or the other way round.
    fn when(&self, at: UnixMs) -> Markup {
        let exact = iso8601(at);
        let relative = text::relative(at, self.now);
        match self.session.is_some_and(Session::has_exact_times) {
            true => html! { time.exact datetime=(exact) title=(relative) { (text::moment(at)) } },
            false => html! { time datetime=(exact) title=(exact) { (relative) } },
        }
    }
}

/// An id in whole, with a button that copies it where there is a script.
fn copied(id: &str) -> Markup {
    html! { code { (id) } " " button.copy.plain type="button" data-copy=(id) { "Copy" } }
}

/// A form that is one button.
fn button(session: &Session, action: &str, label: &str, class: &str) -> Markup {
    html! {
        form.button method="post" action=(action) {
            (token(session, action))
            button.(class) type="submit" { (label) }
        }
    }
}

/// The field that shows that a form is ours.
fn token(session: &Session, action: &str) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(form_token(&session.key, action)); }
}

/// A status in words, with a mark that needs no colour to be told.
fn status(status: TaskStatus) -> Markup {
    let mark = match status {
        TaskStatus::Queued => "○",
        TaskStatus::Running => "◐",
        TaskStatus::InputRequired => "●",
        TaskStatus::Paused => "‖",
        TaskStatus::Succeeded => "✔",
        TaskStatus::ToolError | TaskStatus::Failed => "✖",
        TaskStatus::Cancelled => "–",
    };
    html! {
        span.status.(status.name()) { span aria-hidden="true" { (mark) } " " (words(status.name())) }
    }
}

/// A name of the wire as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// The choice of a status in a filter.
fn status_choice(chosen: Option<&str>) -> Markup {
    html! {
        label { "Status "
            select name="status" {
                option value="" { "all" }
                @for status in TaskStatus::ALL {
                    option value=(status.name()) selected[chosen == Some(status.name())] { (words(status.name())) }
                }
            }
        }
    }
}

/// A text to filter by.
fn filter_text(name: &str, label: &str, value: Option<&str>) -> Markup {
    html! { label { (label) " " input type="text" name=(name) value=(value.unwrap_or_default()) maxlength="200"; } }
}

/// A table; on a narrow screen each row is a card.
fn table(label: &str, columns: Columns, rows: Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table.cards.(class_of(columns)) {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// How full a limit is.
fn meter(in_use: u64, max: u64) -> Markup {
    meter_as(in_use, max, text::count)
}

/// The same in a unit.
fn meter_as(in_use: u64, max: u64, written: fn(u64) -> String) -> Markup {
    html! {
        meter min="0" max=(max.max(1)) value=(in_use.min(max.max(1))) high=(max - max.div_ceil(10)) optimum="0" {}
        " " (written(in_use)) " of " (written(max))
    }
}

/// As many rows as there is room for, and how many are left.
fn fitting<T>(rows: &[T], bytes_max: usize, show: impl Fn(&T) -> Markup) -> (Vec<Markup>, usize) {
    let mut shown = Vec::new();
    let mut bytes = 0;
    for row in rows {
        let row = show(row);
        bytes += row.0.len();
        if bytes > bytes_max {
            break;
        }
        shown.push(row);
    }
    let left = rows.len() - shown.len();
    (shown, left)
}

/// Something that the reader has to know first.
fn notice(class: &str, message: &str) -> Markup {
    html! { p.notice.(class) role="status" { (message) } }
}

/// One page of a list, and the address of the next.
fn more(next: Option<&str>) -> Markup {
    html! { @if let Some(next) = next { p { a href=(next) rel="next" { "More ▸" } } } }
}

/// An address with a query; empty values are left out.
pub(crate) fn address(path: &str, query: &[(&str, Option<&str>)]) -> String {
    let mut pairs = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in query {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            pairs.append_pair(name, value);
        }
    }
    let query = pairs.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The page of a task, or of what is none.
pub(crate) fn task_path(id: &str) -> String {
    format!("/tasks/{}", operators::path_segment(id.trim()))
}

/// A page that says one thing: what is not there, or why something was not done.
pub(crate) fn message(frame: &Frame<'_>, title: &str, message: &str) -> Markup {
    frame.show(
        title,
        html! {
            p { (message) }
            p { a href="/" { "To the first page" } }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_every_page_finds_a_task_and_names_the_host_to_operators_alone() {
        let session = Session::of_operator();
        let shown = |session| {
            let frame = Frame { session, here: "/", address: "", now: 1 };
            frame.show("Overview", html! {}).into_string()
        };
        let operator = shown(Some(&session));
        assert!(operator.contains("<input type=\"search\" name=\"id\"") && operator.contains(VERSION), "{operator}");
        assert!(HOST_NAME.is_empty() || operator.contains(&format!(" on {}</small>", *HOST_NAME)), "{operator}");
        let nobody = shown(None);
        assert!(
            !nobody.contains(VERSION) && !nobody.contains("<form") && nobody.contains("<title>Overview · Bulkhead")
        );
    }

    #[test]
    fn times_are_exact_where_the_session_says_so() {
        let session = Session::of_operator();
        let shown = || {
            let frame = Frame { session: Some(&session), here: "/tasks", address: "/tasks?tool=a&sort=x", now: 61_000 };
            frame.show("Tasks", frame.when(1_000)).into_string()
        };
        let relative = shown();
        assert!(relative.contains("title=\"1970-01-01T00:00:01.000Z\">1 min ago</time>"), "{relative}");
        let action = "action=\"/times?exact=1&amp;to=%2Ftasks%3Ftool%3Da%26sort%3Dx\"";
        assert!(relative.contains(action) && relative.contains("Exact times"), "{relative}");
        session.set_exact_times(true);
        let exact = shown();
        assert!(exact.contains("title=\"1 min ago\">1970-01-01 00:00:01 UTC</time>"), "{exact}");
        assert!(exact.contains("/times?exact=0") && exact.contains("<time class=\"exact\""), "{exact}");
    }

    #[test]
    fn task_that_is_looked_for_has_one_address() {
        assert_eq!(task_path(" 0123 "), "/tasks/0123");
        assert_eq!(task_path("../tokens?x"), "/tasks/..%2Ftokens%3Fx");
    }
}
