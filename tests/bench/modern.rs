//! The modern era: a sandboxed echo against the same request elsewhere, what being ready to promote costs, and clients
//! that poll.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tests::modern::{Modern, TASKS};
use tests::{Host, Setup};

use crate::Plan;
use crate::load::{self, Connection, Measured};
use crate::peers::{self, Peer};
use crate::report::{Budget, Report};
use crate::throughput::{CONNECTIONS, UNLIMITED, costed};

/// A request as a client of this era sends it.
pub(crate) fn message(turn: u64, method: &str, mut params: Value, capabilities: &Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"}
    });
    json!({"jsonrpc": "2.0", "id": turn, "method": method, "params": params}).to_string()
}

/// A connection for requests of one method about one thing.
pub(crate) async fn connection(url: &str, method: &str, name: &str) -> anyhow::Result<Connection> {
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
    let headers = if name.is_empty() { &headers[..2] } else { &headers };
    Connection::open(url, headers).await
}

pub(crate) async fn connections(url: &str, method: &str, name: &str) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connection(url, method, name).await?);
    }
    Ok(connections)
}

fn echo(_: usize, turn: u64) -> String {
    let arguments = json!({"text": "a text of ordinary length, as it may come from a model"});
    message(turn, "tools/call", json!({"name": "echo", "arguments": arguments}), &json!({}))
}

/// The headline: byte for byte the same request, on as many kept connections, to a sandbox, to a constant, and to a
/// native tool. They take turns, so that what else the machine does falls on all of them.
pub(crate) async fn calls(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 6;
    let host = Setup::with(&["text"]).config(UNLIMITED).start().await;
    let bare = peers::start(Peer::Bare).await?;
    let native = if cfg!(feature = "bench") { Some(peers::start(Peer::Native).await?) } else { None };
    let each = plan.each / ROUNDS;
    let mut called = Vec::new();
    let mut to_bare = Vec::new();
    let mut to_native = Vec::new();
    let mut cpu_us = 0.0;
    for _ in 0..ROUNDS {
        to_bare.push(load::drive(connections(&bare.url, "tools/call", "echo").await?, each, echo).await?);
        let to_host = connections(&host.url, "tools/call", "echo").await?;
        let (turn, turn_us) = costed(&host, to_host, each, echo).await?;
        called.push(turn);
        cpu_us += turn_us / f64::from(ROUNDS);
        if let Some(native) = &native {
            to_native.push(load::drive(connections(&native.url, "tools/call", "echo").await?, each, echo).await?);
        }
    }
    let called = Measured::of_turns(called);
    let mut compare = |name: &str, turns: Vec<Measured>, least: f64| {
        let other = Measured::of_turns(turns);
        let made_of = format!(
            "{:.0}/s (median {:.2} ms, p99 {:.2} ms, {cpu_us:.0} µs of processor time each) to {:.0}/s of the {name}, in turns",
            called.per_second,
            called.quantile_us(0.5) / 1e3,
            called.quantile_us(0.99) / 1e3,
            other.per_second
        );
        let ratio = called.per_second / other.per_second;
        report.add("modern: sandboxed echo, 16 connections", made_of, ratio, "x", Budget::AtLeast(least));
    };
    compare("bare handler", to_bare, 0.4);
    if native.is_some() {
        compare("native server", to_native, 1.0);
    }
    Ok(())
}

