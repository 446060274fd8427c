//! Tokens that only their issuer can read.

use std::time::Duration;

use bulkhead_identity::auth::{Denied, IntrospectionOptions};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderValue};
use serde_json::{Value, json};
use tests::client::HELLO;
use tests::issuer::{Issuer, Key};
use tests::modern::Modern;
use tests::{Host, Setup};

use super::{Bench, NOW, RESOURCE, claims};

async fn bench() -> Bench {
    Bench::with(|options| {
        let url = options.issuer.replace("/realm", "/introspect").parse().expect("an address");
        options.introspection = Some(IntrospectionOptions { url, client_id: "host:1".to_owned(), cache_ms: 10_000 });
    })
    .await
}

fn answer(change: impl FnOnce(&mut Value)) -> Value {
    let mut answer = json!({"active": true, "sub": "anna", "aud": RESOURCE, "exp": NOW + 600, "scope": "read"});
    change(&mut answer);
    answer
}

#[tokio::test]
async fn introspection_answer_is_cached() {
    let bench = bench().await;
    bench.issuer.knows("opaque", answer(|_| {}));
    let requestor = bench.accepted("opaque").await;
    for _ in 0..5 {
        assert_eq!(bench.accepted("opaque").await, requestor);
    }
    assert_eq!(bench.issuer.introspected(), 1);
    // The name and the password are encoded before they are put together.
    assert_eq!(bench.issuer.credentials(), ["Basic aG9zdCUzQTE6cyUyNmNyZXQ="]);
    // Revoked: known after the answer has grown old.
    bench.issuer.knows("opaque", json!({"active": false}));
    bench.advance(10_000);
    Bench::is_refused(&bench.verify("opaque").await, "revoked");
    assert_eq!(bench.issuer.introspected(), 2);
    // A signed token of the same person is the same requestor, and is not asked about.
    assert_eq!(bench.accepted(&bench.key.token(&bench.claims())).await, requestor);
    assert_eq!(bench.issuer.introspected(), 2);
}

#[tokio::test]
async fn introspection_answer_is_validated_like_a_token() {
    let bench = bench().await;
    let issuer = bench.issuer.url.clone();
    let cases = [
        ("no audience", answer(|answer| answer["aud"] = Value::Null)),
        ("another audience", answer(|answer| answer["aud"] = json!("other"))),
        ("another issuer", answer(|answer| answer["iss"] = json!("https://evil.example"))),
        ("expired", answer(|answer| answer["exp"] = json!(NOW - 6))),
        ("no end", answer(|answer| answer["exp"] = Value::Null)),
        ("no subject", answer(|answer| answer["sub"] = Value::Null)),
        ("not active", answer(|answer| answer["active"] = json!(false))),
        ("not yet", answer(|answer| answer["nbf"] = json!(NOW + 6))),
    ];
    for (at, (why, answer)) in cases.into_iter().enumerate() {
        let token = format!("opaque-{at}");
        bench.issuer.knows(&token, answer);
        Bench::is_refused(&bench.verify(&token).await, why);
    }
    bench.issuer.knows("named", answer(|answer| answer["iss"] = json!(issuer)));
    bench.accepted("named").await;
}

#[tokio::test]
async fn introspection_answer_expires_with_its_token() {
    let bench = bench().await;
    bench.issuer.knows("short", answer(|answer| answer["exp"] = json!(NOW + 1)));
    bench.accepted("short").await;
    bench.advance(6_000);
    Bench::is_refused(&bench.verify("short").await, "its end, with the skew");
}

#[tokio::test]
async fn introspection_outage_is_unavailable_not_a_refusal() {
    let bench = bench().await;
    bench.issuer.knows("opaque", answer(|_| {}));
    bench.issuer.set_down(true);
    let unavailable = bench.verify("opaque").await;
    assert!(matches!(unavailable, Err(Denied::Unavailable { .. })), "{unavailable:?}");
    // For a while it is not asked again, and whoever sends a token does not wait.
    bench.issuer.set_down(false);
    let unavailable = bench.verify("opaque").await;
    assert!(matches!(unavailable, Err(Denied::Unavailable { .. })), "{unavailable:?}");
    assert_eq!(bench.issuer.introspected(), 1);
    bench.advance(1_000);
    bench.accepted("opaque").await;
    // What it said before is still good.
    bench.issuer.set_down(true);
    assert!(matches!(bench.verify("other").await, Err(Denied::Unavailable { .. })));
    bench.accepted("opaque").await;
}

