//! Handles of what there is one of in each host.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_domain::task::{Design, Outcome};
use bulkhead_domain::timeline::WakeCause;

use crate::Metrics;
use crate::families::{
    CODE_CACHE, COMPILE, DEMOTED, DIVERGENCES, EVICTIONS, GRANT_DENIED, JOURNAL_APPENDS, JOURNAL_BYTES, PERMIT_WAIT,
    RESUMES, STORE_GROUP, STORE_SYNC, TASKS_CREATED, TASKS_ENDED, TASKS_PROMOTED, TASKS_RECOVERED, WAKES,
};
use crate::histogram::Histogram;
use crate::registry::Counter;

/// Who waits for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Plain,
    Task,
    /// A call that holds an instance and goes on.
    Again,
    /// A task that had left memory and goes on.
    Wake,
}

/// Why a task leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionCause {
    /// More than are to stay rest in memory.
    Number,
    /// It has rested for long.
    Age,
    /// Another call needs the room to rest.
    Pressure,
    /// The host goes down.
    Drain,
}

/// What is counted of tasks and of admission.
#[derive(Debug)]
pub struct TaskMetrics {
    metrics: Metrics,
    created: [Arc<Counter>; 3],
    ended: [Arc<Counter>; 4],
    promoted: Arc<Counter>,
    recovered: [Arc<Counter>; 4],
    resumes: Arc<Counter>,
    divergences: Arc<Counter>,
    evictions: [Arc<Counter>; 4],
    wakes: [Arc<Counter>; WakeCause::ALL.len()],
    waits: [Arc<Histogram>; 4],
}

impl TaskMetrics {
    /// None: nothing is counted.
    pub fn of(metrics: &Metrics) -> Option<Self> {
        let registry = metrics.0.registry.as_ref()?;
        Some(Self {
            metrics: metrics.clone(),
            created: ["core", "sep_1686", "extension"].map(|design| registry.counter(&TASKS_CREATED, [design])),
            ended: ["ok", "tool_error", "error", "cancelled"].map(|outcome| registry.counter(&TASKS_ENDED, [outcome])),
            promoted: registry.counter(&TASKS_PROMOTED, []),
            recovered: ["queued", "paused", "interrupted", "resumed"]
                .map(|how| registry.counter(&TASKS_RECOVERED, [how])),
            resumes: registry.counter(&RESUMES, []),
            divergences: registry.counter(&DIVERGENCES, []),
            evictions: ["number", "age", "pressure", "drain"].map(|cause| registry.counter(&EVICTIONS, [cause])),
            wakes: WakeCause::ALL.map(|cause| registry.counter(&WAKES, [cause.name()])),
            waits: ["plain", "task", "again", "wake"].map(|kind| registry.histogram(&PERMIT_WAIT, [kind])),
        })
    }

    pub fn created(&self, design: Design) {
        let [core, older, extension] = &self.created;
        match design {
            Design::Core2025 => core,
            Design::Sep1686 => older,
            Design::Extension2026 => extension,
        }
        .increase();
    }

    pub fn ended(&self, outcome: &Outcome) {
        let [ok, tool_error, error, cancelled] = &self.ended;
        match outcome {
            Outcome::Output { is_error: false } => ok,
            Outcome::Output { is_error: true } => tool_error,
            Outcome::Error(_) => error,
            Outcome::Cancelled => cancelled,
        }
        .increase();
    }

    /// A call of this plugin reached for what it is not granted.
    pub fn denied(&self, plugin: &str, kind: &'static str) {
        self.metrics.plugin_event(&GRANT_DENIED, plugin, kind);
    }

    pub fn promoted(&self) {
        self.promoted.increase();
    }

    /// So many tasks wait again, are still paused, or were interrupted.
    pub fn recovered(&self, counts: [u64; 4]) {
        self.recovered.iter().zip(counts).for_each(|(counter, count)| counter.add(count));
    }

    /// A task goes on where a run was that it had lost.
    pub fn resumed(&self) {
        self.resumes.increase();
    }

    /// A task left memory.
    pub fn evicted(&self, cause: EvictionCause) {
        let [number, age, pressure, drain] = &self.evictions;
        match cause {
            EvictionCause::Number => number,
            EvictionCause::Age => age,
            EvictionCause::Pressure => pressure,
            EvictionCause::Drain => drain,
        }
        .increase();
    }

    /// A task that had left memory goes on.
    pub fn woken(&self, cause: WakeCause) {
        let [answered, resumed, steered, slept] = &self.wakes;
        match cause {
            WakeCause::Answered => answered,
            WakeCause::Resumed => resumed,
            WakeCause::Steered => steered,
            WakeCause::Slept => slept,
        }
        .increase();
    }

    /// A call did something else than its journal says.
    pub fn diverged(&self) {
        self.divergences.increase();
    }

    pub fn waited(&self, who: Waiting, wait: Duration) {
        let [plain, task, again, wake] = &self.waits;
        match who {
            Waiting::Plain => plain,
            Waiting::Task => task,
            Waiting::Again => again,
            Waiting::Wake => wake,
        }
        .observe(wait);
    }
}

/// What is counted of a store.
#[derive(Debug)]
pub struct StoreMetrics {
    groups: Arc<Histogram>,
    syncs: Arc<Histogram>,
    appends: Arc<Counter>,
    appended_bytes: Arc<Counter>,
    demotions: [Arc<Counter>; DEMOTIONS.len()],
}

