//! Watching a version that is being tried: does it break more often, or take longer, than its operator allows.
//!
//! Owns the last calls of each watched version and of the one that it is held against. Must not act: whoever publishes versions
//! hears of a verdict and decides. Invariant: a verdict comes from calls that ended within the window, by the clock that is passed
//! in; what a client cancels or a tool reports as its own error is no fault.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::feed::lock;
use crate::domain::UnixMs;
use crate::domain::task::PluginVersion;

/// Calls of a version that are remembered. A busy one fills that before its window is over, and is judged by these.
const CALLS_MAX: usize = 4_096;
/// Tools that are told apart; what is beyond counts as one.
const TOOLS_MAX: usize = 256;
/// Latencies are compared once in so many calls: it means sorting them.
const COMPARE_EVERY: u32 = 8;
/// What is quicker counts as this: below it there is more noise than work.
const LATENCY_MIN: Duration = Duration::from_millis(1);

/// When a version has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Calls that may break, per cent; 100: all of them.
    pub fault_percent_max: u8,
    /// What the slowest twentieth of a tool's calls may take, per cent of the same with the other version; 0: whatever it likes.
    pub latency_percent_max: u32,
    /// How far back is looked, in milliseconds.
    pub window_ms: u64,
    /// With fewer calls there is no verdict, unless so many in a row broke for somebody that the plugin is quarantined for them.
    pub calls_min: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { fault_percent_max: 5, latency_percent_max: 0, window_ms: 600_000, calls_min: 20 }
    }
}

/// How far back a canary's calls are looked at, in milliseconds: 30 days.
const WINDOW_MS_MAX: u64 = 2_592_000_000;

impl Bounds {
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
pub struct Trial {
    pub version: PluginVersion,
    /// Whose latency is the measure; none: there is none.
    pub against: Option<PluginVersion>,
    pub bounds: Bounds,
}

/// A version passed a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub version: PluginVersion,
    /// For operators.
    pub why: String,
}

/// Calls within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub calls: usize,
    pub faults: usize,
}

/// How a call ended.
pub(super) struct End {
    pub(super) at: UnixMs,
    pub(super) busy: Duration,
    pub(super) is_fault: bool,
    /// Its requestor has seen so many faults in a row that it is kept from the plugin.
    pub(super) kept_away: bool,
}

struct Sample {
    at: UnixMs,
    tool: usize,
    /// `None`: it broke.
    took: Option<Duration>,
}

/// The calls of one version, oldest first.
#[derive(Default)]
struct Window {
    samples: VecDeque<Sample>,
    faults: usize,
}

impl Window {
    fn push(&mut self, sample: Sample) {
        if self.samples.len() >= CALLS_MAX {
            self.forget_oldest();
        }
        self.faults += usize::from(sample.took.is_none());
        self.samples.push_back(sample);
    }

    fn forget_oldest(&mut self) {
        let gone = self.samples.pop_front();
        self.faults -= usize::from(gone.is_some_and(|gone| gone.took.is_none()));
    }

    fn forget_before(&mut self, at: UnixMs) {
        while self.samples.front().is_some_and(|sample| sample.at < at) {
            self.forget_oldest();
        }
    }

    /// What 19 of 20 calls of a tool did not exceed, if there were enough of them.
    fn latency(&self, tool: usize, calls_min: usize) -> Option<Duration> {
        let calls = self.samples.iter().filter(|sample| sample.tool == tool);
        let mut took: Vec<_> = calls.filter_map(|sample| sample.took).collect();
        if took.is_empty() || took.len() < calls_min {
            return None;
        }
        took.sort_unstable();
        took.get((took.len() * 19).div_ceil(20) - 1).copied()
    }
}

struct Watched {
    trial: Trial,
    own: Window,
    other: Window,
    tools: Vec<String>,
    since_comparison: u32,
    verdict: Option<String>,
}

