//! What is fed to the host by strangers, each kind with one plain function that takes any bytes.
//!
//! Owns the list of them. There in tests and under a fuzzer only: the fuzzer's programs are in `fuzz/`, and what they have found or
//! begun with is in `fuzz/corpus/`, which the tests below feed to the same functions. Invariant: whatever the bytes are, nothing
//! panics, nothing hangs, and what must hold does.

use crate::{protocol, runtime, store};

/// Each target with its function; a program of the fuzzer and a folder of the corpus have its name.
pub const TARGETS: [(&str, fn(&[u8])); 8] = [
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
pub fn feed(name: &str, data: &[u8]) {
    for (_, target) in TARGETS.iter().filter(|(known, _)| *known == name) {
        target(data);
    }
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

    /// What was found once is never found again. Every file, whole and cut in half.
    fn replay(name: &str) {
        let mut fed = 0;
        for entry in fs::read_dir(folder("corpus").join(name)).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            feed(name, &bytes);
            feed(name, &bytes[..bytes.len() / 2]);
            fed += 1;
        }
        feed(name, b"");
        assert!(fed > 0);
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

    #[test]
    fn zz_write_seeds() {
        for (name, text) in [
            (
                "typed",
                r#"(component (core module $m (func (export "f") (result i32) i32.const 1)) (core instance $i (instantiate $m)) (func (export "f") (result u32) (canon lift (core func $i "f"))))"#,
            ),
            (
                "typed_text",
                r#"(component (core module $m (memory (export "mem") 1) (func (export "r") (param i32 i32 i32 i32) (result i32) i32.const 64) (func (export "f") (param i32 i32) (result i32) (i32.store (i32.const 8) (i32.const 16)) (i32.store (i32.const 12) (local.get 1)) i32.const 8)) (core instance $i (instantiate $m)) (func (export "f") (param "a" string) (result string) (canon lift (core func $i "f") (memory $i "mem") (realloc (func $i "r")))))"#,
            ),
            (
                "loops",
                r#"(component (core module $m (func (export "f") (loop br 0))) (core instance $i (instantiate $m)) (func (export "f") (canon lift (core func $i "f"))))"#,
            ),
            (
                "imports",
                r#"(component (import "evil:host/shell@1.0.0" (instance (export "run" (func (param "c" string))))))"#,
            ),
            (
                "many",
                r#"(component (core module (memory 1) (table 4 funcref) (global i32 (i32.const 1)) (data (i32.const 0) "abc")) (core module (func)))"#,
            ),
        ] {
            fs::write(folder("corpus/components").join(name), wat::parse_str(text).unwrap()).unwrap();
        }
    }
}
