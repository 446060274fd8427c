//! The client of fetches, and what its failures are called.
//!
//! Owns what the settings of the operator mean for it. Must not know what is fetched. Invariant: no error and no log
//! holds the query of an address, where storage services put theirs.

use std::sync::Arc;

use bulkhead_net::client::{Client, ClientError, Failure, place};
use bulkhead_net::dial::{self, DialError};
use bulkhead_net::pem;
use url::{Position, Url};

use super::{Error, FetchOptions};

/// Redirects of one request. Stops servers that send each other in circles.
const REDIRECTS_MAX: usize = 5;

/// A client for one fetch. What the operator typed may be an address of the operator's own, and without TLS.
///
/// # Errors
/// A file with certificates cannot be read.
pub fn client(fetching: &FetchOptions, typed: Option<&Url>) -> Result<Client, Error> {
    Ok(Client {
        hosts: fetching.private_hosts.clone(),
        typed: typed.and_then(place),
        plain: typed.is_some_and(|url| url.scheme() == "http"),
        redirects_max: REDIRECTS_MAX,
        ..Client::new(tls_config(fetching)?)
    })
}

/// The roots of the browsers, and those of the operator's files.
fn tls_config(fetching: &FetchOptions) -> Result<Arc<rustls::ClientConfig>, Error> {
    let mut roots = Vec::new();
    for path in &fetching.roots {
        let unusable =
            |why: String| Error::File(format!("{} holds no certificates that can be used: {why}", path.display()));
        let text = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let certificates = pem::certificates(&text).ok_or_else(|| unusable("it has none in PEM form".to_owned()))?;
        // Alone first, so that a wrong one is said with its file.
        dial::tls_config(&certificates).map_err(|error| unusable(error.to_string()))?;
        roots.extend(certificates);
    }
    dial::tls_config(&roots).map_err(|error| Error::File(format!("TLS cannot be set up: {error}")))
}

pub fn failed(url: &Url, problem: impl Into<String>) -> Error {
    Error::Failed { what: shown(url), problem: problem.into() }
}

/// An address without what may be secret in it.
pub fn shown(url: &Url) -> String {
    let scheme = url.scheme();
    let rest = &url[Position::BeforeHost..Position::AfterPath];
    format!("{scheme}://{rest}")
}

impl From<ClientError> for Error {
    fn from(ClientError { url, failure }: ClientError) -> Self {
        let problem = match failure {
            Failure::Dial(DialError::Prohibited(address)) => {
                let host = place(&url).map_or_else(String::new, |(host, _)| host);
                return Self::Private { host, address };
            }
            Failure::TooLarge(bytes_max) => return Self::TooLarge { what: shown(&url), bytes_max },
            Failure::Dial(DialError::Connect(error)) => format!("no connection: {error}"),
            Failure::Dial(DialError::Tls(error)) => format!("TLS: {error}"),
            Failure::Broken(error) => format!("the connection broke: {}", chain(&error)),
            Failure::CutOff { bytes, announced, error } => {
                let expected = announced.map_or_else(String::new, |announced| format!(" of {announced}"));
                format!("cut off after {bytes}{expected} bytes: {}", chain(&error))
            }
            other => other.to_string(),
        };
        failed(&url, problem)
    }
}

/// An error with what caused it: hyper's own texts leave the reason to its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_in_front_of_a_root_certificate_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.pem");
        let root = include_str!("../../../tests/harness/keys/root1.pem");
        let fetching = FetchOptions { roots: vec![file.clone()], ..FetchOptions::default() };
        for (text, is_taken) in
            [(root.to_owned(), true), (format!("\u{feff}{root}"), true), ("no certificate\n".to_owned(), false)]
        {
            std::fs::write(&file, &text).unwrap();
            assert_eq!(tls_config(&fetching).is_ok(), is_taken, "{text:?}");
        }
    }
}
