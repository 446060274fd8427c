//! Bearer tokens of the host: made, listed, ended and looked up.
//!
//! Must not keep a token, only its SHA-256. Invariant: a token that has ended stays ended.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Error, ISSUER_TOKEN, Identity, KEY_CLOSED, PrincipalRow, Principals, Row, TOKEN_PREFIX, check_name, encode,
    last_used, random,
};
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::{UnixMs, hex};
use bulkhead_store::RowKind;

/// Random bytes of a token: too many to guess.
const TOKEN_BYTES: usize = 32;
/// No token of ours is longer; a longer one is not even hashed.
const TOKEN_CHARACTERS_MAX: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenRow {
    pub id: [u8; 8],
    pub requestor_name: String,
    pub tenant_name: String,
    pub principal: Vec<u8>,
    created_at: UnixMs,
    expires_at: Option<UnixMs>,
    revoked_at: Option<UnixMs>,
    further: Option<Further>,
}

/// What its operator said of a token beyond whose it is.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Further {
    label: Option<String>,
    scopes: Option<Vec<String>>,
}

impl Row for TokenRow {
    const VERSION: u8 = 2;
}

/// What a new token is for.
#[derive(Clone, Copy, Debug)]
pub struct TokenSpec<'a> {
    pub requestor: &'a str,
    pub tenant: &'a str,
    pub expires_at: Option<UnixMs>,
    /// What the operator calls the token itself.
    pub label: Option<&'a str>,
    /// What it is good for; everything without them.
    pub scopes: Option<&'a [String]>,
}

/// What an operator may know of a token: everything but the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    pub id: String,
    pub requestor: String,
    pub tenant: String,
    pub created_at: UnixMs,
    pub expires_at: Option<UnixMs>,
    pub revoked_at: Option<UnixMs>,
    /// What the operator called it.
    #[serde(default)]
    pub name: Option<String>,
    /// What it is good for; everything if there are none.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
    /// Up to a few seconds behind.
    #[serde(default)]
    pub last_used_at: Option<UnixMs>,
}

impl TokenInfo {
    /// Whether it opens the door at this moment.
    pub fn is_active(&self, now: UnixMs) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }
}

/// A token that was just made. There is no second look at it.
pub struct NewToken {
    pub token: String,
    pub info: TokenInfo,
}

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub requestor: Requestor,
    pub expires_at: Option<UnixMs>,
    pub name: String,
    pub tenant: String,
    pub scopes: Option<Vec<String>>,
    pub id: last_used::TokenId,
}

impl Principals {
    /// Makes a token without a name of its own that is good for everything.
    pub async fn create_token(
        &self,
        requestor: &str,
        tenant: &str,
        expires_at: Option<UnixMs>,
        now: UnixMs,
    ) -> Result<NewToken, Error> {
        self.create(TokenSpec { requestor, tenant, expires_at, label: None, scopes: None }, now).await
    }

