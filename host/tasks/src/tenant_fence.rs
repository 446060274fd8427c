//! Tenants that are being erased.
//!
//! Owns the set of tenants whose new work is refused. Invariant: a blocked tenant stays blocked for as long as the engine lives; a later
//! tenant of the same name has another id.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::feed::lock;
use super::{Error, TaskNews, Tasks, Unavailable};
use bulkhead_domain::requestor::{Requestor, TenantId};

#[derive(Default)]
pub(super) struct TenantFence {
    any: AtomicBool,
    tenants: Mutex<HashSet<TenantId>>,
}

impl TenantFence {
    pub(super) fn admit(&self, requestor: &Requestor) -> Result<(), Error> {
        if self.any.load(Ordering::Acquire) && lock(&self.tenants).contains(&requestor.tenant) {
            return Err(Error::Unavailable { why: Unavailable::Erased, retry_after_ms: None });
        }
        Ok(())
    }
}

impl Tasks {
    /// Lets nobody of a tenant begin anything any more, and stops what runs. Its records stay for the caller to remove.
    pub fn block_tenant(&self, tenant: TenantId) {
        let inner = &self.inner;
        lock(&inner.tenant_fence.tenants).insert(tenant);
        inner.tenant_fence.any.store(true, Ordering::Release);
        let runs: Vec<_> = lock(&inner.runs).values().cloned().collect();
        for run in runs {
            if let Some(task) = run.task().filter(|task| task.requestor.tenant == tenant) {
                run.gone();
                inner.feeds.publish(&task.requestor, task.id, &TaskNews::Gone(task.id));
            }
        }
    }
}
