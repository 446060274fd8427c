//! What sled's side of the store can do for itself, with a host on it and without.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_control::commands::{StoreCheck, StoreCommand, StoreExport, StoreRebuild};
use bulkhead_control::operator::StoreMaintenance;
use bulkhead_control::views::{StoreCheckView, StoreRebuildView};
use bulkhead_control::{Answer, Command, Request as _};
use bulkhead_domain::requestor::TenantId;
use bulkhead_store::Error;
use bulkhead_store::sled::{self, Moved, Rekeyed, SledStore};
use bulkhead_transport::session;

/// The store of a running host, or of a command that opened one.
pub(crate) struct SledMaintenance {
    pub(crate) store: Arc<SledStore>,
    /// The data directory.
    pub(crate) data: PathBuf,
}

/// Names tenants whose erasure is not over, by their ids.
const ERASING: &str = "erasing";

#[async_trait]
impl StoreMaintenance for SledMaintenance {
    async fn check(&self) -> Result<StoreCheckView, Error> {
        let store = Arc::clone(&self.store);
        Ok(blocking(move || sled::check_running(&store)).await?.into())
    }

    async fn export(&self, file: &Path) -> Result<Moved, Error> {
        let (store, file) = (Arc::clone(&self.store), file.to_owned());
        blocking(move || export_to(&file, |out| sled::export_running(&store, out))).await
    }

    async fn rebuild(&self, from: Option<&Path>) -> Result<StoreRebuildView, Error> {
        if from.is_some() {
            let why = "a running host would forget what it has acknowledged since that export: stop it, then rebuild";
            return Err(Error::Locked(why.to_owned()));
        }
        Ok(rebuilt(sled::rebuild_running(&self.store).await?))
    }

    async fn backup(&self, directory: &Path) -> Result<(), Error> {
        sled::backup(&self.store, directory).await
    }

    async fn rekey(&self) -> Result<Rekeyed, Error> {
        sled::rekey(&self.store).await
    }

    async fn remove_old_stores(&self) -> Result<u64, Error> {
        let data = self.data.clone();
        let removed = tokio::task::spawn_blocking(move || sled::remove_old_stores(&data)).await;
        removed.unwrap_or_else(|error| Err(Error::Engine(format!("old stores were not removed: {error}"))))
    }

    async fn remove_sessions(&self, tenant: TenantId) -> Result<u64, Error> {
        session::remove_rows(&*self.store, tenant).await
    }

    async fn erasing(&self) -> Result<Vec<TenantId>, Error> {
        erasing(&self.data)
    }

    async fn set_erasing(&self, tenants: &[TenantId]) -> Result<(), Error> {
        let lines: String = tenants.iter().map(|tenant| format!("{tenant}\n")).collect();
        let written = || {
            let (path, draft) = (self.data.join(ERASING), self.data.join("erasing.part"));
            if lines.is_empty() {
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            } else {
                let mut file = File::create(&draft)?;
                file.write_all(lines.as_bytes()).and_then(|()| file.sync_all())?;
                std::fs::rename(&draft, &path)?;
            }
            File::open(&self.data)?.sync_all()
        };
        written().map_err(|error| Error::Engine(format!("{}: {error}", self.data.join(ERASING).display())))
    }
}

/// Tenants whose erasure was begun and is not over.
pub(crate) fn erasing(data: &Path) -> Result<Vec<TenantId>, Error> {
    match std::fs::read_to_string(data.join(ERASING)) {
        Ok(text) => Ok(text.lines().filter_map(TenantId::parse).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::Engine(format!("{}: {error}", data.join(ERASING).display()))),
    }
}

/// What is done to the files themselves, because a damaged store cannot be opened. `None`: the command needs an open store.
pub(crate) async fn on_files(data: &Path, command: &Command) -> anyhow::Result<Option<Answer>> {
    let Command::Store(command) = command else { return Ok(None) };
    let data = data.to_owned();
    Ok(Some(match command.clone() {
        StoreCommand::Check(_) => StoreCheck::answer(&blocking(move || sled::check(&data)).await?.into())?,
        StoreCommand::Export(StoreExport { file }) => {
            let moved = blocking(move || export_to(&file, |out| sled::export(&data, out))).await?;
            StoreExport::answer(&moved)?
        }
        StoreCommand::Rebuild(StoreRebuild { from }) => {
            StoreRebuild::answer(&blocking(move || rebuild(&data, from)).await?)?
        }
        StoreCommand::Backup(_) | StoreCommand::Rekey(_) => return Ok(None),
    }))
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(act).await;
    done.unwrap_or_else(|error| Err(Error::Engine(format!("the work on the store broke: {error}"))))
}

/// An export never replaces a file: it may be the last good one. It holds everything of everybody, so nobody else may read it.
fn export_to(
    file: &Path,
    export: impl FnOnce(&mut dyn std::io::Write) -> Result<Moved, Error>,
) -> Result<Moved, Error> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(file);
    let made = made.map_err(|error| Error::Engine(format!("{}: {error}", file.display())))?;
    let mut out = BufWriter::new(made);
    let moved = export(&mut out)?;
    let synced = out
        .into_inner()
        .map_err(|error| error.to_string())
        .and_then(|file| file.sync_all().map_err(|error| error.to_string()));
    synced.map_err(|error| Error::Engine(format!("{}: {error}", file.display())))?;
    Ok(moved)
}

fn rebuild(data: &Path, from: Option<PathBuf>) -> Result<StoreRebuildView, Error> {
    match from {
        Some(file) => {
            let opened = File::open(&file).map_err(|error| Error::Engine(format!("{}: {error}", file.display())))?;
            sled::rebuild(data, Some(&mut BufReader::new(opened))).map(rebuilt)
        }
        None => sled::rebuild(data, None).map(rebuilt),
    }
}

fn rebuilt((moved, old_store): sled::Rebuilt) -> StoreRebuildView {
    StoreRebuildView { moved, old_store }
}
