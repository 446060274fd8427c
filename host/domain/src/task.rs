//! The task record: everything that outlives a run.

use super::call::{CallError, ClientFeatures, InputRequest, InputResponse, LogLevel};
use super::requestor::{Requestor, random_id};
use super::server_features::{Completion, PromptOutput};
use super::timeline::Timeline;
use super::tool::{ResourceContents, ToolOutput};
use super::trace::TraceContext;
use super::{Json, UnixMs, read_hex, write_hex};

use std::fmt;
use std::hash::{Hash, Hasher};

random_id! {
    /// A task's id: 128 bits from the operating system, so that it can be neither guessed nor counted through.
    TaskId
}
random_id! {
    /// A run's id, for logs and upstream services.
    CallId
}
random_id! {
    /// A host process, as the holder of a lease.
    NodeId
}

/// The protocol era of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25 and older: sessions.
    Legacy,
    /// 2026-07-28: stateless.
    Modern,
}

/// Which task design created a task. Its members are shown as far as the revision of the reader allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Tasks of the 2025-11-25 core.
    Core2025,
    /// SEP-1686 as it was written.
    Sep1686,
    /// The tasks extension (SEP-2663).
    Extension2026,
}

/// Where a task came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub era: Era,
    pub design: Design,
    /// The legacy session, as its digest (never the bearer id itself).
    pub session: Option<[u8; 16]>,
    /// What the creating client declared.
    pub features: ClientFeatures,
    /// The lowest level it wants to see.
    pub log_level: Option<LogLevel>,
    /// Its progress token, as JSON.
    pub progress_token: Option<Json>,
    /// The trace of the creating request: what the task does later belongs to it.
    pub trace: Option<TraceContext>,
}

/// How long a task is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Until this long after creation, whatever its status.
    FromCreation { ttl_ms: u64 },
    /// Until this long after its end.
    FromCompletion { keep_alive_ms: u64 },
    /// For ever.
    Unlimited,
}

/// Which code runs: a plugin by name and by the SHA-256 of its component.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PluginVersion {
    pub name: String,
    pub digest: [u8; 32],
}

/// What a task does. What it does that with (arguments, a URI) is stored beside the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// It calls the tool of this name, as clients know it.
    Tool(String),
    /// It reads a resource.
    Resource,
    /// It fills in a prompt.
    Prompt,
    /// It completes an argument.
    Completion,
    /// Nothing any more: the host itself answered at once.
    Answered,
}

impl Work {
    /// A name for people; no two tools share it with anything else.
    pub fn label(&self) -> &str {
        match self {
            Self::Tool(name) => name,
            Self::Resource => "(resource)",
            Self::Prompt => "(prompt)",
            Self::Completion => "(completion)",
            Self::Answered => "(answer)",
        }
    }

    /// The tool, for a call of one.
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::Tool(name) => Some(name),
            Self::Resource | Self::Prompt | Self::Completion | Self::Answered => None,
        }
    }
}

/// What a task came to, each kind of work in its own way.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutput {
    Tool(ToolOutput),
    Contents(Vec<ResourceContents>),
    Prompt(PromptOutput),
    Completion(Completion),
    /// A result of the host's own, as it was given.
    Answer(Json),
}

impl TaskOutput {
    /// Whether a tool reports a failure of its own.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Tool(output) if output.is_error)
    }
}

impl From<ToolOutput> for TaskOutput {
    fn from(output: ToolOutput) -> Self {
        Self::Tool(output)
    }
}

/// Where a task that is not over stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// Waits for its turn.
    Queued,
    /// Runs (or sleeps).
    Running,
    /// Waits for answers.
    InputRequired,
}

/// How the status of every held task begins, and of no other paused one: what holds a task is the words of its record
/// alone, so that every host, and a store that no host runs, say the same of it.
pub const HELD: &str = "it is held";

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Active(Active),
    /// Stopped for a while; `before` comes back with resume.
    Paused {
        before: Active,
    },
    /// Over. Never changes again.
    Ended(Outcome),
}

/// How a task ended. What clients call `failed` depends on their era, so it is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work was done; its output is stored beside the record.
    Output { is_error: bool },
    /// The call broke.
    Error(CallError),
    /// A client or an operator cancelled it.
    Cancelled,
}

/// One question that a task asked, with its answer once it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The key on the wire: unique over the task's lifetime.
    pub issued_key: String,
    pub request: InputRequest,
    pub answer: Option<InputResponse>,
}

/// The right to run a task, until it runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub node: NodeId,
    pub until: UnixMs,
}

/// The longest name of a host.
pub const HOLDER_BYTES_MAX: usize = 64;

/// The host that a task belongs to, by its name among several that share a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder(String);

