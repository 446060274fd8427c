//! Keys that come, go, and cannot be fetched.

use std::time::Duration;

use bulkhead::transport::auth::Denied;
use serde_json::{Value, json};
use tests::issuer::{Issuer, Key};

use super::{Bench, NOW};

/// Claims that outlast every test.
fn lasting(bench: &Bench) -> Value {
    let mut claims = bench.claims();
    claims["exp"] = json!(NOW + 100_000);
    claims
}

#[tokio::test]
async fn new_keys_are_found_and_old_ones_are_gone() {
    let bench = Bench::new().await;
    let old = bench.key.token(&lasting(&bench));
    let requestor = bench.accepted(&old).await;
    let next = Key::ed("k2");
    bench.issuer.publish(&[&next]);
    bench.advance(1_000);
    let new = next.token(&lasting(&bench));
    // Many at once, of both: one of them asks.
    let before = bench.issuer.asked();
    let race = (0..40).map(|at| bench.verify(if at % 2 == 0 { &new } else { &old }));
    let seen = futures::future::join_all(race).await;
    assert!(seen.iter().step_by(2).all(|outcome| outcome.as_ref().is_ok_and(|seen| seen.requestor == requestor)));
    assert_eq!(bench.issuer.asked(), before + 1);
    Bench::is_refused(&bench.verify(&old).await, "the old key");
    // Under the same name, too.
    let replaced = Key::ec("k2");
    bench.issuer.publish(&[&replaced]);
    bench.advance(31_000);
    bench.accepted(&replaced.token(&lasting(&bench))).await;
    Bench::is_refused(&bench.verify(&new).await, "the replaced key");
}

#[tokio::test]
async fn a_storm_of_unknown_keys_does_not_reach_the_issuer() {
    let bench = Bench::new().await;
    bench.accepted(&bench.key.token(&lasting(&bench))).await;
    let before = bench.issuer.asked();
    let forged = Key::ed("x");
    for round in 0..3 {
        let tokens: Vec<_> = (0..200)
            .map(|at| {
                let mut header = forged.header();
                header["kid"] = json!(format!("{round}-{at}"));
                forged.sign(&header, &lasting(&bench))
            })
            .collect();
        let seen = futures::future::join_all(tokens.iter().map(|token| bench.verify(token))).await;
        seen.iter().for_each(|outcome| Bench::is_refused(outcome, "an unknown key"));
        bench.accepted(&bench.key.token(&lasting(&bench))).await;
    }
    assert!(bench.issuer.asked() <= before + 1, "{} questions", bench.issuer.asked() - before);
}

#[tokio::test]
async fn keys_outlive_their_issuer_for_a_while() {
    let bench = Bench::new().await;
    let token = bench.key.token(&lasting(&bench));
    bench.accepted(&token).await;
    bench.issuer.set_down(true);
    for _ in 0..5 {
        bench.advance(5_900);
        bench.accepted(&token).await;
    }
    bench.advance(1_000);
    let refused = bench.verify(&token).await;
    assert!(matches!(refused, Err(Denied::Unavailable { .. })), "{refused:?}");
    bench.issuer.set_down(false);
    bench.advance(1_000);
    bench.accepted(&token).await;
}

#[tokio::test]
async fn a_withdrawn_key_is_good_for_no_token_once_keys_are_no_longer_fresh() {
    let bench = Bench::new().await;
    let token = bench.key.token(&lasting(&bench));
    bench.accepted(&token).await;
    bench.issuer.publish(&[&Key::ec("k2")]);
    bench.advance(10_001);
    // Many at once: none of them is judged by what was withdrawn, and one of them asks.
    let before = bench.issuer.asked();
    for outcome in futures::future::join_all((0..40).map(|_| bench.verify(&token))).await {
        Bench::is_refused(&outcome, "a withdrawn key");
    }
    assert_eq!(bench.issuer.asked(), before + 1);
}

#[tokio::test]
async fn a_client_that_goes_away_takes_no_keys_along() {
    let bench = Bench::new().await;
    let token = bench.key.token(&lasting(&bench));
    let _ = tokio::time::timeout(Duration::ZERO, bench.verify(&token)).await;
    bench.accepted(&token).await;
    assert!(bench.issuer.asked() <= 2);
}

#[tokio::test]
async fn metadata_of_somebody_else_is_not_believed() {
    let bench = Bench::with(|options| options.keys_retry_ms = 100).await;
    bench.issuer.pretend("https://evil.example");
    bench.advance(60_000);
    let token = bench.key.token(&lasting(&bench));
    let refused = bench.verify(&token).await;
    // The first question was asked before the pretence.
    if refused.is_ok() {
        bench.advance(60_000);
        let refused = bench.verify(&token).await;
        assert!(matches!(refused, Err(Denied::Unavailable { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_key_set_can_be_named_without_metadata() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    issuer.pretend("https://nobody.example");
    let keys = issuer.at("/keys");
    let bench = Bench::with(|options| {
        options.issuer = "https://login.example.com/realm".to_owned();
        options.url = options.issuer.parse().expect("an address");
        options.jwks_url = Some(keys.parse().expect("an address"));
    })
    .await;
    let mut claims = lasting(&bench);
    claims["iss"] = json!("https://login.example.com/realm");
    bench.accepted(&key.token(&claims)).await;
}