/// A fast call of a tool that may become a task, by clients that know tasks and by clients that do not.
pub(crate) async fn promotion(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 8;
    let host = Setup::with(&["primes"]).config(UNLIMITED).start().await;
    let with = json!({"extensions": {TASKS: {}}});
    let fast = |capabilities: Value| {
        move |_: usize, turn: u64| {
            let params = json!({"name": "count_primes", "arguments": {"below": 10}});
            message(turn, "tools/call", params, &capabilities)
        }
    };
    // The first second writes what a start writes.
    load::drive(
        connections(&host.url, "tools/call", "count_primes").await?,
        Duration::from_secs(1),
        fast(with.clone()),
    )
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = written(&host)?;
    let mut promotable = 0.0;
    let mut plain = 0.0;
    for round in 0..ROUNDS {
        let mut turns = [(with.clone(), &mut promotable), (json!({}), &mut plain)];
        // Whoever goes first in one round goes last in the next: what gets slower or faster meanwhile does so for both.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (capabilities, rate) in turns {
            let to_host = connections(&host.url, "tools/call", "count_primes").await?;
            let measured = load::drive(to_host, plan.each / ROUNDS, fast(capabilities)).await?;
            *rate += measured.per_second / f64::from(ROUNDS);
        }
    }
    // What waits to be written is on its way within a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bytes = written(&host)? - before;
    let made_of = format!("{promotable:.0}/s with the tasks extension to {plain:.0}/s without, in turns");
    report.add("modern: fast call that may become a task", made_of, promotable / plain, "x", Budget::AtLeast(0.95));

    let client = Modern::full(&host, None);
    let slow = client.tool("count_primes", json!({"below": 100_000_000_000u64})).await;
    ensure!(slow["resultType"] == "task", "a slow call becomes a task: {slow}");
    let one = written(&host)? - before - bytes;
    ensure!(one > 0, "the record of a task is written");
    let made_of = format!("by these calls, as the kernel counts it; the record of one slow call: {one} bytes");
    report.add("modern: written to disk by fast calls", made_of, bytes as f64, "bytes", Budget::AtMost(0.0));
    Ok(())
}

/// Bytes that the host has given to the disk, or will.
fn written(host: &Host) -> anyhow::Result<u64> {
    let io = std::fs::read_to_string(format!("/proc/{}/io", host.pid()))?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).context("a line for it")?;
    Ok(line.trim().parse()?)
}

/// Few and many clients that ask for their tasks without a pause.
pub(crate) async fn polling(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 3;
    const TASKS_MAX: usize = 64;
    let peer = peers::start(Peer::Bare).await?;
    let required = "[plugin.tool.count_primes]\ntask_support = \"required\"";
    let host = Setup::new().plugin("primes", required).config(UNLIMITED).start().await;
    let client = Modern::full(&host, None);
    let mut tasks = Vec::new();
    for _ in 0..TASKS_MAX {
        tasks.push(client.task("count_primes", json!({"below": 10})).await);
    }
    for task in &tasks {
        client.until_status(task, "completed").await;
    }
    ensure!(tasks.iter().collect::<HashSet<_>>().len() == TASKS_MAX, "tasks of their own");
    for clients in [1, 64, 1000] {
        let asked = tasks.clone();
        let get = move |who: usize, turn: u64| {
            let capabilities = json!({"extensions": {TASKS: {}}});
            message(turn, "tasks/get", json!({"taskId": asked[who % TASKS_MAX]}), &capabilities)
        };
        let mut read = Vec::new();
        let mut bare = Vec::new();
        for _ in 0..ROUNDS {
            for (url, turns) in [(&peer.url, &mut bare), (&host.url, &mut read)] {
                let mut connections = Vec::new();
                for who in 0..clients {
                    connections.push(connection(url, "tasks/get", &tasks[who % TASKS_MAX]).await?);
                }
                turns.push(load::drive(connections, plan.each / (2 * ROUNDS), get.clone()).await?);
            }
        }
        let read = Measured::of_turns(read);
        let bare = Measured::of_turns(bare);
        let made_of = format!(
            "{:.0}/s (median {:.2} ms, p99 {:.2} ms) to {:.0}/s of the bare handler (p99 {:.2} ms), in turns",
            read.per_second,
            read.quantile_us(0.5) / 1e3,
            read.quantile_us(0.99) / 1e3,
            bare.per_second,
            bare.quantile_us(0.99) / 1e3
        );
        let ratio = read.per_second / bare.per_second;
        report.add(&format!("modern: tasks/get by {clients} clients"), made_of, ratio, "x", Budget::AtLeast(0.6));
    }
    Ok(())
}
