//! Fixtures for the tests of every crate: what a scripted executor is made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::journal::JournalReport;
use crate::schema::Validator;
use crate::{CallContext, CallLevers, ClientView, Control, ToolEntry};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::Tool;
use bulkhead_traces::Span;

/// The levers on a scripted call, and its guest's side of them. What a script does not look at moves nothing.
#[derive(Debug, Default)]
pub struct ScriptedLevers {
    cancelled: AtomicBool,
    cooperative: AtomicBool,
    steering: AtomicBool,
    client: Mutex<Option<ClientView>>,
}

impl ScriptedLevers {
    /// The guest reads its signals: whether it is cancelled, and whether a steering text waits.
    pub fn look(&self) -> (bool, bool) {
        self.cooperative.store(true, Ordering::Release);
        (self.cancelled.load(Ordering::Acquire), self.steering.load(Ordering::Acquire))
    }

    /// The client that the guest reports to.
    pub fn audience(&self, facts: &CallContext) -> ClientView {
        let &CallContext { features, log_level, wants_progress, .. } = facts;
        self.client.lock().unwrap_or(ClientView { features, log_level, wants_progress })
    }
}

impl CallLevers for ScriptedLevers {
    fn signal_cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    fn is_cooperative(&self) -> bool {
        self.cooperative.load(Ordering::Acquire)
    }

    fn pause(&self) {}

    fn resume(&self) {}

    fn promoted(&self, _: &str) {}

    fn set_client(&self, client: ClientView) {
        *self.client.lock() = Some(client);
    }

    fn steering_pending(&self, pending: bool) {
        self.steering.store(pending, Ordering::Release);
    }

    fn note(&self, _: &'static str) {}

    fn begin_span(&self, _: &'static str) -> Option<Span> {
        None
    }

    fn journal(&self) -> Option<&JournalReport> {
        None
    }

    fn can_leave_memory(&self) -> bool {
        true
    }

    fn cpu_ms(&self) -> u64 {
        0
    }

    fn cpu_ms_to_repeat(&self) -> u64 {
        0
    }
}

impl Control {
    /// Of a scripted call that looks at nothing.
    pub fn scripted() -> Self {
        Self::new(Arc::<ScriptedLevers>::default())
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
        let declared = None;
        let hidden = false;
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
