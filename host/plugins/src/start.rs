//! Which version of each plugin a host begins with.
//!
//! The configuration names sources and policies, the store remembers what is active. So a source is read once, when its
//! plugin is not known yet; from then on versions come by way of commands. `--plugin` is the exception, for one run. So
//! a host whose plugins are known starts without a network, and nothing that has to be fetched is waited for: see
//! [`deferred_fetch`](super::deferred_fetch).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use futures::future::join_all;
use tokio::sync::{Mutex, Notify};

use super::entry::{Entry, Version};
use super::pinning::accept;
use super::registry::{Draft, PluginRegistry};
use super::staging::Arriving;
use super::{ComponentSource, Digest, Error, Inner, Options, Plugins, Policies, Policy, Provenance, State, version};
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::{Canary, LoadError, LoadedPlugin, PluginSource, Sandbox, Source};
use bulkhead_store as store;

/// A plugin that the configuration or a flag names.
#[derive(Clone, Debug)]
pub struct ConfiguredPlugin {
    /// What it is called, granted and limited to; the component comes from `supply`.
    pub policy: Policy,
    pub component_source: Arc<dyn ComponentSource>,
    /// This very component, whatever the store remembers, and nothing of it is remembered.
    pub pinned: bool,
}

impl ConfiguredPlugin {
    /// What it is called as long as it has no other name.
    pub(super) fn label(&self) -> String {
        self.policy.source.name.clone().unwrap_or_else(|| self.component_source.label())
    }

    /// The plugin that it is, if that is known without looking.
    fn known(&self, book: &PluginRegistry) -> Option<String> {
        let name = self.policy.source.name.clone().or_else(|| name_of(book, &self.component_source.label()));
        name.filter(|name| !self.pinned && is_known(book, name))
    }
}

/// Components that are read and hashed at the same time: each is in memory meanwhile.
pub(super) const READ_AT_ONCE: usize = 8;

/// Where the version of a plugin comes from.
enum Origin {
    /// Its source, for this run.
    Pinned,
    /// Its source, because the store does not know the plugin yet.
    First,
    /// The store.
    Known(Digest),
    /// It was taken out of service; calls of it may be left all the same.
    Removed,
}

/// A plugin that is to be loaded.
struct Plan {
    name: String,
    policy: Policy,
    /// What its source holds at the moment, if that was looked at and can be read.
    found: Option<IdentifiedComponent>,
    origin: Origin,
}

/// A component that was looked at.
pub(super) struct IdentifiedComponent {
    pub(super) digest: Digest,
    pub(super) provenance: Provenance,
    /// For reading it again.
    component_source: Arc<dyn ComponentSource>,
}

