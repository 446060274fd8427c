//! What an operator does: reads and orders of the operator API, in the name of who is logged in.
//!
//! Must not use a command that may not come from a browser. Invariant: each command is noted with who gave it, and none
//! of their answers holds arguments, answers or results.

use std::net::IpAddr;
use std::sync::Arc;

use bulkhead_control::commands::{
    DrainShow, HealthShow, LimitsInUse, PluginList, TaskFilter, TasksCancel, TasksPage, TasksPause, TasksPurge,
    TasksRelease, TasksResume, TasksShow, TenantList, TenantUsage,
};
use bulkhead_control::views::TaskPageView;
use bulkhead_control::{Command, ControlError, Operator, Request};
use http::StatusCode;

use crate::orders::{PluginOrders, carried_out};
use crate::own_tasks::absent;
use crate::pages::lists::{ListPosition, SortOrder};
use crate::pages::{self, AllTasks, AnyTask, DAYS_SHOWN, Frame, Overview, TenantPage, task_path};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::sessions::Session;
use crate::text;

/// Tasks on one page.
const PAGE_TASKS: usize = 100;
/// Requestors whose limits are read for one page of the dashboard.
const REQUESTORS_READ_MAX: usize = 500;

/// An operator in front of a page.
pub(crate) struct OperatorPages<'a> {
    pub(crate) operator: &'a Arc<dyn Operator>,
    pub(crate) orders: &'a PluginOrders,
    pub(crate) session: &'a Session,
    pub(crate) peer: IpAddr,
    pub(crate) frame: Frame<'a>,
    /// Where traces are shown, with `{trace_id}` in place of the id of one.
    pub(crate) trace_link: Option<&'a str>,
}

/// What may be ordered of a task that is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskOrder {
    Cancel,
    Pause,
    Resume,
    Release,
    Purge,
}

/// Gives commands in the name of who is logged in.
#[derive(Clone)]
pub(crate) struct OperatorClient {
    operator: Arc<dyn Operator>,
    who: String,
}

impl OperatorClient {
    pub(crate) fn new(operator: &Arc<dyn Operator>, who: String) -> Self {
        Self { operator: Arc::clone(operator), who }
    }

    /// Gives a command that ends when its caller stops waiting: one that only reads, or a step of an order.
    pub(crate) async fn run<R: Request>(&self, request: R) -> Result<R::Answer, ControlError> {
        let command: Command = request.into();
        if !command.is_for_dashboard() {
            let message = "this is done on the machine of the host only: a source is https:// or oci:// here";
            return Err(ControlError::Invalid(message.to_owned()));
        }
        self.operator.execute_for(&self.who, command).await?.read::<R>()
    }

    /// Gives one that changes something.
    pub(crate) async fn order<R: Request>(&self, request: R) -> Result<R::Answer, ControlError> {
        let client = self.clone();
        settled(carried_out(async move { client.run(request).await }).await)
    }

    /// Orders something of a task.
    pub(crate) async fn about_task(&self, id: &str, order: TaskOrder) -> Result<(), ControlError> {
        let client = self.clone();
        let id = id.to_owned();
        settled(carried_out(async move { client.change_task(id, order).await }).await)
    }

    /// The same as a step of a larger order.
    pub(crate) async fn change_task(&self, id: String, order: TaskOrder) -> Result<(), ControlError> {
        match order {
            TaskOrder::Cancel => self.run(TasksCancel { id }).await.map(drop),
            TaskOrder::Pause => self.run(TasksPause { id, message: None }).await.map(drop),
            TaskOrder::Resume => self.run(TasksResume { id }).await.map(drop),
            TaskOrder::Release => self.run(TasksRelease { id }).await.map(drop),
            TaskOrder::Purge => self.run(TasksPurge { id }).await.map(drop),
        }
    }

    /// As the audit log has it.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }
}

/// What became of an order.
pub(crate) fn settled<T>(done: Option<Result<T, ControlError>>) -> Result<T, ControlError> {
    done.unwrap_or_else(|| Err(ControlError::Failed("the host failed at this command".to_owned())))
}

