//! Registries that lie, send without end, or send us where we must not go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_plugins::sources::oci;
use bulkhead_plugins::sources::{Error, FetchOptions, Fetched, Source};
use futures::stream;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tests::wait::soon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::registry::{fetching, keys, logins, reference, trusting};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const COMPONENT: &[u8] = b"whatever this is";

/// What a server was asked for.
#[derive(Clone, Debug)]
struct RecordedRequest {
    method: Method,
    path: String,
    authorization: Option<String>,
}

/// A server of this machine whose answers a test makes up.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Server {
    /// On a loopback address: each of 127/8 is another host.
    async fn start(host: &str, answer: impl Fn(&RecordedRequest) -> Response<Body> + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let answer = Arc::new(answer);
        let app = axum::Router::new().fallback(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            let answer = Arc::clone(&answer);
            async move {
                let header = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
                let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
                let asked =
                    RecordedRequest { method: request.method().clone(), path, authorization: header("authorization") };
                log.lock().push(asked.clone());
                answer(&asked)
            }
        });
        let listener = tokio::net::TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<RecordedRequest> {
        self.asked.lock().clone()
    }

    async fn fetch(&self, fetching: &FetchOptions) -> Result<Fetched, Error> {
        self.fetch_by(":1", fetching).await
    }

    async fn fetch_by(&self, which: &str, fetching: &FetchOptions) -> Result<Fetched, Error> {
        let reference = reference(&format!("oci://{}/acme/x{which}", self.address));
        soon("a fetch to end", oci::fetch(&reference, fetching, true)).await
    }
}

fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

fn manifest_of(size: u64) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(b"{}"), "size": 2 },
        "layers": [{ "mediaType": "application/wasm", "digest": digest(COMPONENT), "size": size }],
    })
    .to_string()
}

fn manifest() -> String {
    manifest_of(COMPONENT.len() as u64)
}

fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    *response.headers_mut() = map;
    response
}

fn absent() -> Response<Body> {
    response(404, &[], r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#)
}

/// A body that has no end.
fn endless() -> Body {
    let chunk = Bytes::from(vec![b' '; 64 << 10]);
    Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone())))
}

