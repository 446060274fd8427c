//! Tasks that are kept from their end: until then they have no expiry that would stop them.

use super::*;

impl World {
    async fn create_lasting(&self, tool: &str) -> TaskId {
        let ttl = RequestedTtl::AfterEnd(Some(2_000));
        let request = TaskRequest { job: Job::Call(self.call(tool)), origin: origin(), ttl };
        self.tasks.create(&ANNA, request).await.unwrap().id
    }
}

fn is_too_late(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(CallError::Fault { kind: FaultKind::Deadline, .. }))
}

#[tokio::test]
async fn task_kept_from_end_is_stopped_at_maximum_ttl() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { ttl_ms_max: 300, ..limits() });
    let runs = world.create_lasting("forever").await;
    let asks = world.create_lasting("ask").await;
    world.until(asks, |task| task.phase == Phase::Active(Active::InputRequired)).await;
    let paused = world.create_lasting("forever").await;
    world.until(paused, |task| task.phase == Phase::Active(Active::Running)).await;
    world.tasks.pause(&ANNA, paused, None).await.unwrap();
    let quick = world.create_lasting("quick").await;
    for id in [runs, asks, paused] {
        assert!(is_too_late(&world.ended(id).await));
    }
    assert_eq!(world.ended(quick).await, Outcome::Output { is_error: false });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.tasks.inner.admission.running(), 0, "every place is free again");
    world.clock.advance(299);
    assert!(world.tasks.get(&ANNA, runs).await.is_ok(), "it is kept like any that ended");
    world.clock.advance(1);
    assert!(matches!(world.tasks.get(&ANNA, runs).await, Err(Error::NotFound)));
}

#[tokio::test]
async fn maximum_ttl_counts_while_queued_and_across_restart() {
    let limits = Limits { ttl_ms_max: 60_000, tasks_running_per_requestor: 1, ..limits() };
    let first = world_on(Arc::new(MemoryStore::new()), limits.clone());
    first.create_lasting("forever").await;
    let queued = first.create_lasting("forever").await;
    first.store.restart();
    let second = world_on(first.store.clone(), limits);
    drop(first);
    second.clock.advance(60_000);
    second.tasks.recover().await.unwrap();
    let maintenance = second.tasks.clone();
    let maintained = tokio::spawn(async move { maintenance.run_maintenance().await });
    assert!(is_too_late(&second.ended(queued).await));
    maintained.abort();
}
