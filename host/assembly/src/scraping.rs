//! The metrics of a running host: where they are read, and what is read only when a scrape asks.
//!
//! Must not count anything itself. Invariant: a reading takes no lock for longer than it takes to copy a few numbers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_audit::Audit;
use bulkhead_config::MetricsConfig;
use bulkhead_control::health::HostHealth;
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_control::scrape::{PATH, Scrape, ScrapeParts};
use bulkhead_domain::hex;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_identity::principal::Principals;
use bulkhead_limits::tenant_usage::UsageCounts;
use bulkhead_limits::{LimitUsage, LiveLimits, UsageReport as _};
use bulkhead_metrics::families::{
    ANSWER_BYTES, AUDIT_LOST, AUDIT_WAITING, BUILD_INFO, CALLS_QUEUED, CALLS_RESTING, CALLS_RUNNING, CONNECTIONS,
    EVENT_BYTES, GUEST_THREADS_BUSY, GUESTS_WAITING, HEALTHY, LIMIT_RATIO, PLUGIN_CALLS, PLUGIN_CANARY, PLUGIN_INFO,
    PLUGIN_QUARANTINED, READY, REQUESTS_OPEN, SESSIONS, SPANS_DROPPED, STORE_FREE, STORE_IN_DOUBT, STORE_LOST_GROUPS,
    STORE_READ_ONLY, STORE_RECONNECTS, STORE_STATEMENTS, STORE_WAITING, STREAMS_OPEN, TASKS, TASKS_DORMANT, TASKS_HELD,
    TENANT_CALLS, TENANT_CALLS_RUNNING, TENANT_CPU, TENANT_REFUSALS, TENANT_STORED,
};
use bulkhead_metrics::{Readings, process};
use bulkhead_net::server::Certificate;
use bulkhead_plugins::{Digest, PluginState, PluginView, Plugins};
use bulkhead_store::Store;
use bulkhead_tasks::Tasks;
use bulkhead_traces::Tracer;
use bulkhead_transport::http::bind;
use bulkhead_transport::quota::EdgeQuota;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::host::Host;
use super::store_engine::StoreEngine;
use super::trust;

/// Where scrapers come in, bound before anything slow.
pub(super) struct ScrapeListener {
    listener: TcpListener,
    secret: Option<AdminTokenDigest>,
    certificate: Option<Arc<Certificate>>,
    tenants: bool,
}

pub(super) fn bind_listener(config: &MetricsConfig) -> anyhow::Result<ScrapeListener> {
    let (secret, certificate) = trust::metrics(config)?;
    let listener = bind(config.listen, true).context("metrics.listen")?;
    Ok(ScrapeListener { listener, secret, certificate, tenants: config.tenants })
}

impl ScrapeListener {
    pub(super) fn address(&self) -> anyhow::Result<String> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}{PATH}", self.listener.local_addr()?))
    }

    /// Serves the metrics of a host.
    pub(super) fn open(self, host: &Host) -> anyhow::Result<Scrape> {
        tracing::info!(address = self.address()?, "metrics are served");
        let Self { listener, secret, certificate, tenants } = self;
        let metrics = host.metrics.clone();
        let from = ReadFrom::of(host);
        let known = Arc::<Mutex<Vec<PluginView>>>::default();
        let reader = Arc::new(move || from.clone().read(tenants, Arc::clone(&known)).boxed());
        let parts = ScrapeParts { listener, secret, certificate, metrics, reader };
        Scrape::spawn(parts).context("metrics.tls cannot be served with")
    }
}

type HeldCounts = Vec<(TenantId, Arc<UsageCounts>)>;

/// What of a host is read.
#[derive(Clone)]
struct ReadFrom {
    store: Arc<dyn Store>,
    engine: StoreEngine,
    principals: Principals,
    tasks: Tasks,
    plugins: Plugins,
    quota: Arc<EdgeQuota>,
    limits: LiveLimits,
    audit: Audit,
    health: Arc<HostHealth>,
    tracer: Tracer,
    /// The counts of named tenants, which are kept for as long as they are held.
    usage: Arc<Mutex<HeldCounts>>,
}

/// Tenants that are told apart; the others are summed.
const TENANTS_MAX: usize = 200;
/// What stands for all others.
const OTHERS: &str = "_other";
/// Digits of a version's digest.
const VERSION_DIGITS: usize = 12;
/// Plugins cannot be looked at while one is switched.
const PLUGINS_WITHIN: Duration = Duration::from_millis(500);

impl ReadFrom {
    fn of(host: &Host) -> Self {
        Self {
            store: Arc::clone(&host.store),
            engine: host.engine.clone(),
            principals: host.principals.clone(),
            tasks: host.tasks.clone(),
            plugins: host.plugin_admin.plugins.clone(),
            quota: Arc::clone(&host.quota),
            limits: host.limits.clone(),
            audit: host.audit.clone(),
            health: Arc::clone(&host.health),
            tracer: host.tracer.clone(),
            usage: Arc::default(),
        }
    }

    async fn read(self, tenants: bool, known: Arc<Mutex<Vec<PluginView>>>) -> Readings {
        let mut readings = Readings::default();
        readings.read(&BUILD_INFO, [env!("CARGO_PKG_VERSION")], 1.0);
        process::read(&mut readings);
        self.read_calls(&mut readings);
        self.read_edge(&mut readings);
        self.read_host(&mut readings);
        if let Some((waiting, lost)) = self.audit.backlog() {
            readings.read(&AUDIT_WAITING, [], waiting as f64);
            readings.read(&AUDIT_LOST, [], lost as f64);
        }
        if let Ok(Ok(listed)) = tokio::time::timeout(PLUGINS_WITHIN, self.plugins.list()).await {
            *known.lock() = listed;
        }
        known.lock().iter().for_each(|plugin| read_plugin(&mut readings, plugin));
        if tenants {
            self.read_tenants(&mut readings).await;
        }
        readings
    }

