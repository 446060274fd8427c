//! PORT: the key-value store and the secrets that a plugin may use for its caller's tenant.
//!
//! Owns the operations that a call uses. Must not know whose data it is: a call comes with a handle that is already
//! narrowed to one tenant. Invariant: a plugin reaches data under its own name only.

use std::fmt;

use async_trait::async_trait;

use super::journal_sink::{Fenced, Tail};
use super::secrets::Secret;
use bulkhead_domain::limits::KeyValueLimits;

/// Why nothing was kept or found. The texts may be read by the guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyValueError {
    #[error("{0}")]
    Quota(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Nothing was changed: another run of the call has taken over. No guest reads this.
    #[error("{0}")]
    Fenced(#[from] Fenced),
}

/// A page of keys; `next` is where the next page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    pub keys: Vec<String>,
    pub next: Option<String>,
}

/// What belongs to the tenant of a call. What is `beside` a change is kept of the call's journal in the same step. A
/// call that is dropped while it writes has written or has not.
#[async_trait]
pub trait GuestServices: fmt::Debug + Send + Sync + 'static {
    /// What the plugin of this name keeps under a key.
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError>;

    /// Keeps a value, durable on return.
    async fn set(
        &self,
        plugin: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        ttl_ms: Option<u64>,
        beside: Option<Tail>,
    ) -> Result<(), KeyValueError>;

    /// Keeps a value if what is there has this SHA-256, or if nothing is there for `None`; says whether it was so.
    /// Durable on return.
    async fn set_if(
        &self,
        plugin: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        seen: Option<[u8; 32]>,
        beside: Option<Tail>,
    ) -> Result<bool, KeyValueError>;

    /// Forgets a key, durable on return.
    async fn delete(&self, plugin: &str, key: String, beside: Option<Tail>) -> Result<(), KeyValueError>;

    /// Keys that begin with `prefix`, strictly after `after`.
    async fn keys(&self, plugin: &str, prefix: &str, after: Option<&str>) -> Result<KeyPage, KeyValueError>;

    /// The secrets that the plugin of this name may use here. `Err`: they cannot be read; the log says why.
    async fn secrets(&self, plugin: &str) -> Result<Vec<Secret>, ()>;
}
