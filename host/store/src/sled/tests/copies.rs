//! Export, rebuild and backup: a copy holds what the store holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{open, runtime};
use crate::samples::{completion, creation, output, requestor, task};
use crate::sled::{SledStore, backup, check, export, export_running, rebuild, rebuild_running};
use crate::{Change, Creation};
use crate::{Error, RowKind, RowStore, TaskStore};
use bulkhead_domain::task::{Outcome, Phase, Task, TaskOutput};

type Contents = Vec<(Task, Option<bulkhead_domain::Json>, Option<TaskOutput>)>;

async fn fill(store: &SledStore, first: u64) {
    for number in first..first + 40 {
        let aliased = Task { alias: Some(format!("a{number}")), ..task(requestor(1, (number % 3) as u8), number) };
        let created = store.create(Creation { reserved_bytes: 77, ..creation(aliased) }).await.unwrap();
        let bytes = [100, 3_000, 20_000, 70_000][number as usize % 4];
        if number % 5 > 0 {
            store.commit(completion(&created, output("x".repeat(bytes)))).await.unwrap();
        }
    }
    for number in 0..20u8 {
        store.put_row(RowKind::Token, &[number], vec![number; 50], false).await.unwrap();
    }
}

async fn contents(store: &SledStore) -> Contents {
    let mut all = Contents::new();
    for task in store.scan(None, 10_000).await.unwrap() {
        let arguments = store.arguments(&task.requestor, task.id).await.unwrap();
        let output = store.output(&task.requestor, task.id).await.unwrap();
        all.push((task, arguments, output));
    }
    all
}

#[test]
fn an_export_rebuilds_the_same_store() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (expected, rows, usage, lines) = runtime().block_on(async {
        let store = open(dir.path());
        fill(&store, 1).await;
        let mut lines = Vec::new();
        let moved = export_running(&store, &mut lines).unwrap();
        assert_eq!((moved.tasks, moved.rows, moved.lost.len()), (40, 20, 0));
        let rows = store.rows(RowKind::Token, None, 99).await.unwrap();
        (contents(&store).await, rows, store.usage(&requestor(1, 1)).await.unwrap(), lines)
    });
    let mut offline = Vec::new();
    export(dir.path(), &mut offline).unwrap();
    assert_eq!(offline, lines, "the export of a closed store differs from that of the running one");

    let (moved, _) = rebuild(other.path(), Some(&mut lines.as_slice())).unwrap();
    assert_eq!((moved.tasks, moved.rows), (40, 20));
    let (moved, old) = rebuild(dir.path(), None).unwrap();
    assert_eq!((moved.tasks, moved.rows), (40, 20));
    assert!(old.join("sled/db").exists());
    for dir in [dir, other] {
        let report = check(dir.path()).unwrap();
        assert_eq!((report.tasks, &*report.problems), (40, &[] as &[String]));
        let store = open(dir.path());
        runtime().block_on(async {
            assert_eq!(contents(&store).await, expected);
            assert_eq!(store.rows(RowKind::Token, None, 99).await.unwrap(), rows);
            assert_eq!(store.usage(&requestor(1, 1)).await.unwrap(), usage);
            fill(&store, 1_000).await;
        });
    }
}

#[test]
fn rebuild_from_broken_export_names_line_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    runtime().block_on(async { fill(&open(dir.path()), 1).await });
    let mut lines = Vec::new();
    export(dir.path(), &mut lines).unwrap();
    lines.extend_from_slice(b"{\"kind\":\"task\"}\n");
    let refused = rebuild(dir.path(), Some(&mut lines.as_slice())).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("line 62")), "{refused}");
    assert_eq!(check(dir.path()).unwrap().tasks, 40);
}

#[test]
fn backup_of_store_in_use_is_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let store = open(dir.path());
        fill(&store, 1).await;
        let stop = Arc::new(AtomicBool::new(false));
        // Each writer's tasks come and go; at every moment it has either none or one, and a done one has its output.
        let writers = (0..4u64).map(|writer| {
            let store = Arc::clone(&store);
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                for number in (10_000 + writer..).step_by(4).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let created = store.create(creation(task(requestor(2, writer as u8), number))).await.unwrap();
                    let bytes = [100, 5_000, 70_000][number as usize % 3];
                    let done = store.commit(completion(&created, output("y".repeat(bytes)))).await.unwrap();
                    store.remove(&done.requestor, done.id).await.unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        backup(&store, target.path()).await.unwrap();
        assert!(matches!(backup(&store, target.path()).await, Err(Error::Exists)));
        stop.store(true, Ordering::Relaxed);
        futures::future::join_all(writers).await;
        let leftover = dir.path().join("store/files").read_dir().unwrap().count() as u64;
        assert_eq!(check_files(&store), leftover);
    });
    let report = check(target.path()).unwrap();
    assert_eq!(report.problems, [] as [String; 0]);
    assert!((40..=44).contains(&report.tasks), "{}", report.tasks);
    let copy = open(target.path());
    runtime().block_on(async {
        for writer in 0..4 {
            let tasks = copy.list(&requestor(2, writer), None, 9).await.unwrap();
            assert!(tasks.len() <= 1);
        }
        let created = copy.create(creation(task(requestor(3, 1), 9))).await.unwrap();
        let cancelled = Task { phase: Phase::Ended(Outcome::Cancelled), ..created };
        copy.commit(Change::of(cancelled)).await.unwrap();
    });
}

