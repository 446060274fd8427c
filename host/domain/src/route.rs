//! Who gets a version of a plugin that is being tried beside the active one.
//!
//! Invariant: the same requestor gets the same answer as long as plugin, version and shares are the same, after a
//! restart and in every later host; a larger share keeps everybody who was in the smaller one.

use super::requestor::{Requestor, TenantId};

/// A share of one whole, in hundredths of a percent.
pub const WHOLE: u16 = 10_000;

/// Part of the requestors: whole tenants, and a share of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Of plugin and version: who is first for one is not first for all.
    salt: u64,
    share: u16,
    tenants: Vec<TenantId>,
}

impl Route {
    /// `share` is in hundredths of a percent; more than [`WHOLE`] is everybody.
    pub fn new(plugin: &str, digest: &[u8; 32], share: u16, tenants: Vec<TenantId>) -> Self {
        let salt = digest.iter().chain(plugin.as_bytes()).fold(FNV_OFFSET, fold);
        Self { salt, share, tenants }
    }

    /// Whether this requestor gets the version.
    pub fn includes(&self, requestor: &Requestor) -> bool {
        self.tenants.contains(&requestor.tenant) || self.place(requestor) < u64::from(self.share)
    }

    /// Where a requestor stands, below [`WHOLE`]. Not the standard library's hash: that one may change with the
    /// compiler.
    fn place(&self, requestor: &Requestor) -> u64 {
        let mut hash = requestor.id.0.iter().fold(self.salt, fold);
        // Neighbouring ids must not be neighbours here: the finalizer of MurmurHash3.
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (hash ^ (hash >> 33)) % u64::from(WHOLE)
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// One step of FNV-1a.
fn fold(hash: u64, byte: &u8) -> u64 {
    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requestor::RequestorId;

    fn requestor(number: u32) -> Requestor {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        Requestor { tenant: TenantId([1; 16]), id: RequestorId(id) }
    }

    fn route(plugin: &str, digest: u8, share: u16) -> Route {
        Route::new(plugin, &[digest; 32], share, Vec::new())
    }

    fn included(route: &Route) -> Vec<u32> {
        (0..20_000).filter(|number| route.includes(&requestor(*number))).collect()
    }

    #[test]
    fn canary_share_includes_expected_requestors() {
        for (share, expected) in [(0, 0), (1, 2), (100, 200), (1_000, 2_000), (5_000, 10_000), (WHOLE, 20_000)] {
            let count = included(&route("csv", 7, share)).len();
            let off = count.abs_diff(expected);
            assert!(off <= 4 + expected / 10, "{share}: {count} of 20000");
        }
        assert_eq!(included(&route("csv", 7, 0)).len(), 0);
        assert_eq!(included(&route("csv", 7, WHOLE)).len(), 20_000);
    }

    #[test]
    fn larger_canary_share_keeps_included_requestors() {
        let mut before = Vec::new();
        for share in [1, 50, 1_000, 3_000, 9_999] {
            let now = included(&route("csv", 7, share));
            assert!(before.iter().all(|number| now.contains(number)));
            before = now;
        }
    }

    #[test]
    fn canary_order_depends_on_plugin_and_version() {
        let one = included(&route("csv", 7, 1_000));
        for other in [route("csv", 8, 1_000), route("text", 7, 1_000)] {
            let other = included(&other);
            let both = one.iter().filter(|number| other.contains(number)).count();
            assert!((100..320).contains(&both), "{both} of {} are in both", one.len());
        }
        // Part of the contract: a host of another version finds the same ones.
        assert_eq!(one.iter().take(5).copied().collect::<Vec<_>>(), FIRST);
    }

    const FIRST: [u32; 5] = [7, 36, 41, 58, 75];

    #[test]
    fn canary_tenant_includes_all_its_requestors() {
        let tenant = TenantId([2; 16]);
        let route = Route::new("csv", &[7; 32], 0, vec![tenant]);
        assert!(!route.includes(&requestor(1)));
        assert!(route.includes(&Requestor { tenant, ..requestor(1) }));
    }
}
