//! The way to an address.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

/// How long the host waits for a name that it asks for itself.
const LOOKUP_MAX: Duration = Duration::from_secs(10);
/// Names that the host asks for itself at the same time: of issuers, registries and addresses of components.
const LOOKUPS_MAX: usize = 16;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("the name of the host is not valid")]
    Name,
    #[error("the name cannot be resolved: {0}")]
    Lookup(io::Error),
    #[error("the name has no address")]
    NoAddress,
    /// Holds one of its addresses.
    #[error("the name leads to no address that may be reached")]
    Prohibited(IpAddr),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS failed: {0}")]
    Tls(io::Error),
}

/// A connection, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to the first address of a host that may be reached and answers. The host is normal: see
/// [`normal_host`](crate::address::normal_host).
///
/// # Errors
/// [`DialError`]; time is bounded by the caller.
pub async fn connect(
    host: &str,
    port: u16,
    tls: Option<Arc<rustls::ClientConfig>>,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<Box<dyn Stream>, DialError> {
    connect_by(looked_up(host, port), host, port, tls, may_reach).await
}

/// The same where the caller says what a name leads to: it is asked once, unless the host is an address, and what was
/// checked is what is connected to.
///
/// # Errors
/// As [`connect`].
pub async fn connect_by(
    found: impl Future<Output = io::Result<Vec<SocketAddr>>>,
    host: &str,
    port: u16,
    tls: Option<Arc<rustls::ClientConfig>>,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<Box<dyn Stream>, DialError> {
    let allowed = resolve_by(found, host, port, may_reach).await?;
    let stream = connect_first(&allowed).await?;
    // Small requests go out at once.
    let _ = stream.set_nodelay(true);
    let Some(config) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| DialError::Name)?;
    Ok(Box::new(start_tls(config, name, stream).await?))
}

/// Connects to a host that an operator named, wherever it is, without TLS: the protocol asks for that by itself.
pub(crate) async fn connect_plain(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let allowed = resolve_by(looked_up(host, port), host, port, |_| true).await?;
    let stream = connect_first(&allowed).await?;
    // Small requests go out at once.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// The handshake on a connection of [`connect_plain`].
pub(crate) async fn start_tls(
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, DialError> {
    TlsConnector::from(config).connect(name, stream).await.map_err(DialError::Tls)
}

/// The addresses of a host that may be reached. One forbidden address makes none of the others wrong.
async fn resolve_by(
    found: impl Future<Output = io::Result<Vec<SocketAddr>>>,
    host: &str,
    port: u16,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<Vec<SocketAddr>, DialError> {
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => found.await.map_err(DialError::Lookup)?,
    };
    let (allowed, refused): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| may_reach(address.ip()));
    match refused.first() {
        _ if !allowed.is_empty() => Ok(allowed),
        Some(refused) => {
            tracing::warn!(host, "outgoing request refused: the name leads to addresses that are not public");
            Err(DialError::Prohibited(refused.ip()))
        }
        None => Err(DialError::NoAddress),
    }
}

/// Addresses of a name, for requests of the host's own. Asking has a deadline, and the threads that ask are bounded: a
/// resolver that does not answer keeps a thread for longer than anybody waits.
async fn looked_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    static PLACES: Semaphore = Semaphore::const_new(LOOKUPS_MAX);
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the resolver does not answer");
    let addresses = async {
        // Nobody closes it.
        let permit = PLACES.acquire().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            let found = look_up(&host, port);
            drop(permit);
            found
        });
        found.await.map_err(io::Error::other)?
    };
    tokio::time::timeout(LOOKUP_MAX, addresses).await.map_err(|_| late())?
}

/// Addresses of a name. Blocks for as long as the resolver of the system takes.
///
/// # Errors
/// It has none, or the resolver does not answer.
pub fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

async fn connect_first(addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
    let mut last = DialError::NoAddress;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = DialError::Connect(error),
        }
    }
    Err(last)
}

