//! The tools that can be called right now: one immutable snapshot, exchanged as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use super::schema::Validator;
use crate::domain::limits::CallLimits;
use crate::domain::task::PluginVersion;
use crate::domain::tool::Tool;

/// One tool with everything that a call of it needs.
#[derive(Debug)]
pub struct ToolEntry {
    /// As clients see it: prefix in front of the name, task support after the operator's narrowing.
    pub tool: Tool,
    pub plugin: PluginVersion,
    /// The name inside the plugin.
    pub plugin_tool: String,
    pub limits: CallLimits,
    /// Whether an interrupted task may run again: the operator said so and the tool is idempotent.
    pub rerun_on_restart: bool,
    pub input: Validator,
    pub output: Option<Validator>,
}

/// Every tool, in the order of their names.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<ToolEntry>>,
    by_name: HashMap<String, usize>,
}

impl Catalog {
    /// Sorts by name; names are unique by then.
    pub fn new(mut tools: Vec<Arc<ToolEntry>>) -> Self {
        tools.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
        let by_name = tools.iter().enumerate().map(|(at, entry)| (entry.tool.name.clone(), at)).collect();
        Self { tools, by_name }
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.by_name.get(name).and_then(|at| self.tools.get(*at))
    }

    /// All tools, in order.
    pub fn tools(&self) -> &[Arc<ToolEntry>] {
        &self.tools
    }
}
