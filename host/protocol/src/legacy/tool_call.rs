//! A call of a tool, as its session made it.

use std::sync::Arc;

use crate::arguments::{self, CallRefusal};
use crate::session::Session;
use bulkhead_domain::Json;
use bulkhead_domain::task::{Design, Era, Origin};
use bulkhead_tasks::{CallRequest, ClientContext, Tasks};

/// A `tools/call` that begins if its arguments fit.
pub(super) struct Call {
    pub(super) request: CallRequest,
    pub(super) progress_token: Option<Json>,
    pub(super) session: Arc<Session>,
    /// Whether the client reads what is said before the response.
    pub(super) reads_events: bool,
    /// Set for a call or a task that is to be made once.
    pub(super) idempotency_key: Option<String>,
}

impl Call {
    /// Where a task that is made of it comes from.
    pub(super) fn origin(&self, design: Design) -> Origin {
        let ClientContext { features, log_level, .. } = self.request.client;
        Origin {
            era: Era::Legacy,
            design,
            session: Some(self.session.digest()),
            features,
            log_level,
            progress_token: self.progress_token.clone(),
            trace: None,
        }
    }

    /// Whether the arguments fit.
    pub(super) async fn check(&self, tasks: &Tasks) -> Result<(), CallRefusal> {
        arguments::check(tasks, self.session.requestor(), &self.request).await
    }
}
