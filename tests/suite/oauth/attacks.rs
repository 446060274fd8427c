//! Tokens that want to be taken for good ones.

use serde_json::{Value, json};
use tests::issuer::{Issuer, Key, keyed, unsigned};

use super::{Bench, NOW, RESOURCE};

#[tokio::test]
async fn valid_token_of_each_algorithm_is_accepted() {
    let bench = Bench::new().await;
    let keys = [Key::rsa("a", 0), Key::ec("b"), Key::ed("c")];
    bench.issuer.publish(&keys.each_ref());
    let mut seen = Vec::new();
    for key in &keys {
        seen.push(bench.accepted(&key.token(&bench.claims())).await);
        for kind in [json!("JWT"), json!("application/at+jwt"), json!("AT+JWT"), Value::Null] {
            let mut header = key.header();
            header["typ"] = kind;
            bench.accepted(&key.sign(&header, &bench.claims())).await;
        }
    }
    assert!(seen.iter().all(|requestor| *requestor == seen[0]), "one subject is one requestor");
    let scopes = bench.verify(&keys[0].token(&bench.claims())).await.expect("a good token").scopes;
    assert_eq!(format!("{scopes:?}"), r#"Granted(["read", "write"])"#);
}

#[tokio::test]
async fn missing_or_wrong_token_claims_are_refused() {
    let bench = Bench::new().await;
    bench.accepted(&bench.key.token(&bench.claims())).await;
    let null = Value::Null;
    let cases = [
        (
            "iss",
            vec![
                null.clone(),
                json!("https://evil.example"),
                json!([bench.issuer.url]),
                json!(format!("{}/", bench.issuer.url)),
            ],
        ),
        (
            "aud",
            vec![
                null.clone(),
                json!([]),
                json!(7),
                json!({"0": RESOURCE}),
                json!("https://mcp.example.com"),
                json!(["a", "b"]),
                json!(format!("{RESOURCE}2")),
            ],
        ),
        ("sub", vec![null.clone(), json!(""), json!(7), json!("a\nb"), json!("x".repeat(513))]),
        ("exp", vec![null.clone(), json!("soon"), json!(-1), json!(NOW - 6), json!(1e300), json!(NOW as f64 - 5.5)]),
        ("nbf", vec![json!(NOW + 6), json!("now"), json!(-1)]),
        ("client_id", vec![json!("a\u{0}b")]),
        ("scope", vec![json!(7), json!("s ".repeat(257))]),
    ];
    for (name, values) in cases {
        for value in values {
            let mut claims = bench.claims();
            claims[name] = value.clone();
            Bench::is_refused(&bench.verify(&bench.key.token(&claims)).await, &format!("{name} = {value}"));
            if value.is_null() {
                claims.as_object_mut().expect("claims").remove(name);
                Bench::is_refused(&bench.verify(&bench.key.token(&claims)).await, &format!("no {name}"));
            }
        }
    }
    // What is within the skew, and the spellings of an audience, are fine.
    for (name, value) in [
        ("exp", json!(NOW - 4)),
        ("nbf", json!(NOW + 4)),
        ("exp", json!(NOW as f64 + 0.5)),
        ("aud", json!(["other", RESOURCE])),
        ("aud", json!("HTTPS://MCP.example.COM/mcp/")),
        ("nbf", Value::Null),
    ] {
        let mut claims = bench.claims();
        claims[name] = value;
        bench.accepted(&bench.key.token(&claims)).await;
    }
}

#[tokio::test]
async fn token_header_cannot_choose_its_verification() {
    let bench = Bench::new().await;
    let rsa = Key::rsa("rsa", 0);
    let twin = Key::ec("k1");
    bench.issuer.publish(&[&bench.key, &rsa]);
    let claims = bench.claims();
    bench.accepted(&rsa.token(&claims)).await;
    let with = |key: &Key, name: &str, value: Value| {
        let mut header = key.header();
        header[name] = value;
        key.sign(&header, &claims)
    };
    let hmac = json!({"alg": "HS256", "kid": "rsa", "typ": "at+jwt"});
    let attacks = [
        ("none", unsigned(&json!({"alg": "none", "typ": "at+jwt"}), &claims)),
        ("none with a key", unsigned(&json!({"alg": "none", "kid": "k1"}), &claims)),
        ("None", unsigned(&json!({"alg": "None", "kid": "k1"}), &claims)),
        ("no signature", unsigned(&bench.key.header(), &claims)),
        ("the public key as a secret", keyed(&rsa.public_bytes(), &hmac, &claims)),
        ("its modulus as a secret", keyed(rsa.jwk()["n"].as_str().expect("n").as_bytes(), &hmac, &claims)),
        ("another algorithm", with(&bench.key, "alg", json!("ES384"))),
        ("the algorithm of another kind", with(&bench.key, "alg", json!("RS256"))),
        ("PSS", with(&rsa, "alg", json!("PS256"))),
        ("a key of another kind", with(&bench.key, "kid", json!("rsa"))),
        ("its own key", with(&twin, "jwk", twin.jwk())),
        ("its own address of keys", with(&twin, "jku", json!("https://evil.example/keys"))),
        ("its own certificate", with(&twin, "x5c", json!(["AAAA"]))),
        ("its own address of certificates", with(&twin, "x5u", json!("https://evil.example/c"))),
        ("a good key and an address beside it", with(&bench.key, "jku", json!("https://evil.example/keys"))),
        ("a twin of the key", twin.token(&claims)),
        ("a path for a name", with(&bench.key, "kid", json!("../../../dev/null"))),
        ("a query for a name", with(&bench.key, "kid", json!("k1' OR '1'='1"))),
        ("no text for a name", with(&bench.key, "kid", json!(7))),
        ("a huge name", with(&bench.key, "kid", json!("k".repeat(600)))),
        ("demands", with(&bench.key, "crit", json!(["exp"]))),
        ("an identity token", with(&bench.key, "typ", json!("id_token+jwt"))),
        ("a proof", with(&bench.key, "typ", json!("dpop+jwt"))),
        ("encryption", with(&bench.key, "enc", json!("A256GCM"))),
        ("compression", with(&bench.key, "zip", json!("DEF"))),
        ("no name among two kinds but of an unknown one", with(&Key::ed("x"), "kid", Value::Null)),
    ];
    for (why, token) in &attacks {
        Bench::is_refused(&bench.verify(token).await, why);
    }
    // Without a name, the only key of its kind is meant.
    bench.accepted(&with(&bench.key, "kid", Value::Null)).await;
}

#[tokio::test]
async fn tampered_token_is_refused() {
    let bench = Bench::new().await;
    let token = bench.key.token(&bench.claims());
    let mut other = bench.claims();
    other["sub"] = json!("root");
    let other = bench.key.token(&other);
    let parts: Vec<&str> = token.split('.').collect();
    let others: Vec<&str> = other.split('.').collect();
    let changed = [
        format!("{}.{}.{}", parts[0], others[1], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], others[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{token}.{}", parts[2]),
        format!("{token}="),
        format!("{token}A"),
        token[..token.len() - 4].to_owned(),
        format!(".{}.{}", parts[1], parts[2]),
        format!("{}..{}", parts[0], parts[2]),
        String::new(),
        "..".to_owned(),
        "ey..".to_owned(),
        "eyJ.eyJ.x".to_owned(),
    ];
    for token in &changed {
        Bench::is_refused(&bench.verify(token).await, token);
    }
    // A signature of zeros was once good for every message.
    let zeros = "A".repeat(86);
    Bench::is_refused(&bench.verify(&format!("{}.{}.{zeros}", parts[0], parts[1])).await, "zeros");
}

#[tokio::test]
async fn access_token_type_and_algorithms_can_be_required() {
    let bench = Bench::with(|options| {
        options.require_at_jwt = true;
        options.algorithms = vec!["ES256".parse().expect("an algorithm")];
    })
    .await;
    let ed = Key::ed("ed");
    bench.issuer.publish(&[&bench.key, &ed]);
    bench.accepted(&bench.key.token(&bench.claims())).await;
    let mut header = bench.key.header();
    header["typ"] = json!("JWT");
    Bench::is_refused(&bench.verify(&bench.key.sign(&header, &bench.claims())).await, "typ");
    Bench::is_refused(&bench.verify(&ed.token(&bench.claims())).await, "EdDSA");
}

#[tokio::test]
async fn jwk_usage_restrictions_are_respected() {
    let bench = Bench::new().await;
    let changed = |name: &str, value: Value| {
        let mut jwk = bench.key.jwk();
        jwk[name] = value;
        jwk
    };
    let ed = Key::ed("other");
    for (why, jwk) in [
        ("for encryption", changed("use", json!("enc"))),
        ("for signing only", changed("key_ops", json!(["sign"]))),
        ("for another algorithm", changed("alg", json!("ES384"))),
        ("on another curve", changed("crv", json!("P-384"))),
        ("a secret", json!({"kty": "oct", "kid": "k1", "k": "AAAA", "alg": "HS256"})),
        ("too short", json!({"kty": "RSA", "kid": "k1", "n": "AQAB", "e": "AQAB"})),
        ("nonsense", json!(7)),
    ] {
        bench.issuer.publish_raw(vec![jwk, ed.jwk()]);
        bench.advance(31_000);
        let mut claims = bench.claims();
        claims["exp"] = json!(NOW + 10_000);
        bench.accepted(&ed.token(&claims)).await;
        Bench::is_refused(&bench.verify(&bench.key.token(&claims)).await, why);
    }
}

#[tokio::test]
async fn requestors_are_separated_by_tenant_claim_and_client() {
    use bulkhead_identity::auth::TenantRule;
    let bench = Bench::with(|options| {
        let allowed = vec!["acme".to_owned(), "globex".to_owned()];
        options.tenant = TenantRule::Claim { claim: "org".to_owned(), allowed };
        options.client_id_in_principal = true;
    })
    .await;
    let requestor = async |org: &str, client: &str| {
        let mut claims = bench.claims();
        (claims["org"], claims["client_id"]) = (json!(org), json!(client));
        bench.verify(&bench.key.token(&claims)).await
    };
    let acme = requestor("acme", "app").await.expect("a requestor").requestor;
    let globex = requestor("globex", "app").await.expect("a requestor").requestor;
    let other = requestor("acme", "other").await.expect("a requestor").requestor;
    assert_ne!(acme.tenant, globex.tenant);
    assert_ne!(acme.id, globex.id, "one person in two tenants is two requestors");
    assert_eq!(acme.tenant, other.tenant);
    assert_ne!(acme.id, other.id);
    assert_eq!(requestor("acme", "app").await.expect("a requestor").requestor, acme);
    for org in ["default", "ACME", "", "acme/x"] {
        Bench::is_refused(&requestor(org, "app").await, org);
    }
    Bench::is_refused(&bench.verify(&bench.key.token(&bench.claims())).await, "no tenant");
}

#[tokio::test]
async fn tenant_may_be_named_by_any_token_claim() {
    use bulkhead_identity::auth::TenantRule;
    for claim in ["sub", "client_id", "azp", "org"] {
        let bench = Bench::with(|options| {
            options.tenant = TenantRule::Claim { claim: claim.to_owned(), allowed: vec!["acme".to_owned()] };
        })
        .await;
        let mut claims = bench.claims();
        claims[claim] = json!("acme");
        assert_eq!(bench.verify(&bench.key.token(&claims)).await.expect("a tenant").tenant, "acme", "{claim}");
        claims[claim] = json!("globex");
        Bench::is_refused(&bench.verify(&bench.key.token(&claims)).await, claim);
    }
}

#[tokio::test]
async fn token_of_another_issuer_is_refused() {
    let bench = Bench::new().await;
    let stranger = Key::ec("k1");
    let other = Issuer::start(&[&stranger]).await;
    let mut claims = bench.claims();
    // By the key of the other one, in the name of either.
    Bench::is_refused(&bench.verify(&stranger.token(&claims)).await, "a forged name");
    claims["iss"] = json!(other.url);
    Bench::is_refused(&bench.verify(&stranger.token(&claims)).await, "an issuer that nobody trusts");
    assert_eq!(other.asked(), 0, "a token cannot send the host anywhere");
}
