//! Who calls: principals, bearer tokens, tenants and the verifiers of OAuth access tokens.
//!
//! Owns the mapping from a credential to a [`Requestor`](bulkhead_domain::requestor::Requestor) and its rights. Must
//! not know a connection or a message. Invariant: no token is stored or logged, and a credential that is unknown,
//! expired, revoked or another issuer's gets the same answer.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod auth;
pub mod principal;
