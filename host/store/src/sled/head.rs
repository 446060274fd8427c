//! The value under a task's key: a head for the engine, then the record.
//!
//! Owns what the committer needs to know of a task without reading its record: revision, index positions, where the
//! payloads lie and what they count. Must not decide anything about tasks. Invariant: every index row of a task follows
//! from its head.

use serde::{Deserialize, Serialize};

use super::super::record::{decode_checked, encode_checked};
use super::super::{Error, Usage};
use super::keys::{self, Part, TaskKey};
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Lease, NodeId, Task};

/// Larger values make nodes that sled writes to files which it never syncs.
pub(super) const CHUNK_BYTES: usize = 4_000;
/// A record that fits here stays in the task's own row, with the head in front of it.
pub(super) const RECORD_INLINE_BYTES: usize = 2_600;
/// A payload that fits here stays in the head: one key less for most calls. Two of them, the largest inline record and
/// the rest of the head stay below [`CHUNK_BYTES`].
pub(super) const PAYLOAD_INLINE_BYTES: usize = 512;

/// A key and its value, on their way to the tree.
pub(super) type NewRow = (Vec<u8>, Vec<u8>);

/// Where bytes that belong to a task lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PayloadLocation {
    /// Here.
    Inline(#[serde(with = "in_one_piece")] Vec<u8>),
    /// In chunks of [`CHUNK_BYTES`].
    Chunks { bytes: u64, checksum: u32 },
    /// In a file of this name.
    File { name: [u8; 16], bytes: u64, checksum: u32 },
}

impl PayloadLocation {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Chunks { bytes, .. } | Self::File { bytes, .. } => *bytes,
        }
    }
}

/// Bytes as bytes: serde would write a `Vec<u8>` number by number.
mod in_one_piece {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
    }
}

/// What stands before the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordHeader {
    pub(super) revision: u64,
    pub(super) created_at: UnixMs,
    pub(super) expires_at: Option<UnixMs>,
    /// Whether the task is over.
    pub(super) ended: bool,
    /// By which lease the task is held: node and end. That of its run, as the record says it; and while it waits to go
    /// on, the one before.
    pub(super) lease: Option<([u8; 16], UnixMs)>,
    /// SHA-256 of the alias.
    pub(super) alias: Option<[u8; 32]>,
    /// For an output that may still come.
    pub(super) reserved_bytes: u64,
    pub(super) record: PayloadLocation,
    pub(super) arguments: PayloadLocation,
    pub(super) output: Option<PayloadLocation>,
}

impl RecordHeader {
    /// The head of a task; the payloads follow separately.
    pub(super) fn new(task: &Task, record: PayloadLocation, arguments: PayloadLocation, reserved_bytes: u64) -> Self {
        let ended = task.outcome().is_some();
        Self {
            revision: task.revision,
            created_at: task.created_at,
            expires_at: task.expires_at(),
            ended,
            lease: task.lease.map(|lease| (lease.node.0, lease.until)),
            alias: task.alias.as_deref().map(alias_digest),
            reserved_bytes: if ended { 0 } else { reserved_bytes },
            record,
            arguments,
            output: None,
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        encode_checked(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        decode_checked(bytes, "task head")
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.lease.map(|(node, until)| Lease { node: NodeId(node), until })
    }

    /// Where each payload that there is lies.
    pub(super) fn payloads(&self) -> impl Iterator<Item = (Part, &PayloadLocation)> {
        let always = [(Part::Record, &self.record), (Part::Arguments, &self.arguments)];
        always.into_iter().chain(self.output.as_ref().map(|output| (Part::Output, output)))
    }

    /// What the task counts.
    pub(super) fn usage(&self) -> Usage {
        let output = self.output.as_ref().map_or(self.reserved_bytes, PayloadLocation::bytes);
        let bytes = self.record.bytes().saturating_add(self.arguments.bytes()).saturating_add(output);
        Usage { tasks: 1, bytes }
    }

    /// Every index row that a task with this head has.
    pub(super) fn index_rows(&self, key: &TaskKey) -> Result<Vec<NewRow>, Error> {
        let mut rows = vec![(key.list(self.created_at), Vec::new())];
        if let Some(expires_at) = self.expires_at {
            rows.push((key.expiry(expires_at), Vec::new()));
        }
        if !self.ended {
            let lease = self.lease.map(|(node, until)| [node.as_slice(), &until.to_be_bytes()].concat());
            rows.push((key.unfinished(), lease.unwrap_or_default()));
        }
        if let Some(digest) = &self.alias {
            rows.push((keys::alias(&key.requestor, digest), key.id.0.to_vec()));
        }
        Ok(rows)
    }
}

/// The lease in an unfinished row; an unreadable one counts as none.
pub(super) fn parse_lease_row(row: &[u8]) -> Option<Lease> {
    let (node, until) = row.split_first_chunk::<16>()?;
    Some(Lease { node: NodeId(*node), until: UnixMs::from_be_bytes(until.try_into().ok()?) })
}

pub(super) fn alias_digest(alias: &str) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::digest(alias.as_bytes()).into()
}

/// A small row with its checksum.
pub(super) fn with_checksum(mut value: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// A small row without its checksum, which is right.
pub(super) fn verify_checksum(sealed: &[u8]) -> Result<Vec<u8>, Error> {
    match sealed.split_last_chunk::<4>() {
        Some((value, checksum)) if crc32fast::hash(value) == u32::from_le_bytes(*checksum) => Ok(value.to_vec()),
        _ => Err(Error::Corrupt("the checksum of a row is wrong".to_owned())),
    }
}
