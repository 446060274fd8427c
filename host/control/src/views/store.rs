//! Answers about the store as a whole.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use bulkhead_store::sled::{Moved, Report};

/// What a check found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreCheckView {
    #[serde(flatten)]
    pub report: Report,
    /// Whether there is no problem.
    pub sound: bool,
}

impl From<Report> for StoreCheckView {
    fn from(report: Report) -> Self {
        Self { sound: report.problems.is_empty(), report }
    }
}

/// What a rebuild did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreRebuildView {
    #[serde(flatten)]
    pub moved: Moved,
    /// Where the database before is kept.
    pub old_store: PathBuf,
}

/// Where a backup is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreBackupView {
    pub directory: PathBuf,
}
