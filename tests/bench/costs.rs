//! What one session, one waiting task and one start cost.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::{Host, Setup};

use crate::Plan;
use crate::load;
use crate::report::{Budget, Report};
use crate::throughput::{UNLIMITED, connections};

/// `tasks/get` while 64 guests loop for ever, and how soon their processor time is free again.
pub(crate) async fn reads_beside_loops(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let setup = Setup::with(&["hostile", "primes"]).config(UNLIMITED).config("[call]\ncpu_ms = 3600000");
    let mut tokens = Vec::new();
    for at in 0..4 {
        tokens.push(setup.token(&format!("looper-{at}"), &format!("tenant-{at}")).await);
    }
    let reader = setup.token("reader", "readers").await;
    let host = setup.start().await;
    let mut loops = Vec::new();
    for token in &tokens {
        let client = Client::connect_as(&host, Some(token), all_capabilities()).await;
        for _ in 0..16 {
            let id = client.task("spin", json!({})).await;
            loops.push((client.clone_session(), id));
        }
    }
    let client = Client::connect_as(&host, Some(&reader), all_capabilities()).await;
    let task = client.task("count_primes", json!({"below": 10})).await;
    let session = client.session.clone().context("a session")?;
    let bearer = format!("Bearer {reader}");
    let headers = [("authorization", &*bearer), ("mcp-session-id", &*session), ("mcp-protocol-version", "2025-11-25")];
    let connection = load::Connection::open(&host.url, &headers).await?;
    let read = load::drive(vec![connection], plan.each, move |_, turn| {
        json!({"jsonrpc": "2.0", "id": turn, "method": "tasks/get", "params": {"taskId": task}}).to_string()
    });
    let read = read.await?;
    let made_of = format!("median {:.2} ms, {:.0}/s on one connection", read.quantile_us(0.5) / 1e3, read.per_second);
    report.add(
        "loops: tasks/get beside 64 of them, p99",
        made_of,
        read.quantile_us(0.99) / 1e3,
        "ms",
        Budget::AtMost(25.0),
    );

    let mut slowest = Duration::ZERO;
    for (client, id) in &loops {
        let sent = Instant::now();
        client.about("tasks/cancel", id).await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        slowest = slowest.max(sent.elapsed());
    }
    let over = Instant::now();
    while host.cpu_ms_in(Duration::from_millis(20)).await > 10 {
        ensure!(over.elapsed() < Duration::from_secs(10), "the cancelled loops go on");
    }
    let free = over.elapsed().saturating_sub(Duration::from_millis(20));
    let made_of =
        format!("after the last of 64 cancels; the slowest cancel took {:.1} ms", slowest.as_secs_f64() * 1e3);
    report.add("loops: processor free after cancel", made_of, free.as_secs_f64() * 1e3, "ms", Budget::AtMost(50.0));
    Ok(())
}

/// How much longer a single call takes beside 500 loops of another tenant than alone. Two tenants with work for all
/// processors get half of them each, so a call that needs one processor should hardly notice on two.
pub(crate) async fn a_call_beside_a_crowd(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const LOOPS: usize = 500;
    let limits = "calls_running_per_requestor = 500\ntasks_running_per_requestor = 500\ncalls_running_total = 520\n\
                  [call]\ncpu_ms = 3600000\nwall_ms = 3600000";
    let unlimited = UNLIMITED.replace("calls_running_per_tenant = 256", "calls_running_per_tenant = 500");
    let setup = Setup::with(&["hostile", "primes"]).config(&format!("{unlimited}{limits}"));
    let crowd = setup.token("crowd", "crowd").await;
    let single = setup.token("single", "single").await;
    let host = setup.start().await;
    let crowd = Client::connect_as(&host, Some(&crowd), all_capabilities()).await;
    let single = Client::connect_as(&host, Some(&single), all_capabilities()).await;
    for (below, name) in [(10, "a call of no length"), (30_000_000, "a call of some length")] {
        let alone = calls(&single, below, plan.each).await?;
        let mut loops = Vec::new();
        for _ in 0..LOOPS {
            loops.push(crowd.task("spin", json!({})).await);
        }
        let beside = calls(&single, below, plan.each).await?;
        for id in loops {
            crowd.about("tasks/cancel", &id).await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        }
        let made_of =
            format!("medians: {:.1} ms alone, {:.1} ms beside 500 loops of one tenant", alone * 1e3, beside * 1e3);
        // A short call has to wait until a turn is over, which says nothing about shares.
        let budget = if below > 10 { Budget::AtMost(2.0) } else { Budget::None };
        report.add(&format!("crowd: {name} of another tenant, slowdown"), made_of, beside / alone, "x", budget);
    }
    Ok(())
}