impl OperatorPages<'_> {
    /// Who gives the orders, to go on without the page.
    pub(crate) fn client(&self) -> OperatorClient {
        OperatorClient::new(self.operator, self.session.operator_at(self.peer))
    }

    pub(crate) async fn read<R: Request>(&self, request: R) -> Result<R::Answer, ControlError> {
        self.client().run(request).await
    }

    pub(crate) async fn order<R: Request>(&self, request: R) -> Result<R::Answer, ControlError> {
        self.client().order(request).await
    }

    pub(crate) async fn overview(&self) -> Result<Answer, ControlError> {
        let page = Overview {
            health: self.read(HealthShow {}).await?,
            drain: self.read(DrainShow {}).await?,
            limits: self.limits(TaskFilter::default()).await?,
            plugins: self.read(PluginList {}).await?,
            history: self.history().await?,
        };
        Ok(respond::page(StatusCode::OK, pages::overview(&self.frame, &page)))
    }

    async fn limits(&self, filter: TaskFilter) -> Result<bulkhead_control::views::LimitsView, ControlError> {
        self.read(LimitsInUse { filter, count_max: REQUESTORS_READ_MAX }).await
    }

    pub(crate) async fn tasks(&self, query: &Form) -> Result<Answer, ControlError> {
        if let Some(id) = query.filled("id") {
            return Ok(respond::see_other(&task_path(id)));
        }
        let given = |name: &str| query.filled(name).map(str::to_owned);
        let filter = TaskFilter {
            tenant: given("tenant"),
            requestor: given("requestor"),
            plugin: given("plugin"),
            status: given("status"),
            tool: given("tool"),
            since: query.filled("since").and_then(|since| since.parse().ok()),
            until: None,
        };
        let request = TasksPage { filter: filter.clone(), after: given("after"), count_max: PAGE_TASKS };
        let (status, page, absent) = match self.read(request).await {
            Ok(page) => (StatusCode::OK, page, None),
            Err(ControlError::NotFound(_)) => {
                let absent = format!("There is no tenant {}.", filter.tenant.as_deref().unwrap_or_default());
                let none = TaskPageView { tasks: Vec::new(), more: false, next: None };
                (StatusCode::NOT_FOUND, none, Some(text::line(&absent)))
            }
            Err(error) => return Err(error),
        };
        let sort = SortOrder::read(query, "-changed");
        let page = pages::all_tasks(&self.frame, self.session, &AllTasks { filter, page, sort, absent });
        Ok(respond::page(status, page))
    }

    pub(crate) async fn task(&self, id: &str, refused: Option<&str>) -> Result<Answer, ControlError> {
        let task = self.read(TasksShow { id: id.to_owned() }).await?;
        let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
        let page = AnyTask { task: &task, refused, trace_link: self.trace_link };
        Ok(respond::page(status, pages::any_task(&self.frame, self.session, &page)))
    }

    /// Does something with a task.
    pub(crate) async fn act(&self, id: &str, action: TaskOrder) -> Result<Answer, ControlError> {
        match self.client().about_task(id, action).await {
            Ok(()) if action == TaskOrder::Purge => Ok(respond::see_other("/tasks")),
            Ok(()) => Ok(respond::see_other(&format!("/tasks/{id}"))),
            // Meanwhile it has ended, say: the page shows how it stands.
            Err(ControlError::Invalid(why)) => self.task(id, Some(&text::line(&why))).await,
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn tenants(&self, query: &Form) -> Result<Answer, ControlError> {
        let mut view = self.read(TenantList {}).await?;
        let limits = self.limits(TaskFilter::default()).await?;
        let at = ListPosition::read(query, "name");
        Ok(respond::page(StatusCode::OK, pages::tenants(&self.frame, &mut view, &limits, at)))
    }

    pub(crate) async fn tenant(&self, name: &str) -> Result<Answer, ControlError> {
        let filter = TaskFilter { tenant: Some(name.to_owned()), ..TaskFilter::default() };
        let limits = self.limits(filter).await?;
        if limits.tenants.is_empty() {
            return Ok(absent(&self.frame));
        }
        let usage = self.read(TenantUsage { tenant: Some(name.to_owned()), days: DAYS_SHOWN }).await?;
        Ok(respond::page(StatusCode::OK, pages::tenant(&self.frame, &TenantPage { name, limits, usage })))
    }

    pub(crate) fn failed(&self, error: &ControlError) -> Answer {
        failed(&self.frame, error)
    }
}

/// The page of what was not done.
pub(crate) fn failed(frame: &Frame<'_>, error: &ControlError) -> Answer {
    let status = match error {
        ControlError::NotFound(_) => return absent(frame),
        ControlError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ControlError::Starting(_) => StatusCode::SERVICE_UNAVAILABLE,
        ControlError::Failed(_) | ControlError::Connection(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    respond::page(status, pages::message(frame, "That was not done", &text::line(&error.to_string())))
}
