use futures::FutureExt;

use std::collections::HashMap;

use super::*;
use bulkhead_domain::limits::LimitsTable;
use bulkhead_domain::requestor::RequestorId;

pub(crate) fn limits() -> Limits {
    Limits {
        calls_running_per_requestor: 2,
        calls_running_per_tenant: 3,
        calls_running_total: 4,
        call_queue_ms_max: 100,
        tasks_running_per_requestor: 2,
        tasks_queued_per_requestor: 3,
        tasks_waiting_per_requestor: 1,
        tasks_paused_per_requestor: 1,
        tasks_stored_per_requestor: 10,
        tasks_stored_bytes_per_requestor: 1_000_000,
        tasks_stored_per_tenant: 100,
        tasks_stored_bytes_per_tenant: 10_000_000,
        requests_per_second: 100,
        task_creations_per_second: 100,
        ttl_ms_default: 1_000,
        ttl_ms_max: 10_000,
        ttl_unlimited: false,
        steer_queue: 4,
        steer_bytes_max: 100,
        calls_queued_per_requestor: 8,
        ..Limits::generous()
    }
}

fn requestor(tenant: u8, id: u8) -> Requestor {
    Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
}

#[test]
fn task_limit_leaves_permits_to_plain_calls() {
    let limits = Limits {
        calls_running_per_requestor: 3,
        calls_running_per_tenant: 5,
        calls_running_total: 10,
        tasks_running_per_requestor: 2,
        tasks_running_per_tenant: 3,
        ..limits()
    };
    let admission = Admission::new(limits.into(), 4);
    let a = requestor(1, 1);
    let b = requestor(1, 2);
    let task = |who: &Requestor| admission.try_permit(who, Purpose::Task);
    let plain = |who: &Requestor| admission.try_permit(who, Purpose::Plain);
    let full = |who: &Requestor| admission.blocked(who, Purpose::Task).unwrap().limit;
    let first = (task(&a).unwrap(), task(&a).unwrap());
    assert!(task(&a).is_none());
    assert_eq!(full(&a), "tasks_running_per_requestor");
    let mut call = plain(&a).unwrap();
    let second = task(&b).unwrap();
    assert!(task(&b).is_none());
    assert_eq!(full(&b), "tasks_running_per_tenant");
    let other = plain(&b).unwrap();
    // A call that is to become a task is held to the same.
    drop(first.0);
    assert_eq!(call.become_task().now_or_never(), Some(Ok(())));
    call.become_plain();
    let third = task(&b).unwrap();
    assert_eq!(call.become_task().now_or_never().unwrap().unwrap_err().limit, "tasks_running_per_tenant");
    drop((first.1, call, second, other, third));
    assert_eq!(admission.state.lock().counts.total(), Sums::default());
}

fn admission() -> Arc<Admission> {
    Admission::new(Limits { calls_resting_per_tenant: 2, ..limits() }.into(), 4)
}

fn granted(request: &mut PermitRequest) -> Option<Permit> {
    request.permit().now_or_never().flatten()
}

#[test]
fn admission_refusal_names_the_limit() {
    let admission = admission();
    let a = requestor(1, 1);
    let b = requestor(1, 2);
    let c = requestor(2, 3);
    let _two = [admission.try_permit(&a, Purpose::Plain).unwrap(), admission.try_permit(&a, Purpose::Task).unwrap()];
    assert_eq!(admission.blocked(&a, Purpose::Plain).unwrap().limit, "calls_running_per_requestor");
    let _third = admission.try_permit(&b, Purpose::Plain).unwrap();
    assert_eq!(admission.blocked(&b, Purpose::Plain).unwrap().limit, "calls_running_per_tenant");
    let _fourth = admission.try_permit(&c, Purpose::Plain).unwrap();
    assert_eq!(admission.blocked(&c, Purpose::Plain).unwrap().limit, "calls_running_total");
    assert!(admission.try_permit(&c, Purpose::Plain).is_none());
}

