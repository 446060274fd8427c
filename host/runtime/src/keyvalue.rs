//! The `keyvalue` interface: checks what a guest asks for, and passes it on under the plugin's name.

use std::sync::Arc;

use wasmtime::Result;

use super::bindings::bulkhead::plugin::keyvalue as wit;
use super::call::Call;
use super::guest_services::{GuestServices, KeyValueError};
use bulkhead_domain::limits::KeyValueLimits;

/// Bytes of a key, as the interface says.
pub(super) const KEY_BYTES_MAX: usize = 256;

type HostResult<T> = Result<std::result::Result<T, wit::Error>>;

/// What a guest works with.
pub(super) struct Keeping {
    pub(super) guest_services: Arc<dyn GuestServices>,
    pub(super) limits: KeyValueLimits,
    pub(super) plugin: Arc<str>,
}

impl Call {
    /// What was granted, if anything was.
    pub(super) fn keeping(&self) -> std::result::Result<Keeping, wit::Error> {
        let denied = |why: &str| wit::Error::Denied(why.to_owned());
        let plugin = Arc::clone(self.denials.plugin());
        let Some(limits) = self.denials.granted().keyvalue.clone() else {
            self.denials.note("kv".to_owned());
            return Err(denied(
                "this plugin has no key-value store here: [plugin.kv] is not granted, or its manifest does not ask for kv",
            ));
        };
        let guest_services = self.facts.guest_services.clone();
        let guest_services =
            guest_services.ok_or_else(|| denied("there is nobody whose keys these would be in this call"))?;
        Ok(Keeping { guest_services, limits, plugin })
    }
}

pub(super) fn checked(key: &str) -> std::result::Result<(), wit::Error> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(wit::Error::Invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes; this one has {}", key.len())))
}

pub(super) fn in_wit_words(error: KeyValueError) -> wit::Error {
    match error {
        KeyValueError::Quota(why) => wit::Error::Quota(why),
        KeyValueError::TooLarge(why) => wit::Error::TooLarge(why),
        unavailable @ KeyValueError::Unavailable(_) => wit::Error::Unavailable(unavailable.to_string()),
    }
}

impl wit::Host for Call {
    async fn get(&mut self, key: String) -> HostResult<Option<Vec<u8>>> {
        self.enter().await;
        let keeping = self.keeping();
        let asked = async move {
            let Keeping { guest_services, plugin, .. } = keeping?;
            checked(&key)?;
            guest_services.get(&plugin, &key).await.map_err(in_wit_words)
        };
        Ok(asked.await)
    }

    async fn set(&mut self, key: String, value: Vec<u8>, ttl_ms: Option<u64>) -> HostResult<()> {
        self.enter().await;
        let keeping = self.keeping();
        let asked = async move {
            let Keeping { guest_services, limits, plugin } = keeping?;
            checked(&key)?;
            if ttl_ms == Some(0) {
                return Err(wit::Error::Invalid("a time to live is at least a millisecond".to_owned()));
            }
            guest_services.set(&plugin, &limits, key, value, ttl_ms).await.map_err(in_wit_words)
        };
        Ok(asked.await)
    }

    async fn delete(&mut self, key: String) -> HostResult<()> {
        self.enter().await;
        let keeping = self.keeping();
        let asked = async move {
            let Keeping { guest_services, plugin, .. } = keeping?;
            checked(&key)?;
            guest_services.delete(&plugin, key).await.map_err(in_wit_words)
        };
        Ok(asked.await)
    }

    async fn list_keys(&mut self, prefix: String, cursor: Option<String>) -> HostResult<wit::KeyPage> {
        self.enter().await;
        let keeping = self.keeping();
        let asked = async move {
            let Keeping { guest_services, plugin, .. } = keeping?;
            if prefix.len() > KEY_BYTES_MAX {
                return Ok(wit::KeyPage { keys: Vec::new(), next: None });
            }
            let is_foreign = |cursor: &String| cursor.len() > KEY_BYTES_MAX || !cursor.starts_with(&prefix);
            if cursor.as_ref().is_some_and(is_foreign) {
                return Err(wit::Error::Invalid("the cursor is not that of a page with this prefix".to_owned()));
            }
            let page = guest_services.keys(&plugin, &prefix, cursor.as_deref()).await.map_err(in_wit_words)?;
            Ok(wit::KeyPage { keys: page.keys, next: page.next })
        };
        Ok(asked.await)
    }
}
