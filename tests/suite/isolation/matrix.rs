//! The matrix: every method of both eras for each kind of caller, down to the headers.
//!
//! Kinds of callers: the owner, another requestor of the same tenant, one of another tenant, nobody, the owner with a
//! token that is over its time, and the owner with a token for somebody else. Kinds of ids: of the owner, never given
//! out, over its time.

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::issuer::{Issuer, Key};
use tests::modern::Modern;
use tests::wait::{soon, until};
use tests::{Host, Setup};

use super::{MODERN_ROWS, ROWS, Row};
use crate::skills::with_skill;

const RESOURCE: &str = "https://mcp.example.com/mcp";
const WISH: &str = "modelcontextprotocol.io/task";

/// Everything that comes back, but for the time of day.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Seen {
    fn of(status: u16, headers: &HeaderMap, body: String) -> Self {
        // The id of a new session is drawn, and nobody else's.
        let kept = headers.iter().filter(|(name, _)| !matches!(name.as_str(), "date" | "mcp-session-id"));
        let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut headers: Vec<_> = kept.map(|(name, value)| (name.to_string(), text(value))).collect();
        headers.sort();
        Self { status, headers, body }
    }

    async fn from(request: RequestBuilder) -> Self {
        let reply = soon("an answer", request.send()).await.expect("an answer");
        let status = reply.status().as_u16();
        let headers = reply.headers().clone();
        Self::of(status, &headers, soon("the whole answer", reply.text()).await.expect("a text"))
    }
}

/// One organisation's issuer, a host, and the tokens of everybody.
struct Stage {
    host: Host,
    _issuer: Issuer,
    owner: String,
    /// Of the owner's tenant, and of another one.
    others: [String; 2],
    /// The owner's own, over its time, and for another resource.
    refused: [String; 2],
}

async fn stage() -> Stage {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let config = format!(
        "[server]\ntools_per_page = 50\ncredential_failures_per_minute = 1000000\n[auth]\nresource = \"{RESOURCE}\"\n[[auth.issuer]]\nissuer = \"{}\"\ntenant_claim = \"org\"\n\
         tenants = [\"red\", \"blue\"]\nkeys_retry_ms = 100\n[limits]\nrequests_per_second = 100000\n\
         task_creations_per_second = 100000",
        issuer.url
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let claims = |subject: &str, tenant: &str| json!({"iss": issuer.url, "aud": RESOURCE, "sub": subject, "org": tenant, "exp": now + 3600, "client_id": "app"});
    let with = |name: &str, value: Value| {
        let mut claims = claims("alice", "red");
        claims[name] = value;
        key.token(&claims)
    };
    // Together they have more tools than a page of their list holds.
    let setup = Setup::with(&["primes", "desk", "text", "conformance", "hostile"]);
    let skilled = with_skill(&setup, "colour.wasm", "Mix them.").await;
    let host = setup.config(&format!("{config}\n[[plugin]]\nfile = {skilled:?}\n")).start().await;
    Stage {
        host,
        owner: key.token(&claims("alice", "red")),
        others: [key.token(&claims("bob", "red")), key.token(&claims("carol", "blue"))],
        refused: [with("exp", json!(now - 3600)), with("aud", json!("https://other.example.com/mcp"))],
        _issuer: issuer,
    }
}

impl Stage {
    async fn legacy(&self, token: &str) -> Client {
        Client::connect_as(&self.host, Some(token), all_capabilities()).await
    }

    fn modern(&self, token: &str) -> Modern {
        Modern::full(&self.host, Some(token))
    }
}

/// Params that each method takes; where it takes an id, this one. A new method without any fails here.
fn params(method: &str, id: &str) -> Value {
    match method {
        "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"}}),
        "logging/setLevel" => json!({"level": "error"}),
        "tools/call" => json!({"name": "echo", "arguments": {"text": "x"}}),
        "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/delete" | "tasks/pause" | "tasks/resume" => {
            json!({"taskId": id})
        }
        "tasks/steer" => json!({"taskId": id, "message": "m"}),
        "tasks/update" => json!({"taskId": id, "inputResponses": {}}),
        "resources/read" => json!({"uri": "test://static-text"}),
        "resources/subscribe" | "resources/unsubscribe" => json!({"uri": "test://watched-resource"}),
        "prompts/get" => json!({"name": "test_simple_prompt"}),
        "completion/complete" => json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            "argument": {"name": "arg1", "value": "par"}}),
        "subscriptions/listen" => json!({"notifications": {"taskIds": [id]}}),
        "ping"
        | "tools/list"
        | "tasks/list"
        | "resources/list"
        | "resources/templates/list"
        | "prompts/list"
        | "skills/list"
        | "server/discover" => json!({}),
        "skills/get" => json!({"uri": "skill://colour/mix-colours/SKILL.md"}),
        other => panic!("{other} has no row in the matrix"),
    }
}

