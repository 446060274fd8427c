//! Several hosts on one PostgreSQL, as clients see them whose requests land at any of them.

use std::time::Duration;

use bulkhead_store::postgres_server;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::schema::Expected;
use tests::stream::Incoming;
use tests::wait::{soon, until};

use super::cluster::{ENDLESS, desk, two};

/// The question that comes next on a stream.
async fn question(stream: &mut Incoming) -> Value {
    loop {
        let message = soon("a question", stream.next()).await.expect("the stream goes on");
        if message["method"] == "elicitation/create" {
            return message;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_of_a_plain_call_is_answered_and_a_call_is_cancelled_at_another_host() {
    let Some(server) = postgres_server::shared() else { return };
    let setup = || desk().plugin("probe", "").config("cpu_ms = 600000");
    let (one, two) = two(server, setup).await;
    let here = Client::connect(&one).await;
    let mut there = Client::new(&two.url, None);
    there.session = here.session.clone();
    let other = Client::connect(&two).await;
    for (action, said) in [("accept", "Accepted"), ("decline", "Declined")] {
        let call = json!({"name": "ask_url", "arguments": {"url": "https://example.org/consent"}});
        let mut call = here.send("tools/call", call).await;
        let asked = question(&mut call).await;
        // In another session nobody was asked this.
        other.respond(&asked, json!({"action": "cancel"})).await;
        there.respond(&asked, json!({"action": action})).await;
        let done = call.response_after(&mut Vec::new()).await;
        assert!(text(&done["result"]).contains(said), "{done}");
    }

    let busy = async || (one.cpu_ms_in(Duration::from_millis(300)).await >= 60).then_some(());
    let idle = async || (one.cpu_ms_in(Duration::from_millis(300)).await < 60).then_some(());
    let call = json!({
        "jsonrpc": "2.0", "id": "endless", "method": "tools/call",
        "params": {"name": "count_primes", "arguments": {"below": ENDLESS}}
    });
    let expected = Expected { id: json!("endless"), method: "tools/call".to_owned() };
    let calling = tokio::spawn({
        let client = here.clone_session();
        async move { client.post(call.to_string(), Some(expected)).await }
    });
    until("a guest to compute", busy).await;
    other.notify("notifications/cancelled", json!({"requestId": "endless"})).await;
    there.notify("notifications/cancelled", json!({"requestId": "endless"})).await;
    until("the guest to be stopped", idle).await;
    let mut cancelled = soon("the end of the call", calling).await.expect("it ends");
    assert!(soon("the end of its stream", cancelled.next()).await.is_none(), "what is cancelled is not answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_level_that_is_set_at_another_host_holds_for_a_call_that_runs() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, || desk().plugin("probe", "")).await;
    let here = Client::connect(&one).await;
    let mut there = Client::new(&two.url, None);
    there.session = here.session.clone();
    let call = json!({"name": "ask_url", "arguments": {"url": "https://example.org/consent"}});
    let mut asking = here.send("tools/call", call).await;
    let asked = question(&mut asking).await;
    there.call("logging/setLevel", json!({"level": "emergency"})).await.expect("it is set");
    there.respond(&asked, json!({"action": "accept"})).await;
    asking.response_after(&mut Vec::new()).await;
    let log = json!({"name": "log", "arguments": {"level": "info", "message": "a"}});
    for client in [&here, &there] {
        let (_, heard) = client.call_hearing("tools/call", log.clone()).await;
        assert_eq!(heard, Vec::<Value>::new(), "it is less severe");
    }
}

/// Every byte of what a host answers, and whether it leads anywhere.
async fn answer(client: &Client, method: &Method, last_event: Option<&str>) -> (StatusCode, String) {
    let mut request = client.request(method.clone());
    request = match *method {
        Method::POST => {
            let ping = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}).to_string();
            request
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, text/event-stream")
                .body(ping)
        }
        _ => request.header(ACCEPT, "text/event-stream"),
    };
    if let Some(last_event) = last_event {
        request = request.header("last-event-id", last_event);
    }
    let reply = soon("a reply", request.send()).await.expect("it answers");
    (reply.status(), soon("its text", reply.text()).await.expect("a text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_and_stream_that_are_not_there_read_the_same_at_each_host() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, || desk().plugin("probe", "").config("[server]\nsse_after_ms = 0")).await;
    let anna = one.setup.token("anna", "acme").await;
    let ben = one.setup.token("ben", "globex").await;
    let of_anna = Client::connect_as(&one, Some(&anna), all_capabilities()).await;
    let of_ben = Client::connect_as(&two, Some(&ben), all_capabilities()).await;
    let ended = Client::connect_as(&two, Some(&ben), all_capabilities()).await;
    assert!(soon("its end", ended.request(Method::DELETE).send()).await.expect("it answers").status().is_success());
    // A stream of another requestor, at the host that has it and at the other one.
    let call = json!({"name": "ask_url", "arguments": {"url": "https://example.org/consent"}});
    let mut asking = of_anna.send("tools/call", call).await;
    question(&mut asking).await;
    let event = asking.last_event_id.clone().expect("events have ids");

    let mut clients = Vec::new();
    for host in [&one, &two] {
        for session in [of_anna.session.as_deref(), ended.session.as_deref(), Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")]
        {
            let mut client = Client::new(&host.url, Some(&ben));
            client.session = session.map(str::to_owned);
            clients.push(client);
        }
    }
    for method in [Method::POST, Method::GET, Method::DELETE] {
        for last_event in [None, Some(event.as_str()), Some("1.1.Nw.1")] {
            let first = answer(&clients[0], &method, last_event).await;
            assert_eq!(first.0, StatusCode::NOT_FOUND, "{method}: {}", first.1);
            for client in &clients {
                assert_eq!(answer(client, &method, last_event).await, first, "{method}");
            }
        }
    }
    // In a session of its own: the stream of another requestor is as lost as one that never was.
    let (epoch, rest) = event.split_once('.').expect("an epoch");
    let (stream, rest) = rest.split_once('.').expect("a stream");
    let never = format!("{epoch}.{}.{rest}", stream.parse::<u64>().expect("a number") + 100);
    let nowhere = format!("1.{stream}.{rest}");
    let mut lost = Vec::new();
    for host in [&one, &two] {
        let mut client = Client::new(&host.url, Some(&ben));
        client.session = of_ben.session.clone();
        for last_event in [&event, &never, &nowhere] {
            lost.push(answer(&client, &Method::GET, Some(last_event)).await);
        }
    }
    assert!(lost[0].1.starts_with("data: ") && lost[0].1.contains("\"error\""), "{lost:?}");
    assert!(lost.iter().all(|answer| *answer == lost[0]), "{lost:?}");
}
