//! What a thief of the disk finds, and what a change of keys does.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::{options, runtime};
use crate::keyvalue::{KeyValueNamespace, KeyValueUsage, KeyValues};
use crate::samples::{completion, creation, output, requestor, task};
use crate::sled::{Rekeyed, SledOptions, SledStore, backup, check, export, rebuild, rebuild_running, rekey};
use crate::vault::VaultKeys;
use crate::{Change, Creation, Error, RowKind, RowStore as _, TaskStore as _};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, InputRequest, InputRequestKind};
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::{Input, Outcome, Phase, Task};

const MARKER: &str = "the-marker-of-this-test";
const OLD: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222222222222222222222222222";

fn open(dir: &Path, keys: &str) -> Result<Arc<SledStore>, Error> {
    let keys = (!keys.is_empty()).then(|| VaultKeys::from_variable("KEY", keys).unwrap());
    SledStore::open(SledOptions { keys, ..options(dir) })
}

/// Whether any file below the folder holds the bytes.
pub(super) fn holds(folder: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => holds(&path, bytes),
        false => fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes),
    })
}

/// A task with the marker wherever somebody else's words are.
fn marked(tenant: u8, number: u64) -> Creation {
    let kind =
        InputRequestKind::Form { message: MARKER.to_owned(), requested_schema: Json::new(format!("\"{MARKER}\"")) };
    let request = InputRequest { key: MARKER.to_owned(), kind, meta: vec![(MARKER.to_owned(), Json::new("1"))] };
    let mut task = Task {
        status_message: Some(MARKER.to_owned()),
        inputs: vec![Input { issued_key: MARKER.to_owned(), request, answer: None }],
        steering: vec![MARKER.to_owned()],
        alias: Some(format!("alias-{number}")),
        ..task(requestor(tenant, 1), number)
    };
    task.origin.progress_token = Some(Json::new(format!("\"{MARKER}\"")));
    Creation { arguments: Json::new(format!("{{\"text\":\"{MARKER}\"}}")), ..creation(task) }
}

/// Tasks whose outputs are of every size, and one that failed; what was written.
async fn fill(store: &SledStore, tenant: u8) -> Vec<Task> {
    let mut written = Vec::new();
    for (number, repeats) in (1..).zip([1, 200, 1_000, 5_000]) {
        let created = store.create(marked(tenant, number)).await.unwrap();
        written.push(store.commit(completion(&created, output(MARKER.repeat(repeats)))).await.unwrap());
    }
    let created = store.create(marked(tenant, 9)).await.unwrap();
    let error = CallError::Custom { code: 1, message: MARKER.to_owned(), data: None };
    let failed = Change::of(Task { phase: Phase::Ended(Outcome::Error(error)), ..created });
    written.push(store.commit(failed).await.unwrap());
    written.push(store.create(marked(tenant, 10)).await.unwrap());
    written
}

async fn is_all_there(store: &SledStore, written: &[Task]) {
    for task in written {
        assert_eq!(store.get(&task.requestor, task.id).await.unwrap().as_ref(), Some(task));
        let arguments = store.arguments(&task.requestor, task.id).await.unwrap().unwrap();
        assert!(arguments.as_str().contains(MARKER));
        let (same, output) = store.with_output(&task.requestor, task.id).await.unwrap().unwrap();
        assert_eq!(&same, task);
        assert_eq!(output.is_some(), matches!(task.outcome(), Some(Outcome::Output { .. })));
        let alias = task.alias.as_deref().unwrap();
        assert_eq!(store.by_alias(&task.requestor, alias).await.unwrap(), Some(task.id));
    }
}

#[test]
fn sealed_store_hides_payloads_without_the_key() {
    let dir = folder();
    let clear = folder();
    let copy = folder();
    let other = folder();
    let written = runtime().block_on(async {
        fill(&open(clear.path(), "").unwrap(), 1).await;
        let store = open(dir.path(), OLD).unwrap();
        let written = fill(&store, 1).await;
        is_all_there(&store, &written).await;
        backup(&store, &copy.path().join("data")).await.unwrap();
        rebuild_running(&store).await.unwrap();
        is_all_there(&store, &written).await;
        written
    });
    let mut lines = Vec::new();
    export(dir.path(), &mut lines).unwrap();
    rebuild(other.path(), Some(&mut lines.as_slice())).unwrap();
    assert!(holds(clear.path(), MARKER.as_bytes()), "the search itself works");
    for folder in [dir.path().to_owned(), copy.path().join("data"), other.path().to_owned()] {
        assert!(!holds(&folder, MARKER.as_bytes()), "{}", folder.display());
        assert_eq!(check(&folder).unwrap().problems, [] as [String; 0]);
        runtime().block_on(async { is_all_there(&open(&folder, OLD).unwrap(), &written).await });
    }
}

