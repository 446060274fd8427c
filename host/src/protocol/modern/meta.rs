//! `_meta` of a request: the revision, what the client can do, and what it wants to hear.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::VERSION;
use super::members::Members;
use crate::domain::Json;
use crate::domain::call::{ClientFeature, ClientFeatures, LogLevel};
use crate::protocol::capabilities::{Capabilities, Interaction, features};
use crate::protocol::error::RpcError;
use crate::protocol::idempotency;
use crate::protocol::jsonrpc::RequestId;
use crate::protocol::session::Version;
use crate::protocol::wire::level;
use crate::tasks;

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

#[derive(Deserialize)]
pub(super) struct Raw<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/relatedTaskIds")]
    related: Option<&'a RawValue>,
    #[serde(borrow, rename = "dev.bulkhead/idempotencyKey")]
    idempotency_key: Option<&'a RawValue>,
}

/// Whether params name a protocol version, which makes their message a modern one.
pub(in crate::protocol) fn names_a_version(params: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<&'a RawValue>,
    }
    // Nearly every legacy message is spared the reading.
    crate::protocol::may_be_modern(params.get().as_bytes())
        && serde_json::from_str::<Params<'_>>(params.get())
            .is_ok_and(|params| params.meta.is_some_and(|meta| meta.version.is_some()))
}

/// Whether a name of a version is this revision's or a later one's. Names of versions are dates.
pub(in crate::protocol) fn is_modern_version(name: &str) -> bool {
    let name = name.trim();
    name.len() == VERSION.len() && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && name >= VERSION
}

/// The `_meta` of a request that has what every request must have.
pub(super) struct Meta<'a> {
    pub(super) version: String,
    capabilities: Capabilities,
    extensions: Extensions,
    raw: Raw<'a>,
    /// What stands beside it.
    pub(super) members: Members<'a>,
}

/// Reads `_meta`, and finds what stands beside it.
pub(super) fn read(params: Option<&RawValue>) -> Result<Meta<'_>, RpcError> {
    let missing = || {
        RpcError::meta_required(format!(
            "params._meta must have {PROTOCOL_VERSION} (text) and {CLIENT_CAPABILITIES} (object)"
        ))
    };
    let mut members = params.and_then(Members::read).ok_or_else(missing)?;
    let raw = members.meta.take().ok_or_else(missing)?;
    let version = raw.version.and_then(|version| serde_json::from_str::<String>(version.get()).ok());
    let version = version.ok_or_else(missing)?;
    let declared = raw.capabilities.map(RawValue::get).filter(|text| text.starts_with('{')).ok_or_else(missing)?;
    let malformed = |error: serde_json::Error| {
        RpcError::meta_required(format!("{CLIENT_CAPABILITIES} cannot be understood: {error}"))
    };
    let capabilities = serde_json::from_str(declared).map_err(malformed)?;
    let extensions = serde_json::from_str::<Extended>(declared).map_err(malformed)?.extensions;
    Ok(Meta { version, capabilities, extensions, raw, members })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extended {
    extensions: Extensions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Extensions {
    #[serde(rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<Interaction>,
    #[serde(rename = "dev.bulkhead/task-interaction")]
    interaction: Option<Interaction>,
}

/// What one request says about its client.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) features: ClientFeatures,
    pub(super) interaction: Interaction,
    /// Whether steer or pause stood in the draft's own place, so that the answer may stand there too.
    pub(super) interaction_in_tasks: bool,
    pub(super) log_level: Option<LogLevel>,
    pub(super) progress_token: Option<Json>,
    /// The tasks that a call continues, as its client names them.
    pub(super) related: Vec<String>,
    pub(super) idempotency_key: Option<String>,
}

impl Client {
    /// As the guest of a call is told of whoever listens.
    pub(super) fn as_heard(&self) -> tasks::Client {
        tasks::Client {
            features: self.features,
            log_level: self.log_level,
            wants_progress: self.progress_token.is_some(),
        }
    }

    /// Refuses a client that did not declare the extension of tasks.
    pub(super) fn check_tasks(&self) -> Result<(), RpcError> {
        if self.features.contains(ClientFeature::Tasks) { Ok(()) } else { Err(RpcError::tasks_required()) }
    }
}

impl Meta<'_> {
    /// The rest of it.
    pub(super) fn client(&self) -> Result<Client, RpcError> {
        let mut features = features(Version::V2025_11_25, &self.capabilities);
        let in_tasks = self.extensions.tasks.unwrap_or_default();
        let own = self.extensions.interaction.unwrap_or_default();
        if self.extensions.tasks.is_some() {
            features = features.with(ClientFeature::Tasks);
        }
        // Ids of tasks mean nothing to a client without tasks.
        let related = self.raw.related.filter(|_| self.extensions.tasks.is_some()).map_or(Ok(Vec::new()), related)?;
        Ok(Client {
            features,
            interaction: Interaction { steer: in_tasks.steer || own.steer, pause: in_tasks.pause || own.pause },
            interaction_in_tasks: in_tasks.steer || in_tasks.pause,
            log_level: self.raw.log_level.map(log_level).transpose()?,
            progress_token: self.raw.progress_token.map(progress_token).transpose()?,
            related,
            idempotency_key: self.raw.idempotency_key.map(idempotency_key).transpose()?,
        })
    }
}

fn log_level(raw: &RawValue) -> Result<LogLevel, RpcError> {
    let name: Option<String> = serde_json::from_str(raw.get()).ok();
    name.as_deref().and_then(level).ok_or_else(|| {
        RpcError::invalid_params(
            "io.modelcontextprotocol/logLevel must be one of debug, info, notice, warning, error, critical, alert and emergency",
        )
    })
}

fn progress_token(raw: &RawValue) -> Result<Json, RpcError> {
    let token: RequestId = serde_json::from_str(raw.get())
        .map_err(|_| RpcError::invalid_params("progressToken must be a string or an integer"))?;
    serde_json::to_string(&token)
        .map(Json::new)
        .map_err(|cause| RpcError::host_failure(format_args!("a progress token cannot be written: {cause}")))
}

fn idempotency_key(raw: &RawValue) -> Result<String, RpcError> {
    serde_json::from_str(raw.get()).map_err(|_| idempotency::malformed()).and_then(idempotency::checked)
}

fn related(raw: &RawValue) -> Result<Vec<String>, RpcError> {
    serde_json::from_str(raw.get())
        .map_err(|_| RpcError::invalid_params("io.modelcontextprotocol/relatedTaskIds must be a list of task ids"))
}
