//! A host on the open network: TLS, proxies, and what it refuses to do without them.

use std::net::IpAddr;

use bulkhead_net::address::Network;
use bulkhead_net::client::{Client, Request};
use bulkhead_net::dial::{self, Stream};
use tests::wait::{soon, until};
use tests::{Host, Setup};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PAIRS: [(&str, &str, &[u8]); 2] = [
    (
        include_str!("../harness/keys/host1.pem"),
        include_str!("../harness/keys/host1.key.pem"),
        include_bytes!("../harness/keys/root1.der"),
    ),
    (
        include_str!("../harness/keys/host2.pem"),
        include_str!("../harness/keys/host2.key.pem"),
        include_bytes!("../harness/keys/root2.der"),
    ),
];

fn put_pair(setup: &Setup, which: usize) {
    std::fs::write(setup.path("host.pem"), PAIRS[which].0).expect("a certificate");
    std::fs::write(setup.path("host.key"), PAIRS[which].1).expect("a key");
}

fn tls_setup(further: &str) -> Setup {
    let tls = "tls = { certificate = \"host.pem\", key = \"host.key\" }";
    let setup = Setup::with(&["text"]).config(&format!("[server]\n{tls}\n{further}"));
    put_pair(&setup, 0);
    setup
}

/// Trusts one of the two roots.
fn trusting(which: usize) -> std::sync::Arc<rustls::ClientConfig> {
    dial::tls_config(&[PAIRS[which].2.into()]).expect("a root")
}

/// Whether the host can be spoken to by somebody who trusts one of the two roots.
async fn is_trusted(host: &Host, which: usize) -> bool {
    let client = Client { networks: Network::loopback().to_vec(), ..Client::new(trusting(which)) };
    let request = Request::new(reqwest::Method::GET, host.address("/healthz").parse().expect("an address"));
    client.fetch_document(request, 5_000, 1 << 16).await.is_ok_and(|(status, _)| status == 200)
}

async fn health_on(stream: &mut Box<dyn Stream>) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("a request");
    let mut answer = vec![0; 4096];
    let length = soon("an answer", stream.read(&mut answer)).await.expect("an answer");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[tokio::test]
async fn new_tls_certificate_is_loaded_without_dropping_connections() {
    let setup = tls_setup("");
    let host = setup.start().await;
    assert!(host.url.starts_with("https://"), "{}", host.url);
    assert!(is_trusted(&host, 0).await && !is_trusted(&host, 1).await);
    let port: u16 = host.address("").rsplit(':').next().expect("a port").parse().expect("a port");
    let mut open = dial::connect("127.0.0.1", port, Some(trusting(0)), |_: IpAddr| true).await.expect("a connection");
    assert!(health_on(&mut open).await.starts_with("HTTP/1.1 200"));

    // Half of a new pair, then nonsense: the former one goes on.
    std::fs::write(setup.path("host.pem"), PAIRS[1].0).expect("a certificate");
    until("the host to see it", async || host.log().contains("goes on serving").then_some(())).await;
    std::fs::write(setup.path("host.key"), "nonsense").expect("a file");
    assert!(is_trusted(&host, 0).await);
    put_pair(&setup, 1);
    until("the new certificate", async || is_trusted(&host, 1).await.then_some(())).await;
    assert!(!is_trusted(&host, 0).await);
    assert!(health_on(&mut open).await.starts_with("HTTP/1.1 200"), "an open connection goes on");
    assert!(!host.log().contains("PRIVATE"), "no key in a log");
    host.terminate().await;
}

#[tokio::test]
async fn connection_without_tls_handshake_times_out() {
    let host = tls_setup("header_read_ms_max = 500").start().await;
    let address = host.address("").replace("https://", "");
    let mut silent = tokio::net::TcpStream::connect(&address).await.expect("a connection");
    let mut plain = tokio::net::TcpStream::connect(&address).await.expect("a connection");
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("a request");
    let mut answer = Vec::new();
    let _ = soon("the end", plain.read_to_end(&mut answer)).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "nothing is said in the clear");
    let mut nothing = Vec::new();
    let _ = soon("the end", silent.read_to_end(&mut nothing)).await;
    assert!(nothing.is_empty());
    assert!(is_trusted(&host, 0).await);
}

#[tokio::test]
async fn unusable_tls_certificate_is_reported_at_start() {
    let setup = tls_setup("");
    std::fs::write(setup.path("host.key"), PAIRS[1].1).expect("a key");
    let (_, said) = setup.refused().await;
    assert!(said.contains("host.pem") && said.contains("host.key"), "{said}");
    std::fs::remove_file(setup.path("host.key")).expect("a key");
    let (_, said) = setup.refused().await;
    assert!(said.contains("host.key") && said.contains("server.tls"), "{said}");
}

#[tokio::test]
async fn open_listen_address_needs_tls_proxy_or_flag() {
    let open = |setup: &Setup| {
        let mut serve = setup.command("serve");
        serve.args(["--listen", "0.0.0.0:0"]).stdin(std::process::Stdio::null()).kill_on_drop(true);
        serve
    };
    let setup = Setup::with(&["text"]);
    setup.token("anna", "acme").await;
    let output = soon("the end", open(&setup).output()).await.expect("the host starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--insecure-allow-plaintext"), "{said}");
    let tls = tls_setup("");
    let output = soon("the end", open(&tls).output()).await.expect("the host starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("token"), "{said}");
}

#[tokio::test]
async fn only_configured_proxies_are_answered() {
    let own = Setup::with(&["text"]).config("[server]\ntrusted_proxies = [\"10.9.9.9\"]");
    own.token("anna", "acme").await;
    let host = own.start().await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let status = async |path: &str| {
        let request = http.post(host.address(path)).header("x-forwarded-for", "10.9.9.9").body("{}");
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(status("/mcp").await, 403);
    assert_eq!(http.get(host.address("/healthz")).send().await.expect("an answer").status(), 200);
    drop(host);
    let own = Setup::with(&["text"]).config("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]");
    let (_, said) = own.refused().await;
    assert!(said.contains("token"), "a proxy brings strangers: {said}");
    own.token("anna", "acme").await;
    let host = own.start().await;
    let answer = http.post(&host.url).body("{}").send().await.expect("an answer");
    assert_eq!(answer.status(), 401);
}
