//! Expired tasks are removed, whatever their state.

use super::*;

#[tokio::test]
async fn expired_task_is_gone_even_while_running() {
    let world = world();
    let task = world.create(&ANNA, "forever").await.unwrap();
    world.clock.advance(5_000);
    assert!(matches!(world.tasks.get(&ANNA, task.id).await, Err(Error::NotFound)));
    assert!(matches!(world.tasks.cancel(&ANNA, task.id).await, Err(Error::NotFound)));
    let tasks = world.tasks.clone();
    let tending = tokio::spawn(async move { tasks.run_maintenance().await });
    for _ in 0..1_000 {
        if world.tasks.inner.admission.running() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(world.tasks.inner.admission.running(), 0, "the guest was stopped");
    tending.abort();
    let (mine, _) = bulkhead_store::TaskStore::usage(&*world.store, &ANNA).await.unwrap();
    assert_eq!(mine.tasks, 0);
}

#[tokio::test]
async fn a_paused_task_expires_like_any_other() {
    let world = world();
    let task = world.create(&ANNA, "forever").await.unwrap();
    world.tasks.pause(&ANNA, task.id, None).await.unwrap();
    world.clock.advance(4_999);
    assert!(world.tasks.get(&ANNA, task.id).await.is_ok());
    world.clock.advance(1);
    for refused in [world.tasks.get(&ANNA, task.id).await, world.tasks.resume(&ANNA, task.id).await] {
        assert!(matches!(refused, Err(Error::NotFound)));
    }
}

#[tokio::test]
async fn unremovable_expired_task_does_not_block_others() {
    let world = world();
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(world.create(&ANNA, "quick").await.unwrap().id);
        world.clock.advance(1);
    }
    for id in &made {
        world.ended(*id).await;
    }
    world.store.break_task(made[0]);
    world.store.break_task(made[2]);
    world.clock.advance(10_000);
    let left = async || -> Vec<TaskId> {
        let expired = bulkhead_store::TaskStore::expired(&*world.store, world.clock.now(), 10).await.unwrap();
        expired.into_iter().map(|(_, id)| id).collect()
    };
    assert_eq!(left().await, made, "nobody looked yet");
    let tending = tokio::spawn({
        let tasks = world.tasks.clone();
        async move { tasks.run_maintenance().await }
    });
    for attempt in 0.. {
        if left().await == [made[0], made[2]] {
            break;
        }
        assert!(attempt < 500 && !tending.is_finished(), "{:?}", left().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tending.abort();
}

/// Another host would take over all that this one holds.
#[tokio::test(start_paused = true)]
async fn lease_is_extended_while_a_sweep_takes_long() {
    let world = world();
    let held = world.create(&ANNA, "forever").await.unwrap();
    let request = TaskRequest { job: Job::Call(world.call("quick")), origin: origin(), ttl: RequestedTtl::Ms(1) };
    world.tasks.create(&ANNA, request).await.unwrap();
    world.clock.advance(1_000);
    world.store.hang_removals();
    let tasks = world.tasks.clone();
    let maintained = tokio::spawn(async move { tasks.run_maintenance().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.clock.advance(LEASE_MS);
    tokio::time::sleep(crate::engine::maintenance::HEARTBEAT).await;
    let lease = Lease { node: NodeId([7; 16]), until: u64::MAX };
    let claimed =
        bulkhead_store::TaskStore::claim(&*world.store, world.clock.now(), lease, None, 9).await.unwrap().tasks;
    assert!(claimed.is_empty(), "{claimed:?} of {}", held.id);
    maintained.abort();
}
