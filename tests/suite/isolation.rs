//! Who may see what: each method for each kind of caller.
//!
//! Absent, expired and somebody else's read the same, byte for byte, so that nobody can even learn that a task exists.
//! `matrix` goes through every method; here are the states that a task can be in, and what else belongs to somebody.

mod matrix;

use bulkhead_domain::task::Era;
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, Setup};

/// How a method is proven to keep requestors apart.
enum Row {
    /// Takes a task id: everybody but the owner gets the answer for an id that never existed.
    ById,
    /// Lists tasks: everybody sees their own.
    Lists,
    /// Knows no task; the reason why nothing can leak.
    NoTask(&'static str),
}

/// Every method. The coverage test fails for one that is not in here.
const ROWS: [(&str, Row); 23] = [
    ("initialize", Row::NoTask("opens a session of the caller; sessions have a test of their own below")),
    (
        "ping",
        Row::NoTask("has neither params nor a result; what a wish of SEP-1686 makes of it is the caller's own task"),
    ),
    ("logging/setLevel", Row::NoTask("changes the caller's own session")),
    ("tools/list", Row::NoTask("is the same for everybody until plugins are granted per tenant")),
    ("tools/call", Row::NoTask("creates tasks of the caller; quotas have their own suite")),
    ("tasks/get", Row::ById),
    ("tasks/result", Row::ById),
    ("tasks/cancel", Row::ById),
    ("tasks/delete", Row::ById),
    ("tasks/list", Row::Lists),
    ("tasks/steer", Row::ById),
    ("tasks/pause", Row::ById),
    ("tasks/resume", Row::ById),
    ("resources/list", Row::NoTask("runs in the caller's own sandbox; cursors are the caller's alone")),
    ("resources/templates/list", Row::NoTask("is the same for everybody until plugins are granted per tenant")),
    ("resources/read", Row::NoTask("runs in the caller's own sandbox, under the caller's random id")),
    (
        "resources/subscribe",
        Row::NoTask(
            "changes the caller's own session; what is told is a URI that the caller named, and of calls of others only \
                     if the plugin lists it for everybody: host::protocol::tests::offers",
        ),
    ),
    ("resources/unsubscribe", Row::NoTask("changes the caller's own session")),
    ("prompts/list", Row::NoTask("is the same for everybody until plugins are granted per tenant")),
    ("prompts/get", Row::NoTask("runs in the caller's own sandbox; asks the caller alone")),
    ("completion/complete", Row::NoTask("runs in the caller's own sandbox")),
    ("skills/list", Row::NoTask("is what components carry; cursors are the caller's alone")),
    ("skills/get", Row::NoTask("is what components carry")),
];

/// The same for revision 2026-07-28.
const MODERN_ROWS: [(&str, Row); 18] = [
    ("server/discover", Row::NoTask("is the same for everybody")),
    ("tools/list", Row::NoTask("is the same for everybody until plugins are granted per tenant")),
    ("tools/call", Row::NoTask("states and keys of others have a test of their own below")),
    ("subscriptions/listen", Row::NoTask("acknowledges own tasks only; a test of its own below")),
    ("tasks/get", Row::ById),
    ("tasks/update", Row::ById),
    ("tasks/cancel", Row::ById),
    ("tasks/steer", Row::ById),
    ("tasks/pause", Row::ById),
    ("tasks/resume", Row::ById),
    ("resources/list", Row::NoTask("runs in the caller's own sandbox; cursors are the caller's alone")),
    ("resources/templates/list", Row::NoTask("is the same for everybody until plugins are granted per tenant")),
    ("resources/read", Row::NoTask("runs in the caller's own sandbox; states are sealed for the caller")),
    ("prompts/list", Row::NoTask("is the same for everybody until plugins are granted per tenant")),
    ("prompts/get", Row::NoTask("runs in the caller's own sandbox; states are sealed for the caller")),
    ("completion/complete", Row::NoTask("runs in the caller's own sandbox")),
    ("skills/list", Row::NoTask("is what components carry; cursors are the caller's alone")),
    ("skills/get", Row::NoTask("is what components carry")),
];

#[test]
fn every_method_has_an_isolation_row() {
    let legacy: Vec<_> = bulkhead_protocol::method_names(Era::Legacy).collect();
    let modern: Vec<_> = bulkhead_protocol::method_names(Era::Modern).collect();
    for (rows, mut methods) in [(&ROWS[..], legacy), (&MODERN_ROWS, modern)] {
        let mut named: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
        named.sort_unstable();
        methods.sort_unstable();
        assert_eq!(named, methods, "a method without a row is a method that nobody has looked at");
        for (name, row) in rows {
            assert!(!matches!(row, Row::NoTask("")), "{name}: say why nothing can leak");
        }
    }
}

struct Callers {
    host: Host,
    owner: Client,
    /// Of the owner's tenant.
    neighbour: Client,
    /// Of another tenant.
    stranger: Client,
}

async fn callers() -> Callers {
    let setup = Setup::with(&["primes", "desk"]);
    let owner = setup.token("alice", "red").await;
    let neighbour = setup.token("bob", "red").await;
    let stranger = setup.token("carol", "blue").await;
    let host = setup.start().await;
    let client = async |token: &str| Client::connect_as(&host, Some(token), all_capabilities()).await;
    let owner = client(&owner).await;
    let neighbour = client(&neighbour).await;
    let stranger = client(&stranger).await;
    Callers { host, owner, neighbour, stranger }
}

/// Status and body of a request about a task, with always the same request id.
async fn raw(client: &Client, method: &str, task: &str) -> (u16, String) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": task, "message": "m"}});
    let reply = client.post(body.to_string(), None).await;
    (reply.status.as_u16(), reply.text)
}

