//! Ids that are good for one use.
//!
//! Owns the rows of [`RowKind::UsedToken`]: one for each id that was used, and the index of when they expire. Must not
//! know what an id is for. Invariant: of all uses of an id before its end, one is told that it is the first; another
//! requestor's id of the same bytes is another id.

use std::sync::Arc;

use super::{Error, RowKind, RowState, Store};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

/// Expiry time, tenant, requestor, id → nothing. First of all, so that one row says whether any is over its time.
const DUE: u8 = b'0';
/// Tenant, requestor, id → expiry time.
const USED: u8 = b'1';

/// Expired tokens that are removed in one step.
const SWEEP_ROWS: usize = 64;

/// An id that a requestor may use once, until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleUseToken {
    pub requestor: Requestor,
    pub id: [u8; 16],
    pub until: UnixMs,
}

impl SingleUseToken {
    fn name(&self) -> [u8; 48] {
        let mut name = [0; 48];
        let parts = [self.requestor.tenant.0, self.requestor.id.0, self.id];
        name.iter_mut().zip(parts.as_flattened()).for_each(|(to, from)| *to = *from);
        name
    }

    fn used(&self) -> Vec<u8> {
        [&[USED][..], &self.name()].concat()
    }

    fn due(&self) -> Vec<u8> {
        [&[DUE][..], &self.until.to_be_bytes(), &self.name()].concat()
    }

    /// Reads a row of the index; `None` for every other one.
    fn read_due(row: &[u8]) -> Option<Self> {
        let (until, name) = row.strip_prefix(&[DUE])?.split_first_chunk()?;
        let [tenant, requestor, id] = <[[u8; 16]; 3]>::try_from(name.as_chunks().0).ok()?;
        let requestor = Requestor { tenant: TenantId(tenant), id: RequestorId(requestor) };
        Some(Self { requestor, id, until: UnixMs::from_be_bytes(*until) })
    }

    fn removal(&self) -> [RowState; 2] {
        [(self.used(), None), (self.due(), None)]
    }
}

/// Whose row it is.
pub(super) fn tenant_of(row: &[u8]) -> Option<TenantId> {
    let (kind, rest) = row.split_first()?;
    // How tools were called is nobody's.
    if *kind == super::usage_days::TOOL_USAGE {
        return None;
    }
    let rest = if *kind == DUE { rest.get(size_of::<UnixMs>()..)? } else { rest };
    rest.first_chunk().copied().map(TenantId)
}

/// The tokens that were used and have not expired.
pub struct ReplayGuard {
    rows: Arc<dyn Store>,
}

impl ReplayGuard {
    pub fn new(rows: Arc<dyn Store>) -> Self {
        Self { rows }
    }

