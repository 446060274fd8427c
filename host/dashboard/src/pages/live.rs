//! The parts of a page that follow the host while the page is open.
//!
//! Owns how such a part is marked, and how it is taken out of its page again. Invariant: nobody else can write such a
//! mark, because every text on a page is escaped.
//!
//! A page becomes live when it wraps a part of itself in [`live`]. The part is a whole block (never a row of a table),
//! has no other one within, and its page is read by a GET. What is outside of the parts stays as it was when the page
//! was loaded.

use maud::{Markup, html};

/// Without a script, a page with live parts is loaded again this often.
pub(crate) const RELOAD_SECONDS: u64 = 15;

const BEGIN: &str = "<live-part id=\"live-";
const AFTER_NAME: &str = "\">";
const END: &str = "</live-part>";

/// Marks a part of a page. The name is the only one of its page.
pub(crate) fn live(name: &'static str, part: Markup) -> Markup {
    html! { live-part id={ "live-" (name) } { (part) } }
}

/// The parts of a page with their names, in order.
pub(crate) fn parts(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split(BEGIN).skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(AFTER_NAME)?;
        Some((name, rest.split_once(END)?.0))
    })
}

/// Whether a page has what a script keeps fresh.
pub(super) fn goes_on(main: &Markup) -> bool {
    main.0.contains(BEGIN) || main.0.contains("<time ")
}

/// Whether a page without a script loads itself again: it has live parts, and nothing that a person fills in and would
/// lose.
pub(super) fn reloads_without_script(main: &Markup) -> bool {
    let times = |part: &str| main.0.matches(part).count();
    times(BEGIN) > 0
        && times("<input ") == times("<input type=\"hidden\"")
        && times("<select") + times("<textarea") == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_as_they_were_made_and_texts_make_none() {
        let hostile = "</live-part><live-part id=\"live-x\">";
        let page = html! {
            p title=(hostile) { "before" }
            (live("tasks", html! { p { (hostile) } }))
            (live("task", html! { form { "1\n2" } }))
            p { (hostile) }
        };
        let page = page.into_string();
        let parts: Vec<_> = parts(&page).collect();
        assert_eq!(
            parts,
            [
                ("tasks", "<p>&lt;/live-part&gt;&lt;live-part id=&quot;live-x&quot;&gt;</p>"),
                ("task", "<form>1\n2</form>")
            ]
        );
    }

    #[test]
    fn page_reloads_itself_unless_a_person_fills_something_in() {
        let part = || live("a", html! { form { input type="hidden" name="form_token" value="x"; button { "Do" } } });
        assert!(reloads_without_script(&part()));
        assert!(!reloads_without_script(&html! { p { "still" } }));
        for field in [html! { input type="text" name="a"; }, html! { select {} }, html! { textarea {} }] {
            assert!(!reloads_without_script(&html! { (part()) (field) }));
        }
    }
}
