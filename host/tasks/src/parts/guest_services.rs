//! What belongs to a tenant, as its calls get at it.
//!
//! Owns the narrowing to one tenant. Invariant: a handle is made for the requestor of the call, and nothing that it is
//! asked can widen it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::TryFutureExt as _;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinError;

use crate::parts::journal::{TaskJournal, Writer, full};
use crate::secrets::Secrets;
use bulkhead_calls::guest_services::{KeyPage, KeyValueError};
use bulkhead_calls::secrets::Secret;
use bulkhead_calls::{Fenced, GuestServices, Tail};
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::crash_points;
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_store as store;
use bulkhead_store::journal::{Append, Beside};
use bulkhead_store::keyvalue::{self, Condition, KeyValueNamespace, KeyValues};
use bulkhead_store::memory::MemoryStore;

/// What is kept for all tenants.
pub(crate) struct ServiceStores {
    pub(crate) keyvalues: Arc<KeyValues>,
    pub(crate) clock: SharedClock,
    /// Set once, where calls may use secrets.
    pub(crate) secrets: OnceLock<Arc<Secrets>>,
}

/// What calls of one tenant share.
pub(crate) struct TenantServices {
    pub(crate) tenant: TenantId,
    pub(crate) all: Arc<ServiceStores>,
    /// Of the call, if it is kept.
    pub(crate) journal: Option<Arc<TaskJournal>>,
}

/// For a call without a host: its key-value store ends with it.
pub fn in_memory(clock: SharedClock) -> Arc<dyn GuestServices> {
    let keyvalues = Arc::new(KeyValues::new(Arc::new(MemoryStore::new())));
    let all = ServiceStores { keyvalues, clock, secrets: OnceLock::new() };
    Arc::new(TenantServices { tenant: TenantId([0; 16]), all: Arc::new(all), journal: None })
}

impl fmt::Debug for TenantServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfTenant").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl TenantServices {
    fn space(&self, plugin: &str) -> KeyValueNamespace {
        KeyValueNamespace { tenant: self.tenant, plugin: plugin.into() }
    }

    async fn beside(&self, tail: Option<Tail>) -> Result<Alongside, Fenced> {
        let (Some(journal), Some(tail)) = (&self.journal, tail) else { return Ok(Alongside(None)) };
        let writer = journal.writer().await;
        if writer.is_closed() {
            return Err(Fenced);
        }
        let append = writer.append(&tail);
        Ok(Alongside(append.map(|append| (writer, append, tail))))
    }
}

/// What goes along with one write.
struct Alongside(Option<(Writer, Append, Tail)>);

impl Alongside {
    /// Makes the write, which gives `expected` if it changes something. Where the store does not say what came of it,
    /// the journal does; a journal that does not fit is given up, and the write is made without it.
    async fn write<T: PartialEq, F>(
        self,
        expected: T,
        write: impl Fn(Option<Beside>) -> F,
    ) -> Result<T, keyvalue::KeyValueError>
    where
        F: Future<Output = Result<T, keyvalue::KeyValueError>>,
    {
        let Some((mut writer, append, tail)) = self.0 else { return write(None).await };
        crash_points::reach("kv.before");
        let done = write(writer.beside(append.clone())).await;
        crash_points::reach("kv.after");
        match done {
            Ok(given) => {
                if given == expected {
                    writer.wrote(&append, &tail);
                }
                Ok(given)
            }
            Err(keyvalue::KeyValueError::Store(store::Error::Quota { limit, .. })) => {
                let given_up = writer.give_up(full(limit)).await;
                given_up.map_err(|Fenced| keyvalue::KeyValueError::Store(store::Error::Fenced))?;
                write(None).await
            }
            Err(error) => match writer.look(&append, &tail).await {
                Ok(true) => Ok(expected),
                Ok(false) | Err(_) => Err(error),
            },
        }
    }
}

