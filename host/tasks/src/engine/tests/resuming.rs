//! Tasks whose host was killed and whose calls keep journals.

use super::*;
use crate::engine::LEASE_MS;
use crate::parts::admission::IdleState;
use crate::{COULD_NOT, held_by_operator};
use bulkhead_calls::{JournaledQuestion, Journaling, Tail};
use bulkhead_domain::task::DurableMarker;
use bulkhead_domain::timeline::{Transition, WakeCause};
use bulkhead_metrics::{Form, Metrics, MetricsOptions, Readings};
use bulkhead_store as store;
use bulkhead_store::journal::{Append, HeadAfter, JournalState, JournalStore as _};
use bulkhead_store::{Change, TaskStore as _};

/// The journal of a call that has begun, as far as its form goes.
pub(super) const JOURNAL: [u8; 3] = [2, 0, 1];

/// Asks one question, which is all of the journal.
pub(super) async fn ask(events: &Events, journaling: Journaling) -> Result<Vec<InputResponse>, InputRequestError> {
    let (Journaling::To { sink, .. } | Journaling::From { sink, .. }) = journaling else { panic!("{journaling:?}") };
    let kept = sink.kept();
    let tail = Tail { at: kept, bytes: JOURNAL[kept as usize..].to_vec(), step: 1, entries: 1, ..Tail::default() };
    let kind = InputRequestKind::Form { message: "who?".into(), requested_schema: Json::new("{}") };
    let requests = vec![InputRequest { key: "name".into(), kind, meta: Vec::new() }];
    let (reply, answers) = oneshot::channel();
    let journal = Some(JournaledQuestion { asked_before: 0, tail });
    events.send(CallEvent::InputRequests { requests, journal, reply }).await.unwrap();
    answers.await.unwrap_or(Err(InputRequestError::Cancelled))
}

/// Has seen something that is all of its journal.
pub(super) fn keep_soon(journaling: &Journaling) {
    let (Journaling::To { sink, .. } | Journaling::From { sink, .. }) = journaling else { panic!("{journaling:?}") };
    sink.submit(Tail { bytes: JOURNAL.to_vec(), step: 1, entries: 1, ..Tail::default() });
}

/// A task that has asked.
pub(super) async fn asking() -> (World, Arc<Task>) {
    let world = world();
    let task = world.create(&ANNA, "lasting").await.unwrap();
    world.until(task.id, |task| task.outstanding().next().is_some()).await;
    (world, task)
}

/// The next life of the host, which has taken nothing over yet.
pub(super) fn next_life(world: World) -> World {
    world.store.restart();
    let next = world_on(world.store.clone(), limits());
    drop(world);
    next
}

/// The next life of the host.
async fn after(world: World) -> (World, Recovered) {
    let next = next_life(world);
    let recovered = next.tasks.recover().await.unwrap();
    (next, recovered)
}

pub(super) fn noted(task: &Task) -> Vec<Transition> {
    task.timeline.entries().iter().map(|entry| entry.transition).collect()
}

#[tokio::test]
async fn task_goes_on_with_the_question_that_it_had_asked() {
    let world = world();
    let task = world.create(&ANNA, "lasting").await.unwrap();
    let asked = world.until(task.id, |task| task.outstanding().next().is_some()).await;
    let (world, recovered) = after(world).await;
    assert_eq!((recovered.resumed, recovered.interrupted), (1, 0));
    let waits = world.tasks.get(&ANNA, task.id).await.unwrap();
    assert_eq!((&waits.inputs, &waits.phase), (&asked.inputs, &asked.phase), "its requestor sees nothing of it");
    assert_eq!(noted(&waits)[1..], [Transition::Interrupted]);
    assert_eq!((world.tasks.dormant_count(), world.started.lock().len()), (1, 0), "it is not in memory");
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
    let ended = noted(&world.tasks.get(&ANNA, task.id).await.unwrap());
    let woken = Transition::Woken { attempt: 2, cause: WakeCause::Answered };
    assert_eq!(ended[2..], [Transition::Answered { open: 0 }, woken, Transition::Succeeded]);
    assert_eq!(*world.started.lock(), [1], "what the guest sees is one attempt");
    assert_eq!(world.store.journal(&ANNA, task.id).await.unwrap(), None, "the journal goes with the outcome");
}

