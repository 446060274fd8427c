//! What the lead of a tenant does: it looks at the tenant's tasks, requestors, limits, plugins and lines of the audit
//! log, and may stop tasks.
//!
//! Must not know another tenant's. Invariant: every command is about the lead's own tenant or comes after a look that
//! found the task there; a task of another tenant gets the page of what is not there, and none of the answers holds
//! arguments, answers or results. Each page is read, and each order carried out, in the tenant's turn.

use std::net::IpAddr;
use std::sync::Arc;

use bulkhead_audit::{Broken, PagePosition};
use bulkhead_control::commands::{AuditPage, LimitsInUse, PluginList, TaskFilter, TasksPage, TasksShow};
use bulkhead_control::views::{PluginListView, TaskDetailsView};
use bulkhead_control::{ControlError, Request};
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::text::quoted_name;
use http::StatusCode;

use crate::digests::{open_place, seal_place};
use crate::lead_reads::{LeadReads, TooBusy};
use crate::operator_reports::{DENIALS, DENIALS_READ_MAX, PAGE_LINES, lines};
use crate::operators::{OperatorClient, TaskOrder, failed};
use crate::pages::{self, AuditFilter, Frame, LedPlugins, LedTask, LedTasks, LogReader};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::server::DashboardParts;
use crate::sessions::Session;
use crate::text;

/// What a page says whose turn did not come.
const TOO_BUSY: &str =
    "What leads of your tenant do is done one after the other, and others wait before this one. Try again in a moment.";
/// Tasks on one page of a lead's list.
const PAGE_TASKS: usize = 50;
/// Requestors of a tenant that its lead sees on one page of the dashboard.
const LED_REQUESTORS_MAX: usize = 100;

/// Why a lead gets no page.
pub(crate) enum LeadError {
    Control(ControlError),
    TooBusy(TooBusy),
}

impl From<ControlError> for LeadError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

/// What a lead is called in lines of the audit log. Its issuer chose its name, which must not look like an operator or
/// another tenant.
fn lead_at(name: &str, tenant: &str, peer: IpAddr) -> String {
    format!("dashboard lead {}@{} at {peer}", quoted_name(name), quoted_name(tenant))
}

/// A task, if it is one of the tenant.
fn of_tenant(tenant: &str, found: TaskDetailsView) -> Result<TaskDetailsView, ControlError> {
    match found.task.tenant.as_deref() == Some(tenant) {
        true => Ok(found),
        false => Err(ControlError::NotFound("there is no such task".to_owned())),
    }
}

/// A lead in front of a page.
pub(crate) struct LeadPages<'a> {
    client: OperatorClient,
    reads: &'a Arc<LeadReads>,
    session: &'a Session,
    frame: Frame<'a>,
    tenant: &'a str,
    may_control: bool,
}

impl<'a> LeadPages<'a> {
    /// `rights` are those of a lead.
    pub(crate) fn new(
        parts: &DashboardParts,
        reads: &'a Arc<LeadReads>,
        session: &'a Session,
        rights: &'a Rights,
        frame: Frame<'a>,
        peer: IpAddr,
    ) -> Self {
        let (tenant, name) = rights.names();
        let client = OperatorClient::new(&parts.operator, lead_at(name, tenant, peer));
        Self { client, reads, session, frame, tenant, may_control: rights.has(Need::TenantControl) }
    }

    fn filter(&self) -> TaskFilter {
        TaskFilter { tenant: Some(self.tenant.to_owned()), ..TaskFilter::default() }
    }

    /// Reads for a page, in the tenant's turn.
    async fn read<R: Request + Send + 'static>(&self, request: R) -> Result<Result<R::Answer, ControlError>, LeadError>
    where
        R::Answer: Send + 'static,
    {
        let client = self.client.clone();
        let read = self.reads.read(self.tenant, async move { client.run(request).await }).await;
        read.map_err(LeadError::TooBusy)
    }

