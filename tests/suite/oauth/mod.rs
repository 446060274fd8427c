//! Access tokens of authorization servers: who gets in, who does not, and what either is told.

mod attacks;
mod keys;
mod opaque;
mod passthrough;
mod records;
mod scopes;
mod stored;

use bulkhead_domain::task::Era;
use std::sync::Arc;

use bulkhead_audit::Audit;
use bulkhead_domain::clock::{ManualClock, SharedClock};
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_identity::auth::{
    Denied, Issuer as Trust, IssuerOptions, OauthVerifier, Sender, TenantRule, Trusted, Verified, Verifier as _,
};
use bulkhead_identity::principal::Principals;
use bulkhead_limits::LiveLimits;
use bulkhead_limits::failures::Failures;
use bulkhead_net::dial;
use bulkhead_store::memory::MemoryStore;
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::issuer::{Issuer, Key};
use tests::modern::Modern;
use tests::{Host, Setup};

/// What the host is called in tokens.
const RESOURCE: &str = "https://mcp.example.com/mcp";

/// Now, in the verifier's own clock: some day in 2026.
const NOW_MS: u64 = 1_795_000_000_000;
const NOW: u64 = NOW_MS / 1000;

/// A verifier in this process, with a clock that the test moves.
struct Bench {
    issuer: Issuer,
    key: Key,
    clock: Arc<ManualClock>,
    verifier: Arc<OauthVerifier>,
    failures: Failures,
}

/// How a verifier treats an issuer, unless a test says otherwise.
fn options(issuer: &Issuer) -> IssuerOptions {
    IssuerOptions {
        issuer: issuer.url.clone(),
        url: issuer.url.parse().expect("an address"),
        audiences: vec![RESOURCE.to_owned()],
        jwks_url: None,
        algorithms: ["RS256", "ES256", "EdDSA"].map(|name| name.parse().expect("an algorithm")).to_vec(),
        tenant: TenantRule::Fixed("acme".to_owned()),
        client_id_in_principal: false,
        require_at_jwt: false,
        clock_skew_ms: 5_000,
        keys_fresh_ms: 10_000,
        keys_stale_ms: 20_000,
        keys_retry_ms: 1_000,
        fetch_ms_max: 5_000,
        private_addresses: Vec::new(),
        introspection: None,
    }
}

impl Bench {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut IssuerOptions)) -> Self {
        let key = Key::ec("k1");
        let issuer = Issuer::start(&[&key]).await;
        let mut options = options(&issuer);
        change(&mut options);
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let trusted =
            Trusted { options, tls: dial::tls_config(&[]).expect("roots"), client_secret: "s&cret".to_owned() };
        let principals = Principals::new(Arc::new(MemoryStore::new()));
        let now: SharedClock = clock.clone();
        let limits = LiveLimits::from(Limits::generous());
        let issuers = vec![Trust::new(trusted, &now)];
        let verifier = Arc::new(OauthVerifier::new(issuers, principals, limits, Audit::off(), now));
        Self { issuer, key, clock, verifier, failures: Failures::new(60) }
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(ms);
    }

    /// The claims of a good token.
    fn claims(&self) -> Value {
        json!({
            "iss": self.issuer.url, "aud": RESOURCE, "sub": "anna", "exp": NOW + 600, "iat": NOW,
            "client_id": "app", "jti": "1", "scope": "read write"
        })
    }

    async fn verify(&self, token: &str) -> Result<Verified, Denied> {
        self.verify_from([127, 0, 0, 1], token).await
    }

    async fn verify_from(&self, address: [u8; 4], token: &str) -> Result<Verified, Denied> {
        let sender = Sender { address: address.into(), failures: &self.failures };
        self.verifier.verify(token, sender).await
    }

    async fn accepted(&self, token: &str) -> Requestor {
        self.verify(token).await.unwrap_or_else(|denied| panic!("{denied}")).requestor
    }

    #[track_caller]
    fn is_refused(outcome: &Result<Verified, Denied>, why: &str) {
        assert!(matches!(outcome, Err(Denied::Invalid)), "{why}: {outcome:?}");
    }
}

/// Claims of a good token for a host of this machine's clock.
fn claims(issuer: &Issuer, subject: &str) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    json!({"iss": issuer.url, "aud": RESOURCE, "sub": subject, "exp": now + 600, "client_id": "app"})
}

/// A host that trusts an issuer; `further` stands below its table.
async fn host(issuer: &Issuer, further: &str) -> Host {
    setup(issuer, further).start().await
}

fn setup(issuer: &Issuer, further: &str) -> Setup {
    let config = format!(
        "[log]\nlevel = \"debug\"\n[server]\ncredential_failures_per_minute = 1000000\n[auth]\nresource = \"{RESOURCE}\"\n[[auth.issuer]]\nissuer = \"{}\"\n\
         tenant = \"acme\"\nkeys_retry_ms = 100\n{further}",
        issuer.url
    );
    Setup::with(&["text", "primes"]).config(&config)
}

