//! One run of a tool: what it may ask, what it may say, and how it may end without an output.

use super::Json;
use super::tool::Meta;

/// Severity, RFC 5424, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// What a client can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientFeature {
    ElicitationForm,
    ElicitationUrl,
    Sampling,
    SamplingTools,
    SamplingContext,
    Roots,
    Tasks,
}

/// The features that a client declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientFeatures(pub u16);

impl ClientFeatures {
    /// Adds one.
    #[must_use]
    pub fn with(self, feature: ClientFeature) -> Self {
        Self(self.0 | 1 << feature as u16)
    }

    /// Whether it was declared.
    pub fn contains(self, feature: ClientFeature) -> bool {
        self.0 & 1 << feature as u16 != 0
    }

    /// That the client shows views of MCP Apps. No client can be asked for that, so it is no feature that a plugin may
    /// require.
    const VIEWS: u16 = 1 << 15;

    /// Adds that the client shows views.
    #[must_use]
    pub fn with_views(self) -> Self {
        Self(self.0 | Self::VIEWS)
    }

    /// Whether the client shows views.
    pub fn has_views(self) -> bool {
        self.0 & Self::VIEWS != 0
    }

    /// What remains where the client cannot be asked.
    #[must_use]
    pub fn unasked(self) -> Self {
        Self(self.0 & Self::VIEWS)
    }
}

/// The extension of MCP by which client and server say that they know views (MCP Apps).
pub const UI_EXTENSION: &str = "io.modelcontextprotocol/ui";
/// The media type of the views that there are.
pub const VIEW_MIME_TYPE: &str = "text/html;profile=mcp-app";

/// What is asked of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputRequestKind {
    /// Elicitation by form.
    Form { message: String, requested_schema: Json },
    /// Elicitation by URL. The id names it in every era that wants one.
    Url { message: String, url: String, elicitation_id: String },
    /// The params object of a sampling request.
    Sampling(Json),
    /// The client's root folders.
    Roots,
}

impl InputRequestKind {
    /// What the client must have declared to be asked this.
    pub fn feature(&self) -> ClientFeature {
        match self {
            Self::Form { .. } => ClientFeature::ElicitationForm,
            Self::Url { .. } => ClientFeature::ElicitationUrl,
            Self::Sampling(_) => ClientFeature::Sampling,
            Self::Roots => ClientFeature::Roots,
        }
    }

    /// What asking it is called in traces, by the conventions of OpenTelemetry.
    pub fn operation_name(&self) -> &'static str {
        match self {
            Self::Form { .. } | Self::Url { .. } => "elicitation/create",
            Self::Sampling(_) => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }
}

/// One question under the key that its plugin chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    pub key: String,
    pub kind: InputRequestKind,
    pub meta: Meta,
}

/// What a user did with a form or URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElicitationAction {
    Accept,
    Decline,
    Cancel,
}

/// One root folder of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub uri: String,
    pub name: Option<String>,
}

/// An answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputResponse {
    Elicitation {
        action: ElicitationAction,
        content: Option<Json>,
    },
    /// The result object of a sampling request.
    Sampling(Json),
    Roots(Vec<Root>),
    /// The client answered with an error; its message.
    Refused(String),
}

/// Why nothing could be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputRequestError {
    Unsupported(ClientFeature),
    Invalid(String),
    Unreachable(String),
    Cancelled,
}

impl InputRequestError {
    /// What kind of end it was, in one word for traces.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "unsupported",
            Self::Invalid(_) => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Which of its limits a guest ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The guest trapped: a panic, a stack overflow, an out-of-bounds access.
    Trap,
    /// A limit of the sandbox: memory, CPU, handles, output or log size.
    Limit,
    /// The wall clock of the call ran out.
    Deadline,
    /// What it returned is not valid: not JSON, against its own schema.
    InvalidOutput,
}

/// Why a call ended without an output. Every text in here may be read by the requestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    InvalidParams(String),
    NotFound(String),
    MissingCapability(ClientFeature),
    /// The plugin's own code, outside the range of JSON-RPC and MCP.
    Custom {
        code: i32,
        message: String,
        data: Option<Json>,
    },
    /// The guest misbehaved; the host is healthy.
    Fault {
        kind: FaultKind,
        reason: String,
    },
    /// The host, or the plugin by its own word, broke: clients see a fixed text with this incident id.
    Internal {
        incident: String,
    },
    /// The host went away while the call ran.
    Interrupted,
}

impl std::fmt::Display for ClientFeature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ElicitationForm => "elicitation by form",
            Self::ElicitationUrl => "elicitation by URL",
            Self::Sampling => "sampling",
            Self::SamplingTools => "tools in sampling",
            Self::SamplingContext => "context in sampling",
            Self::Roots => "roots",
            Self::Tasks => "tasks",
        })
    }
}

impl CallError {
    /// What kind of end it was, in one word for traces.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::InvalidParams(_) | Self::NotFound(_) | Self::MissingCapability(_) => "refused_input",
            Self::Custom { .. } => "plugin",
            Self::Fault { kind: FaultKind::Trap, .. } => "trap",
            Self::Fault { kind: FaultKind::Limit, .. } => "limit",
            Self::Fault { kind: FaultKind::Deadline, .. } => "deadline",
            Self::Fault { kind: FaultKind::InvalidOutput, .. } => "invalid_output",
            Self::Internal { .. } => "host",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What the requestor may read.
impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InvalidParams(text) | Self::NotFound(text) => f.write_str(text),
            Self::MissingCapability(feature) => write!(f, "the call needs {feature}, which the client did not declare"),
            Self::Custom { message, .. } => f.write_str(message),
            Self::Fault { reason, .. } => f.write_str(reason),
            Self::Internal { incident } => write!(f, "internal error (incident {incident})"),
            Self::Interrupted => f.write_str("the host was restarted while the call ran"),
        }
    }
}
