//! How often clients should ask for a task, by how long its tool usually takes.

use std::collections::HashMap;

use parking_lot::Mutex;

use bulkhead_domain::requestor::Requestor;

/// Polls that a task of usual length should see.
const POLLS_PER_TASK: u64 = 5;
const POLL_INTERVAL_MS_MIN: u64 = 100;
/// What a client is told at most about when to ask again, in milliseconds.
const POLL_INTERVAL_MS_MAX: u64 = 10_000;
/// For a tool that this requestor has not run yet.
const POLL_INTERVAL_MS_DEFAULT: u32 = 500;
/// Poll intervals kept; beyond it everything is learned again, which costs a few polls and bounds the memory.
const POLL_INTERVALS_MAX: usize = 10_000;

/// How long tools take, for the poll interval that clients are told. Learned per requestor, never across: how long a
/// tool takes for one says something about what it was asked.
#[derive(Debug, Default)]
pub(crate) struct PollIntervals {
    usual_ms: Mutex<HashMap<(Requestor, String), u64>>,
}

impl PollIntervals {
    pub(crate) fn learn(&self, requestor: &Requestor, tool: &str, took_ms: u64) {
        let mut usual_ms = self.usual_ms.lock();
        if usual_ms.len() >= POLL_INTERVALS_MAX {
            usual_ms.clear();
        }
        let usual = usual_ms.entry((*requestor, tool.to_owned())).or_insert(took_ms);
        *usual = (*usual * 3).saturating_add(took_ms) / 4;
    }

    pub(crate) fn poll_interval_ms(&self, requestor: &Requestor, tool: &str) -> u32 {
        let usual_ms = self.usual_ms.lock().get(&(*requestor, tool.to_owned())).copied();
        usual_ms.map_or(POLL_INTERVAL_MS_DEFAULT, |usual_ms| {
            (usual_ms / POLLS_PER_TASK).clamp(POLL_INTERVAL_MS_MIN, POLL_INTERVAL_MS_MAX) as u32
        })
    }
}
