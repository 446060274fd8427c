//! What comes over when a store is exported or made anew.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What an export or a rebuild did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub tasks: u64,
    pub rows: u64,
    /// What could not be read, one sentence each.
    pub lost: Vec<String>,
}

/// What came over, and where the old store is kept.
pub type Rebuilt = (Moved, PathBuf);
