//! The limits of a requestor.

use bulkhead_config::amounts::{amount, is_bytes};
use bulkhead_control::views::{LimitCount, LimitCounts};
use bulkhead_domain::limits::Limits;
use maud::{Markup, html};

use super::{Frame, meter, table};
use crate::columns::{Columns, LIMITS, OWN_PART, RATES};

/// A requestor's limits, with what it has in use of its own and of its tenant's.
pub(crate) struct OwnLimits<'a> {
    pub(crate) own: &'a LimitCounts,
    pub(crate) of_tenant: &'a LimitCounts,
    pub(crate) limits: &'a Limits,
}

pub(crate) fn own_limits(frame: &Frame<'_>, page: &OwnLimits<'_>) -> Markup {
    let limits = page.limits;
    let rates = [
        ("requests_per_second", limits.requests_per_second, limits.requests_per_second_per_tenant),
        ("request_bytes_per_second", limits.request_bytes_per_second, limits.request_bytes_per_second_per_tenant),
        ("task_creations_per_second", limits.task_creations_per_second, limits.task_creations_per_second_per_tenant),
    ];
    frame.show(
        "Limits",
        html! {
            h2 { "Yours" }
            (counts("Yours", LIMITS, page.own))
            h2 { "Of your tenant" }
            p.note { "They hold for all requestors of your tenant together. What others use of them is not shown." }
            (counts("Of your tenant", OWN_PART, page.of_tenant))
            h2 { "Rates" }
            (table("Rates", RATES, html! {
                @for (name, own, of_tenant) in rates {
                    tr {
                        td { (limit(name)) }
                        td { (amount(name, own.into())) }
                        td { (amount(name, of_tenant.into())) }
                    }
                }
            }))
            p { a href="/limits" { "Reload" } }
        },
    )
}

pub(super) fn counts(label: &str, columns: Columns, counts: &LimitCounts) -> Markup {
    table(
        label,
        columns,
        html! {
            @for (name, count) in counts { tr { td { (limit(name)) } td { (fullness(name, *count)) } } }
        },
    )
}

/// A limit by its key, with the sentence that the configuration says about it.
pub(super) fn limit(name: &str) -> Markup {
    let key = bulkhead_config::all_keys().find(|key| key.section == "limits" && key.name == name);
    html! { code { (name) } @if let Some(key) = key { small { (key.doc) } } }
}

pub(super) fn fullness(name: &str, LimitCount { in_use, max }: LimitCount) -> Markup {
    if !is_bytes(name) {
        return meter(in_use, max);
    }
    html! {
        meter min="0" max=(max.max(1)) value=(in_use.min(max.max(1))) high=(max - max / 10) optimum="0" {}
        " " (amount(name, in_use)) " of " (amount(name, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_explained_by_the_sentence_of_its_key() {
        let shown = limit("tasks_queued_per_requestor").into_string();
        assert!(shown.starts_with("<code>tasks_queued_per_requestor</code><small>"), "{shown}");
        assert_eq!(limit("of_another_host").into_string(), "<code>of_another_host</code>");
    }
}
