//! The `keyvalue` interface: checks what a guest asks for, and passes it on under the plugin's name.

use std::sync::Arc;

use wasmtime::Result;

use super::bindings::bulkhead::plugin::keyvalue as wit;
use super::call::Call;
use bulkhead_calls::guest_services::{KeyPage, KeyValueError};
use bulkhead_calls::journal::names;
use bulkhead_calls::policy::Denial;
use bulkhead_calls::{Fenced, GuestServices};
use bulkhead_domain::limits::KeyValueLimits;

/// Bytes of a key, as the interface says.
pub(super) const KEY_BYTES_MAX: usize = 256;

/// What a guest works with.
struct Keeping {
    guest_services: Arc<dyn GuestServices>,
    limits: KeyValueLimits,
    plugin: Arc<str>,
}

impl Call {
    /// Whether there is a store, for a guest that opens it.
    pub(super) async fn open_store(&mut self) -> Kept<()> {
        let keeping = self.keeping().map(drop);
        self.once(std::future::ready(keeping)).await
    }

    /// What was granted, for a key that can be one.
    fn keeping_at(&self, key: &str) -> std::result::Result<Keeping, wit::Error> {
        let keeping = self.keeping()?;
        checked(key)?;
        Ok(keeping)
    }

    /// What was granted, if anything was.
    fn keeping(&self) -> std::result::Result<Keeping, wit::Error> {
        let denied = |why: &str| wit::Error::Denied(why.to_owned());
        let plugin = Arc::clone(self.denials.plugin());
        let Some(limits) = self.denials.granted().keyvalue.clone() else {
            self.denials.note(Denial::Keyvalue);
            let why = Denial::Keyvalue.cure(&self.denials.granted().sides);
            return Err(denied(&format!("this plugin has no key-value store here: {}", why.unwrap_or_default())));
        };
        let guest_services = self.facts.guest_services.clone();
        let guest_services =
            guest_services.ok_or_else(|| denied("there is nobody whose keys these would be in this call"))?;
        Ok(Keeping { guest_services, limits, plugin })
    }
}

fn checked(key: &str) -> std::result::Result<(), wit::Error> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(wit::Error::Invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes; this one has {}", key.len())))
}

/// What came of a change: the guest's part of it, unless the guest has no part in anything any more.
fn told<T>(
    changed: std::result::Result<T, KeyValueError>,
) -> std::result::Result<std::result::Result<T, wit::Error>, Fenced> {
    match changed {
        Err(KeyValueError::Fenced(fenced)) => Err(fenced),
        changed => Ok(changed.map_err(in_wit_words)),
    }
}

fn in_wit_words(error: KeyValueError) -> wit::Error {
    match error {
        KeyValueError::Quota(why) => wit::Error::Quota(why),
        KeyValueError::TooLarge(why) => wit::Error::TooLarge(why),
        KeyValueError::Fenced(fenced) => wit::Error::Unavailable(fenced.to_string()),
        unavailable @ KeyValueError::Unavailable(_) => wit::Error::Unavailable(unavailable.to_string()),
    }
}

/// What came of an operation of the store, as the guest sees it.
type Kept<T> = Result<std::result::Result<T, wit::Error>>;

/// The operations, for every interface that has them. What each gives is an entry of the journal.
impl Call {
    pub(super) async fn value_of(&mut self, key: &str) -> Kept<Option<Vec<u8>>> {
        let keeping = self.keeping();
        let found = async move {
            let Keeping { guest_services, plugin, .. } = keeping?;
            checked(key)?;
            guest_services.get(&plugin, key).await.map_err(in_wit_words)
        };
        self.once(found).await
    }

    pub(super) async fn set_value(&mut self, key: String, value: Vec<u8>, ttl_ms: Option<u64>) -> Kept<()> {
        let keeping = self.keeping_at(&key).and_then(|keeping| match ttl_ms {
            Some(0) => Err(wit::Error::Invalid("a time to live is at least a millisecond".to_owned())),
            _ => Ok(keeping),
        });
        let set = |beside| async move {
            match keeping {
                Ok(Keeping { guest_services, limits, plugin }) => {
                    told(guest_services.set(&plugin, &limits, key, value, ttl_ms, beside).await)
                }
                Err(error) => Ok(Err(error)),
            }
        };
        self.once_changed(Ok(()), set).await
    }

    /// Keeps a value if what is there is what was seen; says whether it was.
    pub(super) async fn replace_value(&mut self, key: &str, seen: Option<[u8; 32]>, value: Vec<u8>) -> Kept<bool> {
        let keeping = self.keeping();
        let key = key.to_owned();
        let replace = |beside| async move {
            match keeping {
                Ok(Keeping { guest_services, limits, plugin }) => {
                    told(guest_services.set_if(&plugin, &limits, key, value, seen, beside).await)
                }
                Err(error) => Ok(Err(error)),
            }
        };
        self.once_changed(Ok(true), replace).await
    }

    pub(super) async fn delete_value(&mut self, key: String) -> Kept<()> {
        let keeping = self.keeping_at(&key);
        let delete = |beside| async move {
            match keeping {
                Ok(Keeping { guest_services, plugin, .. }) => told(guest_services.delete(&plugin, key, beside).await),
                Err(error) => Ok(Err(error)),
            }
        };
        self.once_changed(Ok(()), delete).await
    }

    /// A page of the keys with a prefix, after one of them.
    pub(super) async fn keys(&mut self, prefix: String, after: Option<String>) -> Kept<KeyPage> {
        let keeping = self.keeping();
        let page = async move {
            let Keeping { guest_services, plugin, .. } = keeping?;
            if prefix.len() > KEY_BYTES_MAX {
                return Ok(KeyPage::default());
            }
            let is_foreign = |cursor: &String| cursor.len() > KEY_BYTES_MAX || !cursor.starts_with(&prefix);
            if after.as_ref().is_some_and(is_foreign) {
                return Err(wit::Error::Invalid("the cursor is not that of a page with this prefix".to_owned()));
            }
            guest_services.keys(&plugin, &prefix, after.as_deref()).await.map_err(in_wit_words)
        };
        self.once(page).await
    }
}

impl wit::Host for Call {
    async fn get(&mut self, key: String) -> Kept<Option<Vec<u8>>> {
        self.enter(names::KEYVALUE_GET).await?;
        self.value_of(&key).await
    }

    async fn set(&mut self, key: String, value: Vec<u8>, ttl_ms: Option<u64>) -> Kept<()> {
        self.enter(names::KEYVALUE_SET).await?;
        self.set_value(key, value, ttl_ms).await
    }

    async fn delete(&mut self, key: String) -> Kept<()> {
        self.enter(names::KEYVALUE_DELETE).await?;
        self.delete_value(key).await
    }

    async fn list_keys(&mut self, prefix: String, cursor: Option<String>) -> Kept<wit::KeyPage> {
        self.enter(names::KEYVALUE_LIST_KEYS).await?;
        let page = self.keys(prefix, cursor).await?;
        Ok(page.map(|page| wit::KeyPage { keys: page.keys, next: page.next }))
    }
}
