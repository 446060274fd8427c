//! A call over several lives of its host: a server that counts what it was sent, and a client that goes on wherever it
//! was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::modern::Modern;
use tests::power_cut::{ForgetfulDisk, PowerCutLibrary};
use tests::{Host, Setup};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::cases::{self, Case};
use crate::metrics::{METRICS, number, scrape};

/// The call is made under this key in every life, so that one whose reply was lost is found again.
pub(crate) const KEY: &str = "dev.bulkhead/idempotencyKey";
/// A task that takes longer than this stands still.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a host that watches its places writes for each.
const PLACE: &str = "crash point ";

/// The requests that a server was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) posts: u32,
    pub(super) gets: u32,
}

/// Whether this is all of a request.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() == length.unwrap_or(0)
}

/// A server that answers at once, and counts the requests that came whole. No host knows that it counts.
pub(super) async fn counting_server() -> (String, Arc<Mutex<Sent>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let sent = Arc::<Mutex<Sent>>::default();
    let counted = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !is_whole(&request) {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => return,
                    }
                }
                match request.starts_with(b"POST") {
                    true => counted.lock().posts += 1,
                    false => counted.lock().gets += 1,
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\npaid";
                // A host that has ended takes no answer.
                let _ = stream.write_all(answer).await;
            });
        }
    });
    (origin, sent)
}

/// What the client of a call knows, whatever becomes of the host.
#[derive(Default)]
struct Client {
    id: Option<String>,
    /// As they were shown first.
    questions: BTreeMap<String, Value>,
    /// The questions whose answers the host has acknowledged.
    answered: BTreeSet<String>,
    /// The messages that were sent to the task; the last one may not have arrived.
    steered: Vec<String>,
    is_steered: bool,
}

/// The reply, unless the host has ended.
pub(crate) async fn reply(client: &Modern, method: &str, params: Value) -> Option<Value> {
    let message = client.message(&json!(1), method, params.clone()).to_string();
    let sent = client.request(method, &params).timeout(PATIENCE).body(message).send().await.ok()?;
    let text = sent.text().await.ok()?;
    // A call that takes a while is answered by the last event of a stream; a stream without one is that of a host that
    // has ended.
    let last = text.lines().filter_map(|line| line.strip_prefix("data:")).rfind(|data| !data.trim().is_empty());
    let reply: Value = serde_json::from_str(last.unwrap_or(&text)).ok()?;
    (reply.get("result").is_some() || reply.get("error").is_some()).then_some(reply)
}

fn result(method: &str, reply: &Value) -> Value {
    assert!(reply.get("result").is_some(), "{method}: {reply}");
    reply["result"].clone()
}

impl Client {
    /// Goes on until the task has ended. `None`: the host has.
    async fn go_on(&mut self, case: &Case, arguments: &Value, host: &Host) -> Option<Value> {
        let client = Modern::full(host, None);
        let until = Instant::now() + PATIENCE;
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let call = json!({"name": case.tool, "arguments": arguments});
                let created = reply(&client.with_meta(KEY, json!("once")), "tools/call", call).await?;
                if created["result"]["resultType"] == "complete" {
                    // The tool is never a task to its client; the call has a record all the same.
                    return Some(json!({"status": "completed", "result": created["result"]}));
                }
                let id = created["result"]["taskId"].as_str();
                self.id.insert(id.unwrap_or_else(|| panic!("{}: {created}", case.tool)).to_owned()).clone()
            }
        };
        loop {
            let now = result("tasks/get", &reply(&client, "tasks/get", json!({"taskId": id})).await?);
            assert!(Instant::now() < until, "the task stands still: {now}");
            match now["status"].as_str() {
                Some("completed" | "failed" | "cancelled") => return Some(now),
                Some("input_required") => self.answer(&client, &id, &now).await?,
                _ if case.is_steered && !self.is_steered => {
                    let message = format!("message {}", self.steered.len() + 1);
                    self.steered.push(message.clone());
                    // The task may have taken an earlier one, and be over.
                    reply(&client, "tasks/steer", json!({"taskId": id, "message": message})).await?;
                    self.is_steered = true;
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn answer(&mut self, client: &Modern, id: &str, now: &Value) -> Option<()> {
        for (key, question) in now["inputRequests"].as_object().into_iter().flatten() {
            assert!(!self.answered.contains(key), "what was answered is asked again: {now}");
            let first = self.questions.entry(key.clone()).or_insert_with(|| question.clone());
            assert_eq!(first, question, "the question of this key is another one now");
            let answer = json!({key: {"action": "accept", "content": cases::answer(key, question)}});
            result(
                "tasks/update",
                &reply(client, "tasks/update", json!({"taskId": id, "inputResponses": answer})).await?,
            );
            self.answered.insert(key.clone());
        }
        Some(())
    }
}

/// A call that has come to its end.
pub(super) struct Ended {
    /// The tool, and where its host ended.
    pub(super) what: String,
    pub(super) status: String,
    pub(super) result: Value,
    pub(super) questions: BTreeMap<String, Value>,
    pub(super) steered: Vec<String>,
    pub(super) sent: Sent,
    /// The places at which the first and the second life ended, if they did.
    pub(super) ends: [Option<String>; 2],
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, status, result, questions, steered, sent, ends } = self;
        let questions: Vec<_> = questions.keys().collect();
        write!(f, "{what}: {status} with {result}; ends {ends:?}, asked {questions:?}, steered {steered:?}, {sent:?}")
    }
}

