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

/// Half of the SHA-256 of a text.
pub(crate) fn short_digest(text: &str) -> [u8; 16] {
    half(digest(text))
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

/// Seals a place so that nobody but the session of this key can read or make one. The same place is sealed to the same
/// text.
pub(crate) fn seal_place(key: &[u8; 32], position: [u8; 16]) -> String {
    let mut sealed = [0; 32];
    let tag = half(mac(key, &[SEAL_TAG, &position]).finalize().into_bytes().into());
    let (first, second) = sealed.split_at_mut(16);
    first.copy_from_slice(&tag);
    second.copy_from_slice(&masked(key, tag, position));
    hex(&sealed)
}

/// The place that [`seal_place`] sealed with this key.
pub(crate) fn open_place(key: &[u8; 32], sealed: &str) -> Option<[u8; 16]> {
    let sealed = unhex::<32>(sealed)?;
    let tag = *sealed.first_chunk::<16>()?;
    let masked_place = *sealed.last_chunk::<16>()?;
    let position = masked(key, tag, masked_place);
    mac(key, &[SEAL_TAG, &position]).verify_truncated_left(&tag).ok()?;
    Some(position)
}

/// A tag is that of a place, and the mask of a place that of its tag (a synthetic initialisation vector).
const SEAL_TAG: &[u8] = b"place, tag\0";
const SEAL_MASK: &[u8] = b"place, mask\0";

fn masked(key: &[u8; 32], tag: [u8; 16], position: [u8; 16]) -> [u8; 16] {
    let mask = half(mac(key, &[SEAL_MASK, &tag]).finalize().into_bytes().into());
    (u128::from_be_bytes(mask) ^ u128::from_be_bytes(position)).to_be_bytes()
}

/// The first half of a digest.
fn half(digest: [u8; 32]) -> [u8; 16] {
    digest.first_chunk().copied().unwrap_or_default()
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
    fn sealed_place_is_for_its_key_alone_and_says_nothing() {
        let key = [7; 32];
        let position = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
        let sealed = seal_place(&key, position);
        assert_eq!((sealed.len(), open_place(&key, &sealed)), (64, Some(position)));
        assert_eq!(open_place(&[8; 32], &sealed), None, "of another session");
        for digit in 0..sealed.len() {
            let mut other = sealed.clone().into_bytes();
            other[digit] = if other[digit] == b'0' { b'1' } else { b'0' };
            assert_eq!(open_place(&key, std::str::from_utf8(&other).unwrap()), None, "{digit}");
        }
        let next = seal_place(&key, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 10]);
        let same = sealed.bytes().zip(next.bytes()).filter(|(one, other)| one == other).count();
        assert!(same < 20, "{sealed} {next}");
        for wrong in ["", "1.9", &"0".repeat(64), &"0".repeat(63)] {
            assert_eq!(open_place(&key, wrong), None, "{wrong}");
        }
    }

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
