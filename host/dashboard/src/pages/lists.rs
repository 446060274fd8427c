//! Lists: by what they are sorted and filtered, and their heads.
//!
//! Must not know what a row says. Invariant: what a list is filtered and sorted by stands in its address and nowhere
//! else.

use std::cmp::Ordering;

use maud::{Markup, html};

use super::address;
use crate::columns::List;
use crate::request::Form;
use crate::text;

/// By what a list is sorted, as its address says: a column's key, with a minus for the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortOrder<'a> {
    pub(crate) key: &'a str,
    pub(crate) descends: bool,
}

impl<'a> SortOrder<'a> {
    /// `otherwise`: where the address says nothing.
    pub(crate) fn read(query: &'a Form, otherwise: &'a str) -> Self {
        let text = query.filled("sort").unwrap_or(otherwise);
        match text.strip_prefix('-') {
            Some(key) => Self { key, descends: true },
            None => Self { key: text, descends: false },
        }
    }

    /// As it stands in an address.
    pub(crate) fn text(self) -> String {
        format!("{}{}", if self.descends { "-" } else { "" }, self.key)
    }

    /// The other way round where it descends.
    pub(crate) fn directed(self, ordering: Ordering) -> Ordering {
        if self.descends { ordering.reverse() } else { ordering }
    }
}

/// Which part of a list is shown, and in which order.
#[derive(Clone, Copy)]
pub(crate) struct ListPosition<'a> {
    pub(crate) sort: SortOrder<'a>,
    /// Rows before the page.
    pub(crate) from: usize,
}

impl<'a> ListPosition<'a> {
    pub(crate) fn read(query: &'a Form, otherwise: &'a str) -> Self {
        let from = query.filled("from").and_then(|from| from.parse().ok()).unwrap_or(0);
        Self { sort: SortOrder::read(query, otherwise), from }
    }
}

/// Where a list is, with what its address says.
#[derive(Clone, Copy)]
pub(super) struct ListAddress<'a> {
    pub(super) path: &'a str,
    /// Names, values, and the words for both.
    pub(super) filters: &'a [Filter<'a>],
    pub(super) sort: Option<SortOrder<'a>>,
}

/// One thing that a list is filtered by.
#[derive(Clone, Copy)]
pub(super) struct Filter<'a> {
    pub(super) name: &'a str,
    pub(super) label: &'a str,
    pub(super) value: Option<&'a str>,
}

impl ListAddress<'_> {
    /// The list with other values in place of its own; none: without them.
    pub(super) fn with(&self, changes: &[(&str, Option<&str>)]) -> String {
        let sort = self.sort.map(SortOrder::text);
        let own = self.filters.iter().map(|filter| (filter.name, filter.value)).chain([("sort", sort.as_deref())]);
        let is_kept = |(name, _): &(&str, Option<&str>)| changes.iter().all(|(changed, _)| changed != name);
        let pairs: Vec<_> = own.filter(is_kept).chain(changes.iter().copied()).collect();
        address(self.path, &pairs)
    }

    /// Each filter that is set, as a link to the list without it.
    pub(super) fn chips(&self, written: impl Fn(&Filter<'_>, &str) -> Markup) -> Markup {
        let set: Vec<_> = self.filters.iter().filter_map(|filter| Some((filter, filter.value?))).collect();
        html! {
            @if !set.is_empty() {
                ul.chips aria-label="Filters" {
                    @for (filter, value) in set.iter().copied() {
                        li { a href=(self.with(&[(filter.name, None)])) title="Without this filter" {
                            (filter.label) ": " b { (written(filter, value)) } " " span aria-hidden="true" { "✕" }
                        } }
                    }
                }
            }
        }
    }
}

impl List {
    /// The list, each column that sorts with a link that does.
    pub(super) fn show(&self, at: Option<&ListAddress<'_>>, rows: Markup) -> Markup {
        let sorted = |key: Option<&str>| at.and_then(|at| at.sort).filter(|sort| Some(sort.key) == key);
        let direction = |sort: SortOrder<'_>| if sort.descends { "descending" } else { "ascending" };
        html! {
            div.scroll role="region" aria-label=(self.label) tabindex="0" {
                table.cards.(self.class) {
                    thead { tr {
                        @for (name, key) in self.columns {
                            th scope="col" aria-sort=[sorted(*key).map(direction)] {
                                @match (at, key) {
                                    (Some(at), Some(key)) => {
                                        @let now = sorted(Some(key));
                                        @let next = SortOrder { key, descends: now.is_some_and(|now| !now.descends) };
                                        a href=(at.with(&[("sort", Some(&next.text()))])) { (name) }
                                        @if let Some(now) = now { span aria-hidden="true" { @if now.descends { " ▾" } @else { " ▴" } } }
                                    },
                                    _ => (name),
                                }
                            }
                        }
                    } }
                    tbody { (rows) }
                }
            }
        }
    }
}

