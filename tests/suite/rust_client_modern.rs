//! Interop: the `rmcp` client of the official Rust SDK, 3.9.0, in revision 2026-07-28, alone and beside one of
//! 2025-11-25.
//!
//! It drives the rounds of a plain call by itself and leaves tasks to its caller. What it cannot do: listen to tasks
//! (its filter has no `taskIds`).

#![expect(deprecated, reason = "sampling is deprecated in this revision and part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rmcp_modern::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities, ClientConfig,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData,
    GetTaskParams, Implementation, InputRequests, ProgressNotificationParam, ProtocolVersion, SamplingMessage,
    ServerNotification, SubscriptionFilter, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp_modern::service::{
    ClientLifecycleMode, ClientServiceExt as _, NotificationContext, RequestContext, RunningService,
};
use rmcp_modern::transport::StreamableHttpClientTransport;
use rmcp_modern::{ClientHandler, RoleClient, ServiceError};
use serde_json::{Value, json};
use tests::modern::TASKS;
use tests::relay::{self, Era, Relay};
use tests::wait::{soon, until};
use tests::{Client, Setup};

/// The plugin `conformance` changes its lists in a folder of its own.
fn setup() -> Setup {
    let setup = Setup::with(&["text", "primes", "desk"]);
    let lists = setup.path("lists");
    std::fs::create_dir(&lists).expect("a folder");
    let grant = format!("[plugin.grants]\ndirectories = [{{ host = {lists:?}, guest = \"/lists\", write = true }}]");
    setup.plugin("conformance", &grant)
}

/// What a user fills in, by the fields of the form.
fn filled(schema: &Value) -> Value {
    let answers = json!({"destination": "Turin", "travellers": 4, "class": "business", "confirm": true, "name": "Ada"});
    let fields = schema["properties"].as_object().expect("a form has fields");
    json!({"action": "accept", "content": fields.keys().map(|field| (field.clone(), answers[field].clone())).collect::<BTreeMap<_, _>>()})
}

/// A user and a model in one.
#[derive(Clone)]
struct Desk {
    capabilities: Value,
    asked: Arc<AtomicU32>,
    progress: Arc<AtomicU32>,
}

impl Desk {
    fn new(with_tasks: bool) -> Self {
        let mut capabilities = json!({"elicitation": {"form": {}}, "sampling": {}});
        if with_tasks {
            capabilities["extensions"] = json!({TASKS: {}});
        }
        Self { capabilities, asked: Arc::default(), progress: Arc::default() }
    }
}

impl ClientHandler for Desk {
    fn get_info(&self) -> ClientConfig {
        let capabilities: ClientCapabilities = serde_json::from_value(self.capabilities.clone()).expect("capabilities");
        ClientConfig::new(capabilities, Implementation::new("tests", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let asked = serde_json::to_value(&request).expect("JSON");
        let content = filled(&asked["requestedSchema"])["content"].clone();
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        assert_eq!(params.messages.len(), 1);
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("in short"), "a-model".to_owned()))
    }

    async fn on_progress(&self, _params: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
}

type Session = RunningService<RoleClient, Desk>;

fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

async fn over_http(url: &str, desk: Desk) -> Session {
    let transport = StreamableHttpClientTransport::from_uri(url.to_owned());
    soon("discovery", desk.serve_with_lifecycle(transport, modern())).await.expect("it is discovered")
}

fn call(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().expect("an object").clone())
}

/// A plain call, its rounds included; the result as JSON.
async fn plain(session: &Session, name: &'static str, arguments: Value) -> Value {
    let result = soon(name, session.call_tool(call(name, arguments))).await;
    serde_json::to_value(result.unwrap_or_else(|error| panic!("{name}: {error}"))).expect("JSON")
}

/// The id of the task that a call becomes.
async fn task(session: &Session, name: &'static str, arguments: Value) -> String {
    match soon(name, session.call_tool_once(call(name, arguments))).await {
        Ok(CallToolResponse::Task(created)) => created.task.task_id,
        other => panic!("{name} gave no task: {other:?}"),
    }
}

/// The payload of a task, once it has this status.
async fn until_status(session: &Session, id: &str, status: TaskStatus) -> TaskPayload {
    until(&format!("{id} to be {status:?}"), async || {
        let now = session.get_task(GetTaskParams::new(id)).await.expect("tasks/get").task;
        assert!(now.status() == status || !now.status().is_terminal(), "not {status:?}: {now:?}");
        (now.status() == status).then_some(now.payload)
    })
    .await
}

