//! How soon somebody who pulls a lever on a running task sees it move, and how soon a crowd does that watches.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tests::collector::Collector;
use tests::modern::{INTERACTION, Modern, TASKS};
use tests::{Host, Setup};

use crate::Plan;
use crate::load::{Connection, Measured};
use crate::modern::{connection, message};
use crate::report::{Budget, Report};
use crate::throughput::{CONNECTIONS, UNLIMITED, connections, costed, echo};

/// A client that pulls levers as fast as it can.
struct Hand {
    url: String,
    task: String,
    turn: u64,
}

impl Hand {
    fn new(host: &Host, task: &str) -> Self {
        Self { url: host.url.clone(), task: task.to_owned(), turn: 0 }
    }

    async fn on(&self, method: &str) -> anyhow::Result<Connection> {
        connection(&self.url, method, &self.task).await
    }

    fn request(&mut self, method: &str, mut further: Value) -> String {
        self.turn += 1;
        further["taskId"] = json!(self.task);
        message(self.turn, method, further, &capabilities())
    }
}

fn capabilities() -> Value {
    json!({"extensions": {TASKS: {}, INTERACTION: {"steer": true, "pause": true}}})
}

/// A guest that loops without a call to the host, paused and resumed again and again.
pub(crate) async fn pause(report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: usize = 60;
    let host = Setup::with(&["hostile"]).config(UNLIMITED).config("[call]\ncpu_ms = 3600000").start().await;
    let task = Modern::full(&host, None).task("spin", json!({})).await;
    let mut hand = Hand::new(&host, &task);
    let mut pauses = hand.on("tasks/pause").await?;
    let mut resumes = hand.on("tasks/resume").await?;
    let begin = Instant::now();
    let mut stood = Vec::new();
    let mut replied = Vec::new();
    for round in 0..ROUNDS {
        // Another part of the guest's time slice each time.
        tokio::time::sleep(Duration::from_micros(15_000 + 700 * (round as u64 % 16))).await;
        ensure!(guests_run(&host)?, "the guest loops");
        let request = hand.request("tasks/pause", json!({}));
        let sent = Instant::now();
        let watched = async {
            // Twice: a thread that goes from one guest to the next sleeps in between.
            while guests_run(&host)? || guests_run(&host)? {
                ensure!(sent.elapsed() < Duration::from_secs(10), "the guest goes on");
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            anyhow::Ok(sent.elapsed())
        };
        let asked = async {
            pauses.call(&request).await?;
            anyhow::Ok(sent.elapsed())
        };
        let (stands, reply) = tokio::try_join!(watched, asked)?;
        stood.push(stands);
        replied.push(reply);
        let request = hand.request("tasks/resume", json!({}));
        resumes.call(&request).await?;
    }
    let stood = Measured::new(begin.elapsed(), stood);
    let replied = Measured::new(begin.elapsed(), replied);
    let made_of = format!(
        "slowest of {ROUNDS}; median {:.1} ms; the reply, which waits for the disk: median {:.1} ms",
        stood.quantile_us(0.5) / 1e3,
        replied.quantile_us(0.5) / 1e3
    );
    report.add(
        "levers: request to pause until a looping guest stands",
        made_of,
        stood.quantile_us(1.0) / 1e3,
        "ms",
        Budget::AtMost(50.0),
    );
    Ok(())
}

/// What traces cost a call: echo calls on a host without them, on one that records nothing, and on one that records
/// everything.
pub(crate) async fn traces(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    const ROUNDS: u32 = 6;
    let collector = Collector::start().await;
    let unsampled = format!("{UNLIMITED}\n{}", collector.section("ratio = 0"));
    let sampled = format!("{UNLIMITED}\n{}", collector.section("ratio = 1"));
    let mut hosts = Vec::new();
    for config in [UNLIMITED, &unsampled, &sampled] {
        hosts.push(Setup::with(&["text"]).config(config).start().await);
    }
    let mut used = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (host, used) in hosts.iter().zip(&mut used) {
            let connections = connections(host, CONNECTIONS).await?;
            used.push(costed(host, connections, plan.each / ROUNDS, echo).await?.1);
        }
    }
    // The least of the turns: what else the machine does only adds.
    let [off, unsampled, sampled] = used.map(|turns| turns.into_iter().fold(f64::INFINITY, f64::min));
    let of = |us: f64| {
        format!("{us:.1} µs of processor time an echo to {off:.1} µs without traces, least of {ROUNDS} turns")
    };
    report.add("levers: traces, nothing sampled", of(unsampled), unsampled - off, "µs", Budget::AtMost(0.2));
    report.add("levers: traces, everything sampled", of(sampled), sampled - off, "µs", Budget::AtMost(3.0));
    Ok(())
}

