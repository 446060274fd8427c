//! The sections of the configuration file: fixed ones into layers, the others into what their readers make of them.

use std::path::PathBuf;

use toml::de::DeTable;

use super::admin::{self, AdminConfig};
use super::auth::{self, AuthConfig, SecretLocation};
use super::cluster::{self, ClusterConfig};
use super::config::{DatabaseConfig, SecretsConfig};
use super::dashboard::{self, DashboardConfig};
use super::grants::read_bound;
use super::key::Value;
use super::keys;
use super::layer::{Layer, Values};
use super::metrics::{self, MetricsConfig};
use super::plugin::{self, PluginEntry};
use super::reader::{File, Item, Reader};
use super::report::Report;
use super::tls::{TlsConfig, read_tls};
use super::toolset::{self, ToolsetEntry};
use super::traces::{self, TracesConfig};
use super::trust::{self, TrustConfig, read_pinning};
use bulkhead_calls::policy::Bound;
use bulkhead_domain::limits::CPU_WEIGHT_MAX;
use bulkhead_domain::names::check_name;
use bulkhead_plugins::Pinning;

/// What the file says beside the fixed sections.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) plugins: Vec<PluginEntry>,
    pub(super) toolsets: Vec<ToolsetEntry>,
    pub(super) auth: AuthConfig,
    pub(super) tls: Option<TlsConfig>,
    pub(super) admin: Option<AdminConfig>,
    pub(super) metrics: Option<MetricsConfig>,
    pub(super) dashboard: Option<DashboardConfig>,
    pub(super) traces: TracesConfig,
    pub(super) trust: Vec<TrustConfig>,
    pub(super) secrets: SecretsConfig,
    pub(super) encryption: Option<SecretLocation>,
    pub(super) database: Option<DatabaseConfig>,
    pub(super) cluster: Option<ClusterConfig>,
}

/// What a tenant's calls weigh when nobody says.
const CPU_WEIGHT: u32 = 1;

/// `[tenant.NAME]`.
#[derive(Debug)]
pub(super) struct TenantEntry {
    pub(super) name: String,
    pub(super) values: Values,
    pub(super) changed_definitions: Option<Pinning>,
    pub(super) grants: Bound,
    pub(super) cpu_weight: u32,
}

table!(SECRETS, SecretsKeys, "[secrets]",
    "The keys that secrets of plugins are sealed with. Without key_file the variable BULKHEAD_SECRET_KEY has them.", {
    key_file: PathBuf = Item::file, "",
        "File with one key a line, 32 random bytes in base64 (`openssl rand -base64 32`); the first one seals";
});

/// Reads the file: the fixed sections into `base`, the rest into the answer.
pub(super) fn read(file: File<'_>, base: &mut Layer<'_>, report: &Report) -> Parsed {
    let reader = Reader { file, report };
    let (tree, errors) = DeTable::parse_recoverable(file.text);
    if !errors.is_empty() {
        for error in errors {
            let location = reader.location(error.span().map_or(0, |span| span.start));
            report.add(&location, format!("not valid TOML: {}", error.message().trim_end()));
        }
        return Parsed::default();
    }
    let mut parsed = Parsed::default();
    let mut cluster = None;
    for (name, node) in tree.get_ref() {
        let item = Item { reader, path: name.get_ref().to_string(), node };
        match name.get_ref().as_ref() {
            "server" => parsed.tls = fixed_section(&item, base).as_ref().and_then(read_tls),
            "limits" | "call" | "compile" | "log" | "audit" | "sources" => {
                fixed_section(&item, base);
            }
            "admin" => parsed.admin = admin::read(&item),
            "metrics" => parsed.metrics = metrics::read(&item),
            "dashboard" => parsed.dashboard = dashboard::read(&item),
            "auth" => parsed.auth = auth::read(&item).unwrap_or_default(),
            "encryption" => parsed.encryption = read_encryption(&item),
            "store" => parsed.database = read_store(&item),
            "cluster" => cluster = Some(item),
            "plugin" => parsed.plugins = plugin::read(&item),
            "secrets" => {
                parsed.secrets.key_file =
                    item.section(SECRETS.names()).and_then(|section| SecretsKeys::read(&section).key_file);
            }
            "toolset" => parsed.toolsets = toolset::read(&item),
            "traces" => parsed.traces = traces::read(&item).unwrap_or_default(),
            "trust" => parsed.trust = trust::read(&item),
            "tenant" => parsed.tenants = read_tenants(&item),
            "token" => item
                .refuse("tokens are not kept in the configuration; `bulkhead token create --requestor NAME` makes one"),
            other => {
                let known = "[server], [admin], [metrics], [dashboard], [auth], [limits], [call], [compile], [log], [audit], [sources], [store], [cluster], [encryption], [secrets], [traces], [[trust]], [[plugin]], \
                     [[toolset]] and [tenant.NAME]";
                reader.refuse(name, format!("{other}: no such section; there are {known}"));
            }
        }
    }
    if let Some(item) = cluster {
        parsed.cluster = cluster::read(&item);
        if parsed.database.is_none() {
            item.refuse("needs [store] with engine = \"postgres\": hosts share a database");
        }
    }
    parsed
}

