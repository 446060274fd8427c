//! What the host writes down of those who come with access tokens, how many of them it lets in, and what it keeps
//! across a reload.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::{Client, HELLO, all_capabilities};
use tests::issuer::{Issuer, Key};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Setup, command};

use super::{claims, setup};

/// The lines of the audit log about one event, once there are so many.
async fn lines(setup: &Setup, event: &str, count: usize) -> Vec<Value> {
    until(event, async || {
        let arguments = ["audit", "tail", "-n", "200", "--json", "--data"];
        let log = command::run(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines: Vec<_> = lines.filter(|line| line["event"] == event).collect();
        (lines.len() >= count).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn audit_maps_requestor_to_issuer_and_names_refused_one() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let scopes = "[[auth.scope]]\nname = \"text\"\ntools = [\"echo\"]\n[[auth.scope]]\nname = \"primes\"\ntools = [\"count_primes\"]\n";
    let setup = setup(&issuer, &format!("client_id_in_principal = true\n{scopes}")).config("[audit]\nenabled = true");
    let host = setup.start().await;
    let token = |subject: &str| {
        let mut claims = claims(&issuer, subject);
        claims["scope"] = json!("text");
        key.token(&claims)
    };
    let anna = token("anna");
    let ben = token("ben");
    for token in [&anna, &ben] {
        let client = Client::connect_as(&host, Some(token), all_capabilities()).await;
        client.tool("echo", json!({"text": "hello"})).await.expect("a result");
        client.tool("echo", json!({"text": "hello"})).await.expect("a result");
    }
    let modern = Modern::full(&host, Some(&ben));
    let call = json!({"name": "count_primes", "arguments": {"below": 10}});
    assert_eq!(modern.call("tools/call", call).await.expect_err("another scope is needed").code, 1012);

    let refused = lines(&setup, "access.refused", 1).await.remove(0);
    let calls = lines(&setup, "call.ended", 4).await;
    let used = lines(&setup, "token.used", 2).await;
    assert_eq!(used.len(), 2, "one for each, however many requests they made: {used:?}");
    for (line, (subject, call)) in used.iter().zip([("anna", &calls[0]), ("ben", &calls[2])]) {
        assert_eq!((&line["issuer"], &line["subject"]), (&json!(issuer.url), &json!(subject)));
        assert_eq!(line["client"], "app");
        assert!(call["requestor"].is_string());
        assert_eq!((&line["requestor"], &line["tenant"]), (&call["requestor"], &call["tenant"]));
    }
    assert_eq!((&refused["requestor"], &refused["tenant"]), (&used[1]["requestor"], &used[1]["tenant"]));
    assert_eq!((&refused["tool"], &refused["reason"]), (&json!("count_primes"), &json!("insufficient scope")));
    let written = format!("{refused}{used:?}");
    assert!([anna, ben].iter().all(|token| !written.contains(token.rsplit('.').next().expect("a signature"))));
}

#[tokio::test]
async fn audit_records_host_token_use_with_requestor() {
    let setup = Setup::with(&["text"]).config("[audit]\nenabled = true");
    let token = setup.token("anna", "acme").await;
    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    client.tool("echo", json!({"text": "hello"})).await.expect("a result");
    let used = lines(&setup, "token.used", 1).await.remove(0);
    let call = lines(&setup, "call.ended", 1).await.remove(0);
    assert!(call["requestor"].is_string());
    assert_eq!((&used["requestor"], &used["tenant"]), (&call["requestor"], &call["tenant"]));
}

#[tokio::test]
async fn requestors_from_tokens_are_limited_and_known_ones_stay() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let host = setup(&issuer, "[limits]\nrequestors_per_tenant = 2\n").start().await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let send = async |subject: &str| {
        let request = http.post(&host.url).header("content-type", "application/json").body(HELLO);
        request.bearer_auth(key.token(&claims(&issuer, subject))).send().await.expect("an answer")
    };
    for subject in ["anna", "ben", "anna"] {
        assert_eq!(send(subject).await.status(), StatusCode::OK, "{subject}");
    }
    for subject in ["carla", "dora"] {
        let refused = send(subject).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let body: Value = refused.json().await.expect("JSON");
        assert_eq!(body["error"]["code"], 1010);
        assert_eq!(body["error"]["data"]["limit"], "requestors_per_tenant");
    }
    assert_eq!(send("ben").await.status(), StatusCode::OK);
    // Operators are not refused.
    let own = host.setup.token("emil", "acme").await;
    Client::connect_as(&host, Some(&own), all_capabilities()).await;
}

#[tokio::test]
async fn reload_adding_an_issuer_keeps_keys_of_others() {
    let one = Key::ed("k1");
    let two = Key::ed("k1");
    let three = Key::ed("k1");
    let first = Issuer::start(&[&one]).await;
    let second = Issuer::start(&[&two]).await;
    let third = Issuer::start(&[&three]).await;
    let table = |issuer: &Issuer| format!("[[auth.issuer]]\nissuer = \"{}\"\ntenant = \"globex\"\n", issuer.url);
    let setup = setup(&first, &table(&second));
    let host = setup.start().await;
    let token = two.token(&claims(&second, "ben"));
    Client::connect_as(&host, Some(&token), all_capabilities()).await;
    // It is down, and its keys are still good.
    second.set_down(true);
    let file = setup.path("bulkhead.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let (head, plugins) = text.split_at(text.find("[[plugin]]").expect("a plugin"));
    std::fs::write(&file, format!("{head}{}{plugins}", table(&third))).expect("the configuration");
    let said = command::json(&["host", "reload"], &setup.data()).await;
    assert_eq!(said["changed"], json!(["auth.issuer"]), "{said}");
    Client::connect_as(&host, Some(&three.token(&claims(&third, "carla"))), all_capabilities()).await;
    Client::connect_as(&host, Some(&token), all_capabilities()).await;
}
