//! The store as an export.
//!
//! Owns the order of its lines, which is that of a store on a disk: by kind, then by key. Must not change the store.
//! Invariant: an export is of one moment, also of a store that is in use.

use std::io::Write;

use super::super::{Error, RowKind};
use super::PostgresStore;
use super::look::task_head;
use super::snapshot::{Snapshot, bytes, maybe_bytes};
use super::writes::task_ref;
use crate::export_format::{ExportWriter, StoredTask};
use crate::journal::layout;
use crate::sled::Moved;
use tokio_postgres::Row;

/// The letter of tasks among those of [`RowKind`].
const TASKS: u8 = b'T';

/// Writes everything of a store as lines of JSON. It blocks the thread while it writes.
///
/// # Errors
///
/// The server cannot be reached, or the lines cannot be written.
pub async fn export(store: &PostgresStore, out: &mut dyn Write) -> Result<Moved, Error> {
    let snapshot = Snapshot::begin(store).await?;
    // The schema is all that names a database, and it does not outlast a move.
    let mut writer = ExportWriter::begin(out, &[])?;
    let mut kinds = RowKind::ALL;
    kinds.sort_unstable_by_key(|kind| *kind as u8);
    let (before, behind) = kinds.split_at(kinds.partition_point(|kind| (*kind as u8) < TASKS));
    for kind in before {
        export_rows(&snapshot, *kind, &mut writer).await?;
    }
    snapshot.each_task(|row| writer.task(stored_task(row)?)).await?;
    for kind in behind {
        export_rows(&snapshot, *kind, &mut writer).await?;
    }
    writer.finish()
}

async fn export_rows(snapshot: &Snapshot, kind: RowKind, writer: &mut ExportWriter<'_>) -> Result<(), Error> {
    if kind == RowKind::Journal {
        let journals = snapshot
            .each_journal_row(|task, number, value| writer.row(kind as u8, &layout::row_key(task, number), value));
        return journals.await;
    }
    snapshot.each_row(kind, |key, value| writer.row(kind as u8, key, value)).await
}

fn stored_task(row: &Row) -> Result<StoredTask, Error> {
    Ok(StoredTask {
        key: task_ref(row, 0)?,
        record: bytes(row, 15)?.to_vec(),
        arguments: bytes(row, 16)?.to_vec(),
        output: maybe_bytes(row, 17)?.map(<[u8]>::to_vec),
        reserved_bytes: task_head(row)?.reserved_bytes,
    })
}
