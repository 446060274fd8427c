use futures::FutureExt;

use super::*;
use crate::domain::requestor::RequestorId;

pub(in crate::tasks) fn limits() -> Limits {
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
        failed_lookups_per_minute: 1_000_000,
        failed_lookups_block_ms: 60_000,
        early_polls_per_minute: 1_000_000,
    }
}

fn requestor(tenant: u8, id: u8) -> Requestor {
    Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
}

fn admission() -> Arc<Admission> {
    Admission::new(LimitsTable { base: Arc::new(limits()), tenants: HashMap::new() }, 4)
}

fn granted(ticket: &mut Ticket) -> Option<Permit> {
    ticket.permit().now_or_never().flatten()
}

#[test]
fn the_narrowest_limit_refuses_and_is_named() {
    let admission = admission();
    let (a, b, c) = (requestor(1, 1), requestor(1, 2), requestor(2, 3));
    let _two = [admission.try_permit(&a, Purpose::Plain).unwrap(), admission.try_permit(&a, Purpose::Task).unwrap()];
    assert_eq!(admission.blocked(&a, Purpose::Plain).unwrap().limit, "calls_running_per_requestor");
    let _third = admission.try_permit(&b, Purpose::Plain).unwrap();
    assert_eq!(admission.blocked(&b, Purpose::Plain).unwrap().limit, "calls_running_per_tenant");
    let _fourth = admission.try_permit(&c, Purpose::Plain).unwrap();
    assert_eq!(admission.blocked(&c, Purpose::Plain).unwrap().limit, "calls_running_total");
    assert!(admission.try_permit(&c, Purpose::Plain).is_none());
}

#[test]
fn one_requestor_is_served_in_order() {
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
fn a_full_requestor_takes_nobody_elses_place() {
    let admission = admission();
    let (flood, other) = (requestor(1, 1), requestor(2, 2));
    let _running =
        [admission.try_permit(&flood, Purpose::Plain).unwrap(), admission.try_permit(&flood, Purpose::Plain).unwrap()];
    let _waiting: Vec<_> = (0..8).map(|_| admission.enqueue(&flood, Purpose::Plain).unwrap()).collect();
    assert!(admission.enqueue(&flood, Purpose::Plain).is_err(), "plain waiters are bounded");
    assert!(admission.try_permit(&other, Purpose::Plain).is_some());
}

#[test]
fn requestors_and_tenants_take_turns() {
    let admission = admission();
    let all = [requestor(1, 1), requestor(2, 2), requestor(3, 3), requestor(4, 4)];
    let full: Vec<_> = all.iter().map(|requestor| admission.try_permit(requestor, Purpose::Plain).unwrap()).collect();
    // The first asks four times before the others ask once.
    let mut tickets: Vec<_> =
        [0, 0, 0, 0, 1, 2].map(|who| (who, admission.enqueue(&all[who], Purpose::Plain).unwrap())).into();
    drop(full);
    let mut served: Vec<_> =
        tickets.iter_mut().filter_map(|(who, ticket)| granted(ticket).map(|permit| (*who, permit))).collect();
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
fn a_ticket_that_is_dropped_leaves_the_queue() {
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
fn resting_frees_a_place_and_is_limited_itself() {
    let admission = admission();
    let a = requestor(1, 1);
    let _waiting = admission.hold(&a, Hold::Waiting).unwrap();
    let full = admission.hold(&a, Hold::Waiting).unwrap_err();
    assert_eq!(full, Full { limit: "tasks_waiting_per_requestor", value: 1 });
    drop(_waiting);
    assert!(admission.hold(&a, Hold::Waiting).is_ok());
}

#[test]
fn nothing_is_remembered_of_those_who_left() {
    let admission = admission();
    for n in 0..200 {
        let who = requestor(n, n);
        let permit = admission.try_permit(&who, Purpose::Plain);
        let ticket = admission.enqueue(&who, Purpose::Task);
        drop(permit);
        drop(ticket);
        drop(admission.hold(&who, Hold::Queued));
    }
    let state = lock(&admission.state);
    assert_eq!((state.running, state.requestors.len(), state.tenants.len()), (0, 0, 0));
    assert!(state.turns.len() <= 1, "turns are cleared as they come up: {}", state.turns.len());
}

#[test]
fn resting_calls_leave_instances_for_the_running() {
    let admission = admission();
    let one = [admission.hold(&requestor(1, 1), Hold::Waiting), admission.hold(&requestor(1, 2), Hold::Paused)];
    assert!(one.iter().all(Result::is_ok));
    let third = admission.hold(&requestor(1, 3), Hold::Waiting).unwrap_err();
    assert_eq!(third.limit, "calls_resting_total", "one tenant gets half");
    let other = [admission.hold(&requestor(2, 4), Hold::Waiting), admission.hold(&requestor(3, 5), Hold::Waiting)];
    assert!(other.iter().all(Result::is_ok));
    assert!(admission.hold(&requestor(4, 6), Hold::Waiting).is_err());
    assert!(admission.hold(&requestor(4, 6), Hold::Queued).is_ok(), "a queued task holds no instance");
}
