//! Checks of journals: what a replay is given, and what is left as it was.

use super::*;
use crate::CheckError;
use bulkhead_store::journal::JournalStore as _;

/// What stops the replay of the scripted guest, once it has looked at what it was given.
const STOPPED: &str = "the tool used more than its 1 s of CPU time";

/// A replay: it has the journal, and nothing that it could reach or keep.
pub(super) fn checked(spec: &CallSpec) -> Result<ToolOutput, CallError> {
    let Journaling::Check { history, .. } = &spec.journaling else { panic!("{:?}", spec.journaling) };
    assert_eq!(history.0[..], resuming::JOURNAL);
    assert!(spec.activity.is_none() && spec.facts.attempt == 1);
    let around = format!("{:?}, {:?}", spec.facts.guest_services, spec.facts.outside);
    assert_eq!(around, "Some(Sealed), Some(Sealed)");
    Err(CallError::Fault { kind: FaultKind::Limit, reason: STOPPED.to_owned() })
}

#[tokio::test]
async fn check_changes_nothing_and_is_bounded_by_the_limits_of_the_call() {
    let world = world();
    let task = world.create(&ANNA, "lasting").await.unwrap();
    let asked = world.until(task.id, |task| task.outstanding().next().is_some()).await;
    let kept = world.store.journal(&ANNA, task.id).await.unwrap();
    let refused = world.tasks.check_journal(&asked).await.unwrap_err();
    assert!(matches!(&refused, CheckError::Stopped(why) if why == STOPPED), "{refused}");
    assert_eq!(world.tasks.get(&ANNA, task.id).await.unwrap(), asked, "a check is no run of its task");
    assert_eq!(world.store.journal(&ANNA, task.id).await.unwrap(), kept);
}

#[tokio::test]
async fn task_without_a_journal_is_not_checked() {
    let world = world();
    let task = world.create(&ANNA, "ask").await.unwrap();
    let asked = world.until(task.id, |task| task.outstanding().next().is_some()).await;
    let refused = world.tasks.check_journal(&asked).await.unwrap_err();
    assert!(matches!(refused, CheckError::NothingKept), "{refused}");
    world.tasks.cancel(&ANNA, task.id).await.unwrap();
    let task = world.create(&ANNA, "lasting").await.unwrap();
    let asked = world.until(task.id, |task| task.outstanding().next().is_some()).await;
    world.tasks.answer(&ANNA, task.id, "name", accept()).await.unwrap();
    world.ended(task.id).await;
    let refused = world.tasks.check_journal(&asked).await.unwrap_err();
    assert!(matches!(refused, CheckError::NothingKept), "its journal went with its end: {refused}");
    assert_eq!(*world.started.lock(), [1, 1], "nothing ran again");
}
