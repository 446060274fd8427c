//! Reading a damaged database as far as it can be read.
//!
//! Owns the copies on which doubtful databases are opened (sled overwrites what lies behind a damaged place in its log
//! while it opens) and the reading around damaged pages. Must not share a copy with another process, not even one that
//! outlived the host that started it. Invariant: whatever is tried, the files that the operator has stay as they are.

use std::fs::{self, File};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::super::Error;
use super::database;
use super::files::{create_folder, io_error};
use super::layout::Layout;
use super::shortage::{panic_text, shortage};
use super::space::statvfs;
use super::state;

/// Bytes of a database that is copied to be examined; a larger one is examined where it lies, since copying it at every
/// start would take longer than it is worth.
const COPY_BYTES_MAX: u64 = 2 << 30;
/// What has to stay free beside a copy.
const FREE_BYTES_MIN: u64 = 64 << 20;
const CACHE_BYTES: u64 = 32 << 20;
/// How finely a stretch between two damaged pages is searched: into 2^this parts.
const SEARCH_DEPTH: u32 = 10;
/// What the names of folders with copies begin with.
const SCRATCH: &str = "scratch";

/// Gives `act` a copy of the database, which is gone afterwards; the original where there is no room for one.
pub(super) fn on_a_copy<R>(layout: &Layout, act: impl FnOnce(&Layout) -> Result<R, Error>) -> Result<R, Error> {
    match copy(layout, true)? {
        Some(scratch) => act(&scratch.layout),
        None => {
            state::remove_mark(&layout.state)?;
            act(layout)
        }
    }
}

/// Opens what can be opened of a damaged database and passes its tree to `act`.
pub(super) fn on_what_opens<R>(
    layout: &Layout,
    act: impl FnOnce(&Layout, &::sled::Tree) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut refusal = None;
    for with_snapshot in [true, false] {
        let no_room = || Error::Engine("there is no room for a copy of the damaged database".to_owned());
        let scratch = copy(layout, with_snapshot)?.ok_or_else(no_room)?;
        match guarded(|| database::engine(&scratch.layout.database, CACHE_BYTES)) {
            Ok(db) => {
                let result = guarded(|| act(layout, &db));
                drop(db);
                return result;
            }
            Err(error) => refusal = Some(error),
        }
    }
    let reason = refusal.map_or_else(String::new, |error| error.to_string());
    Err(Error::Corrupt(format!("no part of the database can be opened, put a backup back ({reason})")))
}

/// Runs what may panic on damaged bytes, or for want of threads or memory.
pub(super) fn guarded<R>(act: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|payload| {
        let damaged = || Error::Corrupt("the engine stopped while reading".to_owned());
        Err(shortage(panic_text(&*payload)).unwrap_or_else(damaged))
    })
}

/// A copy of a database, in a folder of its own that goes with it.
struct Scratch {
    folder: PathBuf,
    layout: Layout,
    /// Held as long as a process works on the copy: a folder whose lock is free was left behind by a process that was
    /// killed.
    _lock: File,
}

impl Scratch {
    fn new(layout: &Layout) -> Result<Self, Error> {
        let random = getrandom::u64().map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
        let folder = layout.store.join(format!("{SCRATCH}-{random:016x}"));
        create_folder(&folder)?;
        let path = folder.join("lock");
        let locked = File::create(&path).and_then(|file| Ok(file.try_lock().map(|()| file)?));
        let lock = locked.map_err(|error| io_error("lock", &path, &error))?;
        let layout = Layout { database: folder.join("sled"), ..layout.clone() };
        Ok(Self { folder, layout, _lock: lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed before the next copy is made.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes copies that no process uses. Best effort: they only cost disk space.
pub(super) fn remove_stale(store: &Path) {
    for entry in fs::read_dir(store).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            continue;
        }
        let lock = File::open(entry.path().join("lock"));
        if lock.is_ok_and(|lock| lock.try_lock().is_err()) {
            continue;
        }
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, "an old copy of the database could not be removed");
        }
    }
}

