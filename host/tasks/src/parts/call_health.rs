//! What the engine asks and reports about the plugins that it calls.
//!
//! Owns the port alone. Must not judge: which plugin version may be called, and what follows from the ends of its calls, is decided by
//! the implementation that the engine gets when it is made.

use std::time::Duration;

use bulkhead_domain::UnixMs;
use bulkhead_domain::call::CallError;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::PluginVersion;

/// The keeper of the health of plugin versions. The engine calls it on every call of a plugin, so it neither waits nor blocks.
pub trait CallHealth: Send + Sync + 'static {
    /// Whether a call may begin; otherwise after how many milliseconds it may be tried again.
    fn admit(&self, requestor: &Requestor, version: &PluginVersion, now: UnixMs) -> Result<(), u64>;

    /// Takes note of a call that has ended.
    fn call_ended(&self, call: &EndedCall<'_>);

    /// Whether new calls of a version may keep journals.
    fn may_keep_journal(&self, version: &PluginVersion) -> bool;

    /// Takes note of a task that could not be brought back, because its call did something else than its journal says.
    fn diverged(&self, version: &PluginVersion, at: UnixMs);
}

/// A call that a plugin version has ended. Calls that their clients dropped are not among them.
#[derive(Clone, Copy, Debug)]
pub struct EndedCall<'a> {
    pub requestor: &'a Requestor,
    pub version: &'a PluginVersion,
    /// A tool's name, or what else the call was for.
    pub tool: &'a str,
    /// An error that the tool reports in its output is a result.
    pub result: Result<(), &'a CallError>,
    /// How long the guest ran, without what it waited for.
    pub busy: Duration,
    pub at: UnixMs,
}
