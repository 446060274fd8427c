//! SEP-1686 for requests that are no call of a tool: those that reach a guest, and those that the host answers itself.

use super::*;
use bulkhead_domain::rights::{Rights, ScopeBook, ScopeRule};

const TASK: &str = "modelcontextprotocol.io/task";

fn related(id: &str) -> Value {
    json!({"modelcontextprotocol.io/related-task": {"taskId": id}})
}

/// The params as a task under this id.
fn wished(mut params: Value, id: &str) -> Value {
    params["_meta"] = json!({TASK: {"taskId": id, "keepAlive": 5_000}, "progressToken": "p"});
    params
}

impl Client<'_> {
    /// Asks for a task up to its announcement.
    async fn augmented(&self, method: &'static str, params: Value, id: &str) -> Talk {
        let mut talk = self.open(40, method, wished(params, id)).await;
        let created = talk.next().await;
        assert_eq!(created["method"], "notifications/tasks/created", "{created}");
        assert_eq!(created["params"], json!({"_meta": related(id)}));
        talk
    }

    /// The result of a request that was a task, which has to be what the task has.
    async fn kept(&self, method: &'static str, params: Value, id: &str) -> Value {
        let mut talk = self.augmented(method, params, id).await;
        let response = talk.next().await;
        assert!(talk.exchange.next().await.is_none());
        let task = self.result("tasks/get", json!({"taskId": id})).await;
        assert_eq!((&task["status"], &task["keepAlive"]), (&json!("completed"), &json!(5_000)), "{task}");
        assert_eq!(self.result("tasks/result", json!({"taskId": id})).await, response["result"], "{method}");
        response["result"].clone()
    }

    async fn used(&self, method: &'static str, params: Value, id: &str) {
        let message = "This taskId was used for another request; choose another one for another request";
        let refused = json!({"code": -32602, "message": message});
        assert_eq!(self.error(method, wished(params, id)).await, refused, "{method}");
    }
}

/// Each request that reaches a guest, with the members that its result must have.
fn of_guests() -> [(&'static str, Value, &'static str); 4] {
    let completion = json!({"ref": {"type": "ref/prompt", "name": "x_plain"},
        "argument": {"name": "free", "value": "v"}, "context": {"arguments": {"needed": "n"}}});
    [
        ("resources/read", json!({"uri": "a://0"}), "contents"),
        // Two plugins are asked, and the second one has it.
        ("resources/read", json!({"uri": "b://0"}), "contents"),
        ("prompts/get", json!({"name": "x_plain", "arguments": {"needed": "n"}}), "messages"),
        ("completion/complete", completion, "completion"),
    ]
}

/// Each request that the host answers itself.
fn of_the_host() -> [(&'static str, Value); 11] {
    [
        ("ping", json!({})),
        ("logging/setLevel", json!({"level": "error"})),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/subscribe", json!({"uri": "a://0"})),
        ("resources/unsubscribe", json!({"uri": "a://0"})),
        ("prompts/list", json!({})),
        ("prompts/list", json!({"more": 1})),
        ("skills/list", json!({})),
        ("skills/get", json!({"uri": "skill://first/review/SKILL.md"})),
    ]
}

#[tokio::test]
async fn task_augmented_plugin_request_keeps_its_result() {
    for version in ["2025-11-25", "2025-06-18"] {
        let world = world_nowhere();
        let anna = world.client(ANNA, version, json!({})).await;
        for (number, (method, params, member)) in of_guests().into_iter().enumerate() {
            let plain = anna.result(method, params.clone()).await;
            let id = format!("t{number}");
            let mut kept = anna.kept(method, params, &id).await;
            assert!(!kept[member].is_null());
            let mut named = related(&id);
            if version == "2025-11-25" {
                named["io.modelcontextprotocol/related-task"] = json!({"taskId": id});
            }
            assert_eq!(kept.as_object_mut().unwrap().remove("_meta"), Some(named));
            assert_eq!(kept, plain);
        }
        let listed = anna.result("tasks/list", json!({})).await;
        assert_eq!(listed["tasks"].as_array().unwrap().len(), 4);
    }
}

#[tokio::test]
async fn repeated_task_augmented_request_finds_its_task() {
    let world = world_nowhere();
    let anna = world.anna().await;
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    let all = || of_guests().map(|(method, params, _)| (method, params)).into_iter().chain(of_the_host());
    for (number, (method, params)) in all().enumerate() {
        let id = format!("t{number}");
        let first = anna.kept(method, params.clone(), &id).await;
        let again = world.anna().await;
        assert_eq!(again.kept(method, params.clone(), &id).await, first);
        for (other, others) in all().filter(|(other, others)| (other, others) != (&method, &params)) {
            anna.used(other, others, &id).await;
        }
        bob.kept(method, params, &id).await;
    }
    let listed = anna.result("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), all().count());
}

#[tokio::test]
async fn task_augmented_request_runs_until_cancelled() {
    let world = world_nowhere();
    let anna = world.anna().await;
    let mut talk = anna.augmented("resources/read", json!({"uri": "a://slow"}), "slow").await;
    let progress = talk.next().await;
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["_meta"]), (&json!("p"), &related("slow")));
    let task = anna.result("tasks/get", json!({"taskId": "slow"})).await;
    assert_eq!(task["status"], "working");
    let early = anna.error("tasks/result", json!({"taskId": "slow"})).await;
    assert_eq!(early["message"], "Cannot retrieve result: Task status is 'working', not 'completed'");
    assert_eq!(anna.error("tasks/delete", json!({"taskId": "slow"})).await["code"], -32602);
    anna.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 40}})).await;
    assert!(talk.exchange.next().await.is_none());
    anna.until("slow", "cancelled").await;
    assert_eq!(anna.result("tasks/delete", json!({"taskId": "slow"})).await, json!({"_meta": related("slow")}));
    assert_eq!(anna.error("tasks/get", json!({"taskId": "slow"})).await["message"], "Task not found");
}

