//! The keys that tenants' data is sealed with.
//!
//! Owns one key for each tenant: drawn at random, kept as a row that only a key of the operator's opens, so that the operator's key
//! can change without a record being written again, and a tenant's data is lost for good once its row is. Must not know what is
//! sealed. Invariant: nothing is sealed with a key whose row is not on disk.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::super::{Error, RowKind};
use super::errors::engine_error;
use super::head::verify_checksum;
use super::keys;
use super::view::View;
use crate::vault::{self, SealingKey, VaultKeys};
use bulkhead_domain::requestor::TenantId;

pub(super) const LABEL: &[u8] = b"key of a tenant";

/// The operator's keys, and those of tenants that were needed so far.
#[derive(Default)]
pub(super) struct Sealing {
    /// Without any, nothing is sealed.
    pub(super) keys: Option<VaultKeys>,
    known: Mutex<HashMap<TenantId, SealingKey>>,
}

impl Sealing {
    /// # Errors
    ///
    /// [`Error::Sealed`] when the database holds a tenant's key that these keys do not open.
    pub(super) fn open(keys: Option<VaultKeys>, tree: &::sled::Tree) -> Result<Self, Error> {
        let sealing = Self { keys, known: Mutex::default() };
        for row in tree.scan_prefix([RowKind::TenantKey as u8]) {
            let (key, value) = row.map_err(engine_error)?;
            let tenant = key.get(1..).and_then(|key| key.try_into().ok()).map(TenantId);
            sealing.unwrap(tenant.ok_or_else(lost)?, &verify_checksum(&value)?)?;
        }
        Ok(sealing)
    }

    fn unwrap(&self, tenant: TenantId, wrapped: &[u8]) -> Result<SealingKey, Error> {
        let Some(keys) = &self.keys else {
            let id = vault::sealed_by(wrapped).map_or_else(String::new, |id| format!(" with key {id}"));
            let advice = "give the key again, with key_file or key_env in [encryption] of the configuration";
            return Err(Error::Sealed(format!("what it holds was sealed{id}: {advice}")));
        };
        let opened = keys.open(&[LABEL, &tenant.0], wrapped).map_err(|error| match error {
            vault::Error::UnknownKey { .. } => {
                let given: Vec<_> = keys.ids().map(|id| id.to_string()).collect();
                Error::Sealed(format!("{error} in [encryption] (given: {}); nothing was changed", given.join(", ")))
            }
            _ => Error::Corrupt(format!("the key of tenant {tenant} cannot be opened: {error}")),
        })?;
        Ok(SealingKey::new(&opened.try_into().map_err(|_| lost())?))
    }

    /// The key of a tenant that has one.
    pub(super) fn of(&self, tenant: TenantId, view: &View) -> Result<Option<SealingKey>, Error> {
        if let Some(known) = self.known.lock().get(&tenant) {
            return Ok(Some(known.clone()));
        }
        let Some(row) = view.get(&row_key(tenant))? else { return Ok(None) };
        let key = self.unwrap(tenant, &verify_checksum(&row)?)?;
        self.known.lock().insert(tenant, key.clone());
        Ok(Some(key))
    }

    /// For reading what was sealed.
    pub(super) fn needed(&self, tenant: TenantId, view: &View) -> Result<SealingKey, Error> {
        self.of(tenant, view)?.ok_or_else(lost)
    }

    /// A row is about to go: nobody may go on with its key.
    pub(super) fn forget(&self, row: &[u8]) {
        if let Some((kind, tenant)) = row.split_first()
            && *kind == RowKind::TenantKey as u8
            && let Ok(tenant) = tenant.try_into()
        {
            self.known.lock().remove(&TenantId(tenant));
        }
    }
}

/// Where the key of a tenant is.
pub(super) fn row_key(tenant: TenantId) -> Vec<u8> {
    keys::row(RowKind::TenantKey, &tenant.0)
}

fn lost() -> Error {
    Error::Corrupt("the key of a tenant is lost, and what was sealed with it".to_owned())
}
