//! Checks messages of the host against the official schemas.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::{Value, json};

const FIRST: &str = include_str!("../fixtures/schema/2025-03-26.json");
const OLDER: &str = include_str!("../fixtures/schema/2025-06-18.json");
const LEGACY: &str = include_str!("../fixtures/schema/2025-11-25.json");
const MODERN: &str = include_str!("../fixtures/schema/2026-07-28.json");
/// The extension of tasks.
const TASKS: &str = include_str!("../fixtures/schema/ext-tasks.json");

/// What a response has to look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The request's id.
    pub id: Value,
    /// Its method.
    pub method: String,
}

/// A check of a message against one revision; `expected`: what the message has to be the response to, if it is one.
pub type Check = fn(&Value, Option<&Expected>);

/// The check of a legacy session of this revision.
pub fn check_of(version: &str) -> Check {
    match version {
        "2025-03-26" => check_first,
        "2025-06-18" => check_older,
        _ => check,
    }
}

/// Panics unless `message` is one that a server may send, and the response to `expected` if it is a response at all.
pub fn check(message: &Value, expected: Option<&Expected>) {
    let method = message.get("method").and_then(Value::as_str);
    match (method, message.get("id")) {
        (Some("notifications/tasks/created"), None) => check_created(message),
        (Some(method), Some(_)) => conform(message, server_request(method)),
        (Some(method), None) => conform(message, server_notification(method)),
        (None, _) => check_response(message, expected),
    }
}

fn check_response(message: &Value, expected: Option<&Expected>) {
    if message.get("error").is_some() {
        conform(message, "JSONRPCErrorResponse");
        assert!(message.get("result").is_none(), "both a result and an error: {message}");
    } else {
        conform(message, "JSONRPCResultResponse");
    }
    let Some(expected) = expected else { return };
    check_id(message, expected);
    if let Some(result) = message.get("result") {
        conform(result, result_of(&expected.method, result));
        check_empty(&expected.method, result);
        for_each_task(result, &check_times);
        for_each_task(result, &check_beside);
        if expected.method == "tasks/result" {
            assert!(result["_meta"][RELATED]["taskId"].is_string(), "the result names its task: {result}");
        }
    }
}

fn check_id(message: &Value, expected: &Expected) {
    if let Some(id) = message.get("id") {
        assert_eq!(*id, expected.id, "the answer to another request: {message}");
    } else {
        assert!(message.get("error").is_some(), "a result without an id: {message}");
    }
}

fn check_empty(method: &str, result: &Value) {
    let names_its_task = result["_meta"][SEP1686_RELATED].is_object();
    if matches!(method, "ping" | "logging/setLevel") && !names_its_task {
        assert_eq!(*result, json!({}), "{method} has an empty result");
    }
}

/// The same as [`check`] for revision 2025-06-18. It has no tasks: those of SEP-1686 look as that design has them.
pub fn check_older(message: &Value, expected: Option<&Expected>) {
    check_without_tasks(OLDER, message, expected);
}

/// Likewise for revision 2025-03-26, one message of a batch at a time.
pub fn check_first(message: &Value, expected: Option<&Expected>) {
    check_without_tasks(FIRST, message, expected);
}

fn check_without_tasks(schema: &'static str, message: &Value, expected: Option<&Expected>) {
    let method = message.get("method").and_then(Value::as_str);
    let id = message.get("id");
    match (method, id) {
        (Some("notifications/tasks/created"), None) => return check_created(message),
        (Some(_), Some(_)) => return conform_to(schema, message, "ServerRequest"),
        (Some(_), None) => return conform_to(schema, message, "ServerNotification"),
        // That an id may be unknown was written down later.
        (None, None) => conform(message, "JSONRPCErrorResponse"),
        (None, Some(_)) if message.get("error").is_some() => conform_to(schema, message, "JSONRPCError"),
        (None, Some(_)) => conform_to(schema, message, "JSONRPCResponse"),
    }
    let Some(expected) = expected else { return };
    check_id(message, expected);
    let Some(result) = message.get("result") else { return };
    match expected.method.as_str() {
        "tasks/get" => check_sep1686(result),
        "tasks/list" => {
            conform_to(schema, result, "PaginatedResult");
            result["tasks"].as_array().expect("a list").iter().for_each(check_sep1686);
        }
        method => conform_to(schema, result, result_of(method, result)),
    }
    check_empty(&expected.method, result);
}

