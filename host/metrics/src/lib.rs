//! What the host counts.
//!
//! Owns the handles that other crates count with, the table of all families, and the page that a scrape gets. Must not
//! know who counts, and must not change what anybody is answered. Invariants: a handle is found when what it counts
//! comes into being, and a request only adds to it; no label comes from a client's bytes; without `[metrics]` every
//! handle is empty and nothing is counted, except refusals by limit, and what calls cost while an operator looks
//! ([`Activity`]).

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod activity;
mod calls;
mod expose;
pub mod families;
mod histogram;
mod host_handles;
mod operation;
pub mod process;
mod reference;
mod registry;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;

use families::{CREDENTIALS_REFUSED, Family, REFUSALS, SESSION_DURATION, STORE_SYNC, TICK_LATE};
use operation::OperationEntry;
use registry::{Labels, Registry, Series};

pub use activity::{Activity, ActivityCounts, ActivityReading, ToolActivity, ToolEnds};
pub use calls::{Outcome, PluginMetrics, ToolMetrics};
pub use expose::{Form, page};
pub use histogram::{Histogram, quantile};
pub use host_handles::{CodeMetrics, EvictionCause, StoreMetrics, TaskMetrics, Waiting, demotion_label};
pub use operation::{Answer, CODES, METHODS, Operation, Operations, Transport, VERSIONS};
pub use reference::markdown;
pub use registry::{Counter, OVERFLOW};

/// What is counted, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Lines of all series together.
    pub series_max: usize,
    /// Whether the durations of requests are told apart by tool and prompt.
    pub tools: bool,
}

/// Everything that is counted; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    registry: Option<Arc<Registry>>,
    options: MetricsOptions,
    operations: Operations,
    activity: Arc<Activity>,
    refusals: ByWord,
    credentials: ByWord,
    plugin_events: PluginEvents,
    /// By transport and revision; what is in no table has the first place.
    sessions: [[OnceLock<Arc<Histogram>>; VERSIONS.len() + 1]; Transport::ALL.len()],
}

/// Counters of what seldom happens to a plugin, by family and a word of the code. They go when the plugin is removed.
type PluginEvents = RwLock<HashMap<String, HashMap<(&'static str, &'static str), Arc<Counter>>>>;

/// Counters by a word of the code. Only what is refused looks one up.
#[derive(Debug)]
struct ByWord {
    family: &'static Family,
    counters: RwLock<HashMap<&'static str, Arc<Counter>>>,
}

impl ByWord {
    fn new(family: &'static Family) -> Self {
        Self { family, counters: RwLock::default() }
    }

    /// Without a registry no scrape shows the count.
    fn increase(&self, registry: Option<&Arc<Registry>>, word: &'static str) {
        if let Some(counter) = self.counters.read().get(word) {
            return counter.increase();
        }
        let counter = registry.map(|registry| registry.counter(self.family, [word])).unwrap_or_default();
        self.counters.write().entry(word).or_insert(counter).increase();
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.counters.read().iter().map(|(word, counter)| (*word, counter.read())).collect()
    }
}

impl Metrics {
    pub fn new(options: MetricsOptions) -> Self {
        Self::with(Some(Arc::new(Registry::new(options.series_max))), options)
    }

    /// Counts nothing.
    pub fn off() -> Self {
        Self::with(None, MetricsOptions { series_max: 0, tools: false })
    }

    fn with(registry: Option<Arc<Registry>>, options: MetricsOptions) -> Self {
        let operations = Operations::new(registry.as_ref());
        let refusals = ByWord::new(&REFUSALS);
        let credentials = ByWord::new(&CREDENTIALS_REFUSED);
        let activity = Arc::default();
        let plugin_events = PluginEvents::default();
        let sessions = Default::default();
        Self(Arc::new(Shared {
            registry,
            options,
            operations,
            activity,
            refusals,
            credentials,
            plugin_events,
            sessions,
        }))
    }

    /// Whether anything is counted.
    pub fn is_on(&self) -> bool {
        self.0.registry.is_some()
    }

