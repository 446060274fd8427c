//! What calls of a plugin are granted: the operator's grants within what the plugin wants and its tenant is left.
//!
//! Owns the result alone. Must not decide it. Invariant: it does not change while the plugin is loaded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bulkhead_calls::policy::{DeniedDirectory, DirGrant, GrantSides, HttpGrant};
use bulkhead_domain::Json;
use bulkhead_domain::imports::Grant;
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_domain::requestor::TenantId;

/// The grants of one plugin, ready for its calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    pub(super) directories: Vec<DirGrant>,
    pub(super) http: Vec<HttpGrant>,
    /// Read once, when the plugin was loaded.
    pub(super) environment: Vec<(String, String)>,
    /// `[[plugin]] config`.
    pub(super) settings: BTreeMap<String, Json>,
    pub(super) keyvalue: Option<KeyValueLimits>,
    /// Requested directories that it does not have, named when a use of their kind fails.
    pub(super) missing_directories: Vec<DeniedDirectory>,
    /// The names of requested variables that it does not have.
    pub(super) missing_variables: Vec<String>,
    /// What each side said, for a message that says which of them withholds something.
    pub(super) sides: Arc<GrantSides>,
    /// Of a component that says nothing of what it wants: what its imports can make use of, and the interface that says
    /// so.
    pub(super) usable: Vec<(Grant, &'static str)>,
}

/// The same by tenant: some are left less than the others.
#[derive(Debug, Default)]
pub(super) struct GrantedTo {
    pub(super) others: Arc<Granted>,
    pub(super) tenants: HashMap<TenantId, Arc<Granted>>,
}

impl GrantedTo {
    pub(super) fn of(&self, tenant: TenantId) -> &Arc<Granted> {
        self.tenants.get(&tenant).unwrap_or(&self.others)
    }
}
