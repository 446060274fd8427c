//! A journal of an earlier build, with the component that it was made by: what a host has kept, every later one has to
//! replay.
//!
//! The bytes in `golden` stay as they are. A build that cannot replay them any more raises the journal's `ABI` and gets
//! further ones beside them, which `golden_journal_is_made` writes into a folder that `GOLDEN` names, by the component
//! that is there. A new component's paths of dependencies are overwritten before it is kept, so that they name no
//! machine.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::outside::REACHED;
use super::*;

/// A file of the earlier build.
fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/journal/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn golden_text(name: &str) -> String {
    String::from_utf8(golden(name)).unwrap()
}

/// Every kind of entry is in the journal of this script.
fn script() -> Value {
    json!({"acts": [
        "now", {"random": {"bytes": 9}}, "progress", {"set": {"key": 1}}, {"find": {"key": 1}}, "get", "post", {"timer": {"ms": 4}}, "settle",
        {"ask": {"count": 2}}, {"sleep": {"ms": 40}}, "safe_point", "steering", "detach", {"spin": {"ms": 3}}, {"delete": {"key": 1}}, "keys",
        "post", "poll", {"allocate": {"kib": 200}}, {"float": {"rounds": 100}}, "now",
    ]})
}

fn structured(outcome: &Outcome) -> &str {
    outcome.as_ref().expect("a result").structured.as_ref().expect("structured content").as_str()
}

/// The component of the earlier build, here or elsewhere, does what its journal says.
async fn check_golden(house: House) {
    let component = source(Source::Bytes(golden("durable.wasm").into()));
    let place = Place::in_house(house, component, |_| {}).await;
    let arguments: Value = serde_json::from_str(&golden_text("arguments.json")).unwrap();
    let history = History(Bytes::from(golden("journal")));
    let (outcome, report) = place.replay("script", &arguments, history.clone()).await;
    assert_eq!((&report.status, &report.history), (&JournalStatus::Ended, &history), "{outcome:?}");
    assert_eq!(structured(&outcome), golden_text("result.json").trim_end());
    let (other, report) = place.replay("script", &json!({"acts": ["now"]}), history).await;
    assert!(matches!(other, Err(CallError::Interrupted)), "the journal is that of these arguments: {report:?}");
    assert_eq!(REACHED.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_journal_replays() {
    check_golden(House::new()).await;
}

/// A host may be brought to another machine, or get another compiler, while calls are half run.
#[tokio::test(flavor = "multi_thread")]
async fn golden_journal_replays_in_code_for_another_processor() {
    let elsewhere = House::elsewhere();
    assert_ne!(elsewhere.sandbox.engine_hash(), House::new().sandbox.engine_hash(), "it is other code");
    check_golden(elsewhere).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes what the other test reads"]
async fn golden_journal_is_made() {
    let folder = std::path::PathBuf::from(std::env::var_os("GOLDEN").expect("GOLDEN names a folder"));
    let component = folder.join("durable.wasm");
    if !component.exists() {
        let Some(built) = sample("durable") else { return };
        let Source::File(file) = &built.component else { return };
        std::fs::copy(file, &component).unwrap();
    }
    let place = Place::with(source(Source::File(component)), |_| {}).await;
    let levers = Levers { steer: Some("a message"), ..Levers::default() };
    let (outcome, recorded) = place.record("script", &script(), levers).await;
    assert_eq!(recorded.status, JournalStatus::Ended, "{outcome:?}");
    std::fs::write(folder.join("arguments.json"), script().to_string() + "\n").unwrap();
    std::fs::write(folder.join("journal"), &recorded.history.0).unwrap();
    std::fs::write(folder.join("result.json"), structured(&outcome).to_owned() + "\n").unwrap();
}
