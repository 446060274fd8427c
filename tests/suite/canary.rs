//! A version that a part of the requestors gets: who sees what, who hears of it, and what survives.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::modern::Modern;
use tests::place::{self, rounds, variant};
use tests::stream::Incoming;
use tests::wait::until;
use tests::{Host, Setup, command};

/// What the first version of `diff` says about equal texts, and the second one.
pub(super) const FIRST: &str = "The texts are the same.";
pub(super) const SECOND: &str = "The texts are the SAME.";

/// A component in a file beside the data directory, staged as a version of a plugin.
pub(super) async fn stage(setup: &Setup, name: &str, bytes: &[u8]) -> Value {
    let path = setup.path(&format!("{name}-2.wasm"));
    std::fs::write(&path, bytes).expect("the component is written");
    let staged = command::json(&["plugin", "stage", &path.display().to_string(), "--name", name], &setup.data()).await;
    assert_eq!(staged["done"], true, "{staged}");
    staged
}

/// A component with several texts in it replaced by others of the same length.
fn patched(name: &str, texts: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = std::fs::read(place::component(name)).expect("the component can be read");
    for (from, to) in texts {
        assert_eq!(from.len(), to.len(), "the rest of the component must not move");
        let places: Vec<_> =
            (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
        assert!(!places.is_empty(), "{name} holds no {from:?}");
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    bytes
}

pub(super) async fn run(setup: &Setup, arguments: &[&str]) -> Value {
    let mut all = vec!["plugin"];
    all.extend(arguments);
    let done = command::json(&all, &setup.data()).await;
    assert_eq!(done["done"], true, "{arguments:?}: {done}");
    done
}

/// What a command is refused with that makes no sense.
async fn refusal(setup: &Setup, arguments: &[&str]) -> String {
    let mut all = vec!["plugin"];
    all.extend(arguments);
    all.push("--data");
    let output = command::output(&mut command::bulkhead(), &all, Some(&setup.data())).await;
    assert!(!output.status.success(), "{arguments:?} was done");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The line of a plugin in `plugin list`.
pub(super) async fn listed(setup: &Setup, name: &str) -> Value {
    let list = command::json(&["plugin", "list"], &setup.data()).await;
    let line = list["plugins"].as_array().expect("a list").iter().find(|line| line["name"] == name).cloned();
    line.unwrap_or_else(|| panic!("{name} is not in {list}"))
}

pub(super) async fn said(client: &Client) -> String {
    let same = json!({"before": "a", "after": "a"});
    text(&client.tool("diff", same).await.expect("it is called")).to_owned()
}

async fn silent(stream: &mut Incoming) -> bool {
    tokio::time::timeout(Duration::from_millis(400), stream.next()).await.is_err()
}

/// What one version of `conformance` says everywhere, and what the other one says.
const TEXTS: [(&str, &str); 8] = [
    ("Returns one text.", "Returns ONE text."),
    ("A simple prompt without arguments", "A simple PROMPT without arguments"),
    ("A static text resource for testing", "A STATIC text resource for testing"),
    ("A resource template with parameter substitution", "A RESOURCE template with parameter substitution"),
    ("paris", "parse"),
    ("This is the content of the static text resource.", "This is the CONTENT of the static text resource."),
    ("This is a simple prompt for testing.", "This is a simple PROMPT for testing."),
    ("This is a simple text response for testing.", "This is a simple TEXT response for testing."),
];

/// Everything that a requestor can see of the plugin, as one text for each place, in the order of [`TEXTS`].
async fn everything(client: &Client, modern: &Modern) -> [Vec<String>; 2] {
    let requests = [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
                "argument": {"name": "arg1", "value": "par"}}),
        ),
        ("resources/read", json!({"uri": "test://static-text"})),
        ("prompts/get", json!({"name": "test_simple_prompt"})),
        ("tools/call", json!({"name": "test_simple_text", "arguments": {}})),
    ];
    let mut legacy = Vec::new();
    let mut now = Vec::new();
    for (method, params) in requests {
        legacy.push(client.call(method, params.clone()).await.expect("an answer").to_string());
        now.push(modern.result(method, params).await.to_string());
    }
    [legacy, now]
}

fn all_of(seen: &[Vec<String>; 2], second: bool) {
    for seen in seen {
        for (said, (one, other)) in seen.iter().zip(TEXTS) {
            let (there, absent) = if second { (other, one) } else { (one, other) };
            assert!(said.contains(there) && !said.contains(absent), "not {there:?}: {said}");
        }
    }
}

