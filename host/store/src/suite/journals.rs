//! One suite of facts about journals, for every store.

use std::sync::Arc;

use super::{Bed, create};
use crate::journal::{Append, HeadAfter, JournalHead, JournalState, PIECE_BYTES, TaskRef};
use crate::keyvalue::{Condition, KeyValueError, KeyValueNamespace, KeyValues};
use crate::samples::{WIDE, completion, creation, journal_head, output, requestor, tail, task, task_id};
use crate::{Change, Creation, Error, RowKind, Store, StoredCaps, Usage};
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, Phase, Task};

facts!(
    journal_grows_piece_by_piece,
    journal_append_that_does_not_go_on_is_fenced,
    journal_append_of_ended_or_absent_task_is_fenced,
    journal_begins_with_the_run_of_the_record,
    journal_grows_with_its_record_or_not_at_all,
    journal_grows_with_rows_or_not_at_all,
    journal_grows_with_kept_values,
    journal_is_taken_over_with_a_later_attempt,
    journal_of_a_run_that_was_not_taken_over_goes,
    journal_goes_with_the_end_of_its_task,
    journal_may_outlive_the_end_of_its_task,
    journal_goes_with_its_task,
    journal_loses_its_pieces_when_demoted,
    journal_is_replaced_in_one_step,
    long_journal_is_removed_to_the_last_row,
    journal_bytes_count_as_stored,
    journal_quota_is_checked_with_the_append,
    journal_of_an_erased_tenant_goes_alone,
    journal_of_a_blocked_tenant_does_not_grow,
    journal_rows_are_written_by_appends_only,
    journal_survives_reopening,
    concurrent_journal_appends_have_one_winner,
);

/// A task that runs for the second time.
async fn running(store: &dyn Store, owner: Requestor, number: u64) -> Task {
    create(store, Task { phase: Phase::Active(Active::Running), attempt: 2, ..task(owner, number) }).await
}

async fn append(store: &dyn Store, task: &Task, append: Append) -> Result<JournalHead, Error> {
    store.append(&task.requestor, task.id, append).await
}

async fn bytes(store: &dyn Store, task: &Task) -> Vec<u8> {
    store.journal_bytes(&task.requestor, task.id).await.unwrap()
}

async fn head(store: &dyn Store, task: &Task) -> Option<JournalHead> {
    store.journal(&task.requestor, task.id).await.unwrap()
}

async fn rows(store: &dyn Store) -> usize {
    store.rows(RowKind::Journal, None, 100_000).await.unwrap().len()
}

fn with_journal(task: &Task, append: Append) -> Change {
    Change { journal: Some(append), ..Change::of(task.clone()) }
}

fn stream(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

fn is_fenced<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Fenced))
}

async fn journal_grows_piece_by_piece(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    assert_eq!(head(&*store, &run).await, None);
    assert_eq!(bytes(&*store, &run).await, b"");
    let mut whole = Vec::new();
    let mut at_row = 0;
    for length in [1, 0, PIECE_BYTES, PIECE_BYTES + 1, 40_000, 300_000, 5] {
        let more = tail(2, at_row, &stream(length));
        at_row = more.rows_after();
        whole.extend(stream(length));
        let after = append(&*store, &run, more).await.unwrap();
        let expected = JournalHead { rows: at_row, bytes: whole.len() as u64, ..journal_head() };
        assert_eq!(after, expected);
        assert_eq!(head(&*store, &run).await, Some(expected));
        assert!(bytes(&*store, &run).await == whole);
    }
    assert_eq!(rows(&*store).await, 1 + at_row as usize);
    for other in [requestor(1, 2), requestor(2, 1)] {
        assert_eq!(store.journal(&other, run.id).await.unwrap(), None);
        assert_eq!(store.journal_bytes(&other, run.id).await.unwrap(), b"");
    }
    assert_eq!(store.get(&run.requestor, run.id).await.unwrap(), Some(run));
}

async fn journal_append_that_does_not_go_on_is_fenced(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    append(&*store, &run, tail(2, 0, &stream(PIECE_BYTES + 1))).await.unwrap();
    for (attempt, at_row) in [(2, 0), (2, 1), (2, 3), (1, 2), (3, 2), (1, 0), (3, 0)] {
        assert!(is_fenced(append(&*store, &run, tail(attempt, at_row, b"x")).await), "{attempt} at {at_row}");
    }
    assert_eq!(bytes(&*store, &run).await, stream(PIECE_BYTES + 1));
    append(&*store, &run, tail(2, 2, b"x")).await.unwrap();
}