/// Copies the database; `None` when it is too large or there is no room.
fn copy(layout: &Layout, with_snapshot: bool) -> Result<Option<Scratch>, Error> {
    remove_stale(&layout.store);
    let bytes = fs::metadata(layout.database_file()).map_or(0, |facts| facts.len());
    let free = statvfs()(&layout.store).map_err(|error| io_error("look at", &layout.store, &error))?;
    if bytes > COPY_BYTES_MAX || free < bytes + FREE_BYTES_MIN {
        return Ok(None);
    }
    let scratch = Scratch::new(layout)?;
    let wanted = |name: &str| {
        !database::is_unfinished_snapshot(name) && (with_snapshot || !name.starts_with(database::SNAPSHOT_PREFIX))
    };
    copy_folder(&layout.database, &scratch.layout.database, &wanted)
        .map_err(|error| io_error("copy", &layout.database, &error))?;
    Ok(Some(scratch))
}

fn copy_folder(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to.join(name), wanted)?;
        } else if wanted(&name.to_string_lossy()) {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// What is done with each key and value.
pub(super) type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Error> + 'a;

/// Walks over every row that can be read, in no particular order, and returns the number of places where something
/// cannot.
pub(super) fn each_readable(tree: &::sled::Tree, act: &mut RowVisitor<'_>) -> Result<u64, Error> {
    Walk { tree, act, gaps: 0 }.stretch(Bound::Unbounded, Bound::Unbounded, SEARCH_DEPTH)
}

struct Walk<'a> {
    tree: &'a ::sled::Tree,
    act: &'a mut RowVisitor<'a>,
    gaps: u64,
}

impl Walk<'_> {
    /// Forwards to the first damaged page, backwards to the last one, then what lies between them.
    fn stretch(&mut self, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>, depth: u32) -> Result<u64, Error> {
        let Some(first) = self.run(low.clone(), high.clone(), true)? else { return Ok(self.gaps) };
        let low = first.map_or(low, Bound::Excluded);
        let Some(last) = self.run(low.clone(), high.clone(), false)? else { return Ok(self.gaps) };
        let high = last.map_or(high, Bound::Excluded);
        match middle(&low, &high).filter(|_| depth > 0) {
            Some(middle) => {
                self.stretch(low, Bound::Excluded(middle.clone()), depth - 1)?;
                self.stretch(Bound::Included(middle), high, depth - 1)
            }
            None => {
                self.gaps += 1;
                Ok(self.gaps)
            }
        }
    }

    /// Walks one way. `None` at the end; the last key that was read (if any) when a page is damaged.
    fn run(
        &mut self,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
        forwards: bool,
    ) -> Result<Option<Option<Vec<u8>>>, Error> {
        let mut rows = self.tree.range::<Vec<u8>, _>((low, high));
        let mut reached = None;
        loop {
            match if forwards { rows.next() } else { rows.next_back() } {
                Some(Ok((key, value))) => {
                    (self.act)(&key, &value)?;
                    reached = Some(key.to_vec());
                }
                Some(Err(_)) => return Ok(Some(reached)),
                None => return Ok(None),
            }
        }
    }
}

/// A key halfway between two, if there is one within eight bytes of where they part.
fn middle(low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> Option<Vec<u8>> {
    let bytes = |bound: &Bound<Vec<u8>>, open: u8| match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.clone(),
        Bound::Unbounded => vec![open; 8],
    };
    let low = bytes(low, 0);
    let high = bytes(high, u8::MAX);
    let common = low.iter().zip(&high).take_while(|(one, other)| one == other).count();
    let eight = |key: &[u8]| {
        let mut part = [0; 8];
        part.iter_mut().zip(key.iter().skip(common)).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(part)
    };
    let from = eight(&low);
    let to = eight(&high);
    let half = to.checked_sub(from)? / 2;
    let mut key: Vec<u8> = low.iter().take(common).copied().collect();
    key.extend_from_slice(&(from + half).to_be_bytes());
    (half > 0).then_some(key)
}
