//! A call in a sandbox without anything around it, in each language that guests are written in.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Page faults and processor time of a call in each language: with memories that are restored page by page, against the
/// pool's.
pub(crate) async fn resets(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 4;
    let totals = SandboxConfig::sample(&place::compiled_code());
    let own = Sandbox::new(SandboxConfig { memory_images: true, calls_resting_total: 64, ..totals.clone() })?;
    let pooled = Sandbox::new(SandboxConfig { calls_resting_total: 64, ..totals })?;
    for (language, plugin, tool) in SCRIPTS {
        if !place::root().join("target/plugins").join(format!("{plugin}.wasm")).is_file() {
            eprintln!(
                "resets, {language}: not measured, {plugin} is not built (`cargo xtask plugins` says what it needs)"
            );
            continue;
        }
        let mut used = [Used::MOST; 2];
        for _ in 0..ROUNDS {
            for (sandbox, used) in [&own, &pooled].into_iter().zip(&mut used) {
                let spec = publish(sandbox, plugin, tool).await?;
                // Slots become warm.
                repeat(sandbox, &spec, plan.each / 20).await?;
                let begin = Used::of_this_process()?;
                let calls = repeat(sandbox, &spec, plan.each / ROUNDS).await?.calls();
                *used = used.least(&Used::of_this_process()?.since(&begin, calls));
            }
        }
        let [own, pooled] = used;
        let made_of = format!("{:.0} with server.memory_images = false, least of {ROUNDS} turns", pooled.faults);
        report.add(&format!("resets, {language}: page faults a call"), made_of, own.faults, "", Budget::AtMost(5.0));
        let made_of = format!("{:.0} µs to {:.0} µs of processor time", own.cpu_us, pooled.cpu_us);
        let work = format!("resets, {language}: processor time a call, against the pool");
        let most = if language == "Python" { 0.55 } else { 0.7 };
        report.add(&work, made_of, own.cpu_us / pooled.cpu_us, "x", Budget::AtMost(most));
    }
    Ok(())
}

/// What this process has used.
#[derive(Clone, Copy)]
struct Used {
    faults: f64,
    cpu_us: f64,
}

impl Used {
    const MOST: Self = Self { faults: f64::INFINITY, cpu_us: f64::INFINITY };

    fn of_this_process() -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let (_, fields) = stat.rsplit_once(") ").context("fields")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |at: usize| anyhow::Ok(fields.get(at).context("a field")?.parse::<f64>()?);
        // From `state` on: `minflt`, and `utime` and `stime` in hundredths of a second.
        Ok(Self { faults: number(7)?, cpu_us: (number(11)? + number(12)?) * 1e4 })
    }

    /// For each of so many calls.
    fn since(&self, before: &Self, calls: usize) -> Self {
        let calls = calls as f64;
        Self { faults: (self.faults - before.faults) / calls, cpu_us: (self.cpu_us - before.cpu_us) / calls }
    }

    /// What else the machine does only adds.
    fn least(&self, other: &Self) -> Self {
        Self { faults: self.faults.min(other.faults), cpu_us: self.cpu_us.min(other.cpu_us) }
    }
}

pub(crate) fn sandbox(data: &Path) -> anyhow::Result<Arc<Sandbox>> {
    let totals = SandboxConfig::sample(data);
    Ok(Sandbox::new(SandboxConfig { calls_running_total: 64, calls_resting_total: 64, ..totals })?)
}

/// One call after the other of one tool, each in a fresh instance.
async fn calls(sandbox: &Arc<Sandbox>, plugin: &str, tool: &str, plan: &Plan) -> anyhow::Result<Measured> {
    let spec = publish(sandbox, plugin, tool).await?;
    repeat(sandbox, &spec, plan.each).await
}

/// A call of one tool of the only plugin.
async fn publish(sandbox: &Arc<Sandbox>, plugin: &str, tool: &str) -> anyhow::Result<CallSpec> {
    let source = PluginSource::bare(Source::File(place::component(plugin)), CallLimits::generous());
    let loaded = sandbox.load(source).await?;
    ensure!(sandbox.publish(vec![loaded]).1.is_empty(), "the plugin is refused");
    let tool = sandbox.catalog().get(tool).context("the tool")?.clone();
    Ok(CallSpec {
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
    })
}

async fn repeat(sandbox: &Arc<Sandbox>, spec: &CallSpec, each: Duration) -> anyhow::Result<Measured> {
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < each {
        let sent = Instant::now();
        let mut running = sandbox.start(spec.clone())?;
        let finished = running.events.recv().await;
        ensure!(matches!(finished, Some(CallEvent::Finished(Ok(_)))), "the call failed: {finished:?}");
        drop(running);
        times.push(sent.elapsed());
    }
    Ok(Measured::new(begin.elapsed(), times))
}