/// A section whose keys are in the table of keys. Returns what `tls` says, which is a table of its own in `[server]`.
fn fixed_section<'a>(item: &Item<'a>, base: &mut Layer<'_>) -> Option<Item<'a>> {
    let mut tls = None;
    let reader = item.reader;
    for (name, member) in item.members() {
        if member.path == "server.tls" {
            tls = Some(member);
            continue;
        }
        let Some(key) = keys::find(&item.path, name.get_ref()) else {
            let hint = keys::hint(&item.path, name.get_ref());
            reader.refuse(name, format!("{}: no such key in [{}]{hint}", member.path, item.path));
            continue;
        };
        let mut value = member.value();
        if keys::is_path(key) {
            let path = |text: &String| reader.folder().join(text).to_string_lossy().into_owned();
            match &mut value {
                Value::Text(text) if !text.is_empty() => *text = path(text),
                Value::List(list) => list.iter_mut().for_each(|text| *text = path(text)),
                _ => {}
            }
        }
        base.set(key, value, &member.location(), reader.report);
    }
    tls
}

table!(TENANT, TenantKeys, "[tenant.NAME]", "What is different for one tenant.", {
    limits: Values = |item| Some(item.overrides("limits")), "",
        "Table with keys of [limits] for its requestors and for itself";
    grants: Bound = read_bound, "",
        "Table with directories, http, env and kv: what is left to its calls of what plugins are granted";
    cpu_weight: u32 = |item| item.number(1..=u64::from(CPU_WEIGHT_MAX)), "1",
        "Its share of processor time against other tenants when there is not enough, 1 to 1000";
    changed_definitions: Pinning = read_pinning, "",
        "As of [[trust]]; the strictest of all who would get a version decides";
});

/// `[tenant.NAME]`.
fn read_tenants(item: &Item<'_>) -> Vec<TenantEntry> {
    let mut tenants = Vec::new();
    for (name, item) in item.members() {
        if let Err(message) = check_name(name.get_ref()) {
            item.reader.refuse(name, format!("{}: {message}", item.path));
        }
        let Some(section) = item.section(TENANT.names()) else { continue };
        let keys = TenantKeys::read(&section);
        tenants.push(TenantEntry {
            name: name.get_ref().to_string(),
            values: keys.limits.unwrap_or_default(),
            changed_definitions: keys.changed_definitions,
            grants: keys.grants.unwrap_or_default(),
            cpu_weight: keys.cpu_weight.unwrap_or(CPU_WEIGHT),
        });
    }
    tenants
}

table!(ENCRYPTION, EncryptionKeys, "[encryption]",
    "Seals the arguments, results, input requests, answers and steering of stored tasks, and what plugins keep.", {
    key_file: PathBuf = Item::file, "",
        "File with one key a line, 32 random bytes in base64; the first one seals; only its owner may read the file";
    key_env: String = |item| item.text().map(str::to_owned), "",
        "In place of key_file: the name of an environment variable with the keys";
});

/// `[encryption]`: where the keys are with which stored tasks are sealed. Without the section, nothing is sealed.
fn read_encryption(item: &Item<'_>) -> Option<SecretLocation> {
    let section = item.section(ENCRYPTION.names())?;
    let EncryptionKeys { key_file, key_env } = EncryptionKeys::read(&section);
    if section.has("key_file") && section.has("key_env") {
        section.item.refuse("either key_file or key_env, not both");
    } else if section.is_empty() {
        section.item.refuse("needs key_file, a file of keys, or key_env, the name of a variable with them");
    }
    key_file.map(SecretLocation::File).or(key_env.map(SecretLocation::Variable))
}

/// The schema where none is named.
const SCHEMA: &str = "bulkhead";

table!(STORE, StoreKeys, "[store]",
    "Where a host keeps tasks, tokens, plugins' rows and everything else that must survive.", {
    engine: String = |item| item.text().map(str::to_owned), "sled",
        "sled: the data directory; postgres: a schema of a PostgreSQL database, of one host at a time unless there is [cluster]";
    url_file: PathBuf = Item::file, "",
        "For postgres: file with the address of the database, such as host=/var/run/postgresql dbname=bulkhead";
    url_env: String = |item| item.text().map(str::to_owned), "",
        "In place of url_file: the name of an environment variable with the address";
    schema: String = |item| item.text().map(str::to_owned), "bulkhead",
        "For postgres: the schema, which is made if it is not there; it belongs to this host alone, or to those that have [cluster]";
    ca_file: PathBuf = Item::file, "",
        "For postgres over a network: file with certificates that the server's may be signed by, beside those of the web";
});

/// `[store]`: `None`: the data directory.
fn read_store(item: &Item<'_>) -> Option<DatabaseConfig> {
    let section = item.section(STORE.names())?;
    let StoreKeys { engine, url_file, url_env, schema, ca_file } = StoreKeys::read(&section);
    match engine.as_deref() {
        Some("postgres") => {}
        None | Some("sled") => {
            if ["url_file", "url_env", "schema", "ca_file"].into_iter().any(|key| section.has(key)) {
                section.item.refuse("url_file, url_env, schema and ca_file need engine = \"postgres\"");
            }
            return None;
        }
        Some(_) => {
            section.item.refuse("engine is sled or postgres");
            return None;
        }
    }
    if section.has("url_file") && section.has("url_env") {
        section.item.refuse("either url_file or url_env, not both");
    }
    let url = url_file.map(SecretLocation::File).or(url_env.map(SecretLocation::Variable));
    if url.is_none() && !section.has("url_file") && !section.has("url_env") {
        section.item.refuse(
            "needs url_file, a file with the address of the database, or url_env, the name of a variable with it",
        );
    }
    Some(DatabaseConfig { url: url?, schema: schema.unwrap_or_else(|| SCHEMA.to_owned()), ca_file })
}
