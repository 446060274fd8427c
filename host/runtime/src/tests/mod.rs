//! The sandbox from outside: plugins in, events out.

mod activity;
mod egress;
mod files;
mod first_slices;
mod grants;
mod guests;
mod import_table;
mod imports;
mod journal;
mod limits;
mod loading;
mod mcp;
mod mcp_stdio;
mod memory_images;
mod offers;
mod programs;
mod typed;
mod waiting;
mod wasi_03;
mod wasi_drafts;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::call_state::CallState;
use crate::engine::Effort;
use bulkhead_calls::{
    CallContext, CallEvent, CallSpec, Control, Executor as _, GuestServices, Journaling, ListKind, OnDemand, Operation,
    OutsideWorld, Returned, RunningCall, Spent, StartError, policy,
};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeatures, InputRequest, InputRequestError, LogLevel};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::CallId;
use bulkhead_domain::tool::{ContentKind, ToolOutput};
use bulkhead_threads::Share;

/// The folder whose compiled code the integration tests share, too: they run later, and find what is here.
fn kept() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-code/bulkhead")
}

/// The state of a call behind its levers.
fn state(control: &Control) -> &CallState {
    let levers: &dyn std::any::Any = &**control;
    levers.downcast_ref().unwrap()
}

/// A sandbox of its own for a test.
struct House {
    sandbox: Arc<Sandbox>,
}

impl House {
    /// With the compiled code of earlier runs: the guests are the same for every test.
    fn new() -> Self {
        Self::with_data(&kept())
    }

    /// With tenants that have names.
    fn of(tenants: Arc<dyn TenantNames>) -> Self {
        Self::with(&kept(), Some(tenants))
    }

    /// For tests that look into the data directory or change it.
    fn with_data(data: &Path) -> Self {
        Self::with(data, None)
    }

    fn with(data: &Path, tenant_names: Option<Arc<dyn TenantNames>>) -> Self {
        Self { sandbox: Sandbox::new(Self::config(data, tenant_names)).unwrap() }
    }

    /// On a machine with another processor, or with another version of the compiler.
    fn elsewhere() -> Self {
        Self { sandbox: Sandbox::with_code(Self::config(&kept(), None), Effort::Portable).unwrap() }
    }

    fn config(data: &Path, tenant_names: Option<Arc<dyn TenantNames>>) -> SandboxConfig {
        let environment = |key: &str| (key == "GRANTED").then(|| "yes".to_owned());
        SandboxConfig { environment, tenant_names, ..SandboxConfig::sample(data) }
    }

    /// Loads one plugin and makes it the only one.
    async fn publish(&self, source: PluginSource) -> LoadedPlugin {
        let loaded = self.sandbox.load(source).await.unwrap();
        assert_eq!(self.sandbox.publish(vec![loaded.clone()]).1, Vec::new());
        loaded
    }

    fn start(&self, tool: &str, arguments: &str) -> RunningCall {
        self.start_with(tool, arguments, |_| {})
    }

    fn start_with(&self, tool: &str, arguments: &str, change: impl FnOnce(&mut CallSpec)) -> RunningCall {
        let catalog = self.sandbox.catalog();
        let entry = catalog.get(tool).unwrap();
        let mut spec = CallSpec {
            plugin: entry.plugin.clone(),
            tenant: TENANT,
            operation: Operation::CallTool { tool: entry.plugin_tool.clone(), arguments: Json::new(arguments) },
            share: Share::default(),
            activity: None,
            limits: entry.limits.clone(),
            facts: facts(),
            journaling: Journaling::Off,
        };
        change(&mut spec);
        self.sandbox.start(spec).unwrap()
    }

    async fn call(&self, tool: &str, arguments: &str) -> Result<ToolOutput, CallError> {
        finished(self.start(tool, arguments)).await
    }
}

/// Whose calls these are.
const TENANT: TenantId = TenantId([7; 16]);

fn facts() -> CallContext {
    CallContext {
        call_id: CallId([1; 16]),
        idempotency_key: OnDemand::Text("key".to_owned()),
        requestor_alias: OnDemand::Text("alias".to_owned()),
        seed: [7; 32],
        wants_progress: true,
        ..CallContext::detached()
    }
}

/// The defaults of the configuration.
pub(crate) fn limits() -> CallLimits {
    CallLimits::generous()
}

fn source(component: Source) -> PluginSource {
    PluginSource::bare(component, limits())
}

/// One of the sample plugins, once `cargo xtask plugins` has built them.
fn sample(name: &str) -> Option<PluginSource> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../target/plugins/{name}.wasm"));
    if !file.exists() {
        eprintln!("NOT RUN: {} is not built (cargo xtask plugins)", file.display());
        return None;
    }
    Some(source(Source::File(file)))
}

/// Reads events to the end; a question, a sleep or a wish gets no reply.
async fn finished(running: RunningCall) -> Result<ToolOutput, CallError> {
    events(running).await.1
}

/// All events but the last, and how it ended.
async fn events(mut running: RunningCall) -> (Vec<CallEvent>, Result<ToolOutput, CallError>) {
    let mut seen = Vec::new();
    let read = async {
        while let Some(event) = running.events.recv().await {
            if let CallEvent::Finished(outcome) = event {
                assert!(running.events.recv().await.is_none(), "Finished is the last event");
                return outcome;
            }
            // Dropping a reply says that nobody is there.
            if !matches!(event, CallEvent::InputRequests { .. } | CallEvent::Sleep { .. } | CallEvent::Detach { .. }) {
                seen.push(event);
            }
        }
        panic!("the events ended without Finished")
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), read).await.expect("a call ends");
    (seen, output_of(outcome))
}

fn output_of(outcome: Result<Returned, CallError>) -> Result<ToolOutput, CallError> {
    outcome.map(|returned| ToolOutput::try_from(returned).unwrap())
}

fn text(output: &ToolOutput) -> &str {
    match &output.content[0].kind {
        ContentKind::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

use bulkhead_domain::call::{ClientFeature, FaultKind};

fn fault(outcome: Result<ToolOutput, CallError>) -> (FaultKind, String) {
    match outcome {
        Err(CallError::Fault { kind, reason }) => (kind, reason),
        other => panic!("{other:?}"),
    }
}

/// Waits until a value has stood still for a while, and gives it back. A guest needs its thread to notice that it must
/// stop, and a busy machine may let that thread wait.
async fn settled<T: PartialEq>(mut read: impl FnMut() -> T) -> T {
    let mut last = read();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = read();
        if now == last {
            return now;
        }
        last = now;
    }
    panic!("it does not stand still");
}

#[test]
fn named_release_of_wasmtime_is_the_one_that_is_linked() {
    let lock = include_str!("../../../../Cargo.lock");
    assert!(lock.contains(&format!("name = \"wasmtime\"\nversion = \"{WASMTIME_VERSION}\"\n")));
}
