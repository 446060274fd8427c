//! What an operator allows a plugin: directories, destinations, environment, settings.
//!
//! Owns the grants and the rule for addresses. Invariant: what is not granted does not exist for a guest, and a name never leads
//! to an address inside the operator's network unless the operator wrote that address down.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::domain::Json;
use crate::domain::address::{is_public, normal_host};
use crate::domain::limits::KeyValueLimits;

/// `[plugin.grants]`, as the operator wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    pub directories: Vec<DirGrant>,
    pub http: Vec<HttpGrant>,
    /// Keys of the host's environment.
    pub env: Vec<String>,
    /// `[plugin.kv]`.
    pub keyvalue: Option<KeyValueLimits>,
}

/// A directory of the host under a name of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirGrant {
    pub host: PathBuf,
    pub guest: String,
    pub write: bool,
}

/// A destination of outgoing HTTP: `https://api.example.com`, `https://*.example.org:8443`, `http://127.0.0.1:9000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    pub tls: bool,
    pub host: HostPattern,
    pub port: u16,
}

/// Which hosts a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This name, in lower case.
    Name(String),
    /// Every name under this one, but not itself.
    Under(String),
    /// This address.
    Address(IpAddr),
}

/// Why a text is no destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a destination: {wrong} (write https://HOST, https://*.DOMAIN or http://HOST:PORT)")]
pub struct GrantError {
    text: String,
    wrong: &'static str,
}

impl FromStr for HttpGrant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let wrong = |wrong| GrantError { text: text.to_owned(), wrong };
        let (tls, rest) = if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else {
            return Err(wrong("the scheme is neither https nor http"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(wrong("only scheme, host and port can be granted"));
        }
        let (wildcard, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        let authority: http::uri::Authority = rest.parse().map_err(|_| wrong("the host is not valid"))?;
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if rest.ends_with(':') || authority.host().len() != rest.len() => {
                return Err(wrong("the port is not valid"));
            }
            None if tls => 443,
            None => 80,
        };
        let name = normal_host(authority.host());
        if name.contains('*') {
            return Err(wrong("* stands for whole subdomains, at the beginning"));
        }
        let host = match (name.parse(), wildcard) {
            (Ok(address), false) => HostPattern::Address(address),
            (Ok(_), true) => return Err(wrong("an address has no subdomains")),
            (Err(_), false) => HostPattern::Name(name),
            (Err(_), true) => HostPattern::Under(name),
        };
        Ok(Self { tls, host, port })
    }
}

impl fmt::Display for HttpGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match &self.host {
            HostPattern::Name(name) => write!(f, "{scheme}://{name}:{}", self.port),
            HostPattern::Under(name) => write!(f, "{scheme}://*.{name}:{}", self.port),
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "{scheme}://[{address}]:{}", self.port),
            HostPattern::Address(address) => write!(f, "{scheme}://{address}:{}", self.port),
        }
    }
}

impl HttpGrant {
    /// Whether a request to this host and port is meant. The host is [normal](crate::domain::address::normal_host).
    pub(super) fn covers(&self, tls: bool, host: &str, port: u16) -> bool {
        self.tls == tls
            && self.port == port
            && match &self.host {
                HostPattern::Name(name) => name == host,
                HostPattern::Under(domain) => {
                    host.strip_suffix(domain.as_str()).is_some_and(|label| label.len() > 1 && label.ends_with('.'))
                }
                HostPattern::Address(address) => host.parse() == Ok(*address),
            }
    }

    /// Whether the granted host may turn out to be at this address: any public one; another only if the operator wrote it down.
    pub(super) fn may_reach(&self, address: IpAddr) -> bool {
        match &self.host {
            HostPattern::Address(granted) => *granted == address,
            HostPattern::Name(name) if name == "localhost" => address.is_loopback(),
            HostPattern::Name(_) | HostPattern::Under(_) => is_public(address),
        }
    }
}

/// The grants of one plugin, ready for its calls.
#[derive(Debug, Default)]
pub(super) struct Granted {
    pub(super) directories: Vec<DirGrant>,
    pub(super) http: Vec<HttpGrant>,
    /// Read once, when the plugin was loaded.
    pub(super) environment: Vec<(String, String)>,
    /// `[[plugin]] config`.
    pub(super) settings: BTreeMap<String, Json>,
    pub(super) keyvalue: Option<KeyValueLimits>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> HttpGrant {
        text.parse().unwrap()
    }

    #[test]
    fn destinations_are_exact_about_scheme_host_and_port() {
        let exact = grant("https://API.example.com");
        assert!(exact.covers(true, "api.example.com", 443));
        assert!(!exact.covers(false, "api.example.com", 443));
        assert!(!exact.covers(true, "api.example.com", 8443));
        assert!(!exact.covers(true, "x.api.example.com", 443));
        assert!(!exact.covers(true, "api.example.com.evil.org", 443));

        let under = grant("https://*.example.org:8443");
        assert!(under.covers(true, "a.example.org", 8443));
        assert!(under.covers(true, "a.b.example.org", 8443));
        assert!(!under.covers(true, "example.org", 8443));
        assert!(!under.covers(true, "evilexample.org", 8443));

        assert!(grant("http://[::1]:9000").covers(false, "::1", 9000));
        assert_eq!(grant("http://127.0.0.1:9000").to_string(), "http://127.0.0.1:9000");
    }

    #[test]
    fn what_is_no_destination_says_why() {
        for text in [
            "ftp://example.com",
            "example.com",
            "https://example.com/path",
            "https://user@example.com",
            "https://a.*.example.com",
            "https://*",
            "https://*.127.0.0.1",
            "https://example.com:99999",
            "https://",
        ] {
            assert!(text.parse::<HttpGrant>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_reaches_public_addresses_only() {
        let name = grant("https://example.com");
        for address in ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"] {
            assert!(name.may_reach(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.3.4",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001::1",
            "fd00:ec2::254",
        ] {
            assert!(!name.may_reach(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn what_the_operator_wrote_down_is_reached() {
        assert!(grant("http://127.0.0.1:9000").may_reach("127.0.0.1".parse().unwrap()));
        assert!(!grant("http://127.0.0.1:9000").may_reach("127.0.0.2".parse().unwrap()));
        assert!(grant("http://localhost:9000").may_reach("::1".parse().unwrap()));
        assert!(!grant("http://localhost:9000").may_reach("10.0.0.1".parse().unwrap()));
    }
}
