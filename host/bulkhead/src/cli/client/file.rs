//! A client's file on disk.
//!
//! Owns reading and replacing it. Invariant: the file is replaced whole or not at all, keeps its mode, and what it was
//! stands beside it; a file that another user owns, or that changes meanwhile, is left alone.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use bulkhead_domain::without_byte_order_mark;

/// Copies of one file that are kept; the user removes old ones.
const BACKUPS_MAX: u32 = 100;
/// A new file may hold a token.
const NEW_MODE: u32 = 0o600;

/// A client's file, as it is now.
#[derive(Debug)]
pub(super) struct ClientFile {
    /// Where it really is: a link stays a link.
    path: PathBuf,
    /// `None` before it is made.
    there: Option<There>,
}

#[derive(Debug)]
struct There {
    text: String,
    mode: u32,
}

impl ClientFile {
    /// Reads it, if it is there.
    ///
    /// # Errors
    ///
    /// It cannot be read, is no text, or is another user's.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                return Ok(Self { path: std::path::absolute(path)?, there: None });
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let cannot = || format!("{} cannot be read", path.display());
        let facts = fs::metadata(&path).with_context(cannot)?;
        ensure!(facts.is_file(), "{} is not a file", path.display());
        let me = rustix::process::geteuid().as_raw();
        ensure!(facts.uid() == me, "{} belongs to another user", path.display());
        let text = String::from_utf8(fs::read(&path).with_context(cannot)?)
            .map_err(|_| anyhow::anyhow!("{} is not UTF-8 text", path.display()))?;
        Ok(Self { there: Some(There { text, mode: facts.mode() & 0o7777 }), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        self.there.as_ref().map_or("", |there| without_byte_order_mark(&there.text))
    }

    /// Whether anybody but its owner can read it.
    pub(super) fn is_readable_by_others(&self) -> bool {
        self.there.as_ref().is_some_and(|there| there.mode & 0o077 != 0)
    }

    /// Replaces it, and gives the place of the copy of what it was.
    ///
    /// # Errors
    ///
    /// It cannot be written, or it has changed since it was read.
    pub(super) fn replace(self, text: &str) -> anyhow::Result<Option<PathBuf>> {
        let folder = self.path.parent().context("it has no folder")?;
        fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be made", folder.display()))?;
        let cannot = || format!("{} cannot be written", self.path.display());
        let mut draft = tempfile::NamedTempFile::new_in(folder).with_context(cannot)?;
        draft.write_all(text.as_bytes()).with_context(cannot)?;
        let mode = self.there.as_ref().map_or(NEW_MODE, |there| there.mode);
        draft.as_file().set_permissions(Permissions::from_mode(mode)).with_context(cannot)?;
        draft.as_file().sync_all().with_context(cannot)?;
        let backup = self.there.as_ref().map(|there| back_up(&self.path, there)).transpose()?;
        let now = Self::open(&self.path)?;
        if now.there.as_ref().map(|there| &there.text) != self.there.as_ref().map(|there| &there.text) {
            bail!("{} has just been changed by another program: try again", self.path.display());
        }
        draft.persist(&self.path).with_context(cannot)?;
        Ok(backup)
    }
}

/// Writes what a file was beside it, under the first free name.
fn back_up(path: &Path, there: &There) -> anyhow::Result<PathBuf> {
    let name = path.file_name().context("it has no name")?.to_string_lossy().into_owned();
    for number in 1..=BACKUPS_MAX {
        let backup = path.with_file_name(format!("{name}.backup-{number}"));
        let made = OpenOptions::new().write(true).create_new(true).mode(there.mode).open(&backup);
        let mut file = match made {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error).with_context(|| format!("{} cannot be written", backup.display())),
        };
        let cannot = || format!("{} cannot be written", backup.display());
        file.write_all(there.text.as_bytes()).with_context(cannot)?;
        file.set_permissions(Permissions::from_mode(there.mode)).with_context(cannot)?;
        file.sync_all().with_context(cannot)?;
        return Ok(backup);
    }
    bail!("{} has {BACKUPS_MAX} backups: remove old ones", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_file_keeps_its_mode_link_and_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real.json");
        let link = folder.path().join("link.json");
        fs::write(&real, "{}").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut backups = Vec::new();
        for text in ["{\"a\": 1}", "{\"a\": 2}"] {
            backups.push(ClientFile::open(&link).unwrap().replace(text).unwrap().unwrap());
        }
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&link).unwrap(), "{\"a\": 2}");
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        let kept: Vec<_> = backups.iter().map(|backup| fs::read_to_string(backup).unwrap()).collect();
        assert_eq!(kept, ["{}", "{\"a\": 1}"]);
        assert_eq!(fs::metadata(&backups[0]).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "no draft is left");
    }

    #[test]
    fn new_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/mcp.json");
        assert_eq!(ClientFile::open(&path).unwrap().replace("{}").unwrap(), None);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn file_that_changed_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        for first in [None, Some("{}")] {
            if let Some(text) = first {
                fs::write(&path, text).unwrap();
            }
            let file = ClientFile::open(&path).unwrap();
            fs::write(&path, "{\"theirs\": true}").unwrap();
            assert!(file.replace("{\"ours\": true}").unwrap_err().to_string().contains("changed"));
            assert_eq!(fs::read_to_string(&path).unwrap(), "{\"theirs\": true}");
        }
    }

    #[test]
    fn byte_order_mark_in_front_of_a_file_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        fs::write(&path, "\u{feff}{\"a\": 1}").unwrap();
        assert_eq!(ClientFile::open(&path).unwrap().text(), "{\"a\": 1}");
    }

    #[test]
    fn what_is_no_text_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("latin"), b"{\"a\": \"\xe9\"}").unwrap();
        for (name, why) in [("latin", "not UTF-8"), (".", "not a file")] {
            let error = ClientFile::open(&folder.path().join(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
