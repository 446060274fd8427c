//! The store of a host, whichever engine it is.
//!
//! Owns the choice, and what the engines have beside the ports. Must not write. Invariant: what the configuration names
//! is opened, or nothing: no other engine takes its place.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use bulkhead_config::{Config, DatabaseConfig, SecretLocation};
use bulkhead_control::operator::StoreMaintenance;
use bulkhead_domain::without_byte_order_mark;
use bulkhead_metrics::Metrics;
use bulkhead_net::database::{self, DatabaseStream};
use bulkhead_net::{dial, pem};
use bulkhead_store::postgres::{
    self, Address, DatabaseCounts, Dial, DialFailure, HostOptions, PostgresOptions, PostgresStore, Secured, ServerFacts,
};
use bulkhead_store::sled::{self, DirectoryLock, Moved, SledOptions, SledStore};
use bulkhead_store::{Error, Store};
use tokio::runtime::Handle;

use super::database_maintenance::DatabaseMaintenance;
use super::sources;
use super::store_maintenance::{SledMaintenance, blocking, erasing};

/// The longest file with an address.
const URL_BYTES_MAX: usize = 4 << 10;

/// An open store.
#[derive(Clone)]
pub(crate) enum StoreEngine {
    Sled(Arc<SledStore>),
    /// With the data directory, in which components, compiled code and the control socket are.
    Postgres(
        Arc<PostgresStore>,
        #[expect(dead_code, reason = "the lock lasts as long as it is held")] Arc<DirectoryLock>,
    ),
}

impl StoreEngine {
    /// Opens what the configuration names.
    pub(crate) async fn open(config: &Config, data: &Path) -> anyhow::Result<Self> {
        if let Some(database) = &config.database {
            anyhow::ensure!(
                !sled::is_there(data),
                "[store] names a database, and the data directory {} has a store of its own, which would not be used: to take it over, \
                 `bulkhead store export FILE` with engine = \"sled\", then `bulkhead store rebuild --from FILE` with this configuration; \
                 then move its folder `store` away, or name another data directory",
                data.display()
            );
            let lock = Arc::new(sled::lock_directory(data)?);
            let opened = PostgresStore::open(options(config, database)?).await;
            return opened.map(|store| Self::Postgres(store, lock)).map_err(|error| describe(error, database));
        }
        let options = SledOptions { keys: sources::encryption(config)?, ..SledOptions::new(data) };
        let opened = tokio::task::spawn_blocking(move || SledStore::open(options)).await?;
        opened.map(Self::Sled).with_context(|| format!("the store in {} cannot be opened", data.display()))
    }

    /// As metrics and operators are told.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sled(_) => "sled",
            Self::Postgres(..) => "postgres",
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sled(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Postgres(store, _) => Arc::clone(store) as Arc<dyn Store>,
        }
    }

    pub(crate) fn count(&self, metrics: &Metrics) {
        match self {
            Self::Sled(store) => store.count(metrics),
            Self::Postgres(store, _) => store.count(metrics),
        }
    }

    pub(crate) fn operations_waiting(&self) -> usize {
        match self {
            Self::Sled(store) => store.operations_waiting(),
            Self::Postgres(store, _) => store.operations_waiting(),
        }
    }

    /// What happened to the connection; `None`: it needs none.
    pub(crate) fn database_counts(&self) -> Option<DatabaseCounts> {
        match self {
            Self::Sled(_) => None,
            Self::Postgres(store, _) => Some(store.counts()),
        }
    }

    /// What operators can have done to it. `data` is the data directory.
    pub(crate) fn maintenance(&self, data: &Path) -> Arc<dyn StoreMaintenance> {
        match self {
            Self::Sled(store) => Arc::new(SledMaintenance { store: Arc::clone(store), data: data.to_owned() }),
            Self::Postgres(store, _) => Arc::new(DatabaseMaintenance { store: Arc::clone(store) }),
        }
    }
}

/// Fills the database of a configuration from an export, while no host works with it.
///
/// # Errors
///
/// The database cannot be used or holds something already, or a line makes no sense: nothing was changed.
pub(crate) async fn fill_database(config: &Config, file: PathBuf) -> anyhow::Result<Moved> {
    let database = config.database.as_ref().context("the configuration names no database")?;
    let data = &config.server.data;
    let _lock = sled::lock_directory(data)?;
    anyhow::ensure!(
        erasing(data)?.is_empty(),
        "a tenant of the store in {} is not erased completely: repeat `bulkhead tenant purge` there, and export again",
        data.display()
    );
    let options = options(config, database)?;
    let lines = File::open(&file).with_context(|| file.display().to_string())?;
    let runtime = Handle::current();
    let filled = blocking(move || runtime.block_on(postgres::rebuild(options, &mut BufReader::new(lines)))).await;
    filled.map_err(|error| match error {
        error @ Error::Corrupt(_) => anyhow::Error::new(error),
        error => describe(error, database),
    })
}

