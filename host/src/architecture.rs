//! The rules of `ARCHITECTURE.md` that can be read off the source.

use std::fs;
use std::path::{Path, PathBuf};

/// Each room with the rooms that it may know.
const ROOMS: [(&str, &[&str]); 15] = [
    ("domain", &[]),
    ("vault", &[]),
    ("audit", &["domain"]),
    ("store", &["domain", "vault"]),
    ("outward", &["domain"]),
    ("runtime", &["domain", "outward"]),
    ("secrets", &["domain", "vault", "store", "runtime"]),
    ("tasks", &["domain", "vault", "audit", "store", "runtime", "secrets"]),
    ("plugins", &["domain", "audit", "store", "runtime", "tasks"]),
    ("sources", &["domain", "audit", "outward", "runtime", "plugins"]),
    ("protocol", &["domain", "audit", "store", "runtime", "tasks"]),
    ("transport", &["domain", "audit", "outward", "store", "runtime", "tasks", "protocol"]),
    (
        "config",
        &[
            "domain",
            "vault",
            "audit",
            "outward",
            "store",
            "runtime",
            "secrets",
            "tasks",
            "plugins",
            "sources",
            "protocol",
            "transport",
        ],
    ),
    (
        "control",
        &[
            "domain",
            "vault",
            "audit",
            "outward",
            "store",
            "runtime",
            "secrets",
            "tasks",
            "plugins",
            "sources",
            "protocol",
            "transport",
            "config",
        ],
    ),
    (
        "cli",
        &[
            "domain",
            "vault",
            "audit",
            "outward",
            "store",
            "runtime",
            "secrets",
            "tasks",
            "plugins",
            "sources",
            "protocol",
            "transport",
            "config",
            "control",
        ],
    ),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The files of one room, its `mod.rs` or `ROOM.rs` included, without tests: those may reach further.
fn room(name: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root.join(name)).into_iter();
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let files = files.filter(|path| !path.components().any(|part| part.as_os_str() == "tests"));
    let files = files.filter(|path| path.file_name().is_some_and(|file| file != "tests.rs" && file != "suite.rs"));
    files.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// The code of a file up to its tests, without comments.
fn code(text: &str) -> String {
    crate::bounds::without_tests(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn every_folder_is_a_module_of_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(ROOMS.iter().any(|(module, _)| *module == name), "{name} has no row, so nobody looks at its imports");
    }
}

#[test]
fn code_behind_a_test_module_that_is_declared_on_top_is_looked_at() {
    let text = "#[cfg(test)]\nmod tests;\nuse crate::cli;\n#[cfg(test)]\nmod unit {\n    use crate::control;\n}\n";
    let seen = code(&format!("\n{text}"));
    assert!(seen.contains("crate::cli") && !seen.contains("crate::control"), "{seen}");
}

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for (name, known) in ROOMS {
        for (path, text) in room(name) {
            let code = code(&text);
            for part in code.split("crate::").skip(1) {
                let target: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_room = ROOMS.iter().any(|(room, _)| *room == target);
                if is_room && target != name && !known.contains(&target.as_str()) {
                    wrong.push(format!("{} knows {target}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_place_dials() {
    let mut wrong = Vec::new();
    for (name, _) in ROOMS {
        for (path, text) in room(name).into_iter().filter(|(path, _)| !path.ends_with("outward/dial.rs")) {
            let code = code(&text);
            for way in ["TcpStream::connect", "lookup_host", "ToSocketAddrs", "TlsConnector::from"] {
                if code.contains(way) {
                    wrong.push(format!("{} has {way} of its own", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_domain_is_pure() {
    for (path, text) in room("domain") {
        let code = code(&text);
        for line in code.lines().filter(|line| line.trim_start().starts_with("use ")) {
            let allowed =
                ["use std::", "use core::net::", "use super::", "use crate::domain", "pub(crate) use random_id"];
            assert!(allowed.iter().any(|start| line.trim_start().starts_with(start)), "{}: {line}", path.display());
        }
        for word in ["std::time", "std::fs", "std::net", "std::thread", "std::env", "serde", "tokio", "getrandom"] {
            assert!(!code.contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn each_library_has_one_importer() {
    let importers = [
        ("sled::", "store", &["tasks", "plugins", "sources", "protocol", "transport", "domain", "runtime"][..]),
        ("wasmtime", "runtime", &["tasks", "plugins", "sources", "protocol", "transport", "domain", "store"][..]),
        ("axum", "transport", &["tasks", "plugins", "sources", "protocol", "domain", "store", "runtime"][..]),
    ];
    for (library, owner, others) in importers {
        for name in others {
            for (path, text) in room(name) {
                assert!(!code(&text).contains(library), "{} names {library}, which belongs to {owner}", path.display());
            }
        }
    }
}

#[test]
fn no_wire_name_is_known_below_the_protocol() {
    for name in ["domain", "store", "runtime", "tasks", "plugins", "sources"] {
        for (path, text) in room(name) {
            for wire in
                ["\"taskId\"", "\"inputRequests\"", "\"isError\"", "\"pollInterval\"", "rename_all = \"camelCase\""]
            {
                assert!(!code(&text).contains(wire), "{} names {wire}", path.display());
            }
        }
    }
}
