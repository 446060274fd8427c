//! Requests of a call that goes on: what only reads is sent again, the rest is in doubt.

use super::*;
use crate::journal::tests::Edited;

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
