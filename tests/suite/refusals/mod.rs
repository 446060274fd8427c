//! Every refusal of revision 2026-07-28 with its code and status.

mod eras;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tests::modern::TASKS;
use tests::{Host, Setup};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A request as it goes over the wire, to be spoiled.
#[derive(Clone)]
struct Wire {
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Wire {
    /// An honest one of a client that can be asked everything and knows no tasks.
    fn honest(method: &str, mut params: Value) -> Self {
        let name = ["name", "taskId", "uri"].into_iter().find_map(|member| params[member].as_str()).map(str::to_owned);
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        params["_meta"] = json!({VERSION: "2026-07-28", CAPABILITIES: capabilities});
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("mcp-protocol-version", "2026-07-28".to_owned()),
            ("mcp-method", method.to_owned()),
        ];
        headers.extend(name.map(|name| ("mcp-name", name)));
        Self { headers, body: json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}) }
    }

    /// One that says nothing about itself.
    fn legacy(method: &str, params: Value) -> Self {
        let mut wire = Self::honest(method, params).without("mcp-protocol-version").without("mcp-method");
        wire.body["params"].as_object_mut().expect("params").remove("_meta");
        wire
    }

    fn without(mut self, header: &str) -> Self {
        self.headers.retain(|(name, _)| *name != header);
        self
    }

    fn with(self, header: &'static str, value: &str) -> Self {
        let mut wire = self.without(header);
        wire.headers.push((header, value.to_owned()));
        wire
    }

    fn meta(mut self, key: &str, value: Value) -> Self {
        self.body["params"]["_meta"][key] = value;
        self
    }

    fn without_meta(mut self, key: &str) -> Self {
        self.body["params"]["_meta"].as_object_mut().expect("_meta").remove(key);
        self
    }

    /// Of a client that knows tasks, and how to steer and pause them.
    fn tasked(self) -> Self {
        let mut wire = self;
        wire.body["params"]["_meta"][CAPABILITIES]["extensions"] =
            json!({TASKS: {}, "dev.bulkhead/task-interaction": {"steer": true, "pause": true}});
        wire
    }

    async fn send(&self, host: &Host) -> (u16, HeaderMap, Value) {
        self.send_body(host, self.body.to_string()).await
    }

    async fn send_body(&self, host: &Host, body: String) -> (u16, HeaderMap, Value) {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = self.headers.iter().fold(client.post(&host.url), |request, (name, value)| {
            request.header(*name, reqwest::header::HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        });
        let reply = tests::wait::soon("an answer", request.body(body).send()).await.expect("an answer");
        let status = reply.status().as_u16();
        let headers = reply.headers().clone();
        let text = reply.text().await.expect("a body");
        (status, headers, serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

fn call(tool: &str, arguments: Value) -> Wire {
    Wire::honest("tools/call", json!({"name": tool, "arguments": arguments}))
}

fn listen(filter: Value) -> Wire {
    Wire::honest("subscriptions/listen", json!({"notifications": filter}))
}

async fn host() -> Host {
    Setup::with(&["conformance", "desk", "probe"]).start().await
}

/// Sends each request and holds the answer against status and code; 0: no error.
async fn refused(host: &Host, rows: Vec<(&str, Wire, u16, i64)>) {
    for (what, wire, status, code) in rows {
        let (got, headers, body) = wire.send(host).await;
        assert_eq!((got, body["error"]["code"].as_i64().unwrap_or(0)), (status, code), "{what}: {body}");
        assert_eq!(body["id"], 7, "{what}: the request's id is echoed");
        assert_eq!(headers["content-type"], "application/json", "{what}");
        if code != 0 {
            tests::schema::check_modern(&body, None);
            assert!(!body["error"]["message"].as_str().unwrap_or_default().is_empty(), "{what}");
        }
    }
}

#[tokio::test]
async fn wrong_origin_token_or_content_type_is_refused_first() {
    let setup = Setup::with(&["text"]);
    let token = setup.token("alice", "red").await;
    let host = setup.start().await;
    let honest = Wire::honest("tools/list", json!({})).with("authorization", &format!("Bearer {token}"));
    // What else is wrong with these is not even looked at.
    let nonsense = honest.clone().with("mcp-method", "other");
    for (what, wire, status) in [
        ("nothing is wrong", honest.clone(), 200),
        ("a foreign origin", nonsense.clone().with("origin", "https://evil.example"), 403),
        ("a rebound name", nonsense.clone().with("host", "evil.example"), 403),
        ("no token", nonsense.clone().without("authorization"), 401),
        ("an unknown token", nonsense.clone().with("authorization", "Bearer nobody"), 401),
        ("no credential", nonsense.clone().with("authorization", "Bearer "), 400),
        ("no JSON", honest.clone().with("content-type", "text/plain"), 415),
        ("nothing acceptable", honest.clone().with("accept", "text/html"), 406),
        ("what is wrong", nonsense, 400),
    ] {
        let (got, headers, body) = wire.send(&host).await;
        assert_eq!(got, status, "{what}: {body}");
        assert_eq!(
            headers.contains_key("www-authenticate"),
            what.contains("token") || what.contains("credential"),
            "{what}"
        );
    }
}

#[tokio::test]
async fn malformed_modern_request_is_refused_with_400() {
    let host = host().await;
    let honest = Wire::honest("tools/list", json!({}));
    for (body, code) in [
        ("{", -32700),
        ("", -32700),
        ("7", -32600),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"server/discover"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"server/discover"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"server/discover"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"server/discover"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#, -32600),
    ] {
        let (status, _, reply) = honest.send_body(&host, body.to_owned()).await;
        assert_eq!((status, &reply["error"]["code"]), (400, &json!(code)), "{body}: {reply}");
        assert!(!reply["id"].is_null() || reply.get("id").is_none(), "{body}: {reply}");
    }
    let (status, _, reply) = honest
        .send_body(
            &host,
            json!({"jsonrpc": "2.0", "method": "notifications/other", "params": honest.body["params"]}).to_string(),
        )
        .await;
    assert_eq!((status, reply), (202, Value::Null), "a notification is taken");
}

#[tokio::test]
async fn modern_requests_without_meta_or_headers_are_refused() {
    let host = host().await;
    let list = || Wire::honest("tools/list", json!({}));
    let echo = || call("test_simple_text", json!({}));
    let read = || Wire::honest("resources/read", json!({"uri": "test://static-text"}));
    let marked = || call("test_x_mcp_header", json!({"region": "eu"}));
    let mut bare = list();
    bare.body.as_object_mut().expect("a message").remove("params");
    let task = Wire::honest("tasks/get", json!({"taskId": "0".repeat(32)})).tasked();
    refused(
        &host,
        vec![
            ("no params", bare, 400, -32602),
            ("no version", list().without_meta(VERSION), 400, -32602),
            ("no capabilities", list().without_meta(CAPABILITIES), 400, -32602),
            ("a version of another kind", list().meta(VERSION, json!(1)), 400, -32602),
            ("capabilities of another kind", list().meta(CAPABILITIES, json!("all")), 400, -32602),
            ("no version beside it", list().without("mcp-protocol-version"), 400, -32020),
            ("another version beside it", list().with("mcp-protocol-version", "2025-11-25"), 400, -32020),
            ("no method beside it", list().without("mcp-method"), 400, -32020),
            ("another method beside it", list().with("mcp-method", "tools/call"), 400, -32020),
            ("a method in capitals", list().with("mcp-method", "Tools/List"), 400, -32020),
            ("no name beside it", echo().without("mcp-name"), 400, -32020),
            ("another name beside it", echo().with("mcp-name", "other"), 400, -32020),
            ("a broken name", echo().with("mcp-name", "=?base64?dGVzdA?="), 400, -32020),
            ("a name that is not ASCII", echo().with("mcp-name", "t\u{e9}st"), 400, -32020),
            ("no URI beside it", read().without("mcp-name"), 400, -32020),
            ("another URI beside it", read().with("mcp-name", "test://other"), 400, -32020),
            ("another task beside it", task.with("mcp-name", &"1".repeat(32)), 400, -32020),
            ("no argument beside it", marked(), 400, -32020),
            ("another argument beside it", marked().with("mcp-param-region", "us"), 400, -32020),
            (
                "an argument that is not there",
                call("test_x_mcp_header", json!({})).with("mcp-param-region", "eu"),
                400,
                -32020,
            ),
            ("the same argument", marked().with("mcp-param-region", " eu "), 200, 0),
            ("the same name, wrapped", echo().with("mcp-name", "=?base64?dGVzdF9zaW1wbGVfdGV4dA==?="), 200, 0),
        ],
    )
    .await;
}

#[tokio::test]
async fn steer_pause_and_resume_need_the_mcp_name_header() {
    let host = host().await;
    let task = "0".repeat(32);
    let about = |method: &str| Wire::honest(method, json!({"taskId": task, "message": "m"})).tasked();
    for method in ["tasks/steer", "tasks/pause", "tasks/resume"] {
        let rows = vec![
            ("the task's name", about(method), 200, -32602),
            ("no name", about(method).without("mcp-name"), 400, -32020),
            ("another name", about(method).with("mcp-name", &"1".repeat(32)), 400, -32020),
        ];
        refused(&host, rows).await;
    }
    // Clients in the field forget it here.
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let wire = Wire::honest(method, json!({"taskId": task, "inputResponses": {}})).tasked();
        refused(&host, vec![(method, wire.without("mcp-name"), 200, -32602)]).await;
    }
}

#[tokio::test]
async fn unknown_protocol_versions_and_methods_are_refused() {
    let host = host().await;
    let discovered = Wire::honest("server/discover", json!({})).send(&host).await.2["result"].clone();
    for version in ["1900-01-01", "2025-11-25", "2099-01-01", "DRAFT-2026-v1"] {
        let wire = Wire::honest("tools/list", json!({})).meta(VERSION, json!(version));
        let (status, _, body) = wire.with("mcp-protocol-version", version).send(&host).await;
        assert_eq!(
            (status, &body["error"]["code"], &body["id"]),
            (400, &json!(-32022), &json!(7)),
            "{version}: {body}"
        );
        let expected = json!({"supported": discovered["supportedVersions"], "requested": version});
        assert_eq!(body["error"]["data"], expected);
    }
    let gone = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
        "tasks/delete",
        "roots/list",
        "tools/remove",
        "",
    ];
    let wire = |method: &str| Wire::honest(method, json!({"taskId": "x", "uri": "test://static-text"})).tasked();
    refused(&host, gone.iter().map(|method| (*method, wire(method), 404, -32601)).collect()).await;
}

#[tokio::test]
async fn missing_client_capability_is_named() {
    let host = host().await;
    let about =
        |method: &str| Wire::honest(method, json!({"taskId": "0".repeat(32), "inputResponses": {}, "message": "m"}));
    let tasks = json!({"extensions": {TASKS: {}}});
    let interaction = |what: &str| json!({"extensions": {"dev.bulkhead/task-interaction": {what: true}}});
    let knows_tasks = |method: &str| about(method).meta(CAPABILITIES, tasks.clone());
    // The older declaration is none.
    let older = json!({"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}});
    for (what, wire, required) in [
        ("tasks/get", about("tasks/get"), tasks.clone()),
        ("tasks/update", about("tasks/update"), tasks.clone()),
        ("tasks/cancel", about("tasks/cancel"), tasks.clone()),
        ("tasks of the older kind", about("tasks/get").meta(CAPABILITIES, older), tasks.clone()),
        ("tasks/steer", knows_tasks("tasks/steer"), interaction("steer")),
        ("tasks/pause", knows_tasks("tasks/pause"), interaction("pause")),
        ("tasks/resume", knows_tasks("tasks/resume"), interaction("pause")),
        ("a stream of tasks", listen(json!({"taskIds": []})), tasks.clone()),
        ("a tool that is a task", call("failing_job", json!({})), tasks),
        (
            "a tool that samples",
            call("test_missing_capability", json!({})).meta(CAPABILITIES, json!({})),
            json!({"sampling": {}}),
        ),
    ] {
        let (status, _, body) = wire.send(&host).await;
        assert_eq!((status, &body["error"]["code"], &body["id"]), (400, &json!(-32021), &json!(7)), "{what}: {body}");
        assert_eq!(body["error"]["data"], json!({"requiredCapabilities": required}), "{what}");
    }
}

#[tokio::test]
async fn wrong_params_are_refused_with_http_status_200() {
    let host = host().await;
    let task = |method: &str| {
        Wire::honest(method, json!({"taskId": "0".repeat(32), "inputResponses": {}, "message": "m"})).tasked()
    };
    let complete = |reference: Value| {
        Wire::honest("completion/complete", json!({"ref": reference, "argument": {"name": "arg1", "value": ""}}))
    };
    let prompt = |params: Value| Wire::honest("prompts/get", params);
    let list = |method: &str| Wire::honest(method, json!({"cursor": "nonsense"}));
    let state = json!({"name": "test_input_required_result_tampered_state", "arguments": {}, "inputResponses": {},
        "requestState": "v1.forged"});
    let loud = Wire::honest("tools/list", json!({})).meta("io.modelcontextprotocol/logLevel", json!("loud"));
    let mut rows = vec![
        ("an unknown tool", call("nobody", json!({})), 200, -32602),
        ("no tool", Wire::honest("tools/call", json!({})), 200, -32602),
        ("arguments of another kind", call("greet", json!([])), 200, -32602),
        ("a forged state", Wire::honest("tools/call", state), 200, -32602),
        ("an unknown prompt", prompt(json!({"name": "nobody"})), 200, -32602),
        ("an argument is missing", prompt(json!({"name": "test_prompt_with_arguments"})), 200, -32602),
        ("an unknown resource", Wire::honest("resources/read", json!({"uri": "test://nothing"})), 200, -32602),
        ("no URI", Wire::honest("resources/read", json!({"uri": "no uri"})), 200, -32602),
        ("no resource", Wire::honest("resources/read", json!({})), 200, -32602),
        ("an unknown reference", complete(json!({"type": "ref/prompt", "name": "nobody"})), 200, -32602),
        ("no reference", complete(json!({"type": "ref/other"})), 200, -32602),
        ("an unknown level", loud, 200, -32602),
        ("no filter", Wire::honest("subscriptions/listen", json!({})), 200, -32602),
        ("a filter of another kind", listen(json!({"toolsListChanged": "yes"})), 200, -32602),
    ];
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        rows.push((method, list(method), 200, -32602));
    }
    for method in ["tasks/get", "tasks/update", "tasks/cancel", "tasks/steer", "tasks/pause", "tasks/resume"] {
        rows.push((method, task(method), 200, -32602));
        rows.push((method, Wire::honest(method, json!({})).tasked(), 200, -32602));
    }
    rows.push(("a failure of the plugin", call("fail", json!({"way": "internal"})), 200, -32603));
    rows.push(("an error of the plugin", call("fail", json!({"way": "custom"})), 200, 4001));
    rows.push(("arguments that do not fit", call("greet", json!({"name": 1})), 200, 0));
    refused(&host, rows).await;
    let (_, _, body) = Wire::honest("resources/read", json!({"uri": "test://nothing"})).send(&host).await;
    assert_eq!(body["error"]["data"], json!({"uri": "test://nothing"}));
}

#[tokio::test]
async fn limit_refusals_have_http_status_429() {
    let config = "[limits]\nrequests_per_second = 3\ncalls_running_per_requestor = 1\ntasks_running_per_requestor = 1\n\
                  call_queue_ms_max = 50\n[call]\ncpu_ms = 60000";
    let host = Setup::with(&["hostile", "text"]).config(config).start().await;
    let mut missing = vec![1010, 1011];
    let holding = async {
        loop {
            let (status, _, body) = call("spin", json!({})).send(&host).await;
            assert_eq!(status, 429, "it has no place yet, or keeps it: {body}");
        }
    };
    let asking = async {
        while !missing.is_empty() {
            let (status, headers, body) = call("echo", json!({"text": "x"})).send(&host).await;
            let Some(code) = body["error"]["code"].as_i64() else { continue };
            assert_eq!(status, 429, "{body}");
            let data = &body["error"]["data"];
            assert!(data["limit"].is_string() && data["value"].is_u64(), "{body}");
            let wait_ms = data["retryAfterMs"].as_u64().expect("a time to come back");
            assert_eq!(headers["retry-after"], wait_ms.div_ceil(1000).to_string(), "{body}");
            missing.retain(|wanted| *wanted != code);
        }
    };
    tokio::select! {
        () = holding => {}
        () = asking => {}
    }
}

#[tokio::test]
async fn first_error_in_order_is_reported() {
    let host = host().await;
    // Everything is wrong with it; each step puts one thing right, and the next one is said.
    let mut wire = Wire::honest("tasks/nonsense", json!({"taskId": 7}));
    wire.body["params"]["_meta"] = json!({});
    wire = wire.without("mcp-protocol-version").without("mcp-method").without("mcp-name");
    wire = wire.with("mcp-protocol-version", "2099-01-01");
    let mut steps = vec![("its _meta is missing", wire.clone(), 400, -32602)];
    wire = wire.meta(VERSION, json!("1900-01-01")).meta(CAPABILITIES, json!({}));
    steps.push(("headers say something else", wire.clone(), 400, -32020));
    wire = wire.with("mcp-protocol-version", "1900-01-01").with("mcp-method", "tasks/nonsense");
    steps.push(("the revision is unknown", wire.clone(), 400, -32022));
    wire = wire.meta(VERSION, json!("2026-07-28")).with("mcp-protocol-version", "2026-07-28");
    steps.push(("the method is unknown", wire.clone(), 404, -32601));
    wire.body["method"] = json!("tasks/get");
    wire = wire.with("mcp-method", "tasks/get");
    steps.push(("a capability is missing", wire.clone(), 400, -32021));
    wire = wire.tasked();
    steps.push(("its params are wrong", wire, 200, -32602));
    refused(&host, steps).await;
}