#[tokio::test]
async fn answer_that_came_while_nobody_ran_the_task_is_taken() {
    let (world, task) = asking().await;
    let next = next_life(world);
    next.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    next.tasks.recover().await.unwrap();
    assert_eq!(next.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn paused_task_goes_on_when_it_is_resumed() {
    let (world, task) = asking().await;
    world.tasks.pause(&ANNA, task.id, Some("later".to_owned())).await.unwrap();
    let (world, recovered) = after(world).await;
    assert_eq!(recovered.resumed, 1);
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    let still = world.tasks.get(&ANNA, task.id).await.unwrap();
    assert_eq!((still.status_message.as_deref(), still.attempt), (Some("later"), 1), "nobody runs it");
    world.tasks.resume(&ANNA, task.id).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn task_that_never_comes_further_is_held_until_it_is_released() {
    let mut world = world();
    let task = world.create(&ANNA, "lasting, quietly").await.unwrap();
    for attempt in 2..=4 {
        let (next, recovered) = after(world).await;
        assert_eq!(recovered.resumed, 1);
        next.until(task.id, |task| task.attempt == attempt).await;
        world = next;
    }
    let (world, _) = after(world).await;
    let held = world.tasks.get(&ANNA, task.id).await.unwrap();
    assert_eq!(held.phase, Phase::Paused { before: Active::Running });
    assert!(held.status_message.as_deref().is_some_and(|said| said.contains("never came further")), "{held:?}");
    assert_eq!((held.is_held(), world.tasks.held_count()), (true, 1));
    let refused = world.tasks.resume(&ANNA, task.id).await;
    assert!(
        matches!(&refused, Err(Error::Illegal(why)) if why.contains("is held")),
        "not its requestor's: {refused:?}"
    );
    world.tasks.release(&ANNA, task.id).await.unwrap();
    world.until(task.id, |task| task.attempt == 5).await;
    assert_eq!(*world.started.lock(), [1], "it begins anew, as its first attempt");
    assert_eq!(world.tasks.held_count(), 0);
}

#[tokio::test]
async fn held_task_is_failed_with_the_words_of_the_operator() {
    let (world, task) = asking().await;
    world.tasks.hold(&ANNA, task.id, held_by_operator(None)).await.unwrap();
    assert_eq!(world.tasks.held_count(), 1);
    world.tasks.fail(&ANNA, task.id, "not needed".to_owned()).await.unwrap();
    let failed = world.tasks.get(&ANNA, task.id).await.unwrap();
    assert!(matches!(failed.outcome(), Some(Outcome::Error(_))), "{failed:?}");
    assert_eq!(failed.status_message.as_deref(), Some("not needed"));
    assert_eq!(world.store.journal(&ANNA, task.id).await.unwrap(), None, "the journal goes with the task");
    assert!(matches!(world.tasks.resume(&ANNA, task.id).await, Err(Error::Ended)));
}

#[tokio::test]
async fn held_task_is_not_its_requestors_to_resume_whatever_it_was_before() {
    let (world, task) = asking().await;
    world.tasks.pause(&ANNA, task.id, Some("paused by request".to_owned())).await.unwrap();
    let held = world.tasks.hold(&ANNA, task.id, held_by_operator(Some("the bank is closed"))).await.unwrap();
    assert!(held.is_held());
    for _ in 0..2 {
        let refused = world.tasks.resume(&ANNA, task.id).await;
        assert!(matches!(&refused, Err(Error::Illegal(why)) if why.contains("is held")), "{refused:?}");
        assert!(world.tasks.pause(&ANNA, task.id, None).await.is_err(), "nor its words to replace");
    }
    world.tasks.release(&ANNA, task.id).await.unwrap();
    let refused = world.tasks.release(&ANNA, task.id).await;
    assert!(matches!(&refused, Err(Error::Illegal("the task is not held"))), "{refused:?}");
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn confirmed_hold_outlasts_a_requestor_that_pauses_and_resumes_at_the_same_time() {
    let (world, task) = asking().await;
    let loops = async {
        for _ in 0..200 {
            let _ = world.tasks.pause(&ANNA, task.id, Some("paused by request".to_owned())).await;
            tokio::task::yield_now().await;
            let _ = world.tasks.resume(&ANNA, task.id).await;
            tokio::task::yield_now().await;
        }
    };
    let holds = async {
        for _ in 0..50 {
            world.tasks.hold(&ANNA, task.id, held_by_operator(None)).await.unwrap();
            for _ in 0..5 {
                tokio::task::yield_now().await;
                assert!(world.tasks.get(&ANNA, task.id).await.unwrap().is_held());
            }
            world.tasks.release(&ANNA, task.id).await.unwrap();
        }
    };
    tokio::join!(loops, holds);
}

#[tokio::test]
async fn task_is_held_however_many_others_its_requestor_has_paused() {
    let (world, task) = asking().await;
    let places: Vec<_> =
        std::iter::from_fn(|| world.tasks.inner.admission.hold(&ANNA, IdleState::Paused).ok()).collect();
    assert!(world.tasks.pause(&ANNA, task.id, None).await.is_err(), "{} are paused", places.len());
    world.tasks.hold(&ANNA, task.id, held_by_operator(None)).await.unwrap();
}

#[tokio::test]
async fn task_that_waits_for_an_answer_outlives_any_number_of_hosts() {
    let (mut world, task) = asking().await;
    for _ in 0..5 {
        let (next, _) = after(world).await;
        let waits = next.tasks.get(&ANNA, task.id).await.unwrap();
        assert_eq!((waits.attempt, next.tasks.dormant_count()), (1, 1));
        assert_eq!(noted(&waits)[1..], [Transition::Interrupted], "its run was lost once");
        world = next;
    }
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

/// What keeps a task that kept a journal from going on after a restart.
#[derive(Clone, Copy, Debug)]
enum Hindrance {
    ToolIsGone,
    KeepsNoJournals,
    Demoted,
    Diverged,
    MarkerIsDamaged,
    Unreadable,
}

impl Hindrance {
    /// The next life of the host, in which it is so.
    async fn after(self, world: World, task: &Task) -> World {
        world.store.restart();
        let change: fn(&mut ToolEntry) = match self {
            Self::ToolIsGone => |entry| entry.plugin.digest = [9; 32],
            Self::KeepsNoJournals => |entry| entry.journal = None,
            _ => |_| {},
        };
        let next = world_with(world.store.clone(), limits(), change);
        let stored = next.store.get(&ANNA, task.id).await.unwrap().unwrap();
        let with_state = async |state: JournalState| {
            let head = next.store.journal(&ANNA, task.id).await.unwrap().unwrap();
            let attempt = head.attempt;
            let at_row = head.rows;
            let head = HeadAfter { state, ..head.unchanged() };
            let append = Append::of_head(attempt, at_row, head);
            next.store.commit(Change { journal: Some(append), ..Change::of(stored.clone()) }).await.unwrap();
        };
        match self {
            Self::ToolIsGone | Self::KeepsNoJournals => {}
            Self::Demoted => with_state(JournalState::Demoted { reason: "it read a directory".to_owned() }).await,
            Self::Diverged => with_state(JournalState::Diverged { reason: "question 1 is another".to_owned() }).await,
            Self::MarkerIsDamaged => {
                let marker = stored.durable.as_ref().unwrap();
                let durable = DurableMarker::new(marker.version, marker.attempt, marker.engine_hash, vec![1]);
                next.store.commit(Change::of(Task { durable, ..stored.clone() })).await.unwrap();
            }
            Self::Unreadable => {
                next.store.fail_with(|| store::Error::Corrupt("a piece is missing".to_owned()));
                next.store.fail_next_reads(2);
            }
        }
        next
    }
}

#[tokio::test]
async fn task_that_could_not_go_on_says_why_to_its_requestor_and_in_the_log() {
    let rows = [
        (Hindrance::ToolIsGone, "its component is not loaded any more"),
        (Hindrance::KeepsNoJournals, "its plugin keeps no journals any more; what it is granted now may be why"),
        (Hindrance::Demoted, "it read a directory"),
        (Hindrance::Diverged, "question 1 is another"),
        (Hindrance::MarkerIsDamaged, "its journal is not of its last run"),
        (Hindrance::Unreadable, "its journal cannot be read"),
    ];
    for (hindrance, why) in rows {
        let (world, task) = asking().await;
        let next = hindrance.after(world, &task).await;
        let (reader, writer) = std::io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(std::sync::Mutex::new(writer)).finish();
        let logs = tracing::subscriber::set_default(subscriber);
        let recovered = next.tasks.recover().await.unwrap();
        drop(logs);
        assert_eq!((recovered.interrupted, recovered.resumed), (1, 0), "{hindrance:?}");
        assert_eq!(next.ended(task.id).await, Outcome::Error(CallError::Interrupted), "{hindrance:?}");
        let message = next.tasks.get(&ANNA, task.id).await.unwrap().status_message.clone().unwrap_or_default();
        assert_eq!(message, format!("{COULD_NOT} go on: {why}"));
        let log = std::io::read_to_string(reader).unwrap();
        let line = log.lines().find(|line| line.contains("a task could not go on after a restart"));
        let line = line.unwrap_or_else(|| panic!("{hindrance:?}: {log}"));
        assert!(line.contains(" WARN ") && line.contains(why) && line.contains(&task.id.to_string()), "{line}");
        assert!(line.contains("tool.name=\"lasting\""), "{line}");
    }
}

#[tokio::test]
async fn task_that_asks_something_else_when_it_is_brought_back_is_counted_and_fails() {
    let (world, task) = asking().await;
    let before = world.store.journal_bytes(&ANNA, task.id).await.unwrap();
    let next = next_life(world);
    let mut other = next.store.get(&ANNA, task.id).await.unwrap().unwrap();
    other.inputs[0].request.key = "another question".to_owned();
    next.store.commit(Change::of(other)).await.unwrap();
    let metrics = Metrics::new(MetricsOptions { series_max: 1_000, tools: true });
    next.tasks.count(&metrics);
    next.tasks.recover().await.unwrap();
    next.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(task.id).await, Outcome::Error(CallError::Interrupted));
    let page = bulkhead_metrics::page(&metrics, Readings::default(), Form::Text).unwrap();
    assert_eq!(*next.health.diverged_at.lock(), [1_000_000], "its version hears of it");
    for line in ["bulkhead_task_wakes_total{cause=\"answered\"} 1", "bulkhead_task_divergences_total 1"] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    // It says what the call did before, and goes with its task.
    let head = next.store.journal(&ANNA, task.id).await.unwrap().expect("the journal stays");
    let reason = "question 1 is another one than was asked before".to_owned();
    assert_eq!((head.state, head.attempt), (JournalState::Diverged { reason }, 2));
    let kept = next.store.journal_bytes(&ANNA, task.id).await.unwrap();
    assert!(!before.is_empty() && kept.starts_with(&before), "{} of {} bytes", kept.len(), before.len());
    next.store.remove(&ANNA, task.id).await.unwrap();
    assert_eq!(next.store.journal(&ANNA, task.id).await.unwrap(), None);
}

#[tokio::test]
async fn new_call_of_a_demoted_version_keeps_no_journal_and_an_older_one_goes_on() {
    let (world, before) = asking().await;
    world.health.is_demoted.store(true, Ordering::SeqCst);
    let at_once = world.create(&ANNA, "lasting, quietly").await.unwrap();
    let full = world.create(&ANNA, "forever").await.unwrap();
    let queued = world.create(&ANNA, "lasting, quietly").await.unwrap();
    assert_eq!(queued.phase, Phase::Active(Active::Queued));
    world.tasks.cancel(&ANNA, full.id).await.unwrap();
    for id in [at_once.id, queued.id] {
        let running = world.until(id, |task| task.phase == Phase::Active(Active::Running)).await;
        assert_eq!(running.durable, None, "{running:?}");
    }

    let next = next_life(world);
    next.health.is_demoted.store(true, Ordering::SeqCst);
    let recovered = next.tasks.recover().await.unwrap();
    assert_eq!((recovered.resumed, recovered.interrupted), (1, 2), "what has a journal goes on by it");
    next.tasks.answer(&ANNA, before.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(before.id).await, Outcome::Output { is_error: false });
}

/// The store has the question, and its guest was told otherwise: what the guest asks then would stand beside a journal
/// that says that it waits for the answer.
#[tokio::test]
async fn guest_whose_question_was_kept_unheard_asks_nothing_more() {
    let world = world();
    let task = world.create(&ANNA, "lasting, insistently").await.unwrap();
    world.store.lose_next_acknowledgements(1);
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
    let ended = world.tasks.get(&ANNA, task.id).await.unwrap();
    let asked: Vec<_> = ended.inputs.iter().map(|input| input.issued_key.as_str()).collect();
    assert_eq!(asked, ["name"], "{ended:?}");
    let TaskOutput::Tool(output) = world.tasks.output(&ANNA, task.id).await.unwrap() else { panic!("no output") };
    let said = format!("{:?}", output.content);
    assert!(said.contains("Unreachable") && said.contains("then Err(Cancelled)"), "{said}");
}

/// A full disk at the start: the host starts, and what it cannot take over yet goes on as soon as there is room.
#[tokio::test]
async fn takeover_goes_on_when_the_store_takes_writes() {
    let (world, asking) = asking().await;
    let cancelled = world.create(&ANNA, "lasting, quietly").await.unwrap();
    let next = next_life(world);
    next.store.set_read_only(Some("the disk is full".to_owned()));
    assert_eq!(next.tasks.recover().await.unwrap(), Recovered::default());
    next.tasks.go_on_taking_over().await;
    next.store.set_read_only(None);
    next.tasks.cancel(&ANNA, cancelled.id).await.unwrap();
    let maintenance = next.tasks.clone();
    let maintained = tokio::spawn(async move { maintenance.run_maintenance().await });
    next.until(asking.id, |task| task.dormant_since().is_some()).await;
    next.tasks.answer(&ANNA, asking.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(asking.id).await, Outcome::Output { is_error: false });
    assert_eq!(next.ended(cancelled.id).await, Outcome::Cancelled, "what its requestor did meanwhile stays");
    maintained.abort();
}

#[tokio::test]
async fn task_whose_journal_cannot_be_read_at_the_start_is_taken_over_later() {
    let (world, task) = asking().await;
    let next = next_life(world);
    next.store.fail_next_reads(1);
    assert_eq!(next.tasks.recover().await.unwrap(), Recovered::default());
    let by_version = next.tasks.by_version().await.unwrap();
    assert_eq!(by_version.get(&task.plugin), Some(&1), "its version is still needed");
    next.tasks.go_on_taking_over().await;
    next.until(task.id, |task| task.dormant_since().is_some()).await;
    assert_eq!(next.tasks.by_version().await.unwrap(), by_version);
    next.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(next.ended(task.id).await, Outcome::Output { is_error: false });
}

/// Its lease ran out, and no other host is there to take its tasks.
#[tokio::test]
async fn host_that_stood_still_claims_no_task_of_its_own() {
    let world = world();
    world.store.set_read_only(Some("the disk is full".to_owned()));
    world.tasks.recover().await.unwrap();
    world.store.set_read_only(None);
    let ttl = RequestedTtl::AfterEnd(None);
    let request = TaskRequest { job: Job::Call(world.call("lasting")), origin: origin(), ttl };
    let own = world.tasks.create(&ANNA, request).await.unwrap();
    let asked = world.until(own.id, |task| task.outstanding().next().is_some()).await;
    world.clock.advance(LEASE_MS + 1);
    world.tasks.go_on_taking_over().await;
    let still = world.tasks.get(&ANNA, own.id).await.unwrap();
    assert_eq!((still.attempt, noted(&still)), (1, noted(&asked)));
}

#[tokio::test]
async fn drain_keeps_what_a_call_has_just_seen() {
    let world = world();
    let task = world.create(&ANNA, "lasting, with news").await.unwrap();
    while world.started.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.tasks.drain(Duration::ZERO).await.unwrap();
    world.store.restart();
    assert_eq!(world.store.journal_bytes(&ANNA, task.id).await.unwrap(), JOURNAL);
}

#[tokio::test]
async fn drained_task_goes_on_after_the_start() {
    let (world, task) = asking().await;
    world.tasks.drain(Duration::ZERO).await.unwrap();
    let (world, recovered) = after(world).await;
    assert_eq!((recovered.resumed, recovered.interrupted), (1, 0));
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}