impl Watched {
    fn new(trial: Trial) -> Self {
        let (own, other) = (Window::default(), Window::default());
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
    fn ended(&mut self, is_own: bool, tool: &str, end: &End) -> bool {
        let sample = Sample { at: end.at, tool: self.tool(tool), took: (!end.is_fault).then_some(end.busy) };
        if !is_own {
            self.other.push(sample);
            return false;
        }
        self.own.push(sample);
        self.forget(end.at);
        if self.verdict.is_none() {
            self.verdict = self.breaks(end.kept_away).or_else(|| self.drags());
            return self.verdict.is_some();
        }
        false
    }

    fn breaks(&self, kept_away: bool) -> Option<String> {
        let Bounds { fault_percent_max, calls_min, .. } = self.trial.bounds;
        let (calls, faults) = (self.own.samples.len(), self.own.faults);
        let is_enough = calls >= calls_min as usize || kept_away;
        (is_enough && faults * 100 > usize::from(fault_percent_max) * calls)
            .then(|| format!("{faults} of its last {calls} calls broke; the bound is {fault_percent_max} %"))
    }

    fn drags(&mut self) -> Option<String> {
        let Bounds { latency_percent_max, calls_min, .. } = self.trial.bounds;
        self.since_comparison += 1;
        if latency_percent_max == 0 || self.since_comparison < COMPARE_EVERY {
            return None;
        }
        self.since_comparison = 0;
        let latency = |window: &Window, tool| Some(window.latency(tool, calls_min as usize)?.max(LATENCY_MIN));
        self.tools.iter().enumerate().find_map(|(tool, name)| {
            let (own, other) = (latency(&self.own, tool)?, latency(&self.other, tool)?);
            let is_slow = own.as_micros() * 100 > other.as_micros() * u128::from(latency_percent_max);
            let (whole, hundredths) = (latency_percent_max / 100, latency_percent_max % 100);
            is_slow.then(|| {
                let (own, other) = (own.as_micros(), other.as_micros());
                format!(
                    "19 of 20 calls of {name:?} took up to {own} µs, with the other version {other} µs; \
                     the bound is {whole}.{hundredths:02} times that"
                )
            })
        })
    }
}

/// All versions that are watched.
#[derive(Default)]
pub(super) struct Trials {
    watched: Mutex<Vec<Watched>>,
    /// Whether any is: other calls take no lock.
    any: AtomicBool,
    failed: Notify,
}

impl Trials {
    pub(super) fn set(&self, trials: Vec<Trial>) {
        let mut watched = lock(&self.watched);
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
        for watched in lock(&self.watched).iter_mut() {
            let is_own = watched.trial.version == *version;
            if (is_own || watched.trial.against.as_ref() == Some(version)) && watched.ended(is_own, tool, end) {
                self.failed.notify_one();
            }
        }
    }

    /// Waits for a verdict.
    pub(super) async fn verdict(&self) -> Verdict {
        loop {
            let failed = lock(&self.watched).iter().find_map(|watched| {
                Some(Verdict { version: watched.trial.version.clone(), why: watched.verdict.clone()? })
            });
            if let Some(verdict) = failed {
                return verdict;
            }
            self.failed.notified().await;
        }
    }

