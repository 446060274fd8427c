//! Tokens that were good when they were looked up last.
//!
//! Owns what the store said of them. Must not keep a token that is not good: nobody without one makes it grow.
//! Invariant: what it says is what the store says, for as long as the store's rows of tokens and principals are the
//! same.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Resolved;

/// Tokens that are remembered. With more in use they are looked up more often.
const TOKENS_CACHED_MAX: usize = 4_096;

/// The state of the rows of tokens and of principals.
pub(super) type Generation = (u64, u64);

#[derive(Default)]
pub(super) struct TokenCache {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    generation: Generation,
    /// By the SHA-256 of the token.
    tokens: HashMap<[u8; 32], Resolved>,
}

impl TokenCache {
    /// Whose token it is, unless the rows have changed since that was looked up. It may have expired.
    pub(super) fn get(&self, generation: Generation, digest: &[u8; 32]) -> Option<Resolved> {
        let known = self.known.lock();
        if known.generation == generation { known.tokens.get(digest).cloned() } else { None }
    }

    /// Remembers what was read after the rows were at this generation.
    pub(super) fn put(&self, generation: Generation, digest: [u8; 32], resolved: Resolved) {
        let mut known = self.known.lock();
        if known.generation != generation || known.tokens.len() >= TOKENS_CACHED_MAX {
            *known = Known { generation, tokens: HashMap::new() };
        }
        known.tokens.insert(digest, resolved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

    #[test]
    fn token_cache_is_bounded_and_forgets_what_was_read_before_a_change() {
        let cache = TokenCache::default();
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
        let name = || "a".to_owned();
        let resolved = Resolved { requestor, expires_at: None, name: name(), tenant: name(), scopes: None, id: [1; 8] };
        cache.put((1, 1), [1; 32], resolved.clone());
        assert_eq!(cache.get((1, 1), &[1; 32]), Some(resolved.clone()));
        for changed in [(2, 1), (1, 2)] {
            assert_eq!(cache.get(changed, &[1; 32]), None);
        }
        for number in 0..10_000_u32 {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&number.to_be_bytes());
            cache.put((2, 2), digest, resolved.clone());
            assert!(cache.known.lock().tokens.len() <= TOKENS_CACHED_MAX);
        }
        assert_eq!(cache.get((1, 1), &[1; 32]), None);
    }
}