async fn journal_append_of_ended_or_absent_task_is_fenced(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let run = running(&*store, owner, 1).await;
    assert!(is_fenced(store.append(&owner, task_id(9), tail(2, 0, b"x")).await));
    assert!(is_fenced(store.append(&requestor(1, 2), run.id, tail(2, 0, b"x")).await));
    let ended = store.commit(completion(&run, output("done"))).await.unwrap();
    assert!(is_fenced(append(&*store, &run, tail(2, 0, b"x")).await));
    assert!(is_fenced(store.commit(with_journal(&ended, tail(2, 0, b"x"))).await));
    assert_eq!(store.get(&owner, run.id).await.unwrap(), Some(ended));
    assert_eq!(rows(&*store).await, 0);
}

async fn journal_begins_with_the_run_of_the_record(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    // A lost run whose journal was empty has nothing else that would stop it.
    assert!(is_fenced(append(&*store, &run, tail(1, 0, b"late")).await));
    append(&*store, &run, tail(2, 0, b"x")).await.unwrap();
    let long = Task { steering: vec!["s".repeat(9_000)], ..task(requestor(1, 1), 2) };
    let run = create(&*store, Task { attempt: 5, ..long }).await;
    assert!(is_fenced(append(&*store, &run, tail(2, 0, b"late")).await));
    append(&*store, &run, tail(5, 0, b"x")).await.unwrap();
}

async fn journal_grows_with_its_record_or_not_at_all(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let promoted = Creation { journal: Some(tail(1, 0, b"first ")), ..creation(Task { attempt: 1, ..task(owner, 1) }) };
    let wrong = Creation { journal: Some(tail(2, 0, b"first ")), ..promoted.clone() };
    assert!(is_fenced(store.create(wrong).await));
    let late = Creation { journal: Some(tail(1, 3, b"first ")), ..promoted.clone() };
    assert!(is_fenced(store.create(late).await));
    assert_eq!(store.get(&owner, task_id(1)).await.unwrap(), None);
    let run = store.create(promoted.clone()).await.unwrap();
    assert!(matches!(store.create(promoted).await, Err(Error::Exists)));

    let asked = Task { status_message: Some("asked".to_owned()), ..run.clone() };
    assert!(is_fenced(store.commit(with_journal(&asked, tail(1, 0, b"second"))).await));
    assert!(is_fenced(store.commit(with_journal(&asked, tail(2, 1, b"second"))).await));
    assert_eq!(store.get(&owner, run.id).await.unwrap(), Some(run.clone()));
    let asked = store.commit(with_journal(&asked, tail(1, 1, b"second"))).await.unwrap();
    assert_eq!(asked.status_message.as_deref(), Some("asked"));
    // A record that another writer has changed takes the append along.
    assert!(matches!(store.commit(with_journal(&run, tail(1, 2, b"third"))).await, Err(Error::Conflict)));
    assert_eq!(bytes(&*store, &run).await, b"first second");
    assert_eq!(head(&*store, &run).await.unwrap().rows, 2);
    // Other changes leave it alone.
    let steered = Task { steering: vec!["go".to_owned()], ..asked };
    store.commit(Change::of(steered)).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"first second");
}

async fn journal_grows_with_rows_or_not_at_all(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    let row = |value: &str| (b"k".to_vec(), Some(value.as_bytes().to_vec()));
    let name = TaskRef::of(&run);
    let change = |expected, changed, append| {
        store.change_rows(RowKind::Plugin, vec![expected], vec![changed], Some((name, append)))
    };
    change((b"k".to_vec(), None), row("1"), tail(2, 0, b"one")).await.unwrap();
    assert!(is_fenced(change(row("1"), row("2"), tail(2, 0, b"two")).await));
    assert!(is_fenced(change(row("1"), row("2"), tail(1, 1, b"two")).await));
    assert!(matches!(change(row("0"), row("2"), tail(2, 1, b"two")).await, Err(Error::Conflict)));
    assert_eq!(store.row(RowKind::Plugin, b"k").await.unwrap(), row("1").1);
    assert_eq!(bytes(&*store, &run).await, b"one");
    change(row("1"), row("2"), tail(2, 1, b" two")).await.unwrap();
    assert_eq!(store.row(RowKind::Plugin, b"k").await.unwrap(), row("2").1);
    assert_eq!(bytes(&*store, &run).await, b"one two");
}

