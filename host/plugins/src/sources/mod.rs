//! SHELL: where components come from, and whom they may come from.
//!
//! Owns the names of sources, fetching from them, and the trust that they need. Must not know what becomes of a component: it ends
//! in a [`plugins::Candidate`](crate::Candidate), the one door. Invariant: only what [`Trust::verify`] has passed becomes a
//! candidate; a fetch is bounded in bytes and in time, and reaches no private address that the operator did not name; neither a
//! source nor an origin nor an error holds a credential.

mod acquire;
mod fetch;
mod key;
pub mod oci;
mod pattern;
mod signature;
mod source;
mod trust;
mod watch;
mod web;

use std::path::PathBuf;
use std::time::Duration;

pub use crate::Digest;
pub use acquire::{ComponentFetcher, Configured};
pub use bulkhead_net::client::Progress;
pub use fetch::{beside, fetch};
pub use key::PublicKey;
pub use pattern::Pattern;
pub use signature::SigningKey;
pub use source::{OciReference, Source, SourceError};
pub use trust::{Refusal, Rule, Trust, Verified};
pub use watch::Watch;

/// What came from a source, not yet trusted.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub bytes: Vec<u8>,
    /// Of these bytes, computed here.
    pub sha256: Digest,
    /// The source as it was resolved: of a registry, with the digest of the manifest.
    pub origin: String,
    /// Of a file: where that was which was read, behind all links.
    pub file: Option<PathBuf>,
    pub signatures: Vec<Signature>,
    /// WIT text that came along, for descriptions.
    pub wit: Option<String>,
}

/// A signature that came with a component, not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// One line of a `.sig` file.
    Detached {
        /// [`PublicKey::id`] of the key that it claims.
        key_id: String,
        /// What it says that it signs.
        component: Digest,
        /// The WIT text beside the component, if that is signed too.
        wit: Option<Digest>,
        signature: Vec<u8>,
    },
    /// A cosign signature of an OCI manifest.
    Cosign {
        /// The manifest that was fetched. The registry client has made sure that it leads to exactly these bytes.
        manifest: Digest,
        /// The signed text, which names a manifest.
        payload: Vec<u8>,
        signature: Vec<u8>,
    },
    /// What stands in the place of one.
    Unreadable(String),
}

/// How far a fetch may go.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// The largest component, in bytes.
    pub component_bytes_max: u64,
    /// A whole fetch, redirects and signatures included.
    pub fetch_max: Duration,
    /// Hosts (lower case names or addresses) that may be at addresses which are not public.
    pub private_hosts: Vec<String>,
    /// More certificates to trust, PEM files, beside the roots of the browsers.
    pub roots: Vec<PathBuf>,
    /// Registries that are spoken to without TLS, by host; those of this machine always are.
    pub plain_http_hosts: Vec<String>,
    /// For registries that want credentials.
    pub logins: oci::Logins,
    /// Told how far the transfer of a component is.
    pub progress: Progress,
}

impl FetchOptions {
    /// Whether the operator takes it on themselves that everybody on the way can read and change what goes to a registry.
    pub fn is_plain(&self, host: &str) -> bool {
        self.plain_http_hosts.iter().any(|named| named == host)
    }
}

/// Why nothing was fetched. Operators may read all of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file, or its signature, cannot be read.
    #[error("{0}")]
    File(String),
    /// It leads to an address inside the operator's network.
    #[error(
        "{host} is at {address}, which is not a public address; name the host in sources.private_hosts if it should be reached"
    )]
    Private { host: String, address: std::net::IpAddr },
    /// More bytes than a component may have.
    #[error("{what} has more than {bytes_max} bytes (sources.component_bytes_max)")]
    TooLarge { what: String, bytes_max: u64 },
    /// The whole fetch took too long.
    #[error("{what} was not there after {ms} ms (sources.fetch_ms_max)")]
    TooSlow { what: String, ms: u128 },
    /// What came is not what its name or its server says.
    #[error("{what}: expected sha256 {expected}, found {found}")]
    Digest { what: String, expected: Digest, found: Digest },
    /// Nothing vouches for it, or not what the operator wants.
    #[error(transparent)]
    Untrusted(#[from] Refusal),
    /// The server, or the way to it, failed.
    #[error("{what}: {problem}")]
    Failed { what: String, problem: String },
}

impl Error {
    /// Whether the same may go well at another time, although nobody changes what is fetched.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::File(_) | Self::TooSlow { .. } | Self::Failed { .. } => true,
            Self::Private { .. } | Self::TooLarge { .. } | Self::Digest { .. } | Self::Untrusted(_) => false,
        }
    }
}
