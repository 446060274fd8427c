//! Which addresses belong to the open internet.
//!
//! One rule for everything that leaves the host by name: the requests of guests, and the sources that components are fetched from.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Lower case, without the brackets of an IPv6 address or the dot of a complete name.
pub fn normal_host(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Whether an address is one of the open internet: not loopback, private, link-local (where clouds keep their metadata), shared,
/// reserved or multicast, also when wrapped in IPv6.
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
