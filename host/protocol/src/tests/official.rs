//! The official schemas.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use serde_json::{Value, json};

type Compiled = Mutex<HashMap<(&'static str, &'static str), jsonschema::Validator>>;
static COMPILED: LazyLock<Compiled> = LazyLock::new(Mutex::default);

const FIRST: &str = "2025-03-26";
const OLDER: &str = "2025-06-18";
const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const TASKS: &str = "ext-tasks";

fn fits_in(schema: &'static str, definition: &'static str, value: &Value) {
    let mut compiled = COMPILED.lock();
    let validator = compiled.entry((schema, definition)).or_insert_with(|| {
        let path = format!("{}/../../tests/fixtures/schema/{schema}.json", env!("CARGO_MANIFEST_DIR"));
        let mut schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let definitions = if schema["$defs"].is_object() { "$defs" } else { "definitions" };
        schema["$ref"] = json!(format!("#/{definitions}/{definition}"));
        jsonschema::validator_for(&schema).unwrap()
    });
    let errors: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{definition}: {errors:?}\n{value}");
}

fn fits(definition: &'static str, value: &Value) {
    fits_in(LEGACY, definition, value);
}

/// The same for the modern era. Nothing can be said with the official schema about the status `paused`.
pub(super) fn check_modern(method: &str, message: &Value) {
    if message["method"] == "notifications/tasks" {
        if message["params"]["status"] != "paused" {
            fits_in(TASKS, "TaskStatusNotification", message);
        }
        return;
    }
    if message["method"].is_string() {
        assert!(message["id"].is_null(), "a server sends no requests: {message}");
        return fits_in(MODERN, "ServerNotification", message);
    }
    if message["error"].is_object() {
        return fits_in(MODERN, "JSONRPCErrorResponse", message);
    }
    fits_in(MODERN, "JSONRPCResultResponse", message);
    let result = &message["result"];
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{result}");
    match (method, result["resultType"].as_str().unwrap()) {
        ("server/discover", "complete") => fits_in(MODERN, "DiscoverResult", result),
        ("tools/list", "complete") => fits_in(MODERN, "ListToolsResult", result),
        ("tools/call", "complete") => fits_in(MODERN, "CallToolResult", result),
        ("resources/list", "complete") => fits_in(MODERN, "ListResourcesResult", result),
        ("resources/templates/list", "complete") => fits_in(MODERN, "ListResourceTemplatesResult", result),
        ("resources/read", "complete") => fits_in(MODERN, "ReadResourceResult", result),
        ("prompts/list", "complete") => fits_in(MODERN, "ListPromptsResult", result),
        ("prompts/get", "complete") => fits_in(MODERN, "GetPromptResult", result),
        ("skills/list" | "skills/get", "complete") => {
            // They are cacheable as any list; of the rest there is no schema.
            assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string(), "{result}");
            fits_skills(result);
        }
        ("completion/complete", "complete") => fits_in(MODERN, "CompleteResult", result),
        ("tools/call" | "prompts/get" | "resources/read", "input_required") => {
            fits_in(MODERN, "InputRequiredResult", result)
        }
        ("tools/call", "task") => fits_in(TASKS, "CreateTaskResult", result),
        ("subscriptions/listen", "complete") => fits_in(MODERN, "SubscriptionsListenResult", result),
        ("tasks/get" | "tasks/pause" | "tasks/resume", "complete") => {
            if result["status"] != "paused" {
                fits_in(TASKS, "GetTaskResult", result);
            }
        }
        ("tasks/update" | "tasks/steer", "complete") => fits_in(TASKS, "UpdateTaskResult", result),
        ("tasks/cancel", "complete") => fits_in(TASKS, "CancelTaskResult", result),
        other => panic!("no definition for {other:?}"),
    }
}

/// There is no official schema of SEP-1686: this is its text. Alone as a result, a task is named in the metadata as
/// well.
fn fits_sep1686(task: &Value, alone: bool) {
    let mut members: Vec<_> = task.as_object().unwrap().keys().map(String::as_str).collect();
    members.retain(|member| *member != "error");
    members.sort_unstable();
    let status = task["status"].as_str().unwrap();
    assert!(["submitted", "working", "input_required", "completed", "failed", "cancelled"].contains(&status));
    assert_eq!(task["error"].is_string(), status == "failed", "{task}");
    assert!(task["keepAlive"].is_u64() || task["keepAlive"].is_null(), "{task}");
    assert!(task["pollFrequency"].is_u64() && task["taskId"].is_string(), "{task}");
    if alone {
        assert_eq!(members, ["_meta", "keepAlive", "pollFrequency", "status", "taskId"]);
        let named = json!({"modelcontextprotocol.io/related-task": {"taskId": task["taskId"]}});
        assert_eq!(task["_meta"], named);
    } else {
        assert_eq!(members, ["keepAlive", "pollFrequency", "status", "taskId"]);
    }
}

