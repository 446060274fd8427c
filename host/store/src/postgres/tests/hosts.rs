//! Several hosts on one schema: each has a fence of its own, what is counted is exact, and what a dead one held is
//! claimed once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::{HostOptions, PostgresOptions, PostgresStore};
use super::{options, refusal, sql};
use crate::hosts::{
    Changed, HeldBound, HeldChange, HeldRequest, HeldState, HeldTasks, HostStore as _, StoredComponent,
};
use crate::journal::{Append, JournalStore as _, TaskRef};
use crate::postgres_server::{PostgresServer, shared};
use crate::samples::{WIDE, completion, creation, output, requestor, tail, task, task_id};
use crate::{Change, Creation, Error, Ownership, RowKind, RowStore as _, StoredCaps, TaskStore as _};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, Lease, Phase, Task};

/// So long that no host of a test is late where the machine is busy.
const LEASE: Duration = Duration::from_secs(60);

fn named(options: &PostgresOptions, name: &str) -> PostgresOptions {
    with_lease(options, name, LEASE)
}

fn with_lease(options: &PostgresOptions, name: &str, lease: Duration) -> PostgresOptions {
    PostgresOptions { host: Some(HostOptions { name: name.to_owned(), lease }), ..options.clone() }
}

async fn pair(server: &PostgresServer) -> (PostgresOptions, Arc<PostgresStore>, Arc<PostgresStore>) {
    let options = options(server);
    let one = PostgresStore::open(named(&options, "one")).await.unwrap();
    let two = PostgresStore::open(named(&options, "two")).await.unwrap();
    (options, one, two)
}

fn lease_of(store: &PostgresStore) -> Lease {
    Lease { node: store.node().unwrap(), until: 0 }
}

