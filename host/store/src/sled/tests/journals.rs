//! Journals on the disk: after a kill and a power cut, in copies, under a seal, and without their tasks.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::power_cut::{after_the_cut, library};
use super::writer::{Acknowledged, kill_after};
use super::{open, options, rounds, runtime};
use crate::journal::layout::HEAD;
use crate::journal::{JournalStore as _, PIECE_BYTES, TaskRef};
use crate::power_cut;
use crate::samples::{creation, requestor, tail, task, task_id};
use crate::sled::database::{self, DataState, GroupRow};
use crate::sled::keys::{self, TaskKey};
use crate::sled::layout::Layout;
use crate::sled::{
    ProbeMode, SledOptions, SledStore, StateFile, backup, check, check_running, export, rebuild, rebuild_running, rekey,
};
use crate::vault::VaultKeys;
use crate::{Change, RowKind, RowStore as _, TaskStore as _, Usage};
use bulkhead_domain::task::{Active, Phase, Task};

const DIR: &str = "BULKHEAD_TEST_JOURNAL_DIR";
const RUNS: u64 = 8;
const MARKER: &str = "the-marker-of-this-test";

fn run(number: u64) -> Task {
    Task { phase: Phase::Active(Active::Running), attempt: 1, ..task(requestor(1, (number % 3) as u8), number) }
}

/// The entry of a journal that tells of the change with this number.
fn entry(count: u64) -> Vec<u8> {
    [&count.to_be_bytes()[..], &vec![count as u8; count as usize % 7 * 900]].concat()
}

/// The changes that a journal tells of, each of which is there once and whole.
fn entries(mut bytes: &[u8]) -> u64 {
    for count in 1.. {
        if bytes.is_empty() {
            return count - 1;
        }
        bytes = bytes.strip_prefix(entry(count).as_slice()).unwrap_or_else(|| panic!("entry {count} is not whole"));
    }
    unreachable!()
}

/// The child: changes the record and a row in turn, each with its entry beside it.
#[test]
#[ignore = "the child process of the crash tests"]
fn child() {
    let store = open(Path::new(&std::env::var(DIR).unwrap()));
    runtime().block_on(async {
        let runs = (1..=RUNS).map(|number| tokio::spawn(change_for_ever(Arc::clone(&store), number)));
        futures::future::join_all(runs).await;
    });
}

async fn change_for_ever(store: Arc<SledStore>, number: u64) {
    let mut task = store.create(creation(run(number))).await.unwrap();
    let mut at_row = 0;
    for count in 1.. {
        let append = tail(1, at_row, &entry(count));
        at_row = append.rows_after();
        if count % 2 == 0 {
            let changed = Task { steering_delivered: count, ..task };
            task = store.commit(Change { journal: Some(append), ..Change::of(changed) }).await.unwrap();
        } else {
            let row = (number.to_be_bytes().to_vec(), Some(count.to_be_bytes().to_vec()));
            let beside = Some((TaskRef::of(&task), append));
            store.change_rows(RowKind::Plugin, Vec::new(), vec![row], beside).await.unwrap();
        }
        let line = format!("\nack c {}\n", (number << 32) | count);
        std::io::Write::write_all(&mut std::io::stdout().lock(), line.as_bytes()).unwrap();
    }
}

fn killed(dir: &Path, time: Duration, adapt: impl FnOnce(&mut Command)) -> Acknowledged {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "sled::tests::journals::child", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    adapt(&mut command);
    kill_after(command.spawn().unwrap(), time)
}

/// Each journal tells of the changes that are there, of no more and no less, and of every one that was acknowledged.
fn verify(dir: &Path, said: &Acknowledged) {
    let store = open(dir);
    runtime().block_on(async {
        for number in 1..=RUNS {
            let Some(found) = store.get(&run(number).requestor, task_id(number)).await.unwrap() else { continue };
            let told = entries(&store.journal_bytes(&found.requestor, found.id).await.unwrap());
            let row = store.row(RowKind::Plugin, &number.to_be_bytes()).await.unwrap();
            let row = row.map_or(0, |row| u64::from_be_bytes(row.try_into().unwrap()));
            assert_eq!(
                (row.max(found.steering_delivered), row.abs_diff(found.steering_delivered)),
                (told, told.min(1))
            );
            let acknowledged = said.keys().filter(|key| *key >> 32 == number).map(|key| key & 0xffff_ffff).max();
            assert!(acknowledged <= Some(told), "{acknowledged:?} of {told}");
            let rows = store.journal(&found.requestor, found.id).await.unwrap().map_or(0, |head| head.rows);
            store.append(&found.requestor, found.id, tail(1, rows, b"it works")).await.unwrap();
        }
        store.close().await.unwrap();
    });
    drop(store);
    assert_eq!(check(dir).unwrap().problems, [] as [String; 0]);
}

