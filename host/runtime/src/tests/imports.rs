//! Each function that a guest can import, seen from outside.

use super::*;
use bulkhead_domain::call::{ElicitationAction, InputRequestKind, InputResponse};

async fn probe(change: impl FnOnce(&mut PluginSource)) -> Option<House> {
    let mut plugin = sample("probe")?;
    change(&mut plugin);
    let house = House::new();
    house.publish(plugin).await;
    Some(house)
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

fn supporting(features: &[ClientFeature]) -> impl FnOnce(&mut CallSpec) {
    let all = features.iter().fold(ClientFeatures::default(), |all, feature| all.with(*feature));
    move |spec| spec.facts.features = all
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_gets_the_facts_of_its_call() {
    let Some(house) = probe(|_| {}).await else { return };
    let running = house.start_with("facts", "{}", |spec| {
        spec.facts.task_id = Some("task-1".to_owned());
        spec.facts.attempt = 3;
        spec.facts.features =
            ClientFeatures::default().with(ClientFeature::Roots).with(ClientFeature::Tasks).with_views();
        spec.facts.log_level = Some(LogLevel::Notice);
        spec.facts.related_tasks = vec!["task-0".to_owned()];
    });
    let facts = json(finished(running).await.unwrap().structured.unwrap().as_str());
    assert_eq!(
        facts,
        serde_json::json!({
            "call_id": "01010101010101010101010101010101",
            "task_id": "task-1",
            "attempt": 3,
            "idempotency_key": "key",
            "requestor_id": "alias",
            "client_supports": ["roots", "tasks"],
            "views": r#"{"mimeTypes":["text/html;profile=mcp-app"]}"#,
            "wanted_log_level": "LogLevel::Notice",
            "related_tasks": ["task-0"],
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_settings_are_ordered_by_key() {
    let settings = BTreeMap::from([("b".to_owned(), Json::new("[1]")), ("a".to_owned(), Json::new("\"x\""))]);
    let Some(house) = probe(|plugin| plugin.config = settings).await else { return };
    let output = house.call("settings", "{}").await.unwrap();
    let seen = text(&output);
    assert!(seen.find('a').unwrap() < seen.find('b').unwrap(), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_content_kind_passes_to_the_host() {
    let Some(house) = probe(|_| {}).await else { return };
    let output = house.call("contents", "{}").await.unwrap();
    assert_eq!(output.content.len(), 5);
    assert!(
        matches!(&output.content[1].kind, ContentKind::Image { data, mime_type } if data.starts_with(b"\x89PNG") && mime_type == "image/png")
    );
    assert_eq!(output.meta[0].0, "dev.bulkhead/probe");
    assert_eq!(json(output.meta[0].1.as_str()), serde_json::json!({"nested": [1, 2.5, null]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_guest_error_keeps_its_kind() {
    let Some(house) = probe(|_| {}).await else { return };
    let fail = async |way: &str| house.call("fail", &format!("{{\"way\":\"{way}\"}}")).await;
    assert!(fail("tool").await.unwrap().is_error);
    assert_eq!(fail("invalid_params").await, Err(CallError::InvalidParams("the params are wrong".to_owned())));
    assert_eq!(fail("not_found").await, Err(CallError::NotFound("there is no such thing".to_owned())));
    assert_eq!(fail("missing_capability").await, Err(CallError::MissingCapability(ClientFeature::Sampling)));
    let custom = fail("custom").await.unwrap_err();
    assert!(matches!(custom, CallError::Custom { code: 4001, data: Some(_), .. }), "{custom:?}");
    for way in ["internal", "custom_reserved"] {
        let error = fail(way).await.unwrap_err();
        assert!(matches!(&error, CallError::Internal { incident } if incident.len() == 16), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_answers_are_returned_under_guest_keys() {
    let Some(house) = probe(|_| {}).await else { return };
    let mut running = house.start_with("ask_many", r#"{"count":3}"#, supporting(&[ClientFeature::ElicitationForm]));
    let Some(CallEvent::InputRequests { requests, reply, .. }) = running.events.recv().await else { panic!() };
    let keys: Vec<_> = requests.iter().map(|request| request.key.as_str()).collect();
    assert_eq!(keys, ["q1", "q2", "q3"]);
    let answers = (1..=3).map(|number| InputResponse::Elicitation {
        action: ElicitationAction::Accept,
        content: Some(Json::new(format!("{{\"value\":\"{number}\"}}"))),
    });
    reply.send(Ok(answers.collect())).unwrap();
    let output = finished(running).await.unwrap();
    assert!(text(&output).lines().nth(2).unwrap().contains("q3=") && text(&output).contains(r#"{"value":"3"}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_number_of_input_answers_is_an_internal_error() {
    let Some(house) = probe(|_| {}).await else { return };
    let mut running = house.start_with("ask_many", r#"{"count":2}"#, supporting(&[ClientFeature::ElicitationForm]));
    let Some(CallEvent::InputRequests { reply, .. }) = running.events.recv().await else { panic!() };
    reply.send(Ok(Vec::new())).unwrap();
    assert!(matches!(finished(running).await, Err(CallError::Internal { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_input_requests_are_not_emitted() {
    let Some(house) = probe(|_| {}).await else { return };
    for (tool, arguments) in
        [("ask_wrongly", "{}"), ("ask_many", r#"{"count":17}"#), ("ask_url", r#"{"url":"http://example.com/"}"#)]
    {
        let features = [ClientFeature::ElicitationForm, ClientFeature::ElicitationUrl];
        let mut running = house.start_with(tool, arguments, supporting(&features));
        let event = running.events.recv().await;
        assert!(matches!(event, Some(CallEvent::Finished(_))), "{tool}: {event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn url_input_request_id_is_derived_from_seed() {
    let Some(house) = probe(|_| {}).await else { return };
    let mut ids = Vec::new();
    for seed in [1, 1, 2] {
        let mut running = house.start_with("ask_url", r#"{"url":"https://example.com/"}"#, |spec| {
            supporting(&[ClientFeature::ElicitationUrl])(spec);
            spec.facts.seed = [seed; 32];
        });
        let Some(CallEvent::InputRequests { requests, .. }) = running.events.recv().await else { panic!() };
        let InputRequestKind::Url { elicitation_id, .. } = &requests[0].kind else { panic!("{requests:?}") };
        assert_eq!(elicitation_id.len(), 32);
        ids.push(elicitation_id.clone());
    }
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_is_fetched_only_when_pending() {
    let Some(house) = probe(|_| {}).await else { return };
    let mut running = house.start("steered", "{}");
    running.control.steering_pending(true);
    let mut asked = 0;
    let outcome = loop {
        match running.events.recv().await.unwrap() {
            CallEvent::Steering { reply, .. } => {
                asked += 1;
                running.control.steering_pending(false);
                reply.send(vec!["left".to_owned(), "right".to_owned()]).unwrap();
            }
            CallEvent::Sleep { reply, .. } => drop(reply.send(())),
            CallEvent::Finished(outcome) => break outcome,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((text(&output_of(outcome).unwrap()), asked), ("left\nright", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_detach_requests_promotion_once() {
    let Some(house) = probe(|_| {}).await else { return };
    let mut running = house.start("detach", r#"{"ms":1}"#);
    let Some(CallEvent::Detach { reply }) = running.events.recv().await else { panic!() };
    reply.send(Some("task-9".to_owned())).unwrap();
    assert_eq!(text(&finished(running).await.unwrap()), "waited 1 ms");

    let already = house.start_with("detach", r#"{"ms":1}"#, |spec| spec.facts.task_id = Some("task-1".to_owned()));
    let (seen, _) = events(already).await;
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_logs_below_level_are_dropped() {
    let Some(house) = probe(|_| {}).await else { return };
    for (level, expected) in [("debug", 0), ("info", 0), ("warning", 1), ("emergency", 1)] {
        let arguments = format!("{{\"level\":\"{level}\",\"message\":\"m\"}}");
        let running = house.start_with("log", &arguments, |spec| spec.facts.log_level = Some(LogLevel::Warning));
        assert_eq!(events(running).await.0.len(), expected, "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_list_change_is_emitted() {
    let Some(house) = probe(|_| {}).await else { return };
    let (seen, _) = events(house.start("change_tools", "{}")).await;
    assert!(matches!(seen.as_slice(), [CallEvent::ListsChanged(ListKind::Tools)]), "{seen:?}");
}
