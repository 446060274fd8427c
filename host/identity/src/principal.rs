//! Principals and bearer tokens, as rows of the store.
//!
//! Owns the mapping from an external identity (an issuer and a subject, a token) to the random ids that everything
//! below works with, and the other way round for operators. Must not store or log a token: only its SHA-256 is kept.
//! Invariant: an identity gets its ids once and keeps them, whatever becomes of its tokens.

mod last_used;
mod provisioning;
#[cfg(test)]
mod tests;
mod token_cache;
mod tokens;
mod verifier;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::auth::Denied;
use bulkhead_domain::requestor::{LOCAL_REQUESTOR, LOCAL_TENANT, Requestor, RequestorId, TenantId};
use bulkhead_domain::{UnixMs, hex};
use bulkhead_limits::LiveLimits;
use bulkhead_store::{self as store, RowKind, Store};

pub use last_used::LastUsed;
pub use last_used::NOTE_EVERY_MS;
pub use tokens::{NewToken, Resolved, TokenInfo, TokenSpec};
pub use verifier::TokenVerifier;

use provisioning::Provisioning;
use token_cache::{Generation, TokenCache};

/// The tenant of requestors that were not given another.
pub const TENANT_DEFAULT: &str = LOCAL_TENANT;

/// In front of every token, so that scanners for leaked secrets can know one.
pub const TOKEN_PREFIX: &str = "bh_";

const ISSUER_TOKEN: &str = "bulkhead:token";
const ISSUER_LOCAL: &str = "bulkhead:local";

/// First byte of a key: identities, and tenants by name.
const KEY_IDENTITY: u8 = b'i';
const KEY_TENANT: u8 = b't';
/// Last uses of tokens by their ids.
const KEY_USED: u8 = b'u';
/// There when tokens were removed: the door does not open again because nothing is left of them.
const KEY_CLOSED: u8 = b'c';
/// First byte of every value: the layout of what follows.
const ROW_VERSION: u8 = 1;
const PAGE_ROWS: usize = 256;

/// Why an operation on principals or tokens failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("{what} {name:?}: a name has 1 to 64 characters of A-Z a-z 0-9 _ - . and is neither . nor ..")]
    Name { what: &'static str, name: String },
    #[error("there is no token {0:?}; `bulkhead token list` shows the ids")]
    UnknownToken(String),
    #[error(
        "the tenant {0:?} was erased, and the configuration names it: restart the host before anybody gets this name again"
    )]
    Removed(String),
    #[error("{0}")]
    Scope(String),
    #[error("the system gives no random bytes: {0}")]
    Random(String),
    #[error("row of kind {kind:?} cannot be read: {reason}")]
    Corrupt { kind: RowKind, reason: String },
}

/// An external identity, as a verifier knows it.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Which kind of proof.
    pub verifier: &'a str,
    pub issuer: &'a str,
    pub subject: &'a str,
    /// Empty unless the operator tells clients of one subject apart.
    pub client: &'a str,
}

/// The tenant that an identity belongs to.
#[derive(Clone, Copy, Debug)]
pub struct InTenant<'a> {
    pub name: &'a str,
    /// Whether the configuration names it. Otherwise a token has, and there may be only so many of these.
    pub is_configured: bool,
}

