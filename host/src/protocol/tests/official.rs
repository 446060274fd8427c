//! The official schema of 2025-11-25.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use serde_json::{Value, json};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/schema/2025-11-25.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
});
static COMPILED: LazyLock<Mutex<HashMap<&'static str, jsonschema::Validator>>> = LazyLock::new(Mutex::default);

fn fits(definition: &'static str, value: &Value) {
    let mut compiled = COMPILED.lock().unwrap();
    let validator = compiled.entry(definition).or_insert_with(|| {
        let schema = json!({"$ref": format!("#/$defs/{definition}"), "$defs": SCHEMA["$defs"]});
        jsonschema::validator_for(&schema).unwrap()
    });
    let errors: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{definition}: {errors:?}\n{value}");
}

/// Holds a message against the definition that it must fit; `method`: of the request, if it is a response.
pub(super) fn check(method: &str, message: &Value) {
    if message["method"].is_string() {
        return fits(if message["id"].is_null() { "ServerNotification" } else { "ServerRequest" }, message);
    }
    if message["error"].is_object() {
        return fits("JSONRPCErrorResponse", message);
    }
    fits("JSONRPCResultResponse", message);
    let result = &message["result"];
    let definition = match method {
        "initialize" => "InitializeResult",
        "tools/list" => "ListToolsResult",
        "tools/call" if result["task"].is_object() => "CreateTaskResult",
        "tools/call" | "tasks/result" => "CallToolResult",
        "tasks/get" => "GetTaskResult",
        "tasks/list" => "ListTasksResult",
        "tasks/cancel" => "CancelTaskResult",
        "ping" | "logging/setLevel" => "EmptyResult",
        _ => panic!("no definition for the result of {method}"),
    };
    fits(definition, result);
}
