//! Calls that have their first turn on the thread that asks for them.

use std::time::Instant;

use bulkhead_domain::Json;
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::sandbox::may_begin_here;

/// Loops as often as it is told, and traps at minus one.
const TURNS: &str = r#"(component
    (core module $m
        (func (export "turns") (param i64) (result i64)
            (if (i64.eq (local.get 0) (i64.const -1)) (then unreachable))
            (loop $again
                (if (i64.gt_s (local.get 0) (i64.const 0))
                    (then (local.set 0 (i64.sub (local.get 0) (i64.const 1))) (br $again))))
            (local.get 0)))
    (core instance $i (instantiate $m))
    (func (export "turns") (param "x" s64) (result s64) (canon lift (core func $i "turns"))))"#;

/// Takes seconds of CPU time.
const LONG: &str = r#"{"x": "20000000000"}"#;

/// CPU time that is far beyond a turn.
const MUCH_MS: u64 = 300;

async fn house(data: &TempDir) -> House {
    let house = House::with_data(data.path());
    let mut source = source(Source::Bytes(wat::parse_str(TURNS).unwrap().into()));
    source.name = Some("turns".to_owned());
    house.publish(source).await;
    house
}

/// CPU time of this thread.
fn thread_cpu_ms() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000 + time.tv_nsec / 1_000_000) as u64
}

/// Waits until the guests' threads have nothing to do.
async fn until_idle(house: &House) {
    while house.sandbox.guest_pulse().load() != (0, 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_call_is_over_when_it_was_begun() {
    let data = TempDir::new().unwrap();
    let house = house(&data).await;
    // A machine that is busy can end a turn early.
    for _ in 0..100 {
        until_idle(&house).await;
        let mut running = house.start("turns", r#"{"x": 1}"#);
        if matches!(running.events.try_recv(), Ok(CallEvent::Finished(Ok(_)))) {
            until_idle(&house).await;
            assert_eq!(fault(house.call("turns", r#"{"x": -1}"#).await).0, FaultKind::Trap);
            return;
        }
    }
    panic!("no call was over");
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_holds_the_thread_of_its_request_for_a_turn_only() {
    let data = TempDir::new().unwrap();
    let house = house(&data).await;
    until_idle(&house).await;
    let before_ms = thread_cpu_ms();
    let looping = house.start("turns", LONG);
    let held_ms = thread_cpu_ms() - before_ms;
    assert!(held_ms < MUCH_MS / 2, "{held_ms} ms");
    // It goes on, another tenant is served beside it, and the levers work.
    while looping.control.cpu_ms() < MUCH_MS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    assert!(!house.call("turns", r#"{"x": 1}"#).await.unwrap().is_error);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    looping.control.pause();
    until_idle(&house).await;
    looping.control.resume();
    let paused_at_ms = looping.control.cpu_ms();
    while looping.control.cpu_ms() == paused_at_ms {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(looping);
    until_idle(&house).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_small_calls_that_are_no_task_begin_on_the_thread_of_their_request() {
    let data = TempDir::new().unwrap();
    let house = house(&data).await;
    let allowed = |change: fn(&mut CallSpec)| {
        let mut seen = None;
        drop(house.start_with("turns", r#"{"x": 1}"#, |spec| {
            change(spec);
            seen = Some(may_begin_here(spec));
        }));
        seen.unwrap()
    };
    assert!(allowed(|_| {}));
    assert!(!allowed(|spec| spec.facts.task_id = Some("task".to_owned())));
    assert!(!allowed(|spec| {
        let Operation::CallTool { arguments, .. } = &mut spec.operation else { return };
        *arguments = Json::new(format!("{{\"x\": \"{}\"}}", "0".repeat(20_000)));
    }));
    assert!(!allowed(|spec| spec.operation = Operation::ListResources { cursor: None }));
}