/// Whoever never answers: connections are taken and nothing comes.
#[tokio::test]
async fn introspection_of_silent_issuer_times_out_quickly() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/introspect", silent.local_addr().expect("an address"));
    let bench = Bench::with(|options| {
        options.fetch_ms_max = 300;
        let url = url.parse().expect("an address");
        options.introspection = Some(IntrospectionOptions { url, client_id: "host".to_owned(), cache_ms: 10_000 });
    })
    .await;
    let tokens: Vec<_> = (0..200).map(|at| format!("opaque-{at}")).collect();
    let all = futures::future::join_all(tokens.iter().map(|token| bench.verify(token)));
    // One after the other, 16 at a time, these would take thirteen times as long as one.
    let seen = tokio::time::timeout(std::time::Duration::from_millis(2_000), all).await.expect("answers soon");
    assert!(seen.iter().all(|outcome| matches!(outcome, Err(Denied::Unavailable { .. }))));
}

/// An issuer of opaque tokens alone: it has no keys and no metadata that names any.
#[tokio::test]
async fn signed_token_of_keyless_issuer_is_refused() {
    let bench = Bench::with(|options| {
        let url = options.issuer.replace("/realm", "/introspect").parse().expect("an address");
        options.introspection = Some(IntrospectionOptions { url, client_id: "host:1".to_owned(), cache_ms: 10_000 });
        // Nothing is known of the issuer under this name.
        options.issuer = options.issuer.replace("/realm", "/opaque");
        options.url = options.issuer.parse().expect("an address");
    })
    .await;
    let mut claims = bench.claims();
    claims["iss"] = json!(bench.issuer.url.replace("/realm", "/opaque"));
    let token = bench.key.token(&claims);
    for _ in 0..3 {
        Bench::is_refused(&bench.verify(&token).await, "there is no key for it");
    }
    bench.issuer.knows("opaque", answer(|_| {}));
    bench.accepted("opaque").await;
}

#[tokio::test]
async fn opaque_token_without_introspection_is_refused() {
    let bench = Bench::new().await;
    Bench::is_refused(&bench.verify("opaque").await, "opaque");
    assert_eq!(bench.issuer.introspected(), 0);
}

/// One address sends what it made up, and the issuer takes its time over each.
#[tokio::test]
async fn unknown_token_flood_does_not_delay_valid_tokens() {
    let bench = bench().await;
    bench.issuer.knows("good", answer(|_| {}));
    bench.issuer.knows("new", answer(|answer| answer["sub"] = json!("ben")));
    bench.accepted("good").await;
    // Its answer has grown old.
    bench.advance(10_000);
    bench.issuer.set_delay(Duration::from_millis(500));
    let garbage: Vec<_> = (0..1_000).map(|at| format!("garbage-{at}")).collect();
    let flood = futures::future::join_all(garbage.iter().map(|token| bench.verify_from([192, 0, 2, 7], token)));
    let good = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let known = bench.verify_from([192, 0, 2, 7], "good").await;
        let new = bench.verify_from([192, 0, 2, 8], "new").await;
        (known.map(|_| ()), new.map(|_| ()))
    };
    let (known, new) = tokio::select! {
        _ = flood => panic!("a thousand questions cannot be answered so soon"),
        seen = good => seen,
    };
    assert!(known.is_ok() && new.is_ok(), "{known:?}, {new:?}");
    assert!(bench.issuer.introspected() < 60, "{} questions", bench.issuer.introspected());
}

#[tokio::test]
async fn rate_limiting_issuer_is_still_asked_about_valid_tokens() {
    let bench = bench().await;
    bench.issuer.knows("good", answer(|_| {}));
    bench.accepted("good").await;
    bench.advance(10_000);
    bench.issuer.set_stingy(true);
    for number in 0..10 {
        let refused = bench.verify(&format!("garbage-{number}")).await;
        assert!(matches!(refused, Err(Denied::Unavailable { .. })), "{refused:?}");
    }
    assert_eq!(bench.issuer.introspected(), 2, "it said that it has enough");
    bench.accepted("good").await;
}

