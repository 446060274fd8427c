//! Where code is kept that belongs to no data directory: what the commands that look at one component (`check`, `call`,
//! `inspect`) compile, and `bulkhead stdio` without `--data`. The second start does not take the seconds again that
//! compiling takes.
//!
//! Owns which folder of the user's is good for that. Must not read what is in it: the runtime verifies each file before
//! it runs. Invariant: machine code comes from a folder that nobody but this user can change, or it is compiled.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;

use bulkhead_runtime::{CodeCacheBounds, CodeCacheConfig};

use super::sources;

/// A language's runtime takes some 50 MiB of code; an author builds all day. Small components are many and cheap to
/// keep, so that their number is bounded by what a folder is still listed with in an instant.
const BOUNDS: CodeCacheBounds = CodeCacheBounds { entries_max: 1024, bytes_max: 1 << 30 };

/// The user's cache of compiled code; `None`, and a line in the log, where there is no folder that is safe.
pub fn of_user() -> Option<CodeCacheConfig> {
    // As the XDG base directory specification says.
    let absolute = |name: &str| sources::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let folder = caches.map(|caches| caches.join("bulkhead")).ok_or_else(|| "there is no home directory".to_owned());
    match folder.and_then(|folder| checked(folder, rustix::process::geteuid().as_raw())) {
        Ok(folder) => Some(CodeCacheConfig { folder, bounds: Some(BOUNDS) }),
        Err(why) => {
            tracing::warn!("compiled code is not kept, so the next start compiles again: {why}");
            None
        }
    }
}

/// The folder, made if it is missing, if nobody but this user decides what is in it: root who works with another user's
/// `HOME` must not run what that user put there.
fn checked(folder: PathBuf, user: u32) -> Result<PathBuf, String> {
    let name = folder.display().to_string();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    // What the name itself is, not what it may point to.
    let facts = made.and_then(|()| fs::symlink_metadata(&folder)).map_err(|error| format!("{name}: {error}"))?;
    if !facts.is_dir() {
        return Err(format!("{name} is no folder of its own but a link"));
    }
    if facts.uid() != user {
        return Err(format!("{name} belongs to another user"));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(format!("others may use {name}: run `chmod 700 {name}`"));
    }
    tempfile::tempfile_in(&folder).map_err(|error| format!("{name}: {error}"))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn compile_cache_folder_is_made_for_its_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let folder = home.path().join("deep/bulkhead");
        assert_eq!(checked(folder.clone(), me), Ok(folder.clone()));
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(checked(folder.clone(), me), Ok(folder), "and taken again");
    }

    #[test]
    fn compile_cache_rejects_foreign_open_or_linked_folder() {
        let home = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let folder = home.path().join("bulkhead");
        fs::create_dir(&folder).unwrap();
        let why = |path: &Path, user| checked(path.to_owned(), user).unwrap_err();
        for mode in [0o777, 0o770, 0o722, 0o755] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(why(&folder, me).contains("chmod 700"), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(why(&folder, me + 1).contains("another user"));
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(why(&link, me).contains("link"));
        fs::write(home.path().join("file"), "").unwrap();
        assert!(!why(&home.path().join("file"), me).is_empty());
    }
}