fn legacy_post(client: &Client, method: &str, params: &Value) -> RequestBuilder {
    let request = client.request(Method::POST).header("content-type", "application/json");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    request.header("accept", "application/json, text/event-stream").body(message.to_string())
}

async fn legacy(client: &Client, method: &str, params: &Value) -> Seen {
    Seen::from(legacy_post(client, method, params)).await
}

async fn modern(client: &Modern, method: &str, params: &Value) -> Seen {
    Seen::from(client.request(method, params).body(client.message(&json!(1), method, params.clone()).to_string())).await
}

/// A task of the owner for each state, and one that is over its time.
struct Ids {
    running: String,
    done: String,
    asking: String,
    expired: String,
}

async fn ids(owner: &Client) -> Ids {
    let expired = owner.create_with("count_primes", json!({"below": 10}), json!({"ttl": 300})).await.expect("a task");
    let expired = expired["taskId"].as_str().expect("an id").to_owned();
    let done = owner.task("count_primes", json!({"below": 10})).await;
    owner.until_status(&done, "completed").await;
    let asking = owner.task("book_trip", json!({})).await;
    owner.until_status(&asking, "input_required").await;
    let running = owner.task("wait", json!({"ms": 600_000})).await;
    until("the task to expire", async || owner.about("tasks/get", &expired).await.err()).await;
    Ids { running, done, asking, expired }
}

#[tokio::test]
async fn every_method_without_valid_token_answers_the_same() {
    let stage = stage().await;
    let owner = stage.legacy(&stage.owner).await;
    let Ids { running, expired, .. } = ids(&owner).await;
    let never = "f".repeat(32);
    let [over, elsewhere] = &stage.refused;
    let mut answers = Vec::new();
    for (who, token) in [("nobody", None), ("over its time", Some(over)), ("for another", Some(elsewhere))] {
        let mut first = None;
        for id in [&running, &never, &expired] {
            for (method, _) in &ROWS {
                for session in [None, owner.session.clone()] {
                    let mut client = Client::new(&stage.host.url, token.map(String::as_str));
                    client.session = session;
                    let seen = legacy(&client, method, &params(method, id)).await;
                    assert_eq!(seen.status, 401, "{method} by {who}");
                    assert_eq!(*first.get_or_insert_with(|| seen.clone()), seen, "{method} by {who}");
                }
            }
            for (method, _) in &MODERN_ROWS {
                let client = Modern::full(&stage.host, token.map(String::as_str));
                let seen = modern(&client, method, &params(method, id)).await;
                assert_eq!(Some(seen), first, "{method} of the modern era by {who}");
            }
        }
        answers.push(first.expect("an answer"));
    }
    assert_eq!(answers[1], answers[2], "why a token is not good is not said");
    assert_eq!(owner.about("tasks/get", &running).await.expect("it is there")["status"], "working");
}

#[tokio::test]
async fn foreign_task_answers_equal_absent_ones_in_every_header() {
    let stage = stage().await;
    let owner = stage.legacy(&stage.owner).await;
    let Ids { running, done, asking, expired } = ids(&owner).await;
    let never = "f".repeat(32);
    for token in [&stage.owner, &stage.others[0], &stage.others[1]] {
        let is_owner = *token == stage.owner;
        let foreign: &[&String] = if is_owner { &[] } else { &[&running, &done, &asking] };
        let client = stage.legacy(token).await;
        let stateless = stage.modern(token);
        for (method, _) in ROWS.iter().filter(|(_, row)| matches!(row, Row::ById)) {
            let absent = legacy(&client, method, &params(method, &never)).await;
            assert!(absent.body.contains("-32602"), "{method}: {absent:?}");
            for id in foreign.iter().chain(&[&expired]) {
                assert_eq!(legacy(&client, method, &params(method, id)).await, absent, "{method} of {id}");
            }
        }
        let by_id =
            MODERN_ROWS.iter().filter(|(name, row)| matches!(row, Row::ById) || *name == "subscriptions/listen");
        for (method, _) in by_id {
            let absent = modern(&stateless, method, &params(method, &never)).await;
            for id in foreign.iter().chain(&[&expired]) {
                // A stream says which tasks it follows: none of these.
                assert_eq!(modern(&stateless, method, &params(method, id)).await, absent, "{method} of {id}");
            }
        }
    }
    for (id, status) in [(&running, "working"), (&asking, "input_required"), (&done, "completed")] {
        assert_eq!(owner.about("tasks/get", id).await.expect("untouched")["status"], status);
    }
}

