//! What it costs to have many plugins: to start with them, to list their tools, to call one of them.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use tests::client::Client;
use tests::{Host, Setup};

use crate::Plan;
use crate::load::{self, Measured};
use crate::report::{Budget, Report};
use crate::throughput::{CONNECTIONS, UNLIMITED, connections};

const FEW: usize = 20;
const MANY: usize = 200;
/// Starts of each host; the middle one counts.
const STARTS: usize = 5;
/// Turns that the hosts take at answering.
const TURNS: u32 = 3;

/// A host with this many plugins, each with the tools of `text` under names of its own.
fn setup(count: usize) -> Setup {
    (0..count).fold(Setup::new().own_code().config(UNLIMITED), |setup, at| {
        setup.plugin_as(&format!("text-{at}"), "text", &format!("prefix = \"p{at}_\""))
    })
}

/// From one plugin to two hundred.
pub(crate) async fn plugins(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let one = setup(1);
    let few = setup(FEW);
    let many = setup(MANY);
    let cold = started(&many).await?;
    for other in [&one, &few] {
        started(other).await?;
    }
    let least = start(&one).await?;
    let mean = start(&few).await?;
    let most = start(&many).await?;
    let made_of = format!(
        "{:.1} ms for each; {:.0} ms with {FEW}, {:.0} ms with 1; cold, which compiles one component: {:.0} ms",
        ms(most.saturating_sub(least)) / (MANY - 1) as f64,
        ms(mean),
        ms(least),
        ms(cold)
    );
    report.add("plugins: start with 200, warm", made_of, ms(most), "ms", Budget::None);
    let times = (MANY / FEW) as f64;
    let made_of = format!("{:.0} ms to {times} times {:.0} ms", ms(most), ms(mean));
    let growth = ms(most) / (ms(mean) * times);
    report.add("plugins: start with 200, to 10 times that with 20", made_of, growth, "x", Budget::AtMost(1.0));

    let one = one.start().await;
    let few = few.start().await;
    let many = many.start().await;
    let ((few_tools, few_took), (many_tools, many_took)) = (listed(&few, plan).await?, listed(&many, plan).await?);
    ensure!(many_tools * FEW == few_tools * MANY, "{few_tools} tools of {FEW} plugins, {many_tools} of {MANY}");
    let each = |took: Duration, tools: usize| ms(took) * 1e3 / tools as f64;
    let made_of = format!("{many_tools} tools; {few_tools} tools in {:.2} ms", ms(few_took));
    report.add("plugins: tools/list of 200, median", made_of, ms(many_took), "ms", Budget::None);
    let a_few = each(few_took, few_tools);
    let a_many = each(many_took, many_tools);
    let made_of = format!("{a_many:.1} µs a tool with {MANY} plugins, {a_few:.1} µs with {FEW}");
    report.add("plugins: tools/list, cost of each as they grow", made_of, a_many / a_few, "x", Budget::AtMost(1.5));

    let mut alone = Vec::new();
    let mut among = Vec::new();
    for _ in 0..TURNS {
        alone.push(echoes(&one, 0, plan.each / TURNS).await?);
        among.push(echoes(&many, MANY / 2, plan.each / TURNS).await?);
    }
    let alone = Measured::of_turns(alone);
    let among = Measured::of_turns(among);
    let made_of = format!("{:.0}/s with {MANY} plugins, {:.0}/s with 1", among.per_second, alone.per_second);
    let ratio = among.per_second / alone.per_second;
    report.add("plugins: echo with 200, to 1", made_of, ratio, "x", Budget::AtLeast(0.9));
    Ok(())
}

/// From the start of the process to its first answer.
async fn started(setup: &Setup) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let host = setup.start().await;
    Client::connect(&host).await;
    let took = begin.elapsed();
    host.terminate().await;
    Ok(took)
}

async fn start(setup: &Setup) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        times.push(started(setup).await?);
    }
    Ok(median(times))
}

/// How many tools there are, and how long it takes to read all pages of the list.
async fn listed(host: &Host, plan: &Plan) -> anyhow::Result<(usize, Duration)> {
    let client = Client::connect(host).await;
    let begin = Instant::now();
    let mut times = Vec::new();
    let mut tools = 0;
    while begin.elapsed() < plan.each {
        let start = Instant::now();
        let mut params = json!({});
        tools = 0;
        loop {
            let page = client.call("tools/list", params).await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
            tools += page["tools"].as_array().map_or(0, Vec::len);
            match &page["nextCursor"] {
                Value::String(cursor) => params = json!({"cursor": cursor}),
                _ => break,
            }
        }
        times.push(start.elapsed());
    }
    Ok((tools, median(times)))
}

/// Calls of one plugin's echo, on all connections at once.
async fn echoes(host: &Host, plugin: usize, time: Duration) -> anyhow::Result<Measured> {
    load::drive(connections(host, CONNECTIONS).await?, time, move |_, turn| {
        let arguments = json!({"text": "a text of ordinary length, as it may come from a model"});
        let params = json!({"name": format!("p{plugin}_echo"), "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": turn, "method": "tools/call", "params": params}).to_string()
    })
    .await
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
