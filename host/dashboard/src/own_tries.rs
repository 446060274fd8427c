//! What a requestor tries on a page: a plain call of a tool, a resource that is read, a prompt that is filled in.
//!
//! Must not have rules of its own: a page sends what a client would send, and shows what that is answered. Invariants:
//! nothing is tried by a GET, save that a list is read; what was tried is stopped when its page does not wait any
//! longer; the bytes of an answer are within the requestor's room for answers until they are sent.

use std::time::{Duration, Instant};

use bulkhead_domain::rights::Need;
use bulkhead_domain::tool::TaskSupport;
use bulkhead_protocol::{MayBecomeTask, PageAnswer, PageList, PageRequest, Rejection};
use http::StatusCode;
use maud::Markup;

use crate::own_tasks::{Own, absent};
use crate::own_views::WantedView;
use crate::pages::{self, Listed, ListedPage, TriedPage, address};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::server::DashboardParts;
use crate::tried::Tried;
use crate::{arguments, fields, text};

/// How long a page of the dashboard waits for an answer to what was tried on it.
const TRY_MS_MAX: u64 = 60_000;

/// What a page tries, and how it is called.
pub(crate) struct Attempt<'a> {
    pub(crate) request: &'a PageRequest,
    pub(crate) title: String,
    /// The page that it was tried on, and what that is called.
    pub(crate) back: (String, &'static str),
    /// The form to try it once more.
    pub(crate) again: Markup,
    /// To show with a result.
    pub(crate) view: Option<WantedView<'a>>,
}