/// What has no id to be stolen says the same to everybody, whatever anybody else has: there is nothing in it that is
/// somebody's.
#[tokio::test]
async fn methods_without_task_id_answer_every_requestor_the_same() {
    let stage = stage().await;
    let owner = stage.legacy(&stage.owner).await;
    ids(&owner).await;
    let others = [stage.legacy(&stage.others[0]).await, stage.legacy(&stage.others[1]).await];
    for (method, _) in ROWS.iter().filter(|(_, row)| matches!(row, Row::NoTask(_))) {
        let seen = legacy(&owner, method, &params(method, "")).await;
        assert_eq!(seen.status, 200, "{method}: {seen:?}");
        for other in &others {
            assert_eq!(
                without_cursors(legacy(other, method, &params(method, "")).await),
                without_cursors(seen.clone())
            );
        }
    }
    let owner = stage.modern(&stage.owner);
    let others = [&stage.others[0], &stage.others[1]].map(|t| stage.modern(t));
    for (method, _) in MODERN_ROWS.iter().filter(|(_, row)| matches!(row, Row::NoTask(_))) {
        let params = params(method, &"f".repeat(32));
        let seen = modern(&owner, method, &params).await;
        assert_eq!(seen.status, 200, "{method}: {seen:?}");
        for other in &others {
            assert_eq!(without_cursors(modern(other, method, &params).await), without_cursors(seen.clone()));
        }
    }
}

/// Cursors are sealed for their requestor, so they differ; they have a test of their own. Lengths differ with nothing
/// else.
fn without_cursors(mut seen: Seen) -> Seen {
    if let Ok(mut body) = serde_json::from_str::<Value>(&seen.body) {
        if let Some(result) = body["result"].as_object_mut() {
            result.remove("nextCursor");
        }
        seen.body = body.to_string();
    }
    seen
}

