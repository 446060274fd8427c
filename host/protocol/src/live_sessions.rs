//! The sessions that are in memory here, for what other hosts tell of them.
//!
//! Must not keep one alive. Invariant: there are no more entries than twice the sessions that live.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::session::Session;

/// See the module.
#[derive(Default)]
pub(crate) struct LiveSessions {
    known: Mutex<HashMap<[u8; 16], Weak<Session>>>,
}

impl LiveSessions {
    /// Notes one that a request came for.
    pub(crate) fn note(&self, session: &Arc<Session>) {
        let mut known = self.known.lock();
        let is_same = |known: &Weak<Session>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(session));
        if known.get(&session.digest()).is_some_and(is_same) {
            return;
        }
        if known.len() == known.capacity() {
            known.retain(|_, session| session.strong_count() > 0);
        }
        known.insert(session.digest(), Arc::downgrade(session));
    }

    /// The one with this digest.
    pub(crate) fn find(&self, digest: &[u8; 16]) -> Option<Arc<Session>> {
        self.known.lock().get(digest)?.upgrade()
    }
}