    pub(crate) async fn tenant(&self) -> Result<Answer, LeadError> {
        let request = LimitsInUse { filter: self.filter(), count_max: LED_REQUESTORS_MAX };
        let mut limits = self.read(request).await??;
        // The host's are the operators' to see.
        limits.host.clear();
        Ok(respond::page(StatusCode::OK, pages::led_tenant(&self.frame, &limits)))
    }

    pub(crate) async fn tasks(&self, query: &Form) -> Result<Answer, LeadError> {
        let given = |name: &str| query.filled(name).map(str::to_owned);
        let requestor = given("requestor");
        let plugin = given("plugin");
        let status = given("status");
        let filter = TaskFilter { requestor, plugin, status, ..self.filter() };
        let request = TasksPage { filter: filter.clone(), after: given("after"), count_max: PAGE_TASKS };
        let mut page = self.read(request).await??;
        page.tasks.retain(|task| task.tenant.as_deref() == Some(self.tenant));
        Ok(respond::page(StatusCode::OK, pages::led_tasks(&self.frame, &LedTasks { filter, page })))
    }

    pub(crate) async fn task(&self, id: &str, refused: Option<&str>) -> Result<Answer, LeadError> {
        let task = of_tenant(self.tenant, self.read(TasksShow { id: id.to_owned() }).await??)?;
        let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
        let page = LedTask { task: &task, may_control: self.may_control, refused };
        Ok(respond::page(status, pages::led_task(&self.frame, self.session, &page)))
    }

