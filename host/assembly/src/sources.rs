//! From files, environment and flags to a configuration; from a configuration to what the runtime loads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_audit::Audit;
use bulkhead_calls::policy::{DirGrant, TenantBounds};
use bulkhead_config::{
    Config, File, Flags, PluginConfig, Problem, Problems, SecretLocation, Setting, TrustConfig, refused_by_clients,
};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::tool_names::PORTABLE_NAME_CHARS_MAX;
use bulkhead_domain::toolset::Toolsets;
use bulkhead_net::address::normal_host;
use bulkhead_plugins::sources::oci::Logins;
use bulkhead_plugins::sources::{
    self, ComponentFetcher, Configured, ConfiguredSource, FetchOptions, Progress, PublicKey, Rule, Trust, TrustedKey,
    Watch,
};
use bulkhead_plugins::{ConfiguredPlugin, NamedPolicy, Plugins, Policy, component};
use bulkhead_protocol::{TOOLS_PER_PAGE, ToolListing};
use bulkhead_runtime::{LoadError, NamedDirectory, Overlap, PluginSource, Sandbox, exposing, overlaps};
use bulkhead_store::vault::VaultKeys;
use sha2::{Digest as _, Sha256};

/// How tools are listed.
pub(crate) fn tool_listing(config: &Config) -> ToolListing {
    let toolsets = Toolsets { sets: config.toolsets.clone(), tool_search: config.server.tool_search };
    ToolListing { toolsets, per_page: usize::try_from(config.server.tools_per_page).unwrap_or(TOOLS_PER_PAGE) }
}

/// Warns of what is taken in the configuration and may not be what was meant. A plugin that a toolset names may come
/// later.
pub(crate) async fn warn(config: &Config, plugins: &Plugins) {
    for refused in refused_by_clients(&config.plugins, PORTABLE_NAME_CHARS_MAX) {
        tracing::warn!("{refused}");
    }
    // Without a store nobody knows.
    let Ok(listed) = plugins.list().await else { return };
    let names: Vec<_> = listed.iter().map(|plugin| plugin.name.as_str()).collect();
    let toolsets = Toolsets { sets: config.toolsets.clone(), tool_search: false };
    for (toolset, plugin) in toolsets.patterns_of_no_plugin(&names) {
        tracing::warn!(toolset, plugin, "a toolset names a plugin that is not there: see `bulkhead plugin list`");
    }
}

/// Reads everything that says how the host should be; flags win.
pub fn load(file: Option<&Path>, flags: &Flags) -> anyhow::Result<Config> {
    Ok(load_with_digest(file, flags)?.0)
}

/// The same with the SHA-256 of the file, for the audit log; without a file, that of nothing.
pub(crate) fn load_with_digest(file: Option<&Path>, flags: &Flags) -> anyhow::Result<(Config, [u8; 32])> {
    let text = file.map(read_config).transpose()?;
    let file = file.zip(text.as_deref()).map(|(path, text)| File { path, text });
    Ok((Config::load(file, variables(), flags)?, config_digest(text.as_deref())))
}

/// The values that a host would run on, with where each was said and the SHA-256 of the file; for a tenant its own.
pub fn settings(file: Option<&Path>, flags: &Flags, tenant: Option<&str>) -> anyhow::Result<(Vec<Setting>, [u8; 32])> {
    let text = file.map(read_config).transpose()?;
    let file = file.zip(text.as_deref()).map(|(path, text)| File { path, text });
    Ok((Config::settings(file, variables(), flags, tenant)?, config_digest(text.as_deref())))
}

fn read_config(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("the configuration file {} cannot be read", path.display()))
}

fn config_digest(text: Option<&str>) -> [u8; 32] {
    Sha256::digest(text.unwrap_or_default()).into()
}

/// A variable that is not UTF-8 is none of ours: all of our names and values are.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// Every plugin to load: those of the configuration and the flags, then those of the folders by name.
pub(crate) fn plugins(config: &Config) -> anyhow::Result<Vec<PluginConfig>> {
    refuse_overlaps(&config.plugins)?;
    let mut plugins = config.plugins.clone();
    let parts: Vec<_> = plugins.iter().flat_map(|plugin| plugin.compose.clone()).collect();
    let is_part = |file: &Path| parts.iter().filter_map(sources::Source::path).any(|part| same_file(part, file));
    for folder in &config.plugin_dirs {
        for file in
            components(folder).with_context(|| format!("the plugin folder {} cannot be read", folder.display()))?
        {
            let known = plugins
                .iter()
                .any(|plugin| matches!(&plugin.source, sources::Source::File(known) if same_file(known, &file)));
            if !known && !is_part(&file) {
                plugins.push(PluginConfig::found(file, config.call.clone()));
            }
        }
    }
    Ok(plugins)
}

/// Every directory that plugins are granted.
pub(crate) fn directories(config: &Config) -> Vec<DirGrant> {
    config.plugins.iter().flat_map(|plugin| plugin.policy.source.grants.directories.iter().cloned()).collect()
}