#[tokio::test]
async fn canary_tenant_gets_its_version_everywhere() {
    let setup = Setup::with(&["conformance"]);
    let alice = setup.token("alice", "red").await;
    let bob = setup.token("bob", "blue").await;
    let host = setup.start().await;
    let connect = async |host: &Host, token: &str| {
        (Client::connect_as(host, Some(token), all_capabilities()).await, Modern::plain(host, Some(token)))
    };
    let (alice_legacy, alice_modern) = connect(&host, &alice).await;
    let (bob_legacy, bob_modern) = connect(&host, &bob).await;
    let filter = json!({"notifications":
        {"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true}});
    let mut streams = Vec::new();
    for (legacy, modern) in [(&alice_legacy, &alice_modern), (&bob_legacy, &bob_modern)] {
        let seen = everything(legacy, modern).await;
        all_of(&seen, false);
        let mut listening = modern.send("subscriptions/listen", filter.clone()).await;
        listening.next().await.expect("an acknowledgement");
        streams.push([legacy.listen().await, listening]);
    }
    let [alice_streams, bob_streams] = &mut streams[..] else { panic!("two of them") };
    let shared = alice_modern.result("tools/list", json!({})).await;
    assert_eq!(shared["cacheScope"], "public");

    stage(&setup, "conformance", &patched("conformance", &TEXTS)).await;
    // What was accepted does not change for a part of the requestors either.
    let (code, held) =
        command::outcome(&["plugin", "activate", "conformance", "--tenant", "blue"], &setup.data()).await;
    assert_eq!((code, &held["done"]), (Some(4), &json!(false)), "{held}");
    let begun = run(&setup, &["activate", "conformance", "--tenant", "blue", "--accept"]).await;
    assert_eq!(begun["plugins"][0]["turn"], "canary_begun");
    // Before anybody asks: who has seen the new list already is not told of it.
    let mut told = BTreeSet::new();
    for stream in bob_streams.iter_mut() {
        for _ in 0..3 {
            told.insert(stream.next().await.expect("a notification")["method"].as_str().expect("a name").to_owned());
        }
        assert!(silent(stream).await, "each list once");
    }
    let lists = ["prompts", "resources", "tools"].map(|list| format!("notifications/{list}/list_changed"));
    assert_eq!(told.into_iter().collect::<Vec<_>>(), lists);
    for stream in alice_streams.iter_mut() {
        assert!(silent(stream).await, "nothing changed for alice");
    }
    drop(streams);
    all_of(&everything(&alice_legacy, &alice_modern).await, false);
    all_of(&everything(&bob_legacy, &bob_modern).await, true);
    for method in ["tools/list", "prompts/list", "resources/templates/list", "server/discover"] {
        let kept = alice_modern.result(method, json!({})).await["cacheScope"].clone();
        assert_eq!(kept, "private", "{method}: another one may have another answer");
    }

    // The routing, and what was accepted for it, are in the store.
    let canary = listed(&setup, "conformance").await["canary"].clone();
    assert_eq!((&canary["tenants"], &canary["percent"]), (&json!(["blue"]), &json!(0.0)), "{canary}");
    host.kill().await;
    let host = setup.start().await;
    let (alice_legacy, alice_modern) = connect(&host, &alice).await;
    let (bob_legacy, bob_modern) = connect(&host, &bob).await;
    all_of(&everything(&alice_legacy, &alice_modern).await, false);
    all_of(&everything(&bob_legacy, &bob_modern).await, true);
    assert_eq!(command::json(&["plugin", "verify"], &setup.data()).await["sound"], true);
    let mut stream = bob_legacy.listen().await;
    let back = run(&setup, &["rollback", "conformance"]).await;
    assert_eq!(back["plugins"][0]["turn"], "canary_ended");
    assert!(stream.next().await.expect("a notification")["method"].as_str().is_some());
    all_of(&everything(&alice_legacy, &alice_modern).await, false);
    all_of(&everything(&bob_legacy, &bob_modern).await, false);
    assert_eq!(alice_modern.result("tools/list", json!({})).await["cacheScope"], "public");

    // A new one needs the operator's word again; promoting one does not.
    let version = canary["version"].as_str().expect("a digest");
    let name = format!("conformance@{}", &version[..12]);
    let (code, _) = command::outcome(&["plugin", "activate", &name, "--canary", "1%"], &setup.data()).await;
    assert_eq!(code, Some(4));
    run(&setup, &["activate", &name, "--tenant", "blue", "--accept"]).await;
    let promoted = run(&setup, &["promote", "conformance"]).await;
    assert_eq!((&promoted["plugins"][0]["turn"], &promoted["plugins"][0]["to"]), (&json!("promoted"), &json!(version)));
    all_of(&everything(&alice_legacy, &alice_modern).await, true);
    all_of(&everything(&bob_legacy, &bob_modern).await, true);
    host.kill().await;
    let host = setup.start().await;
    let (alice_legacy, alice_modern) = connect(&host, &alice).await;
    all_of(&everything(&alice_legacy, &alice_modern).await, true);
    assert_eq!(listed(&setup, "conformance").await["canary"], Value::Null);
}

#[tokio::test]
async fn larger_canary_share_keeps_included_requestors() {
    const REQUESTORS: usize = 24;
    let setup = Setup::with(&["text"]);
    let mut tokens = Vec::new();
    for number in 0..REQUESTORS {
        tokens.push(setup.token(&format!("r{number}"), "red").await);
    }
    let mut host = setup.start().await;
    stage(&setup, "text", &variant("text", FIRST, SECOND)).await;
    let who = async |host: &Host| {
        let mut chosen = BTreeSet::new();
        for (number, token) in tokens.iter().enumerate() {
            let modern = Modern::plain(host, Some(token));
            let first = modern.tool("diff", json!({"before": "a", "after": "a"})).await;
            let legacy = Client::connect_as(host, Some(token), json!({})).await;
            assert_eq!(said(&legacy).await, text(&first), "the same in both eras");
            if text(&first) == SECOND {
                chosen.insert(number);
            }
        }
        chosen
    };
    assert_eq!(who(&host).await.len(), 0);
    let mut before = BTreeSet::new();
    for share in ["25%", "50", "75.5%"] {
        run(&setup, &["activate", "text", "--canary", share]).await;
        let now = who(&host).await;
        assert!(before.is_subset(&now), "{share}: {before:?} became {now:?}");
        before = now;
    }
    assert!((8..REQUESTORS).contains(&before.len()), "{before:?}");
    host.kill().await;
    host = setup.start().await;
    assert_eq!(who(&host).await, before, "the same ones after a restart");
    run(&setup, &["activate", "text", "--canary", "100%"]).await;
    assert_eq!(who(&host).await.len(), REQUESTORS);
    run(&setup, &["rollback", "text"]).await;
    assert_eq!(who(&host).await.len(), 0);
    let plain =
        command::run(&mut command::bulkhead(), &["plugin", "versions", "text", "--data"], Some(&setup.data())).await;
    assert!(plain.contains("active"), "{plain}");
}

#[tokio::test]
async fn invalid_canary_commands_are_refused_with_advice() {
    let setup = Setup::with(&["text", "desk"]);
    let host = setup.start().await;
    let staged = stage(&setup, "text", &variant("text", FIRST, SECOND)).await;
    let active = listed(&setup, "text").await["active"].as_str().expect("a digest").to_owned();
    let of_active = format!("text@{active}");
    for (arguments, why) in [
        (&["activate", "text", "desk", "--canary", "10%"][..], "a canary is of one plugin"),
        (&["activate", "text", "--canary", "0%"], "above 0"),
        (&["activate", "text", "--canary", "101%"], "up to 100"),
        (&["activate", "text", "--canary", "ten"], "per cent"),
        (&["activate", "text", "--max-fault-percent", "1"], "--canary"),
        (&["activate", "text", "--canary", "1%", "--max-latency-ratio", "0.5"], "at least 1"),
        (&["activate", "text", "--canary", "1%", "--max-fault-percent", "101"], "0 to 100"),
        (&["activate", "text", "--canary", "1%", "--tenant", "a b"], "tenant"),
        (&["activate", &of_active, "--canary", "1%"], "everybody has this version"),
        (&["activate", "nobody", "--canary", "1%"], "no plugin"),
        (&["promote", "text"], "no canary to promote"),
    ] {
        let said = refusal(&setup, arguments).await;
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    run(&setup, &["activate", "text", "--canary", "10%"]).await;
    let canary = staged["version"].as_str().expect("a digest");
    let desk = format!("desk@{}", listed(&setup, "desk").await["active"].as_str().expect("a digest"));
    for arguments in [
        &["activate", &of_active][..],
        &["activate", &desk, &of_active],
        &["remove", "text"],
        &["activate", &of_active, "--canary", "1%"],
    ] {
        let said = refusal(&setup, arguments).await;
        assert!(said.contains("has the canary") && said.contains("plugin promote text"), "{arguments:?}: {said}");
    }
    let refused = refusal(&setup, &["remove", "text", "--version", canary]).await;
    assert!(refused.contains("is active"), "{refused}");
    // Names that clash do so for the few as for all.
    let bytes = std::fs::read(place::component("desk")).expect("the component can be read");
    stage(&setup, "text", &bytes).await;
    run(&setup, &["rollback", "text"]).await;
    let arguments = ["plugin", "activate", "text", "--canary", "1%", "--accept"];
    let (code, refused) = command::outcome(&arguments, &setup.data()).await;
    assert_eq!(code, Some(4));
    assert!(refused["refused"][0]["problems"].to_string().contains("of plugin"), "{refused}");
    assert_eq!(said(&Client::connect(&host).await).await, FIRST);
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
        let key = answers.as_object().and_then(|answers| answers.keys().next().cloned()).expect("a key");
        until("the question", async || {
            let now = client.result("tasks/get", json!({"taskId": task})).await;
            now["inputRequests"].get(&key).is_some().then_some(())
        })
        .await;
        client.result("tasks/update", json!({"taskId": task, "inputResponses": answers})).await;
    }
    let done = client.until_status(task, "completed").await;
    done["result"]["structuredContent"]["summary"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn canary_task_stays_on_its_version_after_rollback() {
    let setup = Setup::with(&["desk"]);
    let token = setup.token("bob", "blue").await;
    let host = setup.start().await;
    stage(&setup, "desk", &variant("desk", " seats to ", " chairs to")).await;
    run(&setup, &["activate", "desk", "--tenant", "blue"]).await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let modern = Modern::full(&host, Some(&token));
    let plain = Modern::plain(&host, Some(&token));
    let task = client.task("book_trip", json!({})).await;
    modern.until_status(&task, "input_required").await;
    let parked = plain.tool("book_trip", json!({})).await;
    run(&setup, &["rollback", "desk"]).await;
    let fresh = client.task("book_trip", json!({})).await;
    assert!(book(&modern, &fresh).await.contains(" seats to "), "new calls are on the active version");
    host.kill().await;
    let host = setup.start().await;
    let modern = Modern::full(&host, Some(&token));
    let plain = Modern::plain(&host, Some(&token));
    // What its client holds, and what asked when its host died, both go on with the version that began them.
    let retry = |asked: &Value, answers: Value| json!({"name": "book_trip", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
    let second = plain.result("tools/call", retry(&parked, journey())).await;
    let done = plain.result("tools/call", retry(&second, details())).await;
    assert!(done["structuredContent"]["summary"].to_string().contains(" chairs to"), "{done}");
    assert!(book(&modern, &task).await.contains(" chairs to"), "a half-run task stays on its version");
    until("the canary to retire", async || {
        let shown = command::json(&["plugin", "versions", "desk"], &setup.data()).await;
        shown["versions"].as_array()?.iter().any(|line| line["state"] == "retired").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_promotion_leaves_one_truth() {
    let setup = Setup::with(&["text"]);
    let alice = setup.token("alice", "red").await;
    let bob = setup.token("bob", "blue").await;
    let host = setup.start().await;
    stage(&setup, "text", &variant("text", FIRST, SECOND)).await;
    let first = listed(&setup, "text").await["active"].clone();
    host.terminate().await;
    let mut promoted = 0;
    let mut kept = 0;
    for round in 0..rounds(6, 100) {
        let host = setup.start().await;
        let line = listed(&setup, "text").await;
        if line["canary"].is_null() {
            if line["active"] != first {
                run(&setup, &["rollback", "text"]).await;
            }
            let version = if round == 0 { "text".to_owned() } else { format!("text@{}", second(&setup, &first).await) };
            run(&setup, &["activate", &version, "--tenant", "blue"]).await;
        }
        let data = setup.data();
        let promotion = tokio::spawn(async move {
            let all = ["plugin", "promote", "text", "--json", "--data"];
            command::output(&mut command::bulkhead(), &all, Some(&data)).await.status.success()
        });
        tokio::time::sleep(Duration::from_millis(u64::from(round * 7 % 40))).await;
        host.kill().await;
        let acknowledged = promotion.await.expect("the command ends");
        let host = setup.start().await;
        let line = listed(&setup, "text").await;
        let is_promoted = line["canary"].is_null();
        assert_eq!(is_promoted, line["active"] != first, "never both, never none: {line}");
        assert!(is_promoted || !acknowledged, "what was acknowledged is there");
        let alice = Client::connect_as(&host, Some(&alice), json!({})).await;
        let bob = Client::connect_as(&host, Some(&bob), json!({})).await;
        assert_eq!(said(&alice).await, if is_promoted { SECOND } else { FIRST }, "what is listed is what runs");
        assert_eq!(said(&bob).await, SECOND);
        if is_promoted {
            promoted += 1
        } else {
            kept += 1
        }
        host.terminate().await;
    }
    println!("{promoted} promotions were done, {kept} were not");
}

/// The version that is not the first one.
async fn second(setup: &Setup, first: &Value) -> String {
    let shown = command::json(&["plugin", "versions", "text"], &setup.data()).await;
    let versions = shown["versions"].as_array().expect("a list").iter();
    let other = versions.map(|line| &line["version"]).find(|version| *version != first).expect("two of them");
    other.as_str().expect("a digest").to_owned()
}
