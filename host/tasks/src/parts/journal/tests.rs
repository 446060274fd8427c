//! What one run writes of its journal, and what it may not.

use super::*;
use bulkhead_domain::Json;
use bulkhead_domain::lifecycle::{Event, Interruption, step};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Active, Lease, NodeId, Phase, TaskId};
use bulkhead_metrics::demotion_label;
use bulkhead_store::memory::MemoryStore;
use bulkhead_store::{Change, Creation, StoredCaps};

const ANNA: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };

fn lease() -> Lease {
    Lease { node: NodeId([1; 16]), until: 1_000 }
}

/// A task whose first run keeps a journal.
async fn running(store: &Arc<dyn Store>) -> Task {
    let mut task = Task {
        phase: Phase::Active(Active::Running),
        attempt: 1,
        lease: Some(lease()),
        ..Task::sample(ANNA, TaskId([1; 16]))
    };
    task.durable = Beginning::of(&task, 1).marker(1, 7);
    let arguments = Json::new("{}");
    let creation = Creation { task, arguments, output: None, reserved_bytes: 0, caps: CAPS, journal: None };
    store.create(creation).await.unwrap()
}

const CAPS: StoredCaps =
    StoredCaps { tasks_per_requestor: 9, bytes_per_requestor: 1 << 20, tasks_per_tenant: 9, bytes_per_tenant: 1 << 20 };

fn owner(store: &Arc<dyn Store>) -> JournalOwner {
    JournalOwner { store: Arc::clone(store), node: lease().node }
}

fn journal_of(store: &Arc<dyn Store>, task: &Task, head: Option<&JournalHead>) -> Arc<TaskJournal> {
    TaskJournal::new(owner(store), task, Beginning::read(task).unwrap(), head, CAPS)
}

fn tail(at: u64, bytes: &[u8]) -> Tail {
    Tail { at, bytes: bytes.to_vec(), step: 1, entries: 1, ..Tail::default() }
}

#[test]
fn marker_tells_how_the_call_began() {
    let mut task = Task::sample(ANNA, TaskId([1; 16]));
    let beginning = Beginning { attempt: 2, inputs: 3, resumes: 4, promoted: Some(0) };
    task.attempt = 5;
    task.durable = beginning.marker(5, 7);
    assert_eq!(Beginning::read(&task), Some(beginning));
    task.attempt = 6;
    assert_eq!(Beginning::read(&task), None, "another run left it behind");
    task.durable = DurableMarker::new(JOURNAL_VERSION, 6, 7, vec![1]);
    assert_eq!(Beginning::read(&task), None, "another program wrote it");
}

#[tokio::test]
async fn tails_that_overlap_are_kept_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let task = running(&store).await;
    let journal = journal_of(&store, &task, None);
    journal.append(tail(0, b"abc")).await.unwrap();
    journal.append(tail(0, b"abcd")).await.unwrap();
    journal.append(tail(3, b"d")).await.unwrap();
    journal.append(tail(4, b"ef")).await.unwrap();
    assert_eq!(journal.kept(), 6);
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abcdef");
}

#[tokio::test]
async fn lost_run_is_fenced_once_another_goes_on() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let task = running(&store).await;
    let lost = journal_of(&store, &task, None);
    lost.append(tail(0, b"abc")).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    let mut next = step(&task, Event::Interrupt { how: Interruption::Resume }, 1).unwrap();
    next = store.commit(Change::of(next)).await.unwrap();
    let durable = Beginning::read(&task).unwrap().marker(0, 7);
    next = step(&next, Event::Continue { lease: lease(), durable, cause: None }, 2).unwrap();
    let takes_over = Some(Append::resuming(&head, next.attempt));
    next = store.commit(Change { journal: takes_over, ..Change::of(next) }).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    assert_eq!((head.attempt, head.resumes_since_growth), (2, 1));
    let goes_on = journal_of(&store, &next, Some(&head));
    assert_eq!(lost.append(tail(3, b"x")).await, Err(Fenced), "no effect of the one that was lost");
    goes_on.append(tail(3, b"de")).await.unwrap();
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abcde");
    assert_eq!(store.journal(&ANNA, task.id).await.unwrap().unwrap().resumes_since_growth, 0, "it came further");
}

#[tokio::test(start_paused = true)]
async fn append_to_a_task_that_was_lost_fences_its_run_and_one_in_doubt_is_kept_once() {
    let memory = Arc::new(MemoryStore::new());
    let store: Arc<dyn Store> = memory.clone();
    let task = running(&store).await;
    let journal = journal_of(&store, &task, None);
    memory.fail_with(|| store::Error::InDoubt);
    memory.lose_next_acknowledgements(1);
    journal.append(tail(0, b"abc")).await.unwrap();
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abc");
    memory.fail_with(|| store::Error::Lost);
    memory.fail_next_writes(1);
    assert_eq!(journal.append(tail(3, b"d")).await, Err(Fenced));
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abc");
}

