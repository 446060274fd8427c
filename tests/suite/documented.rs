//! What stands in the documents, done as it stands there: the messages of clients.md, the commands of quickstart.md, a
//! backup and its return by operate/storage.md.

use std::collections::HashMap;

use rustix::process::{getgid, getuid};
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::{Host, Setup, command, place};

const SERVED_AT: &str = "http://127.0.0.1:8808/mcp";

/// The blocks of this language on a page, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(place::root().join("host/docs").join(page)).expect("the page");
    let fence = format!("```{language}\n");
    let blocks = text.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// The messages of clients.md, in order.
fn messages() -> Vec<Value> {
    let parse =
        |block: &String| -> Value { serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}")) };
    blocks("clients.md", "json").iter().map(parse).collect()
}

/// Puts the id of a task where the text says that one stands.
fn filled(message: &Value, task: &str) -> Value {
    serde_json::from_str(&message.to_string().replace('…', task)).expect("JSON")
}

/// Whether everything that the text shows is there; a text may go on where the page's ends.
fn is_shown(shown: &Value, said: &Value) -> bool {
    match (shown, said) {
        (Value::Object(shown), Value::Object(said)) => {
            shown.iter().all(|(name, value)| said.get(name).is_some_and(|said| is_shown(value, said)))
        }
        (Value::String(shown), Value::String(said)) => said.starts_with(shown.as_str()),
        _ => shown == said,
    }
}

/// Sends a request of either era the way that its client would.
async fn sent(host: &Host, client: &mut Client, request: &Value) -> Value {
    let method = request["method"].as_str().expect("a method");
    let params = request["params"].clone();
    if let Some(capabilities) = params["_meta"].get("io.modelcontextprotocol/clientCapabilities") {
        let mut modern = Modern::plain(host, None);
        modern.capabilities = capabilities.clone();
        return modern.send(method, params).await.response_after(&mut Vec::new()).await;
    }
    if method == "initialize" {
        client.initialize(params["capabilities"].clone()).await;
        return json!({"result": client.server});
    }
    client.send(method, params).await.response_after(&mut Vec::new()).await
}

