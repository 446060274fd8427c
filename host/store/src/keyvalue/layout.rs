//! Keys and bytes of what plugins keep.
//!
//! Owns the layout of [`RowKind::KeyValue`](super::super::RowKind): what expires first (so that one row says whether
//! anything has), then entries by tenant, plugin and key, then the pieces of large values. Invariant: decoding is
//! total, and each row but those of the index begins with its tenant.

use super::{Error, KeyValueNamespace, KeyValueUsage};
use crate::RowState;
use crate::vault::SealingKey;
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;

/// Expiry time, tenant, plugin, key → nothing.
const DUE: u8 = b'0';
/// An entry with its value as it is.
const CLEAR: u8 = 1;
/// An entry with its value sealed, for this entry alone.
const SEALED: u8 = 2;
const LABEL: &[u8] = b"kept";
/// Bytes of a value that stays in its entry, and of a piece of one that does not.
const PIECE_BYTES: usize = 3_900;

/// What lies below a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Inside {
    /// Tenant, plugin, key → entry.
    Entries = b'1',
    /// Tenant, plugin, stamp, number → a piece of a value.
    Pieces = b'2',
}

/// What is known about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) expires_at: Option<UnixMs>,
    /// Bytes of the whole value, before it was sealed.
    bytes: u64,
    /// Whether its value has to be opened.
    pub(super) is_sealed: bool,
    pub(super) value: StoredValue,
}

/// Where the value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredValue {
    Here(Vec<u8>),
    /// Each value has a stamp of its own, so that pieces of two values never mix.
    Pieces {
        stamp: [u8; 8],
        count: u16,
    },
}

impl Entry {
    /// An entry, and the rows of its pieces.
    pub(super) fn new(
        space: &KeyValueNamespace,
        key: &str,
        value: &[u8],
        expires_at: Option<UnixMs>,
        sealing: Option<&SealingKey>,
    ) -> Result<(Self, Vec<RowState>), Error> {
        let bytes = value.len() as u64;
        let is_sealed = sealing.is_some();
        let mut entry = Self { expires_at, bytes, is_sealed, value: StoredValue::Here(Vec::new()) };
        let stored = match sealing {
            Some(sealing) => {
                let sealed = sealing.seal(&Self::context(space, key, &entry.head()), value);
                sealed.map_err(|error| Error::Engine(error.to_string()))?
            }
            None => value.to_vec(),
        };
        if stored.len() <= PIECE_BYTES {
            entry.value = StoredValue::Here(stored);
            return Ok((entry, Vec::new()));
        }
        let mut stamp = [0; 8];
        getrandom::fill(&mut stamp).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
        let pieces: Vec<_> = (0..=u16::MAX)
            .zip(stored.chunks(PIECE_BYTES))
            .map(|(number, piece)| (space.piece(stamp, number), Some(piece.to_vec())))
            .collect();
        entry.value = StoredValue::Pieces { stamp, count: u16::try_from(pieces.len()).unwrap_or(u16::MAX) };
        Ok((entry, pieces))
    }

    /// The value out of what is stored for it.
    pub(super) fn open(
        &self,
        space: &KeyValueNamespace,
        key: &str,
        stored: Vec<u8>,
        sealing: Option<&SealingKey>,
    ) -> Result<Vec<u8>, Error> {
        if !self.is_sealed {
            return Ok(stored);
        }
        let sealing = sealing.ok_or_else(|| Error::Sealed("a kept value is, and no key was given".to_owned()))?;
        let opened = sealing.open(&Self::context(space, key, &self.head()), &stored);
        opened.map_err(|error| Error::Corrupt(format!("a value that a plugin keeps cannot be opened: {error}")))
    }