#[test]
fn journals_survive_kill_9_with_what_they_tell_of() {
    for round in 0..rounds(2, 30) {
        let dir = tempfile::tempdir().unwrap();
        let said = killed(dir.path(), Duration::from_millis(u64::from(50 + round * 137 % 400)), |_| {});
        verify(dir.path(), &said);
    }
}

#[test]
fn journals_survive_a_power_cut_with_what_they_tell_of() {
    let tools = tempfile::tempdir().unwrap();
    let Some(library) = library(tools.path()) else { return };
    for round in 0..rounds(2, 20) {
        let dir = tempfile::tempdir().unwrap();
        let disk = tempfile::tempdir().unwrap();
        let said = killed(dir.path(), Duration::from_millis(u64::from(100 + round * 211 % 900)), |command| {
            command.envs(power_cut::environment(&library, dir.path(), disk.path(), round % 2 == 1));
        });
        verify(after_the_cut(disk.path()).path(), &said);
    }
}

fn open_with(dir: &Path, keys: &str) -> Arc<SledStore> {
    let keys = (!keys.is_empty()).then(|| VaultKeys::from_variable("KEY", keys).unwrap());
    SledStore::open(SledOptions { keys, ..options(dir) }).unwrap()
}

/// Three runs with journals of some lengths, and their lengths.
async fn fill(store: &SledStore) -> Vec<(Task, usize)> {
    let mut runs = Vec::new();
    for (number, repeats) in (1..).zip([1, 400, 2_000]) {
        let run = store.create(creation(run(number))).await.unwrap();
        let text = MARKER.repeat(repeats);
        store.append(&run.requestor, run.id, tail(1, 0, text.as_bytes())).await.unwrap();
        runs.push((run, text.len()));
    }
    runs
}

async fn is_all_there(store: &SledStore, runs: &[(Task, usize)]) {
    for (run, length) in runs {
        let bytes = store.journal_bytes(&run.requestor, run.id).await.unwrap();
        assert!(bytes == MARKER.repeat(length / MARKER.len()).into_bytes(), "{length}");
        let rows = length.div_ceil(PIECE_BYTES) as u32;
        assert_eq!(store.journal(&run.requestor, run.id).await.unwrap().unwrap().rows, rows);
    }
}

async fn usages(store: &SledStore) -> Vec<Usage> {
    let mut usages = Vec::new();
    for number in 0..3 {
        usages.push(store.usage(&requestor(1, number)).await.unwrap().0);
    }
    usages
}

#[test]
fn copies_of_a_store_carry_its_journals() {
    let keys = "11".repeat(32);
    for keys in ["", keys.as_str()] {
        let dir = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let (runs, counted) = runtime().block_on(async {
            let store = open_with(dir.path(), keys);
            let runs = fill(&store).await;
            let counted = usages(&store).await;
            backup(&store, &copy.path().join("data")).await.unwrap();
            rebuild_running(&store).await.unwrap();
            is_all_there(&store, &runs).await;
            assert_eq!(usages(&store).await, counted);
            assert_eq!(check_running(&store).unwrap().problems, [] as [String; 0]);
            (runs, counted)
        });
        let mut lines = Vec::new();
        let moved = export(dir.path(), &mut lines).unwrap();
        assert_eq!((moved.tasks, moved.lost.len()), (3, 0));
        rebuild(other.path(), Some(&mut lines.as_slice())).unwrap();
        for folder in [dir.path().to_owned(), copy.path().join("data"), other.path().to_owned()] {
            assert_eq!(check(&folder).unwrap().problems, [] as [String; 0]);
            runtime().block_on(async {
                let store = open_with(&folder, keys);
                is_all_there(&store, &runs).await;
                assert_eq!(usages(&store).await, counted);
            });
            assert_eq!(super::sealed::holds(&folder, MARKER.as_bytes()), keys.is_empty(), "{}", folder.display());
        }
    }
}

#[test]
fn journal_begun_in_the_clear_goes_on_sealed_and_through_rekey() {
    let dir = tempfile::tempdir().unwrap();
    let old = "11".repeat(32);
    let new = "22".repeat(32);
    let runs = runtime().block_on(async { fill(&open_with(dir.path(), "")).await });
    runtime().block_on(async {
        let store = open_with(dir.path(), &old);
        is_all_there(&store, &runs).await;
        let (run, length) = &runs[1];
        let rows = length.div_ceil(PIECE_BYTES) as u32;
        store.append(&run.requestor, run.id, tail(1, rows, b"only the owner reads this")).await.unwrap();
    });
    runtime().block_on(async {
        let store = open_with(dir.path(), &format!("{new} {old}"));
        rekey(&store).await.unwrap();
    });
    runtime().block_on(async {
        let store = open_with(dir.path(), &new);
        let (run, length) = &runs[1];
        let bytes = store.journal_bytes(&run.requestor, run.id).await.unwrap();
        assert_eq!(&bytes[*length..], b"only the owner reads this");
        // Once the tenant's key is gone, nobody can read what was sealed with it.
        store.remove_row(RowKind::TenantKey, &run.requestor.tenant.0).await.unwrap();
        assert!(store.journal_bytes(&run.requestor, run.id).await.is_err());
    });
    assert!(!super::sealed::holds(dir.path(), b"only the owner"));
}