async fn until_completed(session: &Session, id: &str) -> Value {
    match until_status(session, id, TaskStatus::Completed).await {
        TaskPayload::Completed { result } => Value::Object(result),
        other => panic!("a completed task has a result: {other:?}"),
    }
}

async fn outstanding(session: &Session, id: &str) -> InputRequests {
    match until_status(session, id, TaskStatus::InputRequired).await {
        TaskPayload::InputRequired { input_requests } => input_requests,
        other => panic!("such a task has requests: {other:?}"),
    }
}

/// Answers one question of a task.
async fn answer(session: &Session, id: &str, key: &str, requests: &InputRequests) {
    let asked = serde_json::to_value(&requests[key]).expect("JSON");
    let answers = BTreeMap::from([(key.to_owned(), filled(&asked["params"]["requestedSchema"]))]);
    session.update_task(UpdateTaskParams::new(id, answers)).await.expect("tasks/update");
}

fn code(error: &ServiceError) -> i32 {
    match error {
        ServiceError::McpError(error) => error.code.0,
        other => panic!("no answer of the host: {other}"),
    }
}

async fn plain_calls(session: &Session) {
    let tools = soon("tools", session.list_all_tools()).await.expect("tools/list");
    assert!(tools.iter().any(|tool| tool.name == "echo"));
    assert_eq!(plain(session, "echo", json!({"text": "hi"})).await["content"][0]["text"], "hi");
    let booked = plain(session, "book_trip", json!({})).await;
    assert_eq!(booked["structuredContent"]["summary"], "Booked 4 business seats to Turin.");
    assert_eq!(session.service().asked.load(Ordering::Relaxed), 2, "once in each round");
    assert_eq!(plain(session, "summarize", json!({"text": "long"})).await["content"][0]["text"], "in short");
    plain(session, "wait", json!({"ms": 500})).await;
    until("progress", async || (session.service().progress.load(Ordering::Relaxed) > 0).then_some(())).await;
    let unknown = session.call_tool(call("missing", json!({}))).await.expect_err("no such tool");
    assert_eq!(code(&unknown), -32602);
}

async fn tasks(session: &Session) {
    let fast = session.call_tool_once(call("echo", json!({"text": "hi"}))).await.expect("echo");
    assert!(matches!(fast, CallToolResponse::Complete(_)), "a fast call is no task");
    let slow = task(session, "wait", json!({"ms": 1_500})).await;
    assert_eq!(until_completed(session, &slow).await["structuredContent"]["waited_ms"], 1_500);

    let asking = task(session, "multi_input", json!({})).await;
    let requests = outstanding(session, &asking).await;
    assert_eq!(requests.keys().collect::<Vec<_>>(), ["confirm", "name"]);
    answer(session, &asking, "name", &requests).await;
    assert_eq!(outstanding(session, &asking).await.keys().collect::<Vec<_>>(), ["confirm"]);
    answer(session, &asking, "confirm", &requests).await;
    let told = until_completed(session, &asking).await;
    assert!(told["content"][0]["text"].as_str().is_some_and(|text| text.contains("Ada")), "{told}");

    let waiting = task(session, "wait", json!({"ms": 600_000})).await;
    session.cancel_task(CancelTaskParams::new(&waiting)).await.expect("tasks/cancel");
    until_status(session, &waiting, TaskStatus::Cancelled).await;
    session.cancel_task(CancelTaskParams::new(&waiting)).await.expect("once more is acknowledged");

    let own = task(session, "failing_job", json!({})).await;
    assert_eq!(until_completed(session, &own).await["isError"], true);
    let failing = task(session, "protocol_error_job", json!({})).await;
    until_status(session, &failing, TaskStatus::Failed).await;
    let absent = session.get_task(GetTaskParams::new("f".repeat(32))).await.expect_err("nobody's");
    assert_eq!(code(&absent), -32602);
}

async fn listening(session: &Session) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = soon("the acknowledgement", session.listen(filter.clone())).await.expect("listen");
    assert_eq!(*subscription.acknowledged(), filter);
    plain(session, "test_trigger_tool_change", json!({})).await;
    let heard = soon("the change", subscription.next()).await.expect("a notification");
    assert!(matches!(heard, Some(ServerNotification::ToolListChangedNotification(_))), "{heard:?}");
    subscription.cancel().await.expect("it ends");
}

