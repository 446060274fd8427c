//! Whether a host is healthy and ready, and everything that an operator may know about that.
//!
//! Owns the two questions of probes and the view of operators, which have the same answers. Must not tell a probe a
//! path, a name or a number: anybody may ask. Invariant: a probe's answer takes no lock that work holds and reads
//! nothing, so it comes also from a host whose store or disk hangs; only a host that another start would help is
//! unhealthy.

use std::path::PathBuf;
use std::sync::Arc;

use super::views::{AuditHealth, ClockHealth, GuestsHealth, HealthView, PluginsHealth, StoreHealth};
use bulkhead_audit::Audit;
use bulkhead_domain::clock::Clock;
use bulkhead_plugins::Plugins;
use bulkhead_store::Store;
use bulkhead_tasks::Tasks;
use bulkhead_threads::GuestPulse;

/// What makes a host fit for traffic or not, as it is at one moment.
#[derive(Clone, Copy, Debug)]
struct ReadinessFacts {
    is_read_only: bool,
    is_draining: bool,
    guests_stand_still: bool,
    /// A plugin of `server.ready_requires` has no tools.
    lacks_plugin: bool,
    /// The file of an active version is gone.
    lacks_component: bool,
}

impl ReadinessFacts {
    /// Why the host should get no traffic, the most urgent first.
    fn reasons(self) -> impl Iterator<Item = &'static str> {
        let reasons = [
            self.is_read_only.then_some(READ_ONLY),
            self.is_draining.then_some(DRAINING),
            self.guests_stand_still.then_some(STANDSTILL),
            self.lacks_plugin.then_some(PLUGIN_MISSING),
            self.lacks_component.then_some(COMPONENT_MISSING),
        ];
        reasons.into_iter().flatten()
    }
}

/// Why a host should be started again.
const STANDSTILL: &str = "the guests' threads stand still";
/// Why a host should get no traffic, as anybody may know it.
const READ_ONLY: &str = "the store is read-only";
const DRAINING: &str = "draining";
const PLUGIN_MISSING: &str = "a required plugin is not served";
const COMPONENT_MISSING: &str = "the component of a plugin is missing";

/// What the health of a host is read from.
pub struct HostHealth {
    pub store: Arc<dyn Store>,
    pub tasks: Tasks,
    pub plugins: Plugins,
    pub guests: GuestPulse,
    pub audit: Audit,
    pub clock: Arc<dyn Clock>,
    /// The data directory, whose disk may run full.
    pub data: PathBuf,
    /// Plugins without which the host is not ready.
    pub required: Vec<String>,
}

impl HostHealth {
    /// Why the host should be started again. Does not ask the store: no start makes room on a disk.
    pub fn unhealthy(&self) -> Option<&'static str> {
        self.guests.stands_still().then_some(STANDSTILL)
    }

    /// Why the host should get no traffic at the moment, the first reason.
    pub fn unready(&self) -> Option<&'static str> {
        self.reasons().next()
    }

    fn reasons(&self) -> impl Iterator<Item = &'static str> {
        let facts = ReadinessFacts {
            is_read_only: self.store.read_only().is_some(),
            is_draining: self.tasks.is_draining(),
            guests_stand_still: self.guests.stands_still(),
            lacks_plugin: self.missing().next().is_some(),
            lacks_component: self.plugins.lacks_component(),
        };
        facts.reasons()
    }

    fn missing(&self) -> impl Iterator<Item = &String> {
        self.required.iter().filter(|name| !self.plugins.is_offered(name))
    }

    /// Free bytes of the disk with the data directory; `None` where it cannot be asked.
    pub fn disk_free_bytes(&self) -> Option<u64> {
        let facts = rustix::fs::statvfs(&self.data).ok()?;
        Some(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// All of it, for operators.
    pub async fn view(&self) -> HealthView {
        let plugins = self.plugins.census().await;
        let read_only = self.store.read_only();
        let now = self.clock.now();
        let system = self.clock.system();
        HealthView {
            healthy: self.unhealthy().is_none(),
            ready: self.unready().is_none(),
            reasons: self.reasons().map(str::to_owned).collect(),
            draining: self.tasks.is_draining(),
            store: StoreHealth { writable: read_only.is_none(), problem: read_only },
            plugins: PluginsHealth {
                configured: plugins.configured,
                serving: plugins.serving,
                broken: plugins.broken,
                awaited: plugins.awaited,
                missing: self.missing().cloned().collect(),
            },
            guests: GuestsHealth {
                running: !self.guests.stands_still(),
                silent_ms: u64::try_from(self.guests.silent_for().as_millis()).unwrap_or(u64::MAX),
            },
            audit: match (self.audit.is_on(), self.audit.is_refused()) {
                (false, _) => AuditHealth::Off,
                (true, false) => AuditHealth::Written,
                (true, true) => AuditHealth::Refused,
            },
            disk_free_bytes: self.disk_free_bytes(),
            clock: ClockHealth { now_ms: now, ahead_of_system_ms: now.saturating_sub(system) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPONENT_MISSING, DRAINING, PLUGIN_MISSING, READ_ONLY, ReadinessFacts, STANDSTILL};

    const READY: ReadinessFacts = ReadinessFacts {
        is_read_only: false,
        is_draining: false,
        guests_stand_still: false,
        lacks_plugin: false,
        lacks_component: false,
    };

    const NOTHING_RIGHT: ReadinessFacts = ReadinessFacts {
        is_read_only: true,
        is_draining: true,
        guests_stand_still: true,
        lacks_plugin: true,
        lacks_component: true,
    };

    #[test]
    fn each_fact_is_one_reason_and_all_are_in_order() {
        let rows = [
            (READY, vec![]),
            (ReadinessFacts { is_read_only: true, ..READY }, vec![READ_ONLY]),
            (ReadinessFacts { is_draining: true, ..READY }, vec![DRAINING]),
            (ReadinessFacts { guests_stand_still: true, ..READY }, vec![STANDSTILL]),
            (ReadinessFacts { lacks_plugin: true, ..READY }, vec![PLUGIN_MISSING]),
            (ReadinessFacts { lacks_component: true, ..READY }, vec![COMPONENT_MISSING]),
            (ReadinessFacts { lacks_component: true, is_draining: true, ..READY }, vec![DRAINING, COMPONENT_MISSING]),
            (NOTHING_RIGHT, vec![READ_ONLY, DRAINING, STANDSTILL, PLUGIN_MISSING, COMPONENT_MISSING]),
        ];
        for (facts, expected) in rows {
            assert_eq!(facts.reasons().collect::<Vec<_>>(), expected, "{facts:?}");
        }
    }
}
