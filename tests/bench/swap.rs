//! What a switch costs: whoever asks for it, and whoever calls meanwhile.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bulkhead_control::Operator as _;
use bulkhead_control::client::ControlClient as Control;
use bulkhead_control::commands::{PluginActivate, PluginTarget};
use serde_json::json;
use tests::client::{Client, text};
use tests::place::variant;
use tests::{Host, Setup, command};

use crate::Plan;
use crate::report::{Budget, Report};
use crate::throughput::UNLIMITED;

const SAID: [&str; 2] = ["The texts are the same.", "The texts are the SAME."];
/// Callers beside the one who switches.
const CALLERS: usize = 4;

/// From the command to the first call on the new version, and the times of calls with and without switches.
pub(crate) async fn swaps(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let setup = Setup::with(&["text"]).config(UNLIMITED);
    let host = setup.start().await;
    let first = command::json(&["plugin", "versions", "text"], &setup.data()).await;
    let path = setup.path("text-2.wasm");
    std::fs::write(&path, variant("text", SAID[0], SAID[1]))?;
    let path = path.display().to_string();
    let second = command::json(&["plugin", "stage", &path, "--name", "text"], &setup.data()).await;
    let versions = [&first["versions"][0]["version"], &second["version"]];
    let versions = versions.map(|version| version.as_str().unwrap_or_default().to_owned());
    let control = Control::connect(&setup.data()).await?.context("the host has no socket")?;
    let switch = async |to: usize| -> anyhow::Result<()> {
        let version = versions.get(to).cloned();
        let targets = vec![PluginTarget { name: "text".to_owned(), version }];
        let done = control.execute(PluginActivate { targets, accept: false }).await?;
        anyhow::ensure!(done.is_done(), "not switched: {done:?}");
        Ok(())
    };

    let client = Client::connect(&host).await;
    let mut took = Vec::new();
    for swap in 1..=50 {
        let start = Instant::now();
        switch(swap % 2).await?;
        let said = client.tool("diff", json!({"before": "a", "after": "a"})).await;
        took.push(start.elapsed());
        let said = said.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        anyhow::ensure!(text(&said) == SAID[swap % 2], "the first call is on the new version");
    }
    let p50 = percentile(&mut took, 50);
    let made_of = format!("50 switches, p99 {:.1} ms", ms(percentile(&mut took, 99)));
    report.add("swap, warm cache, to the first call (p50)", made_of, ms(p50), "ms", Budget::AtMost(50.0));

    let quiet = percentile(&mut calls(&host, plan.each, async || Ok(())).await?, 99);
    let mut turn = 0;
    let busy = calls(&host, plan.each, async || {
        turn += 1;
        switch(turn % 2).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    });
    let busy = percentile(&mut busy.await?, 99);
    let made_of = format!("p99 {:.2} ms with a switch every 20 ms, {:.2} ms without", ms(busy), ms(quiet));
    let ratio = ms(busy) / ms(quiet).max(f64::EPSILON);
    report.add("calls while plugins are swapped (p99)", made_of, ratio, "x", Budget::AtMost(1.5));
    Ok(())
}

/// The times of calls for a while, with something done again and again beside them.
async fn calls(
    host: &Host,
    each: Duration,
    mut beside: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Duration>> {
    let until = Instant::now() + each;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let client = Client::connect(host).await;
        callers.spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < until {
                let start = Instant::now();
                client.tool("diff", json!({"before": "a", "after": "a"})).await.expect("no call fails");
                took.push(start.elapsed());
            }
            took
        });
    }
    while Instant::now() < until {
        beside().await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut all = Vec::new();
    while let Some(took) = callers.join_next().await {
        all.extend(took?);
    }
    Ok(all)
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
