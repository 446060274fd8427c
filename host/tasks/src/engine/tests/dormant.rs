//! Tasks whose calls leave memory while they rest, and what wakes them.

use super::resuming::{JOURNAL, next_life, noted};
use super::*;
use bulkhead_calls::{JournaledQuestion, Tail};
use bulkhead_domain::timeline::{Transition, WakeCause};
use bulkhead_store::TaskStore as _;
use bulkhead_store::journal::JournalStore as _;

/// A sleep that is in the journal.
const SLEEP_MS: u64 = 2_000;

/// One piece of a journal for each question.
async fn ask_once(events: &Events, journaling: &Journaling, number: usize) -> Result<(), InputRequestError> {
    let (Journaling::To { sink, .. } | Journaling::From { sink, .. }) = journaling else { panic!("{journaling:?}") };
    let kept = sink.kept();
    let journal = [JOURNAL, [2, 0, 1]].concat();
    let bytes = journal[(kept as usize).min(3 * (number + 1))..3 * (number + 1)].to_vec();
    let tail = Tail { at: kept, bytes, step: number as u64 + 1, entries: 1, ..Tail::default() };
    let kind = InputRequestKind::Form { message: "who?".into(), requested_schema: Json::new("{}") };
    let requests = vec![InputRequest { key: format!("question {number}"), kind, meta: Vec::new() }];
    let (reply, answers) = oneshot::channel();
    let journal = Some(JournaledQuestion { asked_before: number, tail });
    events.send(CallEvent::InputRequests { requests, journal, reply }).await.unwrap();
    answers.await.unwrap_or(Err(InputRequestError::Cancelled)).map(drop)
}

pub(super) async fn ask_twice(events: &Events, journaling: &Journaling) -> Result<ToolOutput, CallError> {
    let first = ask_once(events, journaling, 0).await;
    let second = ask_once(events, journaling, 1).await;
    Ok(ToolOutput { is_error: first.and(second).is_err(), ..ToolOutput::failure("asked") })
}

/// Sleeps, unless an earlier run began to.
pub(super) async fn asleep(events: &Events, journaling: &Journaling) -> Result<ToolOutput, CallError> {
    if let Journaling::To { .. } = journaling {
        resuming::keep_soon(journaling);
        let (reply, slept) = oneshot::channel();
        events.send(CallEvent::Sleep { ms: SLEEP_MS, reply }).await.unwrap();
        let _ = slept.await;
    }
    Ok(ToolOutput { is_error: false, ..ToolOutput::failure("slept") })
}

/// What rests leaves memory at once.
fn leaving_at_once() -> Limits {
    Limits { task_evict_after_ms: 0, ..limits() }
}

fn no_residents() -> World {
    world_on(Arc::new(MemoryStore::new()), leaving_at_once())
}

impl World {
    async fn dormant(&self, tool: &str) -> Arc<Task> {
        let task = self.create(&ANNA, tool).await.unwrap();
        self.until_dormant(task.id).await
    }

