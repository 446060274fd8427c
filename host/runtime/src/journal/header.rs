//! What a call begins with and a replay has to begin with, too, whatever the operator has changed since.
//!
//! Owns the first entry of a journal. Arguments are here as a digest, and with them what a command finds on its command
//! line and its standard input: the keeper of a journal keeps the request, too. Invariant: a call that is replayed sees
//! the limits, settings and variables of the header and not those of the moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use sha2::{Digest as _, Sha256};

use super::codec::{Recorded, fields};
use crate::granted::Granted;
use bulkhead_calls::journal::reader::Reader;
use bulkhead_calls::{ClientView, Operation};
use bulkhead_domain::Json;
use bulkhead_domain::call::{ClientFeatures, LogLevel};
use bulkhead_domain::limits::CallLimits;

/// Raised by hand whenever guests see something else of the host than before, by the same journal.
const ABI: u16 = 1;

/// The layout of what follows.
const FORMAT: u8 = 1;

/// Bytes of settings and variables. Stops a journal that is larger than what it is of.
pub(super) const PINNED_BYTES_MAX: usize = 16 << 10;

/// The beginning of a SHA-256.
pub(super) type Digest = [u8; 8];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(super) abi: u16,
    pub(super) component: [u8; 32],
    pub(super) engine: u64,
    /// Of what is called, arguments and all.
    pub(super) operation: Digest,
    /// What the wall clock showed in the beginning, in milliseconds since the Unix epoch.
    pub(super) base_ms: u64,
    /// Whether it shows that all the time.
    pub(super) stands: bool,
    pub(super) attempt: u32,
    pub(super) limits: PinnedLimits,
    pub(super) environment: Vec<(String, String)>,
    pub(super) settings: BTreeMap<String, Json>,
    pub(super) audience: ClientView,
    /// The guest's names of the granted directories.
    pub(super) directories: Vec<String>,
    /// Empty: there is none.
    pub(super) idempotency_header: String,
}

/// What a header is made of, for as long as the journal has no entry: most short calls never write one.
pub(super) struct UnwrittenHeader {
    pub(super) component: [u8; 32],
    pub(super) engine: u64,
    pub(super) operation: Arc<Operation>,
    pub(super) limits: PinnedLimits,
    pub(super) granted: Arc<Granted>,
    pub(super) opening: Opening,
}

impl UnwrittenHeader {
    pub(super) fn header(&self) -> Header {
        let Self { component, engine, operation, limits, granted, opening } = self;
        let &Opening { base_ms, stands, attempt, audience, ref idempotency_header } = opening;
        Header {
            abi: ABI,
            component: *component,
            engine: *engine,
            operation: digest_of(operation),
            base_ms,
            stands,
            attempt,
            limits: *limits,
            environment: granted.environment.clone(),
            settings: granted.settings.clone(),
            audience,
            directories: granted.directories.iter().map(|grant| grant.guest.clone()).collect(),
            idempotency_header: idempotency_header.as_ref().map(HeaderName::to_string).unwrap_or_default(),
        }
    }
}

/// What of a header the call itself goes by.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) base_ms: u64,
    pub(super) stands: bool,
    pub(super) attempt: u32,
    pub(super) audience: ClientView,
    pub(super) idempotency_header: Option<HeaderName>,
}

/// The limits that a guest can run into by itself. Those of time end a call from outside, and are those of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PinnedLimits {
    pub(super) memory_bytes: u64,
    pub(super) result_bytes: u64,
    pub(super) log_bytes: u64,
}

fields!(PinnedLimits { memory_bytes, result_bytes, log_bytes });

impl PinnedLimits {
    pub(super) fn of(limits: &CallLimits) -> Self {
        let &CallLimits { memory_bytes, result_bytes, log_bytes, .. } = limits;
        Self { memory_bytes, result_bytes, log_bytes }
    }

