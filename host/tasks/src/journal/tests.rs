//! What one run writes of its journal, and what it may not.

use super::*;
use bulkhead_domain::Json;
use bulkhead_domain::lifecycle::{Event, Interruption, step};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Active, Lease, NodeId, Phase, TaskId};
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
    let caps = StoredCaps {
        tasks_per_requestor: 9,
        bytes_per_requestor: 1 << 20,
        tasks_per_tenant: 9,
        bytes_per_tenant: 1 << 20,
    };
    let creation = Creation { task, arguments: Json::new("{}"), output: None, reserved_bytes: 0, caps, journal: None };
    store.create(creation).await.unwrap()
}

fn tail(at: u64, bytes: &[u8]) -> Tail {
    Tail { at, bytes: bytes.to_vec(), step: 1, entries: 1 }
}

#[test]
fn marker_tells_how_the_call_began() {
    let mut task = Task::sample(ANNA, TaskId([1; 16]));
    let beginning = Beginning { attempt: 2, inputs: 3, resumes: 4 };
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
    let journal = TaskJournal::new(Arc::clone(&store), &task, 0, None);
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
    let lost = TaskJournal::new(Arc::clone(&store), &task, 0, None);
    lost.append(tail(0, b"abc")).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    let mut next = step(&task, Event::Interrupt { how: Interruption::Resume }, 1).unwrap();
    next = store.commit(Change { task: next, output: None, journal: None }).await.unwrap();
    let durable = Beginning::read(&task).unwrap().marker(0, 7);
    next = step(&next, Event::Continue { lease: lease(), durable }, 2).unwrap();
    let takes_over = Some(Append::resuming(&head, next.attempt));
    next = store.commit(Change { task: next, output: None, journal: takes_over }).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    assert_eq!((head.attempt, head.resumes_since_growth), (2, 1));
    let goes_on = TaskJournal::new(Arc::clone(&store), &next, 0, Some(&head));
    assert_eq!(lost.append(tail(3, b"x")).await, Err(Fenced), "no effect of the one that was lost");
    goes_on.append(tail(3, b"de")).await.unwrap();
    assert_eq!(store.journal_bytes(&ANNA, task.id).await.unwrap(), b"abcde");
    assert_eq!(store.journal(&ANNA, task.id).await.unwrap().unwrap().resumes_since_growth, 0, "it came further");
}

#[tokio::test]
async fn journal_that_is_given_up_says_why() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let task = running(&store).await;
    let journal = TaskJournal::new(Arc::clone(&store), &task, 0, None);
    journal.append(tail(0, b"abc")).await.unwrap();
    journal.give_up("it used a file".to_owned()).await.unwrap();
    let head = store.journal(&ANNA, task.id).await.unwrap().unwrap();
    assert_eq!(head.state, JournalState::Demoted { reason: "it used a file".to_owned() });
    assert!(store.journal_bytes(&ANNA, task.id).await.unwrap().is_empty());
}
