//! What becomes of those who were let in when their token ends, and of those who try one that never was good.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::{Client, HELLO, all_capabilities};
use tests::modern::Modern;
use tests::stream::Incoming;
use tests::wait::soon;
use tests::{Host, Setup, command};

/// Much longer than it takes to notice, and much shorter than anything else would end a stream after.
const NOTICED: Duration = Duration::from_secs(15);

async fn made(host: &Host, arguments: &[&str]) -> (String, String) {
    let arguments = [&["token", "create"], arguments].concat();
    let made = command::json(&arguments, &host.setup.data()).await;
    let text = |member: &str| made[member].as_str().expect("a text").to_owned();
    (text("token"), text("id"))
}

/// Reads to the end of a stream that must end soon.
async fn ends(what: &str, stream: &mut Incoming) {
    let rest = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(NOTICED, rest).await.unwrap_or_else(|_| panic!("{what} goes on without a good token"));
}

async fn streams(host: &Host, token: &str) -> [(&'static str, Incoming); 4] {
    let client = Client::connect_as(host, Some(token), all_capabilities()).await;
    let standalone = client.listen().await;
    let call = json!({"name": "ignore_cancel", "arguments": {}});
    let legacy = client.send("tools/call", call.clone()).await;
    let modern = Modern::plain(host, Some(token));
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = modern.send("subscriptions/listen", wanted).await;
    soon("the acknowledgement", listening.next()).await.expect("an acknowledgement");
    let answer = modern.send("tools/call", call).await;
    [
        ("the GET stream", standalone),
        ("an answer of a session", legacy),
        ("the listen stream", listening),
        ("an answer without a session", answer),
    ]
}

#[tokio::test]
async fn stream_ends_when_its_token_is_revoked_or_expired() {
    let host = Setup::with(&["hostile"]).config("[server]\nsse_after_ms = 50").start().await;
    let (good, _) = made(&host, &["--requestor", "anna"]).await;
    let (revoked, id) = made(&host, &["--requestor", "anna"]).await;
    let (short, _) = made(&host, &["--requestor", "ben", "--expires", "4s"]).await;
    let since = Instant::now();
    let mut of_short = streams(&host, &short).await;
    let mut of_good = streams(&host, &good).await;
    let mut of_revoked = streams(&host, &revoked).await;
    for (what, stream) in &mut of_short {
        ends(what, stream).await;
    }
    assert!(since.elapsed() >= Duration::from_secs(3), "not before its time");
    command::json(&["token", "revoke", &id], &host.setup.data()).await;
    for (what, stream) in &mut of_revoked {
        ends(what, stream).await;
    }
    for (what, stream) in &mut of_good {
        let more = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
        assert!(more.is_err(), "{what} of the same requestor's other token: {more:?}");
    }
    let client = Client::new(&host.url, Some(&revoked));
    assert_eq!(client.send("ping", json!({})).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn subscription_ends_with_result_on_token_revocation() {
    let host = Setup::with(&["hostile"]).config("[server]\nsse_after_ms = 50").start().await;
    let (token, id) = made(&host, &["--requestor", "anna"]).await;
    let mut all = streams(&host, &token).await;
    command::json(&["token", "revoke", &id], &host.setup.data()).await;
    for (what, stream) in &mut all {
        let mut rest = Vec::new();
        let reading = async {
            while let Some(message) = stream.next().await {
                rest.push(message);
            }
        };
        tokio::time::timeout(NOTICED, reading).await.unwrap_or_else(|_| panic!("{what} goes on without a good token"));
        let results: Vec<_> = rest.iter().filter(|message| message.get("result").is_some()).collect();
        match *what {
            "the listen stream" => {
                assert_eq!((results.len(), rest.len()), (1, 1), "{rest:?}");
                let result = &results[0]["result"];
                assert_eq!(result["resultType"], "complete");
                assert_eq!(result["_meta"]["io.modelcontextprotocol/subscriptionId"], 1, "{result}");
            }
            _ => assert!(results.is_empty(), "{what}: {rest:?}"),
        }
    }
}

#[tokio::test]
async fn pending_json_answer_is_refused_after_token_revocation() {
    let host = Setup::with(&["hostile"]).start().await;
    let (token, id) = made(&host, &["--requestor", "anna"]).await;
    let modern = Modern::plain(&host, Some(&token));
    let params = json!({"name": "ignore_cancel", "arguments": {}});
    let request = modern.request("tools/call", &params).header("accept", "application/json");
    let request = request.body(modern.message(&json!(1), "tools/call", params).to_string());
    let waiting = tokio::spawn(request.send());
    tokio::time::sleep(Duration::from_millis(300)).await;
    command::json(&["token", "revoke", &id], &host.setup.data()).await;
    let answer = tokio::time::timeout(NOTICED, waiting).await.expect("an answer in time").expect("a task");
    assert_eq!(answer.expect("an answer").status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn bad_token_attempts_are_rate_limited() {
    let host = Setup::with(&["text"]).config("[server]\ncredential_failures_per_minute = 5").start().await;
    let (good, _) = made(&host, &["--requestor", "anna"]).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let send = async |token: &str| {
        let request = http.post(&host.url).header("content-type", "application/json").body(HELLO);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        soon("an answer", request.send()).await.expect("an answer")
    };
    let guess = |number: u32| format!("bh_{number:043}");
    for number in 0..5 {
        assert_eq!(send(&guess(number)).await.status(), StatusCode::UNAUTHORIZED, "{number}");
    }
    let refused = send(&guess(5)).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let seconds: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=12).contains(&seconds), "{seconds}");
    let body: Value = refused.json().await.expect("JSON");
    assert_eq!(body["error"]["code"], 1011);
    assert_eq!(body["error"]["data"]["limit"], "credential_failures_per_minute");
    // Nobody who sends a good one notices, and who sends none learns what is needed.
    for _ in 0..20 {
        assert_eq!(send(&good).await.status(), StatusCode::OK);
        assert_eq!(send("").await.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(send(&guess(6)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    }
}