#[test]
fn sealed_store_names_a_missing_or_wrong_key() {
    let dir = folder();
    let written = runtime().block_on(async { fill(&open(dir.path(), OLD).unwrap(), 1).await });
    for (keys, said) in [("", "[encryption]"), (NEW, "not among the keys")] {
        let refused = open(dir.path(), keys).map(drop).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, Error::Sealed(_)) && text.contains(said), "{text}");
        let id = VaultKeys::from_variable("KEY", OLD).unwrap().first().id().to_string();
        assert!(text.contains(&id) && !text.contains("1111"), "{text}");
    }
    runtime().block_on(async { is_all_there(&open(dir.path(), OLD).unwrap(), &written).await });
}

#[test]
fn unsealed_tasks_stay_readable_after_first_key() {
    let dir = folder();
    let mut written = runtime().block_on(async { fill(&open(dir.path(), "").unwrap(), 1).await });
    runtime().block_on(async {
        let store = open(dir.path(), OLD).unwrap();
        is_all_there(&store, &written).await;
        // The last one goes on, and is sealed from its next change on.
        let last = written.pop().unwrap();
        written.push(store.commit(completion(&last, output(MARKER))).await.unwrap());
        written.extend(fill(&store, 2).await);
        is_all_there(&store, &written).await;
    });
    runtime().block_on(async { is_all_there(&open(dir.path(), OLD).unwrap(), &written).await });
}

#[test]
fn rekey_reseals_tenants_and_retires_the_old_key() {
    let dir = folder();
    let mut written = Vec::new();
    runtime().block_on(async {
        let store = open(dir.path(), OLD).unwrap();
        written.extend(fill(&store, 1).await);
        written.extend(fill(&store, 2).await);
        assert_eq!(rekey(&store).await.unwrap(), Rekeyed { tenants: 2, sealed_again: 0 });
    });
    runtime().block_on(async {
        let store = open(dir.path(), &format!("{NEW},{OLD}")).unwrap();
        assert_eq!(rekey(&store).await.unwrap(), Rekeyed { tenants: 2, sealed_again: 2 });
        is_all_there(&store, &written).await;
    });
    assert!(matches!(open(dir.path(), OLD).map(drop), Err(Error::Sealed(_))));
    runtime().block_on(async { is_all_there(&open(dir.path(), NEW).unwrap(), &written).await });
}

#[test]
fn sealed_task_is_claimed_unchanged() {
    let dir = folder();
    let written = runtime().block_on(async { fill(&open(dir.path(), OLD).unwrap(), 1).await });
    let waiting = written.last().unwrap();
    runtime().block_on(async {
        let store = open(dir.path(), OLD).unwrap();
        let lease = bulkhead_domain::task::Lease { node: bulkhead_domain::task::NodeId([8; 16]), until: 99 };
        let claimed = store.claim(1, lease, None, 10).await.unwrap().tasks;
        let expected = Task { lease: Some(lease), revision: waiting.revision + 1, ..waiting.clone() };
        assert_eq!(claimed, std::slice::from_ref(&expected));
        assert_eq!(store.get(&waiting.requestor, waiting.id).await.unwrap(), Some(expected));
    });
    assert!(!holds(dir.path(), MARKER.as_bytes()));
}

#[test]
fn sealed_task_is_lost_without_its_tenant_key() {
    let dir = folder();
    runtime().block_on(async {
        let store = open(dir.path(), OLD).unwrap();
        let written = fill(&store, 1).await;
        let tenant = written[0].requestor.tenant.0;
        store.remove_row(RowKind::TenantKey, &tenant).await.unwrap();
        let lost = store.get(&written[0].requestor, written[0].id).await.unwrap_err();
        assert!(lost.to_string().contains("lost"), "{lost}");
        // A new key is drawn for what is new.
        let created = store.create(marked(1, 77)).await.unwrap();
        assert_eq!(store.get(&created.requestor, created.id).await.unwrap(), Some(created));
    });
}

const LIMITS: KeyValueLimits = KeyValueLimits { keys_max: 9, bytes_max: 1 << 20, value_bytes_max: 1 << 20 };

fn space(tenant: u8) -> KeyValueNamespace {
    KeyValueNamespace { tenant: TenantId([tenant; 16]), plugin: "plugin".into() }
}

/// Values of every form.
async fn keep(store: &Arc<SledStore>, tenant: u8) {
    let kept = KeyValues::new(store.clone());
    for (key, repeats) in [("small", 1), ("large", 1_000)] {
        kept.set(&space(tenant), &LIMITS, key, MARKER.repeat(repeats).as_bytes(), Some(900), None).await.unwrap();
    }
}

async fn is_kept(store: &Arc<SledStore>, tenant: u8) {
    let kept = KeyValues::new(store.clone());
    for (key, repeats) in [("small", 1), ("large", 1_000)] {
        let value = kept.get(&space(tenant), key, 0).await.unwrap();
        assert!(value == Some(MARKER.repeat(repeats).into_bytes()), "{key}");
    }
    let bytes = 10 + 1_001 * MARKER.len() as u64;
    assert_eq!(kept.kept(&space(tenant)).await.unwrap(), KeyValueUsage { keys: 2, bytes }, "seals cost no quota");
}

