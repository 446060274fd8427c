//! What is a verdict and what is not.

use futures::FutureExt as _;

use super::*;
use bulkhead_domain::requestor::{RequestorId, TenantId};

const BOUNDS: CanaryThresholds =
    CanaryThresholds { fault_percent_max: 10, latency_percent_max: 150, window_ms: 1_000, calls_min: 20 };

fn version(digest: u8) -> PluginVersion {
    PluginVersion { name: "p".into(), digest: [digest; 32] }
}

/// One of a tenant.
fn requestor(tenant: u8, id: u8) -> Requestor {
    Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
}

/// Whoever calls where it is not said, as on a host without tokens.
fn alone() -> Requestor {
    requestor(0, 0)
}

fn trials(bounds: CanaryThresholds) -> CanaryWatches {
    let trials = CanaryWatches::new(Some(alone()));
    trials.set(vec![CanaryStats { version: version(2), against: Some(version(1)), bounds }]);
    trials
}

fn call(trials: &CanaryWatches, digest: u8, at: UnixMs, took_ms: Option<u64>) {
    call_of(trials, "tool", digest, at, took_ms);
}

fn call_of(trials: &CanaryWatches, tool: &str, digest: u8, at: UnixMs, took_ms: Option<u64>) {
    ended(trials, tool, digest, End { at, requestor: alone(), ..end(took_ms) });
}

fn call_by(trials: &CanaryWatches, requestor: Requestor, digest: u8, took_ms: Option<u64>) {
    ended(trials, "tool", digest, End { requestor, ..end(took_ms) });
}

fn ended(trials: &CanaryWatches, tool: &str, digest: u8, end: End) {
    trials.ended(&version(digest), tool, &end);
}

fn end(took_ms: Option<u64>) -> End {
    let busy = Duration::from_millis(took_ms.unwrap_or_default());
    End { at: 0, requestor: alone(), busy, is_fault: took_ms.is_none(), kept_away: false }
}

fn why(trials: &CanaryWatches) -> Option<String> {
    trials.verdicts().now_or_never().map(|mut verdicts| verdicts.remove(0).why)
}

#[test]
fn canary_faults_give_a_verdict_after_enough_calls() {
    let trials = trials(BOUNDS);
    (0..17).for_each(|_| call(&trials, 2, 0, Some(1)));
    (0..2).for_each(|_| call(&trials, 2, 0, None));
    assert_eq!(why(&trials), None, "too few calls");
    call(&trials, 2, 0, Some(1));
    assert_eq!(why(&trials), None, "as many as are allowed");
    call(&trials, 2, 0, None);
    assert!(why(&trials).is_some_and(|why| why.starts_with("3 of its last 21 calls broke")));
    assert_eq!(trials.call_counts(&version(2), 0), Some(CallCounts { calls: 21, faults: 3 }));
    assert!(why(&trials).is_some(), "it is said until somebody acts");
    trials.set(Vec::new());
    assert_eq!((why(&trials), trials.call_counts(&version(2), 0)), (None, None));
}

#[test]
fn canary_counts_only_its_own_calls_within_window() {
    let trials = trials(BOUNDS);
    (0..10).for_each(|_| call(&trials, 2, 0, None));
    (0..99).for_each(|_| call(&trials, 1, 500, None));
    (0..99).for_each(|at| call(&trials, 2, 1_001 + at, Some(1)));
    assert_eq!(why(&trials), None);
    assert_eq!(trials.call_counts(&version(2), 1_100), Some(CallCounts { calls: 99, faults: 0 }));
    assert_eq!(trials.call_counts(&version(2), 3_000), Some(CallCounts { calls: 0, faults: 0 }));
}

#[test]
fn canary_breaker_refusal_forces_a_verdict() {
    let trials = trials(BOUNDS);
    (0..9).for_each(|_| call(&trials, 2, 0, None));
    assert_eq!(why(&trials), None);
    ended(&trials, "tool", 2, End { kept_away: true, ..end(None) });
    assert!(why(&trials).is_some_and(|why| why.starts_with("10 of its last 10")));
}

#[test]
fn canary_latency_verdict_is_per_tool() {
    let other_mix = trials(BOUNDS);
    for round in 0..100 {
        call_of(&other_mix, "quick", 1, round, Some(2));
        call_of(&other_mix, "slow", 2, round, Some(500));
    }
    for round in 0..30 {
        call_of(&other_mix, "slow", 1, round, Some(500));
        call_of(&other_mix, "quick", 2, round, Some(3));
    }
    assert_eq!(why(&other_mix), None, "as slow as before, only more often");

    let slower = trials(BOUNDS);
    for round in 0..40 {
        call(&slower, 1, round, Some(10));
        call(&slower, 2, round, Some(if round % 8 == 0 { 16 } else { 10 }));
    }
    let said = why(&slower).expect("the slowest twentieth is slower");
    assert!(said.contains("\"tool\" took up to 16000 µs") && said.contains("1.50 times"), "{said}");

    let allowed = trials(CanaryThresholds { latency_percent_max: 0, ..BOUNDS });
    let quick = trials(BOUNDS);
    for round in 0..60 {
        call(&allowed, 1, round, Some(1));
        call(&allowed, 2, round, Some(900));
        call(&quick, 1, round, Some(0));
        call(&quick, 2, round, Some(1));
    }
    assert_eq!((why(&allowed), why(&quick)), (None, None), "it may, and less than a millisecond is no measure");
}

