//! How the calls of plugin versions end, and what follows: who is kept from a version, which watched version has
//! failed, and whose new calls keep no journals.
//!
//! Owns the breakers, the statistics of canaries and the divergences; the engine asks and reports through
//! [`CallHealth`]. Must not switch or demote a version: it says what happened, and [`super::canary`] and
//! [`super::demotion`] act. Invariant: nothing here is stored; after a start every version is healthy, and the store
//! says which ones are demoted.

mod breaker;
mod canary_stats;
mod divergences;

use std::collections::HashSet;

use self::breaker::Breakers;
use self::canary_stats::{CanaryWatches, End};
use self::divergences::Divergences;
use bulkhead_domain::UnixMs;
use bulkhead_domain::call::CallError;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::PluginVersion;
use bulkhead_tasks::{CallHealth, EndedCall};

pub use breaker::{FAULTS_IN_A_ROW, FaultRecord, PluginHealth};
pub use canary_stats::{CallCounts, CanaryThresholds};
pub(crate) use canary_stats::{CanaryStats, Verdict};
pub(crate) use divergences::Divergence;

/// The health of all versions.
#[derive(Default)]
pub struct HealthMonitor {
    breakers: Breakers,
    /// `None` without a running host: no call ends there, so nothing is watched.
    canaries: Option<CanaryWatches>,
    divergences: Divergences,
}

impl HealthMonitor {
    /// The monitor of a host that runs. As long as only `operator` calls, the operator's calls alone make a watched
    /// version fail.
    pub fn of_running_host(operator: Option<Requestor>) -> Self {
        Self { canaries: Some(CanaryWatches::new(operator)), ..Self::default() }
    }

    /// After how many faults in a row a requestor is kept from a plugin for a while; 0: never.
    pub(super) fn set_quarantine_after(&self, plugin: &str, faults: u32) {
        self.breakers.set_after(plugin, faults);
    }

    /// How a version has been doing lately.
    pub(super) fn health(&self, version: &PluginVersion, now: UnixMs) -> PluginHealth {
        self.breakers.health(version, now)
    }

    /// Admits all calls of a version again.
    pub(super) fn close_breaker(&self, version: &PluginVersion) {
        self.breakers.close_breaker(version);
    }

    /// Watches these versions from now on, and no others. Those that were watched before keep what was seen of them.
    pub(super) fn watch(&self, trials: Vec<CanaryStats>) {
        if let Some(canaries) = &self.canaries {
            canaries.set(trials);
        }
    }

    /// Waits until watched versions pass a bound, and returns all that did: the same ones for as long as they are
    /// watched.
    pub(super) async fn verdicts(&self) -> Vec<Verdict> {
        match &self.canaries {
            Some(canaries) => canaries.verdicts().await,
            None => std::future::pending().await,
        }
    }

    /// From now on new calls of these versions keep no journals, and those of all others may.
    pub(super) fn set_demoted(&self, versions: HashSet<PluginVersion>) {
        self.divergences.set_demoted(versions);
    }

    /// Waits for the next task that did something else than its journal says.
    pub(super) async fn next_divergence(&self) -> Divergence {
        self.divergences.next().await
    }

    /// The calls of a watched version within its window.
    pub(super) fn call_counts(&self, version: &PluginVersion, now: UnixMs) -> Option<CallCounts> {
        self.canaries.as_ref()?.call_counts(version, now)
    }

    #[cfg(test)]
    pub(super) fn watched(&self) -> Vec<CanaryStats> {
        self.canaries.as_ref().map(CanaryWatches::watched).unwrap_or_default()
    }
}

impl CallHealth for HealthMonitor {
    fn admit(&self, requestor: &Requestor, version: &PluginVersion, now: UnixMs) -> Result<(), u64> {
        self.breakers.admit(requestor, version, now)
    }