    pub(super) async fn until_dormant(&self, id: TaskId) -> Arc<Task> {
        for _ in 0..2_000 {
            if self.tasks.inner.watchers.run(id).is_some_and(|run| run.is_dormant()) {
                return self.tasks.get(&ANNA, id).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it stays in memory: {:?}", self.tasks.get(&ANNA, id).await.unwrap());
    }

    fn instances(&self) -> usize {
        self.instances.load(Ordering::SeqCst)
    }

    /// Nothing of any task is in use.
    fn assert_idle(&self) {
        let sums = self.tasks.in_use().counts.total();
        assert_eq!((self.instances(), sums), (0, Sums::default()));
    }
}

#[tokio::test]
async fn task_that_waits_for_an_answer_leaves_memory_and_goes_on_with_it() {
    let world = no_residents();
    let asked = world.dormant("lasting").await;
    world.assert_idle();
    assert_eq!(world.tasks.dormant_count(), 1);
    assert_eq!((asked.phase.clone(), asked.outstanding().count()), (Phase::Active(Active::InputRequired), 1));
    assert_eq!(asked.dormant_since(), Some(1_000_000));
    assert!(!world.tasks.works(), "nothing of it ends by itself");
    world.tasks.answer(&ANNA, asked.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(asked.id).await, Outcome::Output { is_error: false });
    let ended = world.tasks.get(&ANNA, asked.id).await.unwrap();
    let woken = Transition::Woken { attempt: 2, cause: WakeCause::Answered };
    assert_eq!(noted(&ended)[1..4], [Transition::Dormant, Transition::Answered { open: 0 }, woken]);
    assert_eq!(*world.started.lock(), [1, 1], "what the guest sees is one attempt");
    tokio::time::sleep(Duration::from_millis(5)).await;
    world.assert_idle();
}

#[tokio::test]
async fn client_sees_nothing_of_a_task_that_leaves_memory() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_evict_after_ms: 50, ..limits() });
    let task = world.create(&ANNA, "lasting").await.unwrap();
    let asked = world.until(task.id, |task| task.outstanding().next().is_some()).await;
    let mut news = world.tasks.inner.watchers.listen_to_task(&ANNA, task.id);
    world.clock.advance(1);
    let dormant = world.until_dormant(task.id).await;
    assert!(news.try_recv().is_err(), "nothing is told");
    assert_eq!((dormant.updated_at, dormant.attempt), (asked.updated_at, asked.attempt));
    assert_eq!(dormant.dormant_since(), Some(asked.updated_at + 1));
}

/// Nothing but the number of residents and of permits keeps a requestor from having many tasks.
fn many_tasks(residents: u32) -> Limits {
    Limits {
        tasks_resident_total: residents,
        tasks_queued_per_requestor: 1_000,
        tasks_waiting_per_requestor: 1_000,
        tasks_stored_per_requestor: 1_000,
        tasks_stored_bytes_per_requestor: u64::MAX,
        tasks_stored_per_tenant: 1_000,
        tasks_stored_bytes_per_tenant: u64::MAX,
        task_creations_per_second: 10_000,
        ..limits()
    }
}

