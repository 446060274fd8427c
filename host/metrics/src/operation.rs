//! How long requests of clients take: OpenTelemetry's `mcp.server.operation.duration`.
//!
//! Owns the closed sets that its labels come from. Must not read a message. Invariant: a method, a revision or a code
//! that is not in these tables is `_OTHER` or has no label, so that no client makes a series.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::families::OPERATION_DURATION;
use crate::histogram::Histogram;
use crate::registry::Registry;

/// The label of what is in none of the tables.
const OTHER: &str = "_OTHER";

/// The methods that are told apart.
pub const METHODS: [&str; 26] = [
    "initialize",
    "ping",
    "logging/setLevel",
    "server/discover",
    "tools/list",
    "tools/call",
    "subscriptions/listen",
    "tasks/get",
    "tasks/result",
    "tasks/list",
    "tasks/update",
    "tasks/cancel",
    "tasks/delete",
    "tasks/steer",
    "tasks/pause",
    "tasks/resume",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "skills/list",
    "skills/get",
];

/// The revisions that are told apart.
pub const VERSIONS: [&str; 4] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];

/// The error codes that are told apart: those that the host gives. One that a plugin makes up is `_OTHER`.
pub const CODES: [(i32, &str); 18] = [
    (-32700, "-32700"),
    (-32600, "-32600"),
    (-32601, "-32601"),
    (-32602, "-32602"),
    (-32603, "-32603"),
    (-32002, "-32002"),
    (-32020, "-32020"),
    (-32021, "-32021"),
    (-32022, "-32022"),
    (1001, "1001"),
    (1002, "1002"),
    (1003, "1003"),
    (1004, "1004"),
    (1005, "1005"),
    (1010, "1010"),
    (1011, "1011"),
    (1012, "1012"),
    (1013, "1013"),
];

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    #[default]
    Result,
    /// A tool's own failure: a result that says so.
    ToolError,
    Error(i32),
    /// There is none: its client gave it up.
    Abandoned,
}

const ANSWERS: usize = CODES.len() + 4;

impl Answer {
    fn index(self) -> usize {
        match self {
            Self::Result => 0,
            Self::ToolError => 1,
            Self::Error(code) => CODES.iter().position(|(known, _)| *known == code).map_or(3, |at| at + 4),
            Self::Abandoned => 2,
        }
    }

    /// Its label; empty for a result.
    pub fn error_type(self) -> &'static str {
        match self {
            Self::Result => "",
            Self::ToolError => "tool_error",
            Self::Error(code) => CODES.iter().find(|(known, _)| *known == code).map_or(OTHER, |(_, label)| label),
            Self::Abandoned => "cancelled",
        }
    }
}

/// What carries a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http,
    Stdio,
}

const TRANSPORTS: usize = Transport::ALL.len();

impl Transport {
    pub(crate) const ALL: [Self; 2] = [Self::Http, Self::Stdio];

    /// As OpenTelemetry calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "tcp",
            Self::Stdio => "pipe",
        }
    }
}

/// The histograms of one method, or of one tool or prompt, each made when it is first needed.
#[derive(Debug, Default)]
pub struct Operation {
    /// None: nothing is counted.
    series: Option<Box<OperationSeries>>,
}

#[derive(Debug)]
struct OperationSeries {
    registry: Arc<Registry>,
    plugin: Option<String>,
    method: &'static str,
    tool: String,
    prompt: String,
    histograms: Box<[OnceLock<Arc<Histogram>>]>,
}