#[tokio::test]
async fn oauth_token_is_accepted_in_both_eras() {
    let key = Key::rsa("k1", 0);
    let issuer = Issuer::start(&[&key]).await;
    let host = host(&issuer, "").await;
    let token = key.token(&claims(&issuer, "anna"));
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let task = client.create("count_primes", json!({"below": 10})).await.expect("a task")["taskId"].clone();
    let modern = Modern::full(&host, Some(&token));
    assert!(modern.result("tools/list", json!({})).await["tools"].is_array());

    // Another subject of the same tenant sees nothing of it.
    let other = key.token(&claims(&issuer, "ben"));
    let other = Client::connect_as(&host, Some(&other), all_capabilities()).await;
    let refused = other.call("tasks/get", json!({"taskId": task})).await;
    assert_eq!(refused, other.call("tasks/get", json!({"taskId": "0".repeat(32)})).await);
    // The same subject with a newer token is the same requestor.
    let mut newer = claims(&issuer, "anna");
    newer["jti"] = json!("2");
    let again = Client::connect_as(&host, Some(&key.token(&newer)), all_capabilities()).await;
    again.call("tasks/get", json!({"taskId": task})).await.expect("its own task");
    // The host's own tokens go on beside it.
    let own = host.setup.token("carla", "other").await;
    Client::connect_as(&host, Some(&own), all_capabilities()).await;

    let log = host.log();
    assert!(
        !log.contains(&token) && !log.contains(token.rsplit('.').next().expect("a signature")),
        "no token in a log"
    );
}

#[tokio::test]
async fn protected_resource_metadata_names_the_issuer() {
    let issuer = Issuer::start(&[&Key::ec("k1")]).await;
    let host = host(&issuer, "[[auth.scope]]\nname = \"tools\"\ntools = [\"*\"]\nbasic = true\n").await;
    let wanted = format!(
        r#"{{"resource":"{RESOURCE}","authorization_servers":["{}"],"bearer_methods_supported":["header"],"resource_name":"Bulkhead","scopes_supported":["tools"]}}"#,
        issuer.url
    );
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    for path in ["", "/mcp"] {
        let address = host.address(&format!("/.well-known/oauth-protected-resource{path}"));
        let request = http.get(address).header("origin", "https://anywhere.example");
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        assert_eq!(response.text().await.expect("a text"), wanted);
    }
    let missing = http.get(host.address("/.well-known/oauth-authorization-server")).send().await.expect("an answer");
    assert_eq!(missing.status(), 404);

    let metadata = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
    let challenge = async |authorization: Option<&str>| {
        // What a proxy or a client says about names changes nothing.
        let request = http.post(&host.url).header("x-forwarded-host", "evil.example").body("{}");
        let request = match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        let response = request.send().await.expect("an answer");
        let challenge = response.headers()["www-authenticate"].to_str().expect("text").to_owned();
        (response.status().as_u16(), challenge)
    };
    assert_eq!(challenge(None).await, (401, format!(r#"Bearer resource_metadata="{metadata}", scope="tools""#)));
    assert_eq!(
        challenge(Some("Bearer nonsense")).await,
        (401, format!(r#"Bearer error="invalid_token", resource_metadata="{metadata}", scope="tools""#))
    );
    assert_eq!(
        challenge(Some("Bearer a b")).await,
        (400, format!(r#"Bearer error="invalid_request", resource_metadata="{metadata}", scope="tools""#))
    );
}

#[tokio::test]
async fn every_invalid_token_gets_the_same_answer() {
    let key = Key::ed("k1");
    let issuer = Issuer::start(&[&key]).await;
    let host = host(&issuer, "").await;
    let good = claims(&issuer, "anna");
    let altered = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        key.token(&claims)
    };
    let own = host.setup.token("anna", "acme").await;
    let revoked = host.setup.token("anna", "acme").await;
    let tokens = tests::command::json(&["token", "list"], &host.setup.data()).await;
    let id = tokens["tokens"][1]["id"].as_str().expect("an id").to_owned();
    tests::command::json(&["token", "revoke", &id], &host.setup.data()).await;
    let wrong = [
        ("unknown", "opaque-token".to_owned()),
        ("unknown of the host", format!("bh_{}", "A".repeat(43))),
        ("revoked", revoked),
        ("expired", altered("exp", json!(1_700_000_000))),
        ("another audience", altered("aud", json!("https://other.example.com/mcp"))),
        ("another issuer", altered("iss", json!("https://login.example.com"))),
        ("not yet valid", altered("nbf", json!(4_000_000_000_u64))),
        ("another key", Key::ed("k1").token(&good)),
        ("an unknown key", Key::ed("k2").token(&good)),
        ("unsigned", tests::issuer::unsigned(&json!({"alg": "none"}), &good)),
    ];
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    for version in ["2025-11-25", "2026-07-28"] {
        let send_as = async |method: &str, token: &str| {
            let request = http.post(&host.url).bearer_auth(token).header("mcp-protocol-version", version);
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}).to_string();
            let response = request.body(body).send().await.expect("an answer");
            let headers = response.headers().iter().filter(|(name, _)| *name != "date");
            let headers: Vec<_> = headers.map(|(name, value)| format!("{name}: {value:?}")).collect();
            (response.status().as_u16(), headers, response.text().await.expect("a text"))
        };
        let send = async |token: &str| send_as("ping", token).await;
        let first = send("another-opaque-token").await;
        assert_eq!(first.0, 401);
        for (why, token) in &wrong {
            assert_eq!(send(token).await, first, "{why}");
        }
        // Nobody has read what it is about by then.
        let legacy = bulkhead_protocol::method_names(Era::Legacy);
        let methods = legacy.chain(bulkhead_protocol::method_names(Era::Modern));
        for method in methods {
            for (why, token) in wrong.iter().filter(|(why, _)| matches!(*why, "expired" | "another audience")) {
                assert_eq!(send_as(method, token).await, first, "{method} with a token that is {why}");
            }
        }
        // These are let in, and then refused for what they sent.
        assert_ne!(send(&own).await.0, 401);
        assert_ne!(send(&key.token(&good)).await.0, 401);
    }
    // A query is no place for a token.
    let url = format!("{}?access_token={}", host.url, key.token(&good));
    let response = http.post(url).body("{}").send().await.expect("an answer");
    assert_eq!(response.status(), 401);
}
