//! What operators do to a host, and the socket over which they do it while the host runs.
//!
//! Owns the commands, the socket `DATA/control.sock` and its framing. Must not be reachable by anybody but the user that the
//! host runs as. Invariant: a command does the same whether it arrives over the socket or is executed by the command line
//! itself, because both go through one [`Operator`].

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod admin;
pub mod client;
pub mod erase;
pub mod operator;
pub mod plugins;
pub mod remote;
mod secrets;
pub mod server;
mod socket;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use secrets::SecretText;

use bulkhead_domain::UnixMs;
use bulkhead_plugins::CanaryThresholdOverrides;

/// The socket's name in the data directory.
pub const SOCKET_NAME: &str = "control.sock";

/// Where a data directory has its socket.
pub fn socket_path(data: &Path) -> PathBuf {
    data.join(SOCKET_NAME)
}

/// Bytes of an operator's request, which is a few names.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Replies are bounded by the page sizes of the commands.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Makes a bearer token; the reply is the only place where it ever shows.
    TokenCreate {
        requestor: String,
        tenant: String,
        expires_at: Option<UnixMs>,
        /// What the operator calls the token.
        #[serde(default)]
        name: Option<String>,
        /// What it is good for; everything without them.
        #[serde(default)]
        scopes: Option<Vec<String>>,
    },
    TokenList,
    TokenRevoke {
        id: String,
    },
    /// Keeps a secret for a plugin to use without seeing it.
    SecretSet {
        name: String,
        plugin: String,
        /// None: for all tenants.
        tenant: Option<String>,
        destinations: Vec<String>,
        /// Of header, query and body.
        places: Vec<String>,
        value: SecretText,
    },
    SecretList,
    SecretRemove {
        name: String,
        plugin: String,
        tenant: Option<String>,
    },
    /// Seals with the first key what another one sealed.
    SecretRotate,
    /// Reads everything and says what is wrong.
    StoreCheck,
    /// Writes every task and row as JSON lines to a new file.
    StoreExport {
        file: PathBuf,
    },
    /// Makes a new database of an export, or of what can be read of the present one.
    StoreRebuild {
        from: Option<PathBuf>,
    },
    /// Copies the store into a new data directory.
    StoreBackup {
        directory: PathBuf,
    },
    /// Seals the keys of tenants with the operator's first key.
    StoreRekey,
    TenantList,
    /// Stops and removes everything of a tenant.
    TenantPurge {
        tenant: String,
    },
    TasksList {
        /// Only tasks of the requestor of this name.
        requestor: Option<String>,
        tenant: Option<String>,
        count_max: usize,
    },
    TasksShow {
        id: String,
    },
    TasksCancel {
        id: String,
    },
    /// Stops a task for a while, wherever it is.
    TasksPause {
        id: String,
        /// What its requestor reads as its status.
        message: Option<String>,
    },
    /// Lets a paused task go on, whether its client or an operator paused it.
    TasksResume {
        id: String,
    },
    /// Removes a task with everything that belongs to it, and stops it.
    TasksPurge {
        id: String,
    },
    /// A page of everybody's tasks.
    TasksPage {
        #[serde(default)]
        filter: TaskFilter,
        /// Where the page before ended.
        #[serde(default)]
        after: Option<String>,
        count_max: usize,
    },
    /// What is in use of the limits, and how much there may be.
    LimitsInUse {
        /// Plugin and status do not matter.
        #[serde(default)]
        filter: TaskFilter,
        /// Requestors in the reply.
        count_max: usize,
    },
    /// Takes nothing new from now on; what runs goes on to its end.
    DrainBegin,
    /// Takes new work again.
    DrainEnd,
    /// What is left to end.
    DrainShow,
    /// Reads the configuration again and takes it over, all of it or nothing.
    Reload {
        /// Only says what would come of it.
        #[serde(default)]
        check: bool,
    },
    PluginList,
    /// The versions of one plugin.
    PluginVersions {
        name: String,
    },
    /// Takes a component in as a version, and checks it.
    PluginStage {
        /// A file with its whole path, or an address.
        source: String,
        /// What its SHA-256 must be, in hexadecimal digits.
        sha256: Option<String>,
        name: Option<String>,
    },
    /// Stages components and switches to all of them at once.
    PluginAdd {
        sources: Vec<String>,
        /// For a single source.
        sha256: Option<String>,
        /// For a single source.
        name: Option<String>,
        accept: bool,
    },
    /// Looks at a plugin's source again, and stages what is there.
    PluginUpdate {
        name: String,
        /// Whether to switch to it, too.
        activate: bool,
        accept: bool,
    },
    /// Switches to versions, all at once.
    PluginActivate {
        targets: Vec<PluginTarget>,
        accept: bool,
    },
    /// Gives a version to a part of the requestors, or the canary to another part.
    PluginCanary {
        /// One of them.
        targets: Vec<PluginTarget>,
        /// In hundredths of a percent.
        share: Option<u16>,
        /// By name; none: as they are.
        tenants: Vec<String>,
        bounds: CanaryThresholdOverrides,
        accept: bool,
    },
    /// Makes canaries the active versions.
    PluginPromote {
        names: Vec<String>,
    },
    /// Takes canaries back, or switches back to the versions before.
    PluginRollback {
        names: Vec<String>,
    },
    /// Takes a plugin out of service, or removes a version that nothing runs on.
    PluginRemove {
        name: String,
        version: Option<String>,
    },
    /// Reads every kept component again.
    PluginVerify {
        name: Option<String>,
    },
    /// From here on the connection carries MCP over stdio.
    StdioAttach,
}

