//! Keeping callers from plugins that keep breaking.
//!
//! Owns a circuit for each requestor and version: so many faults in a row open it, and calls are refused until a
//! back-off is over; then one call may try. Faults are traps and limits of the sandbox, not errors that a tool reports.
//! Invariant: what one tenant makes a plugin do takes it from nobody else. Only when so many calls in a row break for
//! each of several tenants, and nobody's succeed, is a version kept from everyone; then each tenant may try on its own.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::PluginVersion;

/// Faults in a row that open a circuit, unless the operator says otherwise.
pub const FAULTS_IN_A_ROW: u32 = 10;
/// The first back-off; each time that the trying call breaks too, it doubles.
const BACKOFF_MS: u64 = 1_000;
/// The longest back-off, in milliseconds.
const BACKOFF_MS_MAX: u64 = 300_000;
/// Faults that operators see.
const FAULTS_SHOWN: usize = 8;
/// Requestors that are remembered for one version. More could only be there to fill memory.
const REQUESTORS_MAX: usize = 4_096;
/// Versions of plugins whose faults are remembered.
const VERSIONS_MAX: usize = 256;
/// Tenants whose circuits must have opened before everyone is kept away.
const TENANTS_MIN: usize = 2;
/// Tenants that are remembered for one version.
const TENANTS_MAX: usize = 1_024;

/// A call that broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    pub at: UnixMs,
    pub tool: String,
    pub reason: String,
}

/// How a version has been doing lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginHealth {
    /// Requestors that are kept from it at the moment.
    pub requestors_kept_away: usize,
    /// Everyone is, until then.
    pub everyone_until: Option<UnixMs>,
    /// Newest last.
    pub last_faults: Vec<FaultRecord>,
}

impl PluginHealth {
    /// Whether any call is refused.
    pub fn is_quarantined(&self) -> bool {
        self.requestors_kept_away > 0 || self.everyone_until.is_some()
    }
}

#[derive(Default)]
struct Circuit {
    in_a_row: u32,
    /// How often it was opened since the last success.
    opened: u32,
    until: UnixMs,
    /// One call is trying whether it works again.
    trying: bool,
}

impl Circuit {
    fn is_open(&self, after: u32, now: UnixMs) -> bool {
        self.in_a_row >= after && now < self.until
    }

    /// Lets one call try after each back-off, or says how long to wait, in milliseconds. The first caller waits too.
    fn try_once(&mut self, now: UnixMs) -> Result<(), u64> {
        if self.until == 0 {
            self.until = now + self.backoff_ms();
        }
        if now < self.until {
            return Err(self.until - now);
        }
        // Whoever comes before this one is back waits; if it never comes back, the next one tries.
        self.trying = true;
        self.until = now + self.backoff_ms();
        Ok(())
    }

    fn fault(&mut self, after: u32, now: UnixMs) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        // Calls that ran beside those that opened it say nothing new.
        let is_news = self.trying || now >= self.until;
        if self.in_a_row >= after && is_news {
            self.opened = self.opened.saturating_add(1);
            self.until = now + self.backoff_ms();
            self.trying = false;
        }
    }

    fn backoff_ms(&self) -> u64 {
        let doublings = self.opened.saturating_sub(1).min(16);
        (BACKOFF_MS << doublings).min(BACKOFF_MS_MAX)
    }
}

#[derive(Default)]
struct Version {
    requestors: HashMap<Requestor, Circuit>,
    /// Since anybody's last success. They only count where several have opened.
    tenants: HashMap<TenantId, Circuit>,
    faults: VecDeque<FaultRecord>,
}

impl Version {
    /// When the back-offs of the tenants are over for whom it keeps breaking, the last one first.
    fn broken_until(&self, after: u32) -> Vec<UnixMs> {
        let broken = self.tenants.values().filter(|circuit| circuit.in_a_row >= after);
        let mut until: Vec<_> = broken.map(|circuit| circuit.until).collect();
        until.sort_unstable_by(|one, other| other.cmp(one));
        until
    }

    fn breaks_for_everyone(&self, after: u32) -> bool {
        self.broken_until(after).len() >= TENANTS_MIN
    }

    /// The circuit of a tenant, unless too many others are remembered.
    fn tenant(&mut self, tenant: TenantId, after: u32) -> Option<&mut Circuit> {
        if self.tenants.len() >= TENANTS_MAX && !self.tenants.contains_key(&tenant) {
            self.tenants.retain(|_, circuit| circuit.in_a_row >= after);
            if self.tenants.len() >= TENANTS_MAX {
                return None;
            }
        }
        Some(self.tenants.entry(tenant).or_default())
    }

    /// Lets a call through, or says how long to wait, in milliseconds.
    fn admit(&mut self, requestor: &Requestor, after: u32, now: UnixMs) -> Result<(), u64> {
        // Who has to wait anyway does not use up the try of its tenant, nor the other way round.
        if let Some(own) = self.requestors.get(requestor).filter(|own| own.is_open(after, now)) {
            return Err(own.until - now);
        }
        if self.breaks_for_everyone(after) {
            self.tenant(requestor.tenant, after).map_or(Err(BACKOFF_MS), |circuit| circuit.try_once(now))?;
        }
        match self.requestors.get_mut(requestor) {
            Some(own) if own.in_a_row >= after => own.try_once(now),
            _ => Ok(()),
        }
    }
}

