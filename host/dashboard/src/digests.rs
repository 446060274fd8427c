//! Digests of secret texts, keys that are derived from a secret, and the tokens of forms.
//!
//! Must not know what they are for. Invariant: tokens are compared in constant time.

use bulkhead_domain::{hex, unhex};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a secret text.
pub(crate) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// A key, or a keyed digest, of its own for each purpose.
pub(crate) fn derive(secret: &[u8; 32], what: &str, of: &[u8]) -> [u8; 32] {
    let inner = Sha256::new().chain_update(what).chain_update([0]).chain_update(of).finalize();
    Sha256::new().chain_update(secret).chain_update(inner).finalize().into()
}

/// Random bytes as hexadecimal digits; `None` without randomness.
pub(crate) fn random_text<const N: usize>() -> Option<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

/// The token of a form: nobody else can make it, and it is good for one address only.
pub(crate) fn form_token(key: &[u8; 32], action: &str) -> String {
    mac(key, action).map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
}

/// Compares in constant time.
pub(crate) fn is_form_token(key: &[u8; 32], action: &str, token: &str) -> bool {
    let (Some(token), Some(mac)) = (unhex::<32>(token), mac(key, action)) else { return false };
    mac.verify_slice(&token).is_ok()
}

fn mac(key: &[u8; 32], action: &str) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(action.as_bytes());
    Some(mac)
}
