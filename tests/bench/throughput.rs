//! Rates and times of a whole host, seen from its clients.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::{Host, Setup};

use crate::Plan;
use crate::load::{self, Connection, Measured};
use crate::peers::{self, Peer};
use crate::report::{Budget, Report};

/// Connections at once, as the budgets have it.
pub(crate) const CONNECTIONS: usize = 16;

/// No limit of the host may be what is measured.
pub(crate) const UNLIMITED: &str = "[log]\nlevel = \"warn\"\n[server]\nsessions_per_requestor = 100000\nconnections_per_address = 10000\n[limits]\n\
    requests_per_second = 1000000\ntask_creations_per_second = 1000000\ntasks_stored_per_requestor = 10000000\n\
    tasks_stored_per_tenant = 10000000\ntasks_stored_bytes_per_requestor = 1000000000000\n\
    tasks_stored_bytes_per_tenant = 1000000000000\ntasks_queued_per_requestor = 100000\n\
    tasks_waiting_per_requestor = 700\ncalls_running_per_tenant = 256\n";

pub(crate) fn echo(_: usize, turn: u64) -> String {
    let params =
        json!({"name": "echo", "arguments": {"text": "a text of ordinary length, as it may come from a model"}});
    json!({"jsonrpc": "2.0", "id": turn, "method": "tools/call", "params": params}).to_string()
}

/// Connections in sessions of their own.
pub(crate) async fn connections(host: &Host, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let client = Client::connect_as(host, None, json!({})).await;
        connections.push(in_session(&client).await?);
    }
    Ok(connections)
}

async fn in_session(client: &Client) -> anyhow::Result<Connection> {
    let session = client.session.as_deref().context("a session")?;
    Connection::open(client.url(), &[("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")]).await
}

/// Connections to a peer that knows no sessions.
async fn plain(url: &str, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(Connection::open(url, &[("mcp-protocol-version", "2025-11-25")]).await?);
    }
    Ok(connections)
}

/// Echo calls and reads of tasks, against the bare handler and the native server. They take turns, so that what else
/// the machine does falls on all of them.
pub(crate) async fn calls_and_reads(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 6;
    let bare = peers::start(Peer::Bare).await?;
    let native = if cfg!(feature = "bench") { Some(peers::start(Peer::Native).await?) } else { None };
    let host = Setup::with(&["text", "primes"]).config(UNLIMITED).start().await;
    let client = Client::connect(&host).await;
    let task = client.task("count_primes", json!({"below": 10})).await;
    client.until_status(&task, "completed").await;
    let ping = |_: usize, turn: u64| json!({"jsonrpc": "2.0", "id": turn, "method": "ping"}).to_string();
    let get = move |_: usize, turn: u64| {
        json!({"jsonrpc": "2.0", "id": turn, "method": "tasks/get", "params": {"taskId": task}}).to_string()
    };
    let each = plan.each / ROUNDS;
    let mut to_bare = Vec::new();
    let mut to_native = Vec::new();
    let mut called = Vec::new();
    let mut read = Vec::new();
    let mut call_us = 0.0;
    let mut ping_us = 0.0;
    for _ in 0..ROUNDS {
        to_bare.push(load::drive(plain(&bare.url, CONNECTIONS).await?, each, echo).await?);
        let (turn, turn_us) = costed(&host, connections(&host, CONNECTIONS).await?, each, echo).await?;
        called.push(turn);
        call_us += turn_us / f64::from(ROUNDS);
        if let Some(native) = &native {
            to_native.push(load::drive(plain(&native.url, CONNECTIONS).await?, each, echo).await?);
        }
        let mut sharing = Vec::new();
        for _ in 0..CONNECTIONS {
            sharing.push(in_session(&client).await?);
        }
        read.push(load::drive(sharing, each, get.clone()).await?);
        ping_us += costed(&host, connections(&host, CONNECTIONS).await?, each, ping).await?.1 / f64::from(ROUNDS);
    }
    let [bare, called, read] = [to_bare, called, read].map(Measured::of_turns);
    let rate = |measured: &Measured| format!("{:.0}/s", measured.per_second);
    let ratio = called.per_second / bare.per_second;
    let made_of = format!("{} to {} of the bare handler, in turns", rate(&called), rate(&bare));
    report.add("legacy: sandboxed echo, 16 connections", made_of, ratio, "x", Budget::AtLeast(0.4));
    if native.is_some() {
        let native = Measured::of_turns(to_native);
        let made_of = format!("{} to {} of the native server, in turns", rate(&called), rate(&native));
        let ratio = called.per_second / native.per_second;
        report.add("legacy: sandboxed echo, 16 connections", made_of, ratio, "x", Budget::AtLeast(1.0));
    }
    let made_of = format!("processor time: {call_us:.0} µs an echo, {ping_us:.0} µs a ping");
    report.add("processor time of a call above a ping", made_of, call_us - ping_us, "µs", Budget::None);

    let one = load::drive(vec![in_session(&client).await?], plan.each / 4, get).await?;
    let made_of = format!(
        "{} to {} of the bare handler, in turns; median {:.0} µs on one connection",
        rate(&read),
        rate(&bare),
        one.quantile_us(0.5)
    );
    report.add("tasks/get, 16 connections", made_of, read.per_second / bare.per_second, "x", Budget::AtLeast(0.6));
    Ok(())
}

