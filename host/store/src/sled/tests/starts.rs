//! What a start reads: after a clean end what the mark covers, after anything else every row.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{copy_folder, options, rounds, runtime};
use crate::samples::{creation, output, requestor, task, task_id};
use crate::sled::database::{self, DataState, GroupRow};
use crate::sled::layout::Layout;
use crate::sled::{ProbeMode, SledOptions, SledStore, StateFile, keys, mark, salvage, state};
use crate::{Creation, Error, RowKind, RowStore, TaskStore};
use bulkhead_domain::task::{Outcome, Phase, Retention, Task};

const TASKS: u64 = 60;

fn open(dir: &Path) -> Arc<SledStore> {
    SledStore::open(options(dir)).unwrap()
}

/// Opens a store that must not need an examination: this program cannot be its own probe.
fn open_unexamined(dir: &Path) -> Result<Arc<SledStore>, Error> {
    SledStore::open(SledOptions { probe: ProbeMode::Child, ..options(dir) })
}

fn assert_examined(dir: &Path) {
    match open_unexamined(dir) {
        Err(Error::Engine(reason)) => assert!(reason.contains("its own probe"), "{reason}"),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the database was not examined"),
    }
}

/// A task that is over from the start, of one of four requestors in two tenants.
fn ended(number: u64) -> Creation {
    let owner = requestor((number % 2) as u8, (number % 4) as u8);
    let phase = Phase::Ended(Outcome::Output { is_error: false });
    let retention = Retention::FromCreation { ttl_ms: u64::MAX >> 16 };
    let bytes = [100, 1_000, 3_000, 70_000][number as usize % 4];
    let output = Some(Arc::new(output(format!("{number} ").repeat(bytes / 4))));
    Creation { output, ..creation(Task { phase, retention, ..task(owner, number) }) }
}

async fn fill(store: &Arc<SledStore>, numbers: std::ops::Range<u64>) {
    let writers = (0..64).map(|writer| {
        let store = Arc::clone(store);
        let numbers = numbers.clone();
        tokio::spawn(async move {
            for number in numbers.skip(writer).step_by(64) {
                store.create(ended(number)).await.unwrap();
            }
        })
    });
    futures::future::join_all(writers).await.into_iter().for_each(|written| written.unwrap());
}

/// A store with tasks of every size that was closed properly.
fn closed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    runtime().block_on(async {
        fill(&store, 0..TASKS).await;
        store.put_row(RowKind::Token, b"t", b"v".to_vec(), false).await.unwrap();
        store.close().await.unwrap();
    });
    dir
}

/// Opens a store and closes it again, so that it has a mark that counts.
fn touch(dir: &Path) {
    let store = open(dir);
    runtime().block_on(store.close()).unwrap();
    drop(store);
    assert!(is_marked(dir), "a store that was closed has a mark");
}

fn is_marked(dir: &Path) -> bool {
    let layout = Layout::new(dir);
    let Ok(DataState::Database(state)) = database::find(&layout) else { return false };
    mark::recall(&layout, &state).is_some()
}

/// Whether everything is there and right; an error where something cannot be read. What is gone without an error fails
/// the test.
fn read(store: &SledStore) -> Result<(), Error> {
    runtime().block_on(async {
        for number in 0..TASKS {
            let wanted = ended(number);
            let owner = wanted.task.requestor;
            let found = store.with_output(&owner, task_id(number)).await?;
            let (task, output) = found.unwrap_or_else(|| panic!("task {number} is lost, and nobody says so"));
            assert_eq!((task.created_at, output.map(Arc::new)), (number, wanted.output), "task {number}");
            let listed = store.list(&owner, None, 1_000).await?;
            assert!(listed.iter().any(|task| task.id == task_id(number)), "task {number} is not listed");
        }
        assert_eq!(store.row(RowKind::Token, b"t").await?, Some(b"v".to_vec()));
        Ok(())
    })
}

fn usages(store: &SledStore) -> Vec<(u64, u64)> {
    let usage = |(tenant, id)| runtime().block_on(store.usage(&requestor(tenant, id))).unwrap();
    let both = [(0, 0), (1, 1), (0, 2), (1, 3)].map(usage);
    both.iter().flat_map(|(own, tenant)| [(own.tasks, own.bytes), (tenant.tasks, tenant.bytes)]).collect()
}