#[test]
fn keyvalue_entries_stay_sealed_through_rekey() {
    let dir = folder();
    let clear = folder();
    let other = folder();
    runtime().block_on(async {
        keep(&open(clear.path(), "").unwrap(), 1).await;
        let store = open(dir.path(), OLD).unwrap();
        keep(&store, 1).await;
        is_kept(&store, 1).await;
        rebuild_running(&store).await.unwrap();
        is_kept(&store, 1).await;
    });
    assert!(holds(clear.path(), MARKER.as_bytes()), "the search itself works");
    assert!(!holds(dir.path(), MARKER.as_bytes()));
    runtime().block_on(async {
        let store = open(dir.path(), &format!("{NEW} {OLD}")).unwrap();
        assert_eq!(rekey(&store).await.unwrap(), Rekeyed { tenants: 1, sealed_again: 1 });
    });
    let mut lines = Vec::new();
    export(dir.path(), &mut lines).unwrap();
    rebuild(other.path(), Some(&mut lines.as_slice())).unwrap();
    assert_eq!(check(other.path()).unwrap().problems, [] as [String; 0]);
    runtime().block_on(async { is_kept(&open(other.path(), NEW).unwrap(), 1).await });
    assert!(!holds(other.path(), MARKER.as_bytes()));
}

#[test]
fn keyvalue_unsealed_entries_are_sealed_on_rewrite() {
    let dir = folder();
    runtime().block_on(async { keep(&open(dir.path(), "").unwrap(), 1).await });
    runtime().block_on(async {
        let store = open(dir.path(), OLD).unwrap();
        is_kept(&store, 1).await;
        assert_eq!(store.rows(RowKind::TenantKey, None, 9).await.unwrap().len(), 0, "reading draws no key");
        keep(&store, 1).await;
        is_kept(&store, 1).await;
        // What sled replaced is in its files for a while.
        rebuild_running(&store).await.unwrap();
        is_kept(&store, 1).await;
    });
    assert!(!holds(&dir.path().join("store"), MARKER.as_bytes()));
}

#[test]
fn keyvalue_sealed_entry_is_bound_to_key_and_owner() {
    let dir = folder();
    runtime().block_on(async {
        let store = open(dir.path(), OLD).unwrap();
        let kept = KeyValues::new(store.clone());
        for (space, key) in [(space(1), "a"), (space(1), "b"), (space(2), "a")] {
            kept.set(&space, &LIMITS, key, key.as_bytes(), None, None).await.unwrap();
        }
        let rows = store.rows(RowKind::KeyValue, None, 9).await.unwrap();
        let [(first, a), (second, _), (third, _)] = <[_; 3]>::try_from(rows).unwrap();
        for (row, bytes) in [(&second, a.clone()), (&third, a.clone())] {
            store.put_row(RowKind::KeyValue, row, bytes, false).await.unwrap();
        }
        let mut later = a.clone();
        later[8] ^= 1;
        store.put_row(RowKind::KeyValue, &first, later, false).await.unwrap();
        for (space, key) in [(space(1), "a"), (space(1), "b"), (space(2), "a")] {
            let refused = kept.get(&space, key, 0).await.unwrap_err();
            assert!(matches!(&refused, Error::Corrupt(why) if why.contains("cannot be opened")), "{refused}");
        }
        store.put_row(RowKind::KeyValue, &first, a, false).await.unwrap();
        assert_eq!(kept.get(&space(1), "a", 0).await.unwrap().as_deref(), Some(&b"a"[..]));
    });
}

#[test]
fn sealed_payloads_of_two_tasks_cannot_be_swapped() {
    use crate::record::{Owner, open_arguments, open_output, open_task, seal_arguments, seal_output, seal_task};
    let key = crate::vault::SealingKey::new(&[7; 32]);
    let one = marked(1, 1).task;
    let other = marked(1, 2).task;
    let owner = |task: &'static Task| Owner { requestor: &task.requestor, id: task.id };
    let (one, other): (&'static Task, &'static Task) = (Box::leak(Box::new(one)), Box::leak(Box::new(other)));
    let arguments = seal_arguments("{}", owner(one), &key).unwrap();
    let sealed = seal_output(&output("x"), owner(one), &key).unwrap();
    assert_eq!(open_arguments(arguments.clone(), owner(one), || Ok(key.clone())).unwrap(), b"{}");
    assert_eq!(open_output(&sealed, owner(one), || Ok(key.clone())).unwrap(), output("x"));
    assert!(open_arguments(arguments, owner(other), || Ok(key.clone())).is_err());
    assert!(open_output(&sealed, owner(other), || Ok(key.clone())).is_err());
    let record = seal_task(one, &key).unwrap();
    assert_eq!(&open_task(&record, |_| Ok(key.clone())).unwrap(), one);
    let stranger = crate::vault::SealingKey::new(&[8; 32]);
    assert!(matches!(open_task(&record, |_| Ok(stranger)), Err(Error::Corrupt(_))));
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
