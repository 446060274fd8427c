//! A task of each design, in each of its states, as each reader gets it: over HTTP and over a pipe, in every revision.
//!
//! The harness holds each message against the official schema of the reader's revision. What is asserted here is that
//! no design, no revision and no answer is left out, and that the readers agree about the task.

use bulkhead_domain::task::Design;
use bulkhead_protocol::VERSIONS;
use serde_json::{Value, json};
use tests::client::{Client, Failure, all_capabilities};
use tests::modern::Modern;
use tests::schema::{self, Expected, SEP1686_STATUS};
use tests::stdio::Pipe;
use tests::wait::soon;
use tests::{Host, Setup};

use tests::place::root;

const DESIGNS: [Design; 3] = [Design::Core2025, Design::Sep1686, Design::Extension2026];

/// The states that a task is brought into, with what is called for it.
const STATES: [(&str, &str); 5] = [
    ("completed", "count_primes"),
    ("failed", "trap"),
    ("input_required", "book_trip"),
    ("working", "wait"),
    ("cancelled", "wait"),
];

fn arguments(tool: &str) -> Value {
    match tool {
        "count_primes" => json!({"below": 1000}),
        "wait" => json!({"ms": 600_000}),
        _ => json!({}),
    }
}

/// A task as somebody made it.
struct Made {
    design: Design,
    id: String,
    status: &'static str,
    /// It waits for its turn.
    is_queued: bool,
}

/// Who makes tasks: one client of each design.
struct Makers {
    legacy: Client,
    modern: Modern,
}

impl Makers {
    /// A design without a row here does not compile.
    async fn make(&self, design: Design, tool: &str, name: &str) -> String {
        match design {
            Design::Core2025 => self.legacy.task(tool, arguments(tool)).await,
            Design::Sep1686 => {
                let wish = json!({"modelcontextprotocol.io/task": {"taskId": name, "keepAlive": 600_000}});
                let params = json!({"name": tool, "arguments": arguments(tool), "_meta": wish});
                let message = json!({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params});
                let expected = Expected { id: json!(name), method: "tools/call".to_owned() };
                let mut reply = self.legacy.post(message.to_string(), Some(expected)).await;
                let created = soon("an announcement", reply.next()).await.expect("an announcement");
                assert_eq!(created["method"], "notifications/tasks/created");
                // The task goes on without the client of its request.
                name.to_owned()
            }
            Design::Extension2026 => self.modern.task(tool, arguments(tool)).await,
        }
    }

    async fn made(&self, design: Design, status: &'static str, tool: &str) -> Made {
        let id = self.make(design, tool, &format!("{design:?} {status}")).await;
        if status == "cancelled" {
            self.legacy.about("tasks/cancel", &id).await.expect("it is cancelled");
        }
        self.legacy.until_status(&id, status).await;
        Made { design, id, status, is_queued: false }
    }
}

/// Somebody who looks at tasks, in one revision over one transport.
enum Reader {
    Session(Client),
    Modern(Modern),
    SessionPipe(String, Pipe),
    ModernPipe(Modern, Pipe),
}

impl Reader {
    /// The readers of a revision. One without a row here fails.
    async fn all(host: &Host, version: &str) -> [Self; 2] {
        match version {
            "2025-03-26" | "2025-06-18" | "2025-11-25" => {
                let mut client = Client::new(&host.url, None);
                version.clone_into(&mut client.version);
                client.initialize(all_capabilities()).await;
                let pipe = Pipe::connect_as(&host.setup, version, all_capabilities()).await;
                [Self::Session(client), Self::SessionPipe(version.to_owned(), pipe)]
            }
            "2026-07-28" => {
                let modern = Modern::full(host, None);
                [Self::Modern(modern.clone()), Self::ModernPipe(modern, Pipe::open(&host.setup))]
            }
            other => panic!("no reader of revision {other}: add one here"),
        }
    }

    fn version(&self) -> &str {
        match self {
            Self::Session(client) => &client.version,
            Self::SessionPipe(version, _) => version,
            Self::Modern(_) | Self::ModernPipe(..) => "2026-07-28",
        }
    }

    /// Whether its revision has no tasks of its own. SEP-1686 is for every revision.
    fn is_without_tasks(&self) -> bool {
        matches!(self.version(), "2025-03-26" | "2025-06-18")
    }

    /// Whether tasks of this design are there for it.
    fn knows(&self, design: Design) -> bool {
        !self.is_without_tasks() || design == Design::Sep1686
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        let answer = match self {
            Self::Session(client) => return client.call(method, params).await,
            Self::Modern(modern) => return modern.call(method, params).await,
            Self::SessionPipe(_, pipe) => pipe.call(method, params).await,
            Self::ModernPipe(modern, pipe) => {
                let mut message = modern.message(&Value::Null, method, params);
                pipe.call(method, message["params"].take()).await
            }
        };
        match answer.get("error") {
            None => Ok(answer["result"].clone()),
            Some(error) => Err(Failure {
                code: error["code"].as_i64().expect("a code"),
                message: error["message"].as_str().expect("a text").to_owned(),
                data: error.get("data").cloned().unwrap_or_default(),
            }),
        }
    }

    async fn about(&mut self, method: &str, id: &str) -> Result<Value, Failure> {
        self.call(method, json!({"taskId": id})).await
    }

