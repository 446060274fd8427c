use proptest::prelude::*;

use super::*;
use crate::Json;
use crate::call::{ElicitationAction, InputRequestKind};
use crate::requestor::{Requestor, RequestorId, TenantId};
use crate::task::{NodeId, Task, TaskId};
use crate::timeline::TIMELINE_MAX;

const NOW: UnixMs = 1_000_000;

fn task(phase: Phase) -> Task {
    let attempt = match phase {
        Phase::Active(Active::Queued) | Phase::Paused { before: Active::Queued } => 0,
        _ => 1,
    };
    Task {
        revision: 7,
        created_at: NOW,
        updated_at: NOW,
        poll_interval_ms: 100,
        phase,
        attempt,
        ..Task::sample(Requestor { tenant: TenantId([2; 16]), id: RequestorId([3; 16]) }, TaskId([1; 16]))
    }
}

fn request(key: &str) -> InputRequest {
    let kind = InputRequestKind::Form { message: "m".into(), requested_schema: Json::new("{}") };
    InputRequest { key: key.into(), kind, meta: Vec::new() }
}

fn accept() -> InputResponse {
    InputResponse::Elicitation { action: ElicitationAction::Accept, content: None }
}

fn lease() -> Lease {
    Lease { node: NodeId([9; 16]), until: NOW + 1 }
}

fn start() -> Event {
    Event::Start { lease: lease(), durable: None }
}

fn go_on() -> Event {
    Event::Continue { lease: lease(), durable: None, cause: None }
}

fn fail() -> Event {
    Event::Fail { message: "it is not needed any more".into() }
}

fn interrupt(how: Interruption) -> Event {
    Event::Interrupt { how }
}

fn phases() -> Vec<Phase> {
    let actives = [Active::Queued, Active::Running, Active::InputRequired];
    let ends = [
        Outcome::Output { is_error: false },
        Outcome::Output { is_error: true },
        Outcome::Error(CallError::Interrupted),
        Outcome::Cancelled,
    ];
    let active = actives.map(Phase::Active);
    let paused = actives.map(|before| Phase::Paused { before });
    active.into_iter().chain(paused).chain(ends.map(Phase::Ended)).collect()
}

fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("start", start()),
        ("ask", Event::RequestInput { attempt: 1, requests: vec![request("k")] }),
        ("answer", Event::Answer { key: "open".into(), answer: accept() }),
        ("steer", Event::Steer { message: "left".into(), queue_max: 2 }),
        ("deliver", Event::Deliver { attempt: 1 }),
        ("pause", Event::Pause { message: None }),
        ("resume", Event::Resume),
        ("finish", Event::Finish { attempt: 1, outcome: Outcome::Output { is_error: false }, message: None }),
        ("stale finish", Event::Finish { attempt: 9, outcome: Outcome::Cancelled, message: None }),
        ("cancel", Event::Cancel),
        ("interrupt", interrupt(Interruption::Fail)),
        ("interrupt, rerun", interrupt(Interruption::Rerun)),
        ("interrupt, resume", interrupt(Interruption::Resume)),
        ("continue", go_on()),
        ("abandon", Event::Abandon { error: CallError::Interrupted, message: "gone".into() }),
        ("fail", fail()),
        ("hold", hold()),
        ("release", Event::Release),
    ]
}

fn hold() -> Event {
    Event::Hold { message: "it is held: the bank is closed".into() }
}

fn short(phase: &Phase) -> String {
    match phase {
        Phase::Active(active) => format!("{active:?}").to_lowercase(),
        Phase::Paused { before } => format!("paused({})", format!("{before:?}").to_lowercase()),
        Phase::Ended(Outcome::Output { is_error }) => if *is_error { "is-error" } else { "output" }.into(),
        Phase::Ended(Outcome::Error(_)) => "error".into(),
        Phase::Ended(Outcome::Cancelled) => "cancelled".into(),
    }
}

