//! Listen streams.

use super::*;

fn subscription(message: &Value) -> &Value {
    &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

#[tokio::test]
async fn subscription_is_acknowledged_first_with_honoured_filter() {
    let world = world();
    let client = world.tasked();
    let own = client.call("only_task").await["taskId"].clone();
    client.until(&own, "completed").await;
    let foreign = client.clone().of(BOB).call("only_task").await["taskId"].clone();
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true,
        "resourcesListChanged": true, "resourceSubscriptions": ["a:b"],
        "taskIds": [foreign, own, own, "nonsense", "0".repeat(32)]}});
    let mut stream = client.open_as(json!("sub"), "subscriptions/listen", filter).await;
    let acknowledged = stream.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true, "taskIds": [own]}));
    assert_eq!(subscription(&acknowledged), "sub");
    let current = stream.next().await;
    assert_eq!((&current["params"]["taskId"], &current["params"]["status"]), (&own, &json!("completed")));
    assert_eq!(current["params"]["result"]["content"][0]["text"], "done");
    assert!(current["params"]["resultType"].is_null());
    assert!(stream.is_silent().await);
}

#[tokio::test]
async fn subscription_id_keeps_its_type() {
    let world = world();
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut stream = world.plain().open_as(json!(12), "subscriptions/listen", filter).await;
    assert_eq!(subscription(&stream.next().await), &json!(12));
    world.change_lists();
    let changed = stream.next().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(subscription(&changed), &json!(12));
}

#[tokio::test]
async fn subscription_sends_only_filtered_notifications() {
    let world = world();
    let client = world.tasked();
    let id = client.call("only_task").await["taskId"].clone();
    let filter = json!({"notifications": {"taskIds": [id]}});
    let mut stream = client.open("subscriptions/listen", filter).await;
    stream.next().await;
    world.change_lists();
    client.call("only_task").await;
    client.until(&id, "completed").await;
    loop {
        let message = stream.next().await;
        assert_eq!(message["params"]["taskId"], id);
        if message["params"]["status"] == "completed" {
            break;
        }
    }
    assert!(stream.is_silent().await);
}

