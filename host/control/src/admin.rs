//! Administration of a whole host: all tasks in pages, limits in use, draining, and another configuration.
//!
//! Owns the pages: where one ends and the next begins. Must not show what belongs to a requestor alone. Invariant: one
//! command reads a bounded number of records, however many there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::ControlError;
use super::commands::TaskFilter;
use super::health::HostHealth;
use super::history::History;
use super::operator::{HostOperator, is_expired, summary};
use super::views::{
    ConfigIdentity, DashboardLoginView, DrainView, HealthView, HostIdentity, HostStatusView, LimitCount, LimitCounts,
    LimitsView, ReloadView, RequestorLimitsView, TaskPageView, TaskPurgeView, TaskStatus, TenantLimitsView,
};
use bulkhead_calls::policy::DirGrant;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Task, TaskId};
use bulkhead_identity::principal::PrincipalNames;
use bulkhead_limits::{LimitUsage, RequestorUsage, UsageReport};
use bulkhead_store::{Store, Usage};
use bulkhead_tasks::{Sums, Tasks};

/// Tasks or requestors in one reply.
const ENTRIES_MAX: usize = 1_000;
/// Records that are read for one reply: a filter that fits nothing must not walk through millions at once.
const LOOKS_MAX: usize = 20_000;
const PAGE_TASKS: usize = 256;

/// Handles that exist only while the host is serving.
pub struct RunningHost {
    pub tasks: Tasks,
    /// Reports the limits of the transport.
    pub edge: Arc<dyn UsageReport>,
    pub reload: Arc<dyn Reload>,
    pub health: Arc<HostHealth>,
    pub identity: HostIdentity,
    /// Where a dashboard is served.
    pub login_links: Option<Arc<dyn LoginLinks>>,
    /// The same.
    pub history: Option<Arc<History>>,
}

/// Makes links that log an operator in at the dashboard, each once.
pub trait LoginLinks: Send + Sync + 'static {
    /// `None` without randomness.
    fn make_link(&self) -> Option<DashboardLoginView>;
}

/// Takes another configuration.
#[async_trait]
pub trait Reload: Send + Sync + 'static {
    /// Reads the configuration again and takes it over, all of it or nothing; with `check` only says what would come of
    /// it.
    async fn reload(&self, who: &str, check: bool) -> Result<ReloadView, ControlError>;

    /// The configuration that is in effect.
    async fn config(&self) -> ConfigIdentity;

    /// The directories that plugins are granted now.
    async fn directories(&self) -> Vec<DirGrant>;
}

/// A place between two tasks, in the order of the store's keys.
type Position = (Requestor, TaskId);

fn shown(position: Position) -> String {
    let (requestor, task) = position;
    format!("{}.{}.{task}", requestor.tenant, requestor.id)
}

fn position(text: &str) -> Result<Position, ControlError> {
    let mut parts = text.split('.');
    let mut part = || parts.next().unwrap_or_default();
    let read = (TenantId::parse(part()), RequestorId::parse(part()), TaskId::parse(part()));
    let (Some(tenant), Some(id), Some(task)) = read else {
        return Err(ControlError::Invalid("this is not the place where a page ended".to_owned()));
    };
    Ok((Requestor { tenant, id }, task))
}

/// A walk through the records.
struct Walk<'a> {
    store: &'a dyn Store,
    filter: &'a TaskFilter,
    now: u64,
    count_max: usize,
    looks: usize,
    found: Vec<Task>,
    last: Option<Position>,
}

