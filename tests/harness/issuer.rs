//! An authorization server of the tests: real keys, real signatures, and the misfortunes of real ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

const RSA: [&[u8]; 2] = [include_bytes!("keys/rsa1.pk8.der"), include_bytes!("keys/rsa2.pk8.der")];

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// A key that signs tokens.
pub struct Key {
    kid: String,
    pair: Pair,
}

fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    /// One of two; making RSA keys takes too long.
    pub fn rsa(kid: &str, which: usize) -> Self {
        let pair = RsaKeyPair::from_pkcs8(RSA[which]).expect("a key");
        Self { kid: kid.to_owned(), pair: Pair::Rsa(Box::new(pair)) }
    }

    /// A new one on P-256.
    pub fn ec(kid: &str) -> Self {
        let random = SystemRandom::new();
        let bytes = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes.as_ref(), &random);
        Self { kid: kid.to_owned(), pair: Pair::Ec(pair.expect("a key")) }
    }

    /// A new one of Ed25519.
    pub fn ed(kid: &str) -> Self {
        let bytes = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8(bytes.as_ref()).expect("a key");
        Self { kid: kid.to_owned(), pair: Pair::Ed(pair) }
    }

    /// The algorithm that belongs to it.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
        }
    }

    /// The public half, as issuers publish it.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let parts: PublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({"kty": "RSA", "n": base64(&parts.n), "e": base64(&parts.e)})
            }
            Pair::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": base64(x), "y": base64(y)})
            }
            Pair::Ed(pair) => json!({"kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key().as_ref())}),
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.algorithm());
        jwk
    }

    /// The public half as bytes, for those who take it for a secret.
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) => pair.public().as_ref().to_vec(),
            Pair::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// The header that belongs to it.
    pub fn header(&self) -> Value {
        json!({"typ": "at+jwt", "alg": self.algorithm(), "kid": self.kid})
    }

    /// A token with its own header.
    pub fn token(&self, claims: &Value) -> String {
        self.sign(&self.header(), claims)
    }

    /// A token with any header.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).expect("a signature");
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, message.as_bytes()).expect("a signature").as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", base64(&signature))
    }
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()))
}

/// A token that nobody signed.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.", message(header, claims))
}

