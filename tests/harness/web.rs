//! A web server that components are fetched from: over TLS, as honest or as hostile as a test wants it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What is answered to a path.
#[derive(Clone)]
pub enum Answer {
    Body(Vec<u8>),
    /// The length of it all, but not all of it.
    CutOff(Vec<u8>),
    Redirect(String),
    /// A body that does not end.
    Endless,
    /// Nothing, for a long time.
    Silence,
}

/// A server at `https://localhost:PORT`. Dropping it ends it.
pub struct Web {
    port: u16,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Web {
    /// A server that has nothing.
    pub async fn start() -> Self {
        let key =
            PrivateKeyDer::try_from(include_bytes!("../../host/runtime/src/tests/tls/localhost.key.der").as_slice());
        let certificate = include_bytes!("../../host/runtime/src/tests/tls/localhost.der").as_slice();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.into()], key.expect("a key"))
            .expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let answers = Arc::<Mutex<HashMap<_, _>>>::default();
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let theirs = Arc::clone(&answers);
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let answers = Arc::clone(&theirs);
                let seen = Arc::clone(&log);
                tokio::spawn(async move {
                    // A client that does not trust us is not there.
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => request.push(byte),
                            Err(_) => return,
                        }
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                    seen.lock().push(path.clone());
                    let found = answers.lock().get(&path).cloned();
                    // A client that has heard enough closes.
                    let _ = answer(&mut stream, found).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, answers, seen, task }
    }

    /// From now on this is answered to this path.
    pub fn has(&self, path: &str, answer: Answer) {
        self.answers.lock().insert(path.to_owned(), answer);
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// The same place under a name that the configuration does not have.
    pub fn numeric_url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// Every path that was asked for.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }

    /// `[sources]` of a host that may fetch from here; the certificate is written into the folder.
    pub fn section(&self, folder: &Path) -> String {
        let path: PathBuf = folder.join("root.pem");
        let der = include_bytes!("../../host/runtime/src/tests/tls/root.der");
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        std::fs::write(&path, pem).expect("the certificate is written");
        format!("[sources]\nprivate_hosts = ['localhost']\nroots = [{path:?}]\n")
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), found: Option<Answer>) -> std::io::Result<()> {
    let head = |status: &str, more: &str| format!("HTTP/1.1 {status}\r\nconnection: close\r\n{more}\r\n\r\n");
    let length = |bytes: &[u8]| format!("content-length: {}", bytes.len());
    match found {
        None => stream.write_all(head("404 Not Found", "content-length: 0").as_bytes()).await,
        Some(Answer::Redirect(to)) => {
            let more = format!("location: {to}\r\ncontent-length: 0");
            stream.write_all(head("302 Found", &more).as_bytes()).await
        }
        Some(Answer::Body(bytes)) => {
            stream.write_all(head("200 OK", &length(&bytes)).as_bytes()).await?;
            stream.write_all(&bytes).await
        }
        Some(Answer::CutOff(bytes)) => {
            stream.write_all(head("200 OK", &length(&bytes)).as_bytes()).await?;
            stream.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default()).await
        }
        Some(Answer::Endless) => {
            stream.write_all(head("200 OK", "content-type: application/wasm").as_bytes()).await?;
            loop {
                stream.write_all(&[0; 64 << 10]).await?;
            }
        }
        Some(Answer::Silence) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            Ok(())
        }
    }
}
