//! Journals that somebody has changed: noticed, or without a difference, and nothing leaves in any case.

use std::sync::atomic::Ordering;

use super::outside::REACHED;
use super::*;
use crate::journal::tests::Edited;

/// Replays every journal that differs in one entry from that of this call.
async fn mutate(plugin: &str, tool: &str, arguments: &Value) {
    let Some(place) = Place::of(plugin, |_| {}).await else { return };
    let (outcome, recorded) = place.record(tool, arguments, Levers::default()).await;
    assert_eq!(recorded.status, JournalStatus::Ended);
    let mut noticed = 0;
    let mut same = 0;
    for (what, history) in Edited::of(&recorded.history).mutations() {
        let (again, report) = place.replay(tool, arguments, history).await;
        match (&again, &report.status) {
            (Err(CallError::Interrupted), JournalStatus::Diverged(divergence)) => {
                assert!(!divergence.recorded.is_empty() && !divergence.requested.is_empty());
                noticed += 1;
            }
            (Err(CallError::Interrupted), JournalStatus::Corrupt(_)) => noticed += 1,
            (_, JournalStatus::Ended) => {
                assert_eq!(comparable(&again), comparable(&outcome), "{tool} {what} was not noticed");
                same += 1;
            }
            (_, status) => panic!("{tool} {what}: {again:?}, {status:?}"),
        }
    }
    eprintln!("{tool}: {noticed} changes noticed, {same} without a difference");
    assert!(noticed > 0 && REACHED.load(Ordering::SeqCst) == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_journals_are_noticed() {
    let post = json!({"url": "http://peer.test/post", "method": "POST", "body": "words"});
    mutate("probe", "send", &post).await;
    mutate("probe", "steps", &json!({"steps": 3, "pause_ms": 3})).await;
    mutate("probe", "ask_counted", &json!({})).await;
    mutate("desk", "book_trip", &json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_of_other_calls_are_refused() {
    let Some(place) = Place::of("text", |_| {}).await else { return };
    let arguments = json!({"text": "words"});
    let (_, recorded) = place.record("echo", &arguments, Levers::default()).await;
    let refused = async |tool: &str, arguments: &Value, history: History, why: &str| {
        let (outcome, report) = place.replay(tool, arguments, history).await;
        assert!(matches!(outcome, Err(CallError::Interrupted)), "{outcome:?}");
        assert!(report.status.to_string().contains(why), "{}", report.status);
    };
    refused("echo", &json!({"text": "others"}), recorded.history.clone(), "with other arguments").await;
    refused("word_count", &arguments, recorded.history.clone(), "with other arguments").await;
    refused("echo", &arguments, History(recorded.history.0.slice(..9)), "the bytes are no journal").await;
    let mut edited = Edited::of(&recorded.history);
    edited.change_header(|abi, _| *abi += 1);
    refused("echo", &arguments, edited.history(), "for another version").await;
    let mut edited = Edited::of(&recorded.history);
    edited.change_header(|_, component| component[0] ^= 1);
    refused("echo", &arguments, edited.history(), "of another component").await;
}
