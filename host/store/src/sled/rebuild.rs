//! A new database in the place of the present one.
//!
//! Owns the making of a database from an export, and the moment in which folders change places. Must not change a
//! database in place: the old folder stays beside the new one. Invariant: whenever the process ends, the next opening
//! finds the whole old store or the whole new one; and what an export holds, a rebuild restores, with all indexes made
//! anew.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::super::{Error, Ledger};
use super::backup::finalize_copy;
use super::change_capture::Guard;
use super::check::label;
use super::committer::Committer;
use super::database::{self, DataState, GroupRow};
use super::errors::{closed, engine_error};
use super::export::{export_layout, export_tree};
use super::files::{Files, NewFile, create_folder, if_there, io_error, sync_folder};
use super::group::Totals;
use super::head::RecordHeader;
use super::keys::{self, Part, TaskKey};
use super::layout::Layout;
use super::moved::{Moved, Rebuilt};
use super::open;
use super::operation::Operation;
use super::salvage::guarded;
use super::space::FreeRoom;
use super::state::StateFile;
use super::{SledStore, create, place_now, place_record};
use crate::export_format::{Imported, ImportedTask, line_error, read_lines};

const CACHE_BYTES: u64 = 32 << 20;
/// What the names of old stores begin with.
const OLD_STORE: &str = "store.old";
/// What a rebuild writes at most, as a multiple of what there is: the export, which is text, and the new store.
const COPIES: u64 = 3;

/// Makes a new database from an export, or (without one) from what is still readable of the present database. The old
/// folder stays beside the new one, under the name that is returned.
///
/// # Errors
///
/// [`Error::Locked`] when a host runs on the directory; [`Error::Corrupt`] names the line of an export that makes no
/// sense. The present store is left as it was in both cases.
pub fn rebuild(data: &Path, from: Option<&mut dyn BufRead>) -> Result<Rebuilt, Error> {
    let layout = Layout::new(data);
    // With an export it does not matter what is there.
    let _lock = if from.is_some() { open::lock_any(&layout) } else { open::lock(&layout) }?;
    let fresh = clear(&layout)?;
    let moved = match from {
        Some(lines) => import(&fresh, lines)?,
        None => copy(&fresh, |out| export_layout(&layout, out))?,
    };
    database::wait_until_closed(&fresh)?;
    Ok((moved, swap(&layout, &fresh)?))
}

/// Makes a new database from what is readable of the present one while the store is in use: writers wait until it is
/// done, readers only while the two change places. When it fails, the old database goes on.
///
/// # Errors
///
/// [`Error::ReadOnly`] when the store cannot write at the moment; [`Error::Engine`] when there is no room for a second
/// copy, or while a backup is under way.
pub async fn rebuild_running(store: &SledStore) -> Result<Rebuilt, Error> {
    let guard = Guard::begin(&store.shared.change_capture, &store.files)?;
    store.ask(|reply| Operation::Rebuild { guard, reply }).await
}

impl Committer {
    /// The whole of a rebuild, between two groups.
    pub(super) fn rebuild(&mut self) -> Result<Rebuilt, Error> {
        if self.room() != FreeRoom::Enough {
            return Err(Error::ReadOnly(self.shared.read_only().unwrap_or_default()));
        }
        let fresh = clear(&self.layout)?;
        let bytes = COPIES * bytes_below(&self.layout.store)?;
        if !self.space.has_room_for(bytes) {
            let mebibytes = bytes.div_ceil(1 << 20);
            let data = self.layout.store.display();
            return Err(Error::Engine(format!("a rebuild needs {mebibytes} MiB of free space beside {data}")));
        }
        let made = guarded(|| self.make(&fresh)).and_then(|(moved, last, ledger)| {
            let old = self.change_places(&fresh, last)?;
            self.shared.with_ledger(|present| *present = ledger);
            Ok((moved, old))
        });
        match &made {
            Ok((moved, _)) => tracing::info!(moved.tasks, moved.rows, "the database was made anew"),
            Err(error) => {
                tracing::error!(%error, "the database was not made anew");
                // What stays is removed by the next rebuild. Where neither has the name, the new one is what there is
                // to open.
                if self.layout.store.exists() {
                    let _ = remove_folder(&fresh.store);
                }
            }
        }
        made
    }

