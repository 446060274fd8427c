//! Watching a version that is being tried: does it break more often, or take longer, than its operator allows.
//!
//! Owns the last calls of each watched version and of the one that it is held against. Must not act: the publisher of
//! versions receives the verdict and decides. Invariant: a verdict comes from calls that ended within the window, by
//! the clock that is passed in; what a client cancels or a tool reports as its own error is no fault. A verdict moves
//! everybody, so it holds also without the calls of any one of them: of one tenant where several have the version, else
//! of one requestor. Nobody who sends arguments that break a tool, or that keep it busy, takes a version from others.

mod window;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::PluginVersion;
use window::{CALLS_MAX, Count, Party, Sample, Window};

/// Tools that are told apart; what is beyond counts as one.
const TOOLS_MAX: usize = 256;
/// Latencies are compared once in so many calls: it means sorting them.
const COMPARE_EVERY: u32 = 8;
/// What is quicker counts as this: below it there is more noise than work.
const LATENCY_MIN: Duration = Duration::from_millis(1);

/// When a version has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryThresholds {
    /// Calls that may break, per cent; 100: all of them.
    pub fault_percent_max: u8,
    /// What the slowest twentieth of a tool's calls may take, per cent of the same with the other version; 0: whatever
    /// it likes.
    pub latency_percent_max: u32,
    /// How far back is looked, in milliseconds.
    pub window_ms: u64,
    /// With fewer calls there is no verdict, unless so many in a row failed for one requestor that the plugin is
    /// quarantined for it. The calls of requestors that are left out do not count.
    pub calls_min: u32,
}

impl Default for CanaryThresholds {
    fn default() -> Self {
        Self { fault_percent_max: 5, latency_percent_max: 0, window_ms: 600_000, calls_min: 20 }
    }
}

/// How far back a canary's calls are looked at, in milliseconds: 30 days.
const WINDOW_MS_MAX: u64 = 2_592_000_000;

impl CanaryThresholds {
    /// What is wrong with them, for operators.
    pub fn problem(&self) -> Option<&'static str> {
        match *self {
            Self { fault_percent_max: 101.., .. } => Some("faults are bounded by a number from 0 to 100 per cent"),
            Self { latency_percent_max: 1..100, .. } => {
                Some("latency is bounded by a ratio of at least 1 (100 per cent), or by none (0)")
            }
            Self { window_ms, .. } if window_ms == 0 || window_ms > WINDOW_MS_MAX => {
                Some("the window is at least a millisecond and at most 30 days")
            }
            Self { calls_min: 0, .. } => Some("at least one call is needed for a verdict"),
            Self { calls_min, .. } if calls_min as usize > CALLS_MAX => {
                Some("a verdict cannot need more calls than are remembered (4096)")
            }
            _ => None,
        }
    }
}

/// A version that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CanaryStats {
    pub(crate) version: PluginVersion,
    /// Whose latency is the measure; none: there is none.
    pub(crate) against: Option<PluginVersion>,
    pub(crate) bounds: CanaryThresholds,
}

/// A version passed a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) version: PluginVersion,
    /// For operators.
    pub(crate) why: String,
}

/// Calls within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    pub calls: usize,
    pub faults: usize,
}

/// How a call ended.
pub(super) struct End {
    pub(super) at: UnixMs,
    pub(super) requestor: Requestor,
    pub(super) busy: Duration,
    pub(super) is_fault: bool,
    /// Its requestor has seen so many faults in a row that it is kept from the plugin.
    pub(super) kept_away: bool,
}

struct Watched {
    trial: CanaryStats,
    own: Window,
    other: Window,
    tools: Vec<String>,
    since_comparison: u32,
    verdict: Option<String>,
}

impl Watched {
    fn new(trial: CanaryStats) -> Self {
        let own = Window::default();
        let other = Window::default();
        Self { trial, own, other, tools: Vec::new(), since_comparison: 0, verdict: None }
    }

    fn tool(&mut self, name: &str) -> usize {
        self.tools.iter().position(|tool| tool == name).unwrap_or_else(|| {
            if self.tools.len() < TOOLS_MAX {
                self.tools.push(name.to_owned());
            }
            self.tools.len() - 1
        })
    }

    fn forget(&mut self, now: UnixMs) {
        let begins = now.saturating_sub(self.trial.bounds.window_ms);
        self.own.forget_before(begins);
        self.other.forget_before(begins);
    }

    /// Takes a call in; whether it made the version fail.
    fn ended(&mut self, is_own: bool, tool: &str, end: &End, operator: Option<&Requestor>) -> bool {
        let &End { at, requestor, busy, is_fault, kept_away } = end;
        let sample = Sample { at, requestor, tool: self.tool(tool), took: (!is_fault).then_some(busy), kept_away };
        if !is_own {
            self.other.push(sample);
            return false;
        }
        self.own.push(sample);
        self.forget(at);
        if self.verdict.is_none() {
            // Where nobody else calls, there is nobody to be protected from the one.
            let is_alone = operator.is_some_and(|one| self.own.is_only_of(one) && self.other.is_only_of(one));
            self.verdict = self.breaks(is_alone).or_else(|| self.drags(is_alone));
            return self.verdict.is_some();
        }
        false
    }

