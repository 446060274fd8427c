//! Which request gets which page.
//!
//! Must not read a credential. Invariant: the order of checks: name of the host, whether the form is ours, session, rate, body, token of
//! the form, route; what a viewer may not see is answered like what is not there.

use std::net::IpAddr;
use std::sync::Arc;

use bulkhead_control::Operator;
use bulkhead_limits::ScopedCounter;
use bulkhead_limits::failures::Failures;
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;

use crate::lead::LeadPages;
use crate::live::{self, StreamOwner};
use crate::oidc::UsedAttempts;
use crate::operators::OperatorPages;
use crate::orders::PluginOrders;
use crate::own_tasks::{Own, absent, refused};
use crate::pages::{Frame, TOKEN_FIELD, message};
use crate::request::{Form, Site, cookie, read_form};
use crate::respond::{self, Answer};
use crate::server::DashboardParts;
use crate::session_store::SessionRules;
use crate::sessions::{Session, Sessions, Viewer, is_form_token};
use crate::shared_reads::SharedReads;
use crate::{assets, login, oidc};

/// Characters of a path of the dashboard; a longer one leads nowhere.
const PATH_CHARS_MAX: usize = 1_000;

/// What every request is answered with.
pub(crate) struct Routes {
    pub(crate) parts: DashboardParts,
    pub(crate) site: Site,
    pub(crate) sessions: Arc<Sessions>,
    /// What sessions of an earlier process had to fit.
    pub(crate) session_rules: SessionRules,
    pub(crate) used_attempts: UsedAttempts,
    pub(crate) failures: Failures,
    /// Signs the forms of those who have no session.
    pub(crate) login_key: [u8; 32],
    /// What operators have ordered of plugins.
    pub(crate) orders: PluginOrders,
    /// What operators look at all the time.
    pub(crate) reads: Arc<SharedReads>,
    pub(crate) streams: Arc<ScopedCounter<StreamOwner>>,
}

/// How a page is read: once, or again and again for as long as it is open.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) operator: &'a Arc<dyn Operator>,
    pub(crate) follows: bool,
}

