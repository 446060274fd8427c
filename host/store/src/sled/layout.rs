//! Where things lie in a data directory.

use std::path::{Path, PathBuf};

/// Where things lie below the data directory.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) lock: PathBuf,
    pub(super) store: PathBuf,
    pub(super) database: PathBuf,
    pub(super) files: PathBuf,
    pub(super) state: PathBuf,
    /// What was counted when the store was closed.
    pub(super) counts: PathBuf,
}

impl Layout {
    pub(super) fn new(data: &Path) -> Self {
        Self::at(data, data.join("store"))
    }

    fn at(data: &Path, store: PathBuf) -> Self {
        Self {
            lock: data.join("lock"),
            database: store.join("sled"),
            files: store.join("files"),
            state: store.join("state"),
            counts: store.join("counts"),
            store,
        }
    }

    /// The same data directory with another folder than the usual one.
    pub(super) fn with_store(&self, store: PathBuf) -> Self {
        Self::at(self.store.parent().unwrap_or(&self.store), store)
    }

    /// Where a rebuild makes its new store.
    pub(super) fn rebuilt(&self) -> PathBuf {
        self.store.with_file_name("store.new")
    }

    /// The one file that has to be synced for a group to be durable.
    pub(super) fn database_file(&self) -> PathBuf {
        self.database.join("db")
    }
}