/// A token that is "signed" with a secret.
pub fn keyed(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = message(header, claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    format!("{message}.{}", base64(ring::hmac::sign(&key, message.as_bytes()).as_ref()))
}

/// What is given for a code, once.
struct Grant {
    id_token: String,
    scope: Option<String>,
    challenge: String,
    redirect_uri: String,
    client_id: String,
}

#[derive(Default)]
struct Told {
    /// Codes that were not exchanged yet.
    grants: Mutex<HashMap<String, Grant>>,
    codes: AtomicUsize,
    /// What a client has to show beside its id; without one it is public.
    client_secret: Mutex<Option<String>>,
    exchanged: AtomicUsize,
    keys: Mutex<Vec<Value>>,
    /// What the metadata says beside the usual.
    issuer: Mutex<String>,
    /// Opaque tokens and what is said about them.
    opaque: Mutex<HashMap<String, Value>>,
    asked: AtomicUsize,
    introspected: AtomicUsize,
    credentials: Mutex<Vec<String>>,
    down: AtomicBool,
    /// Whether tokens that it does not know are too many for it.
    stingy: AtomicBool,
    /// How long each answer takes.
    delay_ms: AtomicU64,
}

/// A running issuer. It is gone when this is dropped.
pub struct Issuer {
    /// As it stands in tokens.
    pub url: String,
    told: Arc<Told>,
    task: tokio::task::JoinHandle<()>,
}

impl Issuer {
    /// Publishes these keys.
    pub async fn start(keys: &[&Key]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/realm", listener.local_addr().expect("an address"));
        let told = Arc::new(Told::default());
        url.clone_into(&mut told.issuer.lock());
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server/realm", get(metadata))
            .route("/keys", get(keys_of))
            .route("/introspect", post(introspect))
            .route("/token", post(exchange))
            .with_state(Arc::clone(&told));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("an issuer") });
        let issuer = Self { url, told, task };
        issuer.publish(keys);
        issuer
    }

    /// The address of something of this issuer.
    pub fn at(&self, path: &str) -> String {
        self.url.replace("/realm", path)
    }

    /// From now on these are its keys.
    pub fn publish(&self, keys: &[&Key]) {
        *self.told.keys.lock() = keys.iter().map(|key| key.jwk()).collect();
    }

    /// From now on this is its set of keys, whatever it means.
    pub fn publish_raw(&self, keys: Vec<Value>) {
        *self.told.keys.lock() = keys;
    }

    /// Its metadata names another issuer.
    pub fn pretend(&self, issuer: &str) {
        issuer.clone_into(&mut self.told.issuer.lock());
    }

    /// Lets somebody in who was sent to this address, as the id token says that is made for the nonce; where the
    /// browser is sent then.
    pub fn authorize(&self, address: &str, scope: Option<&str>, id_token: impl FnOnce(&str) -> String) -> String {
        let asked = reqwest::Url::parse(address).expect("an address");
        assert_eq!(asked.path(), "/authorize");
        let asked: HashMap<_, _> = asked.query_pairs().into_owned().collect();
        assert_eq!((asked["response_type"].as_str(), asked["code_challenge_method"].as_str()), ("code", "S256"));
        assert!(asked["scope"].split(' ').any(|scope| scope == "openid"), "{asked:?}");
        let code = format!("code-{}-of-a-login", self.told.codes.fetch_add(1, Ordering::Relaxed));
        let grant = Grant {
            id_token: id_token(&asked["nonce"]),
            scope: scope.map(str::to_owned),
            challenge: asked["code_challenge"].clone(),
            redirect_uri: asked["redirect_uri"].clone(),
            client_id: asked["client_id"].clone(),
        };
        self.told.grants.lock().insert(code.clone(), grant);
        format!("{}?code={code}&state={}", asked["redirect_uri"], asked["state"])
    }

    /// From now on clients have to show this when they exchange codes.
    pub fn set_client_secret(&self, secret: &str) {
        *self.told.client_secret.lock() = Some(secret.to_owned());
    }

    /// How often somebody wanted to exchange a code.
    pub fn exchanged(&self) -> usize {
        self.told.exchanged.load(Ordering::Relaxed)
    }

    /// What is said about an opaque token.
    pub fn knows(&self, token: &str, answer: Value) {
        self.told.opaque.lock().insert(token.to_owned(), answer);
    }

    /// Whether it answers nothing but errors.
    pub fn set_down(&self, down: bool) {
        self.told.down.store(down, Ordering::Relaxed);
    }

    /// Whether it takes no questions about tokens that it does not know.
    pub fn set_stingy(&self, stingy: bool) {
        self.told.stingy.store(stingy, Ordering::Relaxed);
    }

    /// From now on each answer takes so long.
    pub fn set_delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).expect("a short time");
        self.told.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// How often its keys were asked for.
    pub fn asked(&self) -> usize {
        self.told.asked.load(Ordering::Relaxed)
    }

    /// How often it was asked about a token.
    pub fn introspected(&self) -> usize {
        self.told.introspected.load(Ordering::Relaxed)
    }

    /// The `Authorization` headers of those who asked.
    pub fn credentials(&self) -> Vec<String> {
        self.told.credentials.lock().clone()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Answer = Result<Json<Value>, StatusCode>;

async fn up(told: &Told) -> Result<(), StatusCode> {
    tokio::time::sleep(Duration::from_millis(told.delay_ms.load(Ordering::Relaxed))).await;
    if told.down.load(Ordering::Relaxed) { Err(StatusCode::SERVICE_UNAVAILABLE) } else { Ok(()) }
}

async fn metadata(State(told): State<Arc<Told>>, headers: HeaderMap) -> Answer {
    up(&told).await?;
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let issuer = told.issuer.lock().clone();
    let at = |path: &str| format!("http://{host}/{path}");
    let keys = at("keys");
    let authorize = at("authorize");
    let token = at("token");
    Ok(Json(json!({"issuer": issuer, "jwks_uri": keys, "authorization_endpoint": authorize, "token_endpoint": token})))
}

async fn keys_of(State(told): State<Arc<Told>>) -> Answer {
    told.asked.fetch_add(1, Ordering::Relaxed);
    up(&told).await?;
    Ok(Json(json!({"keys": *told.keys.lock()})))
}

async fn introspect(State(told): State<Arc<Told>>, headers: HeaderMap, form: String) -> Answer {
    told.introspected.fetch_add(1, Ordering::Relaxed);
    up(&told).await?;
    let credentials = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    told.credentials.lock().push(credentials.to_owned());
    let token = form.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
    let known = told.opaque.lock().get(token).cloned();
    if known.is_none() && told.stingy.load(Ordering::Relaxed) {
        return Err(StatusCode::TOO_MANY_REQUESTS);
    }
    Ok(Json(known.unwrap_or_else(|| json!({"active": false}))))
}

/// Exchanges a code as RFC 6749 and RFC 7636 want it: for the client that it was given to, and once.
async fn exchange(
    State(told): State<Arc<Told>>,
    headers: HeaderMap,
    form: String,
) -> Result<(StatusCode, Json<Value>), StatusCode> {
    told.exchanged.fetch_add(1, Ordering::Relaxed);
    up(&told).await?;
    let form = reqwest::Url::parse(&format!("http://form/?{form}")).expect("a form");
    let form: HashMap<_, _> = form.query_pairs().into_owned().collect();
    let given = |name: &str| form.get(name).cloned().unwrap_or_default();
    let refused = |error: &str| Ok((StatusCode::BAD_REQUEST, Json(json!({"error": error}))));
    let Some(grant) = told.grants.lock().remove(&given("code")) else { return refused("invalid_grant") };
    let shown = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_known = match &*told.client_secret.lock() {
        None => shown.is_empty() && given("client_id") == grant.client_id,
        Some(secret) => {
            let basic = base64::engine::general_purpose::STANDARD.encode(format!("{}:{secret}", grant.client_id));
            shown == format!("Basic {basic}")
        }
    };
    if !is_known {
        return refused("invalid_client");
    }
    let challenge = base64(ring::digest::digest(&ring::digest::SHA256, given("code_verifier").as_bytes()).as_ref());
    let fits = given("grant_type") == "authorization_code" && given("redirect_uri") == grant.redirect_uri;
    if !fits || challenge != grant.challenge {
        return refused("invalid_grant");
    }
    let mut answer = json!({
        "access_token": "access-token-of-a-login", "token_type": "Bearer", "expires_in": 300, "id_token": grant.id_token,
    });
    if let Some(scope) = grant.scope {
        answer["scope"] = json!(scope);
    }
    Ok((StatusCode::OK, Json(answer)))
}
