//! The components that were accepted, each in a file named by its SHA-256.
//!
//! Owns `DATA/components`. Must not know which plugin a component belongs to. Invariant: a file that is there is whole: it was
//! synced before it got its name, and so was its name.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::cache::{note_use, remove_old_drafts, remove_unused, write_new};
use super::inspect::hex;

/// `DATA/components`.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    pub(super) fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join("components");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        remove_old_drafts(&folder)?;
        Ok(Self { folder })
    }

    /// Where the component with this digest is, or would be.
    pub fn path(&self, digest: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{}.wasm", hex(digest)))
    }

    /// Keeps a component, durable on return, so that a task can run again with the version that it started with.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written.
    pub fn keep(&self, digest: &[u8; 32], bytes: &[u8]) -> io::Result<()> {
        // One that was cut off or changed is replaced.
        let has_length = fs::metadata(self.path(digest)).is_ok_and(|found| found.len() == bytes.len() as u64);
        if has_length && self.verify(digest).is_ok() {
            note_use(&self.path(digest));
            return Ok(());
        }
        write_new(&self.folder, &format!("{}.wasm", hex(digest)), &[bytes])?;
        File::open(&self.folder)?.sync_all()
    }

    /// Keeps the WIT text that stood beside a component, which says what its tools do. The first one stays: a version does not
    /// change.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written.
    pub fn keep_wit(&self, digest: &[u8; 32], text: &[u8]) -> io::Result<()> {
        if self.path(digest).with_extension("wit").exists() {
            return Ok(());
        }
        write_new(&self.folder, &format!("{}.wit", hex(digest)), &[text])
    }

    /// Reads a component again, and gives its size in bytes.
    ///
    /// # Errors
    ///
    /// It is not there or it is not what its name says; in words for the operator.
    pub fn verify(&self, digest: &[u8; 32]) -> Result<u64, String> {
        let path = self.path(digest);
        let bytes = fs::read(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let found: [u8; 32] = Sha256::digest(&bytes).into();
        if found == *digest {
            return Ok(bytes.len() as u64);
        }
        Err(format!("{} has been changed: expected SHA-256 {}, found {}", path.display(), hex(digest), hex(&found)))
    }

    /// Removes components that are not among these, once nobody has used them for long.
    pub(super) fn remove_others(&self, digests: &HashSet<String>) -> io::Result<()> {
        remove_unused(&self.folder, digests)
    }

    /// Removes a component; an absent one is fine.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written.
    pub fn remove(&self, digest: &[u8; 32]) -> io::Result<()> {
        for path in [self.path(digest), self.path(digest).with_extension("wit")] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
