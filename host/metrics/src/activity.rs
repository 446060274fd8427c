//! What calls cost by tool and by requestor, for an operator who looks.
//!
//! Owns the counts, the table of those of tools, and whether an operator looks. Must not know whose the counts of a
//! requestor are: their owner keeps them. Invariants: while no operator looks, a call counts its end for the usage by
//! day and nothing else; the counts of a tool go with the last version that offers it, and are not shown once its
//! plugin is removed; a count only grows; an end is taken once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::calls::Outcome;
use crate::histogram::{CALL_TIMES, Histogram};

/// How long after the last look counting goes on.
const COUNTED_AFTER_LOOK: Duration = Duration::from_secs(600);

/// What the calls of one tool or of one requestor came to, and what they cost. Many threads write it at once, without a
/// lock.
#[derive(Debug)]
pub struct ActivityCounts {
    is_watched: Arc<AtomicBool>,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    refused: AtomicU64,
    cpu_us: AtomicU64,
    busy: Histogram,
    /// Ends for the usage by day that were not taken yet, and how many of them were errors.
    ends: AtomicU64,
    errors: AtomicU64,
}

impl ActivityCounts {
    fn new(is_watched: Arc<AtomicBool>) -> Self {
        let outcomes = std::array::from_fn(|_| AtomicU64::default());
        let refused = AtomicU64::default();
        let cpu_us = AtomicU64::default();
        let ends = AtomicU64::default();
        let errors = AtomicU64::default();
        Self { is_watched, outcomes, refused, cpu_us, busy: Histogram::new(&CALL_TIMES), ends, errors }
    }

    /// Whether anything is counted at the moment.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    /// A call has used so much CPU time just now.
    pub fn cpu_used(&self, used_us: u64) {
        if self.is_watched() {
            self.cpu_us.fetch_add(used_us, Relaxed);
        }
    }

    /// A call has ended that ran for so long, without its waits.
    pub fn call_ended(&self, outcome: Outcome, busy: Duration) {
        if self.is_watched()
            && let Some(calls) = self.outcomes.get(outcome as usize)
        {
            calls.fetch_add(1, Relaxed);
            self.busy.observe_within(busy);
        }
    }

    /// A call has ended, for the usage by day: that is counted whether an operator looks or not.
    pub fn add_end(&self, outcome: Outcome) {
        self.ends.fetch_add(1, Relaxed);
        if outcome.is_error() {
            self.errors.fetch_add(1, Relaxed);
        }
    }

    /// A call or a task was refused before it began.
    pub fn refused(&self) {
        if self.is_watched() {
            self.refused.fetch_add(1, Relaxed);
        }
    }

    /// What has been counted so far.
    pub fn read(&self) -> ActivityReading {
        let mut reading = ActivityReading::default();
        for (read, count) in reading.outcomes.iter_mut().zip(&self.outcomes) {
            *read = count.load(Relaxed);
        }
        reading.refused = self.refused.load(Relaxed);
        reading.cpu_us = self.cpu_us.load(Relaxed);
        reading.busy = self.busy.counts().collect();
        reading
    }
}

impl Default for ActivityCounts {
    /// Counts that no operator can look at.
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

/// Counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityReading {
    outcomes: [u64; Outcome::ALL.len()],
    /// Calls and tasks that were refused before they began.
    pub refused: u64,
    pub cpu_us: u64,
    /// How long calls ran: of each step that has any, its longest time in nanoseconds and how many.
    busy: BTreeMap<u64, u64>,
}

impl ActivityReading {
    /// The calls that ended, by how, without those that are none.
    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ALL.into_iter().zip(self.outcomes).filter(|(_, calls)| *calls > 0)
    }

    /// How long calls ran: the longest time of each step that has any, in microseconds, with how many. The last step
    /// has all longer ones.
    pub fn busy_us(&self) -> impl Iterator<Item = (u64, u64)> {
        self.busy.iter().map(|(end, calls)| (end / 1_000, *calls))
    }

    /// Calls that ended.
    pub fn calls(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// The sum of both.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.outcomes.iter_mut().zip(other.outcomes) {
            *own += more;
        }
        self.refused += other.refused;
        self.cpu_us += other.cpu_us;
        for (end, calls) in &other.busy {
            *self.busy.entry(*end).or_default() += calls;
        }
    }
}

/// Whether an operator looks, and the counts of all tools; see the module.
#[derive(Debug, Default)]
pub struct Activity {
    is_watched: Arc<AtomicBool>,
    watch: Mutex<Option<Watch>>,
    tools: Mutex<BTreeMap<ToolName, Weak<ActivityCounts>>>,
    /// Plugins that an operator removed. Their last version stays loaded, because it may be taken back.
    removed: Mutex<BTreeSet<String>>,
}

/// A plugin and a tool of it; without a tool: what else the plugin is called for.
type ToolName = (String, Option<String>);

#[derive(Clone, Copy, Debug)]
struct Watch {
    since: Instant,
    seen_at: Instant,
}