    /// What calls cost, for an operator who looks; with and without `[metrics]`.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.0.activity
    }

    /// The durations of requests, by method.
    pub fn operations(&self) -> &Operations {
        &self.0.operations
    }

    /// What is counted of a plugin.
    pub fn plugin(&self, name: &str) -> PluginMetrics {
        self.0.registry.as_ref().map(|registry| PluginMetrics::new(registry, name)).unwrap_or_default()
    }

    /// What is counted of a tool of a plugin, by its name in the catalog.
    pub fn tool(&self, plugin: &PluginMetrics, name: &str) -> ToolMetrics {
        ToolMetrics::new(plugin, name, self.0.options.tools)
    }

    /// The durations of requests for a prompt, by its name in the catalog.
    pub fn prompt(&self, plugin: &str, name: &str) -> Operation {
        let name = if self.0.options.tools { name } else { "" };
        let registry = self.0.registry.as_ref();
        registry
            .map(|registry| Operation::new(registry, Some(plugin), "prompts/get", OperationEntry::Prompt(name)))
            .unwrap_or_default()
    }

    /// A request was refused by this limit.
    pub fn refused(&self, limit: &'static str) {
        self.0.refusals.increase(self.0.registry.as_ref(), limit);
    }

    /// How many requests each limit has refused; with and without `[metrics]`.
    pub fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.0.refusals.counts()
    }

    /// How long the disk took to make groups durable: steps by their longest time in nanoseconds, with how many;
    /// `None`: it is not counted.
    pub fn store_syncs(&self) -> Option<Vec<(u64, u64)>> {
        self.is_on().then(|| {
            let steps = |(_, series)| match series {
                Series::Histogram(histogram) => histogram.counts().collect(),
                Series::Counter(_) => Vec::new(),
            };
            self.series(&STORE_SYNC).into_iter().flat_map(steps).collect()
        })
    }

    /// A credential was refused for this reason.
    pub fn credential_refused(&self, reason: &'static str) {
        if let Some(registry) = &self.0.registry {
            self.0.credentials.increase(Some(registry), reason);
        }
    }

    /// A plugin is there, or there again.
    pub fn show_plugin(&self, plugin: &str) {
        self.0.activity.set_removed(plugin, false);
        if let Some(registry) = &self.0.registry {
            registry.set_removed(plugin, false);
        }
    }

    /// Something that seldom happens to a plugin; `family` has the labels plugin and a word.
    pub fn plugin_event(&self, family: &'static Family, plugin: &str, word: &'static str) {
        let Some(registry) = &self.0.registry else { return };
        let mut plugins = self.0.plugin_events.write();
        let events = plugins.entry(plugin.to_owned()).or_default();
        let counter = || registry.counter(family, [plugin, word]);
        events.entry((family.name, word)).or_insert_with(counter).increase();
    }

    /// A plugin was removed: its series go.
    pub fn forget_plugin(&self, plugin: &str) {
        self.0.activity.set_removed(plugin, true);
        if let Some(registry) = &self.0.registry {
            registry.set_removed(plugin, true);
        }
        self.0.plugin_events.write().remove(plugin);
    }

    /// A legacy session of this revision is over.
    pub fn session_ended(&self, transport: Transport, version: &str, lasted: Duration) {
        let Some(registry) = &self.0.registry else { return };
        let known = VERSIONS.iter().position(|known| *known == version);
        let histograms = self.0.sessions.get(transport as usize);
        let Some(histogram) = histograms.and_then(|histograms| histograms.get(known.map_or(0, |known| known + 1)))
        else {
            return;
        };
        let label = known.and_then(|known| VERSIONS.get(known)).copied().unwrap_or_default();
        histogram.get_or_init(|| registry.histogram(&SESSION_DURATION, [label, transport.name()])).observe(lasted);
    }

    /// How late ticks come; `None`: nothing is counted.
    pub fn ticks_late(&self) -> Option<Arc<Histogram>> {
        Some(self.0.registry.as_ref()?.histogram(&TICK_LATE, []))
    }

    fn series(&self, family: &Family) -> Vec<(Labels, Series)> {
        self.0.registry.as_ref().map(|registry| registry.of(family)).unwrap_or_default()
    }

    fn lines_max(&self) -> usize {
        self.0.options.series_max
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::off()
    }
}

