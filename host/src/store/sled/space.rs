//! Room on the disk.
//!
//! Owns the decision whether there is room for another group, and the ballast: a file that is given up when a write has failed,
//! so that there is room for opening again. Must not know what is written. Invariant: a full disk is noticed before a write,
//! because sled never recovers from a failed one.

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
pub(super) enum Room {
    Enough,
    /// Only for what gives room back.
    Removals,
    None,
}

pub(super) struct Space {
    folder: PathBuf,
    free: FreeSpace,
    free_bytes_min: u64,
    ballast_bytes: u64,
    /// Whether there was too little at the last look: then a little more than the minimum is asked for, so that the answer
    /// does not swing back and forth.
    short: bool,
}

impl Space {
    pub(super) fn new(folder: &Path, free: FreeSpace, free_bytes_min: u64, ballast_bytes: u64) -> Self {
        Self { folder: folder.to_owned(), free, free_bytes_min, ballast_bytes, short: false }
    }

    /// Looks. An unanswered question counts as no room.
    pub(super) fn room(&mut self) -> Room {
        let free = (self.free)(&self.folder).unwrap_or(0);
        let wanted = if self.short { self.free_bytes_min / 4 * 5 } else { self.free_bytes_min };
        self.short = free < wanted;
        match self.short {
            false => Room::Enough,
            true if free >= self.free_bytes_min / 2 => Room::Removals,
            true => Room::None,
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

    /// Puts the ballast (back) in place. Best effort: without it there is only the minimum of free space.
    pub(super) fn put_ballast(&self) {
        let path = self.ballast();
        let kept = fs::metadata(&path).is_ok_and(|facts| facts.len() == self.ballast_bytes);
        if kept || self.ballast_bytes == 0 {
            return;
        }
        let put = File::create(&path).and_then(|file| {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, self.ballast_bytes)?;
            file.sync_all()
        });
        if let Err(error) = put {
            tracing::warn!(%error, "the ballast file could not be written");
            self.drop_ballast();
        }
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
