//! What plugins keep from call to call: whose it is, how much it may be, and what becomes of it.

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::wait::until;
use tests::{Setup, command, place, store_engine};

async fn keep(client: &Client, tool: &str, arguments: Value) -> String {
    text(&client.tool(tool, arguments).await.expect("a result")).to_owned()
}

async fn set(client: &Client, key: &str, value: &str) -> String {
    keep(client, "keep", json!({"what": "set", "key": key, "value": value})).await
}

async fn get(client: &Client, key: &str) -> String {
    keep(client, "keep", json!({"what": "get", "key": key})).await
}

#[tokio::test]
async fn keyvalue_key_survives_kill_rebuild_and_backup_isolated() {
    if store_engine::is_left_out("a database is copied and made anew by its own tools") {
        return;
    }
    let setup = Setup::new().plugin_as("first", "probe", "[plugin.kv]\n").plugin_as(
        "second",
        "probe",
        "prefix = \"second_\"\n[plugin.kv]\n",
    );
    let alice = setup.token("alice", "acme").await;
    let bob = setup.token("bob", "globex").await;
    let carol = setup.token("carol", "acme").await;
    let host = setup.start().await;
    let alice_there = Client::connect_as(&host, Some(&alice), all_capabilities()).await;
    let bob_there = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    assert_eq!(set(&alice_there, "k", "of acme").await, "kept");
    let second = keep(&alice_there, "second_keep", json!({"what": "get", "key": "k"})).await;
    assert_eq!((second.as_str(), get(&bob_there, "k").await.as_str()), ("nothing", "nothing"));
    assert_eq!(set(&bob_there, "k", "of globex").await, "kept");
    keep(&alice_there, "second_keep", json!({"what": "set", "key": "k", "value": "of the second"})).await;
    let large = json!({"what": "fill", "key": "large", "bytes": 60_000});
    assert_eq!(keep(&alice_there, "keep", large).await, "kept");
    // The last thing before the end: it was acknowledged.
    assert_eq!(set(&alice_there, "last", "word").await, "kept");

    let setup = host.kill().await;
    let backup = setup.path("copy");
    let data = setup.data();
    let to = backup.to_str().expect("UTF-8");
    command::run(&mut command::bulkhead(), &["store", "backup", to, "--data"], Some(&data)).await;
    command::run(&mut command::bulkhead(), &["store", "rebuild", "--data"], Some(&data)).await;
    let host = setup.start().await;
    let carol_there = Client::connect_as(&host, Some(&carol), all_capabilities()).await;
    let bob_there = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    assert_eq!(get(&carol_there, "k").await, "7 bytes: of acme");
    assert_eq!(get(&carol_there, "last").await, "4 bytes: word");
    assert!(get(&carol_there, "large").await.starts_with("60000 bytes: xxx"));
    assert_eq!(get(&bob_there, "k").await, "9 bytes: of globex");
    assert_eq!(keep(&carol_there, "second_keep", json!({"what": "keys", "key": ""})).await, "k");
    assert_eq!(keep(&carol_there, "keep", json!({"what": "keys", "key": ""})).await, "k large last");
    assert!(backup.join("store").is_dir());
}

#[tokio::test]
async fn keyvalue_entries_are_kept_across_plugin_versions() {
    let setup = Setup::with(&[]).plugin("probe", "accept_changes = \"any\"\n[plugin.kv]\n");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    set(&client, "k", "of the first").await;
    let other = setup.path("other.wasm");
    std::fs::write(&other, place::variant("probe", "Keeps and finds bytes.", "Keeps xor finds bytes."))
        .expect("a file");
    let arguments = ["plugin", "add", other.to_str().expect("UTF-8"), "--name", "probe", "--accept"];
    command::json(&arguments, &setup.data()).await;
    let tools = client.call("tools/list", json!({})).await.expect("a list");
    assert!(tools.to_string().contains("Keeps xor finds"), "the other version is active");
    assert_eq!(get(&client, "k").await, "12 bytes: of the first");
}

