//! Which version of each plugin a host begins with.
//!
//! The configuration names sources and policies, the store remembers what is active. So a source is read once, when its plugin is
//! not known yet; from then on versions come by way of commands. `--plugin` is the exception, for one run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::join_all;
use tokio::sync::{Mutex, Notify};

use super::book::{Book, Draft, Version};
use super::definition::hashes;
use super::{Digest, Error, Inner, Options, Plugins, Policy, State, version};
use crate::domain::task::PluginVersion;
use crate::runtime::{Canary, LoadError, LoadedPlugin, PluginSource, Source};

/// A plugin that the configuration or a flag names.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its component is the file that is named.
    pub policy: Policy,
    /// This very file, whatever the store remembers, and nothing of it is remembered.
    pub pinned: bool,
}

/// Where the version of a plugin comes from.
enum Origin {
    /// The file, for this run.
    Pinned,
    /// The file, because the store does not know the plugin yet.
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
    /// What the file holds at the moment, if it can be read.
    file: Option<Digest>,
    origin: Origin,
}

impl Plugins {
    /// Loads and publishes what is to run, and remembers what is new.
    ///
    /// Gives back what is wrong with the plugins that do not run.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn start(options: Options, wanted: Vec<Wanted>) -> Result<(Self, Vec<LoadError>), Error> {
        let Options { store, sandbox, calls, clock, otherwise } = options;
        let book = Book::read(&*store).await?;
        let identified = join_all(wanted.iter().map(|wanted| sandbox.identify(wanted.policy.source.clone()))).await;
        let mut refused = Vec::new();
        let mut plans: Vec<Plan> = Vec::new();
        for (wanted, file) in wanted.into_iter().zip(identified) {
            match plan(&book, wanted, file) {
                Ok(plan) => plans.push(plan),
                Err(error) => refused.push(error),
            }
        }
        let policies: HashMap<_, _> = plans.iter().map(|plan| (plan.name.clone(), plan.policy.clone())).collect();
        for (name, entry) in book.iter().filter(|(name, _)| !policies.contains_key(*name)) {
            if entry.head.configured {
                tracing::info!(plugin.name = name, "not loaded: its entry in the configuration is gone");
                continue;
            }
            let origin = entry.head.active.map_or(Origin::Removed, Origin::Known);
            plans.push(Plan { name: name.clone(), policy: otherwise.clone(), file: None, origin });
        }
        let inner = Inner {
            store,
            sandbox,
            calls,
            clock,
            policies,
            otherwise,
            state: Mutex::new(State { book, ..State::default() }),
            drains: Notify::new(),
        };
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
        let routed = plans.iter().filter(|plan| matches!(plan.origin, Origin::Known(_)));
        let routed = routed.map(|plan| self.load_canary(&state.book, &plan.name, &plan.policy.source));
        let (mut canaries, mut lost) = (Vec::new(), Vec::new());
        for canary in join_all(routed).await.into_iter().flatten() {
            match canary {
                Ok(canary) => canaries.push(canary),
                Err(error) => lost.push(error),
            }
        }
        let (mut table, mut refused, mut first) = (Vec::<LoadedPlugin>::new(), Vec::new(), HashSet::new());
        for (plan, loaded) in plans.into_iter().zip(loaded) {
            if matches!(plan.origin, Origin::Pinned) {
                tracing::info!(plugin.name = plan.name, "pinned by --plugin for this run");
                state.pinned.insert(plan.name.clone());
            }
            if table.iter().any(|other| other.version.name == plan.name) {
                let problems = vec!["there is another plugin of this name: set `name` in the configuration".to_owned()];
                refused.push(LoadError { plugin: plan.name, problems });
                continue;
            }
            inner.sandbox.remember(&plan.name, &plan.policy.source);
            inner.calls.quarantine_after(&plan.name, plan.policy.quarantine_after);
            match loaded {
                Ok(plugin) => {
                    let changed = inner.not_accepted(&state.book, &plugin, |_| true);
                    if matches!(plan.origin, Origin::Known(_)) && !changed.is_empty() {
                        refused.push(LoadError { plugin: plan.name, problems: changed });
                        continue;
                    }
                    if matches!(plan.origin, Origin::First) {
                        first.insert(plan.name);
                    }
                    table.push(plugin);
                }
                Err(error) => refused.push(error),
            }
        }
        refused.extend(lost);
        refused.extend(inner.publish(&mut state, table, canaries));
        for error in &refused {
            state.broken.insert(error.plugin.clone(), error.problems.clone());
        }
        if let Err(error) = inner.note_first(&mut state, &first).await {
            tracing::warn!(%error, "new plugins run, but the store cannot remember them");
        }
        refused
    }

    /// The canary of a plugin, if the store remembers one. Where it cannot run, everybody has the active version.
    pub(super) async fn load_canary(
        &self,
        book: &Book,
        name: &str,
        policy: &PluginSource,
    ) -> Option<Result<Canary, LoadError>> {
        let row = book.get(name)?.head.canary.as_ref()?;
        let source = PluginSource { name: Some(name.to_owned()), ..policy.clone() };
        let loaded = self.inner.sandbox.load_kept(&version(name, row.version), &source).await;
        let say = |problem: &String| format!("the canary does not run: {problem}");
        let refuse =
            |problems: &[String]| LoadError { plugin: name.to_owned(), problems: problems.iter().map(say).collect() };
        Some(match loaded {
            Ok(plugin) => match self.inner.not_accepted(book, &plugin, |_| true) {
                changed if changed.is_empty() => Ok(Canary { plugin, route: row.route(name) }),
                changed => Err(refuse(&changed)),
            },
            Err(error) => Err(refuse(&error.problems)),
        })
    }

    async fn load(&self, plan: &Plan) -> Result<LoadedPlugin, LoadError> {
        let sandbox = &self.inner.sandbox;
        // The name is settled: two ways to it must not give two names.
        let source = PluginSource { name: Some(plan.name.clone()), ..plan.policy.source.clone() };
        let Origin::Known(digest) = plan.origin else { return sandbox.load(source).await };
        match sandbox.load_kept(&version(&plan.name, digest), &source).await {
            Err(_) if plan.file == Some(digest) => sandbox.load(source).await,
            loaded => loaded,
        }
    }
}

