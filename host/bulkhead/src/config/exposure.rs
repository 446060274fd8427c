//! Who may reach the host, and how what is said is kept from others.

use std::path::PathBuf;

use super::document::{Node, Reader};
use super::{Config, Problem};

/// `[server] tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsConfig {
    /// PEM: the host's certificate, then those that lead to a root.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

/// What an operator may allow although it is not safe, by flags only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Insecure {
    /// Listening without TLS where others can read along.
    pub plaintext: bool,
    /// Letting everybody in.
    pub anonymous: bool,
}

pub(super) fn read_tls(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<TlsConfig> {
    read_tls_of(reader, "server.tls", node)
}

/// The same for another listener.
pub(super) fn read_tls_of(reader: &mut Reader<'_>, name: &str, node: &Node<'_>) -> Option<TlsConfig> {
    let table = reader.table(name, node)?;
    let (mut certificate, mut private) = (None, None);
    for (key, node) in table {
        let path = format!("{name}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "certificate" => certificate = reader.text(&path, node).map(|text| reader.path(&text)),
            "key" => private = reader.text(&path, node).map(|text| reader.path(&text)),
            _ => reader.refuse(key, format!("{path}: no such key; there are certificate and key")),
        }
    }
    let (Some(certificate), Some(key)) = (certificate, private) else {
        reader.refuse(node, format!("{name}: needs `certificate` and `key`, the names of two PEM files"));
        return None;
    };
    Some(TlsConfig { certificate, key })
}

impl Config {
    /// Whether only this machine's users can reach the host: it listens on loopback, and no proxy brings others.
    pub(crate) fn is_local(&self) -> bool {
        self.server.listen.ip().to_canonical().is_loopback() && self.server.trusted_proxies.is_empty()
    }

    /// Refuses to listen where strangers can connect while nobody can authenticate, or where they could read along.
    ///
    /// # Errors
    /// Others can reach the host, and there is neither a token nor an issuer; or there is neither TLS nor a proxy that has it.
    /// `insecure` lifts either.
    pub(crate) fn check_exposure(&self, any_token: bool) -> Result<(), Problem> {
        if self.is_local() {
            return Ok(());
        }
        let listen = self.server.listen;
        let refuse = |message: String| Err(Problem { place: self.listen_place.clone(), message });
        if !any_token && self.auth.issuers.is_empty() && !self.insecure.anonymous {
            return refuse(format!(
                "server.listen = \"{listen}\" is reachable from other machines, but no bearer token exists: \
                 run `bulkhead token create --requestor NAME --data {}` first, configure [[auth.issuer]], or listen on \
                 127.0.0.1 (--insecure-allow-anonymous lets everybody in)",
                self.server.data.display()
            ));
        }
        let loopback = listen.ip().to_canonical().is_loopback();
        let covered = loopback || self.tls.is_some() || !self.server.trusted_proxies.is_empty();
        if !covered && !self.insecure.plaintext {
            return refuse(format!(
                "server.listen = \"{listen}\" is reachable from other machines without TLS, so tokens could be read on \
                 the way: set [server] tls = {{ certificate = \"…\", key = \"…\" }}, name the proxy that has it in \
                 server.trusted_proxies, or listen on 127.0.0.1 (--insecure-allow-plaintext does it all the same)"
            ));
        }
        Ok(())
    }
}
