//! Destinations of outgoing HTTP: which scheme, host and port, and of what is there which methods and paths.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use bulkhead_net::address::{is_public, normal_host};

/// A destination of outgoing HTTP: `https://api.example.com`, `https://*.example.org:8443`, `http://127.0.0.1:9000`,
/// narrowed to a path and what is below it (`https://api.example.com/v1`) or to methods (`GET,HEAD
/// https://api.example.com`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    /// In upper case; empty: all of them.
    pub methods: Vec<String>,
    pub tls: bool,
    pub host: HostPattern,
    pub port: u16,
    /// `/`: everything.
    pub path: String,
    /// Whether the destination is told of the trace that a request is part of. Nothing that a text says.
    pub trace: bool,
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
#[error(
    "{text:?} is not a destination: {wrong} (write https://HOST, https://*.DOMAIN/PATH or GET,HEAD http://HOST:PORT)"
)]
pub struct GrantError {
    text: String,
    wrong: &'static str,
}

impl FromStr for HttpGrant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let wrong = |wrong| GrantError { text: text.to_owned(), wrong };
        let (methods, url) = match text.trim().rsplit_once(' ') {
            Some((methods, url)) => (read_methods(methods).map_err(wrong)?, url),
            None => (Vec::new(), text.trim()),
        };
        let (tls, rest) = if let Some(rest) = url.strip_prefix("https://") {
            (true, rest)
        } else if let Some(rest) = url.strip_prefix("http://") {
            (false, rest)
        } else {
            return Err(wrong("the scheme is neither https nor http"));
        };
        if rest.contains(['?', '#', '@']) {
            return Err(wrong("only methods, scheme, host, port and path can be granted"));
        }
        let (rest, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        if !is_plain(path) || !path.is_ascii() || path.contains('*') {
            return Err(wrong(
                "the path is not plain: it has a segment that is empty, . or .., or a character that is none",
            ));
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
        Ok(Self { methods, tls, host, port, path: path.to_owned(), trace: false })
    }
}

fn read_methods(text: &str) -> Result<Vec<String>, &'static str> {
    let is_method = |method: &str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let methods: Vec<_> = text.split(',').map(|method| method.trim().to_owned()).collect();
    if methods.iter().all(|method| is_method(method)) { Ok(methods) } else { Err("its methods are not like GET,HEAD") }
}

impl fmt::Display for HttpGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join(","))?;
        }
        let scheme = if self.tls { "https" } else { "http" };
        match &self.host {
            HostPattern::Name(name) => write!(f, "{scheme}://{name}:{}", self.port),
            HostPattern::Under(name) => write!(f, "{scheme}://*.{name}:{}", self.port),
            HostPattern::Address(IpAddr::V6(address)) => write!(f, "{scheme}://[{address}]:{}", self.port),
            HostPattern::Address(address) => write!(f, "{scheme}://{address}:{}", self.port),
        }?;
        if self.path == "/" { Ok(()) } else { f.write_str(&self.path) }
    }
}

impl HttpGrant {
    /// Whether a request to this host and port is meant. The host is [normal](bulkhead_net::address::normal_host).
    pub fn covers(&self, tls: bool, host: &str, port: u16) -> bool {
        self.tls == tls
            && self.port == port
            && match &self.host {
                HostPattern::Name(name) => name == host,
                HostPattern::Under(domain) => is_under(host, domain),
                HostPattern::Address(address) => host.parse() == Ok(*address),
            }
    }

    /// Whether a request for this is meant, at a host that is covered. The path has no query.
    pub fn permits(&self, method: &str, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|granted| granted == method))
            && (self.path == "/" || is_plain(path) && is_below(path, &self.path))
    }

    /// Whether the granted host may turn out to be at this address: any public one; another only if the operator wrote
    /// it down.
    pub fn may_reach(&self, address: IpAddr) -> bool {
        match &self.host {
            HostPattern::Address(granted) => *granted == address,
            HostPattern::Name(name) if name == "localhost" => address.is_loopback(),
            HostPattern::Name(_) | HostPattern::Under(_) => is_public(address),
        }
    }

    /// What both of two grants are for.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        if (self.tls, self.port) != (other.tls, other.port) {
            return None;
        }
        let path = if is_below(&other.path, &self.path) {
            &other.path
        } else if is_below(&self.path, &other.path) {
            &self.path
        } else {
            return None;
        };
        let methods: Vec<_> = match (self.methods.is_empty(), other.methods.is_empty()) {
            (true, _) => other.methods.clone(),
            (false, true) => self.methods.clone(),
            (false, false) => {
                let both: Vec<_> = self.methods.iter().filter(|method| other.methods.contains(method)).collect();
                if both.is_empty() {
                    return None;
                }
                both.into_iter().cloned().collect()
            }
        };
        let host = self.host.meet(&other.host)?.clone();
        Some(Self {
            methods,
            tls: self.tls,
            host,
            port: self.port,
            path: path.clone(),
            trace: self.trace || other.trace,
        })
    }
}