impl Plugins {
    /// Loads and publishes what is to run, and remembers what is new.
    ///
    /// Returns what is wrong with the plugins that do not run.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn start(options: Options, wanted: Vec<ConfiguredPlugin>) -> Result<(Self, Vec<LoadError>), Error> {
        let Options { store, sandbox, calls, health, clock, otherwise, tenants, audit, metrics } = options;
        let book = PluginRegistry::read(&*store).await?;
        let mut refused = Vec::new();
        let mut plans: Vec<Plan> = Vec::new();
        let named =
            wanted.iter().filter_map(|wanted| Some((wanted.policy.source.name.clone()?, wanted.policy.clone())));
        let named: Vec<_> = named.collect();
        let (here, awaited): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|wanted| wanted.pinned || wanted.component_source.is_local() || wanted.known(&book).is_some());
        let labels: Vec<_> = here.iter().map(|wanted| wanted.component_source.label()).collect();
        let mut labels = labels.into_iter();
        let mut names = HashMap::new();
        let looked = here.into_iter().map(|wanted| plan(&sandbox, &book, wanted));
        let mut looked = futures::stream::iter(looked).buffered(READ_AT_ONCE);
        while let Some(plan) = looked.next().await {
            let label = labels.next().unwrap_or_default();
            match plan {
                Ok(plan) => {
                    names.insert(label, plan.name.clone());
                    plans.push(plan);
                }
                Err(error) => refused.push(error),
            }
        }
        drop(looked);
        let mut policies: HashMap<_, _> = plans.iter().map(|plan| (plan.name.clone(), plan.policy.clone())).collect();
        // What could not be had now may come by a command later, and is granted and limited to the same then.
        for (name, policy) in named {
            if policies.contains_key(&name) {
                continue;
            }
            if book.get(&name).is_some() {
                plans.push(Plan { name: name.clone(), policy: policy.clone(), found: None, origin: Origin::Removed });
            }
            policies.insert(name, policy);
        }
        for (name, entry) in book.iter().filter(|(name, _)| !policies.contains_key(*name)) {
            if entry.head.configured {
                tracing::info!(plugin.name = name, "not loaded: its entry in the configuration is gone");
                continue;
            }
            let origin = entry.head.active.map_or(Origin::Removed, Origin::Known);
            plans.push(Plan { name: name.clone(), policy: otherwise.clone(), found: None, origin });
        }
        let broken = refused.iter().map(|error| (error.plugin.clone(), error.problems.clone())).collect();
        let inner = Inner {
            store,
            sandbox,
            calls,
            health,
            clock,
            policies: ArcSwap::from_pointee(Policies::new(policies, otherwise, tenants, &book)),
            audit,
            metrics,
            state: Mutex::new(State { book, names, awaited, broken, ..State::default() }),
            drains: Notify::new(),
            lacking: ArcSwap::default(),
            arriving: Arriving::default(),
            adding: Arriving::default(),
        };
        for plan in &mut plans {
            plan.policy = inner.policy(&plan.name);
        }
        let plugins = Self { inner: Arc::new(inner) };
        refused.extend(plugins.begin(plans).await);
        Ok((plugins, refused))
    }

    async fn begin(&self, plans: Vec<Plan>) -> Vec<LoadError> {
        let inner = &self.inner;
        let (removed, plans): (Vec<_>, Vec<_>) =
            plans.into_iter().partition(|plan| matches!(plan.origin, Origin::Removed));
        for plan in removed {
            inner.sandbox.remember(&plan.name, &plan.policy.source);
        }
        let loaded = join_all(plans.iter().map(|plan| self.load(plan))).await;
        let mut state = inner.state.lock().await;
        let mut table = Vec::<LoadedPlugin>::new();
        let mut refused = Vec::new();
        let mut first = HashMap::new();
        let mut left = Vec::new();
        for (plan, loaded) in plans.into_iter().zip(loaded) {
            if matches!(plan.origin, Origin::Pinned) {
                tracing::info!(plugin.name = plan.name, "pinned by --plugin for this run");
                state.pinned.insert(plan.name.clone());
            }
            if table.iter().any(|other| other.version.name == plan.name) {
                let problems = vec!["there is another plugin of this name: set `name` in the configuration".to_owned()];
                refused.push(LoadError::refused(plan.name, problems));
                continue;
            }
            inner.sandbox.remember(&plan.name, &plan.policy.source);
            inner.health.set_quarantine_after(&plan.name, plan.policy.quarantine_after);
            let is_known = matches!(plan.origin, Origin::Known(_));
            let loaded = loaded.map_err(|error| inner.with_way_out(&state.book, &plan, error));
            let accepted = loaded.and_then(|plugin| match is_known {
                true => inner.accepted(&state.book, plugin),
                false => Ok(plugin),
            });
            match accepted {
                Ok(plugin) => {
                    if matches!(plan.origin, Origin::First) {
                        first.insert(plan.name, plan.found.map(|found| found.provenance).unwrap_or_default());
                    }
                    table.push(plugin);
                }
                Err(error) => {
                    refused.push(error);
                    let came = plan.found.filter(|_| !is_known);
                    left.extend(came.map(|found| found.digest));
                }
            }
        }
        // Only the whole table says whether something else is made of it.
        for digest in left {
            inner.leave_nothing(&state, &table, digest).await;
        }
        let (canaries, without) = self.load_canaries(&state.book, &table, &state.pinned).await;
        refused.extend(without);
        refused.extend(inner.publish(&mut state, table, canaries));
        for error in &refused {
            state.note_broken(error);
        }
        let table = state.table.clone();
        if let Err(error) = inner.note_first(&mut state, &table, &first).await {
            tracing::warn!(%error, "new plugins run, but the store cannot remember them");
        }
        refused
    }

    /// The canaries that the store remembers of these plugins, and what is wrong with those that cannot run: there,
    /// everybody has the active version.
    pub(super) async fn load_canaries(
        &self,
        book: &PluginRegistry,
        table: &[LoadedPlugin],
        pinned: &HashSet<String>,
    ) -> (Vec<Canary>, Vec<LoadError>) {
        let names = table.iter().map(|plugin| plugin.version.name.as_str()).filter(|name| !pinned.contains(*name));
        let mut canaries = Vec::new();
        let mut lost = Vec::new();
        for canary in join_all(names.map(|name| self.load_canary(book, name))).await.into_iter().flatten() {
            match canary {
                Ok(canary) => canaries.push(canary),
                Err(error) => lost.push(error),
            }
        }
        (canaries, lost)
    }

    async fn load_canary(&self, book: &PluginRegistry, name: &str) -> Option<Result<Canary, LoadError>> {
        let inner = &self.inner;
        let row = book.get(name)?.head.canary.as_ref()?;
        let source = PluginSource { name: Some(name.to_owned()), ..inner.policy(name).source.clone() };
        let loaded = inner.load_kept(&version(name, row.version), &source).await;
        let accepted = loaded.and_then(|plugin| inner.accepted(book, plugin));
        let say = |problem: &String| format!("the canary does not run: {problem}");
        Some(match accepted {
            Ok(plugin) => Ok(Canary { plugin, route: row.route(name) }),
            Err(LoadError { plugin, problems, passing }) => {
                Err(LoadError { plugin, problems: problems.iter().map(say).collect(), passing })
            }
        })
    }

    async fn load(&self, plan: &Plan) -> Result<LoadedPlugin, LoadError> {
        let sandbox = &self.inner.sandbox;
        // The name is settled: two ways to it must not give two names.
        let source = PluginSource { name: Some(plan.name.clone()), ..plan.policy.source.clone() };
        let digest = match (&plan.origin, &plan.found) {
            (Origin::Known(digest), _) => digest.0,
            // It was kept when it was found.
            (_, Some(found)) => {
                let component = Source::File(sandbox.kept().path(&found.digest.0));
                return sandbox.load(PluginSource { component, ..source }).await;
            }
            (_, None) => return Err(unreadable(&plan.name, "its component was not read".to_owned())),
        };
        let version = version(&plan.name, Digest(digest));
        match (self.inner.load_kept(&version, &source).await, &plan.found) {
            // Its kept component may be damaged; its source has it still.
            (Err(_), Some(found)) if found.digest.0 == digest => {
                let again = found
                    .component_source
                    .fetch()
                    .await
                    .map_err(|error| LoadError { plugin: plan.name.clone(), ..error })?;
                let kept = again.keep(sandbox, digest).await;
                kept.map_err(|error| unreadable(&plan.name, format!("it cannot be kept: {error}")))?;
                sandbox.load_kept(&version, &source).await
            }
            (loaded, _) => loaded,
        }
    }
}

