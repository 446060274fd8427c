//! Another configuration for a running host: read again, checked as a whole, and then taken over or not.
//!
//! Invariant: everything that can fail is done before the first thing changes, and what is read at the start only
//! refuses the whole: a host never runs on half a configuration.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use bulkhead_audit::{Audit, Entry};
use bulkhead_calls::policy::DirGrant;
use bulkhead_config::{AdminSecret, Config, Flags, Problems};
use bulkhead_control::ControlError;
use bulkhead_control::admin::Reload;
use bulkhead_control::views::{ConfigIdentity, ReloadView};
use bulkhead_domain::hex;
use bulkhead_identity::auth::{Authenticator, Trusted};
use bulkhead_identity::principal::Principals;
use bulkhead_limits::LiveLimits;
use bulkhead_net::AbortOnDrop;
use bulkhead_plugins::Plugins;
use bulkhead_plugins::sources::ComponentFetcher;
use bulkhead_protocol::Protocol;
use bulkhead_tasks::Tasks;
use bulkhead_transport::quota::EdgeQuota;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::host::{Host, ObserveCalls};
use super::service_manager::ServiceManager;
use super::sources;
use super::system_clock::unix_ms;
use super::tenants::Tenants;
use super::trust::{self, Verifiers};

/// Sets another level of the log.
pub(crate) type Level = Box<dyn Fn(&str) + Send + Sync>;

/// Adds to a configuration what an author who runs the host grants their plugin beside.
pub(crate) type AddGrants = Box<dyn Fn(&mut Config) -> anyhow::Result<()> + Send + Sync>;

/// Where a configuration comes from.
#[derive(Default)]
pub struct Origin {
    pub file: Option<PathBuf>,
    pub flags: Flags,
    /// Of an author's host.
    pub add_grants: Option<AddGrants>,
}

impl Origin {
    /// The configuration as it is now, with the SHA-256 of its file.
    pub fn read(&self) -> anyhow::Result<(Config, [u8; 32])> {
        let (mut config, digest) = sources::load_with_digest(self.file.as_deref(), &self.flags)?;
        if let Some(add_grants) = &self.add_grants {
            add_grants(&mut config)?;
        }
        Ok((config, digest))
    }
}

/// What a host is started with.
pub struct HostStartup {
    pub origin: Origin,
    pub config: Config,
    pub digest: [u8; 32],
    pub level: Level,
    /// Of an author's host.
    pub observe_calls: Option<ObserveCalls>,
    /// Hears of reloads.
    pub manager: ServiceManager,
    /// Whether the tasks of an earlier host are held until an operator releases them.
    pub hold_tasks: bool,
}

impl HostStartup {
    /// Lets a host that was started with it follow it from now on, and says whom it lets in.
    pub(crate) fn follow(
        self,
        host: &Host,
        issuers: Vec<Trusted>,
    ) -> anyhow::Result<(Arc<Authenticator>, Arc<ConfigReloader>)> {
        let Self { origin, config, digest, level, observe_calls: _, manager, hold_tasks: _ } = self;
        let verifiers = Verifiers::new(&config, issuers, host);
        let authenticator = Arc::new(verifiers.authenticator(&config));
        let parts = ReloadTargets::of(host, Arc::clone(&authenticator), level);
        let watching = parts.watch(&config)?;
        parts.audit.note(|| Entry::new("configuration.loaded").configuration(&digest, None));
        let admin_token = admin_token(&config);
        let current = Mutex::new(Current { config, digest, verifiers, watching });
        Ok((authenticator, Arc::new(ConfigReloader { origin, parts, manager, admin_token, current })))
    }
}

/// What of a host follows its configuration.
struct ReloadTargets {
    tasks: Tasks,
    protocol: Arc<Protocol>,
    limits: LiveLimits,
    quota: Arc<EdgeQuota>,
    principals: Principals,
    plugins: Plugins,
    intake: Arc<ComponentFetcher>,
    authenticator: Arc<Authenticator>,
    audit: Audit,
    data: PathBuf,
    level: Level,
}

/// What is in effect.
struct Current {
    config: Config,
    digest: [u8; 32],
    verifiers: Verifiers,
    /// What looks at the watched folders, for as long as this is there.
    watching: Option<AbortOnDrop<()>>,
}

/// Takes over configurations, one at a time.
pub(crate) struct ConfigReloader {
    origin: Origin,
    parts: ReloadTargets,
    manager: ServiceManager,
    /// SHA-256 of the token of administrators, if it is in a file.
    admin_token: Option<[u8; 32]>,
    current: Mutex<Current>,
}

/// A configuration that can be taken over.
struct Ready {
    config: Config,
    digest: [u8; 32],
    changed: Vec<String>,
    tenants: Tenants,
    verifiers: Verifiers,
    intake: Arc<ComponentFetcher>,
}

