//! Pages: functions from typed values to markup.
//!
//! Must not ask anybody for anything, and must not write a text without escaping it. Invariant: a button that changes something is a form
//! with the token of its session and address.

mod login;
mod operators;
mod own;

use bulkhead_control::views::TaskStatus;
use bulkhead_domain::UnixMs;
use bulkhead_domain::timestamp::iso8601;
use maud::{DOCTYPE, Markup, html};

pub(crate) use login::{ConfirmCode, Login, confirm_code, login};
pub(crate) use operators::{
    AllTasks, AnyTask, Overview, PluginVersionsPage, all_tasks, any_task, overview, plugin, plugins, tenant, tenants,
};
pub(crate) use own::{OwnTask, OwnTasks, own_task, own_tasks};

use crate::assets::STYLE_PATH;
use crate::sessions::{Session, Viewer, form_token};
use crate::text;

/// The field of a form that holds its token.
pub(crate) const TOKEN_FIELD: &str = "form_token";

/// The pages that the head of every page leads to.
const OPERATORS: [(&str, &str); 4] =
    [("/", "Overview"), ("/tasks", "Tasks"), ("/plugins", "Plugins"), ("/tenants", "Tenants")];
const REQUESTORS: [(&str, &str); 1] = [("/tasks", "My tasks")];

/// What stands around a page.
pub(crate) struct Frame<'a> {
    /// None: nobody is logged in.
    pub(crate) session: Option<&'a Session>,
    /// Which of the pages above it belongs to.
    pub(crate) here: &'a str,
    pub(crate) now: UnixMs,
}

impl Frame<'_> {
    pub(crate) fn show(&self, title: &str, main: Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · Bulkhead" }
                    link rel="stylesheet" href=(*STYLE_PATH);
                    link rel="icon" href="data:,";
                }
                body {
                    a.skip href="#main" { "Skip to the page" }
                    header { (self.head()) }
                    main id="main" { h1 { (title) } (main) }
                }
            }
        }
    }

    fn head(&self) -> Markup {
        let Some(session) = self.session else { return html! { p.brand { "Bulkhead" } } };
        let (pages, who) = match &session.viewer {
            Viewer::Operator => (&OPERATORS[..], "operator".to_owned()),
            Viewer::Requestor { rights, .. } => {
                let (tenant, name) = rights.names();
                (&REQUESTORS[..], text::line(&format!("{name}@{tenant}")))
            }
        };
        html! {
            p.brand { "Bulkhead" }
            nav aria-label="Pages" {
                @for (place, name) in pages {
                    a href=(place) aria-current=[(*place == self.here).then_some("page")] { (name) }
                }
            }
            p.who { (who) }
            (button(session, "/logout", "Log out", "plain"))
        }
    }

    /// A time, relative, with the exact one beside it.
    fn when(&self, at: UnixMs) -> Markup {
        let exact = iso8601(at);
        html! { time datetime=(exact) title=(exact) { (text::relative(at, self.now)) } }
    }
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

/// A table that scrolls by itself where it is too wide.
fn table(label: &str, columns: &[&str], rows: Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// How full a limit is.
fn meter(in_use: u64, max: u64) -> Markup {
    html! {
        meter min="0" max=(max.max(1)) value=(in_use.min(max.max(1))) high=(max - max.div_ceil(10)) optimum="0" {}
        " " (text::count(in_use)) " of " (text::count(max))
    }
}

/// Something that the reader has to know first.
fn notice(class: &str, said: &str) -> Markup {
    html! { p.notice.(class) role="status" { (said) } }
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

/// A page that says one thing: what is not there, or why something was not done.
pub(crate) fn message(frame: &Frame<'_>, title: &str, said: &str) -> Markup {
    frame.show(
        title,
        html! {
            p { (said) }
            p { a href="/" { "To the first page" } }
        },
    )
}
