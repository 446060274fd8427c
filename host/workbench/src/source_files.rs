//! The files of a project that its component is made of.
//!
//! Owns which files these are. Must not read more of them than is asked for. Invariant: what a build, an editor or a
//! log leaves in the folder is none of them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// Folders that hold no sources. Names that begin with a dot are passed over as well.
const NO_SOURCES: [&str; 4] = ["target", "node_modules", "__pycache__", "bulkhead-data"];
/// Folders of which every file goes into the component.
const EMBEDDED: [&str; 2] = ["src", "skills"];
/// Folders that hold none unless they are below `src`, where they are modules.
const OUTPUTS: [&str; 3] = ["build", "dist", "venv"];
/// What is no source even in a folder `src`.
const LEFTOVER_ENDS: [&str; 9] = ["log", "out", "err", "tmp", "bak", "orig", "swp", "swo", "part"];
/// What components are made of, by the ends of the files' names.
const SOURCE_ENDS: [&str; 12] = ["rs", "py", "pyi", "js", "mjs", "cjs", "ts", "c", "h", "json", "toml", "wit"];

/// Every source with its time and size.
pub(super) type Sources = Vec<(PathBuf, Option<SystemTime>, u64)>;

/// Hashes what is in the sources. Each comes with its length, so that no two of them read like others.
pub(super) fn contents(sources: &[(PathBuf, Option<SystemTime>, u64)]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (path, ..) in sources {
        // What cannot be read any more is as good as empty.
        let bytes = std::fs::read(path).unwrap_or_default();
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(bytes.len().to_le_bytes());
        hash.update(bytes);
    }
    hash.finalize().into()
}

pub(super) fn sources(folder: &Path) -> anyhow::Result<Sources> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), false)];
    while let Some((folder, is_embedded)) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            // What is gone by now is no source any more.
            let Ok(facts) = entry.metadata() else { continue };
            if name.starts_with('.') || name == "Cargo.lock" {
                continue;
            }
            if facts.is_dir() {
                let is_output = !is_embedded && OUTPUTS.contains(&name.as_str());
                if !is_output && !NO_SOURCES.contains(&name.as_str()) {
                    folders.push((path, is_embedded || EMBEDDED.contains(&name.as_str())));
                }
                continue;
            }
            let is_source = name.rsplit_once('.').is_some_and(|(_, end)| SOURCE_ENDS.contains(&end));
            if !is_own_log(&facts) && (is_source || is_embedded && !is_leftover(&name)) {
                found.push((path, facts.modified().ok(), facts.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What editors and programs leave beside the files of `src`, of which Rust may embed any other.
fn is_leftover(name: &str) -> bool {
    name.ends_with('~')
        || name.starts_with('#')
        || name.rsplit_once('.').is_some_and(|(_, end)| LEFTOVER_ENDS.contains(&end))
}

/// Whether this process writes the file: its logs, sent there by a shell.
fn is_own_log(facts: &Metadata) -> bool {
    let is_same = |stat: rustix::io::Result<rustix::fs::Stat>| {
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (facts.dev(), facts.ino()))
    };
    is_same(rustix::fs::fstat(std::io::stderr())) || is_same(rustix::fs::fstat(std::io::stdout()))
}

/// The source that changed last, if that was after the component was made. What only tests read is passed over.
pub(super) fn newer_than(component: &Path, folder: &Path, tests: &Path) -> anyhow::Result<Option<PathBuf>> {
    let facts = component.metadata().and_then(|facts| facts.modified());
    let made = facts.with_context(|| format!("{} cannot be read", component.display()))?;
    let tests = std::path::absolute(tests)?;
    let is_of_tests =
        |path: &Path| is_test(path) || std::path::absolute(path).is_ok_and(|path| path.starts_with(&tests));
    let is_newer = |(path, modified, _): (PathBuf, Option<SystemTime>, u64)| {
        let modified = modified.filter(|modified| *modified > made && !is_of_tests(&path))?;
        Some((modified, path))
    };
    Ok(sources(folder)?.into_iter().filter_map(is_newer).max().map(|(_, path)| path))
}

/// Whether a language's own tests are in it, which no component holds.
fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_of_python = name.starts_with("test_") && name.ends_with(".py") || name == "conftest.py";
    is_of_python || [".test.js", ".test.mjs", ".test.ts"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn dev_sources_exclude_build_output() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| write(folder.path(), name, "x");
        write("plugin.py");
        let before = sources(folder.path()).unwrap();
        for name in ["hello.wasm", "hello.part", "target/x.rs", "node_modules/a/b.js", "__pycache__/plugin.pyc"] {
            write(name);
        }
        for name in [".venv/x.py", "venv/x.py", "dist/plugin.js", "build/lib/plugin.py", ".bulkhead-dev/store"] {
            write(name);
        }
        assert_eq!(sources(folder.path()).unwrap(), before);
        write("package/more.py");
        write("src/build/mod.rs");
        assert_eq!(sources(folder.path()).unwrap().len(), 3);
    }

    #[test]
    fn dev_sources_exclude_logs_notes_and_editor_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| write(folder.path(), name, "x");
        write("Cargo.toml");
        write("src/lib.rs");
        write("src/prompt.txt");
        write("skills/review/SKILL.md");
        let before = sources(folder.path()).unwrap();
        assert_eq!(before.len(), 4, "what Rust embeds is a source, and so is a skill");
        for name in ["dev.err", "host.log", "notes.md", "TODO", "plugin.py~", "4913", "out.txt", ".plugin.py.swp"] {
            write(name);
        }
        for name in ["src/lib.rs~", "src/#lib.rs#", "src/debug.log", "src/lib.rs.bak"] {
            write(name);
        }
        assert_eq!(sources(folder.path()).unwrap(), before);
    }

    #[test]
    fn dev_source_rewritten_unchanged_is_not_a_change() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "plugin.js", "one");
        let first = sources(folder.path()).unwrap();
        let built = contents(&sources(folder.path()).unwrap());
        let later = SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options()
            .write(true)
            .open(folder.path().join("plugin.js"))
            .unwrap()
            .set_modified(later)
            .unwrap();
        let again = sources(folder.path()).unwrap();
        assert_ne!(again, first);
        assert_eq!(contents(&again), built);
        write(folder.path(), "plugin.js", "two");
        assert_ne!(contents(&sources(folder.path()).unwrap()), built);
    }

    #[test]
    fn newest_source_after_the_component_is_found_and_tests_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let component = folder.path().join("hello.wasm");
        let tests = folder.path().join("tests");
        let at = |name: &str, seconds: u64| {
            write(folder.path(), name, "x");
            let file = std::fs::File::options().write(true).open(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        let newer = || newer_than(&component, folder.path(), &tests).unwrap();
        at("hello.wasm", 1_000);
        at("plugin.py", 999);
        at("words/read.py", 1_000);
        for name in ["tests/plugin.toml", "test_plugin.py", "words/test_read.py", "plugin.test.js", "notes.md"] {
            at(name, 2_000);
        }
        assert_eq!(newer(), None);
        at("manifest.toml", 1_001);
        assert_eq!(newer(), Some(folder.path().join("manifest.toml")));
        at("words/read.py", 1_002);
        assert_eq!(newer(), Some(folder.path().join("words/read.py")));
    }
}
