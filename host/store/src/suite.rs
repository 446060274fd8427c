//! One suite of facts for every store.

use std::sync::Arc;

use super::memory::MemoryStore;
use super::postgres::{Address, PostgresOptions, PostgresStore};
use super::postgres_server;
use super::samples::{completion, creation, output, requestor, task, task_id};
use super::sled::{ProbeMode, SledOptions, SledStore};
use super::{Change, Creation, Error, ListPosition, RowKind, Store, StoredCaps, Usage};
use crate::vault::VaultKeys;
use bulkhead_domain::Json;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, Lease, NodeId, Outcome, Phase, Retention, Task, TaskId};

/// A store, and a way to close it and open it again.
enum Bed {
    Memory(Arc<MemoryStore>),
    Disk { dir: tempfile::TempDir, store: Option<Arc<SledStore>>, sealed: bool },
    Postgres { options: Box<PostgresOptions>, store: Option<Arc<PostgresStore>> },
}

fn keys(sealed: bool) -> Option<VaultKeys> {
    sealed.then(|| VaultKeys::from_variable("KEY", &"5a".repeat(32)).unwrap())
}

fn options(dir: &std::path::Path, sealed: bool) -> SledOptions {
    let keys = keys(sealed);
    SledOptions { probe: ProbeMode::InProcess, ballast_bytes: 0, free_bytes_min: 1, keys, ..SledOptions::new(dir) }
}

impl Bed {
    fn memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    fn disk(sealed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Some(SledStore::open(options(dir.path(), sealed)).unwrap());
        Self::Disk { dir, store, sealed }
    }

    /// `None`: there is no server.
    async fn postgres(sealed: bool) -> Option<Self> {
        let server = postgres_server::shared()?;
        let address = Address::parse(&server.address()).unwrap();
        let schema = postgres_server::new_schema();
        let options = PostgresOptions { address, schema, keys: keys(sealed), dialer: None, host: None };
        let store = Some(PostgresStore::open(options.clone()).await.unwrap());
        Some(Self::Postgres { options: Box::new(options), store })
    }

    fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Postgres { store, .. } => Arc::clone(store.as_ref().unwrap()) as Arc<dyn Store>,
            Self::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Disk { store, .. } => Arc::clone(store.as_ref().unwrap()) as Arc<dyn Store>,
        }
    }

    async fn reopen(&mut self) {
        self.store().close().await.unwrap();
        match self {
            Self::Memory(store) => store.restart(),
            Self::Disk { dir, store, sealed } => {
                drop(store.take());
                *store = Some(SledStore::open(options(dir.path(), *sealed)).unwrap());
            }
            Self::Postgres { options, store } => {
                drop(store.take());
                *store = Some(PostgresStore::open((**options).clone()).await.unwrap());
            }
        }
    }
}

macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test] async fn $fact() { super::$fact(super::Bed::memory()).await; })*
        }
        mod on_disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
              async fn $fact() { super::$fact(super::Bed::disk(false)).await; })*
        }
        mod on_disk_and_sealed {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
              async fn $fact() { super::$fact(super::Bed::disk(true)).await; })*
        }
        mod in_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
              async fn $fact() {
                  if let Some(bed) = super::Bed::postgres(false).await { super::$fact(bed).await; }
              })*
        }
        mod in_postgres_and_sealed {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
              async fn $fact() {
                  if let Some(bed) = super::Bed::postgres(true).await { super::$fact(bed).await; }
              })*
        }
    };
}

mod journals;
mod leases;
mod quotas;
mod rows;

facts!(
    created_task_is_found_with_its_arguments,
    task_id_already_taken_is_refused,
    commit_replaces_the_record_and_adds_one_to_the_revision,
    commit_at_an_old_revision_is_a_conflict,
    commit_of_an_absent_task_is_a_conflict,
    task_outputs_of_every_size_round_trip,
    task_may_be_created_already_ended,
    large_task_record_round_trips_and_may_shrink,
    foreign_tasks_are_absent,
    task_is_found_by_its_id_alone,
    task_list_is_newest_first_and_pages_meet,
    task_list_pages_are_stable_under_changes,
    task_alias_points_to_its_task_only,
    task_expiry_index_follows_the_record,
    task_removal_leaves_nothing,
    stored_data_survives_reopening,
    concurrent_commits_have_one_winner,
    concurrent_creations_of_one_alias_have_one_winner,
);

