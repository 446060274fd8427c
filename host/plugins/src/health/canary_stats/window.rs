//! The last calls of one version, and whose they were.
//!
//! Owns what is counted of them. Invariant: no more than [`CALLS_MAX`] are kept, and the counts are those of the kept
//! ones.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, TenantId};

/// Calls of a version that are remembered. A busy one fills that before its window is over, and is judged by these.
pub(super) const CALLS_MAX: usize = 4_096;

pub(super) struct Sample {
    pub(super) at: UnixMs,
    pub(super) requestor: Requestor,
    pub(super) tool: usize,
    /// `None`: it broke.
    pub(super) took: Option<Duration>,
    /// Its requestor has seen so many faults in a row that it is kept from the plugin.
    pub(super) kept_away: bool,
}

/// What was seen of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) calls: usize,
    pub(super) faults: usize,
    /// Calls after which their requestor was kept away.
    pub(super) kept_away: usize,
}

impl Count {
    fn add(&mut self, sample: &Sample) {
        self.calls += 1;
        self.faults += usize::from(sample.took.is_none());
        self.kept_away += usize::from(sample.kept_away);
    }

    fn remove(&mut self, sample: &Sample) {
        self.calls -= 1;
        self.faults -= usize::from(sample.took.is_none());
        self.kept_away -= usize::from(sample.kept_away);
    }

    fn join(&mut self, other: Self) {
        self.calls += other.calls;
        self.faults += other.faults;
        self.kept_away += other.kept_away;
    }

    pub(super) fn without(self, part: Self) -> Self {
        Self {
            calls: self.calls - part.calls,
            faults: self.faults - part.faults,
            kept_away: self.kept_away - part.kept_away,
        }
    }
}

/// Those whose calls alone must not decide: one tenant where several have the version, else one requestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Party {
    Tenant(TenantId),
    Requestor(Requestor),
}

impl Party {
    fn of(requestor: &Requestor, by_tenant: bool) -> Self {
        if by_tenant { Self::Tenant(requestor.tenant) } else { Self::Requestor(*requestor) }
    }

    fn has(&self, requestor: &Requestor) -> bool {
        match self {
            Self::Tenant(tenant) => requestor.tenant == *tenant,
            Self::Requestor(one) => requestor == one,
        }
    }
}

/// The calls of one version, oldest first.
#[derive(Default)]
pub(super) struct Window {
    samples: VecDeque<Sample>,
    whole: Count,
    of: HashMap<Requestor, Count>,
    /// Who has ever called, also when their calls are forgotten: otherwise many calls of one tenant would make it the
    /// only one.
    first: Option<TenantId>,
    several: bool,
}

impl Window {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.samples.len() >= CALLS_MAX {
            self.forget_oldest();
        }
        let tenant = sample.requestor.tenant;
        self.several |= *self.first.get_or_insert(tenant) != tenant;
        self.whole.add(&sample);
        self.of.entry(sample.requestor).or_default().add(&sample);
        self.samples.push_back(sample);
    }

    fn forget_oldest(&mut self) {
        let Some(gone) = self.samples.pop_front() else { return };
        self.whole.remove(&gone);
        if let Some(count) = self.of.get_mut(&gone.requestor) {
            count.remove(&gone);
            if count.calls == 0 {
                self.of.remove(&gone.requestor);
            }
        }
    }

    pub(super) fn forget_before(&mut self, at: UnixMs) {
        while self.samples.front().is_some_and(|sample| sample.at < at) {
            self.forget_oldest();
        }
    }

    /// All calls.
    pub(super) fn whole(&self) -> Count {
        self.whole
    }

    /// Whether nobody else has called.
    pub(super) fn is_only_of(&self, requestor: &Requestor) -> bool {
        self.of.keys().all(|one| one == requestor)
    }

    /// Whether requestors of more than one tenant have ever called.
    pub(super) fn has_several_tenants(&self) -> bool {
        self.several
    }

    /// Everybody who has called, by tenant or one by one.
    pub(super) fn parties(&self, by_tenant: bool) -> HashMap<Party, Count> {
        let mut parties = HashMap::<_, Count>::new();
        for (requestor, count) in &self.of {
            parties.entry(Party::of(requestor, by_tenant)).or_default().join(*count);
        }
        parties
    }

    /// Adds how many calls of a tool are whose, as in [`Self::parties`].
    pub(super) fn count_callers(&self, tool: usize, by_tenant: bool, calls: &mut HashMap<Party, usize>) {
        for sample in self.samples.iter().filter(|sample| sample.tool == tool) {
            *calls.entry(Party::of(&sample.requestor, by_tenant)).or_default() += 1;
        }
    }

    /// What 19 of 20 calls of a tool did not exceed, if there were enough of them. The calls of `without` do not count.
    pub(super) fn latency(&self, tool: usize, calls_min: usize, without: Option<&Party>) -> Option<Duration> {
        let counts = |sample: &&Sample| sample.tool == tool && !without.is_some_and(|one| one.has(&sample.requestor));
        let mut took: Vec<_> = self.samples.iter().filter(counts).filter_map(|sample| sample.took).collect();
        if took.is_empty() || took.len() < calls_min {
            return None;
        }
        let last = (took.len() * 19).div_ceil(20) - 1;
        Some(*took.select_nth_unstable(last).1)
    }
}