    /// Does something with a task of the tenant. The look at it, and what is done, cost what a page costs: both are one
    /// turn, which goes on without the browser.
    pub(crate) async fn act(&self, id: &str, order: TaskOrder) -> Result<Answer, LeadError> {
        let client = self.client.clone();
        let tenant = self.tenant.to_owned();
        let show = TasksShow { id: id.to_owned() };
        let turn = async move {
            let task = of_tenant(&tenant, client.run(show).await?)?.task.id;
            Ok::<_, ControlError>((task.clone(), client.change_task(task, order).await))
        };
        let (task, done) = self.reads.read(self.tenant, turn).await.map_err(LeadError::TooBusy)??;
        match done {
            Ok(()) => Ok(respond::see_other(&format!("/tenant/tasks/{task}"))),
            // Meanwhile it has ended, say: the page shows how it stands.
            Err(ControlError::Invalid(why)) => self.task(&task, Some(&text::line(&why))).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn listed_plugins(&self) -> Result<PluginListView, LeadError> {
        Ok(self.read(PluginList {}).await??)
    }

    /// The plugins that the tenant is shown, with their versions.
    pub(crate) async fn plugins(&self, parts: &DashboardParts) -> Result<Answer, LeadError> {
        let mut listed = self.listed_plugins().await?.plugins;
        if let Some((requestor, rights)) = self.session.viewer.known() {
            let shown = parts.task_calls.plugins(requestor, rights);
            listed.retain(|plugin| shown.iter().any(|version| version.name == plugin.name));
        }
        let page = LedPlugins { tenant: self.tenant, plugins: &listed };
        Ok(respond::page(StatusCode::OK, pages::led_plugins(&self.frame, &page)))
    }

    pub(crate) async fn audit(&self, query: &Form) -> Result<Answer, LeadError> {
        let filter = AuditFilter { event: query.filled("event"), changes_only: false, reader: LogReader::Lead };
        // Where a line stands says how much others do, so places are sealed for the session.
        let opened = |sealed: &str| {
            let position = open_place(&self.session.key, sealed).map(PagePosition::from_bytes);
            position.map(|position| position.to_string()).ok_or_else(|| Broken::NoPlace.to_string())
        };
        let after = match query.filled("after").map(opened).transpose() {
            Ok(after) => after,
            Err(why) => return Ok(respond::page(StatusCode::OK, pages::audit(&self.frame, filter, &Err(why)))),
        };
        let request = AuditPage {
            events: filter.event.map(str::to_owned).into_iter().collect(),
            tenant: Some(self.tenant.to_owned()),
            after,
            count_max: PAGE_LINES,
            lines_only: true,
            changes_only: false,
        };
        let mut page = lines(self.read(request).await?)?;
        if let Ok(page) = &mut page {
            let next = page.next.as_deref().and_then(PagePosition::parse);
            page.next = next.map(|position| seal_place(&self.session.key, position.to_bytes()));
        }
        Ok(respond::page(StatusCode::OK, pages::audit(&self.frame, filter, &page)))
    }

    pub(crate) async fn denials(&self) -> Result<Answer, LeadError> {
        let request = AuditPage {
            events: DENIALS.map(str::to_owned).into(),
            tenant: Some(self.tenant.to_owned()),
            after: None,
            count_max: DENIALS_READ_MAX,
            lines_only: true,
            changes_only: false,
        };
        let lines = lines(self.read(request).await?)?;
        let page = pages::Denials { reader: LogReader::Lead, lines, history: None };
        Ok(respond::page(StatusCode::OK, pages::denials(&self.frame, &page)))
    }

    pub(crate) fn failed(&self, error: &LeadError) -> Answer {
        match error {
            LeadError::Control(error) => failed(&self.frame, error),
            LeadError::TooBusy(TooBusy { retry_after_ms }) => {
                let page = pages::message(&self.frame, "Not yet", TOO_BUSY);
                respond::retry_after(respond::page(StatusCode::TOO_MANY_REQUESTS, page), *retry_after_ms)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bulkhead_control::{Answer as ControlAnswer, Command, Operator};
    use futures::future::BoxFuture;

    use super::*;

    #[test]
    fn lead_is_not_named_as_an_operator_or_as_of_another_tenant_is() {
        let named = |name: &str| lead_at(name, "acme", IpAddr::from([127, 0, 0, 1]));
        assert_eq!(named("cleo"), "dashboard lead cleo@acme at 127.0.0.1");
        assert_eq!(named("operator at 10.0.0.1"), "dashboard lead \"operator at 10.0.0.1\"@acme at 127.0.0.1");
        assert_eq!(named("x@globex"), "dashboard lead \"x@globex\"@acme at 127.0.0.1");
    }

    struct Idle;

    #[async_trait]
    impl Operator for Idle {
        async fn execute_for(&self, _: &str, _: Command) -> Result<ControlAnswer, ControlError> {
            Err(ControlError::NotFound("nothing is here".to_owned()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_page_and_order_of_a_lead_waits_for_its_turn() {
        let operator: Arc<dyn Operator> = Arc::new(Idle);
        let reads = LeadReads::new();
        let session = Session::of_operator();
        let lead = LeadPages {
            client: OperatorClient::new(&operator, "lead".to_owned()),
            reads: &reads,
            session: &session,
            frame: Frame { session: None, here: "", address: "", now: 0 },
            tenant: "acme",
            may_control: true,
        };
        let held = Arc::clone(&reads);
        tokio::spawn(async move { held.read("acme", std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        let nothing = Form::default();
        let pages: [BoxFuture<'_, Result<Answer, LeadError>>; 9] = [
            Box::pin(lead.tenant()),
            Box::pin(lead.tasks(&nothing)),
            Box::pin(lead.task("1", None)),
            Box::pin(async { lead.listed_plugins().await.map(|_| respond::see_other("/")) }),
            Box::pin(lead.denials()),
            Box::pin(lead.audit(&nothing)),
            Box::pin(lead.act("1", TaskOrder::Cancel)),
            Box::pin(lead.act("1", TaskOrder::Pause)),
            Box::pin(lead.act("1", TaskOrder::Resume)),
        ];
        for (number, page) in pages.into_iter().enumerate() {
            assert!(matches!(page.await, Err(LeadError::TooBusy(_))), "page {number}");
        }
    }
}