async fn create(store: &dyn Store, task: Task) -> Task {
    store.create(creation(task)).await.unwrap()
}

async fn ids(store: &dyn Store, owner: &Requestor, after: Option<ListPosition>, count_max: usize) -> Vec<TaskId> {
    store.list(owner, after, count_max).await.unwrap().into_iter().map(|task| task.id).collect()
}

fn position(task: &Task) -> ListPosition {
    ListPosition { created_at: task.created_at, id: task.id }
}

async fn created_task_is_found_with_its_arguments(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    for (number, bytes) in [(1, 2), (2, 600), (3, 5_000), (4, 70_000)] {
        let arguments = Json::new(format!("\"{}\"", "a".repeat(bytes)));
        let wanted = Creation { arguments: arguments.clone(), ..creation(task(owner, number)) };
        let created = store.create(wanted).await.unwrap();
        assert_eq!(created, Task { revision: 1, ..task(owner, number) });
        assert_eq!(store.get(&owner, task_id(number)).await.unwrap(), Some(created));
        assert_eq!(store.arguments(&owner, task_id(number)).await.unwrap(), Some(arguments));
        assert_eq!(store.output(&owner, task_id(number)).await.unwrap(), None);
    }
    assert_eq!(store.get(&owner, task_id(9)).await.unwrap(), None);
    assert_eq!(store.arguments(&owner, task_id(9)).await.unwrap(), None);
    assert_eq!(store.output(&owner, task_id(9)).await.unwrap(), None);
}

async fn task_id_already_taken_is_refused(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    create(&*store, task(owner, 1)).await;
    assert!(matches!(store.create(creation(task(owner, 1))).await, Err(Error::Exists)));
    create(&*store, task(requestor(1, 2), 1)).await;
    assert_eq!(store.usage(&owner).await.unwrap().0.tasks, 1);
}

async fn commit_replaces_the_record_and_adds_one_to_the_revision(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let created = create(&*store, task(owner, 1)).await;
    let running = Task { phase: Phase::Active(Active::Running), attempt: 1, ..created.clone() };
    let committed = store.commit(Change::of(running.clone())).await.unwrap();
    assert_eq!(committed, Task { revision: 2, ..running });
    assert_eq!(store.get(&owner, created.id).await.unwrap(), Some(committed));
    assert_eq!(store.arguments(&owner, created.id).await.unwrap(), Some(creation(created).arguments));
}

async fn commit_at_an_old_revision_is_a_conflict(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let created = create(&*store, task(owner, 1)).await;
    let committed = store.commit(completion(&created, output("first"))).await.unwrap();
    let late = store.commit(completion(&created, output("second"))).await;
    assert!(matches!(late, Err(Error::Conflict)), "{late:?}");
    assert_eq!(store.get(&owner, created.id).await.unwrap(), Some(committed));
    assert_eq!(store.output(&owner, created.id).await.unwrap(), Some(output("first")));
}

async fn commit_of_an_absent_task_is_a_conflict(bed: Bed) {
    let store = bed.store();
    let absent = Change::of(Task { revision: 1, ..task(requestor(1, 1), 1) });
    assert!(matches!(store.commit(absent).await, Err(Error::Conflict)));
}

async fn task_outputs_of_every_size_round_trip(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    for (number, bytes) in (1..).zip([0, 100, 500, 600, 3_990, 4_000, 8_000, 40_000, 65_000, 66_000, 200_000]) {
        let created = create(&*store, task(owner, number)).await;
        let expected = output("x".repeat(bytes));
        store.commit(completion(&created, expected.clone())).await.unwrap();
        assert_eq!(store.output(&owner, created.id).await.unwrap(), Some(expected), "{bytes} bytes");
    }
}

async fn large_task_record_round_trips_and_may_shrink(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let mut current = create(&*store, task(owner, 1)).await;
    for bytes in [3_000, 100, 50_000, 9_000, 0] {
        let wanted = Task { steering: vec!["s".repeat(bytes)], ..current.clone() };
        current = store.commit(Change::of(wanted)).await.unwrap();
        assert_eq!(store.get(&owner, current.id).await.unwrap().as_ref(), Some(&current), "{bytes} bytes");
        assert_eq!(store.list(&owner, None, 9).await.unwrap(), [current.clone()]);
    }
}

