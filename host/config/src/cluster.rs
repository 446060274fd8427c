//! `[cluster]`: several hosts on one database.

use std::time::Duration;

use super::key::{Number, Unit};
use super::reader::Item;
use bulkhead_domain::names::check_name;

/// `[cluster]`: this host shares its database with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// As operators know this host.
    pub name: String,
    pub lease: Duration,
    /// Whether limits that each host counts for itself are shared among those that live.
    pub shares_limits: bool,
}

pub(super) const NUMBERS: [Number; 1] = [Number {
    name: "lease_ms",
    unit: Unit::Milliseconds,
    default: 30_000,
    min: 1_000,
    max: 120_000,
    doc: "How long this host lives after the database heard of it last; then others go on with its tasks",
}];

fn name(text: &str) -> Result<String, &'static str> {
    check_name(text).map(|()| text.to_owned())
}

table!(CLUSTER, ClusterKeys, "[cluster]",
    "Lets this host share its database with others that have this section. Without it, the schema is this host's alone.", {
    name: String = |item| item.parsed(name), "",
        "What this host is called in the logs of the others";
    share: bool = |item| item.choice(&[("split", true), ("each", false)]), "split",
        "Limits that each host counts for itself: split among the hosts that live, rounded up; or each host has them whole";
}, numbers: NUMBERS);

/// `None`: it is refused.
pub(super) fn read(item: &Item<'_>) -> Option<ClusterConfig> {
    let section = item.section(CLUSTER.names())?;
    let ClusterKeys { name, share } = ClusterKeys::read(&section);
    if !section.has("name") {
        section.item.refuse("needs name, what this host is called");
    }
    let [lease_ms] = NUMBERS.map(|number| section.number(&number).unwrap_or(number.default));
    Some(ClusterConfig { name: name?, lease: Duration::from_millis(lease_ms), shares_limits: share.unwrap_or(true) })
}
