//! Ids that are good for one use.
//!
//! Owns the rows of [`RowKind::UsedTicket`]: one for each id that was used, and the index of when they expire. Must not know what an
//! id is for. Invariant: of all uses of an id before its end, one is told that it is the first; another requestor's id of the same
//! bytes is another id.

use std::sync::Arc;

use super::{Error, RowKind, RowState, Store};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

/// Expiry time, tenant, requestor, ticket → nothing. First of all, so that one row says whether any is over its time.
const DUE: u8 = b'0';
/// Tenant, requestor, ticket → expiry time.
const USED: u8 = b'1';

/// Tickets that are removed in one step once they are over their time.
const SWEEP_ROWS: usize = 64;

/// A ticket of a requestor's, and when it is over its time: nobody may use it from then on.
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
    let (place, rest) = row.split_first()?;
    let rest = if *place == DUE { rest.get(size_of::<UnixMs>()..)? } else { rest };
    rest.first_chunk().copied().map(TenantId)
}

/// Every ticket that was used and is not over its time.
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
    pub async fn use_once(&self, ticket: &SingleUseToken) -> Result<bool, Error> {
        let used = vec![(ticket.used(), Some(ticket.until.to_be_bytes().to_vec())), (ticket.due(), Some(Vec::new()))];
        match self.rows.change_rows(RowKind::UsedTicket, vec![(ticket.used(), None)], used).await {
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
    pub async fn unuse(&self, ticket: &SingleUseToken) -> Result<(), Error> {
        self.rows.change_rows(RowKind::UsedTicket, Vec::new(), ticket.removal().into()).await
    }

    /// Forgets tickets that are over their time, at most `count_max`; gives how many.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn sweep(&self, now: UnixMs, count_max: usize) -> Result<usize, Error> {
        let mut swept = 0;
        while swept < count_max {
            // One row says whether there is anything to do.
            let first = self.rows.rows(RowKind::UsedTicket, None, 1).await?;
            let is_over = |row: &[u8]| SingleUseToken::read_due(row).filter(|ticket| ticket.until <= now);
            if first.first().and_then(|(row, _)| is_over(row)).is_none() {
                break;
            }
            let rows = self.rows.rows(RowKind::UsedTicket, None, SWEEP_ROWS.min(count_max - swept)).await?;
            let over: Vec<_> = rows.iter().map_while(|(row, _)| is_over(row)).collect();
            let gone = over.iter().flat_map(SingleUseToken::removal).collect();
            self.rows.change_rows(RowKind::UsedTicket, Vec::new(), gone).await?;
            swept += over.len();
        }
        Ok(swept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryStore;
    use crate::{RowStore as _, TaskStore as _};

    fn ticket(tenant: u8, requestor: u8, id: u8, until: UnixMs) -> SingleUseToken {
        let requestor = Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([requestor; 16]) };
        SingleUseToken { requestor, id: [id; 16], until }
    }

    fn tickets() -> (Arc<MemoryStore>, ReplayGuard) {
        let store = Arc::new(MemoryStore::new());
        (store.clone(), ReplayGuard::new(store))
    }

    async fn rows(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
        store.rows(RowKind::UsedTicket, None, 9_999).await.unwrap()
    }

    #[tokio::test]
    async fn request_state_ticket_is_used_once_until_taken_back() {
        let (store, tickets) = tickets();
        let own = ticket(1, 2, 3, 9);
        assert!(tickets.use_once(&own).await.unwrap());
        assert!(!tickets.use_once(&own).await.unwrap());
        assert!(!ReplayGuard::new(store.clone()).use_once(&own).await.unwrap(), "another host sees it");
        for other in [ticket(2, 2, 3, 9), ticket(1, 3, 3, 9), ticket(1, 2, 4, 9)] {
            assert!(tickets.use_once(&other).await.unwrap(), "{other:?}");
            tickets.unuse(&other).await.unwrap();
        }
        assert!(!tickets.use_once(&own).await.unwrap());
        tickets.unuse(&own).await.unwrap();
        assert_eq!(rows(&store).await, []);
        assert!(tickets.use_once(&own).await.unwrap());
    }

    #[tokio::test]
    async fn expired_request_state_tickets_are_swept() {
        let (store, tickets) = tickets();
        for id in 0..200 {
            let until = if id < 150 { 10 } else { 11 };
            assert!(tickets.use_once(&ticket(id % 3, id % 5, id, until)).await.unwrap());
        }
        assert_eq!(tickets.sweep(9, 1_000).await.unwrap(), 0);
        assert_eq!(tickets.sweep(10, 100).await.unwrap(), 100);
        assert_eq!(tickets.sweep(10, 100).await.unwrap(), 50);
        assert_eq!(rows(&store).await.len(), 2 * 50);
        assert!(!tickets.use_once(&ticket(150 % 3, 0, 150, 11)).await.unwrap());
        assert_eq!(tickets.sweep(11, 100).await.unwrap(), 50);
        assert_eq!(rows(&store).await, []);
    }

    #[tokio::test]
    async fn request_state_tickets_belong_to_a_tenant() {
        let (store, tickets) = tickets();
        let own = ticket(1, 2, 3, 0x0102);
        assert!(tickets.use_once(&own).await.unwrap());
        let name = [[1; 16], [2; 16], [3; 16]].concat();
        let (due, used) = ([&b"0\0\0\0\0\0\0\x01\x02"[..], &name].concat(), [&b"1"[..], &name].concat());
        let stored = rows(&store).await;
        assert_eq!(stored, [(due, Vec::new()), (used, vec![0, 0, 0, 0, 0, 0, 1, 2])], "the layout on the disk");
        for (row, _) in stored {
            assert_eq!(RowKind::UsedTicket.tenant_of(&row), Some(own.requestor.tenant));
            for cut in 0..row.len() {
                let _ = (RowKind::UsedTicket.tenant_of(&row[..cut]), SingleUseToken::read_due(&row[..cut]));
            }
        }
        store.block_tenant(own.requestor.tenant).await.unwrap();
        assert!(matches!(tickets.use_once(&ticket(1, 2, 4, 9)).await, Err(Error::ReadOnly(_))));
        assert!(tickets.use_once(&ticket(2, 2, 4, 9)).await.unwrap());
    }
}
