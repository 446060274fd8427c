//! What the engine asks and reports about the plugins that it calls.
//!
//! Owns the port alone. Must not judge: which plugin version may be called, and what follows from the ends of its
//! calls, is decided by the implementation that the engine gets when it is made.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Unavailable};
use bulkhead_calls::ToolEntry;
use bulkhead_domain::UnixMs;
use bulkhead_domain::call::CallError;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::PluginVersion;
use bulkhead_limits::tenant_usage::TenantUsage;

/// The keeper of the health of plugin versions. The engine calls it on every call of a plugin, so it neither waits nor
/// blocks.
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

/// The way of the engine to that keeper.
pub(crate) struct HealthReporter {
    pub(crate) health: Arc<dyn CallHealth>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counts: Arc<TenantUsage>,
}

impl HealthReporter {
    /// Refuses a call of a version that its requestor is kept from.
    pub(crate) fn admit(&self, requestor: &Requestor, version: &PluginVersion) -> Result<(), Error> {
        let admitted = self.health.admit(requestor, version, self.clock.now());
        admitted.map_err(|retry_after_ms| Error::Unavailable {
            why: Unavailable::Quarantined { plugin: version.name.clone() },
            retry_after_ms: Some(retry_after_ms),
        })
    }

    /// Whether a new call of a tool keeps a journal.
    pub(crate) fn may_keep_journal(&self, tool: &ToolEntry) -> bool {
        tool.journal.is_some() && self.health.may_keep_journal(&tool.plugin)
    }

    /// Reports a task that could not be brought back by the version of the host that began it: its call did something
    /// else than its journal says.
    pub(crate) fn report_divergence(&self, version: &PluginVersion) {
        self.health.diverged(version, self.clock.now());
    }

    /// Reports the end of a call that ran for so long.
    pub(crate) fn call_ended<T>(
        &self,
        requestor: &Requestor,
        version: &PluginVersion,
        tool: &str,
        result: &Result<T, CallError>,
        busy: Duration,
    ) {
        let result = result.as_ref().map(drop);
        let at = self.clock.now();
        self.counts.of(requestor.tenant).add_call();
        self.health.call_ended(&EndedCall { requestor, version, tool, result, busy, at });
    }
}
