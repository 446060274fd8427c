//! What may be kept of a credential beyond the request, or the process, that it came with.
//!
//! Must not hold anything that lets a client in. Invariant: what is kept is enough to judge the credential anew by everything that may
//! change (its row, the configuration, the keys of its issuer, its end), and nothing of it can be shown as a credential.

use serde::{Deserialize, Serialize};

use super::claims::Proof;
use super::{Authenticator, Caller, Denied, Issuer, Presented, Rules, Unauthorized, bearer};
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
    pub(super) fn new(issuer: &Issuer, proof: Proof, kid: Option<String>) -> Self {
        let Proof { subject, client, tenant, scopes, expires_at } = proof;
        Self { issuer: issuer.options.issuer.clone(), subject, client, tenant, scopes, expires_at, kid }
    }
}

impl Authenticator {
    /// What may be kept of the credential of a request that was let in; `None`: nothing that it could be judged by.
    pub async fn storable(&self, caller: &Caller) -> Option<StoredCredential> {
        let Presented::Header(header) = &caller.presented else { return None };
        let token = bearer(header).ok()?;
        for verifier in &self.rules.load_full().verifiers {
            if let Some(kept) = verifier.storable(token).await {
                return Some(kept);
            }
        }
        None
    }

    /// Whether what an issuer has said of an operator still holds.
    ///
    /// # Errors
    /// It does not, or cannot be judged.
    pub async fn still_holds(&self, proof: &SignedProof) -> Result<(), Unauthorized> {
        let rules = self.rules.load_full();
        let oauth = rules.oauth.as_ref().ok_or(Unauthorized::Invalid)?;
        let issuer = oauth.issuer(&proof.issuer).ok_or(Unauthorized::Invalid)?;
        Ok(issuer.holds(proof, &oauth.now).await?)
    }

    /// The requestor behind what was kept, if the credential would still be good.
    ///
    /// # Errors
    /// It is not good any more, or cannot be judged.
    pub async fn stored_caller(&self, kept: &StoredCredential) -> Result<Caller, Unauthorized> {
        self.rules.load_full().stored_caller(kept).await
    }
}

impl Rules {
    pub(super) async fn stored_caller(&self, kept: &StoredCredential) -> Result<Caller, Unauthorized> {
        for verifier in &self.verifiers {
            match verifier.verify_stored(kept).await {
                Ok(verified) => return Ok(self.admitted(verified, Presented::Stored(kept.clone()))),
                Err(Denied::Invalid) => {}
                Err(denied) => return Err(denied.into()),
            }
        }
        Err(Unauthorized::Invalid)
    }
}
