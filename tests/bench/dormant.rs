//! Tasks that wait for their users by the thousand: what they cost, how a host is restarted under them, and how soon
//! one goes on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tests::modern::TASKS;
use tests::{Host, Setup, place};
use tokio::task::JoinHandle;

use crate::Plan;
use crate::costs::resident_kib;
use crate::load::{Connection, Measured};
use crate::modern::message;
use crate::report::{Budget, Report};
use crate::throughput::UNLIMITED;

/// Tasks that may rest in memory.
const RESIDENT: u32 = 64;
/// Calls of one requestor that may run at a time, which is the default, and the call of the other tenant.
const RUNNING: u32 = 16 + 1;
/// Waiting tasks before the first measurement: what the first ones bring to life is not the cost of the others.
const FIRST: usize = 200;
/// Connections that create and answer.
const CALLERS: usize = 16;
/// Calls that are woken one after the other, of each language.
const WAKES: usize = 40;
/// A host that takes longer than this for anything has failed.
const PATIENCE: Duration = Duration::from_secs(600);

const QUESTIONS: [(&str, &str); 2] = [
    ("journey", r#"{"action": "accept", "content": {"destination": "Oslo", "travellers": 2}}"#),
    ("details", r#"{"action": "accept", "content": {"class": "economy", "confirm": true}}"#),
];

/// One requestor, on one connection.
struct Caller {
    connection: Connection,
    bearer: String,
    turn: u64,
}

impl Caller {
    async fn open(host: &Host, token: &str) -> anyhow::Result<Self> {
        let connection = Connection::open(&host.url, &[]).await?;
        Ok(Self { connection, bearer: format!("Bearer {token}"), turn: 0 })
    }

    /// The result of a request about something of this name.
    async fn result(&mut self, method: &str, name: &str, params: Value) -> anyhow::Result<Value> {
        self.turn += 1;
        self.connection.set_headers(&[
            ("authorization", &self.bearer),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
            ("mcp-name", name),
        ]);
        let elicitation = json!({"form": {}, "url": {}});
        let capabilities = json!({"elicitation": elicitation, "sampling": {}, "roots": {}, "extensions": {TASKS: {}}});
        let reply = self.connection.call(&message(self.turn, method, params, &capabilities)).await?;
        let begin = reply.iter().position(|byte| *byte == b'{').context("a reply")?;
        let end = reply.iter().rposition(|byte| *byte == b'}').context("a whole reply")?;
        Ok(serde_json::from_slice::<Value>(&reply[begin..=end])?["result"].take())
    }

    /// The id of the task that a call becomes.
    async fn task(&mut self, tool: &str) -> anyhow::Result<String> {
        let created = self.result("tools/call", tool, json!({"name": tool, "arguments": {}})).await?;
        Ok(created["taskId"].as_str().with_context(|| format!("no task: {created}"))?.to_owned())
    }

    async fn get(&mut self, id: &str) -> anyhow::Result<Value> {
        self.result("tasks/get", id, json!({"taskId": id})).await
    }

    async fn answer(&mut self, id: &str, key: &str, answer: &Value) -> anyhow::Result<()> {
        self.result("tasks/update", id, json!({"taskId": id, "inputResponses": {key: answer}})).await.map(drop)
    }
}

/// What the crowd's callers make of their parts of the work, in its order.
async fn shared_out<T, R, F>(
    host: &Host,
    token: &str,
    work: Vec<T>,
    act: impl Fn(Caller, Vec<T>) -> F,
) -> anyhow::Result<Vec<R>>
where
    T: Clone,
    R: Send + 'static,
    F: Future<Output = anyhow::Result<Vec<R>>> + Send + 'static,
{
    let mut parts = Vec::new();
    for part in work.chunks(work.len().div_ceil(CALLERS).max(1)) {
        parts.push(tokio::spawn(act(Caller::open(host, token).await?, part.to_vec())));
    }
    let mut done = Vec::new();
    for part in parts {
        done.extend(part.await??);
    }
    Ok(done)
}

async fn create(host: &Host, token: &str, count: usize) -> anyhow::Result<Vec<String>> {
    let create = |mut caller: Caller, part: Vec<()>| async move {
        let mut ids = Vec::with_capacity(part.len());
        for () in part {
            ids.push(caller.task("book_trip").await?);
        }
        Ok(ids)
    };
    shared_out(host, token, vec![(); count], create).await
}

/// Each task's view.
async fn read(host: &Host, token: &str, ids: &[String]) -> anyhow::Result<Vec<Value>> {
    let read = |mut caller: Caller, part: Vec<String>| async move {
        let mut views = Vec::with_capacity(part.len());
        for id in part {
            views.push(caller.get(&id).await?);
        }
        Ok(views)
    };
    shared_out(host, token, ids.to_vec(), read).await
}

async fn answer(host: &Host, token: &str, ids: &[String], at: usize) -> anyhow::Result<()> {
    let (key, text) = QUESTIONS[at];
    let answer = move |mut caller: Caller, part: Vec<String>| async move {
        let answer = serde_json::from_str(text)?;
        for id in part {
            caller.answer(&id, key, &answer).await?;
        }
        Ok(Vec::<()>::new())
    };
    shared_out(host, token, ids.to_vec(), answer).await.map(drop)
}

/// The page of metrics of a host.
#[derive(Clone)]
struct Gauges {
    http: reqwest::Client,
    address: SocketAddr,
}

/// What a host has in memory and what not.
struct Counts {
    running: f64,
    resting: f64,
    dormant: f64,
}

impl Gauges {
    fn new() -> anyhow::Result<Self> {
        // Between here and the host another program could take the port, but the system hands them out in turn.
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, address })
    }

    fn config(&self, task_evict_after_ms: u32) -> String {
        format!(
            "{UNLIMITED}requests_per_second_per_tenant = 1000000\ntasks_queued_per_tenant = 100000\n\
             tasks_queued_total = 100000\ntasks_resident_total = {RESIDENT}\n\
             task_evict_after_ms = {task_evict_after_ms}\n[call]\npromote_after_ms = 0\n[metrics]\nlisten = \"{}\"\n",
            self.address
        )
    }

    async fn read(&self) -> anyhow::Result<Counts> {
        let page = self.http.get(format!("http://{}/metrics", self.address)).send().await?;
        let page = page.error_for_status()?.text().await?;
        let number = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse::<f64>().ok()).with_context(|| format!("no {name} in {page}"))
        };
        Ok(Counts {
            running: number("bulkhead_calls_running")?,
            resting: number("bulkhead_calls_resting")?,
            dormant: number("bulkhead_tasks_dormant")?,
        })
    }

    /// Waits until so many tasks have left memory, and nothing runs.
    async fn until_dormant(&self, count: usize) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let Counts { running, resting, dormant } = self.read().await?;
            if dormant == count as f64 && running + resting == 0.0 {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "{dormant} of {count} are dormant, {running} run, {resting} rest");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What goes on beside a wave, until it is over.
