//! What is different in another configuration, and what of it a running host can take over.

use std::fmt::Debug;

use super::config::Config;
use super::key::Bound;
use super::keys;
use super::plugin::PluginConfig;
use super::report::ConfigLocation;
use super::trust::TrustConfig;

/// The differences between two configurations, by the names of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// A running host can take these over.
    pub live: Vec<String>,
    /// These are read at the start only.
    pub at_start: Vec<String>,
}

impl Config {
    /// What another configuration would change.
    pub fn differences(&self, other: &Self) -> Differences {
        let mut names = Vec::new();
        section(keys::SERVER, &self.server, &other.server, &mut names);
        section(keys::LIMITS, &self.limits, &other.limits, &mut names);
        section(keys::CALL, &self.call, &other.call, &mut names);
        section(keys::COMPILE, &self.compile, &other.compile, &mut names);
        section(keys::LOG, &self.log, &other.log, &mut names);
        section(keys::AUDIT, &self.audit, &other.audit, &mut names);
        section(keys::SOURCES, &self.sources, &other.sources, &mut names);
        let mut found = Differences::default();
        (found.live, found.at_start) = names.into_iter().partition(|name| is_live(name));
        let mut differ = |name: &str, differs: bool, live: bool| {
            let list = if live { &mut found.live } else { &mut found.at_start };
            list.extend(differs.then(|| name.to_owned()));
        };
        differ("server.tls", self.tls != other.tls, false);
        differ("secrets", self.secrets != other.secrets, false);
        differ("encryption", self.encryption != other.encryption, false);
        differ("store", self.database != other.database, false);
        differ("cluster", self.cluster != other.cluster, false);
        differ("traces", self.traces != other.traces, false);
        differ("admin", self.admin != other.admin, false);
        differ("metrics", self.metrics != other.metrics, false);
        differ("dashboard", self.dashboard != other.dashboard, false);
        differ("auth.resource", self.auth.resource != other.auth.resource, false);
        differ("auth.issuer", self.auth.issuers != other.auth.issuers, true);
        differ("auth.scope", self.auth.scopes != other.auth.scopes, true);
        let is_open = |config: &Self| config.auth.anonymous_loopback.is_some();
        differ("auth.anonymous_loopback", is_open(self) != is_open(other), true);
        let rules = |config: &Self| {
            // The line that a rule stands in is no difference.
            let rules =
                config.trust.iter().map(|rule| TrustConfig { location: ConfigLocation::Default, ..rule.clone() });
            rules.collect::<Vec<_>>()
        };
        differ("toolset", self.toolsets != other.toolsets, true);
        differ("trust", rules(self) != rules(other), true);
        let names = self.tenants.keys().chain(other.tenants.keys().filter(|name| !self.tenants.contains_key(*name)));
        for name in names {
            // A tenant that the file does not name has what everybody has.
            let limits = |config: &Self| config.tenants.get(name).map_or(&config.limits, |own| &own.limits).clone();
            differ(&format!("tenant.{name}.limits"), limits(self) != limits(other), true);
            let weight = |config: &Self| config.tenants.get(name).map_or(1, |own| own.cpu_weight);
            differ(&format!("tenant.{name}.cpu_weight"), weight(self) != weight(other), true);
            let grants = |config: &Self| config.tenants.get(name).map(|own| own.grants.clone()).unwrap_or_default();
            differ(&format!("tenant.{name}.grants"), grants(self) != grants(other), true);
            let pinning = |config: &Self| config.tenants.get(name).and_then(|own| own.changed_definitions);
            differ(&format!("tenant.{name}.changed_definitions"), pinning(self) != pinning(other), true);
        }
        // Which plugins there are, and where they come from, is settled at the start, and by commands from then on.
        for plugin in other.plugins.iter().filter(|plugin| !self.plugins.iter().any(|known| is_same(known, plugin))) {
            differ(&format!("plugin {} (it is new, or comes from elsewhere)", plugin.label()), true, false);
        }
        for plugin in &self.plugins {
            match other.plugins.iter().find(|other| is_same(plugin, other)) {
                Some(other) => differ(&format!("plugin {}", plugin.label()), terms(plugin) != terms(other), true),
                None => {
                    differ(&format!("plugin {} (it is gone, or comes from elsewhere)", plugin.label()), true, false)
                }
            }
        }
        found
    }
}