/// Every phase against every event. A cell is the phase afterwards, or `-` for a refusal.
#[test]
fn task_phase_event_matrix_holds() {
    #[rustfmt::skip]
    let expected = [
        // start, ask, answer, steer, deliver, pause, resume, finish, stale, cancel, interrupt, rerun, resume, continue,
        // abandon, fail, hold, release
        ("queued", "running - - queued - paused(queued) - - - cancelled queued queued queued - error error paused(queued) -"),
        ("running", "- inputrequired running running running paused(running) - output - cancelled error queued running running error error paused(running) -"),
        ("inputrequired", "- inputrequired running inputrequired inputrequired paused(inputrequired) - output - cancelled error queued inputrequired inputrequired error error paused(inputrequired) -"),
        ("paused(queued)", "- - - paused(queued) - - queued - - cancelled paused(queued) paused(queued) paused(queued) - error error paused(queued) -"),
        ("paused(running)", "- paused(inputrequired) paused(running) paused(running) paused(running) - running - - cancelled error paused(queued) paused(running) paused(running) error error paused(running) -"),
        ("paused(inputrequired)", "- paused(inputrequired) paused(running) paused(inputrequired) paused(inputrequired) - inputrequired - - cancelled error paused(queued) paused(inputrequired) paused(inputrequired) error error paused(inputrequired) -"),
        ("output", "- - - - - - - - - - - - - - - - - -"),
        ("is-error", "- - - - - - - - - - - - - - - - - -"),
        ("error", "- - - - - - - - - - - - - - - - - -"),
        ("cancelled", "- - - - - - - - - - - - - - - - - -"),
    ];
    for (phase, (name, row)) in phases().into_iter().zip(expected) {
        assert_eq!(short(&phase), name);
        let mut before = task(phase);
        before.inputs.push(Input { issued_key: "open".into(), request: request("open"), answer: None });
        let cells: Vec<_> = events()
            .into_iter()
            .map(|(_, event)| step(&before, event, NOW + 5).map_or("-".into(), |after| short(&after.phase)))
            .collect();
        assert_eq!(cells.join(" "), row, "from {name}");
    }
}

#[test]
fn input_request_keys_are_unique_per_task() {
    let running = task(Phase::Active(Active::Running));
    let ask = |task: &Task, keys: &[&str]| {
        let requests = keys.iter().map(|key| request(key)).collect();
        step(task, Event::RequestInput { attempt: 1, requests }, NOW).unwrap()
    };
    let asked = ask(&ask(&running, &["a", "a-2", "a"]), &["a"]);
    let keys: Vec<_> = asked.inputs.iter().map(|input| input.issued_key.as_str()).collect();
    assert_eq!(keys, ["a", "a-2", "a-3", "a-4"]);
}

#[test]
fn task_resumes_when_every_input_request_is_answered() {
    let running = task(Phase::Active(Active::Running));
    let asked =
        step(&running, Event::RequestInput { attempt: 1, requests: vec![request("a"), request("b")] }, NOW).unwrap();
    let half = step(&asked, Event::Answer { key: "b".into(), answer: accept() }, NOW).unwrap();
    assert_eq!(half.phase, Phase::Active(Active::InputRequired));
    let again = step(&half, Event::Answer { key: "b".into(), answer: InputResponse::Refused("late".into()) }, NOW);
    assert_eq!(again, Err(Refusal::NotOutstanding));
    let whole = step(&half, Event::Answer { key: "a".into(), answer: accept() }, NOW).unwrap();
    assert_eq!(whole.phase, Phase::Active(Active::Running));
}

#[test]
fn stale_task_attempt_cannot_write() {
    let mut second = task(Phase::Active(Active::Running));
    second.attempt = 2;
    let outcome = Outcome::Output { is_error: false };
    assert_eq!(step(&second, Event::Finish { attempt: 1, outcome, message: None }, NOW), Err(Refusal::Stale));
    assert_eq!(step(&second, Event::Deliver { attempt: 1 }, NOW), Err(Refusal::Stale));
}

#[test]
fn task_is_attempted_at_most_three_times() {
    let mut task = task(Phase::Active(Active::Queued));
    for attempt in 1..=STARTS_MAX {
        task = step(&task, start(), NOW).unwrap();
        assert_eq!(task.attempt, attempt);
        task = step(&task, interrupt(Interruption::Rerun), NOW).unwrap();
    }
    assert_eq!(task.phase, Phase::Ended(Outcome::Error(CallError::Interrupted)));
}

