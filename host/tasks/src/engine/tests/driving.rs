//! What a guest hears while it becomes a task or is cancelled, and what its changes read.

use super::*;

#[tokio::test]
async fn call_promoted_while_it_asks_goes_on_with_a_permit() {
    let world = world();
    let mut call = world.tasks.call(&ANNA, world.call("tidy")).await.unwrap();
    let CallNews::InputRequests { reply, .. } = call.next().await else { panic!("it asks first") };
    assert_eq!(world.tasks.inner.admission.running(), 0, "a guest that asks rests");
    let Ok(task) = call.promote(origin(), RequestedTtl::Default).await else { panic!("there is room") };
    assert!(reply.send(Ok(Vec::new())).is_err(), "what was asked before is not the task's");
    while world.tidying.now.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.tasks.inner.admission.running(), 1, "it computes");
    assert_eq!(world.ended(task.id).await, Outcome::Output { is_error: false });
}

#[tokio::test]
async fn cancelled_plain_call_hears_so_when_it_asks_and_computes_with_a_permit() {
    let world = world();
    let mut call = world.tasks.call(&ANNA, world.call("tidy")).await.unwrap();
    let CallNews::InputRequests { reply, .. } = call.next().await else { panic!("it asks first") };
    call.cancel();
    assert!(reply.send(Ok(Vec::new())).is_err(), "no answer is taken any more");
    while world.tidying.now.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.tasks.inner.admission.running(), 1, "it computes");
}

#[tokio::test]
async fn changes_of_a_running_task_do_not_read_its_record() {
    let world = world();
    let task = world.create(&ANNA, "steered").await.unwrap();
    let looks = || world.store.take_looks().iter().filter(|(what, _)| *what == "task").count();
    looks();
    world.tasks.steer(&ANNA, task.id, "left".to_owned()).await.unwrap();
    let mut news = world.tasks.feed(&ANNA);
    loop {
        match news.recv().await.unwrap() {
            TaskNews::Changed(task) if task.outcome().is_some() => break,
            _ => {}
        }
    }
    assert_eq!(looks(), 0, "the message, its delivery and the outcome are changes of the record that the run holds");
    assert!(matches!(world.tasks.steer(&BOB, task.id, "right".to_owned()).await, Err(Error::NotFound)));
    assert!(matches!(world.tasks.cancel(&ANNA, task.id).await, Err(Error::Ended)));
}
