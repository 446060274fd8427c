//! What a journal costs a call that may become a task, and how fast one is replayed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bulkhead_calls::journal::{History, JournalReport, JournalStatus};
use bulkhead_calls::{CallContext, CallEvent, CallSpec, Executor as _, Journaling, Operation, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::{CallLimits, KeyValueLimits};
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::CallId;
use bulkhead_runtime::{PluginSource, Sandbox, Source};
use bulkhead_threads::Share;
use serde_json::{Value, json};
use tests::modern::TASKS;
use tests::{Host, Setup, place};

use crate::Plan;
use crate::guests::sandbox;
use crate::load;
use crate::modern::{connections, message};
use crate::report::{Budget, Report};
use crate::throughput::UNLIMITED;

/// The least that is left of the rate of a host that keeps no journals.
const JOURNALED_RATE_MIN: f64 = 0.97;
/// Entries of a journal that are replayed in a second, at least.
const REPLAYED_MIN: f64 = 100_000.0;
/// Entries of the journal that is replayed.
const ENTRIES: usize = 5_000;

/// Tools of one plugin, which is durable under the first name alone.
const TOOLS: [&str; 2] = ["count_primes", "forgetful_count_primes"];
/// Hosts that are measured one after the other: where a process happens to place code and data favours one of the tools
/// by as much as is looked for.
const HOSTS: u32 = 5;
/// Turns of both tools on one host, many and short: what else the machine does changes within seconds, and a turn that
/// it falls on counts no more than others.
const TURNS: u32 = 36;

/// A fast call that may become a task, of a plugin that is durable and of the same that is not, in turns. One host
/// serves both: two processes of one program differ by more than what is looked for.
pub(crate) async fn calls(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let mut rates = [const { Vec::new() }; 2];
    for _ in 0..HOSTS {
        let host = Setup::new()
            .plugin("primes", "")
            .plugin_as("forgetful", "primes", "prefix = \"forgetful_\"\ndurable = \"off\"")
            .config(UNLIMITED)
            .start()
            .await;
        for turn in 0..TURNS {
            // The tool that goes first in one turn goes last in the next: what changes meanwhile does so for both.
            let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                rates[at].push(call_rate(&host, TOOLS[at], plan.each / 30).await?);
            }
        }
    }
    let mut ratios: Vec<_> = rates[0].iter().zip(&rates[1]).map(|(on, off)| on / off).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let [on, off] = rates.map(|rates| rates.iter().sum::<f64>() / rates.len() as f64);
    let made_of = format!(
        "median of {TURNS} turns on each of {HOSTS} hosts; {on:.0}/s of a durable plugin to {off:.0}/s of one that is not"
    );
    let budget = Budget::AtLeast(JOURNALED_RATE_MIN);
    report.add("durable: fast call that may become a task", made_of, ratio, "x", budget);
    Ok(())
}

/// Calls of a tool in a second.
async fn call_rate(host: &Host, tool: &'static str, time: Duration) -> anyhow::Result<f64> {
    let fast = move |_: usize, turn: u64| {
        let params = json!({"name": tool, "arguments": {"below": 10}});
        message(turn, "tools/call", params, &json!({"extensions": {TASKS: {}}}))
    };
    let to_host = connections(&host.url, "tools/call", tool).await?;
    Ok(load::drive(to_host, time, fast).await?.per_second)
}

/// One journal, many times, in this process.
pub(crate) async fn replays(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let sandbox = sandbox(&place::compiled_code())?;
    let mut source = PluginSource::bare(Source::File(place::component("durable")), CallLimits::generous());
    source.grants.keyvalue = Some(KeyValueLimits { keys_max: 10, bytes_max: 1 << 20, value_bytes_max: 1 << 16 });
    let loaded = sandbox.load(source).await?;
    ensure!(sandbox.publish(vec![loaded]).1.is_empty(), "the plugin is refused");
    let tool = sandbox.catalog().get("script").context("the tool")?.clone();
    let acts: Vec<Value> = vec![json!({"find": {"key": 1}}); ENTRIES];
    let arguments = Json::new(json!({ "acts": acts }).to_string());
    let recorded = run(&sandbox, &tool, &arguments, Journaling::InMemory).await?;
    ensure!(recorded.status == JournalStatus::Ended, "nothing was recorded: {:?}", recorded.status);
    let entries = f64::from(recorded.entries);
    let begin = Instant::now();
    let mut took = Vec::new();
    while begin.elapsed() < plan.each {
        let sent = Instant::now();
        let replayed =
            run(&sandbox, &tool, &arguments, Journaling::Replay(History(recorded.history.0.clone()))).await?;
        took.push(sent.elapsed());
        ensure!(replayed == recorded, "the replay left its journal: {:?}", replayed.status);
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or(Duration::MAX);
    let made_of = format!(
        "{entries} entries, {} bytes, in {:.1} ms, the guest's own work among it",
        recorded.history.0.len(),
        median.as_secs_f64() * 1e3
    );
    let per_second = entries / median.as_secs_f64();
    report.add("durable: entries replayed in a second", made_of, per_second, "/s", Budget::AtLeast(REPLAYED_MIN));
    Ok(())
}

/// A call to its end, and its journal.
async fn run(
    sandbox: &Arc<Sandbox>,
    tool: &ToolEntry,
    arguments: &Json,
    journaling: Journaling,
) -> anyhow::Result<JournalReport> {
    let services = bulkhead_tasks::in_memory(Arc::new(ManualClock::at(1_800_000_000_000)));
    let facts = CallContext {
        call_id: CallId([1; 16]),
        seed: [1; 32],
        guest_services: Some(services),
        ..CallContext::detached()
    };
    let spec = CallSpec {
        plugin: tool.plugin.clone(),
        tenant: TenantId([1; 16]),
        operation: Operation::CallTool { tool: tool.plugin_tool.clone(), arguments: arguments.clone() },
        share: Share::default(),
        activity: None,
        limits: tool.limits.clone(),
        journaling,
        facts,
    };
    let mut running = sandbox.start(spec)?;
    while let Some(event) = running.events.recv().await {
        if let CallEvent::Finished(outcome) = event {
            outcome.map_err(|error| anyhow::anyhow!("the call failed: {error:?}"))?;
            return running.control.journal().cloned().context("the call has no journal");
        }
    }
    anyhow::bail!("the call broke off")
}
