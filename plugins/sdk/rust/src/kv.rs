//! Bytes that outlive a call, under keys of the plugin's own. What is kept belongs to the plugin's name and to the
//! tenant that calls: every version of the plugin finds it, nobody else does. The operator grants it (`[plugin.kv]`),
//! with limits.
//!
//! A key has 1 to 256 bytes. Calls run side by side, and of two that write one key the later one wins: there is no
//! lock.
//!
//! ```no_run
//! use bulkhead_plugin::{Error, kv};
//! use std::time::Duration;
//!
//! fn greeted_before(name: &str) -> Result<bool, Error> {
//!     let key = format!("greeted/{name}");
//!     let before = kv::get(&key)?.is_some();
//!     kv::set_for(&key, "yes", Duration::from_secs(86_400))?;
//!     Ok(before)
//! }
//! ```

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::bulkhead::plugin::keyvalue as host;

pub use host::KeyPage;

/// Why nothing was kept or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvError {
    /// The operator has not granted it: says what is missing. A tool that can do without goes on here.
    Denied(String),
    /// The plugin's share in this tenant is used up.
    Quota(String),
    /// The value is larger than one may be.
    TooLarge(String),
    /// The key, the cursor or the time to live is not one; or a kept value is not the JSON that was expected.
    Invalid(String),
    /// The host cannot read or write at the moment.
    Unavailable(String),
}

impl fmt::Display for KvError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Denied(why) | Self::Quota(why) | Self::TooLarge(why) | Self::Invalid(why) | Self::Unavailable(why)) =
            self;
        formatter.write_str(why)
    }
}

impl std::error::Error for KvError {}

impl From<host::Error> for KvError {
    fn from(error: host::Error) -> Self {
        match error {
            host::Error::Denied(why) => Self::Denied(why),
            host::Error::Quota(why) => Self::Quota(why),
            host::Error::TooLarge(why) => Self::TooLarge(why),
            host::Error::Invalid(why) => Self::Invalid(why),
            host::Error::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// The value, or none.
///
/// # Errors
///
/// See [`KvError`].
pub fn get(key: &str) -> Result<Option<Vec<u8>>, KvError> {
    Ok(host::get(key)?)
}

/// Keeps a value in the place of the one before; it is on disk when this returns, and stays.
///
/// # Errors
///
/// See [`KvError`].
pub fn set(key: &str, value: impl AsRef<[u8]>) -> Result<(), KvError> {
    Ok(host::set(key, value.as_ref(), None)?)
}

/// Keeps a value that goes away by itself.
///
/// # Errors
///
/// See [`KvError`].
pub fn set_for(key: &str, value: impl AsRef<[u8]>, ttl: Duration) -> Result<(), KvError> {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    Ok(host::set(key, value.as_ref(), Some(ttl_ms))?)
}

/// The value as JSON, or none.
///
/// # Errors
///
/// See [`KvError`].
pub fn get_json<T: DeserializeOwned>(key: &str) -> Result<Option<T>, KvError> {
    let parse = |value: Vec<u8>| serde_json::from_slice(&value);
    get(key)?.map(parse).transpose().map_err(|error| KvError::Invalid(format!("the value of {key}: {error}")))
}

/// Keeps a value as JSON.
///
/// # Errors
///
/// See [`KvError`].
pub fn set_json(key: &str, value: &impl Serialize) -> Result<(), KvError> {
    let text = serde_json::to_vec(value).map_err(|error| KvError::Invalid(format!("the value of {key}: {error}")))?;
    set(key, text)
}

/// Forgets a key; one that is not there is fine.
///
/// # Errors
///
/// See [`KvError`].
pub fn delete(key: &str) -> Result<(), KvError> {
    Ok(host::delete(key)?)
}

/// A page of the keys that begin with `prefix`; [`keys`] gives all of them.
///
/// # Errors
///
/// See [`KvError`].
pub fn key_page(prefix: &str, cursor: Option<&str>) -> Result<KeyPage, KvError> {
    Ok(host::list_keys(prefix, cursor)?)
}

/// Every key that begins with `prefix`, in the order of their bytes.
///
/// # Errors
///
/// See [`KvError`].
pub fn keys(prefix: &str) -> Result<Vec<String>, KvError> {
    let mut keys = Vec::new();
    let mut cursor = None::<String>;
    loop {
        let page = key_page(prefix, cursor.as_deref())?;
        keys.extend(page.keys);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(keys),
        }
    }
}