impl Routes {
    pub(crate) async fn answer(self: &Arc<Self>, request: Request<Incoming>, peer: IpAddr) -> Answer {
        let (request, body) = request.into_parts();
        let Some(host) = self.site.own_host(&request) else {
            let said =
                "The dashboard does not answer to this name; the operator can add it to dashboard.allowed_hosts\n";
            return respond::refusal(StatusCode::FORBIDDEN, said);
        };
        let reads = [Method::GET, Method::HEAD].contains(&request.method);
        if !reads && request.method != Method::POST {
            return method_not_allowed("GET, HEAD, POST");
        }
        if !reads && !self.site.is_own_form(&request.headers, host) {
            let said = "Forms are taken from pages of the dashboard only\n";
            return respond::refusal(StatusCode::FORBIDDEN, said);
        }
        let path = request.uri.path();
        if path.len() > PATH_CHARS_MAX {
            return respond::refusal(StatusCode::URI_TOO_LONG, "The address is too long\n");
        }
        if let Some(asset) = assets::find(path).filter(|_| reads) {
            return asset;
        }
        match (reads, path) {
            (true, login::ACTION) => return self.login_page(&request, StatusCode::OK, None),
            (true, oidc::START) => return self.begin_oidc(&request, host).await,
            (true, oidc::CALLBACK) if request.method == Method::HEAD => return method_not_allowed("GET"),
            (true, oidc::CALLBACK) => return self.end_oidc(&request, host, &query(&request), peer).await,
            (true, "/login/once") => return self.code_page(&request, &query(&request)),
            (false, login::ACTION) => return self.log_in(&request, body, peer).await,
            _ => {}
        }
        let cookie = cookie(&request.headers, &self.site.session_cookie);
        if reads && path == live::PATH {
            return self.stream(&request, peer, cookie.unwrap_or_default()).await;
        }
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
    async fn answer_viewer(&self, request: &Parts, body: Incoming, peer: IpAddr, session: &Arc<Session>) -> Answer {
        let path = request.uri.path();
        let frame = |here| Frame { session: Some(session), here, now: self.parts.clock.now() };
        let _place = match &session.viewer {
            Viewer::Operator => None,
            Viewer::Requestor { requestor, .. } => match (self.parts.admit)(requestor) {
                Ok(place) => Some(place),
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
        if !is_form_token(&session.key, path, form.get(TOKEN_FIELD).unwrap_or_default()) {
            let said = "The form was not one of this session. Go back, reload the page and try again.";
            return respond::page(StatusCode::FORBIDDEN, message(&frame(""), "That was not done", said));
        }
        if path == "/logout" {
            return self.log_out(request, session, peer).await;
        }
        let done = match segments(path)[..] {
            ["tasks", id, action] => match &session.viewer {
                Viewer::Operator => {
                    let pages = self.operator_pages(&self.parts.operator, frame("/tasks"), session, peer);
                    pages.act(id, action).await.map(|done| done.unwrap_or_else(|error| pages.failed(&error)))
                }
                Viewer::Requestor { requestor, rights, .. } => {
                    let (tasks, frame) = (&self.parts.tasks, frame("/tasks"));
                    Own { tasks, session, requestor, rights, frame, follows: false }.act(id, action, &form).await
                }
            },
            ["tenant", "tasks", id, action] => match &session.viewer {
                Viewer::Operator => None,
                Viewer::Requestor { rights, .. } => {
                    let pages = LeadPages::new(&*self.parts.operator, session, rights, (frame("/tenant"), peer));
                    match pages {
                        Some(pages) => pages.act(id, action).await,
                        None => None,
                    }
                }
            },
            ["tools", name, "call"] => match &session.viewer {
                Viewer::Operator => None,
                Viewer::Requestor { requestor, rights, .. } => {
                    let own = Own {
                        tasks: &self.parts.tasks,
                        session,
                        requestor,
                        rights,
                        frame: frame("/tools"),
                        follows: false,
                    };
                    Some(own.call(&self.parts.task_calls, &decoded(name), &form).await)
                }
            },
            ["plugins", ref order @ ..] if matches!(session.viewer, Viewer::Operator) => {
                let pages = self.operator_pages(&self.parts.operator, frame("/plugins"), session, peer);
                let done = match *order {
                    ["stage"] => Some(pages.stage(&form).await),
                    [name, action] => pages.act_on_plugin(&decoded(name), action, &form).await,
                    _ => None,
                };
                done.map(|done| done.unwrap_or_else(|error| pages.failed(&error)))
            }
            ref path => match &session.viewer {
                Viewer::Operator => {
                    let pages = self.operator_pages(&self.parts.operator, frame(place_of(path)), session, peer);
                    pages.order(path, &form).await.map(|done| done.unwrap_or_else(|error| pages.failed(&error)))
                }
                Viewer::Requestor { .. } => None,
            },
        };
        done.unwrap_or_else(|| absent(&frame("")))
    }

    /// A page.
    pub(crate) async fn read(
        &self,
        request: &Parts,
        peer: IpAddr,
        session: &Arc<Session>,
        Reader { operator, follows }: Reader<'_>,
    ) -> Answer {
        let frame = |here| Frame { session: Some(session), here, now: self.parts.clock.now() };
        let (query, path) = (query(request), segments(request.uri.path()));
        if let Viewer::Requestor { requestor, rights, .. } = &session.viewer {
            let here = match path[..] {
                ["tools", ..] => "/tools",
                ["tenant", ..] => "/tenant",
                ["limits"] => "/limits",
                _ => "/tasks",
            };
            let own = Own { tasks: &self.parts.tasks, session, requestor, rights, frame: frame(here), follows };
            return match path[..] {
                [] | ["tasks"] => own.list(&query).await,
                ["tasks", id] => own.show(id).await,
                ["tasks", id, "image", place] => own.image(&self.parts, id, place).await,
                ["tasks", id, "file", place] => own.file(&self.parts, id, place).await,
                ["tools"] => own.tools(&self.parts.task_calls, &query),
                ["tools", name] => own.tool(&self.parts.task_calls, &decoded(name)),
                ["limits"] => own.limits(&self.parts).await,
                ["tenant", ref below @ ..] => {
                    match LeadPages::new(&*self.parts.operator, session, rights, (frame(here), peer)) {
                        Some(pages) => pages.read(below, &query).await,
                        None => absent(&frame("")),
                    }
                }
                _ => absent(&frame("")),
            };
        }
        let pages = self.operator_pages(operator, frame(place_of(&path)), session, peer);
        let done = match path[..] {
            [] => pages.overview().await,
            ["tasks"] => pages.tasks(&query).await,
            ["tasks", id] => pages.task(id, None).await,
            ["plugins"] => pages.plugins(&query).await,
            ["plugins", name] => pages.plugin(&decoded(name)).await,
            ["plugins", name, version, "changes"] => pages.changes(&decoded(name), version, &query).await,
            ["tenants"] => pages.tenants(&query).await,
            ["tenants", name] => pages.tenant(&decoded(name)).await,
            ["denials"] => pages.denials(&query).await,
            ["audit"] => pages.audit(&query).await,
            ["tokens"] => pages.tokens(&query, None).await,
            ["hosts"] => pages.host().await,
            _ => return absent(&frame("")),
        };
        done.unwrap_or_else(|error| pages.failed(&error))
    }

    fn operator_pages<'a>(
        &'a self,
        operator: &'a Arc<dyn Operator>,
        frame: Frame<'a>,
        session: &'a Session,
        peer: IpAddr,
    ) -> OperatorPages<'a> {
        OperatorPages { operator, orders: &self.orders, session, peer, frame }
    }

    async fn log_out(&self, request: &Parts, session: &Session, peer: IpAddr) -> Answer {
        if let Some(cookie) = cookie(&request.headers, &self.site.session_cookie) {
            self.sessions.end(cookie).await;
        }
        self.parts.audit.note(|| login::noted("dashboard.logout", &session.viewer, session.proof(), peer));
        let mut answer = respond::see_other(login::ACTION);
        respond::set_cookie(&mut answer, &self.site.session_cookie, "", self.site.has_tls);
        answer
    }
}

/// The page in the head of an operator's pages to which a path belongs.
fn place_of(path: &[&str]) -> &'static str {
    match path {
        ["tasks", ..] => "/tasks",
        ["plugins", ..] => "/plugins",
        ["tenants", ..] => "/tenants",
        ["denials", ..] => "/denials",
        ["audit", ..] => "/audit",
        ["tokens", ..] => "/tokens",
        ["hosts", ..] => "/hosts",
        _ => "/",
    }
}

fn query(request: &Parts) -> Form {
    Form::parse(request.uri.query().unwrap_or_default().as_bytes())
}

/// The parts of a path between its slashes.
fn segments(path: &str) -> Vec<&str> {
    path.split('/').skip(1).filter(|part| !part.is_empty()).collect()
}

/// A part of a path as it was before it became one.
fn decoded(segment: &str) -> String {
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut response =
        respond::refusal(StatusCode::METHOD_NOT_ALLOWED, "Pages are read with GET and change with POST\n");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
