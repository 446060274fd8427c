//! What a request has to pass before it gets what the table of routes has for it.
//!
//! Must not read a credential. Invariant: the order of checks: name of the host (that of previews has nothing else),
//! whether the form is ours, session, rate, body, token of the form, route; what a viewer may not see is answered like
//! what is not there.

use std::net::IpAddr;
use std::sync::Arc;

use bulkhead_control::Operator;
use bulkhead_limits::ScopedCounter;
use bulkhead_limits::failures::Failures;
use bulkhead_net::server::RequestBody;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, StatusCode, header};

use crate::app_preview::{AppPreview, PreviewedBy};
use crate::digests::is_form_token;
use crate::lead::LeadPages;
use crate::lead_reads::LeadReads;
use crate::live::StreamOwner;
use crate::oidc::UsedAttempts;
use crate::operators::OperatorPages;
use crate::orders::PluginOrders;
use crate::own_tasks::{Own, absent, refused};
use crate::pages::{Frame, TOKEN_FIELD, message};
use crate::request::{Form, Site, cookie, read_form};
use crate::respond::{self, Answer};
use crate::route_table::{Handler, Route, RouteRequest, Visit};
use crate::server::DashboardParts;
use crate::sessions::{Session, Sessions, Viewer};
use crate::shared_reads::SharedReads;
use crate::{assets, login, route_table};

/// Characters of a path of the dashboard; a longer one leads nowhere.
const PATH_CHARS_MAX: usize = 1_000;

/// What every request is answered with.
pub(crate) struct Routes {
    pub(crate) parts: DashboardParts,
    pub(crate) site: Site,
    /// The other origin of the listener, if views of MCP Apps are previewed.
    pub(crate) app_preview: Option<AppPreview>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) used_attempts: UsedAttempts,
    pub(crate) failures: Failures,
    /// Signs the forms of those who have no session.
    pub(crate) login_key: [u8; 32],
    /// What operators have ordered of plugins.
    pub(crate) orders: PluginOrders,
    /// What operators look at all the time.
    pub(crate) reads: Arc<SharedReads>,
    /// What leads look at.
    pub(crate) lead_reads: Arc<LeadReads>,
    pub(crate) streams: Arc<ScopedCounter<StreamOwner>>,
}

/// How a page is read: once, or again and again for as long as it is open.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) operator: &'a Arc<dyn Operator>,
    pub(crate) follows: bool,
}

impl Routes {
    pub(crate) async fn answer(self: &Arc<Self>, request: Request<RequestBody>, peer: IpAddr) -> Answer {
        let (request, body) = request.into_parts();
        if let Some(preview) = self.app_preview.as_ref().filter(|preview| preview.is_for(&request)) {
            return preview.answer(&request);
        }
        let Some(host) = self.site.own_host(&request) else {
            let message =
                "The dashboard does not answer to this name; the operator can add it to dashboard.allowed_hosts\n";
            return respond::refusal(StatusCode::FORBIDDEN, message);
        };
        let reads = [Method::GET, Method::HEAD].contains(&request.method);
        if !reads && request.method != Method::POST {
            return method_not_allowed("GET, HEAD, POST");
        }
        if let Some(address) = self.site.own_address(&request, host).filter(|_| reads) {
            return respond::see_other(&address);
        }
        if !reads && !self.site.is_own_form(&request.headers, host) {
            let message = "Forms are taken from pages of the dashboard only\n";
            return respond::refusal(StatusCode::FORBIDDEN, message);
        }
        let path = request.uri.path();
        if path.len() > PATH_CHARS_MAX {
            return respond::refusal(StatusCode::URI_TOO_LONG, "The address is too long\n");
        }
        if let Some(asset) = assets::find(path).filter(|_| reads) {
            return asset;
        }
        if let Some((Route { handler: Handler::Open(open), .. }, _)) = route_table::find(None, reads, path) {
            return open(self, Visit { request: &request, body, host, peer }).await;
        }
        let cookie = cookie(&request.headers, &self.site.session_cookie);
        let session = match cookie {
            Some(cookie) => self.sessions.find(cookie).await,
            None => None,
        };
        match session {
            Some(session) => self.answer_viewer(&request, body, peer, &session).await,
            None if reads => respond::see_other(login::ACTION),
            None => self.login_page(&request, StatusCode::UNAUTHORIZED, Some("Your session has ended: log in again.")),
        }
    }