#[test]
fn cleanly_closed_store_opens_without_examination() {
    let dir = closed();
    let store = open(dir.path());
    let counted = usages(&store);
    assert_eq!(counted.iter().step_by(2).map(|(tasks, _)| tasks).sum::<u64>(), TASKS);
    runtime().block_on(store.close()).unwrap();
    drop(store);
    for _ in 0..2 {
        let store = open_unexamined(dir.path()).unwrap();
        assert_eq!(usages(&store), counted);
        read(&store).unwrap();
        runtime().block_on(store.close()).unwrap();
    }
    // What happens meanwhile is counted too.
    let store = open_unexamined(dir.path()).unwrap();
    runtime().block_on(store.remove(&requestor(0, 0), task_id(0))).unwrap();
    let counted = usages(&store);
    runtime().block_on(store.close()).unwrap();
    drop(store);
    assert_eq!(usages(&open_unexamined(dir.path()).unwrap()), counted);
    assert_eq!(usages(&open(dir.path())), counted);
}

#[test]
fn open_store_has_no_clean_close_mark() {
    let dir = closed();
    let layout = Layout::new(dir.path());
    assert!(is_marked(dir.path()) && layout.counts.exists());
    let store = open(dir.path());
    assert!(!is_marked(dir.path()) && !layout.counts.exists());
    assert!(fs::read(&layout.state).unwrap()[1_024..].iter().all(|byte| *byte == 0));
    // A kill: the copy of an open store.
    let killed = tempfile::tempdir().unwrap();
    copy_folder(&dir.path().join("store"), &killed.path().join("store"));
    drop(store);
    assert_examined(killed.path());
    read(&open(killed.path())).unwrap();
}

#[test]
fn later_slot_of_the_state_invalidates_the_clean_close_mark() {
    let idle = closed();
    let busy = closed();
    let mut counted = Vec::new();
    for (dir, writes) in [(&idle, false), (&busy, true)] {
        let layout = Layout::new(dir.path());
        let DataState::Database(before) = database::find(&layout).unwrap() else { panic!("there is one") };
        let mark = fs::read(&layout.state).unwrap()[1_024..].to_vec();
        let opened = database::unchecked(&layout, 1 << 20).unwrap();
        let mut last = opened.last;
        let mut state = StateFile::open(&layout.state, before).unwrap();
        if writes {
            // A task goes, with one group.
            let key = keys::TaskKey::new(&requestor(0, 0), task_id(0)).task();
            let head = opened.tree.remove(&key).unwrap().unwrap();
            last = without(&last, &key, &head);
            opened.tree.insert(keys::GROUP, last.encode().unwrap()).unwrap();
        }
        opened.tree.flush().unwrap();
        drop(opened);
        database::wait_until_closed(&layout).unwrap();
        state.write(last.group, true).unwrap();
        assert_eq!(fs::read(&layout.state).unwrap()[1_024..], mark, "the mark is still there");
        assert_examined(dir.path());
        let store = open(dir.path());
        counted.push(usages(&store)[0].0);
    }
    assert_eq!(counted[0], counted[1] + 1);
}

/// The row of a group that takes a row away.
fn without(last: &GroupRow, key: &[u8], value: &[u8]) -> GroupRow {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(&(value.len() as u64).to_le_bytes());
    hasher.update(value);
    let sum = last.sum.wrapping_sub(hasher.finalize().into());
    GroupRow { group: last.group + 1, rows: last.rows - 1, sum, ..*last }
}

#[test]
fn touched_files_of_closed_store_cause_examination() {
    let dir = closed();
    let layout = Layout::new(dir.path());
    let database = layout.database_file();
    let touches: [(&str, &dyn Fn()); 5] = [
        ("a byte written", &|| {
            let file = fs::File::options().write(true).open(&database).unwrap();
            file.write_all_at(b"x", 100_000).unwrap();
        }),
        ("another time", &|| {
            let file = fs::File::options().write(true).open(&database).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }),
        ("another inode", &|| {
            fs::copy(&database, layout.store.join("copy")).unwrap();
            fs::rename(layout.store.join("copy"), &database).unwrap();
        }),
        ("a new payload file", &|| fs::write(layout.files.join("00".repeat(16)), "left over").unwrap()),
        ("no counts", &|| fs::remove_file(&layout.counts).unwrap()),
    ];
    let sound = snapshot(&layout.store);
    for (what, touch_it) in touches {
        touch_it();
        assert!(!is_marked(dir.path()), "{what}");
        restore(&layout.store, &sound);
        touch(dir.path());
    }
}

/// The bytes of every file below a folder.
type Bytes = BTreeMap<PathBuf, Vec<u8>>;

fn snapshot(folder: &Path) -> Bytes {
    let mut bytes = Bytes::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(snapshot(&path));
        } else {
            bytes.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    bytes
}

