//! What a token is good for: which tools there are, what may become a task, and how a client hears that it needs more.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::issuer::{Issuer, Key};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, command};

use super::{claims, host};

const SCOPES: &str = r#"
[[auth.scope]]
name = "text"
tools = ["echo", "word_*"]
basic = true
[[auth.scope]]
name = "primes"
tools = ["count_primes"]
includes = ["text"]
[[auth.scope]]
name = "tasks"
tasks = true
[[auth.scope]]
name = "steer"
steer = true
includes = ["tasks"]
[[auth.scope]]
name = "secret"
tools = ["diff"]
tenants = ["another"]
"#;

struct World {
    key: Key,
    issuer: Issuer,
    host: Host,
}

impl World {
    async fn new() -> Self {
        let key = Key::ed("k1");
        let issuer = Issuer::start(&[&key]).await;
        let host = host(&issuer, SCOPES).await;
        Self { key, issuer, host }
    }

    fn token(&self, scope: &str) -> String {
        let mut claims = claims(&self.issuer, "anna");
        claims["scope"] = json!(scope);
        self.key.token(&claims)
    }
}

async fn names(modern: &Modern) -> Vec<String> {
    let list = modern.result("tools/list", json!({})).await;
    let tools = list["tools"].as_array().expect("tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// Status, challenge and error of a refusal of revision 2026-07-28.
async fn refusal(modern: &Modern, method: &str, params: Value) -> (StatusCode, Option<String>, Value) {
    let request = modern.request(method, &params);
    let response = request.body(modern.message(&json!(1), method, params).to_string()).send().await.expect("an answer");
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().expect("text").to_owned());
    let status = response.status();
    let body: Value = response.json().await.expect("JSON");
    (status, challenge, body["error"].clone())
}

fn call(name: &str) -> Value {
    json!({"name": name, "arguments": {"below": 10}})
}

fn step_up(scopes: &str) -> Option<String> {
    let metadata = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
    Some(format!(
        r#"Bearer error="insufficient_scope", scope="{scopes}", resource_metadata="{metadata}", error_description="The operation needs these scopes""#
    ))
}

#[tokio::test]
async fn tool_outside_scope_is_hidden_or_challenged() {
    let world = World::new().await;
    let all = names(&Modern::plain(&world.host, Some(&world.host.setup.token("root", "acme").await))).await;
    assert!(all.iter().any(|name| name == "count_primes"), "{all:?}");
    let text = Modern::plain(&world.host, Some(&world.token("text")));
    let seen = names(&text).await;
    assert_eq!(seen, ["echo", "word_count"]);
    let list = text.result("tools/list", json!({})).await;
    assert_eq!(list["cacheScope"], "private", "what is not for everybody is kept by nobody in between");
    assert!(names(&Modern::plain(&world.host, Some(&world.token("unknown offline_access")))).await.is_empty());
    // A scope that contains another one.
    let primes = Modern::plain(&world.host, Some(&world.token("primes")));
    assert_eq!(names(&primes).await.len(), seen.len() + 1);
    primes.tool("count_primes", json!({"below": 10})).await;

    // What a further scope would open is refused with its name; what none would is absent.
    let (status, challenge, error) = refusal(&text, "tools/call", call("count_primes")).await;
    assert_eq!((status, challenge), (StatusCode::FORBIDDEN, step_up("primes")));
    assert_eq!((&error["code"], &error["data"]), (&json!(1012), &json!({"requiredScopes": ["primes"]})));
    let absent = refusal(&text, "tools/call", call("diff")).await;
    let mut never = refusal(&text, "tools/call", call("never_there")).await;
    assert_eq!(never.0, absent.0);
    let message = never.2["message"].as_str().expect("text").replace("never_there", "diff");
    never.2["message"] = json!(message);
    assert_eq!(never, absent);

    // The same for a client with a session.
    let client = Client::connect_as(&world.host, Some(&world.token("text")), all_capabilities()).await;
    let listed = client.call("tools/list", json!({})).await.expect("a list");
    assert_eq!(listed["tools"].as_array().expect("tools").len(), seen.len());
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call("count_primes")});
    let request = client.request(reqwest::Method::POST).header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream").body(body.to_string());
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(response.headers()["www-authenticate"].to_str().ok().map(str::to_owned), step_up("primes"));
    let error: Value = response.json().await.expect("JSON");
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(1012)));
    let absent = client.call("tools/call", call("diff")).await.expect_err("no such tool");
    assert_eq!((absent.code, absent.message.as_str()), (-32602, "Unknown tool: diff"));
}

