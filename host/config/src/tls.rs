//! How what is said to a listener is kept from others, and what an operator may do without.

use std::path::PathBuf;

use super::reader::Item;

/// `[server] tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM: the host's certificate, then those that lead to a root.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

/// What an operator may allow although it is not safe, by flags only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insecure {
    /// Listening without TLS where others can read along.
    pub plaintext: bool,
    /// Letting everybody in.
    pub anonymous: bool,
}

table!(TLS, TlsKeys, "[server] tls", "Serves HTTPS. Also a table of [admin].", {
    certificate: PathBuf = Item::file, "",
        "PEM file with the certificate and its chain; read again when it changes";
    key: PathBuf = Item::file, "",
        "PEM file with the private key; read again when it changes";
});

/// Reads the certificate and the key of a listener.
pub(super) fn read_tls(item: &Item<'_>) -> Option<TlsConfig> {
    let section = item.section(TLS.names())?;
    match TlsKeys::read(&section) {
        TlsKeys { certificate: Some(certificate), key: Some(key) } => Some(TlsConfig { certificate, key }),
        _ => {
            section.item.refuse("needs `certificate` and `key`, the names of two PEM files");
            None
        }
    }
}
