//! Components of plugins, for the hosts that share a schema.
//!
//! Owns their rows. They are written beside the groups of the committer, since a component is known by its digest: to
//! write it twice, or late, changes nothing. Must not judge what a component is: who reads one checks its digest.
//! Invariant: one whose last row is there is whole.

use super::super::Error;
use super::super::hosts::StoredComponent;
use super::PostgresStore;
use super::errors::Failure;
use super::port::bytes;
use super::sql::{PUT_COMPONENT, REMOVE_COMPONENT, Sql};

/// Bytes of a component in one row.
const PART_BYTES_MAX: usize = 1 << 20;
/// The number of the row that is written last.
const LAST: i32 = -1;
const HAS_WIT: u8 = 1;
const IS_WIT_VOUCHED: u8 = 2;

impl PostgresStore {
    pub(super) async fn put_component(&self, digest: &[u8; 32], component: &StoredComponent) -> Result<(), Error> {
        let connection = self.shared.connect().await?;
        let undone = |failure: Failure| failure.undone();
        let digest = digest.as_slice();
        let mut parts = 0_i32;
        for part in component.bytes.chunks(PART_BYTES_MAX) {
            connection.query_text(PUT_COMPONENT, &[&digest, &parts, &part]).await.map_err(undone)?;
            parts = parts.saturating_add(1);
        }
        let mut last = parts.to_be_bytes().to_vec();
        let has_wit = if component.wit.is_some() { HAS_WIT } else { 0 };
        last.push(has_wit | if component.is_wit_vouched { IS_WIT_VOUCHED } else { 0 });
        last.extend(component.wit.iter().flat_map(|wit| wit.as_bytes()));
        connection.query_text(PUT_COMPONENT, &[&digest, &LAST, &last]).await.map_err(undone)?;
        Ok(())
    }

    async fn component_part(&self, digest: &[u8; 32], part: i32) -> Result<Option<Vec<u8>>, Error> {
        let rows = self.query(Sql::Component, &[&digest.as_slice(), &part]).await?;
        rows.first().map(|row| bytes(row, 0).map(<[u8]>::to_vec)).transpose()
    }

    pub(super) async fn has_stored_component(&self, digest: &[u8; 32]) -> Result<bool, Error> {
        Ok(self.component_part(digest, LAST).await?.is_some())
    }

    pub(super) async fn stored_component(&self, digest: &[u8; 32]) -> Result<Option<StoredComponent>, Error> {
        let unreadable = || Error::Corrupt("a component in the database cannot be read".to_owned());
        let Some(last) = self.component_part(digest, LAST).await? else { return Ok(None) };
        let (parts, rest) = last.split_first_chunk().ok_or_else(unreadable)?;
        let (flags, wit) = rest.split_first().ok_or_else(unreadable)?;
        let wit = String::from_utf8(wit.to_vec()).map_err(|_| unreadable())?;
        let mut component = StoredComponent {
            bytes: Vec::new(),
            wit: (flags & HAS_WIT != 0).then_some(wit),
            is_wit_vouched: flags & IS_WIT_VOUCHED != 0,
        };
        for part in 0..i32::from_be_bytes(*parts) {
            // Another host may be about to remove it.
            let Some(bytes) = self.component_part(digest, part).await? else { return Ok(None) };
            component.bytes.extend(bytes);
        }
        Ok(Some(component))
    }

    pub(super) async fn delete_component(&self, digest: &[u8; 32]) -> Result<(), Error> {
        let connection = self.shared.connect().await?;
        let removed = connection.query_text(REMOVE_COMPONENT, &[&digest.as_slice()]).await;
        removed.map(drop).map_err(|failure| failure.undone())
    }
}