impl Identity<'_> {
    /// Length-prefixed, so that no two identities run together.
    fn key(&self) -> [u8; 33] {
        let mut hash = Sha256::new();
        for part in [self.verifier, self.issuer, self.subject, self.client] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut key = [KEY_IDENTITY; 33];
        if let Some(digest) = key.get_mut(1..) {
            digest.copy_from_slice(&hash.finalize());
        }
        key
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct PrincipalRow {
    requestor: [u8; 16],
    tenant: [u8; 16],
    /// For operators.
    tenant_name: String,
    issuer: String,
    subject: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct TenantRow {
    id: [u8; 16],
}

/// A row with its layout.
trait Row: Serialize + for<'de> Deserialize<'de> + Send {
    /// First byte of the value.
    const VERSION: u8 = ROW_VERSION;
}

impl Row for PrincipalRow {}
impl Row for TenantRow {}
impl Row for UnixMs {}

/// The names behind a requestor's ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalNames {
    pub requestor: Requestor,
    pub name: String,
    pub tenant: String,
}

/// Principals and tokens of one store; cheap to clone.
#[derive(Clone)]
pub struct Principals {
    store: Arc<dyn Store>,
    configured: Arc<Mutex<Configured>>,
    provisioning: Arc<Provisioning>,
    token_cache: Arc<TokenCache>,
}

/// The tenants that a running host has rules for, by their ids. A later tenant of a removed tenant's name has another
/// id, and with it none of those rules.
#[derive(Default)]
struct Configured {
    names: HashMap<TenantId, String>,
    removed: HashSet<String>,
}

/// Tenants that are to have rules, by name.
#[derive(Debug, Default)]
pub struct TenantRules {
    ids: BTreeMap<String, TenantId>,
    /// Those that there were not when they were looked up.
    new: Vec<String>,
}

impl TenantRules {
    pub fn id(&self, name: &str) -> Option<TenantId> {
        self.ids.get(name).copied()
    }
}

impl Principals {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, configured: Arc::default(), provisioning: Arc::default(), token_cache: Arc::default() }
    }

    /// What moves with each change of tokens and principals, if the store knows of all of them.
    fn generation(&self) -> Option<Generation> {
        Some((self.store.generation(RowKind::Token)?, self.store.generation(RowKind::Principal)?))
    }

    /// The ids of tenants that are to have rules. Nothing is written: those that there are not yet are given ids that
    /// are theirs once the rules are [adopted](Self::adopt).
    pub async fn look_up(&self, names: impl Iterator<Item = &String> + Send) -> Result<TenantRules, Error> {
        let mut ruled = TenantRules::default();
        for name in names {
            let id = match self.known_tenant(name).await? {
                Some(id) => id,
                None => {
                    ruled.new.push(name.clone());
                    TenantId(random()?)
                }
            };
            ruled.ids.insert(name.clone(), id);
        }
        Ok(ruled)
    }

    /// Creates these tenants and applies their rules by id until the host ends. All of them or none:
    /// [`store::Error::Conflict`] where another host has created one of them meanwhile.
    pub async fn adopt(&self, ruled: &TenantRules) -> Result<(), Error> {
        let mut expected = Vec::new();
        let mut rows = Vec::new();
        for name in &ruled.new {
            let Some(id) = ruled.ids.get(name) else { continue };
            let row = encode(RowKind::Principal, &TenantRow { id: id.0 })?;
            expected.push((tenant_key(name), None));
            rows.push((tenant_key(name), Some(row)));
        }
        if !rows.is_empty() {
            self.store.change_rows(RowKind::Principal, expected, rows, None).await?;
        }
        self.configured.lock().names.extend(ruled.ids.iter().map(|(name, id)| (*id, name.clone())));
        Ok(())
    }

    /// The requestor of all requests while no token is configured.
    pub async fn local_requestor(&self) -> Result<Requestor, Error> {
        let identity = Identity { verifier: "local", issuer: ISSUER_LOCAL, subject: LOCAL_REQUESTOR, client: "" };
        self.requestor(identity, TENANT_DEFAULT).await
    }

    /// The same for an identity that an issuer vouches for, with the name of its tenant: an identity keeps its first
    /// one. The limits say whether one that was never seen may come into being.
    pub async fn identified(
        &self,
        identity: Identity<'_>,
        tenant: InTenant<'_>,
        limits: &LiveLimits,
    ) -> Result<(Requestor, String), Denied> {
        let known = self.get::<PrincipalRow>(RowKind::Principal, &identity.key()).await.map_err(unavailable)?;
        let row = match known {
            Some(row) => row,
            None => self.provision(identity, tenant, limits).await?,
        };
        Ok((row.requestor(), row.tenant_name))
    }

    /// The ids of an identity, made with its first appearance. The tenant counts only then.
    pub async fn requestor(&self, identity: Identity<'_>, tenant: &str) -> Result<Requestor, Error> {
        Ok(self.principal(identity, tenant).await?.requestor())
    }

    async fn principal(&self, identity: Identity<'_>, tenant: &str) -> Result<PrincipalRow, Error> {
        let key = identity.key();
        if let Some(row) = self.get::<PrincipalRow>(RowKind::Principal, &key).await? {
            return Ok(row);
        }
        let row = PrincipalRow {
            requestor: random()?,
            tenant: self.tenant(tenant).await?.0,
            tenant_name: tenant.to_owned(),
            issuer: identity.issuer.to_owned(),
            subject: identity.subject.to_owned(),
        };
        self.put_first(&key, row).await
    }

    /// The id of a tenant, made with its first appearance.
    pub async fn tenant(&self, name: &str) -> Result<TenantId, Error> {
        if let Some(id) = self.known_tenant(name).await? {
            return Ok(id);
        }
        let row = self.put_first(&tenant_key(name), TenantRow { id: random()? }).await?;
        Ok(TenantId(row.id))
    }

    /// The id of a tenant, if there is one; an error where there may be none of this name.
    async fn known_tenant(&self, name: &str) -> Result<Option<TenantId>, Error> {
        check_name("tenant", name)?;
        let known = self.find_tenant(name).await?;
        if known.is_none() && self.configured.lock().removed.contains(name) {
            return Err(Error::Removed(name.to_owned()));
        }
        Ok(known)
    }

    /// The name behind the id of a tenant.
    pub async fn tenant_name(&self, tenant: TenantId) -> Result<Option<String>, Error> {
        let mut after = vec![KEY_TENANT];
        loop {
            let page = self.store.rows(RowKind::Principal, Some(&after), PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(None) };
            after.clone_from(last);
            for (key, bytes) in page {
                let Some((&KEY_TENANT, name)) = key.split_first() else { return Ok(None) };
                if decode::<TenantRow>(RowKind::Principal, &bytes)?.id == tenant.0 {
                    return Ok(String::from_utf8(name.to_owned()).ok());
                }
            }
        }
    }

    /// The names of all requestors.
    pub async fn names(&self) -> Result<Vec<PrincipalNames>, Error> {
        let rows = self.all::<PrincipalRow>(RowKind::Principal, &[KEY_IDENTITY]).await?;
        let named = rows.into_iter().map(|(_, row)| PrincipalNames {
            requestor: row.requestor(),
            name: row.name().to_owned(),
            tenant: row.tenant_name,
        });
        Ok(named.collect())
    }

    /// Every tenant, by name.
    pub async fn tenants(&self) -> Result<Vec<(String, TenantId)>, Error> {
        let rows = self.all::<TenantRow>(RowKind::Principal, &[KEY_TENANT]).await?;
        let name = |key: Vec<u8>| String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
        Ok(rows.into_iter().map(|(key, row)| (name(key), TenantId(row.id))).collect())
    }

    /// The id of a tenant that there is.
    pub async fn find_tenant(&self, name: &str) -> Result<Option<TenantId>, Error> {
        let row = self.get::<TenantRow>(RowKind::Principal, &tenant_key(name)).await?;
        Ok(row.map(|row| TenantId(row.id)))
    }

    /// Removes the principals of a tenant and its name: later ones of these names have other ids. Returns the number of
    /// principals.
    pub async fn remove_tenant(&self, tenant: TenantId) -> Result<u64, Error> {
        {
            let mut configured = self.configured.lock();
            if let Some(name) = configured.names.remove(&tenant) {
                configured.removed.insert(name);
                tracing::warn!(%tenant, "a tenant with rules of its own was removed: nobody gets its name before a restart");
            }
        }
        let mut removed = 0;
        for (key, row) in self.all::<PrincipalRow>(RowKind::Principal, &[KEY_IDENTITY]).await? {
            if row.tenant == tenant.0 {
                self.store.remove_row(RowKind::Principal, &key).await?;
                removed += 1;
            }
        }
        for (key, row) in self.all::<TenantRow>(RowKind::Principal, &[KEY_TENANT]).await? {
            if row.id == tenant.0 {
                self.store.remove_row(RowKind::Principal, &key).await?;
            }
        }
        self.provisioning.count_again().await;
        Ok(removed)
    }

    /// Writes a row that must keep what it first said: who comes second reads the first one's.
    async fn put_first<R: Row>(&self, key: &[u8], row: R) -> Result<R, Error> {
        match self.store.put_row(RowKind::Principal, key, encode(RowKind::Principal, &row)?, true).await {
            Ok(()) => Ok(row),
            Err(store::Error::Exists) => {
                let first = self.get(RowKind::Principal, key).await?;
                first.ok_or_else(|| corrupt(RowKind::Principal, "a row is taken and absent at once"))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn get<R: Row>(&self, kind: RowKind, key: &[u8]) -> Result<Option<R>, Error> {
        self.store.row(kind, key).await?.map(|bytes| decode(kind, &bytes)).transpose()
    }

    /// Every row whose key begins so, with its key.
    async fn all<R: Row>(&self, kind: RowKind, prefix: &[u8]) -> Result<Vec<(Vec<u8>, R)>, Error> {
        let mut found = Vec::new();
        self.each(kind, prefix, |key, row| found.push((key, row))).await?;
        Ok(found)
    }

    /// The same, one after the other.
    async fn each<R: Row>(
        &self,
        kind: RowKind,
        prefix: &[u8],
        mut take: impl FnMut(Vec<u8>, R) + Send,
    ) -> Result<(), Error> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.rows(kind, after.as_deref(), PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for (key, bytes) in page {
                if key.starts_with(prefix) {
                    let row = decode(kind, &bytes)?;
                    take(key, row);
                }
            }
        }
    }
}

impl PrincipalRow {
    fn requestor(&self) -> Requestor {
        Requestor { tenant: TenantId(self.tenant), id: RequestorId(self.requestor) }
    }

    /// For operators. Subjects of tokens of the host begin with their tenant.
    fn name(&self) -> &str {
        if self.issuer != ISSUER_TOKEN {
            return &self.subject;
        }
        self.subject.rsplit('/').next().unwrap_or_default()
    }
}

fn tenant_key(name: &str) -> Vec<u8> {
    [&[KEY_TENANT], name.as_bytes()].concat()
}

fn check_name(what: &'static str, name: &str) -> Result<(), Error> {
    bulkhead_domain::names::check_name(name).map_err(|_| Error::Name { what, name: name.to_owned() })
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes)
}

