//! Facts, settings, progress, logs and waiting.

use std::time::Duration;

use bulkhead_plugin::task::{self, ListKind, LogLevel, Signals};
use bulkhead_plugin::{ClientFeature, Error, Json, call, config};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Facts {
    call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    task_id: Option<String>,
    attempt: u32,
    idempotency_key: String,
    requestor_id: String,
    /// What the client can be asked for.
    client_supports: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    wanted_log_level: Option<String>,
    related_tasks: Vec<String>,
}

pub(crate) fn facts() -> Json<Facts> {
    let features = [
        ("elicitation-form", ClientFeature::ElicitationForm),
        ("elicitation-url", ClientFeature::ElicitationUrl),
        ("sampling", ClientFeature::Sampling),
        ("sampling-tools", ClientFeature::SamplingTools),
        ("sampling-context", ClientFeature::SamplingContext),
        ("roots", ClientFeature::Roots),
        ("tasks", ClientFeature::Tasks),
    ];
    let supported = features.into_iter().filter(|(_, feature)| call::client_supports(*feature));
    Json(Facts {
        call_id: call::id(),
        task_id: call::task_id(),
        attempt: call::attempt(),
        idempotency_key: call::idempotency_key(),
        requestor_id: call::requestor_id(),
        client_supports: supported.map(|(name, _)| name.to_owned()).collect(),
        wanted_log_level: call::wanted_log_level().map(|level| format!("{level:?}")),
        related_tasks: call::related_tasks(),
    })
}

pub(crate) fn settings() -> Result<String, Error> {
    Ok(serde_json::to_string(&config::all()?)?)
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Record {
    level: Level,
    message: String,
}

pub(crate) fn log(Record { level, message }: Record) -> &'static str {
    let level = match level {
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Notice => LogLevel::Notice,
        Level::Warning => LogLevel::Warning,
        Level::Error => LogLevel::Error,
        Level::Critical => LogLevel::Critical,
        Level::Alert => LogLevel::Alert,
        Level::Emergency => LogLevel::Emergency,
    };
    task::log(level, &message);
    "logged"
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Steps {
    /// How many.
    steps: u32,
    /// Milliseconds between two.
    #[serde(default)]
    pause_ms: u64,
}

pub(crate) fn steps(Steps { steps, pause_ms }: Steps) -> Result<String, Error> {
    for step in 1..=steps {
        task::checkpoint()?;
        task::sleep(Duration::from_millis(pause_ms));
        task::progress(f64::from(step), Some(f64::from(steps)), Some(&format!("step {step}")));
        task::set_status(&format!("step {step} of {steps}"));
    }
    Ok(format!("{steps} steps"))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Wait {
    /// Milliseconds.
    ms: u64,
}

pub(crate) fn wait(Wait { ms }: Wait) -> String {
    task::sleep(Duration::from_millis(ms));
    format!("waited {ms} ms")
}

pub(crate) fn detach(duration: Wait) -> String {
    task::detach();
    wait(duration)
}

pub(crate) fn steered() -> Result<String, Error> {
    while !task::checkpoint()?.contains(Signals::STEERING_PENDING) {
        task::sleep(Duration::from_millis(20));
    }
    Ok(task::steering().join("\n"))
}

/// Name and description, each a line of the file.
pub(crate) fn changing() -> Option<(String, String)> {
    let text = std::fs::read_to_string("/lists/tool").ok()?;
    let (name, description) = text.trim_end().split_once('\n')?;
    Some((name.to_owned(), description.to_owned()))
}

pub(crate) fn change_tools() -> &'static str {
    task::lists_changed(ListKind::Tools);
    "said"
}
