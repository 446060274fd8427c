//! Payloads in files of their own, for what is too large for the tree.
//!
//! Owns the folder `files`: a file is complete and synced before a record can name it, and goes after the record is
//! gone. Must not know what is in them. Invariant: a file without a record is left over from a crash, never the other
//! way round.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::super::Error;

/// Larger payloads go to files: a batch of thousands of chunks would make every other writer wait.
pub(super) const FILE_BYTES_MIN: usize = 64 * 1024;
const UNFINISHED_SUFFIX: &str = "part";

pub(super) type FileName = [u8; 16];

/// The folder.
#[derive(Clone)]
pub(super) struct Files {
    folder: PathBuf,
    writers: Arc<Writers>,
}

/// What those who write files have under way.
#[derive(Default)]
struct Writers {
    /// Files that no record names yet.
    pending: Mutex<HashSet<FileName>>,
    /// Held for writing while the folder changes places.
    moving: RwLock<()>,
}

impl Writers {
    fn with_pending<R>(&self, act: impl FnOnce(&mut HashSet<FileName>) -> R) -> R {
        act(&mut self.pending.lock())
    }
}

/// A file that no record names yet: goes when it is dropped, unless it is kept.
pub(super) struct NewFile {
    files: Files,
    name: Option<FileName>,
}

impl NewFile {
    /// The file now belongs to a record.
    pub(super) fn keep(mut self) {
        if let Some(name) = self.name.take() {
            self.files.writers.with_pending(|pending| pending.remove(&name));
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            self.files.writers.with_pending(|pending| pending.remove(&name));
            self.files.remove(&name);
        }
    }
}

impl Files {
    /// Opens the folder, creating it if needed.
    pub(super) fn open(folder: PathBuf) -> Result<Self, Error> {
        if !folder.exists() {
            fs::create_dir_all(&folder).map_err(|error| io_error("create", &folder, &error))?;
            folder.parent().map_or(Ok(()), sync_folder).map_err(|error| io_error("sync", &folder, &error))?;
        }
        Ok(Self { folder, writers: Arc::default() })
    }

    fn path(&self, name: &FileName) -> PathBuf {
        self.folder.join(in_digits(name))
    }

    /// Writes a new file; on return it is on disk under its name.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(FileName, NewFile), Error> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
        let _in_place = self.writers.moving.read();
        self.put(&name, bytes)?;
        self.writers.with_pending(|pending| pending.insert(name));
        Ok((name, NewFile { files: self.clone(), name: Some(name) }))
    }

    /// Lets `act` put another folder in the place of this one. Nobody writes meanwhile, and the files that no record
    /// names yet are in `other` before that.
    pub(super) fn while_moving<R>(&self, other: &Self, act: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let _nobody_writes = self.writers.moving.write();
        for name in self.writers.with_pending(|pending| pending.clone()) {
            if let Some(bytes) = self.read(&name)? {
                other.put(&name, &bytes)?;
            }
        }
        act()
    }

    /// Writes a file under a name that is known already.
    pub(super) fn put(&self, name: &FileName, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path(name);
        let unfinished = path.with_extension(UNFINISHED_SUFFIX);
        let written = || -> io::Result<()> {
            let mut file = File::create(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            sync_folder(&self.folder)
        };
        written().map_err(|error| {
            // Best effort: what stays is removed at the next opening.
            let _ = fs::remove_file(&unfinished);
            io_error("write", &path, &error)
        })
    }

    /// The contents; `None` when the file is gone.
    pub(super) fn read(&self, name: &FileName) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path(name);
        if_there(fs::read(&path)).map_err(|error| io_error("read", &path, &error))
    }

    /// Removes a file. One that stays behind is removed at the next opening.
    pub(super) fn remove(&self, name: &FileName) {
        if let Err(error) = if_there(fs::remove_file(self.path(name))) {
            tracing::warn!(%error, "a payload file could not be removed");
        }
    }

    /// Removes files that [`orphans`] has found.
    pub(super) fn remove_orphans(&self, orphans: &[String]) -> Result<(), Error> {
        for name in orphans {
            let path = self.folder.join(name);
            fs::remove_file(&path).map_err(|error| io_error("remove", &path, &error))?;
        }
        Ok(())
    }
}

/// The names in a folder of payload files that no record has.
pub(super) fn orphans(folder: &Path, named: &HashSet<FileName>) -> Result<Vec<String>, Error> {
    let named: HashSet<String> = named.iter().map(in_digits).collect();
    let entries = if_there(fs::read_dir(folder)).map_err(|error| io_error("list", folder, &error))?;
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| !named.contains(name)).collect())
}

/// What was found; `None` where there is no such file or folder.
pub(super) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Makes new names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(super) fn io_error(verb: &str, path: &Path, error: &io::Error) -> Error {
    Error::Engine(format!("cannot {verb} {}: {error}", path.display()))
}

fn in_digits(name: &FileName) -> String {
    bulkhead_domain::task::TaskId(*name).to_string()
}

/// Nobody else on the machine has to read what users stored.
pub(super) fn create_folder(folder: &Path) -> Result<(), Error> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| io_error("create", folder, &error))
}
