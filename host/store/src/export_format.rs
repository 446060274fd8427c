//! A store as lines of JSON, the same for every engine.
//!
//! Owns the format of an export: one JSON object a line. Must not know an engine. Invariant: what one engine has
//! written, every other one reads, and writes again as the same lines behind the first; what could not be read is named
//! in it.

use std::io::{BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::{Error, record};
use crate::journal::TaskRef;
use crate::sled::Moved;
use bulkhead_domain::task::Task;

const EXPORT_FORMAT: u32 = 1;

/// One line of an export. Bytes are base64; the versioned bytes of records and outputs stay as they are.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ExportLine {
    /// The first line.
    Store {
        format: u32,
        id: String,
    },
    Task {
        /// For human readers.
        tenant: String,
        requestor: String,
        id: String,
        record: String,
        arguments: String,
        output: Option<String>,
        reserved_bytes: u64,
    },
    Row {
        row: char,
        key: String,
        value: String,
    },
    /// Something that could not be read: a rebuild leaves it out.
    Unreadable {
        what: String,
        reason: String,
    },
}

/// A task as an engine keeps it.
pub(crate) struct StoredTask {
    pub(crate) key: TaskRef,
    pub(crate) record: Vec<u8>,
    pub(crate) arguments: Vec<u8>,
    pub(crate) output: Option<Vec<u8>>,
    pub(crate) reserved_bytes: u64,
}

/// An export under way.
pub(crate) struct ExportWriter<'a> {
    out: &'a mut dyn Write,
    moved: Moved,
}

impl<'a> ExportWriter<'a> {
    /// With its first line. `id` is the database's, where it has one.
    pub(crate) fn begin(out: &'a mut dyn Write, id: &[u8]) -> Result<Self, Error> {
        let mut writer = Self { out, moved: Moved::default() };
        writer.line(&ExportLine::Store { format: EXPORT_FORMAT, id: BASE64.encode(id) })?;
        Ok(writer)
    }

    /// One whose record makes sense to this program; another one is named as lost.
    pub(crate) fn task(&mut self, task: StoredTask) -> Result<(), Error> {
        let StoredTask { key, record, arguments, output, reserved_bytes } = task;
        if let Err(error) = record::decode_task(&record) {
            return self.lost(&format!("task {}", key.id), error.to_string());
        }
        self.moved.tasks += 1;
        self.line(&ExportLine::Task {
            tenant: key.requestor.tenant.to_string(),
            requestor: key.requestor.id.to_string(),
            id: key.id.to_string(),
            record: BASE64.encode(record),
            arguments: BASE64.encode(arguments),
            output: output.map(|output| BASE64.encode(output)),
            reserved_bytes,
        })
    }

    pub(crate) fn row(&mut self, kind: u8, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.moved.rows += 1;
        let row = char::from(kind);
        self.line(&ExportLine::Row { row, key: BASE64.encode(key), value: BASE64.encode(value) })
    }

    /// Something cannot be read.
    pub(crate) fn lost(&mut self, what: &str, reason: String) -> Result<(), Error> {
        self.moved.lost.push(format!("{what}: {reason}"));
        self.line(&ExportLine::Unreadable { what: what.to_owned(), reason })
    }

    fn line(&mut self, line: &ExportLine) -> Result<(), Error> {
        let mut text = serde_json::to_vec(line).map_err(|error| cannot(&error.into()))?;
        text.push(b'\n');
        self.out.write_all(&text).map_err(|error| cannot(&error))
    }

    pub(crate) fn finish(self) -> Result<Moved, Error> {
        self.out.flush().map_err(|error| cannot(&error))?;
        Ok(self.moved)
    }
}

fn cannot(error: &std::io::Error) -> Error {
    Error::Engine(format!("the export cannot be written: {error}"))
}

/// What a line of an export has for a store.
pub(crate) enum Imported {
    /// The first line.
    Header,
    Task(Box<ImportedTask>),
    Row {
        kind: u8,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// What does not come over, and why.
    Lost(String),
}

/// A task with its record, read.
pub(crate) struct ImportedTask {
    pub(crate) task: Task,
    pub(crate) record: Vec<u8>,
    pub(crate) arguments: Vec<u8>,
    pub(crate) output: Option<Vec<u8>>,
    pub(crate) reserved_bytes: u64,
}

/// The lines of an export. Each has its number, for [`line_error`].
pub(crate) fn read_lines(lines: &mut dyn BufRead) -> impl Iterator<Item = Result<(u64, Imported), Error>> {
    (1..).zip(lines.lines()).map(|(number, line)| {
        let read = line.map_err(|error| error.to_string()).and_then(|line| read_line(&line));
        read.map(|imported| (number, imported)).map_err(|reason| line_error(number, &reason))
    })
}

/// What is wrong with a line.
pub(crate) fn line_error(number: u64, reason: &str) -> Error {
    Error::Corrupt(format!("line {number} of the export: {reason}"))
}

fn read_line(line: &str) -> Result<Imported, String> {
    Ok(match serde_json::from_str(line).map_err(|error| error.to_string())? {
        ExportLine::Store { format: EXPORT_FORMAT, .. } => Imported::Header,
        ExportLine::Store { format, .. } => return Err(format!("format {format} is newer than this program")),
        ExportLine::Unreadable { what, reason } => Imported::Lost(format!("{what}: {reason}")),
        ExportLine::Row { row, key, value } => {
            let kind = u8::try_from(row).map_err(|error| error.to_string())?;
            Imported::Row { kind, key: bytes(&key)?, value: bytes(&value)? }
        }
        ExportLine::Task { id, record, arguments, output, reserved_bytes, .. } => {
            let record = bytes(&record)?;
            let arguments = bytes(&arguments)?;
            let output = output.map(|output| bytes(&output)).transpose()?;
            let task = match record::decode_task(&record) {
                Ok(task) => task,
                Err(Error::Unreleased) => {
                    return Ok(Imported::Lost(format!("task {id}: a build before 0.1.0 wrote it")));
                }
                Err(error) => return Err(error.to_string()),
            };
            output.as_deref().map(record::check_output).transpose().map_err(|error| error.to_string())?;
            Imported::Task(Box::new(ImportedTask { task, record, arguments, output, reserved_bytes }))
        }
    })
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(text).map_err(|error| error.to_string())
}