async fn foreign_tasks_are_absent(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let others = [requestor(1, 2), requestor(2, 1), requestor(2, 2)];
    let aliased = Task { alias: Some("a".to_owned()), ..task(owner, 1) };
    let done = store.commit(completion(&create(&*store, aliased).await, output("secret"))).await.unwrap();
    for other in others {
        assert_eq!(store.get(&other, done.id).await.unwrap(), None);
        assert_eq!(store.arguments(&other, done.id).await.unwrap(), None);
        assert_eq!(store.output(&other, done.id).await.unwrap(), None);
        assert_eq!(store.by_alias(&other, "a").await.unwrap(), None);
        assert_eq!(ids(&*store, &other, None, 9).await, []);
        assert!(matches!(
            store.commit(Change::of(Task { requestor: other, ..done.clone() })).await,
            Err(Error::Conflict)
        ));
        store.remove(&other, done.id).await.unwrap();
        assert_eq!(store.usage(&other).await.unwrap().0, Usage::default());
    }
    assert_eq!(store.get(&owner, done.id).await.unwrap(), Some(done));
}

async fn task_is_found_by_its_id_alone(bed: Bed) {
    let store = bed.store();
    assert_eq!(store.find(task_id(1)).await.unwrap(), None);
    let mut all = Vec::new();
    for (tenant, id) in [(1, 1), (1, 2), (2, 1), (255, 255)] {
        for number in 1..=3 {
            let number = u64::from(tenant) * 1_000 + u64::from(id) * 10 + number;
            all.push(create(&*store, task(requestor(tenant, id), number)).await);
        }
    }
    for task in &all {
        assert_eq!(store.find(task.id).await.unwrap().as_ref(), Some(task));
    }
    assert_eq!(store.find(task_id(5)).await.unwrap(), None);
    store.remove(&all[0].requestor, all[0].id).await.unwrap();
    assert_eq!(store.find(all[0].id).await.unwrap(), None);
}

async fn task_list_is_newest_first_and_pages_meet(bed: Bed) {
    let store = bed.store();
    let owners = [requestor(1, 1), requestor(1, 2)];
    for number in 1..=7 {
        for owner in owners {
            // Two tasks share each creation time.
            create(&*store, Task { created_at: number / 2, ..task(owner, number) }).await;
        }
    }
    for owner in owners {
        let whole = store.list(&owner, None, 100).await.unwrap();
        assert_eq!(whole.len(), 7);
        assert!(whole.is_sorted_by_key(|task| std::cmp::Reverse(task.created_at)));
        assert!(whole.iter().all(|task| task.requestor == owner));
        for page_length in 1..=8 {
            let mut pages = Vec::new();
            let mut after = None;
            loop {
                let page = store.list(&owner, after, page_length).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(position(last));
                assert!(page.len() <= page_length);
                pages.extend(page);
            }
            assert_eq!(pages, whole);
        }
    }
}

async fn task_list_pages_are_stable_under_changes(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    for number in 1..=6 {
        create(&*store, task(owner, number)).await;
    }
    let first = store.list(&owner, None, 2).await.unwrap();
    create(&*store, task(owner, 7)).await;
    store.remove(&owner, task_id(5)).await.unwrap();
    store.remove(&owner, task_id(3)).await.unwrap();
    let rest = ids(&*store, &owner, first.last().map(position), 9).await;
    assert_eq!(rest, [task_id(4), task_id(2), task_id(1)]);
}

async fn task_may_be_created_already_ended(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let over = |number| Task { phase: Phase::Ended(Outcome::Output { is_error: true }), ..task(owner, number) };
    for (number, bytes) in [(1, 100), (2, 5_000), (3, 70_000)] {
        let said = output("x".repeat(bytes));
        let wanted =
            Creation { output: Some(Arc::new(said.clone())), reserved_bytes: 10_000_000, ..creation(over(number)) };
        let created = store.create(wanted).await.unwrap();
        assert_eq!(store.get(&owner, created.id).await.unwrap(), Some(created.clone()));
        assert_eq!(store.output(&owner, created.id).await.unwrap(), Some(said));
        assert!(store.commit(Change::of(created)).await.is_ok());
    }
    let usage = store.usage(&owner).await.unwrap().0;
    assert!((75_000..80_000).contains(&usage.bytes), "{usage:?}");
    let caps = StoredCaps { bytes_per_requestor: usage.bytes + 1_000, ..creation(over(4)).caps };
    let wanted = Creation { output: Some(Arc::new(output("x".repeat(2_000)))), caps, ..creation(over(4)) };
    assert!(matches!(store.create(wanted).await, Err(Error::Quota { .. })));
    assert_eq!(store.output(&owner, task_id(4)).await.unwrap(), None);
    let lease = Lease { node: NodeId([1; 16]), until: 9 };
    assert_eq!(store.claim(1, lease, None, 9).await.unwrap().tasks, [], "there is nothing to run");
}

