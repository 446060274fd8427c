//! What is around a call that only runs again: nothing.
//!
//! Owns a world without network, store and secrets. Must not be asked: the sandbox takes everything from the journal,
//! and what reaches this all the same is refused. Invariant: nothing of a call in it leaves the sandbox.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::guest_services::{KeyPage, KeyValueError};
use super::secrets::Secret;
use super::{CallContext, GuestServices, OutsideWorld, Tail};
use bulkhead_domain::limits::KeyValueLimits;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Sealed;

impl CallContext {
    /// The same call with nothing around it.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { guest_services: Some(Arc::new(Sealed)), outside: Some(Arc::new(Sealed)), ..self }
    }
}

impl OutsideWorld for Sealed {
    fn unix_ms(&self) -> Option<u64> {
        None
    }

    fn answer(&self, _: http::Request<Bytes>) -> Option<http::Response<Bytes>> {
        None
    }
}

fn no_store() -> KeyValueError {
    KeyValueError::Unavailable("a replay has no store".to_owned())
}

#[async_trait]
impl GuestServices for Sealed {
    async fn get(&self, _: &str, _: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        Err(no_store())
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
        Err(no_store())
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
        Err(no_store())
    }

    async fn delete(&self, _: &str, _: String, _: Option<Tail>) -> Result<(), KeyValueError> {
        Err(no_store())
    }

    async fn keys(&self, _: &str, _: &str, _: Option<&str>) -> Result<KeyPage, KeyValueError> {
        Err(no_store())
    }

    async fn secrets(&self, _: &str) -> Result<Vec<Secret>, ()> {
        Err(())
    }
}