fn plan(book: &Book, wanted: Wanted, file: Result<PluginVersion, LoadError>) -> Result<Plan, LoadError> {
    let Wanted { policy, pinned } = wanted;
    let (name, file) = match (policy.source.name.clone(), file) {
        (_, Ok(version)) => (version.name, Some(Digest(version.digest))),
        // Its file may have gone since; the store has what is needed.
        (Some(name), Err(error)) => match book.get(&name).and_then(|entry| entry.head.active) {
            Some(_) if !pinned => (name, None),
            _ => return Err(error),
        },
        (None, Err(error)) => return Err(error),
    };
    let head = book.get(&name).map(|entry| &entry.head);
    let origin = match head.map(|head| (head.active, head.previous)) {
        _ if pinned => Origin::Pinned,
        None | Some((None, None)) => Origin::First,
        Some((Some(active), _)) => {
            if let Some(file) = file.filter(|file| *file != active) {
                tracing::warn!(
                    plugin.name = name,
                    active = %active,
                    in_file = %file,
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
    Ok(Plan { name, policy, file, origin })
}

impl Inner {
    /// Remembers plugins that came by way of the configuration. What they offer is accepted: the operator named them.
    async fn note_first(&self, state: &mut State, names: &HashSet<String>) -> Result<(), Error> {
        let now = self.clock.now();
        let mut draft = Draft::default();
        for plugin in state.table.iter().filter(|plugin| names.contains(&plugin.version.name)) {
            let name = &plugin.version.name;
            let digest = Digest(plugin.version.digest);
            let size = std::fs::metadata(self.sandbox.kept().path(&digest.0)).map_or(0, |file| file.len());
            let source = match self.policies.get(name).map(|policy| &policy.source.component) {
                Some(Source::File(path)) => path.display().to_string(),
                _ => "configuration".to_owned(),
            };
            let entry = draft.entry(&state.book, name);
            let version = entry.versions.entry(digest).or_insert_with(|| Version::staged(&source, size, now));
            (version.checked_at, version.tools) = (version.checked_at.or(Some(now)), plugin.tools.len());
            entry.head.configured = true;
            entry.activate(Some(digest), now);
            entry.accept(&digest, hashes(plugin));
        }
        if names.is_empty() {
            return Ok(());
        }
        Ok(state.book.commit(&*self.store, draft).await?)
    }
}
