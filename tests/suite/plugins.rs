//! Plugins that come, change and go while a host runs: what operators see, what clients notice, and what survives.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::place::{rounds, variant};
use tests::wait::until;
use tests::{Setup, command};

/// What the first version of `diff` says about equal texts, and the second one.
const FIRST: &str = "The texts are the same.";
const SECOND: &str = "The texts are the SAME.";
/// What the first version of `book_trip` says between seats and destination, and the second one.
const SEATS: (&str, &str) = (" seats to ", " chairs to");

/// A component in a file beside the data directory.
fn file(setup: &Setup, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = setup.path(&format!("{name}.wasm"));
    std::fs::write(&path, bytes).expect("the component is written");
    path.display().to_string()
}

/// The second version of `text`, with the same definitions.
fn second_text(setup: &Setup) -> String {
    file(setup, "text-2", &variant("text", FIRST, SECOND))
}

/// The second version of `desk`.
fn second_desk(setup: &Setup) -> String {
    file(setup, "desk-2", &variant("desk", SEATS.0, SEATS.1))
}

async fn said(client: &Client) -> String {
    let same = json!({"before": "a", "after": "a"});
    text(&client.tool("diff", same).await.expect("it is called")).to_owned()
}

/// The line of a plugin in `plugin list`.
async fn listed(setup: &Setup, name: &str) -> Value {
    let list = command::json(&["plugin", "list"], &setup.data()).await;
    let line = list["plugins"].as_array().expect("a list").iter().find(|line| line["name"] == name).cloned();
    line.unwrap_or_else(|| panic!("{name} is not in {list}"))
}

/// Adds another version of a plugin that needs nobody's word.
async fn add(setup: &Setup, name: &str, file: &str) {
    let done = command::json(&["plugin", "add", file, "--name", name], &setup.data()).await;
    assert_eq!(done["done"], true, "{done}");
}

