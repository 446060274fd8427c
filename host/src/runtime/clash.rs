//! Plugins that cannot be offered together: names and URIs belong to one plugin.

use std::collections::HashMap;

use super::load::{LoadError, LoadedPlugin};

/// Takes plugins in order, and leaves out each that offers what an earlier one offers. A name that both say is an error that names
/// both, never a silent choice.
pub(super) fn accept(plugins: Vec<LoadedPlugin>) -> (Vec<LoadedPlugin>, Vec<LoadError>) {
    let mut owners: HashMap<(&'static str, String), String> = HashMap::new();
    let (mut accepted, mut refused) = (Vec::<LoadedPlugin>::new(), Vec::new());
    for plugin in plugins {
        let name = plugin.version.name.clone();
        let mut problems = Vec::new();
        if accepted.iter().any(|other| other.version.name == name) {
            problems.push("there is another plugin of this name: set `name` in the configuration".to_owned());
        }
        let claims = claims(&plugin);
        for claim in &claims {
            if let Some(owner) = owners.get(claim) {
                let (what, said) = claim;
                problems.push(match *what {
                    "tool" | "prompt" => format!(
                        "its {what} {said:?} has the same name as a {what} of plugin {owner}: set a `prefix` for one of them"
                    ),
                    _ => format!("its {what} {said:?} is offered by plugin {owner} already"),
                });
            }
        }
        if problems.is_empty() {
            owners.extend(claims.into_iter().map(|claim| (claim, name.clone())));
            accepted.push(plugin);
        } else {
            refused.push(LoadError { plugin: name, problems });
        }
    }
    (accepted, refused)
}

fn claims(plugin: &LoadedPlugin) -> Vec<(&'static str, String)> {
    let offers = &plugin.offers;
    let tools = plugin.tools.iter().map(|entry| ("tool", entry.tool.name.clone()));
    let prompts = offers.prompts.iter().map(|entry| ("prompt", entry.prompt.name.clone()));
    let templates = offers.templates.iter().map(|entry| ("resource template", entry.template.uri_template.clone()));
    let uris = offers.resources.iter().map(|resource| ("resource", resource.uri.clone()));
    tools.chain(prompts).chain(templates).chain(uris).collect()
}
