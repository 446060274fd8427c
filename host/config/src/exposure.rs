//! Who may reach the host, and how what is said is kept from others.

use std::path::PathBuf;

use super::auth::AuthConfig;
use super::keys::ServerConfig;
use super::reader::Item;
use super::{Config, Problem, Report};

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

/// Reads the certificate and the key of a listener.
pub(super) fn read_tls(item: Item<'_>) -> Option<TlsConfig> {
    let section = item.section(&["certificate", "key"])?;
    match (section.file("certificate"), section.file("key")) {
        (Some(certificate), Some(key)) => Some(TlsConfig { certificate, key }),
        _ => {
            section.item.refuse("needs `certificate` and `key`, the names of two PEM files");
            None
        }
    }
}

/// Refuses to let clients without a token in beside those with one, where they could be on other machines.
pub(super) fn check_anonymous_loopback(server: &ServerConfig, auth: &AuthConfig, report: &Report) {
    let Some(place) = &auth.anonymous_loopback else { return };
    let refuse = |why: &str| report.add(place, format!("auth.anonymous_loopback = true {why}"));
    if !server.trusted_proxies.is_empty() {
        refuse(
            "does not go with server.trusted_proxies: a proxy brings clients of other machines, and they would need no token \
             either; remove one of the two",
        );
    } else if !is_loopback(server) {
        refuse(&format!(
            "needs a loopback address, and server.listen is \"{}\": listen on 127.0.0.1, or give every client a token",
            server.listen
        ));
    }
    if !auth.issuers.is_empty() {
        refuse("does not go with [[auth.issuer]]: where issuers say who a client is, each needs a token");
    }
}

fn is_loopback(server: &ServerConfig) -> bool {
    server.listen.ip().to_canonical().is_loopback()
}

impl Config {
    /// Whether only this machine's users can reach the host: it listens on loopback, and no proxy brings others.
    pub fn is_local(&self) -> bool {
        is_loopback(&self.server) && self.server.trusted_proxies.is_empty()
    }

    /// Refuses to listen where strangers can connect while nobody can authenticate, or where they could read along.
    ///
    /// # Errors
    /// Others can reach the host, and there is neither a token nor an issuer; or there is neither TLS nor a proxy that has it.
    /// `insecure` lifts either.
    pub fn check_exposure(&self, any_token: bool) -> Result<(), Problem> {
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
        let loopback = is_loopback(&self.server);
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