#[tokio::test]
async fn scope_challenge_names_all_needed_scopes() {
    let world = World::new().await;
    let client = Client::connect_as(&world.host, Some(&world.token("text")), all_capabilities()).await;
    let mut params = call("count_primes");
    params["task"] = json!({});
    let refused = async |client: &Client, method: &str, params: &Value| {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let request = client.request(reqwest::Method::POST).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream").body(body.to_string());
        let response = request.send().await.expect("an answer");
        let challenge = response.headers().get("www-authenticate");
        challenge.map(|value| value.to_str().expect("text").to_owned())
    };
    assert_eq!(refused(&client, "tools/call", &params).await, step_up("primes tasks"));
    let steer = json!({"taskId": "0".repeat(32), "message": "on"});
    assert_eq!(refused(&client, "tasks/steer", &steer).await, step_up("steer"));
    let may = Client::connect_as(&world.host, Some(&world.token("primes steer")), all_capabilities()).await;
    let task = may.create("count_primes", json!({"below": 10})).await.expect("a task");
    // Rights are those of the token that comes with a request.
    may.call("tasks/get", json!({"taskId": task["taskId"]})).await.expect("its own task");

    let modern = Modern::full(&world.host, Some(&world.token("primes")));
    let (status, challenge, _) = refusal(&modern, "tasks/steer", steer).await;
    assert_eq!((status, challenge), (StatusCode::FORBIDDEN, step_up("steer")));
    // A task that is there is no more for a token without the right to tasks than a new one.
    let id = json!({"taskId": task["taskId"]});
    for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/delete"] {
        assert_eq!(refused(&client, method, &id).await, step_up("tasks"), "{method}");
    }
    for (method, params) in [
        ("tasks/get", id.clone()),
        ("tasks/cancel", id.clone()),
        ("tasks/update", json!({"taskId": task["taskId"], "inputResponses": {}})),
        ("subscriptions/listen", json!({"notifications": {"taskIds": [task["taskId"]]}})),
    ] {
        let (status, challenge, error) = refusal(&modern, method, params).await;
        assert_eq!((status, challenge), (StatusCode::FORBIDDEN, step_up("tasks")), "{method} {error}");
    }
    client.call("tools/list", json!({})).await.expect("what is not about tasks");
    // Without the right to have tasks a call stays a call.
    let result = modern.tool("count_primes", json!({"below": 10})).await;
    assert_ne!(result["resultType"], "task");
}

/// What may be asked for as a task, by the name of the tool.
async fn support(client: &Client) -> Vec<(String, String)> {
    let listed = client.call("tools/list", json!({})).await.expect("a list");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let tools = listed["tools"].as_array().expect("tools").iter();
    tools.map(|tool| (text(&tool["name"]), text(&tool["execution"]["taskSupport"]))).collect()
}

#[tokio::test]
async fn client_without_task_scope_sees_no_task_support() {
    const TASK: &str = "modelcontextprotocol.io/task";
    let world = World::new().await;
    let promised = async |scope: &str| {
        let token = world.token(scope);
        let client = Client::connect_as(&world.host, Some(&token), all_capabilities()).await;
        let legacy = client.server["capabilities"].clone();
        let modern = Modern::full(&world.host, Some(&token)).result("server/discover", json!({})).await;
        let mut names: Vec<String> = Vec::new();
        let members = [&legacy["experimental"], &modern["capabilities"]["extensions"]];
        names.extend(members.into_iter().filter_map(Value::as_object).flat_map(|object| object.keys().cloned()));
        names.extend(legacy.get("tasks").map(|_| "tasks".to_owned()));
        names.sort();
        (client, names)
    };
    let interaction = "dev.bulkhead/task-interaction";
    let (without, names) = promised("primes").await;
    assert_eq!(names, [""; 0]);
    let (with, names) = promised("primes tasks").await;
    assert_eq!(names, ["io.modelcontextprotocol/tasks", TASK, "tasks"]);
    let (_, names) = promised("primes steer").await;
    assert_eq!(names, [interaction, interaction, "io.modelcontextprotocol/tasks", TASK, "tasks"]);

    assert!(support(&with).await.contains(&("count_primes".to_owned(), "optional".to_owned())));
    let forbidden = support(&without).await;
    assert!(forbidden.iter().any(|(name, _)| name == "count_primes"), "{forbidden:?}");
    assert!(forbidden.iter().all(|(_, support)| support == "forbidden"), "{forbidden:?}");

    // A wish of SEP-1686 is passed over, also for a tool that takes one from others; the call is answered plainly.
    let mut wished = call("count_primes");
    wished["_meta"] = json!({TASK: {"taskId": "mine"}});
    let (result, heard) = without.call_hearing("tools/call", wished.clone()).await;
    let plain = without.call("tools/call", call("count_primes")).await;
    assert_eq!(result.expect("a result"), plain.expect("a result"));
    assert_eq!(heard, Vec::<Value>::new(), "nothing is announced");
    let (listed, heard) = without.call_hearing("tools/list", json!({"_meta": {TASK: {"taskId": "list"}}})).await;
    assert!(listed.is_ok_and(|list| list.get("_meta").is_none()) && heard.is_empty());
    // What counts is the token that comes with a request, whatever was promised to the session.
    let mut widened = without.clone_session();
    widened.set_token(&world.token("primes tasks"));
    assert_eq!(widened.tasks().await, Vec::<Value>::new(), "no task was made");
    let (_, heard) = widened.call_hearing("tools/call", wished).await;
    assert_eq!(heard[0]["method"], "notifications/tasks/created");
    assert_eq!(widened.tasks().await.len(), 1);
}

