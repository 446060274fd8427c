//! Fixtures for the tests of every crate: what a scripted executor is made of, and a sandbox for the tests of real guests.

use std::path::Path;
use std::sync::Arc;

use crate::schema::Validator;
use crate::{CallContext, ClientView, CompilerMode, Control, SandboxConfig, ToolEntry};
use bulkhead_domain::limits::{CallLimits, CompileLimits};
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::Tool;

/// What a guest does with its side of the levers, for executors that tests script.
impl Control {
    /// The guest reads its signals: whether it is cancelled, and whether a steering text waits.
    pub fn look(&self) -> (bool, bool) {
        self.shared.look()
    }

    /// The client that the guest reports to.
    pub fn audience(&self, facts: &CallContext) -> ClientView {
        self.shared.audience(facts)
    }
}

impl ToolEntry {
    /// A tool of a plugin that there is no component for.
    ///
    /// # Panics
    ///
    /// If the tool's input schema is none.
    pub fn sample(plugin: &str, tool: Tool, limits: CallLimits) -> Self {
        let input = Validator::compile_any(tool.input_schema.as_str()).expect("a schema");
        let plugin = PluginVersion { name: plugin.to_owned(), digest: [1; 32] };
        let plugin_tool: Arc<str> = Arc::from(&*tool.name);
        let rerun_on_restart = false;
        let (declared, hidden) = (None, false);
        Self {
            tool,
            declared,
            hidden,
            plugin,
            base_name: Arc::clone(&plugin_tool),
            plugin_tool,
            limits,
            rerun_on_restart,
            journal: None,
            input,
            output: None,
            metrics: Default::default(),
            activity: Default::default(),
        }
    }
}

impl SandboxConfig {
    /// A small sandbox that compiles by itself: a test cannot be its own compiler.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn sample(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            code: None,
            calls_running_total: 8,
            calls_resting_total: 768,
            compile: CompileLimits { memory_bytes: 2 << 30, cpu_ms: 120_000, functions_max: 200_000 },
            compiler: CompilerMode::InProcess,
            epoch_tick_ms: 10,
            io: tokio::runtime::Handle::current(),
            environment: |_| None,
            tenant_names: None,
            metrics: Default::default(),
        }
    }
}