impl HostPattern {
    /// The narrower of two patterns, if it lies within the other.
    fn meet<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        if self == other {
            return Some(self);
        }
        match (self, other) {
            (Self::Under(domain), Self::Name(name) | Self::Under(name)) if is_under(name, domain) => Some(other),
            (Self::Name(name) | Self::Under(name), Self::Under(domain)) if is_under(name, domain) => Some(self),
            _ => None,
        }
    }
}

fn is_under(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|label| label.len() > 1 && label.ends_with('.'))
}

/// Whether a path is another one or below it, by whole segments.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// Characters that some servers take for a slash: those that look like one, and those that become one when a text is
/// normalised.
const SLASHES: [char; 7] = ['\\', '\u{2044}', '\u{2215}', '\u{29f8}', '\u{ff0f}', '\u{fe68}', '\u{ff3c}'];
/// The same for dots, with those that stand for several.
const DOTS: [char; 8] = ['.', '\u{2024}', '\u{2025}', '\u{2026}', '\u{3002}', '\u{fe52}', '\u{ff0e}', '\u{ff61}'];

/// Whether every server reads a path like we do: no way up, however it is spelled, and no second spelling of a slash.
/// What is no UTF-8, like the overlong forms of a dot, and the escapes that begin with `%u` are read in more than one
/// way.
fn is_plain(path: &str) -> bool {
    let Some(path) = path.strip_prefix('/') else { return false };
    let mut decoded = path.to_owned();
    let mut left = 3;
    // Servers behind servers decode more than once.
    loop {
        if decoded.contains(SLASHES)
            || decoded.contains(char::is_control)
            || decoded.contains("%u")
            || decoded.contains("%U")
        {
            return false;
        }
        if decoded.matches('/').count() != path.matches('/').count() {
            return false;
        }
        let segments: Vec<_> = decoded.split('/').collect();
        let inner = segments.split_last().map_or(&[][..], |(_, inner)| inner);
        if segments.iter().any(|segment| is_way_up(segment)) || inner.iter().any(|segment| segment.is_empty()) {
            return false;
        }
        let Cow::Owned(next) = Cow::from(percent_decode_str(&decoded)) else { return true };
        let Ok(next) = String::from_utf8(next) else { return false };
        left -= 1;
        if left == 0 {
            return false;
        }
        decoded = next;
    }
}

