//! What is kept of a token that has let its requestor in: enough to end with it, not enough to be it.

use bulkhead_identity::auth::{SignedProof, StoredCredential};

use super::*;

#[tokio::test]
async fn stored_proof_ends_with_its_token_its_key_and_its_tenant() {
    let bench = Bench::new().await;
    let token = bench.key.token(&bench.claims());
    let requestor = bench.accepted(&token).await;
    let kept = bench.verifier.storable(&token).await.expect("a proof");
    for part in token.split('.') {
        assert!(!format!("{kept:?}").contains(part), "{kept:?}");
    }
    let judged = bench.verifier.verify_stored(&kept).await.expect("it is good");
    assert_eq!((judged.requestor, judged), (requestor, bench.verify(&token).await.expect("it is good")));

    let StoredCredential::Signed(proof) = &kept else { panic!("{kept:?}") };
    let altered = |alter: fn(&mut SignedProof)| {
        let mut proof = proof.clone();
        alter(&mut proof);
        StoredCredential::Signed(proof)
    };
    for (why, other) in [
        ("another issuer", altered(|proof| proof.issuer.push('x'))),
        ("another tenant", altered(|proof| "globex".clone_into(&mut proof.tenant))),
        ("an operator", altered(|proof| proof.tenant.clear())),
        ("another key", altered(|proof| proof.kid = Some("k9".to_owned()))),
        ("an end that is over", altered(|proof| proof.expires_at = NOW_MS)),
        ("a token of the host", StoredCredential::Token([1; 32])),
    ] {
        Bench::is_refused(&bench.verifier.verify_stored(&other).await, why);
    }

    // The issuer takes the key back, and gives it out again.
    bench.issuer.publish(&[&Key::ec("k2")]);
    bench.advance(10_001);
    Bench::is_refused(&bench.verifier.verify_stored(&kept).await, "its key is withdrawn");
    bench.issuer.publish(&[&bench.key]);
    bench.advance(10_001);
    bench.verifier.verify_stored(&kept).await.expect("its key is there again");
    bench.issuer.set_down(true);
    bench.advance(40_000);
    let unjudged = bench.verifier.verify_stored(&kept).await;
    assert!(matches!(unjudged, Err(Denied::Unavailable { .. })), "{unjudged:?}");
    bench.issuer.set_down(false);
    bench.advance(600_000);
    Bench::is_refused(&bench.verifier.verify_stored(&kept).await, "it has expired");
}

#[tokio::test]
async fn nothing_is_kept_of_what_is_opaque_or_not_valid() {
    let bench = Bench::new().await;
    let mut other = bench.claims();
    other["aud"] = json!("https://other.example.com/mcp");
    for token in ["opaque".to_owned(), Key::ec("k1").token(&bench.claims()), bench.key.token(&other), "bh_x".to_owned()]
    {
        assert_eq!(bench.verifier.storable(&token).await, None, "{token}");
    }
}
