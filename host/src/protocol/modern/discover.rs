//! `server/discover`: what this host is and can do.

use serde::ser::SerializeMap;
use serde_json::{Value, json};

use super::Request;
use super::result::{Complete, Entries};
use crate::protocol::capabilities::INTERACTION_EXTENSION;
use crate::protocol::exchange::answered;
use crate::protocol::jsonrpc::response;
use crate::protocol::wire::TASKS_EXTENSION;
use crate::protocol::{Exchange, VERSIONS};

/// Plugins may be exchanged while the host runs, and with them what there is to offer.
const TTL_MS: u64 = 60_000;

struct Discovered<'a> {
    capabilities: Value,
    instructions: Option<&'a str>,
    scope: &'static str,
}

impl Entries for Discovered<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("supportedVersions", &VERSIONS)?;
        map.serialize_entry("capabilities", &self.capabilities)?;
        if let Some(instructions) = self.instructions {
            map.serialize_entry("instructions", instructions)?;
        }
        map.serialize_entry("ttlMs", &TTL_MS)?;
        map.serialize_entry("cacheScope", self.scope)
    }
}

pub(super) fn discover(request: &Request<'_>) -> Exchange {
    // Clients check that the value of the extension is empty, unless they know the draft that adds to it.
    let (tasks, scope) = match request.client.interaction_in_tasks {
        true => (json!({"steer": true, "pause": true}), "private"),
        false => (json!({}), "public"),
    };
    let mut capabilities = json!({
        "logging": {},
        "tools": {"listChanged": true},
        "extensions": {TASKS_EXTENSION: tasks, INTERACTION_EXTENSION: {"steer": true, "pause": true}},
    });
    let catalog = request.shared.tasks.catalog();
    if catalog.has_resources() {
        capabilities["resources"] = json!({"subscribe": true, "listChanged": true});
    }
    if catalog.has_prompts() {
        capabilities["prompts"] = json!({"listChanged": true});
    }
    if catalog.has_completions() {
        capabilities["completions"] = json!({});
    }
    let instructions = request.shared.options.instructions.as_deref();
    let entries = Discovered { capabilities, instructions, scope };
    answered(response(&request.id, &Complete::new(&request.shared.modern, entries)))
}
