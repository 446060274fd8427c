//! What operators see of tasks with journals, and how they hold, release and fail tasks.

use super::*;
use bulkhead_domain::call::CallError;
use bulkhead_domain::requestor::Requestor;
use bulkhead_store::journal::{Append, HeadAfter, JournalState, JournalStore as _};

use crate::views::{DivergenceView, DurableView};

async fn requestor(store: &Arc<MemoryStore>) -> Requestor {
    Principals::new(store.clone()).local_requestor().await.unwrap()
}

/// A running task whose run keeps a journal.
async fn running(store: &MemoryStore, requestor: Requestor, id: u8) -> Task {
    let queued = put_task(store, requestor, id).await;
    let task = Task {
        phase: Phase::Active(Active::Running),
        work: Work::Tool("book_trip".to_owned()),
        attempt: 1,
        durable: Some(DurableMarker::of_run(1, 7)),
        ..queued
    };
    store.commit(store::Change::of(task)).await.unwrap()
}

async fn append(store: &MemoryStore, task: &Task, bytes: &[u8], state: JournalState) {
    let head = HeadAfter {
        step: 41,
        entries: 2,
        cpu_us: 0,
        wall_us: 0,
        resumes_since_growth: 0,
        cooperative: false,
        state,
        wake_at: None,
    };
    let append = Append { bytes: bytes.to_vec(), ..Append::of_head(task.attempt, 0, head) };
    store.append(&task.requestor, task.id, append).await.unwrap();
}

/// Two entries: the clock moved by 5 ms at step 3, and a value at step 41.
const JOURNAL: &[u8] = &[3, 3, 2, 5, 7, 38, 6, 1, 2, 3, 4, b'!'];

#[tokio::test]
async fn journal_of_a_task_is_shown_by_head_and_entries() {
    let store = Arc::new(MemoryStore::new());
    let operator = operator(&store);
    let local = requestor(&store).await;
    let task = running(&store, local, 1).await;
    let id = task.id.to_string();
    let show = || operator.execute(TasksShow { id: id.clone() });
    let empty = show().await.unwrap().durable.unwrap();
    assert_eq!(empty.to_string(), "journal, with nothing to keep so far");
    append(&store, &task, JOURNAL, JournalState::Sound).await;
    let durable = show().await.unwrap().durable.unwrap();
    assert_eq!(durable.to_string(), "journal, 2 entries, 12 bytes, mark at step 41");

    let journal = |entries_max, from| operator.execute(TasksJournal { id: id.clone(), entries_max, from });
    let head = journal(None, 0).await.unwrap();
    assert_eq!((head.durable, head.attempt, head.entries_listed), (durable, Some(1), None));
    let listed = journal(Some(1), 0).await.unwrap();
    assert!(listed.more);
    let all = journal(Some(9), 1).await.unwrap();
    let json = serde_json::to_value(all.entries_listed.unwrap()).unwrap();
    let expected = serde_json::json!([{"number": 1, "step": 41, "kind": "value", "import": null, "bytes": 8}]);
    assert_eq!((json, all.more), (expected, false), "and not what it says");
}

#[test]
fn divergence_is_told_with_its_place_where_it_has_one() {
    let divergence = DivergenceView {
        entry: 3,
        recorded: "a value of 5 bytes at step 9".to_owned(),
        requested: "handle of wasi:http/outgoing-handler".to_owned(),
        step: 9,
        why: "something else is recorded here, or nothing".to_owned(),
    };
    let told = "entry 3: a value of 5 bytes at step 9 was recorded, handle of wasi:http/outgoing-handler was asked for at step 9: \
                something else is recorded here, or nothing";
    assert_eq!(divergence.to_string(), told);
    let why = "other directories are granted".to_owned();
    assert_eq!(DivergenceView { step: 0, why: why.clone(), ..divergence }.to_string(), why);
}

#[tokio::test]
async fn replay_needs_a_host_that_runs() {
    let store = Arc::new(MemoryStore::new());
    let operator = operator(&store);
    let refused = operator.execute(TasksReplay { id: "0123".to_owned() }).await.unwrap_err();
    assert_eq!(refused, ControlError::Invalid("no host runs on this data directory".to_owned()));
}

