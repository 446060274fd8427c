//! The audit log, as an auditor finds it.

use std::path::PathBuf;

use futures::future::join_all;
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, Setup, command};

fn audited(plugins: &[&str]) -> Setup {
    Setup::with(plugins).config("[audit]\nenabled = true\n")
}

/// Its files, oldest first.
fn files(setup: &Setup) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(setup.data().join("audit")).expect("a log");
    let files = entries.map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    files
}

fn log(setup: &Setup) -> String {
    files(setup).iter().map(|file| std::fs::read_to_string(file).expect("text")).collect()
}

fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line} is no JSON"))).collect()
}

/// The lines of this event, in order.
fn events<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

async fn client(host: &Host, token: &str) -> Client {
    Client::connect_as(host, Some(token), all_capabilities()).await
}

const SECRET: &str = "the-text-of-a-call";

#[tokio::test]
async fn audit_records_requestor_actions_without_arguments() {
    let setup = audited(&["text", "primes", "desk"]);
    let alice_token = setup.token("alice", "acme").await;
    let bob_token = setup.token("bob", "globex").await;
    let host = setup.start().await;
    let alice = client(&host, &alice_token).await;
    let bob = client(&host, &bob_token).await;
    alice.tool("echo", json!({"text": SECRET})).await.expect("a result");
    alice.tool("count_primes", json!({"below": 1_000})).await.expect("a result");
    let task = alice.task("count_primes", json!({"below": 1_000})).await;
    alice.until_status(&task, "completed").await;
    alice.about("tasks/result", &task).await.expect("the result");
    bob.about("tasks/get", &task).await.expect_err("somebody else's task");
    let long = alice.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    alice.about("tasks/cancel", &long).await.expect("cancelled");
    let stranger = Client::new(&host.address("/mcp"), Some("bh_nobodys"));
    stranger.send("ping", json!({})).await;
    let modern = Modern::full(&host, Some(&alice_token));
    let call = json!({"name": "no_such_tool", "arguments": {"text": SECRET}});
    modern.call("tools/call", call).await.expect_err("no such tool");
    let (_, setup) = host.terminate().await;

    let log = log(&setup);
    for secret in [SECRET, &alice_token, &bob_token, "bh_nobodys"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let lines = lines(&log);
    let first = |event: &str| *events(&lines, event).first().unwrap_or_else(|| panic!("no {event}: {log}"));
    let call = first("call.ended");
    assert_eq!(
        (&call["tool"], &call["outcome"], &call["plugin"]),
        (&json!("echo"), &json!("succeeded"), &json!("text"))
    );
    assert!(call["arguments_sha256"].is_string() && call["result_bytes"].as_u64() >= Some(18), "{call}");
    let again = events(&lines, "call.ended")[1];
    let created = first("task.created");
    assert_eq!(created["task"], json!(task));
    assert_eq!(created["requestor"], call["requestor"]);
    assert_eq!(created["arguments_sha256"], again["arguments_sha256"], "equal arguments have equal digests");
    assert_eq!(first("task.completed")["task"], json!(task));
    assert!(events(&lines, "task.result_read").iter().any(|line| line["task"] == json!(task)));
    assert_eq!(first("task.cancelled")["task"], json!(long));
    let failed = first("lookup.failed");
    assert_eq!(failed["task"], json!(task));
    assert_ne!(failed["tenant"], created["tenant"], "it was Bob who looked");
    assert!(events(&lines, "lookup.failed").iter().any(|line| line["tool"] == "no_such_tool"));
    assert_eq!(first("access.refused")["reason"], json!("an invalid credential"));
    assert_eq!(lines.last().expect("a line")["event"], json!("audit.closed"));
    let made: Vec<_> = events(&lines, "operator.command");
    assert!(made.is_empty(), "the tokens were made before there was a log: {made:?}");
}

/// What goes wrong, ends before its time or comes too often, each with whose it is.
#[tokio::test]
async fn audit_records_failed_and_abandoned_work() {
    let setup = audited(&["desk", "bad_schema"])
        .plugin("primes", "on_restart = \"rerun\"")
        .config("[limits]\nearly_polls_per_minute = 5\n[call]\ncpu_ms = 600000\n");
    let alice_token = setup.token("alice", "acme").await;
    let host = setup.start().await;
    let alice = client(&host, &alice_token).await;
    // Polled much faster than it was asked for.
    let endless = json!({"below": 1_000_000_000_000_u64});
    let counting = alice.task("count_primes", endless).await;
    // How much faster is a matter of the machine, so it goes on until the log has it.
    until("requestor.polling", async || {
        alice.about("tasks/get", &counting).await.expect("a task");
        events(&lines(&log(&setup)), "requestor.polling").first().map(|_| ())
    })
    .await;
    // A call that its client gives up, however long it took to begin.
    let asking = tokio::spawn({
        let alice = alice.clone_session();
        let params = json!({"name": "wait", "arguments": {"ms": 60_000}});
        let message = json!({"jsonrpc": "2.0", "id": "away", "method": "tools/call", "params": params});
        async move { drop(alice.post(message.to_string(), None).await) }
    });
    let abandoned = until("call.abandoned", async || {
        alice.notify("notifications/cancelled", json!({"requestId": "away"})).await;
        events(&lines(&log(&setup)), "call.abandoned").first().map(|line| (*line).clone())
    })
    .await;
    asking.abort();
    assert_eq!((&abandoned["tool"], &abandoned["plugin"]), (&json!("wait"), &json!("desk")));
    assert!(abandoned["arguments_sha256"].is_string(), "{abandoned}");
    // A task of its client's own name is deleted.
    let named = json!({"modelcontextprotocol.io/task": {"taskId": "mine"}});
    let call = json!({"name": "count_primes", "arguments": {"below": 1_000}, "_meta": named});
    alice.call("tools/call", call).await.expect("a result");
    alice.about("tasks/delete", "mine").await.expect("deleted");
    // The log is written beside the answer, and a kill may come between the two.
    until("task.deleted", async || events(&lines(&log(&setup)), "task.deleted").first().map(|_| ())).await;
    let setup = host.kill().await;
    let host = setup.start().await;
    let again = client(&host, &alice_token).await;
    assert_eq!(again.about("tasks/get", &counting).await.expect("a task")["status"], "working");
    let (_, setup) = host.terminate().await;

    let lines = lines(&log(&setup));
    let polling = events(&lines, "requestor.polling");
    assert_eq!(polling.len(), 1, "once a minute: {polling:?}");
    assert_eq!(polling[0]["count"], json!(6));
    let interrupted = events(&lines, "task.interrupted");
    assert!(
        !interrupted.is_empty() && interrupted.iter().all(|line| line["task"] == json!(counting)),
        "{interrupted:?}"
    );
    let deleted = events(&lines, "task.deleted");
    let made = events(&lines, "task.created");
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    assert!(made.iter().any(|line| line["task"] == deleted[0]["task"]), "by the id that the log knows it by");
    for line in [&abandoned, polling[0], interrupted[0], deleted[0]] {
        assert_eq!((&line["tenant"], &line["requestor"]), (&made[0]["tenant"], &made[0]["requestor"]), "{line}");
    }
    let refused = events(&lines, "plugin.refused");
    assert_eq!((refused.len(), &refused[0]["name"]), (2, &json!("bad_schema")), "at each start: {refused:?}");
    assert!(refused[0]["reason"].as_str().is_some_and(|why| why.contains("schema")), "{refused:?}");
}

/// A host that is being drained refuses all that is new, by whichever door it comes.
#[tokio::test]
async fn audit_records_refusals_of_every_request() {
    let setup = audited(&["primes", "conformance"]);
    let alice_token = setup.token("alice", "acme").await;
    let host = setup.start().await;
    let legacy = client(&host, &alice_token).await;
    let modern = Modern::full(&host, Some(&alice_token));
    let prompt = legacy.call("prompts/list", json!({})).await.expect("a list")["prompts"]
        .as_array()
        .and_then(|prompts| prompts.iter().find(|prompt| prompt["arguments"].as_array().is_none_or(Vec::is_empty)))
        .map(|prompt| json!({"name": prompt["name"]}))
        .expect("a prompt without arguments");
    let resource = legacy.call("resources/list", json!({})).await.expect("a list")["resources"][0]["uri"].clone();
    // A name of another request is refused by a host that takes everything, too.
    let keyed = modern.with_meta("dev.bulkhead/idempotencyKey", json!("k"));
    for below in [1_000, 2_000] {
        let first = keyed.call("tools/call", json!({"name": "count_primes", "arguments": {"below": below}})).await;
        assert_eq!(first.is_ok(), below == 1_000, "{first:?}");
    }
    command::run(&mut command::bulkhead(), &["host", "drain", "--data"], Some(&setup.data())).await;
    let wished = |mut params: Value, name: &str| {
        params["_meta"] = json!({"modelcontextprotocol.io/task": {"taskId": name}});
        params
    };
    let count = json!({"name": "count_primes", "arguments": {"below": 987_654_321}});
    let read = json!({"uri": resource});
    for (method, params) in [
        ("tools/call", count.clone()),
        ("tools/call", wished(count.clone(), "a")),
        ("prompts/get", prompt.clone()),
        ("prompts/get", wished(prompt.clone(), "b")),
        ("resources/read", read.clone()),
        ("resources/read", wished(read.clone(), "c")),
    ] {
        legacy.call(method, params).await.expect_err("it is drained");
    }
    let keyed = modern.with_meta("dev.bulkhead/idempotencyKey", json!("other"));
    for (client, method, params) in [
        (&modern, "tools/call", &count),
        (&keyed, "tools/call", &count),
        (&modern, "prompts/get", &prompt),
        (&modern, "resources/read", &read),
    ] {
        client.call(method, params.clone()).await.expect_err("it is drained");
    }
    let (_, setup) = host.terminate().await;
    let log = log(&setup);
    assert!(!log.contains("987654321"));
    let lines = lines(&log);
    let refused = events(&lines, "call.refused");
    let of = |label: &str| refused.iter().filter(|line| line["tool"] == label).count();
    assert_eq!([of("count_primes"), of("(prompt)"), of("(resource)"), refused.len()], [5, 3, 3, 11], "{refused:#?}");
    assert!(refused.iter().all(|line| line["reason"].is_string() && line["requestor"].is_string()), "{refused:#?}");
}

/// Whichever door a call comes in by, its refusal is a line.
#[tokio::test]
async fn audit_records_each_refused_call_once() {
    let setup = audited(&["primes"]).config("[limits]\ntask_creations_per_second = 1\n");
    let host = setup.start().await;
    let legacy = Client::connect(&host).await;
    // All at once: a named call is answered when it is over, and a second later there is room for another creation.
    let calls = (0..6).map(|id| {
        let named = json!({"modelcontextprotocol.io/task": {"taskId": format!("mine-{id}")}});
        let (key, wish) = if id % 2 == 0 { ("task", json!({})) } else { ("_meta", named) };
        let mut params = json!({"name": "count_primes", "arguments": {"below": 987_654_321}});
        params[key] = wish;
        legacy.call("tools/call", params)
    });
    let refused = join_all(calls).await.iter().filter(|answer| answer.is_err()).count();
    assert!(refused >= 2, "{refused}");
    let (_, setup) = host.terminate().await;
    let log = log(&setup);
    assert!(!log.contains("987654321"));
    assert_eq!(events(&lines(&log), "call.refused").len(), refused, "{log}");
}

#[tokio::test]
async fn audit_log_survives_a_kill_and_shows_changed_lines() {
    let setup = audited(&["text"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    client.tool("echo", json!({"text": "one"})).await.expect("a result");
    let setup = host.kill().await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    client.tool("echo", json!({"text": "two"})).await.expect("a result");
    let (code, _) = command::outcome(&["token", "create", "--requestor", "carol"], &setup.data()).await;
    assert_eq!(code, Some(0));
    let noted = || async { log(&setup).contains("token_create").then_some(()) };
    until("the operator's command is in the log", noted).await;
    let (code, sound) = command::outcome(&["audit", "verify"], &setup.data()).await;
    assert_eq!((code, &sound["sound"], &sound["first"]), (Some(0), &json!(true), &json!(1)), "with a host: {sound}");
    host.terminate().await;

    let (_, sound) = command::outcome(&["audit", "verify"], &setup.data()).await;
    let anchor = sound["anchor"].as_str().expect("an anchor").to_owned();
    let (code, _) = command::outcome(&["audit", "verify", "--anchor", &anchor], &setup.data()).await;
    assert_eq!(code, Some(0));
    let tail =
        command::run(&mut command::bulkhead(), &["audit", "tail", "-n", "2", "--json", "--data"], Some(&setup.data()))
            .await;
    assert_eq!(lines(&tail).len(), 2);
    assert!(tail.contains("audit.closed"), "{tail}");

    // Without a host, commands go on with the log that is there.
    command::outcome(&["token", "create", "--requestor", "dave"], &setup.data()).await;
    let all = log(&setup);
    assert!(all.contains("dave"), "{all}");
    let file = files(&setup).remove(0);
    std::fs::write(&file, all.replacen("\"outcome\":\"succeeded\"", "\"outcome\":\"failed\"", 1)).expect("written");
    let (code, broken) = command::outcome(&["audit", "verify"], &setup.data()).await;
    assert_eq!((code, &broken["sound"]), (Some(1), &json!(false)));
    assert!(broken["problem"].as_str().expect("a text").contains("was changed"), "{broken}");
}

#[tokio::test]
async fn audit_log_is_off_by_default() {
    let setup = Setup::with(&["text"]);
    let host = setup.start().await;
    Client::connect(&host).await.tool("echo", json!({"text": "hello"})).await.expect("a result");
    let (_, setup) = host.terminate().await;
    assert!(!setup.data().join("audit").exists());
    let output = command::output(&mut command::bulkhead(), &["audit", "tail", "--data"], Some(&setup.data())).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("audit.enabled = true"), "{said}");
}

/// The events of a task and of its host that the test above does not see.
#[tokio::test]
async fn audit_records_every_step_of_a_task() {
    let setup = audited(&["desk"]).config("[call]\npromote_after_ms = 0\n");
    let alice = setup.token("alice", "acme").await;
    let host = setup.start().await;
    let client = Modern::full(&host, Some(&alice));
    let trip = client.task("book_trip", json!({})).await;
    until("the question", async || {
        let now = client.result("tasks/get", json!({"taskId": trip})).await;
        now["inputRequests"].get("journey").is_some().then_some(())
    })
    .await;
    let answer = json!({"journey": {"action": "accept", "content": {"destination": SECRET, "travellers": 2}}});
    client.result("tasks/update", json!({"taskId": trip, "inputResponses": answer})).await;
    client.result("tasks/pause", json!({"taskId": trip})).await;
    client.result("tasks/resume", json!({"taskId": trip})).await;
    let waiting = client.task("wait", json!({"ms": 60_000})).await;
    client.result("tasks/steer", json!({"taskId": waiting, "message": SECRET})).await;
    let legacy = Client::connect_as(&host, Some(&alice), all_capabilities()).await;
    let short = json!({"ttl": 1_000});
    let short = legacy.create_with("wait", json!({"ms": 60_000}), short).await.expect("a task");
    let short = short["taskId"].as_str().expect("an id").to_owned();
    let noted = async |event: &str, task: &str| {
        until(event, async || {
            let lines = lines(&log(&setup));
            events(&lines, event).iter().any(|line| task.is_empty() || line["task"] == *task).then_some(())
        })
        .await;
    };
    for event in ["created", "read", "asked", "answered", "paused", "resumed"] {
        noted(&format!("task.{event}"), &trip).await;
    }
    noted("task.steered", &waiting).await;
    noted("task.expired", &short).await;
    noted("plugin.loaded", "").await;
    noted("token.used", "").await;
    let lines = lines(&log(&setup));
    let of_trip: Vec<_> = lines.iter().filter(|line| line["task"] == *trip).map(|line| line["event"].clone()).collect();
    let resumed = ["task.paused", "task.read", "task.resumed"];
    assert!(of_trip.windows(3).any(|three| *three == resumed), "one look for each order: {of_trip:?}");
    let used = events(&lines, "token.used");
    assert_eq!(used.len(), 1, "once a minute: {used:?}");
    let listed = command::json(&["token", "list"], &setup.data()).await;
    assert_eq!(used[0]["name"], listed["tokens"][0]["id"]);
    let loaded = events(&lines, "plugin.loaded")[0];
    assert!(loaded["plugin"] == "desk" && loaded["version"].as_str().is_some_and(|digest| digest.len() == 64));
    assert!(!log(&setup).contains(SECRET));
}