/// The circuits of all versions.
#[derive(Default)]
pub(super) struct Breakers {
    versions: Mutex<HashMap<PluginVersion, Version>>,
    /// Plugins whose operator has another number in mind; 0: never.
    after: Mutex<HashMap<String, u32>>,
    /// Whether anything ever broke: calls of healthy plugins take no lock.
    any: AtomicBool,
}

impl Breakers {
    pub(super) fn set_after(&self, plugin: &str, faults: u32) {
        self.after.lock().insert(plugin.to_owned(), faults);
    }

    fn after(&self, plugin: &str) -> u32 {
        match self.after.lock().get(plugin) {
            None => FAULTS_IN_A_ROW,
            Some(0) => u32::MAX,
            Some(faults) => *faults,
        }
    }

    /// Lets a call begin, or says how long to wait, in milliseconds.
    pub(super) fn admit(&self, requestor: &Requestor, version: &PluginVersion, now: UnixMs) -> Result<(), u64> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let after = self.after(&version.name);
        let mut versions = self.versions.lock();
        versions.get_mut(version).map_or(Ok(()), |state| state.admit(requestor, after, now))
    }

    /// A call succeeded, as far as its plugin is concerned.
    pub(super) fn succeeded(&self, requestor: &Requestor, version: &PluginVersion) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        if let Some(state) = self.versions.lock().get_mut(version) {
            state.requestors.remove(requestor);
            state.tenants.clear();
        }
    }

    /// A call broke; whether its requestor is kept from the plugin from now on.
    pub(super) fn fault(
        &self,
        requestor: &Requestor,
        version: &PluginVersion,
        tool: &str,
        reason: &str,
        now: UnixMs,
    ) -> bool {
        let after = self.after(&version.name);
        self.any.store(true, Ordering::Release);
        let mut versions = self.versions.lock();
        if versions.len() >= VERSIONS_MAX && !versions.contains_key(version) {
            versions.retain(|_, state| state.requestors.values().any(|circuit| circuit.is_open(after, now)));
        }
        let state = versions.entry(version.clone()).or_default();
        if state.faults.len() >= FAULTS_SHOWN {
            state.faults.pop_front();
        }
        state.faults.push_back(FaultRecord { at: now, tool: tool.to_owned(), reason: reason.to_owned() });
        if state.requestors.len() >= REQUESTORS_MAX {
            state.requestors.retain(|_, circuit| circuit.is_open(after, now));
        }
        let circuit = state.requestors.entry(*requestor).or_default();
        let was_open = circuit.is_open(after, now);
        circuit.fault(after, now);
        let opens = !was_open && circuit.is_open(after, now);
        if opens {
            let backoff_ms = circuit.until - now;
            tracing::warn!(
                plugin.name = version.name,
                backoff_ms,
                "a requestor is kept from a plugin that keeps breaking"
            );
        }
        let did = state.breaks_for_everyone(after);
        if let Some(circuit) = state.tenant(requestor.tenant, after) {
            circuit.fault(after, now);
        }
        if !did && state.breaks_for_everyone(after) {
            tracing::error!(plugin.name = version.name, "a plugin breaks for several tenants and is quarantined");
        }
        opens
    }

    pub(super) fn health(&self, version: &PluginVersion, now: UnixMs) -> PluginHealth {
        let after = self.after(&version.name);
        let versions = self.versions.lock();
        let Some(state) = versions.get(version) else { return PluginHealth::default() };
        // As long as it is, for all that is known, broken for several.
        let everyone_until = state.broken_until(after).get(TENANTS_MIN - 1).copied();
        PluginHealth {
            requestors_kept_away: state.requestors.values().filter(|circuit| circuit.is_open(after, now)).count(),
            everyone_until: everyone_until.filter(|until| now < *until),
            last_faults: state.faults.iter().cloned().collect(),
        }
    }

    pub(super) fn close_breaker(&self, version: &PluginVersion) {
        self.versions.lock().remove(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::RequestorId;

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    fn plugin() -> PluginVersion {
        PluginVersion { name: "p".into(), digest: [1; 32] }
    }

    fn breakers() -> Breakers {
        let breakers = Breakers::default();
        breakers.set_after("p", 3);
        breakers
    }

    fn breaks(breakers: &Breakers, who: &Requestor, now: UnixMs) {
        breakers.fault(who, &plugin(), "tool", "trapped", now);
    }

    fn retry_after(breakers: &Breakers, who: &Requestor, now: UnixMs) -> Option<u64> {
        breakers.admit(who, &plugin(), now).err()
    }

    #[test]
    fn breaker_opens_after_faults_and_doubles_back_off() {
        let breakers = breakers();
        let anna = requestor(1, 1);
        for _ in 0..2 {
            breaks(&breakers, &anna, 0);
        }
        assert_eq!(retry_after(&breakers, &anna, 0), None);
        breaks(&breakers, &anna, 0);
        assert_eq!(retry_after(&breakers, &anna, 10), Some(990));
        // Stragglers change nothing.
        breaks(&breakers, &anna, 20);
        assert_eq!(retry_after(&breakers, &anna, 20), Some(980));
        for (at, backoff) in [(1_000, 2_000), (3_000, 4_000), (7_000, 8_000)] {
            assert_eq!(retry_after(&breakers, &anna, at), None, "one may try");
            assert!(retry_after(&breakers, &anna, at).is_some(), "and only one");
            breaks(&breakers, &anna, at);
            assert_eq!(retry_after(&breakers, &anna, at), Some(backoff));
        }
        assert_eq!(breakers.health(&plugin(), 7_001).requestors_kept_away, 1);
        assert_eq!(retry_after(&breakers, &anna, 15_000), None);
        breakers.succeeded(&anna, &plugin());
        assert_eq!(retry_after(&breakers, &anna, 15_000), None);
        assert_eq!(breakers.health(&plugin(), 15_000).requestors_kept_away, 0);
        assert_eq!(breakers.health(&plugin(), 15_000).last_faults.len(), 7);
    }

    #[test]
    fn breaker_allows_another_try_when_one_never_ends() {
        let breakers = breakers();
        let anna = requestor(1, 1);
        for _ in 0..3 {
            breaks(&breakers, &anna, 0);
        }
        assert_eq!(retry_after(&breakers, &anna, 1_000), None);
        assert_eq!(retry_after(&breakers, &anna, 1_500), Some(500));
        assert_eq!(retry_after(&breakers, &anna, 2_000), None);
    }

    #[test]
    fn breaker_of_one_tenant_spares_other_tenants() {
        let breakers = breakers();
        let anna = requestor(1, 1);
        let carl = requestor(2, 1);
        for id in 1..9 {
            for _ in 0..9 {
                breaks(&breakers, &requestor(1, id), 0);
            }
        }
        assert!(retry_after(&breakers, &anna, 0).is_some());
        assert_eq!(retry_after(&breakers, &carl, 0), None);
        breakers.succeeded(&carl, &plugin());
        assert!(retry_after(&breakers, &anna, 0).is_some(), "what works for one may break for another");
    }

    #[test]
    fn breaker_few_tenant_faults_do_not_count_globally() {
        let breakers = breakers();
        let carl = requestor(2, 1);
        let new = requestor(3, 1);
        // One tenant breaks it for ever longer; another one twice, which is not often enough.
        for round in 0..12 {
            for id in 1..9 {
                breaks(&breakers, &requestor(1, id), round * 400_000);
            }
        }
        let now = 11 * 400_000;
        breaks(&breakers, &carl, now);
        breaks(&breakers, &carl, now);
        for who in [&carl, &new] {
            assert_eq!(retry_after(&breakers, who, now), None);
        }
        assert_eq!(breakers.health(&plugin(), now).everyone_until, None);
        // When it does break for both, who had no part in it waits no longer than at first, whatever the others do.
        breaks(&breakers, &carl, now);
        assert_eq!(retry_after(&breakers, &new, now), Some(BACKOFF_MS));
        breaks(&breakers, &requestor(1, 9), now + 500);
        assert_eq!(retry_after(&breakers, &carl, now + BACKOFF_MS), None, "each tenant tries on its own");
        assert_eq!(retry_after(&breakers, &new, now + BACKOFF_MS), None, "each tenant tries on its own");
        assert!(retry_after(&breakers, &requestor(3, 2), now + BACKOFF_MS).is_some(), "once");
    }

    #[test]
    fn breaker_remembers_a_bounded_number_of_tenants() {
        let breakers = breakers();
        for number in 0..2_000_u16 {
            let [high, low] = number.to_be_bytes();
            let mut tenant = [high; 16];
            tenant[0] = low;
            let who = Requestor { tenant: TenantId(tenant), id: RequestorId([1; 16]) };
            (0..3).for_each(|_| breaks(&breakers, &who, 0));
        }
        assert_eq!(breakers.versions.lock()[&plugin()].tenants.len(), TENANTS_MAX);
        assert_eq!(retry_after(&breakers, &requestor(255, 1), 0), Some(BACKOFF_MS));
    }

    #[test]
    fn breaker_faults_of_several_tenants_open_it_for_all() {
        let breakers = breakers();
        let anna = requestor(1, 1);
        let carl = requestor(2, 1);
        let new = requestor(3, 1);
        for _ in 0..3 {
            breaks(&breakers, &anna, 0);
            breaks(&breakers, &carl, 0);
        }
        assert!(retry_after(&breakers, &new, 0).is_some());
        assert!(breakers.health(&plugin(), 0).everyone_until.is_some());
        assert_eq!(retry_after(&breakers, &new, 1_000), None, "a new one may try");
        breakers.succeeded(&new, &plugin());
        assert_eq!(breakers.health(&plugin(), 1_000).everyone_until, None);
        breakers.close_breaker(&plugin());
        assert_eq!(retry_after(&breakers, &anna, 1_000), None);
    }
}
