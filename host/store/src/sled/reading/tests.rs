//! What is read without the engine is what the engine recovers.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::super::database::{DataState, engine, find};
use super::super::group::Totals;
use super::super::open::examine_rows;
use super::super::tests::{copy_folder, options, rounds, runtime};
use super::*;
use crate::TaskStore;
use crate::samples::{completion, creation, output, requestor, task};
use crate::sled::SledStore;

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    copy_folder(from, to.path());
    to
}

fn layout(database: &Path) -> Layout {
    Layout { database: database.to_owned(), ..Layout::new(database) }
}

/// The sum over all rows, as it is read here.
fn read(database: &Path) -> Result<Totals, Doubt> {
    let layout = layout(database);
    let file = File::open(layout.database_file())?;
    let pages = recovery::pages(&layout, &file)?;
    Ok(tree::examine(&file, &pages)?.totals())
}

/// The same by the engine, which changes the files.
fn recover(database: &Path) -> Totals {
    let db = engine(database, 8 << 20).unwrap();
    let mut census = Totals::default();
    for row in db.iter() {
        let (key, value) = row.unwrap();
        census.count(&key, &value);
    }
    census
}

/// Draws numbers, the same ones every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One group of writes: mostly new rows, or mostly removals.
fn batch(draw: &mut Draw, removes: bool) -> ::sled::Batch {
    let mut batch = ::sled::Batch::default();
    for _ in 0..=draw.below(60) {
        let key = format!("{}-{:05}", ["a", "b", "some longer prefix"][draw.below(3) as usize], draw.below(6_000));
        if draw.below(10) < if removes { 8 } else { 2 } {
            batch.remove(key.as_bytes());
        } else {
            let bytes = [0, 20, 300, 4_000][draw.below(4) as usize];
            batch.insert(key.as_bytes(), vec![draw.below(256) as u8; bytes]);
        }
    }
    batch
}

/// Copies of the files of a database in use are what a kill leaves.
#[test]
fn rows_read_without_the_engine_are_those_it_recovers() {
    let mut compared = 0;
    let mut doubts = Vec::new();
    for seed in 0..u64::from(rounds(1, 60)) {
        let mut draw = Draw(seed);
        let dir = tempfile::tempdir().unwrap();
        for life in 0..4 {
            let db = engine(dir.path(), 1 << 20).unwrap();
            let mut killed = Vec::new();
            for group in 0..200 {
                db.apply_batch(batch(&mut draw, life % 2 == 1)).unwrap();
                if draw.below(3) > 0 {
                    db.flush().unwrap();
                }
                if group % 50 == 49 {
                    killed.push(copy(dir.path()));
                }
            }
            drop(db);
            killed.push(copy(dir.path()));
            for killed in killed {
                let before = fs::read(killed.path().join("db")).unwrap();
                let read = read(killed.path());
                assert!(fs::read(killed.path().join("db")).unwrap() == before);
                match read {
                    Ok(census) => {
                        assert_eq!(census, recover(killed.path()), "seed {seed}, life {life}");
                        compared += 1;
                    }
                    Err(doubt) => doubts.push(doubt),
                }
            }
        }
    }
    assert!(doubts.len() * 10 <= compared, "{compared} compared, in doubt: {doubts:?}");
}

/// Eight bytes, a block, or the rest of a file: whatever is found sound is what the engine recovers.
#[test]
fn damage_to_a_killed_database_is_in_doubt_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let mut draw = Draw(7);
    let mut killed = None;
    for _ in 0..2 {
        let db = engine(dir.path(), 1 << 20).unwrap();
        for _ in 0..60 {
            db.apply_batch(batch(&mut draw, false)).unwrap();
            db.flush().unwrap();
        }
        killed = Some(copy(dir.path()));
    }
    let killed = killed.unwrap();
    let expected = read(killed.path()).unwrap();
    // Whether anything random is harmless depends on what the engine had merged; bytes behind the log always are.
    let longer = copy(killed.path());
    let mut file = fs::OpenOptions::new().append(true).open(longer.path().join("db")).unwrap();
    file.write_all(&[0x5a; 8]).unwrap();
    assert_eq!(read(longer.path()).as_ref(), Ok(&expected));
    assert_eq!(recover(longer.path()), expected);
    let mut doubts = 0;
    for round in 0..rounds(60, 2_000) {
        let damaged = copy(killed.path());
        let file = if draw.below(8) == 0 { newest_snapshot(damaged.path()) } else { damaged.path().join("db") };
        let mut bytes = fs::read(&file).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        let at = draw.below(used) as usize;
        match round % 4 {
            0 => bytes.truncate(at),
            1 => bytes.iter_mut().skip(at).take(4_096).for_each(|byte| *byte = 0),
            _ => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte ^= 0x5a),
        }
        fs::write(&file, bytes).unwrap();
        match read(damaged.path()) {
            Err(_) => doubts += 1,
            // A log that ends earlier is an older database: its last group says so.
            Ok(census) => {
                assert_eq!(census, recover(damaged.path()), "round {round}, byte {at} of {}", file.display());
            }
        }
    }
    assert!(doubts > 0);
}

fn newest_snapshot(database: &Path) -> PathBuf {
    let entries = fs::read_dir(database).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("snap.")).max().unwrap()
}

/// Writes and removes tasks of every size.
fn filled(dir: &Path) -> std::sync::Arc<SledStore> {
    let store = SledStore::open(options(dir)).unwrap();
    runtime().block_on(async {
        for number in 0..400u64 {
            let created = store.create(creation(task(requestor(1, (number % 4) as u8), number))).await.unwrap();
            let bytes = [100, 3_000, 20_000, 70_000][number as usize % 4];
            let done = store.commit(completion(&created, output("x".repeat(bytes)))).await.unwrap();
            if number % 5 == 0 {
                store.remove(&done.requestor, done.id).await.unwrap();
            }
        }
    });
    store
}

#[test]
fn killed_store_is_known_as_sound_without_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let killed = copy(dir.path());
    drop(store);
    let layout = Layout::new(killed.path());
    let DataState::Database(state) = find(&layout).unwrap() else { panic!("there is one") };
    let read = examine(&layout, &state).unwrap();
    let recovered = examine_rows(&layout, &state).unwrap();
    assert_eq!((read.group, &read.orphans), (recovered.group, &recovered.orphans));
    assert_eq!(read.ledger.holders(), recovered.ledger.holders());
    assert_eq!(read.ledger.holders().len(), 4);
}

#[test]
fn database_of_another_state_is_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path()));
    let layout = Layout::new(dir.path());
    let DataState::Database(state) = find(&layout).unwrap() else { panic!("there is one") };
    assert!(examine(&layout, &state).is_ok());
    assert!(examine(&layout, &State::new([1; 16])).is_err());
    assert!(examine(&layout, &state.at(state.group + 1)).is_err());
    fs::write(layout.database.join("blobs/1"), "").unwrap();
    assert!(examine(&layout, &state).is_err());
}