#[test]
fn canary_bounds_change_applies_and_memory_is_bounded() {
    let trials = trials(BOUNDS);
    for tool in 0..TOOLS_MAX * 20 {
        call_of(&trials, &format!("t{tool}"), 2, 0, Some(1));
    }
    assert_eq!(trials.call_counts(&version(2), 0).unwrap().calls, CALLS_MAX);
    assert_eq!(trials.watched.lock()[0].tools.len(), TOOLS_MAX);
    let strict = CanaryThresholds { fault_percent_max: 0, ..BOUNDS };
    trials.set(vec![CanaryStats { version: version(2), against: Some(version(1)), bounds: strict }]);
    assert_eq!(why(&trials), None);
    call(&trials, 2, 0, None);
    assert!(why(&trials).is_some_and(|why| why.contains("the bound is 0 %")));
}

#[test]
fn canary_verdicts_of_all_versions_are_given() {
    let trials = trials(BOUNDS);
    let other = PluginVersion { name: "q".into(), digest: [3; 32] };
    let trial = |version| CanaryStats { version, against: None, bounds: BOUNDS };
    trials.set(vec![trial(version(2)), trial(other.clone())]);
    for _ in 0..20 {
        call(&trials, 2, 0, None);
        trials.ended(&other, "tool", &end(None));
    }
    let failed: Vec<_> = trials.verdicts().now_or_never().unwrap().into_iter().map(|one| one.version).collect();
    assert_eq!(failed, [version(2), other]);
}

#[test]
fn canary_faults_of_one_requestor_give_no_verdict() {
    let anna = requestor(1, 1);
    let ben = requestor(1, 2);
    let carl = requestor(2, 3);
    // Of several requestors of one tenant, and of several tenants: then all of a tenant are as one.
    for (hostile, honest) in [(vec![anna], ben), (vec![anna, ben], carl)] {
        let trials = trials(BOUNDS);
        call_by(&trials, honest, 2, Some(1));
        for one in &hostile {
            (0..500).for_each(|_| call_by(&trials, *one, 2, None));
            ended(&trials, "tool", 2, End { requestor: *one, kept_away: true, ..end(None) });
        }
        for call in 0..40 {
            call_by(&trials, honest, 2, (call % 20 != 0).then_some(1));
            assert_eq!(why(&trials), None, "for the other one, no more breaks than may: {call}");
        }
        // As soon as it breaks for the other one as well, there is a verdict.
        (0..5).for_each(|_| call_by(&trials, honest, 2, None));
        assert!(why(&trials).is_some_and(|why| why.contains("calls broke")));
    }
}

#[test]
fn canary_faults_of_operator_count_without_other_callers() {
    let calls = |others: &[u8]| {
        let trials = trials(BOUNDS);
        others.iter().for_each(|digest| call_by(&trials, requestor(1, 1), *digest, Some(1)));
        (0..30).for_each(|_| call(&trials, 2, 0, None));
        why(&trials).is_some()
    };
    assert_eq!([calls(&[]), calls(&[1]), calls(&[2])], [true, false, false]);
    let stranger = trials(BOUNDS);
    (0..30).for_each(|_| call_by(&stranger, requestor(1, 1), 2, None));
    assert_eq!(why(&stranger), None, "that is one requestor as well");
}

#[test]
fn canary_latency_of_one_requestor_gives_no_verdict() {
    let anna = requestor(1, 1);
    let ben = requestor(1, 2);
    let carl = requestor(1, 3);
    let dora = requestor(1, 4);
    // Anna has the new version and gives it hard work; everybody else has what they always had.
    let hard = trials(BOUNDS);
    // Carl gives the old version nothing to do, so that it looks quick.
    let idle = trials(BOUNDS);
    let slow = trials(BOUNDS);
    for _ in 0..60 {
        for (trials, annas, carls, others) in [(&hard, 900, 10, 10), (&idle, 10, 1, 10), (&slow, 30, 10, 30)] {
            call_by(trials, dora, 1, Some(10));
            (0..30).for_each(|_| call_by(trials, carl, 1, Some(carls)));
            call_by(trials, ben, 2, Some(others));
            call_by(trials, anna, 2, Some(annas));
        }
    }
    assert_eq!((why(&hard), why(&idle)), (None, None));
    assert!(why(&slow).is_some_and(|why| why.contains("took up to 30000")), "it is, for both who have it");
}

#[test]
fn canary_counts_match_the_kept_calls() {
    let trials = trials(CanaryThresholds { fault_percent_max: 100, ..BOUNDS });
    for call in 0..CALLS_MAX * 2 {
        let one = requestor(1, u8::try_from(call % 7).unwrap());
        call_by(&trials, one, 2, (call % 3 == 0).then_some(1));
    }
    let mut watched = trials.watched.lock();
    let parties = watched[0].own.parties(false);
    assert_eq!(parties.values().map(|count| count.calls).sum::<usize>(), CALLS_MAX);
    assert_eq!(parties.values().map(|count| count.faults).sum::<usize>(), watched[0].own.whole().faults);
    watched[0].own.forget_before(1);
    assert_eq!((watched[0].own.parties(true).len(), watched[0].own.whole()), (0, Count::default()));
}