impl Inner {
    /// What is wrong with a plugin whose component is not there any more, with the command that brings it back.
    fn with_way_out(&self, book: &PluginRegistry, plan: &Plan, mut error: LoadError) -> LoadError {
        let Origin::Known(digest) = &plan.origin else { return error };
        let Some(way_out) = self.way_out(book, &plan.name, digest) else { return error };
        self.set_lacking(&plan.name, true);
        error.problems.push(way_out);
        error
    }

    /// The command that brings a component back which is not there any more.
    pub(super) fn way_out(&self, book: &PluginRegistry, name: &str, digest: &Digest) -> Option<String> {
        if !self.sandbox.kept().is_missing(&digest.0) {
            return None;
        }
        let version = book.get(name).and_then(|entry| entry.versions.get(digest));
        let source = version.map(|version| version.source.as_str()).filter(|source| !source.is_empty());
        let source = source.unwrap_or("SOURCE");
        Some(format!("`bulkhead plugin add {source} --name {name}` brings its component back"))
    }

    pub(super) fn set_lacking(&self, name: &str, is_lacking: bool) {
        self.lacking.rcu(|lacking| {
            let mut next = BTreeSet::clone(lacking);
            if is_lacking {
                next.insert(name.to_owned())
            } else {
                next.remove(name)
            };
            next
        });
    }
}

