//! What plugins keep, in both stores.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::memory::MemoryStore;
use crate::samples::{completion, creation, output, requestor, task};
use crate::sled::{ProbeMode, SledOptions, SledStore, rebuild};
use crate::{RowStore, TaskStore as _};

const LIMITS: KeyValueLimits = KeyValueLimits { keys_max: 4, bytes_max: 20_000, value_bytes_max: 15_000 };

fn space(tenant: u8, plugin: &str) -> KeyValueNamespace {
    KeyValueNamespace { tenant: TenantId([tenant; 16]), plugin: plugin.into() }
}

fn in_memory() -> (Arc<MemoryStore>, KeyValues) {
    let store = Arc::new(MemoryStore::new());
    (Arc::clone(&store), KeyValues::new(store))
}

fn options(dir: &std::path::Path) -> SledOptions {
    SledOptions { probe: ProbeMode::InProcess, ballast_bytes: 0, free_bytes_min: 1, ..SledOptions::new(dir) }
}

async fn rows(store: &dyn RowStore) -> usize {
    store.rows(RowKind::KeyValue, None, 10_000).await.unwrap().len()
}

#[tokio::test]
async fn conditional_write_happens_only_over_the_expected_value() {
    let (_, kept) = in_memory();
    let space = space(1, "a");
    let write = async |value: &[u8], expected: Option<&[u8]>, now| {
        let is_expected = |found: Option<&[u8]>| found == expected;
        kept.set_if(&space, &LIMITS, "k", value, Condition { is_expected: &is_expected, now }, None).await
    };
    assert!(!write(b"1", Some(b"0"), 0).await.unwrap(), "nothing is there");
    assert!(write(b"1", None, 0).await.unwrap());
    assert!(!write(b"2", None, 0).await.unwrap());
    // A value in pieces is compared whole.
    let large = vec![7; 9_000];
    assert!(write(&large, Some(b"1"), 0).await.unwrap());
    assert!(!write(b"3", Some(&large[1..]), 0).await.unwrap());
    assert!(write(b"3", Some(&large), 0).await.unwrap());
    assert_eq!(kept.get(&space, "k", 0).await.unwrap(), Some(b"3".to_vec()));
    assert_eq!(kept.kept(&space).await.unwrap(), KeyValueUsage { keys: 1, bytes: 2 });
    assert!(matches!(write(&[0; 15_001], Some(b"3"), 0).await, Err(KeyValueError::TooLarge { .. })));
    // What has expired is not there.
    kept.set(&space, &LIMITS, "k", b"old", Some(5), None).await.unwrap();
    assert!(!write(b"4", None, 4).await.unwrap());
    assert!(write(b"4", None, 5).await.unwrap());
    assert_eq!(kept.get(&space, "k", 1_000).await.unwrap(), Some(b"4".to_vec()));
}

#[tokio::test]
async fn keyvalue_keys_are_isolated_by_plugin_and_tenant() {
    let (store, kept) = in_memory();
    // Names and keys that run into each other where they lie next to each other.
    let spaces = [space(1, "a"), space(1, "ab"), space(2, "a"), space(2, "ab"), space(1, "b")];
    for (at, space) in (0u8..).zip(&spaces) {
        kept.set(space, &LIMITS, "b", &[at], None, None).await.unwrap();
        kept.set(space, &LIMITS, "bb", &[at, at], None, None).await.unwrap();
    }
    for (at, space) in (0u8..).zip(&spaces) {
        assert_eq!(kept.get(space, "b", 0).await.unwrap(), Some(vec![at]));
        assert_eq!(kept.keys(space, "", None, 0).await.unwrap().keys, ["b", "bb"]);
        assert_eq!(kept.kept(space).await.unwrap(), KeyValueUsage { keys: 2, bytes: 6 });
    }
    kept.delete(&spaces[0], "b", None).await.unwrap();
    assert_eq!(kept.get(&spaces[0], "b", 0).await.unwrap(), None);
    assert_eq!(kept.get(&spaces[1], "b", 0).await.unwrap(), Some(vec![1]));
    let due = KeyValueLimits { keys_max: 9, ..LIMITS };
    kept.set(&spaces[2], &due, "large", &[0; 9_000], Some(9), None).await.unwrap();
    for (row, _) in store.rows(RowKind::KeyValue, None, 100).await.unwrap() {
        let tenant = RowKind::KeyValue.tenant_of(&row).unwrap();
        assert!([1, 2].map(|tenant| TenantId([tenant; 16])).contains(&tenant));
        if tenant == TenantId([2; 16]) {
            store.remove_row(RowKind::KeyValue, &row).await.unwrap();
        }
    }
    assert_eq!(kept.keys(&spaces[2], "", None, 0).await.unwrap().keys, Vec::<String>::new());
    assert_eq!(kept.sweep(100, 9).await.unwrap(), 0, "its place in the index is gone too");
    assert_eq!(kept.keys(&spaces[1], "", None, 0).await.unwrap().keys, ["b", "bb"]);
}

