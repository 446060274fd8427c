//! From files, environment and flags to a configuration; from a configuration to what the runtime loads.

use std::path::Path;

use anyhow::Context as _;
use bulkhead::config::{Config, File, Flags, Insecure, OnRestart, PluginConfig, ToolConfig};
use bulkhead::domain::limits::CallLimits;
use bulkhead::plugins::{Policy, Wanted};
use bulkhead::runtime::{PluginSource, Source, ToolPolicy};

use super::args::SourceArguments;

/// Reads everything that says how the host should be.
pub(crate) fn load(sources: &SourceArguments, listen: Option<&str>) -> anyhow::Result<Config> {
    load_as(sources, listen, Insecure::default())
}

/// The same with what a host is allowed although it is not safe.
pub(crate) fn load_as(sources: &SourceArguments, listen: Option<&str>, insecure: Insecure) -> anyhow::Result<Config> {
    let text = match &sources.config {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("the configuration file {} cannot be read", path.display()))?,
        ),
        None => None,
    };
    let file = sources.config.as_deref().zip(text.as_deref()).map(|(path, text)| File { path, text });
    let flags = Flags {
        listen: listen.map(str::to_owned),
        data: sources.data.clone(),
        plugins: sources.plugins.clone(),
        plugin_dirs: sources.plugin_dirs.clone(),
        insecure,
    };
    // A variable that is not UTF-8 is none of ours: all of our names and values are.
    let variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    Ok(Config::load(file, variables, &flags)?)
}

/// Every plugin to load: those of the configuration and the flags, then those of the folders by name.
pub(crate) fn plugins(config: &Config) -> anyhow::Result<Vec<PluginConfig>> {
    let mut plugins = config.plugins.clone();
    for folder in &config.plugin_dirs {
        for file in
            components(folder).with_context(|| format!("the plugin folder {} cannot be read", folder.display()))?
        {
            let known = plugins.iter().any(|plugin| same_file(&plugin.file, &file));
            if !known {
                plugins.push(PluginConfig::found(file, config.call.clone()));
            }
        }
    }
    Ok(plugins)
}

fn components(folder: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
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
    a == b || a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// What the runtime needs to know of a plugin.
pub(crate) fn plugin_source(plugin: PluginConfig) -> PluginSource {
    let policy = |tool: ToolConfig| ToolPolicy {
        task_support: tool.task_support,
        presentation: tool.presentation,
        limits: tool.call,
    };
    PluginSource {
        component: Source::File(plugin.file),
        name: plugin.name,
        prefix: plugin.prefix,
        config: plugin.settings,
        grants: plugin.grants,
        limits: plugin.call,
        tools: plugin.tools.into_iter().map(|(name, tool)| (name, policy(tool))).collect(),
        rerun: plugin.on_restart == OnRestart::Rerun,
    }
}

/// What is known of a plugin beside its component, and how it changes.
pub(crate) fn policy(plugin: PluginConfig) -> Policy {
    Policy {
        accept_changes: plugin.accept_changes,
        drain_ms: plugin.drain_ms,
        drain_then: plugin.drain_then,
        quarantine_after: plugin.quarantine_after,
        source: plugin_source(plugin),
    }
}

/// A plugin that the configuration does not name: nothing is granted to it.
pub(crate) fn otherwise(config: &Config) -> Policy {
    policy(PluginConfig::found(std::path::PathBuf::new(), config.call.clone()))
}

/// Every plugin to begin with.
pub(crate) fn wanted(config: &Config) -> anyhow::Result<Vec<Wanted>> {
    let wanted = |plugin: PluginConfig| Wanted { pinned: plugin.pinned, policy: policy(plugin) };
    Ok(plugins(config)?.into_iter().map(wanted).collect())
}

/// A component by its file alone, with nothing granted.
pub(crate) fn bare_source(file: &Path, limits: CallLimits) -> PluginSource {
    plugin_source(PluginConfig::found(file.to_owned(), limits))
}

/// One variable of the host's environment, for plugins that are granted it.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
