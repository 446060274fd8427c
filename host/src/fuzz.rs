//! What is fed to the host by strangers, each kind with one plain function that takes any bytes.
//!
//! Owns the list of them. There in tests and under a fuzzer only: the fuzzer's programs are in `fuzz/`, and what they have found or
//! begun with is in `fuzz/corpus/`, which the tests below feed to the same functions. Invariant: whatever the bytes are, nothing
//! panics, nothing hangs, and what must hold does.

use crate::{protocol, runtime, store};

/// Takes any bytes; says whether they were what they claim to be, and so went deeper than a refusal.
type Target = fn(&[u8]) -> bool;

/// Each target with its function; a program of the fuzzer and a folder of the corpus have its name.
pub const TARGETS: [(&str, Target); 8] = [
    ("envelope", protocol::fuzz::envelope),
    ("legacy_params", protocol::fuzz::legacy_params),
    ("modern_params", protocol::fuzz::modern_params),
    ("cursors", protocol::fuzz::cursors),
    ("states", protocol::fuzz::states),
    ("records", store::fuzz::records),
    ("manifests", runtime::fuzz::manifests),
    ("components", runtime::fuzz::components),
];

/// Feeds one target; there is one of every name in [`TARGETS`].
pub fn feed(name: &str, data: &[u8]) -> bool {
    TARGETS.iter().any(|(known, target)| *known == name && target(data))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(name)
    }

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
        let mut programs: Vec<_> =
            fs::read_dir(folder("fuzz_targets")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        programs.sort();
        let mut named: Vec<std::ffi::OsString> = TARGETS.iter().map(|(name, _)| format!("{name}.rs").into()).collect();
        named.sort();
        assert_eq!(programs, named);
        for (name, _) in TARGETS {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
            let program = fs::read_to_string(folder("fuzz_targets").join(format!("{name}.rs"))).unwrap();
            assert!(program.contains(&format!("feed(\"{name}\", data)")), "{name}");
            assert!(fs::read_dir(folder("corpus").join(name)).unwrap().count() >= 4, "{name} begins with too little");
        }
    }

    /// What was found once is never found again. Every file, whole and cut in half; several of them are taken, so that what lies
    /// behind the refusals is reached.
    fn replay(name: &str) {
        let (mut fed, mut taken) = (0, 0);
        for entry in fs::read_dir(folder("corpus").join(name)).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            taken += u32::from(feed(name, &bytes));
            feed(name, &bytes[..bytes.len() / 2]);
            fed += 1;
        }
        feed(name, b"");
        assert!(taken >= 3, "{name}: {taken} of {fed} files were taken");
    }

    #[test]
    fn the_corpus_of_messages_is_replayed() {
        for name in ["envelope", "legacy_params", "modern_params", "cursors", "states"] {
            replay(name);
        }
    }

    #[test]
    fn the_corpus_of_records_is_replayed() {
        replay("records");
    }

    #[test]
    fn the_corpus_of_components_is_replayed() {
        for name in ["manifests", "components"] {
            replay(name);
        }
    }
}
