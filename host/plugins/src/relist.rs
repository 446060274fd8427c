//! Lists of plugins that change while the host runs.
//!
//! A plugin says that a list changed; the host lists that version again and believes what it sees. Invariant: what an
//! operator accepted of a tool does not change this way, not even when the tool goes and comes back.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::definition::{described, hashes};
use super::difference::Changes;
use super::pinning::accept;
use super::registry::{Draft, PluginRegistry};
use super::{AcceptChanges, Digest, Error, Inner, Plugins, Policies};
use bulkhead_calls::ListKind;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::{LoadError, LoadedPlugin};

/// Between two listings of one plugin. Stops a plugin that says so in a loop.
const RELIST_EVERY: Duration = Duration::from_secs(1);

impl Plugins {
    /// Lists versions again that say so: one at a time, and each plugin at most once in [`RELIST_EVERY`].
    pub(super) async fn relist_changed(&self) {
        let mut due = HashMap::<PluginVersion, HashSet<ListKind>>::new();
        let mut listed_at = HashMap::<String, Instant>::new();
        loop {
            listed_at.retain(|_, at| at.elapsed() < RELIST_EVERY);
            let free_at = |version: &PluginVersion| listed_at.get(&version.name).map(|at| *at + RELIST_EVERY);
            let next = due.keys().min_by_key(|version| free_at(version)).cloned();
            let at = next.as_ref().and_then(free_at).unwrap_or_else(Instant::now);
            tokio::select! {
                said = self.inner.calls.next_list_changes() => {
                    for (version, kinds) in said {
                        due.entry(version).or_default().extend(kinds);
                    }
                }
                () = tokio::time::sleep_until(at), if next.is_some() => {
                    let Some((version, kinds)) = next.and_then(|version| due.remove_entry(&version)) else { continue };
                    if let Err(error) = self.relist(&version, &kinds).await {
                        tracing::warn!(plugin.name = version.name, %error, "its changed lists are not taken over");
                    }
                    listed_at.insert(version.name, Instant::now());
                }
            }
        }
    }

    /// Lists the active version again, and publishes what is different. Other versions are on no list.
    ///
    /// # Errors
    ///
    /// What it lists now is wrong, clashes with another plugin or changes what was accepted: the lists stay as they
    /// were.
    pub(super) async fn relist(&self, version: &PluginVersion, kinds: &HashSet<ListKind>) -> Result<(), Error> {
        let inner = &self.inner;
        let Some(before) = inner.state.lock().await.running(version).cloned() else {
            return Ok(());
        };
        // Resources are asked for at every request: nobody here knows whether their list is the same.
        if kinds.contains(&ListKind::Resources) {
            inner.sandbox.resources_differ(version);
            inner.calls.lists_changed(&[ListKind::Resources]);
        }
        let now = inner.sandbox.relist(&before).await.map_err(|error| Error::Refused(vec![error]))?;
        if now.lists_like(&before) {
            return Ok(());
        }
        let mut state = inner.state.lock().await;
        let mut table = state.table.clone();
        let mut canaries = state.canaries.clone();
        // A switch may have come between.
        let mut places = table.iter_mut().chain(canaries.iter_mut().map(|canary| &mut canary.plugin));
        let Some(published) = places.find(|plugin| plugin.version == *version) else { return Ok(()) };
        // So may other terms, under which it was listed again: those that this was listed on are no more.
        if !now.is_under(published.terms()) {
            return Ok(());
        }
        let mut changes = Changes::between(published, &now);
        changes.tools_removed.clear();
        let say = inner.policies.load().pinning_decision(
            &version.name,
            state.book.get(&version.name),
            &Digest(version.digest),
        );
        let mut problems = changes.held_back(say.passing);
        let shown = if say.shown { changes.held_back(AcceptChanges::Nothing) } else { Vec::new() };
        // Those that were listed a moment ago have just been compared.
        let listed: HashSet<_> = published.own_tools().map(|(tool, _)| tool).collect();
        let unlike = inner.policies.load().unlike(&state.book, &now, |tool| !listed.contains(tool));
        problems.extend(unlike.held);
        if !problems.is_empty() {
            return Err(Error::Refused(vec![LoadError::refused(&version.name, problems)]));
        }
        *published = now.clone();
        let clashes = inner.sandbox.clashes(&table, &canaries);
        if !clashes.is_empty() {
            return Err(Error::Refused(clashes));
        }
        if !state.pinned.contains(&version.name) && state.book.get(&version.name).is_some() {
            let mut draft = Draft::default();
            let entry = draft.entry(&state.book, &version.name);
            accept(entry, &now);
            state.book.commit(&*inner.store, draft).await?;
        }
        inner.show(version, &[shown, unlike.shown].concat());
        tracing::info!(plugin.name = version.name, tools = now.tools.len(), "its lists changed");
        inner.publish(&mut state, table, canaries);
        Ok(())
    }
}