#[tokio::test]
async fn a_foreign_task_reads_as_absent() {
    let Callers { host: _host, owner, neighbour, stranger } = callers().await;
    let never = "f".repeat(32);
    let expired = expired_task(&owner).await;
    for (method, _) in ROWS.iter().filter(|(_, row)| matches!(row, Row::ById)) {
        let done = owner.task("count_primes", json!({"below": 10})).await;
        owner.until_status(&done, "completed").await;
        let running = owner.task("wait", json!({"ms": 600_000})).await;
        let asking = owner.task("book_trip", json!({})).await;
        owner.until_status(&asking, "input_required").await;

        let absent = raw(&owner, method, &never).await;
        assert!(absent.1.contains("-32602"), "{method}: {absent:?}");
        for (whose, client) in [("the owner", &owner), ("the neighbour", &neighbour), ("a stranger", &stranger)] {
            assert_eq!(raw(client, method, &never).await, absent, "{method} by {whose} of an id that never was");
            assert_eq!(raw(client, method, &expired).await, absent, "{method} by {whose} of an expired task");
        }
        for (whose, client) in [("the neighbour", &neighbour), ("a stranger", &stranger)] {
            for (what, task) in [("a done", &done), ("a running", &running), ("an asking", &asking)] {
                assert_eq!(raw(client, method, task).await, absent, "{method} by {whose} of {what} task");
            }
        }
        let (status, body) = raw(&owner, method, &done).await;
        assert_eq!(status, 200);
        assert_ne!(body, absent.1, "{method} by the owner");
        for (task, status) in [(&running, "working"), (&asking, "input_required")] {
            assert_eq!(owner.about("tasks/get", task).await.expect("untouched")["status"], status);
            owner.about("tasks/cancel", task).await.expect("the owner may");
        }
    }
}

