//! Where the commands that look at one component (`check`, `call`, `inspect`) keep what they compile, so that the second command
//! does not take the ten seconds again that a component with a language's runtime inside takes.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::sources;

/// Components that are kept, and as much compiled code: an author builds all day.
const KEPT_MAX: usize = 6;

/// A folder that a sandbox can use as its data directory.
pub(super) enum CompileCache {
    /// Under the user's own cache folder.
    Persistent(PathBuf),
    /// Where there is none that is the user's own: gone with the command.
    Scratch(tempfile::TempDir),
}

impl CompileCache {
    /// Opens it, and clears out what is old.
    ///
    /// # Errors
    ///
    /// When there is no room even for a temporary folder.
    pub(super) fn open() -> std::io::Result<Self> {
        if let Some(folder) = cache_folder()
            && fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).is_ok()
            && is_own(&folder, rustix::process::geteuid().as_raw())
            && tempfile::tempfile_in(&folder).is_ok()
        {
            for kind in ["cache", "components"] {
                keep_newest(&folder.join(kind), KEPT_MAX);
            }
            return Ok(Self::Persistent(folder));
        }
        tempfile::tempdir().map(Self::Scratch)
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Persistent(folder) => folder,
            Self::Scratch(folder) => folder.path(),
        }
    }
}

/// Whether nobody but this user decides what is in a folder. Machine code comes from it: root who works with another user's `HOME`
/// must not run what that user put there.
fn is_own(folder: &Path, user: u32) -> bool {
    fs::metadata(folder).is_ok_and(|facts| facts.is_dir() && facts.uid() == user && facts.mode() & 0o022 == 0)
}

/// As the XDG base directory specification says.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| sources::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("bulkhead"))
}

/// Removes all but the newest files. Another command that wants one of them makes it again.
fn keep_newest(folder: &Path, kept_max: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        // What begins with a dot is being written.
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let old = files.len().saturating_sub(kept_max);
    for (_, path) in files.into_iter().take(old) {
        // What stays costs only room.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn compile_cache_rejects_foreign_or_open_folder() {
        let folder = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert!(is_own(folder.path(), me));
        assert!(!is_own(folder.path(), me + 1));
        for mode in [0o777, 0o770, 0o722] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(!is_own(folder.path(), me), "{mode:o}");
        }
        assert!(!is_own(&folder.path().join("nothing"), me));
    }

    #[test]
    fn compile_cache_keeps_newest_files_and_drafts() {
        let folder = tempfile::tempdir().unwrap();
        let begin = SystemTime::UNIX_EPOCH;
        for (age, name) in [(1, "oldest"), (2, "older"), (3, "new"), (0, ".draft")] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(begin + Duration::from_secs(age)).unwrap();
        }
        keep_newest(folder.path(), 2);
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".draft", "new", "older"]);
        keep_newest(&folder.path().join("nothing"), 2);
    }
}
