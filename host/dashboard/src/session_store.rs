//! Sessions beyond this process: what is written of one, and the port to the store.
//!
//! Must not write a credential or the value of a cookie: the digest of the cookie is the key, and of a credential there
//! is what judges it anew. Invariant: a row that cannot be read lets nobody in.

use async_trait::async_trait;
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_identity::auth::{LoginClient, SignedProof, StoredCredential};
use serde::{Deserialize, Serialize};

use crate::digests::derive;

/// First byte of a row: the layout of what follows.
const FIRST: u8 = 1;
/// Bytes of the row of a session of the dashboard; one with a larger row ends with the process.
const ROW_BYTES_MAX: usize = 4_000;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SessionStoreError(pub String);

/// Where sessions are kept. Keys begin with 32 bytes; those of a requestor's session go on with its tenant and its id.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// Every key with its row.
    async fn all(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, SessionStoreError>;

    /// Writes rows, durable on return.
    async fn put(&self, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), SessionStoreError>;

    /// Removes rows, durable on return; absent ones are fine.
    async fn remove(&self, keys: Vec<Vec<u8>>) -> Result<(), SessionStoreError>;

    /// Whether other hosts keep their sessions there, too. What follows is for those alone.
    fn is_shared(&self) -> bool;

    /// The key that begins with a digest, and its row.
    async fn find(&self, digest: &[u8; 32]) -> Result<Option<(Vec<u8>, Vec<u8>)>, SessionStoreError>;

    /// Writes a row in place of one that is there; whether it was.
    async fn replace(&self, key: Vec<u8>, row: Vec<u8>) -> Result<bool, SessionStoreError>;

    /// Marks what works once as used until then; whether it is the first time.
    async fn use_once(&self, id: [u8; 16], until: UnixMs) -> Result<bool, SessionStoreError>;
}

/// By what a session goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SessionProof {
    /// A link let an operator in: until the session's bounds.
    Link,
    /// A keyed digest of the administrators' token.
    AdminToken([u8; 32]),
    /// A requestor's token.
    Token(StoredCredential),
    /// A login at an issuer, and a keyed digest of how the host was known there.
    Login { proof: SignedProof, client: [u8; 32] },
}

impl SessionProof {
    /// What a requestor is judged anew by.
    pub(crate) fn of_requestor(&self) -> Option<StoredCredential> {
        match self {
            Self::Link | Self::AdminToken(_) => None,
            Self::Token(kept) => Some(kept.clone()),
            Self::Login { proof, .. } => Some(StoredCredential::Signed(proof.clone())),
        }
    }
}

/// What is written of a session. Times are those of the steady clock, which begins as the time of day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionRow {
    pub(crate) began_at: UnixMs,
    pub(crate) used_at: UnixMs,
    pub(crate) ends_at: UnixMs,
    pub(crate) proof: SessionProof,
}

impl SessionRow {
    /// `None`: it is larger than rows may be (an issuer named very many scopes), and is not kept.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_extend(self, vec![FIRST]).ok().filter(|row| row.len() <= ROW_BYTES_MAX)
    }

    /// `None`: damaged, or of a newer host.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (FIRST, rest) = bytes.split_first().map(|(version, rest)| (*version, rest))? else { return None };
        let (row, rest) = postcard::take_from_bytes(rest).ok()?;
        rest.is_empty().then_some(row)
    }
}

/// The key of a session.
pub(crate) fn key(digest: &[u8; 32], whose: Option<&Requestor>) -> Vec<u8> {
    let mut key = digest.to_vec();
    if let Some(Requestor { tenant, id }) = whose {
        key.extend_from_slice(&tenant.0);
        key.extend_from_slice(&id.0);
    }
    key
}

/// The digest of the cookie, and the requestor; without one it is an operator's.
pub(crate) fn read_key(key: &[u8]) -> Option<([u8; 32], Option<Requestor>)> {
    let (digest, rest) = key.split_first_chunk::<32>()?;
    if rest.is_empty() {
        return Some((*digest, None));
    }
    let (tenant, rest) = rest.split_first_chunk::<16>()?;
    let id = <[u8; 16]>::try_from(rest).ok()?;
    Some((*digest, Some(Requestor { tenant: TenantId(*tenant), id: RequestorId(id) })))
}

/// What sessions of another host, or an earlier one, must fit to go on here.
#[derive(Clone)]
pub(crate) struct SessionRules {
    admin_token: Option<[u8; 32]>,
    client: Option<[u8; 32]>,
}