    fn breaks(&self, is_alone: bool) -> Option<String> {
        let CanaryThresholds { fault_percent_max, calls_min, .. } = self.trial.bounds;
        let is_too_much = |count: Count| {
            let is_enough = count.calls >= calls_min as usize || count.kept_away > 0;
            is_enough && count.faults * 100 > usize::from(fault_percent_max) * count.calls
        };
        let whole = self.own.whole();
        if !is_too_much(whole) {
            return None;
        }
        let parties = self.own.parties(self.own.has_several_tenants());
        let is_for_others = is_alone || parties.values().all(|one| is_too_much(whole.without(*one)));
        let Count { calls, faults, .. } = whole;
        is_for_others.then(|| format!("{faults} of its last {calls} calls broke; the bound is {fault_percent_max} %"))
    }

    fn drags(&mut self, is_alone: bool) -> Option<String> {
        let CanaryThresholds { latency_percent_max, .. } = self.trial.bounds;
        self.since_comparison += 1;
        if latency_percent_max == 0 || self.since_comparison < COMPARE_EVERY {
            return None;
        }
        self.since_comparison = 0;
        self.tools.iter().enumerate().find_map(|(tool, name)| {
            let (own, other) = self.slower(tool, None)?;
            if !is_alone && !self.callers(tool).iter().all(|one| self.slower(tool, Some(one)).is_some()) {
                return None;
            }
            let whole = latency_percent_max / 100;
            let hundredths = latency_percent_max % 100;
            Some(format!(
                "19 of 20 calls of {name:?} took up to {} µs, with the other version {} µs; \
                 the bound is {whole}.{hundredths:02} times that",
                own.as_micros(),
                other.as_micros()
            ))
        })
    }

    /// The parties whose calls of a tool were seen with either version, so that none of them alone can make the other
    /// version look quick. The party with the most calls comes first: it most likely makes the difference.
    fn callers(&self, tool: usize) -> Vec<Party> {
        let by_tenant = self.own.has_several_tenants();
        let mut calls = HashMap::new();
        self.own.count_callers(tool, by_tenant, &mut calls);
        self.other.count_callers(tool, by_tenant, &mut calls);
        let mut callers: Vec<_> = calls.into_iter().collect();
        callers.sort_unstable_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        callers.into_iter().map(|(party, _)| party).collect()
    }

    /// The latencies of a tool with both versions, if the bound on them is passed without the calls of `without`.
    fn slower(&self, tool: usize, without: Option<&Party>) -> Option<(Duration, Duration)> {
        let CanaryThresholds { latency_percent_max, calls_min, .. } = self.trial.bounds;
        let latency = |window: &Window| Some(window.latency(tool, calls_min as usize, without)?.max(LATENCY_MIN));
        let own = latency(&self.own)?;
        let other = latency(&self.other)?;
        (own.as_micros() * 100 > other.as_micros() * u128::from(latency_percent_max)).then_some((own, other))
    }
}

/// All versions that are watched.
#[derive(Default)]
pub(super) struct CanaryWatches {
    watched: Mutex<Vec<Watched>>,
    /// Whether any is: other calls take no lock.
    any: AtomicBool,
    failed: Notify,
    /// Who may be everybody there is.
    operator: Option<Requestor>,
}

impl CanaryWatches {
    /// As long as nobody but the operator calls, the operator's calls alone are enough for a verdict.
    pub(super) fn new(operator: Option<Requestor>) -> Self {
        Self { operator, ..Self::default() }
    }

    pub(super) fn set(&self, trials: Vec<CanaryStats>) {
        let mut watched = self.watched.lock();
        let mut before = std::mem::take(&mut *watched);
        for trial in trials {
            let is_it = |one: &Watched| one.trial.version == trial.version && one.trial.against == trial.against;
            watched.push(match before.iter().position(is_it).map(|at| before.swap_remove(at)) {
                Some(known) if known.trial == trial => known,
                // With other bounds what was seen is judged anew.
                Some(known) => Watched { trial, verdict: None, ..known },
                None => Watched::new(trial),
            });
        }
        self.any.store(!watched.is_empty(), Ordering::Release);
    }

    pub(super) fn ended(&self, version: &PluginVersion, tool: &str, end: &End) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let operator = self.operator.as_ref();
        for watched in self.watched.lock().iter_mut() {
            let is_own = watched.trial.version == *version;
            let counts = is_own || watched.trial.against.as_ref() == Some(version);
            if counts && watched.ended(is_own, tool, end, operator) {
                self.failed.notify_one();
            }
        }
    }

    /// Waits for verdicts and returns all there are.
    pub(super) async fn verdicts(&self) -> Vec<Verdict> {
        loop {
            let verdict = |watched: &Watched| {
                Some(Verdict { version: watched.trial.version.clone(), why: watched.verdict.clone()? })
            };
            let failed: Vec<_> = self.watched.lock().iter().filter_map(verdict).collect();
            if !failed.is_empty() {
                return failed;
            }
            self.failed.notified().await;
        }
    }

    pub(super) fn call_counts(&self, version: &PluginVersion, now: UnixMs) -> Option<CallCounts> {
        let mut watched = self.watched.lock();
        let watched = watched.iter_mut().find(|watched| watched.trial.version == *version)?;
        watched.forget(now);
        let Count { calls, faults, .. } = watched.own.whole();
        Some(CallCounts { calls, faults })
    }

    #[cfg(test)]
    pub(super) fn watched(&self) -> Vec<CanaryStats> {
        self.watched.lock().iter().map(|watched| watched.trial.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
