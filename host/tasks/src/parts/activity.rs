//! What calls cost by tenant, plugin, tool or requestor, for an operator who looks.
//!
//! Owns the counts of requestors; those of tools are kept with the tools. Must not count calls: the sandbox does, with
//! the handles that are found here when a call begins. Invariants: what has a count of its own is bounded over all
//! tenants and for each, so that no tenant takes the place of the others; what finds no place counts among the others
//! of its tenant, so that the sums are right; a requestor that has not called for a while has no count, and an erased
//! tenant has none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_metrics::{Activity, ActivityCounts, ActivityReading, ToolActivity};

/// Requestors that calls are counted for one by one; those beyond count as others of their tenant.
const REQUESTORS_COUNTED_MAX: usize = 4_096;
/// Requestors of one tenant that calls are counted for one by one.
const REQUESTORS_COUNTED_PER_TENANT_MAX: usize = 1_024;

/// What calls are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityGroup {
    Tenant,
    Plugin,
    Tool,
    Requestor,
}

/// What has counts of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ActivityKey {
    Tenant(TenantId),
    Plugin(String),
    /// Without a tool: what else the plugin is called for.
    Tool {
        plugin: String,
        tool: Option<String>,
    },
    Requestor(Requestor),
}

/// What has been counted of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivitySample {
    /// For how long it has been counted.
    pub sampled: Duration,
    pub entries: Vec<(ActivityKey, ActivityReading)>,
    /// What found no place.
    pub others: ActivityReading,
}

/// The counts of requestors; see the module.
#[derive(Debug)]
pub(crate) struct RequestorActivity {
    activity: Arc<Activity>,
    pub(crate) tenants: FxHashMap<TenantId, TenantActivity>,
    /// Of all tenants.
    requestors: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct TenantActivity {
    requestors: FxHashMap<RequestorId, Kept>,
    /// Of those that found no place.
    others: Arc<ActivityCounts>,
    /// Of those that have none any more.
    forgotten: ActivityReading,
}

#[derive(Clone, Debug)]
struct Kept {
    counts: Arc<ActivityCounts>,
    /// Whether it was wanted since idle ones were last forgotten.
    is_used: bool,
}

impl RequestorActivity {
    pub(crate) fn new(activity: &Arc<Activity>) -> Self {
        Self { activity: Arc::clone(activity), tenants: FxHashMap::default(), requestors: 0 }
    }

    /// Where calls of a requestor count.
    pub(crate) fn of(&mut self, requestor: &Requestor) -> Arc<ActivityCounts> {
        let counts = || self.activity.counts();
        let tenant = self.tenants.entry(requestor.tenant).or_insert_with(|| TenantActivity {
            requestors: FxHashMap::default(),
            others: counts(),
            forgotten: ActivityReading::default(),
        });
        if let Some(kept) = tenant.requestors.get_mut(&requestor.id) {
            kept.is_used = true;
            return Arc::clone(&kept.counts);
        }
        if self.requestors >= REQUESTORS_COUNTED_MAX || tenant.requestors.len() >= REQUESTORS_COUNTED_PER_TENANT_MAX {
            return Arc::clone(&tenant.others);
        }
        self.requestors += 1;
        let counts = counts();
        tenant.requestors.insert(requestor.id, Kept { counts: Arc::clone(&counts), is_used: true });
        counts
    }

    /// Forgets requestors that have not called since this was last done, and of which nothing runs.
    pub(crate) fn forget_idle(&mut self) {
        for tenant in self.tenants.values_mut() {
            let TenantActivity { requestors, forgotten, .. } = tenant;
            requestors.retain(|_, kept| {
                let stays = std::mem::take(&mut kept.is_used) || Arc::strong_count(&kept.counts) > 1;
                if !stays {
                    forgotten.add(&kept.counts.read());
                }
                stays
            });
        }
        self.tenants.retain(|_, tenant| !tenant.requestors.is_empty() || Arc::strong_count(&tenant.others) > 1);
        self.requestors = self.tenants.values().map(|tenant| tenant.requestors.len()).sum();
    }