impl Holder {
    /// `None` when the name is empty or longer than [`HOLDER_BYTES_MAX`].
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        (1..=HOLDER_BYTES_MAX).contains(&name.len()).then_some(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The most that a later version may add to a marker.
pub const DURABLE_DETAIL_BYTES_MAX: usize = 64;

/// How journals are written by this program: the version of its markers.
pub const JOURNAL_VERSION: u8 = 1;

/// Says that a run's journal is complete, so that even an empty one can be trusted after a crash: nothing that it does
/// not tell of has left the host. It holds for one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableMarker {
    /// How the journal is written.
    pub version: u8,
    /// The run that it is about.
    pub attempt: u32,
    /// The engine that began the run.
    pub engine_hash: u64,
    detail: Vec<u8>,
}

impl DurableMarker {
    /// `None` when `detail` is longer than [`DURABLE_DETAIL_BYTES_MAX`].
    pub fn new(version: u8, attempt: u32, engine_hash: u64, detail: Vec<u8>) -> Option<Self> {
        (detail.len() <= DURABLE_DETAIL_BYTES_MAX).then_some(Self { version, attempt, engine_hash, detail })
    }

    /// The same of another run.
    #[must_use]
    pub fn of_attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    /// For a run that begins with a journal of [`JOURNAL_VERSION`].
    pub fn of_run(attempt: u32, engine_hash: u64) -> Self {
        Self { version: JOURNAL_VERSION, attempt, engine_hash, detail: Vec::new() }
    }

    /// What its version says beyond the other members.
    pub fn detail(&self) -> &[u8] {
        &self.detail
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub requestor: Requestor,
    /// Grows by one with each commit.
    pub revision: u64,
    pub work: Work,
    /// Whose code runs. Of several plugins that may have a resource, the one that is asked first; of none, where there
    /// is no run.
    pub plugin: PluginVersion,
    /// The engine that compiled the plugin, for replays.
    pub engine_hash: u64,
    pub origin: Origin,
    /// SHA-256 of the arguments, as they are stored beside the record.
    pub arguments_digest: [u8; 32],
    pub created_at: UnixMs,
    /// Never goes back.
    pub updated_at: UnixMs,
    pub retention: Retention,
    pub poll_interval_ms: u32,
    pub phase: Phase,
    pub status_message: Option<String>,
    /// Every question ever asked, in order: keys are never used again.
    pub inputs: Vec<Input>,
    /// Messages not yet delivered.
    pub steering: Vec<String>,
    /// How many were delivered before.
    pub steering_delivered: u64,
    /// A client-chosen id (SEP-1686) or idempotency key.
    pub alias: Option<String>,
    /// Seeds everything random that the guest sees.
    pub seed: [u8; 32],
    pub call_id: CallId,
    /// Held by the host process that runs it.
    pub lease: Option<Lease>,
    /// Runs so far; also the fencing token of a run's writes.
    pub attempt: u32,
    pub related: Vec<TaskId>,
    /// What happened to it, from the first thing on that the members above do not say.
    pub timeline: Timeline,
    /// The host that it belongs to, where several share a store.
    pub holder: Option<Holder>,
    /// Set while a run keeps a journal: see [`Task::is_journaled`].
    pub durable: Option<DurableMarker>,
}

impl Task {
    /// Whether the journal of its present run is complete, also where there is none yet. A task without a marker for
    /// this very run never was journaled.
    pub fn is_journaled(&self) -> bool {
        self.durable.as_ref().is_some_and(|marker| marker.version == JOURNAL_VERSION && marker.attempt == self.attempt)
    }

    /// Whose face it shows.
    pub fn design(&self) -> Design {
        self.origin.design
    }

    /// When it stops being readable; `None`: not yet known, or never.
    pub fn expires_at(&self) -> Option<UnixMs> {
        match self.retention {
            Retention::FromCreation { ttl_ms } => Some(self.created_at.saturating_add(ttl_ms)),
            Retention::FromCompletion { keep_alive_ms } => {
                self.outcome().map(|_| self.updated_at.saturating_add(keep_alive_ms))
            }
            Retention::Unlimited => None,
        }
    }

    /// Whether its expiry became known only when it ended.
    pub fn retention_starts_with_end(&self) -> bool {
        matches!(self.retention, Retention::FromCompletion { .. }) && self.outcome().is_some()
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Active(_) | Phase::Paused { .. } => None,
        }
    }

    /// Since when it waits without a run, although it has begun: its call is not in memory. It goes on by its journal.
    pub fn dormant_since(&self) -> Option<UnixMs> {
        let (Phase::Active(active) | Phase::Paused { before: active }) = self.phase else { return None };
        let has_no_run = active != Active::Queued && self.lease.is_none() && self.is_journaled();
        self.timeline.at_rest_since().filter(|_| has_no_run)
    }

    /// How often it began, which its guest is told as its attempt. Runs that go on where an earlier one was are not
    /// counted.
    pub fn starts(&self) -> u32 {
        self.timeline.starts(self.attempt)
    }

    /// Whether it is paused until an operator releases it.
    pub fn is_held(&self) -> bool {
        let is_paused = matches!(self.phase, Phase::Paused { .. });
        is_paused && self.status_message.as_deref().is_some_and(|message| message.starts_with(HELD))
    }

    /// The unanswered input requests.
    pub fn outstanding(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().filter(|input| input.answer.is_none())
    }
}