#[tokio::test]
async fn reason_why_a_task_is_not_durable_is_told() {
    let store = Arc::new(MemoryStore::new());
    let operator = operator(&store);
    let local = requestor(&store).await;
    let queued = put_task(&store, local, 1).await;
    let demoted = running(&store, local, 2).await;
    let reason = "it used a file of a granted directory".to_owned();
    append(&store, &demoted, &[], JournalState::Demoted { reason }).await;
    let off = running(&store, local, 3).await;
    let task = Task { durable: None, ..off };
    let off = store.commit(store::Change::of(task)).await.unwrap();
    let durable = async |task: &Task| operator.execute(TasksShow { id: task.id.to_string() }).await.unwrap().durable;
    assert_eq!(durable(&queued).await, None, "it has not begun");
    let why = |reason: &str| Some(DurableView::No { reason: reason.to_owned() });
    assert_eq!(durable(&demoted).await, why("it used a file of a granted directory"));
    assert_eq!(durable(&off).await, why("its plugin was not durable when it began"));
    operator.execute(TasksCancel { id: off.id.to_string() }).await.unwrap();
    assert_eq!(durable(&off).await, None);
    let over = TasksJournal { id: off.id.to_string(), entries_max: Some(5), from: 0 };
    let over = serde_json::to_value(operator.execute(over).await.unwrap()).unwrap();
    assert_eq!((&over["class"], &over["entries_listed"]), (&"no".into(), &serde_json::json!([])), "{over}");
}

#[tokio::test]
async fn journal_of_a_task_that_left_it_is_shown_after_its_end() {
    let store = Arc::new(MemoryStore::new());
    let operator = operator(&store);
    let local = requestor(&store).await;
    let task = running(&store, local, 1).await;
    append(&store, &task, JOURNAL, JournalState::Sound).await;
    let head = store.journal(&task.requestor, task.id).await.unwrap().unwrap();
    let reason = "entry 1: something else is recorded here".to_owned();
    let head = HeadAfter { state: JournalState::Diverged { reason: reason.clone() }, ..head.unchanged() };
    let journal = Append::of_head(task.attempt, 1, head);
    let phase = Phase::Ended(Outcome::Error(CallError::Interrupted));
    let id = task.id.to_string();
    let ended = Task { phase, lease: None, ..task };
    store.commit(store::Change { journal: Some(journal), ..store::Change::of(ended) }).await.unwrap();
    let shown = operator.execute(TasksShow { id: id.clone() }).await.unwrap();
    let why = DurableView::No { reason: format!("its journal does not fit: {reason}") };
    assert_eq!(shown.durable, Some(why));
    let listed = operator.execute(TasksJournal { id, entries_max: Some(9), from: 0 }).await.unwrap();
    assert_eq!(listed.entries_listed.map(|entries| entries.len()), Some(2));
}

#[tokio::test]
async fn task_is_held_released_and_failed_without_a_host() {
    let store = Arc::new(MemoryStore::new());
    let operator = operator(&store);
    let local = requestor(&store).await;
    let id = running(&store, local, 1).await.id.to_string();
    let hold = |message: Option<&str>| TasksHold { id: id.clone(), message: message.map(str::to_owned) };
    let release = || operator.execute(TasksRelease { id: id.clone() });
    let refused = release().await.unwrap_err().to_string();
    assert!(refused.contains("is not held") && refused.contains("tasks resume"), "{refused}");
    assert!(matches!(operator.execute(hold(Some("two\nlines"))).await, Err(ControlError::Invalid(_))));

    let held = operator.execute(hold(Some("the bank is closed"))).await.unwrap();
    let says = held.task.status_message.as_deref();
    assert_eq!((held.held, says), (true, Some("it is held by the operator: the bank is closed")));
    let resume = operator.execute(TasksResume { id: id.clone() }).await.unwrap_err().to_string();
    assert!(resume.contains("an operator releases it"), "{resume}");
    let released = release().await.unwrap();
    assert_eq!((released.task.status, released.held), (TaskStatus::Running, false));

    let says = operator.execute(TasksPause { id: id.clone(), message: Some("it is held, or so".to_owned()) }).await;
    assert!(matches!(says, Err(ControlError::Invalid(_))), "a pause does not say that it holds: {says:?}");
    operator.execute(TasksPause { id: id.clone(), message: None }).await.unwrap();
    assert!(release().await.is_err(), "what is only paused is not released");
    let held = operator.execute(hold(None)).await.unwrap();
    let says = held.task.status_message.as_deref();
    assert_eq!((held.held, says), (true, Some("it is held by the operator")), "what is paused can be held");
    let fail = |message: Option<&str>| TasksFail { id: id.clone(), message: message.map(str::to_owned) };
    assert!(matches!(operator.execute(fail(Some(" "))).await, Err(ControlError::Invalid(_))));
    let failed = operator.execute(fail(Some("it is not needed any more"))).await.unwrap();
    let says = failed.task.status_message.as_deref();
    assert_eq!((failed.task.status, says), (TaskStatus::Failed, Some("it is not needed any more")));
    let again = operator.execute(fail(None)).await.unwrap_err().to_string();
    assert!(again.contains("is over already"), "{again}");
}
