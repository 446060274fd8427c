//! Components at their sources: names, transfers to and from OCI registries, and signatures.
//!
//! Owns what an operator or an author types for a component, the layout of artifacts, the distribution API, credentials
//! of registries, and the keys that sign. Must not decide whom to trust, nor know what becomes of a component, nor need
//! an engine: the authors' program is made of it as well. Invariant: a transfer is bounded in bytes and in time, and
//! reaches no private address that was not named; neither a source nor an origin nor an error holds a credential.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod digest;
mod key;
pub mod oci;
pub mod signature;
mod source;
pub mod web;

use std::path::PathBuf;
use std::time::Duration;

pub use bulkhead_net::client::Progress;
pub use digest::Digest;
pub use key::PublicKey;
pub use signature::{SigningKey, beside};
pub use source::{OciReference, Source, SourceError, real_path};

/// The largest component, in bytes, unless an operator says less.
pub const COMPONENT_BYTES_MAX: u64 = 128 << 20;
/// A whole transfer, in milliseconds, unless an operator says otherwise.
pub const FETCH_MS_DEFAULT: u64 = 120_000;

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

impl Default for FetchOptions {
    /// What holds where nobody says anything: the bounds of the host, no private host, no credentials.
    fn default() -> Self {
        Self {
            component_bytes_max: COMPONENT_BYTES_MAX,
            fetch_max: Duration::from_millis(FETCH_MS_DEFAULT),
            private_hosts: Vec::new(),
            roots: Vec::new(),
            plain_http_hosts: Vec::new(),
            logins: oci::Logins::default(),
            progress: Progress::default(),
        }
    }
}

impl FetchOptions {
    /// Whether the operator takes it on themselves that everybody on the way can read and change what goes to a
    /// registry.
    pub fn is_plain(&self, host: &str) -> bool {
        self.plain_http_hosts.iter().any(|named| named == host)
    }
}

/// Why a component is not taken: what was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name} is not trusted: expected {expected}, found {found}")]
pub struct Refusal {
    pub source_name: String,
    pub expected: String,
    pub found: String,
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
    /// Components that cannot be made into one.
    #[error("{what} cannot be composed: {problem}")]
    NotComposed { what: String, problem: String },
    /// The server, or the way to it, failed.
    #[error("{what}: {problem}")]
    Failed { what: String, problem: String },
}

impl Error {
    /// Whether the same may go well at another time, although nobody changes what is fetched.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::File(_) | Self::TooSlow { .. } | Self::Failed { .. } => true,
            Self::Private { .. } | Self::TooLarge { .. } | Self::Digest { .. } => false,
            Self::Untrusted(_) | Self::NotComposed { .. } => false,
        }
    }
}
