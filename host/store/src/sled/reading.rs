//! Reading the engine's files without the engine.
//!
//! Owns the examination that opens nothing: it reads the log and the snapshot as sled 0.34 would when it opens them,
//! follows its tree, and looks at every row. Must not write, and must not call a database damaged: sled alone can say
//! what it makes of such bytes, on a copy. Invariant: what is found sound here is what sled recovers from the same
//! bytes, to the last row; everything else is a [`Doubt`], also what sled would get over.
//!
//! A page is read with the checksum of each of its messages, and where the log says that it lies. Between them, the sum
//! over all rows says whether a page is an older one. Sled's own writes when it opens (the end of the last segment,
//! segments behind it, a new snapshot) touch nothing that is read here.

mod bytes;
mod log;
mod nodes;
mod recovery;
mod tree;

use std::fs::{self, File};
use std::num::NonZero;

use rustix::process::{Resource, getrlimit};

use super::database::compare;
use super::layout::Layout;
use super::state::State;
use super::store_counts::StoreCounts;

/// What keeps a database from being known as sound by reading alone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Doubt(&'static str);

impl std::fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0)
    }
}

impl From<std::io::Error> for Doubt {
    fn from(_: std::io::Error) -> Self {
        Self("a file cannot be read")
    }
}

/// What sled writes of its configuration, which is never another one here; behind it comes a checksum.
const CONFIGURATION: &[u8] = b"segment_size: 524288\nuse_compression: false\nversion: 0.34\n";

/// Reads every row of a database and compares it with what was counted while writing.
pub(super) fn examine(layout: &Layout, state: &State) -> Result<StoreCounts, Doubt> {
    examine_configuration(layout)?;
    let file = File::open(layout.database_file())?;
    if !may_grow(&file)? {
        return Err(Doubt("the engine may not write at the end of its log"));
    }
    let pages = recovery::pages(layout, &file)?;
    let examination = tree::examine(&file, &pages)?;
    let last = examination.group().ok_or(Doubt("there is no row of the last group"))?;
    compare(&last, state).map_err(|_| Doubt("it is not the database of this state"))?;
    let counted = examination.conclude(layout, &last);
    counted.map_err(|_| Doubt("the rows are not those that were counted"))
}

/// Threads that a reading is worth.
const THREADS_MAX: usize = 4;

/// Does work on the parts of a list, on a thread each.
fn in_parallel<T: Sync, R: Send>(list: &[T], work: impl Fn(&[T]) -> Result<R, Doubt> + Sync) -> Result<Vec<R>, Doubt> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let share = list.len().div_ceil(threads).max(1);
    let work = &work;
    std::thread::scope(|scope| {
        let begin = |part| std::thread::Builder::new().spawn_scoped(scope, move || work(part));
        let parts = list.chunks(share).map(begin).collect::<Result<Vec<_>, _>>()?;
        parts.into_iter().map(|part| part.join().unwrap_or(Err(Doubt("a thread that reads panicked")))).collect()
    })
}

/// Whether a file may become larger by what the engine adds at once. Where it may not, a probe that copies is ended by
/// the signal that would end the host.
fn may_grow(file: &File) -> Result<bool, Doubt> {
    let bytes = file.metadata()?.len() + log::SEGMENT_BYTES as u64;
    Ok(getrlimit(Resource::Fsize).current.is_none_or(|limit| limit >= bytes))
}

fn examine_configuration(layout: &Layout) -> Result<(), Doubt> {
    let read = fs::read(layout.database.join("conf"))?;
    let expected = [CONFIGURATION, &crc32fast::hash(CONFIGURATION).to_le_bytes()].concat();
    if read != expected {
        return Err(Doubt("the engine's configuration is another one"));
    }
    // Rows are too small for a page to be kept in a file of its own.
    match fs::read_dir(layout.database.join("blobs"))?.next() {
        None => Ok(()),
        Some(_) => Err(Doubt("a page lies in a file of its own")),
    }
}

#[cfg(test)]
mod tests;
