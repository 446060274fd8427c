//! What operators can order, by family, and which view answers each order.
//!
//! Owns the names and members that go over the wire. Must not do anything. Invariant: a command is one JSON object whose member
//! `command` names it; the JSON of a command or of its answer changes only together with [`super::wire::PROTOCOL`].

use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::views::*;
use super::{Answer, ControlError, SecretText};
use bulkhead_domain::UnixMs;
use bulkhead_identity::principal::TokenInfo;
use bulkhead_plugins::{CanaryThresholdOverrides, SwitchResult, Verified};
use bulkhead_store::sled::{Moved, Rekeyed};
use bulkhead_tasks::secrets::SecretInfo;

/// A command with the view that answers it.
pub trait Request: Into<Command> + Send + 'static {
    type Answer: Serialize + DeserializeOwned + Send;

    /// The answer as it goes to the operator.
    ///
    /// # Errors
    ///
    /// The view cannot be written as JSON: it has a path that is no text.
    fn answer(view: &Self::Answer) -> Result<Answer, ControlError> {
        Answer::of(view)
    }
}

/// Makes of the table below the commands by family, and says of each one what answers it.
macro_rules! commands {
    ($(
        $(#[$about:meta])*
        $family:ident($commands:ident) { $($name:literal $variant:ident($request:ident) -> $answer:ty,)+ }
    )+) => {
        /// One thing to do.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Command {
            $($(#[$about])* $family($commands),)+
        }

        impl<'de> Deserialize<'de> for Command {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let members = Value::deserialize(deserializer)?;
                let name = members.get("command").and_then(Value::as_str);
                let name = name.ok_or_else(|| D::Error::missing_field("command"))?;
                $(if [$($name),+].contains(&name) {
                    return $commands::deserialize(members).map(Self::$family).map_err(D::Error::custom);
                })+
                Err(D::Error::custom(format!("there is no command {name:?}")))
            }
        }

        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(tag = "command")]
            pub enum $commands {
                $(#[serde(rename = $name)] $variant($request),)+
            }

            $(
                impl From<$request> for Command {
                    fn from(request: $request) -> Self {
                        Self::$family($commands::$variant(request))
                    }
                }

                impl Request for $request {
                    type Answer = $answer;
                }
            )+
        )+
    };
}

commands! {
    /// Bearer tokens.
    Token(TokenCommand) {
        "token_create" Create(TokenCreate) -> TokenCreateView,
        "token_list" List(TokenList) -> TokenListView,
        "token_revoke" Revoke(TokenRevoke) -> TokenInfo,
    }
    /// What plugins use without seeing it.
    Secret(SecretCommand) {
        "secret_set" Set(SecretSet) -> SecretInfo,
        "secret_list" List(SecretList) -> SecretListView,
        "secret_remove" Remove(SecretRemove) -> SecretRemoveView,
        "secret_rotate" Rotate(SecretRotate) -> SecretRotateView,
    }
    /// The store as a whole.
    Store(StoreCommand) {
        "store_check" Check(StoreCheck) -> StoreCheckView,
        "store_export" Export(StoreExport) -> Moved,
        "store_rebuild" Rebuild(StoreRebuild) -> StoreRebuildView,
        "store_backup" Backup(StoreBackup) -> StoreBackupView,
        "store_rekey" Rekey(StoreRekey) -> Rekeyed,
    }
    /// Tenants.
    Tenant(TenantCommand) {
        "tenant_list" List(TenantList) -> TenantListView,
        "tenant_purge" Purge(TenantPurge) -> TenantPurgeView,
    }
    /// All tasks.
    Tasks(TasksCommand) {
        "tasks_list" List(TasksList) -> TaskListView,
        "tasks_show" Show(TasksShow) -> TaskDetailsView,
        "tasks_cancel" Cancel(TasksCancel) -> TaskDetailsView,
        "tasks_pause" Pause(TasksPause) -> TaskDetailsView,
        "tasks_resume" Resume(TasksResume) -> TaskDetailsView,
        "tasks_purge" Purge(TasksPurge) -> TaskPurgeView,
        "tasks_page" Page(TasksPage) -> TaskPageView,
    }
    /// What there is only of a host that runs.
    Host(HostCommand) {
        "limits_in_use" Limits(LimitsInUse) -> LimitsView,
        "drain_begin" DrainBegin(DrainBegin) -> DrainView,
        "drain_end" DrainEnd(DrainEnd) -> DrainView,
        "drain_show" DrainShow(DrainShow) -> DrainView,
        "reload" Reload(ConfigReload) -> ReloadView,
        "stdio_attach" Attach(StdioAttach) -> (),
    }
    /// Plugins and their versions.
    Plugin(PluginCommand) {
        "plugin_list" List(PluginList) -> PluginListView,
        "plugin_versions" Versions(PluginVersions) -> PluginVersionsView,
        "plugin_stage" Stage(PluginStage) -> PluginOutcome<StagedView>,
        "plugin_add" Add(PluginAdd) -> PluginOutcome<SwitchResult>,
        "plugin_update" Update(PluginUpdate) -> PluginOutcome<PluginUpdateView>,
        "plugin_activate" Activate(PluginActivate) -> PluginOutcome<SwitchResult>,
        "plugin_canary" Canary(PluginCanary) -> PluginOutcome<SwitchResult>,
        "plugin_promote" Promote(PluginPromote) -> PluginOutcome<SwitchResult>,
        "plugin_rollback" Rollback(PluginRollback) -> PluginOutcome<SwitchResult>,
        "plugin_remove" Remove(PluginRemove) -> PluginOutcome<PluginRemoveView>,
        "plugin_verify" Verify(PluginVerify) -> Verified,
    }
}

