//! What the host did in the last hour, for charts.
//!
//! Owns a ring of samples in memory. Must not count anything itself: it reads what is counted anyway, and lets calls be
//! counted one by one while it lives. Invariants: there are so many samples at most; a count that begins anew gives no
//! less than nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ControlError;
use super::operator::HostOperator;
use super::views::{HistoryPointView, HistoryView};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_metrics::{ActivityReading, Metrics, process, quantile};
use bulkhead_tasks::{ActivityGroup, ActivityKey, Sums, Tasks};

/// Between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// A shorter time is too short for a rate, in milliseconds.
const SPAN_MS_MIN: u64 = 1_000;
/// Samples of the last hour that are kept for charts.
const SAMPLES_MAX: usize = 360;
/// Points in one answer.
const POINTS_MAX: usize = SAMPLES_MAX;

/// Times by steps: their longest time in microseconds, with how many.
type Steps = BTreeMap<u64, u64>;

/// The last hour of a running host.
pub struct History {
    tasks: Tasks,
    metrics: Metrics,
    clock: SharedClock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    samples: VecDeque<Sample>,
    before: Option<Reading>,
}

/// Counts at one moment.
struct Reading {
    at: Instant,
    plugins: HashMap<String, ActivityReading>,
    refusals: HashMap<&'static str, u64>,
    syncs: Option<Steps>,
    host_cpu: Duration,
}

/// What happened between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sample {
    at: UnixMs,
    span_ms: u64,
    calls: BTreeMap<&'static str, u64>,
    busy: Steps,
    guests_cpu_us: u64,
    host_cpu_us: u64,
    sums: Sums,
    refusals: BTreeMap<&'static str, u64>,
    syncs: Option<Steps>,
}

impl History {
    /// Samples the host for as long as anybody holds what this returns.
    pub fn spawn(tasks: Tasks, metrics: Metrics, clock: SharedClock) -> Arc<Self> {
        let history = Arc::new(Self { tasks, metrics, clock, state: Mutex::default() });
        tokio::spawn(Self::keep(Arc::downgrade(&history)));
        history
    }

    async fn keep(history: Weak<Self>) {
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(history) = history.upgrade() else { return };
            history.sample();
        }
    }

    fn sample(&self) {
        let reading = self.read();
        let mut state = self.state.lock();
        // The first reading only says from where on there is something to count.
        if let Some(before) = &state.before {
            let sample = self.between(before, &reading);
            state.keep(sample);
        }
        state.before = Some(reading);
    }

    fn between(&self, before: &Reading, after: &Reading) -> Sample {
        let (sums, _) = self.tasks.sums(&[]);
        Sample { at: self.clock.now(), sums, ..Sample::between(before, after) }
    }

    fn read(&self) -> Reading {
        let plugin = |(key, reading)| match key {
            ActivityKey::Plugin(name) => Some((name, reading)),
            ActivityKey::Tenant(_) | ActivityKey::Tool { .. } | ActivityKey::Requestor(_) => None,
        };
        let steps = |steps: Vec<(u64, u64)>| steps.into_iter().map(|(ns, count)| (ns / 1_000, count)).collect();
        Reading {
            at: Instant::now(),
            plugins: self.tasks.activity(ActivityGroup::Plugin).entries.into_iter().filter_map(plugin).collect(),
            refusals: self.metrics.refusals().into_iter().collect(),
            syncs: self.metrics.store_syncs().map(steps),
            host_cpu: process::cpu(),
        }
    }

    /// The last hour and what has happened since the last sample, in so many points at most.
    fn view(&self, points_max: usize) -> HistoryView {
        let reading = self.read();
        let state = self.state.lock();
        let newest = state.before.as_ref().map(|before| self.between(before, &reading));
        let newest = newest.filter(|sample| sample.span_ms >= SPAN_MS_MIN);
        let samples: Vec<_> = state.samples.iter().chain(&newest).collect();
        let size = samples.len().div_ceil(points_max.clamp(1, POINTS_MAX)).max(1);
        let mut points: Vec<_> = samples.rchunks(size).map(point).collect();
        points.reverse();
        HistoryView { points }
    }
}

