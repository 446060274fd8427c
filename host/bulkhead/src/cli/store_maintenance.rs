//! What sled's side of the store can do for itself, with a host on it and without.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_control::Command;
use bulkhead_control::operator::StoreMaintenance;
use bulkhead_domain::requestor::TenantId;
use bulkhead_store::sled::{self, SledStore};
use bulkhead_store::{self as store, Error};
use serde_json::{Value, json};

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
    async fn check(&self) -> Result<Value, Error> {
        let store = Arc::clone(&self.store);
        blocking(move || report(&sled::check_running(&store)?)).await
    }

    async fn export(&self, file: &Path) -> Result<Value, Error> {
        let (store, file) = (Arc::clone(&self.store), file.to_owned());
        blocking(move || export_to(&file, |out| sled::export_running(&store, out))).await
    }

    async fn rebuild(&self, from: Option<&Path>) -> Result<Value, Error> {
        if from.is_some() {
            let why = "a running host would forget what it has acknowledged since that export: stop it, then rebuild";
            return Err(Error::Locked(why.to_owned()));
        }
        rebuilt(sled::rebuild_running(&self.store).await?)
    }

    async fn backup(&self, directory: &Path) -> Result<Value, Error> {
        sled::backup(&self.store, directory).await?;
        Ok(json!({ "directory": directory }))
    }

    async fn rekey(&self) -> Result<Value, Error> {
        to_value(&sled::rekey(&self.store).await?)
    }

    async fn remove_old_stores(&self) -> Result<u64, Error> {
        let data = self.data.clone();
        let removed = tokio::task::spawn_blocking(move || sled::remove_old_stores(&data)).await;
        removed.unwrap_or_else(|error| Err(Error::Engine(format!("old stores were not removed: {error}"))))
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
pub(crate) async fn on_files(data: &Path, command: &Command) -> Option<Result<Value, Error>> {
    let data = data.to_owned();
    match command.clone() {
        Command::StoreCheck => Some(blocking(move || report(&sled::check(&data)?)).await),
        Command::StoreExport { file } => Some(blocking(move || export_to(&file, |out| sled::export(&data, out))).await),
        Command::StoreRebuild { from } => Some(blocking(move || rebuild(&data, from)).await),
        _ => None,
    }
}

async fn blocking(act: impl FnOnce() -> Result<Value, Error> + Send + 'static) -> Result<Value, Error> {
    let done = tokio::task::spawn_blocking(act).await;
    done.unwrap_or_else(|error| Err(Error::Engine(format!("the work on the store broke: {error}"))))
}

fn report(report: &sled::Report) -> Result<Value, store::Error> {
    let mut value = to_value(report)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("sound".to_owned(), Value::Bool(report.problems.is_empty()));
    }
    Ok(value)
}

/// An export never replaces a file: it may be the last good one. It holds everything of everybody, so nobody else may read it.
fn export_to(
    file: &Path,
    export: impl FnOnce(&mut dyn std::io::Write) -> Result<sled::Moved, Error>,
) -> Result<Value, Error> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(file);
    let made = made.map_err(|error| Error::Engine(format!("{}: {error}", file.display())))?;
    let mut out = BufWriter::new(made);
    let moved = export(&mut out)?;
    let synced = out
        .into_inner()
        .map_err(|error| error.to_string())
        .and_then(|file| file.sync_all().map_err(|error| error.to_string()));
    synced.map_err(|error| Error::Engine(format!("{}: {error}", file.display())))?;
    to_value(&moved)
}

fn rebuild(data: &Path, from: Option<PathBuf>) -> Result<Value, Error> {
    match from {
        Some(file) => {
            let opened = File::open(&file).map_err(|error| Error::Engine(format!("{}: {error}", file.display())))?;
            rebuilt(sled::rebuild(data, Some(&mut BufReader::new(opened)))?)
        }
        None => rebuilt(sled::rebuild(data, None)?),
    }
}

fn rebuilt((moved, kept): sled::Rebuilt) -> Result<Value, Error> {
    let mut value = to_value(&moved)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("old_store".to_owned(), json!(kept));
    }
    Ok(value)
}

fn to_value(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Engine(error.to_string()))
}