struct Beside {
    is_over: Arc<AtomicBool>,
    echoes: JoinHandle<anyhow::Result<Vec<Duration>>>,
    most: JoinHandle<anyhow::Result<f64>>,
}

impl Beside {
    async fn start(host: &Host, gauges: &Gauges, token: &str) -> anyhow::Result<Self> {
        let is_over = Arc::<AtomicBool>::default();
        let mut caller = Caller::open(host, token).await?;
        let over = Arc::clone(&is_over);
        let echoes = tokio::spawn(async move {
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let params = json!({"name": "echo", "arguments": {"text": "a text of ordinary length"}});
                let begin = Instant::now();
                caller.result("tools/call", "echo", params).await?;
                times.push(begin.elapsed());
                // One that pauses between its calls sees the worst of the wave as often, and is no wave itself.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(times)
        });
        let over = Arc::clone(&is_over);
        let gauges = gauges.clone();
        let most = tokio::spawn(async move {
            let mut most = 0.0f64;
            while !over.load(Ordering::Relaxed) {
                let Counts { running, resting, .. } = gauges.read().await?;
                most = most.max(running + resting);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(most)
        });
        Ok(Self { is_over, echoes, most })
    }

    /// How long the echoes took, and the most instances of all samples.
    async fn end(self) -> anyhow::Result<(Vec<Duration>, f64)> {
        self.is_over.store(true, Ordering::Relaxed);
        Ok((self.echoes.await??, self.most.await??))
    }
}

/// What a restart under the tasks came to.
struct Restarted {
    host: Host,
    ready: Duration,
}

/// Ends the host with SIGKILL and starts it again: ready, with no instance and the same questions.
async fn restart(host: Host, gauges: &Gauges, token: &str, ids: &[String]) -> anyhow::Result<Restarted> {
    let before = read(&host, token, ids).await?;
    ensure!(before.iter().all(|task| task["inputRequests"].is_object()), "a task asks nothing");
    let setup = host.kill().await;
    let begin = Instant::now();
    let host = setup.start_within(PATIENCE).await;
    let ready_at = host.address("/readyz");
    while !gauges.http.get(&ready_at).send().await?.status().is_success() {
        ensure!(begin.elapsed() < PATIENCE, "the host does not get ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ready = begin.elapsed();
    let after = read(&host, token, ids).await?;
    let differs = before.iter().zip(&after).filter(|(before, after)| before["inputRequests"] != after["inputRequests"]);
    ensure!(differs.count() == 0, "questions are others after the restart");
    Ok(Restarted { host, ready })
}

/// Many tasks of one tenant that ask, a restart under them, and their answers, beside the calls of another tenant.
pub(crate) async fn many(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let count = plan.tasks;
    let gauges = Gauges::new()?;
    let setup = Setup::with(&["desk", "text"]).config(&gauges.config(1_000));
    let crowd = setup.token("crowd", "crowd").await;
    let other = setup.token("other", "others").await;
    let host = setup.start().await;
    create(&host, &crowd, FIRST).await?;
    gauges.until_dormant(FIRST).await?;
    let first_kib = resident_kib(&host)?;

    let beside = Beside::start(&host, &gauges, &other).await?;
    let begin = Instant::now();
    let ids = create(&host, &crowd, count).await?;
    let created = begin.elapsed();
    let (mut echoes, most_created) = beside.end().await?;
    gauges.until_dormant(FIRST + count).await?;
    let grown_kib = resident_kib(&host)?.saturating_sub(first_kib);
    let made_of = format!("{count} of them; the process grew from {first_kib} KiB by {grown_kib} KiB");
    let each = grown_kib as f64 / count as f64;
    report.add("dormant: memory of a task", made_of, each, "KiB", Budget::AtMost(4.0));

    let Restarted { host, ready } = restart(host, &gauges, &crowd, &ids).await?;
    let Counts { running, resting, dormant } = gauges.read().await?;
    let made_of = format!(
        "after kill -9 with {dormant} dormant tasks; their questions are the same; {} KiB",
        resident_kib(&host)?
    );
    report.add("dormant: start under them until ready", made_of, ready.as_secs_f64(), "s", Budget::AtMost(3.0));
    let made_of = "before the first answer".to_owned();
    report.add("dormant: instances after the start", made_of, running + resting, "", Budget::AtMost(0.0));

    let beside = Beside::start(&host, &gauges, &other).await?;
    let begin = Instant::now();
    answer(&host, &crowd, &ids, 0).await?;
    until_all_have_left(&gauges, FIRST + count).await?;
    answer(&host, &crowd, &ids, 1).await?;
    until_completed(&host, &crowd, &ids).await?;
    let answered = begin.elapsed();
    let (more_echoes, most_answered) = beside.end().await?;
    let made_of = format!(
        "at every sample; {most_created} while {count} were created in {:.1} s, {most_answered} while they were answered twice in {:.1} s",
        created.as_secs_f64(),
        answered.as_secs_f64()
    );
    let budget = Budget::AtMost(f64::from(RESIDENT + RUNNING));
    report.add("dormant: instances at the same time", made_of, most_created.max(most_answered), "", budget);
    echoes.extend(more_echoes);
    let echoes = Measured::new(created + answered, echoes);
    let made_of = format!("{} calls; median {:.2} ms", echoes.calls(), echoes.quantile_us(0.5) / 1e3);
    let p99 = echoes.quantile_us(0.99) / 1e3;
    report.add("dormant: echo of another tenant in the waves, p99", made_of, p99, "ms", Budget::AtMost(25.0));
    Ok(())
}

/// Waits until so many tasks have left memory, whatever another tenant calls meanwhile.
async fn until_all_have_left(gauges: &Gauges, dormant: usize) -> anyhow::Result<()> {
    let begin = Instant::now();
    while gauges.read().await?.dormant != dormant as f64 {
        ensure!(begin.elapsed() < PATIENCE, "the tasks do not come to rest");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn until_completed(host: &Host, token: &str, ids: &[String]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut caller = Caller::open(host, token).await?;
    let mut left = ids.to_vec();
    while let Some(next) = left.last() {
        let status = caller.get(next).await?["status"].take();
        ensure!(status == "working" || status == "completed", "{next} is {status}");
        ensure!(begin.elapsed() < PATIENCE, "{} tasks are not completed", left.len());
        match status == "completed" {
            true => _ = left.pop(),
            false => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    Ok(())
}

/// From the answer that wakes a task until its next question is there, on a host that does nothing else.
pub(crate) async fn wakes(report: &mut Report) -> anyhow::Result<()> {
    let choice = json!({"action": "accept", "content": {"color": "red", "amount": 2}});
    let journey = serde_json::from_str(QUESTIONS[0].1)?;
    for (language, component, tool, keys, given, budget_ms) in [
        ("Rust", "desk", "book_trip", ["journey", "details"], &journey, 5.0),
        ("Python", "probe-python", "py_ask", ["choice", "pay"], &choice, 15.0),
        ("JavaScript", "probe-javascript", "js_ask", ["choice", "pay"], &choice, 15.0),
    ] {
        if !place::root().join(format!("target/plugins/{component}.wasm")).is_file() {
            eprintln!("{component} is not built: what a wake costs in {language} is left out");
            continue;
        }
        let gauges = Gauges::new()?;
        let setup = Setup::with(&[component]).config(&gauges.config(0));
        let token = setup.token("crowd", "crowd").await;
        let host = setup.start().await;
        let mut caller = Caller::open(&host, &token).await?;
        let begin = Instant::now();
        let mut took = Vec::new();
        for number in 0..WAKES {
            let id = caller.task(tool).await?;
            gauges.until_dormant(number + 1).await?;
            let sent = Instant::now();
            caller.answer(&id, keys[0], given).await?;
            while caller.get(&id).await?["inputRequests"][keys[1]].is_null() {
                ensure!(sent.elapsed() < PATIENCE, "the task does not go on");
            }
            took.push(sent.elapsed());
            gauges.until_dormant(number + 1).await?;
        }
        let took = Measured::new(begin.elapsed(), took);
        let made_of = format!(
            "{WAKES} of them; p99 {:.1} ms; from the answer to the next question, what both write among it",
            took.quantile_us(0.99) / 1e3
        );
        let work = format!("dormant: wake of a task in {language}, median");
        report.add(&work, made_of, took.quantile_us(0.5) / 1e3, "ms", Budget::AtMost(budget_ms));
    }
    Ok(())
}
