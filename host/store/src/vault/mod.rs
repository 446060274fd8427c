//! The operator's keys, and bytes that only their holder can read.
//!
//! Owns where keys come from (a file of the operator's, or a variable) and the form of sealed bytes. Must not know what
//! is sealed, or keep it. Invariant: what was sealed in one context opens in no other one, and a key is in no message
//! and no log.

mod keys;
#[cfg(test)]
mod tests;

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};

/// The form of sealed bytes: this, the key's id, a nonce, the bytes with their tag.
const FORM: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const ID_BYTES: usize = 8;
/// How much longer sealed bytes are.
pub const SEAL_BYTES: usize = 1 + ID_BYTES + NONCE_BYTES + TAG_BYTES;

/// Why keys were not read, or bytes not opened. No message holds a key, or a byte of what was sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the key file {path}: {problem}")]
    File { path: String, problem: String },
    #[error("{origin}: {problem}")]
    Text { origin: String, problem: String },
    #[error("it was sealed with key {id}, which is not among the keys that were given: add that key again")]
    UnknownKey { id: KeyId },
    #[error("it was changed, or sealed for something else")]
    Opened,
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

/// Which key it is: follows from the key, so that no two keys are ever mistaken for each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; ID_BYTES]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One key.
#[derive(Clone)]
pub struct SealingKey {
    id: KeyId,
    cipher: XChaCha20Poly1305,
}

/// Never the key.
impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

impl SealingKey {
    /// `secret` is as good as random; the id and the cipher's key are made of it by different labels.
    pub fn new(secret: &[u8; 32]) -> Self {
        let id = derive(secret, b"bulkhead key id 1");
        let id = id.first_chunk::<ID_BYTES>().copied().unwrap_or_default();
        let cipher = XChaCha20Poly1305::new(&Key::from(derive(secret, b"bulkhead seal 1")));
        Self { id: KeyId(id), cipher }
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Seals bytes for a context: what they are and whose, in parts that never run together.
    ///
    /// # Errors
    ///
    /// [`Error::Random`] when there is no nonce to be had.
    pub fn seal(&self, context: &[&[u8]], bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| Error::Random(error.to_string()))?;
        let payload = Payload { msg: bytes, aad: &bound(self.id, context) };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| Error::Opened)?;
        Ok([&[FORM], &self.id.0[..], &nonce, &sealed].concat())
    }

    /// The bytes, if this key sealed them for this context.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKey`] when another key did, else [`Error::Opened`].
    pub fn open(&self, context: &[&[u8]], sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let (id, nonce, sealed) = parts(sealed).ok_or(Error::Opened)?;
        if id != self.id {
            return Err(Error::UnknownKey { id });
        }
        let payload = Payload { msg: sealed, aad: &bound(id, context) };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| Error::Opened)
    }
}

/// The operator's keys: the first one seals, all of them open.
#[derive(Clone, Debug)]
pub struct VaultKeys {
    first: SealingKey,
    older: Vec<SealingKey>,
}

impl VaultKeys {
    /// The key that seals.
    pub fn first(&self) -> &SealingKey {
        &self.first
    }

    /// All of them, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.all().map(SealingKey::id)
    }

    fn all(&self) -> impl Iterator<Item = &SealingKey> {
        std::iter::once(&self.first).chain(&self.older)
    }

    /// As [`SealingKey::seal`], with the first key.
    pub fn seal(&self, context: &[&[u8]], bytes: &[u8]) -> Result<Vec<u8>, Error> {
        self.first.seal(context, bytes)
    }

    /// As [`SealingKey::open`], with whichever key it was.
    pub fn open(&self, context: &[&[u8]], sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let id = sealed_by(sealed).ok_or(Error::Opened)?;
        let key = self.all().find(|key| key.id == id).ok_or(Error::UnknownKey { id })?;
        key.open(context, sealed)
    }

    /// Whether sealing again would make a difference, because an older key sealed this.
    pub fn is_outdated(&self, sealed: &[u8]) -> bool {
        sealed_by(sealed) != Some(self.first.id)
    }
}

/// Which key sealed these bytes; `None`: they are not sealed, as far as one can see.
pub fn sealed_by(sealed: &[u8]) -> Option<KeyId> {
    parts(sealed).map(|(id, ..)| id)
}

fn parts(sealed: &[u8]) -> Option<(KeyId, &[u8; NONCE_BYTES], &[u8])> {
    let (form, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk::<ID_BYTES>()?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
    (*form == FORM && sealed.len() >= TAG_BYTES).then_some((KeyId(*id), nonce, sealed))
}

/// What a seal covers beside the bytes: form, key and context, each part behind its length.
fn bound(id: KeyId, context: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![FORM];
    for part in std::iter::once(&id.0[..]).chain(context.iter().copied()) {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part);
    }
    bytes
}

/// Each label gives bytes of its own, from which the secret cannot be told.
fn derive(secret: &[u8; 32], label: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update((label.len() as u64).to_be_bytes())
        .chain_update(label)
        .chain_update(secret)
        .finalize()
        .into()
}