/// More than one claim takes, on a store that takes nothing.
#[tokio::test]
async fn start_takes_dormant_tasks_up_without_a_write() {
    const TASKS: usize = 300;
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_evict_after_ms: 0, ..many_tasks(8) });
    let mut ids = Vec::new();
    for _ in 0..TASKS {
        ids.push(world.create(&ANNA, "lasting").await.unwrap().id);
    }
    for id in &ids {
        world.until_dormant(*id).await;
    }
    let before = world.store.scan(None, TASKS).await.unwrap();
    let next = next_life(world);
    next.store.set_read_only(Some("the disk is full".to_owned()));
    next.store.take_looks();
    assert_eq!(next.tasks.recover().await.unwrap(), Recovered { resumed: TASKS, ..Recovered::default() });
    assert_eq!(next.store.take_looks(), vec![("journal", ANNA); TASKS], "the head of each journal is read once");
    assert!(!next.tasks.is_taking_over(), "nothing is left to write");
    assert_eq!((next.tasks.dormant_count(), next.started.lock().len()), (TASKS, 0), "nothing is in memory");
    assert_eq!(next.store.scan(None, TASKS).await.unwrap(), before);
    next.store.set_read_only(None);
    next.tasks.answer(&ANNA, ids[0], "name", accept()).await.unwrap();
    assert_eq!(next.ended(ids[0]).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn tasks_of_a_start_that_holds_them_run_when_they_are_released_and_new_ones_at_once() {
    let world = no_residents();
    let asked = world.dormant("lasting").await;
    let paused = world.create(&ANNA, "lasting, quietly").await.unwrap();
    world.tasks.pause(&ANNA, paused.id, None).await.unwrap();
    world.until_dormant(paused.id).await;
    let next = next_life(world);
    assert_eq!(next.tasks.recover_held().await.unwrap().resumed, 2);
    assert_eq!((next.tasks.held_count(), next.tasks.dormant_count()), (2, 2));
    let answered = next.tasks.answer(&ANNA, asked.id, "name", accept()).await.unwrap();
    let why = "it is held: the host was started with its tasks held; an operator can release it";
    assert_eq!(answered.status_message.as_deref(), Some(why));
    for id in [asked.id, paused.id] {
        assert!(
            matches!(next.tasks.resume(&ANNA, id).await, Err(Error::Illegal(_))),
            "it is the operator's to release"
        );
    }
    let new = next.create(&ANNA, "quick").await.unwrap();
    assert_eq!(next.ended(new.id).await, Outcome::Output { is_error: false });
    assert_eq!(next.started.lock().len(), 1, "of those of before none ran");

    let last = next_life(next);
    last.tasks.recover().await.unwrap();
    assert_eq!(last.tasks.held_count(), 2, "they stay held");
    last.tasks.release(&ANNA, asked.id).await.unwrap();
    assert_eq!(last.ended(asked.id).await, Outcome::Output { is_error: false });
}

/// More than are to stay in memory, by a factor of sixty.
#[tokio::test]
async fn many_tasks_wait_with_few_instances_and_all_go_on_when_they_are_answered() {
    const TASKS: usize = 500;
    const RESIDENTS: usize = 8;
    let limits = many_tasks(RESIDENTS as u32);
    let permits = limits.calls_running_total as usize;
    let world = world_on(Arc::new(MemoryStore::new()), limits);
    let sampled = async |wanted: usize| {
        let mut most = 0;
        while world.tasks.left_to_end().tasks_waiting < wanted || world.tasks.dormant_count() + RESIDENTS < wanted {
            most = most.max(world.instances());
            tokio::task::yield_now().await;
        }
        most
    };
    let mut ids = Vec::new();
    for _ in 0..TASKS {
        ids.push(world.create(&ANNA, "lasting, with two questions").await.unwrap().id);
    }
    for number in 0..2 {
        let most = tokio::time::timeout(Duration::from_secs(60), sampled(TASKS)).await.unwrap();
        assert!(most <= RESIDENTS + permits, "{most} instances");
        assert!(world.tasks.in_use().counts.total().resting as usize <= RESIDENTS, "the others hold no room");
        for id in &ids {
            world.tasks.answer(&ANNA, *id, &format!("question {number}"), accept()).await.unwrap();
            assert!(world.instances() <= RESIDENTS + permits, "{} instances", world.instances());
        }
    }
    for id in ids {
        assert_eq!(world.ended(id).await, Outcome::Output { is_error: false });
    }
}

#[tokio::test]
async fn sleeper_leaves_memory_and_wakes_in_time_also_on_the_next_host() {
    let world = no_residents();
    let slept_here = world.dormant("lasting, asleep").await;
    let slept_there = world.dormant("lasting, asleep").await;
    world.assert_idle();
    let head = world.store.journal(&ANNA, slept_here.id).await.unwrap().unwrap();
    assert_eq!(head.wake_at, Some(1_000_000 + SLEEP_MS));
    let maintenance = world.tasks.clone();
    let maintained = tokio::spawn(async move { maintenance.run_maintenance().await });
    world.clock.advance(SLEEP_MS - 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.tasks.dormant_count(), 2);
    maintained.abort();

    let next = next_life(world);
    next.clock.advance(SLEEP_MS - 1);
    assert_eq!(next.tasks.recover().await.unwrap().resumed, 2);
    assert_eq!((next.tasks.dormant_count(), next.started.lock().len()), (2, 0), "nothing is in memory at the start");
    let maintenance = next.tasks.clone();
    let maintained = tokio::spawn(async move { maintenance.run_maintenance().await });
    next.clock.advance(1);
    for id in [slept_here.id, slept_there.id] {
        assert_eq!(next.ended(id).await, Outcome::Output { is_error: false });
        let woken = Transition::Woken { attempt: 2, cause: WakeCause::Slept };
        assert!(noted(&next.tasks.get(&ANNA, id).await.unwrap()).contains(&woken));
    }
    maintained.abort();
}

/// The sleep is in the journal before its call could leave memory.
#[tokio::test]
async fn sleeper_in_memory_is_dormant_on_the_next_host() {
    let world = world();
    let task = world.create(&ANNA, "lasting, asleep").await.unwrap();
    while world.store.journal(&ANNA, task.id).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let next = next_life(world);
    next.tasks.recover().await.unwrap();
    assert_eq!((next.tasks.dormant_count(), next.started.lock().len()), (1, 0));
}

#[tokio::test]
async fn paused_task_leaves_memory_and_goes_on_when_it_is_resumed() {
    let world = no_residents();
    let task = world.create(&ANNA, "lasting, quietly").await.unwrap();
    world.tasks.pause(&ANNA, task.id, Some("later".to_owned())).await.unwrap();
    let paused = world.until_dormant(task.id).await;
    assert_eq!((world.instances(), paused.status_message.as_deref()), (0, Some("later")));
    assert_eq!(world.tasks.in_use().counts.total(), Sums { paused: 1, ..Sums::default() });
    world.tasks.resume(&ANNA, task.id).await.unwrap();
    let goes_on = world.until(task.id, |task| task.attempt == 2).await;
    assert_eq!(noted(&goes_on).last(), Some(&Transition::Woken { attempt: 2, cause: WakeCause::Resumed }));
    assert_eq!(world.instances(), 1);
    for attempt in 3..9 {
        world.tasks.pause(&ANNA, task.id, None).await.unwrap();
        world.until_dormant(task.id).await;
        world.tasks.resume(&ANNA, task.id).await.unwrap();
        world.until(task.id, |task| task.attempt == attempt).await;
    }
    let next = next_life(world);
    next.tasks.recover().await.unwrap();
    assert!(!next.tasks.get(&ANNA, task.id).await.unwrap().is_held(), "none of that was a failure to come further");
}

#[tokio::test]
async fn dormant_task_that_is_answered_while_it_is_paused_goes_on_when_it_is_resumed() {
    let world = no_residents();
    let task = world.dormant("lasting").await;
    world.tasks.pause(&ANNA, task.id, None).await.unwrap();
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.tasks.dormant_count(), 1);
    world.tasks.resume(&ANNA, task.id).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn message_wakes_a_guest_that_looks_for_messages_and_no_other() {
    let world = no_residents();
    let deaf = world.dormant("lasting").await;
    world.tasks.steer(&ANNA, deaf.id, "faster".to_owned()).await.unwrap();
    assert!(world.tasks.inner.watchers.run(deaf.id).unwrap().is_dormant());
    let attentive = world.dormant("lasting, attentive").await;
    world.tasks.steer(&ANNA, attentive.id, "faster".to_owned()).await.unwrap();
    world.until(attentive.id, |task| task.attempt == 2).await;
    let again = world.until_dormant(attentive.id).await;
    assert!(noted(&again).contains(&Transition::Woken { attempt: 2, cause: WakeCause::Steered }));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(world.tasks.get(&ANNA, attentive.id).await.unwrap().attempt, 2, "a message wakes it once");
}

#[tokio::test]
async fn dormant_task_that_is_over_or_gone_leaves_nothing() {
    let world = no_residents();
    let tasks =
        [world.dormant("lasting").await, world.dormant("lasting").await, world.dormant("lasting, asleep").await];
    world.tasks.cancel(&ANNA, tasks[0].id).await.unwrap();
    world.tasks.discard(&ANNA, tasks[1].id).await.unwrap();
    world.tasks.cancel(&ANNA, tasks[2].id).await.unwrap();
    for task in &tasks {
        assert!(world.tasks.inner.watchers.run(task.id).is_none());
    }
    assert_eq!(world.tasks.inner.deadlines.take_due(u64::MAX), (Vec::new(), None));
    let blocked = world.dormant("lasting").await;
    world.tasks.block_tenant(ANNA.tenant);
    assert!(world.tasks.inner.watchers.run(blocked.id).is_none());
    assert_eq!(*world.started.lock(), [1; 4], "nothing was brought back for it");
}

#[tokio::test]
async fn dormant_task_that_is_kept_from_its_end_is_ended_when_its_time_is_over() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { ttl_ms_max: 5_000, ..leaving_at_once() });
    let request = TaskRequest {
        job: Job::Call(world.call("lasting")),
        origin: origin(),
        ttl: RequestedTtl::AfterEnd(Some(2_000)),
    };
    let task = world.tasks.create(&ANNA, request).await.unwrap();
    world.until_dormant(task.id).await;
    let maintenance = world.tasks.clone();
    let maintained = tokio::spawn(async move { maintenance.run_maintenance().await });
    world.clock.advance(5_000);
    let outcome = world.ended(task.id).await;
    assert!(matches!(outcome, Outcome::Error(CallError::Fault { kind: FaultKind::Deadline, .. })), "{outcome:?}");
    maintained.abort();
}