fn unreadable(plugin: &str, problem: String) -> LoadError {
    LoadError::refused(plugin, vec![problem])
}

/// Looks at a source, if it has to be looked at, and decides what the plugin begins with.
async fn plan(sandbox: &Arc<Sandbox>, book: &PluginRegistry, wanted: ConfiguredPlugin) -> Result<Plan, LoadError> {
    let known = wanted.known(book);
    let ConfiguredPlugin { policy, component_source, pinned } = wanted;
    let looked = match &known {
        Some(_) if !component_source.is_local() => None,
        _ => Some(look(sandbox, &policy, &component_source, |name| pinned || !is_known(book, name)).await),
    };
    let (name, found) = match (looked, known) {
        (Some(Ok((name, found))), _) => (name, Some(found)),
        (None, Some(name)) => (name, None),
        // Its file may have gone since, or is not trusted any more; the store has what is needed.
        (Some(Err(error)), Some(name)) => {
            tracing::warn!(plugin.name = name, %error, "the configured source is not looked at");
            (name, None)
        }
        (Some(Err(error)), None) => return Err(error),
        (None, None) => return Err(unreadable(&component_source.label(), "it has no name".to_owned())),
    };
    let head = book.get(&name).map(|entry| &entry.head);
    let origin = match head.map(|head| (head.active, head.previous)) {
        _ if pinned => Origin::Pinned,
        None | Some((None, None)) => Origin::First,
        Some((Some(active), _)) => {
            if let Some(found) = found.as_ref().filter(|found| found.digest != active) {
                tracing::warn!(
                    plugin.name = name,
                    active = %active,
                    in_file = %found.digest,
                    "the configured file is not the active version: `bulkhead plugin add FILE` switches to it"
                );
            }
            Origin::Known(active)
        }
        Some((None, Some(_))) => {
            tracing::info!(plugin.name = name, "not loaded: it was removed; `bulkhead plugin rollback` brings it back");
            Origin::Removed
        }
    };
    Ok(Plan { name, policy, found, origin })
}

/// The configured plugin that came from there before. What is there now may not say its name, or not be trusted.
fn name_of(book: &PluginRegistry, source: &str) -> Option<String> {
    let came = |entry: &Entry| {
        let active = entry.head.active.and_then(|active| entry.versions.get(&active));
        entry.head.configured && active.is_some_and(|version| version.source == source)
    };
    book.iter().find(|(_, entry)| came(entry)).map(|(name, _)| name.clone())
}

/// The component of a plugin as it would be loaded at a first start, in the data directory of the sandbox. For looking
/// only.
///
/// # Errors
///
/// It cannot be had, or may not be trusted.
pub async fn component(sandbox: &Arc<Sandbox>, wanted: &ConfiguredPlugin) -> Result<PluginSource, LoadError> {
    let ConfiguredPlugin { policy, component_source, .. } = wanted;
    let (name, found) = look(sandbox, policy, component_source, |_| true).await?;
    let component = Source::File(sandbox.kept().path(&found.digest.0));
    Ok(PluginSource { component, name: Some(name), ..policy.source.clone() })
}

