//! What the configuration says of tenants, by the ids that the store knows them by.

use std::collections::HashMap;
use std::sync::Arc;

use bulkhead_calls::policy::{Bound, TenantBounds};
use bulkhead_config::Config;
use bulkhead_domain::limits::LimitsTable;
use bulkhead_domain::requestor::TenantId;
use bulkhead_identity::principal::{Principals, TenantRules};
use bulkhead_plugins::Pinning;

/// Everything that is set for tenants; those that nothing is said of are not named.
pub(crate) struct Tenants {
    /// Their names and ids.
    pub(crate) ruled: TenantRules,
    /// Of the host, and of tenants that have others.
    pub(crate) limits: LimitsTable,
    pub(crate) cpu_weights: HashMap<TenantId, u32>,
    /// What plugins reach at most in their calls.
    pub(crate) bounds: Arc<TenantBounds>,
    /// Their say about definitions that change.
    pub(crate) pinning: HashMap<TenantId, Pinning>,
}

impl Tenants {
    /// Looks the names up, and writes nothing: [`Principals::adopt`] does.
    pub(crate) async fn of(config: &Config, principals: &Principals) -> anyhow::Result<Self> {
        let ruled = principals.look_up(config.tenants.keys()).await?;
        let mut limits = HashMap::new();
        let mut cpu_weights = HashMap::new();
        let mut bounds = HashMap::new();
        let mut pinning = HashMap::new();
        for (name, tenant) in &config.tenants {
            let Some(id) = ruled.id(name) else { continue };
            limits.insert(id, Arc::new(tenant.limits.clone()));
            cpu_weights.insert(id, tenant.cpu_weight);
            if tenant.grants != Bound::default() {
                bounds.insert(id, tenant.grants.clone());
            }
            pinning.extend(tenant.changed_definitions.map(|policy| (id, policy)));
        }
        let limits = LimitsTable { base: Arc::new(config.limits.clone()), tenants: limits };
        Ok(Self { ruled, limits, cpu_weights, bounds: Arc::new(bounds), pinning })
    }
}
