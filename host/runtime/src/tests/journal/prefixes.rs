//! A call goes on from every journal that a host can have kept of it, and its whole journal replays again. What only
//! reads is sent again, the rest is in doubt.

use super::plain_call::PlainCallSink;
use super::*;
use crate::journal::tests::Edited;
use bulkhead_calls::{InDoubt, JournalPolicy};

async fn go_on(plugin: &str, tool: &str, arguments: &Value, marks_min: usize) {
    let Some(place) = Place::of(plugin, |_| {}).await else { return };
    let (outcome, recorded) = place.record(tool, arguments, Levers::default()).await;
    let prefixes = Edited::of(&recorded.history).prefixes();
    assert!(prefixes.len() >= marks_min, "{} marks", prefixes.len());
    for prefix in prefixes {
        let (again, report) = place.go_on(tool, arguments, prefix.clone()).await;
        assert_eq!(report.status, JournalStatus::Ended, "{tool}");
        assert_eq!(comparable(&again), comparable(&outcome), "{tool}");
        assert!(report.history.0.starts_with(&prefix.0), "what was kept stays");
        let (replayed, second) = place.replay(tool, arguments, report.history.clone()).await;
        assert_eq!((comparable(&replayed), second), (comparable(&again), report), "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_goes_on_from_every_mark() {
    go_on("desk", "book_trip", &json!({}), 2).await;
    go_on("probe", "ask_again", &json!({"count": 3}), 3).await;
    go_on("probe", "keep", &json!({"what": "set", "key": "k", "value": "v"}), 1).await;
    go_on("desk", "wait", &json!({"ms": 150}), 0).await;
}

/// What is in the journal does not happen again, and what is not in it happens.
#[tokio::test(flavor = "multi_thread")]
async fn effects_of_a_journal_happen_once() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let (_, recorded) = place.record("ask_counted", &json!({}), Levers::default()).await;
    let prefixes = Edited::of(&recorded.history).prefixes();
    place.values.0.lock().clear();
    // The last mark is that of the value that was written: nothing of it happens again.
    let last = prefixes.last().unwrap().clone();
    let (_, report) = place.go_on("ask_counted", &json!({}), last).await;
    assert_eq!(report.status, JournalStatus::Ended);
    assert!(place.values.0.lock().is_empty(), "the write was in the journal");
    // The first one is that of the question.
    let (_, report) = place.go_on("ask_counted", &json!({}), prefixes[0].clone()).await;
    assert_eq!(report.status, JournalStatus::Ended);
    assert_eq!(place.values.0.lock().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_may_have_taken_effect_is_never_sent_again() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let post = json!({"url": "http://peer.test/post", "method": "POST", "body": "words"});
    let (outcome, recorded) = place.record("send", &post, Levers::default()).await;
    let first = format!("{outcome:?}");
    assert!(first.contains("POST /post words key ") && first.contains("for the 1. time"), "{first}");
    let prefixes = Edited::of(&recorded.history).prefixes();
    let (again, report) = place.go_on("send", &post, prefixes[0].clone()).await;
    assert_eq!(report.status, JournalStatus::Ended);
    let again = format!("{again:?}");
    assert!(again.contains("in doubt: the host stopped after this request was sent"), "{again}");
    assert_eq!(place.peer.0.lock()["POST /post"], 1);
    let (replayed, _) = place.replay("send", &post, report.history).await;
    assert_eq!(format!("{replayed:?}"), again, "the doubt is in the journal");
}

/// The peer that has done the work answers no more when the request is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn request_whose_second_sending_is_not_answered_is_in_doubt() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let post = json!({"url": "http://peer.test/once", "method": "POST", "body": "words"});
    let (_, recorded) = place.record("send", &post, Levers::default()).await;
    let history = Edited::of(&recorded.history).prefixes()[0].clone();
    let sink = Arc::new(PlainCallSink::default());
    let spent = Spent::default();
    let policy = JournalPolicy { in_doubt: InDoubt::Resend, ..JournalPolicy::default() };
    let journaling = Journaling::From { history, spent, sink, policy };
    let (again, _) = drive(place.start("send", &post, journaling), Levers::default()).await;
    assert_eq!(place.peer.0.lock()["POST /once"], 2);
    let said = format!("{again:?}");
    assert!(said.contains("in doubt: the host stopped after this request was sent"), "{said}");
    assert!(said.contains("it was sent again and not answered: HttpRequestDenied"), "{said}");
    // One that was never sent before is refused as ever.
    let (refused, _) = place.record("send", &post, Levers::default()).await;
    assert!(!format!("{refused:?}").contains("in doubt"), "{refused:?}");
    // So is its first sending where a second one would be allowed.
    let history = Edited::of(&recorded.history).beginning();
    let sink = Arc::new(PlainCallSink::default());
    let policy = JournalPolicy { in_doubt: InDoubt::Resend, ..JournalPolicy::default() };
    let journaling = Journaling::From { history, spent: Spent::default(), sink, policy };
    let (refused, _) = drive(place.start("send", &post, journaling), Levers::default()).await;
    assert!(!format!("{refused:?}").contains("in doubt"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_only_reads_is_sent_again() {
    let Some(place) = Place::of("http", |_| {}).await else { return };
    let get = json!({"url": "http://peer.test/page"});
    let (_, recorded) = place.record("http_get", &get, Levers::default()).await;
    // A host that stopped before anything was kept.
    let beginning = Edited::of(&recorded.history).beginning();
    let (again, report) = place.go_on("http_get", &get, beginning).await;
    assert_eq!(report.status, JournalStatus::Ended);
    assert!(format!("{again:?}").contains("for the 2. time"), "{again:?}");
}
