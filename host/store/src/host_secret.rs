//! Secrets of the host itself.
//!
//! Invariant: all hosts that share a store have the same one, also where they begin at the same time.

use super::{Error, RowKind, RowStore};

/// A secret of this name, drawn once for each store.
///
/// # Errors
///
/// The store cannot be read, or what it has is no secret.
pub async fn host_secret(store: &dyn RowStore, name: &[u8]) -> Result<[u8; 32], Error> {
    if let Some(kept) = store.row(RowKind::Secret, name).await? {
        return secret_of(kept);
    }
    let mut drawn = [0; 32];
    getrandom::fill(&mut drawn).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
    match store.put_row(RowKind::Secret, name, drawn.to_vec(), true).await {
        // A full disk must not keep the host from serving reads; what depends on the secret lasts until the next start.
        Ok(()) | Err(Error::ReadOnly(_)) => Ok(drawn),
        // Another host began at the same time, and was faster.
        Err(Error::Exists) => secret_of(store.row(RowKind::Secret, name).await?.ok_or(Error::Conflict)?),
        Err(error) => Err(error),
    }
}

fn secret_of(kept: Vec<u8>) -> Result<[u8; 32], Error> {
    kept.try_into().map_err(|_| Error::Corrupt("a secret of the host has the wrong length".to_owned()))
}