#[tokio::test]
async fn client_examples_match_the_host() {
    let host = Setup::with(&["primes", "desk"]).start().await;
    let mut client = Client::connect(&host).await;
    let messages = messages();
    assert!(
        messages.len() >= 14 && messages.len().is_multiple_of(2),
        "requests with their answers: {}",
        messages.len()
    );
    let mut task = String::new();
    let mut seen = HashMap::new();
    for pair in messages.chunks_exact(2) {
        let [request, shown] = [0, 1].map(|at| filled(&pair[at], &task));
        assert_eq!(request["id"], shown["id"], "an answer below its request");
        let said = sent(&host, &mut client, &request).await;
        if let Some(id) = said["result"]["task"]["taskId"].as_str() {
            id.clone_into(&mut task);
        }
        // The id of a task is known once the task is there.
        let shown = filled(&pair[1], &task);
        assert!(
            is_shown(&shown["result"], &said["result"]),
            "{request}\nis answered with\n{said}\nand not with\n{shown}"
        );
        *seen.entry(request["method"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
    }
    for method in ["initialize", "tools/call", "tasks/steer", "tasks/pause", "tasks/resume"] {
        assert!(seen.contains_key(method), "{method} is shown");
    }
}

/// `cargo xtask run` is what the gate has built the host with; everything else on the page is run.
#[tokio::test]
async fn quickstart_commands_work_as_written() {
    let host = Setup::with(&["text", "primes", "desk"]).start().await;
    let commands: Vec<_> =
        blocks("quickstart.md", "sh").into_iter().filter(|block| block != "cargo xtask run\n").collect();
    assert!(commands.len() >= 5, "{commands:?}");
    let script = commands.concat();
    for part in [SERVED_AT, "target/debug/bulkhead ", "target/plugins/"] {
        assert!(script.contains(part), "{part}");
    }
    let program = format!("{} ", place::host_binary().display());
    let script = script.replace(SERVED_AT, &host.url).replace("target/debug/bulkhead ", &program);
    let mut shell = tokio::process::Command::new("sh");
    shell.current_dir(place::root()).env("XDG_CACHE_HOME", place::root().join("target/test-code"));
    let output = command::output(shell.arg("-euc"), &[&script], None).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{wrong}");
    let lines = said.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let answers: Vec<Value> = lines
        .filter(|line| line.contains("\"jsonrpc\""))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for answer in &answers {
        assert!(answer.get("error").is_none(), "{answer}");
    }
    let results: Vec<_> = answers.iter().filter_map(|answer| answer.get("result")).collect();
    assert_eq!(results.len(), 10, "{said}");
    let [got, result, listed, echoed, waiting, seen, asking, .., booked] = results[..] else { unreachable!() };
    assert!(got["taskId"].is_string(), "{got}");
    assert_eq!(result["structuredContent"]["count"], 348_513, "{result}");
    assert_eq!(listed["tasks"].as_array().map(Vec::len), Some(1), "{listed}");
    assert!(echoed.to_string().contains("hello"), "{echoed}");
    assert_eq!((&waiting["taskId"], &waiting["status"]), (&seen["taskId"], &json!("working")), "{waiting} {seen}");
    assert!(asking["inputRequests"]["journey"].is_object(), "{asking}");
    assert!(booked.to_string().contains("Booked 2 economy seats to Oslo."), "{booked}");
    assert!(said.contains("word_count") && said.contains("words"), "{said}");
}

/// Runs commands of a page, with the places of this machine for those of the page.
async fn run_as_written(commands: &str, places: &[(&str, &str)]) -> String {
    let script = places.iter().fold(commands.to_owned(), |script, (from, to)| script.replace(from, to));
    let output = command::output(tokio::process::Command::new("sh").arg("-euc"), &[&script], None).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}\n{wrong}");
    said.into_owned()
}

async fn difference(client: &Client) -> String {
    text(&client.tool("diff", json!({"before": "a", "after": "a"})).await.expect("a call")).to_owned()
}

/// What no backup holds, with words of the way to it.
const LEFT_OUT: [(&str, &str); 3] = [
    ("audit/, the audit log", "`bulkhead audit verify`"),
    ("the configuration, and the keys", "copy them"),
    ("cache/ and cache.key", "the next start compiles again"),
];

#[tokio::test]
async fn backup_under_load_is_restored_as_written() {
    let setup = Setup::new();
    let host = setup.start().await;
    let later = setup.path("text.wasm");
    std::fs::write(&later, place::variant("text", "The texts are the same.", "The texts are the SAME."))
        .expect("another version");
    for (name, file) in [("text", &place::component("text")), ("primes", &place::component("primes")), ("text", &later)]
    {
        let file = file.display().to_string();
        command::json(&["plugin", "add", &file, "--name", name], &setup.data()).await;
    }
    let client = Client::connect(&host).await;
    let kept = client.task("count_primes", json!({"below": 1_000})).await;
    let result = client.until_status(&kept, "completed").await;

    let storage = blocks("operate/storage.md", "sh");
    let block = |word: &str| storage.iter().find(|block| block.contains(word)).expect(word).clone();
    let backup = block("store backup");
    let backup = backup.lines().find(|line| line.contains("store backup")).expect("the command");
    let data = setup.data().display().to_string();
    let backup = backup.replace("/backup/today", &format!("/backup/today --data {data}"));
    let places = [
        ("bulkhead: ", format!("{}:{} ", getuid().as_raw(), getgid().as_raw())),
        ("/var/lib/bulkhead", data),
        ("/backup/today", setup.path("copy").display().to_string()),
        ("bulkhead ", format!("{} ", place::host_binary().display())),
        ("NAME", "text".to_owned()),
    ];
    let places = places.each_ref().map(|(from, to)| (*from, to.as_str()));
    let load = async {
        loop {
            let task = client.task("count_primes", json!({"below": 1_000})).await;
            client.until_status(&task, "completed").await;
        }
    };
    let answer = tokio::select! {
        () = load => unreachable!("the load has no end"),
        answer = run_as_written(&backup, &places) => answer,
    };
    for (left_out, way) in LEFT_OUT {
        assert!(answer.contains(left_out) && answer.contains(way), "{left_out}, {way}: {answer}");
    }
    host.kill().await;

    run_as_written(&block("cp -a"), &places).await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(client.until_status(&kept, "completed").await, result, "a task of the backup");
    assert_eq!(difference(&client).await, "The texts are the SAME.");
    let task = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&task, "completed").await;
    let said = run_as_written(&block("plugin rollback"), &places).await;
    assert!(said.contains("primes") && !said.contains("broken"), "{said}");
    assert_eq!(difference(&client).await, "The texts are the same.");
}