/// Names that clients choose are easily guessed, and each belongs to its requestor alone.
#[tokio::test]
async fn foreign_task_name_reads_as_absent_in_both_eras() {
    let setup = Setup::with(&["primes"]);
    let tokens =
        [setup.token("alice", "red").await, setup.token("bob", "red").await, setup.token("carol", "blue").await];
    let host = setup.start().await;
    let named = |name: &str, keep_alive: u64| {
        json!({"name": "count_primes", "arguments": {"below": 10},
            "_meta": {"modelcontextprotocol.io/task": {"taskId": name, "keepAlive": keep_alive}}})
    };
    let owner = Client::connect_as(&host, Some(&tokens[0]), all_capabilities()).await;
    owner.call("tools/call", named("brief", 0)).await.expect("a result");
    until("the task to expire", async || owner.about("tasks/get", "brief").await.err()).await;
    owner.call("tools/call", named("nightly", 600_000)).await.expect("a result");
    // One that is no call of a tool, of the same name rules; the modern era does not know it at all.
    let pinged = json!({"_meta": {"modelcontextprotocol.io/task": {"taskId": "pinged", "keepAlive": 600_000}}});
    owner.call("ping", pinged.clone()).await.expect("a result");
    let modern = |token: &String| Modern::full(&host, Some(token));
    let raw_modern = async |token: &String, method: &str, task: &str| {
        let params = json!({"taskId": task, "inputResponses": {}, "message": "m"});
        let reply = modern(token).send(method, params).await;
        (reply.status.as_u16(), reply.text)
    };
    for (method, _) in ROWS.iter().filter(|(name, row)| matches!(row, Row::ById) && *name != "tasks/delete") {
        let absent = raw(&owner, method, "never").await;
        assert_eq!(raw(&owner, method, "brief").await, absent, "{method}");
        assert_eq!(raw(&owner, method, &"x".repeat(1000)).await, absent, "{method}");
        assert_ne!(raw(&owner, method, "nightly").await, absent, "{method}");
        for token in &tokens[1..] {
            let other = Client::connect_as(&host, Some(token), all_capabilities()).await;
            for name in ["never", "brief", "nightly", "pinged"] {
                assert_eq!(raw(&other, method, name).await, absent, "{method} of {name}");
            }
            assert_eq!(raw(&other, "tasks/delete", "nightly").await, raw(&other, "tasks/delete", "never").await);
        }
    }
    for (method, _) in MODERN_ROWS.iter().filter(|(_, row)| matches!(row, Row::ById)) {
        let absent = raw_modern(&tokens[0], method, "never").await;
        assert_eq!(raw_modern(&tokens[0], method, "brief").await, absent, "{method}");
        assert_eq!(raw_modern(&tokens[0], method, "pinged").await, absent, "{method}");
        assert_ne!(raw_modern(&tokens[0], method, "nightly").await, absent, "{method}");
        for token in &tokens[1..] {
            assert_eq!(raw_modern(token, method, "nightly").await, absent, "{method}");
        }
    }
    let stranger = Client::connect_as(&host, Some(&tokens[2]), all_capabilities()).await;
    stranger.call("tools/call", named("nightly", 600_000)).await.expect("the name is free for everybody else");
    stranger.call("ping", pinged).await.expect("so is that one");
    assert_eq!(owner.tasks().await.len(), 2);
}

async fn expired_task(client: &Client) -> String {
    let task = client.create_with("count_primes", json!({"below": 10}), json!({"ttl": 300})).await.expect("a task");
    let id = task["taskId"].as_str().expect("an id").to_owned();
    until("the task to expire", async || client.about("tasks/get", &id).await.err()).await;
    id
}

#[tokio::test]
async fn task_list_shows_only_own_tasks() {
    let Callers { host: _host, owner, neighbour, stranger } = callers().await;
    let clients = [&owner, &neighbour, &stranger];
    let mut own = Vec::new();
    for client in clients {
        own.push(client.task("count_primes", json!({"below": 10})).await);
    }
    for (client, id) in clients.iter().zip(&own) {
        let listed: Vec<Value> = client.tasks().await.into_iter().map(|task| task["taskId"].clone()).collect();
        assert_eq!(listed, [json!(id)]);
    }
}

