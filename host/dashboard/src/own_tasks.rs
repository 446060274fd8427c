//! What a requestor does with their tasks.
//!
//! Must not know anybody else's. Invariant: a task that is not there and one of another requestor get the same page;
//! each action needs the right that it needs over MCP.

use std::sync::Arc;

use bulkhead_control::views::TaskStatus;
use bulkhead_domain::call::InputRequestKind;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::{Task, TaskId};
use bulkhead_protocol::read_answer;
use bulkhead_tasks::{Error, ListPosition, Tasks};
use http::StatusCode;
use maud::Markup;
use serde_json::json;

use crate::app_preview::PreviewedBy;
use crate::pages::{self, Frame, OwnTask, OwnTasks, address, task_path};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::sessions::Session;
use crate::{fields, text};

/// Tasks on one page.
const PAGE_TASKS: usize = 50;
/// Tasks of a requestor that are looked at for one page of the dashboard, when few of them fit its filter.
const LOOKS_MAX: usize = 1_000;
/// What is said in place of what the requestor may not see.
const NO_TASKS: &str =
    "Your token does not allow tasks. The operator of the host decides what its scopes are good for.";

/// A requestor, and what they may do.
pub(crate) struct Own<'a> {
    pub(crate) tasks: &'a Tasks,
    pub(crate) session: &'a Session,
    pub(crate) requestor: &'a Requestor,
    pub(crate) rights: &'a Rights,
    pub(crate) frame: Frame<'a>,
    /// Whether they looked before and are told of changes now.
    pub(crate) follows: bool,
    /// Where views of MCP Apps are shown to them, if they are.
    pub(crate) previews: Option<PreviewedBy<'a>>,
}

impl Own<'_> {
    /// A page of the newest tasks, or of those after a place. Those that need their requestor come first.
    pub(crate) async fn list(&self, query: &Form) -> Answer {
        if !self.rights.has(Need::Tasks) {
            return respond::page(StatusCode::OK, pages::message(&self.frame, "My tasks", NO_TASKS));
        }
        if let Some(id) = query.filled("id") {
            return respond::see_other(&task_path(id));
        }
        let status = query.filled("status");
        let tool = query.filled("tool");
        let fits = |task: &Task| {
            status.is_none_or(|name| TaskStatus::from(&task.phase).name() == name)
                && tool.is_none_or(|part| task.work.label().contains(part))
        };
        let mut at = query.filled("after").and_then(place);
        let mut found = Vec::new();
        let mut looks = 0_usize;
        let next = 'pages: loop {
            let page = match self.tasks.list(self.requestor, at, PAGE_TASKS).await {
                Ok(page) => page,
                Err(error) => return self.failed(&error),
            };
            let is_last = page.len() < PAGE_TASKS;
            for task in page {
                // One that has no room begins the next page.
                if found.len() >= PAGE_TASKS || looks >= LOOKS_MAX {
                    break 'pages at;
                }
                at = Some(ListPosition { created_at: task.created_at, id: task.id });
                looks += 1;
                if fits(&task) {
                    found.push(task);
                }
            }
            if is_last {
                break None;
            }
        };
        found.sort_by_key(|task| TaskStatus::from(&task.phase) != TaskStatus::InputRequired);
        let next = next.map(|at| format!("{}.{}", at.created_at, at.id));
        let next = next.map(|at| address("/tasks", &[("status", status), ("tool", tool), ("after", Some(&at))]));
        respond::page(StatusCode::OK, pages::own_tasks(&self.frame, &OwnTasks { tasks: &found, status, tool, next }))
    }

    /// One task.
    pub(crate) async fn show(&self, id: &str) -> Answer {
        match self.read(id, None).await {
            Ok(page) => respond::page(StatusCode::OK, page),
            Err(error) => self.failed(&error),
        }
    }

    async fn read(&self, id: &str, refused: Option<(&str, &Form, &str)>) -> Result<Markup, Error> {
        let id = self.may(id, Need::Tasks)?;
        let (task, output) = match self.follows {
            true => self.tasks.follow_with_output(self.requestor, id).await?,
            false => self.tasks.find_with_output(self.requestor, Some(id), None::<fn() -> String>).await?,
        };
        let arguments = self.tasks.request_of(&task).await.ok();
        let arguments = arguments.as_ref().map(|arguments| arguments.as_str());
        let output = output.as_ref();
        let page = OwnTask { task: &task, arguments, output, rights: self.rights, refused };
        Ok(pages::own_task(&self.frame, self.session, &page))
    }

    pub(crate) async fn cancel(&self, id: &str) -> Answer {
        self.change(id, Need::Tasks, |id| self.tasks.cancel(self.requestor, id)).await
    }

    pub(crate) async fn pause(&self, id: &str) -> Answer {
        self.change(id, Need::Steer, |id| self.tasks.pause(self.requestor, id, None)).await
    }

    pub(crate) async fn resume(&self, id: &str) -> Answer {
        self.change(id, Need::Steer, |id| self.tasks.resume(self.requestor, id)).await
    }

    pub(crate) async fn steer(&self, id: &str, form: &Form) -> Answer {
        // Browsers send the end of a line as two characters.
        let message = form.get("message").unwrap_or_default().replace("\r\n", "\n");
        self.change(id, Need::Steer, |id| self.tasks.steer(self.requestor, id, message)).await
    }

    pub(crate) async fn delete(&self, id: &str) -> Answer {
        let deleted = match self.may(id, Need::Tasks) {
            Ok(id) => self.tasks.delete(self.requestor, id).await,
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => respond::see_other("/tasks"),
            Err(error) => self.failed(&error),
        }
    }

    async fn change<F>(&self, id: &str, need: Need<'_>, change: impl FnOnce(TaskId) -> F) -> Answer
    where
        F: Future<Output = Result<Arc<Task>, Error>>,
    {
        let changed = match self.may(id, need) {
            Ok(id) => change(id).await,
            Err(error) => Err(error),
        };
        match changed {
            Ok(_) => respond::see_other(&format!("/tasks/{id}")),
            Err(error) => self.failed(&error),
        }
    }

    /// The id of a task that may be there.
    pub(crate) fn may(&self, id: &str, need: Need<'_>) -> Result<TaskId, Error> {
        if !self.rights.has(Need::Tasks) || !self.rights.has(need) {
            return Err(Error::Illegal("your token does not allow that"));
        }
        TaskId::parse(id).ok_or(Error::NotFound)
    }

    /// Answers a question. What is no answer to it comes back with what was filled in.
    pub(crate) async fn answer(&self, id: &str, form: &Form) -> Answer {
        let key = form.get("key").unwrap_or_default();
        match self.send_answer(id, key, form).await {
            Ok(None) => respond::see_other(&format!("/tasks/{id}")),
            Ok(Some(why)) => match self.read(id, Some((key, form, &why))).await {
                Ok(page) => respond::page(StatusCode::UNPROCESSABLE_ENTITY, page),
                Err(error) => self.failed(&error),
            },
            Err(error) => self.failed(&error),
        }
    }

    /// Says why it is no answer.
    async fn send_answer(&self, id: &str, key: &str, form: &Form) -> Result<Option<String>, Error> {
        let id = self.may(id, Need::Tasks)?;
        let task = self.tasks.get(self.requestor, id).await?;
        let Some(input) = task.outstanding().find(|input| input.issued_key == key) else {
            return Err(Error::Illegal("that question does not wait for an answer any more"));
        };
        let kind = &input.request.kind;
        let action = form.get("do").unwrap_or("accept");
        let content = match kind {
            InputRequestKind::Form { requested_schema, .. } if action == "accept" => {
                Some(fields::content(requested_schema.as_str(), form))
            }
            _ => None,
        };
        let answer = json!({ "action": action, "content": content });
        let answer = match read_answer(kind, &answer.to_string()) {
            Ok(answer) => answer,
            Err(why) => return Ok(Some(why)),
        };
        self.tasks.answer(self.requestor, id, key, answer).await.map(|_| None)
    }

    pub(crate) fn failed(&self, error: &Error) -> Answer {
        refused(&self.frame, error)
    }
}