impl ConfigReloader {
    /// Everything that can go wrong.
    async fn prepare(&self, current: &Current) -> anyhow::Result<Ready> {
        let (config, digest) = self.origin.read()?;
        let mut found = current.config.differences(&config);
        // The same file may hold another token.
        if config.admin == current.config.admin && admin_token(&config) != self.admin_token {
            found.at_start.push("admin.token_file".to_owned());
        }
        anyhow::ensure!(
            found.at_start.is_empty(),
            "needs a restart: {}; nothing was changed{}",
            found.at_start.join(", "),
            if found.live.is_empty() {
                String::new()
            } else {
                format!(", not even what could be ({})", found.live.join(", "))
            }
        );
        let parts = &self.parts;
        sources::refuse_exposing(&config, &parts.data)?;
        config.check_exposure(parts.principals.any_active_token(unix_ms()).await?)?;
        let issuers = trust::issuers(&config)?;
        let tenants = Tenants::of(&config, &parts.principals).await?;
        let verifiers = current.verifiers.with_issuers(&config, issuers);
        let intake = sources::intake(&config)?;
        Ok(Ready { config, digest, changed: found.live, tenants, verifiers, intake })
    }

    async fn change(&self, who: &str, check: bool) -> anyhow::Result<ReloadView> {
        let mut current = self.current.lock().await;
        let ready = self.prepare(&current).await?;
        let parts = &self.parts;
        let bounds = &ready.tenants.bounds;
        let terms = sources::terms(&ready.config, bounds)?;
        let otherwise = sources::otherwise(&ready.config, bounds);
        let terms = parts.plugins.prepare(terms, otherwise, ready.tenants.pinning.clone()).await?;
        let watching = if current.config.sources == ready.config.sources || check {
            None
        } else {
            Some(parts.watch(&ready.config)?)
        };
        let view = ReloadView {
            done: !check,
            changed: ready.changed.clone(),
            configuration_sha256: hex(&ready.digest),
            configuration_sha256_before: hex(&current.digest),
        };
        if check {
            return Ok(view);
        }
        // Their names are kept for good: no row is written of a configuration that is not taken over.
        parts.principals.adopt(&ready.tenants.ruled).await.context("the tenants cannot be noted: try again")?;
        // From here on nothing fails.
        let Ready { config, digest, changed, tenants, verifiers, intake } = ready;
        parts.authenticator.replace(&verifiers.authenticator(&config));
        parts.intake.replace(&intake);
        parts.limits.set(tenants.limits);
        parts.tasks.limits_changed();
        parts.tasks.set_cpu_weights(tenants.cpu_weights);
        parts.quota.limits_changed();
        terms.take_over();
        parts.protocol.set_tool_listing(sources::tool_listing(&config));
        sources::warn(&config, &parts.plugins).await;
        parts.protocol.set_slow_ms(config.log.slow_ms);
        (parts.level)(&config.log.level);
        parts.audit.note(|| {
            let entry = Entry::new("configuration.changed").operator(who).named(&changed.join(", "));
            entry.configuration(&digest, Some(&current.digest)).outcome("succeeded")
        });
        tracing::info!(changed = ?changed, "took over another configuration");
        if let Some(watching) = watching {
            current.watching = watching;
        }
        (current.config, current.digest, current.verifiers) = (config, digest, verifiers);
        Ok(view)
    }
}

impl ReloadTargets {
    fn of(host: &Host, authenticator: Arc<Authenticator>, level: Level) -> Self {
        Self {
            tasks: host.tasks.clone(),
            protocol: Arc::clone(&host.protocol),
            quota: Arc::clone(&host.quota),
            limits: host.limits.clone(),
            principals: host.principals.clone(),
            plugins: host.plugin_admin.plugins.clone(),
            intake: Arc::clone(&host.plugin_admin.intake),
            authenticator,
            audit: host.audit.clone(),
            data: host.data.clone(),
            level,
        }
    }

    fn watch(&self, config: &Config) -> anyhow::Result<Option<AbortOnDrop<()>>> {
        let watch = sources::watch(config, &self.intake, &self.plugins, &self.audit)?;
        Ok(watch.map(|watch| AbortOnDrop::spawn(watch.run())))
    }
}

#[async_trait]
impl Reload for ConfigReloader {
    async fn reload(&self, who: &str, check: bool) -> Result<ReloadView, ControlError> {
        let _reloading = (!check).then(|| self.manager.reloading());
        self.change(who, check).await.map_err(|error| {
            let message = match error.downcast_ref::<Problems>() {
                Some(problems) => problems.to_string(),
                None => format!("{error:#}"),
            };
            if !check {
                tracing::error!(problem = message, "another configuration was not taken over; the former one holds");
                self.parts
                    .audit
                    .note(|| Entry::new("configuration.changed").operator(who).outcome("refused").because(&message));
            }
            ControlError::Invalid(message)
        })
    }

    async fn config(&self) -> ConfigIdentity {
        ConfigIdentity {
            config: self.origin.file.as_deref().map(|file| file.display().to_string()),
            config_sha256: hex(&self.current.lock().await.digest),
        }
    }

    async fn directories(&self) -> Vec<DirGrant> {
        sources::directories(&self.current.lock().await.config)
    }
}

/// `None` also where it cannot be read: a host on stdio has no use for it.
fn admin_token(config: &Config) -> Option<[u8; 32]> {
    let AdminSecret::File(file) = &config.admin.as_ref()?.secret else { return None };
    Some(Sha256::digest(trust::admin_token(file).ok()?).into())
}
