//! `_meta` of a modern request, read and checked.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::params_index::Members;
use crate::capabilities::{Capabilities, Interaction, features};
use crate::error::RpcError;
use crate::idempotency;
use crate::jsonrpc::ProgressToken;
use crate::reader;
use crate::version::Version;
use crate::wire::level;
use bulkhead_domain::Json;
use bulkhead_domain::call::{ClientFeature, ClientFeatures, LogLevel};
use bulkhead_tasks as tasks;

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const RELATED_TASK_IDS: &str = "io.modelcontextprotocol/relatedTaskIds";
const IDEMPOTENCY_KEY: &str = "dev.bulkhead/idempotencyKey";
/// Where they stand.
const META: &str = "params._meta";

#[derive(Deserialize)]
pub(super) struct RawMeta<'a> {
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
pub(crate) fn names_a_version(params: &str) -> bool {
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
    // Nearly every legacy message is spared the reading. Names can be spelled with escapes.
    (params.contains("protocolVersion") || params.contains("\\u"))
        && reader::read_if_fits::<Params<'_>>(params)
            .is_some_and(|params| params.meta.is_some_and(|meta| meta.version.is_some()))
}

/// The `_meta` of a request that has what every request must have.
pub(super) struct Meta<'a> {
    pub(super) version: String,
    capabilities: Capabilities,
    extensions: Extensions,
    raw: RawMeta<'a>,
    /// What stands beside it.
    pub(super) members: Members<'a>,
}

/// Reads `_meta`, and finds what stands beside it.
pub(super) fn read(params: Option<&str>) -> Result<Meta<'_>, RpcError> {
    let missing = |path: &str, expected| RpcError::meta_required(reader::missing(path, expected));
    let params = params.ok_or_else(|| missing(META, "an object"))?;
    let mut members = Members::read(params).map_err(RpcError::meta_required)?;
    let raw = members.meta.take().ok_or_else(|| missing(META, "an object"))?;
    let version = raw.version.ok_or_else(|| missing(&path(PROTOCOL_VERSION), "a string"))?;
    let version = required(version, PROTOCOL_VERSION)?;
    let declared = raw.capabilities.ok_or_else(|| missing(&path(CLIENT_CAPABILITIES), "an object"))?;
    let capabilities = required(declared, CLIENT_CAPABILITIES)?;
    let extensions = required::<Extended>(declared, CLIENT_CAPABILITIES)?.extensions;
    Ok(Meta { version, capabilities, extensions, raw, members })
}

/// Reads what every request must have.
fn required<'a, T: Deserialize<'a>>(raw: &'a RawValue, key: &str) -> Result<T, RpcError> {
    member(raw, key).map_err(|error| RpcError::meta_required(error.message))
}

/// Reads a member of `_meta`.
fn member<'a, T: Deserialize<'a>>(raw: &'a RawValue, key: &str) -> Result<T, RpcError> {
    reader::read_at(raw.get(), || path(key)).map_err(RpcError::invalid_params)
}

fn path(key: &str) -> String {
    reader::member(META, key)
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
pub(super) struct RequestClient {
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

impl RequestClient {
    /// What the guest of a call is told about its client.
    pub(super) fn to_context(&self) -> tasks::ClientContext {
        tasks::ClientContext {
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
    pub(super) fn client(&self) -> Result<RequestClient, RpcError> {
        let mut features = features(Version::V2025_11_25, &self.capabilities);
        let in_tasks = self.extensions.tasks.unwrap_or_default();
        let own = self.extensions.interaction.unwrap_or_default();
        if self.extensions.tasks.is_some() {
            features = features.with(ClientFeature::Tasks);
        }
        // Ids of tasks mean nothing to a client without tasks.
        let related = self.raw.related.filter(|_| self.extensions.tasks.is_some()).map_or(Ok(Vec::new()), related)?;
        Ok(RequestClient {
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
    let name: String = member(raw, LOG_LEVEL)?;
    level(&name).ok_or_else(|| RpcError::unknown_level(&path(LOG_LEVEL)))
}

fn progress_token(raw: &RawValue) -> Result<Json, RpcError> {
    let token: ProgressToken = member(raw, "progressToken")?;
    token.json().ok_or_else(|| RpcError::host_failure(format_args!("a progress token cannot be written")))
}

fn idempotency_key(raw: &RawValue) -> Result<String, RpcError> {
    member(raw, IDEMPOTENCY_KEY).and_then(idempotency::checked)
}

fn related(raw: &RawValue) -> Result<Vec<String>, RpcError> {
    member(raw, RELATED_TASK_IDS)
}
