//! Keys and bytes of secrets.
//!
//! Invariant: what a value is bound to is part of what its seal covers.

use serde::{Deserialize, Serialize};

use super::{Error, SecretRef};
use bulkhead_calls::secrets::{InjectionPoints, Secret};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;
use bulkhead_store as store;
use bulkhead_store::vault::{self, VaultKeys};

const VERSION: u8 = 1;
const FOR_ALL: u8 = 0;
const FOR_ONE: u8 = 1;

/// Whose secret it is, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) plugin: String,
    pub(super) tenant: Option<TenantId>,
    pub(super) name: String,
}

impl Scope {
    pub(super) fn of(which: &SecretRef) -> Self {
        let tenant = which.tenant.as_ref().map(|(id, _)| *id);
        Self { plugin: which.plugin.clone(), tenant, name: which.name.clone() }
    }

    /// What every key of a plugin's secrets for one tenant, or for all of them, begins with.
    pub(super) fn within(plugin: &str, tenant: Option<TenantId>) -> Vec<u8> {
        // A name has at most 64 bytes.
        let mut key = vec![u8::try_from(plugin.len()).unwrap_or(u8::MAX)];
        key.extend(plugin.as_bytes());
        match tenant {
            None => key.push(FOR_ALL),
            Some(tenant) => {
                key.push(FOR_ONE);
                key.extend(tenant.0);
            }
        }
        key
    }

    /// Those for all tenants come before those for one.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Self::within(&self.plugin, self.tenant);
        key.extend(self.name.as_bytes());
        key
    }

    pub(super) fn parse(key: &[u8]) -> Result<Self, Error> {
        let read = || {
            let (length, rest) = key.split_first()?;
            let (plugin, rest) = rest.split_at_checked(usize::from(*length))?;
            let (tenant, name) = match rest.split_first()? {
                (&FOR_ALL, name) => (None, name),
                (&FOR_ONE, rest) => {
                    let (tenant, name) = rest.split_first_chunk()?;
                    (Some(TenantId(*tenant)), name)
                }
                _ => return None,
            };
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
            Some(Self { plugin: text(plugin)?, tenant, name: text(name)? })
        };
        read().ok_or_else(corrupt)
    }

    pub(super) fn sealed(&self, error: vault::Error) -> Error {
        Error::Sealed { name: self.name.clone(), plugin: self.plugin.clone(), error }
    }
}

fn corrupt() -> Error {
    store::Error::Corrupt("a secret cannot be read; a newer program may have written it".to_owned()).into()
}

/// A secret on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Its name, for people.
    pub(super) tenant: Option<String>,
    pub(super) destinations: Vec<String>,
    pub(super) places: Vec<String>,
    pub(super) set_at: UnixMs,
    pub(super) sealed: Vec<u8>,
}

impl Row {
    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        postcard::to_extend(self, vec![VERSION])
            .map_err(|error| store::Error::Engine(format!("a secret cannot be written: {error}")).into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let body = bytes.strip_prefix(&[VERSION]).ok_or_else(corrupt)?;
        match postcard::take_from_bytes(body) {
            Ok((row, [])) => Ok(row),
            _ => Err(corrupt()),
        }
    }

    pub(super) fn seal(&mut self, keys: &VaultKeys, scope: &Scope, value: &[u8]) -> Result<(), Error> {
        let bound = self.binding()?;
        self.sealed = keys.seal(&[b"bulkhead guest secret", &scope.key(), &bound], value)?;
        Ok(())
    }

    pub(super) fn open(&self, keys: &VaultKeys, scope: &Scope) -> Result<Vec<u8>, vault::Error> {
        let bound = self.binding().map_err(|_| vault::Error::Opened)?;
        keys.open(&[b"bulkhead guest secret", &scope.key(), &bound], &self.sealed)
    }

    /// Everything but the value.
    fn binding(&self) -> Result<Vec<u8>, Error> {
        Self { sealed: Vec::new(), ..self.clone() }.encode()
    }

    /// As a request uses it.
    pub(super) fn secret(&self, scope: &Scope, value: Vec<u8>) -> Result<Secret, Error> {
        let destinations = self.destinations.iter().map(|text| text.parse().ok()).collect::<Option<_>>();
        Ok(Secret {
            name: scope.name.clone(),
            value: String::from_utf8(value).map_err(|_| corrupt())?,
            destinations: destinations.ok_or_else(corrupt)?,
            places: InjectionPoints::named(&self.places).ok_or_else(corrupt)?,
        })
    }
}