async fn journal_grows_with_kept_values(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    let kept = KeyValues::new(Arc::clone(&store));
    let space = KeyValueNamespace { tenant: run.requestor.tenant, plugin: "p".into() };
    let limits = KeyValueLimits { keys_max: 9, bytes_max: 20_000, value_bytes_max: 20_000 };
    let beside = |at_row, bytes: &[u8]| Some((TaskRef::of(&run), tail(2, at_row, bytes)));
    kept.set(&space, &limits, "k", &[1; 9_000], None, beside(0, b"set ")).await.unwrap();
    let seen = |value: Option<&[u8]>| value.is_some_and(|value| value.len() == 9_000);
    let condition = || Condition { is_expected: &seen, now: 0 };
    assert!(kept.set_if(&space, &limits, "k", b"2", condition(), beside(1, b"swap ")).await.unwrap());
    assert!(!kept.set_if(&space, &limits, "k", b"3", condition(), beside(2, b"no ")).await.unwrap());
    kept.delete(&space, "k", beside(2, b"delete ")).await.unwrap();
    kept.delete(&space, "k", beside(3, b"again")).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"set swap delete again");

    // Who is fenced has kept nothing, is not tried again, and uses up no quota.
    let fenced = kept.set(&space, &limits, "k", &[1; 15_000], None, beside(0, b"late")).await;
    assert!(matches!(fenced, Err(KeyValueError::Store(Error::Fenced))), "{fenced:?}");
    assert!(is_fenced(kept.delete(&space, "k", beside(0, b"late")).await));
    assert_eq!(kept.get(&space, "k", 0).await.unwrap(), None);
    kept.set(&space, &limits, "k", &[1; 15_000], None, beside(4, b"!")).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"set swap delete again!");
}

/// The next run of a task.
fn next(run: &Task) -> Task {
    Task { attempt: run.attempt + 1, ..run.clone() }
}

async fn journal_is_taken_over_with_a_later_attempt(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    let lost = append(&*store, &run, tail(2, 0, b"before ")).await.unwrap();
    let resuming = Append::resuming(&lost, 3);
    assert!(is_fenced(append(&*store, &run, resuming.clone()).await), "without its record");
    assert!(is_fenced(store.commit(with_journal(&run, resuming.clone())).await), "with the old run's record");
    let resumed = store.commit(with_journal(&next(&run), resuming)).await.unwrap();
    let taken = head(&*store, &run).await.unwrap();
    assert_eq!(taken, JournalHead { attempt: 3, resumes_since_growth: 2, ..lost });
    assert!(is_fenced(append(&*store, &run, tail(2, 1, b"late")).await));
    append(&*store, &resumed, tail(3, 1, b"after")).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"before after");
}

async fn journal_of_a_run_that_was_not_taken_over_goes(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    append(&*store, &run, tail(2, 0, &stream(9_000))).await.unwrap();
    let anew = store.commit(Change::of(next(&run))).await.unwrap();
    assert_eq!(rows(&*store).await, 0);
    assert!(is_fenced(append(&*store, &run, tail(2, 0, b"late")).await));
    append(&*store, &anew, tail(3, 0, b"anew")).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"anew");
}

async fn journal_goes_with_the_end_of_its_task(bed: Bed) {
    let store = bed.store();
    for (number, length) in [(1, 0), (2, 10), (3, 90_000)] {
        let run = running(&*store, requestor(1, 1), number).await;
        append(&*store, &run, tail(2, 0, &stream(length))).await.unwrap();
        store.commit(completion(&run, output("done"))).await.unwrap();
        assert_eq!(head(&*store, &run).await, None);
        assert_eq!(bytes(&*store, &run).await, b"");
        assert_eq!(rows(&*store).await, 0);
    }
}