/// One client that waits for each reply, against the native server, and what its calls cost beside those of 16
/// connections.
pub(crate) async fn one_client(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 6;
    let native = if cfg!(feature = "bench") { Some(peers::start(Peer::Native).await?) } else { None };
    let host = Setup::with(&["text"]).config(UNLIMITED).start().await;
    let each = plan.each / ROUNDS;
    let mut called = Vec::new();
    let mut to_native = Vec::new();
    let mut one_us = 0.0;
    let mut many_us = 0.0;
    for _ in 0..ROUNDS {
        let (turn, turn_us) = costed(&host, connections(&host, 1).await?, each, echo).await?;
        called.push(turn);
        one_us += turn_us / f64::from(ROUNDS);
        if let Some(native) = &native {
            to_native.push(load::drive(plain(&native.url, 1).await?, each, echo).await?);
        }
        many_us += costed(&host, connections(&host, CONNECTIONS).await?, each, echo).await?.1 / f64::from(ROUNDS);
    }
    let called = Measured::of_turns(called);
    if native.is_some() {
        let native = Measured::of_turns(to_native);
        let made_of =
            format!("{:.0}/s to {:.0}/s of the native server, in turns", called.per_second, native.per_second);
        let ratio = called.per_second / native.per_second;
        report.add("legacy: sandboxed echo, 1 connection", made_of, ratio, "x", Budget::AtLeast(0.7));
    }
    let made_of = format!("{one_us:.0} µs on one connection, {many_us:.0} µs on {CONNECTIONS}");
    report.add("processor time of an echo, 1 to 16 connections", made_of, one_us / many_us, "x", Budget::AtMost(1.6));
    Ok(())
}

/// Profiles that compile sooner than `dist`, and where `cargo xtask bench` says that it put their hosts.
const SOONER_PROFILES: [(&str, &str); 2] = [("release", "BENCH_RELEASE_HOST"), ("dev", "BENCH_DEV_HOST")];

/// What a quicker build costs: echo calls on its host, against the one of `dist`.
pub(crate) async fn profiles(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    for (profile, variable) in SOONER_PROFILES {
        match std::env::var_os(variable) {
            Some(host) => compare_with_dist(plan, report, profile, host.into()).await?,
            None => eprintln!("{profile} profile: not measured, since {variable} names no host"),
        }
    }
    Ok(())
}

