//! Opaque, authenticated places in lists.
//!
//! A cursor is a position with a tag over it, its method and its requestor: nobody can make one, or use one of another
//! list or of another requestor. It holds no session, so that it survives a restart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

use super::error::RpcError;
use bulkhead_domain::requestor::Requestor;

/// Entries of a page of any list but that of tools.
pub(crate) const PAGE: usize = 50;

const TAG_BYTES: usize = 16;

/// The params of a list.
#[derive(Default, Deserialize)]
pub(crate) struct Paged {
    pub(crate) cursor: Option<String>,
}

/// What is said to a cursor that is none.
pub(crate) fn bad_cursor() -> RpcError {
    RpcError::invalid_params("params.cursor is not one of this list; begin without one")
}

/// Seals a position in the list of `method`.
pub(crate) fn sign(key: &[u8; 32], method: &str, requestor: &Requestor, position: &[u8]) -> Option<String> {
    let tag = mac(key, method, requestor, position)?.finalize().into_bytes();
    let mut bytes = Vec::with_capacity(TAG_BYTES + position.len());
    bytes.extend(tag.iter().take(TAG_BYTES));
    bytes.extend(position);
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// Gives the position back if the cursor was sealed for this method and requestor.
pub(crate) fn verify(key: &[u8; 32], method: &str, requestor: &Requestor, cursor: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (tag, position) = bytes.split_at_checked(TAG_BYTES)?;
    mac(key, method, requestor, position)?.verify_truncated_left(tag).ok()?;
    Some(position.to_vec())
}

fn mac(key: &[u8; 32], method: &str, requestor: &Requestor, position: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(&(method.len() as u64).to_be_bytes());
    mac.update(method.as_bytes());
    mac.update(&requestor.tenant.0);
    mac.update(&requestor.id.0);
    mac.update(position);
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    #[test]
    fn cursor_is_bound_to_key_method_and_requestor() {
        let key = [7; 32];
        let anna = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
        let bob = Requestor { tenant: TenantId([1; 16]), id: RequestorId([3; 16]) };
        let cursor = sign(&key, "tools/list", &anna, b"echo").unwrap();
        assert_eq!(verify(&key, "tools/list", &anna, &cursor).unwrap(), b"echo");
        assert!(verify(&key, "tools/list", &bob, &cursor).is_none());
        assert!(verify(&key, "tasks/list", &anna, &cursor).is_none());
        assert!(verify(&[8; 32], "tools/list", &anna, &cursor).is_none());
        for at in 0..cursor.len() {
            let mut broken = cursor.clone().into_bytes();
            broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
            assert!(verify(&key, "tools/list", &anna, &String::from_utf8(broken).unwrap()).is_none());
        }
        assert!(verify(&key, "tools/list", &anna, "").is_none());
    }
}