/// Numbers that are read when a scrape asks for them.
#[derive(Debug, Default)]
pub struct Readings {
    pub(crate) numbers: Vec<(&'static Family, Labels, f64)>,
}

impl Readings {
    /// The number of a family with these values of its labels.
    pub fn read<const N: usize>(&mut self, family: &'static Family, labels: [&str; N], number: f64) {
        debug_assert_eq!(family.labels.len(), N, "{}", family.name);
        self.numbers.push((family, labels.map(str::to_owned).into(), number));
    }
}

#[cfg(test)]
mod tests {
    mod cost;

    use super::*;

    #[test]
    fn refusals_count_by_the_name_of_their_limit() {
        let metrics = Metrics::new(MetricsOptions { series_max: 100, tools: true });
        for limit in ["requests_per_second", "calls_running_total", "requests_per_second"] {
            metrics.refused(limit);
        }
        metrics.credential_refused("no credential");
        let page = page(&metrics, Readings::default(), Form::Text).unwrap();
        for line in [
            "bulkhead_refusals_total{limit=\"calls_running_total\"} 1",
            "bulkhead_refusals_total{limit=\"requests_per_second\"} 2",
            "bulkhead_credentials_refused_total{reason=\"no credential\"} 1",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }

    #[test]
    fn syncs_of_the_store_are_read_by_steps() {
        let metrics = Metrics::new(MetricsOptions { series_max: 100, tools: true });
        assert_eq!(metrics.store_syncs(), Some(Vec::new()));
        let store = StoreMetrics::of(&metrics, "sled").unwrap();
        for ms in [2, 3, 40] {
            store.synced(Duration::from_millis(ms));
        }
        assert_eq!(metrics.store_syncs(), Some(vec![(5_000_000, 2), (50_000_000, 1)]));
    }

    #[test]
    fn events_of_a_plugin_go_when_it_is_removed() {
        let metrics = Metrics::new(MetricsOptions { series_max: 100, tools: true });
        for (plugin, turn) in [("csv", "switched"), ("csv", "switched"), ("text", "taken_back")] {
            metrics.plugin_event(&families::PLUGIN_SWITCHES, plugin, turn);
        }
        metrics.plugin_event(&families::GRANT_DENIED, "csv", "http");
        let shown = || page(&metrics, Readings::default(), Form::Text).unwrap();
        let before = shown();
        for line in [
            "bulkhead_plugin_switches_total{plugin=\"csv\",turn=\"switched\"} 2",
            "bulkhead_plugin_switches_total{plugin=\"text\",turn=\"taken_back\"} 1",
            "bulkhead_grant_denied_total{plugin=\"csv\",kind=\"http\"} 1",
        ] {
            assert!(before.contains(line), "{line}\n{before}");
        }
        metrics.forget_plugin("csv");
        let after = shown();
        assert!(!after.contains("csv") && after.contains("plugin=\"text\""), "{after}");
    }

    #[test]
    fn sessions_count_by_revision_and_transport_and_ticks_from_the_start() {
        let metrics = Metrics::new(MetricsOptions { series_max: 1_000, tools: true });
        let _held = metrics.ticks_late();
        metrics.session_ended(Transport::Http, "2025-11-25", Duration::from_secs(70));
        metrics.session_ended(Transport::Stdio, "made up", Duration::ZERO);
        let page = page(&metrics, Readings::default(), Form::Text).unwrap();
        let of = "mcp_server_session_duration_seconds_bucket{mcp_protocol_version=\"2025-11-25\",network_transport=\"tcp\",le=";
        for line in [
            &format!("{of}\"60.0\"}} 0"),
            &format!("{of}\"300.0\"}} 1"),
            "mcp_server_session_duration_seconds_count{network_transport=\"pipe\"} 1",
            "bulkhead_tick_late_seconds_count 0",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }

    #[test]
    fn host_without_metrics_counts_nothing() {
        let metrics = Metrics::off();
        let plugin = metrics.plugin("csv");
        metrics.tool(&plugin, "csv_query").call_ended(Outcome::Ok);
        metrics.refused("requests_per_second");
        assert_eq!(page(&metrics, Readings::default(), Form::Text).unwrap(), "");
        assert_eq!(metrics.refusals(), [("requests_per_second", 1)], "it is counted, and no scrape shows it");
        assert_eq!(metrics.store_syncs(), None);
    }
}