/// The key that ties a message to a task of the core.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// What the host says in `_meta` of a task of SEP-1686 whose status 2025-11-25 does not have.
pub const SEP1686_STATUS: &str = "dev.bulkhead/sep-1686-status";
/// The key that ties a message to a task of SEP-1686.
pub const SEP1686_RELATED: &str = "modelcontextprotocol.io/related-task";

/// SEP-1686 has no schema; this is its text.
fn check_created(message: &Value) {
    let id = &message["params"]["_meta"][SEP1686_RELATED]["taskId"];
    assert!(id.is_string(), "{message}");
    let params = json!({"_meta": {SEP1686_RELATED: {"taskId": id}}});
    assert_eq!(*message, json!({"jsonrpc": "2.0", "method": "notifications/tasks/created", "params": params}));
}

/// The members of SEP-1686 that stand beside those of 2025-11-25, if they do.
fn check_beside(task: &Value) {
    if task.get("pollFrequency").is_none() {
        return assert!(task.get("keepAlive").is_none(), "half a task of SEP-1686: {task}");
    }
    let error = task.get("error");
    let status = task["status"].as_str().unwrap_or_default();
    assert!(task["pollFrequency"].is_u64(), "{task}");
    assert!(task["keepAlive"].is_u64() || task.get("keepAlive") == Some(&Value::Null), "{task}");
    assert_eq!(error.is_some_and(Value::is_string), status == "failed", "{task}");
    if let Some(said) = task["_meta"].get(SEP1686_STATUS) {
        assert_eq!((said, status), (&json!("submitted"), "working"), "{task}");
    }
}

fn check_sep1686(task: &Value) {
    let status = task["status"].as_str().unwrap_or_default();
    assert!(
        ["submitted", "working", "input_required", "completed", "failed", "cancelled"].contains(&status),
        "no status of SEP-1686: {task}"
    );
    assert!(task["taskId"].is_string() && task["pollFrequency"].is_u64(), "{task}");
    assert!(task["keepAlive"].is_u64() || task.get("keepAlive") == Some(&Value::Null), "{task}");
    let known = ["taskId", "status", "keepAlive", "pollFrequency", "error", "_meta"];
    let members = task.as_object().into_iter().flatten();
    members.for_each(|(name, _)| assert!(known.contains(&name.as_str()), "what is {name}? {task}"));
}

/// The definition of a method's result.
fn result_of(method: &str, result: &Value) -> &'static str {
    match method {
        "initialize" => "InitializeResult",
        "ping"
        | "logging/setLevel"
        | "tasks/steer"
        | "tasks/delete"
        | "resources/subscribe"
        | "resources/unsubscribe" => "EmptyResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "resources/read" => "ReadResourceResult",
        "prompts/list" => "ListPromptsResult",
        "prompts/get" => "GetPromptResult",
        "completion/complete" => "CompleteResult",
        // Of which there is no schema.
        "skills/list" => "PaginatedResult",
        "skills/get" => "Result",
        "tools/list" => "ListToolsResult",
        "tools/call" if result.get("task").is_some() => "CreateTaskResult",
        "tasks/result" if result.get("content").is_none() => of_another_request(result),
        "tools/call" | "tasks/result" => "CallToolResult",
        "tasks/get" | "tasks/pause" | "tasks/resume" => "GetTaskResult",
        "tasks/cancel" => "CancelTaskResult",
        "tasks/list" => "ListTasksResult",
        other => panic!("no test knows what the result of {other} looks like: add it here"),
    }
}

