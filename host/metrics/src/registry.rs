//! The series that there are.
//!
//! Owns the bound on their number and the way from a family and its labels to a handle. Must not be asked during a request: a handle is
//! found once, when what it counts comes into being. Invariant: a series lives as long as its handle is held, so that it goes with
//! its thing; the lines of all series together stay within `metrics.series_max`, and what is beyond counts in the series `_overflow`
//! of its family.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter as Number;

use crate::families::{Family, Kind, SERIES_OVERFLOW};
use crate::histogram::Histogram;

/// The value of every label of a series for which there is no room.
pub const OVERFLOW: &str = "_overflow";

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(Number);

impl Counter {
    pub fn increase(&self) {
        self.0.inc();
    }

    /// In whole units: of a family of seconds these are microseconds.
    pub fn add(&self, units: u64) {
        self.0.inc_by(units);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.get()
    }
}

/// The values of a family's labels, in its order; an empty one is a label that is not there.
pub(crate) type Labels = Vec<String>;

/// What becomes of a series when nobody holds it.
#[derive(Clone, Debug)]
enum Held {
    Counter(Weak<Counter>),
    Histogram(Weak<Histogram>),
}

/// A series whose handle is held.
#[derive(Clone, Debug)]
pub(crate) enum Series {
    Counter(Arc<Counter>),
    Histogram(Arc<Histogram>),
}

impl Held {
    fn series(&self) -> Option<Series> {
        match self {
            Self::Counter(counter) => counter.upgrade().map(Series::Counter),
            Self::Histogram(histogram) => histogram.upgrade().map(Series::Histogram),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    families: BTreeMap<&'static str, BTreeMap<Labels, Held>>,
    /// Kept: they must not begin anew.
    overflow: BTreeMap<&'static str, Series>,
    refused: u64,
}

/// Everything that is counted by handles.
#[derive(Debug)]
pub(crate) struct Registry {
    lines_max: usize,
    state: Mutex<State>,
}

impl Registry {
    pub(crate) fn new(lines_max: usize) -> Self {
        Self { lines_max, state: Mutex::default() }
    }

    pub(crate) fn counter<const N: usize>(&self, family: &'static Family, labels: [&str; N]) -> Arc<Counter> {
        match self.series(family, &labels) {
            Series::Counter(counter) => counter,
            // A family has one kind: see the test of the table.
            Series::Histogram(_) => Arc::default(),
        }
    }

    pub(crate) fn histogram<const N: usize>(&self, family: &'static Family, labels: [&str; N]) -> Arc<Histogram> {
        match self.series(family, &labels) {
            Series::Histogram(histogram) => histogram,
            Series::Counter(_) => Arc::new(Histogram::new(&crate::histogram::DURATIONS)),
        }
    }

    fn series(&self, family: &'static Family, labels: &[&str]) -> Series {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        let labels: Labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut state = self.state.lock();
        if let Some(series) = state.families.get(family.name).and_then(|all| all.get(&labels)).and_then(Held::series) {
            return series;
        }
        if state.lines() + family.lines() > self.lines_max {
            state.forget_gone();
        }
        if state.lines() + family.lines() > self.lines_max {
            state.refused += 1;
            return state.overflow.entry(family.name).or_insert_with(|| fresh(family)).clone();
        }
        let series = fresh(family);
        let held = match &series {
            Series::Counter(counter) => Held::Counter(Arc::downgrade(counter)),
            Series::Histogram(histogram) => Held::Histogram(Arc::downgrade(histogram)),
        };
        state.families.entry(family.name).or_default().insert(labels, held);
        series
    }

    /// The series of a family whose handles are held, with their labels.
    pub(crate) fn of(&self, family: &Family) -> Vec<(Labels, Series)> {
        let mut state = self.state.lock();
        state.forget_gone();
        let all = state.families.get(family.name).into_iter().flatten();
        let mut found: Vec<_> = all.filter_map(|(labels, held)| Some((labels.clone(), held.series()?))).collect();
        let overflow = state.overflow.get(family.name).cloned();
        found.extend(overflow.map(|series| (vec![OVERFLOW.to_owned(); family.labels.len()], series)));
        if family.name == SERIES_OVERFLOW.name {
            let counter = Counter::default();
            counter.add(state.refused);
            found.push((Labels::new(), Series::Counter(Arc::new(counter))));
        }
        found
    }
}

impl State {
    fn lines(&self) -> usize {
        let lines = |name: &str, series: usize| Family::named(name).map_or(series, |family| family.lines() * series);
        self.families.iter().map(|(name, series)| lines(name, series.len())).sum()
    }

    fn forget_gone(&mut self) {
        for series in self.families.values_mut() {
            series.retain(|_, held| held.series().is_some());
        }
    }
}

fn fresh(family: &Family) -> Series {
    match family.kind {
        Kind::Histogram(buckets) => Series::Histogram(Arc::new(Histogram::new(buckets))),
        Kind::Counter | Kind::Seconds | Kind::Gauge => Series::Counter(Arc::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::{CALLS, OPERATION_DURATION};

    #[test]
    fn series_lives_as_long_as_its_handle() {
        let registry = Registry::new(100);
        let first = registry.counter(&CALLS, ["csv", "query", "ok"]);
        first.increase();
        let same = registry.counter(&CALLS, ["csv", "query", "ok"]);
        drop(first);
        assert_eq!(same.read(), 1, "another version of the plugin goes on counting");
        assert_eq!(registry.of(&CALLS).len(), 1);
        drop(same);
        assert_eq!(registry.of(&CALLS).len(), 0);
    }

    #[test]
    fn series_beyond_the_bound_count_as_overflow() {
        let registry = Registry::new(2);
        let _held: Vec<_> = ["a", "b"].map(|tool| registry.counter(&CALLS, ["p", tool, "ok"])).into();
        for tool in ["c", "d"] {
            registry.counter(&CALLS, ["p", tool, "ok"]).increase();
        }
        let histogram = registry.histogram(&OPERATION_DURATION, ["tools/call", "c", "", "", "", "tcp"]);
        histogram.observe_units(1);
        let of_calls = registry.of(&CALLS);
        assert_eq!(of_calls.len(), 3);
        let (labels, Series::Counter(counter)) = of_calls.last().unwrap() else { panic!() };
        assert_eq!((labels, counter.read()), (&vec![OVERFLOW.to_owned(); 3], 2));
        let [(_, Series::Counter(refused))] = &registry.of(&SERIES_OVERFLOW)[..] else { panic!() };
        assert_eq!(refused.read(), 3);
    }

    #[test]
    fn room_of_series_that_are_gone_is_used_again() {
        let registry = Registry::new(1);
        drop(registry.counter(&CALLS, ["p", "a", "ok"]));
        let _b = registry.counter(&CALLS, ["p", "b", "ok"]);
        let names: Vec<_> = registry.of(&CALLS).into_iter().map(|(labels, _)| labels[1].clone()).collect();
        assert_eq!(names, ["b"]);
    }
}