/// Says where it was tried, and keeps what the error is.
fn describe(error: Error, database: &DatabaseConfig) -> anyhow::Error {
    let what = match &error {
        Error::Unavailable { .. } => {
            format!(
                "[store]: the database at {} cannot be reached: start it, or correct the address",
                location(database)
            )
        }
        _ => format!("[store]: the database at {} cannot be used", location(database)),
    };
    anyhow::Error::new(error).context(what)
}

/// Where the address is, which itself is not shown.
fn location(database: &DatabaseConfig) -> String {
    match &database.url {
        SecretLocation::File(file) => format!("the address in {}", file.display()),
        SecretLocation::Variable(name) => format!("the address in ${name}"),
    }
}

/// What the server of the configuration says about itself; `None`: the configuration names none.
///
/// # Errors
///
/// It cannot be reached or used.
pub async fn examine(config: &Config) -> anyhow::Result<Option<ServerFacts>> {
    let Some(database) = &config.database else { return Ok(None) };
    let facts = postgres::examine(&options(config, database)?).await;
    facts.map(Some).map_err(|error| describe(error, database))
}

fn options(config: &Config, database: &DatabaseConfig) -> anyhow::Result<PostgresOptions> {
    let url = match &database.url {
        SecretLocation::File(file) => {
            let read = std::fs::read_to_string(file);
            let text = read.with_context(|| format!("[store] url_file {} cannot be read", file.display()))?;
            without_byte_order_mark(&text).to_owned()
        }
        SecretLocation::Variable(name) => sources::variable(name)
            .with_context(|| format!("[store] url_env: the environment variable {name} is not set"))?,
    };
    anyhow::ensure!(url.len() <= URL_BYTES_MAX, "[store]: the address of the database is longer than 4 KiB");
    let roots = match &database.ca_file {
        None => Vec::new(),
        Some(file) => {
            let text = std::fs::read(file).with_context(|| format!("[store] ca_file {}", file.display()))?;
            pem::certificates(&text)
                .with_context(|| format!("[store] ca_file {} has no certificate", file.display()))?
        }
    };
    let tls = dial::tls_config(&roots).context("[store] ca_file has a certificate that cannot be used")?;
    Ok(PostgresOptions {
        address: Address::parse(&url)?,
        schema: database.schema.clone(),
        keys: sources::encryption(config)?,
        dialer: Some(Arc::new(Dialer { tls })),
        host: config.cluster.as_ref().map(|own| HostOptions { name: own.name.clone(), lease: own.lease }),
    })
}

/// Connections over a network, with TLS.
struct Dialer {
    tls: Arc<rustls::ClientConfig>,
}

#[async_trait]
impl Dial for Dialer {
    async fn dial(&self, host: &str, port: u16) -> Result<Secured, DialFailure> {
        match database::connect(host, port, Arc::clone(&self.tls)).await {
            Ok(DatabaseStream { stream, end_point }) => Ok(Secured { stream: Box::new(stream), end_point }),
            Err(error) if error.passes() => Err(DialFailure::Unreachable(error.to_string())),
            Err(error) => Err(DialFailure::Refused(format!(
                "the database's server is not trusted ({error}): name its certificate's issuer in [store] ca_file, and the server by the \
                 name in its certificate"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_config::Flags;

    use super::*;

    #[test]
    fn byte_order_mark_in_front_of_the_address_of_a_database_is_skipped() {
        let config = Config::load(None, Vec::new(), &Flags::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        for (text, is_read) in [
            ("postgresql://role@db.example/tasks\n", true),
            ("\u{feff}postgresql://role@db.example/tasks\n", true),
            ("\u{feff}\u{feff}postgresql://role@db.example/tasks\n", false),
        ] {
            std::fs::write(&file, text).unwrap();
            let url = SecretLocation::File(file.clone());
            let database = DatabaseConfig { url, schema: "bulkhead".to_owned(), ca_file: None };
            assert_eq!(options(&config, &database).is_ok(), is_read, "{text:?}");
        }
    }
}