/// Makes a bearer token; the answer is the only place where it ever shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCreate {
    pub requestor: String,
    pub tenant: String,
    pub expires_at: Option<UnixMs>,
    /// What the operator calls the token.
    #[serde(default)]
    pub name: Option<String>,
    /// What it is good for; everything without them.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
}

/// All tokens, without the tokens themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenList {}

/// Ends a token at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRevoke {
    pub id: String,
}

/// Keeps a secret for a plugin to use without seeing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretSet {
    pub name: String,
    pub plugin: String,
    /// None: for all tenants.
    pub tenant: Option<String>,
    pub destinations: Vec<String>,
    /// Of header, query and body.
    pub places: Vec<String>,
    pub value: SecretText,
}

/// All secrets, without their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretList {}

/// Removes a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRemove {
    pub name: String,
    pub plugin: String,
    pub tenant: Option<String>,
}

/// Seals with the first key what another one sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRotate {}

/// Reads everything and says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCheck {}

/// Writes every task and row as JSON lines to a new file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreExport {
    pub file: PathBuf,
}

/// Makes a new database of an export, or of what can be read of the present one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRebuild {
    pub from: Option<PathBuf>,
}

/// Copies the store into a new data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreBackup {
    pub directory: PathBuf,
}

/// Seals the keys of tenants with the operator's first key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRekey {}

/// All tenants, with what they have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantList {}

/// Stops and removes everything of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantPurge {
    pub tenant: String,
}

/// The first tasks of everybody, or of some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksList {
    /// Only tasks of the requestor of this name.
    pub requestor: Option<String>,
    pub tenant: Option<String>,
    pub count_max: usize,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksShow {
    pub id: String,
}

/// Cancels a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksCancel {
    pub id: String,
}

/// Stops a task for a while, wherever it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksPause {
    pub id: String,
    /// What its requestor reads as its status.
    pub message: Option<String>,
}

/// Lets a paused task go on, whether its client or an operator paused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksResume {
    pub id: String,
}

/// Removes a task with everything that belongs to it, and stops it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksPurge {
    pub id: String,
}

/// A page of all tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksPage {
    #[serde(default)]
    pub filter: TaskFilter,
    /// Where the page before ended.
    #[serde(default)]
    pub after: Option<String>,
    pub count_max: usize,
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

