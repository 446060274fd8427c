//! Typed configuration: what an operator may set, from a file, the environment and flags.
//!
//! Owns the names, units, defaults and bounds of every key (one table, [`keys`]) and the rules between them. Must not touch the
//! file system, the environment or the clock: it is handed texts and pairs. Invariant: a [`Config`] that exists has every value
//! within its bounds and contradicts nothing; everything wrong with the sources is reported at once, each with its place.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod admin;
mod auth;
mod changes;
mod dashboard;
mod document;
mod exposure;
mod grants;
mod keys;
mod layer;
mod metrics;
mod plugin;
mod reader;
mod reference;
#[cfg(test)]
mod tests;
mod tool_names;
mod toolset;
mod traces;
mod trust;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use bulkhead_calls::policy::Bound;
use bulkhead_domain::limits::{CallLimits, CompileLimits, Limits};
use bulkhead_domain::toolset::Toolset;
use bulkhead_plugins::Pinning;

pub use admin::{AdminConfig, AdminSecret};
pub use auth::{AuthConfig, IssuerConfig, SecretLocation};
pub use dashboard::{DashboardConfig, OidcConfig};
use document::TenantEntry;
pub use exposure::{Insecure, TlsConfig};
pub use grants::{keyvalue_defaults, variable as variable_name};
pub use keys::{AuditConfig, LogConfig, LogFormat, ReadyRequirement, ServerConfig, SourcesConfig};
pub use keys::{Kind, all as all_keys};
pub use metrics::MetricsConfig;
pub use plugin::PluginConfig;
pub use reference::{configuration_markdown, keys_help};
pub use tool_names::refused_by_clients;
pub use traces::{TracesConfig, endpoint as collector_endpoint};
pub use trust::TrustConfig;

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
    /// What holds for a plugin that is not named; `None`: nothing is granted to it. No file says this, only `plugin dev`.
    pub unnamed: Option<PluginConfig>,
    /// Folders whose `*.wasm` files are plugins too.
    pub plugin_dirs: Vec<PathBuf>,
    /// Whether anybody said where the data is, or it is only the default.
    pub data_named: bool,
    /// Where `server.listen` was said.
    pub listen_place: ConfigLocation,
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
    /// None: the variable [`SECRET_KEY_VARIABLE`] has the keys, if there are any.
    pub key_file: Option<PathBuf>,
}

/// Holds keys that secrets are sealed with; no key of the configuration, so that it is in no message.
pub const SECRET_KEY_VARIABLE: &str = "BULKHEAD_SECRET_KEY";

/// Names the configuration file where no flag does.
pub const CONFIG_VARIABLE: &str = "BULKHEAD_CONFIG";

/// Holds the token of administrators for commands to a host elsewhere.
pub const ADMIN_TOKEN_VARIABLE: &str = "BULKHEAD_ADMIN_TOKEN";

/// Variables that are none of the keys.
const OTHER_VARIABLES: [&str; 3] = [SECRET_KEY_VARIABLE, CONFIG_VARIABLE, ADMIN_TOKEN_VARIABLE];

/// The configuration file, already read.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// As the operator wrote it; names the place of problems, and relative paths in the file start at its folder.
    pub path: &'a Path,
    pub text: &'a str,
}