    /// Makes a token for the requestor of this name in this tenant; both come into being with their first token.
    pub async fn create(&self, spec: TokenSpec<'_>, now: UnixMs) -> Result<NewToken, Error> {
        let TokenSpec { requestor: name, tenant, expires_at, label, scopes } = spec;
        check_name("requestor", name)?;
        check_name("tenant", tenant)?;
        label.map_or(Ok(()), |label| check_name("token", label))?;
        let checked = |scope: &String| bulkhead_domain::names::check_scope(scope).map_err(Error::Scope);
        let scopes: Option<Vec<_>> = scopes.map(|scopes| scopes.iter().map(checked).collect()).transpose()?;
        // Two tenants may each have an "alice": they are two requestors.
        let subject = format!("{tenant}/{name}");
        let identity = Identity { verifier: "token", issuer: ISSUER_TOKEN, subject: &subject, client: "" };
        self.requestor(identity, tenant).await?;
        let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<TOKEN_BYTES>()?));
        let row = TokenRow {
            id: random()?,
            requestor_name: name.to_owned(),
            tenant_name: tenant.to_owned(),
            principal: identity.key().to_vec(),
            created_at: now,
            expires_at,
            revoked_at: None,
            further: (label.is_some() || scopes.is_some()).then(|| Further { label: label.map(str::to_owned), scopes }),
        };
        self.store.put_row(RowKind::Token, &digest(&token), encode(RowKind::Token, &row)?, true).await?;
        Ok(NewToken { token, info: row.info() })
    }

    /// Every token, revoked and expired ones too, by age.
    pub async fn tokens(&self) -> Result<Vec<TokenInfo>, Error> {
        let rows = self.all::<TokenRow>(RowKind::Token, &[]).await?;
        let mut tokens = Vec::with_capacity(rows.len());
        for (_, row) in rows {
            tokens.push(TokenInfo { last_used_at: self.used_at(&row.id).await?, ..row.info() });
        }
        tokens.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(tokens)
    }

    /// Whether there is a valid token.
    pub async fn any_active_token(&self, now: UnixMs) -> Result<bool, Error> {
        Ok(self.tokens().await?.iter().any(|token| token.is_active(now)))
    }

    /// Whether a token was ever made.
    pub async fn any_token(&self) -> Result<bool, Error> {
        let any = !self.store.rows(RowKind::Token, None, 1).await?.is_empty();
        Ok(any || self.store.row(RowKind::Principal, &[KEY_CLOSED]).await?.is_some())
    }

    /// Ends a token, now and for ever. Ending it twice keeps the first time.
    pub async fn revoke_token(&self, id: &str, now: UnixMs) -> Result<TokenInfo, Error> {
        let rows = self.all::<TokenRow>(RowKind::Token, &[]).await?;
        let found = rows.into_iter().find(|(_, row)| hex(&row.id) == id);
        let (key, mut row) = found.ok_or_else(|| Error::UnknownToken(id.to_owned()))?;
        if row.revoked_at.is_none() {
            row.revoked_at = Some(now);
            self.store.put_row(RowKind::Token, &key, encode(RowKind::Token, &row)?, false).await?;
        }
        Ok(row.info())
    }

    /// Removes every token of a tenant, ended ones too, and when they were used; returns their number.
    pub async fn remove_tokens(&self, tenant: TenantId) -> Result<u64, Error> {
        let name = self.tenant_name(tenant).await?;
        let mut removed = 0;
        for (key, row) in self.all::<TokenRow>(RowKind::Token, &[]).await? {
            let principal = self.get::<PrincipalRow>(RowKind::Principal, &row.principal).await?;
            let own = match principal {
                Some(principal) => principal.tenant == tenant.0,
                None => name.as_ref() == Some(&row.tenant_name),
            };
            if own {
                self.store.put_row(RowKind::Principal, &[KEY_CLOSED], Vec::new(), false).await?;
                self.store.remove_row(RowKind::Token, &key).await?;
                self.store.remove_row(RowKind::Principal, &last_used::key(&row.id)).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Whose token this is; `None` for unknown, expired and revoked ones alike. What is compared is a hash of the
    /// secret, so that the time it takes says nothing about the secret.
    pub async fn resolve_token(&self, token: &str, now: UnixMs) -> Result<Option<Resolved>, Error> {
        if !token.starts_with(TOKEN_PREFIX) || token.len() > TOKEN_CHARACTERS_MAX {
            return Ok(None);
        }
        self.resolve_digest(&digest(token), now).await
    }

    /// The same by the SHA-256 of a token.
    pub(super) async fn resolve_digest(&self, digest: &[u8; 32], now: UnixMs) -> Result<Option<Resolved>, Error> {
        // Taken before the look: what changes in between makes the next request look again.
        let generation = self.generation();
        let mut found = generation.and_then(|generation| self.token_cache.get(generation, digest));
        if found.is_none() {
            found = self.look_up_digest(digest).await?;
            if let Some((generation, found)) = generation.zip(found.clone()) {
                self.token_cache.put(generation, *digest, found);
            }
        }
        Ok(found.filter(|resolved| resolved.expires_at.is_none_or(|at| at > now)))
    }

    /// Whose token has this SHA-256, if it was not revoked.
    async fn look_up_digest(&self, digest: &[u8; 32]) -> Result<Option<Resolved>, Error> {
        let Some(row) = self.get::<TokenRow>(RowKind::Token, digest).await? else { return Ok(None) };
        if row.revoked_at.is_some() {
            return Ok(None);
        }
        let principal = self.get::<PrincipalRow>(RowKind::Principal, &row.principal).await?;
        Ok(principal.map(|principal| Resolved {
            requestor: principal.requestor(),
            expires_at: row.expires_at,
            name: row.requestor_name,
            tenant: row.tenant_name,
            scopes: row.further.and_then(|further| further.scopes),
            id: row.id,
        }))
    }
}

impl TokenRow {
    fn info(&self) -> TokenInfo {
        TokenInfo {
            id: hex(&self.id),
            requestor: self.requestor_name.clone(),
            tenant: self.tenant_name.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            name: self.further.as_ref().and_then(|further| further.label.clone()),
            scopes: self.further.as_ref().and_then(|further| further.scopes.clone()),
            last_used_at: None,
        }
    }
}

pub(super) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}
