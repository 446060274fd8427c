//! TLS of the host's own.
//!
//! Owns the certificate and looks after its files. Invariant: there is always a certificate and the key that belongs to
//! it; a new pair is taken over when both files fit each other, for connections that begin then, and until that the
//! former one serves.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

use crate::pem::{certificates, private_key};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a certificate or key file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{file} cannot be read: {source}")]
    File { file: PathBuf, source: io::Error },
    #[error("{0} holds no certificate in PEM form")]
    NoCertificate(PathBuf),
    #[error("{0} holds no private key in PEM form")]
    NoKey(PathBuf),
    #[error("{certificate} and {key} cannot be used together: {source}")]
    Unusable { certificate: PathBuf, key: PathBuf, source: rustls::Error },
}

/// The certificate of the host, as it is in its files.
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<CertifiedKey>,
    /// Of both files, as they were last looked at.
    seen: ArcSwap<[u8; 32]>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let files = Files::read(certificate, key)?;
        Ok(Arc::new(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: ArcSwap::from_pointee(files.parse(certificate, key)?),
            seen: ArcSwap::from_pointee(files.digest()),
        }))
    }

    /// Shakes hands with the certificate that there is at the moment. HTTP/1.1 is all that is spoken.
    pub(super) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Takes over new files for as long as it is polled.
    pub(super) async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look();
        }
    }

    /// Says each problem once: until the files change again.
    fn look(&self) {
        let Ok(files) = Files::read(&self.certificate, &self.key) else { return };
        let digest = files.digest();
        if **self.seen.load() == digest {
            return;
        }
        self.seen.store(Arc::new(digest));
        match files.parse(&self.certificate, &self.key) {
            Ok(pair) => {
                self.current.store(Arc::new(pair));
                tracing::info!(certificate = %self.certificate.display(), "took over a new certificate");
            }
            // Perhaps only one of the two is new yet.
            Err(error) => tracing::warn!(%error, "the former certificate goes on serving"),
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |file: &Path| {
            let bounded = std::fs::metadata(file).and_then(|about| match about.len() {
                0..=FILE_BYTES_MAX => std::fs::read(file),
                _ => Err(io::Error::other("it is too large")),
            });
            bounded.map_err(|source| TlsError::File { file: file.to_owned(), source })
        };
        Ok(Self { certificate: read(certificate)?, key: read(key)? })
    }

    fn digest(&self) -> [u8; 32] {
        let hash = Sha256::new().chain_update((self.certificate.len() as u64).to_be_bytes());
        hash.chain_update(&self.certificate).chain_update(&self.key).finalize().into()
    }

    fn parse(&self, certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.certificate);
        let chain = chain.ok_or_else(|| TlsError::NoCertificate(certificate.to_owned()))?;
        let private = private_key(&self.key).ok_or_else(|| TlsError::NoKey(key.to_owned()))?;
        CertifiedKey::from_der(chain, private, &default_provider()).map_err(|source| TlsError::Unusable {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_in_front_of_a_certificate_or_its_key_is_skipped() {
        let certificate = include_str!("../../../../tests/harness/keys/host1.pem");
        let root = include_str!("../../../../tests/harness/keys/root1.pem");
        let key = include_str!("../../../../tests/harness/keys/host1.key.pem");
        for (chain, key, certificates) in [
            (certificate.to_owned(), key.to_owned(), 1),
            (format!("\u{feff}{certificate}"), key.to_owned(), 1),
            (certificate.to_owned(), format!("\u{feff}{key}"), 1),
            // Without the first of a chain, the key would fit nothing.
            (format!("\u{feff}{certificate}{root}"), key.to_owned(), 2),
        ] {
            let files = Files { certificate: chain.into_bytes(), key: key.into_bytes() };
            let parsed = files.parse(Path::new("host.pem"), Path::new("host.key"));
            assert_eq!(parsed.map(|parsed| parsed.cert.len()).map_err(|error| error.to_string()), Ok(certificates));
        }
    }
}