/// What servers are checked against: the roots of the browsers, and further ones.
///
/// # Errors
/// A further root is no certificate.
pub fn tls_config(further: &[CertificateDer<'_>]) -> Result<Arc<rustls::ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in further {
        roots.add(root.clone().into_owned())?;
    }
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use parking_lot::Mutex;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::address::is_public;

    /// Stands for a public address: it is on this machine, so that a test can listen there.
    const GOOD: &str = "127.0.0.2";
    const INSIDE: [&str; 9] = [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
    ];

    fn may_reach(address: IpAddr) -> bool {
        address == GOOD.parse::<IpAddr>().unwrap() || is_public(address)
    }

    /// A name whose owner answers each question with other addresses.
    struct Name {
        answers: Mutex<VecDeque<Vec<&'static str>>>,
    }

    impl Name {
        fn answering(answers: &[&[&'static str]]) -> Self {
            Self { answers: Mutex::new(answers.iter().map(|answer| answer.to_vec()).collect()) }
        }

        fn left(&self) -> usize {
            self.answers.lock().len()
        }

        async fn connect(&self, port: u16) -> Result<Box<dyn Stream>, DialError> {
            let found = async {
                let answer = self.answers.lock().pop_front().expect("nobody asks more often");
                Ok(answer.iter().map(|address| SocketAddr::new(address.parse().unwrap(), port)).collect())
            };
            connect_by(found, "rebound.example", port, None, may_reach).await
        }
    }

    /// Greets whoever comes with the address that they came to, on every address of this machine.
    async fn server() -> (u16, Arc<Mutex<Vec<IpAddr>>>) {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let came = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let at = stream.local_addr().unwrap().ip();
                came.lock().push(at);
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, at.to_string().as_bytes()).await;
            }
        });
        (port, seen)
    }

    async fn greeting(stream: Result<Box<dyn Stream>, DialError>) -> String {
        let mut text = String::new();
        stream.unwrap().read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn dns_rebinding_to_inside_address_is_refused() {
        let (port, seen) = server().await;
        let inside: Vec<_> = INSIDE.iter().map(std::slice::from_ref).collect();
        let name = Name::answering(&[&[&[GOOD][..]], &inside[..]].concat());
        assert_eq!(greeting(name.connect(port).await).await, GOOD);
        assert_eq!(name.left(), INSIDE.len(), "one question for a connection: no other answer comes in between");
        for address in INSIDE {
            let refused = name.connect(port).await.map(drop);
            assert!(matches!(refused, Err(DialError::Prohibited(_))), "{address}: {refused:?}");
        }
        assert_eq!((name.left(), seen.lock().clone()), (0, vec![GOOD.parse::<IpAddr>().unwrap()]));
    }

    #[tokio::test]
    async fn only_allowed_addresses_of_mixed_dns_answers_are_dialed() {
        let (port, seen) = server().await;
        let name = Name::answering(&[&["127.0.0.1", "::1", GOOD, "169.254.169.254"], &[GOOD, "127.0.0.1"]]);
        for _ in 0..2 {
            assert_eq!(greeting(name.connect(port).await).await, GOOD);
        }
        assert!(seen.lock().iter().all(|address| address.to_string() == GOOD));
        // Where the good one does not answer, the others are no way out.
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = Name::answering(&[&[GOOD, "127.0.0.1"], &["127.0.0.1", GOOD]]);
        for _ in 0..2 {
            let refused = name.connect(inside.local_addr().unwrap().port()).await.map(drop);
            assert!(matches!(refused, Err(DialError::Connect(_))), "{refused:?}");
        }
        let came = tokio::time::timeout(std::time::Duration::from_millis(50), inside.accept()).await;
        assert!(came.is_err(), "somebody came in");
    }

    #[tokio::test]
    async fn dns_name_resolving_to_loopback_is_refused() {
        let refused = resolve_by(looked_up("localhost", 80), "localhost", 80, is_public).await;
        assert!(matches!(refused, Err(DialError::Prohibited(_))), "{refused:?}");
        let allowed =
            resolve_by(looked_up("localhost", 80), "localhost", 80, |address| address.is_loopback()).await.unwrap();
        assert!(allowed.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{allowed:?}");
    }
}
