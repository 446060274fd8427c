//! What is known about the call that is running.

use crate::bindings::bulkhead::plugin::task as host;
use crate::{ClientFeature, task::LogLevel};

/// An id of this call, for logs; unguessable, never shown to anyone else.
#[must_use]
pub fn id() -> String {
    host::call_id()
}

/// The task's id, once the call is a task.
#[must_use]
pub fn task_id() -> Option<String> {
    host::task_id()
}

/// 1 for the first run, 2 for the run after a restart of the host, and so on.
#[must_use]
pub fn attempt() -> u32 {
    host::attempt()
}

/// The same for every attempt of the same call: pass it to services that deduplicate.
#[must_use]
pub fn idempotency_key() -> String {
    host::idempotency_key()
}

/// Who is calling, as a random id that is the same for every call of one requestor; never a name.
#[must_use]
pub fn requestor_id() -> String {
    host::requestor_id()
}

/// Whether the client can do this. Look before asking where the tool can do without.
#[must_use]
pub fn client_supports(feature: ClientFeature) -> bool {
    host::client_supports(feature)
}

/// What the client says of an extension of MCP, as far as the host knows that extension, as JSON. `None`: it does not
/// have it.
#[must_use]
pub fn client_extension(name: &str) -> Option<String> {
    host::client_extension(name)
}

/// Whether the client shows views (MCP Apps). Where it does not, its user sees the text of a result alone.
#[must_use]
pub fn client_shows_views() -> bool {
    client_extension("io.modelcontextprotocol/ui").is_some()
}

/// The lowest level that the client wants to see; none: it wants no logs.
#[must_use]
pub fn wanted_log_level() -> Option<LogLevel> {
    host::wanted_log_level()
}

/// Ids of earlier tasks of the same requestor that this call continues or replaces.
#[must_use]
pub fn related_tasks() -> Vec<String> {
    host::related_tasks()
}
