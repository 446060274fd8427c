//! Who is at the other end of a connection, and who is behind them.
//!
//! Owns which proxies are believed. Invariant: a forwarding header counts only when the connection comes from a
//! configured proxy, and then only the part that configured proxies have written; nothing is ever inferred from
//! `X-Forwarded-Host` or `-Proto`.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::address::Network;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The configured proxies.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    networks: Vec<Network>,
    /// Whether what does not come through a proxy would come in the clear.
    required: bool,
}

impl Proxies {
    /// `tls`: whether the host has TLS of its own.
    pub fn new(networks: Vec<Network>, tls: bool) -> Self {
        let required = !networks.is_empty() && !tls;
        Self { networks, required }
    }

    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Whether requests for anything but health may come from here.
    pub fn may_ask(&self, peer: IpAddr) -> bool {
        !self.required || self.trusts(peer)
    }

    /// The address of the client: the last one before the configured proxies.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let values = headers.get_all(FORWARDED_FOR).iter().rev().filter_map(|value| value.to_str().ok());
        for hop in values.flat_map(|value| value.rsplit(',')) {
            if !self.trusts(client) {
                break;
            }
            let Some(address) = address(hop.trim()) else { break };
            client = address.to_canonical();
        }
        client
    }
}

/// With a port or without, as proxies write it.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bracketed.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&'static str]) -> String {
        let networks = proxies.iter().map(|proxy| proxy.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        Proxies::new(networks, false).client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn forwarded_address_is_trusted_from_configured_proxies_only() {
        let proxies = ["10.0.0.0/8", "::1"];
        assert_eq!(client(&proxies, "203.0.113.5", &["198.51.100.1"]), "203.0.113.5");
        assert_eq!(client(&[], "10.0.0.1", &["198.51.100.1"]), "10.0.0.1");
        assert_eq!(client(&proxies, "10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        // What the client itself wrote stands further left.
        assert_eq!(client(&proxies, "10.0.0.1", &["1.1.1.1, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(client(&proxies, "::ffff:10.0.0.1", &["1.1.1.1", "198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(client(&proxies, "::1", &["[2001:db8::7]:1"]), "2001:db8::7");
        assert_eq!(client(&proxies, "10.0.0.1", &["198.51.100.1, nonsense"]), "10.0.0.1");
        assert_eq!(client(&proxies, "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn plain_http_requests_are_accepted_from_proxies_only() {
        let networks: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let inside = "10.0.0.1".parse().unwrap();
        let outside = "203.0.113.5".parse().unwrap();
        let plain = Proxies::new(networks.clone(), false);
        assert!(plain.may_ask(inside) && !plain.may_ask(outside));
        assert!(Proxies::new(networks, true).may_ask(outside));
        assert!(Proxies::new(Vec::new(), false).may_ask(outside));
    }
}