#[tokio::test]
async fn keyvalue_quota_is_enforced_and_released() {
    let (store, kept) = in_memory();
    let own = space(1, "p");
    let refused = kept.set(&own, &LIMITS, "k", &[0; 15_001], None, None).await.unwrap_err();
    assert!(matches!(refused, KeyValueError::TooLarge { bytes: 15_001, bytes_max: 15_000 }), "{refused}");
    for key in ["a", "b", "c", "d"] {
        kept.set(&own, &LIMITS, key, &[0; 10], None, None).await.unwrap();
    }
    let refused = kept.set(&own, &LIMITS, "e", &[0; 10], None, None).await.unwrap_err();
    assert_eq!(refused.to_string(), "plugin.kv.keys_max is at its limit of 4");
    kept.set(&own, &LIMITS, "d", &[0; 15_000], None, None).await.unwrap();
    let refused = kept.set(&own, &LIMITS, "a", &[0; 5_000], None, None).await.unwrap_err();
    assert_eq!(refused.to_string(), "plugin.kv.bytes_max is at its limit of 20000");
    assert_eq!(kept.get(&own, "a", 0).await.unwrap(), Some(vec![0; 10]), "a refusal changes nothing");
    kept.set(&space(2, "p"), &LIMITS, "a", &[0; 15_000], None, None).await.unwrap();
    kept.set(&own, &LIMITS, "d", b"", None, None).await.unwrap();
    kept.set(&own, &LIMITS, "a", &[0; 5_000], None, None).await.unwrap();
    for key in ["a", "b", "c", "d", "d", "never"] {
        kept.delete(&own, key, None).await.unwrap();
    }
    assert_eq!(kept.kept(&own).await.unwrap(), KeyValueUsage::default());
    kept.delete(&space(2, "p"), "a", None).await.unwrap();
    assert_eq!(rows(&*store).await, 0, "nothing is left of large values");
}

#[tokio::test]
async fn keyvalue_refused_write_keeps_the_count() {
    let (store, kept) = in_memory();
    let own = space(1, "p");
    kept.set(&own, &LIMITS, "a", &[0; 10], None, None).await.unwrap();
    let count = Arc::clone(&kept.counts.lock()[&own]);
    store.set_read_only(Some("full".to_owned()));
    for _ in 0..5 {
        let refused = kept.set(&own, &LIMITS, "b", &[0; 15_000], None, None).await.unwrap_err();
        assert!(matches!(refused, KeyValueError::Store(Error::ReadOnly(_))), "{refused}");
        assert!(matches!(kept.delete(&own, "a", None).await, Err(Error::ReadOnly(_))));
    }
    assert!(Arc::ptr_eq(&count, &kept.counts.lock()[&own]), "nothing is read again");
    assert_eq!(kept.kept(&own).await.unwrap(), KeyValueUsage { keys: 1, bytes: 11 });
    store.set_read_only(None);
    kept.set(&own, &LIMITS, "b", &[0; 15_000], None, None).await.unwrap();
}

#[tokio::test]
async fn keyvalue_expired_entries_are_hidden_then_swept() {
    let (store, kept) = in_memory();
    let own = space(1, "p");
    kept.set(&own, &LIMITS, "large", &[7; 9_000], Some(100), None).await.unwrap();
    kept.set(&own, &LIMITS, "small", b"s", Some(200), None).await.unwrap();
    kept.set(&own, &LIMITS, "stays", b"s", Some(50), None).await.unwrap();
    kept.set(&own, &LIMITS, "stays", b"t", None, None).await.unwrap();
    assert_eq!(kept.get(&own, "large", 99).await.unwrap(), Some(vec![7; 9_000]));
    assert_eq!(kept.get(&own, "large", 100).await.unwrap(), None);
    assert_eq!(kept.keys(&own, "", None, 100).await.unwrap().keys, ["small", "stays"]);
    assert_eq!(kept.sweep(99, 100).await.unwrap(), 0);
    assert_eq!(kept.sweep(100, 100).await.unwrap(), 1);
    assert_eq!(kept.kept(&own).await.unwrap(), KeyValueUsage { keys: 2, bytes: 12 });
    assert_eq!(kept.sweep(1_000, 100).await.unwrap(), 1);
    assert_eq!(kept.get(&own, "stays", UnixMs::MAX).await.unwrap(), Some(b"t".to_vec()));
    assert_eq!(rows(&*store).await, 1);
    // Also without anybody having counted before.
    kept.set(&own, &LIMITS, "again", b"s", Some(100), None).await.unwrap();
    let later = KeyValues::new(store.clone());
    assert_eq!(later.sweep(100, 100).await.unwrap(), 1);
    assert_eq!(later.kept(&own).await.unwrap(), KeyValueUsage { keys: 1, bytes: 6 });
}

