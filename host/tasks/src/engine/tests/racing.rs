//! Writers that are faster than a run, news that overtake each other, and guests that are cancelled together.

use super::*;
use crate::engine::run::drive::RunStart;
use crate::parts::admission::Purpose;
use crate::parts::call_identity::draw_identity;
use crate::parts::watchers::NotificationMark;

impl World {
    /// Writes the record of a task that is to run, as far as the moment before its run begins.
    async fn written(&self, tool: &str) -> (Arc<Task>, RunStart, Job, NotificationMark) {
        let inner = &self.tasks.inner;
        let permit = inner.admission.try_permit(&ANNA, Purpose::Task).unwrap();
        let job = Job::Call(self.call(tool));
        let request = TaskRequest { job: job.clone(), origin: origin(), ttl: RequestedTtl::Ms(5_000) };
        let drawn = draw_identity().unwrap();
        let missed_notifications = inner.watchers.mark();
        let task = inner.record_running(&ANNA, request, drawn, None).await.unwrap();
        (task, RunStart::Running(Box::new(permit)), job, missed_notifications)
    }

    async fn until_nothing_runs(&self) {
        for _ in 0..500 {
            if self.tasks.in_use().counts.total().running == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("a guest runs on: {:?}", self.tasks.in_use().counts.total());
    }
}

#[tokio::test]
async fn cancel_before_run_prevents_it() {
    let world = world();
    let mut news = world.tasks.feed(&ANNA);
    let (task, begin, job, missed_notifications) = world.written("forever").await;
    world.tasks.cancel(&ANNA, task.id).await.unwrap();
    world.tasks.inner.start_run(task, begin, Some(Box::new(job)), missed_notifications).await;
    world.until_nothing_runs().await;
    assert!(matches!(news.try_recv(), Ok(TaskNews::Created(_))));
    let Ok(TaskNews::Changed(told)) = news.try_recv() else { panic!("nobody was told") };
    assert_eq!(told.outcome(), Some(&Outcome::Cancelled));
}

#[tokio::test]
async fn pause_before_run_prevents_it_and_counts() {
    let world = world();
    let (task, begin, job, missed_notifications) = world.written("forever").await;
    world.tasks.pause(&ANNA, task.id, None).await.unwrap();
    world.tasks.inner.start_run(task.clone(), begin, Some(Box::new(job)), missed_notifications).await;
    world.until_nothing_runs().await;
    assert_eq!(world.tasks.in_use().counts.total().paused, 1);
    world.tasks.resume(&ANNA, task.id).await.unwrap();
    assert_eq!(world.tasks.in_use().counts.total().paused, 0);
}

#[tokio::test]
async fn removed_task_does_not_run() {
    let world = world();
    let (task, begin, job, missed_notifications) = world.written("forever").await;
    world.tasks.discard(&ANNA, task.id).await.unwrap();
    world.tasks.inner.start_run(task, begin, Some(Box::new(job)), missed_notifications).await;
    world.until_nothing_runs().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_notification_follows_its_end() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_creations_per_second: 10_000, ..limits() });
    for round in 0..200 {
        let mut news = world.tasks.feed(&ANNA);
        let task = world.create(&ANNA, "chatty").await.unwrap();
        // Somewhere in what it says.
        tokio::time::sleep(Duration::from_micros(round * 7)).await;
        world.tasks.cancel(&ANNA, task.id).await.unwrap();
        world.until_nothing_runs().await;
        let mut told = Vec::new();
        loop {
            match news.try_recv() {
                Ok(TaskNews::Changed(task)) => told.push((task.revision, task.outcome().is_some())),
                Ok(TaskNews::Created(id)) => assert_eq!(id, task.id),
                Ok(other) => panic!("{other:?}"),
                Err(tokio::sync::broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        assert!(told.is_sorted(), "round {round}: it went backwards: {told:?}");
        assert!(told.last().is_some_and(|(_, over)| *over), "round {round}: something came after the end: {told:?}");
        world.tasks.delete(&ANNA, task.id).await.unwrap();
    }
}

#[tokio::test]
async fn cancelled_guests_clean_up_within_running_limit() {
    let resting = Limits { tasks_waiting_per_requestor: 20, tasks_stored_per_requestor: 20, ..limits() };
    let world = world_on(Arc::new(MemoryStore::new()), resting);
    let mut ids = Vec::new();
    for _ in 0..12 {
        let id = world.create(&ANNA, "tidy").await.unwrap().id;
        world.until(id, |task| task.phase == Phase::Active(Active::InputRequired)).await;
        ids.push(id);
    }
    for id in &ids {
        world.tasks.cancel(&ANNA, *id).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let tidying = &world.tidying;
    assert!(tidying.ever.load(Ordering::SeqCst) > 0, "nobody had a grace period");
    assert!(tidying.most.load(Ordering::SeqCst) <= 2, "{} computed at once", tidying.most.load(Ordering::SeqCst));
    let all = world.tasks.in_use().counts.total();
    assert_eq!((all.running, all.resting), (0, 0), "everything is free again");
}