impl Ended {
    pub(super) fn says(&self, structured: &Value) {
        assert_eq!(self.result["structuredContent"], *structured, "{self}");
    }

    pub(super) fn has(&self, member: &str, value: &Value) {
        assert_eq!(self.result["structuredContent"][member], *value, "{self}");
    }

    /// Whether the guest was told that nobody knows whether its request took effect.
    pub(super) fn is_in_doubt(&self) -> bool {
        // The Python SDK has one word for all requests that failed without saying more.
        self.result.to_string().contains("in doubt: ") || self.result["structuredContent"]["reason"] == "failed"
    }
}

/// What hosts end by at their places.
pub(super) enum Ending {
    Kill,
    /// With it goes what was not synced.
    PowerCut(PowerCutLibrary),
}

impl Ending {
    /// A case with the places at which its host is to end in this way.
    pub(super) fn named_pair(&self, case: &Case, pair: (usize, usize)) -> String {
        match self {
            Self::Kill => case.named_pair(pair),
            Self::PowerCut(_) => format!("{}, without power", case.named_pair(pair)),
        }
    }
}

/// Where hosts of a case keep their data, and what is around them.
pub(super) struct Place<'a> {
    case: &'a Case,
    ending: &'a Ending,
    setup: Setup,
    arguments: Value,
    sent: Arc<Mutex<Sent>>,
    client: Client,
}

/// A host at the end of its task.
struct Life {
    host: Host,
    disk: Option<ForgetfulDisk>,
}

impl<'a> Place<'a> {
    /// `durable`: as in the configuration of the plugin.
    pub(super) async fn new(case: &'a Case, setup: Setup, durable: &str, ending: &'a Ending) -> Self {
        let (origin, sent) = counting_server().await;
        let kept = if case.keeps { "[plugin.kv]\n" } else { "" };
        let grants = format!("durable = {durable:?}\n[plugin.grants]\nhttp = [{origin:?}]\n{kept}");
        let setup = setup.plugin(case.plugin, &grants);
        let setup = setup.config("[call]\npromote_after_ms = 0");
        let setup = if case.evicts { setup.config("[limits]\ntask_evict_after_ms = 0") } else { setup };
        Self { case, ending, setup, arguments: (case.arguments)(&origin), sent, client: Client::default() }
    }