/// Whether a segment leads to another folder: dots alone, with what servers cut off or pass over around them.
fn is_way_up(segment: &str) -> bool {
    let named = segment.split(';').next().unwrap_or_default();
    let is_passed_over = |c: char| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}');
    let mut left = named.chars().filter(|c| !is_passed_over(*c)).peekable();
    left.peek().is_some() && left.all(|c| DOTS.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> HttpGrant {
        text.parse().unwrap()
    }

    #[test]
    fn egress_grant_matches_scheme_host_and_port_exactly() {
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
        assert_eq!(grant("http://127.0.0.1:9000/").to_string(), "http://127.0.0.1:9000");
        let text = "GET,HEAD https://*.example.com:443/v1/";
        assert_eq!(grant(text).to_string(), text);
    }

    #[test]
    fn egress_grant_is_narrowed_by_methods_and_paths() {
        let all = grant("https://example.com");
        assert!(all.permits("DELETE", "/x/../y"), "where every path is granted, no path needs to be understood");
        let narrow = grant("GET,HEAD https://example.com/v1");
        for path in [
            "/v1",
            "/v1/",
            "/v1/a/b",
            "/v1/a%20b",
            "/v1/.well-known",
            "/v1/a..b",
            "/v1/100%25",
            "/v1/%c3%bc",
            "/v1/..a",
        ] {
            assert!(narrow.permits("GET", path), "{path}");
        }
        assert!(!narrow.permits("POST", "/v1") && !narrow.permits("get", "/v1"));
        for path in [
            "/",
            "/v2",
            "/v11",
            "/V1",
            "/%76%31",
            "/v1/../v2",
            "/v1/..",
            "/v1/./../v2",
            "/v1/%2e%2e/v2",
            "/v1/.%2E/v2",
            "/v1/%252e%252e/v2",
            "/v1/%25252e%25252e/v2",
            "/v1/..%2fv2",
            "/v1/..%5cv2",
            "/v1/..\\v2",
            "/v1/..;/v2",
            "/v1/..;a=b/v2",
            "/v1/%2e%2e;/v2",
            "/v1//../v2",
            "//v1",
            "/v1/%00",
            // Overlong forms, and what is no UTF-8 otherwise.
            "/v1/%c0%ae%c0%ae/v2",
            "/v1/%C0%AE./v2",
            "/v1/%e0%80%ae%e0%80%ae/v2",
            "/v1/%f0%80%80%ae./v2",
            "/v1/..%c0%afv2",
            "/v1/%25c0%25ae%25c0%25ae/v2",
            "/v1/%fe",
            // Escapes of other times.
            "/v1/%u002e%u002e/v2",
            "/v1/%U002E./v2",
            "/v1/..%u2215v2",
            "/v1/%25u002e%25u002e/v2",
            // What some file systems cut off or pass over.
            "/v1/..%20/v2",
            "/v1/%20../v2",
            "/v1/.%20./v2",
            "/v1/..%2520/v2",
            "/v1/..%09/v2",
            "/v1/..%0d%0a/v2",
            "/v1/..%20;a/v2",
            "/v1/.../v2",
            "/v1/..%e2%80%8b/v2",
            // Dots and slashes of other widths.
            "/v1/%ef%bc%8e%ef%bc%8e/v2",
            "/v1/.%ef%bc%8e/v2",
            "/v1/%e2%80%a5/v2",
            "/v1/..%ef%bc%8fv2",
            "/v1/..%ef%bc%bcv2",
            "/v1/..%e2%88%95v2",
        ] {
            assert!(!narrow.permits("GET", path), "{path}");
        }
        assert!(!grant("https://example.com/v1/").permits("GET", "/v1"));
    }

    #[test]
    fn egress_grants_intersect() {
        let meet = |a: &str, b: &str| {
            let both = grant(a).meet(&grant(b)).map(|both| both.to_string());
            assert_eq!(both, grant(b).meet(&grant(a)).map(|both| both.to_string()), "{a} and {b}");
            both.unwrap_or_default()
        };
        assert_eq!(meet("https://*.a.org", "https://x.a.org"), "https://x.a.org:443");
        assert_eq!(meet("https://*.a.org", "https://*.b.a.org"), "https://*.b.a.org:443");
        assert_eq!(meet("https://a.org/v1", "GET https://a.org"), "GET https://a.org:443/v1");
        assert_eq!(meet("GET,PUT https://a.org/v1", "PUT https://a.org/v1/x"), "PUT https://a.org:443/v1/x");
        for (a, b) in [
            ("https://a.org", "http://a.org"),
            ("https://a.org", "https://a.org:444"),
            ("https://a.org", "https://b.org"),
            ("https://*.a.org", "https://a.org"),
            ("https://*.a.org", "https://evila.org"),
            ("https://*.1", "https://127.0.0.1"),
            ("https://a.org/v1", "https://a.org/v2"),
            ("https://a.org/v1", "https://a.org/v11"),
            ("GET https://a.org", "PUT https://a.org"),
        ] {
            assert_eq!(meet(a, b), "", "{a} and {b}");
        }
    }

    #[test]
    fn invalid_egress_grants_are_refused() {
        for text in [
            "ftp://example.com",
            "example.com",
            "*",
            "https://example.com/path?query",
            "https://example.com/a/../b",
            "https://example.com//a",
            "https://example.com/*",
            "get https://example.com",
            "GET, https://example.com",
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
    fn egress_grant_of_a_name_reaches_public_addresses_only() {
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
    fn egress_grant_of_an_inside_address_reaches_it() {
        assert!(grant("http://127.0.0.1:9000").may_reach("127.0.0.1".parse().unwrap()));
        assert!(!grant("http://127.0.0.1:9000").may_reach("127.0.0.2".parse().unwrap()));
        assert!(grant("http://localhost:9000").may_reach("::1".parse().unwrap()));
        assert!(!grant("http://localhost:9000").may_reach("10.0.0.1".parse().unwrap()));
    }
}