#[tokio::test]
async fn task_augmented_request_can_be_queued_and_ask() {
    let world = world_nowhere();
    let anna = world.anna().await;
    let mut running = Vec::new();
    for number in 0..8 {
        let params = wished(json!({"uri": "a://slow"}), &format!("r{number}"));
        let mut talk = anna.open(50 + number, "resources/read", params).await;
        assert_eq!(talk.next().await["method"], "notifications/tasks/created");
        running.push(talk);
    }
    let mut answers = Transcript::default();
    let mut asking = anna.augmented("prompts/get", json!({"name": "x_asking"}), "asks").await;
    answers.note("queued", &anna.result("tasks/get", json!({"taskId": "asks"})).await);
    anna.result("tasks/cancel", json!({"taskId": "r0"})).await;
    let question = asking.next_of("roots/list").await;
    answers.note("question", &question["params"]);
    answers.note("asks", &anna.result("tasks/get", json!({"taskId": "asks"})).await);
    world.clock.advance(100_000);
    anna.answer(&question, json!({"roots": [{"uri": "file:///home"}]})).await;
    answers.note("response", &asking.next().await);
    world.clock.advance(4_999);
    answers.note("completed", &anna.result("tasks/get", json!({"taskId": "asks"})).await);
    world.clock.advance(1);
    answers.note("expired", &anna.error("tasks/result", json!({"taskId": "asks"})).await);
    answers.expect(&expect![[r#"
        queued: {"taskId":"asks","status":"working","statusMessage":"queued","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":null,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"dev.bulkhead/sep-1686-status":"submitted","modelcontextprotocol.io/related-task":{"taskId":"asks"}}}
        question: {"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"asks"}}}
        asks: {"taskId":"asks","status":"input_required","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":null,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"modelcontextprotocol.io/related-task":{"taskId":"asks"}}}
        response: {"jsonrpc":"2.0","id":40,"result":{"messages":[{"role":"assistant","content":{"type":"text","text":"file:///home"}}],"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"asks"},"io.modelcontextprotocol/related-task":{"taskId":"asks"}}}}
        completed: {"taskId":"asks","status":"completed","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:05:19.007Z","ttl":105000,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"modelcontextprotocol.io/related-task":{"taskId":"asks"}}}
        expired: {"code":-32602,"message":"Task not found"}
    "#]]);
}

#[tokio::test]
async fn task_augmented_read_of_unknown_resource_fails_its_task() {
    let world = world_nowhere();
    let anna = world.anna().await;
    let mut answers = Transcript::default();
    for time in ["first", "second"] {
        let mut talk = anna.augmented("resources/read", json!({"uri": "c://0"}), "none").await;
        answers.note(time, &talk.next().await);
    }
    answers.note("task", &anna.result("tasks/get", json!({"taskId": "none"})).await);
    answers.note("result", &anna.error("tasks/result", json!({"taskId": "none"})).await);
    answers.expect(&expect![[r#"
        first, second: {"jsonrpc":"2.0","id":40,"error":{"code":-32002,"message":"Resource not found","data":{"uri":"c://0"}}}
        task: {"taskId":"none","status":"failed","statusMessage":"no","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":5000,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","error":"no","_meta":{"modelcontextprotocol.io/related-task":{"taskId":"none"}}}
        result: {"code":-32602,"message":"Cannot retrieve result: Task status is 'failed', not 'completed'"}
    "#]]);
    // With a plugin that breaks: it may have had it.
    let world = world_offering();
    let anna = world.anna().await;
    let mut talk = anna.augmented("resources/read", json!({"uri": "c://0"}), "broken").await;
    assert_eq!(talk.next().await["error"]["data"]["incident"], "77");
}

#[tokio::test]
async fn refused_task_augmented_request_creates_no_task() {
    let world = world_offering();
    let anna = world.anna().await;
    for (method, params) in [
        ("resources/read", json!({"uri": "no uri"})),
        ("prompts/get", json!({"name": "never"})),
        ("prompts/get", json!({"name": "x_plain"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "never"}})),
        ("logging/setLevel", json!({"level": "loud"})),
        ("tools/list", json!({"cursor": "x"})),
        ("resources/subscribe", json!({"uri": "a:// "})),
    ] {
        let plain = anna.error(method, params.clone()).await;
        assert_eq!(anna.error(method, wished(params, "t")).await, plain, "{method}");
    }
    for method in ["ping", "tools/list", "resources/read", "prompts/list"] {
        let error = anna.error(method, json!({"uri": "a://0", "_meta": {TASK: {"taskId": ""}}})).await;
        assert_eq!(error["code"], -32602, "{method}");
    }
    assert_eq!(anna.result("tasks/list", json!({})).await, json!({"tasks": []}));
}

#[tokio::test]
async fn repeated_task_augmented_request_acts_on_its_own_session() {
    let world = world_nowhere();
    let one = world.anna().await;
    let other = world.anna().await;
    for client in [&one, &other] {
        client.kept("resources/subscribe", json!({"uri": "a://0"}), "follow").await;
        client.kept("logging/setLevel", json!({"level": "error"}), "level").await;
    }
    let mut streams = [one.standalone(), other.standalone()];
    for stream in &mut streams {
        assert!(stream.is_silent().await);
    }
    one.result("resources/read", json!({"uri": "a://0"})).await;
    for stream in &mut streams {
        assert_eq!(stream.next().await["params"]["uri"], "a://0");
    }
    // What belongs to another request is left alone: the level is still that.
    one.used("logging/setLevel", json!({"level": "debug"}), "follow").await;
    assert_eq!(one.session.log_level(), bulkhead_domain::call::LogLevel::Error);
}

#[tokio::test]
async fn task_methods_ignore_task_augmentation() {
    let world = world_nowhere();
    let anna = world.anna().await;
    anna.kept("ping", json!({}), "p").await;
    for method in ["tasks/get", "tasks/result", "tasks/list"] {
        let plain = anna.result(method, json!({"taskId": "p"})).await;
        assert_eq!(anna.result(method, wished(json!({"taskId": "p"}), "q")).await, plain, "{method}");
    }
    let hello = wished(
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        "h",
    );
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).to_string();
    let received = world.receive(Peer::unheralded(ANNA, None), &message).await;
    assert!(matches!(received, Received::Opened { .. }));
    assert_eq!(anna.result("tasks/list", json!({})).await["tasks"].as_array().unwrap().len(), 1);
}

/// Tasks of the extension are calls of tools: to its clients anything else is not there.
#[tokio::test]
async fn task_augmented_requests_are_absent_in_modern_era() {
    let world = world_nowhere();
    let anna = world.anna().await;
    anna.kept("resources/read", json!({"uri": "a://0"}), "read").await;
    anna.kept("ping", json!({}), "pinged").await;
    let modern = world.tasked();
    for (method, params) in
        [("tasks/get", json!({})), ("tasks/cancel", json!({})), ("tasks/update", json!({"inputResponses": {}}))]
    {
        let about = |id: &str| {
            let mut params = params.clone();
            params["taskId"] = json!(id);
            params
        };
        let absent = modern.ask(method, about("never")).await;
        for id in ["read", "pinged"] {
            assert_eq!(modern.ask(method, about(id)).await, absent, "{method}");
        }
    }
    let filter = json!({"notifications": {"taskIds": ["read", "pinged"], "toolsListChanged": true}});
    let mut stream = modern.open("subscriptions/listen", filter).await;
    assert_eq!(stream.next().await["params"]["notifications"]["taskIds"], json!([]));
    // The core has them in its lists, each as its design shows it.
    let listed = anna.result("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2);
}

/// Nobody waits any more: a run that was queued goes on after a restart, with what is stored.
#[tokio::test]
async fn queued_task_augmented_request_runs_after_restart() {
    let world = world_nowhere();
    let anna = world.anna().await;
    for number in 0..8 {
        drop(anna.augmented("resources/read", json!({"uri": "a://slow"}), &format!("r{number}")).await);
    }
    drop(anna.augmented("resources/read", json!({"uri": "b://0"}), "waits").await);
    drop(anna.augmented("prompts/get", of_guests()[2].1.clone(), "prompt").await);
    let world = world.crashed().await;
    let anna = world.anna().await;
    anna.until("waits", "completed").await;
    anna.until("prompt", "completed").await;
    assert_eq!(
        anna.result("tasks/result", json!({"taskId": "waits"})).await["contents"][0]["text"],
        "second has b://0"
    );
    let lost = anna.result("tasks/get", json!({"taskId": "r0"})).await;
    assert_eq!(lost["error"], "The host stopped while this call ran; the call was not finished");
}

/// Nothing is promised that would be refused.
#[tokio::test]
async fn task_only_tools_are_hidden_without_task_scope() {
    let rule = ScopeRule { name: "calls".to_owned(), tools: vec!["*".to_owned()], ..ScopeRule::default() };
    let rights = ScopeBook::new(vec![rule]).rights(&["calls".to_owned()], "tenant", "requestor", false);
    let world = world();
    let anna = world.anna().await;
    let ask = async |method: &'static str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 40, "method": method, "params": params});
        let peer = Peer { rights: rights.clone(), ..anna.peer() };
        let Received::Exchange(exchange) = world.receive(peer, &message.to_string()).await else {
            panic!("no exchange")
        };
        Talk { exchange, method, version: "2025-11-25" }.next().await
    };
    let names = |list: &Value| -> Vec<String> {
        let tools = list["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = anna.result("tools/list", json!({})).await;
    let is_required = |tool: &&Value| tool["execution"]["taskSupport"] == "required";
    let required: Vec<_> =
        all["tools"].as_array().unwrap().iter().filter(is_required).map(|tool| &tool["name"]).collect();
    assert!(required.contains(&&json!("only_task")));
    let expected: Vec<_> = names(&all).into_iter().filter(|name| !required.contains(&&json!(name))).collect();
    let listed = ask("tools/list", json!({})).await["result"].take();
    // Pages are of one length, so what is left out makes room for what follows.
    assert_eq!(names(&listed)[..expected.len()], expected);
    assert!(!names(&listed).iter().any(|name| required.contains(&&json!(name))));
    assert!(listed["tools"].as_array().unwrap().iter().all(|tool| tool["execution"]["taskSupport"] == "forbidden"));
    let modern = world.tasked().with_rights(rights.clone());
    assert_eq!(names(&modern.result("tools/list", json!({})).await), names(&listed));
    // Passing the wish over would be an answer of another kind than the tool gives.
    let call = json!({"name": "only_task", "_meta": {TASK: {"taskId": "o"}}});
    assert_eq!(ask("tools/call", call).await["error"]["code"], -32601);
    let call = json!({"name": "quick", "_meta": {TASK: {"taskId": 5}}});
    assert_eq!(ask("tools/call", call).await["result"]["content"][0]["text"], "done", "nobody looks at it");
}

/// Nobody's credential is there any more to say what its requestor may use: it is what it was when the read was made.
#[tokio::test]
async fn task_augmented_read_keeps_its_scopes_after_restart() {
    let rights = |plugins: &[&str]| {
        let plugins = plugins.iter().map(|name| (*name).to_owned()).collect();
        let rule = ScopeRule { name: "some".to_owned(), plugins, tasks: true, ..ScopeRule::default() };
        ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "tenant", "requestor", false)
    };
    let world = world_nowhere();
    let anna = world.anna().await;
    for number in 0..8 {
        drop(anna.augmented("resources/read", json!({"uri": "a://slow"}), &format!("r{number}")).await);
    }
    let read = async |rights: Rights, id: &str| {
        let params = wished(json!({"uri": "b://0"}), id);
        let message = json!({"jsonrpc": "2.0", "id": 40, "method": "resources/read", "params": params});
        let received = world.receive(Peer { rights, ..anna.peer() }, &message.to_string()).await;
        let Received::Exchange(exchange) = received else { panic!("no exchange") };
        let created = Talk { exchange, method: "resources/read", version: "2025-11-25" }.next().await;
        assert_eq!(created["method"], "notifications/tasks/created", "{created}");
    };
    read(rights(&["first"]), "narrow").await;
    read(rights(&["first", "second"]), "wide").await;
    // With other rights it is the same request all the same.
    read(rights(&["first"]), "wide").await;
    let world = world.crashed().await;
    let anna = world.anna().await;
    anna.until("wide", "completed").await;
    anna.until("narrow", "failed").await;
}
