//! Answers about secrets of plugins.

use serde::{Deserialize, Serialize};

use bulkhead_tasks::secrets::SecretInfo;

/// All secrets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretListView {
    pub secrets: Vec<SecretInfo>,
}

/// A secret that is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretRemoveView {
    pub removed: String,
    pub plugin: String,
}

/// How many secrets were sealed with the first key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretRotateView {
    pub rotated: usize,
}