impl Own<'_> {
    /// Calls a tool plainly. What cannot be sent comes back with what was filled in.
    pub(crate) async fn try_tool(&self, parts: &DashboardParts, name: &str, form: &Form) -> Answer {
        let calls = &parts.task_calls;
        let Some(offered) = calls.tool(self.requestor, self.rights, name) else { return absent(&self.frame) };
        let tool = offered.tool();
        let may_become_task = match tool.task_support {
            TaskSupport::Optional if self.rights.has(Need::Tasks) => MayBecomeTask::Yes,
            _ => MayBecomeTask::No,
        };
        let arguments = arguments::read(tool.input_schema.as_str(), form);
        let request = arguments.and_then(|text| PageRequest::call_tool(name, text.trim(), may_become_task));
        let request = match request {
            Ok(request) => request,
            Err(why) => return self.tool_page(calls, name, StatusCode::UNPROCESSABLE_ENTITY, Some((form, &why))),
        };
        let attempt = Attempt {
            request: &request,
            title: text::line(name),
            back: (format!("/tools/{name}"), "To the tool"),
            again: self.call_form(&offered, Some(form)),
            view: None,
        };
        self.attempt(parts, attempt).await
    }

    /// Reads a resource: that of the button, or of the address that was filled in.
    pub(crate) async fn try_resource(&self, parts: &DashboardParts, form: &Form) -> Answer {
        let uri = form.filled("uri").or_else(|| form.filled("address")).unwrap_or_default();
        let request = PageRequest::read_resource(uri);
        let attempt = Attempt {
            request: &request,
            title: "A resource".to_owned(),
            back: ("/resources".to_owned(), "To the resources"),
            again: pages::resource_again(self.session, uri),
            view: None,
        };
        self.attempt(parts, attempt).await
    }

    /// Fills a prompt in. What was left empty is left out.
    pub(crate) async fn try_prompt(&self, parts: &DashboardParts, form: &Form) -> Answer {
        let name = form.get("prompt").unwrap_or_default();
        let filled = fields::sent(form).filter(|(_, value)| !value.is_empty());
        let filled: Vec<_> = filled.map(|(name, value)| (name.to_owned(), value.replace("\r\n", "\n"))).collect();
        let request = PageRequest::get_prompt(name, &filled);
        let attempt = Attempt {
            request: &request,
            title: text::line(name),
            back: ("/prompts".to_owned(), "To the prompts"),
            again: pages::prompt_again(self.session, name, form),
            view: None,
        };
        self.attempt(parts, attempt).await
    }

    pub(crate) async fn attempt(&self, parts: &DashboardParts, attempt: Attempt<'_>) -> Answer {
        let Attempt { request, title, back, again, view } = attempt;
        let begun = Instant::now();
        let answer = self.send_request(parts, request).await;
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tried = answer.as_ref().map_or(Tried::Stopped, Tried::read);
        let framed = match (view, &tried, &answer) {
            (Some(view), Tried::Result(_), Some(answer)) => Some(self.view(parts, view, answer).await),
            _ => None,
        };
        let (address, back_label) = &back;
        let page = TriedPage {
            title: &title,
            back: address,
            back_label,
            request,
            answer: answer.as_ref(),
            tried: &tried,
            took_ms,
            view: framed.as_ref(),
            again: &again,
        };
        let (status, retry_after_ms) = status(answer.as_ref());
        let shown = pages::tried(&self.frame, &page, true).into_string().into_bytes();
        let mut shown = match self.held(parts, status, "text/html; charset=utf-8", shown) {
            Ok(shown) => shown,
            // It was done, so its page comes all the same, with texts alone.
            Err(_) => respond::page(status, pages::tried(&self.frame, &page, false)),
        };
        if let Some(view) = view {
            respond::allow_frames(&mut shown, view.by.origin());
        }
        match retry_after_ms {
            Some(ms) => respond::retry_after(shown, ms),
            None => shown,
        }
    }

    /// `None`: it took too long, and was stopped by that.
    pub(crate) async fn send_request(&self, parts: &DashboardParts, request: &PageRequest) -> Option<PageAnswer> {
        let sent = parts.page_client.send(self.requestor, self.rights, request);
        tokio::time::timeout(Duration::from_millis(TRY_MS_MAX), sent).await.ok()
    }

    /// A page of the resources that this requestor is listed, and the families of more.
    pub(crate) async fn resources(&self, parts: &DashboardParts, query: &Form) -> Answer {
        let after = query.filled("after");
        let listed = match self.listed(parts, PageList::Resources, after).await {
            Ok(listed) => listed,
            Err(answer) => return answer,
        };
        let families = match after {
            None => match self.listed(parts, PageList::ResourceTemplates, None).await {
                Ok(families) => families,
                Err(answer) => return answer,
            },
            Some(_) => Listed::default(),
        };
        let next = listed.next.as_deref().map(|next| address("/resources", &[("after", Some(next))]));
        let page = ListedPage { entries: &listed.entries, families: &families.entries, next };
        respond::page(StatusCode::OK, pages::resources(&self.frame, self.session, &page))
    }

    /// A page of the prompts.
    pub(crate) async fn prompts(&self, parts: &DashboardParts, query: &Form) -> Answer {
        let listed = match self.listed(parts, PageList::Prompts, query.filled("after")).await {
            Ok(listed) => listed,
            Err(answer) => return answer,
        };
        let next = listed.next.as_deref().map(|next| address("/prompts", &[("after", Some(next))]));
        let page = ListedPage { entries: &listed.entries, families: &[], next };
        respond::page(StatusCode::OK, pages::prompts(&self.frame, self.session, &page))
    }

    /// A part of a list; a host that has nothing of the kind has an empty one.
    async fn listed(&self, parts: &DashboardParts, list: PageList, after: Option<&str>) -> Result<Listed, Answer> {
        let answer = self.send_request(parts, &PageRequest::list(list, after)).await;
        let why = match answer.as_ref().map_or(Err(Tried::Stopped), |answer| Listed::read(answer, list.member())) {
            Ok(listed) => return Ok(listed),
            Err(tried) if tried.is_no_method() => return Ok(Listed::default()),
            Err(Tried::Refused { message, .. }) => text::line(&message),
            Err(_) => "The list cannot be shown.".to_owned(),
        };
        let status = match status(answer.as_ref()) {
            (StatusCode::OK, _) => StatusCode::BAD_GATEWAY,
            (status, _) => status,
        };
        Err(respond::page(status, pages::message(&self.frame, "That was not done", &why)))
    }
}

/// The status of a page, and when to come back. What a tool or the protocol says within an answer is a page like any
/// other.
fn status(answer: Option<&PageAnswer>) -> (StatusCode, Option<u64>) {
    match answer.map(|answer| answer.rejection.as_ref()) {
        None => (StatusCode::GATEWAY_TIMEOUT, None),
        Some(Some(Rejection::TooMany { retry_after_ms })) => (StatusCode::TOO_MANY_REQUESTS, *retry_after_ms),
        Some(Some(Rejection::Unavailable { retry_after_ms })) => (StatusCode::SERVICE_UNAVAILABLE, *retry_after_ms),
        Some(Some(Rejection::Forbidden { .. })) => (StatusCode::FORBIDDEN, None),
        Some(_) => (StatusCode::OK, None),
    }
}