    pub(super) fn tally(&self, version: &PluginVersion, now: UnixMs) -> Option<Tally> {
        let mut watched = lock(&self.watched);
        let watched = watched.iter_mut().find(|watched| watched.trial.version == *version)?;
        watched.forget(now);
        Some(Tally { calls: watched.own.samples.len(), faults: watched.own.faults })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const BOUNDS: Bounds = Bounds { fault_percent_max: 10, latency_percent_max: 150, window_ms: 1_000, calls_min: 20 };

    fn version(digest: u8) -> PluginVersion {
        PluginVersion { name: "p".into(), digest: [digest; 32] }
    }

    fn trials(bounds: Bounds) -> Trials {
        let trials = Trials::default();
        trials.set(vec![Trial { version: version(2), against: Some(version(1)), bounds }]);
        trials
    }

    fn call(trials: &Trials, digest: u8, at: UnixMs, took_ms: Option<u64>) {
        call_of(trials, "tool", digest, at, took_ms);
    }

    fn call_of(trials: &Trials, tool: &str, digest: u8, at: UnixMs, took_ms: Option<u64>) {
        let busy = Duration::from_millis(took_ms.unwrap_or_default());
        trials.ended(&version(digest), tool, &End { at, busy, is_fault: took_ms.is_none(), kept_away: false });
    }

    fn why(trials: &Trials) -> Option<String> {
        trials.verdict().now_or_never().map(|verdict| verdict.why)
    }

    #[test]
    fn too_many_faults_are_a_verdict_once_there_are_enough_calls() {
        let trials = trials(BOUNDS);
        (0..17).for_each(|_| call(&trials, 2, 0, Some(1)));
        (0..2).for_each(|_| call(&trials, 2, 0, None));
        assert_eq!(why(&trials), None, "too few calls");
        call(&trials, 2, 0, Some(1));
        assert_eq!(why(&trials), None, "as many as are allowed");
        call(&trials, 2, 0, None);
        assert!(why(&trials).is_some_and(|why| why.starts_with("3 of its last 21 calls broke")));
        assert_eq!(trials.tally(&version(2), 0), Some(Tally { calls: 21, faults: 3 }));
        assert!(why(&trials).is_some(), "it is said until somebody acts");
        trials.set(Vec::new());
        assert_eq!((why(&trials), trials.tally(&version(2), 0)), (None, None));
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count_and_the_other_version_never_does() {
        let trials = trials(BOUNDS);
        (0..10).for_each(|_| call(&trials, 2, 0, None));
        (0..99).for_each(|_| call(&trials, 1, 500, None));
        (0..99).for_each(|at| call(&trials, 2, 1_001 + at, Some(1)));
        assert_eq!(why(&trials), None);
        assert_eq!(trials.tally(&version(2), 1_100), Some(Tally { calls: 99, faults: 0 }));
        assert_eq!(trials.tally(&version(2), 3_000), Some(Tally { calls: 0, faults: 0 }));
    }

    #[test]
    fn whoever_is_kept_away_has_seen_enough() {
        let trials = trials(BOUNDS);
        let end = |kept_away| End { at: 0, busy: Duration::ZERO, is_fault: true, kept_away };
        (0..9).for_each(|_| trials.ended(&version(2), "tool", &end(false)));
        assert_eq!(why(&trials), None);
        trials.ended(&version(2), "tool", &end(true));
        assert!(why(&trials).is_some_and(|why| why.starts_with("10 of its last 10")));
    }

    #[test]
    fn a_tool_that_got_slower_is_a_verdict_and_another_mix_of_tools_is_not() {
        let other_mix = trials(BOUNDS);
        for round in 0..100 {
            call_of(&other_mix, "quick", 1, round, Some(2));
            call_of(&other_mix, "slow", 2, round, Some(500));
        }
        for round in 0..30 {
            call_of(&other_mix, "slow", 1, round, Some(500));
            call_of(&other_mix, "quick", 2, round, Some(3));
        }
        assert_eq!(why(&other_mix), None, "as slow as before, only more often");

        let slower = trials(BOUNDS);
        for round in 0..40 {
            call(&slower, 1, round, Some(10));
            call(&slower, 2, round, Some(if round % 8 == 0 { 16 } else { 10 }));
        }
        let said = why(&slower).expect("the slowest twentieth is slower");
        assert!(said.contains("\"tool\" took up to 16000 µs") && said.contains("1.50 times"), "{said}");

        let allowed = trials(Bounds { latency_percent_max: 0, ..BOUNDS });
        let quick = trials(BOUNDS);
        for round in 0..60 {
            call(&allowed, 1, round, Some(1));
            call(&allowed, 2, round, Some(900));
            call(&quick, 1, round, Some(0));
            call(&quick, 2, round, Some(1));
        }
        assert_eq!((why(&allowed), why(&quick)), (None, None), "it may, and less than a millisecond is no measure");
    }

    #[test]
    fn other_bounds_judge_what_was_seen_anew_and_memory_has_a_bound() {
        let trials = trials(BOUNDS);
        for tool in 0..TOOLS_MAX * 20 {
            call_of(&trials, &format!("t{tool}"), 2, 0, Some(1));
        }
        assert_eq!(trials.tally(&version(2), 0).unwrap().calls, CALLS_MAX);
        assert_eq!(lock(&trials.watched)[0].tools.len(), TOOLS_MAX);
        let strict = Bounds { fault_percent_max: 0, ..BOUNDS };
        trials.set(vec![Trial { version: version(2), against: Some(version(1)), bounds: strict }]);
        assert_eq!(why(&trials), None);
        call(&trials, 2, 0, None);
        assert!(why(&trials).is_some_and(|why| why.contains("the bound is 0 %")));
    }
}