    /// Forgets a tenant and all of its requestors.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        if let Some(gone) = self.tenants.remove(&tenant) {
            self.requestors = self.requestors.saturating_sub(gone.requestors.len());
        }
    }
}

fn by_tenant(tenants: FxHashMap<TenantId, TenantActivity>) -> ActivitySample {
    let sum = |(id, tenant): (TenantId, TenantActivity)| {
        let mut sum = tenant.forgotten;
        sum.add(&tenant.others.read());
        tenant.requestors.values().for_each(|kept| sum.add(&kept.counts.read()));
        (ActivityKey::Tenant(id), sum)
    };
    ActivitySample { entries: tenants.into_iter().map(sum).collect(), ..ActivitySample::default() }
}

fn by_requestor(tenants: FxHashMap<TenantId, TenantActivity>) -> ActivitySample {
    let mut sample = ActivitySample::default();
    for (tenant, TenantActivity { requestors, others, .. }) in tenants {
        sample.others.add(&others.read());
        let keyed =
            |(id, kept): (RequestorId, Kept)| (ActivityKey::Requestor(Requestor { tenant, id }), kept.counts.read());
        sample.entries.extend(requestors.into_iter().map(keyed));
    }
    sample
}

fn by_plugin(tools: Vec<ToolActivity>) -> ActivitySample {
    // They come in the order of the plugins.
    let mut entries: Vec<(ActivityKey, ActivityReading)> = Vec::new();
    for ToolActivity { plugin, reading, .. } in tools {
        let key = ActivityKey::Plugin(plugin);
        match entries.last_mut().filter(|(last, _)| *last == key) {
            Some((_, sum)) => sum.add(&reading),
            None => entries.push((key, reading)),
        }
    }
    ActivitySample { entries, ..ActivitySample::default() }
}

fn by_tool(tools: Vec<ToolActivity>) -> ActivitySample {
    let keyed = |ToolActivity { plugin, tool, reading }| (ActivityKey::Tool { plugin, tool }, reading);
    ActivitySample { entries: tools.into_iter().map(keyed).collect(), ..ActivitySample::default() }
}

/// A request that may be refused before it begins. Holds nothing while no operator looks.
pub(crate) struct RefusalCount {
    tool: Option<Arc<ActivityCounts>>,
}

impl RefusalCount {
    /// `tool`: where calls of it count; of what no plugin is called for, none.
    pub(crate) fn new(tool: Option<&Arc<ActivityCounts>>) -> Self {
        Self { tool: tool.filter(|tool| tool.is_watched()).cloned() }
    }

    pub(crate) fn refused(self) {
        if let Some(tool) = self.tool {
            tool.refused();
        }
    }
}

/// What was counted of a group; `tenants` is asked where they tell the calls apart.
pub(crate) fn sample(
    group: ActivityGroup,
    activity: &Activity,
    tenants: impl FnOnce() -> FxHashMap<TenantId, TenantActivity>,
) -> ActivitySample {
    let sampled = activity.look(Instant::now());
    let sample = match group {
        ActivityGroup::Tenant => by_tenant(tenants()),
        ActivityGroup::Requestor => by_requestor(tenants()),
        ActivityGroup::Plugin => by_plugin(activity.tools()),
        ActivityGroup::Tool => by_tool(activity.tools()),
    };
    ActivitySample { sampled, ..sample }
}

#[cfg(test)]
mod tests {
    use bulkhead_metrics::Outcome;

    use super::*;

