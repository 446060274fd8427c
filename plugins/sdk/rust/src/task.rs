//! Reporting, waiting and stopping: what a tool does while it runs.
//!
//! None of these functions fails because the client cannot show what was said.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::bindings::bulkhead::plugin::task as host;

pub use host::{ListKind, LogLevel, Signals};

/// The call was cancelled; what [`checkpoint`] returns so that `?` leaves the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the call was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// Reports how far the work is, in any unit that grows: items, bytes, per cent. Report as often as is convenient, the host passes on
/// what a client can use.
pub fn progress(done: f64, total: Option<f64>, message: Option<&str>) {
    host::progress(done, total, message);
}

/// Says in one line what is happening now; shown with the task's status.
pub fn set_status(message: &str) {
    host::set_status(message);
}

/// Sends a log record: a text, or anything that serializes.
///
/// ```no_run
/// use bulkhead_plugin::task::{self, LogLevel};
///
/// task::log(LogLevel::Info, "starting");
/// task::log(LogLevel::Warning, &serde_json::json!({ "rows_skipped": 3 }));
/// ```
pub fn log<T: Serialize + ?Sized>(level: LogLevel, data: &T) {
    match serde_json::to_string(data) {
        Ok(json) => host::log(level, None, &json),
        Err(error) => {
            let complaint = serde_json::Value::String(format!("a log record does not serialize: {error}"));
            host::log(LogLevel::Error, None, &complaint.to_string());
        }
    }
}

/// Becomes a task now, where client and tool allow it; else nothing happens. For a tool that knows early that it will be long.
pub fn detach() {
    host::detach();
}

/// Takes the messages that the client sent to the running task, oldest first, each once.
#[must_use]
pub fn steering() -> Vec<String> {
    host::steering()
}

/// Waits without using CPU time. Ends early only when the call itself ends.
pub fn sleep(duration: Duration) {
    host::sleep(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
}

/// Looks whether the call was cancelled and whether [`steering`] has something. Cheap; call it in loops.
///
/// A tool that never looks is stopped without warning when its call is cancelled; one that looks has a moment to tidy up.
#[must_use]
pub fn safe_point() -> Signals {
    host::safe_point()
}

/// Like [`safe_point`], for tools that have nothing to tidy up: `?` leaves the tool when the call was cancelled.
///
/// # Errors
///
/// [`Cancelled`], once the call is.
pub fn checkpoint() -> Result<Signals, Cancelled> {
    let signals = safe_point();
    if signals.contains(Signals::CANCELLED) { Err(Cancelled) } else { Ok(signals) }
}

/// Tells the host that a list of this plugin is different now.
pub fn lists_changed(kind: ListKind) {
    host::lists_changed(kind);
}

/// Tells the host that a resource's contents are different now.
pub fn resource_updated(uri: &str) {
    host::resource_updated(uri);
}
