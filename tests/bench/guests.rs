//! A call in a sandbox without anything around it, in each language that guests are written in.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bulkhead_calls::{CallContext, CallEvent, CallSpec, Executor as _, Journaling, Operation};
use bulkhead_domain::Json;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::CallId;
use bulkhead_runtime::{PluginSource, Sandbox, SandboxConfig, Source};
use bulkhead_threads::Share;
use tests::place;

use crate::Plan;
use crate::load::Measured;
use crate::report::{Budget, Report};

/// The echo tools of guests that carry their language's runtime.
const SCRIPTS: [(&str, &str, &str); 2] =
    [("Python", "probe-python", "py_echo"), ("JavaScript", "probe-javascript", "js_echo")];

/// Store, instance, call and drop, without HTTP, JSON-RPC or tasks.
pub(crate) async fn sandbox_alone(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let sandbox = sandbox(&place::compiled_code())?;
    let rust = calls(&sandbox, "text", "echo", plan).await?;
    let made_of = format!("p99 {:.0} µs; with the way to the guests' threads and back", rust.quantile_us(0.99));
    // Without swap the host resets the slots of its pool in place, which is quicker.
    let can_swap = std::fs::read_to_string("/proc/swaps").map_or(true, |swaps| swaps.lines().count() > 1);
    let budget = Budget::AtMost(if can_swap { 45.0 } else { 25.0 });
    report.add("sandbox alone, a call, median", made_of, rust.quantile_us(0.5), "µs", budget);
    for (language, plugin, tool) in SCRIPTS {
        let work = format!("sandbox alone, a call in {language}, median");
        if !place::root().join("target/plugins").join(format!("{plugin}.wasm")).is_file() {
            eprintln!("{work}: not measured, {plugin} is not built (`cargo xtask plugins` says what it needs)");
            continue;
        }
        let script = calls(&sandbox, plugin, tool, plan).await?;
        let times = script.quantile_us(0.5) / rust.quantile_us(0.5);
        let made_of = format!("p99 {:.0} µs; {times:.0} times a call in Rust", script.quantile_us(0.99));
        report.add(&work, made_of, script.quantile_us(0.5), "µs", Budget::None);
    }
    Ok(())
}

pub(crate) fn sandbox(data: &Path) -> anyhow::Result<Arc<Sandbox>> {
    let totals = SandboxConfig::sample(data);
    Ok(Sandbox::new(SandboxConfig { calls_running_total: 64, calls_resting_total: 64, ..totals })?)
}

/// One call after the other of one tool, each in a fresh instance.
async fn calls(sandbox: &Arc<Sandbox>, plugin: &str, tool: &str, plan: &Plan) -> anyhow::Result<Measured> {
    let source = PluginSource::bare(Source::File(place::component(plugin)), CallLimits::generous());
    let loaded = sandbox.load(source).await?;
    ensure!(sandbox.publish(vec![loaded]).1.is_empty(), "the plugin is refused");
    let tool = sandbox.catalog().get(tool).context("the tool")?.clone();
    let spec = CallSpec {
        plugin: tool.plugin.clone(),
        tenant: TenantId([1; 16]),
        operation: Operation::CallTool {
            tool: tool.plugin_tool.clone(),
            arguments: Json::new(r#"{"text": "a text of ordinary length, as it may come from a model"}"#),
        },
        share: Share::default(),
        activity: None,
        limits: tool.limits.clone(),
        journaling: Journaling::Off,
        facts: CallContext { call_id: CallId([1; 16]), seed: [1; 32], ..CallContext::detached() },
    };
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < plan.each {
        let sent = Instant::now();
        let mut running = sandbox.start(spec.clone())?;
        let finished = running.events.recv().await;
        ensure!(matches!(finished, Some(CallEvent::Finished(Ok(_)))), "the call failed: {finished:?}");
        drop(running);
        times.push(sent.elapsed());
    }
    Ok(Measured::new(begin.elapsed(), times))
}