/// Keys of the table that a running host can take over.
fn is_live(name: &str) -> bool {
    let at_start = ["limits.calls_running_total", "limits.calls_resting_total", "call.epoch_tick_ms"];
    let live = ["limits.", "call.", "sources."];
    let single = ["log.level", "log.slow_ms", "server.tools_per_page", "server.tool_search"];
    single.contains(&name) || (live.iter().any(|section| name.starts_with(section)) && !at_start.contains(&name))
}

fn section<S: Clone>(bounds: &[Bound<S>], ours: &S, theirs: &S, names: &mut Vec<String>) {
    let mut ours = ours.clone();
    let mut theirs = theirs.clone();
    for bound in bounds {
        let text = |field: &mut dyn super::key::Field| format!("{:?}", field as &dyn Debug);
        if text((bound.field)(&mut ours)) != text((bound.field)(&mut theirs)) {
            names.push(bound.key.path());
        }
    }
}

fn is_same(one: &PluginConfig, other: &PluginConfig) -> bool {
    let from = |plugin: &PluginConfig| (plugin.source.clone(), plugin.compose.clone(), plugin.sha256);
    let which = |plugin: &PluginConfig| (plugin.name().cloned(), from(plugin), plugin.pinned);
    which(one) == which(other)
}

/// A plugin without the line that it stands in.
fn terms(plugin: &PluginConfig) -> PluginConfig {
    PluginConfig { location: ConfigLocation::Default, ..plugin.clone() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{File, Flags};

    fn config(text: &str) -> Config {
        let file = File { path: Path::new("bulkhead.toml"), text };
        Config::load(Some(file), Vec::new(), &Flags::default()).unwrap()
    }

    fn differences(one: &str, other: &str) -> (Vec<String>, Vec<String>) {
        let found = config(one).differences(&config(other));
        assert_eq!(config(other).differences(&config(other)), Differences::default());
        (found.live, found.at_start)
    }

    #[test]
    fn config_changes_are_split_into_live_and_restart_only() {
        let live = |names: &[&str]| (names.iter().map(|name| (*name).to_owned()).collect(), Vec::<String>::new());
        let limits = "[limits]\nrequests_per_second = 7\n[log]\nlevel = 'debug'\n[tenant.acme.limits]\nsteer_queue = 1";
        assert_eq!(differences("", limits), live(&["limits.requests_per_second", "log.level", "tenant.acme.limits"]));
        assert_eq!(differences("", "# a comment\n\n"), live(&[]));
        let plugin = "[[plugin]]\nname = 'a'\nfile = 'a.wasm'\n";
        assert_eq!(differences(plugin, &format!("\n\n{plugin}")), live(&[]), "another line is no difference");
        assert_eq!(differences(plugin, &format!("{plugin}prefix = 'x_'")), live(&["plugin a"]));
        let tenant = "[tenant.acme]\ncpu_weight = 3\nchanged_definitions = 'hold'\n[tenant.acme.grants]\nhttp = []";
        let names = ["tenant.acme.cpu_weight", "tenant.acme.grants", "tenant.acme.changed_definitions"];
        assert_eq!(differences("", tenant), live(&names));
        assert_eq!(differences(tenant, ""), live(&names), "also when the tenant is gone from the file");
        assert_eq!(differences("", "[tenant.acme]\ncpu_weight = 1\n[tenant.acme.grants]"), live(&[]));
        let listing = "[server]\ntools_per_page = 7\ntool_search = true\n[[toolset]]\nname = 'a'";
        assert_eq!(differences("", listing), live(&["server.tools_per_page", "server.tool_search", "toolset"]));
        let open = "[auth]\nanonymous_loopback = true";
        assert_eq!(differences("", open), live(&["auth.anonymous_loopback"]));
        assert_eq!(differences(open, &format!("\n{open}")), live(&[]), "another line is no difference");
        assert_eq!(differences("[auth]\nanonymous_loopback = false", ""), live(&[]));
        let at_start = |one: &str, other: &str| differences(one, other).1;
        assert_eq!(at_start("", "[server]\nlisten = '127.0.0.1:1'\ndrain_ms = 1").len(), 2);
        assert_eq!(at_start("", "[limits]\ncalls_running_total = 100"), ["limits.calls_running_total"]);
        assert_eq!(at_start("", plugin).len(), 1);
        assert_eq!(at_start(plugin, &plugin.replace("a.wasm", "b.wasm")).len(), 2);
        assert_eq!(at_start("", "[admin]\nlisten = '127.0.0.1:1'\ntoken_file = 'x'"), ["admin"]);
        assert_eq!(at_start("", "[dashboard]\nlisten = '127.0.0.1:1'"), ["dashboard"]);
    }
}
