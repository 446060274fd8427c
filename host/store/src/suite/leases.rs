//! One suite of facts about leases, for every store.

use super::{Bed, create};
use crate::journal::{Append, TaskRef};
use crate::samples::{completion, output, requestor, tail, task, task_id};
use crate::{Change, Error, Ownership, RowKind, Store};
use bulkhead_domain::lifecycle::{self, Event};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, DurableMarker, Lease, NodeId, Phase, Task, TaskId};
use bulkhead_domain::timeline::WakeCause;

facts!(
    claim_takes_tasks_without_a_live_lease,
    heartbeat_keeps_leases_alive,
    leases_end_with_the_process,
    claim_gives_dormant_tasks_as_they_are,
    claim_comes_to_its_end_in_parts,
    host_that_was_stopped_and_wakes_writes_nothing_of_a_claimed_task,
    task_that_waits_to_go_on_is_held_until_it_is_released,
);

const NODE: NodeId = NodeId([1; 16]);

const OTHER: NodeId = NodeId([2; 16]);

async fn claim_takes_tasks_without_a_live_lease(bed: Bed) {
    let store = bed.store();
    let one = requestor(1, 1);
    let two = requestor(2, 1);
    let leased = |until| Some(Lease { node: NODE, until });
    create(&*store, task(one, 1)).await;
    create(&*store, Task { lease: leased(100), ..task(one, 2) }).await;
    create(&*store, Task { lease: leased(300), ..task(two, 3) }).await;
    create(&*store, Task { phase: Phase::Paused { before: Active::Running }, ..task(two, 4) }).await;
    let done = create(&*store, task(two, 5)).await;
    store.commit(completion(&done, output("done"))).await.unwrap();

    let lease = Lease { node: OTHER, until: 1_000 };
    let first = store.claim(200, lease, None, 2).await.unwrap().tasks;
    assert_eq!(first.iter().map(|task| task.id).collect::<Vec<_>>(), [task_id(1), task_id(2)]);
    for claimed in &first {
        assert_eq!((claimed.lease, claimed.revision), (Some(lease), 2));
        assert_eq!(store.get(&claimed.requestor, claimed.id).await.unwrap().as_ref(), Some(claimed));
    }
    let second = store.claim(200, lease, None, 9).await.unwrap().tasks;
    assert_eq!(second.iter().map(|task| task.id).collect::<Vec<_>>(), [task_id(4)]);
    assert_eq!(store.claim(200, lease, None, 9).await.unwrap().tasks, []);
    assert_eq!(store.claim(300, lease, None, 9).await.unwrap().tasks.len(), 1);
    // Who held a lease before cannot write any more.
    let late = Task { revision: 1, lease: leased(100), ..task(one, 2) };
    assert!(matches!(store.commit(Change::of(late)).await, Err(Error::Conflict)));
    assert_eq!(store.claim(1_000, lease, None, 9).await.unwrap().tasks.len(), 4);
}

/// A task whose call has left memory on the host of [`NODE`].
async fn dormant(store: &dyn Store, id: u64) -> Task {
    let owner = requestor(1, 1);
    let lease = Some(Lease { node: NODE, until: 100 });
    let durable = Some(DurableMarker::of_run(1, 7));
    let phase = Phase::Active(Active::InputRequired);
    let running = create(store, Task { phase, attempt: 1, lease, durable, ..task(owner, id) }).await;
    let left = lifecycle::step(&running, Event::Evict { attempt: 1 }, 50).unwrap();
    store.commit(Change { held_by: Some(NODE), ..Change::of(left) }).await.unwrap()
}

