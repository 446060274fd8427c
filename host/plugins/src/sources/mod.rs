//! SHELL: where components come from, and whom they may come from.
//!
//! Owns fetching from every kind of source, and the trust that they need; names, registries and keys are those of
//! `bulkhead-sources`. Must not know what becomes of a component: it ends in a
//! [`plugins::Candidate`](crate::Candidate), the one door. Invariant: only what [`Trust::verify`] has passed becomes a
//! candidate; a fetch is bounded in bytes and in time, and reaches no private address that the operator did not name;
//! neither a source nor an origin nor an error holds a credential.

mod acquire;
mod fetch;
mod pattern;
mod trust;
mod watch;

pub use acquire::{ComponentFetcher, Configured, ConfiguredSource};
pub use bulkhead_sources::{
    COMPONENT_BYTES_MAX, Digest, Error, FETCH_MS_DEFAULT, FetchOptions, Fetched, OciReference, Progress, PublicKey,
    Refusal, Signature, SigningKey, Source, SourceError, beside, oci, real_path,
};
pub use fetch::fetch;
pub use pattern::Pattern;
pub use trust::{Rule, Trust, TrustedKey, Verified};
pub use watch::Watch;