/// The page of what was refused.
pub(crate) fn refused(frame: &Frame<'_>, error: &Error) -> Answer {
    let (status, retry_after_ms) = match error {
        Error::NotFound => return absent(frame),
        Error::Ended | Error::Illegal(_) => (StatusCode::CONFLICT, None),
        Error::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, None),
        Error::Quota { retry_after_ms, .. } => (StatusCode::TOO_MANY_REQUESTS, *retry_after_ms),
        Error::Rate { retry_after_ms, .. } => (StatusCode::TOO_MANY_REQUESTS, Some(*retry_after_ms)),
        Error::Unavailable { retry_after_ms, .. } => (StatusCode::SERVICE_UNAVAILABLE, *retry_after_ms),
        Error::Host { .. } => (StatusCode::INTERNAL_SERVER_ERROR, None),
    };
    let page = pages::message(frame, "That was not done", &text::line(&error.to_string()));
    let answer = respond::page(status, page);
    match retry_after_ms {
        Some(ms) => respond::retry_after(answer, ms),
        None => answer,
    }
}

/// The page of what is not there, and of what is another requestor's. It is the same wherever it is.
pub(crate) fn absent(frame: &Frame<'_>) -> Answer {
    let frame = Frame { session: frame.session, here: "", address: "", now: frame.now };
    respond::page(StatusCode::NOT_FOUND, pages::message(&frame, "Not found", "There is nothing here, or no longer."))
}

/// Where a page ended.
fn place(text: &str) -> Option<ListPosition> {
    let (created_at, id) = text.split_once('.')?;
    Some(ListPosition { created_at: created_at.parse().ok()?, id: TaskId::parse(id)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_in_a_list_is_read_as_it_was_written() {
        let id = "0123456789abcdef0123456789abcdef";
        let at = place(&format!("17.{id}")).unwrap();
        assert_eq!((at.created_at, at.id.to_string()), (17, id.to_owned()));
        for wrong in ["", "17", "17.", &format!("x.{id}"), &format!("17.{id}0")] {
            assert!(place(wrong).is_none(), "{wrong}");
        }
    }
}
