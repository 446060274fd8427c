//! Tools for tasks.

use std::time::Duration;

use bulkhead_plugin::ask::{self, RawAnswer};
use bulkhead_plugin::{Error, Plugin, Tool, task};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::questions::{field, form, form_request};
use crate::read_only;

/// Between two looks for a cancellation.
const SLICE: Duration = Duration::from_millis(50);

pub(crate) fn tools(plugin: Plugin) -> Plugin {
    plugin
        .tool(read_only("greet", "Greets someone by name.", greet))
        .tool(Tool::new("slow_compute", "Takes a number of seconds.", slow_compute).task_optional().idempotent())
        .tool(Tool::new("failing_job", "Fails after a second; only as a task.", failing_job).task_required())
        .tool(Tool::new("protocol_error_job", "Ends with an error of the call.", protocol_error_job).task_optional())
        .tool(
            Tool::new("confirm_delete", "Asks before it deletes a file that does not exist.", confirm_delete)
                .task_optional(),
        )
        .tool(Tool::new("multi_input", "Asks two things at once.", multi_input).task_optional())
}

#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted.
    name: String,
}

fn greet(Greet { name }: Greet) -> String {
    format!("Hello, {name}!")
}

#[derive(Deserialize, JsonSchema)]
struct Compute {
    /// How long it takes.
    seconds: f64,
    /// What the result is called.
    label: Option<String>,
}

fn slow_compute(Compute { seconds, label }: Compute) -> Result<String, Error> {
    let mut left =
        Duration::try_from_secs_f64(seconds).map_err(|_| Error::invalid_params("seconds is out of range"))?;
    if !left.is_zero() {
        task::detach();
    }
    while !left.is_zero() {
        task::checkpoint()?;
        let slice = left.min(SLICE);
        task::sleep(slice);
        left -= slice;
    }
    Ok(format!("{} finished after {seconds} s", label.as_deref().unwrap_or("The computation")))
}

fn failing_job() -> Result<String, Error> {
    task::sleep(Duration::from_secs(1));
    Err(Error::new("This job always fails"))
}

fn protocol_error_job() -> Result<String, Error> {
    task::detach();
    task::sleep(Duration::from_millis(200));
    Err(Error::custom(42, "This job always ends with an error of the protocol", None))
}

#[derive(Deserialize, JsonSchema)]
struct File {
    /// Which file.
    filename: String,
}

fn confirm_delete(File { filename }: File) -> Result<String, Error> {
    task::detach();
    let schema = field("confirm", json!({ "type": "boolean" }));
    let answer = form("confirm", &format!("Delete {filename}?"), &schema)?;
    Ok(match answer.content {
        Some(content) if content.contains("true") => format!("Deleted {filename}"),
        _ => format!("Kept {filename}"),
    })
}

fn multi_input() -> Result<String, Error> {
    task::detach();
    let name = form_request("name", "What is your name?", &field("name", json!({ "type": "string" })));
    let confirm = form_request("confirm", "Go on?", &field("confirm", json!({ "type": "boolean" })));
    let answers = ask::all(&[name, confirm])?;
    let lines: Vec<_> = answers
        .iter()
        .map(|response| match &response.answer {
            RawAnswer::Elicitation(answer) => {
                format!("{}: {}", response.key, answer.content.as_deref().unwrap_or("none"))
            }
            other => format!("{}: {other:?}", response.key),
        })
        .collect();
    Ok(lines.join("\n"))
}
