//! How plain calls begin, and what every call is told about itself.
//!
//! Invariant: a call begins with a permit, in the order in which its requestor asked, or is refused by the limit that
//! is full.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::engine::run::plain::PlainCall;
use crate::engine::{EngineContext, Tasks};
use crate::error::Error;
use crate::parts::activity::RefusalCount;
use crate::parts::admission::{Purpose, refused};
use crate::parts::audit_events::RefusalAudit;
use crate::parts::call_identity::{DrawnIdentity, Identity, draw_identity};
use crate::parts::call_slot::CallSlot;
use crate::parts::guest_services::TenantServices;
use crate::parts::journal::TaskJournal;
use crate::parts::request::{CallRequest, ClientContext, PluginRequest};
use bulkhead_calls::{CallContext, CallSpec, Journaling, OnDemand, Operation};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{CallId, TaskId};
use bulkhead_limits::Full;

impl Tasks {
    /// Starts a plain call, after waiting at most `call_queue_ms_max` for a permit. It lives as long as what is
    /// returned.
    pub async fn call(&self, requestor: &Requestor, request: CallRequest) -> Result<PlainCall, Error> {
        let tool = &request.tool;
        let audit = RefusalAudit::new(&self.inner.audit.log, requestor, &tool.tool.name, Some(&tool.plugin));
        let count = RefusalCount::new(Some(&tool.activity));
        self.begin(requestor, request).await.inspect_err(|error| self.refused(requestor, audit, count, error))
    }

    async fn begin(&self, requestor: &Requestor, request: CallRequest) -> Result<PlainCall, Error> {
        let inner = &self.inner;
        inner.health.admit(requestor, &request.tool.plugin)?;
        let call_slot = inner.occupy(requestor).await?;
        let drawn = draw_identity()?;
        let policy = request.tool.journal.clone();
        let policy = policy.filter(|_| request.may_become_task && inner.health.may_keep_journal(&request.tool));
        let journal = policy.as_ref().map(|_| TaskJournal::held(inner.journal_owner()));
        let identity = Identity { drawn, task_id: None, attempt: 1, journal: journal.clone() };
        let mut spec = inner.spec(requestor, &request, identity);
        if let (Some(sink), Some(policy)) = (journal.clone(), policy) {
            spec.journaling = Journaling::To { sink, policy };
        }
        PlainCall::start(inner.clone(), *requestor, Some(request), spec, journal, call_slot)
    }

    /// Starts a request other than a tool call, on the terms of a plain call.
    pub async fn request(&self, requestor: &Requestor, request: PluginRequest) -> Result<PlainCall, Error> {
        let plugin = &request.library.plugin;
        let audit = RefusalAudit::new(&self.inner.audit.log, requestor, request.operation.label(), Some(plugin));
        let count = RefusalCount::new(Some(&request.library.activity));
        self.begin_other(requestor, request).await.inspect_err(|error| self.refused(requestor, audit, count, error))
    }

    async fn begin_other(&self, requestor: &Requestor, request: PluginRequest) -> Result<PlainCall, Error> {
        let inner = &self.inner;
        inner.health.admit(requestor, &request.library.plugin)?;
        let call_slot = inner.occupy(requestor).await?;
        let PluginRequest { library, operation, client } = request;
        let drawn = draw_identity()?;
        let identity = Identity { drawn, task_id: None, attempt: 1, journal: None };
        let facts = inner.facts(requestor, client, identity, &[]);
        let (share, activity) = inner.shares.for_call(requestor);
        let spec = CallSpec {
            plugin: library.plugin.clone(),
            tenant: requestor.tenant,
            operation,
            limits: library.limits.clone(),
            share,
            activity,
            facts,
            journaling: Journaling::Off,
        };
        PlainCall::start(inner.clone(), *requestor, None, spec, None, call_slot)
    }