/// What an operation is about beside its method.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OperationEntry<'a> {
    None,
    Tool(&'a str),
    Prompt(&'a str),
}

impl Operation {
    /// `plugin`: whose tool or prompt it is.
    pub(crate) fn new(
        registry: &Arc<Registry>,
        plugin: Option<&str>,
        method: &'static str,
        entry: OperationEntry<'_>,
    ) -> Self {
        let places = ANSWERS * TRANSPORTS * (VERSIONS.len() + 1);
        let histograms = std::iter::repeat_with(OnceLock::new).take(places).collect();
        let registry = Arc::clone(registry);
        let plugin = plugin.map(str::to_owned);
        let (tool, prompt) = match entry {
            OperationEntry::None => (String::new(), String::new()),
            OperationEntry::Tool(name) => (name.to_owned(), String::new()),
            OperationEntry::Prompt(name) => (String::new(), name.to_owned()),
        };
        Self { series: Some(Box::new(OperationSeries { registry, plugin, method, tool, prompt, histograms })) }
    }

    /// Counts one that took so long. `trace_id` is that of the request, if it is part of a trace.
    pub fn ended(
        &self,
        took: Duration,
        answer: Answer,
        version: &str,
        transport: Transport,
        trace_id: Option<&[u8; 16]>,
    ) {
        let Some(series) = &self.series else { return };
        let known = VERSIONS.iter().position(|known| *known == version);
        let at = (answer.index() * TRANSPORTS + transport as usize) * (VERSIONS.len() + 1)
            + known.map_or(0, |known| known + 1);
        let Some(cell) = series.histograms.get(at) else { return };
        let histogram = cell.get_or_init(|| {
            let version = known.and_then(|known| VERSIONS.get(known)).copied().unwrap_or_default();
            let OperationSeries { registry, plugin, method, tool, prompt, .. } = &**series;
            let labels = [method, tool.as_str(), prompt, answer.error_type(), version, transport.name()];
            registry.histogram_of(plugin.as_deref(), &OPERATION_DURATION, labels)
        });
        match trace_id {
            None => histogram.observe(took),
            Some(trace_id) => histogram.observe_traced(took, trace_id),
        }
    }
}

/// Those of every method.
#[derive(Debug)]
pub struct Operations {
    by_method: Vec<Operation>,
    other: Operation,
}

impl Operations {
    pub(crate) fn new(registry: Option<&Arc<Registry>>) -> Self {
        let new = |registry, method| Operation::new(registry, None, method, OperationEntry::None);
        let of = |method| registry.map(|registry| new(registry, method)).unwrap_or_default();
        Self { by_method: METHODS.map(of).into(), other: of(OTHER) }
    }

    /// That of a method, by its place in [`METHODS`].
    pub fn of(&self, method: Option<usize>) -> &Operation {
        method.and_then(|method| self.by_method.get(method)).unwrap_or(&self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_labels_has_a_series_of_its_own() {
        let registry = Arc::new(Registry::new(1_000_000));
        let operation = Operation::new(&registry, None, "tools/call", OperationEntry::Tool("echo"));
        let codes = CODES.iter().map(|(code, _)| Answer::Error(*code));
        let answers: Vec<_> =
            [Answer::Result, Answer::ToolError, Answer::Abandoned, Answer::Error(7)].into_iter().chain(codes).collect();
        for answer in &answers {
            for transport in [Transport::Http, Transport::Stdio] {
                for version in VERSIONS.iter().chain(&["made up"]) {
                    operation.ended(Duration::ZERO, *answer, version, transport, None);
                }
            }
        }
        let series = registry.of(&OPERATION_DURATION);
        assert_eq!(series.len(), answers.len() * 2 * 5);
        for (_, series) in series {
            let crate::registry::Series::Histogram(histogram) = series else { panic!() };
            assert_eq!(histogram.read().count, 1);
        }
    }

    #[test]
    fn what_a_client_makes_up_makes_no_series() {
        let registry = Arc::new(Registry::new(1_000));
        let operations = Operations::new(Some(&registry));
        for code in 0..10_000 {
            let made_up = format!("version-{code}");
            operations.of(None).ended(Duration::ZERO, Answer::Error(code + 2_000), &made_up, Transport::Http, None);
        }
        let series = registry.of(&OPERATION_DURATION);
        let labels: Vec<_> = series.into_iter().map(|(labels, _)| labels).collect();
        assert_eq!(labels, [["_OTHER", "", "", "_OTHER", "", "tcp"]]);
    }
}
