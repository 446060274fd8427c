//! Order and rate of token introspection, and the back-off after an issuer failed.
//!
//! Owns the places for questions. Must not see a token. Invariant: tokens that were good lately have places and a rest
//! of their own, so that unknown tokens keep no known one waiting; of the places for unknown ones, one address takes a
//! share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use bulkhead_domain::UnixMs;
use bulkhead_limits::failures::subscriber;
use bulkhead_limits::{ScopedSemaphore, SemaphorePermit};

/// Questions at a time about opaque tokens that were good lately.
const KNOWN_MAX: usize = 16;
/// Questions at a time about opaque tokens that nobody knows. Stops a flood of tokens from being one at the issuer.
const UNKNOWN_MAX: usize = 8;
/// Of those, the ones about tokens from one address (of IPv6: one /64). Stops it from taking the places of all others.
const UNKNOWN_PER_ADDRESS_MAX: usize = 2;

/// What there is to say for a token before it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenReputation {
    /// It was good lately.
    Known,
    /// A client at this address may have made it up.
    Unknown(IpAddr),
}

pub(super) struct IntrospectionLimiter {
    known: Semaphore,
    unknown: Arc<ScopedSemaphore<IpAddr>>,
    /// When the issuer failed last; 0: never.
    known_failed_at: AtomicU64,
    unknown_failed_at: AtomicU64,
}

/// The right to ask once, released when dropped.
#[expect(dead_code, reason = "held")]
pub(super) enum IntrospectionPermit<'a> {
    Known(Option<tokio::sync::SemaphorePermit<'a>>),
    Unknown(SemaphorePermit<IpAddr>),
}

impl IntrospectionLimiter {
    pub(super) fn new() -> Self {
        Self {
            known: Semaphore::new(KNOWN_MAX),
            unknown: ScopedSemaphore::new(UNKNOWN_PER_ADDRESS_MAX, UNKNOWN_MAX),
            known_failed_at: AtomicU64::new(0),
            unknown_failed_at: AtomicU64::new(0),
        }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self, reputation: TokenReputation) -> IntrospectionPermit<'_> {
        match reputation {
            // Nobody closes it.
            TokenReputation::Known => IntrospectionPermit::Known(self.known.acquire().await.ok()),
            TokenReputation::Unknown(address) => {
                IntrospectionPermit::Unknown(self.unknown.acquire(subscriber(address), 1).await)
            }
        }
    }

    fn failure(&self, reputation: TokenReputation) -> &AtomicU64 {
        match reputation {
            TokenReputation::Known => &self.known_failed_at,
            TokenReputation::Unknown(_) => &self.unknown_failed_at,
        }
    }

    /// When the issuer failed last, as far as it matters to tokens of this standing; 0: never.
    pub(super) fn failed_at(&self, reputation: TokenReputation) -> UnixMs {
        self.failure(reputation).load(Ordering::Acquire)
    }

    /// The issuer fails for all requests.
    pub(super) fn failed(&self, now: UnixMs) {
        self.too_many(TokenReputation::Known, now);
        self.too_many(TokenReputation::Unknown(IpAddr::from([0; 4])), now);
    }

    /// The issuer takes no more of these questions for a while.
    pub(super) fn too_many(&self, reputation: TokenReputation, now: UnixMs) {
        self.failure(reputation).store(now, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn from(last: u8) -> TokenReputation {
        TokenReputation::Unknown(IpAddr::from([192, 0, 2, last]))
    }

    async fn turn(line: &IntrospectionLimiter, reputation: TokenReputation) -> Option<IntrospectionPermit<'_>> {
        timeout(Duration::from_millis(20), line.turn(reputation)).await.ok()
    }

    #[tokio::test]
    async fn introspection_limits_unknown_tokens_per_address() {
        let line = IntrospectionLimiter::new();
        let mut held = Vec::new();
        for address in 0..20 {
            for _ in 0..5 {
                held.extend(turn(&line, from(address)).await);
            }
            assert!(held.len() <= (usize::from(address) + 1) * UNKNOWN_PER_ADDRESS_MAX);
        }
        assert_eq!(held.len(), UNKNOWN_MAX);
        assert!(turn(&line, TokenReputation::Known).await.is_some());
        held.clear();
        assert!(turn(&line, from(200)).await.is_some());
        assert_eq!(line.unknown.keys(), 0, "nobody is remembered who waits for nothing");
    }

    #[test]
    fn introspection_overload_of_unknown_tokens_spares_known_ones() {
        let line = IntrospectionLimiter::new();
        line.too_many(from(1), 7);
        assert_eq!((line.failed_at(from(2)), line.failed_at(TokenReputation::Known)), (7, 0));
        line.failed(9);
        assert_eq!((line.failed_at(from(2)), line.failed_at(TokenReputation::Known)), (9, 9));
    }
}