    pub(crate) fn refused(&self, requestor: &Requestor, audit: RefusalAudit, count: RefusalCount, error: &Error) {
        audit.refused(error);
        count.refused();
        let inner = &self.inner;
        // An erased tenant stays forgotten.
        if inner.activity.get().is_some_and(|activity| activity.is_watched())
            && !inner.availability.is_blocked(requestor.tenant)
        {
            inner.shares.with_activity(|activity| activity.of(requestor).refused());
        }
    }
}

impl EngineContext {
    /// A permit for a call that is no task.
    async fn occupy(&self, requestor: &Requestor) -> Result<CallSlot, Error> {
        self.availability.admit(requestor)?;
        let permit = match self.admission.try_permit(requestor, Purpose::Plain) {
            Some(permit) => permit,
            None => {
                let queue_ms_max = self.admission.limits(requestor).call_queue_ms_max;
                let request = self.admission.enqueue(requestor, Purpose::Plain);
                let mut request = request.map_err(|full| refused(full, None))?;
                match tokio::time::timeout(Duration::from_millis(queue_ms_max), request.permit()).await {
                    Ok(Some(permit)) => permit,
                    Ok(None) | Err(_) => return Err(self.no_permit(requestor, queue_ms_max)),
                }
            }
        };
        Ok(CallSlot::new(self.admission.clone(), *requestor, false, permit))
    }

    fn no_permit(&self, requestor: &Requestor, queue_ms_max: u64) -> Error {
        let limits = self.admission.limits(requestor);
        let otherwise = Full { limit: "calls_running_per_requestor", value: limits.calls_running_per_requestor.into() };
        refused(self.admission.blocked(requestor, Purpose::Plain).unwrap_or(otherwise), Some(queue_ms_max))
    }

    pub(crate) fn spec(&self, requestor: &Requestor, request: &CallRequest, identity: Identity) -> CallSpec {
        let tool = request.tool.plugin_tool.clone();
        let arguments = request.arguments.clone();
        let (share, activity) = self.shares.for_call(requestor);
        CallSpec {
            plugin: request.tool.plugin.clone(),
            tenant: requestor.tenant,
            operation: Operation::CallTool { tool, arguments },
            limits: request.tool.limits.clone(),
            share,
            activity,
            facts: self.facts(requestor, request.client, identity, &request.related),
            journaling: Journaling::Off,
        }
    }

    /// What a guest may know about its call, and what it may use in it.
    pub(crate) fn facts(
        &self,
        requestor: &Requestor,
        client: ClientContext,
        identity: Identity,
        related: &[TaskId],
    ) -> CallContext {
        let Identity { drawn: DrawnIdentity { seed, call_id }, task_id, attempt, journal } = identity;
        let all = Arc::clone(&self.service_stores);
        let guest_services = TenantServices { tenant: requestor.tenant, all, journal };
        CallContext {
            call_id,
            task_id: task_id.map(|id| id.to_string()),
            attempt,
            idempotency_key: OnDemand::Made { of: seed, by: idempotency_key },
            requestor_alias: OnDemand::Made { of: ids(requestor), by: requestor_alias },
            features: client.features,
            log_level: client.log_level,
            related_tasks: related.iter().map(TaskId::to_string).collect(),
            seed,
            wants_progress: client.wants_progress,
            guest_services: Some(Arc::new(guest_services)),
            outside: None,
        }
    }
}

fn idempotency_key(seed: &[u8; 32]) -> String {
    derived(b"bulkhead idempotency key", &[seed])
}

fn requestor_alias(ids: &[u8; 32]) -> String {
    let (tenant, requestor) = ids.split_at(16);
    derived(b"bulkhead requestor alias", &[tenant, requestor])
}

/// Tenant and requestor, in this order.
fn ids(requestor: &Requestor) -> [u8; 32] {
    let mut ids = [0; 32];
    let both = requestor.tenant.0.iter().chain(&requestor.id.0);
    ids.iter_mut().zip(both).for_each(|(target, byte)| *target = *byte);
    ids
}

/// 128 bits that say nothing about what they were made from, in hexadecimal.
fn derived(purpose: &[u8], parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in std::iter::once(&purpose).chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    CallId(hash.finalize().first_chunk().copied().unwrap_or_default()).to_string()
}
