//! Detects requestors that look for tasks they do not have, or poll far too often, and blocks them for a while.
//!
//! Owns the counts, in bounded memory. Must not see what was looked for: a blocked requestor is refused before the
//! look-up, so the refusal is the same whatever the id. Invariant: each kind of behaviour is said once a minute for
//! each requestor, in the host's log and in the audit log, however often it happens.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::Error;
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Task, TaskId};

const WINDOW_MS: u64 = 60_000;
const CLEAR_EVERY_MS: u64 = 1_000;
/// Requestors of which something is known at a time. Those that are blocked are forgotten last.
const REQUESTORS_MAX: usize = 10_000;
/// Tasks of one requestor whose last poll is known.
const POLLS_MAX: usize = 16;
/// A poll is early when it comes before this part of the interval that the host asked for.
const EARLY_DIVISOR: u64 = 4;

/// Of all requestors.
#[derive(Default)]
pub(crate) struct AbuseDetector {
    seen: Mutex<HashMap<Requestor, LookupCounts>>,
    /// No requestor is blocked after this time, so the check takes no lock.
    blocked_until_max: AtomicU64,
    /// When those that are of no interest any more were looked for: that is a walk over all.
    cleared_at: AtomicU64,
}

/// Of one requestor, in its present minute.
#[derive(Default)]
struct LookupCounts {
    since: UnixMs,
    /// Failed look-ups since the last block of this minute.
    failed: u32,
    /// Whether it was said in this minute: a later block in it begins in silence.
    reported: bool,
    early: u32,
    blocked_until: UnixMs,
    polls: Vec<(TaskId, UnixMs)>,
}

/// What is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbuseReport {
    event: &'static str,
    count: u32,
    blocked_ms: u64,
}

impl AbuseDetector {
    /// Refuses a blocked requestor.
    pub(crate) fn admit(
        &self,
        requestor: &Requestor,
        limits: impl FnOnce() -> Arc<Limits>,
        now: UnixMs,
    ) -> Result<(), Error> {
        if self.blocked_until_max.load(Ordering::Acquire) <= now {
            return Ok(());
        }
        match self.seen.lock().get(requestor).map(|seen| seen.blocked_until.saturating_sub(now)) {
            None | Some(0) => Ok(()),
            Some(left) => Err(Error::Quota {
                limit: "failed_lookups_per_minute",
                value: limits().failed_lookups_per_minute.into(),
                retry_after_ms: Some(left),
            }),
        }
    }

    pub(crate) fn failed(&self, requestor: &Requestor, limits: &Limits, now: UnixMs) -> Option<AbuseReport> {
        let mut all = self.seen.lock();
        let seen = self.all_about(&mut all, requestor, now)?;
        // What was under way when the block began.
        if seen.blocked_until > now {
            return None;
        }
        seen.failed = seen.failed.saturating_add(1);
        if seen.failed.checked_sub(1) != Some(limits.failed_lookups_per_minute) {
            return None;
        }
        let blocked_ms = limits.failed_lookups_block_ms;
        seen.blocked_until = now.saturating_add(blocked_ms);
        self.blocked_until_max.fetch_max(seen.blocked_until, Ordering::Release);
        let count = std::mem::take(&mut seen.failed);
        let was_said = std::mem::replace(&mut seen.reported, true);
        (!was_said).then_some(AbuseReport { event: "requestor.probing", count, blocked_ms })
    }

    pub(crate) fn polled(&self, task: &Task, limits: &Limits, now: UnixMs) -> Option<AbuseReport> {
        let mut all = self.seen.lock();
        let seen = self.all_about(&mut all, &task.requestor, now)?;
        let interval_ms_min = u64::from(task.poll_interval_ms) / EARLY_DIVISOR;
        match seen.polls.iter_mut().find(|(id, _)| *id == task.id) {
            Some((_, at)) => {
                let early = now.saturating_sub(*at) < interval_ms_min;
                *at = now;
                if !early {
                    return None;
                }
            }
            None => {
                if seen.polls.len() >= POLLS_MAX {
                    seen.polls.remove(0);
                }
                seen.polls.push((task.id, now));
                return None;
            }
        }
        seen.early = seen.early.saturating_add(1);
        let reached = seen.early.checked_sub(1) == Some(limits.early_polls_per_minute);
        reached.then_some(AbuseReport { event: "requestor.polling", count: seen.early, blocked_ms: 0 })
    }

    /// What is known of a requestor, in the minute that it is; `None` where there is no room to know anything.
    fn all_about<'a>(
        &self,
        all: &'a mut HashMap<Requestor, LookupCounts>,
        requestor: &Requestor,
        now: UnixMs,
    ) -> Option<&'a mut LookupCounts> {
        if all.len() >= REQUESTORS_MAX && !all.contains_key(requestor) {
            if now.saturating_sub(self.cleared_at.load(Ordering::Relaxed)) >= CLEAR_EVERY_MS {
                self.cleared_at.store(now, Ordering::Relaxed);
                all.retain(|_, seen| seen.blocked_until > now || now.saturating_sub(seen.since) < WINDOW_MS);
            }
            if all.len() >= REQUESTORS_MAX {
                let free = all.iter().filter(|(_, seen)| seen.blocked_until <= now);
                let quietest = *free.min_by_key(|(_, seen)| (seen.reported, seen.failed))?.0;
                all.remove(&quietest);
            }
        }
        let seen = all.entry(*requestor).or_default();
        if now.saturating_sub(seen.since) >= WINDOW_MS {
            (seen.since, seen.failed, seen.reported, seen.early) = (now, 0, false, 0);
        }
        Some(seen)
    }
}