fn encode<R: Row>(kind: RowKind, row: &R) -> Result<Vec<u8>, Error> {
    postcard::to_extend(row, vec![R::VERSION]).map_err(|error| corrupt(kind, &error.to_string()))
}

fn decode<R: Row>(kind: RowKind, bytes: &[u8]) -> Result<R, Error> {
    match bytes.split_first() {
        Some((version, rest)) if *version == R::VERSION => {
            postcard::from_bytes(rest).map_err(|error| corrupt(kind, &error.to_string()))
        }
        Some((version, _)) => Err(corrupt(kind, &format!("layout {version} is of another version of the host"))),
        None => Err(corrupt(kind, "it is empty")),
    }
}

fn corrupt(kind: RowKind, reason: &str) -> Error {
    Error::Corrupt { kind, reason: reason.to_owned() }
}

/// The refusal of a credential that could not be looked up; the reason is logged under its incident.
fn unavailable(error: Error) -> Denied {
    if let Error::Store(store::Error::Unavailable { retry_after_ms }) = error {
        return Denied::StoreUnavailable { retry_after_ms };
    }
    let incident = random::<8>().map_or_else(|_| "unknown".to_owned(), |bytes| hex(&bytes));
    tracing::error!(incident, error = %error, "a credential could not be checked");
    Denied::Unavailable { incident }
}
