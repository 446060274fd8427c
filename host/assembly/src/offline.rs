//! A data directory on which no host runs, for one command.
//!
//! Must not be used beside a host: a host that began meanwhile has the store, and carries the command out. Invariant:
//! what a command changed is on disk before its answer is shown.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bulkhead_audit::Audit;
use bulkhead_config::Config;
use bulkhead_control::client::ControlClient;
use bulkhead_control::commands::{PluginCommand, SecretCommand, TokenList};
use bulkhead_control::operator::HostOperator;
use bulkhead_control::plugins::PluginAdmin;
use bulkhead_control::task_control::OfflineTasks;
use bulkhead_control::{Answer, Command, Operator as _, ReadNotes, WITHOUT_HOST};
use bulkhead_identity::principal::Principals;
use bulkhead_metrics::Metrics;
use bulkhead_plugins::{Options, Plugins};
use bulkhead_store::{Error, Store};

use super::host::{open_store, sandbox};
use super::store_maintenance::on_files;
use super::system_clock::{SystemClock, unix_ms};
use super::tenants::Tenants;
use super::{audit, secrets, sources};

/// The host that runs on a data directory, if one does.
pub async fn connect(data: &Path) -> anyhow::Result<Option<ControlClient>> {
    let client = ControlClient::connect(data).await;
    client.with_context(|| format!("the host at {} cannot be reached", data.display()))
}

/// Whether there is a token that could authenticate at a host on this data directory.
pub(crate) async fn any_active_token(config: &Config) -> anyhow::Result<bool> {
    if config.database.is_none() && !bulkhead_store::sled::is_there(&config.server.data) {
        return Ok(false);
    }
    let listed = execute_at(config, TokenList {}.into()).await?.read::<TokenList>()?;
    Ok(listed.tokens.iter().any(|token| token.is_active(unix_ms())))
}

/// Has a command carried out by the host that runs on the data directory, or here when none does.
pub async fn execute_at(config: &Config, command: Command) -> anyhow::Result<Answer> {
    let data = &config.server.data;
    if let Some(host) = connect(data).await? {
        return Ok(host.execute_for(WITHOUT_HOST, command).await?);
    }
    if let Some(answer) = on_files(config, &command).await? {
        return Ok(answer);
    }
    // The counts of calls are in the store: no plugin is loaded for them.
    let needs_plugins = matches!(&command, Command::Plugin(command) if !matches!(command, PluginCommand::Usage(_)));
    if needs_plugins {
        sources::refuse_exposing(config, data)?;
    }
    let engine = match open_store(config, data).await {
        // A host may have taken it just now, and listens by the time that this one has given up.
        Err(error) if is_locked(&error) => match connect(data).await? {
            Some(host) => return Ok(host.execute_for(WITHOUT_HOST, command).await?),
            None => return Err(error),
        },
        opened => opened?,
    };
    let store = engine.store();
    let maintenance = engine.maintenance(data);
    let clock = Arc::new(SystemClock::default());
    let task_control = Arc::new(OfflineTasks { store: store.clone(), clock: clock.clone() });
    let audit = audit::of_idle(config)?;
    let mut operator = HostOperator::new(store.clone(), maintenance, task_control.clone(), clock);
    operator.directories = sources::directories(config);
    operator.audit = audit.clone();
    operator.read_notes = Arc::new(ReadNotes::new(config.audit.operator_reads));
    match &command {
        Command::Secret(SecretCommand::List(_) | SecretCommand::Remove(_)) => {
            operator.secrets = Some(secrets::unopened(config, store.clone()));
        }
        Command::Secret(SecretCommand::Set(_) | SecretCommand::Rotate(_)) => {
            operator.secrets = Some(secrets::open(config, store.clone()).await?);
        }
        Command::Plugin(_) if needs_plugins => {
            let admin = plugin_admin(config, &store, task_control, audit.clone());
            operator.plugin_admin = Some(Box::pin(admin).await?);
        }
        _ => {}
    }
    let done = operator.execute_for(WITHOUT_HOST, command).await;
    bulkhead_store::TaskStore::close(&*store).await?;
    audit.close();
    Ok(done?)
}

/// The plugins that a host on this store would begin with.
async fn plugin_admin(
    config: &Config,
    store: &Arc<dyn Store>,
    calls: Arc<OfflineTasks>,
    audit: Audit,
) -> anyhow::Result<PluginAdmin> {
    let principals = Principals::new(store.clone());
    let tenants = Tenants::of(config, &principals).await?;
    principals.adopt(&tenants.ruled).await?;
    let options = Options {
        store: store.clone(),
        sandbox: sandbox(config, &config.server.data, None, None)?,
        clock: Arc::clone(&calls.clock),
        calls,
        health: Arc::default(),
        otherwise: sources::otherwise(config, &tenants.bounds),
        tenants: tenants.pinning,
        audit,
        metrics: Metrics::off(),
    };
    let intake = sources::intake(config)?;
    let (plugins, _) = Plugins::start(options, sources::wanted(config, &intake, &tenants.bounds)?).await?;
    Ok(PluginAdmin { plugins, intake })
}

/// Whether another process has the data directory.
pub fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Locked(_)))
}
