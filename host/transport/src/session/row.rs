//! The row of a session in the store.

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

/// The first byte of a row.
const ROW_VERSION: u8 = 1;

/// What a row holds: version, tenant, requestor, created, last used, state.
pub(super) struct Row<'a> {
    pub(super) requestor: Requestor,
    pub(super) created_at: UnixMs,
    pub(super) used_at: UnixMs,
    pub(super) state: &'a [u8],
}

impl<'a> Row<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(49 + self.state.len());
        bytes.push(ROW_VERSION);
        bytes.extend_from_slice(&self.requestor.tenant.0);
        bytes.extend_from_slice(&self.requestor.id.0);
        bytes.extend_from_slice(&self.created_at.to_be_bytes());
        bytes.extend_from_slice(&self.used_at.to_be_bytes());
        bytes.extend_from_slice(self.state);
        bytes
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        let (tenant, rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (created_at, rest) = rest.split_first_chunk()?;
        let (used_at, state) = rest.split_first_chunk()?;
        (version == ROW_VERSION).then_some(Self {
            requestor: Requestor { tenant: TenantId(*tenant), id: RequestorId(*id) },
            created_at: u64::from_be_bytes(*created_at),
            used_at: u64::from_be_bytes(*used_at),
            state,
        })
    }
}