impl Inner {
    /// A version of which no tool is another one than what was accepted; those that may be are noted.
    ///
    /// # Errors
    ///
    /// Names the tools that may not be.
    pub(super) fn accepted(&self, book: &PluginRegistry, plugin: LoadedPlugin) -> Result<LoadedPlugin, LoadError> {
        let DefinitionDrift { held, shown } = self.policies.load().unlike(book, &plugin, |_| true);
        if !held.is_empty() {
            return Err(LoadError::refused(plugin.version.name, held));
        }
        self.show(&plugin.version, &shown);
        Ok(plugin)
    }
}

/// Tools whose definition is another one than what was accepted under their name, one sentence each.
#[derive(Default)]
pub(super) struct DefinitionDrift {
    /// Those that need the operator's word.
    pub(super) held: Vec<String>,
    /// Those that do not, and are to be noted.
    pub(super) shown: Vec<String>,
}

impl Policies {
    /// What needs the operator's word where an active version was a program, and is an MCP server on these terms, or
    /// the other way round.
    pub(super) fn other_kind(&self, book: &PluginRegistry, plugin: &LoadedPlugin) -> Option<String> {
        let name = &plugin.version.name;
        let entry = book.get(name)?;
        let digest = Digest(plugin.version.digest);
        let say = self.pinning_decision(name, Some(entry), &digest);
        if entry.head.active != Some(digest) || say.passing == AcceptChanges::Anything {
            return None;
        }
        let what = match plugin.mcp_server() {
            Some(_) => {
                let tool = entry.kept_program(name)?;
                format!("its tools are those of its MCP server now, and its one tool `{tool}` is what was accepted")
            }
            None if entry.head.mcp => {
                let tool = plugin.own_tools().next().map(|(tool, _)| tool.to_owned()).unwrap_or_default();
                format!("its one tool is `{tool}` now, and the tools of its MCP server are what was accepted")
            }
            None => return None,
        };
        Some(format!("{what}: a host with this configuration accepts it by `bulkhead plugin activate {name}@{digest}`"))
    }

    /// What of a version is not what was accepted. Functions of a component are described by the operator, who needs
    /// nobody's word.
    pub(super) fn unlike(
        &self,
        book: &PluginRegistry,
        plugin: &LoadedPlugin,
        which: impl Fn(&str) -> bool,
    ) -> DefinitionDrift {
        let name = &plugin.version.name;
        let Some(entry) = book.get(name) else { return DefinitionDrift::default() };
        let digest = Digest(plugin.version.digest);
        let say = self.pinning_decision(name, Some(entry), &digest);
        if let Some(advice) = self.other_kind(book, plugin) {
            return DefinitionDrift { held: vec![advice], shown: Vec::new() };
        }
        if plugin.is_typed() || (say.passing == AcceptChanges::Anything && !say.shown) {
            return DefinitionDrift::default();
        }
        let changed = hashes(plugin).filter(|(tool, hash)| {
            which(tool) && entry.accepted_for(&digest, tool).is_some_and(|accepted| *accepted != Digest(*hash))
        });
        let changed = changed.map(|(tool, _)| format!("{} is not the one that was accepted before", described(&tool)));
        if say.passing == AcceptChanges::Anything {
            return DefinitionDrift { held: Vec::new(), shown: changed.collect() };
        }
        let advice = |what| format!("{what}: `bulkhead plugin activate {name}@{digest}` accepts it");
        DefinitionDrift { held: changed.map(advice).collect(), shown: Vec::new() }
    }
}
