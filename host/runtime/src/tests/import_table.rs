//! The table of imports against what the linker really defines, and what passes the journal.

use std::collections::BTreeSet;
use std::process::Command;

use bulkhead_domain::imports::{self, INTERFACES, Journaled, Versions};
use wit_parser::Resolve;

use super::*;
use crate::call::Call;
use crate::engine::{self, EngineKind};
use crate::link;
use bulkhead_calls::journal::names::ALL;

/// That of guests of WASI 0.3, which has all that the others have.
fn linker() -> wasmtime::component::Linker<Call> {
    let kind = EngineKind::Concurrent;
    link::linker(&engine::for_compiling(kind, engine::Effort::Usual).unwrap(), kind).unwrap()
}

/// Every function that the packages of a folder have for guests to import, with its interface.
fn functions_of(folder: &Path) -> BTreeSet<(String, String)> {
    let mut resolve = Resolve { all_features: true, ..Resolve::default() };
    resolve.push_dir(folder).unwrap();
    functions(&resolve)
}

fn functions(resolve: &Resolve) -> BTreeSet<(String, String)> {
    let named = resolve.interfaces.iter().filter_map(|(id, interface)| Some((resolve.id_of(id)?, interface)));
    let each = |(name, interface): (String, &wit_parser::Interface)| {
        interface.functions.keys().map(|function| (name.clone(), function.clone())).collect::<Vec<_>>()
    };
    named.flat_map(each).collect()
}

/// The folder of a dependency's source.
fn source_of(package: &str) -> std::path::PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What other platforms need was never downloaded on a machine that has built nothing else.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["metadata", "--format-version", "1", "--offline"]);
    command.args(["--filter-platform", &platform]);
    let said = command.output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let found = packages.iter().find(|found| found["name"] == package).unwrap();
    Path::new(found["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// Every function that somebody has written down for guests to import.
fn known() -> BTreeSet<(String, String)> {
    let wit = [
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit"),
        source_of("wasmtime-wasi").join("src/p2/wit"),
        source_of("wasmtime-wasi-http").join("wit"),
        source_of("wasmtime-wasi-http").join("src/p3/wit"),
    ];
    let mut known: BTreeSet<_> = wit.iter().flat_map(|folder| functions_of(folder)).collect();
    known.extend(wasi_drafts::packages().iter().flat_map(functions));
    assert!(known.len() > 200, "{} functions are known", known.len());
    known
}

/// Whether the linker has something under this name: then nothing else can be put there.
fn is_defined(linker: &mut wasmtime::component::Linker<Call>, interface: &str, function: &str) -> bool {
    linker.instance(interface).unwrap().func_wrap(function, |_, (): ()| Ok(())).is_err()
}

#[test]
fn every_linked_import_has_a_row_and_every_row_is_linked() {
    let mut linker = linker();
    let mut linked = BTreeSet::new();
    let mut missing = Vec::new();
    let mut stale = Vec::new();
    let known = known();
    for (interface, function) in known.clone() {
        let row = imports::find(&interface).and_then(|row| row.class(&function));
        if is_defined(&mut linker, &interface, &function) {
            if row.is_none() {
                missing.push(format!("{function} of {interface}"));
            }
            linked.insert((interface.split('@').next().unwrap().to_owned(), function));
        } else if row.is_some() {
            stale.push((interface, function));
        }
    }
    assert!(missing.is_empty(), "linked and without a row in domain/src/imports/table.rs: {missing:?}");
    let rows = INTERFACES.iter().flat_map(|row| {
        row.functions.iter().flat_map(|(.., names)| *names).map(|name| (row.name.to_owned(), (*name).to_owned()))
    });
    stale.extend(rows.filter(|row| !linked.contains(row)));
    for row in INTERFACES {
        // Of a draft, each version has types of its own.
        let Versions::Exactly(versions) = row.versions else { continue };
        let names = versions.iter().map(|version| format!("{}@{version}", row.name).trim_end_matches('@').to_owned());
        let unknown = names.filter(|name| !row.functions.is_empty() && !known.iter().any(|(known, _)| known == name));
        stale.extend(unknown.map(|name| (name, "any function".to_owned())));
    }
    assert!(stale.is_empty(), "rows of functions that are not linked: {stale:?}");
}

#[test]
fn linked_import_without_a_row_is_noticed() {
    let mut linker = linker();
    assert!(is_defined(&mut linker, "wasi:io/poll@0.2.12", "poll"));
    assert!(!is_defined(&mut linker, "wasi:io/poll@0.2.12", "poll-later"));
    assert!(imports::find("wasi:io/poll@0.2.12").unwrap().class("poll-later").is_none());
}

/// An import that the journal has something to do with and that does not pass it would be a hole; and what passes it
/// has a row.
#[test]
fn imports_with_entries_pass_the_journal() {
    let passes = |rule| !matches!(rule, Journaled::Again | Journaled::GivesUp | Journaled::Never);
    let rows = INTERFACES.iter().flat_map(|interface| {
        let rows = interface.functions.iter().filter(|(_, rule, _)| passes(*rule));
        rows.flat_map(|(.., names)| *names).map(|function| (interface.name, *function))
    });
    let rows: BTreeSet<_> = rows.collect();
    let passing: BTreeSet<_> = ALL.iter().map(|import| (import.interface, import.function)).collect();
    let holes: Vec<_> = rows.difference(&passing).collect();
    assert!(holes.is_empty(), "the table says that these have entries, and they do not pass the journal: {holes:?}");
    for (name, function) in passing {
        let rules = INTERFACES.iter().filter(|row| row.name == name).filter_map(|row| row.journaled(function));
        assert!(rules.into_iter().any(|rule| rule != Journaled::Never), "{function} of {name} has no row");
    }
}
