//! The share of this host in limits that each host counts for itself.
//!
//! Owns what is told when the number of hosts changes that share the store. Must not know how a limit is counted.
//! Invariant: each host goes by the limit divided by the hosts that it knows to live, and by the whole until it knows
//! of any.

use std::sync::Arc;

use bulkhead_config::Config;
use bulkhead_limits::LiveLimits;
use bulkhead_store::Store;
use bulkhead_tasks::Tasks;
use bulkhead_transport::quota::EdgeQuota;

/// What goes by the share.
pub(crate) struct LimitShares {
    store: Arc<dyn Store>,
    limits: LiveLimits,
    tasks: Tasks,
    quota: Arc<EdgeQuota>,
}

impl LimitShares {
    /// None for a host that is alone, or has the whole of each limit (`cluster.share`).
    pub(crate) fn of(
        config: &Config,
        store: &Arc<dyn Store>,
        limits: &LiveLimits,
        tasks: &Tasks,
        quota: &Arc<EdgeQuota>,
    ) -> Option<Self> {
        config.cluster.as_ref().filter(|cluster| cluster.shares_limits)?;
        let store = Arc::clone(store);
        Some(Self { store, limits: limits.clone(), tasks: tasks.clone(), quota: Arc::clone(quota) })
    }

    /// Follows the number of hosts that live, until dropped.
    pub(crate) async fn follow_hosts(&self) {
        let mut hosts = 1;
        loop {
            hosts = self.store.living(hosts).await;
            self.limits.share_among(hosts);
            self.tasks.limits_changed();
            self.quota.limits_changed();
            tracing::info!(hosts, "this host goes by its share of the limits");
        }
    }
}