#[test]
fn call_that_would_be_a_task_gets_the_next_place_before_new_tasks() {
    let limits = Limits { calls_running_per_requestor: 3, tasks_running_per_requestor: 1, ..limits() };
    let admission = Admission::new(limits.into(), 4);
    let a = requestor(1, 1);
    let running = admission.try_permit(&a, Purpose::Task).unwrap();
    let mut call = admission.try_permit(&a, Purpose::Plain).unwrap();
    let mut given_up = admission.enqueue(&a, Purpose::Promotion).unwrap();
    let mut task = admission.enqueue(&a, Purpose::Task).unwrap();
    let mut promotion = admission.enqueue(&a, Purpose::Promotion).unwrap();
    assert!(granted(&mut given_up).is_none() && granted(&mut promotion).is_none());
    assert!(admission.try_permit(&a, Purpose::Plain).is_some(), "plain calls do not stand behind them");
    drop(given_up);
    drop(running);
    call.take_place(granted(&mut promotion).unwrap());
    assert_eq!(admission.sums_of(&a), Sums { running: 1, running_tasks: 1, ..Sums::default() });
    assert!(granted(&mut task).is_none(), "it is no second running task");
    drop(call);
    assert!(granted(&mut task).is_some());
    drop((task, promotion));
    assert_eq!(admission.state.lock().counts.total(), Sums::default());
}

#[test]
fn admission_serves_a_requestor_in_order() {
    let admission = admission();
    let a = requestor(1, 1);
    let mut running =
        vec![admission.try_permit(&a, Purpose::Task).unwrap(), admission.try_permit(&a, Purpose::Task).unwrap()];
    let mut first = admission.enqueue(&a, Purpose::Task).unwrap();
    let mut second = admission.enqueue(&a, Purpose::Task).unwrap();
    assert!(granted(&mut first).is_none());
    running.pop();
    assert!(granted(&mut second).is_none(), "the second does not overtake");
    let _first = granted(&mut first).unwrap();
    running.pop();
    assert!(granted(&mut second).is_some());
}

#[test]
fn full_requestor_takes_no_permit_of_others() {
    let admission = admission();
    let flood = requestor(1, 1);
    let other = requestor(2, 2);
    let _running =
        [admission.try_permit(&flood, Purpose::Plain).unwrap(), admission.try_permit(&flood, Purpose::Plain).unwrap()];
    let _waiting: Vec<_> = (0..8).map(|_| admission.enqueue(&flood, Purpose::Plain).unwrap()).collect();
    assert!(admission.enqueue(&flood, Purpose::Plain).is_err(), "plain waiters are bounded");
    assert!(admission.try_permit(&other, Purpose::Plain).is_some());
}

#[test]
fn admission_alternates_between_requestors_and_tenants() {
    let admission = admission();
    let all = [requestor(1, 1), requestor(2, 2), requestor(3, 3), requestor(4, 4)];
    let full: Vec<_> = all.iter().map(|requestor| admission.try_permit(requestor, Purpose::Plain).unwrap()).collect();
    // The first asks four times before the others ask once.
    let mut requests: Vec<_> =
        [0, 0, 0, 0, 1, 2].map(|who| (who, admission.enqueue(&all[who], Purpose::Plain).unwrap())).into();
    drop(full);
    let mut served: Vec<_> =
        requests.iter_mut().filter_map(|(who, request)| granted(request).map(|permit| (*who, permit))).collect();
    served.sort_by_key(|(who, _)| *who);
    let who: Vec<_> = served.iter().map(|(who, _)| *who).collect();
    assert_eq!(who, [0, 0, 1, 2], "four places: two for the one who asked most, and one for each other");
}

#[test]
fn plain_calls_do_not_stand_behind_queued_tasks() {
    let admission = admission();
    let a = requestor(1, 1);
    let mut running =
        vec![admission.try_permit(&a, Purpose::Task).unwrap(), admission.try_permit(&a, Purpose::Task).unwrap()];
    let mut task = admission.enqueue(&a, Purpose::Task).unwrap();
    let mut plain = admission.enqueue(&a, Purpose::Plain).unwrap();
    running.pop();
    assert!(granted(&mut task).is_none());
    assert!(granted(&mut plain).is_some());
}

#[test]
fn dropped_permit_request_leaves_the_queue() {
    let admission = admission();
    let a = requestor(1, 1);
    let mut running =
        vec![admission.try_permit(&a, Purpose::Task).unwrap(), admission.try_permit(&a, Purpose::Task).unwrap()];
    let left = admission.enqueue(&a, Purpose::Task).unwrap();
    let mut stays = admission.enqueue(&a, Purpose::Task).unwrap();
    drop(left);
    running.pop();
    assert!(granted(&mut stays).is_some());
}

#[test]
fn waiting_tasks_are_limited_per_requestor() {
    let admission = admission();
    let a = requestor(1, 1);
    let _waiting = admission.hold(&a, IdleState::Waiting).unwrap();
    let full = admission.hold(&a, IdleState::Waiting).unwrap_err();
    assert_eq!(full, Full { limit: "tasks_waiting_per_requestor", value: 1 });
    drop(_waiting);
    assert!(admission.hold(&a, IdleState::Waiting).is_ok());
}