async fn task_alias_points_to_its_task_only(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let aliased = |number, alias: &str| Task { alias: Some(alias.to_owned()), ..task(owner, number) };
    let first = create(&*store, aliased(1, "a")).await;
    assert_eq!(store.by_alias(&owner, "a").await.unwrap(), Some(first.id));
    assert_eq!(store.by_alias(&owner, "b").await.unwrap(), None);
    assert!(matches!(store.create(creation(aliased(2, "a"))).await, Err(Error::Exists)));
    assert_eq!(store.get(&owner, task_id(2)).await.unwrap(), None);
    let second = create(&*store, aliased(2, "b")).await;
    let stolen = Task { alias: Some("a".to_owned()), ..second.clone() };
    assert!(matches!(store.commit(Change::of(stolen)).await, Err(Error::Exists)));
    store.commit(completion(&first, output("done"))).await.unwrap();
    assert_eq!(store.by_alias(&owner, "a").await.unwrap(), Some(first.id));
    store.remove(&owner, first.id).await.unwrap();
    assert_eq!(store.by_alias(&owner, "a").await.unwrap(), None);
    create(&*store, aliased(3, "a")).await;
    assert_eq!(store.by_alias(&owner, "a").await.unwrap(), Some(task_id(3)));
}

async fn task_expiry_index_follows_the_record(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    assert_eq!(store.next_expiry().await.unwrap(), None);
    let retained = |number, retention| Task { retention, ..task(owner, number) };
    create(&*store, retained(30, Retention::FromCreation { ttl_ms: 1_000 })).await;
    create(&*store, retained(20, Retention::FromCreation { ttl_ms: 500 })).await;
    create(&*store, retained(10, Retention::Unlimited)).await;
    let kept = create(&*store, retained(40, Retention::FromCompletion { keep_alive_ms: 5 })).await;
    assert_eq!(store.next_expiry().await.unwrap(), Some(520));
    assert_eq!(store.expired(519, 9).await.unwrap(), []);
    assert_eq!(store.expired(520, 9).await.unwrap(), [(owner, task_id(20))]);
    assert_eq!(store.expired(2_000, 9).await.unwrap(), [(owner, task_id(20)), (owner, task_id(30))]);
    assert_eq!(store.expired(2_000, 1).await.unwrap(), [(owner, task_id(20))]);
    let kept = Task { updated_at: 100, ..kept };
    store.commit(completion(&kept, output("done"))).await.unwrap();
    assert_eq!(store.next_expiry().await.unwrap(), Some(105));
    store.remove(&owner, task_id(40)).await.unwrap();
    store.remove(&owner, task_id(20)).await.unwrap();
    assert_eq!(store.next_expiry().await.unwrap(), Some(1_030));
}

async fn task_removal_leaves_nothing(mut bed: Bed) {
    let owner = requestor(1, 1);
    let store = bed.store();
    for (number, bytes) in [(1, 10), (2, 40_000), (3, 200_000)] {
        let wanted = Creation {
            arguments: Json::new(format!("\"{}\"", "a".repeat(bytes))),
            ..creation(Task { alias: Some(number.to_string()), ..task(owner, number) })
        };
        let created = store.create(wanted).await.unwrap();
        let talkative = Task { steering: vec!["s".repeat(9_000)], ..created };
        let talkative = store.commit(Change::of(talkative)).await.unwrap();
        store.commit(completion(&talkative, output("x".repeat(bytes)))).await.unwrap();
    }
    for number in 1..=3 {
        store.remove(&owner, task_id(number)).await.unwrap();
    }
    drop(store);
    for _ in 0..2 {
        let store = bed.store();
        for number in 1..=3 {
            assert_eq!(store.get(&owner, task_id(number)).await.unwrap(), None);
            assert_eq!(store.output(&owner, task_id(number)).await.unwrap(), None);
            assert_eq!(store.by_alias(&owner, &number.to_string()).await.unwrap(), None);
        }
        assert_eq!(ids(&*store, &owner, None, 9).await, []);
        assert_eq!(store.scan(None, 9).await.unwrap(), []);
        assert_eq!(store.next_expiry().await.unwrap(), None);
        assert_eq!(store.usage(&owner).await.unwrap(), Default::default());
        if let Bed::Disk { dir, .. } = &bed {
            assert_eq!(dir.path().join("store/files").read_dir().unwrap().count(), 0);
        }
        drop(store);
        bed.reopen().await;
    }
}

