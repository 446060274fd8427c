//! `skills/list` and `skills/get` in the legacy era.

use super::request::Request;
use crate::Exchange;
use crate::error::RpcError;
use crate::exchange::immediate;
use crate::jsonrpc::response;
use crate::server_features::Page;
use crate::skills::{SkillBody, SkillView};
use crate::wire::{Bare, PageBody};

/// What every plugin carries, in the order of URIs.
pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = request.context.skills(request.params)?;
    let entries = entries.into_iter().map(SkillView).collect();
    Ok(immediate(response(&request.id, &Bare(PageBody { name: "skills", entries, next_cursor }))))
}

/// The entry of one skill.
pub(super) fn get(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let entry = request.context.skill(request.params)?;
    Ok(immediate(response(&request.id, &Bare(SkillBody(&entry.skill)))))
}