/// The median of calls, one after the other, in seconds.
async fn calls(client: &Client, below: u64, each: Duration) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < each || times.len() < 5 {
        let sent = Instant::now();
        let called = client.tool("count_primes", json!({"below": below})).await;
        called.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        times.push(sent.elapsed());
    }
    times.sort();
    Ok(times.get(times.len() / 2).context("a time")?.as_secs_f64())
}

/// Resident memory for each idle session and each waiting task.
pub(crate) async fn memory(report: &mut Report) -> anyhow::Result<()> {
    const SESSIONS: usize = 5_000;
    const WAITING: usize = 200;
    let host = Setup::with(&["desk"]).config(UNLIMITED).start().await;
    // What the first ones bring to life is not theirs.
    connections(&host, 50).await?;
    let client = Client::connect(&host).await;
    waiting(&client, 20).await?;
    let before = resident_kib(&host)?;
    for _ in 0..SESSIONS {
        Client::connect_as(&host, None, json!({})).await;
    }
    let after = resident_kib(&host)?;
    let each = (after.saturating_sub(before)) as f64 / SESSIONS as f64;
    report.add("memory of an idle session", format!("{SESSIONS} of them"), each, "KiB", Budget::AtMost(4.0));
    waiting(&client, WAITING).await?;
    let each = (resident_kib(&host)?.saturating_sub(after)) as f64 / WAITING as f64;
    report.add("memory of a waiting task", format!("{WAITING} of them"), each, "KiB", Budget::AtMost(256.0));
    Ok(())
}

async fn waiting(client: &Client, count: usize) -> anyhow::Result<()> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(client.task("book_trip", json!({})).await);
    }
    for id in ids {
        client.until_status(&id, "input_required").await;
    }
    Ok(())
}

pub(crate) fn resident_kib(host: &Host) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("a line for it")?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
}

/// From the start of the process to the first answer, with twenty plugins.
pub(crate) async fn warm_start(report: &mut Report) -> anyhow::Result<()> {
    let mut setup = Setup::new().own_code().config(UNLIMITED);
    for at in 0..20 {
        let name = ["text", "primes", "desk", "csv"][at % 4];
        setup = setup.plugin_as(&format!("{name}-{at}"), name, &format!("prefix = \"p{at}_\""));
    }
    let started = async |setup: &Setup| {
        let begin = Instant::now();
        let host = setup.start().await;
        Client::connect(&host).await;
        (begin.elapsed(), host)
    };
    let (cold, host) = started(&setup).await;
    host.terminate().await;
    let mut warm = Vec::new();
    for _ in 0..5 {
        let (took, host) = started(&setup).await;
        host.terminate().await;
        warm.push(took);
    }
    warm.sort_unstable();
    let median = warm.get(2).copied().unwrap_or_default();
    let made_of = format!("cold, which compiles four components: {:.0} ms", cold.as_secs_f64() * 1e3);
    report.add("start with 20 plugins, warm", made_of, median.as_secs_f64() * 1e3, "ms", Budget::AtMost(150.0));
    Ok(())
}
