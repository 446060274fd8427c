//! A store from an export.
//!
//! Owns the one transaction in which that is done. Must not touch a schema that holds anything. Invariant: the schema
//! holds the whole export or nothing, however the process ends; and no host works with it meanwhile.

use std::io::BufRead;

use super::super::{Error, RowKind};
use super::committer::wait_for_lock;
use super::connection::{Connection, Values};
use super::errors::{Failure, refuse};
use super::hosts;
use super::operation::TaskHead;
use super::overlay::TaskEntry;
use super::sql::{IMPORT_JOURNAL_ROWS, IMPORT_ROWS, IS_EMPTY, Sql};
use super::writes::{self, Keys};
use super::{PostgresOptions, prepare};
use crate::export_format::{Imported, ImportedTask, line_error, read_lines};
use crate::journal::{TaskRef, layout};
use crate::sled::Moved;
use tokio_postgres::error::SqlState;

/// Lines that are sent at once.
const BATCH_LINES_MAX: u64 = 512;
/// Bytes that are sent at once, roughly.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Who has the fence of a schema that was filled by an import: no host.
const HOLDER: &[u8] = b"import";

/// Fills a schema that is empty, or not there yet, from an export. It blocks the thread while it reads.
///
/// # Errors
///
/// [`Error::Corrupt`] names the line of an export that makes no sense, [`Error::Locked`] says that a host works with
/// the schema; else a sentence. The schema stays empty in each case but [`Error::InDoubt`], when the connection broke
/// at the very end.
pub async fn rebuild(options: PostgresOptions, lines: &mut dyn BufRead) -> Result<Moved, Error> {
    let (connection, _) = prepare(&options).await?;
    wait_for_lock(&connection, &options.schema, false).await?;
    hosts::end_sharing(&connection, &options.schema).await?;
    let undone = |failure: Failure| failure.undone();
    // The lines may come from a slow disk.
    connection.batch("set idle_in_transaction_session_timeout = 0").await.map_err(undone)?;
    connection.batch("begin isolation level read committed").await.map_err(undone)?;
    let rows = connection.query_text(IS_EMPTY, &[]).await.map_err(undone)?;
    if !rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
        let schema = &options.schema;
        return Err(refuse(&format!(
            "the schema {schema} of the database holds a store already: name another one in [store] schema, or drop it first \
             (drop schema {schema} cascade)"
        )));
    }
    // A host that lost its connection, and has not noticed yet, must not go on with what comes.
    connection.query(Sql::FenceTake, &[&HOLDER]).await.map_err(undone)?;
    let moved = import(&connection, lines).await?;
    match connection.batch("commit").await {
        Ok(()) => Ok(moved),
        Err(Failure::Broken(_)) => Err(Error::InDoubt),
        Err(failure) => Err(failure.undone()),
    }
}

async fn import(connection: &Connection, lines: &mut dyn BufRead) -> Result<Moved, Error> {
    let mut moved = Moved::default();
    let mut batch = Batch::default();
    let mut last_line = 0;
    for line in read_lines(lines) {
        let (number, imported) = line?;
        last_line = number;
        match imported {
            Imported::Header => {}
            Imported::Lost(what) => moved.lost.push(what),
            Imported::Task(task) => {
                batch.task(*task);
                moved.tasks += 1;
            }
            Imported::Row { kind, key, value } => {
                batch.row(kind, key, value).map_err(|reason| line_error(number, &reason))?;
                moved.rows += 1;
            }
        }
        if number - batch.first_line >= BATCH_LINES_MAX || batch.bytes >= BATCH_BYTES_MAX {
            batch.send(connection, number).await?;
            batch = Batch { first_line: number + 1, ..Batch::default() };
        }
    }
    batch.send(connection, last_line).await?;
    Ok(moved)
}

/// Lines on their way to the server.
#[derive(Default)]
struct Batch {
    first_line: u64,
    bytes: usize,
    tasks: Vec<(TaskRef, TaskEntry)>,
    journals: Keys,
    journal_numbers: Vec<i64>,
    journal_values: Vec<Vec<u8>>,
    row_kinds: Vec<i16>,
    row_keys: Vec<Vec<u8>>,
    row_values: Vec<Vec<u8>>,
}

impl Batch {
    fn task(&mut self, imported: ImportedTask) {
        let ImportedTask { task, record, arguments, output, reserved_bytes } = imported;
        self.bytes += record.len() + arguments.len() + output.as_ref().map_or(0, Vec::len);
        let head = TaskHead::new(&task, &record, reserved_bytes);
        let entry = TaskEntry { head, record: Some(record), arguments: Some(arguments), output };
        self.tasks.push((TaskRef::of(&task), entry));
    }

    fn row(&mut self, kind: u8, key: Vec<u8>, value: Vec<u8>) -> Result<(), String> {
        self.bytes += key.len() + value.len();
        if kind == RowKind::Journal as u8 {
            let (task, number) = layout::parse_key(&key).ok_or("a row of a journal has an unreadable key")?;
            self.journals.push(&task);
            self.journal_numbers.push(i64::from(number));
            self.journal_values.push(value);
            return Ok(());
        }
        let known = RowKind::ALL.into_iter().find(|known| *known as u8 == kind);
        let known = known.ok_or_else(|| format!("this program knows no rows of kind {}", char::from(kind)))?;
        self.row_kinds.push(known as i16);
        self.row_keys.push(key);
        self.row_values.push(value);
        Ok(())
    }

    async fn send(self, connection: &Connection, last_line: u64) -> Result<(), Error> {
        let Self { first_line, tasks, journals, journal_numbers, journal_values, .. } = self;
        let refused = |failure: Failure| match &failure {
            Failure::Refused { code, .. } if code == SqlState::UNIQUE_VIOLATION.code() => Error::Corrupt(format!(
                "lines {} to {last_line} of the export: a task, an alias or a row comes twice",
                first_line.max(1)
            )),
            _ => failure.undone(),
        };
        if let Some(write) = writes::insert_tasks(tasks) {
            connection.execute(write.sql, &write.values()).await.map_err(refused)?;
        }
        if !journal_numbers.is_empty() {
            let Keys { tenants, requestors, ids } = journals;
            let values: Values<'_> = &[&tenants, &requestors, &ids, &journal_numbers, &journal_values];
            connection.query_text(IMPORT_JOURNAL_ROWS, values).await.map_err(refused)?;
        }
        if !self.row_kinds.is_empty() {
            let values: Values<'_> = &[&self.row_kinds, &self.row_keys, &self.row_values];
            connection.query_text(IMPORT_ROWS, values).await.map_err(refused)?;
        }
        Ok(())
    }
}
