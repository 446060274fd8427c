//! Plugins that cannot be offered together: names and URIs belong to one plugin.

use std::collections::HashMap;

use super::app_views;
use super::load::{LoadError, LoadedPlugin};
use super::published::{Canary, chosen};

/// Canaries at the same time, of as many plugins. Each doubles the number of catalogs that are checked and kept.
pub(super) const CANARIES_MAX: usize = 4;

/// Takes plugins in order, and leaves out each that offers what an earlier one offers. A name that both say is an error
/// that names both, never a silent choice.
pub(super) fn accept(plugins: Vec<LoadedPlugin>) -> (Vec<LoadedPlugin>, Vec<LoadError>) {
    let mut owners: HashMap<(&'static str, String), Claimant> = HashMap::new();
    let mut accepted = Vec::<LoadedPlugin>::new();
    let mut refused = Vec::new();
    for plugin in plugins {
        let name = plugin.version.name.clone();
        let mut problems = Vec::new();
        if accepted.iter().any(|other| other.version.name == name) {
            problems.push("there is another plugin of this name: set `name` in the configuration".to_owned());
        }
        let claims = claims(&plugin);
        for (claim, renamed) in &claims {
            if let Some(owner) = owners.get(claim) {
                problems.push(owner.clash(claim, renamed.as_deref()));
            }
        }
        if problems.is_empty() {
            let claimed = |(claim, renamed)| (claim, Claimant { plugin: name.clone(), renamed });
            owners.extend(claims.into_iter().map(claimed));
            accepted.push(plugin);
        } else {
            refused.push(LoadError::refused(name, problems));
        }
    }
    (accepted, refused)
}

/// Takes canaries in order, and leaves out each that clashes in any combination with the plugins and the canaries
/// before it.
pub(super) fn accept_canaries(plugins: &[LoadedPlugin], canaries: Vec<Canary>) -> (Vec<Canary>, Vec<LoadError>) {
    let mut accepted = Vec::<Canary>::new();
    let mut refused = Vec::new();
    for canary in canaries {
        let name = canary.plugin.version.name.clone();
        let mut problems = Vec::new();
        if !plugins.iter().any(|plugin| plugin.version.name == name) {
            problems.push("it has no active version that a canary could stand beside".to_owned());
        }
        if accepted.iter().any(|other| other.plugin.version.name == name) {
            problems.push("it has a canary already".to_owned());
        }
        if accepted.len() >= CANARIES_MAX {
            problems
                .push(format!("{CANARIES_MAX} plugins have a canary already: promote or roll back one of them first"));
        }
        accepted.push(canary);
        if problems.is_empty() {
            // Those without the new one were checked before.
            let new = 1_usize << (accepted.len() - 1);
            let clashes = (new..new * 2).flat_map(|choice| accept(chosen(plugins, &accepted, choice)).1);
            problems.extend(clashes.map(|error| error.to_string()));
            problems.sort_unstable();
            problems.dedup();
        }
        if !problems.is_empty() {
            accepted.pop();
            refused.push(LoadError::refused(name, problems));
        }
    }
    (accepted, refused)
}

/// Who has a name.
struct Claimant {
    plugin: String,
    /// The tool's own name, where the operator gave it this one.
    renamed: Option<String>,
}

impl Claimant {
    /// What is wrong with another claim of the same.
    fn clash(&self, claim: &(&'static str, String), renamed: Option<&str>) -> String {
        let (what, name) = claim;
        let owner = &self.plugin;
        match (*what, renamed, &self.renamed) {
            ("tool", Some(own), Some(other)) => format!(
                "its tool {own:?} and the tool {other:?} of plugin {owner} are both called {name:?} by the configuration: choose \
                 another `name` for one of them"
            ),
            ("tool", Some(own), None) => format!(
                "its tool {own:?} is called {name:?} by the configuration, which is a tool of plugin {owner}: choose another `name`"
            ),
            ("tool", None, Some(other)) => format!(
                "its tool {name:?} has the name that the configuration gives to the tool {other:?} of plugin {owner}: choose \
                 another `name` for that one"
            ),
            ("tool" | "prompt", ..) => format!(
                "its {what} {name:?} has the same name as a {what} of plugin {owner}: set a `prefix` for one of them"
            ),
            _ if name.starts_with(app_views::VIEW_SCHEME) => {
                format!("its {what} {name:?} is offered by plugin {owner} already: set a `prefix` for one of them")
            }
            _ => format!("its {what} {name:?} is offered by plugin {owner} already"),
        }
    }
}

/// What a plugin claims: kind and name, and the own name of a tool that the operator gave another one. What no client
/// sees claims nothing.
type Claim = ((&'static str, String), Option<String>);

fn claims(plugin: &LoadedPlugin) -> Vec<Claim> {
    let offers = &plugin.offers;
    let tools = plugin.shown_tools().map(|entry| {
        let renamed = plugin.is_renamed(entry).then(|| entry.plugin_tool.to_string());
        (("tool", entry.tool.name.clone()), renamed)
    });
    let prompts = offers.prompts.iter().map(|entry| ("prompt", entry.prompt.described.name.clone()));
    let templates = offers.templates.iter().map(|entry| ("resource template", entry.template.uri_template.clone()));
    let uris = offers.resources.iter().map(|resource| ("resource", resource.uri.clone()));
    tools.chain(prompts.chain(templates).chain(uris).map(|claim| (claim, None))).collect()
}
