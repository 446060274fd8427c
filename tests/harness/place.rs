//! Where the built things are.

use std::fs::DirBuilder;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").to_path_buf()
}

/// The `bulkhead` program: `XTASK_HOST_BIN`, or the one that was built beside the running test.
pub fn host_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("XTASK_HOST_BIN") {
            return PathBuf::from(path);
        }
        let here = std::env::current_exe().expect("the running program has a path");
        let found = here.ancestors().skip(1).take(2).map(|folder| folder.join("bulkhead")).find(|path| path.is_file());
        let binary =
            found.unwrap_or_else(|| panic!("there is no `bulkhead` near {}: run `cargo build`", here.display()));
        refuse_stale(&binary);
        binary
    })
}

/// Whether the host under test can be ended at a crash point: that is in builds with debug assertions.
pub fn has_crash_points() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let output = std::process::Command::new(host_binary()).arg("--version").output().expect("the host starts");
        String::from_utf8_lossy(&output.stdout).contains("(debug build)")
    })
}

/// A test of yesterday's host proves nothing: `cargo test --workspace` rebuilds the program, `cargo test -p tests` does
/// not.
fn refuse_stale(binary: &Path) {
    let built = modified(binary);
    let newest = newest_below(&root().join("host"));
    assert!(newest <= built, "{} is older than its sources: run `cargo build -p bulkhead` first", binary.display());
}

fn newest_below(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).expect("the sources can be read");
    entries
        .map(|entry| {
            let path = entry.expect("the sources can be read").path();
            // Documents are no sources, and what is only packaged is not compiled.
            let is_document = path.extension().is_some_and(|extension| extension == "md" || extension == "svg");
            match is_document || path.ends_with("host/contrib") {
                true => SystemTime::UNIX_EPOCH,
                false if path.is_dir() => newest_below(&path),
                false => modified(&path),
            }
        })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|metadata| metadata.modified()).expect("files have a modification time")
}

/// A component that `cargo xtask plugins` has built.
pub fn component(name: &str) -> PathBuf {
    let path = root().join("target/plugins").join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing: run `cargo xtask plugins`", path.display());
    path
}

/// Whether a test that needs one of these languages' tools (`python`, `javascript`, `c`) cannot be run, as `cargo xtask
/// test` says in `XTASK_WITHOUT`; then it is said why. Where they are required nothing is left out.
pub fn left_out(languages: &[&str]) -> bool {
    if std::env::var("XTASK_SCRIPT_GUESTS").as_deref() == Ok("required") {
        return false;
    }
    let without = std::env::var("XTASK_WITHOUT").unwrap_or_default();
    let missing = without.split(',').find(|missing| languages.contains(missing));
    if let Some(language) = missing {
        eprintln!("not run: the tools for guests in {language} are missing (`cargo xtask plugins` says which)");
    }
    missing.is_some()
}

/// How Cargo is called on this machine to compile for guests, as `cargo xtask plugins` found out: arguments, and
/// variables of the environment.
pub fn guest_toolchain() -> (Vec<String>, Vec<(String, String)>) {
    let path = root().join("target/guests/toolchain.json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run `cargo xtask plugins`", path.display()));
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let arguments = written["arguments"].as_array().into_iter().flatten().map(word).collect();
    let variables = written["variables"].as_object().into_iter().flatten();
    (arguments, variables.map(|(key, value)| (key.clone(), word(value))).collect())
}

/// A folder with a code cache and its key, for hosts that share what they compile: with the commands of
/// [`crate::command`] and the unit tests of the sandbox, too. What no run has used for a week is removed.
pub fn compiled_code() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = root().join("target/test-code/bulkhead");
        let cache = folder.join("cache");
        // Commands take code from no folder that others may write to.
        DirBuilder::new().recursive(true).mode(0o700).create(&cache).expect("a folder");
        let old = SystemTime::now() - Duration::from_secs(7 * 24 * 3600);
        for entry in std::fs::read_dir(&cache).expect("the folder can be read").flatten() {
            if modified(&entry.path()) < old {
                // Another run may have been faster.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let key = folder.join("cache.key");
        if !key.is_file() {
            let drawn = std::fs::File::open("/dev/urandom").and_then(|mut random| {
                let mut bytes = [0; 32];
                random.read_exact(&mut bytes).map(|()| bytes)
            });
            let aside = folder.join(format!("key.{}", std::process::id()));
            std::fs::write(&aside, drawn.expect("random bytes")).expect("a key");
            std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600)).expect("a private key");
            std::fs::rename(&aside, &key).expect("a key");
        }
        folder
    });
    folder.clone()
}

/// Another version of a component: the same with one text in it replaced by one of the same length.
pub fn variant(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "the rest of the component must not move");
    let mut bytes = std::fs::read(component(name)).expect("the component can be read");
    let places: Vec<_> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{name} holds no {from:?}");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

/// How much a run may take: `XTASK_TEST_MODE=nightly` multiplies rounds, everything else is the gate.
pub fn rounds(gate: u32, nightly: u32) -> u32 {
    match std::env::var("XTASK_TEST_MODE").as_deref() {
        Ok("nightly") => nightly,
        Ok("gate") | Err(_) => gate,
        Ok(other) => panic!("XTASK_TEST_MODE is `{other}`: use gate or nightly"),
    }
}