    fn read_host(&self, readings: &mut Readings) {
        let flag = |is: bool| f64::from(u8::from(is));
        readings.read(&HEALTHY, [], flag(self.health.unhealthy().is_none()));
        readings.read(&READY, [], flag(self.health.unready().is_none()));
        readings.read(&STORE_READ_ONLY, [], flag(self.store.read_only().is_some()));
        readings.read(&STORE_WAITING, [self.engine.name()], self.engine.operations_waiting() as f64);
        if let Some(counts) = self.engine.database_counts() {
            readings.read(&STORE_STATEMENTS, [], counts.statements as f64);
            readings.read(&STORE_RECONNECTS, [], counts.reconnects as f64);
            readings.read(&STORE_IN_DOUBT, [], counts.in_doubt as f64);
            readings.read(&STORE_LOST_GROUPS, [], counts.lost_groups as f64);
        }
        if let Some(free) = self.health.disk_free_bytes() {
            readings.read(&STORE_FREE, [], free as f64);
        }
        let (busy, waiting) = self.health.guests.load();
        readings.read(&GUEST_THREADS_BUSY, [], busy as f64);
        readings.read(&GUESTS_WAITING, [], waiting as f64);
        if self.tracer.is_on() {
            readings.read(&SPANS_DROPPED, [], self.tracer.spans_dropped() as f64);
        }
    }

    fn read_calls(&self, readings: &mut Readings) {
        let (sums, _) = self.tasks.sums(&[]);
        readings.read(&CALLS_RUNNING, [], sums.running as f64);
        readings.read(&CALLS_QUEUED, [], sums.lined_up as f64);
        readings.read(&CALLS_RESTING, [], sums.resting as f64);
        for (status, count) in [
            ("queued", sums.queued),
            ("running", sums.running_tasks),
            ("waiting", sums.waiting),
            ("paused", sums.paused),
        ] {
            readings.read(&TASKS, [status], count as f64);
        }
        readings.read(&TASKS_DORMANT, [], self.tasks.dormant_count() as f64);
        readings.read(&TASKS_HELD, [], self.tasks.held_count() as f64);
    }

    fn read_edge(&self, readings: &mut Readings) {
        for LimitUsage { limit, in_use, max } in self.quota.in_use_of_all() {
            readings.read(&LIMIT_RATIO, [limit], in_use as f64 / (max.max(1)) as f64);
            let family = match limit {
                "connections_max" => &CONNECTIONS,
                "requests_open_total" => &REQUESTS_OPEN,
                "sessions_total" => &SESSIONS,
                "event_bytes_total" => &EVENT_BYTES,
                "answer_bytes_total" => &ANSWER_BYTES,
                _ => continue,
            };
            readings.read(family, [], in_use as f64);
        }
        readings.read(&STREAMS_OPEN, [], self.quota.streams_open() as f64);
    }

    /// Tenants that the configuration names; a tenant that is erased has no name any more.
    async fn read_tenants(&self, readings: &mut Readings) {
        let table = self.limits.table();
        let mut named = Vec::new();
        for id in table.tenants.keys() {
            if let Ok(Some(name)) = self.principals.tenant_name(*id).await {
                named.push((name, *id));
            }
        }
        named.sort_by(|(one, _), (other, _)| one.cmp(other));
        named.truncate(TENANTS_MAX);
        let ids: Vec<_> = named.iter().map(|(_, id)| *id).collect();
        let usage: Vec<_> = ids.iter().map(|id| (*id, self.tasks.usage_counts().of(*id))).collect();
        let (all, of_each) = self.tasks.sums(&ids);
        let mut others = all.running;
        for (((name, id), sums), (_, counts)) in named.iter().zip(of_each).zip(&usage) {
            others = others.saturating_sub(sums.running);
            readings.read(&TENANT_CALLS_RUNNING, [name], sums.running as f64);
            readings.read(&TENANT_CALLS, [name], counts.calls() as f64);
            readings.read(&TENANT_REFUSALS, [name], counts.refusals() as f64);
            readings.read(&TENANT_CPU, [name], self.tasks.served_us(id) as f64 / 1e6);
            let anybody = Requestor { tenant: *id, id: RequestorId([0; 16]) };
            if let Ok((_, stored)) = self.store.usage(&anybody).await {
                readings.read(&TENANT_STORED, [name], stored.bytes as f64);
            }
        }
        readings.read(&TENANT_CALLS_RUNNING, [OTHERS], others as f64);
        *self.usage.lock() = usage;
    }
}

fn read_plugin(readings: &mut Readings, plugin: &PluginView) {
    // What was removed is listed as long as its versions are kept.
    if plugin.state == PluginState::Removed {
        return;
    }
    let digits = |version: &Digest| hex(&version.0).chars().take(VERSION_DIGITS).collect::<String>();
    let version = plugin.active.as_ref().map(digits).unwrap_or_default();
    readings.read(&PLUGIN_INFO, [&plugin.name, &version, plugin.state.name()], 1.0);
    readings.read(&PLUGIN_CALLS, [&plugin.name], plugin.calls as f64);
    readings.read(&PLUGIN_QUARANTINED, [&plugin.name], plugin.health.requestors_kept_away as f64);
    if let Some(canary) = &plugin.canary {
        readings.read(&PLUGIN_CANARY, [&plugin.name, &digits(&canary.version)], canary.percent / 100.0);
    }
}