/// Whether the store remembers a version of it that is or was active.
pub(super) fn is_known(book: &PluginRegistry, name: &str) -> bool {
    book.get(name).is_some_and(|entry| entry.head.active.or(entry.head.previous).is_some())
}

/// Reads a component; one that is about to be loaded is kept.
pub(super) async fn look(
    sandbox: &Arc<Sandbox>,
    policy: &Policy,
    component_source: &Arc<dyn ComponentSource>,
    is_loaded: impl Fn(&str) -> bool,
) -> Result<(String, IdentifiedComponent), LoadError> {
    let label = policy.source.name.clone().unwrap_or_else(|| component_source.label());
    let candidate = component_source.fetch().await.map_err(|error| LoadError { plugin: label.clone(), ..error })?;
    let mut version = candidate.identify(sandbox, &policy.source).await;
    if let (Err(error), None) = (&mut version, &policy.source.name) {
        error.plugin = label;
    }
    let PluginVersion { name, digest } = version?;
    let found = IdentifiedComponent {
        digest: Digest(digest),
        provenance: candidate.provenance.clone(),
        component_source: Arc::clone(component_source),
    };
    if is_loaded(&name) {
        let kept = candidate.keep(sandbox, digest).await;
        kept.map_err(|error| LoadError::passing(&name, format!("it cannot be kept in the data directory: {error}")))?;
    }
    Ok((name, found))
}

/// How often a start notes its plugins again because another host has noted some meanwhile.
const FIRST_TRIES_MAX: usize = 16;

impl Inner {
    /// Removes what was kept of a component that was refused, unless something else is made of it.
    pub(super) async fn leave_nothing(&self, state: &State, table: &[LoadedPlugin], digest: Digest) {
        let in_book = |digest: &Digest| state.book.iter().any(|(_, entry)| entry.versions.contains_key(digest));
        let runs = |digest: &Digest| table.iter().any(|plugin| plugin.version.digest == digest.0);
        if in_book(&digest) || runs(&digest) {
            return;
        }
        let sandbox = Arc::clone(&self.sandbox);
        let removed = tokio::task::spawn_blocking(move || sandbox.remove_kept(&digest.0)).await;
        if let Err(error) = removed.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            tracing::warn!(%error, "a refused component cannot be removed");
        }
    }

    /// Remembers plugins that came by way of the configuration. What they offer is accepted: the operator named them.
    pub(super) async fn note_first(
        &self,
        state: &mut State,
        plugins: &[LoadedPlugin],
        first: &HashMap<String, Provenance>,
    ) -> Result<(), Error> {
        for _ in 0..FIRST_TRIES_MAX {
            let Some(draft) = self.first_draft(state, plugins, first) else { return Ok(()) };
            match state.book.commit(&*self.store, draft).await {
                // Another host begins at the same time, and noted some of them: what it noted stays, and the others are
                // noted again.
                Err(store::Error::Conflict) => {}
                done => return Ok(done?),
            }
        }
        Err(store::Error::Conflict.into())
    }

    /// What is to be remembered of those that nobody has noted; `None`: nothing.
    fn first_draft(
        &self,
        state: &State,
        plugins: &[LoadedPlugin],
        first: &HashMap<String, Provenance>,
    ) -> Option<Draft> {
        let now = self.clock.now();
        let mut draft = None;
        for plugin in plugins {
            let name = &plugin.version.name;
            let Some(provenance) = first.get(name).filter(|_| !is_known(&state.book, name)) else { continue };
            let digest = Digest(plugin.version.digest);
            let size = std::fs::metadata(self.sandbox.kept().path(&digest.0)).map_or(0, |file| file.len());
            let entry = draft.get_or_insert_with(Draft::default).entry(&state.book, name);
            let version = entry.versions.entry(digest).or_insert_with(|| Version::staged(provenance, size, now));
            (version.checked_at, version.tools) = (version.checked_at.or(Some(now)), plugin.tools.len());
            entry.head.configured = true;
            entry.activate(Some(digest), now);
            accept(entry, plugin);
        }
        draft
    }
}