    /// Whether this is the first use; if it is, every other one knows from now on. Durable on return.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn use_once(&self, token: &SingleUseToken) -> Result<bool, Error> {
        let used = vec![(token.used(), Some(token.until.to_be_bytes().to_vec())), (token.due(), Some(Vec::new()))];
        match self.rows.change_rows(RowKind::UsedToken, vec![(token.used(), None)], used, None).await {
            Ok(()) => Ok(true),
            Err(Error::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes a use back: the next one is the first again. Durable on return.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn unuse(&self, token: &SingleUseToken) -> Result<(), Error> {
        self.rows.change_rows(RowKind::UsedToken, Vec::new(), token.removal().into(), None).await
    }

    /// Removes expired tokens, at most `count_max`; returns how many.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn sweep(&self, now: UnixMs, count_max: usize) -> Result<usize, Error> {
        let mut swept = 0;
        while swept < count_max {
            // One row says whether there is anything to do.
            let first = self.rows.rows(RowKind::UsedToken, None, 1).await?;
            let is_over = |row: &[u8]| SingleUseToken::read_due(row).filter(|token| token.until <= now);
            if first.first().and_then(|(row, _)| is_over(row)).is_none() {
                break;
            }
            let rows = self.rows.rows(RowKind::UsedToken, None, SWEEP_ROWS.min(count_max - swept)).await?;
            let over: Vec<_> = rows.iter().map_while(|(row, _)| is_over(row)).collect();
            let gone = over.iter().flat_map(SingleUseToken::removal).collect();
            self.rows.change_rows(RowKind::UsedToken, Vec::new(), gone, None).await?;
            swept += over.len();
        }
        Ok(swept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::{RowStore as _, TaskStore as _};

    fn token(tenant: u8, requestor: u8, id: u8, until: UnixMs) -> SingleUseToken {
        let requestor = Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([requestor; 16]) };
        SingleUseToken { requestor, id: [id; 16], until }
    }

    fn guard() -> (Arc<MemoryStore>, ReplayGuard) {
        let store = Arc::new(MemoryStore::new());
        (store.clone(), ReplayGuard::new(store))
    }

    async fn rows(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
        store.rows(RowKind::UsedToken, None, 9_999).await.unwrap()
    }

    #[tokio::test]
    async fn request_state_is_used_once_until_taken_back() {
        let (store, guard) = guard();
        let own = token(1, 2, 3, 9);
        assert!(guard.use_once(&own).await.unwrap());
        assert!(!guard.use_once(&own).await.unwrap());
        assert!(!ReplayGuard::new(store.clone()).use_once(&own).await.unwrap(), "another host sees it");
        for other in [token(2, 2, 3, 9), token(1, 3, 3, 9), token(1, 2, 4, 9)] {
            assert!(guard.use_once(&other).await.unwrap(), "{other:?}");
            guard.unuse(&other).await.unwrap();
        }
        assert!(!guard.use_once(&own).await.unwrap());
        guard.unuse(&own).await.unwrap();
        assert_eq!(rows(&store).await, []);
        assert!(guard.use_once(&own).await.unwrap());
    }

    #[tokio::test]
    async fn expired_request_states_are_swept() {
        let (store, guard) = guard();
        for id in 0..200 {
            let until = if id < 150 { 10 } else { 11 };
            assert!(guard.use_once(&token(id % 3, id % 5, id, until)).await.unwrap());
        }
        assert_eq!(guard.sweep(9, 1_000).await.unwrap(), 0);
        assert_eq!(guard.sweep(10, 100).await.unwrap(), 100);
        assert_eq!(guard.sweep(10, 100).await.unwrap(), 50);
        assert_eq!(rows(&store).await.len(), 2 * 50);
        assert!(!guard.use_once(&token(150 % 3, 0, 150, 11)).await.unwrap());
        assert_eq!(guard.sweep(11, 100).await.unwrap(), 50);
        assert_eq!(rows(&store).await, []);
    }

    #[tokio::test]
    async fn request_states_belong_to_a_tenant() {
        let (store, guard) = guard();
        let own = token(1, 2, 3, 0x0102);
        assert!(guard.use_once(&own).await.unwrap());
        let name = [[1; 16], [2; 16], [3; 16]].concat();
        let due = [&b"0\0\0\0\0\0\0\x01\x02"[..], &name].concat();
        let used = [&b"1"[..], &name].concat();
        let stored = rows(&store).await;
        assert_eq!(stored, [(due, Vec::new()), (used, vec![0, 0, 0, 0, 0, 0, 1, 2])], "the layout on the disk");
        for (row, _) in stored {
            assert_eq!(RowKind::UsedToken.tenant_of(&row), Some(own.requestor.tenant));
            for cut in 0..row.len() {
                let _ = (RowKind::UsedToken.tenant_of(&row[..cut]), SingleUseToken::read_due(&row[..cut]));
            }
        }
        store.block_tenant(own.requestor.tenant).await.unwrap();
        assert!(matches!(guard.use_once(&token(1, 2, 4, 9)).await, Err(Error::ReadOnly(_))));
        assert!(guard.use_once(&token(2, 2, 4, 9)).await.unwrap());
    }
}
