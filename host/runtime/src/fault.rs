//! What went wrong in a call: decided once, here.
//!
//! A guest that misbehaves gets a reason that its requestor may read. A host that breaks gets an incident id, and the
//! operator's log gets the rest. Invariant: no text of the host's insides leaves this file.

use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi_http::FieldMapError;

use super::limits::{BLOCKING_WRITE_BYTES_MAX, ERROR_BYTES_MAX, HOST_RESOURCES_MAX, HTTP_FIELD_BYTES_MAX, LimitHit};
use super::trap_causes::{AtMark, BrokenAnswer, HostFailure};
use bulkhead_calls::Fenced;
use bulkhead_calls::journal::Divergence;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::text::{Bytes, beginning, escaped};

/// Bytes of a plugin's own words in the operator's log.
const LOGGED_BYTES_MAX: usize = 1024;

pub(super) fn limit(reason: impl Into<String>) -> CallError {
    CallError::Fault { kind: FaultKind::Limit, reason: reason.into() }
}

pub(super) fn invalid_output(reason: impl Into<String>) -> CallError {
    // It may quote what the guest returned.
    CallError::Fault { kind: FaultKind::InvalidOutput, reason: cut(reason.into()) }
}

/// A text of a guest in an error.
pub(super) fn cut(text: String) -> String {
    if text.len() <= ERROR_BYTES_MAX { text } else { beginning(&text, ERROR_BYTES_MAX).to_owned() }
}

fn trap(reason: impl Into<String>) -> CallError {
    CallError::Fault { kind: FaultKind::Trap, reason: reason.into() }
}

/// The operator's patience with calls of a version that was replaced is over.
pub(super) fn withdrawn() -> CallError {
    let reason = "the version of the plugin that this call runs was withdrawn; call the tool again".to_owned();
    CallError::Fault { kind: FaultKind::Deadline, reason }
}

/// What a call that wasmtime ended with an error ended with.
///
/// `passed_max` is how many bytes it may have passed to the host at once.
pub(super) fn classify(plugin: &str, error: &wasmtime::Error, passed_max: u64) -> CallError {
    if let Some(hit) = error.downcast_ref::<LimitHit>() {
        return limit(hit.to_string());
    }
    if let Some(failure) = error.downcast_ref::<HostFailure>() {
        return internal(plugin, &failure.0);
    }
    if let Some(divergence) = error.downcast_ref::<Divergence>() {
        return diverged(plugin, divergence);
    }
    if error.is::<Fenced>() || error.is::<AtMark>() {
        return CallError::Interrupted;
    }
    if let Some(broken) = error.downcast_ref::<BrokenAnswer>() {
        return invalid_output(broken.0.clone());
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return internal(plugin, &format!("the instance pool is full: {error:#}"));
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        // The table of what is pending in WASI 0.3 has as many places.
        return limit(format!("the tool holds more than {HOST_RESOURCES_MAX} host resources at once"));
    }
    if let Some(FieldMapError::TotalSizeTooBig | FieldMapError::TooManyFields) = error.downcast_ref::<FieldMapError>() {
        let bytes_max = Bytes(HTTP_FIELD_BYTES_MAX as u64);
        return limit(format!("the headers of one HTTP message of the tool are longer than {bytes_max}, or too many"));
    }
    tracing::debug!(plugin, error = escaped(beginning(&format!("{error:#}"), LOGGED_BYTES_MAX)), "guest fault");
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return trap(format!("the tool ended its process with code {}", exit.0));
    }
    if error.is::<std::str::Utf8Error>() {
        return invalid_output("the tool passed a text that is not UTF-8");
    }
    if let Some(kind) = error.downcast_ref::<Trap>() {
        return match kind {
            Trap::StackOverflow => trap("the tool's call stack overflowed"),
            Trap::AsyncDeadlock => trap("the tool waits for something that nobody will do"),
            Trap::UnreachableCodeReached => trap("the tool crashed: it panicked or aborted"),
            other => trap(format!("the tool trapped: {other}")),
        };
    }
    by_text(&format!("{error:#}"), passed_max)
}

/// Limits that wasmtime reports with types of its own; the texts are pinned by tests.
fn by_text(text: &str, passed_max: u64) -> CallError {
    if text.contains("fuel allocated for hostcalls") {
        return limit(format!(
            "the tool passed too much data at once: {} is the most, which follows call.result_bytes",
            Bytes(passed_max)
        ));
    }
    if text.contains("Buffer too large for blocking-write") {
        return limit(format!("the tool wrote more than {BLOCKING_WRITE_BYTES_MAX} bytes to a stream at once"));
    }
    if text.contains("resource limit exceeded") || text.contains("count too high") {
        return limit("the tool is made of too many instances, memories or tables");
    }
    if text.contains("handle") && text.contains("limit") {
        return limit("the tool holds too many handles at once");
    }
    trap("the tool broke the rules of its interface")
}

/// What a guest that crashed had written to its standard error, for the operator only.
pub(super) fn log_crash(plugin: &str, stderr: &str) {
    let begin = stderr.ceil_char_boundary(stderr.len().saturating_sub(LOGGED_BYTES_MAX));
    let stderr = stderr.get(begin..).unwrap_or_default();
    tracing::info!(plugin, stderr, "a guest crashed; this is the end of its standard error");
}

/// A failure that is not the guest's. Logged here, once, under the incident id that the client gets.
pub(super) fn internal(plugin: &str, text: &str) -> CallError {
    let incident = incident();
    tracing::error!(plugin, incident, error = escaped(beginning(text, LOGGED_BYTES_MAX)), "call failed");
    CallError::Internal { incident }
}

/// The plugin's own word for "something broke in me": for the operator only.
pub(super) fn reported(plugin: &str, text: &str) -> CallError {
    let incident = incident();
    let error = escaped(beginning(text, LOGGED_BYTES_MAX));
    tracing::warn!(plugin, incident, error, "plugin reported an internal error");
    CallError::Internal { incident }
}

/// A call that could not be brought back to where it was: the operator is told at which entry.
pub(super) fn diverged(plugin: &str, why: &impl std::fmt::Display) -> CallError {
    let divergence = escaped(&why.to_string());
    tracing::error!(plugin, divergence, "a call could not be brought back to where it was");
    CallError::Interrupted
}

fn incident() -> String {
    let mut bytes = [0; 8];
    // Without entropy the id is useless for finding the log line, but the call still ends properly.
    let _ = getrandom::fill(&mut bytes);
    format!("{:016x}", u64::from_be_bytes(bytes))
}