/// What an honest registry says; `blob` says what it answers for the component.
fn honest(asked: &RecordedRequest, blob: impl Fn() -> Response<Body>) -> Response<Body> {
    match asked.path.as_str() {
        "/v2/acme/x/manifests/1" => response(200, &[("content-type", MANIFEST)], manifest()),
        path if path == format!("/v2/acme/x/blobs/{}", digest(COMPONENT)) => blob(),
        _ => absent(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn honest_registry_gives_the_component() {
    let server = Server::start("127.0.0.1", |asked| honest(asked, || response(200, &[], COMPONENT))).await;
    let fetched = server.fetch(&fetching()).await.unwrap();
    assert_eq!(fetched.bytes, COMPONENT);
    assert_eq!(fetched.origin, format!("oci://{}/acme/x:1@{}", server.address, digest(manifest().as_bytes())));
    assert!(server.asked().iter().all(|asked| asked.authorization.is_none() && asked.method == Method::GET));
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_digest_mismatch_names_expected_and_found() {
    let other = b"something else!!";
    assert_eq!(other.len(), COMPONENT.len());
    let blob = Server::start("127.0.0.1", |asked| honest(asked, || response(200, &[], &other[..]))).await;
    let refused = blob.fetch(&fetching()).await.unwrap_err().to_string();
    for part in [digest(COMPONENT), digest(other)] {
        assert!(refused.contains(part.trim_start_matches("sha256:")), "{refused}");
    }

    // The registry itself says that the manifest has another digest.
    let header = Server::start("127.0.0.1", |asked| match asked.path.as_str() {
        "/v2/acme/x/manifests/1" => response(200, &[("docker-content-digest", &digest(b"x"))], manifest()),
        _ => absent(),
    })
    .await;
    let refused = header.fetch(&fetching()).await.unwrap_err();
    assert!(matches!(&refused, Error::Digest { what, .. } if what.contains("manifest")), "{refused}");

    // Asked for one digest, it gives another manifest.
    let swapped = Server::start("127.0.0.1", |_| response(200, &[], manifest())).await;
    let refused = swapped.fetch_by(&format!("@{}", digest(b"wanted")), &fetching()).await.unwrap_err();
    assert!(matches!(&refused, Error::Digest { what, .. } if what.contains("manifest")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_registry_component_is_refused() {
    let short = Server::start("127.0.0.1", |asked| honest(asked, || response(200, &[], &COMPONENT[..5]))).await;
    let refused = short.fetch(&fetching()).await.unwrap_err().to_string();
    assert!(refused.contains("truncated: expected 16 bytes, found 5"), "{refused}");

    let broken = Server::start("127.0.0.1", |asked| {
        honest(asked, || {
            let pieces = stream::unfold(0, |sent| async move {
                // The first has time to arrive.
                tokio::time::sleep(Duration::from_millis(100 * sent)).await;
                let piece = if sent == 0 {
                    Ok(Bytes::from_static(&COMPONENT[..5]))
                } else {
                    Err(std::io::Error::other("gone"))
                };
                Some((piece, sent + 1))
            });
            response(200, &[], Body::from_stream(pieces))
        })
    })
    .await;
    let refused = broken.fetch(&fetching()).await.unwrap_err().to_string();
    assert!(refused.contains("cut off after 5"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_registry_response_is_bounded() {
    let blob = Server::start("127.0.0.1", |asked| honest(asked, || response(200, &[], endless()))).await;
    let refused = blob.fetch(&fetching()).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { bytes_max: 16, .. }), "{refused}");

    let manifest = Server::start("127.0.0.1", |_| response(200, &[], endless())).await;
    let refused = manifest.fetch(&fetching()).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");

    let error = Server::start("127.0.0.1", |_| response(500, &[], endless())).await;
    let refused = error.fetch(&fetching()).await.unwrap_err().to_string();
    assert!(refused.contains("500"), "{refused}");

    // One that says beforehand that it is too large is not even asked for its component.
    let large = Server::start("127.0.0.1", |asked| match asked.path.as_str() {
        "/v2/acme/x/manifests/1" => response(200, &[], manifest_of(1 << 40)),
        _ => absent(),
    })
    .await;
    let refused = large.fetch(&fetching()).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    assert!(large.asked().iter().all(|asked| !asked.path.contains("/blobs/")), "{:?}", large.asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_registry_times_out() {
    let trickle = || {
        let slowly = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        });
        Body::from_stream(slowly)
    };
    let server = Server::start("127.0.0.1", move |_| response(200, &[], trickle())).await;
    let impatient = FetchOptions { fetch_max: Duration::from_millis(300), ..fetching() };
    let refused = server.fetch(&impatient).await.unwrap_err();
    assert!(matches!(refused, Error::TooSlow { ms: 300, .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_redirect_to_private_address_is_refused() {
    let inside = Server::start("127.0.0.2", |_| response(200, &[], COMPONENT)).await;
    let to = format!("http://{}/secret?signed=query", inside.address);
    let server =
        Server::start("127.0.0.1", move |asked| honest(asked, || response(307, &[("location", &to)], ""))).await;
    let refused = server.fetch(&fetching()).await.unwrap_err();
    assert!(matches!(&refused, Error::Private { host, .. } if host == "127.0.0.2"), "{refused}");
    assert!(
        refused.to_string().contains("sources.private_hosts") && !refused.to_string().contains("query"),
        "{refused}"
    );
    assert!(inside.asked().is_empty(), "{:?}", inside.asked());

    // The same place at another port is another place: there may be a database.
    let here = Server::start("127.0.0.1", |_| response(200, &[], COMPONENT)).await;
    let to = format!("http://{}/", here.address);
    let server =
        Server::start("127.0.0.1", move |asked| honest(asked, || response(302, &[("location", &to)], ""))).await;
    let refused = server.fetch(&fetching()).await.unwrap_err();
    assert!(matches!(refused, Error::Private { .. }), "{refused}");
    assert!(here.asked().is_empty());

    // Named, it is reached, and gets what its address holds.
    let named = FetchOptions { private_hosts: vec!["127.0.0.2".to_owned()], ..fetching() };
    let to = format!("http://{}/open?signed=query", inside.address);
    let server =
        Server::start("127.0.0.1", move |asked| honest(asked, || response(307, &[("location", &to)], ""))).await;
    assert_eq!(server.fetch(&named).await.unwrap().bytes, COMPONENT);
    assert_eq!(inside.asked()[0].path, "/open?signed=query");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_or_endless_registry_redirect_is_refused() {
    for (to, part) in [
        ("http://example.com/x", "over http"),
        ("ftp://example.com/x", "only https"),
        ("https://alice:secret@example.com/x", "a name or a password"),
        ("https://169.254.169.254/latest/meta-data", "169.254.169.254 is at"),
        ("https://[::ffff:10.0.0.1]/", "not a public address"),
        ("/v2/acme/x/manifests/1", "cut off"),
    ] {
        let to = to.to_owned();
        let location = to.clone();
        let server =
            Server::start("127.0.0.1", move |asked| honest(asked, || response(302, &[("location", &location)], "")))
                .await;
        let refused = server.fetch(&fetching()).await.map(|_| ()).unwrap_err().to_string();
        if part == "cut off" {
            // A manifest in place of the component is more than the component may have.
            assert!(refused.contains("more than 16 bytes"), "{refused}");
        } else {
            assert!(refused.contains(part) && !refused.contains("secret"), "{to}: {refused}");
        }
    }
    let circle = Server::start("127.0.0.1", |_| response(302, &[("location", "/v2/again")], "")).await;
    let refused = circle.fetch(&fetching()).await.unwrap_err().to_string();
    assert!(refused.contains("redirected more than 5 times"), "{refused}");
    assert_eq!(circle.asked().len(), 6);
}

/// `alice:secret`.
const BASIC: &str = "Basic YWxpY2U6c2VjcmV0";

#[tokio::test(flavor = "multi_thread")]
async fn registry_password_is_not_sent_along_redirects() {
    let storage = Server::start("127.0.0.2", |_| response(200, &[], COMPONENT)).await;
    let to = format!("http://{}/blob", storage.address);
    let server = Server::start("127.0.0.1", move |asked| match asked.authorization.as_deref() {
        Some(BASIC) => honest(asked, || response(307, &[("location", &to)], "")),
        _ => response(401, &[("www-authenticate", "Basic realm=\"registry\"")], ""),
    })
    .await;
    let named = FetchOptions { private_hosts: vec!["127.0.0.2".to_owned()], ..fetching() };
    let refused = server.fetch(&named).await.unwrap_err().to_string();
    assert!(refused.contains("docker login"), "{refused}");

    let known = FetchOptions { logins: logins(&server.address.to_string(), "alice", "secret"), ..named };
    assert_eq!(server.fetch(&known).await.unwrap().bytes, COMPONENT);
    let storage = storage.asked();
    assert!(storage.len() == 1 && storage[0].authorization.is_none(), "{storage:?}");
    assert!(!format!("{known:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_token_comes_from_the_named_service() {
    let tokens = Server::start("127.0.0.2", |asked| match asked.authorization.as_deref() {
        Some(BASIC) => response(200, &[], r#"{"token":"t0ken"}"#),
        _ => response(401, &[], ""),
    })
    .await;
    let challenge = format!("Bearer realm=\"http://{}/token\",service=\"the registry\",scope=\"x\"", tokens.address);
    let asks = challenge.clone();
    let server = Server::start("127.0.0.1", move |asked| match asked.authorization.as_deref() {
        Some("Bearer t0ken") => honest(asked, || response(200, &[], COMPONENT)),
        _ => response(401, &[("www-authenticate", &asks)], ""),
    })
    .await;
    let known = FetchOptions { logins: logins(&server.address.to_string(), "alice", "secret"), ..fetching() };
    let refused = server.fetch(&known).await.unwrap_err();
    assert!(matches!(refused, Error::Private { .. }), "{refused}");
    assert!(tokens.asked().is_empty(), "a password went to a private address that nobody named");

    let known = FetchOptions { private_hosts: vec!["127.0.0.2".to_owned()], ..known };
    assert_eq!(server.fetch(&known).await.unwrap().bytes, COMPONENT);
    let asked = tokens.asked();
    assert_eq!(asked.len(), 1, "one token is enough for a fetch");
    assert_eq!(asked[0].path, "/token?scope=repository%3Aacme%2Fx%3Apull&service=the+registry");

    let wrong = FetchOptions { logins: logins(&server.address.to_string(), "alice", "wr0ng"), ..known };
    let refused = server.fetch(&wrong).await.unwrap_err().to_string();
    assert!(refused.contains("does not accept the credentials") && !refused.contains("wr0ng"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unexpected_registry_response_is_reported() {
    for (status, headers, body, part) in [
        (
            500,
            &[][..],
            r#"{"errors":[{"code":"UNKNOWN","message":"out of\u001b[31m order"}]}"#,
            "UNKNOWN out of[31m order",
        ),
        (429, &[], "slow down", "429"),
        (401, &[("www-authenticate", "Negotiate")], "", "not known here"),
        (401, &[("www-authenticate", "Bearer service=\"x\"")], "", "without saying where"),
        (200, &[], "<html>", "no image manifest"),
        (302, &[], "", "without saying where"),
    ] {
        let server = Server::start("127.0.0.1", move |_| response(status, headers, body)).await;
        let refused = server.fetch(&fetching()).await.unwrap_err().to_string();
        assert!(refused.contains(part), "{status} {body}: {refused}");
    }
}

/// A server behind TLS that answers everything with the component.
async fn behind_tls(host: &str, certificate: &Path, key: &Path) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind((host, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut asked = [0; 4096];
            assert!(stream.read(&mut asked).await.unwrap() > 0);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", COMPONENT.len());
            stream.write_all(&[head.as_bytes(), COMPONENT].concat()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_tls_needs_configured_root_and_right_host() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = folder.path().join("cert.pem");
    let key = folder.path().join("key.pem");
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.2"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let rooted = FetchOptions {
        private_hosts: vec!["127.0.0.2".to_owned(), "127.0.0.3".to_owned()],
        roots: vec![certificate.clone()],
        ..fetching()
    };
    for (host, roots, expected) in [
        ("127.0.0.2", rooted.roots.clone(), Ok(())),
        ("127.0.0.2", Vec::new(), Err("TLS: invalid peer certificate")),
        ("127.0.0.3", rooted.roots.clone(), Err("TLS: invalid peer certificate")),
        ("127.0.0.2", vec![folder.path().join("nothing.pem")], Err("nothing.pem")),
    ] {
        let to = format!("https://{}/blob", behind_tls(host, &certificate, &key).await);
        let server =
            Server::start("127.0.0.1", move |asked| honest(asked, || response(307, &[("location", &to)], ""))).await;
        let done = server.fetch(&FetchOptions { roots, ..rooted.clone() }).await.map_err(|error| error.to_string());
        match (done, expected) {
            (Ok(fetched), Ok(())) => assert_eq!(fetched.bytes, COMPONENT),
            (Err(said), Err(part)) => assert!(said.contains(part), "{host}: {said}"),
            (done, _) => panic!("{host}: {:?}", done.map(|fetched| fetched.origin)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_referrer_bundle_signs_its_subject_only() {
    let folder = tempfile::tempdir().unwrap();
    let (private, public) = keys(folder.path(), "acme");
    let own = digest(manifest().as_bytes());
    for (subject, predicate, is_signature) in [
        (own.clone(), "https://sigstore.dev/cosign/sign/v1", true),
        (digest(b"another"), "https://sigstore.dev/cosign/sign/v1", false),
        (own.clone(), "https://slsa.dev/provenance/v1", false),
    ] {
        let bundle = bundle(&private, &subject, predicate);
        let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let artifact = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": kind,
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2 },
            "layers": [{ "mediaType": kind, "digest": digest(bundle.as_bytes()), "size": bundle.len() }],
        })
        .to_string();
        let entry = json!({ "mediaType": MANIFEST, "digest": digest(artifact.as_bytes()), "size": artifact.len(), "artifactType": kind });
        let index_kind = "application/vnd.oci.image.index.v1+json";
        let index = json!({ "schemaVersion": 2, "mediaType": index_kind, "manifests": [entry] }).to_string();
        // A registry with the API for it, and one that keeps the list under a tag.
        for place in [format!("/v2/acme/x/referrers/{own}"), format!("/v2/acme/x/manifests/{}", own.replace(':', "-"))]
        {
            let index = index.clone();
            let artifact = artifact.clone();
            let bundle = bundle.clone();
            let server = Server::start("127.0.0.1", move |asked| match asked.path.as_str() {
                path if path == place => response(200, &[("content-type", index_kind)], index.clone()),
                path if path.ends_with(&digest(artifact.as_bytes())) => response(200, &[], artifact.clone()),
                path if path.ends_with(&digest(bundle.as_bytes())) => response(200, &[], bundle.clone()),
                _ => honest(asked, || response(200, &[], COMPONENT)),
            })
            .await;
            let fetched = server.fetch(&fetching()).await.unwrap();
            assert_eq!(fetched.signatures.len(), 1, "{:?}", server.asked());
            let source: Source = format!("oci://{}/acme/x:1", server.address).parse().unwrap();
            let verified = trusting(&public).verify(&source, None, fetched);
            assert_eq!(verified.is_ok(), is_signature, "{subject} {predicate}: {verified:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_signatures_are_read_up_to_a_bound() {
    let own = digest(manifest().as_bytes());
    let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
    // As much as one bundle may hold: a long text with very many signatures, each of which would have a copy of it.
    let bundle = |number: usize| {
        let signatures: Vec<_> = (0..5_000).map(|_| json!({ "sig": "AAAA" })).collect();
        let payload = STANDARD.encode(vec![b' '; 100 << 10]);
        let envelope =
            json!({ "payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": signatures });
        json!({ "number": number, "dsseEnvelope": envelope }).to_string()
    };
    let bundles: Vec<_> = (0..40).map(bundle).collect();
    assert!(bundles.iter().all(|bundle| bundle.len() < 256 << 10), "none is too large to be read");
    let artifact = |bundle: &String| {
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": kind,
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(b"{}"), "size": 2 },
            "layers": [{ "mediaType": kind, "digest": digest(bundle.as_bytes()), "size": bundle.len() }],
        })
        .to_string()
    };
    let artifacts: Vec<_> = bundles.iter().map(artifact).collect();
    let entry = |artifact: &String| json!({ "mediaType": MANIFEST, "digest": digest(artifact.as_bytes()), "size": artifact.len(), "artifactType": kind });
    let index_kind = "application/vnd.oci.image.index.v1+json";
    let entries: Vec<_> = artifacts.iter().map(entry).collect();
    let index = json!({ "schemaVersion": 2, "mediaType": index_kind, "manifests": entries }).to_string();
    let blobs: HashMap<_, _> =
        bundles.into_iter().chain(artifacts).map(|text| (digest(text.as_bytes()), text)).collect();
    let server = Server::start("127.0.0.1", move |asked| match asked.path.rsplit('/').next().unwrap_or_default() {
        last if last == own && asked.path.contains("referrers") => {
            response(200, &[("content-type", index_kind)], index.clone())
        }
        last if blobs.contains_key(last) => response(200, &[], blobs[last].clone()),
        _ => honest(asked, || response(200, &[], COMPONENT)),
    })
    .await;
    let fetched = server.fetch(&fetching()).await.unwrap();
    assert_eq!(fetched.signatures.len(), 32);
    let asked = server.asked().iter().filter(|asked| asked.path.contains("/blobs/")).count();
    assert_eq!(asked, 2, "one bundle was enough, and then the component");
}

/// A Sigstore bundle around a signed statement about an artifact. The signature is OpenSSL's.
fn bundle(key: &Path, subject: &str, predicate: &str) -> String {
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{ "digest": { "sha256": subject.trim_start_matches("sha256:") } }],
        "predicateType": predicate,
        "predicate": {},
    })
    .to_string();
    let kind = "application/vnd.in-toto+json";
    let text = key.with_extension("text");
    std::fs::write(&text, format!("DSSEv1 {} {kind} {} {statement}", kind.len(), statement.len())).unwrap();
    let signed = std::process::Command::new("openssl").args(["dgst", "-sha256", "-sign"]).arg(key).arg(&text).output();
    let signed = signed.expect("openssl starts");
    assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
    json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": { "publicKey": { "hint": "unused" } },
        "dsseEnvelope": {
            "payload": STANDARD.encode(&statement),
            "payloadType": kind,
            "signatures": [{ "sig": STANDARD.encode(&signed.stdout) }],
        },
    })
    .to_string()
}