/// How many there are, as far as this page knows.
pub(super) fn counted(shown: usize, more: bool, one: &str, many: &str) -> Markup {
    html! {
        p.note.count {
            (text::count(shown as u64)) " " @if shown == 1 { (one) } @else { (many) }
            @if more { " on this page; there are more" }
        }
    }
}

/// A text to filter by, with what is on the page as suggestions.
pub(super) fn suggested(filter: &Filter<'_>, suggestions: impl IntoIterator<Item = String>) -> Markup {
    let mut known: Vec<_> = suggestions.into_iter().collect();
    known.sort_unstable();
    known.dedup();
    known.truncate(SUGGESTIONS_MAX);
    let id = format!("known-{}", filter.name);
    html! {
        label { (filter.label) " "
            input type="text" name=(filter.name) value=(filter.value.unwrap_or_default()) maxlength="200" list=[(!known.is_empty()).then_some(&id)];
        }
        @if !known.is_empty() { datalist id=(id) { @for value in &known { option value=(value) {} } } }
    }
}

/// Suggestions below one field of a filter on a page of the dashboard.
const SUGGESTIONS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::TENANTS;

    fn form(query: &str) -> Form {
        Form::parse(query.as_bytes())
    }

    #[test]
    fn order_is_read_from_the_address_and_written_to_it() {
        let (plain, descending) = (form("sort=name"), form("sort=-tasks"));
        let read = [SortOrder::read(&plain, "x"), SortOrder::read(&descending, "x")];
        assert_eq!(read.map(|order| (order.key, order.descends)), [("name", false), ("tasks", true)]);
        assert_eq!(read.map(SortOrder::text), ["name", "-tasks"]);
        assert_eq!(read[1].directed(1.cmp(&2)), Ordering::Greater);
        assert_eq!(SortOrder::read(&form(""), "-changed").text(), "-changed");
    }

    #[test]
    fn filters_are_chips_that_lead_to_the_list_without_them() {
        let filters = [
            Filter { name: "tenant", label: "Tenant", value: Some("a&b") },
            Filter { name: "tool", label: "Tool", value: None },
            Filter { name: "status", label: "Status", value: Some("failed") },
        ];
        let at = ListAddress { path: "/tasks", filters: &filters, sort: None };
        let chips = at.chips(|_, value| html! { (value) }).into_string();
        for part in [
            "<a href=\"/tasks?status=failed\" title=\"Without this filter\">Tenant: <b>a&amp;b</b> <span aria-hidden=\"true\">✕</span></a>",
            "<a href=\"/tasks?tenant=a%26b\"",
        ] {
            assert!(chips.contains(part), "{part}: {chips}");
        }
        assert!(!chips.contains("Tool"));
        assert_eq!(at.with(&[("after", Some("x"))]), "/tasks?tenant=a%26b&status=failed&after=x");
    }

    #[test]
    fn head_sorts_and_says_by_what() {
        let query = form("sort=-tasks");
        let at = ListAddress { path: "/tenants", filters: &[], sort: Some(SortOrder::read(&query, "name")) };
        let shown = TENANTS.show(Some(&at), html! { tr {} }).into_string();
        assert!(shown.contains(
            "<th scope=\"col\" aria-sort=\"descending\"><a href=\"/tenants?sort=tasks\">Tasks</a><span aria-hidden=\"true\"> ▾</span></th>"
        ));
        assert!(shown.contains("<th scope=\"col\"><a href=\"/tenants?sort=name\">Tenant</a></th>"), "{shown}");
        assert!(shown.contains("<th scope=\"col\">Fullest limits</th>"), "{shown}");
    }

    #[test]
    fn suggestions_are_few_and_each_is_there_once() {
        let filter = Filter { name: "tenant", label: "Tenant", value: None };
        let shown = suggested(&filter, (0..500).map(|number| format!("t{}", number / 2))).into_string();
        assert_eq!(shown.matches("<option").count(), SUGGESTIONS_MAX);
        assert!(!suggested(&filter, []).into_string().contains("list"));
    }
}
