//! Which sessions there are, whose they are, and which one makes room for another.
//!
//! Owns the two indices and their counter. Must not touch the store. Invariant: every entry is in both indices and
//! counted once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::live::{Digest, LiveSession};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::ScopedCounter;

pub(super) enum SessionEntry {
    /// Known from its row only.
    Dormant {
        requestor: Requestor,
        used_at: UnixMs,
    },
    Live(Arc<LiveSession>),
}

impl SessionEntry {
    pub(super) fn requestor(&self) -> Requestor {
        match self {
            Self::Dormant { requestor, .. } => *requestor,
            Self::Live(live) => live.requestor,
        }
    }

    pub(super) fn used_at(&self) -> UnixMs {
        match self {
            Self::Dormant { used_at, .. } => *used_at,
            Self::Live(live) => live.used_at.load(Ordering::Relaxed),
        }
    }

    pub(super) fn is_idle(&self, now: UnixMs, idle_ms_max: u64) -> bool {
        match self {
            Self::Dormant { used_at, .. } => now > used_at.saturating_add(idle_ms_max),
            Self::Live(live) => live.is_idle(now, idle_ms_max),
        }
    }
}

pub(super) struct Entries {
    pub(super) entries: HashMap<Digest, SessionEntry>,
    /// Without those who have none.
    owners: HashMap<Requestor, HashSet<Digest>>,
    /// How many each has.
    counter: Arc<ScopedCounter>,
    /// Counts the sessions that ended: a row that was read before one did may be of that one.
    pub(super) ends: u64,
}

impl Entries {
    pub(super) fn new(counter: Arc<ScopedCounter>) -> Self {
        Self { entries: HashMap::new(), owners: HashMap::new(), counter, ends: 0 }
    }

    pub(super) fn put(&mut self, digest: Digest, entry: SessionEntry) {
        let requestor = entry.requestor();
        if self.owners.entry(requestor).or_default().insert(digest) {
            self.counter.add(&requestor, 1);
        }
        self.entries.insert(digest, entry);
    }

    /// How many sessions a requestor has.
    pub(super) fn owned(&self, requestor: &Requestor) -> usize {
        self.owners.get(requestor).map_or(0, HashSet::len)
    }

    pub(super) fn owned_by_tenant(&self, tenant: &TenantId) -> u64 {
        self.counter.held_by_tenant(tenant)
    }

    /// The one of this requestor that was idle longest.
    pub(super) fn oldest_of(&self, requestor: &Requestor) -> Option<Digest> {
        let entries = self.owners.get(requestor)?.iter().filter_map(|digest| Some((digest, self.entries.get(digest)?)));
        let requests_open = |entry: &SessionEntry| match entry {
            SessionEntry::Live(live) => live.requests_open.load(Ordering::Relaxed),
            SessionEntry::Dormant { .. } => 0,
        };
        let idle = entries.filter(|(_, entry)| requests_open(entry) == 0);
        idle.min_by_key(|(_, entry)| entry.used_at()).map(|(digest, _)| *digest)
    }

    /// The oldest session of the requestor that has most in the tenant of a new one. Requestors without an idle session
    /// are passed over.
    pub(super) fn oldest_in_tenant(&self, opener: &Requestor) -> Option<Digest> {
        self.oldest_where(opener, |owner| owner.tenant == opener.tenant)
    }

    /// The oldest session of the requestor that has most in the tenant that has most, likewise.
    pub(super) fn oldest_of_all(&self, opener: &Requestor) -> Option<Digest> {
        let own = self.owned_by_tenant(&opener.tenant);
        self.oldest_where(opener, |owner| self.owned_by_tenant(&owner.tenant) >= own)
    }

    /// The oldest idle session of the requestor that has most, but not of one in the opener's tenant that has fewer
    /// than the opener.
    fn oldest_where(&self, opener: &Requestor, may_lose: impl Fn(&Requestor) -> bool) -> Option<Digest> {
        let own = self.owned(opener);
        let is_meant = |(owner, sessions): &(&Requestor, &HashSet<Digest>)| {
            may_lose(owner) && (owner.tenant != opener.tenant || sessions.len() >= own)
        };
        let mut owners: Vec<_> = self.owners.iter().filter(is_meant).collect();
        let most = |(owner, sessions): &(&Requestor, &HashSet<Digest>)| {
            std::cmp::Reverse((self.owned_by_tenant(&owner.tenant), owner.tenant, sessions.len()))
        };
        owners.sort_by_cached_key(most);
        owners.into_iter().find_map(|(owner, _)| self.oldest_of(owner))
    }

    /// Ends a session in memory; the row is the caller's business.
    pub(super) fn take(&mut self, digest: &Digest) -> Option<SessionEntry> {
        self.ends += 1;
        let entry = self.entries.remove(digest)?;
        let requestor = entry.requestor();
        if let Some(sessions) = self.owners.get_mut(&requestor) {
            sessions.remove(digest);
            if sessions.is_empty() {
                self.owners.remove(&requestor);
            }
        }
        self.counter.release(&requestor, 1);
        if let SessionEntry::Live(live) = &entry {
            // It may be over already.
            let _ = live.ended.set(());
            live.session.close();
        }
        Some(entry)
    }
}