/// The members of SEP-1686 that stand beside those of the core, where a task has them. Alone as a result it is named in
/// the metadata.
fn fits_beside(task: &Value, alone: bool) {
    if task["pollFrequency"].is_null() {
        return assert!(task.get("keepAlive").is_none() && task["error"].is_null(), "{task}");
    }
    assert!(task["keepAlive"].is_u64() || task["keepAlive"].is_null(), "{task}");
    assert_eq!(task["error"].is_string(), task["status"] == "failed", "{task}");
    let mut meta = json!({});
    if alone {
        meta["modelcontextprotocol.io/related-task"] = json!({"taskId": task["taskId"]});
    }
    if !task["_meta"]["dev.bulkhead/sep-1686-status"].is_null() {
        assert_eq!(task["status"], "working");
        meta["dev.bulkhead/sep-1686-status"] = json!("submitted");
    }
    assert_eq!(task.get("_meta").unwrap_or(&json!({})), &meta, "{task}");
}

/// There is no official schema of SEP-2640: this is its text.
fn fits_skills(result: &Value) {
    let listed = result["skills"].as_array().into_iter().flatten();
    let skills: Vec<_> = listed.chain(result.get("skill")).collect();
    assert!(result["skills"].is_array() != result["skill"].is_object(), "{result}");
    for skill in skills {
        let uri = skill["uri"].as_str().unwrap();
        let folder = uri.strip_suffix("/SKILL.md").unwrap();
        assert_eq!(folder.rsplit('/').next(), skill["frontmatter"]["name"].as_str(), "{skill}");
        assert!(skill["frontmatter"]["description"].is_string(), "{skill}");
        let files = skill["resources"].as_array().unwrap();
        assert_eq!(files.iter().filter(|file| file["uri"] == uri).count(), 1, "{skill}");
        for file in files {
            assert!(file["uri"].as_str().unwrap().strip_prefix(folder).unwrap().starts_with('/'), "{file}");
            assert!(file["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().len() == 64, "{file}");
            assert!(file["size"].is_u64(), "{file}");
        }
    }
}

/// The definition of a result that a task of SEP-1686 has, by the member that it is about.
fn result_of(result: &Value) -> &'static str {
    let members = [
        ("contents", "ReadResourceResult"),
        ("messages", "GetPromptResult"),
        ("completion", "CompleteResult"),
        ("tools", "ListToolsResult"),
        ("resources", "ListResourcesResult"),
        ("resourceTemplates", "ListResourceTemplatesResult"),
        ("prompts", "ListPromptsResult"),
        ("skills", "PaginatedResult"),
        ("skill", "Result"),
    ];
    members.into_iter().find(|(member, _)| !result[*member].is_null()).map_or("EmptyResult", |(_, name)| name)
}

/// Holds a message of a session against the definition that it must fit; `method`: of the request, if it is a response.
pub(super) fn check(version: &str, method: &str, message: &Value) {
    if message["method"] == "notifications/tasks/created" {
        let named = &message["params"]["_meta"]["modelcontextprotocol.io/related-task"]["taskId"];
        let expected = json!({"jsonrpc": "2.0", "method": "notifications/tasks/created",
            "params": {"_meta": {"modelcontextprotocol.io/related-task": {"taskId": named}}}});
        assert!(named.is_string());
        return assert_eq!(*message, expected);
    }
    if message["method"].is_string() {
        return fits(if message["id"].is_null() { "ServerNotification" } else { "ServerRequest" }, message);
    }
    if message["error"].is_object() {
        return fits("JSONRPCErrorResponse", message);
    }
    fits("JSONRPCResultResponse", message);
    let result = &message["result"];
    let listed = || result["tasks"].as_array().into_iter().flatten();
    if version != LEGACY {
        match method {
            "tasks/get" => return fits_sep1686(result, true),
            "tasks/list" => return listed().for_each(|task| fits_sep1686(task, false)),
            _ => {}
        }
    }
    listed().for_each(|task| fits_beside(task, false));
    if result["taskId"].is_string() {
        fits_beside(result, true);
    }
    let definition = match method {
        "initialize" => "InitializeResult",
        "tools/list" => "ListToolsResult",
        "tools/call" if result["task"].is_object() => "CreateTaskResult",
        "tasks/result" if !result["content"].is_array() => result_of(result),
        "tools/call" | "tasks/result" => "CallToolResult",
        "tasks/get" | "tasks/pause" | "tasks/resume" => "GetTaskResult",
        "tasks/list" => "ListTasksResult",
        "tasks/cancel" => "CancelTaskResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "resources/read" => "ReadResourceResult",
        "prompts/list" => "ListPromptsResult",
        "prompts/get" => "GetPromptResult",
        "completion/complete" => "CompleteResult",
        "skills/list" | "skills/get" => return fits_skills(result),
        "ping"
        | "logging/setLevel"
        | "tasks/steer"
        | "tasks/delete"
        | "resources/subscribe"
        | "resources/unsubscribe" => "EmptyResult",
        _ => panic!("no definition for the result of {method}"),
    };
    let schema = [FIRST, OLDER].into_iter().find(|older| *older == version).unwrap_or(LEGACY);
    fits_in(schema, definition, result);
}
