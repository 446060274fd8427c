//! Room on the disk.
//!
//! Owns the decision whether there is room for another group, and the ballast: a file that is given up for opening the
//! database on a full disk, at a start or after a failed write. Must not know what is written. Invariant: a full disk
//! is noticed before a write, because sled never recovers from a failed one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Answers how many bytes are free where a path lies.
pub type FreeSpace = Arc<dyn Fn(&Path) -> io::Result<u64> + Send + Sync>;

/// What the operating system says is free for an ordinary user.
pub(super) fn statvfs() -> FreeSpace {
    Arc::new(|path| {
        let facts = rustix::fs::statvfs(path)?;
        if facts.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    })
}

/// How much may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeRoom {
    Enough,
    /// Only for what gives room back.
    Removals,
    None,
}

pub(super) struct DiskSpace {
    folder: PathBuf,
    free: FreeSpace,
    free_bytes_min: u64,
    ballast_bytes: u64,
    /// Whether there was too little at the last look: then a little more than the minimum is asked for, so that the
    /// answer does not swing back and forth.
    short: bool,
}

impl DiskSpace {
    pub(super) fn new(folder: &Path, free: FreeSpace, free_bytes_min: u64, ballast_bytes: u64) -> Self {
        Self { folder: folder.to_owned(), free, free_bytes_min, ballast_bytes, short: false }
    }

    /// Looks. An unanswered question counts as no room.
    pub(super) fn room(&mut self) -> FreeRoom {
        let free = self.free();
        let wanted = if self.short { self.free_bytes_min / 4 * 5 } else { self.free_bytes_min };
        self.short = free < wanted;
        match self.short {
            false => FreeRoom::Enough,
            true if free >= self.free_bytes_min / 2 => FreeRoom::Removals,
            true => FreeRoom::None,
        }
    }

    /// Whether so many bytes could be written without coming near the minimum.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        (self.free)(&self.folder).is_ok_and(|free| free >= self.free_bytes_min.saturating_add(bytes))
    }

    /// Why there is no room, for operators.
    pub(super) fn reason(&self) -> String {
        let mebibytes = self.free_bytes_min.div_ceil(1 << 20);
        format!(
            "less than {mebibytes} MiB are free for writing at {}: make room, writing goes on by itself",
            self.folder.display()
        )
    }

    /// Gives the ballast up if without that there may be too little room for opening the database: the engine writes
    /// when it opens.
    pub(super) fn make_room_to_open(&self) -> bool {
        let given_up = self.free() < self.ballast_bytes && self.ballast().exists();
        if given_up {
            tracing::warn!("the disk is nearly full: the ballast is given up to open the database");
            self.drop_ballast();
        }
        given_up
    }

    /// Puts the ballast (back) in place, or as much of it as there is room for. Best effort: without it there is only
    /// the minimum of free space.
    pub(super) fn put_ballast(&self) {
        let path = self.ballast();
        let there = fs::metadata(&path).map_or(0, |facts| facts.len());
        let bytes = self.ballast_bytes.min(there.saturating_add(self.free()));
        if bytes <= there {
            return;
        }
        let put = File::options().create(true).append(true).open(&path).and_then(|file| {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
            file.sync_all()
        });
        if let Err(error) = put {
            tracing::warn!(%error, "the ballast file could not be written");
            self.drop_ballast();
        }
    }

    fn free(&self) -> u64 {
        (self.free)(&self.folder).unwrap_or(0)
    }

    /// Gives the ballast up.
    pub(super) fn drop_ballast(&self) {
        // Nothing depends on whether it was there.
        let _ = fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}
