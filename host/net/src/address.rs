//! Addresses: which are of the open internet, and which an operator named.
//!
//! Owns the one rule for that, so that whatever goes out (guests, keys of issuers) obeys the same. Must not resolve a
//! name.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::uri::Authority;
use ipnet::{IpNet, Ipv4Net};

/// Lower case, without the brackets of an IPv6 address or the dot of a complete name.
pub fn normal_host(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The [normal](normal_host) host of a `Host` header, with a port or without; `None`: it is none, as `user@host` is.
pub fn host_of(authority: &str) -> Option<String> {
    let read = authority.parse::<Authority>().ok().filter(|_| !authority.contains('@'))?;
    Some(normal_host(read.host()))
}

/// Where virtual machines of Azure find what others find at a link-local address: metadata, keys and certificates of
/// the machine.
const WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Whether an address is one of the open internet: not loopback, private, link-local (where clouds keep their
/// metadata), shared, reserved or multicast, also when wrapped in IPv6.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || address == WIRE_SERVER
        || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let embedded = |high: u16, low: u16| {
        let [w, x] = high.to_be_bytes();
        let [y, z] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(w, x, y, z))
    };
    match (a, b) {
        // Unspecified, loopback, IPv4-mapped and IPv4-compatible.
        (0, 0) => c == 0 && d == 0 && e == 0 && f == 0xFFFF && embedded(g, h),
        // NAT64 under its well-known prefix.
        (0x64, 0xFF9B) => c == 0 && d == 0 && e == 0 && f == 0 && embedded(g, h),
        // Teredo, ORCHID, benchmarking and the other special assignments; documentation.
        (0x2001, b) if b < 0x200 || b == 0xDB8 => false,
        // 6to4.
        (0x2002, b) => embedded(b, c),
        // Global unicast; all else is unique-local, link-local, multicast or reserved.
        (a, _) => (0x2000..0x4000).contains(&a) && a != 0x3FFF,
    }
}

/// Whether a [normal](normal_host) host is this machine by what is written, whatever a name server says.
pub fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// An address, or all that begin with the same bits: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// One address alone.
    fn of(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }

    /// Every loopback address.
    pub fn loopback() -> [Self; 2] {
        [Self(Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8).into()), Self::of(Ipv6Addr::LOCALHOST.into())]
    }

    /// What is named by a [normal](normal_host) host in a URL: an address as such, or this machine.
    pub fn written(host: &str) -> Vec<Self> {
        match host.parse() {
            Ok(address) => vec![Self::of(address)],
            Err(_) if host == "localhost" => Self::loopback().to_vec(),
            Err(_) => Vec::new(),
        }
    }

    /// Whether the address is one of these; an IPv4 address counts as itself when it is wrapped in IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Why a text is no [`Network`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an address nor a network: write 10.0.0.7 or 10.0.0.0/8")]
pub struct NotANetwork(String);

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let wrong = || NotANetwork(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let whole = Self::of(address.parse().map_err(|_| wrong())?);
        let bits = bits.map_or(Ok(whole.0.prefix_len()), str::parse).map_err(|_| wrong())?;
        IpNet::new(whole.0.addr(), bits).map(Self).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_metadata_addresses_are_not_public() {
        for address in
            ["169.254.169.254", "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "fd00:ec2::254"]
        {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["168.63.129.17", "168.63.128.16", "2606:4700::1111"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        let holds =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        for (network, inside, outside) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("0.0.0.0/0", "203.0.113.9", "::2"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::1", "::1", "::2"),
            ("::ffff:10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.0/8", "::ffff:10.1.1.1", "::10.1.1.1"),
        ] {
            assert!(holds(network, inside), "{network} {inside}");
            assert!(!holds(network, outside), "{network} {outside}");
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "host", "10.0.0.0/"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
        assert!(Network::loopback()[0].contains("127.8.8.8".parse().unwrap()));
    }
}
