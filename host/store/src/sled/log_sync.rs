//! The sync behind sled's writes.
//!
//! Owns `sync_file_range` as every process of this program sees it. sled calls it after each write to its log and takes
//! the bytes for durable then: it acknowledges flushes, and it reuses segments whose rows it has moved.
//! sync_file_range(2) promises no such thing: a disk has what was overwritten in place, and not what was appended until
//! the file system writes out the file's new length. After a power cut the new place of a row would be missing, and its
//! old place would hold something else. sled has no option for it, so the call means `fdatasync` here. Must not be
//! called by this crate. Invariant: what sled takes for stable is on the disk, so it overwrites only what nobody needs
//! any more.

use std::ffi::{c_int, c_uint};
use std::fs::File;

use super::super::Error;
use super::files::{if_there, io_error};
use super::layout::Layout;

type SyncFileRange = unsafe extern "C" fn(c_int, i64, i64, c_uint) -> c_int;

/// Takes the place of the C library's function of that name, which nothing but sled calls.
#[expect(unsafe_code, reason = "sled has no other way to be told how to sync, and offers no option")]
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(file: c_int, _offset: i64, _bytes: i64, _flags: c_uint) -> c_int {
    #[cfg(test)]
    tests::CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the call takes a number and no memory; an unknown one is an error. The C library's own sets `errno`,
    // which sled reads.
    unsafe { libc::fdatasync(file) }
}

/// Makes sure that the linker took this definition. To be called before sled opens a database.
///
/// # Errors
///
/// sled calls the C library's.
pub(super) fn check_definition() -> Result<(), Error> {
    if std::ptr::fn_addr_eq(sync_file_range as SyncFileRange, libc::sync_file_range as SyncFileRange) {
        return Ok(());
    }
    Err(Error::Engine(
        "this program was linked in a way that lets no database survive a power cut: build it anew".to_owned(),
    ))
}

/// Syncs what a killed process left with the operating system, before the engine builds on it.
///
/// # Errors
///
/// The disk failed, or is full.
pub(super) fn sync_remains(layout: &Layout) -> Result<(), Error> {
    let path = layout.database_file();
    let synced = if_there(File::open(&path).and_then(|file| file.sync_data()));
    synced.map(drop).map_err(|error| io_error("sync", &path, &error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) static CALLS: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn sled_syncs_by_this_definition() {
        let folder = tempfile::tempdir().unwrap();
        let db = ::sled::Config::new().path(folder.path()).flush_every_ms(None).open().unwrap();
        let calls = CALLS.load(Ordering::Relaxed);
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
        assert!(CALLS.load(Ordering::Relaxed) > calls, "sled calls the C library's sync_file_range");
    }
}