/// What a task of SEP-1686 came to that was no call of a tool.
fn of_another_request(result: &Value) -> &'static str {
    let members = [
        ("contents", "ReadResourceResult"),
        ("messages", "GetPromptResult"),
        ("completion", "CompleteResult"),
        ("tools", "ListToolsResult"),
        ("resources", "ListResourcesResult"),
        ("resourceTemplates", "ListResourceTemplatesResult"),
        ("prompts", "ListPromptsResult"),
    ];
    members.into_iter().find(|(member, _)| result.get(member).is_some()).map_or("EmptyResult", |(_, name)| name)
}

fn server_request(method: &str) -> &'static str {
    match method {
        "ping" => "PingRequest",
        "elicitation/create" => "ElicitRequest",
        "sampling/createMessage" => "CreateMessageRequest",
        "roots/list" => "ListRootsRequest",
        "tasks/get" => "GetTaskRequest",
        "tasks/result" => "GetTaskPayloadRequest",
        "tasks/cancel" => "CancelTaskRequest",
        "tasks/list" => "ListTasksRequest",
        other => panic!("a server of this revision sends no request {other}"),
    }
}

fn server_notification(method: &str) -> &'static str {
    match method {
        "notifications/cancelled" => "CancelledNotification",
        "notifications/progress" => "ProgressNotification",
        "notifications/message" => "LoggingMessageNotification",
        "notifications/tasks/status" => "TaskStatusNotification",
        "notifications/tools/list_changed" => "ToolListChangedNotification",
        "notifications/resources/list_changed" => "ResourceListChangedNotification",
        "notifications/resources/updated" => "ResourceUpdatedNotification",
        "notifications/prompts/list_changed" => "PromptListChangedNotification",
        "notifications/elicitation/complete" => "ElicitationCompleteNotification",
        other => panic!("a server of this revision sends no notification {other}"),
    }
}

