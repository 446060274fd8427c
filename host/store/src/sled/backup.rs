//! A consistent copy of a store that is in use.
//!
//! Owns the copying: all rows are read while writing goes on, then the rows that changed meanwhile are read again
//! between two groups. Must not stop the writers for longer than that. Invariant: the copy is the state between two
//! groups, with every file that its records name.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::super::Error;
use super::SledStore;
use super::change_capture::{Changes, Guard};
use super::database::{self, GroupRow};
use super::errors::{engine_error, refuse};
use super::files::{self, FileName, Files};
use super::head::{PayloadLocation, RecordHeader};
use super::keys::{self, kind};
use super::layout::Layout;
use super::open;
use super::operation::Operation;
use super::state::{State, StateFile};
use super::store_counts::CountBuilder;
use super::view::View;
use crate::record::decode_checked;

const PAGE_ROWS: usize = 512;
const COPY_CACHE_BYTES: u64 = 16 << 20;

/// Copies a running store into the new data directory `target`, which can be served, or put in the place of a damaged
/// one.
///
/// # Errors
///
/// [`Error::Exists`] when there is something at `target` already.
pub async fn backup(store: &SledStore, target: &Path) -> Result<(), Error> {
    if target.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::Exists);
    }
    let guard = Guard::begin(&store.shared.change_capture, &store.files)?;
    let view = Arc::clone(&store.shared.view);
    let files = store.files.clone();
    let to = target.to_owned();
    let copy = join(tokio::task::spawn_blocking(move || Copy::begin(&view, files, &to)).await)?;
    let changes = store.ask(|reply| Operation::EndBackup { reply }).await?;
    // The guard goes last: until then every file that the copy may need stays where it is.
    join(tokio::task::spawn_blocking(move || copy.finish(changes, guard)).await)
}

fn join<T>(joined: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    joined.unwrap_or_else(|error| Err(Error::Engine(format!("the backup broke: {error}"))))
}

struct Copy {
    _lock: open::DirectoryLock,
    layout: Layout,
    tree: ::sled::Tree,
    from: Files,
    to: Files,
    copied: HashSet<FileName>,
}

impl Copy {
    fn begin(view: &View, from: Files, target: &Path) -> Result<Self, Error> {
        let layout = Layout::new(target);
        let lock = open::lock(&layout)?;
        let tree = (*database::engine(&layout.database, COPY_CACHE_BYTES)?).clone();
        let to = Files::open(layout.files.clone())?;
        let mut copy = Self { _lock: lock, layout, tree, from, to, copied: HashSet::new() };
        let mut start = Vec::new();
        loop {
            let rows = view.scan(&[], &start, PAGE_ROWS)?;
            let Some((last, _)) = rows.last() else { break };
            start = keys::successor(last);
            copy.write(rows.into_iter().map(|(key, value)| (key.to_vec(), Some(value))).collect())?;
        }
        Ok(copy)
    }

    fn write(&mut self, rows: Vec<(Vec<u8>, Option<::sled::IVec>)>) -> Result<(), Error> {
        let mut batch = ::sled::Batch::default();
        for (key, value) in rows {
            match value {
                Some(value) => {
                    if key.first() == Some(&kind::TASK) {
                        self.copy_files(&RecordHeader::decode(&value)?)?;
                    }
                    batch.insert(key, value);
                }
                None => batch.remove(key),
            }
        }
        self.tree.apply_batch(batch).map_err(engine_error)
    }

    fn copy_files(&mut self, head: &RecordHeader) -> Result<(), Error> {
        for (_, location) in head.payloads() {
            if let PayloadLocation::File { name, .. } = location
                && self.copied.insert(*name)
                && let Some(bytes) = self.from.read(name)?
            {
                self.to.put(name, &bytes)?;
            }
        }
        Ok(())
    }

    fn finish(mut self, changes: Changes, guard: Guard) -> Result<(), Error> {
        for page in changes.rows.chunks(PAGE_ROWS) {
            self.write(page.to_vec())?;
        }
        drop(guard);
        let named = CountBuilder::of(&self.tree)?.named;
        self.to.remove_orphans(&files::orphans(&self.layout.files, &named)?)?;
        let row = self.tree.get(keys::GROUP).map_err(engine_error)?;
        let last: GroupRow = decode_checked(&row.ok_or_else(|| refuse("the copy has no row of its own"))?, "database")?;
        finalize_copy(self.tree, &self.layout, &last)
    }
}

/// Makes a newly written database durable and writes the state that belongs to it.
pub(super) fn finalize_copy(db: ::sled::Tree, layout: &Layout, last: &GroupRow) -> Result<(), Error> {
    db.flush().map_err(engine_error)?;
    drop(db);
    let path = layout.database_file();
    let synced = std::fs::File::options().write(true).open(&path).and_then(|file| file.sync_all());
    synced.map_err(|error| super::files::io_error("sync", &path, &error))?;
    StateFile::open(&layout.state, State::new(last.id).at(last.group))?.write(last.group, true)
}
