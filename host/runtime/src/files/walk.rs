//! How much is below a directory.
//!
//! Owns the walk through it. Invariants: each folder costs the same, however deep it lies, and a walk holds a bounded
//! number of descriptors; it never leaves the directory, whatever is renamed meanwhile.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// What every entry counts beside its bytes, so that empty files are not free.
pub(super) const ENTRY_BYTES: u64 = 4096;

/// Folders above the present one that stay open. Those further up are opened again from below.
const OPEN_MAX: usize = 32;

/// What a walk came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    /// Folders that were opened for it.
    pub(super) opens: u64,
}

/// What is below a directory; not more than a little beyond `enough`. Links count as themselves, and a file with
/// several names once; what is mounted there is not counted.
pub(super) fn measure(path: &Path, enough: u64) -> io::Result<Measured> {
    let mut walk = Walk { bytes: 0, opens: 1, seen: HashSet::new(), way: Vec::new() };
    walk.enter(OwnedFd::from(File::open(path)?))?;
    while let Some(depth) = walk.way.len().checked_sub(1) {
        if walk.bytes > enough {
            break;
        }
        match walk.way.get_mut(depth).and_then(|folder| folder.below.pop()) {
            Some(name) => walk.descend(&name)?,
            None => walk.ascend()?,
        }
    }
    Ok(Measured { bytes: walk.bytes, opens: walk.opens })
}

struct Walk {
    bytes: u64,
    opens: u64,
    /// Files with several names.
    seen: HashSet<u64>,
    /// From the directory to where the walk is.
    way: Vec<Folder>,
}

struct Folder {
    /// Which one it is.
    device: u64,
    inode: u64,
    /// `None`: too far above.
    opened: Option<OwnedFd>,
    /// What is still to be looked into.
    below: Vec<CString>,
}

impl Walk {
    /// Counts what is in a folder, and goes on there.
    fn enter(&mut self, opened: OwnedFd) -> io::Result<()> {
        let this = rustix::fs::fstat(&opened)?;
        let mut below = Vec::new();
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let found = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(found) = unless_gone(found)? else { continue };
            self.bytes = self.bytes.saturating_add(ENTRY_BYTES);
            if FileType::from_raw_mode(found.st_mode).is_dir() {
                if found.st_dev == this.st_dev {
                    below.push(name.to_owned());
                }
            } else if self.is_new(&found) {
                self.bytes = self.bytes.saturating_add(u64::try_from(found.st_size).unwrap_or(0));
            }
        }
        self.way.push(Folder { device: this.st_dev, inode: this.st_ino, opened: Some(opened), below });
        if let Some(above) = self.way.len().checked_sub(OPEN_MAX + 1).and_then(|at| self.way.get_mut(at)) {
            above.opened = None;
        }
        Ok(())
    }

    fn is_new(&mut self, found: &Stat) -> bool {
        found.st_nlink < 2 || self.seen.insert(found.st_ino)
    }

    fn descend(&mut self, name: &CStr) -> io::Result<()> {
        let Some(above) = self.way.last().and_then(|folder| folder.opened.as_ref()) else { return Err(moved()) };
        self.opens += 1;
        match unless_gone(open_below(above, name))? {
            Some(opened) => self.enter(opened),
            None => Ok(()),
        }
    }

    /// Back to the folder above, which is opened again if it is not open any more.
    fn ascend(&mut self) -> io::Result<()> {
        let Some(left) = self.way.pop() else { return Ok(()) };
        let Some(above) = self.way.last_mut().filter(|above| above.opened.is_none()) else { return Ok(()) };
        let from = left.opened.ok_or_else(moved)?;
        self.opens += 1;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&from, c"..", flags, Mode::empty())?;
        // A folder that somebody has put elsewhere leads elsewhere.
        let found = rustix::fs::fstat(&opened)?;
        if (found.st_dev, found.st_ino) != (above.device, above.inode) {
            return Err(moved());
        }
        above.opened = Some(opened);
        Ok(())
    }
}

fn moved() -> io::Error {
    io::Error::other("a folder was moved while it was measured")
}