async fn everything(session: Session) {
    Box::pin(plain_calls(&session)).await;
    Box::pin(tasks(&session)).await;
    Box::pin(listening(&session)).await;
    session.cancel().await.expect("it ends");
}

#[tokio::test]
async fn the_modern_rust_sdk_client_works_over_http() {
    let host = setup().start().await;
    let relay = Relay::before(&host).await;
    Box::pin(everything(over_http(&relay.url, Desk::new(true)).await)).await;
    let (legacy, modern) = relay.witness.content();
    assert!(legacy == 0 && modern > 30, "{legacy} and {modern} messages");
}

#[tokio::test]
async fn the_modern_rust_sdk_client_works_over_stdio() {
    let setup = setup();
    let pipe = relay::pipe(&setup, Era::Modern);
    let serving = Desk::new(true).serve_with_lifecycle(pipe.ends, modern());
    let session = soon("discovery", serving).await.expect("it is discovered");
    Box::pin(everything(session)).await;
    let (legacy, modern) = pipe.witness.content();
    assert!(legacy == 0 && modern > 30, "{legacy} and {modern} messages");
}

#[tokio::test]
async fn modern_rust_client_without_tasks_gets_plain_answers() {
    let host = setup().start().await;
    let relay = Relay::before(&host).await;
    let session = over_http(&relay.url, Desk::new(false)).await;
    assert_eq!(plain(&session, "wait", json!({"ms": 1_300})).await["structuredContent"]["waited_ms"], 1_300);
    let refused = session.call_tool(call("failing_job", json!({}))).await.expect_err("only as a task");
    assert_eq!(code(&refused), -32021);
    let refused = session.get_task(GetTaskParams::new("f".repeat(32))).await.expect_err("undeclared");
    assert_eq!(code(&refused), -32021);
    relay.witness.content();
}

#[tokio::test]
async fn host_serves_rust_clients_of_both_eras() {
    let mut host = setup().start().await;
    let relay = Relay::before(&host).await;
    host.url.clone_from(&relay.url);
    let session = over_http(&relay.url, Desk::new(true)).await;
    let legacy = Client::connect(&host).await;
    let both = async |below: u64| {
        let (modern, legacy) = tokio::join!(
            plain(&session, "count_primes", json!({"below": below})),
            legacy.tool("count_primes", json!({"below": below})),
        );
        assert_eq!(modern["structuredContent"], legacy.expect("a result")["structuredContent"]);
    };
    for below in [10, 1_000, 100_000] {
        both(below).await;
    }

    // Each reads, answers and cancels what the other made, by its own rules.
    let (made_there, made_here) =
        tokio::join!(legacy.task("wait", json!({"ms": 1_500})), task(&session, "wait", json!({"ms": 1_500})));
    let (here, there) =
        tokio::join!(until_completed(&session, &made_there), legacy.until_status(&made_here, "completed"));
    assert_eq!(here["structuredContent"]["waited_ms"], 1_500);
    assert!(there.get("resultType").is_none() && there.get("result").is_none(), "no word of the other era: {there}");
    let fetched = legacy.about("tasks/result", &made_here).await.expect("tasks/result");
    assert_eq!(fetched["structuredContent"], here["structuredContent"]);

    let failing = legacy.task("failing_job", json!({})).await;
    let own = until_completed(&session, &failing).await;
    assert_eq!(own["isError"], true, "a tool's own error completes a task for the one");
    legacy.until_status(&failing, "failed").await;

    let asking = legacy.task("confirm_delete", json!({"filename": "a.txt"})).await;
    let requests = outstanding(&session, &asking).await;
    answer(&session, &asking, "confirm", &requests).await;
    legacy.until_status(&asking, "completed").await;
    let result = legacy.about("tasks/result", &asking).await.expect("tasks/result");
    assert_eq!(tests::client::text(&result), "Deleted a.txt");

    let waiting = task(&session, "wait", json!({"ms": 600_000})).await;
    legacy.about("tasks/cancel", &waiting).await.expect("tasks/cancel");
    until_status(&session, &waiting, TaskStatus::Cancelled).await;
    session.cancel().await.expect("it ends");
    let (legacy, modern) = relay.witness.content();
    assert!(legacy > 10 && modern > 10, "{legacy} and {modern} messages");
}
