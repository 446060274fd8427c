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
    bench.issuer.set_down(false);
    bench.accepted("opaque").await;
}

#[tokio::test]
async fn without_introspection_no_token_is_shown_to_anybody() {
    let bench = Bench::new().await;
    Bench::is_refused(&bench.verify("opaque").await, "opaque");
    assert_eq!(bench.issuer.introspected(), 0);
}
