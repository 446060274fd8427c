//! Hosts and databases that are killed under load, and what clients were told meanwhile.
//!
//! Owns the load, the kills, and the checker. Must not ask the host's log or the database: the checker knows what
//! clients saw, and what a server outside was sent. Invariant: each act has a key of its own, so that one whose reply
//! was lost is found again and not done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::Uri;
use bulkhead_store::postgres_server::PostgresServer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::client::text;
use tests::modern::Modern;
use tests::place::rounds;
use tests::wait::{soon, until};
use tests::{Host, Setup};
use tokio::sync::watch;

use super::{UNHURRIED, on};
use crate::durable::AT_ONCE;
use crate::durable::lives::{KEY, reply};

const CLIENTS: usize = 6;
/// Acts of all clients between two kills.
const ACTS_BETWEEN: usize = 12;
/// Between two looks at a task, and before what was refused is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// What a guest is told that asks while the database is away: its question is not put, and it goes on without an
/// answer.
const NOT_PUT: &str = "the host cannot store the question now";

/// What is killed in a round.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Database,
    Host,
    Both,
}

const VICTIMS: [Victim; 3] = [Victim::Both, Victim::Database, Victim::Host];

/// A server that counts the requests that it was sent, by their path.
async fn counting_peer() -> (String, Arc<Mutex<BTreeMap<String, u32>>>) {
    let sent = Arc::<Mutex<BTreeMap<String, u32>>>::default();
    let counted = Arc::clone(&sent);
    let router = Router::new().fallback(move |uri: Uri, _whole: String| {
        *counted.lock().entry(uri.path().trim_start_matches('/').to_owned()).or_default() += 1;
        std::future::ready("paid")
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    (origin, sent)
}

/// A task that has come to its end, as its client saw it first.
struct Ended {
    tool: &'static str,
    arguments: Value,
    id: String,
    status: Value,
    result: Value,
}

impl Ended {
    fn is_in_doubt(&self) -> bool {
        self.result.to_string().contains("in doubt: ")
    }

    fn was_not_asked(&self) -> bool {
        self.result["isError"] == true && self.result.to_string().contains(NOT_PUT)
    }
}

/// One client, with everything that it was told.
struct LoadClient {
    number: usize,
    /// The host of the present round.
    hosts: watch::Receiver<Modern>,
    origin: String,
    /// By key.
    ended: BTreeMap<String, Ended>,
    /// What the plugin keeps under this client's name.
    kept: Option<String>,
    answers: usize,
    refused: usize,
    in_doubt: usize,
    unanswered: usize,
}

impl LoadClient {
    /// The reply of a host that lives and whose database is there, be it an error.
    async fn ask(&mut self, key: Option<&str>, method: &str, params: Value) -> Result<Value, Value> {
        loop {
            let host = self.hosts.borrow().clone();
            let client = key.map_or_else(|| host.clone(), |key| host.with_meta(KEY, json!(key)));
            match reply(&client, method, params.clone()).await {
                Some(reply) if reply["error"]["code"] == 1013 => {
                    assert!(reply["error"]["data"]["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0), "{reply}");
                    self.refused += 1;
                    self.in_doubt += usize::from(reply["error"]["data"]["inDoubt"] == true);
                }
                Some(reply) if reply.get("error").is_some() => return Err(reply["error"].clone()),
                Some(reply) => return Ok(reply["result"].clone()),
                None => self.unanswered += 1,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn create(&mut self, key: &str, tool: &str, arguments: &Value) -> String {
        let call = json!({"name": tool, "arguments": arguments});
        let created = self.ask(Some(key), "tools/call", call).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        created["taskId"].as_str().unwrap_or_else(|| panic!("{key} is no task: {created}")).to_owned()
    }

    async fn look(&mut self, key: &str, id: &str) -> Value {
        let now = self.ask(None, "tasks/get", json!({"taskId": id})).await;
        now.unwrap_or_else(|error| panic!("{key}: a task that was acknowledged is gone: {error}"))
    }

    /// A task from its creation to its end.
    async fn task(&mut self, key: String, tool: &'static str, arguments: Value, is_cancelled: bool) -> &Ended {
        let id = self.create(&key, tool, &arguments).await;
        let mut shown = BTreeMap::new();
        let mut answered = BTreeSet::new();
        let now = loop {
            let now = self.look(&key, &id).await;
            match now["status"].as_str() {
                Some("completed" | "failed" | "cancelled") => break now,
                Some("input_required") if is_cancelled => {
                    // One that came through before its reply was lost is refused: the task is over.
                    let _ = self.ask(None, "tasks/cancel", json!({"taskId": id})).await;
                }
                Some("input_required") => self.answer(&key, &now, &mut shown, &mut answered).await,
                _ => tokio::time::sleep(PAUSE).await,
            }
        };
        let ended = Ended { tool, arguments, id, status: now["status"].clone(), result: now["result"].clone() };
        let is_expected = ended.status == if is_cancelled { "cancelled" } else { "completed" };
        assert!(is_expected || ended.was_not_asked(), "{key}: {now}");
        self.ended.entry(key).or_insert(ended)
    }

    async fn answer(
        &mut self,
        key: &str,
        now: &Value,
        shown: &mut BTreeMap<String, Value>,
        answered: &mut BTreeSet<String>,
    ) {
        for (name, question) in now["inputRequests"].as_object().into_iter().flatten() {
            assert!(!answered.contains(name), "{key}: what was answered is asked again: {now}");
            let first = shown.entry(name.clone()).or_insert_with(|| question.clone());
            assert_eq!(first, question, "{key}: the question is another one now");
            let content = match name.as_str() {
                "journey" => json!({"destination": key, "travellers": 2}),
                _ => json!({"class": "economy", "confirm": true}),
            };
            let answer = json!({name: {"action": "accept", "content": content}});
            let params = json!({"taskId": now["taskId"], "inputResponses": answer});
            // One that came through before its reply was lost may be refused.
            if self.ask(None, "tasks/update", params).await.is_ok() {
                answered.insert(name.clone());
                self.answers += 1;
            }
        }
    }

    /// Acts until the load is over.
    async fn work(mut self, is_over: Arc<AtomicBool>, acts: Arc<AtomicUsize>) -> Self {
        for turn in 0_usize.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let key = format!("act-{}-{turn}", self.number);
            match (turn + self.number) % 4 {
                0 => {
                    let url = format!("{}/{key}", self.origin);
                    let ended = self.task(key, "send", json!({"method": "POST", "url": url, "body": "1"}), false).await;
                    let is_paid = ended.result["structuredContent"]["body"] == "paid";
                    assert!(is_paid || ended.is_in_doubt(), "{}", ended.result);
                }
                1 => {
                    let expected = format!("Booked 2 economy seats to {key}.");
                    let ended = self.task(key, "book_trip", json!({}), false).await;
                    let is_booked = ended.result["structuredContent"]["summary"] == expected;
                    assert!(is_booked || ended.was_not_asked(), "{}", ended.result);
                }
                2 => {
                    let keep = json!({"what": "set", "key": format!("of-{}", self.number), "value": key});
                    let ended = self.task(key.clone(), "keep", keep, false).await;
                    let outcome = text(&ended.result);
                    let is_kept = outcome == "kept";
                    // Its guest is told that the store is away: then the value may be there or not.
                    assert!(is_kept || outcome.starts_with("Unavailable("), "{outcome}");
                    self.kept = is_kept.then_some(key);
                }
                _ => _ = self.task(key, "book_trip", json!({}), true).await,
            }
            acts.fetch_add(1, Ordering::SeqCst);
        }
        self
    }

    /// Whether all that this client was told is still so.
    async fn check(&mut self) {
        for (key, first) in std::mem::take(&mut self.ended) {
            let now = self.look(&key, &first.id).await;
            assert_eq!((&now["status"], &now["result"]), (&first.status, &first.result), "{key}: its first end stays");
            let again = self.create(&key, first.tool, &first.arguments).await;
            assert_eq!(again, first.id, "{key}: the same call is the same task");
            self.ended.insert(key, first);
        }
        if let Some(kept) = self.kept.clone() {
            let key = format!("check-{}", self.number);
            let get = json!({"what": "get", "key": format!("of-{}", self.number)});
            let ended = self.task(key, "keep", get, false).await;
            assert_eq!(text(&ended.result), format!("{} bytes: {kept}", kept.len()));
        }
    }
}

/// Ends what the round is to end, and starts it again.
async fn kill(victim: Victim, server: &PostgresServer, host: Host) -> Host {
    match victim {
        Victim::Host => host.kill().await.start().await,
        Victim::Database => {
            tokio::task::block_in_place(|| {
                server.kill();
                server.run();
            });
            host
        }
        Victim::Both => {
            tokio::task::block_in_place(|| server.kill());
            let setup = host.kill().await;
            tokio::task::block_in_place(|| server.run());
            setup.start().await
        }
    }
}

/// A request with an effect is sent once, or its guest knows that it may not have been.
fn check_sent(clients: &[LoadClient], sent: &BTreeMap<String, u32>) {
    let twice: Vec<_> = sent.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "sent more than once: {twice:?}");
    for (key, ended) in clients.iter().flat_map(|client| &client.ended).filter(|(_, ended)| ended.tool == "send") {
        assert!(sent.contains_key(key) || ended.is_in_doubt(), "{key} was not sent, and its guest does not know");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_while_host_and_database_are_killed() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let (origin, sent) = counting_peer().await;
    let grants = format!("durable = \"required\"\n[plugin.grants]\nhttp = [{origin:?}]\n[plugin.kv]\n");
    let setup = Setup::new().plugin("probe", &grants).plugin("desk", "durable = \"auto\"").config(AT_ONCE);
    let mut host = on(&server, setup.config(UNHURRIED)).start().await;
    let (to_clients, hosts) = watch::channel(Modern::full(&host, None));
    let is_over = Arc::<AtomicBool>::default();
    let acts = Arc::<AtomicUsize>::default();
    let clients = (0..CLIENTS).map(|number| {
        let client = LoadClient {
            number,
            hosts: hosts.clone(),
            origin: origin.clone(),
            ended: BTreeMap::new(),
            kept: None,
            answers: 0,
            refused: 0,
            in_doubt: 0,
            unanswered: 0,
        };
        tokio::spawn(client.work(Arc::clone(&is_over), Arc::clone(&acts)))
    });
    let clients: Vec<_> = clients.collect();
    let rounds = rounds(2, 20);
    let began = Instant::now();
    for (round, victim) in (1..=rounds).zip(VICTIMS.into_iter().cycle()) {
        let goal = acts.load(Ordering::SeqCst) + ACTS_BETWEEN;
        until("the clients to get on", async || {
            assert!(!clients.iter().any(tokio::task::JoinHandle::is_finished), "a client has given up");
            (acts.load(Ordering::SeqCst) >= goal).then_some(())
        })
        .await;
        // Somewhere else in what the host does at each kill.
        tokio::time::sleep(Duration::from_millis(u64::from(round * 7 % 23))).await;
        host = kill(victim, &server, host).await;
        to_clients.send_replace(Modern::full(&host, None));
        println!("round {round}: {victim:?} killed after {} acts, {:?}", acts.load(Ordering::SeqCst), began.elapsed());
    }
    is_over.store(true, Ordering::SeqCst);
    let mut checked = Vec::new();
    for client in clients {
        let mut client = soon("a client to end", client).await.expect("a client that was told no contradiction");
        soon("a client's check", client.check()).await;
        checked.push(client);
    }
    check_sent(&checked, &sent.lock());
    let sum = |number: fn(&LoadClient) -> usize| checked.iter().map(number).sum::<usize>();
    let doubtful = sum(|client| client.ended.values().filter(|ended| ended.is_in_doubt()).count());
    let not_asked = sum(|client| client.ended.values().filter(|ended| ended.was_not_asked()).count());
    println!(
        "{rounds} rounds in {:?}: {} tasks ended as their clients were told, {} answers asked for once, {} requests sent once; {doubtful} \
         guests were told of a doubt, {not_asked} that they could not ask; {} requests refused, {} of them in doubt, {} without a reply",
        began.elapsed(),
        sum(|client| client.ended.len()),
        sum(|client| client.answers),
        sent.lock().len(),
        sum(|client| client.refused),
        sum(|client| client.in_doubt),
        sum(|client| client.unanswered),
    );
}
