//! The keys of tenants, as they are made and changed.

use serde::{Deserialize, Serialize};

use super::super::{Error, RowKind, RowStore as _};
use super::SledStore;
use super::sealing::LABEL;
use crate::vault::SealingKey;
use bulkhead_domain::requestor::TenantId;

const PAGE_ROWS: usize = 256;

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
        let Some(keys) = &sealing.keys else { return Ok(None) };
        if let Some(key) = sealing.of(tenant, &self.shared.view)? {
            return Ok(Some(key));
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
        let wrapped = keys.seal(&[LABEL, &tenant.0], &secret).map_err(|error| Error::Engine(error.to_string()))?;
        match self.put_row(RowKind::TenantKey, &tenant.0, wrapped, true).await {
            // Somebody else was faster.
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
    let sealing = &store.shared.sealing;
    let keys = sealing.keys.as_ref();
    let keys = keys.ok_or_else(|| Error::Sealed("there is no key in [encryption] of the configuration".to_owned()))?;
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