#[tokio::test]
async fn journal_that_is_given_up_says_why() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let task = running(&store).await;
    let journal = journal_of(&store, &task, None);
    journal.append(tail(0, b"abc")).await.unwrap();
    journal.give_up("it used a file".to_owned()).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    assert_eq!(head.state, JournalState::Demoted { reason: "it used a file".to_owned() });
    assert!(store.journal_bytes(&ANNA, task.id).await.unwrap().is_empty());
}

/// The store has this head of a task whose call was promoted.
async fn promoted(store: &Arc<dyn Store>, journal: &Arc<TaskJournal>) -> (Task, JournalHead) {
    let mut task = Task {
        phase: Phase::Active(Active::Running),
        attempt: 1,
        lease: Some(lease()),
        ..Task::sample(ANNA, TaskId([1; 16]))
    };
    let mut writer = journal.writer().await;
    let (marker, append) = writer.promoted(1, 7).unwrap();
    task.durable = Some(marker);
    let arguments = Json::new("{}");
    let journal = Some(append.clone());
    let creation = Creation { task, arguments, output: None, reserved_bytes: 0, caps: CAPS, journal };
    let task = store.create(creation).await.unwrap();
    writer.moved(&task, &append, CAPS);
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    (task, head)
}

#[tokio::test]
async fn promoted_call_takes_along_what_it_saw_before() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let journal = TaskJournal::held(owner(&store));
    assert!(journal.is_eager(), "whoever promotes it asks for all of it");
    journal.submit(Tail { answered: 2, ..tail(0, b"abc") });
    journal.append(Tail { answered: 2, ..tail(3, b"d") }).await.unwrap();
    assert_eq!(journal.kept(), 4);
    let (task, head) = promoted(&store, &journal).await;
    assert_eq!((head.attempt, head.bytes, &head.state), (1, 4, &JournalState::Sound));
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abcd");
    let beginning = Beginning::read(&task).unwrap();
    assert_eq!((beginning.promoted, beginning.input(2), beginning.input(3)), (Some(2), 0, 1));
    assert!(!journal.is_eager());
    journal.append(tail(4, b"e")).await.unwrap();
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abcde");
}

#[tokio::test]
async fn what_is_to_be_kept_soon_goes_along_with_the_next_write() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let journal = TaskJournal::held(owner(&store));
    let (task, _) = promoted(&store, &journal).await;
    let head = async || store.journal(&ANNA, task.id).await.unwrap().unwrap();
    let before = head().await.rows;
    journal.submit(tail(0, b"a"));
    journal.submit(tail(0, b"ab"));
    journal.append(tail(0, b"abc")).await.unwrap();
    tokio::time::sleep(2 * GATHERED_FOR).await;
    assert_eq!((head().await.rows, head().await.bytes), (before + 1, 3), "one write for all three");
    // Where nothing else is written, it is kept all the same.
    journal.submit(tail(3, b"d"));
    journal.submit(tail(3, b"de"));
    while head().await.bytes < 5 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(head().await.rows, before + 2);
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abcde");
}

#[tokio::test]
async fn call_that_saw_too_much_before_it_is_a_task_is_promoted_without_journal() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let journal = TaskJournal::held(owner(&store));
    journal.append(tail(0, &vec![b'x'; HELD_BYTES_MAX + 1])).await.unwrap();
    let (task, head) = promoted(&store, &journal).await;
    let JournalState::Demoted { reason } = &head.state else { panic!("{head:?}") };
    assert!(reason.contains("before it became a task"), "{reason}");
    assert_eq!(demotion_label(reason), "before_task");
    journal.append(tail(HELD_BYTES_MAX as u64 + 1, b"e")).await.unwrap();
    assert!(store.journal_bytes(&ANNA, task.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn journal_beyond_the_stored_bytes_of_its_requestor_is_given_up() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let task = running(&store).await;
    let journal = journal_of(&store, &task, None);
    journal.append(tail(0, b"abc")).await.unwrap();
    journal.append(tail(3, &vec![b'x'; CAPS.bytes_per_requestor as usize])).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    let JournalState::Demoted { reason } = &head.state else { panic!("{head:?}") };
    assert_eq!(reason, "the bytes that may be stored are used up (tasks_stored_bytes_per_requestor)");
    assert_eq!(demotion_label(reason), "stored_bytes");
    journal.append(tail(3, b"d")).await.unwrap();
    assert_eq!(store.journal(&ANNA, task.id).await.unwrap().unwrap().rows, 0, "nothing more is written");
}
