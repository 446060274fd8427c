//! Versions whose new calls keep no journals, and the divergences that nothing has been made of yet.
//!
//! Must not decide which version that is: [`crate::demotion`] does, and the store remembers it. Invariant: where no
//! version is demoted, a call costs one load of a flag.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use bulkhead_domain::UnixMs;
use bulkhead_domain::task::PluginVersion;

/// More at once say nothing new of their versions.
const WAITING_MAX: usize = 1_024;

/// A task of a version that did something else than its journal says, and when.
pub(crate) type Divergence = (PluginVersion, UnixMs);

#[derive(Default)]
pub(super) struct Divergences {
    is_any_demoted: AtomicBool,
    demoted: RwLock<HashSet<PluginVersion>>,
    /// The oldest first.
    waiting: Mutex<VecDeque<Divergence>>,
    arrived: Notify,
}

impl Divergences {
    pub(super) fn may_keep_journal(&self, version: &PluginVersion) -> bool {
        !self.is_any_demoted.load(Ordering::Acquire) || !self.demoted.read().contains(version)
    }

    /// From now on these are demoted, and no others.
    pub(super) fn set_demoted(&self, versions: HashSet<PluginVersion>) {
        let mut demoted = self.demoted.write();
        self.is_any_demoted.store(!versions.is_empty(), Ordering::Release);
        *demoted = versions;
    }

    pub(super) fn push(&self, divergence: Divergence) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(divergence);
            self.arrived.notify_one();
        }
    }

    /// Waits for the next one.
    pub(super) async fn next(&self) -> Divergence {
        loop {
            if let Some(next) = self.waiting.lock().pop_front() {
                return next;
            }
            self.arrived.notified().await;
        }
    }
}