async fn claim_gives_dormant_tasks_as_they_are(mut bed: Bed) {
    let before = dormant(&*bed.store(), 1).await;
    let lease = Lease { node: OTHER, until: 1_000 };
    assert_eq!(bed.store().claim(60, lease, None, 9).await.unwrap().tasks, [], "its host lives");
    bed.reopen().await;
    let store = bed.store();
    let running = create(&*store, task(requestor(1, 1), 2)).await;
    for claims in 0..2 {
        let claimed = store.claim(60, lease, None, 9).await.unwrap().tasks;
        assert_eq!(claimed.first(), Some(&before), "nobody has gone on with it");
        assert_eq!(claimed.get(1).map(|task| task.id), (claims == 0).then_some(running.id));
        assert_eq!(
            store.get(&before.requestor, before.id).await.unwrap().as_ref(),
            Some(&before),
            "nothing is written"
        );
    }
    let durable = Some(DurableMarker::of_run(2, 7));
    let goes_on = Event::Continue { lease, durable, cause: Some(WakeCause::Answered) };
    let goes_on = lifecycle::step(&before, goes_on, 70).unwrap();
    let woken = store.commit(Change { held_by: Some(OTHER), ..Change::of(goes_on) }).await.unwrap();
    assert_eq!(store.claim(80, lease, None, 9).await.unwrap().tasks, []);
    let late = Change { held_by: Some(NODE), ..completion(&woken, output("of another host")) };
    assert!(matches!(store.commit(late).await, Err(Error::Lost)));
    // A host that was heard of may come back to it: its lease is taken from it.
    let left = lifecycle::step(&woken, Event::Evict { attempt: 2 }, 80).unwrap();
    let left = store.commit(Change { held_by: Some(OTHER), ..Change::of(left) }).await.unwrap();
    let lease = Lease { node: NODE, until: 2_000 };
    let claimed = store.claim(1_000, lease, None, 1).await.unwrap().tasks;
    assert_eq!(claimed, [Task { lease: Some(lease), revision: left.revision + 1, ..left }]);
}

async fn claim_comes_to_its_end_in_parts(mut bed: Bed) {
    for id in 1..=3 {
        dormant(&*bed.store(), id).await;
    }
    bed.reopen().await;
    let store = bed.store();
    for id in 4..=5 {
        create(&*store, task(requestor(1, 1), id)).await;
    }
    let lease = Lease { node: OTHER, until: 1_000 };
    let mut found = Vec::new();
    let mut after = None;
    for part in 0..3 {
        let claimed = store.claim(60, lease, after, 2).await.unwrap();
        found.extend(claimed.tasks.iter().map(|task| task.id));
        after = claimed.next;
        assert_eq!(after.is_none(), part == 2);
    }
    assert_eq!(found, [1, 2, 3, 4, 5].map(task_id));
}

/// What a run that writes for a host tries with the newest record that it can read; all of it is refused.
async fn is_lost(store: &dyn Store, owner: &Requestor, id: TaskId, node: NodeId) {
    let newest = store.get(owner, id).await.unwrap().unwrap();
    let end = Change { held_by: Some(node), ..completion(&newest, output("of the zombie")) };
    for revision in [newest.revision, 1] {
        let task = Task { revision, ..end.task.clone() };
        let refused = store.commit(Change { task, ..end.clone() }).await;
        assert!(matches!(refused, Err(Error::Lost)), "{refused:?}");
    }
    let journal = store.journal(owner, id).await.unwrap().unwrap();
    let more = Append { held_by: Some(node), ..tail(journal.attempt, journal.rows, b"of the zombie") };
    let refused = store.append(owner, id, more.clone()).await;
    assert!(matches!(refused, Err(Error::Lost)), "{refused:?}");
    let row = vec![(b"of the zombie".to_vec(), Some(b"v".to_vec()))];
    let beside = Some((TaskRef { requestor: *owner, id }, more));
    let refused = store.change_rows(RowKind::Plugin, Vec::new(), row, beside).await;
    assert!(matches!(refused, Err(Error::Lost)), "{refused:?}");
    assert_eq!(store.row(RowKind::Plugin, b"of the zombie").await.unwrap(), None);
    assert_eq!(store.get(owner, id).await.unwrap(), Some(newest), "nothing was written");
    assert_eq!(store.journal(owner, id).await.unwrap(), Some(journal));
}

/// A run of a task for the second time, whose journal has begun.
async fn held_run(store: &dyn Store, owner: Requestor) -> Task {
    let lease = Some(Lease { node: NODE, until: 100 });
    let run = create(store, Task { phase: Phase::Active(Active::Running), attempt: 2, lease, ..task(owner, 1) }).await;
    let begins = Append { held_by: Some(NODE), ..tail(2, 0, b"it began") };
    store.append(&owner, run.id, begins).await.unwrap();
    store
        .commit(Change { held_by: Some(NODE), journal: Some(tail(2, 1, b"and asked")), ..Change::of(run) })
        .await
        .unwrap()
}

