//! What a task weighs while it waits in the queue.

use super::*;
use crate::parts::job::Job;
use crate::parts::run_state::Run;
use bulkhead_store::{Creation, StoredCaps, TaskStore};

const QUEUED: u32 = 10_000;

/// Bytes that this process has for itself.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let page = |at: usize| pages.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    (page(1) - page(2)) * 4_096
}

fn roomy() -> Limits {
    Limits {
        tasks_queued_per_requestor: QUEUED,
        tasks_queued_per_tenant: QUEUED,
        tasks_queued_total: QUEUED,
        tasks_stored_per_requestor: 2 * QUEUED,
        tasks_stored_per_tenant: 2 * QUEUED,
        tasks_stored_bytes_per_requestor: 1 << 40,
        tasks_stored_bytes_per_tenant: 1 << 40,
        task_creations_per_second: u32::MAX,
        task_creations_per_second_per_tenant: u32::MAX,
        ..limits()
    }
}

/// Without the record, which is the store's business: the same records are put into a store of their own.
#[tokio::test]
#[ignore = "measures this process, so it runs alone"]
#[expect(clippy::print_stdout, reason = "it is there for the figures")]
async fn queued_task_holds_at_most_2_kib() {
    let world = world_on(Arc::new(MemoryStore::new()), roomy());
    for _ in 0..2 {
        world.create(&ANNA, "forever").await.unwrap();
    }
    let before = resident();
    let mut last = None;
    for _ in 0..QUEUED {
        last = Some(world.create(&ANNA, "quick").await.unwrap());
    }
    // Each waits for its permit now.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let queued = last.unwrap();
    assert_eq!(queued.phase, Phase::Active(Active::Queued));
    let with_run = (resident() - before) / u64::from(QUEUED);
    let caps = StoredCaps {
        tasks_per_requestor: u32::MAX,
        bytes_per_requestor: u64::MAX,
        tasks_per_tenant: u32::MAX,
        bytes_per_tenant: u64::MAX,
    };
    let store = MemoryStore::new();
    let before = resident();
    for number in 0..u128::from(QUEUED) {
        let task = Task { id: TaskId(number.to_be_bytes()), revision: 0, ..Task::clone(&queued) };
        let arguments = Json::new("{}");
        let creation = Creation { task, arguments, output: None, reserved_bytes: 0, caps, journal: None };
        store.create(creation).await.unwrap();
    }
    let stored = (resident() - before) / u64::from(QUEUED);
    println!(
        "a queued task: {with_run} bytes, {stored} of them in the store of this test; a record {}, a job {}",
        size_of::<Task>(),
        size_of::<Job>()
    );
    assert!(with_run.saturating_sub(stored) <= 2_048, "{with_run} - {stored}");
}

/// The same of a task that asked and left memory.
#[tokio::test]
#[ignore = "measures this process, so it runs alone"]
#[expect(clippy::print_stdout, reason = "it is there for the figures")]
async fn dormant_task_holds_at_most_4_kib() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_evict_after_ms: 0, ..roomy() });
    let before = resident();
    for created in 0..QUEUED as usize {
        world.create(&ANNA, "lasting").await.unwrap();
        while created.is_multiple_of(64) && world.tasks.dormant_count() < created.saturating_sub(64) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    while world.tasks.dormant_count() < QUEUED as usize {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let each = (resident() - before) / u64::from(QUEUED);
    println!("a dormant task: {each} bytes, with all that the store of this test keeps of it");
    assert!(each <= 4_096, "{each}");
}

/// What only a call that runs needs is made when it runs: a future, a channel for what happens to the record, and the
/// record.
#[tokio::test]
async fn task_that_nothing_drives_is_small_and_has_no_future() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_evict_after_ms: 0, ..limits() });
    let futures = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    world.create(&ANNA, "forever").await.unwrap();
    let before = futures();
    let dormant = world.create(&ANNA, "lasting").await.unwrap();
    world.until(dormant.id, |task| task.dormant_since().is_some()).await;
    world.create(&ANNA, "forever").await.unwrap();
    let running = futures();
    let queued = world.create(&ANNA, "quick").await.unwrap();
    assert_eq!(queued.phase, Phase::Active(Active::Queued));
    assert_eq!(futures(), running, "a queued task has none");
    world.until_dormant(dormant.id).await;
    assert_eq!(running, before + (running - before).min(2), "a dormant task has none: {before}, {running}");
    assert!(size_of::<Run>() <= 256, "{} bytes", size_of::<Run>());
    let run = world.tasks.inner.watchers.run(queued.id).unwrap();
    assert!(run.task().is_none(), "its record is the store's");
}

/// The store has what a queued task is to do; the engine keeps none of it.
#[tokio::test]
async fn queued_task_lets_go_of_its_arguments() {
    let world = world();
    let running = [world.create(&ANNA, "forever").await.unwrap(), world.create(&ANNA, "forever").await.unwrap()];
    let tool = Arc::clone(&world.call("quick").tool);
    let used = Arc::strong_count(&tool);
    let queued = world.create(&ANNA, "quick").await.unwrap();
    assert_eq!(queued.phase, Phase::Active(Active::Queued));
    assert_eq!(Arc::strong_count(&tool), used, "its request is kept");
    world.tasks.cancel(&ANNA, running[0].id).await.unwrap();
    assert_eq!(world.ended(queued.id).await, Outcome::Output { is_error: false });
}