#[test]
fn admission_forgets_idle_requestors() {
    let admission = admission();
    for n in 0..200 {
        let who = requestor(n, n);
        let permit = admission.try_permit(&who, Purpose::Plain);
        let request = admission.enqueue(&who, Purpose::Task);
        drop(permit);
        drop(request);
        drop(admission.hold(&who, IdleState::Queued));
    }
    let state = admission.state.lock();
    assert_eq!((state.counts.total(), state.counts.holders().len(), state.counts.tenants().len()), (NOTHING, 0, 0));
    assert!(state.queues.is_empty());
    assert!(state.turns.len() <= 1, "turns are cleared as they come up: {}", state.turns.len());
}

#[test]
fn resting_calls_are_limited_per_tenant_and_total() {
    let admission = admission();
    let one =
        [admission.hold(&requestor(1, 1), IdleState::Waiting), admission.hold(&requestor(1, 2), IdleState::Stopped)];
    assert!(one.iter().all(Result::is_ok));
    let third = admission.hold(&requestor(1, 3), IdleState::Waiting).unwrap_err();
    assert_eq!(third.limit, "calls_resting_per_tenant");
    let other =
        [admission.hold(&requestor(2, 4), IdleState::Waiting), admission.hold(&requestor(3, 5), IdleState::Waiting)];
    assert!(other.iter().all(Result::is_ok));
    assert!(admission.hold(&requestor(4, 6), IdleState::Waiting).is_err());
    assert!(admission.hold(&requestor(4, 6), IdleState::Queued).is_ok(), "a queued task holds no instance");
    assert!(admission.hold(&requestor(4, 6), IdleState::Paused).is_ok(), "nor does a paused one of its own");
}

#[test]
fn tenant_admission_limits_hold_for_many_requestors() {
    let limits = Limits {
        calls_running_per_tenant: 3,
        calls_queued_per_tenant: 4,
        tasks_queued_per_tenant: 5,
        tasks_waiting_per_tenant: 2,
        tasks_paused_per_tenant: 1,
        calls_resting_per_tenant: 16,
        calls_running_total: 100,
        ..Limits::generous()
    };
    let admission = Admission::new(limits.into(), 100);
    let everybody = || (0..=255).map(|id| requestor(1, id));
    let running: Vec<_> = everybody().filter_map(|who| admission.try_permit(&who, Purpose::Plain)).collect();
    assert_eq!(running.len(), 3);
    let lined_up: Vec<_> = everybody().map(|who| admission.enqueue(&who, Purpose::Plain)).collect();
    assert_eq!(lined_up.iter().filter(|request| request.is_ok()).count(), 4);
    let refused = lined_up.iter().find_map(|request| request.as_ref().err()).unwrap();
    assert_eq!(*refused, Full { limit: "calls_queued_per_tenant", value: 4 });
    for (hold, limit, value) in [
        (IdleState::Queued, "tasks_queued_per_tenant", 5),
        (IdleState::Waiting, "tasks_waiting_per_tenant", 2),
        (IdleState::Paused, "tasks_paused_per_tenant", 1),
    ] {
        let held: Vec<_> = everybody().map(|who| admission.hold(&who, hold)).collect();
        assert_eq!(held.iter().filter(|held| held.is_ok()).count(), value);
        let refused = held.iter().find_map(|held| held.as_ref().err()).unwrap();
        assert_eq!(*refused, Full { limit, value: value as u64 });
        let other = requestor(2, 1);
        assert!(admission.hold(&other, hold).is_ok(), "another tenant has places of its own");
    }
    assert!(admission.try_permit(&requestor(2, 1), Purpose::Plain).is_some());
}

/// Small, fast, and the same everywhere.
fn draw(state: &mut u64, below: u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % below) as usize
}

/// Everything that somebody has at a moment, as its holders see it: nothing of it is what the admission counts itself.
#[derive(Default)]
struct Everything {
    permits: Vec<(Requestor, Permit)>,
    lined_up: Vec<(Requestor, Purpose, PermitRequest)>,
    holds: Vec<(Requestor, IdleState, IdleSlot)>,
}

impl Everything {
    /// Takes the permits that were granted meanwhile.
    fn collect(&mut self) {
        let mut at = 0;
        while at < self.lined_up.len() {
            match granted(&mut self.lined_up[at].2) {
                Some(permit) => {
                    let (who, ..) = self.lined_up.swap_remove(at);
                    self.permits.push((who, permit));
                }
                None => at += 1,
            }
        }
    }