#[tokio::test]
async fn host_token_scopes_limit_tools() {
    let world = World::new().await;
    let data = world.host.setup.data();
    let arguments = ["token", "create", "--requestor", "ci", "--name", "runner", "--scope", "text"];
    let made = command::json(&arguments, &data).await;
    assert_eq!((&made["name"], &made["scopes"]), (&json!("runner"), &json!(["text"])));
    let token = made["token"].as_str().expect("a token");
    let modern = Modern::plain(&world.host, Some(token));
    assert_eq!(names(&modern).await, ["echo", "word_count"]);
    // Nobody can get it more, so there is nothing to step up to.
    let (status, challenge, error) = refusal(&modern, "tools/call", call("count_primes")).await;
    assert_eq!((challenge, &error["code"]), (None, &json!(-32602)), "{status}");

    let used = until("its use to be written", async || {
        let listed = command::json(&["token", "list"], &data).await;
        let tokens = listed["tokens"].as_array().expect("tokens").clone();
        tokens.into_iter().find(|token| token["last_used_at"].is_u64())
    })
    .await;
    assert_eq!(used["id"], made["id"]);
    // Revoked at once, while the host runs.
    command::json(&["token", "revoke", made["id"].as_str().expect("an id")], &data).await;
    let (status, ..) = refusal(&modern, "tools/list", json!({})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

/// Both eras' answer, without the names that differ.
async fn both(host: &Host, token: &str, method: &str, params: &Value) -> [String; 2] {
    let legacy = Client::connect_as(host, Some(token), all_capabilities()).await;
    let modern = Modern::plain(host, Some(token));
    [
        format!("{:?}", legacy.call(method, params.clone()).await),
        format!("{:?}", modern.call(method, params.clone()).await),
    ]
}

#[tokio::test]
async fn resources_and_prompts_outside_scope_are_hidden() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let scopes = "[[auth.scope]]\nname = \"text\"\ntools = [\"echo\"]\n[[auth.scope]]\nname = \"tool\"\n\
                  tools = [\"test_simple_text\"]\n[[auth.scope]]\nname = \"offers\"\nplugins = [\"conf*\"]\n";
    let with = super::setup(&issuer, scopes).plugin("conformance", "").start().await;
    let without = super::setup(&issuer, scopes).start().await;
    let token = |scope: &str| {
        let mut claims = claims(&issuer, "anna");
        claims["scope"] = json!(scope);
        key.token(&claims)
    };
    let all = token("text tool offers");
    let uri = "test://static-text";
    let asked = [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": uri})),
        ("resources/read", json!({"uri": "test://template/7/data"})),
        ("resources/subscribe", json!({"uri": uri})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": "test://template/{id}/data"},
            "argument": {"name": "id", "value": ""}}),
        ),
        ("server/discover", json!({})),
        ("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": [uri]}})),
    ];
    for (method, params) in &asked[..9] {
        let hidden = both(&with, &token("text"), method, params).await;
        assert_eq!(hidden, both(&without, &token("text"), method, params).await, "{method} {params}");
        if *method != "server/discover" {
            assert_ne!(hidden, both(&with, &all, method, params).await, "{method} {params}");
        }
    }
    let (method, params) = &asked[9];
    let mut hidden = Modern::plain(&with, Some(&token("text"))).send(method, params.clone()).await;
    let mut absent = Modern::plain(&without, Some(&token("text"))).send(method, params.clone()).await;
    assert_eq!(hidden.next().await, absent.next().await);
    // Whoever may call one of its tools, or whose scope names it, uses all that it offers beside.
    for scope in ["tool", "offers"] {
        let modern = Modern::plain(&with, Some(&token(scope)));
        modern.result("resources/read", json!({"uri": uri})).await;
        let legacy = Client::connect_as(&with, Some(&token(scope)), all_capabilities()).await;
        let listed = legacy.call("resources/list", json!({})).await.expect("a list");
        assert!(listed["resources"].as_array().is_some_and(|resources| !resources.is_empty()), "{scope}: {listed}");
    }
}