/// What is in use of the limits, and how much there may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsInUse {
    /// Plugin and status do not matter.
    #[serde(default)]
    pub filter: TaskFilter,
    /// Requestors in the answer.
    pub count_max: usize,
}

/// Takes nothing new from now on; what runs goes on to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainBegin {}

/// Takes new work again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEnd {}

/// What is left to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainShow {}

/// Reads the configuration again and takes it over, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReload {
    /// Only says what would come of it.
    #[serde(default)]
    pub check: bool,
}

/// From here on the connection carries MCP over stdio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdioAttach {}

/// All plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginList {}

/// The versions of one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginVersions {
    pub name: String,
}

/// Takes a component in as a version, and checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStage {
    /// A file with its whole path, or an address.
    pub source: String,
    /// What its SHA-256 must be, in hexadecimal digits.
    pub sha256: Option<String>,
    pub name: Option<String>,
}

/// Stages components and switches to all of them at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginAdd {
    pub sources: Vec<String>,
    /// For a single source.
    pub sha256: Option<String>,
    /// For a single source.
    pub name: Option<String>,
    pub accept: bool,
}

/// Looks at a plugin's source again, and stages what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginUpdate {
    pub name: String,
    /// Whether to switch to it, too.
    pub activate: bool,
    pub accept: bool,
}

/// A version of a plugin, as an operator names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginTarget {
    pub name: String,
    /// A digest, or how it begins; none: the version that was staged last.
    pub version: Option<String>,
}

/// Switches to versions, all at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginActivate {
    pub targets: Vec<PluginTarget>,
    pub accept: bool,
}

/// Gives a version to a part of the requestors, or the canary to another part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCanary {
    /// One of them.
    pub targets: Vec<PluginTarget>,
    /// In hundredths of a percent.
    pub share: Option<u16>,
    /// By name; none: as they are.
    pub tenants: Vec<String>,
    pub bounds: CanaryThresholdOverrides,
    pub accept: bool,
}

/// Makes canaries the active versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginPromote {
    pub names: Vec<String>,
}

/// Takes canaries back, or switches back to the versions before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRollback {
    pub names: Vec<String>,
}

/// Takes a plugin out of service, or removes a version that nothing runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRemove {
    pub name: String,
    pub version: Option<String>,
}

/// Reads every kept component again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginVerify {
    pub name: Option<String>,
}

impl Command {
    /// Its name and what it is about, on one line. None of it is secret: tokens are in answers only, and values are left out.
    pub fn summary(&self) -> String {
        let mut shown = self.clone();
        match &mut shown {
            // Its name is erased as well; the log knows it by its id.
            Self::Tenant(TenantCommand::Purge(_)) => return r#"{"command":"tenant_purge"}"#.to_owned(),
            Self::Secret(SecretCommand::Set(SecretSet { value, .. })) => *value = SecretText::default(),
            _ => {}
        }
        serde_json::to_string(&shown).unwrap_or_default()
    }

    /// Whether it may come over the network: it is about what the host does, and names no path of its machine.
    pub fn is_for_administrators(&self) -> bool {
        match self {
            Self::Token(command) => matches!(command, TokenCommand::List(_) | TokenCommand::Revoke(_)),
            Self::Tasks(command) => match command {
                TasksCommand::List(_) => false,
                TasksCommand::Show(_) | TasksCommand::Page(_) => true,
                TasksCommand::Pause(_) | TasksCommand::Resume(_) => true,
                TasksCommand::Cancel(_) | TasksCommand::Purge(_) => true,
            },
            Self::Host(command) => match command {
                HostCommand::Limits(_) | HostCommand::Reload(_) => true,
                HostCommand::DrainBegin(_) | HostCommand::DrainEnd(_) | HostCommand::DrainShow(_) => true,
                HostCommand::Attach(_) => false,
            },
            Self::Secret(_) | Self::Store(_) | Self::Tenant(_) | Self::Plugin(_) => false,
        }
    }
}