/// Removes rows, as a removal that did not come to its end does.
fn remove_rows(dir: &Path, rows: &[Vec<u8>]) {
    let layout = Layout::new(dir);
    let DataState::Database(before) = database::find(&layout).unwrap() else { panic!("there is one") };
    let opened = database::unchecked(&layout, 1 << 20).unwrap();
    let mut last = opened.last;
    for key in rows {
        let value = opened.tree.remove(key).unwrap().unwrap();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(key);
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(&value);
        let sum = last.sum.wrapping_sub(hasher.finalize().into());
        last = GroupRow { rows: last.rows - 1, sum, ..last };
    }
    last.group += 1;
    opened.tree.insert(keys::GROUP, last.encode().unwrap()).unwrap();
    opened.tree.flush().unwrap();
    drop(opened);
    database::wait_until_closed(&layout).unwrap();
    StateFile::open(&layout.state, before).unwrap().write(last.group, true).unwrap();
}

/// The rows of a task, but not those of its journal.
fn rows_of(task: &Task) -> Vec<Vec<u8>> {
    let key = TaskKey::new(&task.requestor, task.id);
    let expiry = task.expires_at().map(|at| key.expiry(at));
    [key.task(), key.list(task.created_at), key.unfinished()].into_iter().chain(expiry).collect()
}

async fn until_swept(store: &SledStore, left: usize) {
    for _ in 0..500 {
        if store.rows(RowKind::Journal, None, 10_000).await.unwrap().len() == left {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("what is left of a journal stays");
}

#[test]
fn journals_without_a_task_are_reported_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let runs = runtime().block_on(async { fill(&open(dir.path())).await });
    assert_eq!(check(dir.path()).unwrap().problems, [] as [String; 0]);
    let headless = TaskKey::new(&runs[1].0.requestor, runs[1].0.id).journal(HEAD);
    let rows = [rows_of(&runs[2].0), vec![headless]].concat();
    remove_rows(dir.path(), &rows);

    let problems = check(dir.path()).unwrap().problems;
    let said = |text: &str, run: &Task| {
        problems.iter().any(|problem| problem.contains(text) && problem.contains(&run.id.to_string()))
    };
    assert!(said("belongs to no task", &runs[2].0), "{problems:?}");
    assert!(said("does not name a piece", &runs[1].0), "{problems:?}");
    assert_eq!(problems.len(), 2, "{problems:?}");
    runtime().block_on(async {
        let store = open(dir.path());
        until_swept(&store, 2).await;
        is_all_there(&store, &runs[..1]).await;
        store.append(&runs[1].0.requestor, runs[1].0.id, tail(1, 0, b"anew")).await.unwrap();
        assert_eq!(store.journal_bytes(&runs[1].0.requestor, runs[1].0.id).await.unwrap(), b"anew");
        assert_eq!(store.usage(&runs[2].0.requestor).await.unwrap().0, Usage::default());
        assert_eq!(check_running(&store).unwrap().problems, [] as [String; 0]);
    });
}

#[test]
fn missing_and_changed_journal_pieces_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let runs = runtime().block_on(async { fill(&open(dir.path())).await });
    let key = TaskKey::new(&runs[2].0.requestor, runs[2].0.id);
    remove_rows(dir.path(), &[key.journal(12)]);
    let problems = check(dir.path()).unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("pieces are missing"), "{problems:?}");
    runtime().block_on(async {
        let store = open(dir.path());
        let refused = store.journal_bytes(&key.requestor, key.id).await.unwrap_err().to_string();
        assert!(refused.contains("does not match its head"), "{refused}");
        is_all_there(&store, &runs[..2]).await;
    });
}

/// A start after a clean end reads no journal.
#[test]
fn journals_are_counted_when_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let counted = runtime().block_on(async {
        let store = open(dir.path());
        fill(&store).await;
        usages(&store).await
    });
    let unexamined = SledOptions { probe: ProbeMode::Child, ..options(dir.path()) };
    runtime().block_on(async {
        let store = SledStore::open(unexamined).unwrap();
        assert_eq!(usages(&store).await, counted);
    });
}