#[tokio::test]
async fn foreign_task_list_cursor_is_refused() {
    let Callers { host: _host, owner, neighbour, .. } = callers().await;
    for _ in 0..60 {
        owner.task("count_primes", json!({"below": 10})).await;
    }
    let page = owner.call("tasks/list", json!({})).await.expect("a page");
    let cursor = page.get("nextCursor").expect("60 tasks are more than a page").clone();
    let refused = neighbour.call("tasks/list", json!({"cursor": cursor})).await.expect_err("it is not theirs");
    assert_eq!(refused.code, -32602);
    assert!(owner.call("tasks/list", json!({"cursor": cursor})).await.is_ok());
}

#[tokio::test]
async fn a_foreign_session_reads_as_absent() {
    let Callers { host: _host, owner, mut neighbour, .. } = callers().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    neighbour.session = Some("0123456789abcdef0123456789abcdef".to_owned());
    let absent = neighbour.post(body, None).await;
    neighbour.session = owner.session.clone();
    let foreign = neighbour.post(body, None).await;
    assert_eq!(absent.status.as_u16(), 404);
    assert_eq!((foreign.status, foreign.text), (absent.status, absent.text));
    let listen = neighbour.listen().await;
    assert_eq!(listen.status.as_u16(), 404);
    assert!(owner.call("ping", json!({})).await.is_ok(), "the owner's session is untouched");
}

#[tokio::test]
async fn input_answer_from_foreign_session_is_ignored() {
    let Callers { host: _host, owner, neighbour, .. } = callers().await;
    let id = owner.task("book_trip", json!({})).await;
    let mut stream = owner.send("tasks/result", json!({"taskId": id})).await;
    let asked = tests::wait::soon("a question", stream.next()).await.expect("a question");
    neighbour.respond(&asked, json!({"action": "cancel"})).await;
    assert_eq!(owner.about("tasks/get", &id).await.expect("it is there")["status"], "input_required");
}

#[tokio::test]
async fn access_without_valid_token_is_refused() {
    let setup = Setup::with(&["primes"]);
    let token = setup.token("alice", "red").await;
    let host = setup.start().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
    let mut answers = Vec::new();
    let altered = format!("{}{}", &token[..token.len() - 1], if token.ends_with('0') { '1' } else { '0' });
    for wrong in ["x", "Bearer", altered.as_str()] {
        let reply = Client::new(&host.url, Some(wrong)).post(body, None).await;
        assert_eq!(reply.status.as_u16(), 401, "{wrong:?}: {}", reply.text);
        assert!(reply.headers.contains_key("www-authenticate"), "{wrong:?}");
        answers.push(reply.text);
    }
    assert_eq!(answers[0], answers[2], "unknown tokens read the same");
    assert_eq!(Client::new(&host.url, Some("")).post(body, None).await.status.as_u16(), 400, "that is no credential");
    assert_eq!(Client::new(&host.url, None).post(body, None).await.status.as_u16(), 401, "a token is needed now");
    assert_eq!(Client::new(&host.url, Some(&token)).post(body, None).await.status.as_u16(), 200);
    let log = host.log();
    assert!(!log.contains(&token), "a token is in the log");
}

/// The three of [`callers`], of revision 2026-07-28.
async fn modern_callers() -> (Host, [Modern; 3]) {
    let setup = Setup::with(&["primes", "desk"]);
    let tokens =
        [setup.token("alice", "red").await, setup.token("bob", "red").await, setup.token("carol", "blue").await];
    let host = setup.start().await;
    let clients = tokens.map(|token| Modern::full(&host, Some(&token)));
    (host, clients)
}

