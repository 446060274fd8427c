//! What the configuration says of an issuer.
//!
//! Must not be read from what an issuer answers. Invariant: an issuer is asked at no address but those here and those
//! that its own metadata names.

use jsonwebtoken::Algorithm;
use url::Url;

use bulkhead_net::address::Network;

/// A document of an issuer: metadata, keys, an answer about a token.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 256 << 10;

/// `[[auth.issuer]]`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOptions {
    /// Exactly as it stands in tokens.
    pub issuer: String,
    pub url: Url,
    /// What tokens may call this host; at least one.
    pub audiences: Vec<String>,
    /// Where the keys are; discovered otherwise.
    pub jwks_url: Option<Url>,
    /// Of RS256, ES256 and EdDSA.
    pub algorithms: Vec<Algorithm>,
    pub tenant: TenantRule,
    /// Whether each client of a subject is a requestor of its own.
    pub client_id_in_principal: bool,
    /// Whether `typ` must be `at+jwt` (RFC 9068); otherwise `JWT` and none at all will do.
    pub require_at_jwt: bool,
    pub clock_skew_ms: u64,
    /// How long keys are used before they are asked for again.
    pub keys_fresh_ms: u64,
    /// How much longer they may be used while the issuer does not answer.
    pub keys_stale_ms: u64,
    /// The issuer is not asked more often than this.
    pub keys_retry_ms: u64,
    /// One question to the issuer.
    pub fetch_ms_max: u64,
    /// Addresses that are not public at which the issuer may be.
    pub private_addresses: Vec<Network>,
    pub introspection: Option<IntrospectionOptions>,
}

/// Where a requestor's tenant comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantRule {
    /// All identities of the issuer are in this tenant.
    Fixed(String),
    /// The token says it, within what is allowed (`*`: anything).
    Claim { claim: String, allowed: Vec<String> },
}

impl TenantRule {
    /// Whether the issuer may still say it of a person of whom it did.
    pub(super) fn allows(&self, tenant: &str) -> bool {
        match self {
            Self::Fixed(name) => name == tenant,
            Self::Claim { allowed, .. } => allowed.iter().any(|name| name == "*" || name == tenant),
        }
    }

    /// Whether it has this name in it, instead of letting tokens name any.
    pub(super) fn names(&self, tenant: &str) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Claim { allowed, .. } => allowed.iter().any(|name| name == tenant),
        }
    }
}

/// How opaque tokens are judged (RFC 7662).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionOptions {
    pub url: Url,
    pub client_id: String,
    /// An answer is believed for at most this long.
    pub cache_ms: u64,
}