/// With one place to rest, the call that has it makes room for the next one.
#[tokio::test]
async fn task_that_rests_makes_room_for_another_call() {
    let world = world();
    let first = world.create(&ANNA, "lasting").await.unwrap();
    world.until(first.id, |task| task.outstanding().next().is_some()).await;
    let second = world.create(&ANNA, "ask").await.unwrap();
    world.until_dormant(first.id).await;
    world.until(second.id, |task| task.outstanding().next().is_some()).await;
    world.tasks.answer(&ANNA, first.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(first.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn drain_lets_what_rests_leave_and_interrupts_nothing_of_it() {
    let world = world();
    let asked = world.create(&ANNA, "lasting").await.unwrap();
    world.until(asked.id, |task| task.outstanding().next().is_some()).await;
    let running = world.create(&ANNA, "lasting, with news").await.unwrap();
    world.until(running.id, |task| task.phase == Phase::Active(Active::Running)).await;
    world.tasks.drain(Duration::from_millis(50)).await.unwrap();
    let next = next_life(world);
    for id in [asked.id, running.id] {
        let task = next.tasks.get(&ANNA, id).await.unwrap();
        assert!(noted(&task).contains(&Transition::Dormant), "{task:?}");
    }
    assert_eq!(next.tasks.recover().await.unwrap().resumed, 2);
    let asked = next.tasks.get(&ANNA, asked.id).await.unwrap();
    assert!(!noted(&asked).contains(&Transition::Interrupted), "{asked:?}");
    next.tasks.answer(&ANNA, asked.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(asked.id).await, Outcome::Output { is_error: false });
}

/// Nobody is told what came of the write that lets it leave.
#[tokio::test]
async fn task_whose_leave_came_through_unheard_is_dormant() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_evict_after_ms: 50, ..limits() });
    let task = world.create(&ANNA, "lasting").await.unwrap();
    world.until(task.id, |task| task.outstanding().next().is_some()).await;
    world.store.lose_next_acknowledgements(1);
    world.until_dormant(task.id).await;
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

/// What the store refuses is tried again later, and the guest rests in memory until then.
#[tokio::test]
async fn task_that_cannot_leave_memory_stays_without_a_hurry() {
    let world = world_on(Arc::new(MemoryStore::new()), Limits { task_evict_after_ms: 50, ..limits() });
    let task = world.create(&ANNA, "lasting").await.unwrap();
    world.until(task.id, |task| task.outstanding().next().is_some()).await;
    world.store.fail_next_writes(2);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((world.tasks.dormant_count(), world.instances()), (0, 1));
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap_err();
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}
