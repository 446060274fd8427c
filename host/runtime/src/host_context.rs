//! What every call needs from the host, whichever plugin it runs.

use std::sync::Arc;

use super::blocking::BlockingPools;
use super::egress::RequestQuotas;
use super::engines::Engines;
use super::files::Quotas;
use bulkhead_domain::requestor::TenantId;
use bulkhead_metrics::Metrics;

/// One for all calls of a host.
pub(super) struct HostContext {
    pub(super) engines: Engines,
    /// For directories that each tenant has its own of.
    pub(super) names: Option<Arc<dyn TenantNames>>,
    pub(super) metrics: Metrics,
    pub(super) quotas: Arc<Quotas>,
    pub(super) request_quotas: RequestQuotas,
    pub(super) blocking: Arc<BlockingPools>,
}

/// Who knows the names of tenants.
#[async_trait::async_trait]
pub trait TenantNames: std::fmt::Debug + Send + Sync {
    /// The name: 1 to 64 characters of `A-Z a-z 0-9 _ - .`; the same each time, and no other tenant's.
    async fn name(&self, tenant: TenantId) -> Option<String>;
}