/// What the command line said; flags win over everything.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub listen: Option<String>,
    pub data: Option<PathBuf>,
    pub plugins: Vec<PathBuf>,
    pub plugin_dirs: Vec<PathBuf>,
    pub insecure: Insecure,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigLocation {
    Default,
    File { file: String, line: usize },
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: ConfigLocation,
    /// Names the key and says what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for Problem {}

/// Everything that is wrong with a configuration, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration is wrong in {} place(s):", self.0.len())?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Problems {}

/// Collects problems while reading goes on.
#[derive(Debug, Default)]
struct Report(RefCell<Vec<Problem>>);

impl Report {
    fn add(&self, place: &ConfigLocation, message: impl Into<String>) {
        self.0.borrow_mut().push(Problem { place: place.clone(), message: message.into() });
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Config {
    /// Reads all sources: flags win over the environment, the environment over the file, the file over the defaults.
    ///
    /// `variables` is the whole environment; only names that begin with `BULKHEAD_` are looked at, and each of those must be
    /// the name of a key.
    ///
    /// # Errors
    /// Every problem of every source, none left out because of another.
    pub fn load(
        file: Option<File<'_>>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, Problems> {
        let report = Report::default();
        let mut base = layer::Layer::base();
        let parsed = file.map(|file| document::read(file, &mut base, &report)).unwrap_or_default();
        let keys = match &parsed.encryption {
            Some(SecretLocation::Variable(name)) => Some(name.as_str()),
            _ => None,
        };
        let variables = variables.into_iter().filter(|(name, _)| Some(name.as_str()) != keys);
        read_variables(variables, &mut base, &report);
        if let Some(listen) = &flags.listen {
            base.set_text("server", "listen", listen, &ConfigLocation::Flag("--listen"), &report);
        }
        if let Some(data) = &flags.data {
            base.set_text("server", "data", &data.to_string_lossy(), &ConfigLocation::Flag("--data"), &report);
        }
        base.settle(&report);

        let data_named = base.place("server", "data") != ConfigLocation::Default;
        let listen_place = base.place("server", "listen");
        let server = base.fill(keys::SERVER, keys::blank_server(), &report);
        let limits = base.fill(keys::LIMITS, keys::blank_limits(), &report);
        let call = base.fill(keys::CALL, keys::blank_call(), &report);
        let compile = base.fill(keys::COMPILE, keys::blank_compile(), &report);
        let log = base.fill(keys::LOG, keys::blank_log(), &report);
        let audit = base.fill(keys::AUDIT, keys::blank_audit(), &report);
        let sources = base.fill(keys::SOURCES, keys::blank_sources(), &report);

        let mut tenants = BTreeMap::new();
        for TenantEntry { name, values, changed_definitions, grants, cpu_weight } in parsed.tenants {
            let layer = base.overlaid(format!("tenant.{name}."), values, &report);
            let limits = layer.fill(keys::LIMITS, keys::blank_limits(), &report);
            tenants.insert(name, TenantConfig { limits, cpu_weight, changed_definitions, grants });
        }
        let mut plugins: Vec<_> =
            parsed.plugins.into_iter().map(|entry| entry.resolve(&base, &call, &report)).collect();
        plugin::add_pinned(&mut plugins, &flags.plugins, &call);
        plugin::refuse_same_names(&plugins, &report);

        tool_names::check(&plugins, &parsed.toolsets, &parsed.auth, &report);
        let toolsets = toolset::distinct(parsed.toolsets, &report);

        auth::check(&parsed.auth, &report);
        dashboard::check(parsed.dashboard.as_ref(), &parsed.auth, &report);
        exposure::check_anonymous_loopback(&server, &parsed.auth, &report);

        let mut problems = report.0.into_inner();
        // Those of the file in its order, however it was read.
        problems.sort_by_key(|problem| match problem.place {
            ConfigLocation::File { line, .. } => line,
            ConfigLocation::Default | ConfigLocation::Variable(_) | ConfigLocation::Flag(_) => usize::MAX,
        });
        if problems.is_empty() {
            Ok(Self {
                server,
                limits,
                call,
                compile,
                log,
                audit,
                sources,
                secrets: parsed.secrets,
                trust: parsed.trust,
                plugins,
                toolsets,
                unnamed: None,
                plugin_dirs: flags.plugin_dirs.clone(),
                data_named,
                listen_place,
                tenants,
                auth: parsed.auth,
                tls: parsed.tls,
                insecure: flags.insecure,
                admin: parsed.admin,
                traces: parsed.traces,
                metrics: parsed.metrics,
                dashboard: parsed.dashboard,
                encryption: parsed.encryption,
            })
        } else {
            Err(Problems(problems))
        }
    }
}

/// Every `BULKHEAD_*` variable is a key, or a mistake.
fn read_variables(variables: impl IntoIterator<Item = (String, String)>, base: &mut layer::Layer<'_>, report: &Report) {
    for (name, text) in variables {
        if !name.starts_with("BULKHEAD_") || OTHER_VARIABLES.contains(&name.as_str()) {
            continue;
        }
        let place = ConfigLocation::Variable(name.clone());
        match keys::all().find(|key| key.variable().as_deref() == Some(name.as_str())) {
            Some(key) => base.set_text(key.section, key.name, &text, &place, report),
            None => {
                let list = keys::all().find(|key| key.variable_name() == name);
                match list {
                    Some(key) => report.add(&place, format!("{} is a list: set it in the file", key.path())),
                    None => report.add(
                        &place,
                        "no such key: variables are BULKHEAD_SECTION_KEY, for the scalar keys of [server], [limits], \
                         [call], [compile], [log], [audit] and [sources] (see `bulkhead serve --help`)",
                    ),
                }
            }
        }
    }
}
