//! Questions, sleep, signals and pause, through a real guest.

use super::*;
use bulkhead_domain::call::{ElicitationAction, InputRequestKind, InputResponse};

async fn desk() -> Option<House> {
    let plugin = sample("desk")?;
    let house = House::new();
    house.publish(plugin).await;
    Some(house)
}

async fn next(running: &mut RunningCall) -> CallEvent {
    tokio::time::timeout(Duration::from_secs(20), running.events.recv()).await.unwrap().unwrap()
}

async fn next_question(
    running: &mut RunningCall,
) -> (Vec<InputRequest>, oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>) {
    loop {
        match next(running).await {
            CallEvent::InputRequests { requests, reply, .. } => return (requests, reply),
            CallEvent::Finished(outcome) => panic!("finished: {outcome:?}"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_input_request_waits_and_resumes_with_answer() {
    let Some(house) = desk().await else { return };
    let with_forms =
        |spec: &mut CallSpec| spec.facts.features = spec.facts.features.with(ClientFeature::ElicitationForm);
    let mut running = house.start_with("book_trip", "{}", with_forms);
    let (requests, reply) = next_question(&mut running).await;
    let InputRequestKind::Form { requested_schema, .. } = &requests[0].kind else { panic!("{requests:?}") };
    assert!(requested_schema.as_str().contains("\"object\""));
    let (wall, held) = state(&running.control).wall_elapsed();
    assert!(held, "the clock stands still while the guest waits");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(state(&running.control).wall_elapsed().0, wall);
    reply.send(Ok(vec![InputResponse::Elicitation { action: ElicitationAction::Decline, content: None }])).unwrap();
    let output = finished(running).await.unwrap();
    assert!(!text(&output).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_input_request_needs_the_client_feature() {
    let Some(house) = desk().await else { return };
    let (_, outcome) = events(house.start("book_trip", "{}")).await;
    // The plugin decides what it makes of it; what matters is that no question came out.
    match outcome {
        Ok(output) => assert!(output.is_error, "{}", text(&output)),
        Err(CallError::MissingCapability(feature)) => assert_eq!(feature, ClientFeature::ElicitationForm),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_guest_sleep_is_reported_and_stops_the_clock() {
    let Some(house) = desk().await else { return };
    let mut running = house.start("wait", r#"{"ms":60000}"#);
    loop {
        match next(&mut running).await {
            CallEvent::Sleep { ms, reply } => {
                assert!((20..=60_000).contains(&ms));
                assert!(state(&running.control).wall_elapsed().1, "the clock stands still");
                let _ = reply.send(());
            }
            CallEvent::Finished(outcome) => {
                assert!(!output_of(outcome).unwrap().is_error);
                break;
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_can_observe_its_cancel() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let running = house.start("ignore_cancel", "{}");
    for _ in 0..1000 {
        if running.control.is_cooperative() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(running.control.is_cooperative());
    running.control.signal_cancel();
    assert_eq!(state(&running.control).look(), (true, false));

    let spinning = house.start("spin", "{}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!spinning.control.is_cooperative());
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_holds_a_guest_calling_the_host() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let mut running = house.start("flood_progress", r#"{"count":100000000}"#);
    next(&mut running).await;
    running.control.pause();
    // A guest that waits for room among its events comes to its pause once there is some.
    let read = || {
        while running.events.try_recv().is_ok() {}
        running.control.cpu_ms()
    };
    let cpu = settled(read).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(running.control.cpu_ms(), cpu);
    running.control.resume();
    next(&mut running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_guest_events_do_not_block_the_call() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let unread = house.start("flood_progress", r#"{"count":200000}"#);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (events, outcome) = events(unread).await;
    assert!(!outcome.unwrap().is_error);
    assert!(matches!(&events[events.len() - 2..], [.., CallEvent::Progress { .. }] | [CallEvent::Progress { .. }, _]));
}
