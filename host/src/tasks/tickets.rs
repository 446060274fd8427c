//! Tickets of requestors that are good for one use, also after a crash.

use super::{Error, Tasks};
use crate::domain::UnixMs;
use crate::domain::requestor::Requestor;
use crate::store::tickets::Ticket;

impl Tasks {
    /// Uses a ticket of this requestor's, which is over its time at `until`; `false`: somebody has before. Durable when this returns.
    pub async fn use_once(&self, requestor: &Requestor, id: [u8; 16], until: UnixMs) -> Result<bool, Error> {
        let inner = &self.inner;
        inner.tenant_fence.admit(requestor)?;
        let used = inner.tickets.use_once(&Ticket { requestor: *requestor, id, until }).await;
        used.map_err(|error| inner.store_error(error))
    }

    /// Takes a use back of which nothing came: the next one is the first.
    pub async fn unuse(&self, requestor: &Requestor, id: [u8; 16], until: UnixMs) -> Result<(), Error> {
        let inner = &self.inner;
        let unused = inner.tickets.unuse(&Ticket { requestor: *requestor, id, until }).await;
        unused.map_err(|error| inner.store_error(error))
    }
}