#[async_trait]
impl GuestServices for TenantServices {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        let value = self.all.keyvalues.get(&self.space(plugin), key, self.all.clock.now()).await;
        value.map_err(|error| unavailable(&error))
    }

    async fn set(
        &self,
        plugin: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        ttl_ms: Option<u64>,
        beside: Option<Tail>,
    ) -> Result<(), KeyValueError> {
        let beside = self.beside(beside).await?;
        let keyvalues = Arc::clone(&self.all.keyvalues);
        let space = self.space(plugin);
        let limits = limits.clone();
        let expires_at = ttl_ms.map(|ttl_ms| self.all.clock.now().saturating_add(ttl_ms));
        // To its end, even if the call is dropped: else the count would not fit what is there.
        let write = tokio::spawn(async move {
            beside.write((), |append| keyvalues.set(&space, &limits, &key, &value, expires_at, append)).await
        });
        written(write.await)
    }

    async fn set_if(
        &self,
        plugin: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        seen: Option<[u8; 32]>,
        beside: Option<Tail>,
    ) -> Result<bool, KeyValueError> {
        let beside = self.beside(beside).await?;
        let keyvalues = Arc::clone(&self.all.keyvalues);
        let space = self.space(plugin);
        let limits = limits.clone();
        let now = self.all.clock.now();
        let is_seen = move |found: Option<&[u8]>| found.map(|found| <[u8; 32]>::from(Sha256::digest(found))) == seen;
        // To its end, as a plain write.
        let write = tokio::spawn(async move {
            let set = |append| {
                let condition = Condition { is_expected: &is_seen, now };
                keyvalues.set_if(&space, &limits, &key, &value, condition, append)
            };
            beside.write(true, set).await
        });
        written(write.await)
    }

    async fn delete(&self, plugin: &str, key: String, beside: Option<Tail>) -> Result<(), KeyValueError> {
        let keyvalues = Arc::clone(&self.all.keyvalues);
        let space = self.space(plugin);
        let beside = self.beside(beside).await?;
        let write = tokio::spawn(async move {
            let delete = |append| keyvalues.delete(&space, &key, append).map_err(keyvalue::KeyValueError::Store);
            beside.write((), delete).await
        });
        written(write.await)
    }

    async fn keys(&self, plugin: &str, prefix: &str, after: Option<&str>) -> Result<KeyPage, KeyValueError> {
        let page = self.all.keyvalues.keys(&self.space(plugin), prefix, after, self.all.clock.now()).await;
        let page = page.map_err(|error| unavailable(&error))?;
        Ok(KeyPage { keys: page.keys, next: page.next })
    }

    async fn secrets(&self, plugin: &str) -> Result<Vec<Secret>, ()> {
        let Some(secrets) = self.all.secrets.get() else { return Ok(Vec::new()) };
        let found = secrets.of(self.tenant, plugin).await;
        found.map_err(|error| tracing::error!(plugin.name = plugin, %error, "secrets cannot be used"))
    }
}

/// What came of a write.
fn written<T>(write: Result<Result<T, keyvalue::KeyValueError>, JoinError>) -> Result<T, KeyValueError> {
    match write {
        Ok(Ok(written)) => Ok(written),
        Ok(Err(keyvalue::KeyValueError::Store(store::Error::Fenced | store::Error::Lost))) => Err(Fenced.into()),
        Ok(Err(keyvalue::KeyValueError::Store(error))) => Err(unavailable(&error)),
        Ok(Err(error @ keyvalue::KeyValueError::TooLarge { .. })) => Err(KeyValueError::TooLarge(error.to_string())),
        Ok(Err(error @ keyvalue::KeyValueError::Quota { .. })) => Err(KeyValueError::Quota(error.to_string())),
        Err(_) => Err(KeyValueError::Unavailable("the host is shutting down".to_owned())),
    }
}

/// The log has the rest.
fn unavailable(error: &store::Error) -> KeyValueError {
    tracing::warn!(%error, "what a plugin keeps cannot be read or written");
    KeyValueError::Unavailable(
        match error {
            store::Error::ReadOnly(_) => "nothing can be written at the moment",
            store::Error::Unavailable { .. } => "nothing can be read or written at the moment",
            store::Error::InDoubt => "whether it was written is not known",
            _ => "it failed",
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::clock::ManualClock;

    #[tokio::test]
    async fn value_is_kept_over_the_one_with_the_seen_digest_alone() {
        let services = in_memory(Arc::new(ManualClock::at(1_000_000)));
        let limits = KeyValueLimits { keys_max: 1, bytes_max: 100, value_bytes_max: 100 };
        let digest = |value: &[u8]| Some(<[u8; 32]>::from(Sha256::digest(value)));
        let write = async |key: &str, value: &[u8], seen: Option<[u8; 32]>| {
            services.set_if("a", &limits, key.to_owned(), value.to_owned(), seen, None).await
        };
        assert_eq!(write("k", b"1", digest(b"0")).await, Ok(false));
        assert_eq!(write("k", b"1", None).await, Ok(true));
        assert_eq!(write("k", b"2", None).await, Ok(false));
        assert_eq!(write("k", b"2", digest(b"1")).await, Ok(true));
        assert_eq!(services.get("a", "k").await, Ok(Some(b"2".to_vec())));
        assert_eq!(services.get("b", "k").await, Ok(None), "another plugin has its own");
        assert!(matches!(write("other", b"1", None).await, Err(KeyValueError::Quota(_))));
    }
}
