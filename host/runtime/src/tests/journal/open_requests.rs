//! Requests whose bodies the guest still writes when its host ends: they were never sent, and none of them is in doubt.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::journal::tests::Edited;
use bulkhead_calls::{Fenced, InDoubt, JournalPolicy, JournalSink, Tail};

/// Keeps each entry of a journal until it is given up.
#[derive(Debug, Default)]
struct EagerSink {
    journal: Mutex<Vec<u8>>,
    is_given_up: AtomicBool,
}

#[async_trait::async_trait]
impl JournalSink for EagerSink {
    fn kept(&self) -> u64 {
        self.journal.lock().len() as u64
    }

    fn is_eager(&self) -> bool {
        true
    }

    async fn append(&self, tail: Tail) -> Result<(), Fenced> {
        self.submit(tail);
        Ok(())
    }

    fn submit(&self, tail: Tail) {
        let mut journal = self.journal.lock();
        journal.truncate(usize::try_from(tail.at).unwrap());
        journal.extend(tail.bytes);
    }

    async fn give_up(&self, _: String) -> Result<(), Fenced> {
        self.is_given_up.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn is_told_of_doubt(outcome: &Outcome) -> bool {
    assert!(outcome.is_ok(), "a script is done to its end: {outcome:?}");
    format!("{outcome:?}").contains("in doubt")
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_in_doubt_only_once_its_body_may_be_complete() {
    let Some(place) = Place::of("durable", |_| {}).await else { return };
    let arguments = json!({"acts": ["open", {"ask": {"count": 1}}, {"set": {"key": 1}}, "close", "settle"]});
    let (outcome, recorded) = place.record("script", &arguments, Levers::default()).await;
    assert_eq!((is_told_of_doubt(&outcome), place.peer.posts()), (false, 1));
    let mut went_on = Vec::new();
    for prefix in Edited::of(&recorded.history).prefixes() {
        let sent = place.peer.posts();
        let (again, report) = place.go_on("script", &arguments, prefix).await;
        assert_eq!(report.status, JournalStatus::Ended);
        went_on.push((place.peer.posts() - sent, is_told_of_doubt(&again)));
        let (replayed, second) = place.replay("script", &arguments, report.history.clone()).await;
        assert_eq!((comparable(&replayed), second), (comparable(&again), report));
    }
    // The marks of the open request, the question, the value and what was counted behind the answer. Behind the value
    // the guest ends the body before it is seen again, so the request may have left.
    assert_eq!(went_on, [(1, false), (1, false), (0, true), (0, false)]);
}

/// The host ends while the guest waits, and the grant is gone when it goes on: nothing was sent in either life.
#[tokio::test(flavor = "multi_thread")]
async fn request_whose_guest_waits_with_an_open_body_was_not_sent_before() {
    let Some(place) = Place::of("durable", |_| {}).await else { return };
    let Some(refusing) = Place::of("durable", |plugin| plugin.grants.http.clear()).await else { return };
    let arguments = json!({"acts": ["open", {"set": {"key": 1}}, "poll"]});
    let policy = JournalPolicy { in_doubt: InDoubt::Resend, ..JournalPolicy::default() };
    let first = Arc::new(EagerSink::default());
    let sink: Arc<dyn JournalSink> = Arc::clone(&first) as _;
    let waiting = place.start("script", &arguments, Journaling::To { sink, policy: policy.clone() });
    let given_up = async {
        while !first.is_given_up.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), given_up).await.expect("it waits with its body open");
    // As it was kept before it was given up.
    let history = History(first.journal.lock().clone().into());
    drop(waiting);
    assert_eq!(Edited::of(&history).commands(), 1, "what was kept tells of the request");

    let second = Arc::new(EagerSink::default());
    let sink: Arc<dyn JournalSink> = Arc::clone(&second) as _;
    let journaling = Journaling::From { history, spent: Spent::default(), sink, policy };
    let (again, _) = drive(refusing.start("script", &arguments, journaling), Levers::default()).await;
    assert!(second.is_given_up.load(Ordering::SeqCst), "it waits with its body open");
    assert!(!is_told_of_doubt(&again) && format!("{again:?}").contains("HttpRequestDenied"), "{again:?}");
    assert_eq!((place.peer.posts(), refusing.peer.posts()), (0, 0));
}
