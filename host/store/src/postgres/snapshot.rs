//! The whole of a store at one moment.
//!
//! Owns the session that reads it, page by page. Must not write, and holds no writer up. Invariant: what is read is
//! what one moment had, however long that takes, and comes in the order of the keys.

use tokio_postgres::Row;

use super::super::{Error, RowKind};
use super::PostgresStore;
use super::connection::{Connection, Values};
use super::errors::Failure;
use super::sql::{Sql, WHOLE_TASKS};
use super::writes::{task_ref, unreadable};
use crate::journal::TaskRef;

/// Tasks that are read at once, with all that belongs to them.
const PAGE_TASKS_MAX: i64 = 16;
/// Small rows that are read at once.
const PAGE_ROWS_MAX: i64 = 512;

/// See the module.
pub(super) struct Snapshot {
    connection: Connection,
}

impl Snapshot {
    pub(super) async fn begin(store: &PostgresStore) -> Result<Self, Error> {
        if let Some(trouble @ (super::Trouble::Unreachable | super::Trouble::Lost)) = store.shared.trouble() {
            return Err(trouble.error());
        }
        let connection = store.shared.connect().await?;
        // Whoever takes the lines, a pipe or a slow disk, may take longer over a page than a session of the host ever
        // rests.
        let begun = connection.batch("set idle_in_transaction_session_timeout = 0").await;
        begun.map_err(|failure| failure.undone())?;
        let begun = connection.batch("begin isolation level repeatable read read only").await;
        begun.map_err(|failure| failure.undone())?;
        Ok(Self { connection })
    }

    /// A statement that was not prepared.
    pub(super) async fn query_text(&self, text: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
        self.connection.query_text(text, values).await.map_err(|failure| failure.undone())
    }

    /// Each task, in the columns of [`WHOLE_TASKS`].
    pub(super) async fn each_task(&self, mut act: impl FnMut(&Row) -> Result<(), Error>) -> Result<(), Error> {
        let mut after: Option<TaskRef> = None;
        loop {
            let name = after.map(|after| [after.requestor.tenant.0, after.requestor.id.0, after.id.0]);
            // Less than every name.
            let part = |index: usize| name.as_ref().and_then(|name| name.get(index)).map_or(&[][..], |part| &part[..]);
            let rows = self.query_text(WHOLE_TASKS, &[&part(0), &part(1), &part(2), &PAGE_TASKS_MAX]).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some(task_ref(last, 0)?);
            rows.iter().try_for_each(&mut act)?;
        }
    }

    /// Each row of a kind but journals: its key and its value.
    pub(super) async fn each_row(
        &self,
        kind: RowKind,
        mut act: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let kind = kind as i16;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let read = match &after {
                None => self.connection.query(Sql::RowsFirst, &[&kind, &PAGE_ROWS_MAX]).await,
                Some(after) => self.connection.query(Sql::RowsAfter, &[&kind, after, &PAGE_ROWS_MAX]).await,
            };
            let rows = read.map_err(|failure: Failure| failure.undone())?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some(bytes(last, 0)?.to_vec());
            for row in &rows {
                act(bytes(row, 0)?, bytes(row, 1)?)?;
            }
        }
    }

    /// Each row of the journals: whose it is, its number and its value.
    pub(super) async fn each_journal_row(
        &self,
        mut act: impl FnMut(&TaskRef, u32, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut after: Option<(TaskRef, i64)> = None;
        loop {
            let name = after.map(|(task, _)| [task.requestor.tenant.0, task.requestor.id.0, task.id.0]);
            let part = |index: usize| name.as_ref().and_then(|name| name.get(index)).map_or(&[][..], |part| &part[..]);
            let last = after.map_or(-1, |(_, number)| number);
            let values: Values<'_> = &[&part(0), &part(1), &part(2), &last, &PAGE_ROWS_MAX];
            let rows = self.connection.query(Sql::JournalsAfter, values).await;
            let rows = rows.map_err(|failure: Failure| failure.undone())?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some((task_ref(last, 0)?, number(last)?));
            for row in &rows {
                let number = u32::try_from(number(row)?).unwrap_or(u32::MAX);
                act(&task_ref(row, 0)?, number, bytes(row, 4)?)?;
            }
        }
    }
}

fn number(row: &Row) -> Result<i64, Error> {
    row.try_get(3).map_err(|error| unreadable(&error))
}

pub(super) fn bytes(row: &Row, index: usize) -> Result<&[u8], Error> {
    row.try_get(index).map_err(|error| unreadable(&error))
}

pub(super) fn maybe_bytes(row: &Row, index: usize) -> Result<Option<&[u8]>, Error> {
    row.try_get(index).map_err(|error| unreadable(&error))
}