/// Whether one of the guests' threads is on a processor, or waits for one.
fn guests_run(host: &Host) -> anyhow::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{}/task", host.pid()))? {
        // A thread may end in between.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") ")).context("a thread")?;
        if name == "guest" && rest.starts_with('R') {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Messages to a guest that computes, until its status shows each.
pub(crate) async fn steer(report: &mut Report) -> anyhow::Result<()> {
    const MESSAGES: u64 = 60;
    let host = Setup::with(&["primes"]).config(UNLIMITED).config("[call]\ncpu_ms = 3600000").start().await;
    let task = Modern::full(&host, None).task("count_primes", json!({"below": 1_000_000_000_000u64})).await;
    let mut hand = Hand::new(&host, &task);
    let mut steers = hand.on("tasks/steer").await?;
    let mut reads = hand.on("tasks/get").await?;
    let begin = Instant::now();
    let mut shown = Vec::new();
    let mut replied = Vec::new();
    for turn in 0..MESSAGES {
        // A guest may say something new so many times a second; that is not what is measured.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let noted = format!("noted: message {turn}\"");
        let request = hand.request("tasks/steer", json!({"message": format!("message {turn}")}));
        let sent = Instant::now();
        steers.call(&request).await?;
        replied.push(sent.elapsed());
        loop {
            let request = hand.request("tasks/get", json!({}));
            let reply = String::from_utf8_lossy(reads.call(&request).await?).into_owned();
            if reply.contains(&noted) {
                break;
            }
            ensure!(sent.elapsed() < Duration::from_secs(10), "the message does not arrive: {reply}");
        }
        shown.push(sent.elapsed());
    }
    let shown = Measured::new(begin.elapsed(), shown);
    let replied = Measured::new(begin.elapsed(), replied);
    let made_of = format!(
        "p99 {:.1} ms; the reply, which waits for the disk: median {:.1} ms; the guest looks about once a millisecond",
        shown.quantile_us(0.99) / 1e3,
        replied.quantile_us(0.5) / 1e3
    );
    report.add(
        "levers: message until the guest has acted on it, median",
        made_of,
        shown.quantile_us(0.5) / 1e3,
        "ms",
        Budget::None,
    );
    Ok(())
}

/// One change of a task, on a thousand streams that follow it.
pub(crate) async fn fan_out(report: &mut Report) -> anyhow::Result<()> {
    const STREAMS: usize = 1000;
    const CHANGES: usize = 10;
    let host = Setup::with(&["hostile"]).config(UNLIMITED).config("[call]\ncpu_ms = 3600000").start().await;
    let task = Modern::full(&host, None).task("spin", json!({})).await;
    let mut hand = Hand::new(&host, &task);
    let mut pauses = hand.on("tasks/pause").await?;
    let mut resumes = hand.on("tasks/resume").await?;
    pauses.call(&hand.request("tasks/pause", json!({}))).await?;
    let mut streams = Vec::new();
    for turn in 0..STREAMS as u64 {
        let mut stream = connection(&host.url, "subscriptions/listen", "").await?;
        let wanted = json!({"notifications": {"taskIds": [task]}});
        stream.send(&message(turn, "subscriptions/listen", wanted, &capabilities())).await?;
        stream.until(r#""status":"paused""#).await?;
        streams.push(stream);
    }
    let begin = Instant::now();
    let mut times = Vec::new();
    let mut used_ms = 0;
    for _ in 0..CHANGES {
        let before = host.cpu_ms();
        let request = hand.request("tasks/resume", json!({}));
        resumes.call(&request).await?;
        streams = all_hear(streams, r#""status":"working""#).await?.0;
        let request = hand.request("tasks/pause", json!({}));
        let sent = Instant::now();
        let asked = async { pauses.call(&request).await.map(drop) };
        let (heard, ()) = tokio::try_join!(all_hear(streams, r#""status":"paused""#), asked)?;
        times.push(heard.1 - sent);
        streams = heard.0;
        used_ms += host.cpu_ms() - before;
    }
    let measured = Measured::new(begin.elapsed(), times);
    let made_of = format!(
        "median of {CHANGES} changes, until the last of {STREAMS} streams had it; slowest {:.1} ms; {:.0} µs of processor \
         time for each stream and change, the loop in between included",
        measured.quantile_us(1.0) / 1e3,
        used_ms as f64 * 1e3 / (STREAMS * CHANGES * 2) as f64
    );
    report.add("levers: a change on 1000 listen streams", made_of, measured.quantile_us(0.5) / 1e3, "ms", Budget::None);
    Ok(())
}

/// Waits until every stream has said this; when the last one had.
async fn all_hear(streams: Vec<Connection>, said: &'static str) -> anyhow::Result<(Vec<Connection>, Instant)> {
    let hearing: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            tokio::spawn(async move {
                stream.until(said).await?;
                anyhow::Ok((stream, Instant::now()))
            })
        })
        .collect();
    let mut streams = Vec::new();
    let mut last = Instant::now();
    for one in hearing {
        let (stream, at) = one.await??;
        last = last.max(at);
        streams.push(stream);
    }
    Ok((streams, last))
}
