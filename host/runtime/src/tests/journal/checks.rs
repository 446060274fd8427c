//! Journals that are replayed up to their last mark and no further: nothing leaves, and what would be done otherwise is
//! noticed.

use std::sync::atomic::Ordering;

use super::outside::REACHED;
use super::*;
use crate::journal::tests::Edited;

/// Checks every journal that a host can have kept of this call, and every one of those that was changed in one entry.
async fn check(plugin: &str, tool: &str, arguments: &Value, marks_min: usize) {
    let Some(place) = Place::of(plugin, |_| {}).await else { return };
    let (outcome, recorded) = place.record(tool, arguments, Levers::default()).await;
    let (checked, report) = place.check(tool, arguments, recorded.history.clone()).await;
    assert_eq!((comparable(&checked), &report), (comparable(&outcome), &recorded), "a whole journal is one to its end");
    let sent = place.peer.0.lock().clone();

    let prefixes = Edited::of(&recorded.history).prefixes();
    assert!(prefixes.len() >= marks_min, "{} marks", prefixes.len());
    let mut noticed = 0;
    for prefix in &prefixes {
        let (stopped, report) = place.check(tool, arguments, prefix.clone()).await;
        assert_eq!((&report.status, &report.history), (&JournalStatus::Reached, prefix), "{tool}: {stopped:?}");
        for (what, changed) in Edited::of(prefix).mutations() {
            let (stopped, report) = place.check(tool, arguments, changed).await;
            match &report.status {
                JournalStatus::Diverged(_) | JournalStatus::Corrupt(_) => noticed += 1,
                // A mark says nothing that the next one does not say.
                JournalStatus::Reached => {
                    assert!(what.contains("a mark"), "{tool} {what} was not noticed: {stopped:?}")
                }
                status => panic!("{tool} {what}: {status:?}"),
            }
        }
    }
    assert!(noticed >= prefixes.len(), "{tool}: {noticed} changes noticed");
    assert_eq!(*place.peer.0.lock(), sent, "no check sends anything");
    assert_eq!(REACHED.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn checked_calls_agree_up_to_every_mark_and_do_nothing_new() {
    let post = json!({"url": "http://peer.test/post", "method": "POST", "body": "words"});
    check("probe", "send", &post, 1).await;
    check("probe", "keep", &json!({"what": "set", "key": "k", "value": "v"}), 1).await;
    check("probe", "ask_again", &json!({"count": 3}), 3).await;
    check("probe", "steps", &json!({"steps": 3, "pause_ms": 3}), 0).await;
    check("desk", "book_trip", &json!({}), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checked_journal_of_another_component_or_call_is_refused() {
    let Some(place) = Place::of("desk", |_| {}).await else { return };
    let (_, recorded) = place.record("book_trip", &json!({}), Levers::default()).await;
    let prefix = Edited::of(&recorded.history).prefixes().swap_remove(0);
    let refused = async |arguments: &Value, history: History, why: &str| {
        let (stopped, report) = place.check("book_trip", arguments, history).await;
        assert!(matches!(stopped, Err(CallError::Interrupted)), "{stopped:?}");
        assert!(matches!(report.status, JournalStatus::Diverged(_)), "{}", report.status);
        assert!(report.status.to_string().contains(why), "{}", report.status);
    };
    refused(&json!({"other": true}), prefix.clone(), "with other arguments").await;
    let mut edited = Edited::of(&prefix);
    edited.change_header(|_, component| component[0] ^= 1);
    refused(&json!({}), edited.history(), "of another component").await;
}
