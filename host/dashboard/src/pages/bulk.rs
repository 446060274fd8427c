//! One order for several tasks: the form around a list, the page that asks once more, and what came of it.

use maud::{Markup, html};

use super::{Frame, table, token};
use crate::columns::DONE;
use crate::sessions::Session;
use crate::text;

/// Where the form is sent.
const ACTION: &str = "/tasks/bulk";

/// What can be done with several tasks.
const ORDERS: [(&str, &str); 5] =
    [("cancel", "Cancel"), ("pause", "Pause"), ("resume", "Resume"), ("release", "Release"), ("purge", "Purge…")];

/// The form around a list of tasks.
pub(super) fn form(session: &Session, list: Markup) -> Markup {
    html! {
        form method="post" action=(ACTION) {
            (token(session, ACTION))
            (list)
            fieldset.bulk {
                legend { "With those that are chosen" }
                @for (order, label) in ORDERS {
                    button.plain type="submit" name="do" value=(order) { (label) } " "
                }
            }
        }
    }
}

/// The box in front of one of them.
pub(super) fn choice(id: &str) -> Markup {
    html! { input type="checkbox" name="id" value=(id) aria-label={ "Task " (short(id)) }; }
}

fn short(id: &str) -> String {
    text::line(id).chars().take(8).collect()
}

/// Asks once more, because what is removed is gone.
pub(crate) fn confirm_bulk(frame: &Frame<'_>, session: &Session, ids: &[&str]) -> Markup {
    frame.show(
        "Purge tasks",
        html! {
            p { "They are stopped and removed, with everything that belongs to them: " (ids.len()) " tasks." }
            form method="post" action=(ACTION) {
                (token(session, ACTION))
                input type="hidden" name="confirmed" value="yes";
                @for id in ids { input type="hidden" name="id" value=(id); }
                button.bad type="submit" name="do" value="purge" { "Purge " (ids.len()) " tasks" }
            }
            p { a href="/tasks" { "Back to the tasks" } }
        },
    )
}

/// What came of an order for one task.
pub(crate) struct BulkResult<'a> {
    pub(crate) id: &'a str,
    /// Or why not.
    pub(crate) done: Result<&'static str, String>,
}

pub(crate) fn bulk_results(frame: &Frame<'_>, results: &[BulkResult<'_>]) -> Markup {
    let refused = results.iter().filter(|result| result.done.is_err()).count();
    frame.show("What was done", html! {
        p { (results.len() - refused) " done, " (refused) " refused." }
        (table("What was done", DONE, html! {
            @for result in results {
                tr {
                    td { a href={ "/tasks/" (result.id) } { code { (short(result.id)) } } }
                    td { @match &result.done { Ok(done) => (done), Err(why) => { span.failed { "refused" } ": " (text::line(why)) } } }
                }
            }
        }))
        p { a href="/tasks" { "Back to the tasks" } }
    })
}