/// A host whose tokens are opaque; answers about them are not kept.
async fn host(issuer: &Issuer, server: &str) -> Host {
    let config = format!(
        "[server]\n{server}\n[auth]\nresource = \"{RESOURCE}\"\n[[auth.issuer]]\nissuer = \"{}\"\ntenant = \"acme\"\n\
         introspection_url = \"{}\"\nclient_id = \"host\"\nclient_secret_env = \"ISSUER_SECRET\"\nintrospection_cache_ms = 0\n",
        issuer.url,
        issuer.at("/introspect"),
    );
    Setup::with(&["desk"]).config(&config).env("ISSUER_SECRET", "secret").start().await
}

async fn status(host: &Host, token: &str) -> StatusCode {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = http.post(&host.url).bearer_auth(token).body(HELLO).header("content-type", "application/json");
    request.send().await.expect("an answer").status()
}

#[tokio::test]
async fn address_with_only_bad_tokens_is_not_introspected() {
    let issuer = Issuer::start(&[&Key::ec("k1")]).await;
    for token in ["good", "new"] {
        let mut active = claims(&issuer, token);
        active["active"] = json!(true);
        issuer.knows(token, active);
    }
    let host = host(&issuer, "credential_failures_per_minute = 5").await;
    assert_eq!(status(&host, "good").await, StatusCode::OK);
    let mut seen = Vec::new();
    for number in 0..40 {
        seen.push(status(&host, &format!("garbage-{number}")).await);
    }
    assert_eq!(seen[..5], [StatusCode::UNAUTHORIZED; 5]);
    assert_eq!(seen[39], StatusCode::TOO_MANY_REQUESTS);
    // One more now and then, as the minute passes.
    assert!(issuer.introspected() < 20, "{} questions", issuer.introspected());
    assert_eq!(status(&host, "good").await, StatusCode::OK, "it was good a moment ago");
    assert_eq!(status(&host, "new").await, StatusCode::TOO_MANY_REQUESTS, "nobody knows that it is good");

    // What goes wrong all the time is not a line each time.
    issuer.set_down(true);
    for _ in 0..20 {
        assert_eq!(status(&host, "good").await, StatusCode::INTERNAL_SERVER_ERROR);
    }
    let log = host.log();
    assert_eq!(log.matches("the issuer does not say what a token is worth").count(), 1, "{log}");
}

/// Two calls that wait: one for a single answer, one with a stream.
async fn waiting(host: &Host, ms: u64) -> (reqwest::Response, reqwest::Response) {
    let modern = Modern::plain(host, Some("good"));
    let send = async |accept: &'static str| {
        let params = json!({"name": "wait", "arguments": {"ms": ms}});
        let accept = [(ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
        // In the place of what it accepts otherwise.
        let request = modern.request("tools/call", &params).headers(accept);
        let request = request.body(modern.message(&json!(1), "tools/call", params).to_string());
        request.send().await.expect("an answer")
    };
    tokio::join!(send("application/json"), send("application/json, text/event-stream"))
}

#[tokio::test]
async fn running_calls_survive_issuer_outage_but_not_refusal() {
    let issuer = Issuer::start(&[&Key::ec("k1")]).await;
    let mut active = claims(&issuer, "anna");
    active["active"] = json!(true);
    issuer.knows("good", active.clone());
    let host = host(&issuer, "sse_after_ms = 50").await;
    let down = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        issuer.set_down(true);
    };
    let ((json, events), ()) = tokio::join!(waiting(&host, 4_000), down);
    assert_eq!(json.status(), StatusCode::OK);
    let text = json.text().await.expect("an answer");
    assert!(text.contains("\"result\""), "{text}");
    let text = events.text().await.expect("a stream");
    assert!(text.contains("\"result\""), "it was cut: {text}");
    assert_eq!(status(&host, "good").await, StatusCode::INTERNAL_SERVER_ERROR, "nobody new is let in by it");

    // Once it says that the token is none, they end.
    issuer.set_down(false);
    tests::wait::until("the issuer to be asked again", async || {
        (status(&host, "good").await == StatusCode::OK).then_some(())
    })
    .await;
    let revoked = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        issuer.knows("good", json!({"active": false}));
    };
    let ((json, events), ()) = tokio::join!(waiting(&host, 60_000), revoked);
    assert_eq!(json.status(), StatusCode::UNAUTHORIZED);
    assert!(!events.text().await.expect("a stream").contains("\"result\""));
}
