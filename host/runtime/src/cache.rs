//! Compiled code on disk.
//!
//! Owns the one place where bytes become machine code. Invariant: only bytes that the compiler has just made for this
//! host, or that this host itself wrote, for this component and this engine, are ever given to wasmtime; anything else
//! is refused, logged, and compiled anew.
//!
//! Code of other engines (an earlier version of the host, another processor) stays for a while, so that going back to
//! it compiles nothing.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

use bulkhead_domain::hex;

const TAG_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
/// No write of a file takes this long.
const DRAFT_AGE_MAX: Duration = Duration::from_hours(24);

/// How long things are kept that nobody here needs any more, from their last use: code of another engine, and what
/// belongs to no version of a plugin.
const UNUSED_AGE_MAX: Duration = Duration::from_hours(30 * 24);
/// How old the time of the last use may be: reading code should not cost a write each time.
const USE_NOTED_EVERY: Duration = Duration::from_hours(24);

/// Where compiled code is kept, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeCacheConfig {
    /// The code is in its folder `cache`, and the key beside that.
    pub folder: PathBuf,
    /// Without bounds, the code of every version of a plugin stays, and what belongs to none goes after a month.
    pub bounds: Option<CodeCacheBounds>,
}

/// What is kept at most; what was used longest ago goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeCacheBounds {
    pub entries_max: usize,
    pub bytes_max: u64,
}

/// A folder of compiled code with its key.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
    bounds: Option<CodeCacheBounds>,
}

impl Cache {
    /// Opens the cache in a folder; makes folder and key where they are missing, and removes what nobody uses any more.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be written.
    pub(super) fn open(config: &CodeCacheConfig, engine_hash: u64) -> io::Result<Self> {
        let folder = config.folder.join("cache");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        remove_old_drafts(&folder)?;
        let own = ending(engine_hash);
        remove_older(&folder, UNUSED_AGE_MAX, |name| name.ends_with(".cwasm") && !name.ends_with(&own))?;
        // Beside the folder, not inside: who can only write cache files cannot sign them.
        let key = key(&config.folder.join("cache.key"), rustix::process::geteuid().as_raw())?;
        let cache = Self { folder, key, bounds: config.bounds };
        cache.trim()?;
        Ok(cache)
    }