    /// The same limits with these in their places.
    pub(super) fn over(self, limits: &CallLimits) -> CallLimits {
        let Self { memory_bytes, result_bytes, log_bytes } = self;
        CallLimits { memory_bytes, result_bytes, log_bytes, ..limits.clone() }
    }
}

impl Header {
    /// What a call with this header goes by.
    pub(super) fn opening(&self) -> Opening {
        let &Self { base_ms, stands, attempt, audience, ref idempotency_header, .. } = self;
        Opening { base_ms, stands, attempt, audience, idempotency_header: idempotency_header.parse().ok() }
    }

    /// Whether its settings and variables are few enough to be in a journal.
    pub(super) fn fits(granted: &Granted) -> bool {
        let variables = granted.environment.iter().map(|(key, value)| key.len() + value.len());
        let settings = granted.settings.iter().map(|(key, value)| key.len() + value.as_str().len());
        variables.chain(settings).sum::<usize>() <= PINNED_BYTES_MAX
    }

    /// What a call with this header is granted, where it would be granted something else by now.
    pub(super) fn over(&self, granted: &Granted) -> Granted {
        let environment = self.environment.clone();
        let settings = self.settings.clone();
        Granted { environment, settings, ..granted.clone() }
    }

    /// What keeps this from being the header of a call that begins like another one; `None`: nothing does.
    pub(super) fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.abi != other.abi, "the journal was written for another version of what the host offers to guests"),
            (self.component != other.component, "the journal is of another component"),
            (self.operation != other.operation, "the journal is of a call with other arguments"),
            (self.directories != other.directories, "other directories are granted"),
        ]
        .into_iter()
        .find_map(|(differs, why)| differs.then_some(why))
    }
}

impl Recorded for Header {
    fn write(&self, to: &mut Vec<u8>) {
        FORMAT.write(to);
        self.abi.write(to);
        self.component.write(to);
        self.engine.write(to);
        self.operation.write(to);
        (self.base_ms, self.stands).write(to);
        self.attempt.write(to);
        self.limits.write(to);
        self.environment.write(to);
        self.settings.write(to);
        self.audience.write(to);
        self.directories.write(to);
        self.idempotency_header.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        if u8::read(from)? != FORMAT {
            return None;
        }
        let abi = u16::read(from)?;
        let component = Recorded::read(from)?;
        let engine = u64::read(from)?;
        let operation = Digest::read(from)?;
        let (base_ms, stands) = Recorded::read(from)?;
        Some(Self {
            abi,
            component,
            engine,
            operation,
            base_ms,
            stands,
            attempt: Recorded::read(from)?,
            limits: Recorded::read(from)?,
            environment: Recorded::read(from)?,
            settings: Recorded::read(from)?,
            audience: Recorded::read(from)?,
            directories: Recorded::read(from)?,
            idempotency_header: Recorded::read(from)?,
        })
    }
}

impl Recorded for ClientView {
    fn write(&self, to: &mut Vec<u8>) {
        self.features.0.write(to);
        self.log_level.map(|level| level as u8).write(to);
        self.wants_progress.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let features = ClientFeatures(u16::read(from)?);
        let log_level = match Option::<u8>::read(from)? {
            Some(level) => Some(log_level(level)?),
            None => None,
        };
        Some(Self { features, log_level, wants_progress: bool::read(from)? })
    }
}

fn log_level(number: u8) -> Option<LogLevel> {
    use LogLevel::{Alert, Critical, Debug, Emergency, Error, Info, Notice, Warning};
    [Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency].get(usize::from(number)).copied()
}

/// The beginning of the SHA-256 of parts, none of which can pass for a part of its neighbours.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().first_chunk().copied().unwrap_or_default()
}

/// The digest of what is called.
fn digest_of(operation: &Operation) -> Digest {
    // Requests other than calls of tools are short and made of words.
    match operation {
        Operation::CallTool { tool, arguments } => {
            digest([b"tool".as_slice(), tool.as_bytes(), arguments.as_str().as_bytes()])
        }
        other => digest([b"other".as_slice(), format!("{other:?}").as_bytes()]),
    }
}
