//! Requestors that tokens of issuers bring in for the first time.
//!
//! Owns how many requestors and tenants there are. Invariant: what an issuer, or a client registered with one, can make
//! grow stays within `requestors_per_tenant` and `tenants_total`, and grows no faster than its rate; a requestor that
//! exists is never refused for it. What operators make is not refused, and is counted from the next start on at the
//! latest.

use std::collections::HashMap;

use tokio::sync::Mutex;

use super::{Error, Identity, InTenant, KEY_IDENTITY, KEY_TENANT, PrincipalRow, Principals, TenantRow, unavailable};
use crate::auth::{Denied, Limited};
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_limits::Full;
use bulkhead_limits::LiveLimits;
use bulkhead_limits::rate::Buckets;
use bulkhead_store::RowKind;

/// Locked while a requestor is created, so that the counts are those of the store.
#[derive(Default)]
pub(super) struct Provisioning(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` until it is first asked for.
    counts: Option<IdentityCounts>,
    rate: Option<Buckets<TenantId>>,
}

#[derive(Default)]
struct IdentityCounts {
    tenants: u64,
    requestors: HashMap<TenantId, u64>,
}

impl Provisioning {
    /// Forgets the counts: a requestor was removed.
    pub(super) async fn count_again(&self) {
        self.0.lock().await.counts = None;
    }
}

impl State {
    /// Counts one new requestor of a tenant against its rate.
    fn check_rate(&mut self, limits: &Limits, tenant: TenantId) -> Result<(), Limited> {
        let per_second = limits.requestor_creations_per_second_per_tenant;
        let rate = self.rate.take().filter(|rate| rate.per_second() == per_second);
        let rate = rate.unwrap_or_else(|| Buckets::new("requestor_creations_per_second_per_tenant", per_second));
        let checked = rate.check(&tenant).map_err(Limited::Rate);
        self.rate = Some(rate);
        checked
    }
}

impl Principals {
    /// Makes ids for a new identity, if there is room.
    pub(super) async fn provision(
        &self,
        identity: Identity<'_>,
        tenant: InTenant<'_>,
        limits: &LiveLimits,
    ) -> Result<PrincipalRow, Denied> {
        let mut state = self.provisioning.0.lock().await;
        // The same one may have come twice at once.
        if let Some(row) = self.get(RowKind::Principal, &identity.key()).await.map_err(unavailable)? {
            return Ok(row);
        }
        let mut counts = match state.counts.take() {
            Some(counts) => counts,
            None => self.count_all().await.map_err(unavailable)?,
        };
        let outcome = self.provision_within_limits(&mut counts, &mut state, identity, tenant, limits).await;
        state.counts = Some(counts);
        outcome
    }

    async fn provision_within_limits(
        &self,
        counts: &mut IdentityCounts,
        state: &mut State,
        identity: Identity<'_>,
        tenant: InTenant<'_>,
        limits: &LiveLimits,
    ) -> Result<PrincipalRow, Denied> {
        let base = limits.base();
        let id = match self.find_tenant(tenant.name).await.map_err(unavailable)? {
            Some(id) => id,
            None => {
                if !tenant.is_configured {
                    check("tenants_total", base.tenants_total, counts.tenants)?;
                }
                let id = self.tenant(tenant.name).await.map_err(|error| match error {
                    // Nothing is wrong with the host, and its log does not need the name.
                    Error::Removed(_) => Denied::Invalid,
                    other => unavailable(other),
                })?;
                counts.tenants += 1;
                id
            }
        };
        let count = counts.requestors.entry(id).or_default();
        // Which of the tenant's requestors does not matter to it.
        let limits = limits.of(&Requestor { tenant: id, id: RequestorId([0; 16]) });
        check("requestors_per_tenant", limits.requestors_per_tenant, *count)?;
        state.check_rate(&base, id)?;
        let row = self.principal(identity, tenant.name).await.map_err(unavailable)?;
        *count += 1;
        Ok(row)
    }

    async fn count_all(&self) -> Result<IdentityCounts, Error> {
        let mut counts = IdentityCounts::default();
        let requestors = &mut counts.requestors;
        self.each(RowKind::Principal, &[KEY_IDENTITY], |_, row: PrincipalRow| {
            *requestors.entry(TenantId(row.tenant)).or_default() += 1;
        })
        .await?;
        let tenants = &mut counts.tenants;
        self.each(RowKind::Principal, &[KEY_TENANT], |_, _: TenantRow| *tenants += 1).await?;
        Ok(counts)
    }
}

fn check(limit: &'static str, max: u32, count: u64) -> Result<(), Limited> {
    let value = u64::from(max);
    if count < value { Ok(()) } else { Err(Limited::Full(Full { limit, value })) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use bulkhead_store::memory::MemoryStore;

    const MANY: u32 = 1_000;

    fn limits(requestors: u32, tenants: u32, rate: u32) -> LiveLimits {
        Limits {
            requestors_per_tenant: requestors,
            tenants_total: tenants,
            requestor_creations_per_second_per_tenant: rate,
            ..Limits::generous()
        }
        .into()
    }

    async fn comes(
        principals: &Principals,
        subject: &str,
        tenant: &str,
        limits: &LiveLimits,
    ) -> Result<Requestor, Denied> {
        let issuer = "https://login.example.com";
        let subject = format!("{tenant}/{subject}");
        let identity = Identity { verifier: "oauth:tenant", issuer, subject: &subject, client: "" };
        let tenant = InTenant { name: tenant, is_configured: tenant == "configured" };
        principals.identified(identity, tenant, limits).await.map(|(requestor, _)| requestor)
    }

    #[track_caller]
    fn is_full(outcome: &Result<Requestor, Denied>, name: &str) {
        let full = |denied: &Denied| matches!(denied, Denied::Limited(Limited::Full(full)) if full.limit == name);
        assert!(outcome.as_ref().is_err_and(full), "{outcome:?}");
    }

    #[tokio::test]
    async fn requestors_per_tenant_are_limited() {
        let store = Arc::new(MemoryStore::new());
        let principals = Principals::new(store.clone());
        let limits = limits(3, MANY, MANY);
        let first = comes(&principals, "0", "acme", &limits).await.unwrap();
        for subject in ["1", "2"] {
            comes(&principals, subject, "acme", &limits).await.unwrap();
        }
        // After a start, too.
        for principals in [principals, Principals::new(store)] {
            is_full(&comes(&principals, "3", "acme", &limits).await, "requestors_per_tenant");
            assert_eq!(comes(&principals, "0", "acme", &limits).await.unwrap(), first, "who is there stays");
            let others = principals.names().await.unwrap().len();
            comes(&principals, &others.to_string(), "globex", &limits).await.expect("nobody else is meant");
        }
    }

    #[tokio::test]
    async fn tenants_provisioned_by_tokens_are_limited() {
        let principals = Principals::new(Arc::new(MemoryStore::new()));
        let limits = limits(MANY, 2, MANY);
        let acme = comes(&principals, "0", "acme", &limits).await.unwrap();
        comes(&principals, "0", "globex", &limits).await.unwrap();
        is_full(&comes(&principals, "0", "initech", &limits).await, "tenants_total");
        assert_eq!(principals.tenants().await.unwrap().len(), 2, "nothing was written");
        comes(&principals, "1", "acme", &limits).await.unwrap();
        let configured = comes(&principals, "0", "configured", &limits).await.expect("the operator named it");
        principals.remove_tenant(configured.tenant).await.unwrap();
        // One that is erased makes room.
        principals.remove_tenant(acme.tenant).await.unwrap();
        comes(&principals, "0", "initech", &limits).await.unwrap();
    }

    #[tokio::test]
    async fn requestor_provisioning_rate_is_limited_per_tenant() {
        let principals = Principals::new(Arc::new(MemoryStore::new()));
        let limits = limits(MANY, MANY, 5);
        let mut let_in = 0;
        for subject in 0..100 {
            match comes(&principals, &subject.to_string(), "acme", &limits).await {
                Ok(_) => let_in += 1,
                Err(Denied::Limited(Limited::Rate(exceeded))) => assert_eq!(exceeded.value, 5),
                Err(other) => panic!("{other}"),
            }
        }
        assert!((10..=15).contains(&let_in), "a burst of twice the rate: {let_in}");
        comes(&principals, "0", "acme", &limits).await.unwrap();
        comes(&principals, "0", "globex", &limits).await.unwrap();
    }
}
