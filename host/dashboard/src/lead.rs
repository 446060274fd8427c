//! What the lead of a tenant does: it looks at the tenant's tasks, requestors, limits, plugins and lines of the audit log, and may stop tasks.
//!
//! Must not know another tenant's. Invariant: every command is about the lead's own tenant or comes after a look that found the task
//! there; a task of another tenant gets the page of what is not there, and none of the answers holds arguments, answers or results.

use std::net::IpAddr;

use bulkhead_control::ControlError;
use bulkhead_control::commands::{AuditPage, LimitsInUse, PluginList, TaskFilter, TasksPage, TasksShow};
use bulkhead_control::views::TaskDetailsView;
use bulkhead_domain::rights::{Need, Rights};
use http::StatusCode;

use crate::operator_reports::{DENIALS, DENIALS_READ_MAX, PAGE_LINES, lines};
use crate::operators::{OperatorClient, TaskOrder, failed};
use crate::pages::{self, AuditFilter, Frame, LedPlugins, LedTask, LedTasks, LogReader};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::server::DashboardParts;
use crate::sessions::Session;
use crate::text;

/// Tasks on one page of a lead's list.
const PAGE_TASKS: usize = 50;
/// Requestors of a tenant that its lead sees on one page of the dashboard.
const LED_REQUESTORS_MAX: usize = 100;

/// A lead in front of a page.
pub(crate) struct LeadPages<'a> {
    client: OperatorClient,
    session: &'a Session,
    frame: Frame<'a>,
    tenant: &'a str,
    may_control: bool,
}

impl<'a> LeadPages<'a> {
    /// `rights` are those of a lead.
    pub(crate) fn new(
        parts: &DashboardParts,
        session: &'a Session,
        rights: &'a Rights,
        (frame, peer): (Frame<'a>, IpAddr),
    ) -> Self {
        let (tenant, name) = rights.names();
        // As the audit log names the lead.
        let client = OperatorClient::new(&parts.operator, format!("dashboard {name}@{tenant} at {peer}"));
        Self { client, session, frame, tenant, may_control: rights.has(Need::TenantControl) }
    }

    fn filter(&self) -> TaskFilter {
        TaskFilter { tenant: Some(self.tenant.to_owned()), ..TaskFilter::default() }
    }

    pub(crate) async fn tenant(&self) -> Result<Answer, ControlError> {
        let request = LimitsInUse { filter: self.filter(), count_max: LED_REQUESTORS_MAX };
        let mut limits = self.client.run(request).await?;
        // The host's are the operators' to see.
        limits.host.clear();
        Ok(respond::page(StatusCode::OK, pages::led_tenant(&self.frame, &limits)))
    }

    pub(crate) async fn tasks(&self, query: &Form) -> Result<Answer, ControlError> {
        let given = |name: &str| query.filled(name).map(str::to_owned);
        let (requestor, plugin, status) = (given("requestor"), given("plugin"), given("status"));
        let filter = TaskFilter { requestor, plugin, status, ..self.filter() };
        let request = TasksPage { filter: filter.clone(), after: given("after"), count_max: PAGE_TASKS };
        let mut page = self.client.run(request).await?;
        page.tasks.retain(|task| task.tenant.as_deref() == Some(self.tenant));
        Ok(respond::page(StatusCode::OK, pages::led_tasks(&self.frame, &LedTasks { filter, page })))
    }

    /// A task of the tenant.
    async fn find(&self, id: &str) -> Result<TaskDetailsView, ControlError> {
        let found = self.client.run(TasksShow { id: id.to_owned() }).await?;
        match found.task.tenant.as_deref() == Some(self.tenant) {
            true => Ok(found),
            false => Err(ControlError::NotFound("there is no such task".to_owned())),
        }
    }

    pub(crate) async fn task(&self, id: &str, refused: Option<&str>) -> Result<Answer, ControlError> {
        let task = self.find(id).await?;
        let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
        let page = LedTask { task: &task, may_control: self.may_control, refused };
        Ok(respond::page(status, pages::led_task(&self.frame, self.session, &page)))
    }

    /// Does something with a task of the tenant.
    pub(crate) async fn act(&self, id: &str, order: TaskOrder) -> Result<Answer, ControlError> {
        let task = self.find(id).await?.task.id;
        match self.client.about_task(&task, order).await {
            Ok(()) => Ok(respond::see_other(&format!("/tenant/tasks/{task}"))),
            // Meanwhile it has ended, say: the page shows how it stands.
            Err(ControlError::Invalid(why)) => self.task(&task, Some(&text::line(&why))).await,
            Err(error) => Err(error),
        }
    }

    /// The plugins that the tenant is shown, with their versions.
    pub(crate) async fn plugins(&self, parts: &DashboardParts) -> Result<Answer, ControlError> {
        let mut listed = self.client.run(PluginList {}).await?.plugins;
        if let Some((requestor, rights)) = self.session.viewer.known() {
            let shown = parts.task_calls.plugins(requestor, rights);
            listed.retain(|plugin| shown.iter().any(|version| version.name == plugin.name));
        }
        let page = LedPlugins { tenant: self.tenant, plugins: &listed };
        Ok(respond::page(StatusCode::OK, pages::led_plugins(&self.frame, &page)))
    }

    pub(crate) async fn audit(&self, query: &Form) -> Result<Answer, ControlError> {
        let filter = AuditFilter { event: query.filled("event"), reader: LogReader::Lead };
        let request = AuditPage {
            events: filter.event.map(str::to_owned).into_iter().collect(),
            tenant: Some(self.tenant.to_owned()),
            after: query.filled("after").map(str::to_owned),
            count_max: PAGE_LINES,
        };
        let page = lines(self.client.run(request).await)?;
        Ok(respond::page(StatusCode::OK, pages::audit(&self.frame, filter, &page)))
    }

    pub(crate) async fn denials(&self) -> Result<Answer, ControlError> {
        let request = AuditPage {
            events: DENIALS.map(str::to_owned).into(),
            tenant: Some(self.tenant.to_owned()),
            after: None,
            count_max: DENIALS_READ_MAX,
        };
        let lines = lines(self.client.run(request).await)?;
        let page = pages::Denials { reader: LogReader::Lead, lines, history: None };
        Ok(respond::page(StatusCode::OK, pages::denials(&self.frame, &page)))
    }

    pub(crate) fn failed(&self, error: &ControlError) -> Answer {
        failed(&self.frame, error)
    }
}
