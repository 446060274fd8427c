//! Other terms for plugins that run: what the operator grants, limits and says about them, changed while the host runs.
//!
//! Invariant: the new terms of all plugins were checked, with everything that a switch checks, before the first of them
//! holds; then they hold for all calls that begin from there on. Calls under way keep the terms that they began with.
//! Terms never make an MCP server of a program that runs, nor the other way round: that is another definition, which
//! waits until the operator activates the version.

use std::collections::HashMap;

use tokio::sync::MutexGuard;

use super::{AcceptChanges, Digest, Error, Pinning, Plugins, Policies, Policy, State};
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::{Canary, LoadError, LoadedPlugin, PluginSource};

/// What the operator says about one plugin.
#[derive(Clone, Debug)]
pub struct NamedPolicy {
    /// `None`: as the component says; it is known by its source then.
    pub name: Option<String>,
    /// As [`ComponentSource::label`](super::ComponentSource::label) says.
    pub label: String,
    pub policy: Policy,
}

/// Terms that can be taken over. No plugin changes in any other way while this exists.
pub struct PreparedPolicies<'a> {
    plugins: &'a Plugins,
    state: MutexGuard<'a, State>,
    policies: Policies,
    /// For those that are still to come.
    by_label: HashMap<String, Policy>,
    table: Vec<LoadedPlugin>,
    canaries: Vec<Canary>,
    /// Versions that calls are left of.
    older: Vec<LoadedPlugin>,
    /// Those of them that cannot run on their new terms.
    lost: Vec<PluginVersion>,
    /// What is not what was accepted, and passes on the new terms.
    shown: Vec<(PluginVersion, Vec<String>)>,
}

impl Plugins {
    /// Checks other terms against everything that runs. `tenants`: those that have a say of their own about definitions
    /// that change.
    ///
    /// # Errors
    ///
    /// A plugin cannot run on its new terms, or offers by them what another one offers, or what was not accepted.
    pub async fn prepare(
        &self,
        terms: Vec<NamedPolicy>,
        otherwise: Policy,
        tenants: HashMap<TenantId, Pinning>,
    ) -> Result<PreparedPolicies<'_>, Error> {
        let inner = &self.inner;
        let state = self.settled().await?;
        let mut by_name = HashMap::new();
        let mut by_label = HashMap::new();
        for NamedPolicy { name, label, policy } in terms {
            by_label.insert(label.clone(), policy.clone());
            // What could not be loaded at the start has no name yet.
            if let Some(name) = name.or_else(|| state.names.get(&label).cloned()) {
                by_name.insert(name, policy);
            }
        }
        let policies = Policies::new(by_name, otherwise, tenants, &state.book);
        let mut problems = Vec::new();
        let mut shown = Vec::new();
        let mut table = Vec::with_capacity(state.table.len());
        for plugin in &state.table {
            match self.under(&state, plugin, &policies, &mut shown).await {
                Ok(plugin) => table.push(plugin),
                Err(error) => problems.push(error),
            }
        }
        let mut canaries = Vec::with_capacity(state.canaries.len());
        for canary in &state.canaries {
            match self.under(&state, &canary.plugin, &policies, &mut shown).await {
                Ok(plugin) => canaries.push(Canary { plugin, route: canary.route.clone() }),
                Err(error) => problems.push(error),
            }
        }
        if problems.is_empty() {
            problems = inner.sandbox.clashes(&table, &canaries);
        }
        if !problems.is_empty() {
            return Err(Error::Refused(problems));
        }
        let mut older = Vec::new();
        let mut lost = Vec::new();
        for version in inner.sandbox.ready_versions().into_iter().filter(|ready| !state.runs(&ready.version)) {
            let source = of_the_same_kind(&version, terms_of(&policies, &version.version.name));
            match inner.sandbox.under(&version, &source).await {
                Ok(version) => older.push(version),
                // It is made ready again when a call of it begins, or fails with a reason then.
                Err(error) => {
                    tracing::warn!(%error, "an older version cannot run on its new terms");
                    lost.push(version.version);
                }
            }
        }
        Ok(PreparedPolicies { plugins: self, state, policies, by_label, table, canaries, older, lost, shown })
    }

    /// A version on other terms, if they are others, and if what it lists may be listed on them.
    async fn under(
        &self,
        state: &State,
        plugin: &LoadedPlugin,
        policies: &Policies,
        shown: &mut Vec<(PluginVersion, Vec<String>)>,
    ) -> Result<LoadedPlugin, LoadError> {
        let version = &plugin.version;
        let source = terms_of(policies, &plugin.version.name);
        let say = |policies: &Policies| {
            policies.pinning_decision(&version.name, state.book.get(&version.name), &Digest(version.digest))
        };
        let is_under = plugin.is_under(&source);
        if is_under && say(policies) == say(&self.inner.policies.load()) {
            return Ok(plugin.clone());
        }
        let running = plugin;
        let mut plugin = if is_under { running.clone() } else { self.inner.sandbox.under(running, &source).await? };
        if state.pinned.contains(&version.name) {
            return Ok(plugin);
        }
        let is_of_another_kind = plugin.mcp_server().is_some() != running.mcp_server().is_some();
        if is_of_another_kind && say(policies).passing != AcceptChanges::Anything {
            plugin = self.inner.sandbox.under(running, &of_the_same_kind(running, source)).await?;
            let advice = waiting_for_acceptance(version);
            tracing::warn!(plugin.name = version.name, advice, "an accepted definition goes on being used");
        }
        let unlike = policies.unlike(&state.book, &plugin, |_| true);
        if !unlike.held.is_empty() {
            return Err(LoadError::refused(&version.name, unlike.held));
        }
        shown.push((version.clone(), unlike.shown));
        Ok(plugin)
    }
}

