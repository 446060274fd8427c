//! Calls of tools, and what they cost.
//!
//! Owns what an outcome is called. Must not see what a call was given or gave back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bulkhead_domain::call::{CallError, FaultKind};

use crate::families::{CALL_BUSY, CALL_CPU, CALLS, EGRESS_DURATION, IN_DOUBT};
use crate::histogram::Histogram;
use crate::operation::{Operation, OperationEntry};
use crate::registry::{Counter, Registry};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// The tool says that it failed.
    ToolError,
    /// The plugin refused what it was asked for.
    RefusedInput,
    /// An error of the plugin's own, or a capability that its client lacks.
    PluginError,
    Trap,
    Limit,
    Deadline,
    InvalidOutput,
    /// Its client or its task stopped it.
    Cancelled,
    Interrupted,
    Host,
}

impl Outcome {
    /// All of them, each at its place in the enum.
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::ToolError,
        Self::RefusedInput,
        Self::PluginError,
        Self::Trap,
        Self::Limit,
        Self::Deadline,
        Self::InvalidOutput,
        Self::Cancelled,
        Self::Interrupted,
        Self::Host,
    ];

    /// Whether the call went wrong. One that was stopped did not.
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Ok | Self::Cancelled)
    }

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::RefusedInput => "refused_input",
            Self::PluginError => "plugin_error",
            Self::Trap => "trap",
            Self::Limit => "limit",
            Self::Deadline => "deadline",
            Self::InvalidOutput => "invalid_output",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Host => "host",
        }
    }
}

impl From<&CallError> for Outcome {
    fn from(error: &CallError) -> Self {
        match error {
            CallError::InvalidParams(_) | CallError::NotFound(_) => Self::RefusedInput,
            CallError::MissingCapability(_) | CallError::Custom { .. } => Self::PluginError,
            CallError::Fault { kind: FaultKind::Trap, .. } => Self::Trap,
            CallError::Fault { kind: FaultKind::Limit, .. } => Self::Limit,
            CallError::Fault { kind: FaultKind::Deadline, .. } => Self::Deadline,
            CallError::Fault { kind: FaultKind::InvalidOutput, .. } => Self::InvalidOutput,
            CallError::Internal { .. } => Self::Host,
            CallError::Interrupted => Self::Interrupted,
        }
    }
}

/// What is counted of one plugin, whichever version.
#[derive(Clone, Debug, Default)]
pub struct PluginMetrics {
    kept: Option<Arc<KeptPlugin>>,
}

#[derive(Debug)]
struct KeptPlugin {
    registry: Arc<Registry>,
    plugin: String,
    cpu: Arc<Counter>,
    busy: Arc<Histogram>,
    /// Of requests over HTTP, by the first digit of the status; the first one is of those without an answer.
    egress: [OnceLock<Arc<Histogram>>; 6],
    in_doubt: OnceLock<Arc<Counter>>,
}

impl PluginMetrics {
    pub(crate) fn new(registry: &Arc<Registry>, plugin: &str) -> Self {
        let kept = KeptPlugin {
            registry: Arc::clone(registry),
            plugin: plugin.to_owned(),
            cpu: registry.counter(&CALL_CPU, [plugin]),
            busy: registry.histogram(&CALL_BUSY, [plugin]),
            egress: Default::default(),
            in_doubt: OnceLock::new(),
        };
        Self { kept: Some(Arc::new(kept)) }
    }

    /// Whether anything is counted.
    pub fn is_on(&self) -> bool {
        self.kept.is_some()
    }

    /// A request of the plugin over HTTP was answered with this status, or failed.
    pub fn sent(&self, status: Option<u16>, took: Duration) {
        const OUTCOMES: [&str; 6] = ["failed", "1xx", "2xx", "3xx", "4xx", "5xx"];
        let at = status.map_or(0, |status| usize::from(status / 100));
        let (Some(kept), Some(outcome)) = (&self.kept, OUTCOMES.get(at)) else { return };
        let Some(histogram) = kept.egress.get(at) else { return };
        let labels = || [kept.plugin.as_str(), *outcome];
        histogram.get_or_init(|| kept.registry.histogram(&EGRESS_DURATION, labels())).observe(took);
    }

    /// So many requests of the plugin over HTTP are in doubt. That is rare, so the series is made when it happens.
    pub fn in_doubt(&self, count: u64) {
        if let Some(kept) = self.kept.as_ref().filter(|_| count > 0) {
            let series = kept.in_doubt.get_or_init(|| kept.registry.counter(&IN_DOUBT, [kept.plugin.as_str()]));
            series.add(count);
        }
    }

    /// A call, or another request to the plugin, is over.
    pub fn call_ended(&self, cpu: Duration, busy: Duration) {
        if let Some(kept) = &self.kept {
            kept.cpu.add(u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX));
            kept.busy.observe(busy);
        }
    }
}

/// What is counted of one tool: kept with it in the catalog.
#[derive(Debug, Default)]
pub struct ToolMetrics {
    plugin: PluginMetrics,
    tool: String,
    calls: [OnceLock<Arc<Counter>>; Outcome::ALL.len()],
    /// Of requests that call it.
    pub operation: Operation,
}

impl ToolMetrics {
    /// `tool` is its name in the catalog; `with_operation`: requests that call it are told apart from those of other
    /// tools.
    pub(crate) fn new(plugin: &PluginMetrics, tool: &str, with_operation: bool) -> Self {
        let operation = plugin.kept.as_ref().map(|kept| {
            let name = if with_operation { tool } else { "" };
            Operation::new(&kept.registry, Some(&kept.plugin), "tools/call", OperationEntry::Tool(name))
        });
        Self {
            plugin: plugin.clone(),
            tool: tool.to_owned(),
            calls: Default::default(),
            operation: operation.unwrap_or_default(),
        }
    }

    /// Counts a call that ended like this.
    pub fn call_ended(&self, outcome: Outcome) {
        let (Some(kept), Some(counter)) = (&self.plugin.kept, self.calls.get(outcome as usize)) else { return };
        let labels = || [kept.plugin.as_str(), self.tool.as_str(), outcome.name()];
        counter.get_or_init(|| kept.registry.counter(&CALLS, labels())).increase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Series;

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
            assert_eq!(Outcome::ALL.iter().filter(|other| other.name() == outcome.name()).count(), 1);
        }
    }

    #[test]
    fn calls_count_by_outcome_and_cost_by_plugin() {
        let registry = Arc::new(Registry::new(1_000));
        let plugin = PluginMetrics::new(&registry, "csv");
        let tool = ToolMetrics::new(&plugin, "csv_query", true);
        for outcome in [Outcome::Ok, Outcome::Ok, Outcome::from(&CallError::Interrupted)] {
            tool.call_ended(outcome);
        }
        plugin.call_ended(Duration::from_millis(1_500), Duration::from_secs(2));
        let read = |(labels, series): (Vec<String>, Series)| match series {
            Series::Counter(counter) => (labels.join(" "), counter.read()),
            Series::Histogram(histogram) => (labels.join(" "), histogram.read().count),
        };
        let calls: Vec<_> = registry.of(&CALLS).into_iter().map(read).collect();
        let expected = [("csv csv_query interrupted".to_owned(), 1), ("csv csv_query ok".to_owned(), 2)];
        assert_eq!(calls, expected);
        let cpu: Vec<_> = registry.of(&CALL_CPU).into_iter().map(read).collect();
        assert_eq!(cpu, [("csv".to_owned(), 1_500_000)]);
    }
}