    /// What a seal covers beside the value: whose it is, its key, and what is known without opening it.
    fn context<'a>(space: &'a KeyValueNamespace, key: &'a str, head: &'a [u8]) -> [&'a [u8]; 5] {
        [LABEL, &space.tenant.0, space.plugin.as_bytes(), key.as_bytes(), head]
    }

    pub(super) fn is_expired(&self, now: UnixMs) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// What it counts for.
    pub(super) fn counted(&self, key: &str) -> KeyValueUsage {
        KeyValueUsage { keys: 1, bytes: key.len() as u64 + self.bytes }
    }

    /// Everything that goes with it; its own row stays.
    pub(super) fn removal(&self, space: &KeyValueNamespace, key: &str) -> Vec<RowState> {
        let mut rows: Vec<_> = self.expires_at.iter().map(|at| (space.due(*at, key), None)).collect();
        if let StoredValue::Pieces { stamp, count } = self.value {
            rows.extend((0..count).map(|number| (space.piece(stamp, number), None)));
        }
        rows
    }

    fn head(&self) -> Vec<u8> {
        let mut row = vec![if self.is_sealed { SEALED } else { CLEAR }];
        row.extend(self.expires_at.unwrap_or(UnixMs::MAX).to_be_bytes());
        row.extend(self.bytes.to_be_bytes());
        row
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = self.head();
        match &self.value {
            StoredValue::Here(value) => {
                row.push(0);
                row.extend(value);
            }
            StoredValue::Pieces { stamp, count } => {
                row.push(1);
                row.extend(stamp);
                row.extend(count.to_be_bytes());
            }
        }
        row
    }

    pub(super) fn decode(row: &[u8]) -> Result<Self, Error> {
        let read = || {
            let (version, rest) = row.split_first()?;
            let is_sealed = match *version {
                CLEAR => false,
                SEALED => true,
                _ => return None,
            };
            let (expires_at, rest) = rest.split_first_chunk()?;
            let (bytes, rest) = rest.split_first_chunk()?;
            let value = match rest.split_first()? {
                (0, value) => StoredValue::Here(value.to_vec()),
                (1, rest) => {
                    let (stamp, rest) = rest.split_first_chunk()?;
                    StoredValue::Pieces { stamp: *stamp, count: u16::from_be_bytes(rest.try_into().ok()?) }
                }
                _ => return None,
            };
            let expires_at = Some(u64::from_be_bytes(*expires_at)).filter(|at| *at != UnixMs::MAX);
            Some(Self { expires_at, bytes: u64::from_be_bytes(*bytes), is_sealed, value })
        };
        read()
            .ok_or_else(|| corrupt("an entry that a plugin keeps cannot be read; a newer program may have written it"))
    }
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt(what.to_owned())
}

impl KeyValueNamespace {
    fn below(&self, inside: Inside) -> Vec<u8> {
        let mut row = vec![inside as u8];
        row.extend(self.tenant.0);
        // A name has at most 64 bytes.
        row.push(u8::try_from(self.plugin.len()).unwrap_or(u8::MAX));
        row.extend(self.plugin.as_bytes());
        row
    }

    pub(super) fn entry(&self, key: &str) -> Vec<u8> {
        let mut row = self.below(Inside::Entries);
        row.extend(key.as_bytes());
        row
    }

    pub(super) fn piece(&self, stamp: [u8; 8], number: u16) -> Vec<u8> {
        let mut row = self.below(Inside::Pieces);
        row.extend(stamp);
        row.extend(number.to_be_bytes());
        row
    }

    pub(super) fn due(&self, at: UnixMs, key: &str) -> Vec<u8> {
        due_of(at, &self.entry(key))
    }

    /// The key of an entry's row.
    pub(super) fn key_of(&self, row: &[u8]) -> Result<String, Error> {
        let key = row.strip_prefix(self.entry("").as_slice()).and_then(|key| std::str::from_utf8(key).ok());
        key.map(str::to_owned).ok_or_else(|| corrupt("a key that a plugin keeps cannot be read"))
    }
}

/// Whose row it is.
pub(crate) fn tenant_of(row: &[u8]) -> Option<TenantId> {
    let (inside, rest) = row.split_first()?;
    let rest = if *inside == DUE { rest.get(size_of::<UnixMs>()..)? } else { rest };
    rest.first_chunk().copied().map(TenantId)
}

/// The place of an entry's row in the index.
pub(super) fn due_of(at: UnixMs, entry: &[u8]) -> Vec<u8> {
    let mut row = vec![DUE];
    row.extend(at.to_be_bytes());
    row.extend(entry.iter().skip(1));
    row
}

/// A row of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: UnixMs,
    pub(super) space: KeyValueNamespace,
    pub(super) key: String,
}

/// Reads a row of the index; `None` for every other one.
pub(super) fn due(row: &[u8]) -> Option<Due> {
    let (at, rest) = row.strip_prefix(&[DUE])?.split_first_chunk()?;
    let (tenant, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first()?;
    let (plugin, key) = rest.split_at_checked(usize::from(*length))?;
    let space = KeyValueNamespace { tenant: TenantId(*tenant), plugin: std::str::from_utf8(plugin).ok()?.into() };
    Some(Due { at: u64::from_be_bytes(*at), space, key: std::str::from_utf8(key).ok()?.to_owned() })
}