    /// Fills a new database and reads it back.
    fn make(&self, fresh: &Layout) -> Result<(Moved, GroupRow, Ledger), Error> {
        let Some(database) = &self.database else { return Err(closed()) };
        let expected = self.last.census();
        let moved = copy(fresh, |out| export_tree(&database.tree, &self.shared.view, &self.files, &expected, out))?;
        let DataState::Database(state) = database::find(fresh)? else { return Err(closed()) };
        let ledger = open::examine_rows(fresh, &state)?.ledger;
        let made = database::database(fresh, CACHE_BYTES, &state)?;
        Ok((moved, made.last, ledger))
    }

    /// Closes the present database, puts the new one in its place and opens that; the present one again when this
    /// fails.
    fn change_places(&mut self, fresh: &Layout, last: GroupRow) -> Result<PathBuf, Error> {
        database::wait_until_closed(fresh)?;
        let DataState::Database(state) = database::find(fresh)? else { return Err(closed()) };
        let state = StateFile::open(&fresh.state, state.at(last.group))?;
        let present = self.files.clone();
        let other = Files::open(fresh.files.clone())?;
        present.while_moving(&other, || {
            self.shared.view.take_away();
            self.space.drop_ballast();
            let layout = self.layout.clone();
            let swapped =
                self.leave().and_then(|()| database::wait_until_closed(&layout)).and_then(|()| swap(&layout, fresh));
            let outcome = match swapped {
                Ok(old) => {
                    self.state = state.moved_to(layout.state);
                    self.resume(last).map(|()| old)
                }
                Err(error) => {
                    let unclean = self.state.write(self.last.group, false);
                    self.resume(self.last).and(unclean).and(Err(error))
                }
            };
            // Readers have the tree again: writing the ballast may take a while.
            self.space.put_ballast();
            outcome
        })
    }
}

/// Whether a data directory has a store, or the whole of a new one that only lacks its name.
pub fn is_there(data: &Path) -> bool {
    let layout = Layout::new(data);
    layout.store.exists() || layout.rebuilt().exists()
}

/// Removes every store that a rebuild has left beside the present one and returns their number. To be called by who
/// holds the data directory.
pub fn remove_old_stores(data: &Path) -> Result<u64, Error> {
    let cannot = |error: std::io::Error| io_error("list", data, &error);
    let mut removed = 0;
    for entry in fs::read_dir(data).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        if entry.file_name().to_string_lossy().starts_with(OLD_STORE) {
            remove_folder(&entry.path())?;
            removed += 1;
        }
    }
    sync_folder(data).map_err(|error| io_error("sync", data, &error))?;
    Ok(removed)
}

/// An empty folder for the new store.
fn clear(layout: &Layout) -> Result<Layout, Error> {
    let fresh = layout.with_store(layout.rebuilt());
    remove_folder(&fresh.store)?;
    create_folder(&fresh.store)?;
    Ok(fresh)
}

/// Fills a new store by way of a file, because a damaged database may stop in the middle: then the whole rebuild does.
fn copy(fresh: &Layout, export: impl FnOnce(&mut dyn Write) -> Result<Moved, Error>) -> Result<Moved, Error> {
    let path = fresh.store.join("export");
    let cannot = |error: std::io::Error| io_error("write", &path, &error);
    let mut out = BufWriter::new(fs::File::create(&path).map_err(cannot)?);
    let exported = export(&mut out)?;
    drop(out);
    let imported = import(fresh, &mut BufReader::new(fs::File::open(&path).map_err(cannot)?))?;
    fs::remove_file(&path).map_err(cannot)?;
    Ok(Moved { lost: exported.lost, ..imported })
}

fn bytes_below(folder: &Path) -> Result<u64, Error> {
    let cannot = |error: std::io::Error| io_error("look at", folder, &error);
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        bytes += match entry.metadata() {
            Ok(facts) if facts.is_dir() => bytes_below(&entry.path())?,
            Ok(facts) => facts.len(),
            // Payload files come and go.
            Err(_) => 0,
        };
    }
    Ok(bytes)
}

