//! How a task lies on disk, open and sealed.
//!
//! Owns the order of its members, and which of them are private. Must not know where keys come from. Invariants: the
//! golden bytes of [`super`]'s tests; nothing that a client, a plugin or a person wrote is in the open part of a sealed
//! task but names: those of the tool, of the plugin, and the task's alias. What the host itself notes is not private.
//!
//! A member of [`Task`] stands here once, in [`TaskRepr`]; one that is private is also in [`PrivateRepr`], [`apart`]
//! and [`together`].

use serde::{Deserialize, Serialize};

use super::Error;
use super::repr::{Blob, JsonText, List, Meta, Repr, repr_enum, repr_struct};
use bulkhead_domain::call::{
    CallError, ClientFeature, ElicitationAction, FaultKind, InputRequest, InputRequestKind, InputResponse, LogLevel,
    Root,
};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{
    Active, Design, DurableMarker, Era, Holder, Input, Lease, Origin, Outcome, Phase, PluginVersion, Retention, Task,
    Work,
};
use bulkhead_domain::timeline::{Timeline, TimelineEntry, Transition, WakeCause};
use bulkhead_domain::trace::TraceContext;

/// A task, open or sealed.
#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one at a time, while it is written or read")]
pub(super) enum StoredTask {
    Open(TaskRepr),
    Sealed {
        /// A [`TaskRepr`] without what is private.
        open: Blob,
        /// A sealed [`PrivateRepr`].
        sealed: Blob,
    },
}

repr_struct!(TaskRepr of Task {
    id: [u8; 16],
    requestor: RequestorRepr,
    revision: u64,
    work: WorkRepr,
    plugin: PluginVersionRepr,
    engine_hash: u64,
    origin: OriginRepr,
    arguments_digest: [u8; 32],
    created_at: u64,
    updated_at: u64,
    retention: RetentionRepr,
    poll_interval_ms: u32,
    phase: PhaseRepr,
    status_message: Option<String>,
    inputs: List<InputRepr>,
    steering: List<String>,
    steering_delivered: u64,
    alias: Option<String>,
    seed: [u8; 32],
    call_id: [u8; 16],
    lease: Option<LeaseRepr>,
    attempt: u32,
    related: List<[u8; 16]>,
    timeline: TimelineRepr,
    holder: Option<String>,
    durable: Option<DurableMarkerRepr>,
});

/// What only the owner of the key may know.
#[derive(Serialize, Deserialize)]
pub(super) struct PrivateRepr {
    progress_token: Option<JsonText>,
    trace: Option<TraceRepr>,
    arguments_digest: [u8; 32],
    phase: PhaseRepr,
    status_message: Option<String>,
    inputs: List<InputRepr>,
    steering: List<String>,
    seed: [u8; 32],
}

/// Takes a task apart. What is left says how the task stands, and not what it is about.
pub(super) fn apart(task: &Task) -> (TaskRepr, PrivateRepr) {
    let private = PrivateRepr {
        progress_token: task.origin.progress_token.to_repr(),
        trace: task.origin.trace.to_repr(),
        arguments_digest: task.arguments_digest,
        phase: task.phase.to_repr(),
        status_message: task.status_message.clone(),
        inputs: task.inputs.to_repr(),
        steering: task.steering.to_repr(),
        seed: task.seed,
    };
    let mut open = Task {
        arguments_digest: [0; 32],
        status_message: None,
        inputs: Vec::new(),
        steering: Vec::new(),
        seed: [0; 32],
        ..task.clone()
    };
    open.origin.progress_token = None;
    open.origin.trace = None;
    if let Phase::Ended(Outcome::Error(error)) = &mut open.phase {
        *error = CallError::Interrupted;
    }
    (open.to_repr(), private)
}

/// Puts a task together again, from what is known without a key.
pub(super) fn together(open: Task, private: PrivateRepr) -> Result<Task, Error> {
    let PrivateRepr { progress_token, trace, arguments_digest, phase, status_message, inputs, steering, seed } =
        private;
    let mut task = Task {
        arguments_digest,
        phase: Repr::from_repr(phase)?,
        status_message,
        inputs: Repr::from_repr(inputs)?,
        steering: Repr::from_repr(steering)?,
        seed,
        ..open
    };
    task.origin.progress_token = Repr::from_repr(progress_token)?;
    task.origin.trace = Repr::from_repr(trace)?;
    Ok(task)
}

repr_struct!(RequestorRepr of Requestor { tenant: [u8; 16], id: [u8; 16] });

repr_enum!(EraRepr of Era { Legacy, Modern });
repr_enum!(DesignRepr of Design { Core2025, Sep1686, Extension2026 });
repr_enum!(LogLevelRepr of LogLevel { Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency });
repr_struct!(OriginRepr of Origin {
    era: EraRepr,
    design: DesignRepr,
    session: Option<[u8; 16]>,
    features: u16,
    log_level: Option<LogLevelRepr>,
    progress_token: Option<JsonText>,
    trace: Option<TraceRepr>,
});

repr_enum!(RetentionRepr of Retention {
    FromCreation { ttl_ms: u64 },
    FromCompletion { keep_alive_ms: u64 },
    Unlimited,
});
repr_struct!(PluginVersionRepr of PluginVersion { name: String, digest: [u8; 32] });

