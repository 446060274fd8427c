//! Reporting, waiting and stopping: what a tool does while it runs.
//!
//! None of these functions fails because the client cannot show what was said.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// Reports how far the work is, in any unit that grows: items, bytes, per cent. Report as often as is convenient, the
/// host passes on what a client can use.
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

/// Becomes a task now, where client and tool allow it; else nothing happens. For a tool that knows early that it will
/// be long.
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
/// A tool that never looks is stopped without warning when its call is cancelled; one that looks has a moment to tidy
/// up.
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

/// A state that cannot be kept: it is larger than one may be, or no JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateError(String);

impl fmt::Display for StateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for StateError {}

/// Writes down where the work is, in at most 256 KiB, so that a task whose host stops need not begin at its begin: if
/// the tool does nothing but compute afterwards, it is called anew, and [`restored`] gives the state. Save as often as
/// is convenient, and after each effect; what comes too soon after another is passed over. In a call that is no task
/// this does nothing.
///
/// # Errors
///
/// [`StateError`], if the state is too large.
pub fn save(state: impl AsRef<[u8]>) -> Result<(), StateError> {
    host::checkpoint(state.as_ref()).map_err(StateError)
}

/// Like [`save`], with a state that is JSON.
///
/// # Errors
///
/// [`StateError`], if the state does not serialize or is too large.
pub fn save_json(state: &impl Serialize) -> Result<(), StateError> {
    save(serde_json::to_vec(state).map_err(|error| StateError(format!("a state does not serialize: {error}")))?)
}

/// The state that the tool was called anew with; none: it begins at its begin. Look before you start.
#[must_use]
pub fn restored() -> Option<Vec<u8>> {
    host::restored()
}

/// Like [`restored`], of a state that is JSON.
///
/// # Errors
///
/// [`StateError`], if it is not the JSON that is expected.
pub fn restored_json<T: DeserializeOwned>() -> Result<Option<T>, StateError> {
    let parse = |state: Vec<u8>| serde_json::from_slice(&state);
    restored().map(parse).transpose().map_err(|error| StateError(format!("the state that was saved: {error}")))
}

/// Tells the host that a list of this plugin is different now.
pub fn lists_changed(kind: ListKind) {
    host::lists_changed(kind);
}

/// Tells the host that a resource's contents are different now.
pub fn resource_updated(uri: &str) {
    host::resource_updated(uri);
}
