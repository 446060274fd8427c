//! The keys of tenants, as they are made and changed.

use serde::{Deserialize, Serialize};

use super::super::{Error, RowKind, RowStore as _, tenant_keys};
use super::SledStore;
use crate::vault::SealingKey;
use bulkhead_domain::requestor::TenantId;

/// What a change of keys did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rekeyed {
    /// Tenants with a key of their own.
    pub tenants: u64,
    /// Those whose key was sealed with an older key of the operator's until now.
    pub sealed_again: u64,
}

impl SledStore {
    /// What a tenant's data is to be sealed with; `None` where nothing is. A first key is on disk when this returns.
    pub(super) async fn key_for_sealing(&self, tenant: TenantId) -> Result<Option<SealingKey>, Error> {
        let sealing = &self.shared.sealing;
        if !sealing.tenant_keys.is_sealing() {
            return Ok(None);
        }
        if let Some(key) = sealing.of(tenant, &self.shared.view)? {
            return Ok(Some(key));
        }
        let wrapped = sealing.tenant_keys.draw(tenant)?;
        match self.put_row(RowKind::TenantKey, &tenant.0, wrapped, true).await {
            // Another writer was faster.
            Ok(()) | Err(Error::Exists) => sealing.needed(tenant, &self.shared.view).map(Some),
            Err(error) => Err(error),
        }
    }
}

/// Seals the key of each tenant with the operator's first key, where an older one did.
///
/// # Errors
///
/// [`Error::Sealed`] when no key was given.
pub async fn rekey(store: &SledStore) -> Result<Rekeyed, Error> {
    tenant_keys::rekey(store, store.shared.sealing.tenant_keys.operator()?).await
}
