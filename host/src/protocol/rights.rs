//! What a requestor may not do, and how it hears of that.
//!
//! Owns the choice between two answers. Invariant: what further scopes would allow is refused with all of their names, so that a client
//! can ask for them at once; what nothing would allow this requestor reads like something that is not there.

use super::error::RpcError;
use crate::domain::rights::{Need, Rights};

/// Lets a request through that needs all of this. `absent` is the answer where no scope would help.
pub(super) fn check(rights: &Rights, needs: &[Need<'_>], absent: impl FnOnce() -> RpcError) -> Result<(), RpcError> {
    if needs.iter().all(|need| rights.has(*need)) {
        return Ok(());
    }
    let scopes = rights.opening(needs);
    Err(if scopes.is_empty() { absent() } else { RpcError::insufficient_scope(scopes) })
}