fn remove_folder(path: &Path) -> Result<(), Error> {
    if_there(fs::remove_dir_all(path)).map(drop).map_err(|error| io_error("remove", path, &error))
}

/// Gives the present folder a name that is not taken, and the new one the name of the present. Both or neither.
fn swap(layout: &Layout, fresh: &Layout) -> Result<PathBuf, Error> {
    let free = (1..).map(|number| layout.store.with_file_name(format!("{OLD_STORE}-{number}")));
    let old = free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| layout.store.with_file_name(OLD_STORE));
    let rename = |from: &Path, to: &Path| fs::rename(from, to).map_err(|error| io_error("rename", from, &error));
    rename(&layout.store, &old)?;
    // A process that ends here is completed by `open::finish_rebuild`.
    rename(&fresh.store, &layout.store).inspect_err(|_| drop(rename(&old, &layout.store)))?;
    let data = layout.store.parent().unwrap_or(&layout.store);
    sync_folder(data).map_err(|error| {
        // Nothing may be acknowledged in a folder whose name the disk may forget.
        let _ = rename(&layout.store, &fresh.store).and_then(|()| rename(&old, &layout.store));
        io_error("sync", data, &error)
    })?;
    Ok(old)
}

/// Fills a new store from an export.
fn import(layout: &Layout, lines: &mut dyn BufRead) -> Result<Moved, Error> {
    let (database, state) = create(layout, CACHE_BYTES)?;
    drop(state);
    let files = Files::open(layout.files.clone())?;
    let mut import = Import { tree: database.tree.clone(), files, totals: Totals::default(), taken: HashSet::new() };
    let mut moved = Moved::default();
    for line in read_lines(lines) {
        let (number, imported) = line?;
        match imported {
            Imported::Header => {}
            Imported::Lost(what) => moved.lost.push(what),
            Imported::Row { kind, key, value } => {
                let key = [&[kind], key.as_slice()].concat();
                import.put(vec![(key, super::head::with_checksum(value))])?;
                moved.rows += 1;
            }
            Imported::Task(task) => {
                import.task(*task).map_err(|error| line_error(number, &error.to_string()))?;
                moved.tasks += 1;
            }
        }
    }
    let Totals { rows, sum } = import.totals;
    let last = GroupRow { group: database.last.group + 1, rows, sum, ..database.last };
    import.tree.insert(keys::GROUP, last.encode()?).map_err(engine_error)?;
    drop(database);
    finalize_copy(import.tree, layout, &last)?;
    Ok(moved)
}

struct Import {
    tree: ::sled::Tree,
    files: Files,
    totals: Totals,
    /// Aliases and tasks so far: an export that was put together by hand may name one twice.
    taken: HashSet<Vec<u8>>,
}

impl Import {
    fn put(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        let mut batch = ::sled::Batch::default();
        for (key, value) in rows {
            if !self.taken.insert(key.clone()) {
                return Err(Error::Corrupt(format!("a key of kind {} comes twice", label(&key))));
            }
            self.totals.count(&key, &value);
            batch.insert(key, value);
        }
        self.tree.apply_batch(batch).map_err(engine_error)
    }

    fn task(&mut self, imported: ImportedTask) -> Result<(), Error> {
        let ImportedTask { task, record, arguments, output, reserved_bytes } = imported;
        let key = TaskKey::new(&task.requestor, task.id);
        let mut payloads = super::operation::Payloads::default();
        let (record, chunked) = place_record(record);
        payloads.chunks.extend(chunked);
        let arguments = place_now(&self.files, Part::Arguments, arguments, &mut payloads)?;
        let mut head = RecordHeader::new(&task, record, arguments, reserved_bytes);
        head.output = output.map(|output| place_now(&self.files, Part::Output, output, &mut payloads)).transpose()?;
        let mut rows = head.index_rows(&key)?;
        rows.push((key.task(), head.encode()?));
        for chunked in &payloads.chunks {
            rows.extend(chunked.rows(&key));
        }
        self.put(rows)?;
        payloads.files.into_iter().for_each(NewFile::keep);
        Ok(())
    }
}
