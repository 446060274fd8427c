//! Clients without a token beside those with one: who is let in, and what they see of each other.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::{Client, HELLO, all_capabilities};
use tests::{Setup, command};

const OPEN: &str = "[auth]\nanonymous_loopback = true\n";

#[tokio::test]
async fn anonymous_loopback_client_and_token_holder_do_not_see_each_other() {
    let setup = Setup::with(&["desk"]).config(OPEN);
    let token = setup.token("alice", "acme").await;
    let same_name = setup.token("local", "default").await;
    let host = setup.start().await;
    let alice = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let local = Client::connect(&host).await;
    let named_local = Client::connect_as(&host, Some(&same_name), all_capabilities()).await;
    let everybody = [("alice", &alice), ("local", &local), ("a token that is called local", &named_local)];
    let mut tasks = Vec::new();
    for (_, client) in everybody {
        tasks.push(client.task("wait", json!({"ms": 600_000})).await);
    }
    let unknown = "0".repeat(32);
    for (at, (who, client)) in everybody.into_iter().enumerate() {
        client.about("tasks/get", &tasks[at]).await.unwrap_or_else(|error| panic!("{who}: {error:?}"));
        let absent = client.about("tasks/get", &unknown).await.expect_err("no task");
        for (other, task) in tasks.iter().enumerate().filter(|(other, _)| *other != at) {
            for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
                let foreign = client.about(method, task).await.expect_err("the task of another requestor");
                assert_eq!(foreign.code, absent.code, "{who} of {other} with {method}: {foreign:?}");
            }
        }
    }
    let shown = command::json(&["tasks", "show", &tasks[1]], &setup.data()).await;
    assert_eq!((&shown["requestor"], &shown["tenant"]), (&json!("local"), &json!("default")));
}

#[tokio::test]
async fn bad_credential_is_refused_where_none_is_needed() {
    let setup = Setup::with(&["text"]).config(OPEN);
    let token = setup.token("alice", "acme").await;
    let made = command::json(&["token", "list"], &setup.data()).await;
    let host = setup.start().await;
    let status = async |token: Option<&str>| Client::new(&host.url, token).post(HELLO, None).await.status;
    assert_eq!(status(None).await, StatusCode::OK);
    assert_eq!(status(Some(&token)).await, StatusCode::OK);
    for wrong in ["bh_wrong", &format!("{token}x")] {
        assert_eq!(status(Some(wrong)).await, StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
    for malformed in ["", "two words"] {
        assert_eq!(status(Some(malformed)).await, StatusCode::BAD_REQUEST, "{malformed:?}");
    }
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let basic = http.post(&host.url).basic_auth("local", Some("x")).body("{}").send().await.expect("an answer");
    assert_eq!(basic.status(), StatusCode::UNAUTHORIZED);
    // A revoked token is a bad one, too.
    let id = made["tokens"][0]["id"].as_str().expect("an id");
    command::json(&["token", "revoke", id], &setup.data()).await;
    assert_eq!(status(Some(&token)).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(None).await, StatusCode::OK);
}

#[tokio::test]
async fn anonymous_loopback_follows_a_reload() {
    let setup = Setup::with(&["text"]);
    setup.token("alice", "acme").await;
    let host = setup.start().await;
    let status = async || Client::new(&host.url, None).post(HELLO, None).await.status;
    let file = setup.path("bulkhead.toml");
    let before = std::fs::read_to_string(&file).expect("the configuration");
    let reload = async || command::json(&["host", "reload"], &setup.data()).await;
    assert_eq!(status().await, StatusCode::UNAUTHORIZED, "closed unless the operator says otherwise");
    std::fs::write(&file, format!("{before}\n{OPEN}")).expect("written");
    assert_eq!(reload().await["changed"], json!(["auth.anonymous_loopback"]));
    assert_eq!(status().await, StatusCode::OK);
    std::fs::write(&file, &before).expect("written");
    assert_eq!(reload().await["done"], Value::Bool(true));
    assert_eq!(status().await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn anonymous_loopback_is_refused_behind_a_proxy() {
    let setup = Setup::with(&["text"]).config(&format!("{OPEN}[server]\ntrusted_proxies = [\"127.0.0.1\"]\n"));
    setup.token("alice", "acme").await;
    let (code, said) = setup.refused().await;
    assert_eq!(code, Some(2));
    assert!(said.contains("auth.anonymous_loopback = true does not go with server.trusted_proxies"), "{said}");
}