async fn compare_with_dist(plan: &Plan, report: &mut Report, profile: &str, host: PathBuf) -> anyhow::Result<()> {
    let setup = || Setup::with(&["text"]).config(UNLIMITED);
    let [dist, sooner] = echo_rates(plan, [setup().start().await, setup().program(host).start().await]).await?;
    let made_of = format!("{sooner:.0}/s to {dist:.0}/s of the dist profile, in turns");
    report.add(&format!("echo by the {profile} profile"), made_of, sooner / dist, "x", Budget::None);
    Ok(())
}

/// Optimisations that a reader has to understand, by the key that switches each off, and the least that it must bring.
const SWITCHES: [&str; 1] = ["connection_workers"];
const SWITCH_GAIN_MIN: f64 = 1.05;

/// What each optimisation brings: echo calls with it, against a host where it is switched off.
pub(crate) async fn switches(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    for switch in SWITCHES {
        let without = UNLIMITED.replace("[server]\n", &format!("[server]\n{switch} = false\n"));
        let setup = |config: &str| Setup::with(&["text"]).config(config);
        let [on, off] = echo_rates(plan, [setup(UNLIMITED).start().await, setup(&without).start().await]).await?;
        let made_of = format!("{on:.0}/s to {off:.0}/s with server.{switch} = false, in turns");
        let work = format!("echo with {switch}, against without");
        report.add(&work, made_of, on / off, "x", Budget::AtLeast(SWITCH_GAIN_MIN));
    }
    Ok(())
}

/// The least that is left of the rate of a host that counts, and is scraped every second.
const COUNTING_RATE_MIN: f64 = 0.98;

/// What metrics cost: echo calls on a host that is scraped every second, against one that counts nothing, in turns.
pub(crate) async fn metrics(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 6;
    // Between here and there another program could take the port, but the system hands them out in turn.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let counting = format!("{UNLIMITED}[metrics]\nlisten = \"{address}\"\n");
    let setup = |config: &str| Setup::with(&["text"]).config(config);
    let hosts = [setup(&counting).start().await, setup(UNLIMITED).start().await];
    let scraping = tokio::spawn(scrape(address));
    let mut measured = [Vec::new(), Vec::new()];
    let mut cost_us = [0.0; 2];
    for _ in 0..ROUNDS {
        for ((host, measured), cost_us) in hosts.iter().zip(&mut measured).zip(&mut cost_us) {
            let connections = connections(host, CONNECTIONS).await?;
            let (turn, turn_us) = costed(host, connections, plan.each / ROUNDS, echo).await?;
            measured.push(turn);
            *cost_us += turn_us / f64::from(ROUNDS);
        }
    }
    if scraping.is_finished() {
        match scraping.await? {
            Err(error) => return Err(error.context("a scrape failed")),
            Ok(never) => match never {},
        }
    }
    scraping.abort();
    let [on, off] = measured.map(|rounds| Measured::of_turns(rounds).per_second);
    let made_of = format!("{on:.0}/s to {off:.0}/s without metrics, in turns");
    report.add("echo with metrics, against without", made_of, on / off, "x", Budget::AtLeast(COUNTING_RATE_MIN));
    let [on, off] = cost_us;
    let made_of = format!("processor time: {on:.1} µs an echo to {off:.1} µs without metrics, scrapes among it");
    report.add("processor time of an echo for metrics", made_of, on - off, "µs", Budget::None);
    Ok(())
}

/// Reads the page of a host every second.
async fn scrape(address: std::net::SocketAddr) -> anyhow::Result<Infallible> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let page = http.get(format!("http://{address}/metrics")).send().await?.error_for_status()?.text().await?;
        anyhow::ensure!(page.contains("bulkhead_build_info"), "this is no page of metrics");
    }
}

/// Echo calls for each second, on two hosts in turns.
async fn echo_rates(plan: &Plan, hosts: [Host; 2]) -> anyhow::Result<[f64; 2]> {
    const ROUNDS: u32 = 6;
    let mut measured = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (host, measured) in hosts.iter().zip(&mut measured) {
            measured.push(load::drive(connections(host, CONNECTIONS).await?, plan.each / ROUNDS, echo).await?);
        }
    }
    Ok(measured.map(|rounds| Measured::of_turns(rounds).per_second))
}