async fn journal_may_outlive_the_end_of_its_task(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let run = running(&*store, owner, 1).await;
    append(&*store, &run, tail(2, 0, b"all ")).await.unwrap();
    let end = Change { journal: Some(tail(2, 1, b"of it")), ..completion(&run, output("done")) };
    let ended = store.commit(end).await.unwrap();
    store.commit(Change::of(ended)).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"all of it");
    store.remove_journal(&owner, run.id).await.unwrap();
    store.remove_journal(&owner, run.id).await.unwrap();
    assert_eq!(rows(&*store).await, 0);
    // That of a task that is not over is left alone.
    let run = running(&*store, owner, 2).await;
    append(&*store, &run, tail(2, 0, b"x")).await.unwrap();
    store.remove_journal(&owner, run.id).await.unwrap();
    assert_eq!(bytes(&*store, &run).await, b"x");
}

async fn journal_goes_with_its_task(mut bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    for (number, length) in [(1, 10), (2, 90_000)] {
        let run = running(&*store, owner, number).await;
        append(&*store, &run, tail(2, 0, &stream(length))).await.unwrap();
        store.remove(&owner, run.id).await.unwrap();
        assert_eq!(rows(&*store).await, 0);
    }
    assert_eq!(store.usage(&owner).await.unwrap(), Default::default());
    drop(store);
    bed.reopen().await;
    assert_eq!(bed.store().usage(&owner).await.unwrap(), Default::default());
}

fn demotion(at_row: u32) -> Append {
    let state = JournalState::Demoted { reason: "its journal is too long".to_owned() };
    let head = HeadAfter { state, ..journal_head().unchanged() };
    Append { head, ..tail(2, at_row, b"not kept") }
}

async fn journal_loses_its_pieces_when_demoted(bed: Bed) {
    let store = bed.store();
    for (number, length) in [(1, 0), (2, 10), (3, 90_000)] {
        let run = running(&*store, requestor(1, 1), number).await;
        let at_row = append(&*store, &run, tail(2, 0, &stream(length))).await.unwrap().rows;
        let demoted = append(&*store, &run, demotion(at_row)).await.unwrap();
        assert_eq!((demoted.rows, demoted.bytes), (0, 0));
        assert_eq!(demoted.state, demotion(0).head.state);
        assert_eq!(head(&*store, &run).await, Some(demoted));
        assert_eq!(bytes(&*store, &run).await, b"");
        assert_eq!(rows(&*store).await, number as usize);
        // It goes on in the head alone.
        append(&*store, &run, demotion(0)).await.unwrap();
    }
}

