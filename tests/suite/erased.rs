//! What is left on the disk: nothing that can be read without the operator's key, and nothing of a tenant that was
//! erased.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::modern::Modern;
use tests::place::variant;
use tests::wait::until;
use tests::{Host, Setup, command, store_engine};

use crate::canary::{FIRST, SECOND, listed, run, stage};

/// In arguments, questions, answers, steering, results and aliases.
const WORD: &str = "zebra-crossing";
/// In names of tenants and requestors.
const NAME: &str = "okapi";
/// In the names that clients give their tasks.
const ALIAS: &str = "quokka";

/// The files below a folder that hold the bytes, but for those below a folder of this name. What is linked lies
/// elsewhere.
fn holding(folder: &Path, bytes: &str, not_in: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        if entry.file_type().expect("a type").is_dir() {
            if path.file_name().is_none_or(|name| name != not_in) {
                found.extend(holding(&path, bytes, not_in));
            }
        } else if let Ok(read) = std::fs::read(&path)
            && read.windows(bytes.len()).any(|window| window == bytes.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A tenant's tasks with the word in everything that can hold it; the ids of the one that has ended and of one that has
/// not.
async fn fill(host: &Host, token: Option<&str>) -> (String, String) {
    let client = Modern::full(host, token);
    let trip = client.with_meta("dev.bulkhead/idempotencyKey", json!(ALIAS)).task("book_trip", json!({})).await;
    let journey = json!({"action": "accept", "content": {"destination": WORD, "travellers": 2}});
    let details = json!({"action": "accept", "content": {"class": "economy", "confirm": true}});
    for (key, answer) in [("journey", journey), ("details", details)] {
        until("the question", async || {
            let now = client.result("tasks/get", json!({"taskId": trip})).await;
            now["inputRequests"].get(key).is_some().then_some(())
        })
        .await;
        client.result("tasks/update", json!({"taskId": trip, "inputResponses": {key: answer}})).await;
    }
    let done = client.until_status(&trip, "completed").await;
    assert!(done["result"].to_string().contains(WORD), "{done}");
    let waiting = client.task("wait", json!({"ms": 3_600_000})).await;
    client.result("tasks/steer", json!({"taskId": waiting, "message": WORD})).await;
    let legacy = Client::connect_as(host, token, all_capabilities()).await;
    legacy.task("ask_url", json!({"url": format!("https://example.org/{WORD}")})).await;
    let named = json!({"modelcontextprotocol.io/task": {"taskId": ALIAS}});
    let call = json!({"name": "count_primes", "arguments": {"below": 10}, "_meta": named});
    legacy.call("tools/call", call).await.expect("a task of its own name");
    for (key, repeats) in [("small", 1), ("large", 1_000)] {
        let keep = json!({"what": "set", "key": key, "value": WORD.repeat(repeats)});
        assert_eq!(text(&legacy.tool("keep", keep).await.expect("a result")), "kept");
    }
    (trip, waiting)
}

/// What a plugin keeps, as it shows it.
async fn kept(host: &Host, token: Option<&str>) -> String {
    let client = Client::connect_as(host, token, all_capabilities()).await;
    text(&client.tool("keep", json!({"what": "get", "key": "small"})).await.expect("a result")).to_owned()
}

fn plugins() -> Setup {
    Setup::with(&["desk", "primes"]).plugin("probe", "[plugin.kv]\n")
}

#[tokio::test]
async fn encrypted_store_hides_data_from_disk_thief() {
    let setup = plugins().own_code().config("[encryption]\nkey_env = \"BULKHEAD_STORE_KEY\"\n");
    let old = "3a".repeat(32);
    let new = "4b".repeat(32);
    let with = |keys: &str| setup.clone().env("BULKHEAD_STORE_KEY", keys);
    let host = with(&old).start().await;
    let (trip, waiting) = fill(&host, None).await;
    host.kill().await;
    assert_eq!(holding(&setup.data(), WORD, ""), [] as [String; 0]);

    for (keys, said) in [("", "BULKHEAD_STORE_KEY"), (new.as_str(), "not among the keys")] {
        let (_, complaint) = with(keys).refused().await;
        assert!(complaint.contains(said) && !complaint.contains("4b4b"), "{complaint}");
    }
    let host = with(&format!("{new} {old}")).start().await;
    let client = Modern::full(&host, None);
    assert!(client.result("tasks/get", json!({"taskId": trip})).await.to_string().contains(WORD));
    assert!(kept(&host, None).await.ends_with(WORD));
    let rekeyed = command::json(&["store", "rekey"], &setup.data()).await;
    assert_eq!((&rekeyed["tenants"], &rekeyed["sealed_again"]), (&json!(1), &json!(1)), "{rekeyed}");
    host.terminate().await;
    let host = with(&new).start().await;
    let client = Modern::full(&host, None);
    assert!(client.result("tasks/get", json!({"taskId": trip})).await.to_string().contains(WORD));
    assert!(kept(&host, None).await.ends_with(WORD));
    client.call("tasks/get", json!({"taskId": waiting})).await.expect("it is there");
}

#[tokio::test]
async fn tenant_purge_leaves_no_bytes_behind() {
    if store_engine::is_left_out("the bytes are looked for on the host's disk") {
        return;
    }
    let setup = plugins().own_code().config("[audit]\nenabled = true\n[call]\npromote_after_ms = 0\n");
    let alice = setup.token(&format!("{NAME}-alice"), NAME).await;
    let bob = setup.token("bob", "globex").await;
    let host = setup.start().await;
    fill(&host, Some(&alice)).await;
    let other = Modern::full(&host, Some(&bob));
    let done = other.task("wait", json!({"ms": 1})).await;
    other.until_status(&done, "completed").await;
    command::json(&["store", "rebuild"], &setup.data()).await;
    for word in [WORD, NAME, ALIAS] {
        assert!(!holding(&setup.data(), word, "audit").is_empty(), "the search itself works: {word}");
    }

    let hesitant = ["tenant", "purge", NAME, "--data"];
    let output = command::output(&mut command::bulkhead(), &hesitant, Some(&setup.data())).await;
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("--yes"), "{output:?}");
    let listed = command::json(&["tenant", "list"], &setup.data()).await;
    let own = listed["tenants"].as_array().expect("a list").iter().find(|tenant| tenant["name"] == NAME);
    assert_eq!(own.expect("it is there")["tasks"], json!(4), "{listed}");

    let purged = command::json(&["tenant", "purge", NAME, "--yes"], &setup.data()).await;
    assert_eq!((&purged["tasks"], &purged["tokens"], &purged["principals"]), (&json!(4), &json!(1), &json!(1)));
    assert_eq!(purged["old_stores"].as_u64(), Some(2), "{purged}");
    for word in [WORD, NAME, ALIAS] {
        assert_eq!(holding(&setup.data(), word, "audit"), [] as [String; 0], "{word}");
    }
    assert_eq!(holding(&setup.data(), WORD, ""), [] as [String; 0], "not in the audit log either");
    assert!(!command::json(&["tenant", "list"], &setup.data()).await.to_string().contains(NAME));
    assert_eq!(holding(&setup.data().join("audit"), "tenant.purged", "").len(), 1);

    let gone = Modern::full(&host, Some(&alice)).request("tools/list", &json!({})).send().await.expect("an answer");
    assert_eq!(gone.status(), 401);
    assert_eq!(other.result("tasks/get", json!({"taskId": done})).await["status"], "completed");
    // Whoever comes under the old name is somebody else, and may work.
    let again = setup.token(&format!("{NAME}-alice"), NAME).await;
    assert_eq!(kept(&host, Some(&again)).await, "nothing");
    let client = Modern::full(&host, Some(&again));
    let task = client.task("wait", json!({"ms": 1})).await;
    client.until_status(&task, "completed").await;
    let (_, setup) = host.terminate().await;
    let report = command::json(&["store", "check"], &setup.data()).await;
    assert_eq!(report["sound"], true, "{report}");
    let (code, absent) = unpurgeable(&setup, "nobody").await;
    assert!(code == Some(1) && absent.contains("no tenant"), "{absent}");
}

async fn unpurgeable(setup: &Setup, name: &str) -> (Option<i32>, String) {
    let arguments = ["tenant", "purge", name, "--yes", "--data"];
    let output = command::output(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn tenant_purge_removes_it_from_canaries() {
    let setup = Setup::with(&["text", "desk"]);
    setup.token("bob", "globex").await;
    let host = setup.start().await;
    let text = stage(&setup, "text", &variant("text", FIRST, SECOND)).await;
    let desk = stage(&setup, "desk", &variant("desk", " seats to ", " chairs to")).await;
    let [text, desk] = [("text", text), ("desk", desk)]
        .map(|(name, staged)| format!("{name}@{}", staged["version"].as_str().expect("a digest")));
    let begin = async |tenant: &str| {
        run(&setup, &["activate", &text, "--canary", "10%", "--tenant", tenant, "--tenant", "globex"]).await;
        run(&setup, &["activate", &desk, "--tenant", tenant]).await;
    };
    let purge = async |tenant: &str| command::json(&["tenant", "purge", tenant, "--yes"], &setup.data()).await;
    let canaries =
        async || [listed(&setup, "text").await["canary"].clone(), listed(&setup, "desk").await["canary"].clone()];
    begin(NAME).await;
    assert_eq!(canaries().await[1]["tenants"], json!([NAME]));

    let purged = purge(NAME).await;
    assert_eq!(purged["canaries"], 2, "{purged}");
    assert_eq!(holding(&setup.data(), NAME, ""), [] as [String; 0]);
    let [kept, ended] = canaries().await;
    assert_eq!((&kept["percent"], &kept["tenants"]), (&json!(10.0), &json!(["globex"])), "{kept}");
    assert_eq!(ended, Value::Null, "it was for nobody else");

    // Without a host the same becomes of them.
    run(&setup, &["rollback", "text"]).await;
    begin(ALIAS).await;
    let (_, setup) = host.terminate().await;
    let purged = purge(ALIAS).await;
    assert_eq!(purged["canaries"], 2, "{purged}");
    assert_eq!(holding(&setup.data(), ALIAS, ""), [] as [String; 0]);
}

#[tokio::test]
async fn purged_tenant_name_is_blocked_until_restart() {
    let setup = Setup::with(&["text"]).config(&format!("[tenant.{NAME}.limits]\nsteer_queue = 1"));
    let alice = setup.token("alice", NAME).await;
    let bob = setup.token("bob", "globex").await;
    let host = setup.start().await;
    let status = async |host: &Host, token: &str| {
        let sent = Modern::full(host, Some(token)).request("tools/list", &json!({})).send().await;
        sent.expect("an answer").status().as_u16()
    };
    // Read before: it must not go by what is remembered of it.
    Modern::full(&host, Some(&alice)).result("tools/list", json!({})).await;
    command::json(&["tenant", "purge", NAME, "--yes"], &setup.data()).await;
    let create = async || {
        let arguments = ["token", "create", "--requestor", "eve", "--tenant", NAME, "--data"];
        let output = command::output(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (made, why) = create().await;
    assert!(!made && why.contains("was erased") && why.contains("restart"), "{why}");
    assert_eq!(status(&host, &alice).await, 401);
    Modern::full(&host, Some(&bob)).result("tools/list", json!({})).await;
    host.terminate().await;
    let host = setup.start().await;
    assert!(create().await.0, "another one, with the rules of the name");
    assert_eq!(status(&host, &alice).await, 401, "an old token is nobody's for good");
}

#[tokio::test]
async fn purging_the_last_token_does_not_open_the_host() {
    let setup = Setup::with(&["text"]);
    setup.token("alice", NAME).await;
    command::json(&["tenant", "purge", NAME, "--yes"], &setup.data()).await;
    let host = setup.start().await;
    let answer = Modern::full(&host, None).request("tools/list", &json!({})).send().await.expect("an answer");
    assert_eq!(answer.status(), 401);
}

#[tokio::test]
async fn killed_tenant_purge_is_repeated() {
    for delay_ms in [0, 40, 150] {
        let setup = plugins();
        let alice = setup.token(&format!("{NAME}-alice"), NAME).await;
        let host = setup.start().await;
        fill(&host, Some(&alice)).await;
        let arguments = ["tenant", "purge", NAME, "--yes", "--data"];
        let data = setup.data();
        let purging = tokio::spawn(async move {
            command::output(&mut command::bulkhead(), &arguments, Some(&data)).await.status.success()
        });
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        let setup = host.kill().await;
        // The command may be done, or have gone on by itself when it found no host.
        let done = purging.await.expect("a command");
        if !done {
            let (code, said) = unpurgeable(&setup, NAME).await;
            assert!(code == Some(0) || said.contains("no tenant"), "{said}");
        }
        for word in [WORD, NAME, ALIAS] {
            assert_eq!(holding(&setup.data(), word, ""), [] as [String; 0], "{word} after {delay_ms} ms");
        }
        assert!(!setup.data().join("erasing").exists());
    }
}

#[tokio::test]
async fn requestor_guessing_task_ids_is_blocked() {
    let limits = "[limits]\nfailed_lookups_per_minute = 5\n[audit]\nenabled = true\n[call]\npromote_after_ms = 0\n";
    let setup = Setup::with(&["desk"]).config(limits);
    let alice = setup.token("alice", "acme").await;
    let bob = setup.token("bob", "acme").await;
    let host = setup.start().await;
    let client = Modern::full(&host, Some(&alice));
    let own = client.task("wait", json!({"ms": 1})).await;
    client.until_status(&own, "completed").await;
    for number in 0..6 {
        let unknown = json!({"taskId": format!("{number:032x}")});
        assert_eq!(client.call("tasks/get", unknown).await.expect_err("nothing").code, -32602);
    }
    let ask = async |method: &str, id: &str| {
        let params = json!({"taskId": id});
        let request = client.request(method, &params);
        let message = client.message(&json!(1), method, params).to_string();
        let sent = request.body(message).send().await.expect("an answer");
        let status = sent.status().as_u16();
        let mut body: Value = sent.json().await.expect("JSON");
        assert!(body["error"]["data"]["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0), "{body}");
        body["error"]["data"]["retryAfterMs"] = json!(0);
        (status, body["error"].clone())
    };
    for method in ["tasks/get", "tasks/cancel"] {
        let mine = ask(method, &own).await;
        let nobodys = ask(method, &"0".repeat(32)).await;
        assert_eq!(mine, nobodys);
        assert_eq!((mine.0, &mine.1["code"]), (429, &json!(1010)), "{mine:?}");
    }
    let neighbour = Modern::full(&host, Some(&bob));
    assert_eq!(neighbour.call("tasks/get", json!({"taskId": own})).await.expect_err("not Bob's").code, -32602);
    // Work that is no look for a task goes on.
    client.result("tools/list", json!({})).await;
    let (_, setup) = host.terminate().await;
    let tail = ["audit", "tail", "-n", "1000", "--json", "--data"];
    let said = command::run(&mut command::bulkhead(), &tail, Some(&setup.data())).await;
    assert_eq!(said.matches("requestor.probing").count(), 1, "{said}");
}
