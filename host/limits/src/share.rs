//! What one of several hosts allows of the limits that each of them counts for itself.
//!
//! Owns which limits have shares. Must not know how many hosts live. Invariant: the shares of all hosts together are
//! the limit, rounded up to the next number that can be divided; a host's own (`*_total`) and what is counted over all
//! hosts stay whole.

use std::sync::Arc;

use bulkhead_domain::limits::{Limits, LimitsTable};

/// The limits of one of so many hosts.
pub(super) fn of_host(whole: &Arc<LimitsTable>, hosts: usize) -> Arc<LimitsTable> {
    let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
    if hosts <= 1 {
        return Arc::clone(whole);
    }
    let tenants = whole.tenants.iter().map(|(tenant, limits)| (*tenant, Arc::new(share(limits, hosts)))).collect();
    Arc::new(LimitsTable { base: Arc::new(share(&whole.base, hosts)), tenants })
}

fn share(limits: &Limits, hosts: u32) -> Limits {
    let part = |limit: u32| limit.div_ceil(hosts);
    Limits {
        calls_running_per_requestor: part(limits.calls_running_per_requestor),
        calls_running_per_tenant: part(limits.calls_running_per_tenant),
        calls_queued_per_requestor: part(limits.calls_queued_per_requestor),
        calls_queued_per_tenant: part(limits.calls_queued_per_tenant),
        calls_resting_per_tenant: part(limits.calls_resting_per_tenant),
        tasks_waiting_per_requestor: part(limits.tasks_waiting_per_requestor),
        tasks_waiting_per_tenant: part(limits.tasks_waiting_per_tenant),
        requests_per_second: part(limits.requests_per_second),
        requests_per_second_per_tenant: part(limits.requests_per_second_per_tenant),
        task_creations_per_second: part(limits.task_creations_per_second),
        task_creations_per_second_per_tenant: part(limits.task_creations_per_second_per_tenant),
        requestor_creations_per_second_per_tenant: part(limits.requestor_creations_per_second_per_tenant),
        ..limits.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveLimits;
    use bulkhead_domain::requestor::TenantId;

    #[test]
    fn hosts_share_what_each_counts_for_itself_and_a_reload_keeps_the_shares() {
        let base = Limits { requests_per_second: 10, calls_running_per_requestor: 1, ..Limits::generous() };
        let own = Limits { requests_per_second: 7, calls_queued_per_tenant: 0, ..Limits::generous() };
        let tenant = TenantId([1; 16]);
        let table = |base: &Limits| LimitsTable {
            base: Arc::new(base.clone()),
            tenants: [(tenant, Arc::new(own.clone()))].into(),
        };
        let limits = LiveLimits::from(table(&base));
        let rates = |limits: &LiveLimits| {
            let table = limits.table();
            (table.base.requests_per_second, table.tenants[&tenant].requests_per_second)
        };
        assert_eq!(rates(&limits), (10, 7));
        limits.share_among(3);
        assert_eq!(rates(&limits), (4, 3));
        assert_eq!(limits.base().calls_running_per_requestor, 1, "each host lets one run");
        assert_eq!(limits.base().tasks_running_per_requestor, base.tasks_running_per_requestor);
        assert_eq!(limits.table().tenants[&tenant].calls_queued_per_tenant, 0, "none stays none");
        limits.set(table(&Limits { requests_per_second: 31, ..base.clone() }));
        assert_eq!(rates(&limits), (11, 3));
        limits.share_among(1);
        assert_eq!(rates(&limits), (31, 7));
    }
}
