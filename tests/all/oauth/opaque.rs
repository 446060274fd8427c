//! Tokens that only their issuer can read.

use bulkhead::transport::auth::{Denied, IntrospectionOptions};
use serde_json::{Value, json};

use super::{Bench, NOW, RESOURCE};

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
async fn the_issuer_is_asked_once_for_a_while() {
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
async fn an_answer_is_judged_like_a_token() {
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
async fn an_answer_never_outlives_its_token() {
    let bench = bench().await;
    bench.issuer.knows("short", answer(|answer| answer["exp"] = json!(NOW + 1)));
    bench.accepted("short").await;
    bench.advance(6_000);
    Bench::is_refused(&bench.verify("short").await, "its end, with the skew");
}

#[tokio::test]
async fn an_issuer_that_cannot_answer_is_not_a_refusal() {
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
async fn a_silent_issuer_keeps_nobody_waiting_for_long() {
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

#[tokio::test]
async fn without_introspection_no_token_is_shown_to_anybody() {
    let bench = Bench::new().await;
    Bench::is_refused(&bench.verify("opaque").await, "opaque");
    assert_eq!(bench.issuer.introspected(), 0);
}
