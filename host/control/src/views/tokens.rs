//! Answers about bearer tokens.

use serde::{Deserialize, Serialize};

use bulkhead_identity::principal::TokenInfo;

/// A token that was just made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenCreateView {
    #[serde(flatten)]
    pub info: TokenInfo,
    /// There is no second look at it.
    pub token: String,
}

/// All tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenListView {
    pub tokens: Vec<TokenInfo>,
}
