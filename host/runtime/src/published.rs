//! What can be called right now, and which versions are ready: one immutable value, exchanged as a whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::load::LoadedPlugin;
use super::plugin_source::PluginSource;
use bulkhead_calls::catalog::PluginFeatures;
use bulkhead_calls::{Catalog, ListKind};
use bulkhead_domain::route::Route;
use bulkhead_domain::task::PluginVersion;

/// A version that a part of the requestors gets instead of the published one of the same plugin.
#[derive(Clone, Debug)]
pub struct Canary {
    pub plugin: LoadedPlugin,
    pub route: Route,
}

/// One catalog for each way to be in canaries or not. Every one of them was checked for clashes.
#[derive(Clone, Default)]
pub(super) struct Catalogs {
    routes: Vec<Route>,
    /// For requestors in no canary.
    base: Arc<Catalog>,
    /// For the others: bit n of index + 1 stands for route n.
    others: Vec<Arc<Catalog>>,
}

impl Catalogs {
    pub(super) fn base(&self) -> &Arc<Catalog> {
        &self.base
    }

    /// The catalog of a requestor that takes part in these routes.
    pub(super) fn choose(&self, takes_part: &dyn Fn(&Route) -> bool) -> &Arc<Catalog> {
        let bits = self.routes.iter().enumerate().filter(|(_, route)| takes_part(route));
        let choice: usize = bits.map(|(bit, _)| 1 << bit).sum();
        choice.checked_sub(1).and_then(|at| self.others.get(at)).unwrap_or(&self.base)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Catalog>> {
        std::iter::once(&self.base).chain(&self.others)
    }

    /// The lists in which some requestor may see a difference between this set and another one.
    pub(super) fn lists_that_differ(&self, other: &Self) -> Vec<ListKind> {
        let differs = |kind: &ListKind| {
            let mut generations = self.iter().chain(other.iter()).map(|catalog| catalog.lists().of(*kind));
            let first = generations.next();
            generations.any(|generation| Some(generation) != first)
        };
        ListKind::ALL.into_iter().filter(differs).collect()
    }
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Published {
    pub(super) catalogs: Catalogs,
    /// The last number that was given to a list.
    generation: u64,
    /// Also older versions: calls that started with one keep it.
    pub(super) versions: FxHashMap<PluginVersion, LoadedPlugin>,
    /// Versions on terms that no call begins with any more, for as long as calls of them are left.
    pub(super) outdated: Vec<LoadedPlugin>,
    /// The policy of every plugin that was published since the start, for versions of it that are loaded again.
    pub(super) sources: HashMap<String, PluginSource>,
}

impl Published {
    /// With these plugins in the catalogs, and no others. Versions and policies stay.
    pub(super) fn exchanged(&self, plugins: &[LoadedPlugin], canaries: &[Canary]) -> Self {
        let mut next = self.clone();
        for plugin in plugins.iter().chain(canaries.iter().map(|canary| &canary.plugin)) {
            next.versions.insert(plugin.version.clone(), plugin.clone());
            next.sources.insert(plugin.version.name.clone(), plugin.source.clone());
        }
        let mut known: Vec<_> = self.catalogs.iter().cloned().collect();
        let mut numbered = (0..1_usize << canaries.len()).map(|choice| {
            let mut catalog = catalog(&chosen(plugins, canaries, choice), canaries.len());
            catalog.number(&known, &mut next.generation);
            let catalog = Arc::new(catalog);
            known.push(Arc::clone(&catalog));
            catalog
        });
        let base = numbered.next().unwrap_or_default();
        let others = numbered.collect();
        let routes = canaries.iter().map(|canary| canary.route.clone()).collect();
        next.catalogs = Catalogs { routes, base, others };
        next
    }

    /// With other numbers of the list of resources wherever this version is offered: only the plugin knows what is on
    /// it.
    pub(super) fn with_other_resources(&self, version: &PluginVersion) -> Self {
        let mut next = self.clone();
        let mut renumbered = HashMap::new();
        let mut renew = |catalog: &Arc<Catalog>| {
            let lists = catalog.libraries().iter().any(|library| library.has_resources && library.plugin == *version);
            if !lists {
                return Arc::clone(catalog);
            }
            let generation = *renumbered.entry(catalog.lists().resources).or_insert_with(|| {
                next.generation += 1;
                next.generation
            });
            Arc::new(catalog.renewed(ListKind::Resources, generation))
        };
        let base = renew(&self.catalogs.base);
        let others = self.catalogs.others.iter().map(renew).collect();
        next.catalogs = Catalogs { base, others, routes: self.catalogs.routes.clone() };
        next
    }

    /// With one more version ready.
    pub(super) fn with(&self, plugin: &LoadedPlugin) -> Self {
        let mut next = self.clone();
        next.versions.insert(plugin.version.clone(), plugin.clone());
        next
    }

    /// Without these versions among those that a call can begin with at once.
    pub(super) fn without(&self, versions: &[PluginVersion]) -> Self {
        let mut next = self.clone();
        next.outdated.extend(versions.iter().filter_map(|version| next.versions.remove(version)));
        next
    }

    /// The version as it is ready, and as it was on earlier terms.
    pub(super) fn all_of(&self, version: &PluginVersion) -> impl Iterator<Item = &LoadedPlugin> {
        self.versions.get(version).into_iter().chain(self.outdated.iter().filter(move |old| old.version == *version))
    }

    /// Without the versions that are neither in a catalog, nor pinned, nor in a call.
    pub(super) fn reduced(&self, pinned: &HashSet<PluginVersion>) -> Self {
        let libraries = self.catalogs.iter().flat_map(|catalog| catalog.libraries());
        let current: HashSet<_> = libraries.map(|library| &library.plugin).collect();
        let versions = self
            .versions
            .iter()
            .filter(|(version, loaded)| {
                current.contains(version) || pinned.contains(*version) || loaded.plugin.calls() > 0
            })
            .map(|(version, loaded)| (version.clone(), loaded.clone()));
        let outdated = self.outdated.iter().filter(|loaded| loaded.plugin.calls() > 0).cloned().collect();
        Self { versions: versions.collect(), outdated, ..self.clone() }
    }
}

/// The plugins of a requestor that is in the canaries whose bits are set.
pub(super) fn chosen(plugins: &[LoadedPlugin], canaries: &[Canary], choice: usize) -> Vec<LoadedPlugin> {
    let chosen = |plugin: &LoadedPlugin| {
        let own = |(bit, canary): &(usize, &Canary)| {
            choice >> bit & 1 == 1 && canary.plugin.version.name == plugin.version.name
        };
        canaries.iter().enumerate().find(own).map_or(plugin, |(_, canary)| &canary.plugin).clone()
    };
    plugins.iter().map(chosen).collect()
}

fn catalog(plugins: &[LoadedPlugin], canaries: usize) -> Catalog {
    let tools = plugins.iter().flat_map(|plugin| plugin.shown_tools().cloned()).collect();
    let offers = plugins.iter().map(|plugin| PluginFeatures::clone(&plugin.offers));
    let catalog = Catalog::new(tools).with(offers);
    if canaries == 0 { catalog } else { catalog.for_some() }
}
