//! SEP-1686 as it was written: the client names the task, and its request is answered all the same.

use super::*;

const TASK: &str = "modelcontextprotocol.io/task";
const RELATED: &str = "modelcontextprotocol.io/related-task";

fn named(tool: &str, id: &str) -> Value {
    json!({"name": tool, "_meta": {TASK: {"taskId": id, "keepAlive": 5_000}, "progressToken": "p"}})
}

fn related(id: &str) -> Value {
    json!({RELATED: {"taskId": id}})
}

/// `_meta` of the result of a task: 2025-11-25 has a key of its own for it.
fn of_result(version: &str, id: &str) -> Value {
    let mut meta = related(id);
    if version == "2025-11-25" {
        meta["io.modelcontextprotocol/related-task"] = json!({"taskId": id});
    }
    meta
}

impl Client<'_> {
    /// Calls a tool as a task under this id, up to the announcement.
    async fn begin(&self, request: u64, params: Value) -> Talk {
        let mut talk = self.open(request, "tools/call", params).await;
        assert_eq!(talk.next().await["method"], "notifications/tasks/created");
        talk
    }

    async fn cancel_request(&self, request: u64) {
        self.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}}))
            .await;
    }

    async fn task(&self, id: &str) -> Value {
        self.result("tasks/get", json!({"taskId": id})).await
    }
}

#[tokio::test]
async fn sep1686_task_is_announced_and_request_answered() {
    let mut answers = Transcript::default();
    for version in ["2025-11-25", "2025-06-18"] {
        let world = world();
        let anna = world.client(ANNA, version, json!({})).await;
        let mut talk = anna.open(7, "tools/call", named("slow", "my-1")).await;
        answers.note(version, &talk.next().await);
        answers.note(version, &anna.task("my-1").await);
        answers.note(version, &talk.next().await);
        let response = talk.next().await;
        answers.note(version, &response);
        assert!(talk.exchange.next().await.is_none());
        assert_eq!(anna.task("my-1").await["status"], "completed");
        for _ in 0..2 {
            assert_eq!(anna.result("tasks/result", json!({"taskId": "my-1"})).await, response["result"]);
        }
    }
    answers.expect(&expect![[r#"
        2025-11-25, 2025-06-18: {"jsonrpc":"2.0","method":"notifications/tasks/created","params":{"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"my-1"}}}}
        2025-11-25: {"taskId":"my-1","status":"working","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":null,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"modelcontextprotocol.io/related-task":{"taskId":"my-1"}}}
        2025-11-25, 2025-06-18: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"my-1"}}}}
        2025-11-25: {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"slowly done"}],"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"my-1"},"io.modelcontextprotocol/related-task":{"taskId":"my-1"}}}}
        2025-06-18: {"taskId":"my-1","status":"working","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"modelcontextprotocol.io/related-task":{"taskId":"my-1"}}}
        2025-06-18: {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"slowly done"}],"_meta":{"modelcontextprotocol.io/related-task":{"taskId":"my-1"}}}}
    "#]]);
}