    /// For a viewer who is logged in.
    async fn answer_viewer(&self, request: &Parts, body: RequestBody, peer: IpAddr, session: &Arc<Session>) -> Answer {
        let frame = |here| Frame { session: Some(session), here, address: "", now: self.parts.clock.now() };
        let _permit = match &session.viewer {
            Viewer::Operator => None,
            Viewer::Requestor { requestor, .. } => match (self.parts.admit)(requestor) {
                Ok(permit) => Some(permit),
                Err(error) => return refused(&frame(""), &error),
            },
        };
        if request.method != Method::POST {
            let reader = Reader { operator: &self.parts.operator, follows: false };
            return self.read(request, peer, session, reader).await;
        }
        let Some(form) = read_form(&request.headers, body).await else {
            return respond::refusal(StatusCode::BAD_REQUEST, "A form of bounded size is expected\n");
        };
        if !is_form_token(&session.key, request.uri.path(), form.get(TOKEN_FIELD).unwrap_or_default()) {
            let reason = "The form was not one of this session. Go back, reload the page and try again.";
            return respond::page(StatusCode::FORBIDDEN, message(&frame(""), "That was not done", reason));
        }
        self.route(Some(form), request, peer, session, Reader { operator: &self.parts.operator, follows: false }).await
    }

    /// A page.
    pub(crate) async fn read(
        &self,
        request: &Parts,
        peer: IpAddr,
        session: &Arc<Session>,
        reader: Reader<'_>,
    ) -> Answer {
        self.route(None, request, peer, session, reader).await
    }

    /// What is in the table for this viewer.
    async fn route(
        &self,
        form: Option<Form>,
        request: &Parts,
        peer: IpAddr,
        session: &Arc<Session>,
        Reader { operator, follows }: Reader<'_>,
    ) -> Answer {
        // The page after a form is no place to come back to.
        let address = request.uri.path_and_query().filter(|_| form.is_none()).map_or("", PathAndQuery::as_str);
        let frame = |here| Frame { session: Some(session), here, address, now: self.parts.clock.now() };
        let found = route_table::find(Some(&session.viewer), form.is_none(), request.uri.path());
        let Some((route, names)) = found else { return absent(&frame("")) };
        let route_request =
            RouteRequest { names, query: query(request), form: form.unwrap_or_default(), parts: &self.parts };
        let frame = frame(route.head());
        match (&route.handler, session.viewer.known()) {
            (Handler::Any(answer), _) => answer(self, request, session, peer).await,
            (Handler::Own(answer), Some((requestor, rights))) => {
                let previews = self.app_preview.as_ref().zip(self.site.own_host(request));
                let previews = previews.map(|(preview, host)| PreviewedBy { preview, host });
                let own = Own { tasks: &self.parts.tasks, session, requestor, rights, frame, follows, previews };
                answer(&own, &route_request).await
            }
            (Handler::Lead(answer) | Handler::Control(answer), Some((_, rights))) => {
                let pages = LeadPages::new(&self.parts, &self.lead_reads, session, rights, frame, peer);
                answer(&pages, &route_request).await.unwrap_or_else(|error| pages.failed(&error))
            }
            (Handler::Operator(answer), None) => {
                let trace_link = self.parts.trace_link.as_deref();
                let pages = OperatorPages { operator, orders: &self.orders, session, peer, frame, trace_link };
                answer(&pages, &route_request).await.unwrap_or_else(|error| pages.failed(&error))
            }
            _ => absent(&frame),
        }
    }

    /// Shows times as they are, or by how long ago they were, for the rest of the session.
    pub(crate) fn set_times(request: &Parts, session: &Session) -> Answer {
        let query = query(request);
        session.set_exact_times(query.get("exact") == Some("1"));
        respond::see_other(own_address(query.get("to").unwrap_or_default()))
    }

    pub(crate) async fn log_out(&self, request: &Parts, session: &Session, peer: IpAddr) -> Answer {
        if let Some(cookie) = cookie(&request.headers, &self.site.session_cookie) {
            self.sessions.end(cookie).await;
        }
        self.parts.audit.note(|| login::noted("dashboard.logout", &session.viewer, session.proof(), peer));
        let mut answer = respond::see_other(login::ACTION);
        respond::set_cookie(&mut answer, &self.site.session_cookie, "", self.site.has_tls);
        answer
    }
}

/// An address of the dashboard; another one leads to the first page.
fn own_address(to: &str) -> &str {
    // Browsers leave tabs out of an address, and take a backslash for a slash.
    let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_plain && to.starts_with('/') && !to.starts_with("//") { to } else { "/" }
}

pub(crate) fn query(request: &Parts) -> Form {
    Form::parse(request.uri.query().unwrap_or_default().as_bytes())
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut response =
        respond::refusal(StatusCode::METHOD_NOT_ALLOWED, "Pages are read with GET and change with POST\n");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_leads_back_to_pages_of_the_dashboard_alone() {
        for own in ["/", "/tasks?tool=a%20b&sort=-changed", "/tasks/1"] {
            assert_eq!(own_address(own), own);
        }
        for foreign in
            ["", "//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example", "tasks", "/a b"]
        {
            assert_eq!(own_address(foreign), "/", "{foreign:?}");
        }
    }
}