impl Command {
    /// Whether it needs the operator's keys.
    pub fn is_about_secrets(&self) -> bool {
        matches!(self, Self::SecretSet { .. } | Self::SecretList | Self::SecretRemove { .. } | Self::SecretRotate)
    }

    /// Its name and what it is about, on one line. None of it is secret: tokens are in replies only, and values are left out.
    pub fn summary(&self) -> String {
        if let Self::TenantPurge { .. } = self {
            // Its name is erased as well; the log knows it by its id.
            return r#"{"command":"tenant_purge"}"#.to_owned();
        }
        let mut shown = self.clone();
        if let Self::SecretSet { value, .. } = &mut shown {
            *value = SecretText::default();
        }
        serde_json::to_string(&shown).unwrap_or_default()
    }

    /// Whether it may come over the network: it is about what the host does, and names no path of its machine.
    pub fn is_for_administrators(&self) -> bool {
        matches!(
            self,
            Self::TasksPage { .. }
                | Self::TasksShow { .. }
                | Self::TasksCancel { .. }
                | Self::TasksPause { .. }
                | Self::TasksResume { .. }
                | Self::TasksPurge { .. }
                | Self::LimitsInUse { .. }
                | Self::TokenList
                | Self::TokenRevoke { .. }
                | Self::DrainBegin
                | Self::DrainEnd
                | Self::DrainShow
                | Self::Reload { .. }
        )
    }
}

/// Which tasks are meant: those to which all of this applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFilter {
    pub tenant: Option<String>,
    pub requestor: Option<String>,
    pub plugin: Option<String>,
    pub status: Option<String>,
}

/// A version of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginTarget {
    pub name: String,
    /// A digest, or how it begins; none: the version that was staged last.
    pub version: Option<String>,
}

/// Why a command was not done. Operators may read all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", content = "message", rename_all = "snake_case")]
pub enum ControlError {
    /// What it names does not exist, or is over.
    #[error("{0}")]
    NotFound(String),
    /// It makes no sense as it stands.
    #[error("{0}")]
    Invalid(String),
    /// The host could not do it.
    #[error("{0}")]
    Failed(String),
    /// The connection broke.
    #[error("the control connection broke: {0}")]
    Connection(String),
}

/// A line in answer to a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Ok(serde_json::Value),
    Error(ControlError),
}

/// Executes commands: in a running host, or in the command line when no host runs.
#[async_trait]
pub trait Operator: Send + Sync + 'static {
    /// Does it, and gives what there is to show.
    async fn execute(&self, command: Command) -> Result<serde_json::Value, ControlError>;

    /// The same with a name for who ordered it, for the audit log.
    async fn execute_for(&self, _who: &str, command: Command) -> Result<serde_json::Value, ControlError> {
        self.execute(command).await
    }
}
