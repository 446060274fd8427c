//! The first version of the records. Frozen: a change of the domain gets a new version beside this one.
//!
//! Owns the order of fields and variants on disk. Must not decide anything. Invariant: the golden bytes of [`super`]'s tests.

use super::repr::{Blob, List, Repr, repr_enum, repr_struct};
use bulkhead_domain::call::{
    CallError, ClientFeature, ElicitationAction, FaultKind, InputRequest, InputRequestKind, InputResponse, LogLevel,
    Root,
};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{
    Active, Design, Era, Input, Lease, Origin, Outcome, Phase, PluginVersion, Retention, Task, Work,
};
use bulkhead_domain::tool::{
    Annotations, Content, ContentKind, ResourceBody, ResourceContents, ResourceLink, Role, ToolOutput,
};

/// User JSON, as its text.
pub(super) type JsonText = String;
pub(super) type MetaV1 = List<(String, JsonText)>;

repr_struct!(RequestorV1 of Requestor { tenant: [u8; 16], id: [u8; 16] });

repr_enum!(EraV1 of Era { Legacy, Modern });
repr_enum!(DesignV1 of Design { Core2025, Sep1686, Extension2026 });
repr_enum!(LogLevelV1 of LogLevel { Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency });
repr_struct!(OriginV1 of Origin {
    era: EraV1,
    design: DesignV1,
    session: Option<[u8; 16]>,
    features: u16,
    log_level: Option<LogLevelV1>,
    progress_token: Option<JsonText>,
} without trace);

repr_enum!(RetentionV1 of Retention {
    FromCreation { ttl_ms: u64 },
    FromCompletion { keep_alive_ms: u64 },
    Unlimited,
});
repr_struct!(PluginVersionV1 of PluginVersion { name: String, digest: [u8; 32] });

repr_enum!(ClientFeatureV1 of ClientFeature {
    ElicitationForm, ElicitationUrl, Sampling, SamplingTools, SamplingContext, Roots, Tasks,
});
repr_enum!(FaultKindV1 of FaultKind { Trap, Limit, Deadline, InvalidOutput });
repr_enum!(CallErrorV1 of CallError {
    InvalidParams(message: String),
    NotFound(message: String),
    MissingCapability(feature: ClientFeatureV1),
    Custom { code: i32, message: String, data: Option<JsonText> },
    Fault { kind: FaultKindV1, reason: String },
    Internal { incident: String },
    Interrupted,
});
repr_enum!(ActiveV1 of Active { Queued, Running, InputRequired });
repr_enum!(OutcomeV1 of Outcome { Output { is_error: bool }, Error(error: CallErrorV1), Cancelled });
repr_enum!(PhaseV1 of Phase { Active(active: ActiveV1), Paused { before: ActiveV1 }, Ended(outcome: OutcomeV1) });

repr_enum!(InputRequestKindV1 of InputRequestKind {
    Form { message: String, requested_schema: JsonText },
    Url { message: String, url: String, elicitation_id: String },
    Sampling(params: JsonText),
    Roots,
});
repr_struct!(InputRequestV1 of InputRequest { key: String, kind: InputRequestKindV1, meta: MetaV1 });
repr_enum!(ElicitationActionV1 of ElicitationAction { Accept, Decline, Cancel });
repr_struct!(RootV1 of Root { uri: String, name: Option<String> });
repr_enum!(AnswerV1 of InputResponse {
    Elicitation { action: ElicitationActionV1, content: Option<JsonText> },
    Sampling(result: JsonText),
    Roots(roots: List<RootV1>),
    Refused(message: String),
});
repr_struct!(InputV1 of Input { issued_key: String, request: InputRequestV1, answer: Option<AnswerV1> });

/// This version knows tool calls alone; the writer chooses another version for everything else.
impl Repr<String> for Work {
    fn to_repr(&self) -> String {
        self.label().to_owned()
    }
    fn from_repr(stored: String) -> Self {
        Self::Tool(stored)
    }
}

repr_struct!(LeaseV1 of Lease { node: [u8; 16], until: u64 });
repr_struct!(TaskV1 of Task {
    id: [u8; 16],
    requestor: RequestorV1,
    revision: u64,
    work: String,
    plugin: PluginVersionV1,
    engine_hash: u64,
    origin: OriginV1,
    arguments_digest: [u8; 32],
    created_at: u64,
    updated_at: u64,
    retention: RetentionV1,
    poll_interval_ms: u32,
    phase: PhaseV1,
    status_message: Option<String>,
    inputs: List<InputV1>,
    steering: List<String>,
    steering_delivered: u64,
    alias: Option<String>,
    seed: [u8; 32],
    call_id: [u8; 16],
    lease: Option<LeaseV1>,
    attempt: u32,
    related: List<[u8; 16]>,
} without timeline, holder, durable);

repr_enum!(RoleV1 of Role { User, Assistant });
repr_struct!(AnnotationsV1 of Annotations {
    audience: List<RoleV1>,
    priority: Option<f64>,
    last_modified: Option<String>,
});
repr_enum!(ResourceBodyV1 of ResourceBody { Text(text: String), Blob(bytes: Blob) });
repr_struct!(ResourceContentsV1 of ResourceContents {
    uri: String,
    mime_type: Option<String>,
    body: ResourceBodyV1,
    meta: MetaV1,
});
repr_struct!(ResourceLinkV1 of ResourceLink {
    uri: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
});
repr_enum!(ContentKindV1 of ContentKind {
    Text(text: String),
    Image { data: Blob, mime_type: String },
    Audio { data: Blob, mime_type: String },
    ResourceLink(link: ResourceLinkV1),
    Resource(contents: ResourceContentsV1),
});
repr_struct!(ContentV1 of Content { kind: ContentKindV1, annotations: Option<AnnotationsV1>, meta: MetaV1 });
repr_struct!(ToolOutputV1 of ToolOutput {
    content: List<ContentV1>,
    structured: Option<JsonText>,
    is_error: bool,
    meta: MetaV1,
});