    /// Looks at a task in every way that the revision has.
    async fn look(&mut self, made: &Made) {
        let what = format!("{} reads {:?} {}", self.version(), made.design, made.id);
        let got = self.about("tasks/get", &made.id).await;
        if !self.knows(made.design) {
            assert_eq!(got.expect_err(&what).code, -32602, "{what}");
            return;
        }
        let got = got.unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
        let status = if made.is_queued && self.is_without_tasks() { "submitted" } else { made.status };
        assert_eq!((&got["taskId"], &got["status"]), (&json!(made.id), &json!(status)), "{what}: {got}");
        let submitted = got["_meta"].get(SEP1686_STATUS).is_some();
        let said = made.is_queued && made.design == Design::Sep1686 && self.version() == "2025-11-25";
        assert_eq!(submitted, said, "{what}: {got}");
        if self.version() != "2026-07-28" && status == "completed" {
            let result = self.about("tasks/result", &made.id).await.expect(&what);
            if self.version() == "2025-03-26" {
                assert_eq!(result.get("structuredContent"), None, "{what}: {result}");
                let text = result["content"][0]["text"].as_str().unwrap_or_default();
                assert!(text.contains("168"), "{what}: {result}");
            } else {
                assert_eq!(result["structuredContent"]["count"], 168, "{what}");
            }
        }
        if matches!(made.status, "failed" | "cancelled") && self.version() != "2026-07-28" {
            self.about("tasks/result", &made.id).await.expect_err(&what);
        }
    }

    /// Every task that the revision's list names.
    async fn list(&mut self) -> Option<Vec<Value>> {
        if self.version() == "2026-07-28" {
            return None;
        }
        let page = self.call("tasks/list", json!({})).await.expect("a list");
        assert!(page.get("nextCursor").is_none(), "they fit one page");
        page["tasks"].as_array().cloned()
    }
}

#[test]
fn every_task_design_is_tested() {
    let source = std::fs::read_to_string(root().join("host/domain/src/task.rs")).expect("the source");
    let (_, rest) = source.split_once("pub enum Design {").expect("the enum");
    let variants = rest.split_once('}').expect("its end").0.lines().map(str::trim);
    let variants: Vec<_> = variants.filter(|line| !line.is_empty() && !line.starts_with("//")).collect();
    let named: Vec<_> = DESIGNS.iter().map(|design| format!("{design:?},")).collect();
    assert_eq!(named, variants);
}

#[tokio::test]
async fn tasks_of_every_design_are_readable_by_every_client() {
    // The last row of tasks waits for its turn behind one that computes.
    let config = "[limits]\ntasks_running_per_requestor = 1\n[call]\npromote_after_ms = 0\ncpu_ms = 600000\n";
    let host = Setup::with(&["primes", "desk", "hostile"]).config(config).start().await;
    let makers = Makers { legacy: Client::connect(&host).await, modern: Modern::full(&host, None) };
    let mut made = Vec::new();
    for design in DESIGNS {
        for (status, tool) in STATES {
            made.push(makers.made(design, status, tool).await);
        }
    }
    makers.legacy.task("spin", json!({})).await;
    for design in DESIGNS {
        let id = makers.make(design, "wait", &format!("{design:?} queued")).await;
        made.push(Made { design, id, status: "working", is_queued: true });
    }
    for version in VERSIONS {
        for mut reader in Reader::all(&host, version).await {
            for task in &made {
                reader.look(task).await;
            }
            let Some(listed) = reader.list().await else { continue };
            for task in &made {
                let is_listed = listed.iter().any(|one| one["taskId"] == task.id);
                assert_eq!(is_listed, reader.knows(task.design), "{version} lists {:?} {}", task.design, task.id);
            }
            if version == "2025-11-25" {
                listed.iter().for_each(schema::check_task);
            }
        }
    }
}

#[tokio::test]
async fn tasks_of_every_design_are_cancellable_by_every_client() {
    let host = Setup::with(&["desk"]).config("[call]\npromote_after_ms = 0\n").start().await;
    let makers = Makers { legacy: Client::connect(&host).await, modern: Modern::full(&host, None) };
    let mut standalone = makers.legacy.listen().await;
    let mut core = Vec::new();
    for version in VERSIONS {
        for (at, mut reader) in Reader::all(&host, version).await.into_iter().enumerate() {
            for design in DESIGNS {
                let id = makers.make(design, "wait", &format!("{version} {at}")).await;
                let filter = json!({"notifications": {"taskIds": [id]}});
                let mut told = makers.modern.send("subscriptions/listen", filter).await;
                soon("the acknowledgement", told.next()).await.expect("an acknowledgement");
                let cancelled = reader.about("tasks/cancel", &id).await;
                if reader.is_without_tasks() {
                    cancelled.expect_err("a revision without this method");
                    makers.legacy.about("tasks/cancel", &id).await.expect("it is cancelled");
                } else {
                    cancelled.unwrap_or_else(|failure| panic!("{version} cancels {design:?}: {failure:?}"));
                }
                let mut status = Value::Null;
                while status != "cancelled" {
                    let notice = soon("a notification", told.next()).await.expect("the stream goes on");
                    assert_eq!(notice["params"]["taskId"], id, "{notice}");
                    status = notice["params"]["status"].clone();
                }
                makers.legacy.until_status(&id, "cancelled").await;
                if design == Design::Core2025 {
                    core.push(id);
                }
            }
        }
    }
    // The session that made the tasks of the core is told of those, and of no others: only this design has such a
    // notification.
    let mut cancelled = Vec::new();
    while cancelled.len() < core.len() {
        let message = soon("a notification", standalone.next()).await.expect("the stream goes on");
        assert_eq!(message["method"], "notifications/tasks/status", "{message}");
        schema::check_task(&message["params"]);
        let id = message["params"]["taskId"].as_str().expect("an id").to_owned();
        assert!(core.contains(&id), "{message}");
        if message["params"]["status"] == "cancelled" {
            cancelled.push(id);
        }
    }
    assert_eq!(cancelled, core);
}
