//! Calls that begin on the thread of whoever makes them.

use std::time::Instant;

use super::*;

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

const FOR_EVER: &str = r#"{"x": "9000000000000000000"}"#;

async fn house(data: &TempDir) -> House {
    let house = House::with_data(data.path());
    let mut source = source(Source::Bytes(wat::parse_str(TURNS).unwrap().into()));
    source.name = Some("turns".to_owned());
    house.publish(source).await;
    house
}

/// Calls until the tool is trusted; true if a call was over before anybody waited for it.
async fn trusted(house: &House) -> bool {
    for _ in 0..200 {
        let running = house.start("turns", r#"{"x": 1}"#);
        let here = running.stop.is_none();
        assert!(!finished(running).await.unwrap().is_error);
        if here {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn quick_tool_is_called_inline_and_keeps_its_faults() {
    let data = TempDir::new().unwrap();
    let house = house(&data).await;
    assert!(house.start("turns", r#"{"x": 1}"#).stop.is_some(), "nothing is known of it yet");
    assert!(trusted(&house).await);
    assert_eq!(fault(house.call("turns", r#"{"x": -1}"#).await).0, FaultKind::Trap);
    assert!(trusted(&house).await, "a trap takes no time");
}

/// The thread comes back at the guest's first tick, the guest goes on elsewhere, and the next call begins there at once.
#[tokio::test]
async fn slow_inline_call_moves_to_guest_threads() {
    let data = TempDir::new().unwrap();
    let house = house(&data).await;
    assert!(trusted(&house).await);
    let mut running = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        running.push(house.start("turns", FOR_EVER));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    assert!(running.iter().all(|call| call.stop.is_some()), "they go on among the guests");
    let first = running.remove(0);
    first.control.pause();
    let stands = settled(|| first.control.cpu_ms()).await;
    assert_eq!(first.control.cpu_ms(), stands);
    drop((first, running));
    assert!(trusted(&house).await, "trust can be earned again");
}
