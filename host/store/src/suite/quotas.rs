//! One suite of facts about what counts as stored, for every store.

use std::sync::Arc;

use super::{Bed, create};
use crate::samples::{WIDE, completion, creation, output, requestor, task, task_id};
use crate::{Change, Creation, Error, StoredCaps, Usage};
use bulkhead_domain::task::{Active, Outcome, Phase, Task};

facts!(storage_quota_is_checked_with_the_write, storage_usage_follows_the_tasks,);

async fn storage_quota_is_checked_with_the_write(bed: Bed) {
    let store = bed.store();
    let refused = |creation| {
        let store = Arc::clone(&store);
        async move {
            match store.create(creation).await {
                Err(Error::Quota { limit, .. }) => limit,
                other => panic!("not refused: {other:?}"),
            }
        }
    };
    let one = requestor(1, 1);
    let two = requestor(1, 2);
    create(&*store, task(one, 1)).await;
    let bytes = store.usage(&one).await.unwrap().0.bytes;
    let with = |owner, caps| Creation { caps, ..creation(task(owner, 9)) };
    let caps = StoredCaps { tasks_per_requestor: 1, ..WIDE };
    assert_eq!(refused(with(one, caps)).await, "tasks_stored_per_requestor");
    let caps = StoredCaps { bytes_per_requestor: bytes + 1, ..WIDE };
    assert_eq!(refused(with(one, caps)).await, "tasks_stored_bytes_per_requestor");
    let caps = StoredCaps { tasks_per_tenant: 1, ..WIDE };
    assert_eq!(refused(with(two, caps)).await, "tasks_stored_per_tenant");
    let caps = StoredCaps { bytes_per_tenant: bytes + 1, ..WIDE };
    assert_eq!(refused(with(two, caps)).await, "tasks_stored_bytes_per_tenant");
    let caps = StoredCaps { bytes_per_requestor: 2 * bytes + 10, ..WIDE };
    let reserving = Creation { reserved_bytes: 11, ..with(one, caps) };
    assert_eq!(refused(reserving).await, "tasks_stored_bytes_per_requestor");

    assert_eq!(store.get(&one, task_id(9)).await.unwrap(), None);
    assert_eq!(store.usage(&one).await.unwrap().0, Usage { tasks: 1, bytes });
    // Of many at once, as many get in as fit.
    let caps = StoredCaps { tasks_per_requestor: 5, ..WIDE };
    let creations = (10..30).map(|number| store.create(Creation { caps, ..creation(task(one, number)) }));
    let results = futures::future::join_all(creations).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 4);
}

async fn storage_usage_follows_the_tasks(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    assert_eq!(store.usage(&owner).await.unwrap(), Default::default());
    let reserving = Creation { reserved_bytes: 10_000, ..creation(task(owner, 1)) };
    let created = store.create(reserving).await.unwrap();
    let reserved = store.usage(&owner).await.unwrap().0;
    assert!(reserved.bytes > 10_000 && reserved.tasks == 1);
    let running = Task { phase: Phase::Active(Active::Running), ..created };
    let running = store.commit(Change::of(running)).await.unwrap();
    assert_eq!(store.usage(&owner).await.unwrap().0.bytes / 1_000, reserved.bytes / 1_000);
    store.commit(completion(&running, output("x".repeat(3_000)))).await.unwrap();
    let done = store.usage(&owner).await.unwrap().0;
    assert!((3_000..4_000).contains(&done.bytes), "{done:?}");

    let other = requestor(1, 2);
    let second = store.create(Creation { reserved_bytes: 10_000, ..creation(task(other, 2)) }).await.unwrap();
    let cancelled = Task { phase: Phase::Ended(Outcome::Cancelled), ..second };
    store.commit(Change::of(cancelled)).await.unwrap();
    let (own, tenant) = store.usage(&other).await.unwrap();
    assert!(own.bytes < 1_000, "a reservation outlived its task: {own:?}");
    assert_eq!(tenant, Usage { tasks: 2, bytes: own.bytes + done.bytes });
    store.remove(&owner, task_id(1)).await.unwrap();
    store.remove(&owner, task_id(1)).await.unwrap();
    assert_eq!(store.usage(&owner).await.unwrap(), (Usage::default(), own));
}
