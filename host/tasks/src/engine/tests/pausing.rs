//! What a pause costs, what it holds back, and that it does both for exactly as long as the record says so.

use super::*;

fn paused_max(tasks_paused_per_requestor: u32) -> Limits {
    Limits { tasks_paused_per_requestor, tasks_queued_per_requestor: 10, ..limits() }
}

fn is_full<T>(result: &Result<T, Error>, max: u64) -> bool {
    matches!(result, Err(Error::Quota { limit: "tasks_paused_per_requestor", value, .. }) if *value == max)
}

impl World {
    async fn many(&self, tool: &str, count: usize) -> Vec<TaskId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.create(&ANNA, tool).await.unwrap().id);
        }
        ids
    }

    /// Paused and waiting tasks, and the calls that rest.
    fn standing_still(&self) -> (u64, u64, u64) {
        let all = self.tasks.in_use().counts.total();
        (all.paused, all.waiting, all.resting)
    }

    async fn until_standing_still(&self, wanted: (u64, u64, u64)) {
        for _ in 0..1_000 {
            if self.standing_still() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(self.standing_still(), wanted);
    }
}

#[tokio::test]
async fn queued_and_running_tasks_count_to_paused_limit() {
    let world = world_on(Arc::new(MemoryStore::new()), paused_max(2));
    let ids = world.many("forever", 5).await;
    let [runs, .., second, first] = ids[..] else { panic!("five of them") };
    for id in [first, runs] {
        world.tasks.pause(&ANNA, id, None).await.unwrap();
    }
    for id in [second, ids[1]] {
        assert!(is_full(&world.tasks.pause(&ANNA, id, None).await, 2));
    }
    world.until_standing_still((2, 0, 1)).await;
    world.tasks.resume(&ANNA, first).await.unwrap();
    world.tasks.pause(&ANNA, second, None).await.unwrap();
    for id in [runs, second] {
        world.tasks.cancel(&ANNA, id).await.unwrap();
    }
    world.until_standing_still((0, 0, 0)).await;
}

#[tokio::test]
async fn concurrent_pauses_respect_the_paused_limit() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { tasks_running_per_requestor: 4, ..paused_max(1) });
    let ids = world.many("forever", 6).await;
    let pauses = ids.iter().map(|id| world.tasks.pause(&ANNA, *id, None));
    let paused = futures::future::join_all(pauses).await;
    assert_eq!(paused.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!(paused.iter().filter(|result| is_full(result, 1)).count(), 5);
}

#[tokio::test]
async fn paused_tasks_stay_paused_across_restart_under_lower_limit() {
    let first = world_on(Arc::new(MemoryStore::new()), paused_max(2));
    let ran = first.many("again", 2).await;
    let waits = first.many("again", 2).await;
    for id in [ran[0], waits[0]] {
        first.tasks.pause(&ANNA, id, None).await.unwrap();
    }
    first.store.restart();
    let second = world_on(first.store.clone(), paused_max(1));
    drop(first);
    assert_eq!(second.tasks.recover().await.unwrap().paused, 2);
    let in_use = second.tasks.in_use().counts.total();
    assert_eq!((in_use.paused, in_use.resting), (2, 0), "no instance is held by what has to start again");
    let other = second.many("forever", 1).await[0];
    assert!(is_full(&second.tasks.pause(&ANNA, other, None).await, 1));
    second.tasks.resume(&ANNA, ran[0]).await.unwrap();
    second.tasks.cancel(&ANNA, waits[0]).await.unwrap();
    second.tasks.pause(&ANNA, other, None).await.unwrap();
    assert_eq!(second.ended(ran[0]).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn task_with_input_request_counts_as_paused_until_resume() {
    let world = world_on(Arc::new(MemoryStore::new()), paused_max(1));
    let task = world.create(&ANNA, "ask").await.unwrap();
    world.until(task.id, |task| task.phase == Phase::Active(Active::InputRequired)).await;
    world.until_standing_still((0, 1, 1)).await;
    for _ in 0..3 {
        let paused = world.tasks.pause(&ANNA, task.id, None).await.unwrap();
        assert_eq!(paused.phase, Phase::Paused { before: Active::InputRequired });
        world.until_standing_still((1, 1, 1)).await;
        let asks = world.tasks.resume(&ANNA, task.id).await.unwrap();
        assert_eq!(asks.phase, Phase::Active(Active::InputRequired));
        assert_eq!(world.standing_still(), (0, 1, 1));
    }
    for key in ["name", "name-2"] {
        world.tasks.answer(&ANNA, task.id, key, accept()).await.unwrap();
    }
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
    world.until_standing_still((0, 0, 0)).await;
}

#[tokio::test]
async fn input_request_after_pause_keeps_the_paused_place() {
    let world = world_on(Arc::new(MemoryStore::new()), paused_max(1));
    let task = world.create(&ANNA, "asks late").await.unwrap().id;
    let other = world.create(&ANNA, "forever").await.unwrap().id;
    world.tasks.pause(&ANNA, task, None).await.unwrap();
    world.until_standing_still((1, 0, 1)).await;
    world.tasks.steer(&ANNA, task, "now".into()).await.unwrap();
    world.until(task, |task| task.phase == Phase::Paused { before: Active::InputRequired }).await;
    world.until_standing_still((1, 1, 1)).await;
    assert!(is_full(&world.tasks.pause(&ANNA, other, None).await, 1));
    world.tasks.resume(&ANNA, task).await.unwrap();
    world.tasks.pause(&ANNA, other, None).await.unwrap();
    world.tasks.answer(&ANNA, task, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn unpausable_task_is_refused_before_the_paused_limit() {
    let world = world_on(Arc::new(MemoryStore::new()), paused_max(1));
    let paused = world.create(&ANNA, "forever").await.unwrap().id;
    let over = world.create(&ANNA, "quick").await.unwrap().id;
    world.ended(over).await;
    world.tasks.pause(&ANNA, paused, None).await.unwrap();
    let refusals = [
        world.tasks.pause(&ANNA, paused, None).await.unwrap_err(),
        world.tasks.pause(&ANNA, over, None).await.unwrap_err(),
        world.tasks.pause(&ANNA, TaskId([0; 16]), None).await.unwrap_err(),
    ];
    assert!(
        matches!(refusals, [Error::Illegal("the task is already paused"), Error::Ended, Error::NotFound]),
        "{refusals:?}"
    );
}

#[tokio::test]
async fn outcome_after_pause_waits_for_resume() {
    let world = world();
    let resumed = world.create(&ANNA, "steered").await.unwrap().id;
    let cancelled = world.create(&ANNA, "steered").await.unwrap().id;
    for (id, task) in [(resumed, 1), (cancelled, 2)] {
        world.tasks.pause(&ANNA, id, None).await.unwrap();
        world.tasks.steer(&ANNA, id, "left".into()).await.unwrap();
        world.until(id, |task| task.steering_delivered == 1).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let held = world.tasks.get(&ANNA, id).await.unwrap();
        assert_eq!(held.phase, Phase::Paused { before: Active::Running }, "task {task}");
        assert_eq!(world.tasks.in_use().counts.total().running, 2 - task, "its permit is free");
        match task {
            1 => drop(world.tasks.resume(&ANNA, id).await.unwrap()),
            _ => drop(world.tasks.cancel(&ANNA, id).await.unwrap()),
        }
    }
    assert_eq!(world.ended(resumed).await, Outcome::Output { is_error: false });
    assert_eq!(world.ended(cancelled).await, Outcome::Cancelled);
    world.until_standing_still((0, 0, 0)).await;
}