/// Why journals are given up: the label, and what the host's words for it begin with. The last one is for words that
/// are not known here.
const DEMOTIONS: [(&str, &str); 12] = [
    ("wasi_03", "its component uses WASI 0.3"),
    ("file", "it used a file"),
    ("settings", "its settings and variables are larger"),
    ("journal", "its journal is larger"),
    ("entries", "its journal has more"),
    ("response", "it was sent an HTTP response larger"),
    ("memory", "it was sent HTTP responses that do not fit"),
    ("event_stream", "it was sent a stream of events"),
    ("open_request", "it waited for something while it still wrote"),
    ("stored_bytes", "the bytes that may be stored"),
    ("before_task", "it saw more than"),
    ("other", ""),
];

/// The label of a reason for which a journal was given up.
pub fn demotion_label(reason: &str) -> &'static str {
    DEMOTIONS.into_iter().find(|(_, begin)| reason.starts_with(begin)).map_or("other", |(label, _)| label)
}

impl StoreMetrics {
    /// None: nothing is counted.
    pub fn of(metrics: &Metrics, engine: &'static str) -> Option<Self> {
        let registry = metrics.0.registry.as_ref()?;
        let groups = registry.histogram(&STORE_GROUP, [engine]);
        Some(Self {
            groups,
            syncs: registry.histogram(&STORE_SYNC, [engine]),
            appends: registry.counter(&JOURNAL_APPENDS, []),
            appended_bytes: registry.counter(&JOURNAL_BYTES, []),
            demotions: DEMOTIONS.map(|(label, _)| registry.counter(&DEMOTED, [label])),
        })
    }

    /// A journal grew by so many bytes.
    pub fn appended(&self, bytes: u64) {
        self.appends.increase();
        self.appended_bytes.add(bytes);
    }

    /// A journal was given up, for a reason in the host's words.
    pub fn demoted(&self, reason: &str) {
        let label = demotion_label(reason);
        let index = DEMOTIONS.iter().position(|(known, _)| *known == label);
        if let Some(counter) = index.and_then(|index| self.demotions.get(index)) {
            counter.increase();
        }
    }

    /// So many operations became durable together.
    pub fn group(&self, operations: usize) {
        self.groups.observe_units(operations as u64);
    }

    /// The disk took so long for them.
    pub fn synced(&self, took: Duration) {
        self.syncs.observe(took);
    }
}

/// What is counted of compiled code.
#[derive(Debug)]
pub struct CodeMetrics {
    found: Arc<Counter>,
    missing: Arc<Counter>,
    compiles: Arc<Histogram>,
}

impl CodeMetrics {
    /// None: nothing is counted.
    pub fn of(metrics: &Metrics) -> Option<Self> {
        let registry = metrics.0.registry.as_ref()?;
        let [found, missing] = ["hit", "miss"].map(|result| registry.counter(&CODE_CACHE, [result]));
        Some(Self { found, missing, compiles: registry.histogram(&COMPILE, []) })
    }

    pub fn looked_up(&self, found: bool) {
        if found { &self.found } else { &self.missing }.increase();
    }

    pub fn compiled(&self, took: Duration) {
        self.compiles.observe(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, MetricsOptions, Readings, page};

    #[test]
    fn task_and_store_numbers_are_on_the_page_from_the_start() {
        let metrics = Metrics::new(MetricsOptions { series_max: 1_000, tools: true });
        let tasks = TaskMetrics::of(&metrics).unwrap();
        let store = StoreMetrics::of(&metrics, "sled").unwrap();
        tasks.created(Design::Extension2026);
        tasks.ended(&Outcome::Output { is_error: true });
        tasks.recovered([2, 0, 1, 0]);
        tasks.waited(Waiting::Task, Duration::from_millis(20));
        tasks.resumed();
        tasks.diverged();
        store.group(3);
        store.appended(300);
        store.appended(12);
        store.demoted("it used a file of a granted directory");
        store.demoted("in words of a later host");
        let page = page(&metrics, Readings::default(), Form::Text).unwrap();
        for line in [
            "bulkhead_tasks_created_total{design=\"core\"} 0",
            "bulkhead_tasks_created_total{design=\"extension\"} 1",
            "bulkhead_tasks_ended_total{outcome=\"tool_error\"} 1",
            "bulkhead_tasks_ended_total{outcome=\"ok\"} 0",
            "bulkhead_tasks_recovered_total{how=\"queued\"} 2",
            "bulkhead_tasks_recovered_total{how=\"interrupted\"} 1",
            "bulkhead_task_resumes_total 1",
            "bulkhead_task_divergences_total 1",
            "bulkhead_journal_appends_total 2",
            "bulkhead_journal_bytes_total 312",
            "bulkhead_journal_demotions_total{reason=\"file\"} 1",
            "bulkhead_journal_demotions_total{reason=\"other\"} 1",
            "bulkhead_journal_demotions_total{reason=\"response\"} 0",
            "bulkhead_permit_wait_seconds_bucket{kind=\"task\",le=\"0.05\"} 1",
            "bulkhead_store_group_operations_bucket{engine=\"sled\",le=\"2.0\"} 0",
            "bulkhead_store_group_operations_bucket{engine=\"sled\",le=\"4.0\"} 1",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(TaskMetrics::of(&Metrics::off()).is_none());
    }
}