/// More often than a timeline can tell.
#[test]
fn task_that_was_woken_often_may_start_again_as_often_as_any_other() {
    let begin = || Event::Start { lease: lease(), durable: marker() };
    let mut task = task(Phase::Active(Active::Queued));
    for starts in 1..=STARTS_MAX {
        task = after(task, vec![begin()]);
        for _ in 0..TIMELINE_MAX {
            let attempt = task.attempt;
            let wake = Event::Continue { lease: lease(), durable: marker(), cause: Some(WakeCause::Answered) };
            task = after(task, vec![Event::Evict { attempt }, wake]);
        }
        assert_eq!(task.starts(), starts);
        task = step(&task, interrupt(Interruption::Rerun), NOW).unwrap();
    }
    assert_eq!(task.phase, Phase::Ended(Outcome::Error(CallError::Interrupted)));
    let why = "the host was restarted while the task ran, and it had begun 3 times already";
    assert_eq!(task.status_message.as_deref(), Some(why));
    assert_eq!(noted(&task).iter().filter(|noted| matches!(noted, Transition::Started { .. })).count(), 3);
}

#[test]
fn a_full_steering_queue_refuses_and_keeps_the_order() {
    let steer = |task: &Task, message: &str| step(task, Event::Steer { message: message.into(), queue_max: 2 }, NOW);
    let two = steer(&steer(&task(Phase::Active(Active::Running)), "a").unwrap(), "b").unwrap();
    assert_eq!(two.steering, ["a", "b"]);
    assert_eq!(steer(&two, "c"), Err(Refusal::QueueFull { queue_max: 2 }));
    let delivered = step(&two, Event::Deliver { attempt: 1 }, NOW).unwrap();
    assert_eq!((delivered.steering.len(), delivered.steering_delivered), (0, 2));
}

#[test]
fn steering_message_is_delivered_to_one_attempt() {
    let steer = |task: &Task, message: &str| step(task, Event::Steer { message: message.into(), queue_max: 9 }, NOW);
    let taken = steer(&task(Phase::Active(Active::Running)), "taken").unwrap();
    let taken = step(&taken, Event::Deliver { attempt: 1 }, NOW).unwrap();
    let waiting = steer(&taken, "waiting").unwrap();
    let lost = step(&waiting, interrupt(Interruption::Rerun), NOW).unwrap();
    let again = step(&lost, start(), NOW).unwrap();
    assert_eq!((again.attempt, again.steering, again.steering_delivered), (2, vec!["waiting".to_owned()], 1));
}

fn marker() -> Option<DurableMarker> {
    DurableMarker::new(1, 0, 7, vec![1])
}

#[test]
fn lost_run_goes_on_once_with_its_questions_and_messages() {
    let steer = Event::Steer { message: "left".into(), queue_max: 2 };
    let asks = Event::RequestInput { attempt: 1, requests: vec![request("a")] };
    let begin = Event::Start { lease: lease(), durable: marker() };
    let asked = after(task(Phase::Active(Active::Queued)), vec![begin, asks, steer]);
    assert_eq!(asked.durable.as_ref().map(|marker| marker.attempt), Some(1));
    assert_eq!(step(&asked, go_on(), NOW), Err(Refusal::Illegal("the task already runs")));
    let lost = after(asked.clone(), vec![interrupt(Interruption::Resume)]);
    assert_eq!((lost.lease, lost.attempt, &lost.durable), (None, 1, &asked.durable));
    let again = after(lost, vec![Event::Continue { lease: lease(), durable: marker(), cause: None }]);
    assert_eq!((again.lease, again.attempt), (Some(lease()), 2));
    assert_eq!(again.durable.as_ref().map(|marker| (marker.attempt, marker.detail().to_vec())), Some((2, vec![1])));
    assert_eq!((&again.phase, &again.inputs, &again.steering), (&asked.phase, &asked.inputs, &asked.steering));
    assert_eq!(step(&again, go_on(), NOW), Err(Refusal::Illegal("the task already runs")));
    assert_eq!(step(&again, Event::Deliver { attempt: 1 }, NOW), Err(Refusal::Stale), "the lost run is fenced");
    let expected = [Transition::Interrupted, Transition::Continued { attempt: 2 }];
    assert_eq!(noted(&again)[2..], expected);
}

