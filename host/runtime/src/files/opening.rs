//! Opening what a guest names, without ever waiting for it.
//!
//! Owns the system calls of `open-at`. Invariants: nothing beyond the directory is opened, by whichever links and `..`;
//! what is neither a file nor a directory is not opened: a FIFO would wait for its other end, and a device may do
//! anything.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use wasmtime_wasi::filesystem::{Descriptor, Dir, FsPerms, OpenMode};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

/// How often an open is tried again that the kernel gave up because something was renamed meanwhile.
const TRIES_MAX: usize = 100;

/// What a guest wants to open, and how.
pub(super) struct OpenRequest {
    dir: Arc<File>,
    perms: FsPerms,
    mode: OpenMode,
    flags: OFlags,
    is_directory: bool,
}

impl OpenRequest {
    /// # Errors
    /// The directory's permissions do not allow it, or it makes no sense.
    pub(super) fn new(dir: &Dir, at: PathFlags, open: OpenFlags, flags: DescriptorFlags) -> Result<Self, ErrorCode> {
        let synced = [
            DescriptorFlags::FILE_INTEGRITY_SYNC,
            DescriptorFlags::DATA_INTEGRITY_SYNC,
            DescriptorFlags::REQUESTED_WRITE_SYNC,
        ];
        if synced.into_iter().any(|flag| flags.contains(flag)) {
            return Err(ErrorCode::Unsupported);
        }
        let creates = open.contains(OpenFlags::CREATE);
        let truncates = open.contains(OpenFlags::TRUNCATE);
        let is_directory = open.contains(OpenFlags::DIRECTORY);
        if is_directory && (creates || truncates || open.contains(OpenFlags::EXCLUSIVE)) {
            return Err(ErrorCode::Invalid);
        }
        let writes = creates || truncates || flags.contains(DescriptorFlags::WRITE);
        // What is not opened for writing is opened for reading, whether or not the guest may read it.
        let reads = flags.contains(DescriptorFlags::READ) || !flags.contains(DescriptorFlags::WRITE);
        if writes && dir.perms.write_not_permitted() {
            return Err(ErrorCode::NotPermitted);
        }
        let mut mode = OpenMode::empty();
        mode.set(OpenMode::READ, reads);
        mode.set(OpenMode::WRITE, writes);
        let mut of_system = match (reads, writes) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        of_system.set(OFlags::CREATE, creates);
        of_system.set(OFlags::EXCL, creates && open.contains(OpenFlags::EXCLUSIVE));
        of_system.set(OFlags::TRUNC, truncates);
        of_system.set(OFlags::NOFOLLOW, !at.contains(PathFlags::SYMLINK_FOLLOW));
        Ok(Self { dir: Arc::clone(&dir.dir), perms: dir.perms, mode, flags: of_system, is_directory })
    }

    /// To change the times of something that is there: it has to be opened for that, in whichever way works.
    ///
    /// # Errors
    /// The directory's permissions do not allow it.
    pub(super) fn to_touch(dir: &Dir) -> Result<[Self; 2], ErrorCode> {
        let request = |flags| Self::new(dir, PathFlags::SYMLINK_FOLLOW, OpenFlags::empty(), flags);
        Ok([request(DescriptorFlags::WRITE)?, request(DescriptorFlags::READ)?])
    }

    /// Opens it. Blocks as long as the file system does.
    pub(super) fn open(self, path: &str) -> io::Result<Descriptor> {
        let opened = File::from(open_plain(&self.dir, path, self.flags)?);
        if opened.metadata()?.is_dir() {
            return Ok(Descriptor::Dir(Dir::new(opened, self.perms, self.mode, false)));
        }
        if self.is_directory {
            return Err(Errno::NOTDIR.into());
        }
        let file = wasmtime_wasi::filesystem::File::new(opened, self.perms, self.mode, false);
        Ok(Descriptor::File(file))
    }
}

/// Opens a file or a directory, and nothing else. It is looked at before it is opened, since that alone can do
/// something, and again afterwards: another one may have got its name meanwhile.
fn open_plain(dir: &File, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let look = OFlags::PATH | flags & OFlags::NOFOLLOW;
    // What is not there may be made, and whatever else is wrong is for the open to say.
    if let Ok(there) = open_beneath(dir, path, look, Mode::empty()) {
        refuse_special(&there)?;
    }
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
    let opened = open_beneath(dir, path, flags | OFlags::NONBLOCK, mode)?;
    refuse_special(&opened)?;
    Ok(opened)
}

fn refuse_special(opened: &OwnedFd) -> Result<(), Errno> {
    match FileType::from_raw_mode(rustix::fs::fstat(opened)?.st_mode) {
        // A link is seen where it must not be followed, which is for the open to refuse.
        FileType::RegularFile | FileType::Directory | FileType::Symlink => Ok(()),
        _ => Err(Errno::PERM),
    }
}

fn open_beneath(dir: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let way = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        tries += 1;
        match rustix::fs::openat2(&dir, path, flags | OFlags::CLOEXEC, mode, way) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES_MAX => {}
            // It leads out.
            Err(Errno::XDEV) => return Err(Errno::PERM),
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn special_files_are_refused_on_open() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        std::os::unix::fs::symlink("fifo", folder.path().join("link")).unwrap();
        std::fs::write(folder.path().join("file"), "words").unwrap();
        let dir = File::open(folder.path()).unwrap();
        for flags in [
            OFlags::RDONLY,
            OFlags::WRONLY,
            OFlags::RDWR,
            OFlags::RDWR | OFlags::CREATE,
            OFlags::WRONLY | OFlags::TRUNC,
        ] {
            for name in ["fifo", "socket", "link"] {
                assert_eq!(open_plain(&dir, name, flags).unwrap_err(), Errno::PERM, "{name} {flags:?}");
            }
            assert!(open_plain(&dir, "file", flags).is_ok(), "{flags:?}");
        }
        assert_eq!(open_plain(&dir, "link", OFlags::RDONLY | OFlags::NOFOLLOW).unwrap_err(), Errno::LOOP);
        assert_eq!(open_plain(&dir, "absent", OFlags::RDONLY).unwrap_err(), Errno::NOENT);
        for out in ["..", "/etc/passwd", "../x"] {
            assert_eq!(open_plain(&dir, out, OFlags::RDONLY).unwrap_err(), Errno::PERM, "{out}");
        }
        // Whoever puts a FIFO in the place of a file after the look does not make it wait either.
        let opened = open_beneath(&dir, "fifo", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        assert_eq!(refuse_special(&opened).unwrap_err(), Errno::PERM);
    }
}