    fn call_ended(&self, call: &EndedCall<'_>) {
        let &EndedCall { requestor, version, tool, result, busy, at } = call;
        let fault = match result {
            Err(CallError::Fault { reason, .. }) => Some(reason),
            // Says nothing about the plugin: arguments may have been refused before it ran.
            Err(CallError::Interrupted | CallError::Internal { .. } | CallError::InvalidParams(_)) => return,
            _ => None,
        };
        let kept_away = match fault {
            Some(reason) => self.breakers.fault(requestor, version, tool, reason, at),
            None => {
                self.breakers.succeeded(requestor, version);
                false
            }
        };
        if let Some(canaries) = &self.canaries {
            let end = End { at, requestor: *requestor, busy, is_fault: fault.is_some(), kept_away };
            canaries.ended(version, tool, &end);
        }
    }

    fn may_keep_journal(&self, version: &PluginVersion) -> bool {
        self.divergences.may_keep_journal(version)
    }

    fn diverged(&self, version: &PluginVersion, at: UnixMs) {
        self.divergences.push((version.clone(), at));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;
    use bulkhead_domain::call::FaultKind;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    const ANNA: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };

    fn version() -> PluginVersion {
        PluginVersion { name: "p".into(), digest: [1; 32] }
    }

    fn end(monitor: &HealthMonitor, result: Result<(), &CallError>) {
        let version = version();
        let busy = Duration::from_millis(1);
        monitor.call_ended(&EndedCall { requestor: &ANNA, version: &version, tool: "tool", result, busy, at: 0 });
    }

    fn trap() -> CallError {
        CallError::Fault { kind: FaultKind::Trap, reason: "trapped".into() }
    }

    fn watching() -> HealthMonitor {
        let monitor = HealthMonitor::of_running_host(Some(ANNA));
        monitor.set_quarantine_after("p", 3);
        let bounds = CanaryThresholds { calls_min: 20, ..CanaryThresholds::default() };
        monitor.watch(vec![CanaryStats { version: version(), against: None, bounds }]);
        monitor
    }

    #[test]
    fn breaker_ignores_errors_that_are_no_faults() {
        let monitor = watching();
        let refused = CallError::InvalidParams("x".into());
        for _ in 0..9 {
            end(&monitor, Err(&refused));
        }
        assert_eq!(monitor.admit(&ANNA, &version(), 0), Ok(()));
        // Nor do refused arguments make up for faults.
        for _ in 0..3 {
            end(&monitor, Err(&trap()));
            end(&monitor, Err(&refused));
        }
        assert_eq!(monitor.admit(&ANNA, &version(), 0), Err(1_000));
        monitor.set_quarantine_after("p", 0);
        for _ in 0..99 {
            end(&monitor, Err(&trap()));
        }
        assert_eq!(monitor.admit(&ANNA, &version(), 0), Ok(()));
    }

    #[test]
    fn ended_call_counts_for_breaker_and_canary() {
        let monitor = watching();
        let custom = CallError::Custom { code: -1, message: "no such city".into(), data: None };
        end(&monitor, Ok(()));
        end(&monitor, Err(&custom));
        end(&monitor, Err(&CallError::Interrupted));
        (0..2).for_each(|_| end(&monitor, Err(&trap())));
        assert_eq!(monitor.call_counts(&version(), 0), Some(CallCounts { calls: 4, faults: 2 }));
        assert!(monitor.verdicts().now_or_never().is_none(), "too few calls");
        // The third in a row opens the breaker, and with it the canary has failed.
        end(&monitor, Err(&trap()));
        assert!(monitor.health(&version(), 0).is_quarantined());
        assert_eq!(monitor.verdicts().now_or_never().map(|verdicts| verdicts.len()), Some(1));
    }

    #[test]
    fn monitor_without_running_host_watches_nothing() {
        let monitor = HealthMonitor::default();
        monitor.watch(watching().watched());
        (0..99).for_each(|_| end(&monitor, Err(&trap())));
        assert_eq!((monitor.watched(), monitor.call_counts(&version(), 0)), (Vec::new(), None));
        assert!(monitor.verdicts().now_or_never().is_none());
    }
}