fn restore(folder: &Path, sound: &Bytes) {
    fs::remove_dir_all(folder).unwrap();
    for (path, bytes) in sound {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir_all(folder.join("sled/blobs")).unwrap();
}

/// What can happen to a file while nobody uses it.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Eight bytes, at so many thousandths of it.
    Flipped(usize),
    /// So many thousandths of it are left.
    Cut(usize),
    /// A block of zeros, at so many thousandths.
    Zeroed(usize),
    /// What it was some groups ago.
    Older,
    Deleted,
}

const DAMAGES: [Damage; 10] = [
    Damage::Flipped(1),
    Damage::Flipped(500),
    Damage::Flipped(990),
    Damage::Cut(0),
    Damage::Cut(500),
    Damage::Cut(990),
    Damage::Zeroed(0),
    Damage::Zeroed(700),
    Damage::Older,
    Damage::Deleted,
];

impl Damage {
    /// The bytes afterwards; `None`: no file.
    fn done_to(self, bytes: &[u8], older: Option<&Vec<u8>>) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        // Behind what is used there may be much that is not.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let at = |thousandths: usize| used * thousandths / 1_000;
        match self {
            Self::Flipped(place) => bytes.iter_mut().skip(at(place)).take(8).for_each(|byte| *byte ^= 0x5a),
            Self::Cut(left) => bytes.truncate(at(left)),
            Self::Zeroed(place) => bytes.iter_mut().skip(at(place)).take(4_096).for_each(|byte| *byte = 0),
            Self::Older => return older.cloned(),
            Self::Deleted => return None,
        }
        Some(bytes)
    }
}

/// The file whose name begins like this: the engine numbers its snapshots.
fn named<'a>(bytes: &'a Bytes, name: &str) -> (&'a PathBuf, &'a Vec<u8>) {
    let is_named = |path: &Path| path.file_name().is_some_and(|is| is.to_string_lossy().starts_with(name));
    bytes.iter().rfind(|(path, _)| is_named(path)).unwrap_or_else(|| panic!("there is no file {name}"))
}

/// Each after a clean end: the store opens with everything in it, or it is refused and stays as it is.
#[test]
fn damage_to_closed_store_is_never_silent() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let store = open(dir.path());
    runtime().block_on(async {
        fill(&store, 0..TASKS / 2).await;
        store.close().await.unwrap();
    });
    drop(store);
    touch(dir.path());
    let older = snapshot(&layout.store);
    let store = open(dir.path());
    runtime().block_on(async {
        fill(&store, TASKS / 2..TASKS).await;
        store.put_row(RowKind::Token, b"t", b"v".to_vec(), false).await.unwrap();
        store.close().await.unwrap();
    });
    drop(store);
    touch(dir.path());
    let sound = snapshot(&layout.store);
    let mut tried = 0;
    let mut refused = 0;
    let mut harmless = 0;
    for name in ["db", "conf", "snap.", "state", "counts"] {
        for damage in DAMAGES {
            restore(&layout.store, &sound);
            touch(dir.path());
            let now = snapshot(&layout.store);
            let ((path, bytes), (_, older)) = (named(&now, name), named(&older, name));
            match damage.done_to(bytes, Some(older)) {
                Some(damaged) if damaged == *bytes => continue,
                Some(damaged) => fs::write(path, damaged).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            tried += 1;
            let before = snapshot(&layout.store);
            match salvage::guarded(|| SledStore::open(options(dir.path()))) {
                Ok(store) => {
                    read(&store).unwrap_or_else(|error| panic!("{damage:?} of {}: {error}", path.display()));
                    harmless += 1;
                }
                Err(Error::Corrupt(_)) => {
                    refused += 1;
                    assert!(snapshot(&layout.store) == before, "{damage:?} of {}: it was changed", path.display());
                }
                Err(other) => panic!("{damage:?} of {}: refused as {other:?}", path.display()),
            }
        }
    }
    assert!(tried >= 36 && refused >= 12 && harmless >= 5, "{tried} damages: {refused} refused, {harmless} harmless");
}

