//! What the configuration calls tools.
//!
//! Owns what it must not call them: by the name inside a plugin, where clients see another. Such a key would be passed
//! over, and what it hides or forbids would be open. Owns also what clients refuse of the names that the operator
//! chose.

use super::auth::AuthConfig;
use super::plugin::PluginConfig;
use super::report::{ConfigLocation, Report};
use super::toolset::ToolsetEntry;
use bulkhead_domain::tool_names::{is_for_own_names, portable, refusal, underscored};

/// `[plugin.tool.NAME]`: why no tool has this name for clients.
pub(super) fn check_key(name: &str) -> Result<(), String> {
    match portable(&[name]).as_slice() {
        [shown] if shown != name => Err(format!("clients see no tool by this name, but {shown:?}: write that")),
        _ => Ok(()),
    }
}

/// Names and patterns of toolsets and scopes.
pub(super) fn check(plugins: &[PluginConfig], toolsets: &[ToolsetEntry], auth: &AuthConfig, report: &Report) {
    let wrong = |pattern: &str| {
        let tools = plugins.iter().flat_map(|plugin| plugin.policy.source.tools.values());
        let names = tools.filter_map(|tool| tool.name.as_deref());
        let prefixes = plugins.iter().map(|plugin| plugin.policy.source.prefix.as_str());
        is_for_own_names(pattern, names, prefixes).then(|| {
            let shown: Vec<_> = pattern.split('*').map(underscored).collect();
            format!("{pattern:?} fits no name that clients see: write {:?}", shown.join("*"))
        })
    };
    for entry in toolsets {
        for (key, pattern) in entry.tools() {
            if let Some(wrong) = wrong(pattern) {
                report.add(&entry.location, format!("toolset.{}.{key}.tools: {wrong}", entry.name()));
            }
        }
    }
    for scope in &auth.scopes {
        for wrong in scope.tools.iter().filter_map(|pattern| wrong(pattern)) {
            report.add(&ConfigLocation::Default, format!("auth.scope: tools of {:?}: {wrong}", scope.name));
        }
    }
}

/// The names and prefixes that the operator chose and that clients refuse which take names of so many characters.
pub fn refused_by_clients(plugins: &[PluginConfig], chars_max: usize) -> Vec<String> {
    let of_plugin = |plugin: &PluginConfig| {
        let source = &plugin.policy.source;
        let prefix = Some(source.prefix.as_str()).filter(|prefix| !prefix.is_empty());
        let prefix = prefix.and_then(|prefix| Some(("prefix", prefix, refusal(prefix, usize::MAX)?)));
        let names = source.tools.values().filter_map(|tool| tool.name.as_deref());
        let names = names.filter_map(|name| Some(("name", name, refusal(name, chars_max)?)));
        let name_problem = |(key, text, why)| {
            format!(
                "plugin {}: {key} = {text:?}: {why}; one name that a client refuses can cost it all tools",
                plugin.label()
            )
        };
        prefix.into_iter().chain(names).map(name_problem).collect::<Vec<_>>()
    };
    plugins.iter().flat_map(of_plugin).collect()
}