/// The payload files that the store's tasks name.
fn check_files(store: &SledStore) -> u64 {
    let report = crate::sled::check_running(store).unwrap();
    assert_eq!(report.problems, [] as [String; 0]);
    report.files
}

/// Creates and ends tasks of one requestor until told to stop; the tasks as they were acknowledged.
fn writer(store: &Arc<SledStore>, stop: &Arc<AtomicBool>, number: u8) -> tokio::task::JoinHandle<Vec<Task>> {
    let store = Arc::clone(store);
    let stop = Arc::clone(stop);
    tokio::spawn(async move {
        let mut acknowledged = Vec::new();
        for id in (10_000 + u64::from(number)..).step_by(4).take_while(|_| !stop.load(Ordering::Relaxed)) {
            let created = store.create(creation(task(requestor(2, number), id))).await.unwrap();
            let bytes = [100, 5_000, 70_000][id as usize % 3];
            acknowledged.push(store.commit(completion(&created, output("y".repeat(bytes)))).await.unwrap());
        }
        acknowledged
    })
}

#[test]
fn rebuild_of_store_in_use_keeps_acknowledged_writes() {
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = runtime().block_on(async {
        let store = open(dir.path());
        fill(&store, 1).await;
        let before = contents(&store).await;
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4).map(|number| writer(&store, &stop, number)).collect();
        let reader = tokio::spawn({
            let store = Arc::clone(&store);
            let stop = Arc::clone(&stop);
            let before = before.clone();
            async move {
                while !stop.load(Ordering::Relaxed) {
                    for (task, _, output) in &before {
                        let read = store.get(&task.requestor, task.id).await.unwrap();
                        assert_eq!(read.as_ref(), Some(task));
                        assert_eq!(store.output(&task.requestor, task.id).await.unwrap(), *output);
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        for round in 1..=3 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let (moved, old) = rebuild_running(&store).await.unwrap();
            assert!(moved.tasks >= 40 && moved.rows == 20 && moved.lost.is_empty(), "{moved:?}");
            assert!(old.ends_with(format!("store.old-{round}")) && old.join("sled/db").exists());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        stop.store(true, Ordering::Relaxed);
        reader.await.unwrap();
        let acknowledged: Vec<_> =
            futures::future::join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
        let usage = store.usage(&requestor(2, 0)).await.unwrap();
        assert_eq!(contents(&store).await.len(), 40 + acknowledged.len());
        store.close().await.unwrap();
        let again = open(dir.path());
        assert_eq!(again.usage(&requestor(2, 0)).await.unwrap(), usage, "the ledger went along");
        acknowledged
    });
    assert_eq!(check(dir.path()).unwrap().problems, [] as [String; 0]);
    let store = open(dir.path());
    runtime().block_on(async {
        for task in acknowledged {
            let output = store.output(&task.requestor, task.id).await.unwrap();
            assert!(output.is_some(), "the output of an acknowledged task is gone");
            assert_eq!(store.get(&task.requestor, task.id).await.unwrap(), Some(task));
        }
    });
}

#[test]
fn failed_rebuild_keeps_the_old_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut failed = 0;
    runtime().block_on(async {
        let store = open(dir.path());
        fill(&store, 1).await;
        for round in 0..super::rounds(12, 60) {
            let expected = contents(&store).await;
            let made = dir.path().join("store.new");
            let saboteur = std::thread::spawn(move || {
                while !made.exists() {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_micros(u64::from(round) * 3_000));
                // Comes too late in some rounds.
                let _ = std::fs::rename(&made, made.with_file_name(format!("stolen-{round}")));
            });
            match rebuild_running(&store).await {
                Ok(_) => break,
                Err(_) => failed += 1,
            }
            saboteur.join().unwrap();
            assert_eq!(contents(&store).await, expected);
            fill(&store, 1_000 * (u64::from(round) + 1)).await;
        }
        store.close().await.unwrap();
    });
    assert!(failed > 3, "only {failed} failed");
    assert_eq!(check(dir.path()).unwrap().problems, [] as [String; 0]);
}

#[test]
fn rebuild_without_free_space_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let free: crate::sled::FreeSpace = Arc::new(|_| Ok(2 << 20));
    let store = SledStore::open(crate::sled::SledOptions { free_space: Some(free), ..super::options(dir.path()) });
    runtime().block_on(async {
        let store = store.unwrap();
        fill(&store, 1).await;
        let refused = rebuild_running(&store).await.unwrap_err();
        assert!(refused.to_string().contains("MiB of free space"), "{refused}");
        assert!(!dir.path().join("store.old-1").exists());
        fill(&store, 100).await;
    });
}

#[test]
fn interrupted_rebuild_is_completed_or_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    runtime().block_on(async { fill(&open(dir.path()), 1).await });
    let (_, old) = rebuild(dir.path(), None).unwrap();
    std::fs::rename(path("store"), path("store.new")).unwrap();
    assert_eq!(check(dir.path()).unwrap().tasks, 40, "the new one is whole");
    assert!(path("store").exists() && !path("store.new").exists() && old.exists());

    // One that ended earlier has made nothing whole yet.
    std::fs::rename(path("store"), path("store.new")).unwrap();
    std::fs::remove_file(path("store.new/state")).unwrap();
    std::fs::rename(old, path("store")).unwrap();
    assert_eq!(check(dir.path()).unwrap().tasks, 40);
    runtime().block_on(async { fill(&open(dir.path()), 100).await });
    assert_eq!(check(dir.path()).unwrap().tasks, 80);
}
