//! Reads, beside the writer.
//!
//! Owns the sessions that read. Must not write. Invariant: a read that begins after a write was acknowledged sees it:
//! all go to the server that takes the writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex;
use tokio_postgres::Row;

use super::super::Error;
use super::connection::{Connection, LATE_AFTER, Values};
use super::errors::{Failure, unavailable};
use super::sql::Sql;
use super::state::Shared;

/// Sessions that read. Each takes many statements at the same time.
const READERS: usize = 2;

/// See the module.
#[derive(Default)]
pub(super) struct Readers {
    slots: [Mutex<Option<Arc<Connection>>>; READERS],
    next: AtomicUsize,
}

impl Readers {
    /// The rows of a statement. While the server cannot be reached, it is not asked.
    pub(super) async fn query(&self, shared: &Shared, sql: Sql, values: Values<'_>) -> Result<Vec<Row>, Error> {
        shared.refuse_if_away()?;
        tokio::select! {
            biased;
            rows = self.query_twice(shared, sql, values) => rows,
            // It changes nothing, and so nobody has to wait for what comes of it.
            refusal = shared.away() => Err(refusal),
        }
    }

    async fn query_twice(&self, shared: &Shared, sql: Sql, values: Values<'_>) -> Result<Vec<Row>, Error> {
        // A session that broke while it was idle is no reason to refuse.
        for _ in 0..2 {
            let connection = self.connection(shared).await?;
            match look_when_late(shared, connection.query(sql, values)).await {
                Ok(rows) => return Ok(rows),
                Err(failure) if failure.is_final() => shared.look.notify_one(),
                Err(failure) => return Err(failure.undone()),
            }
            self.forget(&connection).await;
        }
        Err(unavailable())
    }

    /// A session of the next slot.
    async fn connection(&self, shared: &Shared) -> Result<Arc<Connection>, Error> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % READERS;
        let Some(slot) = self.slots.get(index) else { return Err(unavailable()) };
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        // While others waited for this, the server may have turned out to be away.
        shared.refuse_if_away()?;
        let made = shared.connect().await.inspect_err(|_| shared.look.notify_one())?;
        Ok(Arc::clone(slot.insert(Arc::new(made))))
    }

    async fn forget(&self, broken: &Arc<Connection>) {
        for slot in &self.slots {
            let mut slot = slot.lock().await;
            if slot.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, broken)) {
                *slot = None;
            }
        }
    }

    pub(super) async fn close(&self) {
        for slot in &self.slots {
            *slot.lock().await = None;
        }
    }
}

/// An answer of the server. Where it is late, the committer finds out whether the server answers at all: a read may
/// take its time.
async fn look_when_late(
    shared: &Shared,
    answer: impl Future<Output = Result<Vec<Row>, Failure>>,
) -> Result<Vec<Row>, Failure> {
    let mut answer = std::pin::pin!(answer);
    if let Ok(rows) = tokio::time::timeout(LATE_AFTER, &mut answer).await {
        return rows;
    }
    shared.look.notify_one();
    answer.await
}
