//! Who may reach the host: what is refused because strangers could come in or read along.

use super::auth::AuthConfig;
use super::config::Config;
use super::keys::ServerConfig;
use super::report::{Problem, Report};

/// Refuses to let clients without a token in beside those with one, where they could be on other machines.
pub(super) fn check_anonymous_loopback(server: &ServerConfig, auth: &AuthConfig, report: &Report) {
    let Some(location) = &auth.anonymous_loopback else { return };
    let refuse = |why: &str| report.add(location, format!("auth.anonymous_loopback = true {why}"));
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
    /// Others can reach the host, and there is neither a token nor an issuer; or there is neither TLS nor a proxy that
    /// has it. `insecure` lifts either.
    pub fn check_exposure(&self, any_token: bool) -> Result<(), Problem> {
        if self.is_local() {
            return Ok(());
        }
        let listen = self.server.listen;
        let refuse = |message: String| Err(Problem { location: self.listen_location.clone(), message });
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
