//! The series that there are.
//!
//! Owns the bound on their number and the way from a family and its labels to a handle. Must not be asked during a
//! request: a handle is found once, when what it counts comes into being. Invariant: a series lives as long as its
//! handle is held, so that it goes with its thing; the lines of all series together stay within `metrics.series_max`,
//! and what is beyond counts in the series `_overflow` of its family.

use std::collections::{BTreeMap, BTreeSet};
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

/// A series in the table.
#[derive(Debug)]
struct Row {
    held: Held,
    /// The plugin that it is of. A version that is no longer offered may be loaded for a while, and with it its
    /// handles.
    plugin: Option<Box<str>>,
}

#[derive(Debug, Default)]
struct State {
    families: BTreeMap<&'static str, BTreeMap<Labels, Row>>,
    /// Plugins that were removed: their series are not shown.
    removed: BTreeSet<String>,
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
        match self.series(None, family, &labels) {
            Series::Counter(counter) => counter,
            // A family has one kind: see the test of the table.
            Series::Histogram(_) => Arc::default(),
        }
    }

    pub(crate) fn histogram<const N: usize>(&self, family: &'static Family, labels: [&str; N]) -> Arc<Histogram> {
        self.histogram_of(None, family, labels)
    }

    /// The same of a plugin that no label names.
    pub(crate) fn histogram_of<const N: usize>(
        &self,
        plugin: Option<&str>,
        family: &'static Family,
        labels: [&str; N],
    ) -> Arc<Histogram> {
        match self.series(plugin, family, &labels) {
            Series::Histogram(histogram) => histogram,
            Series::Counter(_) => Arc::new(Histogram::new(&crate::histogram::DURATIONS)),
        }
    }

    fn series(&self, plugin: Option<&str>, family: &'static Family, labels: &[&str]) -> Series {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        let labelled =
            || family.labels.iter().zip(labels).find(|(label, _)| **label == "plugin").map(|(_, name)| *name);
        let plugin = plugin.or_else(labelled).map(Into::into);
        let labels: Labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut state = self.state.lock();
        if let Some(series) = state.families.get(family.name).and_then(|all| all.get(&labels)?.held.series()) {
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
        state.families.entry(family.name).or_default().insert(labels, Row { held, plugin });
        series
    }

    /// Shows the series of a plugin no more until it is there again.
    pub(crate) fn set_removed(&self, plugin: &str, is_removed: bool) {
        let mut state = self.state.lock();
        match is_removed {
            true => state.removed.insert(plugin.to_owned()),
            false => state.removed.remove(plugin),
        };
    }

    /// The series of a family whose handles are held, with their labels.
    pub(crate) fn of(&self, family: &Family) -> Vec<(Labels, Series)> {
        let mut state = self.state.lock();
        state.forget_gone();
        let is_shown = |row: &Row| row.plugin.as_ref().is_none_or(|plugin| !state.removed.contains(&**plugin));
        let all = state.families.get(family.name).into_iter().flatten().filter(|(_, row)| is_shown(row));
        let mut found: Vec<_> = all.filter_map(|(labels, row)| Some((labels.clone(), row.held.series()?))).collect();
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
            series.retain(|_, row| row.held.series().is_some());
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
    fn series_of_a_removed_plugin_are_shown_again_when_it_is_back() {
        let registry = Registry::new(100);
        let labels = ["tools/call", "query", "", "", "", "tcp"];
        let _calls = registry.counter(&CALLS, ["csv", "query", "ok"]);
        let _operations = registry.histogram_of(Some("csv"), &OPERATION_DURATION, labels);
        let shown = || registry.of(&CALLS).len() + registry.of(&OPERATION_DURATION).len();
        assert_eq!(shown(), 2);
        registry.set_removed("csv", true);
        assert_eq!(shown(), 0);
        registry.set_removed("csv", false);
        assert_eq!(shown(), 2);
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