    /// The places that the hosts of this folder have reached so far.
    fn places(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.setup.path("log")).unwrap_or_default();
        log.lines()
            .filter_map(|line| line.strip_prefix(PLACE)?.split_once(": "))
            .map(|(_, name)| name.to_owned())
            .collect()
    }

    /// How many places a host reaches before it listens, and the names of all until the task has ended.
    pub(super) async fn named_places(mut self) -> (usize, Vec<String>) {
        let host = self.setup.clone().env("CRASH_AT", "0").start().await;
        let before = self.places().len();
        let now = self.client.go_on(self.case, &self.arguments, &host).await.expect("the host lives on");
        assert_eq!(now["status"], "completed", "{}: {now}", self.case.tool);
        (before, self.places())
    }

    /// How often the store of a host that lives on is synced for the call, and how many requests with an effect it
    /// sends.
    pub(super) async fn count_syncs(mut self) -> (f64, u32) {
        let host = self.setup.clone().config(METRICS).start().await;
        let syncs = async || {
            let page = scrape(&host, "text/plain").await;
            let has_synced = page.contains("bulkhead_store_sync_seconds_count");
            if has_synced { number(&page, &["bulkhead_store_sync_seconds_count"]) } else { 0.0 }
        };
        let before = syncs().await;
        let now = self.client.go_on(self.case, &self.arguments, &host).await.expect("the host lives on");
        assert_eq!(now["status"], "completed", "{}: {now}", self.case.name());
        (syncs().await - before, self.sent.lock().posts)
    }

    /// A setup for one life, and the disk that forgets, if there is one.
    fn life(&self, early: bool) -> (Setup, Option<ForgetfulDisk>) {
        match self.ending {
            Ending::Kill => (self.setup.clone(), None),
            Ending::PowerCut(library) => {
                let (setup, disk) = library.disk(&self.setup, early);
                (setup, Some(disk))
            }
        }
    }

    /// A life that ends at its n-th place, if it has so many: the task's end, or where the host ended.
    async fn live(&mut self, at: usize) -> Result<(Value, Life), String> {
        // In every other life some writes reach the disk before they are synced.
        let (setup, disk) = self.life(at.is_multiple_of(2));
        let setup = setup.env("CRASH_AT", &at.to_string());
        if let Ok(mut host) = setup.start_or_end(PATIENCE).await {
            if let Some(now) = self.client.go_on(self.case, &self.arguments, &host).await {
                return Ok((now, Life { host, disk }));
            }
            let until = Instant::now() + PATIENCE;
            while host.is_alive() {
                assert!(Instant::now() < until, "the host lives on, and does not answer");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        disk.into_iter().for_each(ForgetfulDisk::cut);
        Err(self.last_place())
    }

    /// A life without an end.
    async fn live_on(&mut self) -> (Value, Life) {
        let (setup, disk) = self.life(false);
        let host = setup.start().await;
        let now = self.client.go_on(self.case, &self.arguments, &host).await;
        (now.expect("the last host lives on"), Life { host, disk })
    }

    /// The end that the client was told of stays when the host ends, and power with it where it can be cut.
    async fn outlive(&mut self, now: &Value, Life { host, disk }: Life) -> Host {
        host.kill().await;
        disk.into_iter().for_each(ForgetfulDisk::cut);
        let host = self.setup.start().await;
        let again = self.client.go_on(self.case, &self.arguments, &host).await.expect("the last host lives on");
        let facts = |now: &Value| ["status", "result"].map(|member| now[member].clone());
        assert_eq!(facts(&again), facts(now), "{}: its end was forgotten", self.case.name());
        host
    }

    fn last_place(&self) -> String {
        self.places().pop().expect("a host says where it ends")
    }

    /// The end of the call whose host ends at these places of its first and its second life. The checks of all tools
    /// are made here.
    pub(super) async fn check(mut self, first: usize, second: usize) -> Ended {
        let mut ends = [None, None];
        let mut done = None;
        for (at, end) in [first, second].into_iter().zip(&mut ends) {
            match self.live(at).await {
                Ok(over) => {
                    done = Some(over);
                    break;
                }
                Err(place) => *end = Some(place),
            }
        }
        let has_ended_twice = done.is_none();
        let (now, life) = match done {
            Some(over) => over,
            None => self.live_on().await,
        };
        let host = match life {
            Life { host, disk: None } if has_ended_twice => host,
            // Its place is still ahead of it: what is looked at below could be what reaches it.
            life => self.outlive(&now, life).await,
        };
        let ended = Ended {
            what: self.ending.named_pair(self.case, (first, second)),
            status: now["status"].as_str().unwrap_or_default().to_owned(),
            result: now["result"].clone(),
            questions: self.client.questions,
            steered: self.client.steered,
            sent: *self.sent.lock(),
            ends,
        };
        // A replay that left its journal would have failed.
        assert_eq!(ended.status, "completed", "{ended}; {now}");
        let asked: Vec<_> = ended.questions.keys().map(String::as_str).collect();
        let mut expected = self.case.asks.to_vec();
        expected.sort_unstable();
        assert!(expected.is_empty() || asked == expected, "each question is asked once: {ended}");
        (self.case.check)(&ended);
        cases::check_kept(self.case, &Modern::plain(&host, None), &ended).await;
        ended
    }
}