#[tokio::test]
async fn sep1686_repeat_is_the_same_task() {
    let world = world();
    let anna = world.anna().await;
    let call =
        |tool: &str, arguments: Value| json!({"name": tool, "arguments": arguments, "_meta": {TASK: {"taskId": "k"}}});
    let _first = anna.begin(11, call("forever", json!({"a": 1}))).await;
    let again = world.anna().await;
    let mut second = again.begin(12, call("forever", json!({"a": 1.0}))).await;
    assert!(second.is_silent().await);
    let message = "This taskId was used for another request; choose another one for another request";
    let refused = json!({"code": -32602, "message": message});
    assert_eq!(anna.error("tools/call", call("forever", json!({"a": 2}))).await, refused);
    assert_eq!(anna.error("tools/call", call("count", json!({"a": 1}))).await, refused, "another tool");
    assert_eq!(anna.error("ping", json!({"_meta": {TASK: {"taskId": "k"}}})).await, refused, "another method");
    assert_eq!(world.guests.started.load(std::sync::atomic::Ordering::SeqCst), 1);
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    let _his = bob.begin(11, call("forever", json!({"a": 2}))).await;
    let listed = anna.result("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);

    // A task that is over answers at once.
    let _ended = anna.open(8, "tools/call", named("quick", "q")).await.next_of("notifications/tasks/created").await;
    anna.until("q", "completed").await;
    let mut repeat = anna.begin(19, named("quick", "q")).await;
    assert_eq!(repeat.next().await["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn sep1686_task_id_cannot_reuse_host_task_id() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("forever").await;
    assert_eq!(anna.error("tools/call", named("quick", &id)).await["code"], -32602);
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    let mut talk = bob.begin(11, named("quick", &id)).await;
    let meta = talk.next().await["result"]["_meta"].take();
    assert_eq!(meta, of_result("2025-11-25", &id), "to bob it is a name like any other");
}

#[tokio::test]
async fn sep1686_result_needs_a_completed_task() {
    let world = world();
    let anna = world.anna().await;
    let _running = anna.begin(11, named("forever", "runs")).await;
    let mut fails = anna.begin(12, named("faulty", "breaks")).await;
    assert_eq!(fails.next().await["error"], json!({"code": 1001, "message": "the tool trapped"}));
    let mut tool_error = anna.begin(13, named("fails", "no-city")).await;
    assert_eq!(tool_error.next().await["result"]["isError"], true);
    let _stopped = anna.begin(14, named("forever", "stops")).await;
    anna.result("tasks/cancel", json!({"taskId": "stops"})).await;

    for (id, status) in [("runs", "working"), ("breaks", "failed"), ("stops", "cancelled")] {
        assert_eq!(anna.task(id).await["status"], status);
        let error = anna.error("tasks/result", json!({"taskId": id})).await;
        let message = format!("Cannot retrieve result: Task status is '{status}', not 'completed'");
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
    assert_eq!(anna.task("breaks").await["error"], "the tool trapped");
    assert_eq!(anna.task("no-city").await["status"], "completed", "a tool's own failure is a result");
    assert_eq!(anna.result("tasks/result", json!({"taskId": "no-city"})).await["isError"], true);
}

#[tokio::test]
async fn sep1686_request_cancel_cancels_the_task() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.begin(15, named("forever", "c")).await;
    assert!(talk.is_silent().await);
    anna.cancel_request(15).await;
    assert!(talk.exchange.next().await.is_none(), "a cancelled request has no response");
    assert_eq!(anna.until("c", "cancelled").await["status"], "cancelled");
    anna.cancel_request(15).await;
    assert_eq!(anna.task("c").await["status"], "cancelled");
    // The request may be gone and the task not: after a restart, say.
    let error = anna.error("tasks/cancel", json!({"taskId": "c"})).await;
    assert_eq!(error, json!({"code": -32602, "message": "Cannot cancel task: already in terminal status 'cancelled'"}));
}

#[tokio::test]
async fn sep1686_task_outlives_stream_and_session() {
    let world = world();
    let anna = world.anna().await;
    let stream = anna.begin(15, named("forever", "s")).await;
    drop(stream);
    let mut kept = anna.begin(16, named("forever", "t")).await;
    assert!(kept.is_silent().await);
    anna.session.close();
    assert!(kept.exchange.next().await.is_none());
    let later = world.anna().await;
    for id in ["s", "t"] {
        assert_eq!(later.task(id).await["status"], "working");
    }
}

#[tokio::test]
async fn sep1686_keep_alive_counts_from_task_end() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.begin(11, named("form", "f")).await;
    let question = talk.next_of("elicitation/create").await;
    assert_eq!(question["params"]["_meta"], related("f"));
    assert_eq!(anna.task("f").await["status"], "input_required");
    assert_eq!(anna.error("tasks/result", json!({"taskId": "f"})).await["code"], -32602, "it does not wait");
    world.clock.advance(100_000);
    assert_eq!(anna.task("f").await["status"], "input_required", "longer than it is kept, and it has not ended");
    anna.answer(&question, json!({"action": "accept", "content": {"name": "Ann"}})).await;
    assert!(talk.next().await["result"]["content"][0]["text"].as_str().unwrap().contains("Ann"));
    world.clock.advance(4_999);
    assert_eq!(anna.task("f").await["status"], "completed");
    world.clock.advance(1);
    let absent = anna.error("tasks/get", json!({"taskId": "never"})).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/delete"] {
        assert_eq!(anna.error(method, json!({"taskId": "f"})).await, absent, "{method}");
    }
    assert_eq!(anna.result("tasks/list", json!({})).await, json!({"tasks": []}));
    // The name is free again.
    let _new = anna.begin(12, named("forever", "f")).await;
}

#[tokio::test]
async fn sep1686_keep_alive_is_bounded() {
    let world = world();
    let anna = world.anna().await;
    for (number, (wish, kept)) in
        [(json!({}), 60_000), (json!({"keepAlive": 0}), 1_000), (json!({"keepAlive": 1e12}), 120_000)]
            .into_iter()
            .enumerate()
    {
        let id = format!("t{number}");
        let mut wish = wish;
        wish["taskId"] = json!(id);
        let mut talk = anna.begin(11, json!({"name": "quick", "_meta": {TASK: wish}})).await;
        assert!(talk.next().await["result"].is_object());
        assert_eq!(anna.task(&id).await["keepAlive"], kept);
    }
}

#[tokio::test]
async fn sep1686_queued_task_is_shown_as_submitted() {
    let world = world();
    let anna = world.anna().await;
    let mut talks = Vec::new();
    for number in 0..9 {
        talks.push(anna.begin(10 + number, named("forever", &format!("t{number}"))).await);
    }
    let mut answers = Transcript::default();
    // 2025-11-25 has no such status.
    answers.note("2025-11-25", &anna.task("t8").await);
    let listed = anna.result("tasks/list", json!({})).await;
    answers.note("listed", listed["tasks"].as_array().unwrap().iter().find(|task| task["taskId"] == "t8").unwrap());
    answers.note("2025-06-18", &world.client(ANNA, "2025-06-18", json!({})).await.task("t8").await);
    answers.expect(&expect![[r#"
        2025-11-25: {"taskId":"t8","status":"working","statusMessage":"queued","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":null,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"dev.bulkhead/sep-1686-status":"submitted","modelcontextprotocol.io/related-task":{"taskId":"t8"}}}
        listed: {"taskId":"t8","status":"working","statusMessage":"queued","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":null,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"dev.bulkhead/sep-1686-status":"submitted"}}
        2025-06-18: {"taskId":"t8","status":"submitted","keepAlive":5000,"pollFrequency":"<ms>","_meta":{"modelcontextprotocol.io/related-task":{"taskId":"t8"}}}
    "#]]);
    anna.cancel_request(10).await;
    assert!(talks[0].exchange.next().await.is_none());
    anna.until("t8", "working").await;
}

#[tokio::test]
async fn sep1686_ended_task_can_be_deleted() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.begin(11, named("quick", "d")).await;
    assert!(talk.next().await["result"].is_object());
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    assert_eq!(bob.error("tasks/delete", json!({"taskId": "d"})).await["code"], -32602);
    assert_eq!(anna.result("tasks/delete", json!({"taskId": "d"})).await, json!({"_meta": related("d")}));
    let absent = anna.error("tasks/delete", json!({"taskId": "never"})).await;
    assert_eq!(anna.error("tasks/delete", json!({"taskId": "d"})).await, absent);
    assert_eq!(anna.error("tasks/result", json!({"taskId": "d"})).await, absent);

    let _running = anna.begin(12, named("forever", "r")).await;
    let message = "only a task that is over can be deleted; cancel it first";
    let refused = anna.error("tasks/delete", json!({"taskId": "r"})).await;
    assert_eq!(refused, json!({"code": -32602, "message": message}));
    assert_eq!(anna.task("r").await["status"], "working");
    let core = anna.start("quick").await;
    anna.until(&core, "completed").await;
    assert_eq!(anna.error("tasks/delete", json!({"taskId": core})).await["code"], -32602);
    assert_eq!(anna.result("tasks/get", json!({"taskId": core})).await["status"], "completed");
}

#[tokio::test]
async fn sep1686_task_is_readable_in_session_revision() {
    let world = world();
    let anna = world.anna().await;
    let core = anna.start("forever").await;
    world.clock.advance(1);
    let _theirs = anna.begin(11, named("forever", "mine")).await;
    let mut answers = Transcript::default();
    // A revision without tasks of the core does not see those.
    for version in ["2025-11-25", "2025-06-18"] {
        let client = world.client(ANNA, version, json!({})).await;
        answers.note(version, &client.result("tasks/list", json!({})).await);
        answers.note(version, &client.ask("tasks/get", json!({"taskId": core})).await);
    }
    let older = world.client(ANNA, "2025-06-18", json!({})).await;
    for (method, id) in [("tasks/result", &*core), ("tasks/delete", &core), ("tasks/get", "never")] {
        answers.note(method, &older.ask(method, json!({"taskId": id})).await);
    }
    answers.expect(&expect![[r#"
        2025-11-25: {"tasks":[{"taskId":"mine","status":"working","createdAt":"2026-11-21T02:03:39.008Z","lastUpdatedAt":"2026-11-21T02:03:39.008Z","ttl":null,"pollInterval":"<ms>","keepAlive":5000,"pollFrequency":"<ms>"},{"taskId":"<id>","status":"working","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":60000,"pollInterval":"<ms>"}]}
        2025-11-25: {"jsonrpc":"2.0","id":1,"result":{"taskId":"<id>","status":"working","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":60000,"pollInterval":"<ms>"}}
        2025-06-18: {"tasks":[{"taskId":"mine","status":"working","keepAlive":5000,"pollFrequency":"<ms>"}]}
        2025-06-18, tasks/result, tasks/delete, tasks/get: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}
    "#]]);
}

#[tokio::test]
async fn sep1686_notifications_go_to_the_request_stream_only() {
    let world = world();
    let anna = world.anna().await;
    let mut standalone = anna.standalone();
    assert!(standalone.is_silent().await);
    let mut talk = anna.begin(11, named("count", "c")).await;
    let progress = talk.next_of("notifications/progress").await;
    assert_eq!(progress["params"]["_meta"], related("c"));
    let log = talk.next_of("notifications/message").await;
    assert_eq!(log["params"]["_meta"], related("c"));
    let mut last = log;
    while last["id"].is_null() {
        last = talk.next().await;
    }
    assert!(standalone.is_silent().await, "the design has no notification of a status");
    let plain = anna.result("tools/call", json!({"name": "quick", "_meta": {TASK: null}})).await;
    assert!(plain["_meta"].is_null());
}

#[tokio::test]
async fn sep1686_request_without_task_is_served_plainly() {
    let world = world();
    let anna = world.anna().await;
    let meta = json!({TASK: {"taskId": "m"}});
    // The tool takes no tasks, so the wish is not looked at.
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "_meta": {TASK: 5}});
    assert_eq!(anna.result("tools/call", params).await, json!({"content": [{"type": "text", "text": "x"}]}));
    // Arguments that do not fit are a tool error, as without the wish, and there is no task.
    let unfit = anna.result("tools/call", json!({"name": "headers", "arguments": {"region": 5}, "_meta": meta})).await;
    assert_eq!(unfit["isError"], true);
    assert_eq!(anna.result("tasks/list", json!({})).await, json!({"tasks": []}));
    // A tool that runs only as a task does so this way too.
    let mut talk = anna.begin(11, named("only_task", "o")).await;
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn sep1686_invalid_task_metadata_is_refused() {
    let world = world();
    let anna = world.anna().await;
    let long = "x".repeat(129);
    let form = " must be an object with taskId, a string of 1 to 128 characters, and perhaps keepAlive, a number of \
                milliseconds that is not negative";
    for (wish, words) in [
        (json!(5), " must be an object, not a number"),
        (json!("a"), " must be an object, not a string"),
        (json!(["a", 5]), " must be an object, not an array"),
        (json!({}), ".taskId is missing; it must be a string"),
        (json!({"taskId": ""}), form),
        (json!({"taskId": 5}), ".taskId must be a string, not a number"),
        (json!({"taskId": long}), form),
        (json!({"taskId": "a", "keepAlive": -1}), form),
        (json!({"taskId": "a", "keepAlive": "long"}), ".keepAlive must be a number, not a string"),
    ] {
        let error = anna.error("tools/call", json!({"name": "quick", "_meta": {TASK: wish}})).await;
        let message = format!("params._meta[\"modelcontextprotocol.io/task\"]{words}");
        assert_eq!(error, json!({"code": -32602, "message": message}), "{wish}");
    }
    let both = json!({"name": "quick", "task": {}, "_meta": {TASK: {"taskId": "a"}}});
    assert_eq!(anna.error("tools/call", both).await["code"], -32602);
    let keyed = json!({"name": "quick", "_meta": {TASK: {"taskId": "a"}, "dev.bulkhead/idempotencyKey": "k"}});
    assert_eq!(anna.error("tools/call", keyed).await["code"], -32602);
    for method in ["tasks/get", "tasks/result", "tasks/delete", "tasks/cancel"] {
        assert_eq!(anna.error(method, json!({"taskId": long})).await["code"], -32602);
        assert_eq!(anna.error(method, json!({})).await["code"], -32602);
    }
    assert_eq!(anna.result("tasks/list", json!({})).await, json!({"tasks": []}));
}

#[tokio::test]
async fn sep1686_full_queue_refuses_before_task_announcement() {
    let world = world();
    let anna = world.anna().await;
    for _ in 0..10 {
        anna.start("forever").await;
    }
    let error = anna.error("tools/call", named("forever", "n")).await;
    assert_eq!((&error["code"], &error["data"]["value"]), (&json!(1010), &json!(2)));
    assert_eq!(anna.error("tasks/get", json!({"taskId": "n"})).await["code"], -32602);
}

#[tokio::test]
async fn sep1686_task_is_readable_in_modern_era() {
    let world = world();
    let anna = world.anna().await;
    let _talk = anna.begin(11, named("forever", "m")).await;
    let modern = world.tasked();
    let task = modern.result("tasks/get", json!({"taskId": "m"})).await;
    assert_eq!((&task["taskId"], &task["status"], &task["ttlMs"]), (&json!("m"), &json!("working"), &Value::Null));
    modern.result("tasks/cancel", json!({"taskId": "m"})).await;
    assert_eq!(anna.task("m").await["status"], "cancelled");
    let task = modern.result("tasks/get", json!({"taskId": "m"})).await;
    assert_eq!((&task["status"], &task["ttlMs"]), (&json!("cancelled"), &json!(5000)));
    assert_eq!(modern.refusal("tasks/get", json!({"taskId": "n"})).await.0, -32602);
}

#[tokio::test]
async fn sep1686_metadata_is_ignored_in_modern_era() {
    let world = world();
    let client = world.tasked().with_meta(TASK, json!({"taskId": "m"}));
    let result = client.result("tools/call", json!({"name": "quick"})).await;
    assert_eq!((&result["resultType"], &result["_meta"][RELATED]), (&json!("complete"), &Value::Null));
    assert_eq!(client.refusal("tasks/get", json!({"taskId": "m"})).await.0, -32602);
}
