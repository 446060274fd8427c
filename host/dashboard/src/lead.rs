//! What the lead of a tenant does: it looks at the tenant's tasks, requestors and limits, and may stop tasks.
//!
//! Must not know another tenant's. Invariant: every command is about the lead's own tenant or comes after a look that found the task
//! there; a task of another tenant gets the page of what is not there, and none of the answers holds arguments, answers or results.

use std::net::IpAddr;

use bulkhead_control::commands::{LimitsInUse, TaskFilter, TasksCancel, TasksPage, TasksPause, TasksResume, TasksShow};
use bulkhead_control::views::TaskDetailsView;
use bulkhead_control::{Command, ControlError, Operator, Request};
use bulkhead_domain::rights::{Need, Rights};
use http::StatusCode;

use crate::own_tasks::absent;
use crate::pages::{self, Frame, LedTask, LedTasks};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::sessions::Session;
use crate::text;

/// Tasks on one page of a lead's list.
const PAGE_TASKS: usize = 50;
/// Requestors of a tenant that its lead sees on one page of the dashboard.
const LED_REQUESTORS_MAX: usize = 100;

/// A lead in front of a page.
pub(crate) struct LeadPages<'a> {
    operator: &'a dyn Operator,
    session: &'a Session,
    frame: Frame<'a>,
    tenant: &'a str,
    may_control: bool,
    /// As the audit log names the lead.
    who: String,
}

impl<'a> LeadPages<'a> {
    /// `None`: the requestor is no lead.
    pub(crate) fn new(
        operator: &'a dyn Operator,
        session: &'a Session,
        rights: &'a Rights,
        (frame, peer): (Frame<'a>, IpAddr),
    ) -> Option<Self> {
        if !rights.has(Need::Tenant) {
            return None;
        }
        let (tenant, name) = rights.names();
        let who = format!("dashboard {name}@{tenant} at {peer}");
        Some(Self { operator, session, frame, tenant, may_control: rights.has(Need::TenantControl), who })
    }

    /// The page at this place below the tenant's.
    pub(crate) async fn read(&self, place: &[&str], query: &Form) -> Answer {
        let done = match place {
            [] => self.tenant().await,
            ["tasks"] => self.tasks(query).await,
            ["tasks", id] => self.task(id, None).await,
            _ => return absent(&self.frame),
        };
        done.unwrap_or_else(|error| self.failed(&error))
    }

    async fn run<R: Request>(&self, request: R) -> Result<R::Answer, ControlError> {
        let command: Command = request.into();
        self.operator.execute_for(&self.who, command).await?.read::<R>()
    }

    fn filter(&self) -> TaskFilter {
        TaskFilter { tenant: Some(self.tenant.to_owned()), ..TaskFilter::default() }
    }

    async fn tenant(&self) -> Result<Answer, ControlError> {
        let mut limits = self.run(LimitsInUse { filter: self.filter(), count_max: LED_REQUESTORS_MAX }).await?;
        // The host's are the operators' to see.
        limits.host.clear();
        Ok(respond::page(StatusCode::OK, pages::led_tenant(&self.frame, &limits)))
    }

    async fn tasks(&self, query: &Form) -> Result<Answer, ControlError> {
        let given = |name: &str| query.filled(name).map(str::to_owned);
        let (requestor, plugin, status) = (given("requestor"), given("plugin"), given("status"));
        let filter = TaskFilter { requestor, plugin, status, ..self.filter() };
        let request = TasksPage { filter: filter.clone(), after: given("after"), count_max: PAGE_TASKS };
        let mut page = self.run(request).await?;
        page.tasks.retain(|task| task.tenant.as_deref() == Some(self.tenant));
        Ok(respond::page(StatusCode::OK, pages::led_tasks(&self.frame, &LedTasks { filter, page })))
    }

    /// A task of the tenant.
    async fn find(&self, id: &str) -> Result<TaskDetailsView, ControlError> {
        let found = self.run(TasksShow { id: id.to_owned() }).await?;
        match found.task.tenant.as_deref() == Some(self.tenant) {
            true => Ok(found),
            false => Err(ControlError::NotFound("there is no such task".to_owned())),
        }
    }

    async fn task(&self, id: &str, refused: Option<&str>) -> Result<Answer, ControlError> {
        let task = self.find(id).await?;
        let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
        let page = LedTask { task: &task, may_control: self.may_control, refused };
        Ok(respond::page(status, pages::led_task(&self.frame, self.session, &page)))
    }

    /// Does something with a task of the tenant; `None`: there is no such thing to do.
    pub(crate) async fn act(&self, id: &str, action: &str) -> Option<Answer> {
        if !self.may_control {
            return None;
        }
        let task = match self.find(id).await {
            Ok(found) => found.task.id,
            Err(error) => return Some(self.failed(&error)),
        };
        let place = format!("/tenant/tasks/{task}");
        let done = match action {
            "cancel" => self.run(TasksCancel { id: task }).await.map(drop),
            "pause" => self.run(TasksPause { id: task, message: None }).await.map(drop),
            "resume" => self.run(TasksResume { id: task }).await.map(drop),
            _ => return None,
        };
        Some(match done {
            Ok(()) => respond::see_other(&place),
            // Meanwhile it has ended, say: the page shows how it stands.
            Err(ControlError::Invalid(why)) => {
                self.task(id, Some(&text::line(&why))).await.unwrap_or_else(|error| self.failed(&error))
            }
            Err(error) => self.failed(&error),
        })
    }

    fn failed(&self, error: &ControlError) -> Answer {
        let status = match error {
            ControlError::NotFound(_) => return absent(&self.frame),
            ControlError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ControlError::Failed(_) | ControlError::Connection(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        respond::page(status, pages::message(&self.frame, "That was not done", &text::line(&error.to_string())))
    }
}
