//! What an operator reads of the host as a whole: its last hour, its audit log, its tokens, its health.
//!
//! Must not change anything.

use bulkhead_control::ControlError;
use bulkhead_control::commands::{AuditPage, HealthShow, HistoryShow, HostShow, TokenList};
use bulkhead_control::views::{AuditPageView, HistoryView};
use http::StatusCode;

use crate::chart::POINTS_MAX;
use crate::operators::OperatorPages;
use crate::pages::{self, AuditFilter, Denials, LogReader, Tokens};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::text;

/// Lines of the audit log on one page.
pub(crate) const PAGE_LINES: usize = 100;
/// Lines of the audit log that are summed up for the dashboard's page of denials.
pub(crate) const DENIALS_READ_MAX: usize = 1_000;
/// What happens when something is denied; the log has more that was refused for what it is.
pub(crate) const DENIALS: [&str; 6] =
    ["call.refused", "grant.denied", "access.refused", "dashboard.refused", "admin.refused", "plugin.refused"];

/// A page of the log, or why there is none: it is off, or there is no such tenant.
pub(crate) fn lines(read: Result<AuditPageView, ControlError>) -> Result<Result<AuditPageView, String>, ControlError> {
    match read {
        Ok(page) => Ok(Ok(page)),
        Err(ControlError::Invalid(why) | ControlError::NotFound(why)) => Ok(Err(text::line(&why))),
        Err(error) => Err(error),
    }
}

impl OperatorPages<'_> {
    pub(crate) async fn history(&self) -> Result<HistoryView, ControlError> {
        self.read(HistoryShow { points_max: POINTS_MAX }).await
    }

    pub(crate) async fn audit(&self, query: &Form) -> Result<Answer, ControlError> {
        let filter = AuditFilter {
            event: query.filled("event"),
            changes_only: query.filled("show") != Some("all"),
            reader: LogReader::Operator { tenant: query.filled("tenant") },
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let request = AuditPage {
            events: owned(filter.event).into_iter().collect(),
            tenant: owned(filter.reader.tenant()),
            after: owned(query.filled("after")),
            count_max: PAGE_LINES,
            lines_only: false,
            changes_only: filter.changes_only,
        };
        let page = lines(self.read(request).await)?;
        Ok(respond::page(StatusCode::OK, pages::audit(&self.frame, filter, &page)))
    }

    pub(crate) async fn denials(&self, query: &Form) -> Result<Answer, ControlError> {
        let tenant = query.filled("tenant");
        let request = AuditPage {
            events: DENIALS.map(str::to_owned).into(),
            tenant: tenant.map(str::to_owned),
            after: None,
            count_max: DENIALS_READ_MAX,
            lines_only: false,
            changes_only: false,
        };
        let lines = lines(self.read(request).await)?;
        let page = Denials { reader: LogReader::Operator { tenant }, lines, history: Some(self.history().await?) };
        Ok(respond::page(StatusCode::OK, pages::denials(&self.frame, &page)))
    }

    /// All tokens, and the form for a new one, with what was filled in and why it was refused.
    pub(crate) async fn tokens(&self, query: &Form, refused: Option<(&Form, &str)>) -> Result<Answer, ControlError> {
        let mut tokens = self.read(TokenList {}).await?;
        let tenant = query.filled("tenant");
        tokens.tokens.retain(|token| tenant.is_none_or(|name| token.tenant == name));
        tokens.tokens.sort_by(|one, other| (other.created_at, &other.id).cmp(&(one.created_at, &one.id)));
        let page = Tokens { tokens, tenant, after: query.filled("after"), refused };
        let status = if refused.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
        Ok(respond::page(status, pages::tokens(&self.frame, self.session, &page)))
    }

    pub(crate) async fn host(&self) -> Result<Answer, ControlError> {
        let health = self.read(HealthShow {}).await?;
        let status = self.read(HostShow {}).await?;
        Ok(respond::page(StatusCode::OK, pages::host(&self.frame, self.session, &health, &status)))
    }
}