/// A link that a guest puts in the way is not followed.
fn open_below(above: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let way = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match rustix::fs::openat2(above.as_fd(), name, flags, Mode::empty(), way) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(Errno::NOENT),
            opened => return opened,
        }
    }
}

fn unless_gone<T>(found: Result<T, Errno>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(path: &Path) -> u64 {
        measure(path, u64::MAX).unwrap().bytes
    }

    /// Folders below each other, as a guest makes them, which goes from one to the next; returns the last one.
    fn nest(path: &Path, name: &str, depth: u64) -> OwnedFd {
        let mut at = OwnedFd::from(File::open(path).unwrap());
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        }
        at
    }

    /// Removes them from the deepest one up: other tools cannot remove paths this deep.
    fn remove(mut at: OwnedFd, name: &str, depth: u64) {
        for _ in 0..depth {
            at = rustix::fs::openat(&at, c"..", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
            rustix::fs::unlinkat(&at, name, AtFlags::REMOVEDIR).unwrap();
        }
    }

    #[test]
    fn directory_walk_opens_each_folder_twice_at_most() {
        const DEPTH: u64 = 20_000;
        let folder = tempfile::tempdir().unwrap();
        let bottom = nest(folder.path(), "d", DEPTH);
        let measured = measure(folder.path(), u64::MAX).unwrap();
        assert_eq!(measured.bytes, DEPTH * ENTRY_BYTES);
        assert!(measured.opens <= 2 * DEPTH + 1, "{measured:?}");
        remove(bottom, "d", DEPTH);
    }

    #[test]
    fn directory_walk_holds_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        drop(nest(folder.path(), "d", 3 * OPEN_MAX as u64));
        let mut walk = Walk { bytes: 0, opens: 0, seen: HashSet::new(), way: Vec::new() };
        walk.enter(OwnedFd::from(File::open(folder.path()).unwrap())).unwrap();
        while let Some(name) = walk.way.last_mut().unwrap().below.pop() {
            walk.descend(&name).unwrap();
            assert!(walk.way.iter().filter(|folder| folder.opened.is_some()).count() <= OPEN_MAX);
        }
        assert_eq!(walk.way.len(), 3 * OPEN_MAX + 1);
    }

    /// Deeper than any path can say.
    #[test]
    fn directory_walk_measures_folders_deeper_than_paths() {
        let folder = tempfile::tempdir().unwrap();
        let name = "n".repeat(250);
        let bottom = nest(folder.path(), &name, 40);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&bottom, "bottom", flags, Mode::RUSR | Mode::WUSR).unwrap());
        file.set_len(9 * ENTRY_BYTES).unwrap();
        // Beside each folder stands another one, so that the walk comes back to each.
        let mut at = rustix::fs::openat(&bottom, c"..", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for _ in 0..40 {
            rustix::fs::mkdirat(&at, "beside", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, c"..", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        }
        assert_eq!(bytes(folder.path()), 90 * ENTRY_BYTES);
    }

    #[test]
    fn directory_walk_stops_at_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let bottom = nest(folder.path(), "d", 100);
        assert_eq!(measure(folder.path(), 9 * ENTRY_BYTES).unwrap(), Measured { bytes: 10 * ENTRY_BYTES, opens: 10 });
        drop(bottom);
    }

    #[test]
    fn directory_walk_ignores_symlinks_and_counts_hard_links_once() {
        let inside = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("large"), [0; 100_000]).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("link")).unwrap();
        std::fs::create_dir(inside.path().join("folder")).unwrap();
        std::fs::write(inside.path().join("folder/a"), [0; 10]).unwrap();
        std::fs::hard_link(inside.path().join("folder/a"), inside.path().join("b")).unwrap();
        let link = outside.path().as_os_str().len() as u64;
        assert_eq!(bytes(inside.path()), 4 * ENTRY_BYTES + link + 10);
        // Whoever puts a link in the way of a measurement does not lead it out.
        let root = OwnedFd::from(File::open(inside.path()).unwrap());
        assert_eq!(open_below(&root, c"link").unwrap_err(), Errno::NOENT);
    }
}