    /// The compiled component, if it is there and untouched.
    pub(super) fn load(&self, engine: &Engine, digest: &[u8; 32], engine_hash: u64) -> Option<Component> {
        let name = name(digest, engine_hash);
        let path = self.folder.join(&name);
        // Read once: what is checked is what is used, whatever happens to the file meanwhile.
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = name, %error, "cached code cannot be read; compiling");
                return None;
            }
        };
        let Some((tag, code)) = bytes.split_at_checked(TAG_BYTES) else {
            tracing::warn!(file = name, "cached code is cut off; compiling");
            return None;
        };
        if self.mac(&name, code)?.verify_slice(tag).is_err() {
            tracing::warn!(
                file = name,
                "cached code was not written by this host or has been changed; refused, compiling"
            );
            return None;
        }
        match deserialize(engine, code) {
            Ok(component) => {
                note_use(&path);
                Some(component)
            }
            Err(error) => {
                tracing::warn!(file = name, error = %error, "cached code does not fit this engine; compiling");
                None
            }
        }
    }

    /// Takes over code that the compiler has just made of a component: keeps it, and makes it ready to run. That it
    /// cannot be kept costs only the next start some time.
    ///
    /// # Errors
    ///
    /// It is no code for this engine.
    pub(super) fn accept(
        &self,
        engine: &Engine,
        code: &[u8],
        digest: &[u8; 32],
        engine_hash: u64,
    ) -> Result<Component, String> {
        let component =
            deserialize(engine, code).map_err(|error| format!("its compiled code cannot be used: {error:#}"))?;
        let name = name(digest, engine_hash);
        if let Err(error) = self.write(&name, code) {
            tracing::warn!(file = name, %error, "compiled code is not kept");
        }
        Ok(component)
    }

    /// Removes the compiled code of a component, whichever engine it is for.
    pub(super) fn remove(&self, digest: &[u8; 32]) -> io::Result<()> {
        let begins = format!("{}-", hex(digest));
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&begins) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the code of components that are not among these, once nobody has used it for long.
    pub(super) fn remove_others(&self, digests: &HashSet<String>) -> io::Result<()> {
        remove_unused(&self.folder, digests)
    }

    fn write(&self, name: &str, code: &[u8]) -> io::Result<()> {
        let tag = self.mac(name, code).ok_or_else(|| io::Error::other("no key"))?.finalize().into_bytes();
        write_new(&self.folder, name, &[&tag, code])?;
        self.trim()
    }

    /// Removes what is beyond the bounds. Another host that wants it compiles it again.
    fn trim(&self) -> io::Result<()> {
        let Some(CodeCacheBounds { entries_max, bytes_max }) = self.bounds else { return Ok(()) };
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // What begins with a dot is being written.
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            // Somebody else may have been quicker.
            let Ok(facts) = entry.metadata() else { continue };
            files.push((facts.modified()?, facts.len(), entry.path()));
        }
        files.sort();
        let mut bytes = 0_u64;
        for (at, (_, length, path)) in files.into_iter().rev().enumerate() {
            bytes = bytes.saturating_add(length);
            if at >= entries_max || bytes > bytes_max {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Over the name too: a file must not stand in for another.
    fn mac(&self, name: &str, code: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        mac.update(&(name.len() as u64).to_be_bytes());
        mac.update(name.as_bytes());
        mac.update(code);
        Some(mac)
    }
}

/// The component's digest and what its code depends on besides.
fn name(digest: &[u8; 32], engine_hash: u64) -> String {
    format!("{}{}", hex(digest), ending(engine_hash))
}

fn ending(engine_hash: u64) -> String {
    format!("-{engine_hash:016x}.cwasm")
}

/// Notes that a file was used, once a day.
pub(super) fn note_use(path: &Path) {
    let noted = || {
        let file = File::open(path)?;
        match file.metadata()?.modified()?.elapsed() {
            Ok(age) if age < USE_NOTED_EVERY => Ok(()),
            _ => file.set_modified(SystemTime::now()),
        }
    };
    // Then it looks older than it is.
    let _ = noted();
}

/// Writes a file under a name of its own, then moves it into place: nobody sees half of it.
pub(super) fn write_new(folder: &Path, name: &str, parts: &[&[u8]]) -> io::Result<()> {
    // A host that was killed may have left a draft, and the next one may have its process id.
    let mut own = [0; 8];
    getrandom::fill(&mut own).map_err(io::Error::other)?;
    let draft = folder.join(format!(".{name}.{:016x}", u64::from_ne_bytes(own)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_data()?;
        fs::rename(&draft, folder.join(name))
    })();
    if written.is_err() {
        // The draft may not even exist.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Removes what writers left that were killed. Others may be writing in this folder, so what is young stays.
pub(super) fn remove_old_drafts(folder: &Path) -> io::Result<()> {
    remove_older(folder, DRAFT_AGE_MAX, |name| name.starts_with('.'))
}

/// Removes files whose names begin with other digests than these, once nobody has used them for long.
pub(super) fn remove_unused(folder: &Path, digests: &HashSet<String>) -> io::Result<()> {
    remove_older(folder, UNUSED_AGE_MAX, |name| {
        let digest = name.get(..64).filter(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        digest.is_some_and(|digest| !digests.contains(digest))
    })
}

/// Removes files of such names that nobody has written for this long.
fn remove_older(folder: &Path, age_max: Duration, such: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if such(&entry.file_name().to_string_lossy()) && age().is_some_and(|age| age > age_max) {
            // Somebody else may have been quicker.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The signing key: made once, readable by its owner only. A key that others could read, or that another user wrote, is
/// replaced.
fn key(path: &Path, user: u32) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    match File::open(path) {
        Ok(mut file) => {
            let facts = file.metadata()?;
            let mode = facts.mode() & 0o777;
            if facts.uid() == user && mode & 0o077 == 0 && file.read_exact(&mut key).is_ok() {
                return Ok(key);
            }
            tracing::warn!(
                mode = format!("{mode:o}"),
                owner = facts.uid(),
                "the cache key was another user's, readable by others, or cut off: replaced, code will be compiled anew"
            );
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    write_new(folder, "cache.key", &[&key])?;
    Ok(key)
}

#[expect(
    unsafe_code,
    reason = "the one door for machine code; its callers have just had these very bytes compiled, or verified their signature"
)]
fn deserialize(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are the unchanged output of `Engine::precompile_component`. Either they have just come from it,
    // here or in a child that runs this very program and whose pipe nobody else holds; or they carry a valid HMAC under
    // a key that only this host can read, so a host of this data directory wrote them in that way. They are in memory
    // of our own and cannot change any more.
    unsafe { Component::deserialize(engine, code) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn unbounded(data: &tempfile::TempDir) -> CodeCacheConfig {
        CodeCacheConfig { folder: data.path().to_owned(), bounds: None }
    }

    fn compiled() -> (Engine, Vec<u8>) {
        let engine = Engine::default();
        let component = wat::parse_str("(component (core module (func (export \"f\"))))").unwrap();
        let code = engine.precompile_component(&component).unwrap();
        (engine, code)
    }

    #[test]
    fn code_cache_loads_stored_and_rejects_changed_code() {
        let data = tempfile::tempdir().unwrap();
        let (engine, code) = compiled();
        let cache = Cache::open(&unbounded(&data), 7).unwrap();
        let digest = [1; 32];
        assert!(cache.load(&engine, &digest, 7).is_none());
        cache.accept(&engine, &code, &digest, 7).unwrap();
        assert!(cache.load(&engine, &digest, 7).is_some());
        assert!(cache.load(&engine, &digest, 8).is_none());

        let path = data.path().join("cache").join(name(&digest, 7));
        let good = fs::read(&path).unwrap();
        for at in [0, TAG_BYTES, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(cache.load(&engine, &digest, 7).is_none(), "byte {at}");
        }
        fs::write(&path, &good[..10]).unwrap();
        assert!(cache.load(&engine, &digest, 7).is_none());

        // A good file under another name is no good file.
        fs::write(data.path().join("cache").join(name(&[2; 32], 7)), &good).unwrap();
        assert!(cache.load(&engine, &[2; 32], 7).is_none());
    }

    #[test]
    fn bounded_code_cache_drops_what_was_used_longest_ago() {
        let data = tempfile::tempdir().unwrap();
        let (engine, code) = compiled();
        let file_bytes = (TAG_BYTES + code.len()) as u64;
        let kept_under = |entries_max, bytes_max| {
            let bounds = Some(CodeCacheBounds { entries_max, bytes_max });
            let config = CodeCacheConfig { bounds, ..unbounded(&data) };
            let cache = Cache::open(&config, 7).unwrap();
            for digest in 1..=5 {
                cache.accept(&engine, &code, &[digest; 32], 7).unwrap();
                let path = data.path().join("cache").join(name(&[digest; 32], 7));
                if let Ok(file) = File::open(path) {
                    file.set_modified(SystemTime::now() - Duration::from_secs(u64::from(100 - digest))).unwrap();
                }
                let files = fs::read_dir(data.path().join("cache")).unwrap();
                let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
                assert!(bytes <= bytes_max, "{bytes} bytes after {digest}");
            }
            (1..=5_u8).filter(|digest| cache.load(&engine, &[*digest; 32], 7).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(kept_under(3, u64::MAX), [3, 4, 5]);
        assert_eq!(kept_under(9, 2 * file_bytes), [4, 5]);
        assert_eq!(kept_under(9, file_bytes - 1), [0_u8; 0], "what is too large alone is not kept");
        assert!(fs::read_dir(data.path().join("cache")).unwrap().next().is_none());
    }

    #[test]
    fn code_cache_removes_old_drafts() {
        let data = tempfile::tempdir().unwrap();
        Cache::open(&unbounded(&data), 7).unwrap();
        let folder = data.path().join("cache");
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        for (name, age) in [(".old", 2 * DRAFT_AGE_MAX), (".young", Duration::ZERO), ("whole", 2 * DRAFT_AGE_MAX)] {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        }
        Cache::open(&unbounded(&data), 7).unwrap();
        assert_eq!(names(), [".young", "whole"]);
    }

    #[test]
    fn code_cache_removes_unused_code_of_other_engines() {
        let data = tempfile::tempdir().unwrap();
        let (engine, code) = compiled();
        let cache = Cache::open(&unbounded(&data), 8).unwrap();
        let path = |digest: u8, hash| data.path().join("cache").join(name(&[digest; 32], hash));
        let old = SystemTime::now() - UNUSED_AGE_MAX - Duration::from_secs(60);
        for (digest, hash) in [(1, 7), (1, 8), (2, 8), (3, 8)] {
            cache.accept(&engine, &code, &[digest; 32], hash).unwrap();
            if digest != 3 {
                File::open(path(digest, hash)).unwrap().set_modified(old).unwrap();
            }
        }
        // Whoever still uses it keeps it.
        assert!(cache.load(&engine, &[2; 32], 8).is_some());
        Cache::open(&unbounded(&data), 7).unwrap();
        let left = [(1, 7), (1, 8), (2, 8), (3, 8)].map(|(digest, hash)| path(digest, hash).exists());
        assert_eq!(left, [true, false, true, true]);
    }

    #[test]
    fn code_cache_rejects_invalid_code() {
        let data = tempfile::tempdir().unwrap();
        let cache = Cache::open(&unbounded(&data), 7).unwrap();
        assert!(cache.accept(&Engine::default(), b"no code", &[1; 32], 7).is_err());
        assert_eq!(fs::read_dir(data.path().join("cache")).unwrap().count(), 0);
    }

    #[test]
    fn code_cache_is_private_and_replaces_exposed_key() {
        let data = tempfile::tempdir().unwrap();
        let first = Cache::open(&unbounded(&data), 7).unwrap().key;
        let path = data.path().join("cache.key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(data.path().join("cache")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(Cache::open(&unbounded(&data), 7).unwrap().key, first);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_ne!(Cache::open(&unbounded(&data), 7).unwrap().key, first);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn code_cache_key_of_foreign_owner_is_replaced() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("cache.key");
        let me = rustix::process::geteuid().as_raw();
        let first = key(&path, me).unwrap();
        assert_eq!(key(&path, me).unwrap(), first);
        // To anybody else, the file is somebody else's.
        assert_ne!(key(&path, me + 1).unwrap(), first);
    }
}
