//! How many connections come from where.
//!
//! Owns the counts. Invariant: an address with no connection is not remembered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::proxies::Proxies;
use bulkhead_limits::failures::subscriber;

/// See the module.
#[derive(Debug)]
pub(super) struct Addresses {
    /// `server.connections_per_address`.
    per_address: u32,
    /// Everybody's connections come from these.
    proxies: Proxies,
    open: Mutex<HashMap<IpAddr, u32>>,
}

/// The right to one connection from an address, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    addresses: Arc<Addresses>,
    from: Option<IpAddr>,
}

impl Addresses {
    pub(super) fn new(per_address: u32, proxies: Proxies) -> Arc<Self> {
        Arc::new(Self { per_address, proxies, open: Mutex::default() })
    }

    /// A place for one more connection from there, if there is one.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let addresses = Arc::clone(self);
        let peer = peer.to_canonical();
        if self.proxies.trusts(peer) {
            return Some(ConnectionPermit { addresses, from: None });
        }
        let from = subscriber(peer);
        let mut open = self.open.lock();
        let count = open.entry(from).or_default();
        if *count >= self.per_address {
            tracing::debug!(%from, per_address = self.per_address, "a connection was closed: there are too many from there");
            return None;
        }
        *count += 1;
        Some(ConnectionPermit { addresses, from: Some(from) })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(from) = self.from else { return };
        let mut open = self.addresses.open.lock();
        if let Some(count) = open.get_mut(&from) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Arc<Addresses> {
        Addresses::new(2, Proxies::new(vec!["10.0.0.0/8".parse().unwrap()], true))
    }

    fn entered(addresses: &Arc<Addresses>, from: &[&str]) -> Vec<Option<ConnectionPermit>> {
        from.iter().map(|from| addresses.enter(from.parse().unwrap())).collect()
    }

    #[test]
    fn connections_are_limited_per_address() {
        let addresses = addresses();
        let mut places = entered(&addresses, &["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2"]);
        assert_eq!(places.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
        places.remove(0);
        assert!(addresses.enter("192.0.2.1".parse().unwrap()).is_some(), "one has gone");
        drop(places);
        assert!(addresses.open.lock().is_empty());
    }

    #[test]
    fn connections_are_limited_per_ipv6_network() {
        let places = entered(&addresses(), &["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3", "2001:db8:0:1::1"]);
        assert_eq!(places.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
    }

    #[test]
    fn connections_of_proxies_are_not_limited() {
        let places = entered(&addresses(), &["10.1.2.3"; 9]);
        assert!(places.iter().all(Option::is_some));
    }
}
