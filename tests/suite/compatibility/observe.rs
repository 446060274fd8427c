//! What a program says about a data directory, in a form in which two programs can be compared.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::{Value, json};
use tests::client::{Client, Failure, all_capabilities};
use tests::modern::Modern;
use tests::wait::{PATIENCE, until};
use tests::{Host, Setup, command};
use tokio::io::AsyncWriteExt as _;

/// A secret's value, as `secret set` reads it.
const SECRET: &str = "sk-fixture";
/// These differ from one run to the next: how long a component took to load, and the chain and the length of the audit log.
const VOLATILE: [&str; 5] = ["loadMs", "anchor", "hash", "prev", "last"];

/// A host's folder, and what was said about it so far.
pub(super) struct Observer {
    pub(super) setup: Setup,
    /// Tokens and tasks, as the program left them that made the folder.
    pub(super) facts: Value,
    pub(super) said: Vec<Value>,
    /// What is different in each run, by the name that stands for it; commands use the names, too.
    names: BTreeMap<String, String>,
}

impl Observer {
    pub(super) fn new(setup: Setup, facts: Value) -> Self {
        let mut names = BTreeMap::from([("$DIR".to_owned(), setup.path("").display().to_string())]);
        names.retain(|_, path| {
            *path = path.trim_end_matches('/').to_owned();
            true
        });
        for task in facts["tasks"].as_array().into_iter().flatten() {
            names.insert(format!("${}", text(&task["name"])), text(&task["id"]).to_owned());
        }
        names.insert("$SECOND".to_owned(), text(&facts["second"]).to_owned());
        names.retain(|_, value| !value.is_empty());
        Self { setup, facts, said: Vec::new(), names }
    }

    /// Lets a name stand for a text from now on.
    pub(super) fn name(&mut self, name: &str, value: &Value) {
        self.names.insert(format!("${name}"), text(value).to_owned());
    }

