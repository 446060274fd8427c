//! Examining every row of a store, for operators.
//!
//! Owns what is looked at: what the server cannot know. Must not change anything. Invariant: every record, output and
//! journal is read, and the columns of a task, by which it is found, are those that its record calls for. Pages and
//! indexes are `pg_amcheck`'s.

use tokio_postgres::Row;

use super::super::{Error, RowKind, record};
use super::PostgresStore;
use super::look::task_head;
use super::operation::TaskHead;
use super::snapshot::{Snapshot, bytes, maybe_bytes};
use super::sql::JOURNALS_WITHOUT_TASK;
use super::writes::task_ref;
use crate::journal::check::JournalCheck;
use crate::sled::{PROBLEMS_MAX, Report};

/// Checks a store, also while it is in use.
///
/// # Errors
///
/// The server cannot be reached. Damage is not an error but part of the report.
pub async fn check(store: &PostgresStore) -> Result<Report, Error> {
    let snapshot = Snapshot::begin(store).await?;
    let mut report = Report::default();
    let tasks = snapshot.each_task(|row| {
        match examine_task(row) {
            Ok(bytes) => {
                report.tasks += 1;
                report.bytes += bytes;
            }
            Err(error) => report.problem(format!("task {}: {error}", task_ref(row, 0)?.id)),
        }
        Ok(())
    });
    tasks.await?;
    let problems_max = i64::try_from(PROBLEMS_MAX).unwrap_or(i64::MAX);
    for row in &snapshot.query_text(JOURNALS_WITHOUT_TASK, &[&problems_max]).await? {
        report.problem(format!("the journal of task {} belongs to no task", task_ref(row, 0)?.id));
    }
    let mut journals = JournalCheck::default();
    for kind in RowKind::ALL {
        if kind == RowKind::Journal {
            let rows = snapshot.each_journal_row(|task, number, value| {
                report.rows += 1;
                journals.row(task, number, value, true, &mut report);
                Ok(())
            });
            rows.await?;
        } else {
            let count = |_: &[u8], _: &[u8]| {
                report.rows += 1;
                Ok(())
            };
            snapshot.each_row(kind, count).await?;
        }
    }
    journals.end(&mut report);
    Ok(report)
}

/// The bytes of a task that is as it has to be.
fn examine_task(row: &Row) -> Result<u64, Error> {
    let key = task_ref(row, 0)?;
    let head = task_head(row)?;
    let stored = bytes(row, 15)?;
    let task = record::decode_task(stored)?;
    maybe_bytes(row, 17)?.map(record::check_output).transpose()?;
    let expected = TaskHead {
        // A task that waits to continue keeps the lease before.
        lease: task.lease.or(head.lease),
        arguments_bytes: head.arguments_bytes,
        output_bytes: head.output_bytes,
        version: None,
        ..TaskHead::new(&task, stored, head.reserved_bytes)
    };
    if (task.id, task.requestor) != (key.id, key.requestor) || expected != head {
        return Err(Error::Corrupt("the record and its columns differ".to_owned()));
    }
    Ok(head.record_bytes + head.arguments_bytes + head.output_bytes.unwrap_or_default())
}
