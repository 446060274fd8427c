//! The components that were accepted, each in a file named by its SHA-256.
//!
//! Owns `DATA/components`. Must not know which plugin a component belongs to. Invariant: a file that is there is whole:
//! it was synced before it got its name, and so was its name; a signed text about a component is never replaced by an
//! unsigned one.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::cache::{note_use, remove_old_drafts, remove_unused, write_new};
use bulkhead_domain::hex;

/// Beside a component whose text, or that it has none, was vouched for.
const VOUCHED: &str = "vouched";

/// The WIT text that came with a component, if one did, by whether it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wit {
    /// Found next to the component, and not signed.
    Free(Option<String>),
    /// The component's signer has signed this text too, or that there is none.
    Vouched(Option<String>),
}

/// `DATA/components`.
#[derive(Debug)]
pub struct ComponentStore {
    folder: PathBuf,
    /// Two texts about one component may come at the same time.
    wit: Mutex<()>,
}

impl ComponentStore {
    pub(super) fn open(data: &Path) -> io::Result<Self> {
        let folder = data.join("components");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        remove_old_drafts(&folder)?;
        Ok(Self { folder, wit: Mutex::new(()) })
    }

    /// Where the component with this digest is, or would be.
    pub fn path(&self, digest: &[u8; 32]) -> PathBuf {
        self.folder.join(format!("{}.wasm", hex(digest)))
    }

    /// Whether there is no file for this component.
    pub fn is_missing(&self, digest: &[u8; 32]) -> bool {
        fs::metadata(self.path(digest)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Keeps a component, durable on return, so that a task can run again with the version that it started with.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written, or these bytes have another digest.
    pub fn keep(&self, digest: &[u8; 32], bytes: &[u8]) -> io::Result<()> {
        // One that was cut off or changed is replaced.
        let has_length = fs::metadata(self.path(digest)).is_ok_and(|found| found.len() == bytes.len() as u64);
        if has_length && self.verify(digest).is_ok() {
            note_use(&self.path(digest));
            return Ok(());
        }
        // Whoever fetches a component once more may get another one.
        if Sha256::digest(bytes)[..] != digest[..] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "these are not the bytes of this component"));
        }
        write_new(&self.folder, &format!("{}.wasm", hex(digest)), &[bytes])?;
        File::open(&self.folder)?.sync_all()
    }

    /// Keeps the WIT text found next to a component, which documents its tools.
    ///
    /// The first one stays, because a version does not change; but a signed text replaces an unsigned one, and
    /// never the other way round.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written.
    pub fn keep_wit(&self, digest: &[u8; 32], wit: &Wit) -> io::Result<()> {
        let _one_at_a_time = self.wit.lock();
        let path = self.path(digest).with_extension("wit");
        let mark = self.path(digest).with_extension(VOUCHED);
        let is_there = path.exists();
        let is_vouched = mark.exists();
        let name = format!("{}.wit", hex(digest));
        match wit {
            Wit::Free(Some(text)) if !is_there && !is_vouched => write_new(&self.folder, &name, &[text.as_bytes()]),
            Wit::Free(_) => Ok(()),
            Wit::Vouched(text) if is_vouched && (is_there || text.is_none()) => Ok(()),
            Wit::Vouched(text) => {
                match text {
                    Some(text) => write_new(&self.folder, &name, &[text.as_bytes()])?,
                    None => remove(path)?,
                }
                // Killed before this, the host has the right text, and is only less sure of it.
                write_new(&self.folder, &format!("{}.{VOUCHED}", hex(digest)), &[])
            }
        }
    }

    /// A component and its text, as they are here. Whether these are its bytes is for the reader to check.
    ///
    /// # Errors
    ///
    /// It is not there, or the data directory cannot be read.
    pub fn read(&self, digest: &[u8; 32]) -> io::Result<(Vec<u8>, Wit)> {
        let _one_at_a_time = self.wit.lock();
        let bytes = fs::read(self.path(digest))?;
        let text = match fs::read_to_string(self.path(digest).with_extension("wit")) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_vouched = self.path(digest).with_extension(VOUCHED).exists();
        Ok((bytes, if is_vouched { Wit::Vouched(text) } else { Wit::Free(text) }))
    }

    /// Reads a component again and returns its size in bytes.
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
        ["wasm", "wit", VOUCHED].iter().try_for_each(|kind| remove(self.path(digest).with_extension(kind)))
    }
}

fn remove(path: PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_is_kept_under_its_own_digest_only() {
        let data = tempfile::tempdir().unwrap();
        let kept = ComponentStore::open(data.path()).unwrap();
        let digest: [u8; 32] = Sha256::digest("one").into();
        assert!(kept.keep(&digest, b"two").is_err() && !kept.path(&digest).exists());
        kept.keep(&digest, b"one").unwrap();
        assert_eq!(kept.verify(&digest), Ok(3));
        assert_eq!(kept.read(&digest).unwrap(), (b"one".to_vec(), Wit::Free(None)));
        let text = Wit::Vouched(Some("package a:b;".to_owned()));
        kept.keep_wit(&digest, &text).unwrap();
        assert_eq!(kept.read(&digest).unwrap(), (b"one".to_vec(), text));
    }

    #[test]
    fn signed_wit_text_is_not_replaced_by_unsigned() {
        let data = tempfile::tempdir().unwrap();
        let kept = ComponentStore::open(data.path()).unwrap();
        let free = |text: &str| Wit::Free(Some(text.to_owned()));
        let signed = |text: &str| Wit::Vouched(Some(text.to_owned()));
        let kept_after = |digest: u8, texts: &[Wit]| {
            let digest = [digest; 32];
            texts.iter().for_each(|text| kept.keep_wit(&digest, text).unwrap());
            let text = fs::read_to_string(kept.path(&digest).with_extension("wit")).ok();
            kept.remove(&digest).unwrap();
            assert_eq!(fs::read_dir(&kept.folder).unwrap().count(), 0, "all of it is removed");
            text
        };
        assert_eq!(kept_after(1, &[free("first"), free("second")]).as_deref(), Some("first"));
        assert_eq!(kept_after(2, &[free("theirs"), signed("ours")]).as_deref(), Some("ours"));
        assert_eq!(kept_after(3, &[signed("ours"), free("theirs")]).as_deref(), Some("ours"));
        assert_eq!(kept_after(4, &[signed("ours"), signed("later")]).as_deref(), Some("ours"));
        assert_eq!(kept_after(5, &[free("theirs"), Wit::Vouched(None), free("again")]), None, "none was signed");
        assert_eq!(kept_after(6, &[Wit::Vouched(None), signed("ours"), free("theirs")]).as_deref(), Some("ours"));
    }
}