#[tokio::test]
async fn list_cursor_is_isolated_by_list_and_requestor() {
    let stage = stage().await;
    let owner = stage.legacy(&stage.owner).await;
    for _ in 0..51 {
        owner.task("count_primes", json!({"below": 10})).await;
    }
    let cursor = async |method: &str| {
        let page = owner.call(method, json!({})).await.expect("a page");
        page["nextCursor"].as_str().unwrap_or_else(|| panic!("{method} has one page only")).to_owned()
    };
    let cursors = [("tasks/list", cursor("tasks/list").await), ("tools/list", cursor("tools/list").await)];
    let lists = |rows: &[(&'static str, Row)]| -> Vec<&'static str> {
        rows.iter().map(|(method, _)| *method).filter(|method| method.ends_with("/list")).collect()
    };
    for token in [&stage.owner, &stage.others[0], &stage.others[1]] {
        let client = stage.legacy(token).await;
        let stateless = stage.modern(token);
        for (of, cursor) in &cursors {
            for method in lists(&ROWS) {
                let forged = legacy(&client, method, &json!({"cursor": "AAAA"})).await;
                let seen = legacy(&client, method, &json!({"cursor": cursor})).await;
                let is_its_own = *token == stage.owner && method == *of;
                assert_eq!(seen == forged, !is_its_own, "{method} with a cursor of {of}: {seen:?}");
                assert_eq!(seen.body.contains("-32602"), !is_its_own, "{method} with a cursor of {of}: {seen:?}");
            }
            for method in lists(&MODERN_ROWS) {
                let forged = modern(&stateless, method, &json!({"cursor": "AAAA"})).await;
                let seen = modern(&stateless, method, &json!({"cursor": cursor})).await;
                let is_its_own = *token == stage.owner && method == *of;
                assert_eq!(seen == forged, !is_its_own, "{method} with a cursor of {of}: {seen:?}");
            }
        }
    }
}

#[tokio::test]
async fn session_and_stream_events_are_isolated_by_requestor() {
    let stage = stage().await;
    let owner = stage.legacy(&stage.owner).await;
    let params = json!({"name": "wait", "arguments": {"ms": 300}, "_meta": {"progressToken": 1}});
    let mut reply = owner.send("tools/call", params).await;
    reply.response_after(&mut Vec::new()).await;
    let event = reply.last_event_id.clone().expect("an event id");
    // Of the same request, but of a stream that never was.
    let mut parts: Vec<&str> = event.split('.').collect();
    parts[1] = "999999";
    let event_of_nobody = parts.join(".");
    let session_of_nobody = "0".repeat(32);
    let resume = |client: &Client, event: &str| {
        client.request(Method::GET).header("accept", "text/event-stream").header("last-event-id", event)
    };
    for token in &stage.others {
        let mut client = stage.legacy(token).await;
        // In a session of its own: the event of somebody else is one that never was.
        let absent = Seen::from(resume(&client, &event_of_nobody)).await;
        assert!(!absent.body.contains("result"), "{absent:?}");
        assert_eq!(Seen::from(resume(&client, &event)).await, absent);
        // In the owner's session, and in one that nobody has: by every verb of the endpoint.
        let mut seen = Vec::new();
        for session in [session_of_nobody.clone(), owner.session.clone().expect("a session")] {
            client.session = Some(session);
            seen.push([
                Seen::from(legacy_post(&client, "ping", &json!({}))).await,
                Seen::from(client.request(Method::GET).header("accept", "text/event-stream")).await,
                Seen::from(resume(&client, &event)).await,
                Seen::from(client.request(Method::DELETE)).await,
            ]);
        }
        assert_eq!(seen[0], seen[1], "a foreign session is one that never was");
        assert_eq!(seen[0][0].status, 404);
    }
    owner.call("ping", json!({})).await.expect("the session is untouched");
    let mut resumed = owner.listen_from(Some(&event)).await;
    assert!(resumed.is_stream(), "{} {}", resumed.status, resumed.text);
    assert!(soon("the end", resumed.next()).await.is_none(), "everything was seen");
}

#[tokio::test]
async fn foreign_request_state_reads_as_forged() {
    let stage = stage().await;
    let owner = stage.modern(&stage.owner);
    let asking = [
        ("tools/call", json!({"name": "book_trip", "arguments": {}})),
        ("prompts/get", json!({"name": "test_input_required_result_prompt"})),
    ];
    let mut states = Vec::new();
    for (method, params) in &asking {
        let asked = owner.result(method, params.clone()).await;
        states.push(asked["requestState"].as_str().unwrap_or_else(|| panic!("{method}: {asked}")).to_owned());
    }
    let with = |params: &Value, state: &str| {
        let mut params = params.clone();
        params["requestState"] = json!(state);
        params["inputResponses"] = json!({});
        params
    };
    for (at, (method, params)) in asking.iter().enumerate() {
        for token in &stage.others {
            let client = stage.modern(token);
            let forged = modern(&client, method, &with(params, "AAAA")).await;
            assert!(forged.body.contains("-32602"), "{method}: {forged:?}");
            for state in &states {
                assert_eq!(modern(&client, method, &with(params, state)).await, forged, "{method}");
            }
        }
        // Nor does one open another request of its own requestor.
        let forged = modern(&owner, method, &with(params, "AAAA")).await;
        assert_eq!(modern(&owner, method, &with(params, &states[1 - at])).await, forged, "{method}");
        assert_ne!(modern(&owner, method, &with(params, &states[at])).await, forged, "{method}");
    }
}

/// Every request that can be a task of SEP-1686, under a name that somebody else has already.
#[tokio::test]
async fn sep1686_task_names_are_isolated_by_requestor() {
    let stage = stage().await;
    let owner = stage.legacy(&stage.owner).await;
    let others = [stage.legacy(&stage.others[0]).await, stage.legacy(&stage.others[1]).await];
    let plain = |method: &str| method == "initialize" || method == "tools/call";
    let wishing = ROWS.iter().filter(|(name, row)| matches!(row, Row::NoTask(_)) && !plain(name));
    for (method, _) in wishing {
        let mut wished = params(method, "");
        wished["_meta"] = json!({WISH: {"taskId": method, "keepAlive": 600_000}});
        owner.call(method, wished.clone()).await.unwrap_or_else(|failure| panic!("{method}: {failure:?}"));
        for other in &others {
            for about in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/delete"] {
                let absent = legacy(other, about, &json!({"taskId": "never"})).await;
                assert_eq!(legacy(other, about, &json!({"taskId": method})).await, absent, "{about} of {method}");
            }
            other.call(method, wished.clone()).await.expect("the name is free for everybody else");
            other.about("tasks/delete", method).await.expect("it is theirs");
        }
        owner.about("tasks/result", method).await.expect("the owner's own is still there");
    }
}