    fn requestor(tenant: u8, number: u32) -> Requestor {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId(id) }
    }

    fn looked_at() -> RequestorActivity {
        let activity = Arc::new(Activity::default());
        activity.look(Instant::now());
        RequestorActivity::new(&activity)
    }

    fn call(activity: &mut RequestorActivity, requestor: &Requestor) {
        activity.of(requestor).call_ended(Outcome::Ok, Duration::from_millis(1));
    }

    fn calls(sample: &ActivitySample, key: &ActivityKey) -> Option<u64> {
        sample.entries.iter().find(|(other, _)| other == key).map(|(_, reading)| reading.calls())
    }

    #[test]
    fn made_up_requestors_are_bounded_and_leave_places_to_other_tenants() {
        let mut activity = looked_at();
        for number in 0..10_000 {
            call(&mut activity, &requestor(1, number));
        }
        let sample = by_requestor(activity.tenants.clone());
        assert_eq!(sample.entries.len(), REQUESTORS_COUNTED_PER_TENANT_MAX);
        assert_eq!(sample.others.calls(), 10_000 - 1_024);
        let anna = requestor(2, 1);
        call(&mut activity, &anna);
        assert_eq!(calls(&by_requestor(activity.tenants.clone()), &ActivityKey::Requestor(anna)), Some(1));
        for tenant in 3..13 {
            for number in 0..1_000 {
                call(&mut activity, &requestor(tenant, number));
            }
        }
        let sample = by_requestor(activity.tenants.clone());
        assert_eq!((sample.entries.len(), activity.requestors), (REQUESTORS_COUNTED_MAX, REQUESTORS_COUNTED_MAX));
        let counted: u64 = sample.entries.iter().map(|(_, reading)| reading.calls()).sum();
        assert_eq!(counted + sample.others.calls(), 20_001);
        let tenants = by_tenant(activity.tenants.clone());
        for (tenant, expected) in [(1, 10_000), (2, 1), (12, 1_000)] {
            let key = ActivityKey::Tenant(TenantId([tenant; 16]));
            assert_eq!(calls(&tenants, &key), Some(expected), "the sum of a tenant is right: {tenant}");
        }
    }

    #[test]
    fn idle_requestors_are_forgotten_and_still_count_for_their_tenant() {
        let mut activity = looked_at();
        let [idle, busy, runs] = [1, 2, 3].map(|number| requestor(1, number));
        for requestor in [&idle, &busy, &runs] {
            call(&mut activity, requestor);
        }
        let running = activity.of(&runs);
        activity.forget_idle();
        call(&mut activity, &busy);
        activity.forget_idle();
        let sample = by_requestor(activity.tenants.clone());
        let kept = [&idle, &busy, &runs].map(|requestor| calls(&sample, &ActivityKey::Requestor(*requestor)));
        assert_eq!((kept, activity.requestors), ([None, Some(2), Some(1)], 2));
        let tenant = ActivityKey::Tenant(idle.tenant);
        assert_eq!(calls(&by_tenant(activity.tenants.clone()), &tenant), Some(4), "its count does not go back");
        drop(running);
        activity.forget_idle();
        assert!(
            activity.tenants.is_empty() && activity.requestors == 0,
            "nothing is kept of a tenant that does nothing"
        );
    }

    #[test]
    fn erased_tenant_leaves_the_table_with_all_its_requestors() {
        let mut activity = looked_at();
        for (tenant, number) in [(1, 1), (1, 2), (2, 1)] {
            call(&mut activity, &requestor(tenant, number));
        }
        activity.forget(TenantId([1; 16]));
        let sample = by_requestor(activity.tenants.clone());
        let keys: Vec<_> = sample.entries.into_iter().map(|(key, _)| key).collect();
        assert_eq!((keys, activity.requestors), (vec![ActivityKey::Requestor(requestor(2, 1))], 1));
        assert_eq!(by_tenant(activity.tenants.clone()).entries.len(), 1);
    }

    #[test]
    fn plugins_are_the_sum_of_their_tools_and_of_what_else_they_are_called_for() {
        let activity = Activity::default();
        activity.look(Instant::now());
        let counts =
            [activity.tool("csv", "a"), activity.tool("csv", "b"), activity.plugin("csv"), activity.plugin("d")];
        for counts in &counts {
            counts.call_ended(Outcome::Ok, Duration::from_millis(1));
        }
        let sample = by_plugin(activity.tools());
        let plugin = |name: &str| calls(&sample, &ActivityKey::Plugin(name.to_owned()));
        assert_eq!((plugin("csv"), plugin("d"), sample.entries.len()), (Some(3), Some(1), 2));
        let tool = |tool: Option<&str>| ActivityKey::Tool { plugin: "csv".to_owned(), tool: tool.map(str::to_owned) };
        let sample = by_tool(activity.tools());
        assert_eq!((calls(&sample, &tool(Some("a"))), calls(&sample, &tool(None))), (Some(1), Some(1)));
    }
}
