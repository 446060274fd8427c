//! Damaged, old and foreign databases are refused, and the refusal says what to do.

use std::fs;
use std::path::{Path, PathBuf};

use super::{copy_folder, open, options, rounds, runtime};
use crate::samples::{completion, creation, output, requestor, task};
use crate::sled::{SledStore, check, export, rebuild};
use crate::{Error, RowKind, RowStore, TaskStore};

/// A closed store with tasks of all sizes.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 1);
    dir
}

fn fill(dir: &Path, first: u64) {
    let store = open(dir);
    runtime().block_on(async {
        for number in first..first + 60 {
            let created = store.create(creation(task(requestor(1, (number % 4) as u8), number))).await.unwrap();
            let bytes = [100, 3_000, 20_000, 70_000][number as usize % 4];
            store.commit(completion(&created, output("x".repeat(bytes)))).await.unwrap();
        }
        store.put_row(RowKind::Token, b"t", b"v".to_vec(), false).await.unwrap();
        store.close().await.unwrap();
    });
}

fn database(dir: &Path) -> PathBuf {
    dir.join("store/sled/db")
}

fn refusal(dir: &Path) -> String {
    match SledStore::open(options(dir)) {
        Err(Error::Corrupt(reason)) => {
            assert!(
                reason.contains("`bulkhead store export`") && reason.contains("`bulkhead store rebuild`"),
                "{reason}"
            );
            reason
        }
        Err(other) => panic!("refused as {other:?}"),
        Ok(_) => panic!("a damaged database was opened"),
    }
}

/// Every flipped byte either lies where nothing is read any more, or is noticed: the store never opens with less in it.
/// What is refused stays as it is on disk, and what can be saved of it makes a sound store.
#[test]
fn flipped_store_bytes_are_noticed_or_harmless() {
    let sound = filled();
    let expected = check(sound.path()).unwrap();
    assert_eq!((expected.tasks, expected.rows, &*expected.problems), (60, 1, &[] as &[String]));
    let written = fs::read(database(sound.path())).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    let mut refused = 0;
    let mut rebuilt = 0;
    let tries = rounds(24, 400);
    for round in 0..tries {
        let dir = tempfile::tempdir().unwrap();
        copy_folder(sound.path(), dir.path());
        let mut bytes = fs::read(database(dir.path())).unwrap();
        let at = written * round as usize / tries as usize + 7 * round as usize % 64;
        for byte in bytes.iter_mut().skip(at).take(8) {
            *byte ^= 0x5a;
        }
        fs::write(database(dir.path()), &bytes).unwrap();
        match SledStore::open(options(dir.path())) {
            Err(Error::Corrupt(_)) => {
                refused += 1;
                rebuilt += u32::from(rebuilds(dir.path(), &bytes));
            }
            Err(other) => panic!("byte {at} refused as {other:?}"),
            Ok(store) => {
                drop(store);
                assert_eq!(check(dir.path()).unwrap(), expected, "byte {at} changed what is stored");
            }
        }
    }
    // Most of the file is what later writes have replaced.
    assert!(refused > 0 && rebuilt > 0, "{refused} noticed, {rebuilt} rebuilt");
}

/// Saves what can be saved of a refused store.
fn rebuilds(dir: &Path, bytes: &[u8]) -> bool {
    assert_ne!(check(dir).unwrap().problems, [] as [String; 0]);
    let mut lines = Vec::new();
    let exported = export(dir, &mut lines);
    assert!(fs::read(database(dir)).unwrap() == bytes, "looking at a damaged database changed it");
    let (moved, old) = match (exported, rebuild(dir, None)) {
        (Ok(exported), Ok((moved, old))) => {
            assert_eq!(moved, exported);
            (moved, old)
        }
        (Err(Error::Corrupt(one)), Err(Error::Corrupt(_))) => {
            assert!(one.contains("put a backup"), "{one}");
            return false;
        }
        other => panic!("{other:?}"),
    };
    assert!(!moved.lost.is_empty());
    assert!(fs::read(old.join("sled/db")).unwrap() == bytes, "the rebuild changed the damaged database");
    let report = check(dir).unwrap();
    assert_eq!((report.tasks, &*report.problems), (moved.tasks, &[] as &[String]));
    drop(open(dir));
    true
}

#[test]
fn one_flipped_bit_in_a_live_row_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let marker = b"a value that occurs nowhere else";
    let store = open(dir.path());
    runtime().block_on(async {
        store.put_row(RowKind::Secret, b"k", marker.to_vec(), true).await.unwrap();
        store.close().await.unwrap();
    });
    drop(store);
    fill(dir.path(), 1);
    let mut bytes = fs::read(database(dir.path())).unwrap();
    let places: Vec<usize> = (0..bytes.len() - marker.len()).filter(|at| bytes[*at..].starts_with(marker)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 3] ^= 1;
    }
    fs::write(database(dir.path()), bytes).unwrap();
    refusal(dir.path());
    assert_ne!(check(dir.path()).unwrap().problems, [] as [String; 0]);
}

