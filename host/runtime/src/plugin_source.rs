//! A plugin as the operator wants it: where its component is, and on which terms it runs.
//!
//! Owns the words of that, and knows nothing of components.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::wasi_needs::WasiVersion;
use bulkhead_calls::policy::{Grants, TenantBounds};
use bulkhead_calls::{Durability, JournalPolicy};
use bulkhead_domain::Json;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::tool::{TaskSupport, ToolAnnotations};

/// Where a component's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

/// A plugin as the operator wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSource {
    pub component: Source,
    /// Else the name in the component's manifest, else the file's.
    pub name: Option<String>,
    /// In front of its tools' and prompts' names.
    pub prefix: String,
    /// What the guest reads through `config`.
    pub config: BTreeMap<String, Json>,
    pub grants: Grants,
    /// How much of them plugins reach in calls of each tenant.
    pub tenants: Arc<TenantBounds>,
    /// Whether a component without a manifest is refused, instead of wanting whatever it is granted.
    pub manifest_required: bool,
    /// The latest version of WASI that its component may need.
    pub wasi: WasiVersion,
    /// For each call: the defaults with the plugin's own values already in place.
    pub limits: CallLimits,
    /// Whether callers are shown the end of its standard error when it fails; `None`: if its tools are made of what it
    /// exports.
    pub stderr_in_results: Option<bool>,
    /// Whether its component is an MCP server.
    pub mcp: McpSettings,
    /// By the name of a tool that every client takes, without prefix.
    pub tools: BTreeMap<String, ToolPolicy>,
    /// Whether an interrupted task may run again, where the tool is idempotent.
    pub rerun: bool,
    /// Whether tasks go on where they were after the host was killed.
    pub durable: Durability,
    /// How their journals are kept.
    pub journal: JournalPolicy,
}

impl PluginSource {
    /// A component to which nothing is granted.
    pub fn bare(component: Source, limits: CallLimits) -> Self {
        Self {
            component,
            name: None,
            prefix: String::new(),
            config: BTreeMap::new(),
            grants: Grants::default(),
            tenants: Arc::default(),
            manifest_required: false,
            wasi: WasiVersion::default(),
            limits,
            stderr_in_results: None,
            mcp: McpSettings::default(),
            tools: BTreeMap::new(),
            rerun: false,
            durable: Durability::default(),
            journal: JournalPolicy::default(),
        }
    }
}

/// What the operator says of a web service or a command that may be an MCP server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpSettings {
    /// `None`: nothing is said, which is `Auto` for a plugin that is not known yet.
    pub mode: Option<McpMode>,
    /// Where it answers, if not at one of the usual places.
    pub path: Option<String>,
}

/// Whether a web service or a command is taken for an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpMode {
    /// If it answers as one.
    Auto,
    /// It is one over HTTP, or is refused.
    Http,
    /// The same over standard input and output.
    Stdio,
    /// It is not asked.
    Off,
}

/// `[plugin.tool.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPolicy {
    /// May narrow what the plugin says.
    pub task_support: Option<TaskSupport>,
    /// Whether no client may see or call it.
    pub hidden: bool,
    /// What clients call it, in the place of the plugin's prefix and the tool's own name.
    pub name: Option<String>,
    pub presentation: Presentation,
    /// The plugin's limits with the tool's own values already in place.
    pub limits: CallLimits,
}

/// What the operator says about a tool. Hints are for functions of a component that says nothing itself: plugins of our
/// world speak for themselves there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presentation {
    pub title: Option<String>,
    pub description: Option<String>,
    pub annotations: Option<ToolAnnotations>,
}

/// What a policy about a tool means that the plugin does not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownTools {
    /// A mistake in the configuration.
    Refuse,
    /// It is about another version of the plugin.
    Ignore,
}
