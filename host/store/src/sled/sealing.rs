//! The keys that tenants' data is sealed with, in this engine.
//!
//! Owns one key for each tenant: drawn at random, kept as a row that only a key of the operator's opens, so that the
//! operator's key can change without a record being written again, and a tenant's data is lost for good once its row
//! is. Must not know what is sealed. Invariant: nothing is sealed with a key whose row is not on disk.

use super::super::tenant_keys::{TenantKeys, lost};
use super::super::{Error, RowKind};
use super::errors::engine_error;
use super::head::verify_checksum;
use super::keys;
use super::view::View;
use crate::vault::{SealingKey, VaultKeys};
use bulkhead_domain::requestor::TenantId;

/// See the module.
#[derive(Default)]
pub(super) struct Sealing {
    pub(super) tenant_keys: TenantKeys,
}

impl Sealing {
    /// # Errors
    ///
    /// [`Error::Sealed`] when the database holds a tenant's key that these keys do not open.
    pub(super) fn open(keys: Option<VaultKeys>, tree: &::sled::Tree) -> Result<Self, Error> {
        let tenant_keys = TenantKeys::new(keys);
        for row in tree.scan_prefix([RowKind::TenantKey as u8]) {
            let (key, value) = row.map_err(engine_error)?;
            tenant_keys.check(key.get(1..).unwrap_or_default(), &verify_checksum(&value)?)?;
        }
        Ok(Self { tenant_keys })
    }

    /// The key of a tenant that has one.
    pub(super) fn of(&self, tenant: TenantId, view: &View) -> Result<Option<SealingKey>, Error> {
        if let Some(known) = self.tenant_keys.known(tenant) {
            return Ok(Some(known));
        }
        let Some(row) = view.get(&row_key(tenant))? else { return Ok(None) };
        self.tenant_keys.learn(tenant, &verify_checksum(&row)?).map(Some)
    }

    /// For reading what was sealed.
    pub(super) fn needed(&self, tenant: TenantId, view: &View) -> Result<SealingKey, Error> {
        self.of(tenant, view)?.ok_or_else(lost)
    }

    /// A row is about to go: nobody may go on with its key.
    pub(super) fn forget(&self, row: &[u8]) {
        if let Some((kind, key)) = row.split_first()
            && *kind == RowKind::TenantKey as u8
        {
            self.tenant_keys.forget(key);
        }
    }
}

/// Where the key of a tenant is.
pub(super) fn row_key(tenant: TenantId) -> Vec<u8> {
    keys::row(RowKind::TenantKey, &tenant.0)
}
