//! Typed configuration: what an operator may set, from a file, the environment and flags.
//!
//! Owns the names, units, defaults and bounds of every key (one table, [`keys`]) and the rules between them. Must not
//! touch the file system, the environment or the clock: it is handed texts and pairs. Invariant: a [`Config`] that
//! exists has every value within its bounds and contradicts nothing; everything wrong with the sources is reported at
//! once, each with its place.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

#[macro_use]
mod table;

mod admin;
pub mod amounts;
mod auth;
mod changes;
mod cluster;
mod config;
mod dashboard;
mod document;
mod exposure;
mod grants;
mod key;
mod keys;
mod layer;
mod metrics;
mod plugin;
mod reader;
mod reference;
mod report;
mod settings;
#[cfg(test)]
mod tests;
mod tls;
mod tool_names;
mod toolset;
mod traces;
mod trust;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use admin::{AdminConfig, AdminSecret};
pub use auth::{AuthConfig, IssuerConfig, SecretLocation};
pub use cluster::ClusterConfig;
pub use config::{Config, DatabaseConfig, SecretsConfig, TenantConfig};
pub use dashboard::{DashboardConfig, OidcConfig, PreviewOrigin};
use document::{Parsed, TenantEntry};
pub use grants::{keyvalue_defaults, variable as variable_name};
pub use key::Kind;
pub use keys::all as all_keys;
pub use keys::{AuditConfig, LogConfig, LogFormat, ReadyRequirement, ServerConfig, SourcesConfig};
pub use metrics::MetricsConfig;
pub use plugin::PluginConfig;
pub use reader::File;
pub use reference::{configuration_markdown, explain as explain_key, keys_help, tables as tables_of_keys};
pub use report::{ConfigLocation, Problem, Problems};
pub use settings::{Origin, Setting};
pub use tls::{Insecure, TlsConfig};
pub use tool_names::refused_by_clients;
pub use traces::{TracesConfig, endpoint as collector_endpoint};
pub use trust::TrustConfig;

use layer::Layer;
use report::Report;

/// Holds keys that secrets are sealed with; no key of the configuration, so that it is in no message.
pub const SECRET_KEY_VARIABLE: &str = "BULKHEAD_SECRET_KEY";

/// Names the configuration file where no flag does.
pub const CONFIG_VARIABLE: &str = "BULKHEAD_CONFIG";

/// Holds the token of administrators for commands to a host elsewhere.
pub const ADMIN_TOKEN_VARIABLE: &str = "BULKHEAD_ADMIN_TOKEN";

/// Variables that are none of the keys.
const OTHER_VARIABLES: [&str; 3] = [SECRET_KEY_VARIABLE, CONFIG_VARIABLE, ADMIN_TOKEN_VARIABLE];

/// What the command line said; flags win over everything.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub listen: Option<String>,
    pub data: Option<PathBuf>,
    pub plugins: Vec<PathBuf>,
    pub plugin_dirs: Vec<PathBuf>,
    pub insecure: Insecure,
}

impl Config {
    /// Reads all sources: flags win over the environment, the environment over the file, the file over the defaults.
    ///
    /// `variables` is the whole environment; only names that begin with `BULKHEAD_` are looked at, and each of those
    /// must be the name of a key.
    ///
    /// # Errors
    /// Every problem of every source, none left out because of another.
    pub fn load(
        file: Option<File<'_>>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, Problems> {
        let report = Report::default();
        let (base, parsed) = read_sources(file, variables, flags, &report);
        let data_named = base.location("server", "data") != ConfigLocation::Default;
        let listen_location = base.location("server", "listen");
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

        let problems = report.into_problems();
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
                listen_location,
                tenants,
                auth: parsed.auth,
                tls: parsed.tls,
                insecure: flags.insecure,
                admin: parsed.admin,
                traces: parsed.traces,
                metrics: parsed.metrics,
                dashboard: parsed.dashboard,
                encryption: parsed.encryption,
                database: parsed.database,
                cluster: parsed.cluster,
            })
        } else {
            Err(Problems(problems))
        }
    }
}

/// The values of the host, and what else the file says.
fn read_sources(
    file: Option<File<'_>>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
    report: &Report,
) -> (Layer<'static>, Parsed) {
    let mut base = Layer::base();
    let parsed = file.map(|file| document::read(file, &mut base, report)).unwrap_or_default();
    let named = [parsed.encryption.as_ref(), parsed.database.as_ref().map(|database| &database.url)];
    let is_named = |name: &str| {
        named
            .iter()
            .flatten()
            .any(|location| matches!(location, SecretLocation::Variable(variable) if variable == name))
    };
    let variables = variables.into_iter().filter(|(name, _)| !is_named(name));
    read_variables(variables, &mut base, report);
    if let Some(listen) = &flags.listen {
        base.set_text("server", "listen", listen, &ConfigLocation::Flag("--listen"), report);
    }
    if let Some(data) = &flags.data {
        base.set_text("server", "data", &data.to_string_lossy(), &ConfigLocation::Flag("--data"), report);
    }
    base.settle(report);
    (base, parsed)
}

/// Every `BULKHEAD_*` variable is a key, or a mistake.
fn read_variables(variables: impl IntoIterator<Item = (String, String)>, base: &mut Layer<'_>, report: &Report) {
    for (name, text) in variables {
        if !name.starts_with("BULKHEAD_") || OTHER_VARIABLES.contains(&name.as_str()) {
            continue;
        }
        let location = ConfigLocation::Variable(name.clone());
        match keys::all().find(|key| key.variable().as_deref() == Some(name.as_str())) {
            Some(key) => base.set_text(key.section, key.name, &text, &location, report),
            None => {
                let list = keys::all().find(|key| key.variable_name() == name);
                match list {
                    Some(key) => report.add(&location, format!("{} is a list: set it in the file", key.path())),
                    None => report.add(
                        &location,
                        "no such key: variables are BULKHEAD_SECTION_KEY, for the scalar keys of [server], [limits], \
                         [call], [compile], [log], [audit] and [sources] (see `bulkhead serve --help`)",
                    ),
                }
            }
        }
    }
}