    /// Running, lined up, queued, waiting, paused and stopped, of those who are meant.
    fn counts(&self, meant: impl Fn(&Requestor) -> bool) -> [u32; 6] {
        let holds = |wanted| self.holds.iter().filter(|(who, hold, _)| *hold == wanted && meant(who)).count() as u32;
        let plain = |purpose| matches!(purpose, Purpose::Plain);
        [
            self.permits.iter().filter(|(who, _)| meant(who)).count() as u32,
            self.lined_up.iter().filter(|(who, purpose, _)| plain(*purpose) && meant(who)).count() as u32,
            holds(IdleState::Queued),
            holds(IdleState::Waiting),
            holds(IdleState::Paused),
            holds(IdleState::Stopped),
        ]
    }
}

fn drop_one<T>(from: &mut Vec<T>, random: &mut u64) {
    if !from.is_empty() {
        let at = draw(random, from.len() as u64);
        from.swap_remove(at);
    }
}

fn within(counts: [u32; 6], maxima: [u32; 6], resting: u32, what: &str) {
    assert!(counts.iter().zip(maxima).all(|(count, max)| *count <= max), "{what}: {counts:?} of {maxima:?}");
    assert!(counts[3] + counts[5] <= resting, "{what}: {counts:?} rest");
}

#[test]
fn random_admission_never_exceeds_tenant_limits() {
    let base = Limits {
        calls_running_per_tenant: 4,
        calls_running_total: 7,
        calls_queued_per_tenant: 3,
        calls_queued_total: 5,
        tasks_running_per_requestor: 1,
        tasks_queued_per_tenant: 4,
        tasks_queued_total: 6,
        tasks_waiting_per_requestor: 3,
        tasks_waiting_per_tenant: 4,
        tasks_paused_per_requestor: 2,
        tasks_paused_per_tenant: 3,
        calls_resting_per_tenant: 5,
        ..limits()
    };
    let own =
        Limits { calls_running_per_tenant: 2, tasks_queued_per_tenant: 1, calls_resting_per_tenant: 1, ..base.clone() };
    let tenants = [(TenantId([3; 16]), Arc::new(own))].into();
    for seed in 0..200 {
        let mut random = seed;
        let table = LimitsTable { base: Arc::new(base.clone()), tenants: HashMap::clone(&tenants) };
        let admission = Admission::new(table.clone().into(), 8);
        let mut held = Everything::default();
        for _ in 0..400 {
            let who = requestor(1 + draw(&mut random, 3) as u8, draw(&mut random, 12) as u8);
            let purpose = [Purpose::Plain, Purpose::Task, Purpose::Again { task: true }][draw(&mut random, 3)];
            let hold =
                [IdleState::Queued, IdleState::Waiting, IdleState::Paused, IdleState::Stopped][draw(&mut random, 4)];
            match draw(&mut random, 8) {
                0 | 1 => held.permits.extend(admission.try_permit(&who, purpose).map(|permit| (who, permit))),
                2 => held.lined_up.extend(admission.enqueue(&who, purpose).ok().map(|request| (who, purpose, request))),
                3 | 4 => held.holds.extend(admission.hold(&who, hold).ok().map(|place| (who, hold, place))),
                5 => drop_one(&mut held.permits, &mut random),
                6 => drop_one(&mut held.lined_up, &mut random),
                _ => drop_one(&mut held.holds, &mut random),
            }
            held.collect();
            for tenant in 1..=3 {
                let limits = table.of(&requestor(tenant, 0));
                let maxima = [
                    limits.calls_running_per_tenant,
                    limits.calls_queued_per_tenant,
                    limits.tasks_queued_per_tenant,
                    limits.tasks_waiting_per_tenant,
                    limits.tasks_paused_per_tenant,
                    limits.calls_resting_per_tenant,
                ];
                let counts = held.counts(|who| who.tenant == TenantId([tenant; 16]));
                within(counts, maxima, limits.calls_resting_per_tenant, &format!("seed {seed}, tenant {tenant}"));
            }
            let maxima = [base.calls_running_total, base.calls_queued_total, base.tasks_queued_total, 8, u32::MAX, 8];
            within(held.counts(|_| true), maxima, 8, &format!("seed {seed}, the host"));
        }
        drop(held);
        let State { counts, queues, .. } = &*admission.state.lock();
        let left = (counts.total(), counts.tenants().len(), counts.holders().len(), queues.len());
        assert_eq!(left, (NOTHING, 0, 0, 0), "seed {seed}");
    }
}
