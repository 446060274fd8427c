//! What sled's side of the store can do for itself, with a host on it and without.

use std::fs::{DirBuilder, File};
use std::io::{BufReader, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_config::Config;
use bulkhead_control::commands::{StoreCheck, StoreCommand, StoreExport, StoreRebuild};
use bulkhead_control::operator::StoreMaintenance;
use bulkhead_control::views::{StoreCheckView, StoreRebuildView};
use bulkhead_control::{Answer, Command, Request as _};
use bulkhead_domain::requestor::TenantId;
use bulkhead_store::Error;
use bulkhead_store::sled::{self, Moved, Rekeyed, SledStore};
use bulkhead_transport::session;

use super::database_maintenance::refusal;
use super::store_engine;

/// The store of a running host, or of a command that opened one.
pub(crate) struct SledMaintenance {
    pub(crate) store: Arc<SledStore>,
    /// The data directory.
    pub(crate) data: PathBuf,
}

/// Names tenants whose erasure is not over, by their ids.
const ERASING: &str = "erasing";
/// The folder with the components of plugins.
const COMPONENTS: &str = "components";
/// Ends of the names there: a component, the text about it, and that its signer has vouched for that.
const KEPT_KINDS: [&str; 3] = ["wasm", "wit", "vouched"];

#[async_trait]
impl StoreMaintenance for SledMaintenance {
    async fn check(&self) -> Result<StoreCheckView, Error> {
        let store = Arc::clone(&self.store);
        Ok(blocking(move || sled::check_running(&store)).await?.into())
    }

    async fn export(&self, file: &Path) -> Result<Moved, Error> {
        let store = Arc::clone(&self.store);
        let file = file.to_owned();
        blocking(move || export_to(&file, |out| sled::export_running(&store, out))).await
    }

    async fn rebuild(&self, from: Option<&Path>) -> Result<StoreRebuildView, Error> {
        if from.is_some() {
            let why = "a running host would forget what it has acknowledged since that export: stop it, then rebuild";
            return Err(Error::Locked(why.to_owned()));
        }
        Ok(rebuilt(sled::rebuild_running(&self.store).await?))
    }

    async fn backup(&self, directory: &Path) -> Result<u64, Error> {
        sled::backup(&self.store, directory).await?;
        let data = self.data.clone();
        let directory = directory.to_owned();
        // After the store: a component is kept before a row names it.
        blocking(move || copy_components(&data, &directory)).await
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
            let path = self.data.join(ERASING);
            let draft = self.data.join("erasing.part");
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

/// What is done to the files themselves, because a damaged store cannot be opened. `None`: the command needs an open
/// store.
pub(crate) async fn on_files(config: &Config, command: &Command) -> anyhow::Result<Option<Answer>> {
    let Command::Store(command) = command else { return Ok(None) };
    if config.database.is_some() {
        // An export goes into a schema that no host has opened; and what a database has instead of a command is
        // answered without one.
        return match command {
            StoreCommand::Rebuild(StoreRebuild { from: Some(file) }) => {
                let moved = Box::pin(store_engine::fill_database(config, file.clone())).await?;
                Ok(Some(StoreRebuild::answer(&StoreRebuildView { moved, old_store: PathBuf::new() })?))
            }
            StoreCommand::Rebuild(_) => Err(refusal("rebuild").into()),
            StoreCommand::Backup(_) => Err(refusal("backup").into()),
            StoreCommand::Check(_) | StoreCommand::Export(_) | StoreCommand::Rekey(_) => Ok(None),
        };
    }
    let data = config.server.data.clone();
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

pub(crate) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(act).await;
    done.unwrap_or_else(|error| Err(Error::Engine(format!("the work on the store broke: {error}"))))
}

/// An export never replaces a file: it may be the last good one. It holds everything of everybody, so nobody else may
/// read it.
pub(crate) fn export_to(
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

/// Copies the kept components with what was said and vouched for about them, durable on return; gives the number of
/// components.
fn copy_components(data: &Path, to: &Path) -> Result<u64, Error> {
    let from = data.join(COMPONENTS);
    let to = to.join(COMPONENTS);
    let failed = |path: &Path, error: &std::io::Error| {
        Error::Engine(format!("the store was copied, the components were not: {}: {error}", path.display()))
    };
    let entries = match std::fs::read_dir(&from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(&from, &error)),
    };
    DirBuilder::new().mode(0o700).create(&to).map_err(|error| failed(&to, &error))?;
    let mut components = 0;
    for entry in entries {
        let path = entry.map_err(|error| failed(&from, &error))?.path();
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        let (true, Some(name)) = (KEPT_KINDS.contains(&kind), path.file_name()) else { continue };
        match copy_file(&path, &to.join(name)) {
            Ok(()) => components += u64::from(kind == "wasm"),
            // A version may be removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&path, &error)),
        }
    }
    File::open(&to).and_then(|folder| folder.sync_all()).map_err(|error| failed(&to, &error))?;
    Ok(components)
}

fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut from = File::open(from)?;
    let mut made = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    std::io::copy(&mut from, &mut made)?;
    made.sync_all()
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

fn rebuilt(rebuilt: sled::Rebuilt) -> StoreRebuildView {
    let (moved, old_store) = rebuilt;
    StoreRebuildView { moved, old_store }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn backup_holds_components_with_what_is_said_about_them() {
        let data = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        assert_eq!(copy_components(data.path(), copy.path()).unwrap(), 0, "a host without plugins");
        fs::create_dir(data.path().join("components")).unwrap();
        for name in ["a.wasm", "a.wit", "a.vouched", "b.wasm", "b.wasm.part-1", "notes"] {
            fs::write(data.path().join("components").join(name), name).unwrap();
        }
        assert_eq!(copy_components(data.path(), copy.path()).unwrap(), 2);
        let folder = copy.path().join("components");
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a.vouched", "a.wasm", "a.wit", "b.wasm"]);
        for name in names {
            let path = folder.join(&name);
            assert_eq!(fs::read_to_string(&path).unwrap(), name);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{name} is the host's alone");
        }
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o077, 0);
        let again = copy_components(data.path(), copy.path()).unwrap_err();
        assert!(again.to_string().contains("the components were not"), "nothing is written over: {again}");
    }
}
