//! What is stored, counted from the rows.
//!
//! Must not write. Invariant: what is counted is what the committer counts as it writes.

use super::super::{Error, Ledger, Usage};
use super::connection::Connection;
use super::sql::Sql;
use super::writes::{task_ref, unreadable};
use crate::journal::JournalHead;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

/// Counts every task and journal.
pub(super) async fn count(connection: &Connection) -> Result<Ledger, Error> {
    let mut ledger = Ledger::default();
    let tasks = connection.query(Sql::UsageOfTasks, &[]).await.map_err(|failure| failure.undone())?;
    for row in &tasks {
        let part = |index: usize| -> Result<[u8; 16], Error> {
            let bytes: &[u8] = row.try_get(index).map_err(|error| unreadable(&error))?;
            bytes.try_into().map_err(|_| Error::Corrupt("a task in the database has an unreadable name".to_owned()))
        };
        let number = |index: usize| -> Result<u64, Error> {
            let number: i64 = row.try_get(index).map_err(|error| unreadable(&error))?;
            Ok(number.cast_unsigned())
        };
        let requestor = Requestor { tenant: TenantId(part(0)?), id: RequestorId(part(1)?) };
        ledger.add(&requestor, Usage { tasks: number(2)?, bytes: number(3)? });
    }
    let heads = connection.query(Sql::HeadsOfJournals, &[]).await.map_err(|failure| failure.undone())?;
    for row in &heads {
        let value: &[u8] = row.try_get(3).map_err(|error| unreadable(&error))?;
        // One that cannot be read was never counted.
        if let Ok(head) = JournalHead::decode(value) {
            ledger.add(&task_ref(row, 0)?.requestor, Usage { tasks: 0, bytes: head.bytes });
        }
    }
    Ok(ledger)
}
