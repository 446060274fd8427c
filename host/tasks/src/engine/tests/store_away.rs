//! A store that cannot be reached, that does not say what came of a write, and whose task another host has.

use super::*;
use crate::engine::change::ApplyError;
use crate::engine::run::drive::recall;
use bulkhead_domain::lifecycle::{Event, Interruption, Refusal};
use bulkhead_store as store;
use bulkhead_store::TaskStore;

impl World {
    async fn record(&self, id: TaskId) -> Task {
        self.store.get(&ANNA, id).await.unwrap().unwrap()
    }

    /// Waits until this host has no run of the task.
    async fn stopped(&self, id: TaskId) {
        for _ in 0..1_000 {
            if self.tasks.inner.watchers.run(id).is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("its run goes on");
    }
}

/// Two tasks that run, and one that waits for its turn.
async fn full() -> (World, Arc<Task>, Arc<Task>) {
    let world = world();
    let running = world.create(&ANNA, "forever").await.unwrap();
    world.create(&ANNA, "forever").await.unwrap();
    let queued = world.create(&ANNA, "quick").await.unwrap();
    assert_eq!(queued.phase, Phase::Active(Active::Queued));
    (world, running, queued)
}

#[tokio::test(start_paused = true)]
async fn run_that_lost_its_task_ends_instead_of_writing_its_outcome_for_ever() {
    let world = world();
    let task = world.create(&ANNA, "sleepy").await.unwrap();
    world.store.fail_with(|| store::Error::Lost);
    world.store.fail_next_writes(1);
    world.stopped(task.id).await;
    assert_eq!(world.record(task.id).await, *task, "another host goes on with it");
}

#[tokio::test(start_paused = true)]
async fn queued_task_that_was_lost_is_not_started() {
    let (world, running, queued) = full().await;
    world.tasks.cancel(&ANNA, running.id).await.unwrap();
    world.store.fail_with(|| store::Error::Lost);
    world.store.fail_next_writes(1);
    world.stopped(queued.id).await;
    assert_eq!(world.record(queued.id).await, *queued);
    assert_eq!(world.started.lock().len(), 2);
}

/// The record says that it runs, and its host was told otherwise.
#[tokio::test(start_paused = true)]
async fn start_that_came_through_unheard_is_gone_on_with() {
    let (world, running, queued) = full().await;
    world.tasks.cancel(&ANNA, running.id).await.unwrap();
    world.store.fail_with(|| store::Error::InDoubt);
    world.store.lose_next_acknowledgements(1);
    assert_eq!(world.ended(queued.id).await, Outcome::Output { is_error: false });
    assert_eq!(*world.started.lock(), [1, 1, 1], "it ran once, as the attempt that was written");
}

#[tokio::test(start_paused = true)]
async fn start_that_came_through_unheard_and_was_claimed_is_left_to_its_claimer() {
    let (world, running, queued) = full().await;
    world.tasks.cancel(&ANNA, running.id).await.unwrap();
    world.store.fail_with(|| store::Error::InDoubt);
    world.store.lose_next_acknowledgements(1);
    let started = world.until(queued.id, |task| task.attempt == 1).await;
    let lease = Lease { node: NodeId([7; 16]), until: u64::MAX };
    let claimed = world.store.claim(world.clock.now() + LEASE_MS + 1, lease, None, 9).await.unwrap().tasks;
    assert!(claimed.iter().any(|task| task.id == started.id));
    world.stopped(queued.id).await;
    assert_eq!(world.started.lock().len(), 2);
}

/// Whether its journal would have to say so, too, or it has none.
#[tokio::test(start_paused = true)]
async fn question_is_asked_once_the_store_is_reachable_again() {
    for (tool, count) in [("ask", 2), ("lasting", 1)] {
        let world = world();
        let task = world.create(&ANNA, tool).await.unwrap();
        world.store.fail_with(|| store::Error::Unavailable { retry_after_ms: 1_000 });
        world.store.fail_next_writes(2);
        let task = world.until(task.id, |task| task.outstanding().next().is_some()).await;
        assert_eq!(task.inputs.len(), count, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_reads_its_arguments_once_the_store_is_reachable_again() {
    let (world, _, queued) = full().await;
    world.store.fail_with(|| store::Error::Unavailable { retry_after_ms: 1_000 });
    world.store.fail_next_reads(2);
    let visits = recall(&world.tasks.inner, &queued).await.unwrap();
    assert_eq!(visits.len(), 1);
}

/// Its record is the store's while it waits, and another task may have its permit meanwhile.
#[tokio::test(start_paused = true)]
async fn queued_task_is_started_once_its_record_can_be_read_again() {
    let (world, running, queued) = full().await;
    world.store.fail_with(|| store::Error::Unavailable { retry_after_ms: 1_000 });
    world.tasks.cancel(&ANNA, running.id).await.unwrap();
    world.store.fail_next_reads(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((world.started.lock().len(), world.tasks.inner.admission.running()), (2, 1));
    assert_eq!(world.record(queued.id).await, *queued);
    assert_eq!(world.ended(queued.id).await, Outcome::Output { is_error: false });
}

/// As if it had been removed: a record that cannot be read would be asked for for ever.
#[tokio::test(start_paused = true)]
async fn queued_task_whose_record_is_damaged_is_left_alone() {
    let (world, running, queued) = full().await;
    world.store.fail_with(|| store::Error::Corrupt("a bit".to_owned()));
    world.tasks.cancel(&ANNA, running.id).await.unwrap();
    world.store.fail_next_reads(1);
    world.stopped(queued.id).await;
    assert_eq!((world.started.lock().len(), world.tasks.inner.admission.running()), (2, 1));
    assert_eq!(world.tasks.inner.admission.sums_of(&ANNA).queued, 0);
}

#[tokio::test(start_paused = true)]
async fn creation_in_doubt_is_taken_back() {
    let world = world();
    world.store.fail_with(|| store::Error::InDoubt);
    world.store.lose_next_acknowledgements(1);
    let refused = world.create(&ANNA, "forever").await.unwrap_err();
    assert!(
        matches!(refused, Error::Unavailable { why: Unavailable::InDoubt, retry_after_ms: Some(_) }),
        "{refused:?}"
    );
    assert_eq!(world.store.scan(None, 9).await.unwrap().len(), 1, "it was written");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(world.store.scan(None, 9).await.unwrap(), [], "nobody would ever run it");
}

#[tokio::test]
async fn caller_is_told_when_to_come_back_and_that_nothing_was_done() {
    let world = world();
    let task = world.create(&ANNA, "forever").await.unwrap();
    for (error, wanted) in [
        ((|| store::Error::Unavailable { retry_after_ms: 250 }) as fn() -> store::Error, 250),
        (|| store::Error::Lost, UNSETTLED_RETRY_MS),
    ] {
        world.store.fail_with(error);
        world.store.fail_next_writes(2);
        for refused in [world.create(&ANNA, "quick").await, world.tasks.cancel(&ANNA, task.id).await] {
            let Err(Error::Unavailable { why: Unavailable::Store, retry_after_ms }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(retry_after_ms, Some(wanted));
        }
    }
    assert_eq!(world.record(task.id).await, *task);
    assert!(world.tasks.inner.watchers.run(task.id).is_some(), "its run goes on");
}

#[tokio::test]
async fn takeover_waits_for_a_store_that_is_away() {
    let first = world();
    let waiting = first.create(&ANNA, "quick").await.unwrap();
    first.store.restart();
    let next = world_on(first.store.clone(), limits());
    drop(first);
    next.store.fail_with(|| store::Error::Unavailable { retry_after_ms: 1_000 });
    next.store.fail_next_writes(1);
    assert_eq!(next.tasks.recover().await.unwrap(), Recovered::default());
    next.tasks.go_on_taking_over().await;
    next.ended(waiting.id).await;
}

#[tokio::test(start_paused = true)]
async fn queued_task_of_a_start_that_holds_tasks_waits_for_its_release() {
    let (world, _, queued) = full().await;
    let next = resuming::next_life(world);
    next.tasks.recover_held().await.unwrap();
    assert!(next.record(queued.id).await.is_held());
    assert_eq!(next.started.lock().len(), 0);
    next.tasks.release(&ANNA, queued.id).await.unwrap();
    next.ended(queued.id).await;
}

/// A host that was stopped for so long that another one took its task over, and that wakes.
#[tokio::test]
async fn host_that_wakes_leaves_its_task_to_the_one_that_claimed_it() {
    let (stopped, task) = resuming::asking().await;
    // Nobody has heard of it for longer than its leases last.
    stopped.store.restart();
    let next = world_on(stopped.store.clone(), limits());
    next.tasks.recover().await.unwrap();
    let resumed = next.until(task.id, |task| task.dormant_since().is_some()).await;
    let ends = Event::Interrupt { how: Interruption::Fail };
    let refused = stopped.tasks.inner.apply(&ANNA, task.id, ends, None).await;
    assert!(matches!(refused, Err(ApplyError::Refused(Refusal::Stale))), "{:?}", refused.err());
    stopped.stopped(task.id).await;
    assert_eq!(next.record(task.id).await, *resumed);
    next.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(task.id).await, Outcome::Output { is_error: false });
}

/// Its run is about to be taken back by the host, which leaves it to any other.
#[tokio::test]
async fn drained_host_lets_another_one_go_on_at_once() {
    let (leaving, task) = resuming::asking().await;
    leaving.tasks.drain(Duration::ZERO).await.unwrap();
    leaving.store.open_again();
    let next = world_on(leaving.store.clone(), limits());
    assert_eq!(next.tasks.recover().await.unwrap().resumed, 1, "without waiting for the end of a lease");
    next.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(task.id).await, Outcome::Output { is_error: false });
}