/// What the others do to a host that they have not heard of for a lease.
async fn bury(options: &PostgresOptions, name: &str) {
    let text = format!(
        "delete from host_fence where host in (select id from host where name = '{name}');
         update host set is_dead = true where name = '{name}'"
    );
    sql(options, &text).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_share_a_schema_fill_a_quota_exactly_and_a_row_once() {
    let Some(server) = shared() else { return };
    let (_, one, two) = pair(server).await;
    let owner = requestor(1, 1);
    let caps = StoredCaps { tasks_per_requestor: 20, ..WIDE };
    let create = |store: &Arc<PostgresStore>, numbers: std::ops::Range<u64>| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut done = 0;
            for number in numbers {
                let key = number.to_be_bytes();
                match store.create(Creation { caps, ..creation(task(owner, number)) }).await {
                    Ok(_) => done += 1,
                    Err(Error::Quota { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                // The same keys at both.
                let key = (number % 100).to_be_bytes().map(|byte| byte ^ key[0]);
                match store.put_row(RowKind::Token, &key, store.node().unwrap().0.to_vec(), true).await {
                    Ok(()) => done += 1_000,
                    Err(Error::Exists) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            done
        })
    };
    let (first, second) = tokio::join!(create(&one, 100..140), create(&two, 200..240));
    assert_eq!(first.unwrap() + second.unwrap(), 20 + 40 * 1_000, "20 tasks, and each of 40 rows once");
    for store in [&one, &two] {
        let (of_requestor, of_tenant) = store.usage(&owner).await.unwrap();
        assert_eq!((of_requestor.tasks, of_tenant.tasks), (20, 20));
        assert!(of_requestor.bytes > 0);
    }
    let listed = one.list(&owner, None, 100).await.unwrap();
    for task in listed {
        two.remove(&owner, task.id).await.unwrap();
    }
    assert_eq!(one.usage(&owner).await.unwrap(), Default::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_hears_of_what_another_one_does_to_its_tasks_until_it_has_looked() {
    let Some(server) = shared() else { return };
    let (_, one, two) = pair(server).await;
    let owner = requestor(1, 1);
    let held = one.create(creation(task(owner, 1))).await.unwrap();
    assert_eq!(two.claim_free(lease_of(&two), &[], 9).await.unwrap(), [], "also one that waits for its turn is held");
    assert_eq!(one.changed_by_others(9).await.unwrap(), Changed::Tasks(Vec::new()));
    let steered = Task { steering: vec!["on".to_owned()], ..held.clone() };
    let steered = two.commit(Change::of(steered)).await.unwrap();
    let of_task = Changed::Tasks(vec![TaskRef::of(&held)]);
    tokio::time::timeout(LEASE, one.news()).await.expect("it is told");
    assert_eq!(one.changed_by_others(9).await.unwrap(), of_task);
    assert_eq!(one.changed_by_others(9).await.unwrap(), Changed::Tasks(Vec::new()), "it has looked");
    assert!(matches!(one.commit(Change::of(held.clone())).await, Err(Error::Conflict)));
    // Of its own changes it hears nothing.
    let own = one.commit(Change { held_by: one.node(), ..Change::of(steered) }).await.unwrap();
    assert_eq!(one.changed_by_others(9).await.unwrap(), Changed::Tasks(Vec::new()));
    assert!(matches!(two.commit(Change { held_by: two.node(), ..Change::of(own.clone()) }).await, Err(Error::Lost)));
    two.remove(&owner, held.id).await.unwrap();
    assert_eq!(one.changed_by_others(9).await.unwrap(), of_task);
    assert_eq!(one.revisions(&[TaskRef::of(&held)]).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buried_host_writes_nothing_until_it_joins_again_and_then_nothing_of_before() {
    let Some(server) = shared() else { return };
    let (options, one, two) = pair(server).await;
    let owner = requestor(1, 1);
    let before = one.node().unwrap();
    let lease = Some(lease_of(&one));
    let run = Task { phase: Phase::Active(Active::Running), attempt: 1, lease, ..task(owner, 1) };
    let run = one.create(creation(run)).await.unwrap();
    one.append(&owner, run.id, Append { held_by: Some(before), ..tail(1, 0, b"it began") }).await.unwrap();
    bury(&options, "one").await;
    let late = one.put_row(RowKind::Token, b"late", b"v".to_vec(), false).await;
    assert!(matches!(late, Err(Error::Lost)), "{late:?}");
    one.lost().await;
    assert!(matches!(one.get(&owner, run.id).await, Err(Error::Lost)), "it may be of the past");
    one.rejoin().await.unwrap();
    assert_ne!(one.node(), Some(before));
    // What a run of before would write, before anyone goes on with the task and after that.
    for claims in 0..2 {
        if claims == 1 {
            let claimed = two.claim_free(lease_of(&two), &[], 9).await.unwrap();
            assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [run.id]);
        }
        let newest = one.get(&owner, run.id).await.unwrap().unwrap();
        for name in [before, one.node().unwrap()] {
            let end = Change { held_by: Some(name), ..completion(&newest, output("of the zombie")) };
            assert!(matches!(one.commit(end).await, Err(Error::Lost)));
            let more = Append { held_by: Some(name), ..tail(1, 1, b"and went on") };
            assert!(matches!(one.append(&owner, run.id, more).await, Err(Error::Lost)));
        }
        assert_eq!(one.get(&owner, run.id).await.unwrap().unwrap(), newest, "nothing was written");
    }
    assert_eq!(two.row(RowKind::Token, b"late").await.unwrap(), None);
    one.put_row(RowKind::Token, b"again", b"v".to_vec(), true).await.unwrap();
    assert!(two.row(RowKind::Token, b"again").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_that_is_late_is_buried_by_another_one_and_its_tasks_are_claimed_once() {
    let Some(server) = shared() else { return };
    let options = options(server);
    // Who buries others has been connected for its own lease.
    let living = Duration::from_secs(6);
    let one = PostgresStore::open(with_lease(&options, "one", Duration::from_secs(1))).await.unwrap();
    let two = PostgresStore::open(with_lease(&options, "two", living)).await.unwrap();
    let three = PostgresStore::open(with_lease(&options, "three", living)).await.unwrap();
    for number in 0..150 {
        one.create(creation(task(requestor((number % 5) as u8, 1), number))).await.unwrap();
    }
    // As of a process that stands still: its lease ends, and it knows nothing of it.
    one.beside.lock().abort_all();
    let count = AtomicUsize::new(0);
    let claim_all = async |store: &PostgresStore| {
        let mut claimed = Vec::new();
        while count.load(Ordering::SeqCst) < 150 {
            let more = store.claim_free(lease_of(store), &[], 16).await.unwrap();
            count.fetch_add(more.len(), Ordering::SeqCst);
            claimed.extend(more);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        claimed
    };
    let (of_two, of_three) = tokio::join!(claim_all(&two), claim_all(&three));
    let ids: HashSet<_> = of_two.iter().chain(&of_three).map(|task| task.id).collect();
    assert_eq!((ids.len(), of_two.len() + of_three.len()), (150, 150), "each once");
    for (store, tasks) in [(&two, of_two), (&three, of_three)] {
        assert!(tasks.iter().all(|task| (task.revision, task.lease) == (2, Some(lease_of(store)))));
    }
    assert!(matches!(one.remove(&requestor(0, 1), task_id(0)).await, Err(Error::Lost)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_that_ends_or_lacks_a_component_leaves_its_tasks_to_the_others() {
    let Some(server) = shared() else { return };
    let (_, one, two) = pair(server).await;
    let owner = requestor(1, 1);
    let kept = one.create(creation(task(owner, 1))).await.unwrap();
    let left = one.create(creation(task(owner, 2))).await.unwrap();
    let left = Change { held_by: one.node(), then: Ownership::Released, ..Change::of(left) };
    let left = one.commit(left).await.unwrap();
    let not_of = [left.plugin.clone()];
    assert_eq!(two.claim_free(lease_of(&two), &not_of, 9).await.unwrap(), [], "it lacks the component");
    let claimed = two.claim_free(lease_of(&two), &[], 9).await.unwrap();
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [left.id]);
    one.close().await.unwrap();
    let claimed = two.claim_free(lease_of(&two), &[], 9).await.unwrap();
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [kept.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schema_is_of_one_host_or_of_several_and_counts_hold_over_each_change() {
    let Some(server) = shared() else { return };
    let alone = options(server);
    let owner = requestor(1, 1);
    let store = PostgresStore::open(alone.clone()).await.unwrap();
    store.create(Creation { reserved_bytes: 500, ..creation(task(owner, 1)) }).await.unwrap();
    let before = store.usage(&owner).await.unwrap();
    let refused = refusal(named(&alone, "one")).await;
    assert!(matches!(refused, Error::Locked(_)), "{refused}");
    store.close().await.unwrap();

    let one = PostgresStore::open(named(&alone, "one")).await.unwrap();
    assert_eq!(one.usage(&owner).await.unwrap(), before);
    assert_eq!(one.claim_free(lease_of(&one), &[], 9).await.unwrap().len(), 1, "its host is gone");
    one.create(creation(task(owner, 2))).await.unwrap();
    let after = one.usage(&owner).await.unwrap();
    let two = PostgresStore::open(named(&alone, "two")).await.unwrap();
    assert_eq!(two.usage(&owner).await.unwrap(), after);
    one.close().await.unwrap();
    let refused = refusal(alone.clone()).await;
    assert!(matches!(&refused, Error::Locked(_)), "{refused}");
    let blocked = two.block_tenant(owner.tenant).await;
    assert!(matches!(&blocked, Err(Error::ReadOnly(why)) if why.contains("[cluster]")), "{blocked:?}");
    two.close().await.unwrap();

    let store = PostgresStore::open(alone).await.unwrap();
    assert_eq!(store.usage(&owner).await.unwrap(), after);
    assert!(store.block_tenant(owner.tenant).await.is_ok());
}

const BOUND: HeldBound = HeldBound { limit: "tasks_running_per_requestor", max: 3 };

async fn hold(store: &PostgresStore, requestor: Requestor, running: u32, more: usize) -> Vec<bool> {
    let of_tenant = HeldBound { limit: "tasks_running_per_tenant", max: 4 };
    let request = HeldRequest { state: HeldState::Running, of_tenant, of_requestor: BOUND };
    let held = HeldTasks { running, ..HeldTasks::default() };
    let outcomes = store.hold(vec![HeldChange { requestor, held, more: vec![request; more] }]).await.unwrap();
    outcomes.first().unwrap().more.iter().map(Result::is_ok).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_tasks_are_limited_over_all_hosts_until_one_is_dead() {
    let Some(server) = shared() else { return };
    let (options, one, two) = pair(server).await;
    let anna = requestor(1, 1);
    let ben = requestor(1, 2);
    assert_eq!(hold(&one, anna, 0, 2).await, [true, true]);
    assert_eq!(hold(&two, anna, 0, 2).await, [true, false]);
    assert_eq!(hold(&two, ben, 0, 2).await, [true, false], "the limit of their tenant");
    assert_eq!(hold(&two, requestor(2, 1), 0, 1).await, [true]);
    let released =
        HeldChange { requestor: anna, held: HeldTasks { running: 1, ..HeldTasks::default() }, more: Vec::new() };
    assert!(one.hold(vec![released]).await.unwrap().iter().all(|outcome| outcome.is_awaited_elsewhere));
    assert_eq!(hold(&two, anna, 1, 1).await, [true], "it does not wait any more");
    assert_eq!(hold(&one, anna, 1, 1).await, [false]);
    bury(&options, "two").await;
    sql(&options, "delete from held_tasks where host in (select id from host where is_dead)").await;
    assert_eq!(hold(&one, anna, 1, 2).await, [true, true]);
    hold(&one, anna, 0, 0).await;
    // What is nothing is no row.
    sql(&options, "do $$ begin assert not exists (select from held_tasks); end $$").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_notice_that_another_one_changed_rows_which_they_keep() {
    let Some(server) = shared() else { return };
    let (_, one, two) = pair(server).await;
    let before = one.rows_changed(RowKind::Token, None).await;
    let plugins = one.rows_changed(RowKind::Plugin, None).await;
    assert!(before.is_some() && two.rows_changed(RowKind::Token, None).await.is_some());
    assert_eq!(one.generation(RowKind::KeyValue), None, "nobody counts these");
    two.put_row(RowKind::Token, b"one", b"v".to_vec(), true).await.unwrap();
    let after = tokio::time::timeout(LEASE, one.rows_changed(RowKind::Token, before)).await.expect("it is noticed");
    assert_ne!(after, before);
    one.put_row(RowKind::Plugin, b"one", b"v".to_vec(), true).await.unwrap();
    assert_ne!(one.generation(RowKind::Plugin), plugins, "its own changes are known at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn component_that_one_host_keeps_is_whole_for_the_others() {
    let Some(server) = shared() else { return };
    let (_, one, two) = pair(server).await;
    let bytes: Vec<u8> = (0..(2 << 20) + 7_u32).map(|number| number.to_le_bytes()[1]).collect();
    let component = StoredComponent { bytes, wit: Some("package a:b;".to_owned()), is_wit_vouched: true };
    let empty = StoredComponent::default();
    for (digest, component) in [([1; 32], &component), ([2; 32], &empty)] {
        assert!(!two.has_component(&digest).await.unwrap());
        assert_eq!(two.component(&digest).await.unwrap(), None);
        one.keep_component(&digest, component).await.unwrap();
        two.keep_component(&digest, component).await.unwrap();
        assert!(two.has_component(&digest).await.unwrap());
        assert_eq!(two.component(&digest).await.unwrap().as_ref(), Some(component));
        two.remove_component(&digest).await.unwrap();
        assert_eq!(one.component(&digest).await.unwrap(), None);
    }
}
