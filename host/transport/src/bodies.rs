//! What large request bodies may take: bytes a second, and bytes that are in memory at a time.
//!
//! Owns who waits for either, and for how long. Must not read a body. Invariants: a body is counted before a byte of it
//! is read, and until the last holder of its bytes lets go; a body waits behind those of its own tenant only, unless
//! the whole host is full.

mod byte_rate;
mod memory_budget;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::refusal::Refusal;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::{LiveLimits, Scope, ScopedCounter};
use byte_rate::ByteRateLimiter;
use memory_budget::{MemoryBudget, MemoryReservation};

/// How long a body waits for the turn of its bytes, and how long for room, before it is refused. In milliseconds.
const WAIT_MS_MAX: u64 = 10_000;
/// How long a refused body waits until it is read and thrown away; where that is longer, its connection ends instead.
/// In milliseconds.
const DISCARD_WAIT_MS_MAX: u64 = 2_000;

/// See the module.
pub(super) struct Bodies {
    limits: LiveLimits,
    arriving: ByteRateLimiter,
    /// Reading what is thrown away costs as much as reading what is wanted, so it has a flow of its own at the same
    /// rates.
    discarded: ByteRateLimiter,
    budget: Arc<MemoryBudget>,
}

impl Bodies {
    pub(super) fn new(limits: LiveLimits) -> Self {
        let budget = ScopedCounter::live(limits.clone(), |own, host| {
            [
                Scope::Tenant.bound("request_bytes_open_per_tenant", own.request_bytes_open_per_tenant),
                Scope::Requestor.bound("request_bytes_open_per_requestor", own.request_bytes_open_per_requestor),
                Scope::Total.bound("request_bytes_open_total", host.request_bytes_open_total),
            ]
        });
        let flow = |wait_ms_max| ByteRateLimiter::new(limits.clone(), Duration::from_millis(wait_ms_max));
        Self {
            arriving: flow(WAIT_MS_MAX),
            discarded: flow(DISCARD_WAIT_MS_MAX),
            budget: MemoryBudget::new(budget),
            limits,
        }
    }

    /// The most bytes that a body of a requestor may have, and the limit that says so.
    pub(super) fn largest(&self, requestor: &Requestor, body_bytes_max: usize) -> (&'static str, usize) {
        let bytes_max = self.limits.of(requestor).request_bytes_open_per_requestor;
        match usize::try_from(bytes_max) {
            Ok(bytes_max) if bytes_max < body_bytes_max => ("request_bytes_open_per_requestor", bytes_max),
            _ => ("body_bytes_max", body_bytes_max),
        }
    }

    /// Waits until so many bytes may be read.
    ///
    /// # Errors
    ///
    /// Too many bytes wait before them. A refused body is not charged.
    pub(super) async fn admit(&self, requestor: &Requestor, bytes: usize) -> Result<BodyPermit<'_>, Refusal> {
        let wait = self.arriving.take(requestor, bytes as u64).map_err(|exceeded| Refusal::bytes(&exceeded))?;
        if !wait.is_zero() {
            sleep(wait).await;
        }
        match self.budget.take(requestor, bytes as u64, Duration::from_millis(WAIT_MS_MAX)).await {
            Ok(held) => Ok(BodyPermit { held, arriving: &self.arriving }),
            Err(full) => {
                self.arriving.release(requestor, bytes as u64);
                Err(Refusal::quota(full))
            }
        }
    }

    /// Waits until so many bytes of a refused body may be read and thrown away; false when that would be too long.
    pub(super) async fn may_discard(&self, requestor: &Requestor, bytes: usize) -> bool {
        let Ok(wait) = self.discarded.take(requestor, bytes as u64) else { return false };
        sleep(wait).await;
        true
    }

    /// Forgets who has been quiet.
    pub(super) fn forget_idle(&self) {
        self.arriving.forget_idle();
        self.discarded.forget_idle();
    }

    /// The memory that is taken up.
    pub(super) fn counter(&self) -> &Arc<ScopedCounter> {
        self.budget.counter()
    }
}

/// The right to read a body.
pub(super) struct BodyPermit<'a> {
    held: MemoryReservation,
    arriving: &'a ByteRateLimiter,
}

impl BodyPermit<'_> {
    /// What arrived. It counts until its last holder drops it; what was announced and did not come is released.
    pub(super) fn keep(mut self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        let unused = self.held.shrink(bytes.as_ref().len() as u64);
        self.arriving.release(self.held.requestor(), unused);
        Bytes::from_owner(ChargedBytes { bytes, _held: self.held })
    }
}

struct ChargedBytes<B> {
    bytes: B,
    _held: MemoryReservation,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for ChargedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}
