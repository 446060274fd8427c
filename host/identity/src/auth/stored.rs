//! What may be kept of a credential beyond the request, or the process, that it came with.
//!
//! Must not hold anything that lets a client in. Invariant: what is kept is enough to judge the credential anew by
//! everything that may change (its row, the configuration, the keys of its issuer, its end), and nothing of it can be
//! shown as a credential.

use serde::{Deserialize, Serialize};

use super::claims::Proof;
use bulkhead_domain::UnixMs;

/// Enough of a credential to judge it anew without having it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredCredential {
    /// A token of this host: the SHA-256 that its row is found by.
    Token([u8; 32]),
    /// What a signed token has proven.
    Signed(SignedProof),
}

/// What a token proved whose signature was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedProof {
    pub issuer: String,
    pub subject: String,
    /// Empty unless the token names one.
    pub client: String,
    /// Empty for an operator, who is in none.
    pub tenant: String,
    pub scopes: Vec<String>,
    pub expires_at: UnixMs,
    /// Which key has signed it, if the token said so.
    pub kid: Option<String>,
}

impl From<SignedProof> for StoredCredential {
    fn from(proof: SignedProof) -> Self {
        Self::Signed(proof)
    }
}

impl SignedProof {
    pub(super) fn new(issuer: String, proof: Proof, kid: Option<String>) -> Self {
        let Proof { subject, client, tenant, scopes, expires_at } = proof;
        Self { issuer, subject, client, tenant, scopes, expires_at, kid }
    }
}