async fn host_that_was_stopped_and_wakes_writes_nothing_of_a_claimed_task(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let run = held_run(&*store, owner).await;
    let lease = Lease { node: OTHER, until: 1_000 };
    let claimed = store.claim(200, lease, None, 9).await.unwrap().tasks.remove(0);
    is_lost(&*store, &owner, run.id, NODE).await;
    // The claimer has yet to go on: the run of before is the one that the record and the journal name.
    let waits = Change { held_by: Some(OTHER), ..Change::of(Task { lease: None, ..claimed }) };
    let waits = store.commit(waits).await.unwrap();
    is_lost(&*store, &owner, run.id, NODE).await;
    store.heartbeat(NODE, 5_000).await.unwrap();
    assert_eq!(
        store.claim(300, Lease { node: NODE, until: 5_000 }, None, 9).await.unwrap().tasks,
        [],
        "a late heartbeat gives nothing back"
    );
    is_lost(&*store, &owner, run.id, NODE).await;
    let steered = Change::of(Task { steering: vec!["on".to_owned()], ..waits });
    let steered = store.commit(steered).await.unwrap();
    is_lost(&*store, &owner, run.id, NODE).await;
    let goes_on = Change { held_by: Some(OTHER), ..Change::of(Task { lease: Some(lease), ..steered }) };
    let goes_on = store.commit(goes_on).await.unwrap();
    is_lost(&*store, &owner, run.id, NODE).await;
    let end = Change { held_by: Some(OTHER), ..completion(&goes_on, output("of the claimer")) };
    store.commit(end).await.unwrap();
    let late = Change { held_by: Some(NODE), ..completion(&goes_on, output("of the zombie")) };
    assert!(matches!(store.commit(late).await, Err(Error::Conflict)), "it is over, which the zombie can read");
    assert_eq!(store.output(&owner, run.id).await.unwrap(), Some(output("of the claimer")));
}

async fn task_that_waits_to_go_on_is_held_until_it_is_released(mut bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let run = held_run(&*store, owner).await;
    store.heartbeat(NODE, 1_000).await.unwrap();
    let lease = Lease { node: OTHER, until: 1_000 };
    let waits = Change { held_by: Some(NODE), ..Change::of(Task { lease: None, ..run }) };
    let waits = store.commit(waits).await.unwrap();
    assert_eq!(store.claim(200, lease, None, 9).await.unwrap().tasks, [], "its host is about to go on with it");
    let left = Change { held_by: Some(NODE), then: Ownership::Released, ..Change::of(waits) };
    let left = store.commit(left).await.unwrap();
    let seen = Append { held_by: Some(NODE), ..tail(2, 2, b"and was told") };
    store.append(&owner, left.id, seen).await.unwrap();
    let claimed = store.claim(200, lease, None, 9).await.unwrap().tasks.remove(0);
    assert_eq!((claimed.id, claimed.lease), (left.id, Some(lease)));
    is_lost(&*store, &owner, left.id, NODE).await;
    let waits = Change { held_by: Some(OTHER), ..Change::of(Task { lease: None, ..claimed }) };
    store.commit(waits).await.unwrap();
    drop(store);
    bed.reopen().await;
    // Nobody of before is there any more.
    assert_eq!(bed.store().claim(200, Lease { node: NODE, until: 1_000 }, None, 9).await.unwrap().tasks.len(), 1);
}

async fn heartbeat_keeps_leases_alive(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    create(&*store, Task { lease: Some(Lease { node: NODE, until: 100 }), ..task(owner, 1) }).await;
    store.heartbeat(NODE, 500).await.unwrap();
    store.heartbeat(OTHER, 5_000).await.unwrap();
    let lease = Lease { node: OTHER, until: 900 };
    assert_eq!(store.claim(400, lease, None, 9).await.unwrap().tasks, []);
    assert_eq!(store.claim(600, lease, None, 9).await.unwrap().tasks.len(), 1);
    assert_eq!(store.claim(1_000, Lease { node: NODE, until: 1_100 }, None, 9).await.unwrap().tasks, []);
}

async fn leases_end_with_the_process(mut bed: Bed) {
    let owner = requestor(1, 1);
    let held = Some(Lease { node: NODE, until: 1_000_000 });
    create(&*bed.store(), Task { lease: held, ..task(owner, 1) }).await;
    let lease = Lease { node: OTHER, until: 1_000_000 };
    assert_eq!(bed.store().claim(10, lease, None, 9).await.unwrap().tasks, []);
    bed.reopen().await;
    // Who can open the store knows that nobody else has it.
    assert_eq!(bed.store().claim(10, lease, None, 9).await.unwrap().tasks.len(), 1);
    assert_eq!(bed.store().claim(10, lease, None, 9).await.unwrap().tasks, []);
}
