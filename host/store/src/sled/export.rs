//! A store as lines of JSON.
//!
//! Owns the export format (one JSON object a line). Must not change the store. Invariant: everything that can be read is in the
//! export, and what cannot is named in it.

use std::io::Write;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::super::{Error, record};
use super::SledStore;
use super::check::{Payloads, each_row, label, lock_existing};
use super::database::GroupRow;
use super::files::Files;
use super::group::Totals;
use super::head::{RecordHeader, verify_checksum};
use super::keys::{self, TaskKey, kind};
use super::layout::Layout;
use super::moved::Moved;
use super::open;
use super::salvage::{each_readable, guarded, on_what_opens};
use super::view::View;
use crate::record::decode_checked;

/// One line of an export. Bytes are base64; the versioned bytes of records and outputs stay as they are.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ExportLine {
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

pub(super) const EXPORT_FORMAT: u32 = 1;

/// Writes everything readable of a store that no host uses, damaged or not, as lines of JSON.
pub fn export(data: &Path, out: &mut dyn Write) -> Result<Moved, Error> {
    let layout = Layout::new(data);
    let _lock = lock_existing(&layout)?;
    export_layout(&layout, out)
}

/// Writes everything of a store that is in use.
pub fn export_running(store: &SledStore, out: &mut dyn Write) -> Result<Moved, Error> {
    Export { view: &store.shared.view, files: &store.files, out, moved: Moved::default() }.whole()
}

pub(super) fn export_layout(layout: &Layout, out: &mut dyn Write) -> Result<Moved, Error> {
    if !layout.database_file().exists() {
        return Err(Error::Engine(format!("there is no database at {}", layout.database.display())));
    }
    let damage = guarded(|| open::examine(layout)).err();
    on_what_opens(layout, |layout, tree| {
        let view = View::default();
        view.give(tree.clone());
        let export = Export { view: &view, files: &Files::open(layout.files.clone())?, out, moved: Moved::default() };
        match damage {
            None => export.whole(),
            Some(damage) => export.readable(tree, &damage),
        }
    })
}

/// Writes what can be read of a database that is open, damaged or not, and compares it with what was counted while writing.
pub(super) fn export_tree(
    tree: &::sled::Tree,
    view: &View,
    files: &Files,
    expected: &Totals,
    out: &mut dyn Write,
) -> Result<Moved, Error> {
    let mut export = Export { view, files, out, moved: Moved::default() };
    export.header()?;
    let mut found = Totals::default();
    let gaps = each_readable(tree, &mut |key, value| {
        if key != keys::GROUP {
            found.count(key, value);
        }
        export.row(key, value)
    })?;
    if gaps > 0 {
        export.lost("rows", format!("unreadable in {gaps} places"))?;
    } else if found != *expected {
        export.lost("rows", "some are not as they were written".to_owned())?;
    }
    export.finish()
}

/// An export under way.
struct Export<'a> {
    view: &'a View,
    files: &'a Files,
    out: &'a mut dyn Write,
    moved: Moved,
}

impl Export<'_> {
    /// All of a sound database, in key order.
    fn whole(mut self) -> Result<Moved, Error> {
        self.header()?;
        each_row(self.view, &[], |key, value| self.row(key, value))?;
        self.finish()
    }

    /// What can be read of a damaged one.
    fn readable(mut self, tree: &::sled::Tree, damage: &Error) -> Result<Moved, Error> {
        self.header()?;
        self.lost("database", damage.to_string())?;
        let gaps = each_readable(tree, &mut |key, value| self.row(key, value))?;
        if gaps > 0 {
            self.lost("rows", format!("unreadable in {gaps} places"))?;
        }
        self.finish()
    }

    fn header(&mut self) -> Result<(), Error> {
        let row = self.view.get(keys::GROUP).ok().flatten();
        let group = row.and_then(|row| decode_checked::<GroupRow>(&row, "database").ok());
        let id = group.map_or(String::new(), |row| BASE64.encode(row.id));
        self.line(&ExportLine::Store { format: EXPORT_FORMAT, id })
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let line = match key.first() {
            Some(&kind::TASK) => match keys::parse_task(key) {
                Some(task) => export_task(self.view, self.files, &task, value),
                None => Err(Error::Corrupt("its key is unreadable".to_owned())),
            },
            Some(&(kind::LIST | kind::EXPIRY | kind::UNFINISHED | kind::ALIAS | kind::PAYLOAD)) => return Ok(()),
            _ if key == keys::GROUP => return Ok(()),
            _ => verify_checksum(value).map(|value| ExportLine::Row {
                row: label(key),
                key: BASE64.encode(key.get(1..).unwrap_or_default()),
                value: BASE64.encode(value),
            }),
        };
        match line {
            Ok(line) => {
                match line {
                    ExportLine::Task { .. } => self.moved.tasks += 1,
                    _ => self.moved.rows += 1,
                }
                self.line(&line)
            }
            Err(error) => {
                let task = keys::parse_task(key).map(|key| format!("task {}", key.id));
                self.lost(&task.unwrap_or_else(|| format!("row of kind {}", label(key))), error.to_string())
            }
        }
    }

    fn lost(&mut self, what: &str, reason: String) -> Result<(), Error> {
        self.moved.lost.push(format!("{what}: {reason}"));
        self.line(&ExportLine::Unreadable { what: what.to_owned(), reason })
    }

    fn line(&mut self, line: &ExportLine) -> Result<(), Error> {
        let cannot = |error: std::io::Error| Error::Engine(format!("the export cannot be written: {error}"));
        let mut text = serde_json::to_vec(line).map_err(|error| cannot(error.into()))?;
        text.push(b'\n');
        self.out.write_all(&text).map_err(cannot)
    }

    fn finish(self) -> Result<Moved, Error> {
        self.out.flush().map_err(|error| Error::Engine(format!("the export cannot be written: {error}")))?;
        Ok(self.moved)
    }
}

fn export_task(view: &View, files: &Files, key: &TaskKey, value: &[u8]) -> Result<ExportLine, Error> {
    let head = RecordHeader::decode(value)?;
    let Payloads { record, arguments, output } = Payloads::read(view, files, key)?;
    record::decode_task(&record)?;
    Ok(ExportLine::Task {
        tenant: key.requestor.tenant.to_string(),
        requestor: key.requestor.id.to_string(),
        id: key.id.to_string(),
        record: BASE64.encode(record),
        arguments: BASE64.encode(arguments),
        output: output.map(|output| BASE64.encode(output)),
        reserved_bytes: head.reserved_bytes,
    })
}