impl State {
    fn keep(&mut self, sample: Sample) {
        while self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

impl Sample {
    fn between(before: &Reading, after: &Reading) -> Self {
        let mut sample = Self {
            span_ms: u64::try_from((after.at - before.at).as_millis()).unwrap_or(u64::MAX),
            host_cpu_us: u64::try_from(after.host_cpu.saturating_sub(before.host_cpu).as_micros()).unwrap_or(u64::MAX),
            ..Self::default()
        };
        let nothing = ActivityReading::default();
        for (plugin, reading) in &after.plugins {
            // What was counted anew since then is all of it new.
            let former = before.plugins.get(plugin).filter(|former| goes_on(former, reading)).unwrap_or(&nothing);
            let formerly: HashMap<_, _> = former.outcomes().map(|(outcome, calls)| (outcome.name(), calls)).collect();
            for (outcome, calls) in reading.outcomes() {
                let name = outcome.name();
                add(&mut sample.calls, name, calls.saturating_sub(formerly.get(name).copied().unwrap_or_default()));
            }
            let steps = former.busy_us().collect();
            grown(&mut sample.busy, &steps, reading.busy_us());
            sample.guests_cpu_us += reading.cpu_us.saturating_sub(former.cpu_us);
        }
        for (limit, refused) in &after.refusals {
            let former = before.refusals.get(limit).copied().unwrap_or_default();
            add(&mut sample.refusals, limit, refused.saturating_sub(former));
        }
        sample.syncs = after.syncs.as_ref().map(|syncs| {
            let mut steps = Steps::new();
            grown(&mut steps, before.syncs.as_ref().unwrap_or(&Steps::new()), syncs.iter().map(|(us, n)| (*us, *n)));
            steps
        });
        sample
    }
}

fn goes_on(before: &ActivityReading, after: &ActivityReading) -> bool {
    after.calls() >= before.calls() && after.cpu_us >= before.cpu_us
}

fn add(counts: &mut BTreeMap<&'static str, u64>, name: &'static str, more: u64) {
    if more > 0 {
        *counts.entry(name).or_default() += more;
    }
}

fn grown(steps: &mut Steps, before: &Steps, after: impl Iterator<Item = (u64, u64)>) {
    for (end, count) in after {
        let more = count.saturating_sub(before.get(&end).copied().unwrap_or_default());
        if more > 0 {
            *steps.entry(end).or_default() += more;
        }
    }
}

/// Several samples as one.
fn point(samples: &[&Sample]) -> HistoryPointView {
    let mut point = HistoryPointView::default();
    let mut busy = Steps::new();
    let mut syncs = None::<Steps>;
    let sum = |into: &mut BTreeMap<String, u64>, more: &BTreeMap<&'static str, u64>| {
        for (name, count) in more {
            *into.entry((*name).to_owned()).or_default() += count;
        }
    };
    for sample in samples {
        point.at = sample.at;
        point.span_ms += sample.span_ms;
        sum(&mut point.calls, &sample.calls);
        sum(&mut point.refusals, &sample.refusals);
        point.guests_cpu_us += sample.guests_cpu_us;
        point.host_cpu_us += sample.host_cpu_us;
        point.calls_running = point.calls_running.max(sample.sums.running);
        point.calls_queued = point.calls_queued.max(sample.sums.lined_up);
        point.calls_resting = point.calls_resting.max(sample.sums.resting);
        point.tasks_waiting = point.tasks_waiting.max(sample.sums.waiting);
        grown(&mut busy, &Steps::new(), sample.busy.iter().map(|(us, n)| (*us, *n)));
        if let Some(more) = &sample.syncs {
            grown(syncs.get_or_insert_default(), &Steps::new(), more.iter().map(|(us, n)| (*us, *n)));
        }
    }
    let of = |steps: &Steps, percent| quantile(steps.iter().map(|(us, n)| (*us, *n)), percent);
    (point.p50_us, point.p99_us) = (of(&busy, 50), of(&busy, 99));
    if let Some(syncs) = syncs {
        point.store_syncs = Some(syncs.values().sum());
        (point.store_sync_p50_us, point.store_sync_p99_us) = (of(&syncs, 50), of(&syncs, 99));
    }
    point
}

impl HostOperator {
    /// The last hour.
    pub(super) fn history(&self, points_max: usize) -> Result<HistoryView, ControlError> {
        match &self.running_host()?.history {
            Some(history) => Ok(history.view(points_max)),
            None => Err(ControlError::Invalid("the last hour is kept where a dashboard is served only".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_metrics::{Activity, Outcome};

    use super::*;

    fn reading(begun: Instant, seconds: u64, csv: &ActivityReading, refused: u64) -> Reading {
        Reading {
            at: begun + Duration::from_secs(seconds),
            plugins: [("csv".to_owned(), csv.clone())].into(),
            refusals: [("requests_per_second", refused)].into(),
            syncs: Some([(5_000, 2 * seconds)].into()),
            host_cpu: Duration::from_millis(100 * seconds),
        }
    }

    #[test]
    fn sample_is_what_happened_between_two_readings() {
        let activity = Activity::default();
        let begun = Instant::now();
        activity.look(begun);
        let counts = activity.tool("csv", "csv_query");
        counts.call_ended(Outcome::Ok, Duration::from_millis(3));
        let before = reading(begun, 0, &counts.read(), 5);
        counts.call_ended(Outcome::Ok, Duration::from_millis(40));
        counts.call_ended(Outcome::Trap, Duration::from_millis(3));
        counts.cpu_used(700);
        let after = reading(begun, 10, &counts.read(), 9);
        let sample = Sample::between(&before, &after);
        let expected = Sample {
            span_ms: 10_000,
            calls: [("ok", 1), ("trap", 1)].into(),
            busy: [(3_000, 1), (50_000, 1)].into(),
            guests_cpu_us: 700,
            host_cpu_us: 1_000_000,
            refusals: [("requests_per_second", 4)].into(),
            syncs: Some([(5_000, 20)].into()),
            ..Sample::default()
        };
        assert_eq!(sample, expected);
        // A plugin that went and came back is counted anew.
        let anew = Sample::between(&after, &reading(begun, 20, &before.plugins["csv"], 9));
        assert_eq!((anew.calls, anew.refusals), ([("ok", 1)].into(), BTreeMap::new()));
    }

    #[test]
    fn points_sum_up_samples_and_say_the_most_at_a_time() {
        let sample = |at, calls, us, running| Sample {
            at,
            span_ms: 10_000,
            calls: [("ok", calls)].into(),
            busy: [(us, calls)].into(),
            sums: Sums { running, ..Sums::default() },
            ..Sample::default()
        };
        let one = sample(1, 98, 1_000, 7);
        let other = sample(2, 2, 50_000, 3);
        let point = point(&[&one, &other]);
        assert_eq!((point.at, point.span_ms, point.calls_running), (2, 20_000, 7));
        assert_eq!((point.calls["ok"], point.p50_us, point.p99_us), (100, Some(1_000), Some(50_000)));
        assert_eq!((point.store_syncs, point.store_sync_p99_us), (None, None));
        assert_eq!(super::point(&[&Sample::default()]).p99_us, None, "nothing was called");
    }

    #[test]
    fn an_hour_is_kept() {
        let mut state = State::default();
        for at in 0..1_000 {
            state.keep(Sample { at, ..Sample::default() });
        }
        let kept: Vec<_> = state.samples.iter().map(|sample| sample.at).collect();
        assert_eq!((kept.len(), kept.first(), kept.last()), (SAMPLES_MAX, Some(&640), Some(&999)));
    }
}
