//! The store as an export.
//!
//! Owns what of the database goes into it. Must not change the store. Invariant: everything that can be read is in the
//! export, and what cannot is named in it.

use std::io::Write;
use std::path::Path;

use super::super::Error;
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
use crate::export_format::{ExportWriter, StoredTask};
use crate::record::decode_checked;

/// Writes everything readable of a store that no host uses, damaged or not, as lines of JSON.
pub fn export(data: &Path, out: &mut dyn Write) -> Result<Moved, Error> {
    let layout = Layout::new(data);
    let _lock = lock_existing(&layout)?;
    export_layout(&layout, out)
}

/// Writes everything of a store that is in use.
pub fn export_running(store: &SledStore, out: &mut dyn Write) -> Result<Moved, Error> {
    Export::begin(&store.shared.view, &store.files, out)?.whole()
}

pub(super) fn export_layout(layout: &Layout, out: &mut dyn Write) -> Result<Moved, Error> {
    if !layout.database_file().exists() {
        return Err(Error::Engine(format!("there is no database at {}", layout.database.display())));
    }
    let damage = guarded(|| open::examine(layout)).err();
    on_what_opens(layout, |layout, tree| {
        let view = View::default();
        view.give(tree.clone());
        let files = Files::open(layout.files.clone())?;
        let export = Export::begin(&view, &files, out)?;
        match damage {
            None => export.whole(),
            Some(damage) => export.readable(tree, &damage),
        }
    })
}

/// Writes what can be read of a database that is open, damaged or not, and compares it with what was counted while
/// writing.
pub(super) fn export_tree(
    tree: &::sled::Tree,
    view: &View,
    files: &Files,
    expected: &Totals,
    out: &mut dyn Write,
) -> Result<Moved, Error> {
    let mut export = Export::begin(view, files, out)?;
    let mut found = Totals::default();
    let gaps = each_readable(tree, &mut |key, value| {
        if key != keys::GROUP {
            found.count(key, value);
        }
        export.row(key, value)
    })?;
    if gaps > 0 {
        export.writer.lost("rows", format!("unreadable in {gaps} places"))?;
    } else if found != *expected {
        export.writer.lost("rows", "some are not as they were written".to_owned())?;
    }
    export.writer.finish()
}

/// An export under way.
struct Export<'a> {
    view: &'a View,
    files: &'a Files,
    writer: ExportWriter<'a>,
}

impl<'a> Export<'a> {
    fn begin(view: &'a View, files: &'a Files, out: &'a mut dyn Write) -> Result<Self, Error> {
        let row = view.get(keys::GROUP).ok().flatten();
        let group = row.and_then(|row| decode_checked::<GroupRow>(&row, "database").ok());
        let id = group.map(|row| row.id);
        let writer = ExportWriter::begin(out, id.as_ref().map_or(&[], |id| id))?;
        Ok(Self { view, files, writer })
    }

    /// All of a sound database, in key order.
    fn whole(mut self) -> Result<Moved, Error> {
        each_row(self.view, &[], |key, value| self.row(key, value))?;
        self.writer.finish()
    }

    /// What can be read of a damaged one.
    fn readable(mut self, tree: &::sled::Tree, damage: &Error) -> Result<Moved, Error> {
        self.writer.lost("database", damage.to_string())?;
        let gaps = each_readable(tree, &mut |key, value| self.row(key, value))?;
        if gaps > 0 {
            self.writer.lost("rows", format!("unreadable in {gaps} places"))?;
        }
        self.writer.finish()
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match key.first() {
            Some(&kind::TASK) => {
                let Some(task) = keys::parse_task(key) else {
                    return self.writer.lost("row of kind T", "its key is unreadable".to_owned());
                };
                match stored_task(self.view, self.files, &task, value) {
                    Ok(stored) => self.writer.task(stored),
                    Err(error) => self.writer.lost(&format!("task {}", task.id), error.to_string()),
                }
            }
            Some(&(kind::LIST | kind::EXPIRY | kind::UNFINISHED | kind::ALIAS | kind::PAYLOAD)) => Ok(()),
            _ if key == keys::GROUP => Ok(()),
            first => match verify_checksum(value) {
                Ok(value) => {
                    let kind = first.copied().unwrap_or_default();
                    self.writer.row(kind, key.get(1..).unwrap_or_default(), &value)
                }
                Err(error) => self.writer.lost(&format!("row of kind {}", label(key)), error.to_string()),
            },
        }
    }
}

fn stored_task(view: &View, files: &Files, key: &TaskKey, value: &[u8]) -> Result<StoredTask, Error> {
    let head = RecordHeader::decode(value)?;
    let Payloads { record, arguments, output } = Payloads::read(view, files, key)?;
    Ok(StoredTask { key: key.name(), record, arguments, output, reserved_bytes: head.reserved_bytes })
}