impl SessionRules {
    pub(crate) fn new(secret: &[u8; 32], admin_token: Option<AdminTokenDigest>, client: Option<&LoginClient>) -> Self {
        Self {
            admin_token: admin_token.map(|token| derive(secret, "administrators", &token.to_bytes())),
            client: client.map(|client| {
                let (claim, value) =
                    client.operators.as_ref().map_or(("", ""), |operators| (&operators.claim, &operators.value));
                let parts = [client.issuer.as_str(), &client.client_id, claim, value].map(|part| format!("{part:?}"));
                derive(secret, "login", parts.join(" ").as_bytes())
            }),
        }
    }

    /// What is kept of a login with the administrators' token.
    pub(crate) fn admin_token(&self) -> Option<SessionProof> {
        self.admin_token.map(SessionProof::AdminToken)
    }

    /// The same of one at the issuer.
    pub(crate) fn login(&self, proof: SignedProof) -> Option<SessionProof> {
        self.client.map(|client| SessionProof::Login { proof, client })
    }

    pub(crate) fn fits(&self, proof: &SessionProof) -> bool {
        match proof {
            SessionProof::Link | SessionProof::Token(_) => true,
            SessionProof::AdminToken(digest) => self.admin_token.as_ref() == Some(digest),
            SessionProof::Login { client, .. } => self.client.as_ref() == Some(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_identity::auth::OperatorClaim;
    use bulkhead_store::RowKind;

    use super::*;

    const ANNA: Requestor = Requestor { tenant: TenantId([2; 16]), id: RequestorId([3; 16]) };

    fn proof() -> SignedProof {
        SignedProof {
            issuer: "https://login.example.com".to_owned(),
            subject: "anna".to_owned(),
            client: "dashboard".to_owned(),
            tenant: "acme".to_owned(),
            scopes: vec!["openid".to_owned()],
            expires_at: 9,
            kid: Some("k1".to_owned()),
        }
    }

    #[test]
    fn row_is_read_as_it_was_written_and_nothing_else_is() {
        for proof in [
            SessionProof::Link,
            SessionProof::AdminToken([7; 32]),
            SessionProof::Token(StoredCredential::Token([8; 32])),
            SessionProof::Token(StoredCredential::Signed(proof())),
            SessionProof::Login { proof: proof(), client: [9; 32] },
        ] {
            let row = SessionRow { began_at: 1, used_at: 2, ends_at: 3, proof };
            let bytes = row.encode().unwrap();
            assert_eq!(SessionRow::decode(&bytes), Some(row));
            for wrong in
                [&[][..], &bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &[&[2], &bytes[1..]].concat()]
            {
                assert_eq!(SessionRow::decode(wrong), None);
            }
        }
    }

    #[test]
    fn key_says_whose_the_session_is_to_the_store_too() {
        let own = key(&[1; 32], Some(&ANNA));
        let operators = key(&[1; 32], None);
        assert_eq!(read_key(&own), Some(([1; 32], Some(ANNA))));
        assert_eq!(read_key(&operators), Some(([1; 32], None)));
        for cut in [0, 31, 33, 63] {
            assert_eq!(read_key(&own[..cut]), None, "{cut}");
        }
        assert_eq!(RowKind::BrowserSession.tenant_of(&own), Some(ANNA.tenant));
        assert_eq!(RowKind::BrowserSession.tenant_of(&operators), None);
    }

    #[test]
    fn session_fits_the_token_and_the_issuer_that_it_began_with() {
        let client = |value: &str| LoginClient {
            issuer: "https://login.example.com".to_owned(),
            client_id: "dashboard".to_owned(),
            client_secret: None,
            scopes: Vec::new(),
            operators: Some(OperatorClaim { claim: "groups".to_owned(), value: value.to_owned() }),
        };
        let token = |text: &str| Some(AdminTokenDigest::of_token(text));
        let before = SessionRules::new(&[1; 32], token("a"), Some(&client("admins")));
        let proofs = [before.admin_token().unwrap(), before.login(proof()).unwrap()];
        let fit = |session_rules: &SessionRules| proofs.each_ref().map(|proof| session_rules.fits(proof));
        assert_eq!(fit(&before), [true, true]);
        assert_eq!(fit(&SessionRules::new(&[1; 32], token("b"), Some(&client("others")))), [false, false]);
        assert_eq!(fit(&SessionRules::new(&[1; 32], None, None)), [false, false]);
        assert_eq!(fit(&SessionRules::new(&[2; 32], token("a"), Some(&client("admins")))), [false, false]);
    }
}
