//! What happened to a task, in order and with times.
//!
//! Owns what is noted and how much of it is kept. Must not decide what may happen: [`lifecycle`](super::lifecycle)
//! notes each transition as it allows it. Invariant: a timeline has at most [`TIMELINE_MAX`] entries, their times never
//! go back, what is left out lies behind the first [`FIRST_ENTRIES`], and no start is among it.
//!
//! A task that is created, runs and ends has none: its times of creation and of the last change and its status say it
//! all. It begins with the first transition that they do not say.

use super::UnixMs;
use super::task::Active;

/// Entries that a timeline keeps: the first 16, and of the others the last ones.
pub const TIMELINE_MAX: usize = 64;
/// How something began says more than its middle.
const FIRST_ENTRIES: usize = 16;

/// One thing that happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// It left the queue, for its run of this number.
    Started {
        attempt: u32,
    },
    /// It asked its requestor for so many inputs.
    InputRequested {
        requests: u32,
    },
    /// One question was answered; so many are still open.
    Answered {
        open: u32,
    },
    Paused,
    Resumed,
    /// The run was lost with its host.
    Interrupted,
    /// It was cancelled, from here.
    Cancelled {
        from: Active,
        is_paused: bool,
    },
    /// It ended with an output.
    Succeeded,
    /// It ended with an output in which the tool reports an error.
    ToolError,
    /// It broke, or could never start.
    Failed,
    /// A run that was lost went on where it was, as its run of this number.
    Continued {
        attempt: u32,
    },
    /// Its call left memory; the journal has everything.
    Dormant,
    /// A call that had left memory went on where it was, as the task's run of this number.
    Woken {
        attempt: u32,
        cause: WakeCause,
    },
}

/// Why a call that had left memory went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// Its questions were answered.
    Answered,
    /// Its pause ended.
    Resumed,
    /// A message came for it.
    Steered,
    /// Its sleep ended.
    Slept,
}

impl WakeCause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Answered, Self::Resumed, Self::Steered, Self::Slept];

    /// As it is written for operators and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Resumed => "resumed",
            Self::Steered => "steered",
            Self::Slept => "slept",
        }
    }
}

impl Transition {
    /// Whether a run began or ended with it.
    fn is_of_runs(self) -> bool {
        matches!(
            self,
            Self::Started { .. } | Self::Continued { .. } | Self::Woken { .. } | Self::Dormant | Self::Interrupted
        )
    }
}

/// A transition and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    pub at: UnixMs,
    pub transition: Transition,
}

/// The transitions of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    entries: Vec<TimelineEntry>,
    left_out: u64,
}

impl Timeline {
    /// What was kept; `None` when there is more than a timeline can hold.
    pub fn restored(entries: Vec<TimelineEntry>, left_out: u64) -> Option<Self> {
        let is_possible = entries.len() <= TIMELINE_MAX && (left_out == 0 || entries.len() == TIMELINE_MAX);
        is_possible.then_some(Self { entries, left_out })
    }

    /// What is kept, oldest first.
    pub fn entries(&self) -> &[TimelineEntry] {
        &self.entries
    }

    /// How many entries are not kept any more.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// After how many entries those are missing that were left out.
    pub fn gap_after(&self) -> Option<usize> {
        (self.left_out > 0).then_some(FIRST_ENTRIES)
    }

    /// How often the task began, of one whose runs so far are `runs`: what goes on where it was does not begin. The
    /// first start is not noted of a task that never was in a queue.
    pub(super) fn starts(&self, runs: u32) -> u32 {
        let noted = self.entries.iter().filter_map(|entry| match entry.transition {
            Transition::Started { attempt } => Some(attempt),
            _ => None,
        });
        let is_first_noted = noted.clone().next() == Some(1);
        let noted = u32::try_from(noted.count()).unwrap_or(u32::MAX);
        if is_first_noted || runs == 0 { noted } else { noted.saturating_add(1) }
    }

    /// Since when no run holds the task, which has begun: since its call left memory, or its host ended.
    pub fn at_rest_since(&self) -> Option<UnixMs> {
        let of_runs = self.entries.iter().rev().find(|entry| entry.transition.is_of_runs())?;
        matches!(of_runs.transition, Transition::Dormant | Transition::Interrupted).then_some(of_runs.at)
    }

    /// Whether nothing was noted yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Notes a transition. A full timeline leaves out the oldest one after the first ones that is no start: those are
    /// few, and counted.
    pub(super) fn note(&mut self, at: UnixMs, transition: Transition) {
        let at = self.entries.last().map_or(at, |last| at.max(last.at));
        if self.entries.len() >= TIMELINE_MAX {
            let is_start = |entry: &TimelineEntry| matches!(entry.transition, Transition::Started { .. });
            let oldest = self.entries.iter().skip(FIRST_ENTRIES).position(|entry| !is_start(entry)).unwrap_or(0);
            self.entries.remove(FIRST_ENTRIES + oldest);
            self.left_out = self.left_out.saturating_add(1);
        }
        self.entries.push(TimelineEntry { at, transition });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_timeline_keeps_the_first_and_the_last_entries_and_counts_the_others() {
        let mut timeline = Timeline::default();
        for attempt in 0..100 {
            timeline.note(attempt.into(), Transition::Started { attempt });
        }
        let times: Vec<_> = timeline.entries().iter().map(|entry| entry.at).collect();
        let expected: Vec<_> = (0..16).chain(52..100).collect();
        assert_eq!((times, timeline.left_out(), timeline.gap_after()), (expected, 36, Some(16)));
        let entries = timeline.entries().to_vec();
        assert_eq!(Timeline::restored(entries.clone(), 36), Some(timeline));
        assert_eq!(Timeline::restored(entries[1..].to_vec(), 36), None, "nothing is left out of a timeline with room");
        let too_many = [entries, vec![TimelineEntry { at: 1, transition: Transition::Paused }]].concat();
        assert_eq!(Timeline::restored(too_many, 0), None);
    }
}
