//! One suite of facts about leases, for every store.

use super::{Bed, create};
use crate::samples::{completion, output, requestor, task, task_id};
use crate::{Change, Error};
use bulkhead_domain::task::{Active, Lease, NodeId, Phase, Task};

facts!(claim_takes_tasks_without_a_live_lease, heartbeat_keeps_leases_alive, leases_end_with_the_process,);

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
    let first = store.claim(200, lease, 2).await.unwrap();
    assert_eq!(first.iter().map(|task| task.id).collect::<Vec<_>>(), [task_id(1), task_id(2)]);
    for claimed in &first {
        assert_eq!((claimed.lease, claimed.revision), (Some(lease), 2));
        assert_eq!(store.get(&claimed.requestor, claimed.id).await.unwrap().as_ref(), Some(claimed));
    }
    let second = store.claim(200, lease, 9).await.unwrap();
    assert_eq!(second.iter().map(|task| task.id).collect::<Vec<_>>(), [task_id(4)]);
    assert_eq!(store.claim(200, lease, 9).await.unwrap(), []);
    assert_eq!(store.claim(300, lease, 9).await.unwrap().len(), 1);
    // Who held a lease before cannot write any more.
    let late = Task { revision: 1, lease: leased(100), ..task(one, 2) };
    assert!(matches!(store.commit(Change { task: late, output: None, journal: None }).await, Err(Error::Conflict)));
    assert_eq!(store.claim(1_000, lease, 9).await.unwrap().len(), 4);
}

async fn heartbeat_keeps_leases_alive(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    create(&*store, Task { lease: Some(Lease { node: NODE, until: 100 }), ..task(owner, 1) }).await;
    store.heartbeat(NODE, 500).await.unwrap();
    store.heartbeat(OTHER, 5_000).await.unwrap();
    let lease = Lease { node: OTHER, until: 900 };
    assert_eq!(store.claim(400, lease, 9).await.unwrap(), []);
    assert_eq!(store.claim(600, lease, 9).await.unwrap().len(), 1);
    assert_eq!(store.claim(1_000, Lease { node: NODE, until: 1_100 }, 9).await.unwrap(), []);
}

async fn leases_end_with_the_process(mut bed: Bed) {
    let owner = requestor(1, 1);
    let held = Some(Lease { node: NODE, until: 1_000_000 });
    create(&*bed.store(), Task { lease: held, ..task(owner, 1) }).await;
    let lease = Lease { node: OTHER, until: 1_000_000 };
    assert_eq!(bed.store().claim(10, lease, 9).await.unwrap(), []);
    bed.reopen().await;
    // Who can open the store knows that nobody else has it.
    assert_eq!(bed.store().claim(10, lease, 9).await.unwrap().len(), 1);
    assert_eq!(bed.store().claim(10, lease, 9).await.unwrap(), []);
}