/// A disk that forgets changes no times. Where nothing was examined, the engine says what it cannot read.
#[test]
fn silently_rotten_store_bytes_are_noticed_on_read() {
    let dir = closed();
    let layout = Layout::new(dir.path());
    let sound = snapshot(&layout.store);
    let mut noticed = 0;
    let mut harmless = 0;
    for round in 0..rounds(12, 200) {
        restore(&layout.store, &sound);
        touch(dir.path());
        let mut bytes = fs::read(layout.database_file()).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        let at = used * round as usize / rounds(12, 200) as usize + 7 * round as usize % 64;
        bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte ^= 0x5a);
        let DataState::Database(was) = database::find(&layout).unwrap() else { panic!("there is one") };
        let tail = mark::tail_bytes(&layout).unwrap();
        fs::write(layout.database_file(), &bytes).unwrap();
        if mark::tail_bytes(&layout).unwrap() != tail {
            // The mark covers it, whatever the times say.
            noticed += 1;
            continue;
        }
        mark::rewrite(&layout, &was).unwrap();
        assert!(is_marked(dir.path()));
        let opened = salvage::guarded(|| open_unexamined(dir.path()));
        match opened.and_then(|store| salvage::guarded(|| read(&store))) {
            Ok(()) => harmless += 1,
            Err(Error::Corrupt(_)) => noticed += 1,
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(noticed > 0, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn unfinished_store_snapshot_is_ignored() {
    let dir = closed();
    let unfinished = dir.path().join("store/sled/snap.7FFFFFFFFFFFFFFF.generating");
    fs::write(&unfinished, "the beginning of a snapshot").unwrap();
    read(&open(dir.path())).unwrap();
    assert!(!unfinished.exists());
}

#[test]
fn stale_scratch_copy_of_store_is_removed() {
    let dir = closed();
    let store = dir.path().join("store");
    let [stale, older, used] = ["scratch-1", "scratch", "scratch-2"].map(|name| store.join(name));
    for folder in [&stale, &older, &used] {
        fs::create_dir_all(folder.join("sled")).unwrap();
        fs::write(folder.join("sled/db"), "a copy").unwrap();
    }
    let _ = fs::File::create(stale.join("lock")).unwrap();
    let held = fs::File::create(used.join("lock")).unwrap();
    held.lock().unwrap();
    // The counts are gone, so it is examined on a copy.
    fs::remove_file(Layout::new(dir.path()).counts).unwrap();
    drop(open(dir.path()));
    assert_eq!([&stale, &older, &used].map(|folder| folder.exists()), [false, false, true]);
    assert_eq!(fs::read_dir(&used).unwrap().count(), 2);
}

fn timed<R>(act: impl FnOnce() -> R) -> (R, Duration) {
    let begun = Instant::now();
    let result = act();
    (result, begun.elapsed())
}

/// `BULKHEAD_TEST_LARGE_STORE` names a folder to keep the store in.
#[test]
#[expect(clippy::print_stdout, reason = "a nightly run is there for the figures")]
fn store_start_after_clean_close_is_constant_time() {
    let kept = std::env::var_os("BULKHEAD_TEST_LARGE_STORE").map(PathBuf::from);
    let place = tempfile::tempdir().unwrap();
    let dir = kept.unwrap_or_else(|| place.path().to_owned());
    let tasks = u64::from(rounds(2_000, 500_000));
    let store = open(&dir);
    runtime().block_on(async {
        fill_small(&store, tasks).await;
        store.close().await.unwrap();
    });
    drop(store);
    let (store, clean) = timed(|| open_unexamined(&dir).unwrap());
    let counted = usages(&store);
    assert_eq!(counted.iter().step_by(2).map(|(tasks, _)| tasks).sum::<u64>(), tasks);
    let ((), closing) = timed(|| runtime().block_on(store.close()).unwrap());
    drop(store);
    state::remove_mark(&Layout::new(&dir).state).unwrap();
    let (store, examined) = timed(|| open(&dir));
    assert_eq!(usages(&store), counted);
    drop(store);
    // The control, in the same minute: reading the file once and writing it again.
    let database = Layout::new(&dir).database_file();
    let (bytes, copied) = timed(|| fs::copy(&database, place.path().join("copy")).unwrap());
    println!(
        "{tasks} tasks, {} MiB: opened in {clean:.2?} after a clean end, in {examined:.2?} with an examination; closed in \
         {closing:.2?}; copied in {copied:.2?}",
        bytes >> 20
    );
    if rounds(0, 1) == 1 {
        assert!(clean * 4 < examined && clean < copied * 4 + Duration::from_secs(2), "{clean:?} of {examined:?}");
    }
}

async fn fill_small(store: &Arc<SledStore>, tasks: u64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let writers = (0..256).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for number in (writer..tasks).step_by(256) {
                let small = Some(Arc::new(output("an output of ordinary length")));
                let mut creation = Creation { output: small, ..ended(number * 4) };
                creation.task.requestor = requestor((number % 2) as u8, (number % 4) as u8);
                creation.task.created_at = now;
                // Ids are drawn: so they lie apart in the tree.
                let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                creation.task.id =
                    bulkhead_domain::task::TaskId((u128::from(spread) << 64 | u128::from(number)).to_be_bytes());
                store.create(creation).await.unwrap();
            }
        })
    });
    futures::future::join_all(writers).await.into_iter().for_each(|written| written.unwrap());
}