repr_enum!(ClientFeatureRepr of ClientFeature {
    ElicitationForm, ElicitationUrl, Sampling, SamplingTools, SamplingContext, Roots, Tasks,
});
repr_enum!(FaultKindRepr of FaultKind { Trap, Limit, Deadline, InvalidOutput });
repr_enum!(CallErrorRepr of CallError {
    InvalidParams(message: String),
    NotFound(message: String),
    MissingCapability(feature: ClientFeatureRepr),
    Custom { code: i32, message: String, data: Option<JsonText> },
    Fault { kind: FaultKindRepr, reason: String },
    Internal { incident: String },
    Interrupted,
});
repr_enum!(ActiveRepr of Active { Queued, Running, InputRequired });
repr_enum!(OutcomeRepr of Outcome { Output { is_error: bool }, Error(error: CallErrorRepr), Cancelled });
repr_enum!(PhaseRepr of Phase { Active(active: ActiveRepr), Paused { before: ActiveRepr }, Ended(outcome: OutcomeRepr) });

repr_enum!(InputRequestKindRepr of InputRequestKind {
    Form { message: String, requested_schema: JsonText },
    Url { message: String, url: String, elicitation_id: String },
    Sampling(params: JsonText),
    Roots,
});
repr_struct!(InputRequestRepr of InputRequest { key: String, kind: InputRequestKindRepr, meta: Meta });
repr_enum!(ElicitationActionRepr of ElicitationAction { Accept, Decline, Cancel });
repr_struct!(RootRepr of Root { uri: String, name: Option<String> });
repr_enum!(InputResponseRepr of InputResponse {
    Elicitation { action: ElicitationActionRepr, content: Option<JsonText> },
    Sampling(result: JsonText),
    Roots(roots: List<RootRepr>),
    Refused(message: String),
});
repr_struct!(InputRepr of Input { issued_key: String, request: InputRequestRepr, answer: Option<InputResponseRepr> });

repr_enum!(WorkRepr of Work { Tool(name: String), Resource, Prompt, Completion, Answered });
repr_struct!(LeaseRepr of Lease { node: [u8; 16], until: u64 });

/// A trace context; the flags are those of a `traceparent`.
#[derive(Serialize, Deserialize)]
pub(super) struct TraceRepr {
    trace_id: [u8; 16],
    parent_id: [u8; 8],
    flags: u8,
}

const SAMPLED: u8 = 1;

impl Repr<TraceRepr> for TraceContext {
    fn to_repr(&self) -> TraceRepr {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        TraceRepr { trace_id: self.trace_id, parent_id: self.parent_id, flags }
    }
    fn from_repr(stored: TraceRepr) -> Result<Self, Error> {
        let is_sampled = stored.flags & SAMPLED != 0;
        Ok(Self { trace_id: stored.trace_id, parent_id: stored.parent_id, is_sampled })
    }
}

repr_enum!(WakeCauseRepr of WakeCause { Answered, Resumed, Steered, Slept });
repr_enum!(TransitionRepr of Transition {
    Started { attempt: u32 },
    InputRequested { requests: u32 },
    Answered { open: u32 },
    Paused,
    Resumed,
    Interrupted,
    Continued { attempt: u32 },
    Cancelled { from: ActiveRepr, is_paused: bool },
    Succeeded,
    ToolError,
    Failed,
    Dormant,
    Woken { attempt: u32, cause: WakeCauseRepr },
});
repr_struct!(TimelineEntryRepr of TimelineEntry { at: u64, transition: TransitionRepr });

#[derive(Serialize, Deserialize)]
pub(super) struct TimelineRepr {
    entries: List<TimelineEntryRepr>,
    left_out: u64,
}

impl Repr<TimelineRepr> for Timeline {
    fn to_repr(&self) -> TimelineRepr {
        TimelineRepr { entries: self.entries().to_vec().to_repr(), left_out: self.left_out() }
    }
    fn from_repr(stored: TimelineRepr) -> Result<Self, Error> {
        Self::restored(Repr::from_repr(stored.entries)?, stored.left_out).ok_or_else(|| impossible("a timeline"))
    }
}

impl Repr<String> for Holder {
    fn to_repr(&self) -> String {
        self.as_str().to_owned()
    }
    fn from_repr(stored: String) -> Result<Self, Error> {
        Self::new(stored).ok_or_else(|| impossible("a holder"))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct DurableMarkerRepr {
    version: u8,
    attempt: u32,
    engine_hash: u64,
    detail: Blob,
}

impl Repr<DurableMarkerRepr> for DurableMarker {
    fn to_repr(&self) -> DurableMarkerRepr {
        DurableMarkerRepr {
            version: self.version,
            attempt: self.attempt,
            engine_hash: self.engine_hash,
            detail: self.detail().to_vec().to_repr(),
        }
    }
    fn from_repr(stored: DurableMarkerRepr) -> Result<Self, Error> {
        let DurableMarkerRepr { version, attempt, engine_hash, detail } = stored;
        Self::new(version, attempt, engine_hash, detail.0).ok_or_else(|| impossible("a durable marker"))
    }
}

fn impossible(what: &str) -> Error {
    Error::Corrupt(format!("a task record has {what} that cannot be"))
}
