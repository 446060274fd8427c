//! What can be called right now, and which versions are ready: one immutable value, exchanged as a whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::load::{LoadedPlugin, PluginSource};
use super::{Catalog, ListKind};
use crate::domain::task::PluginVersion;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Published {
    pub(super) catalog: Arc<Catalog>,
    /// Also older versions: calls that started with one keep it.
    pub(super) versions: HashMap<PluginVersion, LoadedPlugin>,
    /// The policy of every plugin that was published since the start, for versions of it that are loaded again.
    pub(super) sources: HashMap<String, PluginSource>,
}

impl Published {
    /// With these plugins in the catalog, and no others. Versions and policies stay.
    pub(super) fn exchanged(&self, catalog: &Arc<Catalog>, plugins: &[LoadedPlugin]) -> Self {
        let mut next = Self { catalog: Arc::clone(catalog), ..self.clone() };
        for plugin in plugins {
            next.versions.insert(plugin.version.clone(), plugin.clone());
            next.sources.insert(plugin.version.name.clone(), plugin.source.clone());
        }
        next
    }

    /// With one more version ready.
    pub(super) fn with(&self, plugin: &LoadedPlugin) -> Self {
        let mut next = self.clone();
        next.versions.insert(plugin.version.clone(), plugin.clone());
        next
    }

    /// Without the versions that are neither in the catalog, nor pinned, nor in a call.
    pub(super) fn reduced(&self, pinned: &HashSet<PluginVersion>) -> Self {
        let current: HashSet<_> = self.catalog.libraries().iter().map(|library| &library.plugin).collect();
        let versions = self
            .versions
            .iter()
            .filter(|(version, loaded)| {
                current.contains(version) || pinned.contains(*version) || loaded.plugin.calls() > 0
            })
            .map(|(version, loaded)| (version.clone(), loaded.clone()));
        Self { versions: versions.collect(), ..self.clone() }
    }
}

/// The lists in which clients see a difference between two catalogs. What a plugin with resources lists is known only by asking
/// it, so another version of it counts as another list.
pub(super) fn lists_that_differ(old: &Catalog, new: &Catalog) -> Vec<ListKind> {
    let tools = |catalog: &Catalog| catalog.tools().iter().map(|entry| entry.tool.clone()).collect::<Vec<_>>();
    let prompts = |catalog: &Catalog| catalog.prompts().iter().map(|entry| entry.prompt.clone()).collect::<Vec<_>>();
    let templates =
        |catalog: &Catalog| catalog.templates().iter().map(|entry| entry.template.clone()).collect::<Vec<_>>();
    let readers = |catalog: &Catalog| {
        let libraries = catalog.libraries().iter().filter(|library| library.has_resources);
        libraries.map(|library| library.plugin.clone()).collect::<Vec<_>>()
    };
    [
        (ListKind::Tools, tools(old) != tools(new)),
        (ListKind::Prompts, prompts(old) != prompts(new)),
        (ListKind::Resources, readers(old) != readers(new) || templates(old) != templates(new)),
    ]
    .into_iter()
    .filter_map(|(kind, differs)| differs.then_some(kind))
    .collect()
}
