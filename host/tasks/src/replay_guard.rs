//! Tickets of requestors that are good for one use, also after a crash.

use super::{Error, Tasks};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_store::replay_guard::SingleUseToken;

impl Tasks {
    /// Marks an id of this requestor as used until `until`; `false` if it was used before. Durable when this returns.
    pub async fn use_once(&self, requestor: &Requestor, id: [u8; 16], until: UnixMs) -> Result<bool, Error> {
        let inner = &self.inner;
        inner.tenant_fence.admit(requestor)?;
        let used = inner.tickets.use_once(&SingleUseToken { requestor: *requestor, id, until }).await;
        used.map_err(|error| inner.store_error(error))
    }

    /// Takes a use back of which nothing came: the next one is the first.
    pub async fn unuse(&self, requestor: &Requestor, id: [u8; 16], until: UnixMs) -> Result<(), Error> {
        let inner = &self.inner;
        let unused = inner.tickets.unuse(&SingleUseToken { requestor: *requestor, id, until }).await;
        unused.map_err(|error| inner.store_error(error))
    }
}
