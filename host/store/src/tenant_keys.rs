//! The keys that tenants' data is sealed with, whichever engine keeps them.
//!
//! Owns how a tenant's key is drawn, sealed with the operator's and opened again, and the ones that were needed so far.
//! Must not know where a row lies, or what is sealed. Invariant: no key that an operator's key does not open is ever
//! used.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{Error, RowKind, RowStore};
use crate::sled::Rekeyed;
use crate::vault::{self, SealingKey, VaultKeys};
use bulkhead_domain::requestor::TenantId;

const LABEL: &[u8] = b"key of a tenant";
/// Keys that are read at once.
const PAGE_ROWS: usize = 256;

/// The operator's keys, and those of tenants that were needed so far.
#[derive(Default)]
pub(crate) struct TenantKeys {
    /// Without any, nothing is sealed.
    keys: Option<VaultKeys>,
    known: Mutex<HashMap<TenantId, SealingKey>>,
}

impl TenantKeys {
    pub(crate) fn new(keys: Option<VaultKeys>) -> Self {
        Self { keys, known: Mutex::default() }
    }

    /// Whether anything is to be sealed.
    pub(crate) fn is_sealing(&self) -> bool {
        self.keys.is_some()
    }

    /// The operator's keys.
    ///
    /// # Errors
    ///
    /// [`Error::Sealed`]: there are none.
    pub(crate) fn operator(&self) -> Result<&VaultKeys, Error> {
        let missing = || Error::Sealed("there is no key in [encryption] of the configuration".to_owned());
        self.keys.as_ref().ok_or_else(missing)
    }

    /// The key of a tenant, if it was needed before.
    pub(crate) fn known(&self, tenant: TenantId) -> Option<SealingKey> {
        self.known.lock().get(&tenant).cloned()
    }

    /// Opens the key in a row, and remembers it.
    ///
    /// # Errors
    ///
    /// [`Error::Sealed`] when these keys do not open it.
    pub(crate) fn learn(&self, tenant: TenantId, wrapped: &[u8]) -> Result<SealingKey, Error> {
        let key = self.unwrap(tenant, wrapped)?;
        self.known.lock().insert(tenant, key.clone());
        Ok(key)
    }

    /// The same, to see that it can be opened.
    pub(crate) fn check(&self, row_key: &[u8], wrapped: &[u8]) -> Result<(), Error> {
        self.unwrap(TenantId(row_key.try_into().map_err(|_| lost())?), wrapped).map(drop)
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

    /// A new key for a tenant, as it is kept.
    pub(crate) fn draw(&self, tenant: TenantId) -> Result<Vec<u8>, Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
        let wrapped = self.operator()?.seal(&[LABEL, &tenant.0], &secret);
        wrapped.map_err(|error| Error::Engine(error.to_string()))
    }

    /// The row is about to go: no writer may use its key any more.
    pub(crate) fn forget(&self, row_key: &[u8]) {
        if let Ok(tenant) = row_key.try_into() {
            self.known.lock().remove(&TenantId(tenant));
        }
    }
}

/// What was sealed with a key that is not there any more.
pub(crate) fn lost() -> Error {
    Error::Corrupt("the key of a tenant is lost, and what was sealed with it".to_owned())
}

/// Seals the key of each tenant with the operator's first key, where an older one did.
///
/// # Errors
///
/// [`Error::Sealed`] when no key was given, or none opens a tenant's.
pub(crate) async fn rekey(store: &dyn RowStore, keys: &VaultKeys) -> Result<Rekeyed, Error> {
    let mut done = Rekeyed::default();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store.rows(RowKind::TenantKey, after.as_deref(), PAGE_ROWS).await?;
        let Some((last, _)) = page.last() else { return Ok(done) };
        after = Some(last.clone());
        for (key, wrapped) in page {
            done.tenants += 1;
            if !keys.is_outdated(&wrapped) {
                continue;
            }
            let secret = keys.open(&[LABEL, &key], &wrapped).map_err(|error| Error::Sealed(error.to_string()))?;
            let again = keys.seal(&[LABEL, &key], &secret).map_err(|error| Error::Engine(error.to_string()))?;
            let expected = vec![(key.clone(), Some(wrapped))];
            match store.change_rows(RowKind::TenantKey, expected, vec![(key, Some(again))], None).await {
                Ok(()) => done.sealed_again += 1,
                // The tenant went away meanwhile.
                Err(Error::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
