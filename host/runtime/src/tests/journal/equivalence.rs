//! What is asked of every tool: recorded once, replayed twice.

use std::sync::atomic::Ordering;

use super::outside::REACHED;
use super::*;
use crate::tests::loading::expect_portable;

/// What becomes of a call of a tool.
enum Then {
    Replays,
    Restarts(Reason),
}

/// One call of a tool.
pub(super) struct Case {
    tool: &'static str,
    arguments: Value,
    levers: Levers,
    then: Then,
}

pub(super) fn replays(tool: &'static str, arguments: Value) -> Case {
    Case { tool, arguments, levers: Levers::default(), then: Then::Replays }
}

pub(super) fn restarts(tool: &'static str, arguments: Value, reason: Reason) -> Case {
    Case { tool, arguments, levers: Levers::default(), then: Then::Restarts(reason) }
}

impl Case {
    pub(super) fn steered(mut self, text: &'static str) -> Self {
        self.levers.steer = Some(text);
        self
    }

    pub(super) fn cancelled(mut self) -> Self {
        self.levers.cancel = true;
        self
    }

    pub(super) async fn check(&self, place: &Place) -> Outcome {
        let Self { tool, arguments, levers, then } = self;
        let (outcome, recorded) = place.record(tool, arguments, *levers).await;
        if let Then::Restarts(reason) = then {
            assert_eq!(recorded.status, JournalStatus::Demoted(*reason), "{tool}: {outcome:?}");
            assert!(recorded.history.0.is_empty() && !reason.to_string().is_empty(), "{tool}");
            return outcome;
        }
        assert_eq!(recorded.status, JournalStatus::Ended, "{tool} with {arguments}: {outcome:?}");
        for _ in 0..2 {
            let (again, replayed) = place.replay(tool, arguments, recorded.history.clone()).await;
            assert_eq!(comparable(&again), comparable(&outcome), "{tool} with {arguments}: {:?}", replayed.status);
            assert_eq!(replayed, recorded, "{tool} with {arguments}");
        }
        eprintln!("{tool}: {} steps, {} entries, {} bytes", recorded.steps, recorded.entries, recorded.history.0.len());
        outcome
    }
}

/// Checks all of these, which have to be of all tools of a plugin but the endless ones.
pub(super) async fn check(plugin: &str, grant: impl FnOnce(&mut PluginSource), endless: &[&str], cases: &[Case]) {
    if let Some(place) = Place::of(plugin, grant).await {
        expect_portable(plugin, place.house.sandbox.catalog().tools());
        check_place(&place, endless, cases).await;
    }
}

/// The same for a plugin that is already there.
pub(super) async fn check_place(place: &Place, endless: &[&str], cases: &[Case]) {
    for entry in place.house.sandbox.catalog().tools() {
        let name = entry.tool.name.as_str();
        let is_known = endless.contains(&name) || cases.iter().any(|case| case.tool == name);
        assert!(is_known, "{name} is never recorded");
    }
    for case in cases {
        let _outcome = case.check(place).await;
    }
    assert_eq!(REACHED.load(Ordering::SeqCst), 0, "replays reached what is outside");
}
