//! Secrets that plugins may use without seeing them.
//!
//! Owns their rows: what a secret is bound to (a plugin, a tenant or all of them, destinations, places in a request),
//! and its value, sealed with the operator's keys. Must not send anything anywhere. Invariant: a value opens only under
//! the binding that it was sealed with, so that an attacker who can write to the disk cannot send it elsewhere; and it
//! is in no message, no log and no list.

mod row;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};

use self::row::{Row, Scope};
use bulkhead_calls::policy::HttpGrant;
use bulkhead_calls::secrets::{InjectionPoints, Secret, VALUE_BYTES, is_name};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;
use bulkhead_store::vault::{self, VaultKeys, sealed_by};
use bulkhead_store::{self as store, RowKind, Store};

/// Destinations of one secret.
const DESTINATIONS_MAX: usize = 16;
/// Secrets of one plugin for one tenant, and those for all tenants. Each request of the plugin looks at all of them.
const SECRETS_PER_PLUGIN_MAX: usize = 64;
const PAGE_ROWS: usize = 64;

/// Why a secret was not kept, found or opened. No message holds a value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(String),
    #[error("there is no secret {0}")]
    Unknown(String),
    #[error(
        "there is no key to seal secrets with: name a file of keys in [secrets] key_file, or set BULKHEAD_SECRET_KEY"
    )]
    NoKey,
    #[error(
        "secret {name} of plugin {plugin} is sealed, and there is no key: name the file of keys in [secrets] key_file, or set BULKHEAD_SECRET_KEY; if the key is lost, `bulkhead secret remove {name} --plugin {plugin}` lets the secret go (for one tenant's, with --tenant)"
    )]
    Locked { name: String, plugin: String },
    /// At the start, or when keys have changed.
    #[error(
        "secret {name} of plugin {plugin} cannot be opened: {error}; if its key is lost, `bulkhead secret remove {name} --plugin {plugin}` lets it go (for one tenant's, with --tenant)"
    )]
    Sealed { name: String, plugin: String, error: vault::Error },
    #[error(transparent)]
    Vault(#[from] vault::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Which secret is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRef {
    pub name: String,
    pub plugin: String,
    /// Its id and its name, for a secret of one tenant.
    pub tenant: Option<(TenantId, String)>,
}

/// A secret to be kept.
pub struct NewSecret {
    pub which: SecretRef,
    pub destinations: Vec<HttpGrant>,
    pub places: InjectionPoints,
    pub value: String,
}

/// What may be shown of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretInfo {
    pub name: String,
    pub plugin: String,
    pub tenant: Option<String>,
    pub destinations: Vec<String>,
    pub places: Vec<String>,
    pub set_at: UnixMs,
    /// The key that sealed it.
    pub key: String,
    /// Whether an older key did, so that `rotate` would seal it again.
    pub outdated: bool,
}

/// Where the operator's keys are read, at the start and at each rotation; none: there are none.
pub type KeySource = Box<dyn Fn() -> Result<Option<VaultKeys>, vault::Error> + Send + Sync>;

/// The secrets of one store.
pub struct Secrets {
    rows: Arc<dyn Store>,
    source: KeySource,
    keys: ArcSwapOption<VaultKeys>,
}

impl Secrets {
    /// Reads the keys, and checks that every secret can be opened: better known at the start than at a request.
    ///
    /// # Errors
    ///
    /// What is wrong with the keys, or which secret cannot be opened and what is missing.
    pub async fn open(rows: Arc<dyn Store>, source: KeySource) -> Result<Self, Error> {
        let secrets = Self { rows, source, keys: ArcSwapOption::empty() };
        secrets.read_keys().await?;
        Ok(secrets)
    }

    /// To list and remove only: also where a key is lost. Opens nothing; keys that cannot be read are none.
    pub fn unopened(rows: Arc<dyn Store>, source: KeySource) -> Self {
        let keys = source().ok().flatten().map(Arc::new);
        Self { rows, source, keys: ArcSwapOption::new(keys) }
    }

    /// Takes other keys, if every secret can be opened with them.
    async fn read_keys(&self) -> Result<Option<Arc<VaultKeys>>, Error> {
        let keys = (self.source)()?.map(Arc::new);
        for (scope, row) in self.all(&[]).await? {
            let keys = keys
                .as_ref()
                .ok_or_else(|| Error::Locked { name: scope.name.clone(), plugin: scope.plugin.clone() })?;
            row.open(keys, &scope).map_err(|error| scope.sealed(error))?;
        }
        self.keys.store(keys.clone());
        Ok(keys)
    }

    fn keys(&self) -> Result<Arc<VaultKeys>, Error> {
        self.keys.load_full().ok_or(Error::NoKey)
    }

    /// Keeps a secret in the place of the one of this name before, durable on return.
    ///
    /// # Errors
    ///
    /// What is wrong with the wish, and failures of vault and store.
    pub async fn set(&self, secret: NewSecret, now: UnixMs) -> Result<SecretInfo, Error> {
        let keys = self.keys()?;
        check(&secret)?;
        let NewSecret { which, destinations, places, value } = secret;
        let scope = Scope::of(&which);
        let beside = self.all(&Scope::within(&scope.plugin, scope.tenant)).await?;
        if beside.len() >= SECRETS_PER_PLUGIN_MAX && !beside.iter().any(|(found, _)| *found == scope) {
            return Err(Error::Invalid(format!(
                "a plugin has at most {SECRETS_PER_PLUGIN_MAX} secrets for one tenant, and as many for all of them"
            )));
        }
        let mut row = Row {
            tenant: which.tenant.map(|(_, name)| name),
            destinations: destinations.iter().map(HttpGrant::to_string).collect(),
            places: places.names().into_iter().map(str::to_owned).collect(),
            set_at: now,
            sealed: Vec::new(),
        };
        row.seal(&keys, &scope, value.as_bytes())?;
        let bytes = row.encode()?;
        self.rows.put_row(RowKind::GuestSecret, &scope.key(), bytes, false).await.map_err(|error| match error {
            store::Error::Quota { .. } => Error::Invalid("value and destinations together are too long".to_owned()),
            other => other.into(),
        })?;
        Ok(self.shown(&scope, &row))
    }