/// A measurement with the host's processor time for each request, in microseconds.
pub(crate) async fn costed(
    host: &Host,
    connections: Vec<Connection>,
    each: Duration,
    body: impl Fn(usize, u64) -> String + Clone + Send + 'static,
) -> anyhow::Result<(Measured, f64)> {
    let before = host.cpu_ms();
    let measured = load::drive(connections, each, body).await?;
    let used_us = (host.cpu_ms() - before) as f64 * 1000.0;
    // The time to get warm, a fifth more, is in the processor time and not in the count.
    let requests = measured.per_second * each.as_secs_f64() * 1.2;
    Ok((measured, used_us / requests))
}

/// From the creation of a task until `tasks/get` says that it is completed.
pub(crate) async fn created_to_completed(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let host = Setup::with(&["primes"]).config(UNLIMITED).start().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    let mut connection = in_session(&client).await?;
    let begin = Instant::now();
    let mut times = Vec::new();
    let mut turn = 0u64;
    while begin.elapsed() < plan.each {
        let sent = Instant::now();
        create_and_wait(&mut connection, &mut turn).await?;
        times.push(sent.elapsed());
    }
    let measured = Measured::new(begin.elapsed(), times);
    let made_of = format!("p99 {:.2} ms, one at a time, polled without pause", measured.quantile_us(0.99) / 1000.0);
    let median_ms = measured.quantile_us(0.5) / 1000.0;
    report.add("tasks: created to completed, median", made_of, median_ms, "ms", Budget::AtMost(3.0));
    Ok(())
}

async fn create_and_wait(connection: &mut Connection, turn: &mut u64) -> anyhow::Result<()> {
    let mut request = |method: &str, params: Value| {
        *turn += 1;
        json!({"jsonrpc": "2.0", "id": *turn, "method": method, "params": params}).to_string()
    };
    let params = json!({"name": "count_primes", "arguments": {"below": 10}, "task": {"ttl": 600_000}});
    let created: Value = serde_json::from_slice(connection.call(&request("tools/call", params)).await?)?;
    let id = created["result"]["task"]["taskId"].clone();
    loop {
        let task: Value = serde_json::from_slice(connection.call(&request("tasks/get", json!({"taskId": id}))).await?)?;
        match task["result"]["status"].as_str() {
            Some("working") => {}
            Some("completed") => return Ok(()),
            other => anyhow::bail!("the task is {other:?}"),
        }
    }
}

/// How much dearer reading gets as tasks pile up.
pub(crate) async fn growth(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let host = Setup::with(&["primes"]).config(UNLIMITED).start().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    let mut stored = 0;
    let mut medians = Vec::new();
    for goal in [1_000, 20_000] {
        while stored < goal {
            let each = Duration::from_millis(500);
            let created = load::drive(connections(&host, CONNECTIONS).await?, each, |_, turn| {
                let params = json!({"name": "count_primes", "arguments": {"below": 10}, "task": {"ttl": 3_600_000}});
                json!({"jsonrpc": "2.0", "id": turn, "method": "tools/call", "params": params}).to_string()
            });
            stored += (created.await?.per_second * each.as_secs_f64()) as u64;
        }
        let list = |_: usize, turn: u64| json!({"jsonrpc": "2.0", "id": turn, "method": "tasks/list"}).to_string();
        let read = load::drive(vec![in_session(&client).await?], plan.each / 2, list).await?;
        medians.push((stored, read.quantile_us(0.5)));
    }
    if let [(few, before), (many, after)] = medians[..] {
        let made_of = format!("median {before:.0} µs at {few} tasks, {after:.0} µs at {many}");
        report.add("growth of tasks/list", made_of, after / before, "x", Budget::AtMost(1.5));
    }
    Ok(())
}