impl Walk<'_> {
    /// Goes on from there, through the tasks of one requestor or of all; returns whether the end was reached.
    async fn on(&mut self, from: Option<Position>, only: Option<Requestor>) -> Result<bool, ControlError> {
        let mut at = from;
        // Where the next reply goes on if nothing is left to look at here.
        self.last = from.or(self.last);
        loop {
            if self.looks >= LOOKS_MAX {
                return Ok(false);
            }
            let page = self.store.scan(at, PAGE_TASKS).await?;
            // Those of others count as well: they were read to know whose they are.
            self.looks += page.len();
            if page.is_empty() {
                return Ok(true);
            }
            for task in page {
                if only.is_some_and(|only| task.requestor != only) {
                    return Ok(true);
                }
                if self.found.len() >= self.count_max {
                    return Ok(false);
                }
                at = Some((task.requestor, task.id));
                self.last = at;
                if self.fits(&task) {
                    self.found.push(task);
                }
            }
        }
    }

    fn fits(&self, task: &Task) -> bool {
        let TaskFilter { plugin, status: wanted, tool, since, until, .. } = self.filter;
        !is_expired(task, self.now)
            && since.is_none_or(|since| task.created_at >= since)
            && until.is_none_or(|until| task.created_at < until)
            && tool.as_ref().is_none_or(|name| task.work.label() == name)
            && plugin.as_ref().is_none_or(|name| task.plugin.name == *name)
            && wanted.as_ref().is_none_or(|name| TaskStatus::from(&task.phase).name() == name)
    }
}

fn wanted(filter: &TaskFilter, named: &PrincipalNames) -> bool {
    filter.requestor.as_ref().is_none_or(|name| named.name == *name)
        && filter.tenant.as_ref().is_none_or(|name| named.tenant == *name)
}

impl HostOperator {
    pub(super) fn running_host(&self) -> Result<&RunningHost, ControlError> {
        let absent = || ControlError::Invalid("no host runs on this data directory".to_owned());
        self.running_host.as_ref().ok_or_else(absent)
    }

