//! Guests that do what random scripts say: each goes on from every journal that a host can have kept of it.
//!
//! `XTASK_TEST_MODE=nightly` tries twenty times as many.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::outside::REACHED;
use super::*;
use crate::journal::tests::Edited;

/// How many scripts are tried.
fn rounds(gate: u32, nightly: u32) -> u32 {
    let mode = std::env::var("XTASK_TEST_MODE").unwrap_or_default();
    if mode == "nightly" { nightly } else { gate }
}

fn act() -> impl Strategy<Value = Value> {
    let looks = prop_oneof![
        Just(json!("now")),
        (0_u16..40).prop_map(|bytes| json!({"random": {"bytes": bytes}})),
        (0_u64..6).prop_map(|ms| json!({"spin": {"ms": ms}})),
        Just(json!("steering")),
        Just(json!("safe_point")),
        (0_u8..4).prop_map(|key| json!({"find": {"key": key}})),
        Just(json!("keys")),
    ];
    let waits = prop_oneof![
        (0_u64..6).prop_map(|ms| json!({"sleep": {"ms": ms}})),
        (0_u64..6).prop_map(|ms| json!({"timer": {"ms": ms}})),
        Just(json!("get")),
        Just(json!("poll")),
        Just(json!("settle")),
    ];
    let effects = prop_oneof![
        Just(json!("post")),
        (0_u8..4).prop_map(|key| json!({"set": {"key": key}})),
        (0_u8..4).prop_map(|key| json!({"delete": {"key": key}})),
        (1_u8..3).prop_map(|count| json!({"ask": {"count": count}})),
        Just(json!("detach")),
    ];
    let computes = prop_oneof![
        Just(json!("progress")),
        (0_u16..600).prop_map(|kib| json!({"allocate": {"kib": kib}})),
        (0_u16..500).prop_map(|rounds| json!({"float": {"rounds": rounds}})),
    ];
    prop_oneof![3 => looks, 4 => waits, 4 => effects, 1 => computes]
}

/// What the guest saw before it asked the world outside for something for the so-manieth time.
fn before_command(outcome: &Outcome, number: usize) -> Vec<Value> {
    let output = outcome.as_ref().expect("a script is done to its end");
    let report: Value = serde_json::from_str(output.structured.as_ref().expect("a report").as_str()).unwrap();
    let seen = report["seen"].as_array().expect("what it saw").clone();
    let mut commands = seen.iter().enumerate().filter(|(_, seen)| seen["is_command"] == true).map(|(at, _)| at);
    let until = number.checked_sub(1).map_or(Some(0), |last| commands.nth(last)).expect("so many commands");
    seen[..until].to_vec()
}

/// A script is recorded, replayed, and brought back from each of its marks. How many there are.
async fn check(place: &Place, acts: &[Value], levers: Levers) -> usize {
    let arguments = json!({"acts": acts});
    place.values.0.lock().clear();
    let (outcome, recorded) = place.record("script", &arguments, levers).await;
    assert_eq!(recorded.status, JournalStatus::Ended, "{outcome:?}");
    let (again, replayed) = place.replay("script", &arguments, recorded.history.clone()).await;
    assert_eq!((comparable(&again), replayed), (comparable(&outcome), recorded.clone()));
    let prefixes = Edited::of(&recorded.history).prefixes();
    for (at, prefix) in prefixes.iter().enumerate() {
        // A script may end before what it sent has arrived.
        let peer = Arc::default();
        let kept = place.values.0.lock().clone();
        let (continued, report) = place.go_on_beside(&peer, "script", &arguments, prefix.clone()).await;
        assert_eq!(report.status, JournalStatus::Ended, "mark {at}: {continued:?}");
        assert!(report.history.0.starts_with(&prefix.0), "mark {at}: what was kept stays");
        let asked = Edited::of(prefix).commands();
        assert_eq!(
            before_command(&continued, asked),
            before_command(&outcome, asked),
            "mark {at}: what was seen before what was asked for is seen again"
        );
        let commands = acts.iter().filter(|act| **act == "get" || **act == "post" || act.get("ask").is_some());
        let left = commands.skip(asked).filter(|act| **act == "post").count();
        let sent = peer.posts();
        assert!(sent <= left, "mark {at}: {sent} were sent, and {left} were left to send");
        let (replayed, second) = place.replay("script", &arguments, report.history.clone()).await;
        assert_eq!((comparable(&replayed), second), (comparable(&continued), report), "mark {at}");
        *place.values.0.lock() = kept;
    }
    prefixes.len()
}

#[test]
fn random_guests_go_on_from_every_mark() {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let Some(place) = threads.block_on(Place::of("durable", |_| {})) else { return };
    let config = Config { cases: rounds(100, 2_000), failure_persistence: None, ..Config::default() };
    let script = (prop::collection::vec(act(), 1..16), any::<bool>());
    let marks = std::cell::Cell::new(0);
    let tried = TestRunner::new(config).run(&script, |(acts, is_steered)| {
        let levers = Levers { steer: is_steered.then_some("a message"), ..Levers::default() };
        marks.set(marks.get() + threads.block_on(check(&place, &acts, levers)));
        Ok(())
    });
    tried.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!("{} marks", marks.get());
    assert!(marks.get() > 0 && REACHED.load(Ordering::SeqCst) == 0);
}
