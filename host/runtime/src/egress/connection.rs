//! The connection of a request to an address that a grant lets it reach.

use std::sync::{Arc, OnceLock};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use wasmtime_wasi_http::{Error, WasiBody};

use crate::blocking::Blocking;
use bulkhead_calls::policy::HttpGrant;
use bulkhead_net::AbortOnDrop;
use bulkhead_net::dial::{self, DialError};

/// Bytes of a response's headers.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;

/// Where a request goes.
pub(super) struct Destination<'a> {
    /// Those that let the request through.
    pub(super) grants: &'a [&'a HttpGrant],
    pub(super) tls: bool,
    pub(super) host: &'a str,
    pub(super) port: u16,
}

type Sender = http1::SendRequest<WasiBody>;

pub(super) async fn connect_to(
    blocking: &Blocking,
    destination: &Destination<'_>,
) -> Result<(Sender, impl Future<Output = Result<(), hyper::Error>> + Send + use<>), Error> {
    let &Destination { grants, tls, host, port } = destination;
    let tls = if tls { Some(tls_config()?) } else { None };
    let may_reach = |address| grants.iter().any(|grant| grant.may_reach(address));
    let found = blocking.look_up(host, port);
    let stream = dial::connect_by(found, host, port, tls, may_reach).await.map_err(in_wasi_words)?;
    http1::Builder::new().max_buf_size(HEADER_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(Error::Hyper)
}

/// Made at the first request; the roots are those of the browsers.
fn tls_config() -> Result<Arc<rustls::ClientConfig>, Error> {
    static CONFIG: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    #[cfg(not(test))]
    let further = [];
    // The suites have a server of their own.
    #[cfg(test)]
    let further = [include_bytes!("../tests/tls/root.der").as_slice().into()];
    let config = dial::tls_config(&further).map_err(|_| Error::ConfigurationError)?;
    Ok(Arc::clone(CONFIG.get_or_init(|| config)))
}

fn in_wasi_words(error: DialError) -> Error {
    match error {
        DialError::Name => Error::HttpRequestUriInvalid,
        DialError::Lookup(_) => Error::DnsError { rcode: None, info_code: None },
        DialError::NoAddress => Error::DestinationNotFound,
        DialError::Prohibited(_) => Error::DestinationIpProhibited,
        DialError::Connect(error) => Error::Connect(error),
        DialError::Tls(error) => Error::Tls(error),
    }
}

/// Waits for the task that moves bytes between a connection and its body.
pub(super) async fn finished(mut driver: AbortOnDrop<Result<(), hyper::Error>>) -> Result<(), Error> {
    match (&mut driver.0).await {
        Ok(result) => result.map_err(Error::Hyper),
        Err(_) => Err(Error::ConnectionTerminated),
    }
}
