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
    mac(secret, &[what.as_bytes(), &[0], of]).finalize().into_bytes().into()
}

/// Random bytes as hexadecimal digits; `None` without randomness.
pub(crate) fn random_text<const N: usize>() -> Option<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

/// The token of a form: nobody else can make it, and it is good for one address only.
pub(crate) fn form_token(key: &[u8; 32], action: &str) -> String {
    hex(&mac(key, &[action.as_bytes()]).finalize().into_bytes())
}

/// Compares in constant time.
pub(crate) fn is_form_token(key: &[u8; 32], action: &str, token: &str) -> bool {
    unhex::<32>(token).is_some_and(|token| mac(key, &[action.as_bytes()]).verify_slice(&token).is_ok())
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    // A key that is shorter than a block of the digest is filled up with zeros (RFC 2104).
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    parts.iter().fold(Hmac::new(&block.into()), |mac, part| mac.chain_update(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_digests_are_hmac_sha256() {
        // RFC 4231 has no key of this length: Python's `hmac` wrote these.
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let expected = "4ce8df73ec4e131493eb321c8452d7cf9ac13571c80c67314e81d12cdd333a97";
        assert_eq!(hex(&derive(&key, "forms", b"of")), expected);
        assert_eq!(form_token(&key, "/logout"), "ebb1dd2fc82197bb16cbfe66f213b69204c5d91e6b9c02e7fce027505011b073");
        assert!(is_form_token(&key, "/logout", &form_token(&key, "/logout")));
        for (action, token) in [("/logout", expected), ("/login", &form_token(&key, "/logout")), ("/logout", "")] {
            assert!(!is_form_token(&key, action, token), "{action} {token}");
        }
        assert_ne!(derive(&key, "a", b"b"), derive(&key, "ab", b""));
    }
}