#[tokio::test]
async fn a_foreign_task_reads_as_absent_in_the_modern_era() {
    let (_host, [owner, neighbour, stranger]) = modern_callers().await;
    let running = owner.task("wait", json!({"ms": 600_000})).await;
    let done = owner.task("wait", json!({"ms": 1_100})).await;
    owner.until_status(&done, "completed").await;
    let raw = async |client: &Modern, method: &str, task: &str| {
        let reply = client.send(method, json!({"taskId": task, "inputResponses": {}, "message": "m"})).await;
        (reply.status.as_u16(), reply.text)
    };
    for (method, _) in MODERN_ROWS.iter().filter(|(_, row)| matches!(row, Row::ById)) {
        let absent = raw(&owner, method, &"f".repeat(32)).await;
        assert!(absent.0 == 200 && absent.1.contains("-32602"), "{method}: {absent:?}");
        for client in [&neighbour, &stranger] {
            for task in [&running, &done] {
                assert_eq!(raw(client, method, task).await, absent, "{method}");
            }
        }
        assert_eq!(owner.until_status(&running, "working").await["taskId"], running);
    }
    for client in [&neighbour, &stranger] {
        let mut stream =
            client.send("subscriptions/listen", json!({"notifications": {"taskIds": [running, done]}})).await;
        let acknowledged = stream.next().await.expect("the acknowledgement");
        assert_eq!(acknowledged["params"]["notifications"], json!({"taskIds": []}));
        assert!(stream.next().await.expect("the end").get("result").is_some(), "there is nothing to listen for");
    }
}

#[tokio::test]
async fn foreign_request_state_and_idempotency_key_are_refused() {
    let (_host, [owner, neighbour, stranger]) = modern_callers().await;
    let asked = owner.tool("book_trip", json!({})).await;
    let keyed = |client: &Modern| client.with_meta("dev.bulkhead/idempotencyKey", json!("k"));
    let task = keyed(&owner).task("wait", json!({"ms": 600_000})).await;
    for client in [&neighbour, &stranger] {
        let stolen = json!({"name": "book_trip", "arguments": {}, "requestState": asked["requestState"],
            "inputResponses": {"journey": {"action": "decline"}}});
        assert_eq!(client.call("tools/call", stolen).await.expect_err("not theirs").code, -32602);
        let other = keyed(client).task("wait", json!({"ms": 600_000})).await;
        assert_ne!(other, task, "a key is its requestor's own");
    }
}

#[tokio::test]
async fn tenant_is_told_no_path_of_the_host() {
    let setup = Setup::with(&["hostile", "text", "bad_schema"]).config("[call]\nwall_ms = 20000");
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let modern = Modern::plain(&host, Some(&token));
    let mut said = vec![client.server.to_string()];
    let trapped = client.task("trap", json!({})).await;
    client.until_status(&trapped, "failed").await;
    for (method, params) in [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "trap", "arguments": {}})),
        ("tools/call", json!({"name": "no_such_tool", "arguments": {}})),
        ("tools/call", json!({"name": "echo", "arguments": {"wrong": 1}})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/read", json!({"uri": "file:///no/such"})),
        ("tasks/list", json!({})),
        ("tasks/get", json!({"taskId": trapped})),
        ("tasks/result", json!({"taskId": trapped})),
    ] {
        said.push(format!("{:?}", client.call(method, params.clone()).await));
        said.push(modern.send(method, params).await.text);
    }
    for path in ["/healthz", "/readyz"] {
        let answer = reqwest::get(host.address(path)).await.expect("an answer");
        said.push(answer.text().await.expect("a text"));
    }
    let listed = tests::command::json(&["plugin", "list"], &setup.data()).await.to_string();
    let components = tests::place::root().join("target/plugins");
    let data = setup.data();
    for place in [&components, &data].map(|place| place.to_str().expect("a path")) {
        assert!(said.iter().all(|text| !text.contains(place)), "{place} is in {said:#?}");
    }
    assert!(listed.contains(components.to_str().expect("a path")), "operators see where a component is: {listed}");
}
