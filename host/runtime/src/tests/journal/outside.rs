//! What is around a journaled call of a test, and what is not around a replay.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use bulkhead_calls::guest_services::{KeyPage, KeyValueError};
use bulkhead_calls::secrets::Secret;
use bulkhead_calls::{GuestServices, Tail};

/// Panics in code that a replay must not reach. The host survives them, so they are counted.
pub(super) static REACHED: AtomicUsize = AtomicUsize::new(0);

fn reached(what: &str) -> ! {
    REACHED.fetch_add(1, Ordering::SeqCst);
    panic!("a replay reached {what}")
}

/// A server that answers requests, and counts them.
#[derive(Debug, Default)]
pub(super) struct Peer(pub(super) Mutex<BTreeMap<String, usize>>);

impl Peer {
    /// The requests with an effect so far.
    pub(super) fn posts(&self) -> usize {
        self.0.lock().iter().filter(|(request, _)| request.starts_with("POST")).map(|(_, count)| count).sum()
    }
}

impl OutsideWorld for Peer {
    fn unix_ms(&self) -> Option<u64> {
        None
    }

    fn answer(&self, request: http::Request<Bytes>) -> Option<http::Response<Bytes>> {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let count = {
            let mut seen = self.0.lock();
            let count = seen.entry(format!("{method} {path}")).or_default();
            *count += 1;
            *count
        };
        let response = http::Response::builder().header("x-count", count);
        let text = |text: String| response.header("content-type", "text/plain").body(Bytes::from(text)).ok();
        match path.as_str() {
            "/none" => http::Response::builder().status(404).body(Bytes::new()).ok(),
            "/long" => text("x".repeat(2 << 20)),
            "/events" => http::Response::builder()
                .header("content-type", "text/event-stream")
                .body(Bytes::from_static(b"data: one\n\n"))
                .ok(),
            "/refused" => None,
            "/once" if count > 1 => None,
            _ => {
                let key = request.headers().get("idempotency-key").map(|key| String::from_utf8_lossy(key.as_bytes()));
                let key = key.unwrap_or_default();
                let body = String::from_utf8_lossy(request.body());
                text(format!("{method} {path} {body} key {key} for the {count}. time"))
            }
        }
    }
}

/// Keeps values.
#[derive(Debug, Default)]
pub(super) struct Values(pub(super) Mutex<BTreeMap<String, Vec<u8>>>);

#[async_trait::async_trait]
impl GuestServices for Values {
    async fn get(&self, _: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(self.0.lock().get(key).cloned())
    }

    async fn set(
        &self,
        _: &str,
        limits: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        _: Option<u64>,
        _: Option<Tail>,
    ) -> Result<(), KeyValueError> {
        if value.len() as u64 > limits.value_bytes_max {
            return Err(KeyValueError::TooLarge("too large".to_owned()));
        }
        self.0.lock().insert(key, value);
        Ok(())
    }

    async fn set_if(
        &self,
        _: &str,
        _: &KeyValueLimits,
        key: String,
        value: Vec<u8>,
        seen: Option<[u8; 32]>,
        _: Option<Tail>,
    ) -> Result<bool, KeyValueError> {
        use sha2::Digest as _;
        let mut values = self.0.lock();
        let is_same = values.get(&key).map(|value| <[u8; 32]>::from(sha2::Sha256::digest(value))) == seen;
        if is_same {
            values.insert(key, value);
        }
        Ok(is_same)
    }

    async fn delete(&self, _: &str, key: String, _: Option<Tail>) -> Result<(), KeyValueError> {
        self.0.lock().remove(&key);
        Ok(())
    }

    async fn keys(&self, _: &str, prefix: &str, after: Option<&str>) -> Result<KeyPage, KeyValueError> {
        let values = self.0.lock();
        let wanted = |key: &&String| key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after);
        Ok(KeyPage { keys: values.keys().filter(wanted).cloned().collect(), next: None })
    }

    async fn secrets(&self, _: &str) -> Result<Vec<Secret>, ()> {
        Ok(Vec::new())
    }
}

/// A replay has no network, and no clock.
#[derive(Debug)]
pub(super) struct Nowhere;

impl OutsideWorld for Nowhere {
    fn unix_ms(&self) -> Option<u64> {
        reached("the clock")
    }

    fn answer(&self, _: http::Request<Bytes>) -> Option<http::Response<Bytes>> {
        reached("the network")
    }
}

/// A replay has no store.
#[derive(Debug)]
pub(super) struct NowhereToKeep;

#[async_trait::async_trait]
impl GuestServices for NowhereToKeep {
    async fn get(&self, _: &str, _: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        reached("the store")
    }

    async fn set(
        &self,
        _: &str,
        _: &KeyValueLimits,
        _: String,
        _: Vec<u8>,
        _: Option<u64>,
        _: Option<Tail>,
    ) -> Result<(), KeyValueError> {
        reached("the store")
    }

    async fn set_if(
        &self,
        _: &str,
        _: &KeyValueLimits,
        _: String,
        _: Vec<u8>,
        _: Option<[u8; 32]>,
        _: Option<Tail>,
    ) -> Result<bool, KeyValueError> {
        reached("the store")
    }

    async fn delete(&self, _: &str, _: String, _: Option<Tail>) -> Result<(), KeyValueError> {
        reached("the store")
    }

    async fn keys(&self, _: &str, _: &str, _: Option<&str>) -> Result<KeyPage, KeyValueError> {
        reached("the store")
    }

    async fn secrets(&self, _: &str) -> Result<Vec<Secret>, ()> {
        reached("the secrets")
    }
}
