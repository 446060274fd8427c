//! Tests only: everything that the official conformance suite (`@modelcontextprotocol/conformance`) wants to find on a server, with
//! the names and texts that it looks for.

mod changing;
mod content;
mod jobs;
mod offers;
mod questions;
mod rounds;

use bulkhead_plugin::{Plugin, Tool};

fn plugin() -> Plugin {
    rounds::tools(questions::tools(jobs::tools(content::tools(offers::all(Plugin::new())))))
}

/// A tool that changes nothing.
fn read_only<M, H: bulkhead_plugin::Handler<M>>(name: &str, description: &str, handler: H) -> Tool {
    Tool::new(name, description, handler).read_only().open_world(false)
}

bulkhead_plugin::manifest!(
    r#"
name = "conformance"
description = "What the official conformance suite wants to find. For tests only."

[grants]
directories = [{ guest = "/lists", write = true, optional = true, reason = "what the lists hold" }]
"#
);
bulkhead_plugin::export!(plugin, resources, prompts, completions);