/// The counts of a tool, or of what else a plugin is called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolActivity {
    pub plugin: String,
    pub tool: Option<String>,
    pub reading: ActivityReading,
}

/// Calls of a tool, or of what else a plugin is called for, that ended since they were last taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolEnds {
    pub plugin: String,
    pub tool: Option<String>,
    pub calls: u64,
    /// Those of them that were errors.
    pub errors: u64,
}

impl Activity {
    /// The counts of a tool of a plugin, by its name in the catalog: the same ones for every version that offers it at
    /// the same time.
    pub fn tool(&self, plugin: &str, tool: &str) -> Arc<ActivityCounts> {
        self.kept(plugin, Some(tool))
    }

    /// The counts of what a plugin is called for beside its tools.
    pub fn plugin(&self, plugin: &str) -> Arc<ActivityCounts> {
        self.kept(plugin, None)
    }

    /// Counts for what their owner keeps.
    pub fn counts(&self) -> Arc<ActivityCounts> {
        Arc::new(ActivityCounts::new(Arc::clone(&self.is_watched)))
    }

    fn kept(&self, plugin: &str, tool: Option<&str>) -> Arc<ActivityCounts> {
        let mut tools = self.tools.lock();
        let entry = tools.entry((plugin.to_owned(), tool.map(str::to_owned))).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let counts = self.counts();
            *entry = Arc::downgrade(&counts);
            counts
        })
    }

    /// An operator removed a plugin, or it is there again.
    pub(crate) fn set_removed(&self, plugin: &str, is_removed: bool) {
        let mut removed = self.removed.lock();
        match is_removed {
            true => removed.insert(plugin.to_owned()),
            false => removed.remove(plugin),
        };
    }

    /// The counts of all tools of plugins that are not removed.
    pub fn tools(&self) -> Vec<ToolActivity> {
        let tools: Vec<_> = {
            let tools = self.tools.lock();
            let removed = self.removed.lock();
            let shown = tools.iter().filter(|((plugin, _), _)| !removed.contains(plugin));
            shown.filter_map(|(name, counts)| Some((name.clone(), counts.upgrade()?))).collect()
        };
        let shown = |((plugin, tool), counts): (ToolName, Arc<ActivityCounts>)| {
            let reading = counts.read();
            ToolActivity { plugin, tool, reading }
        };
        tools.into_iter().map(shown).collect()
    }

    /// What ended since this was last asked, by tool. Tools that were not called are left out.
    pub fn take_ends(&self) -> Vec<ToolEnds> {
        let tools = self.tools.lock();
        let ends = tools.iter().filter_map(|((plugin, tool), counts)| {
            let counts = counts.upgrade()?;
            // Errors first: an end that comes in between is taken the next time, at the latest with its error.
            let errors = counts.errors.swap(0, Relaxed);
            let calls = counts.ends.swap(0, Relaxed);
            (calls > 0 || errors > 0).then(|| ToolEnds { plugin: plugin.clone(), tool: tool.clone(), calls, errors })
        });
        ends.collect()
    }

    /// Puts back what was taken and could not be written. That of a tool which is not offered any more is lost.
    pub fn put_back(&self, taken: &ToolEnds) {
        let ToolEnds { plugin, tool, calls, errors } = taken;
        let kept = self.tools.lock().get(&(plugin.clone(), tool.clone())).and_then(Weak::upgrade);
        if let Some(counts) = kept {
            counts.ends.fetch_add(*calls, Relaxed);
            counts.errors.fetch_add(*errors, Relaxed);
        }
    }

    /// Whether anything is counted at the moment.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    /// An operator looks: everything is counted from now on, until some time after the last look. Returns for how long
    /// it has been counted.
    pub fn look(&self, now: Instant) -> Duration {
        let mut watch = self.watch.lock();
        let since = watch.map_or(now, |watch| watch.since);
        *watch = Some(Watch { since, seen_at: now });
        self.is_watched.store(true, Relaxed);
        now.saturating_duration_since(since)
    }

    /// Stops counting when no operator has looked for a while, and lets go of what is not offered any more. To be
    /// called now and then.
    pub fn forget_idle(&self, now: Instant) {
        let mut watch = self.watch.lock();
        watch.take_if(|watch| now.saturating_duration_since(watch.seen_at) >= COUNTED_AFTER_LOOK);
        self.is_watched.store(watch.is_some(), Relaxed);
        let mut tools = self.tools.lock();
        let mut removed = self.removed.lock();
        tools.retain(|_, counts| counts.strong_count() > 0);
        removed.retain(|plugin| tools.keys().any(|(other, _)| other == plugin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(activity: &Activity) -> Vec<(String, Option<String>, u64)> {
        let row = |row: ToolActivity| (row.plugin, row.tool, row.reading.calls());
        activity.tools().into_iter().map(row).collect()
    }

    #[test]
    fn calls_are_counted_from_the_first_look_until_some_time_after_the_last() {
        let activity = Activity::default();
        let begun = Instant::now();
        let counts = activity.tool("csv", "csv_query");
        let work = || {
            counts.call_ended(Outcome::Ok, Duration::from_micros(40));
            counts.call_ended(Outcome::Trap, Duration::from_secs(9));
            counts.cpu_used(300);
            counts.refused();
        };
        work();
        assert_eq!(counts.read(), ActivityReading::default(), "no operator looks");
        assert_eq!(activity.look(begun), Duration::ZERO);
        work();
        let later = begun + COUNTED_AFTER_LOOK - Duration::from_secs(1);
        activity.forget_idle(later);
        assert_eq!(activity.look(later), COUNTED_AFTER_LOOK - Duration::from_secs(1));
        let read = counts.read();
        assert_eq!(read.outcomes().collect::<Vec<_>>(), [(Outcome::Ok, 1), (Outcome::Trap, 1)]);
        assert_eq!((read.calls(), read.refused, read.cpu_us), (2, 1, 300));
        assert_eq!(read.busy_us().collect::<Vec<_>>(), [(50, 1), (10_000_000, 1)]);

        activity.forget_idle(later + COUNTED_AFTER_LOOK);
        work();
        assert_eq!(counts.read(), read, "the last look is long past");
        assert_eq!(activity.look(later + COUNTED_AFTER_LOOK), Duration::ZERO, "counting begins anew");
    }

    #[test]
    fn tool_leaves_the_table_with_the_last_version_that_offers_it() {
        let activity = Activity::default();
        activity.look(Instant::now());
        let old = activity.tool("csv", "csv_query");
        let others = activity.plugin("csv");
        old.call_ended(Outcome::Ok, Duration::ZERO);
        let new = activity.tool("csv", "csv_query");
        drop(old);
        new.call_ended(Outcome::Ok, Duration::ZERO);
        let query = ("csv".to_owned(), Some("csv_query".to_owned()), 2);
        assert_eq!(names(&activity), [("csv".to_owned(), None, 0), query], "another version goes on counting");
        drop((new, others));
        assert_eq!(names(&activity), []);
        activity.forget_idle(Instant::now());
        assert!(activity.tools.lock().is_empty());
    }

    #[test]
    fn removed_plugin_leaves_the_table_while_its_last_version_may_be_taken_back() {
        let activity = Activity::default();
        let held = [activity.tool("csv", "csv_query"), activity.tool("text", "echo")];
        activity.set_removed("csv", true);
        let echo = ("text".to_owned(), Some("echo".to_owned()), 0);
        assert_eq!(names(&activity), [echo]);
        activity.forget_idle(Instant::now());
        activity.set_removed("csv", false);
        assert_eq!(names(&activity).len(), 2, "it was taken back");
        activity.set_removed("csv", true);
        drop(held);
        activity.forget_idle(Instant::now());
        assert!(activity.removed.lock().is_empty(), "nothing is known of a plugin that is gone");
    }

    #[test]
    fn ends_are_counted_while_no_operator_looks_and_taken_once() {
        let activity = Activity::default();
        let query = activity.tool("csv", "csv_query");
        let others = activity.plugin("csv");
        let idle = activity.tool("text", "echo");
        for outcome in [Outcome::Ok, Outcome::ToolError, Outcome::Cancelled] {
            query.add_end(outcome);
        }
        others.add_end(Outcome::Trap);
        let ends = |tool: Option<&str>, calls, errors| ToolEnds {
            plugin: "csv".to_owned(),
            tool: tool.map(str::to_owned),
            calls,
            errors,
        };
        let taken = activity.take_ends();
        assert_eq!(taken, [ends(None, 1, 1), ends(Some("csv_query"), 3, 1)]);
        assert_eq!(activity.take_ends(), []);
        query.add_end(Outcome::Ok);
        activity.put_back(&taken[1]);
        assert_eq!(activity.take_ends(), [ends(Some("csv_query"), 4, 1)]);
        drop(query);
        activity.put_back(&taken[1]);
        assert_eq!(activity.take_ends(), [], "the tool is gone");
        drop((others, idle));
    }

    #[test]
    fn readings_add_up() {
        let activity = Activity::default();
        activity.look(Instant::now());
        let one = activity.counts();
        let other = activity.counts();
        one.call_ended(Outcome::Ok, Duration::from_millis(3));
        other.call_ended(Outcome::Ok, Duration::from_millis(3));
        other.call_ended(Outcome::Cancelled, Duration::from_millis(4));
        other.cpu_used(7);
        let mut sum = one.read();
        sum.add(&other.read());
        assert_eq!(sum.outcomes().collect::<Vec<_>>(), [(Outcome::Ok, 2), (Outcome::Cancelled, 1)]);
        assert_eq!(sum.busy_us().collect::<Vec<_>>(), [(3_000, 2), (5_000, 1)]);
        assert_eq!((sum.cpu_us, sum.refused), (7, 0));
    }
}
