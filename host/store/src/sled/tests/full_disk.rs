//! A full disk: writes are refused, what was acknowledged stays readable, writing goes on when there is room.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{not_run, options, runtime};
use crate::samples::{completion, creation, output, requestor, task, task_id};
use crate::sled::{SledOptions, SledStore, check};
use crate::{Error, TaskStore};

async fn until_writable(store: &SledStore) {
    let started = Instant::now();
    while let Some(reason) = store.read_only() {
        assert!(started.elapsed() < Duration::from_secs(10), "still read-only: {reason}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn full_disk_makes_store_read_only_until_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let answer = Arc::clone(&free);
    let free_space: crate::sled::FreeSpace = Arc::new(move |_: &Path| Ok(answer.load(Ordering::Relaxed)));
    let options = SledOptions { free_space: Some(free_space), free_bytes_min: 1_000, ..options(dir.path()) };
    let store = SledStore::open(options).unwrap();
    let owner = requestor(1, 1);
    runtime().block_on(async {
        let first = store.create(creation(task(owner, 1))).await.unwrap();
        let second = store.create(creation(task(owner, 2))).await.unwrap();
        free.store(999, Ordering::Relaxed);
        assert!(matches!(store.create(creation(task(owner, 3))).await, Err(Error::ReadOnly(_))));
        assert!(matches!(store.commit(completion(&first, output("x"))).await, Err(Error::ReadOnly(_))));
        assert!(matches!(store.commit(completion(&first, output("x".repeat(90_000)))).await, Err(Error::ReadOnly(_))));
        assert!(store.read_only().unwrap().contains("free"));
        assert_eq!(store.get(&owner, first.id).await.unwrap(), Some(first.clone()));
        assert_eq!(store.list(&owner, None, 9).await.unwrap().len(), 2);
        // What gives room back is allowed a little longer.
        store.remove(&owner, second.id).await.unwrap();
        free.store(400, Ordering::Relaxed);
        assert!(matches!(store.remove(&owner, first.id).await, Err(Error::ReadOnly(_))));
        free.store(1_100, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(store.read_only().is_some(), "the answer swings at the limit");
        free.store(1_250, Ordering::Relaxed);
        until_writable(&store).await;
        store.commit(completion(&first, output("x"))).await.unwrap();
        assert_eq!(store.usage(&owner).await.unwrap().0.tasks, 1);
        store.close().await.unwrap();
    });
    drop(store);
    assert_eq!(check(dir.path()).unwrap().problems, [] as [String; 0]);
}

#[test]
fn full_disk_is_noticed_without_writes() {
    let dir = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let answer = Arc::clone(&free);
    let free_space: crate::sled::FreeSpace = Arc::new(move |_: &Path| Ok(answer.load(Ordering::Relaxed)));
    let options = SledOptions { free_space: Some(free_space), free_bytes_min: 1_000, ..options(dir.path()) };
    let store = SledStore::open(options).unwrap();
    runtime().block_on(async {
        assert_eq!(store.read_only(), None);
        free.store(999, Ordering::Relaxed);
        let started = Instant::now();
        while store.read_only().is_none() {
            assert!(started.elapsed() < Duration::from_secs(30), "nobody noticed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        free.store(u64::MAX, Ordering::Relaxed);
        until_writable(&store).await;
        store.close().await.unwrap();
    });
}

/// A file system of its own, unmounted at the end.
struct Mount(tempfile::TempDir);

impl Mount {
    /// `None` where this user may not mount.
    fn tmpfs(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(dir.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(dir))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Here the check of the free space is switched off, so that writes really fail.
#[test]
fn failed_store_write_is_hidden_and_store_recovers() {
    let Some(mount) = Mount::tmpfs(24 << 20) else {
        not_run("mounting a file system needs more rights");
        return;
    };
    let dir = mount.0.path().to_owned();
    let hog = dir.join("hog");
    let options = SledOptions {
        free_bytes_min: 2 << 20,
        free_space: Some(lying(hog.clone())),
        ballast_bytes: 4 << 20,
        ..options(&dir)
    };
    let store = SledStore::open(options).unwrap();
    let owner = requestor(1, 1);
    runtime().block_on(async {
        let mut acknowledged = Vec::new();
        let mut failed = Vec::new();
        for number in 1..=50 {
            store.create(creation(task(owner, number))).await.unwrap();
            acknowledged.push(number);
        }
        fill_up(&hog);
        for number in 51..2_000 {
            match store.create(large(number)).await {
                Ok(_) => acknowledged.push(number),
                Err(Error::ReadOnly(_)) => failed.push(number),
                Err(other) => panic!("{other:?}"),
            }
            if failed.len() >= 5 {
                break;
            }
        }
        let reason = store.read_only().unwrap();
        assert!(
            reason.contains("a write failed") && !failed.is_empty(),
            "{} writes fitted: {reason}",
            acknowledged.len()
        );
        present(&store, &acknowledged, &failed).await;
        std::fs::remove_file(&hog).unwrap();
        until_writable(&store).await;
        present(&store, &acknowledged, &failed).await;
        store.create(creation(task(owner, 9_999))).await.unwrap();
        assert_eq!(store.usage(&owner).await.unwrap().0.tasks, acknowledged.len() as u64 + 1);
        let counted = store.usage(&owner).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        let store = SledStore::open(super::options(&dir)).unwrap();
        assert_eq!(store.usage(&owner).await.unwrap(), counted);
        acknowledged.push(9_999);
        present(&store, &acknowledged, &failed).await;
    });
    assert_eq!(check(&dir).unwrap().problems, [] as [String; 0]);
}

/// Says that there is room as long as the hog is there, and the truth afterwards: nobody can watch the disk all the
/// time.
fn lying(hog: std::path::PathBuf) -> crate::sled::FreeSpace {
    let truth = crate::sled::space::statvfs();
    let asked = AtomicU64::new(0);
    Arc::new(move |path: &Path| {
        // After a failed write the store asks again before it opens the engine: then it hears the truth.
        let full = truth(path)? < (1 << 20);
        if full && hog.exists() && asked.fetch_add(1, Ordering::Relaxed) < 400 { Ok(u64::MAX) } else { truth(path) }
    })
}

fn fill_up(hog: &Path) {
    let mut file = std::fs::File::create(hog).unwrap();
    let block = vec![1; 64 << 10];
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
}

fn large(number: u64) -> crate::Creation {
    let arguments = bulkhead_domain::Json::new(format!("\"{}\"", "a".repeat(30_000)));
    crate::Creation { arguments, ..creation(task(requestor(1, 1), number)) }
}

async fn present(store: &SledStore, acknowledged: &[u64], failed: &[u64]) {
    let owner = requestor(1, 1);
    for number in acknowledged {
        assert!(store.get(&owner, task_id(*number)).await.unwrap().is_some(), "task {number} is gone");
        assert!(store.arguments(&owner, task_id(*number)).await.unwrap().is_some());
    }
    for number in failed {
        assert_eq!(store.get(&owner, task_id(*number)).await.unwrap(), None, "task {number} was refused and is there");
    }
    let listed = store.list(&owner, None, 10_000).await.unwrap();
    assert_eq!(listed.len(), acknowledged.len());
}