#[test]
fn truncated_store_is_refused() {
    let sound = filled();
    let length = fs::metadata(database(sound.path())).unwrap().len();
    for kept in [0, 1, length / 4, length / 2] {
        let dir = tempfile::tempdir().unwrap();
        copy_folder(sound.path(), dir.path());
        fs::File::options().write(true).open(database(dir.path())).unwrap().set_len(kept).unwrap();
        refusal(dir.path());
        // A refusal changes nothing: the second one is the same.
        refusal(dir.path());
    }
}

#[test]
fn older_store_copy_is_refused() {
    let dir = filled();
    let old = tempfile::tempdir().unwrap();
    copy_folder(&dir.path().join("store/sled"), old.path());
    fill(dir.path(), 1_000);
    fs::remove_dir_all(dir.path().join("store/sled")).unwrap();
    copy_folder(old.path(), &dir.path().join("store/sled"));
    assert!(refusal(dir.path()).contains("older"));
}

#[test]
fn newer_store_copy_is_refused() {
    let dir = filled();
    let old = fs::read(dir.path().join("store/state")).unwrap();
    fill(dir.path(), 1_000);
    fs::write(dir.path().join("store/state"), old).unwrap();
    assert!(refusal(dir.path()).contains("another copy"));
}

#[test]
fn database_of_another_store_is_refused() {
    let dir = filled();
    let other = filled();
    fs::remove_dir_all(dir.path().join("store/sled")).unwrap();
    copy_folder(&other.path().join("store/sled"), &dir.path().join("store/sled"));
    assert!(refusal(dir.path()).contains("different stores"));
}

#[test]
fn store_with_missing_half_is_refused_and_not_created() {
    let dir = filled();
    let copy = tempfile::tempdir().unwrap();
    copy_folder(dir.path(), copy.path());
    fs::remove_file(dir.path().join("store/state")).unwrap();
    assert!(refusal(dir.path()).contains("state is missing"));
    assert!(!dir.path().join("store/state").exists());
    fs::remove_dir_all(copy.path().join("store/sled")).unwrap();
    assert!(refusal(copy.path()).contains("db is missing"));
    assert!(!copy.path().join("store/sled").exists());
}

#[test]
fn damaged_store_state_file_is_refused() {
    let dir = filled();
    fs::write(dir.path().join("store/state"), [0xff; 1024]).unwrap();
    assert!(refusal(dir.path()).contains("no valid state"));
}

#[test]
fn torn_store_state_slot_falls_back_to_the_other() {
    let dir = filled();
    let path = dir.path().join("store/state");
    let sound = fs::read(&path).unwrap();
    for slot in [0, 512] {
        let mut torn = sound.clone();
        torn[slot + 10] ^= 1;
        fs::write(&path, &torn).unwrap();
        // Whichever slot was the newer one: the other is at most a second behind, and a group behind is no loss.
        drop(SledStore::open(options(dir.path())).unwrap());
        fs::write(&path, &sound).unwrap();
        drop(open(dir.path()));
    }
}

#[test]
fn damaged_payload_file_is_reported() {
    let dir = filled();
    let files = dir.path().join("store/files");
    let first = fs::read_dir(&files).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&first).unwrap();
    bytes[1_000] ^= 1;
    fs::write(&first, bytes).unwrap();
    let report = check(dir.path()).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
}

#[test]
fn interrupted_store_creation_is_repeated() {
    let dir = filled();
    let layout = crate::sled::Layout::new(dir.path());
    fs::remove_file(&layout.state).unwrap();
    drop(crate::sled::StateFile::open(&layout.state, crate::sled::State::new([1; 16])).unwrap());
    let store = open(dir.path());
    assert_eq!(runtime().block_on(store.scan(None, 9)).unwrap(), []);
}

#[test]
fn locked_store_error_names_the_owning_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let own = std::process::id().to_string();
    for refused in [SledStore::open(options(dir.path())).map(drop), check(dir.path()).map(drop)] {
        match refused {
            Err(Error::Locked(reason)) => assert!(reason.contains(&own), "{reason}"),
            other => panic!("not locked: {other:?}"),
        }
    }
    drop(store);
    open(dir.path());
}

#[test]
fn leftover_store_files_are_removed_at_opening() {
    let dir = filled();
    let files = dir.path().join("store/files");
    let before = fs::read_dir(&files).unwrap().count();
    fs::write(files.join("00000000000000000000000000000000"), "orphan").unwrap();
    fs::write(files.join("11111111111111111111111111111111.part"), "unfinished").unwrap();
    drop(open(dir.path()));
    assert_eq!(fs::read_dir(&files).unwrap().count(), before);
    assert_eq!(check(dir.path()).unwrap().problems, [] as [String; 0]);
}