    /// Runs a command with `--json` and notes its exit code and what it printed, value by value.
    pub(super) async fn run(&mut self, line: &str) -> Value {
        let arguments =
            line.split(' ').map(|word| self.names.iter().rev().fold(word.to_owned(), |w, (n, v)| w.replace(n, v)));
        let about_file =
            ["plugin inspect", "plugin call", "plugin check"].iter().any(|begins| line.starts_with(begins));
        // Writes the configuration, and knows the environment.
        let as_the_host = self.setup.command("serve");
        let mut command = command::bulkhead();
        command.envs(as_the_host.as_std().get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.args(arguments).arg("--json");
        if !about_file {
            command.arg("--config").arg(self.setup.path("bulkhead.toml"));
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the command starts");
        // A command that reads nothing may be over already.
        let _ = child.stdin.take().expect("a pipe").write_all(SECRET.as_bytes()).await;
        // Some compile every component.
        let output = tokio::time::timeout(PATIENCE * 5, child.wait_with_output()).await;
        let output = output.unwrap_or_else(|_| panic!("{line} takes too long")).expect("the command ends");
        let printed = String::from_utf8(output.stdout).expect("commands print UTF-8");
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&printed).into_iter().collect();
        let values = values.unwrap_or_else(|error| panic!("{line} printed no JSON ({error}): {printed}"));
        if values.is_empty() {
            println!("{line}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let value = if values.len() == 1 { values[0].clone() } else { Value::Array(values) };
        self.note(line, json!({"code": output.status.code(), "out": value}));
        value
    }

    fn note(&mut self, command: &str, said: Value) {
        let mut entry = json!({"command": command});
        for (key, value) in said.as_object().into_iter().flatten() {
            entry[key] = self.plain(value);
        }
        // What the asked program adds to the audit log depends on when it is asked.
        if let (true, Some(lines)) = (command.starts_with("audit tail"), entry["out"].as_array_mut()) {
            lines.retain(|line| line["at_ms"].is_u64());
        }
        self.said.push(entry);
    }

    /// The value with names instead of what differs from one run to the next.
    fn plain(&self, value: &Value) -> Value {
        match value {
            Value::Number(number) if number.as_u64().is_some_and(|ms| self.is_new(ms)) => json!("$TIME"),
            Value::String(text) if is_time(text) && !self.is_of_fixture(text) => json!("$TIME"),
            Value::String(text) => Value::String(self.named(text)),
            Value::Array(values) => values.iter().map(|value| self.plain(value)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, value)| {
                    let volatile = VOLATILE.contains(&key.as_str());
                    (self.named(key), if volatile { json!("$VOLATILE") } else { self.plain(value) })
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    fn named(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(value, name))
    }

    /// Milliseconds since 1970 that are not from when the folder was made.
    fn is_new(&self, ms: u64) -> bool {
        let made = self.facts["begun_ms"].as_u64().unwrap_or(0)..=self.facts["made_ms"].as_u64().unwrap_or(0);
        (1_000_000_000_000..100_000_000_000_000).contains(&ms) && !made.contains(&ms)
    }

    fn is_of_fixture(&self, time: &str) -> bool {
        (text(&self.facts["begun"])..=text(&self.facts["made"])).contains(&time)
    }

    /// Every command of the command line that a stopped host's data directory can be asked, then those that change it.
    pub(super) async fn commands(&mut self) {
        for line in READING.lines().filter(|line| !line.is_empty()) {
            self.run(line).await;
        }
        for task in self.task_names() {
            self.run(&format!("tasks show {task}")).await;
        }
        let created =
            self.run("token create --requestor erin --tenant acme --name new --expires 90d --scope words").await;
        self.name("TOKEN", &created["token"]);
        self.name("TOKEN_ID", &created["id"]);
        self.rename_last(&created);
        for line in CHANGING.lines().filter(|line| !line.is_empty()) {
            self.run(line).await;
        }
        let export = std::fs::read_to_string(self.setup.path("export.jsonl")).expect("an export");
        let rows: Vec<Value> = export.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        self.note("the lines of the export", json!({"out": rows}));
    }

    /// Notes the newest output again, now that what is new in it has names.
    fn rename_last(&mut self, value: &Value) {
        let out = self.plain(value);
        self.said.last_mut().expect("something was said")["out"] = out;
    }

    /// The store's key is changed and nothing is lost by it.
    pub(super) async fn rekey(&mut self) {
        for line in ["store check", "tasks list", "store rekey", "store check"] {
            self.run(line).await;
        }
    }

    fn task_names(&self) -> Vec<String> {
        let tasks = self.facts["tasks"].as_array().into_iter().flatten();
        tasks.filter(|task| task["design"] != "sep1686").map(|task| format!("${}", text(&task["name"]))).collect()
    }

    /// Starts a host on the folder, lets it recover, and asks everything of it as each requestor.
    pub(super) async fn serve(&mut self) {
        let host = self.setup.start_within(PATIENCE * 5).await;
        until("what was queued to be over", async || {
            let tasks = command::json(&["tasks", "list"], &self.setup.data()).await;
            let mut tasks = tasks["tasks"].as_array().expect("tasks").iter();
            tasks.all(|task| !matches!(text(&task["status"]), "queued" | "running")).then_some(())
        })
        .await;
        for requestor in ["alice", "bob", "carol", "dora"] {
            self.ask_as(&host, requestor).await;
        }
        for dead in ["expired", "revoked"] {
            let reply = Client::new(&host.url, self.facts["tokens"][dead].as_str()).send("ping", json!({})).await;
            self.note(
                &format!("ping with the {dead} token"),
                json!({"code": reply.status.as_u16(), "out": reply.text}),
            );
        }
        for line in SERVED.lines().filter(|line| !line.is_empty()) {
            self.run(line).await;
        }
        // Some rows, such as the times of last use, are written a little later.
        for entry in self.said.iter_mut().filter(|entry| entry["command"] == "store check") {
            entry["out"]["rows"] = json!("$VOLATILE");
        }
        host.terminate().await;
    }

    /// What one requestor sees: every task in both eras, its lists, and what plugins keep for its tenant.
    async fn ask_as(&mut self, host: &Host, requestor: &str) {
        let token = text(&self.facts["tokens"][requestor]).to_owned();
        let legacy = Client::connect_as(host, Some(&token), all_capabilities()).await;
        let earlier = of_sep1686(host, &token).await;
        let modern = Modern::full(host, Some(&token));
        let tasks = self.facts["tasks"].as_array().cloned().unwrap_or_default();
        for task in tasks {
            let (name, id) = (text(&task["name"]), json!({"taskId": task["id"]}));
            let client = if task["design"] == "sep1686" { &earlier } else { &legacy };
            let state = client.call("tasks/get", id.clone()).await;
            // The result of a task that goes on comes when it is over.
            let goes_on = state
                .as_ref()
                .is_ok_and(|state| !matches!(text(&state["status"]), "completed" | "failed" | "cancelled"));
            self.note(&format!("{requestor}: tasks/get {name}"), reported(state));
            if !goes_on {
                let reply = client.call("tasks/result", id.clone()).await;
                self.note(&format!("{requestor}: tasks/result {name}"), reported(reply));
            }
            let reply = modern.call("tasks/get", id).await;
            self.note(&format!("{requestor}: modern tasks/get {name}"), reported(reply));
        }
        for (method, params) in [
            ("tasks/list", json!({})),
            ("tools/list", json!({})),
            ("tools/call", json!({"name": "echo", "arguments": {"text": "hello"}})),
            ("tools/call", json!({"name": "diff", "arguments": {"before": "a", "after": "a"}})),
            ("tools/call", json!({"name": "keep", "arguments": {"what": "keys", "key": ""}})),
            ("tools/call", json!({"name": "keep", "arguments": {"what": "get", "key": "k"}})),
            ("tools/call", json!({"name": "settings", "arguments": {}})),
        ] {
            let asked = format!("{requestor}: {method} {params}");
            let reply = earlier.call(method, params.clone()).await;
            self.note(&format!("{asked} (2025-06-18)"), reported(reply));
            // The older program shows tasks of SEP-1686 in their own form here, and the schema refuses that.
            if method != "tasks/list" || requestor != "alice" {
                let reply = legacy.call(method, params.clone()).await;
                self.note(&asked, reported(reply));
            }
            if method != "tasks/list" {
                let reply = modern.call(method, params).await;
                self.note(&format!("{asked} (modern)"), reported(reply));
            }
        }
    }
}

/// In a session whose revision has no tasks of its own, so that those of SEP-1686 are shown as that design has them.
pub(super) async fn of_sep1686(host: &Host, token: &str) -> Client {
    let mut client = Client::new(&host.url, Some(token));
    client.version = "2025-06-18".to_owned();
    client.initialize(all_capabilities()).await;
    client
}

fn reported(reply: Result<Value, Failure>) -> Value {
    match reply {
        Ok(result) => json!({"code": 0, "out": result}),
        Err(failure) => json!({"code": failure.code, "out": {"message": failure.message, "data": failure.data}}),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// As the protocol writes times: `2026-07-28T09:00:00.000Z`.
fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.as_bytes()[10] == b'T' && text.ends_with('Z') && text.as_bytes()[4] == b'-'
}

/// Commands that change nothing.
const READING: &str = "\
token list
tenant list
tasks list
tasks list --tenant acme --max 2
tasks list --requestor bob
secret list
plugin list
plugin versions text
plugin versions probe
plugin versions nothing
plugin verify
plugin verify text
audit verify
audit tail --lines 1000
store check
store export $DIR/export.jsonl
store backup $DIR/backup
admin tasks list
admin tasks list --status input_required --tenant acme
admin tasks list --plugin desk --max 1
admin tasks inspect $legacy_completed
admin tokens list
plugin inspect $DIR/plugins/probe.wasm
plugin inspect $DIR/plugins/probe.wasm --config $DIR/bulkhead.toml
plugin inspect $DIR/plugins/desk.wasm
plugin inspect $DIR/plugins/primes.wasm
plugin inspect $DIR/plugins/text-1.wasm
plugin check $DIR/plugins/probe.wasm
plugin check $DIR/plugins/text-1.wasm
plugin call $DIR/plugins/text-1.wasm word_count {\"text\":\"a_b\"}
plugin call $DIR/plugins/probe.wasm contents
plugin call $DIR/plugins/probe.wasm fail {\"way\":\"tool\"}";

/// Commands that change something, and what is there afterwards.
const CHANGING: &str = "\
token list
token revoke $TOKEN_ID
admin tokens revoke $TOKEN_ID
tasks pause $legacy_queued
tasks resume $legacy_queued
tasks resume $legacy_paused_before_its_turn
tasks cancel $legacy_queued
tasks cancel $legacy_completed
tasks cancel $legacy_asking
admin tasks pause $modern_queued --message later
admin tasks resume $modern_queued
admin tasks cancel --requestor bob
admin tasks purge $legacy_cancelled $legacy_cancelled
tasks list
secret set NEW --plugin probe --to https://api.example.com/v1 --in query --tenant acme
secret rotate
secret remove KEY --plugin probe
secret list
plugin promote text
plugin rollback text
plugin activate text@1234
plugin activate text@$SECOND --canary 25% --tenant acme --max-fault-percent 7 --window 5m --min-calls 9
plugin list
plugin rollback text
plugin add $DIR/plugins/text-2.wasm --name text
plugin update text
plugin stage $DIR/plugins/text-1.wasm --name words
plugin activate words --accept
plugin remove words
plugin remove text
plugin versions words
plugin verify
store rebuild
store check
store rebuild --from $DIR/export.jsonl
tasks list
tenant purge globex --yes
tenant list
token list
plugin list
audit verify
audit tail --lines 1000
store check";

/// What a running host is asked.
const SERVED: &str = "\
token list
tenant list
tasks list
secret list
plugin list
plugin versions text
admin tasks list
admin limits
admin limits --tenant acme --requestor alice
admin reload --check
admin drain --status
store check
store backup $DIR/served
admin drain --no-wait
admin drain --undo
admin tasks resume --status paused
audit verify
audit tail --lines 1000";
