//! One session in memory, and the requests that are open in it.
//!
//! Owns when a session was used last and whether it is idle. Must not know which other sessions there are.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{SetOnce, watch};

use crate::quota::EdgeQuota;
use crate::sse::{ReplayBytes, Streams};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::{Full, Permit};
use bulkhead_protocol::Session;

/// That of a session id.
pub(super) type Digest = [u8; 32];

/// A session in memory.
pub(crate) struct LiveSession {
    pub(crate) session: Arc<Session>,
    pub(crate) streams: Streams,
    /// See [`LiveSession::standalone`]; made for the first one that wants it.
    pub(super) standalone: OnceLock<watch::Sender<Vec<u64>>>,
    pub(super) digest: Digest,
    pub(super) requestor: Requestor,
    pub(super) created_at: UnixMs,
    pub(super) used_at: AtomicU64,
    pub(super) requests_open: AtomicU32,
    pub(super) saved: Mutex<Saved>,
    /// Set when the session is over.
    pub(crate) ended: SetOnce<()>,
    pub(super) kept: ReplayBytes,
}

#[derive(Clone, Copy)]
pub(super) struct Saved {
    pub(super) revision: u64,
    pub(super) used_at: UnixMs,
}

impl LiveSession {
    /// Who gets what belongs to no request: the last one in the list.
    pub(crate) fn standalone(&self) -> &watch::Sender<Vec<u64>> {
        self.standalone.get_or_init(watch::Sender::default)
    }

    pub(crate) fn kept(&self) -> &ReplayBytes {
        &self.kept
    }

    /// Opens a request, which keeps the session from being idle until the guard goes.
    pub(crate) fn begin(self: &Arc<Self>, now: &SharedClock, quota: &EdgeQuota) -> Result<SessionRequest, Full> {
        Ok(self.begin_in(now, quota.open(&self.requestor)?))
    }

    /// The same for one that has its place already.
    pub(crate) fn begin_in(self: &Arc<Self>, now: &SharedClock, permit: Permit) -> SessionRequest {
        self.requests_open.fetch_add(1, Ordering::Relaxed);
        SessionRequest { live: self.clone(), now: now.clone(), _place: permit }
    }

    pub(super) fn is_idle(&self, now: UnixMs, idle_ms_max: u64) -> bool {
        self.requests_open.load(Ordering::Relaxed) == 0
            && now > self.used_at.load(Ordering::Relaxed).saturating_add(idle_ms_max)
    }
}

/// A request in a session, for as long as anything of it goes on.
pub(crate) struct SessionRequest {
    pub(crate) live: Arc<LiveSession>,
    now: SharedClock,
    _place: Permit,
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        self.live.used_at.store(self.now.steady(), Ordering::Relaxed);
        self.live.requests_open.fetch_sub(1, Ordering::Relaxed);
    }
}