/// The schema calls times plain strings; the text of the specification wants ISO 8601.
fn check_times(task: &Value) {
    for key in ["createdAt", "lastUpdatedAt"] {
        let time = task[key].as_str().unwrap_or_default();
        let digits = |range: std::ops::Range<usize>| {
            time.get(range).is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let good = time.len() >= 20
            && digits(0..4)
            && digits(5..7)
            && digits(8..10)
            && digits(11..13)
            && digits(14..16)
            && digits(17..19)
            && time.as_bytes().get(10) == Some(&b'T')
            && time.ends_with('Z');
        assert!(good, "{key} is no ISO 8601 time in UTC: {task}");
    }
}

fn for_each_task(result: &Value, check: &dyn Fn(&Value)) {
    if result.get("taskId").is_some() {
        check(result);
    }
    if let Some(task) = result.get("task") {
        check(task);
    }
    result.get("tasks").and_then(Value::as_array).into_iter().flatten().for_each(check);
}

/// The same as [`check`] for revision 2026-07-28. There is no official schema for the status `paused`.
pub fn check_modern(message: &Value, expected: Option<&Expected>) {
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        assert!(message.get("id").is_none(), "a server of this revision sends no requests: {message}");
        let params = &message["params"];
        return match method {
            "notifications/tasks" if params["status"] == "paused" => check_times(params),
            "notifications/tasks" => {
                conform_to(TASKS, message, "TaskStatusNotification");
                check_times(params);
                check_inlined(params);
            }
            _ => conform_to(MODERN, message, "ServerNotification"),
        };
    }
    if message.get("error").is_some() {
        conform_to(MODERN, message, "JSONRPCErrorResponse");
        assert!(message.get("result").is_none(), "both a result and an error: {message}");
    } else {
        conform_to(MODERN, message, "JSONRPCResultResponse");
    }
    let Some(expected) = expected else { return };
    assert_eq!(message["id"], expected.id, "the answer to another request: {message}");
    let Some(result) = message.get("result") else { return };
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"].is_object(), "nobody answers: {message}");
    for_each_task(result, &check_times);
    let kind = result["resultType"].as_str().unwrap_or_default();
    let (schema, definition) = match (expected.method.as_str(), kind) {
        ("server/discover", "complete") => (MODERN, "DiscoverResult"),
        ("tools/list", "complete") => (MODERN, "ListToolsResult"),
        ("tools/call", "complete") => (MODERN, "CallToolResult"),
        ("resources/list", "complete") => (MODERN, "ListResourcesResult"),
        ("resources/templates/list", "complete") => (MODERN, "ListResourceTemplatesResult"),
        ("resources/read", "complete") => (MODERN, "ReadResourceResult"),
        ("prompts/list", "complete") => (MODERN, "ListPromptsResult"),
        ("prompts/get", "complete") => (MODERN, "GetPromptResult"),
        ("completion/complete", "complete") => (MODERN, "CompleteResult"),
        ("skills/list" | "skills/get", "complete") => (MODERN, "CacheableResult"),
        ("resources/read" | "prompts/get", "input_required") => (MODERN, "InputRequiredResult"),
        ("tools/call", "input_required") => (MODERN, "InputRequiredResult"),
        ("tools/call", "task") => (TASKS, "CreateTaskResult"),
        ("subscriptions/listen", "complete") => (MODERN, "SubscriptionsListenResult"),
        ("tasks/get" | "tasks/pause" | "tasks/resume", "complete") if result["status"] == "paused" => return,
        ("tasks/get" | "tasks/pause" | "tasks/resume", "complete") => (TASKS, "GetTaskResult"),
        ("tasks/update" | "tasks/steer", "complete") => (TASKS, "UpdateTaskResult"),
        ("tasks/cancel", "complete") => (TASKS, "CancelTaskResult"),
        other => panic!("no test knows what the result of {other:?} looks like: add it here"),
    };
    conform_to(schema, result, definition);
    if definition == "GetTaskResult" {
        check_inlined(result);
    }
}

/// What a task carries in itself: the extension's schema leaves it open, the revision's knows it.
fn check_inlined(task: &Value) {
    if let Some(result) = task.get("result") {
        conform_to(MODERN, result, "CallToolResult");
    }
    if let Some(requests) = task.get("inputRequests") {
        conform_to(MODERN, requests, "InputRequests");
    }
}

/// Panics unless a task fits the schema of 2025-11-25.
pub fn check_task(task: &Value) {
    conform(task, "Task");
    check_times(task);
    check_beside(task);
}

/// Panics unless `value` fits a definition of the schema of 2025-11-25.
pub fn conform(value: &Value, definition: &'static str) {
    conform_to(LEGACY, value, definition);
}

fn conform_to(schema: &'static str, value: &Value, definition: &'static str) {
    let errors: Vec<_> = validator(schema, definition).iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "not a {definition}: {}\n{value:#}", errors.join("; "));
}

/// Compiled definitions, by schema.
type Compiled = HashMap<(&'static str, &'static str), Arc<Validator>>;

fn validator(text: &'static str, definition: &'static str) -> Arc<Validator> {
    static COMPILED: OnceLock<Mutex<Compiled>> = OnceLock::new();
    let mut compiled = COMPILED.get_or_init(Mutex::default).lock();
    let compile = || {
        let mut schema: Value = serde_json::from_str(text).expect("the schema is JSON");
        let definitions = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
        assert!(schema[definitions].get(definition).is_some(), "the schema has no {definition}");
        schema["$ref"] = json!(format!("#/{definitions}/{definition}"));
        Arc::new(jsonschema::validator_for(&schema).expect("the schema compiles"))
    };
    compiled.entry((text, definition)).or_insert_with(compile).clone()
}