#[tokio::test]
async fn plugin_version_is_added_persisted_and_rolled_back() {
    let setup = Setup::with(&["text"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let first = listed(&setup, "text").await;
    assert_eq!((&first["state"], &first["versions"], &first["tools"]), (&json!("active"), &json!(1), &json!(3)));
    assert_eq!(said(&client).await, FIRST);
    add(&setup, "text", &second_text(&setup)).await;
    assert_eq!(said(&client).await, SECOND, "in the same session");
    let second = listed(&setup, "text").await;
    assert_eq!((&second["previous"], &second["versions"]), (&first["active"], &json!(2)));

    // The configuration names the first one all the time; the store remembers.
    host.kill().await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(said(&client).await, SECOND);
    assert!(host.log().contains("is not the active version"), "who looks for the file's version finds out why");
    let back = command::json(&["plugin", "rollback", "text"], &setup.data()).await;
    assert_eq!((&back["done"], &back["plugins"][0]["to"]), (&json!(true), &first["active"]));
    assert_eq!(said(&client).await, FIRST);
    host.kill().await;
    let host = setup.start().await;
    assert_eq!(said(&Client::connect(&host).await).await, FIRST);
    let versions = command::json(&["plugin", "versions", "text"], &setup.data()).await;
    let states: Vec<_> = versions["versions"].as_array().expect("a list").iter().map(|line| &line["state"]).collect();
    assert!(states.contains(&&json!("active")) && states.len() == 2, "{versions}");
    let verified = command::json(&["plugin", "verify"], &setup.data()).await;
    assert_eq!((&verified["sound"], &verified["versions"]), (&json!(true), &json!(2)));
    let plain = command::run(&mut command::bulkhead(), &["plugin", "list", "--data"], Some(&setup.data())).await;
    assert!(plain.contains("text") && plain.contains("active"), "{plain}");
}

#[tokio::test]
async fn changed_tool_definition_is_held_until_accepted() {
    let setup = Setup::with(&["text"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let description = async || {
        let tools = client.call("tools/list", json!({})).await.expect("a list");
        let echo = tools["tools"].as_array().expect("a list").iter().find(|tool| tool["name"] == "echo").cloned();
        echo.expect("it is there")["description"].as_str().expect("a text").to_owned()
    };
    let poisoned = variant("text", "Returns the text as it is.", "Returns the text and more.");
    let poisoned = file(&setup, "poisoned", &poisoned);
    let (code, held) = command::outcome(&["plugin", "add", &poisoned, "--name", "text"], &setup.data()).await;
    assert_eq!((code, &held["done"]), (Some(4), &json!(false)));
    assert!(held["held"][0].as_str().is_some_and(|reason| reason.contains("echo")), "{held}");
    let changed = &held["plugins"][0]["changes"]["tools_changed"];
    assert_eq!(*changed, json!([{"tool": "echo", "changed": ["description"], "input": [], "output": []}]));
    assert_eq!(description().await, "Returns the text as it is.");
    let plain = ["plugin", "activate", "text", "--data"];
    let output = command::output(&mut command::bulkhead(), &plain, Some(&setup.data())).await;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4));
    assert!(shown.contains("--accept") && shown.contains("~ echo: description"), "{shown}");
    let done = command::json(&["plugin", "activate", "text", "--accept"], &setup.data()).await;
    assert_eq!(done["done"], true);
    assert_eq!(description().await, "Returns the text and more.");
    // Both were accepted by now.
    command::json(&["plugin", "rollback", "text"], &setup.data()).await;
    assert_eq!(description().await, "Returns the text as it is.");
    command::json(&["plugin", "rollback", "text"], &setup.data()).await;
    assert_eq!(description().await, "Returns the text and more.");

    // A policy may allow it.
    drop(host);
    let setup = Setup::new().plugin("text", "accept_changes = \"compatible\"");
    let _host = setup.start().await;
    let poisoned = std::fs::read(&poisoned).expect("it is there");
    add(&setup, "text", &file(&setup, "described", &poisoned)).await;
}

#[tokio::test]
async fn plugin_set_is_switched_wholly_or_not_at_all() {
    let setup = Setup::with(&["text", "desk"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let actives =
        async || (listed(&setup, "text").await["active"].clone(), listed(&setup, "desk").await["active"].clone());
    let before = actives().await;
    let data = setup.data();
    // Names come from the files where the component has none: the folder decides.
    let folder = setup.path("set");
    std::fs::create_dir(&folder).expect("a folder");
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(format!("{name}.wasm"));
        std::fs::write(&path, bytes).expect("the component is written");
        path.display().to_string()
    };
    let text_2 = put("text", &variant("text", FIRST, SECOND));
    let bad_desk = put("desk", &variant("desk", "Books a trip: asks", "Books a trip, asks"));
    let (code, held) = command::outcome(&["plugin", "add", &text_2, &bad_desk], &data).await;
    assert_eq!((code, &held["done"]), (Some(4), &json!(false)), "{held}");
    assert_eq!(actives().await, before, "none of the two");
    assert_eq!(said(&client).await, FIRST);
    let truncated = std::fs::read(&text_2).expect("it is there");
    let truncated = put("cut", &truncated[..truncated.len() / 2]);
    let (code, refused) = command::outcome(&["plugin", "add", &text_2, &truncated], &data).await;
    assert_eq!(code, Some(4));
    assert!(refused["refused"][0]["problems"][0].as_str().is_some_and(|said| said.contains("truncated")), "{refused}");
    assert_eq!(actives().await, before);
    // A clash with another plugin: nothing of the set comes.
    let (code, clash) = command::outcome(&["plugin", "add", &text_2, "--name", "copy"], &data).await;
    assert_eq!(code, Some(4), "{clash}");
    assert!(clash["refused"][0]["problems"][0].as_str().is_some_and(|said| said.contains("prefix")), "{clash}");

    let good_desk = put("desk", &variant("desk", SEATS.0, SEATS.1));
    let done = command::json(&["plugin", "add", &text_2, &good_desk], &data).await;
    assert_eq!((&done["done"], done["plugins"].as_array().map(Vec::len)), (&json!(true), Some(2)));
    assert_eq!(said(&client).await, SECOND);
    command::json(&["plugin", "rollback", "text", "desk"], &data).await;
    assert_eq!(actives().await, before);
}

fn journey() -> Value {
    json!({"journey": {"action": "accept", "content": {"destination": "Rome", "travellers": 2}}})
}

fn details() -> Value {
    json!({"details": {"action": "accept", "content": {"class": "economy", "confirm": true}}})
}

/// Answers both questions of a trip; what was booked.
async fn book(client: &Modern, task: &str) -> String {
    for answers in [journey(), details()] {
        client.until_status(task, "input_required").await;
        client.result("tasks/update", json!({"taskId": task, "inputResponses": answers})).await;
        let key = answers.as_object().and_then(|answers| answers.keys().next().cloned()).expect("a key");
        until("the answer to be taken", async || {
            let now = client.result("tasks/get", json!({"taskId": task})).await;
            now["inputRequests"].get(&key).is_none().then_some(())
        })
        .await;
    }
    let done = client.until_status(task, "completed").await;
    done["result"]["structuredContent"]["summary"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn calls_stay_on_their_plugin_version_after_switch() {
    let limits = "[limits]\ntasks_running_per_requestor = 2";
    let setup = Setup::with(&["text", "desk"]).config(limits);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    let asking = client.task("book_trip", json!({})).await;
    client.until_status(&asking, "input_required").await;
    let parked = Modern::plain(&host, None).tool("book_trip", json!({})).await;
    let paused = client.task("book_trip", json!({})).await;
    client.until_status(&paused, "input_required").await;
    modern.result("tasks/pause", json!({"taskId": paused})).await;
    // Whoever computes takes the places, so that what comes then has to wait.
    let one = client.task("wait", json!({"ms": 1_500})).await;
    let two = client.task("wait", json!({"ms": 1_500})).await;
    let queued = client.task("book_trip", json!({})).await;
    add(&setup, "desk", &second_desk(&setup)).await;

    let fresh = client.task("book_trip", json!({})).await;
    assert!(book(&modern, &fresh).await.contains(SEATS.1), "new calls are on the new version");
    assert!(book(&modern, &asking).await.contains(SEATS.0));
    modern.result("tasks/resume", json!({"taskId": paused})).await;
    assert!(book(&modern, &paused).await.contains(SEATS.0));
    assert!(book(&modern, &queued).await.contains(SEATS.0));
    let retry = |asked: &Value, answers: Value| json!({"name": "book_trip", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
    let plain = Modern::plain(&host, None);
    let second = plain.result("tools/call", retry(&parked, journey())).await;
    for task in [&one, &two] {
        client.until_status(task, "completed").await;
    }
    // The guest that stood still is lost with its host, the version is not.
    host.kill().await;
    let host = setup.start().await;
    let plain = Modern::plain(&host, None);
    let done = plain.result("tools/call", retry(&second, details())).await;
    let summary = done["structuredContent"]["summary"].as_str().expect("a text");
    assert!(summary.contains(SEATS.0), "{summary}");
}

#[tokio::test]
async fn queued_and_rerun_tasks_keep_their_version_across_restart() {
    let setup = Setup::with(&["desk"])
        .plugin("primes", "on_restart = \"rerun\"")
        .config("[limits]\ntasks_running_per_requestor = 1\ncalls_running_per_requestor = 1\n[call]\ncpu_ms = 600000");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let computing = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    let queued = client.task("book_trip", json!({})).await;
    add(&setup, "desk", &second_desk(&setup)).await;
    let another = file(&setup, "primes-2", &variant("primes", "primes", "prim3s"));
    let arguments = ["plugin", "add", &another, "--name", "primes", "--accept"];
    assert_eq!(command::json(&arguments, &setup.data()).await["done"], true);
    let tasks_of_drained = async |name: &str| {
        let shown = command::json(&["plugin", "versions", name], &setup.data()).await;
        let drains =
            shown["versions"].as_array().expect("a list").iter().find(|line| line["state"] == "draining").cloned();
        drains.unwrap_or_else(|| panic!("nothing drains: {shown}"))["tasks"].clone()
    };
    assert_eq!((tasks_of_drained("desk").await, tasks_of_drained("primes").await), (json!(1), json!(1)));
    host.kill().await;

    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    assert_eq!(client.about("tasks/get", &computing).await.expect("it is there")["status"], "working");
    assert_eq!(tasks_of_drained("primes").await, 1, "it runs again, on the version that it was created with");
    client.about("tasks/cancel", &computing).await.expect("it is cancelled");
    assert!(book(&modern, &queued).await.contains(SEATS.0), "the version that it was created with");
    let fresh = client.task("book_trip", json!({})).await;
    assert!(book(&modern, &fresh).await.contains(SEATS.1));
    until("the old versions to retire", async || {
        for name in ["desk", "primes"] {
            let versions = command::json(&["plugin", "versions", name], &setup.data()).await;
            versions["versions"].as_array()?.iter().find(|line| line["state"] == "retired")?;
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn list_change_is_notified_only_when_the_list_differs() {
    let setup = Setup::with(&["text"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    client.call("tools/list", json!({})).await.expect("a list");
    let mut stream = client.listen().await;
    let modern = Modern::plain(&host, None);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = modern.send("subscriptions/listen", filter).await;
    listening.next().await.expect("an acknowledgement");
    add(&setup, "text", &second_text(&setup)).await;
    let described = variant("text", "Returns the text as it is.", "Returns the text and more.");
    let described = file(&setup, "described", &described);
    command::json(&["plugin", "add", &described, "--name", "text", "--accept"], &setup.data()).await;
    let heard = stream.next().await.expect("a notification");
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    let heard = listening.next().await.expect("a notification");
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    // The first switch changed no list, and the second one is said once.
    for stream in [&mut stream, &mut listening] {
        assert!(tokio::time::timeout(Duration::from_millis(400), stream.next()).await.is_err(), "nothing more");
    }
}

#[tokio::test]
async fn plugin_list_change_is_notified_in_both_eras() {
    let setup = Setup::new();
    let lists = setup.path("lists");
    std::fs::create_dir(&lists).expect("a folder");
    let grant = format!("[plugin.grants]\ndirectories = [{{ host = {lists:?}, guest = \"/lists\", write = false }}]");
    let host = setup.plugin("probe", &grant).start().await;
    let client = Client::connect(&host).await;
    let modern = Modern::plain(&host, None);
    let mut stream = client.listen().await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = modern.send("subscriptions/listen", filter).await;
    listening.next().await.expect("an acknowledgement");
    let names = |listed: Value| -> Vec<String> {
        let tools = listed["tools"].as_array().expect("a list").iter();
        tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    let change = async || client.call("tools/call", json!({"name": "change_tools", "arguments": {}})).await;
    // Who only says so changes nothing, and nobody hears of it.
    change().await.expect("a result");
    for stream in [&mut stream, &mut listening] {
        assert!(tokio::time::timeout(Duration::from_millis(700), stream.next()).await.is_err(), "nothing");
    }
    for there in [true, false] {
        if there {
            std::fs::write(lists.join("tool"), "extra\nComes and goes.").expect("a file");
        } else {
            std::fs::remove_file(lists.join("tool")).expect("it was there");
        }
        change().await.expect("a result");
        for stream in [&mut stream, &mut listening] {
            let heard = stream.next().await.expect("a notification");
            assert_eq!(heard["method"], "notifications/tools/list_changed");
        }
        let legacy = names(client.call("tools/list", json!({})).await.expect("a list"));
        let now = names(modern.result("tools/list", json!({})).await);
        assert_eq!((legacy.contains(&"extra".to_owned()), now.contains(&"extra".to_owned())), (there, there));
        if there {
            let called = json!({"name": "extra", "arguments": {}});
            assert_eq!(
                client.call("tools/call", called.clone()).await.expect("a result")["content"][0]["text"],
                "changing"
            );
            assert_eq!(modern.result("tools/call", called).await["content"][0]["text"], "changing");
        }
    }
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_switch_leaves_one_version() {
    let setup = Setup::with(&["text"]).own_code();
    let host = setup.start().await;
    let data = setup.data();
    add(&setup, "text", &second_text(&setup)).await;
    let line = listed(&setup, "text").await;
    let digest = |value: &Value| value.as_str().expect("never none").to_owned();
    let [second, first] = [digest(&line["active"]), digest(&line["previous"])];
    host.terminate().await;
    let mut switched = 0;
    let mut kept = 0;
    let mut active = second.clone();
    for round in 0..rounds(12, 200) {
        let host = setup.start().await;
        // In turns: a version that is ready, and one that has to be taken in, compiled and checked first.
        let is_new = round % 2 == 1;
        let text = format!("The texts are the {round:04}.");
        let arguments = if is_new {
            vec!["add".to_owned(), file(&setup, "new", &variant("text", FIRST, &text)), "--name".into(), "text".into()]
        } else {
            vec!["activate".to_owned(), format!("text@{}", if active == second { &first } else { &second })]
        };
        let command_data = data.clone();
        let switch = tokio::spawn(async move {
            let mut all = vec!["plugin"];
            all.extend(arguments.iter().map(String::as_str));
            all.extend(["--json", "--data"]);
            command::output(&mut command::bulkhead(), &all, Some(&command_data)).await.status.success()
        });
        // Somewhere in the milliseconds that the command takes, or in the time that the compiler takes.
        let (step, span) = if is_new { (97, 1_500) } else { (7, 40) };
        tokio::time::sleep(Duration::from_millis(u64::from(round * step % span))).await;
        host.kill().await;
        let acknowledged = switch.await.expect("the command ends");
        let host = setup.start().await;
        let line = listed(&setup, "text").await;
        assert_eq!(line["state"], "active", "{line}");
        let now = digest(&line["active"]);
        assert!(!acknowledged || now != active, "what was acknowledged is there");
        let said = said(&Client::connect(&host).await).await;
        if now == active {
            kept += 1;
        } else {
            switched += 1;
            assert!(!is_new || said == text, "the new version says {said:?}");
        }
        if [&first, &second].contains(&&now) {
            assert_eq!(said, if now == first { FIRST } else { SECOND }, "what is listed is what runs");
        }
        assert_eq!(command::json(&["plugin", "verify"], &data).await["sound"], true, "whatever is known is there");
        active = now;
        host.terminate().await;
    }
    println!("{switched} switches were done, {kept} were not");
}

#[tokio::test]
async fn breaker_opens_only_for_the_requestor_causing_faults() {
    let setup = Setup::new().plugin("hostile", "quarantine_after = 3").plugin("text", "");
    let alice = setup.token("alice", "red").await;
    let bob = setup.token("bob", "blue").await;
    let host = setup.start().await;
    let alice = Client::connect_as(&host, Some(&alice), json!({})).await;
    let bob = Client::connect_as(&host, Some(&bob), json!({})).await;
    let works = json!({"path": "/etc/passwd"});
    for _ in 0..3 {
        assert_eq!(alice.tool("trap", json!({})).await.expect_err("it traps").code, 1001);
    }
    let refused = alice.tool("read_file", works.clone()).await.expect_err("it is kept away");
    assert_eq!((refused.code, &refused.data["plugin"]), (1005, &json!("hostile")), "{refused:?}");
    assert!(refused.data["retryAfterMs"].as_u64().is_some_and(|ms| ms <= 1_000), "{refused:?}");
    assert_eq!(alice.create("spin", json!({})).await.expect_err("tasks as well").code, 1005);
    bob.tool("read_file", works.clone()).await.expect("somebody else's faults are not his");
    assert_eq!(said(&alice).await, FIRST, "nor another plugin's");
    let line = listed(&setup, "hostile").await;
    assert_eq!((&line["state"], &line["health"]["requestors_kept_away"]), (&json!("quarantined"), &json!(1)));
    let faults = line["health"]["last_faults"].as_array().expect("a list");
    assert!(faults.len() == 3 && faults[0]["tool"] == "trap", "{line}");
    until("the back-off to be over", async || alice.tool("read_file", works.clone()).await.ok()).await;
    alice.tool("read_file", works).await.expect("one success is enough");
    assert_eq!(listed(&setup, "hostile").await["state"], "active");
}

#[tokio::test]
async fn draining_calls_end_by_configured_drain_policy() {
    let setup = Setup::new().plugin("desk", "drain_ms = 300\ndrain_then = \"cancel\"").plugin_as(
        "slow",
        "primes",
        "drain_ms = 300\ndrain_then = \"fail\"",
    );
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let waiting = client.task("wait", json!({"ms": 600_000})).await;
    let computing = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    add(&setup, "desk", &second_desk(&setup)).await;
    let another = variant("primes", "primes", "prim3s");
    let (code, done) = command::outcome(
        &["plugin", "add", &file(&setup, "slow-2", &another), "--name", "slow", "--accept"],
        &setup.data(),
    )
    .await;
    assert_eq!((code, &done["done"]), (Some(0), &json!(true)), "{done}");
    client.until_status(&waiting, "cancelled").await;
    let failed = client.until_status(&computing, "failed").await;
    assert!(failed["statusMessage"].as_str().is_some_and(|said| said.contains("withdrawn")), "{failed}");
    // Who goes back gets versions that work, also for calls that take a while.
    command::json(&["plugin", "rollback", "desk", "slow"], &setup.data()).await;
    let waiting = client.task("wait", json!({"ms": 1_500})).await;
    let computing = client.task("count_primes", json!({"below": 2_000_000})).await;
    client.until_status(&waiting, "completed").await;
    client.until_status(&computing, "completed").await;
}

#[tokio::test]
async fn plugin_is_added_and_removed_without_host_too() {
    let setup = Setup::new();
    let data = setup.data();
    let text_1 = tests::place::component("text").display().to_string();
    let added = command::json(&["plugin", "add", &text_1], &data).await;
    assert_eq!((&added["done"], &added["plugins"][0]["name"]), (&json!(true), &json!("text")), "no host runs: {added}");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(said(&client).await, FIRST);
    let staged = command::json(&["plugin", "stage", &second_text(&setup), "--name", "text"], &data).await;
    assert_eq!((&staged["state"], &staged["held"]), (&json!("checked"), &json!([])), "{staged}");
    assert_eq!(said(&client).await, FIRST, "staging changes nothing");
    let removed = command::json(&["plugin", "remove", "text"], &data).await;
    assert_eq!(removed["done"], true);
    assert_eq!(client.tool("diff", json!({})).await.expect_err("it is gone").code, -32602);
    assert_eq!(listed(&setup, "text").await["state"], "removed");
    host.kill().await;
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(client.tool("diff", json!({})).await.expect_err("it stays gone").code, -32602);
    command::json(&["plugin", "activate", "text"], &data).await;
    assert_eq!(said(&client).await, SECOND, "what was staged last");
    let first = listed(&setup, "text").await["previous"].as_str().expect("a digest").to_owned();
    until("the first version to retire", async || {
        let output = command::outcome(&["plugin", "versions", "text"], &data).await.1;
        output["versions"]
            .as_array()?
            .iter()
            .any(|line| line["version"] == first.as_str() && line["state"] == "retired")
            .then_some(())
    })
    .await;
    let gone = command::json(&["plugin", "remove", "text", "--version", &first[..12]], &data).await;
    assert_eq!(gone["removed"], first.as_str());
    assert!(!data.join("components").join(format!("{first}.wasm")).exists());
    for wrong in [
        &["plugin", "versions", "nobody"][..],
        &["plugin", "activate", "nobody"],
        &["plugin", "activate", "text@ffff"],
        &["plugin", "activate", "text"],
        &["plugin", "rollback", "text"],
        &["plugin", "remove", "text", "--version", "ffff"],
        &["plugin", "add", "/no/such/file.wasm"],
    ] {
        let mut all = wrong.to_vec();
        all.push("--data");
        let output = command::output(&mut command::bulkhead(), &all, Some(&data)).await;
        assert!(!output.status.success() && !output.stderr.is_empty(), "{wrong:?}");
    }
    assert_eq!(said(&client).await, SECOND);
}

#[tokio::test]
async fn pinned_plugin_follows_its_file() {
    let setup = Setup::with(&["text"]);
    let host = setup.start().await;
    add(&setup, "text", &second_text(&setup)).await;
    host.terminate().await;
    let pinned = setup.clone().argument("--plugin").argument(tests::place::component("text").display().to_string());
    let host = pinned.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(said(&client).await, FIRST);
    assert_eq!(listed(&setup, "text").await["state"], "pinned");
    let refused = ["plugin", "rollback", "text", "--data"];
    let output = command::output(&mut command::bulkhead(), &refused, Some(&setup.data())).await;
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("pinned"));
    host.terminate().await;
    let host = setup.start().await;
    assert_eq!(said(&Client::connect(&host).await).await, SECOND, "the store remembers what it knew");
}

#[tokio::test]
async fn plugin_verify_finds_a_changed_component() {
    let setup = Setup::with(&["text"]);
    let _host = setup.start().await;
    let active = listed(&setup, "text").await["active"].as_str().expect("a digest").to_owned();
    let kept = setup.data().join("components").join(format!("{active}.wasm"));
    let mut bytes = std::fs::read(&kept).expect("it is kept");
    bytes[1_000] ^= 1;
    std::fs::write(&kept, bytes).expect("it is changed");
    let (code, found) = command::outcome(&["plugin", "verify"], &setup.data()).await;
    assert_eq!((code, &found["sound"]), (Some(1), &json!(false)));
    assert!(found["problems"][0]["problem"].as_str().is_some_and(|said| said.contains("has been changed")), "{found}");
}