async fn stored_data_survives_reopening(mut bed: Bed) {
    let owners = [requestor(1, 1), requestor(1, 2), requestor(2, 3)];
    let store = bed.store();
    for number in 1..=30 {
        let owner = owners[number as usize % 3];
        let aliased = Task { alias: Some(format!("a{number}")), ..task(owner, number) };
        let created = store.create(Creation { reserved_bytes: 50, ..creation(aliased) }).await.unwrap();
        match number % 4 {
            0 => drop(store.commit(completion(&created, output("x".repeat(number as usize * 3_000)))).await.unwrap()),
            1 => store.remove(&owner, created.id).await.unwrap(),
            _ => {}
        }
    }
    store.put_row(RowKind::Secret, b"k", b"v".to_vec(), true).await.unwrap();
    let tasks = store.scan(None, 100).await.unwrap();
    let mut usages = Vec::new();
    for owner in &owners {
        usages.push(store.usage(owner).await.unwrap());
    }
    drop(store);
    bed.reopen().await;

    let store = bed.store();
    assert_eq!(store.scan(None, 100).await.unwrap(), tasks);
    assert_eq!(store.row(RowKind::Secret, b"k").await.unwrap(), Some(b"v".to_vec()));
    for (owner, usage) in owners.iter().zip(usages) {
        assert_eq!(store.usage(owner).await.unwrap(), usage);
    }
    for task in &tasks {
        assert_eq!(store.by_alias(&task.requestor, task.alias.as_ref().unwrap()).await.unwrap(), Some(task.id));
        let expected = task.outcome().map(|_| output("x".repeat(task.created_at as usize * 3_000)));
        assert_eq!(store.output(&task.requestor, task.id).await.unwrap(), expected);
    }
    assert_eq!(store.expired(u64::MAX, 100).await.unwrap().len(), tasks.len());
    let pages = [store.scan(None, 7).await.unwrap(), {
        let last = tasks.get(6).map(|task| (task.requestor, task.id));
        store.scan(last, 100).await.unwrap()
    }];
    assert_eq!(pages.concat(), tasks);
}

async fn concurrent_commits_have_one_winner(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    for number in 1..=20 {
        let created = create(&*store, task(owner, number)).await;
        let texts: Vec<String> = (0..8).map(|writer| format!("{writer}{}", "y".repeat(writer * 700))).collect();
        let commits = texts.iter().map(|text| store.commit(completion(&created, output(text))));
        let results = futures::future::join_all(commits).await;
        let winners: Vec<_> = (0..).zip(&results).filter(|(_, result)| result.is_ok()).collect();
        assert_eq!(winners.len(), 1);
        let kept = store.output(&owner, created.id).await.unwrap();
        assert_eq!(kept, Some(output(&texts[winners[0].0])));
    }
}

async fn concurrent_creations_of_one_alias_have_one_winner(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let make = |number| {
        let store = Arc::clone(&store);
        let task = Task { alias: Some("k".to_owned()), ..task(owner, number) };
        async move {
            let created = store.create(creation(task)).await;
            // Whoever was refused finds the winner at once.
            (created.is_ok(), store.by_alias(&owner, "k").await.unwrap())
        }
    };
    let results = futures::future::join_all((1..=16).map(|number| tokio::spawn(make(number)))).await;
    let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results.iter().filter(|(won, _)| *won).count(), 1);
    assert!(results.iter().all(|(_, found)| found.is_some() && *found == results[0].1));
    assert_eq!(ids(&*store, &owner, None, 99).await.len(), 1);
}