#[tokio::test]
async fn keyvalue_quota_is_a_guest_error_and_released() {
    let quota = "[plugin.kv]\nkeys_max = 3\nbytes_max = 9000\nvalue_bytes_max = 8000\n";
    let host = Setup::new().plugin("probe", quota).start().await;
    let client = Client::connect(&host).await;
    let fill = async |key: &str, bytes: usize| {
        keep(&client, "keep", json!({"what": "fill", "key": key, "bytes": bytes})).await
    };
    assert_eq!(fill("a", 8001).await, "TooLarge(\"the value has 8001 bytes; 8000 is the most\")");
    assert_eq!(fill("a", 8000).await, "kept");
    assert_eq!(fill("b", 1000).await, "Quota(\"plugin.kv.bytes_max is at its limit of 9000\")");
    assert_eq!((fill("b", 1).await, fill("c", 1).await), ("kept".to_owned(), "kept".to_owned()));
    assert_eq!(fill("d", 1).await, "Quota(\"plugin.kv.keys_max is at its limit of 3\")");
    keep(&client, "keep", json!({"what": "delete", "key": "a"})).await;
    assert_eq!(fill("d", 8000).await, "kept");
    let long = "k".repeat(257);
    for key in ["", long.as_str()] {
        assert!(get(&client, key).await.starts_with("Invalid("), "{} bytes", key.len());
    }
    let foreign = json!({"what": "page", "key": "a", "value": "b"});
    assert!(keep(&client, "keep", foreign).await.starts_with("Invalid("));
}

#[tokio::test]
async fn keyvalue_expired_key_is_gone_and_frees_quota() {
    let host = Setup::new().plugin("probe", "[plugin.kv]\nkeys_max = 1\n").start().await;
    let client = Client::connect(&host).await;
    let short = json!({"what": "set", "key": "k", "value": "v", "ttl_ms": 300});
    assert_eq!(keep(&client, "keep", short).await, "kept");
    until("it to expire", async || (get(&client, "k").await == "nothing").then_some(())).await;
    assert_eq!(keep(&client, "keep", json!({"what": "keys", "key": ""})).await, "");
    until("it to be swept", async || (set(&client, "other", "v").await == "kept").then_some(())).await;
    let never = json!({"what": "set", "key": "other", "value": "v", "ttl_ms": 0});
    assert!(keep(&client, "keep", never).await.starts_with("Invalid("));
}

#[tokio::test]
async fn keyvalue_without_grant_is_denied_by_name() {
    let host = Setup::with(&["probe"]).start().await;
    let client = Client::connect(&host).await;
    let denied = set(&client, "k", "v").await;
    assert!(denied.starts_with("Denied(") && denied.contains("[plugin.kv]"), "{denied}");
    until("the log to name it", async || host.log().contains("reached for what is not granted").then_some(())).await;
}

#[tokio::test]
async fn keyvalue_key_list_pages_are_complete() {
    let host = Setup::new().plugin("probe", "[plugin.kv]\n").start().await;
    let client = Client::connect(&host).await;
    for at in 0..120 {
        set(&client, &format!("k{at:03}"), "v").await;
    }
    let page = keep(&client, "keep", json!({"what": "page", "key": "k"})).await;
    assert_eq!(page, "100 Some(\"k099\")");
    let keys = keep(&client, "keep", json!({"what": "keys", "key": "k"})).await;
    assert_eq!(keys.split(' ').count(), 120);
}

#[tokio::test]
async fn keyvalue_works_in_python_and_javascript_plugins() {
    if place::left_out(&["python", "javascript"]) {
        return;
    }
    let setup = Setup::new()
        .plugin("probe-python", "[plugin.kv]\n")
        .plugin("probe-javascript", "[plugin.kv]\nvalue_bytes_max = 1\n");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    for count in 1..3 {
        let found = client.tool("py_keep", json!({"key": "n"})).await.expect("a result");
        let expected = json!({"count": count, "raw": [0, 255], "keys": ["n", "n/raw"]});
        assert_eq!(found["structuredContent"], expected, "{found}");
    }
    let refused = client.tool("js_keep", json!({"key": "n"})).await.expect("a result");
    assert_eq!(refused["structuredContent"]["reason"], "too-large", "{refused}");
}
