//! A tenant that is erased leaves the canaries that it is in.
//!
//! Owns what becomes of them. Invariant: afterwards no row names the tenant; who else is in a canary stays in it, and
//! one that nobody is left in ends.

use super::registry::{Draft, PluginRegistry};
use super::{Error, Plugins};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;
use bulkhead_runtime::Canary;
use bulkhead_store::{self as store, RowStore};

/// Takes a tenant out of the canaries of a store that no host runs; returns how many it was in.
///
/// # Errors
///
/// The store cannot be read or written, or another host changed the same plugins.
pub async fn forget_tenant(store: &dyn RowStore, tenant: TenantId, now: UnixMs) -> Result<u64, store::Error> {
    let mut book = PluginRegistry::read(store).await?;
    let (draft, left) = without(&book, tenant, now);
    if left > 0 {
        book.commit(store, draft).await?;
    }
    Ok(left)
}

impl Plugins {
    /// The same while they run: calls from now on follow the rows.
    ///
    /// # Errors
    ///
    /// The store cannot be read or written.
    pub async fn forget_tenant(&self, tenant: TenantId) -> Result<u64, Error> {
        let inner = &self.inner;
        let mut state = self.settled().await?;
        let (draft, left) = without(&state.book, tenant, inner.clock.now());
        if left == 0 {
            return Ok(0);
        }
        let committed = state.book.commit(&*inner.store, draft).await;
        // A canary that ended begins to drain; after an error, whether it is in the store after all is looked at soon.
        inner.drains.notify_one();
        committed?;
        let canaries = state.canaries.iter().filter_map(|Canary { plugin, .. }| {
            let name = &plugin.version.name;
            let route = state.book.get(name)?.head.canary.as_ref()?.route(name);
            Some(Canary { plugin: plugin.clone(), route })
        });
        let table = state.table.clone();
        let canaries = canaries.collect();
        for error in inner.publish(&mut state, table, canaries) {
            state.note_broken(&error);
        }
        Ok(left)
    }
}

/// What becomes of the canaries that a tenant is in, and how many they are.
fn without(book: &PluginRegistry, tenant: TenantId, now: UnixMs) -> (Draft, u64) {
    let id = tenant.to_string();
    let mut draft = Draft::default();
    let mut left = 0;
    for (name, entry) in book.iter() {
        if entry.head.canary.as_ref().is_some_and(|canary| canary.tenants.iter().any(|one| one.id == id)) {
            draft.entry(book, name).leave_canary(&id, now);
            left += 1;
        }
    }
    (draft, left)
}
