//! The whole configuration, complete and checked. [`Config::load`] alone makes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::admin::AdminConfig;
use super::auth::{AuthConfig, SecretLocation};
use super::cluster::ClusterConfig;
use super::dashboard::DashboardConfig;
use super::keys::{AuditConfig, LogConfig, ServerConfig, SourcesConfig};
use super::metrics::MetricsConfig;
use super::plugin::PluginConfig;
use super::report::ConfigLocation;
use super::tls::{Insecure, TlsConfig};
use super::traces::TracesConfig;
use super::trust::TrustConfig;
use bulkhead_calls::policy::Bound;
use bulkhead_domain::limits::{CallLimits, CompileLimits, Limits};
use bulkhead_domain::toolset::Toolset;
use bulkhead_plugins::Pinning;

/// Everything that an operator decided.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: ServerConfig,
    pub limits: Limits,
    pub call: CallLimits,
    pub compile: CompileLimits,
    pub log: LogConfig,
    pub audit: AuditConfig,
    pub sources: SourcesConfig,
    pub secrets: SecretsConfig,
    /// In the order of the file: the first that fits a source decides.
    pub trust: Vec<TrustConfig>,
    /// In the order of the file, then those of the flags.
    pub plugins: Vec<PluginConfig>,
    /// In the order of the file.
    pub toolsets: Vec<Toolset>,
    /// What holds for a plugin that is not named; `None`: nothing is granted to it. No file says this, only `plugin
    /// dev`.
    pub unnamed: Option<PluginConfig>,
    /// Folders whose `*.wasm` files are plugins too.
    pub plugin_dirs: Vec<PathBuf>,
    /// Whether anybody said where the data is, or it is only the default.
    pub data_named: bool,
    /// Where `server.listen` was said.
    pub listen_location: ConfigLocation,
    /// By name.
    pub tenants: BTreeMap<String, TenantConfig>,
    pub auth: AuthConfig,
    /// `[server] tls`.
    pub tls: Option<TlsConfig>,
    pub insecure: Insecure,
    /// `[admin]`.
    pub admin: Option<AdminConfig>,
    /// `[metrics]`.
    pub metrics: Option<MetricsConfig>,
    /// `[dashboard]`.
    pub dashboard: Option<DashboardConfig>,
    /// `[traces]`.
    pub traces: TracesConfig,
    /// Where the keys are with which stored tasks are sealed.
    pub encryption: Option<SecretLocation>,
    /// The database that everything is kept in; none: the data directory.
    pub database: Option<DatabaseConfig>,
    /// `[cluster]`: the database is shared with other hosts.
    pub cluster: Option<ClusterConfig>,
}

/// `[store]` with `engine = "postgres"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// Where the address of the database is, which may hold a password.
    pub url: SecretLocation,
    pub schema: String,
    /// Certificates that the server's may be signed by, beside those of the web.
    pub ca_file: Option<PathBuf>,
}

/// `[tenant.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Complete: what the tenant's own section does not say is that of the host.
    pub limits: Limits,
    /// How much of the processors the tenant gets against one of weight 1, when there is not enough for both.
    pub cpu_weight: u32,
    /// What becomes of accepted definitions that a version changes.
    pub changed_definitions: Option<Pinning>,
    /// What plugins reach at most in its calls.
    pub grants: Bound,
}

/// `[secrets]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretsConfig {
    /// None: the variable `BULKHEAD_SECRET_KEY` has the keys, if there are any.
    pub key_file: Option<PathBuf>,
}