#[tokio::test]
async fn empty_subscription_stream_ends_at_once() {
    let world = world();
    for filter in [json!({}), json!({"promptsListChanged": true}), json!({"toolsListChanged": false})] {
        let mut stream = world.plain().open("subscriptions/listen", json!({"notifications": filter})).await;
        assert_eq!(stream.next().await["params"]["notifications"], json!({}));
        let (response, _) = stream.last().await;
        assert_eq!(response["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    }
}

#[tokio::test]
async fn subscription_filter_is_validated() {
    let world = world();
    for params in [
        json!({}),
        json!({"notifications": null}),
        json!({"notifications": []}),
        json!({"notifications": {"toolsListChanged": "yes"}}),
        json!({"notifications": {"taskIds": "x"}}),
    ] {
        assert_eq!(world.tasked().refusal("subscriptions/listen", params.clone()).await, (-32602, None), "{params}");
    }
    let tasks = json!({"notifications": {"taskIds": []}});
    let refused = world.plain().refusal("subscriptions/listen", tasks).await;
    assert_eq!(refused, (-32021, Some(Rejection::Unserved)));
}

#[tokio::test]
async fn subscription_shows_task_status_in_order() {
    let world = world();
    let client = world.tasked();
    let id = client.call("detaches").await["taskId"].clone();
    let mut stream = client.open("subscriptions/listen", json!({"notifications": {"taskIds": [id]}})).await;
    stream.next().await;
    let mut seen = Vec::new();
    let mut last = Value::Null;
    loop {
        let message = stream.next().await;
        assert_ne!(message, last, "nothing is said twice");
        let status = message["params"]["status"].as_str().unwrap().to_owned();
        if status == "input_required" && !seen.contains(&status) {
            let answer = json!({"taskId": id, "inputResponses": {"name": {"action": "decline"}}});
            client.result("tasks/update", answer).await;
        }
        last = message;
        let over = status == "completed";
        seen.push(status);
        if over {
            break;
        }
    }
    seen.dedup();
    let order = ["working", "input_required", "working", "completed"];
    assert!(order.ends_with(&seen.iter().map(String::as_str).collect::<Vec<_>>()), "{seen:?}");
}

#[tokio::test]
async fn paused_status_is_notified_to_capable_subscriptions_only() {
    let world = world();
    let knows = world.tasked().with_extension("dev.bulkhead/task-interaction", json!({"steer": true, "pause": true}));
    let plain = world.tasked();
    let id = plain.call("forever").await["taskId"].clone();
    let filter = json!({"notifications": {"taskIds": [id]}});
    let mut one = knows.open("subscriptions/listen", filter.clone()).await;
    let mut other = plain.open("subscriptions/listen", filter).await;
    for stream in [&mut one, &mut other] {
        stream.next().await;
        assert_eq!(stream.next().await["params"]["status"], "working");
    }
    knows.result("tasks/pause", json!({"taskId": id})).await;
    assert_eq!(one.next().await["params"]["status"], "paused");
    let seen = other.next().await;
    assert_eq!(
        (&seen["params"]["status"], &seen["params"]["statusMessage"]),
        (&json!("working"), &json!("paused by request"))
    );
}

#[tokio::test]
async fn task_end_is_notified_after_a_failed_store_read() {
    let world = world();
    let client = world.tasked();
    let id = client.call("slow").await["taskId"].clone();
    let mut stream = client.open("subscriptions/listen", json!({"notifications": {"taskIds": [id]}})).await;
    stream.next().await;
    assert_eq!(stream.next().await["params"]["status"], "working");
    client.until(&id, "completed").await;
    // The stream has not looked yet, and there is nothing after this that would make it look again.
    world.store.fail_next_reads(1);
    let last = stream.next().await;
    assert_eq!((&last["params"]["taskId"], &last["params"]["status"]), (&id, &json!("completed")));
    assert!(stream.is_silent().await);
}

#[tokio::test]
async fn lagging_subscription_gets_current_task_status() {
    let world = world();
    let client = world.tasked();
    let over = client.call("slow").await["taskId"].clone();
    let goes_on = client.call("forever").await["taskId"].clone();
    let filter = json!({"notifications": {"taskIds": [over, goes_on]}});
    let mut stream = client.open("subscriptions/listen", filter).await;
    for _ in 0..3 {
        stream.next().await;
    }
    client.until(&over, "completed").await;
    client.result("tasks/cancel", json!({"taskId": goes_on})).await;
    // More news of other tasks than are kept for a stream.
    for _ in 0..70 {
        let other = client.call("only_task").await["taskId"].clone();
        client.until(&other, "completed").await;
    }
    let mut shown = std::collections::BTreeMap::new();
    for _ in 0..2 {
        let params = stream.next().await["params"].take();
        shown.insert(params["taskId"].to_string(), params["status"].as_str().unwrap().to_owned());
    }
    let expected = [(over.to_string(), "completed".to_owned()), (goes_on.to_string(), "cancelled".to_owned())];
    assert_eq!(shown, expected.into());
    assert!(stream.is_silent().await);
}

#[tokio::test]
async fn subscription_streams_end_with_result_at_shutdown() {
    let world = world();
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut stream = world.plain().open("subscriptions/listen", filter.clone()).await;
    stream.next().await;
    world.protocol.close();
    let (response, _) = stream.last().await;
    assert_eq!(response["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    let mut late = world.plain().open("subscriptions/listen", filter).await;
    late.next().await;
    late.last().await;
}

#[tokio::test]
async fn subscription_streams_end_with_their_connection() {
    let world = world();
    let connection = Arc::<Connection>::default();
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut other = world.plain().open("subscriptions/listen", filter.clone()).await;
    other.next().await;
    let message = world.plain().message(&json!("l"), "subscriptions/listen", &filter).to_string();
    let peer = Peer { connection: Some(connection.clone()), ..Peer::unheralded(ANNA, None) };
    let Received::Exchange(exchange) = world.receive(peer, &message).await else { panic!("no exchange") };
    let mut stream = Stream { exchange, method: "subscriptions/listen", id: json!("l"), _world: &world };
    stream.next().await;
    connection.close();
    let cancelled = stream.next().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!("l"))
    );
    stream.last().await;
    assert!(other.is_silent().await);
}