    /// Every secret, without its value.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn list(&self) -> Result<Vec<SecretInfo>, Error> {
        Ok(self.all(&[]).await?.iter().map(|(scope, row)| self.shown(scope, row)).collect())
    }

    /// Removes a secret, durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`], or the store's failure.
    pub async fn remove(&self, which: &SecretRef) -> Result<(), Error> {
        let key = Scope::of(which).key();
        if self.rows.row(RowKind::GuestSecret, &key).await?.is_none() {
            let tenant =
                which.tenant.as_ref().map_or_else(|| "all tenants".to_owned(), |(_, name)| format!("tenant {name}"));
            return Err(Error::Unknown(format!("{} of plugin {} for {tenant}", which.name, which.plugin)));
        }
        Ok(self.rows.remove_row(RowKind::GuestSecret, &key).await?)
    }

    /// Reads the keys again, and seals with the first one what another one sealed; returns how many. Can be done again
    /// at any time.
    ///
    /// # Errors
    ///
    /// When one cannot be opened; those before it are done.
    pub async fn rotate(&self) -> Result<usize, Error> {
        let keys = self.read_keys().await?.ok_or(Error::NoKey)?;
        let mut rotated = 0;
        for (scope, mut row) in self.all(&[]).await? {
            if !keys.is_outdated(&row.sealed) {
                continue;
            }
            let before = row.encode()?;
            let value = row.open(&keys, &scope).map_err(|error| scope.sealed(error))?;
            row.seal(&keys, &scope, &value)?;
            let key = scope.key();
            let after = row.encode()?;
            let expected = vec![(key.clone(), Some(before))];
            match self.rows.change_rows(RowKind::GuestSecret, expected, vec![(key, Some(after))], None).await {
                // Somebody set or removed it meanwhile: then it is not outdated any more.
                Err(store::Error::Conflict) => {}
                other => {
                    other?;
                    rotated += 1;
                }
            }
        }
        Ok(rotated)
    }

    /// What a plugin may use in calls of a tenant. A tenant's own secret takes the place of the one of this name that
    /// is for all.
    ///
    /// # Errors
    ///
    /// When one cannot be opened, or the store fails.
    pub async fn of(&self, tenant: TenantId, plugin: &str) -> Result<Vec<Secret>, Error> {
        let mut found: Vec<(Scope, Secret)> = Vec::new();
        let mut rows = self.all(&Scope::within(plugin, None)).await?;
        rows.extend(self.all(&Scope::within(plugin, Some(tenant))).await?);
        for (scope, row) in rows {
            let keys = self.keys()?;
            let value = row.open(&keys, &scope).map_err(|error| scope.sealed(error))?;
            let secret = row.secret(&scope, value)?;
            found.retain(|(other, _)| other.name != scope.name);
            found.push((scope, secret));
        }
        Ok(found.into_iter().map(|(_, secret)| secret).collect())
    }

    async fn all(&self, prefix: &[u8]) -> Result<Vec<(Scope, Row)>, Error> {
        let mut found = Vec::new();
        let mut after = prefix.to_vec();
        loop {
            let page = self.rows.rows(RowKind::GuestSecret, Some(&after), PAGE_ROWS).await?;
            let full = page.len() == PAGE_ROWS;
            for (key, value) in page {
                if !key.starts_with(prefix) {
                    return Ok(found);
                }
                found.push((Scope::parse(&key)?, Row::decode(&value)?));
                after = key;
            }
            if !full {
                return Ok(found);
            }
        }
    }

    fn shown(&self, scope: &Scope, row: &Row) -> SecretInfo {
        SecretInfo {
            name: scope.name.clone(),
            plugin: scope.plugin.clone(),
            tenant: row.tenant.clone(),
            destinations: row.destinations.clone(),
            places: row.places.clone(),
            set_at: row.set_at,
            key: sealed_by(&row.sealed).map(|id| id.to_string()).unwrap_or_default(),
            outdated: self.keys.load().as_ref().is_some_and(|keys| keys.is_outdated(&row.sealed)),
        }
    }
}

fn check(secret: &NewSecret) -> Result<(), Error> {
    let invalid = |why: String| Err(Error::Invalid(why));
    let NewSecret { which, destinations, places, value } = secret;
    for (what, text) in [("secret", &which.name), ("plugin", &which.plugin)] {
        if !is_name(text) {
            return invalid(format!("the name of a {what} is 1 to 64 characters of A-Z a-z 0-9 _ . -"));
        }
    }
    if destinations.is_empty() || destinations.len() > DESTINATIONS_MAX {
        return invalid(format!("a secret goes to 1 to {DESTINATIONS_MAX} destinations"));
    }
    if *places == InjectionPoints::default() {
        return invalid("a secret is put into header, query or body".to_owned());
    }
    if !VALUE_BYTES.contains(&value.len()) {
        let min = VALUE_BYTES.start();
        let max = VALUE_BYTES.end();
        return invalid(format!("a secret has {min} to {max} bytes; this one has {}", value.len()));
    }
    // A header takes nothing else, and whoever reads a value from a file may not know of the line's end.
    if value.chars().any(|character| character.is_control() || !character.is_ascii()) {
        return invalid("a secret is one line of ASCII characters".to_owned());
    }
    Ok(())
}
