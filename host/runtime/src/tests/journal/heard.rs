//! What a client hears of a call that goes on: nothing of what it heard before, and everything from there.

use super::*;
use crate::journal::tests::Edited;

/// The statuses of a call that goes on from this journal.
async fn statuses(place: &Place, tool: &str, history: History) -> Vec<String> {
    let mut running = place.house.start_with(tool, "{}", |spec| {
        spec.journaling = Journaling::Replay(history);
        spec.facts.features = features();
        spec.facts.outside = Some(Arc::clone(&place.peer) as Arc<dyn OutsideWorld>);
        spec.facts.guest_services = Some(Arc::clone(&place.values) as Arc<dyn GuestServices>);
    });
    let mut heard = Vec::new();
    while let Some(event) = running.events.recv().await {
        match event {
            CallEvent::Status(status) => heard.push(status),
            CallEvent::InputRequests { requests, reply, .. } => {
                _ = reply.send(Ok(requests.iter().map(answer).collect()));
            }
            CallEvent::Finished(outcome) => {
                outcome.unwrap();
                break;
            }
            _ => {}
        }
    }
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn last_status_is_heard_once_the_call_goes_on() {
    let Some(place) = Place::of("probe", |_| {}).await else { return };
    let (_, recorded) = place.record("ask_counted", &json!({}), Levers::default()).await;
    let prefixes = Edited::of(&recorded.history).prefixes();
    assert_eq!(
        statuses(&place, "ask_counted", prefixes[0].clone()).await,
        ["counting"],
        "it says so after the question"
    );
    // The last mark is that of the last thing that the guest does: it ends where its journal does.
    assert_eq!(statuses(&place, "ask_counted", prefixes.last().unwrap().clone()).await, ["counting"]);
    assert!(
        statuses(&place, "ask_counted", recorded.history.clone()).await.is_empty(),
        "a call that was over says nothing"
    );
}
