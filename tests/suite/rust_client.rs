//! Interop: the `rmcp` client of the official Rust SDK, 2.2.0, the last one with these task methods.

#![expect(deprecated, reason = "sampling is deprecated in a later revision and part of the one that is tested")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientInfo, ClientRequest, CreateMessageRequestParams,
    CreateMessageResult, CustomRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData,
    Implementation, ProgressNotificationParam, SamplingMessage, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use tests::Setup;
use tests::relay::{self, Era, Relay};
use tests::wait::{soon, until};

/// A user and a model in one.
#[derive(Clone, Default)]
struct Desk {
    progress: Arc<AtomicU32>,
}

impl ClientHandler for Desk {
    fn get_info(&self) -> ClientInfo {
        let capabilities = json!({"elicitation": {"form": {}}, "sampling": {}});
        let capabilities: ClientCapabilities = serde_json::from_value(capabilities).expect("capabilities");
        ClientInfo::new(capabilities, Implementation::new("tests", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let asked = serde_json::to_value(&request).expect("JSON");
        let wants = |field: &str| asked["requestedSchema"]["properties"].get(field).is_some();
        let content = if wants("destination") {
            json!({"destination": "Turin", "travellers": 4})
        } else {
            json!({"class": "business", "confirm": true})
        };
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

fn arguments(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().expect("an object").clone())
}

/// A request by its name; the result as JSON.
async fn request(session: &Session, method: &str, params: Value) -> Result<Value, String> {
    let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
    let result = soon(method, session.send_request(request)).await.map_err(|error| error.to_string())?;
    serde_json::to_value(result).map_err(|error| error.to_string())
}

async fn create(session: &Session, name: &'static str, input: Value) -> String {
    let params = json!({"name": name, "arguments": input, "task": {"ttl": 60_000}});
    let request = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)));
    match soon("a task", session.send_request(request)).await {
        Ok(ServerResult::CreateTaskResult(created)) => created.task.task_id,
        other => panic!("{name} gave no task: {other:?}"),
    }
}

async fn everything(session: Session) {
    let tools = soon("tools", session.list_all_tools()).await.expect("tools/list");
    assert!(tools.iter().any(|tool| tool.name == "echo"));
    let result = soon("echo", session.call_tool(arguments("echo", json!({"text": "hi"})))).await.expect("echo");
    assert_eq!(serde_json::to_value(&result).expect("JSON")["content"][0]["text"], "hi");

    let id = create(&session, "count_primes", json!({"below": 1000})).await;
    until("the task to complete", async || {
        let task = request(&session, "tasks/get", json!({"taskId": id})).await.expect("tasks/get");
        (task["status"] == "completed").then_some(())
    })
    .await;
    let result = request(&session, "tasks/result", json!({"taskId": id})).await.expect("tasks/result");
    assert_eq!(result["structuredContent"]["count"], 168);
    let listed = request(&session, "tasks/list", json!({})).await.expect("tasks/list");
    assert!(listed["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(|task| task["taskId"] == id.as_str())));

    let waiting = create(&session, "wait", json!({"ms": 600_000})).await;
    let cancelled = request(&session, "tasks/cancel", json!({"taskId": waiting})).await.expect("tasks/cancel");
    assert_eq!(cancelled["status"], "cancelled");
    request(&session, "tasks/cancel", json!({"taskId": waiting})).await.expect_err("it is over");

    let trip = create(&session, "book_trip", json!({})).await;
    let booked = request(&session, "tasks/result", json!({"taskId": trip})).await.expect("tasks/result");
    assert_eq!(booked["structuredContent"]["summary"], "Booked 4 business seats to Turin.");
    let summary = soon("sampling", session.call_tool(arguments("summarize", json!({"text": "long"})))).await;
    assert_eq!(serde_json::to_value(summary.expect("summarize")).expect("JSON")["content"][0]["text"], "in short");

    let result = soon("wait", session.call_tool(arguments("wait", json!({"ms": 500})))).await.expect("wait");
    assert_ne!(result.is_error, Some(true));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(session.service().progress.load(Ordering::Relaxed) > 0, "this client always sends a progress token");
    session.cancel().await.expect("it ends");
}

#[tokio::test]
async fn the_rust_sdk_client_works_over_http() {
    let host = Setup::with(&["text", "primes", "desk"]).start().await;
    let relay = Relay::before(&host).await;
    let transport = StreamableHttpClientTransport::from_uri(relay.url);
    Box::pin(everything(Desk::default().serve(transport).await.expect("a session"))).await;
    let (legacy, modern) = relay.witness.content();
    assert!(legacy > 20 && modern == 0, "{legacy} and {modern} messages");
}

#[tokio::test]
async fn the_rust_sdk_client_works_over_stdio() {
    let setup = Setup::with(&["text", "primes", "desk"]);
    let pipe = relay::pipe(&setup, Era::Legacy);
    Box::pin(everything(Desk::default().serve(pipe.ends).await.expect("a session"))).await;
    let (legacy, modern) = pipe.witness.content();
    assert!(legacy > 20 && modern == 0, "{legacy} and {modern} messages");
}
