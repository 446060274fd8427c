//! Keys that come, go, and cannot be fetched.

use std::time::Duration;

use bulkhead_identity::auth::Denied;
use serde_json::{Value, json};
use tests::issuer::{Issuer, Key};
use tests::wait::until;

use super::{Bench, NOW};

/// Claims that outlast every test.
fn lasting(bench: &Bench) -> Value {
    let mut claims = bench.claims();
    claims["exp"] = json!(NOW + 100_000);
    claims
}

#[tokio::test]
async fn issuer_key_rotation_accepts_new_and_refuses_old_keys() {
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
async fn unknown_key_flood_does_not_reach_the_issuer() {
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
async fn issuer_keys_stay_valid_for_a_bounded_outage() {
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
async fn withdrawn_issuer_key_is_refused_after_freshness() {
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
async fn issuer_key_fetch_survives_client_disconnect() {
    let bench = Bench::new().await;
    let token = bench.key.token(&lasting(&bench));
    let _ = tokio::time::timeout(Duration::ZERO, bench.verify(&token)).await;
    bench.accepted(&token).await;
    assert!(bench.issuer.asked() <= 2);
}

#[tokio::test]
async fn issuer_metadata_of_another_issuer_is_refused() {
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
async fn issuer_key_set_url_works_without_metadata() {
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

/// Connections are taken and no answer comes, for longer than anybody would wait.
#[tokio::test]
async fn hanging_issuer_delays_no_token_with_usable_keys() {
    let bench = Bench::with(|options| options.fetch_ms_max = 60_000).await;
    let token = bench.key.token(&lasting(&bench));
    bench.accepted(&token).await;
    bench.issuer.set_delay(Duration::from_secs(600));
    bench.advance(10_001);
    let all = async {
        for _ in 0..5 {
            // Time to ask again, each time.
            bench.advance(1_000);
            futures::future::join_all((0..20).map(|_| bench.accepted(&token))).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("one short wait for all of them");
}

#[tokio::test]
async fn returning_issuer_is_trusted_again() {
    let bench = Bench::new().await;
    let old = bench.key.token(&lasting(&bench));
    bench.accepted(&old).await;
    bench.issuer.set_down(true);
    bench.advance(10_001);
    bench.accepted(&old).await;
    bench.issuer.set_down(false);
    let next = Key::ec("k2");
    bench.issuer.publish(&[&next]);
    bench.advance(1_000);
    until("the new keys", async || bench.verify(&old).await.is_err().then_some(())).await;
    bench.accepted(&next.token(&lasting(&bench))).await;
}

#[tokio::test]
async fn tokens_without_key_id_are_accepted_during_rotation() {
    let bench = Bench::new().await;
    let nameless = |key: &Key| {
        let mut header = key.header();
        header.as_object_mut().expect("a header").remove("kid");
        key.sign(&header, &lasting(&bench))
    };
    let old = &bench.key;
    let next = Key::ec("k2");
    let stranger = Key::ec("k3");
    bench.accepted(&nameless(old)).await;
    // Signed with a key that is newer than what the host has.
    bench.issuer.publish(&[old, &next]);
    bench.advance(1_000);
    bench.accepted(&nameless(&next)).await;
    bench.accepted(&nameless(old)).await;
    Bench::is_refused(&bench.verify(&nameless(&stranger)).await, "a key that the issuer does not have");
    // A token that names its key is judged by that one only.
    let mut header = next.header();
    header["kid"] = json!("k1");
    Bench::is_refused(&bench.verify(&next.sign(&header, &lasting(&bench))).await, "another key's name");
    // However many there are, a few are tried.
    let many: Vec<_> = (0..20).map(|at| Key::ec(&format!("many-{at}"))).collect();
    bench.issuer.publish(&many.iter().collect::<Vec<_>>());
    bench.advance(10_001);
    bench.accepted(&nameless(&many[0])).await;
    Bench::is_refused(&bench.verify(&nameless(&many[19])).await, "one of too many");
}