#[test]
fn run_that_leaves_memory_and_goes_on_changes_nothing_that_a_client_sees() {
    let asks = Event::RequestInput { attempt: 1, requests: vec![request("a")] };
    let begin = Event::Start { lease: lease(), durable: marker() };
    let asked = after(task(Phase::Active(Active::Queued)), vec![begin, asks]);
    assert_eq!(step(&asked, Event::Evict { attempt: 0 }, NOW), Err(Refusal::Stale));
    assert_eq!(asked.dormant_since(), None);
    let later = NOW + 5;
    let dormant = step(&asked, Event::Evict { attempt: 1 }, later).unwrap();
    let facts = |task: &Task| (task.phase.clone(), task.inputs.clone(), task.updated_at, task.status_message.clone());
    assert_eq!((facts(&dormant), dormant.lease, dormant.attempt), (facts(&asked), None, 1));
    assert_eq!(dormant.dormant_since(), Some(later));
    assert_eq!(step(&dormant, Event::Evict { attempt: 1 }, NOW), Err(Refusal::Illegal("the task does not run")));
    let lost = step(&dormant, interrupt(Interruption::Resume), later).unwrap();
    assert_eq!(noted(&lost), noted(&dormant), "it had no run that its host could lose");

    let cause = Some(WakeCause::Steered);
    let woken = step(&dormant, Event::Continue { lease: lease(), durable: marker(), cause }, later).unwrap();
    assert_eq!((facts(&woken), woken.attempt, woken.dormant_since()), (facts(&asked), 2, None));
    assert_eq!(noted(&woken)[2..], [Transition::Dormant, Transition::Woken { attempt: 2, cause: WakeCause::Steered }]);
    assert_eq!(step(&woken, Event::Evict { attempt: 1 }, NOW), Err(Refusal::Stale), "the run before is fenced");
    let earlier = step(&woken, Event::Pause { message: None }, NOW).unwrap();
    let times: Vec<_> = earlier.timeline.entries().iter().map(|entry| entry.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn lost_run_goes_on_more_often_than_it_may_start_again() {
    let mut task = after(task(Phase::Active(Active::Queued)), vec![start()]);
    for attempt in 1..=2 * STARTS_MAX {
        assert_eq!(task.attempt, attempt);
        task = after(task, vec![interrupt(Interruption::Resume), go_on()]);
    }
    assert_eq!(task.phase, Phase::Active(Active::Running));
}

#[test]
fn held_task_that_an_operator_fails_says_why_and_is_over() {
    let begin = Event::Start { lease: lease(), durable: marker() };
    let held = after(task(Phase::Active(Active::Queued)), vec![begin, interrupt(Interruption::Resume), hold()]);
    let failed = after(held, vec![fail()]);
    let reason = "it is not needed any more".to_owned();
    assert_eq!(failed.status_message, Some(reason.clone()));
    let error = CallError::Fault { kind: FaultKind::Deadline, reason };
    assert_eq!((&failed.phase, failed.lease), (&Phase::Ended(Outcome::Error(error)), None));
    assert_eq!(noted(&failed).last(), Some(&Transition::Failed));
    assert_eq!(step(&failed, Event::Resume, NOW), Err(Refusal::Ended));
}

/// Every event against a held task of each phase: what leaves it held, and what ends or refuses.
#[test]
fn held_task_goes_on_by_a_release_alone() {
    for before in [Active::Queued, Active::Running, Active::InputRequired] {
        let mut held = after(task(Phase::Active(before)), vec![hold()]);
        held.inputs.push(Input { issued_key: "open".into(), request: request("open"), answer: None });
        for (name, event) in events() {
            match (name, step(&held, event, NOW + 5)) {
                ("release", next) => assert_eq!(next.unwrap().phase, Phase::Active(before)),
                ("resume", next) => assert_eq!(next, Err(Refusal::Held)),
                (_, Ok(next)) => {
                    assert!(next.is_held() || next.outcome().is_some(), "{name} from {before:?}: {next:?}")
                }
                (_, Err(_)) => {}
            }
        }
    }
}

#[test]
fn paused_task_is_held_with_other_words_and_its_requestor_cannot_take_them() {
    let paused = after(task(Phase::Active(Active::Running)), vec![Event::Pause { message: Some("later".into()) }]);
    let held = after(paused, vec![hold()]);
    assert_eq!(held.status_message.as_deref(), Some("it is held: the bank is closed"));
    let Event::Hold { message } = hold() else { panic!() };
    let pause = Event::Pause { message: Some(message) };
    let refused = step(&task(Phase::Active(Active::Running)), pause, NOW);
    assert!(matches!(refused, Err(Refusal::Illegal(_))), "a pause holds nothing: {refused:?}");
    let silent = step(&task(Phase::Active(Active::Running)), Event::Hold { message: "later".into() }, NOW);
    assert!(matches!(silent, Err(Refusal::Illegal(_))), "a hold says so: {silent:?}");
}

#[test]
fn held_task_that_is_queued_again_is_still_held() {
    let held = after(task(Phase::Active(Active::Running)), vec![hold(), interrupt(Interruption::Rerun)]);
    assert_eq!((held.is_held(), &held.phase), (true, &Phase::Paused { before: Active::Queued }));
    let released = after(held, vec![Event::Release]);
    assert_eq!((released.phase, released.status_message), (Phase::Active(Active::Queued), None));
}

#[test]
fn run_that_begins_without_a_journal_has_no_marker() {
    let begin = Event::Start { lease: lease(), durable: marker() };
    let again = after(task(Phase::Active(Active::Queued)), vec![begin, interrupt(Interruption::Rerun), start()]);
    assert_eq!((again.attempt, again.durable), (2, None));
}

/// The transitions that were noted, without their times.
fn noted(task: &Task) -> Vec<Transition> {
    task.timeline.entries().iter().map(|entry| entry.transition).collect()
}

fn after(task: Task, events: Vec<Event>) -> Task {
    events.into_iter().zip(1..).fold(task, |task, (event, n)| step(&task, event, NOW + n).unwrap())
}

fn finish(attempt: u32) -> Event {
    Event::Finish { attempt, outcome: Outcome::Output { is_error: false }, message: None }
}

#[test]
fn task_that_only_runs_and_ends_has_no_timeline() {
    let running = task(Phase::Active(Active::Running));
    let steer = || Event::Steer { message: "m".into(), queue_max: 2 };
    let failed = Event::Finish { attempt: 1, outcome: Outcome::Error(CallError::Interrupted), message: None };
    for end in [finish(1), failed, fail(), Event::Abandon { error: CallError::Interrupted, message: "gone".into() }] {
        let ended = after(running.clone(), vec![steer(), Event::Deliver { attempt: 1 }, end]);
        assert!(ended.timeline.is_empty(), "{:?}", ended.timeline);
    }
}

#[test]
fn timeline_begins_with_the_first_remarkable_transition_and_goes_on_to_the_end() {
    let events = vec![
        start(),
        Event::RequestInput { attempt: 1, requests: vec![request("a"), request("b")] },
        Event::Answer { key: "b".into(), answer: accept() },
        Event::Pause { message: None },
        Event::Answer { key: "a".into(), answer: accept() },
        Event::Resume,
        interrupt(Interruption::Rerun),
        start(),
        finish(2),
    ];
    let ended = after(task(Phase::Active(Active::Queued)), events);
    let expected = [
        Transition::Started { attempt: 1 },
        Transition::InputRequested { requests: 2 },
        Transition::Answered { open: 1 },
        Transition::Paused,
        Transition::Answered { open: 0 },
        Transition::Resumed,
        Transition::Interrupted,
        Transition::Started { attempt: 2 },
        Transition::Succeeded,
    ];
    assert_eq!(noted(&ended), expected);
    let times: Vec<_> = ended.timeline.entries().iter().map(|entry| entry.at - NOW).collect();
    assert_eq!(times, (1..10).collect::<Vec<_>>());
}

#[test]
fn cancelled_and_interrupted_tasks_say_from_where_they_ended() {
    let queued = after(task(Phase::Active(Active::Queued)), vec![Event::Cancel]);
    assert_eq!(noted(&queued), [Transition::Cancelled { from: Active::Queued, is_paused: false }]);
    let paused = after(task(Phase::Active(Active::Running)), vec![Event::Pause { message: None }, Event::Cancel]);
    let cancelled = Transition::Cancelled { from: Active::Running, is_paused: true };
    assert_eq!(noted(&paused), [Transition::Paused, cancelled]);
    let lost = after(task(Phase::Active(Active::Running)), vec![interrupt(Interruption::Fail)]);
    assert_eq!(noted(&lost), [Transition::Interrupted, Transition::Failed]);
    let kept = after(task(Phase::Active(Active::Queued)), vec![interrupt(Interruption::Fail)]);
    assert!(kept.timeline.is_empty(), "nothing ran, so nothing was interrupted");
}

fn any_event() -> impl Strategy<Value = Event> {
    let keys = prop::sample::select(vec!["a", "b", "open"]);
    let attempts = 0..4u32;
    prop_oneof![
        Just(start()),
        (attempts.clone(), keys.clone())
            .prop_map(|(attempt, key)| Event::RequestInput { attempt, requests: vec![request(key)] }),
        keys.prop_map(|key| Event::Answer { key: key.into(), answer: accept() }),
        Just(Event::Steer { message: "m".into(), queue_max: 3 }),
        attempts.clone().prop_map(|attempt| Event::Deliver { attempt }),
        Just(Event::Pause { message: None }),
        Just(Event::Resume),
        Just(hold()),
        Just(Event::Release),
        (attempts, any::<bool>()).prop_map(|(attempt, is_error)| Event::Finish {
            attempt,
            outcome: Outcome::Output { is_error },
            message: None
        }),
        Just(Event::Cancel),
        prop::sample::select(vec![Interruption::Fail, Interruption::Rerun, Interruption::Resume]).prop_map(interrupt),
        Just(go_on()),
        Just(fail()),
    ]
}

proptest! {
    #[test]
    fn random_task_histories_keep_invariants(steps in prop::collection::vec((any_event(), 0..3_000u64), 1..60)) {
        let mut current = task(Phase::Active(Active::Queued));
        let mut reruns = 0;
        for (event, now) in steps {
            let starts = matches!(event, Event::Start { .. });
            let Ok(next) = step(&current, event, NOW - 1_500 + now) else { continue };
            reruns += u32::from(starts);
            prop_assert!(current.outcome().is_none(), "a terminal task changed");
            prop_assert!(next.updated_at >= current.updated_at);
            prop_assert!(next.attempt >= current.attempt && reruns <= STARTS_MAX);
            prop_assert!(next.durable.as_ref().is_none_or(|marker| marker.attempt <= next.attempt));
            prop_assert!(next.steering.len() <= 3);
            prop_assert!(next.inputs.len() >= current.inputs.len());
            let mut keys: Vec<_> = next.inputs.iter().map(|input| input.issued_key.clone()).collect();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), next.inputs.len());
            let waits = matches!(next.phase, Phase::Active(Active::InputRequired) | Phase::Paused { before: Active::InputRequired });
            if waits {
                prop_assert!(next.outstanding().next().is_some());
            }
            let before = current.timeline.entries();
            let after = next.timeline.entries();
            prop_assert!(after.len() <= TIMELINE_MAX);
            prop_assert!(after.windows(2).all(|pair| pair[0].at <= pair[1].at), "a timeline went back");
            prop_assert!(after.len() as u64 + next.timeline.left_out() <= before.len() as u64 + current.timeline.left_out() + 2);
            prop_assert!(before.iter().zip(after).take(16).all(|(old, new)| old == new), "the beginning changed");
            if next.phase != current.phase && (!before.is_empty() || next.outcome().is_none()) {
                prop_assert_eq!(after.last().map(|entry| entry.at), Some(next.updated_at), "a transition was not noted");
            }
            prop_assert_eq!(&next.origin, &current.origin);
            current = next;
        }
    }
}