    /// A page of all tasks.
    pub(super) async fn task_page(
        &self,
        filter: &TaskFilter,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<TaskPageView, ControlError> {
        let statuses = TaskStatus::ALL.map(TaskStatus::name);
        if let Some(name) = filter.status.as_deref().filter(|name| !statuses.contains(name)) {
            return Err(ControlError::Invalid(format!(
                "there is no status {name:?}; there are {}",
                statuses.join(", ")
            )));
        }
        let after = after.map(position).transpose()?;
        if let Some(tenant) = &filter.tenant {
            self.tenant_named(tenant).await?;
        }
        let names = self.principals.names().await?;
        let mut walk = Walk {
            store: &*self.store,
            filter,
            now: self.clock.now(),
            count_max: count_max.clamp(1, ENTRIES_MAX),
            looks: 0,
            found: Vec::new(),
            last: None,
        };
        let mut ended = true;
        if filter.requestor.is_none() && filter.tenant.is_none() {
            // Also finds tasks whose requestor has no name here.
            ended = walk.on(after, None).await?;
        } else {
            let mut requestors: Vec<_> = names.iter().filter(|named| wanted(filter, named)).collect();
            requestors.sort_by_key(|named| named.requestor);
            let left = requestors.into_iter().map(|named| named.requestor);
            for requestor in left.filter(|requestor| after.is_none_or(|(begun, _)| begun <= *requestor)) {
                let from = after.filter(|(begun, _)| *begun == requestor).unwrap_or((requestor, TaskId([0; 16])));
                ended = walk.on(Some(from), Some(requestor)).await?;
                if !ended {
                    break;
                }
            }
        }
        let tasks = walk.found.iter().map(|task| summary(task, &names)).collect();
        let next = if ended { None } else { walk.last.or(after).map(shown) };
        Ok(TaskPageView { tasks, more: !ended, next })
    }

    /// Removes a task with everything that belongs to it, whatever it is doing.
    pub(super) async fn purge(&self, id: &str) -> Result<TaskPurgeView, ControlError> {
        let task = self.find(id).await?;
        let purged = self.task_control.purge(&task.requestor, task.id).await;
        purged.map_err(|error| ControlError::Failed(error.to_string()))?;
        tracing::info!(task.id = %task.id, "an operator removed a task");
        Ok(TaskPurgeView { task: summary(&task, &self.principals.names().await?), purged: true })
    }

    /// What is in use of each limit that counts something, and how much there may be.
    pub(super) async fn limits_in_use(
        &self,
        filter: &TaskFilter,
        count_max: usize,
    ) -> Result<LimitsView, ControlError> {
        let RunningHost { tasks, edge, .. } = self.running_host()?;
        let count_max = count_max.clamp(1, ENTRIES_MAX);
        let in_use = tasks.in_use();
        let mut names = self.principals.names().await?;
        names.retain(|named| wanted(filter, named));
        names.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
        let mut tenants = BTreeMap::new();
        let mut requestors = Vec::new();
        let mut more = false;
        for named in &names {
            let limits = tasks.limits(&named.requestor);
            let (own, of_tenant) = self.store.usage(&named.requestor).await?;
            let held = in_use.counts.held(&named.requestor);
            let at_edge = edge.in_use(&named.requestor);
            tenants
                .entry(named.tenant.as_str())
                .or_insert_with(|| tenant_limits(held.tenant, &limits, of_tenant, &at_edge.tenant));
            // A call that rests is shown as what it rests for.
            let counts = Sums { resting: 0, ..held.requestor };
            // Those who use nothing are shown to whoever asks for them.
            let is_idle = counts == Sums::default()
                && own == Usage::default()
                && at_edge.requestor.iter().all(|taken| taken.in_use == 0);
            if is_idle && filter.requestor.is_none() {
                continue;
            }
            if requestors.len() >= count_max {
                more = true;
                continue;
            }
            let limits = requestor_limits(counts, &limits, own, &at_edge.requestor);
            requestors.push(RequestorLimitsView {
                requestor: named.name.clone(),
                tenant: named.tenant.clone(),
                limits,
            });
        }
        let tenants = tenants.into_iter().map(|(name, limits)| TenantLimitsView { tenant: name.to_owned(), limits });
        let all = in_use.counts.total();
        let base = tasks.base_limits();
        Ok(LimitsView {
            host: counted(
                [
                    ("calls_running_total", all.running, base.calls_running_total.into()),
                    ("calls_queued_total", all.lined_up, base.calls_queued_total.into()),
                    ("calls_resting_total", all.resting, in_use.resting_max.into()),
                    ("tasks_queued_total", all.queued, base.tasks_queued_total.into()),
                ],
                &edge.in_use_of_all(),
            ),
            tenants: tenants.collect(),
            requestors,
            more,
        })
    }

    /// A link that logs an operator in at the dashboard.
    pub(super) fn login_link(&self) -> Result<DashboardLoginView, ControlError> {
        let Some(links) = &self.running_host()?.login_links else {
            return Err(ControlError::Invalid(
                "this host serves no dashboard: set dashboard.listen, such as 127.0.0.1:8810, and start it again"
                    .to_owned(),
            ));
        };
        links.make_link().ok_or_else(|| ControlError::Failed("the host has no randomness".to_owned()))
    }

    /// What is left to end.
    pub(super) fn unfinished(&self) -> Result<DrainView, ControlError> {
        let RunningHost { tasks, .. } = self.running_host()?;
        let left = tasks.left_to_end();
        Ok(DrainView {
            draining: tasks.is_draining(),
            still: left.is_still(),
            plain_calls: left.plain_calls,
            tasks_running: left.tasks_running,
            tasks_queued: left.tasks_queued,
            tasks_waiting: left.tasks_waiting,
            tasks_paused: left.tasks_paused,
            tasks_held: tasks.held_count(),
        })
    }

    /// Which host this is, and what is left to end.
    pub(super) async fn status(&self) -> Result<HostStatusView, ControlError> {
        let RunningHost { identity, reload, .. } = self.running_host()?;
        Ok(HostStatusView { host: identity.clone(), config: reload.config().await, drain: self.unfinished()? })
    }

    /// Whether the host is healthy and ready.
    pub(super) async fn health(&self) -> Result<HealthView, ControlError> {
        Ok(self.running_host()?.health.view().await)
    }

    /// Takes nothing new from now on, or everything again; what has begun goes on.
    pub(super) fn drain(&self, on: bool) -> Result<DrainView, ControlError> {
        let RunningHost { tasks, .. } = self.running_host()?;
        if on {
            tasks.stop_accepting();
            tracing::info!("an operator drains the host: it takes nothing new");
        } else {
            tasks.accept_again();
            tracing::info!("an operator has ended the draining");
        }
        self.unfinished()
    }

    pub(super) async fn reload(&self, who: &str, check: bool) -> Result<ReloadView, ControlError> {
        self.running_host()?.reload.reload(who, check).await
    }
}

/// What one requestor alone has in use: of its own limits, and of those that it shares with its tenant. What others of
/// the tenant use is not in it.
pub async fn own_limits(
    tasks: &Tasks,
    edge: &dyn UsageReport,
    requestor: &Requestor,
) -> Result<(LimitCounts, LimitCounts), bulkhead_tasks::Error> {
    let sums = tasks.sums_of(requestor);
    let limits = tasks.limits(requestor);
    let stored = tasks.stored_by(requestor).await?;
    let RequestorUsage { requestor: own, tenant: mut shared } = edge.in_use(requestor);
    for usage in &mut shared {
        let name = usage.limit.strip_suffix("_per_tenant");
        let same = own.iter().find(|own| own.limit.strip_suffix("_per_requestor") == name);
        usage.in_use = same.map_or(0, |own| own.in_use);
    }
    let of_tenant = tenant_limits(sums, &limits, stored, &shared);
    Ok((requestor_limits(Sums { resting: 0, ..sums }, &limits, stored, &own), of_tenant))
}

fn tenant_limits(sums: Sums, limits: &Limits, stored: Usage, at_edge: &[LimitUsage]) -> LimitCounts {
    counted(
        [
            ("calls_running_per_tenant", sums.running, limits.calls_running_per_tenant.into()),
            ("calls_queued_per_tenant", sums.lined_up, limits.calls_queued_per_tenant.into()),
            ("tasks_running_per_tenant", sums.running_tasks, limits.tasks_running_per_tenant.into()),
            ("calls_resting_per_tenant", sums.resting, limits.calls_resting_per_tenant.into()),
            ("tasks_queued_per_tenant", sums.queued, limits.tasks_queued_per_tenant.into()),
            ("tasks_waiting_per_tenant", sums.waiting, limits.tasks_waiting_per_tenant.into()),
            ("tasks_paused_per_tenant", sums.paused, limits.tasks_paused_per_tenant.into()),
            ("tasks_stored_per_tenant", stored.tasks, limits.tasks_stored_per_tenant.into()),
            ("tasks_stored_bytes_per_tenant", stored.bytes, limits.tasks_stored_bytes_per_tenant),
        ],
        at_edge,
    )
}

fn requestor_limits(counts: Sums, limits: &Limits, stored: Usage, at_edge: &[LimitUsage]) -> LimitCounts {
    let Sums { running, running_tasks, lined_up, queued, waiting, paused, .. } = counts;
    counted(
        [
            ("calls_running_per_requestor", running, limits.calls_running_per_requestor.into()),
            ("calls_queued_per_requestor", lined_up, limits.calls_queued_per_requestor.into()),
            ("tasks_running_per_requestor", running_tasks, limits.tasks_running_per_requestor.into()),
            ("tasks_queued_per_requestor", queued, limits.tasks_queued_per_requestor.into()),
            ("tasks_waiting_per_requestor", waiting, limits.tasks_waiting_per_requestor.into()),
            ("tasks_paused_per_requestor", paused, limits.tasks_paused_per_requestor.into()),
            ("tasks_stored_per_requestor", stored.tasks, limits.tasks_stored_per_requestor.into()),
            ("tasks_stored_bytes_per_requestor", stored.bytes, limits.tasks_stored_bytes_per_requestor),
        ],
        at_edge,
    )
}

fn counted<const N: usize>(limits: [(&'static str, u64, u64); N], at_edge: &[LimitUsage]) -> LimitCounts {
    let limits = limits.into_iter().map(|(limit, in_use, max)| LimitUsage { limit, in_use, max });
    let one = |LimitUsage { limit, in_use, max }| (limit.to_owned(), LimitCount { in_use, max });
    limits.chain(at_edge.iter().copied()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_list_position_round_trips() {
        let place = (Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) }, TaskId([3; 16]));
        assert_eq!(position(&shown(place)), Ok(place));
        for wrong in ["", "a.b.c", "..", &shown(place)[1..]] {
            assert!(matches!(position(wrong), Err(ControlError::Invalid(_))), "{wrong}");
        }
    }
}