/// Until there are only so many rows of journals left.
async fn until_swept(store: &dyn Store, left: usize) {
    for _ in 0..500 {
        if rows(store).await == left {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{} rows stay", rows(store).await);
}

async fn journal_is_replaced_in_one_step(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    let before = store.usage(&run.requestor).await.unwrap().1.bytes;
    let mut at_row = append(&*store, &run, tail(2, 0, &stream(90_000))).await.unwrap().rows;
    for length in [10, 90_000, 10, 20_000, 20_001, 700 * PIECE_BYTES, 12] {
        let whole = Append { replaces: true, ..tail(2, at_row, &stream(length)) };
        assert!(append(&*store, &run, whole.clone()).await.unwrap().is_after(&whole));
        assert_eq!(store.usage(&run.requestor).await.unwrap().1.bytes - before, length as u64);
        at_row = append(&*store, &run, tail(2, whole.rows_after(), b"more")).await.unwrap().rows;
        assert!(bytes(&*store, &run).await == [stream(length), b"more".to_vec()].concat());
    }
    until_swept(&*store, 1 + at_row as usize).await;
}

async fn long_journal_is_removed_to_the_last_row(mut bed: Bed) {
    let owner = requestor(1, 1);
    let long = stream(700 * PIECE_BYTES);
    for reopened in [false, true] {
        let store = bed.store();
        let mut runs = Vec::new();
        for number in 1..=3 {
            let run = running(&*store, owner, number).await;
            append(&*store, &run, tail(2, 0, &long)).await.unwrap();
            runs.push(run);
        }
        assert!(bytes(&*store, &runs[0]).await == long);
        store.commit(completion(&runs[0], output("done"))).await.unwrap();
        store.remove(&owner, runs[1].id).await.unwrap();
        append(&*store, &runs[2], demotion(700)).await.unwrap();
        for run in &runs {
            assert_eq!(bytes(&*store, run).await, b"");
        }
        // What is left of the rows before is in nobody's way.
        let run = store.commit(Change::of(next(&runs[2]))).await.unwrap();
        append(&*store, &run, tail(3, 0, &stream(2 * PIECE_BYTES))).await.unwrap();
        if reopened {
            drop(store);
            bed.reopen().await;
        }
        let store = bed.store();
        until_swept(&*store, 3).await;
        assert_eq!(bytes(&*store, &run).await, stream(2 * PIECE_BYTES));
        for number in 1..=3 {
            store.remove(&owner, task_id(number)).await.unwrap();
        }
        assert_eq!(rows(&*store).await, 0);
        assert_eq!(store.usage(&owner).await.unwrap(), Default::default());
    }
}

async fn journal_bytes_count_as_stored(mut bed: Bed) {
    let one = requestor(1, 1);
    let two = requestor(1, 2);
    let store = bed.store();
    let run = running(&*store, one, 1).await;
    let before = store.usage(&one).await.unwrap().0;
    let at_row = append(&*store, &run, tail(2, 0, &stream(20_000))).await.unwrap().rows;
    append(&*store, &run, tail(2, at_row, b"")).await.unwrap();
    assert!(is_fenced(append(&*store, &run, tail(2, 0, &stream(20_000))).await));
    let grown = Usage { bytes: before.bytes + 20_000, ..before };
    assert_eq!(store.usage(&one).await.unwrap(), (grown, grown));
    let other = Creation { journal: Some(tail(2, 0, b"12345")), ..creation(Task { attempt: 2, ..task(two, 2) }) };
    let bare = store.create(Creation { journal: None, ..other.clone() }).await.unwrap();
    let alone = store.usage(&two).await.unwrap().0;
    store.remove(&two, bare.id).await.unwrap();
    store.create(other).await.unwrap();
    let second = Usage { bytes: alone.bytes + 5, ..alone };
    let both = Usage { tasks: 2, bytes: grown.bytes + second.bytes };
    assert_eq!(store.usage(&two).await.unwrap(), (second, both));
    drop(store);
    bed.reopen().await;
    let store = bed.store();
    assert_eq!(store.usage(&one).await.unwrap(), (grown, both));
    assert_eq!(store.usage(&two).await.unwrap(), (second, both));
    append(&*store, &run, demotion(at_row)).await.unwrap();
    assert_eq!(store.usage(&one).await.unwrap().0, before);
}

async fn journal_quota_is_checked_with_the_append(bed: Bed) {
    let store = bed.store();
    let owner = requestor(1, 1);
    let run = running(&*store, owner, 1).await;
    let before = store.usage(&owner).await.unwrap().0;
    let caps = StoredCaps { bytes_per_requestor: before.bytes + 10, ..WIDE };
    let within = |append: Append| Append { caps: Some(caps), ..append };
    append(&*store, &run, within(tail(2, 0, b"0123456"))).await.unwrap();
    let refused = |result: Result<(), Error>| match result {
        Err(Error::Quota { limit, .. }) => limit,
        other => panic!("not refused: {other:?}"),
    };
    let limit = "tasks_stored_bytes_per_requestor";
    let too_much = within(tail(2, 1, b"0123"));
    assert_eq!(refused(append(&*store, &run, too_much.clone()).await.map(drop)), limit);
    let beside = Some((TaskRef::of(&run), too_much.clone()));
    let row = vec![(b"k".to_vec(), Some(b"v".to_vec()))];
    assert_eq!(refused(store.change_rows(RowKind::Plugin, Vec::new(), row, beside).await), limit);
    assert_eq!(store.row(RowKind::Plugin, b"k").await.unwrap(), None);
    assert_eq!(refused(store.commit(with_journal(&run, too_much)).await.map(drop)), limit);
    assert_eq!(store.get(&owner, run.id).await.unwrap(), Some(run.clone()));
    assert_eq!(bytes(&*store, &run).await, b"0123456");
    append(&*store, &run, within(tail(2, 1, b"012"))).await.unwrap();
    // Without more bytes there is always room.
    append(&*store, &run, within(tail(2, 2, b""))).await.unwrap();
    append(&*store, &run, within(demotion(2))).await.unwrap();
    assert_eq!(store.usage(&owner).await.unwrap().0, before);

    let second = Creation { journal: Some(tail(2, 0, &[7; 11])), ..creation(Task { attempt: 2, ..task(owner, 2) }) };
    let caps = StoredCaps { bytes_per_requestor: 2 * before.bytes + 10, ..WIDE };
    assert_eq!(refused(store.create(Creation { caps, ..second }).await.map(drop)), limit);
    assert_eq!(store.usage(&owner).await.unwrap().0, before);
}

async fn journal_of_an_erased_tenant_goes_alone(bed: Bed) {
    let store = bed.store();
    let mine = running(&*store, requestor(1, 1), 1).await;
    let others = running(&*store, requestor(2, 1), 1).await;
    for run in [&mine, &others] {
        append(&*store, run, tail(2, 0, &stream(9_000))).await.unwrap();
    }
    // As an erasure does it: by the keys of the rows.
    for (key, _) in store.rows(RowKind::Journal, None, 99).await.unwrap() {
        if RowKind::Journal.tenant_of(&key) == Some(mine.requestor.tenant) {
            store.remove_row(RowKind::Journal, &key).await.unwrap();
        }
    }
    assert_eq!(head(&*store, &mine).await, None);
    let usage = store.usage(&mine.requestor).await.unwrap().0;
    store.remove(&mine.requestor, mine.id).await.unwrap();
    assert!(usage.bytes < 9_000, "{usage:?}");
    assert_eq!(store.usage(&mine.requestor).await.unwrap(), Default::default());
    assert_eq!(bytes(&*store, &others).await, stream(9_000));
    assert_eq!(rows(&*store).await, 4);
}

async fn journal_of_a_blocked_tenant_does_not_grow(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    append(&*store, &run, tail(2, 0, b"x")).await.unwrap();
    store.block_tenant(run.requestor.tenant).await.unwrap();
    assert!(matches!(append(&*store, &run, tail(2, 1, b"y")).await, Err(Error::ReadOnly(_))));
    assert!(matches!(store.commit(with_journal(&run, tail(2, 1, b"y"))).await, Err(Error::ReadOnly(_))));
    assert_eq!(bytes(&*store, &run).await, b"x");
}

async fn journal_rows_are_written_by_appends_only(bed: Bed) {
    let store = bed.store();
    assert!(store.put_row(RowKind::Journal, b"k", b"v".to_vec(), false).await.is_err());
    let row = vec![(b"k".to_vec(), Some(b"v".to_vec()))];
    assert!(store.change_rows(RowKind::Journal, Vec::new(), row, None).await.is_err());
    assert_eq!(rows(&*store).await, 0);
}

async fn journal_survives_reopening(mut bed: Bed) {
    let store = bed.store();
    let mut runs = Vec::new();
    for number in 1..=5 {
        let run = running(&*store, requestor(number as u8 % 2, 1), number).await;
        append(&*store, &run, tail(2, 0, &stream(number as usize * 3_000))).await.unwrap();
        runs.push((head(&*store, &run).await, run));
    }
    drop(store);
    bed.reopen().await;
    let store = bed.store();
    for (before, run) in &runs {
        assert_eq!(head(&*store, run).await.as_ref(), before.as_ref());
        assert_eq!(bytes(&*store, run).await, stream(run.created_at as usize * 3_000));
        let rows = before.as_ref().unwrap().rows;
        append(&*store, run, tail(2, rows, b"more")).await.unwrap();
    }
}

async fn concurrent_journal_appends_have_one_winner(bed: Bed) {
    let store = bed.store();
    let run = running(&*store, requestor(1, 1), 1).await;
    let mut whole = Vec::new();
    for at_row in 0..20 {
        let texts: Vec<_> = (0..8).map(|writer| format!("{writer} wrote {at_row}. ")).collect();
        let appends = texts.iter().map(|text| append(&*store, &run, tail(2, at_row, text.as_bytes())));
        let results = futures::future::join_all(appends).await;
        let winners: Vec<_> = (0..).zip(&results).filter(|(_, result)| result.is_ok()).collect();
        assert_eq!(winners.len(), 1);
        whole.extend(texts[winners[0].0].bytes());
    }
    assert_eq!(bytes(&*store, &run).await, whole);
}