impl PreparedPolicies<'_> {
    /// Takes the terms over, for all plugins at once.
    pub fn take_over(mut self) {
        let inner = &self.plugins.inner;
        inner.sandbox.remember_others(|name| terms_of(&self.policies, name));
        for name in self.policies.by_name.keys() {
            let policy = self.policies.of(name);
            inner.sandbox.remember(name, &policy.source);
            inner.health.set_quarantine_after(name, policy.quarantine_after);
        }
        for wanted in &mut self.state.awaited {
            if let Some(policy) = self.by_label.get(&wanted.component_source.label()) {
                wanted.policy = policy.clone();
            }
        }
        inner.policies.store(std::sync::Arc::new(self.policies));
        for error in inner.publish(&mut self.state, self.table, self.canaries) {
            self.state.broken.insert(error.plugin, error.problems);
        }
        inner.sandbox.replace_ready(self.older, &self.lost);
        // What was loaded to be switched to is loaded again, on the new terms.
        self.state.fresh.clear();
        for (version, changes) in &self.shown {
            inner.show(version, changes);
        }
        drop(self.state);
        inner.drains.notify_one();
    }
}

/// Other terms for a version that stays the MCP server or the program that it is.
fn of_the_same_kind(plugin: &LoadedPlugin, terms: PluginSource) -> PluginSource {
    PluginSource { mcp: plugin.terms().mcp.clone(), ..terms }
}

/// What operators are told of a version that goes on as what it was, although the configuration makes something else of
/// it.
pub(super) fn waiting_for_acceptance(version: &PluginVersion) -> String {
    let name = &version.name;
    let digest = Digest(version.digest);
    format!(
        "what `mcp` of the configuration makes of it waits for your word: `bulkhead plugin changes {name}@{digest}` shows it, \
         `bulkhead plugin activate {name}@{digest}` accepts it"
    )
}

fn terms_of(policies: &Policies, name: &str) -> PluginSource {
    PluginSource { name: Some(name.to_owned()), ..policies.of(name).source.clone() }
}
