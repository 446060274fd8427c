//! Tasks that are held: paused by the host or by an operator until an operator lets them go.
//!
//! Owns how tasks are held and released, and what an operator's held task says. Must not decide what is held, nor what a held task refuses:
//! [`lifecycle`](bulkhead_domain::lifecycle) does.

use std::sync::Arc;

use crate::parts::admission::IdleState;
use crate::{Error, Tasks};
use bulkhead_domain::lifecycle::Event;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{HELD, Task, TaskId};

/// What a task says that an operator holds, with their own words for it.
pub fn held_by_operator(why: Option<&str>) -> String {
    match why {
        Some(why) => format!("{HELD} by the operator: {why}"),
        None => format!("{HELD} by the operator"),
    }
}

impl Tasks {
    /// Stops a task until it is released, also one that is paused. `message` is shown as the status. It is not refused for want of a place
    /// among the paused tasks: those are the requestor's to fill.
    pub async fn hold(&self, requestor: &Requestor, id: TaskId, message: String) -> Result<Arc<Task>, Error> {
        let place = self.inner.admission.keep(requestor, IdleState::Paused);
        let task = self.change(requestor, id, Event::Hold { message }).await?;
        if let Some(run) = self.inner.watchers.run(id) {
            run.keep_paused(place);
        }
        Ok(task)
    }

    /// Lets a held task go on.
    pub async fn release(&self, requestor: &Requestor, id: TaskId) -> Result<Arc<Task>, Error> {
        self.change(requestor, id, Event::Release).await
    }

    /// How many tasks of this host are held.
    pub fn held_count(&self) -> usize {
        self.inner.watchers.tasks().iter().filter(|task| task.is_held()).count()
    }
}
