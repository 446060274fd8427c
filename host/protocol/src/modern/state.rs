//! `requestState`: where a call stands that asked something, sealed so that only its requestor can go on with it.
//!
//! It holds all that is needed to run the call again from the start, so that no guest has to survive for it; and it is
//! bound to the requestor, the tool and the arguments, so that it opens nowhere else.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::bounded_cache::StateId;
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::PluginVersion;

const NONCE_BYTES: usize = 24;
/// Answers that one state carries, in bytes: it travels with every retry.
const STATE_BYTES_MAX: usize = 512 * 1024;

/// Answers by their issued keys, as they arrived.
pub(super) type Answers = BTreeMap<String, Box<RawValue>>;

/// Where a call stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Position {
    v: u8,
    #[serde(rename = "ticket")]
    pub(super) state_id: StateId,
    pub(super) until: UnixMs,
    pub(super) answers: Answers,
    /// Which version of which plugin a call of a tool runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plugin: Option<(String, [u8; 32])>,
}

impl Position {
    pub(super) fn new(
        until: UnixMs,
        answers: Answers,
        version: Option<&PluginVersion>,
    ) -> Result<Self, getrandom::Error> {
        let mut state_id = [0; 16];
        getrandom::fill(&mut state_id)?;
        let plugin = version.map(|version| (version.name.clone(), version.digest));
        Ok(Self { v: 1, state_id, until, answers, plugin })
    }

    /// The version that the call began with.
    pub(super) fn version(self) -> Option<PluginVersion> {
        self.plugin.map(|(name, digest)| PluginVersion { name, digest })
    }
}

/// What a state is good for.
pub(super) struct Binding<'a> {
    pub(super) requestor: &'a Requestor,
    pub(super) tool: &'a str,
    /// Of the arguments as a JSON value.
    pub(super) arguments: [u8; 32],
}

impl Binding<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [&self.requestor.tenant.0[..], &self.requestor.id.0, self.tool.as_bytes(), &self.arguments] {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part);
        }
        bytes
    }
}

/// Seals and opens.
pub(super) struct Sealer {
    cipher: XChaCha20Poly1305,
}

/// Why nothing was sealed.
#[derive(Debug)]
pub(super) enum SealError {
    TooLarge,
    Broken,
}

impl Sealer {
    /// `secret` is used for nothing else under this label.
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        let key: [u8; 32] =
            Sha256::new().chain_update(b"bulkhead requestState 1").chain_update(secret).finalize().into();
        Self { cipher: XChaCha20Poly1305::new(&Key::from(key)) }
    }

    pub(super) fn seal(&self, binding: &Binding<'_>, position: &Position) -> Result<String, SealError> {
        let text = serde_json::to_vec(position).map_err(|_| SealError::Broken)?;
        if text.len() > STATE_BYTES_MAX {
            return Err(SealError::TooLarge);
        }
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SealError::Broken)?;
        let payload = Payload { msg: &text, aad: &binding.bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::Broken)?;
        Ok(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// `None` for what was not sealed for this binding.
    pub(super) fn open(&self, binding: &Binding<'_>, state: &str) -> Option<Position> {
        let bytes = URL_SAFE_NO_PAD.decode(state).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: &binding.bytes() };
        let text = self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()?;
        serde_json::from_slice::<Position>(&text).ok().filter(|position| position.v == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    fn requestor(id: u8) -> Requestor {
        Requestor { tenant: TenantId([1; 16]), id: RequestorId([id; 16]) }
    }

    #[test]
    fn request_state_is_bound_to_requestor_tool_and_arguments() {
        let sealer = Sealer::new(&[7; 32]);
        let anna = requestor(2);
        let bob = requestor(3);
        let binding = Binding { requestor: &anna, tool: "book", arguments: [4; 32] };
        let answers = [("a".to_owned(), RawValue::from_string(r#"{"action":"accept"}"#.into()).unwrap())];
        let version = PluginVersion { name: "desk".into(), digest: [9; 32] };
        let position = Position::new(99, answers.into(), Some(&version)).unwrap();
        let state = sealer.seal(&binding, &position).unwrap();
        assert!(!state.contains("accept"));
        let opened = sealer.open(&binding, &state).unwrap();
        assert_eq!((opened.state_id, opened.until), (position.state_id, 99));
        assert_eq!(opened.clone().version(), Some(version));
        assert_eq!(opened.answers["a"].get(), r#"{"action":"accept"}"#);
        assert_ne!(state, sealer.seal(&binding, &position).unwrap());

        assert!(sealer.open(&Binding { requestor: &bob, ..binding }, &state).is_none());
        assert!(sealer.open(&Binding { requestor: &anna, tool: "cook", arguments: [4; 32] }, &state).is_none());
        assert!(sealer.open(&Binding { requestor: &anna, tool: "book", arguments: [5; 32] }, &state).is_none());
        let binding = Binding { requestor: &anna, tool: "book", arguments: [4; 32] };
        assert!(Sealer::new(&[8; 32]).open(&binding, &state).is_none());
        for at in 0..state.len() {
            let mut broken = state.clone().into_bytes();
            broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
            assert!(sealer.open(&binding, &String::from_utf8(broken).unwrap()).is_none());
        }
        for broken in [String::new(), format!("{state}-TAMPERED"), "AAAA".into()] {
            assert!(sealer.open(&binding, &broken).is_none());
        }
    }

    #[test]
    fn request_state_size_is_bounded() {
        let anna = requestor(2);
        let binding = Binding { requestor: &anna, tool: "book", arguments: [4; 32] };
        let long = format!("\"{}\"", "x".repeat(STATE_BYTES_MAX));
        let answers = [("a".to_owned(), RawValue::from_string(long).unwrap())];
        let position = Position::new(0, answers.into(), None).unwrap();
        assert!(matches!(Sealer::new(&[7; 32]).seal(&binding, &position), Err(SealError::TooLarge)));
    }
}