/// Refuses directories by which one plugin could lead another one, or itself, to where nothing was granted.
pub fn refuse_overlaps(plugins: &[PluginConfig]) -> anyhow::Result<()> {
    refuse_directories(plugins, overlaps)
}

/// Refuses directories by which a plugin would get at what the host keeps there, and any where hosts share a database:
/// a task that goes on at another host would find others there.
pub(crate) fn refuse_exposing(config: &Config, data: &Path) -> anyhow::Result<()> {
    if config.cluster.is_some() {
        refuse_directories(&config.plugins, |granted| {
            Ok(granted.iter().enumerate().map(|(at, named)| unshared(at, named)).collect())
        })?;
    }
    refuse_directories(&config.plugins, |granted| exposing(granted, data))
}

fn unshared(at: usize, named: &NamedDirectory<'_>) -> Overlap {
    let problem = format!("{}: hosts that have [cluster] do not share directories; leave out either", named.key);
    Overlap { at, problem }
}

fn refuse_directories(
    plugins: &[PluginConfig],
    wrong: impl FnOnce(&[NamedDirectory<'_>]) -> std::io::Result<Vec<Overlap>>,
) -> anyhow::Result<()> {
    let mut places = Vec::new();
    let mut granted = Vec::new();
    for plugin in plugins {
        for grant in &plugin.policy.source.grants.directories {
            let key = format!("plugin.{}.grants.directories ({})", plugin.label(), grant.guest);
            granted.push(NamedDirectory { key, grant });
            places.push(&plugin.location);
        }
    }
    let found = wrong(&granted).context("granted directories cannot be compared")?;
    let problem = |overlap: Overlap| {
        let location = places.get(overlap.at).copied().cloned()?;
        Some(Problem { location, message: overlap.problem })
    };
    let problems: Vec<_> = found.into_iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
}

fn components(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || sources::real_path(a) == sources::real_path(b)
}

/// What the runtime needs to know of a plugin.
pub fn plugin_source(plugin: PluginConfig, tenants: &Arc<TenantBounds>) -> PluginSource {
    policy(plugin, tenants).source
}

/// What the configuration says of a plugin, with the bounds of tenants.
fn policy(plugin: PluginConfig, tenants: &Arc<TenantBounds>) -> Policy {
    let mut policy = plugin.policy;
    policy.source.tenants = Arc::clone(tenants);
    policy
}

/// A plugin that the configuration does not name: nothing is granted to it, unless its author runs the host.
pub(crate) fn otherwise(config: &Config, tenants: &Arc<TenantBounds>) -> Policy {
    let found = || PluginConfig::found(PathBuf::new(), config.call.clone());
    policy(config.unnamed.clone().unwrap_or_else(found), tenants)
}

/// Every plugin to begin with.
pub(crate) fn wanted(
    config: &Config,
    intake: &Arc<ComponentFetcher>,
    tenants: &Arc<TenantBounds>,
) -> anyhow::Result<Vec<ConfiguredPlugin>> {
    plugins(config)?.into_iter().map(|plugin| configured(plugin, intake, tenants)).collect()
}

fn configured(
    plugin: PluginConfig,
    intake: &Arc<ComponentFetcher>,
    tenants: &Arc<TenantBounds>,
) -> anyhow::Result<ConfiguredPlugin> {
    let from = configured_source(&plugin)?;
    let name = plugin.name().cloned();
    let component_source = Arc::new(Configured { intake: Arc::clone(intake), from, name });
    Ok(ConfiguredPlugin { pinned: plugin.pinned, component_source, policy: policy(plugin, tenants) })
}

/// Where its component is, for a host that works in another folder.
fn configured_source(plugin: &PluginConfig) -> anyhow::Result<ConfiguredSource> {
    let absolute = || -> std::io::Result<_> {
        let source = plugin.source.clone().absolute()?;
        let compose = plugin.compose.iter().cloned().map(sources::Source::absolute).collect::<std::io::Result<_>>()?;
        Ok(ConfiguredSource { source, compose, sha256: plugin.sha256 })
    };
    absolute().with_context(|| format!("plugin {}", plugin.label()))
}

/// Opens the component that a command is given, so that a file that is not there is told from one that is refused.
///
/// # Errors
/// It cannot be opened, or is a folder.
pub fn require_file(file: &Path) -> anyhow::Result<()> {
    let opened = std::fs::File::open(file).and_then(|opened| opened.metadata());
    let facts = opened.with_context(|| format!("{} cannot be read", file.display()))?;
    anyhow::ensure!(!facts.is_dir(), "{} is a folder: name the component in it", file.display());
    Ok(())
}

/// A component by its file, with nothing granted. One that the configuration composes is taken as the whole.
pub async fn bare_component(
    file: &Path,
    config: &Config,
    sandbox: &Arc<Sandbox>,
) -> anyhow::Result<Result<PluginSource, LoadError>> {
    let bare = bare_source(file, config.call.clone());
    let is_it = |plugin: &&PluginConfig| plugin.source.path().is_some_and(|known| same_file(known, file));
    let composed = config.plugins.iter().filter(|plugin| !plugin.compose.is_empty()).find(is_it);
    let Some(plugin) = composed.cloned() else { return Ok(Ok(bare)) };
    let found = whole_source(plugin, config, sandbox).await?;
    Ok(found.map(|PluginSource { component, name, .. }| PluginSource { component, name, ..bare }))
}

/// What the runtime needs to know of a plugin, which is composed if the configuration says so.
pub async fn whole_source(
    plugin: PluginConfig,
    config: &Config,
    sandbox: &Arc<Sandbox>,
) -> anyhow::Result<Result<PluginSource, LoadError>> {
    if plugin.compose.is_empty() {
        return Ok(Ok(plugin_source(plugin, &Arc::default())));
    }
    Ok(component(sandbox, &configured(plugin, &intake(config)?, &Arc::default())?).await)
}

/// What the configuration says about each plugin, whatever its component.
pub(crate) fn terms(config: &Config, tenants: &Arc<TenantBounds>) -> anyhow::Result<Vec<NamedPolicy>> {
    let terms = |plugin: PluginConfig| {
        let source = plugin.source.clone().absolute().with_context(|| format!("plugin {}", plugin.label()))?;
        Ok(NamedPolicy { name: plugin.name().cloned(), label: source.to_string(), policy: policy(plugin, tenants) })
    };
    plugins(config)?.into_iter().map(terms).collect()
}

/// What every component goes through.
pub(crate) fn intake(config: &Config) -> anyhow::Result<Arc<ComponentFetcher>> {
    let mut configured = HashMap::new();
    for plugin in &config.plugins {
        if let Some(name) = plugin.name() {
            configured.insert(name.clone(), configured_source(plugin)?);
        }
    }
    Ok(Arc::new(ComponentFetcher::new(trust(config)?, fetching(config), configured)))
}

/// What looks at the watched folders, if there are any.
pub(crate) fn watch(
    config: &Config,
    intake: &Arc<ComponentFetcher>,
    plugins: &Plugins,
    audit: &Audit,
) -> anyhow::Result<Option<Watch>> {
    let folders = config.sources.watch.iter().map(std::path::absolute);
    let folders: Vec<_> = folders.collect::<Result<_, _>>().context("sources.watch")?;
    let watch = Watch { folders, intake: Arc::clone(intake), plugins: plugins.clone(), audit: audit.clone() };
    Ok(Some(watch).filter(|watch| !watch.folders.is_empty()))
}

/// Whom components may come from, with the keys read.
pub fn trust(config: &Config) -> anyhow::Result<Trust> {
    config.trust.iter().map(rule).collect::<anyhow::Result<_>>().map(Trust::new)
}

fn rule(trust: &TrustConfig) -> anyhow::Result<Rule> {
    let key = |file: &PathBuf| {
        let location = || format!("{}: trust.keys: {}", trust.location, file.display());
        let text = std::fs::read_to_string(file).with_context(location)?;
        let key = PublicKey::from_pem(&text).map_err(|wrong| anyhow::anyhow!("{}: {wrong}", location()))?;
        Ok(TrustedKey { key, file: file.clone() })
    };
    let folder = std::env::current_dir().context("the working folder cannot be named")?;
    let keys = trust.keys.iter().map(key).collect::<anyhow::Result<_>>()?;
    Ok(Rule {
        pattern: trust.pattern.clone().from_folder(&folder),
        keys,
        same_repository: trust.same_repository,
        changed_definitions: trust.changed_definitions,
    })
}

/// How far a fetch may go.
pub fn fetching(config: &Config) -> FetchOptions {
    let hosts = |hosts: &[String]| hosts.iter().map(|host| normal_host(host)).collect();
    FetchOptions {
        component_bytes_max: config.sources.component_bytes_max,
        fetch_max: Duration::from_millis(config.sources.fetch_ms_max),
        private_hosts: hosts(&config.sources.private_hosts),
        plain_http_hosts: hosts(&config.sources.plain_http_hosts),
        roots: config.sources.roots.iter().map(PathBuf::from).collect(),
        logins: Logins::of_environment(variable),
        progress: Progress::default(),
    }
}

/// A component by its file alone, with nothing granted.
pub fn bare_source(file: &Path, limits: CallLimits) -> PluginSource {
    plugin_source(PluginConfig::found(file.to_owned(), limits), &Arc::default())
}

/// What stored tasks are sealed with; `None`: nothing is.
pub(crate) fn encryption(config: &Config) -> anyhow::Result<Option<VaultKeys>> {
    let read = |location: &SecretLocation| match location {
        SecretLocation::File(file) => Ok(VaultKeys::from_file(file)?),
        SecretLocation::Variable(name) => {
            let value = variable(name).with_context(|| format!("the environment variable {name} is not set"))?;
            Ok(VaultKeys::from_variable(name, &value)?)
        }
    };
    config.encryption.as_ref().map(read).transpose().map_err(|wrong: anyhow::Error| wrong.context("[encryption]"))
}

/// One variable of the host's environment, for plugins that are granted it.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