impl AbuseReport {
    /// Says it in the log of the host and in the audit log.
    pub(crate) fn log(self, requestor: &Requestor, audit: &Audit) {
        let Self { event, count, blocked_ms } = self;
        tracing::warn!(
            tenant = %requestor.tenant, requestor = %requestor.id, count, blocked_ms,
            "{event}: more often within a minute than its limit allows"
        );
        audit.note(|| {
            let entry = Entry::new(event).by(requestor).count(count.into());
            if blocked_ms > 0 { entry.outcome("blocked").because(&format!("for {blocked_ms} ms")) } else { entry }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    fn requestor(number: u32) -> Requestor {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        Requestor { tenant: TenantId([1; 16]), id: RequestorId(id) }
    }

    fn limits() -> Limits {
        Limits {
            failed_lookups_per_minute: 3,
            failed_lookups_block_ms: 10_000,
            early_polls_per_minute: 2,
            ..Limits::generous()
        }
    }

    #[test]
    fn probing_requestor_is_blocked_and_reported_once() {
        let abuse_detector = AbuseDetector::default();
        let limits = limits();
        let one = requestor(1);
        let other = requestor(2);
        let said: Vec<_> = (0..50).filter_map(|at| abuse_detector.failed(&one, &limits, 100 + at)).collect();
        assert_eq!(said, [AbuseReport { event: "requestor.probing", count: 4, blocked_ms: 10_000 }]);
        let refused = abuse_detector.admit(&one, || Arc::new(limits.clone()), 5_103).unwrap_err();
        let Error::Quota { limit, value, retry_after_ms } = refused else { panic!("{refused}") };
        assert_eq!((limit, value, retry_after_ms), ("failed_lookups_per_minute", 3, Some(5_000)));
        abuse_detector.admit(&other, || Arc::new(limits.clone()), 5_103).unwrap();
        abuse_detector.admit(&one, || Arc::new(limits.clone()), 10_103).unwrap();
        // The next minute counts by itself.
        assert!((0..4).filter_map(|at| abuse_detector.failed(&one, &limits, 70_000 + at)).count() == 1);
    }

    #[test]
    fn probing_requestor_can_be_blocked_again_within_a_minute() {
        let abuse_detector = AbuseDetector::default();
        let limits = limits();
        let one = requestor(1);
        let mut said = 0;
        for begin in [100, 10_200, 20_300] {
            abuse_detector.admit(&one, || Arc::new(limits.clone()), begin).unwrap();
            said += (0..4).filter_map(|at| abuse_detector.failed(&one, &limits, begin + at)).count();
            assert!(abuse_detector.admit(&one, || Arc::new(limits.clone()), begin + 9_999).is_err(), "{begin}");
        }
        assert_eq!(said, 1);
    }

    #[test]
    fn few_failed_lookups_are_not_blocked() {
        let abuse_detector = AbuseDetector::default();
        let limits = limits();
        for minute in 0..100 {
            for at in 0..3 {
                assert_eq!(abuse_detector.failed(&requestor(1), &limits, (minute + 1) * WINDOW_MS + at), None);
            }
        }
        abuse_detector.admit(&requestor(1), || Arc::new(limits.clone()), 1).unwrap();
    }

    #[test]
    fn probing_memory_is_bounded_and_keeps_blocked_requestors() {
        let abuse_detector = AbuseDetector::default();
        let limits = limits();
        assert_eq!((0..5).filter_map(|_| abuse_detector.failed(&requestor(0), &limits, 1)).count(), 1);
        for number in 1..20_000 {
            abuse_detector.failed(&requestor(number), &limits, 2);
        }
        assert_eq!(abuse_detector.seen.lock().len(), REQUESTORS_MAX);
        assert!(abuse_detector.admit(&requestor(0), || Arc::new(limits.clone()), 3).is_err());
    }

    #[test]
    fn excessive_task_polling_is_reported_once_a_minute() {
        let abuse_detector = AbuseDetector::default();
        let limits = limits();
        let task = bulkhead_store::samples::task(requestor(1), 1);
        assert_eq!(task.poll_interval_ms, 500);
        let polls =
            |every: u64| (0..100).filter_map(|n| abuse_detector.polled(&task, &limits, 1_000 + n * every)).count();
        assert_eq!(polls(125), 0);
        assert_eq!(polls(124), 1);
        assert_eq!(abuse_detector.seen.lock()[&requestor(1)].polls.len(), 1);
        for number in 0..100 {
            abuse_detector.polled(&bulkhead_store::samples::task(requestor(1), number), &limits, 5);
        }
        assert_eq!(abuse_detector.seen.lock()[&requestor(1)].polls.len(), POLLS_MAX);
    }
}
