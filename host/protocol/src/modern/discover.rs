//! `server/discover`: what this host is and can do.

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Map, Value, json};

use super::request::Request;
use super::result::{Cacheable, Complete};
use super::tools::scope;
use crate::Exchange;
use crate::apps;
use crate::capabilities::{INTERACTION_EXTENSION, TASKS_EXTENSION};
use crate::exchange::immediate;
use crate::jsonrpc::response;
use crate::server_features::FeatureCapabilities;
use crate::skills::{self, SKILLS_EXTENSION};
use crate::version::VERSIONS;
use crate::wire::{Body, entry_if};
use bulkhead_domain::call::UI_EXTENSION;
use bulkhead_domain::rights::Need;

#[derive(Serialize)]
struct ServerCapabilities {
    logging: Value,
    tools: Value,
    #[serde(flatten)]
    offered: FeatureCapabilities,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extensions: Map<String, Value>,
}

struct Discovered<'a> {
    capabilities: ServerCapabilities,
    instructions: Option<&'a str>,
}

impl Body for Discovered<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("supportedVersions", &VERSIONS)?;
        map.serialize_entry("capabilities", &self.capabilities)?;
        entry_if(map, "instructions", self.instructions)
    }
}

pub(super) fn discover(request: &Request<'_>) -> Exchange {
    // Clients check that the value of the extension is empty, unless they know the draft that adds to it.
    let (tasks, scope) = match request.client.interaction_in_tasks {
        true => (json!({"steer": true, "pause": true}), "private"),
        false => (json!({}), scope(request)),
    };
    // Who may not use an extension is not told of it; each request is checked against the rights that come with it all
    // the same.
    let extensions = [
        (Need::Tasks, TASKS_EXTENSION, tasks),
        (Need::Steer, INTERACTION_EXTENSION, json!({"steer": true, "pause": true})),
    ];
    let extensions = extensions.into_iter().filter(|(need, ..)| request.context.rights.has(*need));
    let extensions = extensions.map(|(_, name, value)| (name, value));
    let has_views = apps::any_view(&request.context.catalog, |tool| request.context.may_call(tool));
    let views = has_views.then(|| (UI_EXTENSION, json!({})));
    let skills = skills::any_skill(&request.context.catalog).then(|| (SKILLS_EXTENSION, json!({})));
    let capabilities = ServerCapabilities {
        logging: json!({}),
        tools: json!({"listChanged": true}),
        offered: FeatureCapabilities::new(&request.context.catalog),
        extensions: extensions.chain(views).chain(skills).map(|(name, value)| (name.to_owned(), value)).collect(),
    };
    let instructions = request.context.shared.options.instructions.as_deref();
    let body = Cacheable { body: Discovered { capabilities, instructions }, scope };
    immediate(response(&request.id, &Complete::new(&request.context.shared.modern, body)))
}
