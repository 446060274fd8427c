//! Facts read from a component: imports, exports, digest and size.

use std::collections::BTreeMap;

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::app_views::ViewReach;
pub use super::manifest::{Manifest, RequestedLimits, RequestedPolicy};
use super::programs::mcp::McpServer;
use super::skills::SkillSummary;
use bulkhead_domain::imports::Grant;
use bulkhead_domain::server_features::{Prompt, Resource, ResourceTemplate};
use bulkhead_domain::tool::Tool;

/// What `bulkhead plugin inspect` shows.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub name: String,
    /// SHA-256 as hexadecimal digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
    pub manifest: Option<Manifest>,
    /// `interface.function`, in the order of the component.
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// Whether the component knows nothing of this host, so that its functions are the tools.
    pub typed: bool,
    /// Of a component that is an MCP server: what was found out about it.
    pub mcp: Option<McpServer>,
    /// Whether it uses WASI 0.3.
    pub is_concurrent: bool,
    /// Its functions that cannot be tools, each with the reason.
    pub left_out: Vec<String>,
    /// Of such a component without a manifest: the grants that its imports can make use of, and the interface that says
    /// so.
    pub usable_grants: Vec<(Grant, &'static str)>,
    /// As clients see them where the operator says nothing.
    pub tools: Vec<Tool>,
    /// The name inside the plugin of each, in their order.
    pub own_names: Vec<String>,
    pub prompts: Vec<Prompt>,
    pub templates: Vec<ResourceTemplate>,
    /// Those that it lists without any grant, as far as a few pages go.
    pub resources: Vec<Resource>,
    /// What its views of MCP Apps may reach, by URI or template.
    pub views: BTreeMap<String, ViewReach>,
    /// Those that it carries, by name.
    pub skills: BTreeMap<String, SkillSummary>,
}

/// Imports and exports by function.
pub(super) fn functions(engine: &Engine, component: &Component) -> (Vec<String>, Vec<String>) {
    let ty = component.component_type();
    let flatten = |items: Vec<(String, ComponentItem)>| {
        let mut names = Vec::new();
        for (name, item) in items {
            match item {
                ComponentItem::ComponentInstance(instance) => {
                    for (member, item) in instance.exports(engine) {
                        if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                            names.push(format!("{name}.{member}"));
                        }
                    }
                }
                ComponentItem::ComponentFunc(_) => names.push(name),
                _ => {}
            }
        }
        names
    };
    let imports = ty.imports(engine).map(|(name, item)| (name.to_owned(), item.ty)).collect();
    let exports = ty.exports(engine).map(|(name, item)| (name.to_owned(), item.ty)).collect();
    (flatten(imports), flatten(exports))
}