#[tokio::test]
async fn keyvalue_key_pages_are_complete_and_ordered() {
    let (_, kept) = in_memory();
    let own = space(1, "p");
    let limits = KeyValueLimits { keys_max: 1_000, ..LIMITS };
    let mut expected = Vec::new();
    for at in 0..350 {
        let key = format!("k{at:03}");
        // Every third one has expired.
        kept.set(&own, &limits, &key, b"", (at % 3 == 0).then_some(10), None).await.unwrap();
        expected.extend((at % 3 != 0).then_some(key));
    }
    kept.set(&own, &limits, "k", b"", None, None).await.unwrap();
    kept.set(&own, &limits, "other", b"", None, None).await.unwrap();
    expected.insert(0, "k".to_owned());
    let mut found = Vec::new();
    let mut after = None;
    let mut pages = 0;
    loop {
        let page = kept.keys(&own, "k", after.as_deref(), 10).await.unwrap();
        assert!(page.keys.len() <= PAGE_KEYS_MAX);
        found.extend(page.keys);
        pages += 1;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!((found, pages), (expected, 3));
}

#[tokio::test]
async fn keyvalue_concurrent_writers_do_not_tear_values() {
    let (store, kept) = in_memory();
    let kept = Arc::new(kept);
    let own = space(1, "p");
    let writers = (1u8..9).map(|byte| {
        let kept = Arc::clone(&kept);
        let own = own.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                kept.set(&own, &LIMITS, "k", &vec![byte; 4_000 + 100 * usize::from(byte)], Some(9), None)
                    .await
                    .unwrap();
                let value = kept.get(&own, "k", 0).await.unwrap().unwrap();
                assert!(value.iter().all(|byte| *byte == value[0]));
                assert_eq!(value.len(), 4_000 + 100 * usize::from(value[0]));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let counted = kept.kept(&own).await.unwrap();
    assert_eq!(counted, KeyValues::new(store.clone()).kept(&own).await.unwrap());
    kept.delete(&own, "k", None).await.unwrap();
    assert_eq!(rows(&*store).await, 0);
}

#[tokio::test]
async fn keyvalue_entries_survive_close_rebuild_and_backup() {
    let dir = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let own = space(1, "p");
    let large: Vec<u8> = (0..14_000u32).map(|at| at.to_le_bytes()[0]).collect();
    let store = SledStore::open(options(dir.path())).unwrap();
    let kept = KeyValues::new(store.clone());
    kept.set(&own, &LIMITS, "large", &large, None, None).await.unwrap();
    kept.set(&own, &LIMITS, "due", b"soon", Some(100), None).await.unwrap();
    let place = copy.path().join("copy");
    crate::sled::backup(&store, &place).await.unwrap();
    drop((kept, store));
    rebuild(dir.path(), None).unwrap();
    for dir in [dir.path(), &place] {
        let store = SledStore::open(options(dir)).unwrap();
        let kept = KeyValues::new(store);
        assert_eq!(kept.get(&own, "large", 0).await.unwrap().as_ref(), Some(&large));
        assert_eq!(kept.kept(&own).await.unwrap(), KeyValueUsage { keys: 2, bytes: 14_012 });
        assert_eq!(kept.sweep(100, 9).await.unwrap(), 1);
    }
}

#[test]
fn keyvalue_damaged_entries_are_refused() {
    let own = space(1, "p");
    let (entry, pieces) = Entry::new(&own, "k", &[1; 9_000], Some(5), None).unwrap();
    assert_eq!(pieces.len(), 3);
    let bytes = entry.encode();
    assert_eq!(Entry::decode(&bytes).unwrap(), entry);
    for length in 0..bytes.len() {
        assert!(Entry::decode(&bytes[..length]).is_err(), "{length}");
    }
    assert!(Entry::decode(&[9; 40]).is_err());
}

/// Everything goes to the disk through one line. Whoever else stands in it has a write or two of a plugin in front, not
/// those of all the calls that would like to write.
#[tokio::test(flavor = "multi_thread")]
async fn keyvalue_writes_do_not_delay_other_store_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = SledStore::open(options(dir.path())).unwrap();
    let kept = Arc::new(KeyValues::new(store.clone()));
    let limits = KeyValueLimits { keys_max: 100, bytes_max: 1 << 30, value_bytes_max: VALUE_BYTES_MAX };
    let value = Arc::new(vec![7; usize::try_from(VALUE_BYTES_MAX).unwrap()]);
    let written = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let loops: Vec<_> = (0..32)
        .map(|number| {
            let kept = Arc::clone(&kept);
            let value = Arc::clone(&value);
            let limits = limits.clone();
            let written = Arc::clone(&written);
            let over = Arc::clone(&over);
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    kept.set(&space(1, "p"), &limits, &format!("k{number}"), &value, None, None).await.unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    while written.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let mut most = 0;
    for number in 1..=10 {
        let before = written.load(Ordering::SeqCst);
        let created = store.create(creation(task(requestor(2, 1), number))).await.unwrap();
        store.commit(completion(&created, output("done"))).await.unwrap();
        most = most.max(written.load(Ordering::SeqCst) - before);
    }
    over.store(true, Ordering::SeqCst);
    for writer in loops {
        writer.await.unwrap();
    }
    // Two commits, each behind the group that is being written and in one with the next write.
    assert!(most <= 8, "{most} large values were written while a task began and ended");
}
