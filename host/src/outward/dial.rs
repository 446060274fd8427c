//! The way to an address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
/// [`normal_host`](crate::domain::address::normal_host).
///
/// # Errors
/// [`DialError`]; time is bounded by the caller.
pub async fn connect(
    host: &str,
    port: u16,
    tls: Option<Arc<rustls::ClientConfig>>,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<Box<dyn Stream>, DialError> {
    let allowed = resolve(host, port, may_reach).await?;
    let stream = connect_first(&allowed).await?;
    // Small requests go out at once.
    let _ = stream.set_nodelay(true);
    let Some(config) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| DialError::Name)?;
    Ok(Box::new(TlsConnector::from(config).connect(name, stream).await.map_err(DialError::Tls)?))
}

/// The addresses of a host that may be reached. One forbidden address makes none of the others wrong.
pub(crate) async fn resolve(
    host: &str,
    port: u16,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<Vec<SocketAddr>, DialError> {
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port)).await.map_err(DialError::Lookup)?.collect(),
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
