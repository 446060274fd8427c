//! Plugins that the configuration names and whose components are somewhere else: nothing waits for them.
//!
//! A host begins with what is there. What has to be fetched first joins when it has come, as it would have at the
//! start. Invariant: whatever a command has done about such a plugin meanwhile holds; a failure that may pass is tried
//! again, less and less often, and a refusal is not.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::join_all;
use tokio::sync::Semaphore;

use super::start::{ConfiguredPlugin, READ_AT_ONCE, is_known, look};
use super::{Error, Plugins, Policies, Policy, State, pause_after};
use bulkhead_domain::task::PluginVersion;
use bulkhead_metrics::families::SOURCE_CHECKS;
use bulkhead_runtime::{LoadError, PluginSource, Source};

/// What became of one that was waited for.
enum Joined {
    /// It is there.
    Here(PluginVersion),
    /// A command was quicker.
    Elsewhere,
}

impl Plugins {
    /// Counts what became of a component from a folder or from afar; `failed` says of a failure whether it may pass.
    pub(crate) fn count_source(&self, plugin: &str, failed: Option<bool>) {
        let result = match failed {
            None => "taken",
            Some(true) => "failed",
            Some(false) => "refused",
        };
        self.inner.metrics.plugin_event(&SOURCE_CHECKS, plugin, result);
    }

    /// Fetches what is awaited, until all of it has come or was refused. `failed` gets each new reason why a fetch
    /// failed.
    pub async fn fetch_awaited(&self, failed: impl Fn(&LoadError) + Sync) {
        let awaited = self.inner.state.lock().await.awaited.clone();
        // Whoever waits for the next attempt keeps nobody else from theirs.
        let turns = Semaphore::new(READ_AT_ONCE);
        join_all(awaited.iter().map(|wanted| self.fetch_one(wanted, &turns, &failed))).await;
    }

    async fn fetch_one(&self, wanted: &ConfiguredPlugin, turns: &Semaphore, failed: &(impl Fn(&LoadError) + Sync)) {
        let label = wanted.label();
        let source = wanted.component_source.label();
        tracing::info!(plugin.name = label, source, "not there yet: it is fetched, and joins when it has come");
        let mut reported = Vec::new();
        for failures in 1_u32.. {
            // It is never closed.
            let turn = turns.acquire().await;
            let joined = self.join(wanted).await;
            drop(turn);
            self.count_source(&label, joined.as_ref().err().map(Error::is_passing));
            let mut error = match joined {
                Ok(Joined::Here(version)) => {
                    tracing::info!(plugin.name = version.name, source, "it has come, and is offered from now on");
                    return;
                }
                Ok(Joined::Elsewhere) => return,
                Err(Error::Refused(mut errors)) if errors.len() == 1 => errors.remove(0),
                Err(other) => {
                    LoadError { plugin: label.clone(), passing: other.is_passing(), problems: other.problems() }
                }
            };
            if error.passing {
                error.problems.push("it is tried again by itself".to_owned());
            }
            if error.problems != reported {
                failed(&error);
                reported.clone_from(&error.problems);
            }
            let mut state = self.inner.state.lock().await;
            if state.has_come_elsewhere(wanted, &label) {
                return;
            }
            state.broken.insert(label.clone(), error.problems);
            if !error.passing {
                state.no_longer_awaits(wanted);
                return;
            }
            drop(state);
            tokio::time::sleep(pause_after(failures)).await;
        }
    }

    /// Fetches one, and takes it into the table.
    async fn join(&self, wanted: &ConfiguredPlugin) -> Result<Joined, Error> {
        let inner = &self.inner;
        // Its terms may have changed while it was awaited.
        let policy = &inner.state.lock().await.policy_of(wanted);
        if let Some(name) = &policy.source.name
            && self.settled().await?.has_come_elsewhere(wanted, name)
        {
            return Ok(Joined::Elsewhere);
        }
        let refused = |error| Error::Refused(vec![error]);
        let (name, found) = look(&inner.sandbox, policy, &wanted.component_source, |_| true).await.map_err(refused)?;
        let component = Source::File(inner.sandbox.kept().path(&found.digest.0));
        let source = PluginSource { component, name: Some(name.clone()), ..policy.source.clone() };
        let loaded = inner.sandbox.load(source).await;
        let mut state = self.settled().await?;
        if state.has_come_elsewhere(wanted, &name) {
            inner.leave_nothing(&state, &state.table, found.digest).await;
            return Ok(Joined::Elsewhere);
        }
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                inner.leave_nothing(&state, &state.table, found.digest).await;
                return Err(refused(error));
            }
        };
        if !loaded.is_under(&state.policy_of(wanted).source) {
            return Err(Error::Invalid("what the configuration says of it changed meanwhile".to_owned()));
        }
        let mut table = state.table.clone();
        table.push(loaded.clone());
        let clashes = inner.sandbox.clashes(&table, &state.canaries);
        if !clashes.is_empty() {
            inner.leave_nothing(&state, &state.table, found.digest).await;
            return Err(Error::Refused(clashes));
        }
        inner.sandbox.remember(&name, &policy.source);
        inner.health.set_quarantine_after(&name, policy.quarantine_after);
        inner.policies.rcu(|policies| {
            let mut next = Policies::clone(policies);
            next.by_name.insert(name.clone(), policy.clone());
            next
        });
        let version = loaded.version.clone();
        let first = HashMap::from([(name.clone(), found.provenance)]);
        inner.note_first(&mut state, &[loaded], &first).await?;
        let canaries = state.canaries.clone();
        inner.publish(&mut state, table, canaries);
        state.names.insert(wanted.component_source.label(), name.clone());
        state.no_longer_awaits(wanted);
        state.broken.remove(&name);
        state.broken.remove(&wanted.label());
        Ok(Joined::Here(version))
    }
}

impl State {
    /// Whether the plugin is known by now, so that there is nothing to wait for.
    fn has_come_elsewhere(&mut self, wanted: &ConfiguredPlugin, name: &str) -> bool {
        if !is_known(&self.book, name) {
            return false;
        }
        self.no_longer_awaits(wanted);
        self.broken.remove(&wanted.label());
        true
    }

    fn policy_of(&self, wanted: &ConfiguredPlugin) -> Policy {
        let now = self.awaited.iter().find(|other| Arc::ptr_eq(&other.component_source, &wanted.component_source));
        now.unwrap_or(wanted).policy.clone()
    }

    fn no_longer_awaits(&mut self, wanted: &ConfiguredPlugin) {
        self.awaited.retain(|other| !Arc::ptr_eq(&other.component_source, &wanted.component_source));
    }

    /// Says so if a plugin, or what will be one, is still to come.
    pub(super) fn awaited(&self, name: &str) -> Option<String> {
        if self.table.iter().any(|plugin| plugin.version.name == name) {
            return None;
        }
        let wanted = self.awaited.iter().find(|wanted| wanted.label() == name)?;
        Some(format!("not there yet: the running host fetches it from {}", wanted.component_source.label()))
    }
}
