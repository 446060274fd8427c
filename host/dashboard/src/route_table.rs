//! Which pages and orders there are, for whom, and what answers each.
//!
//! Must not look at a request. Invariant: what is not in the table is not there, for anybody; no viewer has two rows
//! for one address.

use std::net::IpAddr;
use std::sync::Arc;

use bulkhead_control::ControlError;
use bulkhead_domain::rights::Need;
use bulkhead_net::server::RequestBody;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, StatusCode};

use crate::lead::{LeadError, LeadPages};
use crate::operators::{OperatorPages, TaskOrder};
use crate::own_tasks::Own;
use crate::pages::TIMES;
use crate::request::Form;
use crate::respond::Answer;
use crate::routes::{Routes, method_not_allowed};
use crate::server::DashboardParts;
use crate::sessions::{Session, Viewer};
use crate::{live, login, oidc};
use Handler::{Any, Control, Lead, Open, Operator, Own as Requestor};

/// An address of the dashboard, with names in braces for parts that stand for something.
pub struct Route {
    is_read: bool,
    path: &'static str,
    pub(crate) handler: Handler,
}

/// For whom an address is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedViewers {
    /// Also who is not logged in.
    Everyone,
    /// Everyone who is.
    Viewers,
    Requestors,
    /// Leads of a tenant.
    Leads,
    /// Those of them who may stop tasks.
    ControllingLeads,
    Operators,
}

/// What is asked, beside who asks.
pub(crate) struct RouteRequest<'a> {
    /// What stands for the names in braces, as it was before it became part of an address.
    pub(crate) names: Vec<String>,
    pub(crate) query: Form,
    /// What was sent.
    pub(crate) form: Form,
    pub(crate) parts: &'a DashboardParts,
}

impl RouteRequest<'_> {
    fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }
}

/// A request that needs no login.
pub(crate) struct Visit<'a> {
    pub(crate) request: &'a Parts,
    pub(crate) body: RequestBody,
    /// The name of this host that it came by.
    pub(crate) host: &'a str,
    pub(crate) peer: IpAddr,
}

/// What answers, by whom it knows.
pub(crate) enum Handler {
    Open(for<'a> fn(&'a Arc<Routes>, Visit<'a>) -> BoxFuture<'a, Answer>),
    Any(for<'a> fn(&'a Routes, &'a Parts, &'a Session, IpAddr) -> BoxFuture<'a, Answer>),
    Own(for<'a> fn(&'a Own<'a>, &'a RouteRequest<'a>) -> BoxFuture<'a, Answer>),
    Lead(for<'a> fn(&'a LeadPages<'a>, &'a RouteRequest<'a>) -> BoxFuture<'a, Result<Answer, LeadError>>),
    Control(for<'a> fn(&'a LeadPages<'a>, &'a RouteRequest<'a>) -> BoxFuture<'a, Result<Answer, LeadError>>),
    Operator(for<'a> fn(&'a OperatorPages<'a>, &'a RouteRequest<'a>) -> BoxFuture<'a, Done>),
}

type Done = Result<Answer, ControlError>;

impl Handler {
    fn is_for(&self, viewer: &Viewer) -> bool {
        match (self, viewer.known()) {
            (Self::Open(_), _) | (Self::Any(_), _) => true,
            (Self::Operator(_), known) => known.is_none(),
            (_, None) => false,
            (Self::Own(_), Some(_)) => true,
            (Self::Lead(_), Some((_, rights))) => rights.has(Need::Tenant),
            (Self::Control(_), Some((_, rights))) => rights.has(Need::Tenant) && rights.has(Need::TenantControl),
        }
    }
}

impl Route {
    const fn page(path: &'static str, handler: Handler) -> Self {
        Self { is_read: true, path, handler }
    }

    const fn order(path: &'static str, handler: Handler) -> Self {
        Self { is_read: false, path, handler }
    }

    /// Whether it is read with GET; it changes something with POST otherwise.
    pub fn is_read(&self) -> bool {
        self.is_read
    }

    pub fn path(&self) -> &'static str {
        self.path
    }

    pub fn allowed_viewers(&self) -> AllowedViewers {
        match self.handler {
            Handler::Open(_) => AllowedViewers::Everyone,
            Handler::Any(_) => AllowedViewers::Viewers,
            Handler::Own(_) => AllowedViewers::Requestors,
            Handler::Lead(_) => AllowedViewers::Leads,
            Handler::Control(_) => AllowedViewers::ControllingLeads,
            Handler::Operator(_) => AllowedViewers::Operators,
        }
    }

    /// The page in the head of all pages to which it belongs.
    pub(crate) fn head(&self) -> &'static str {
        match (self.path, self.path.get(1..).and_then(|path| path.find('/'))) {
            ("/", _) if self.allowed_viewers() == AllowedViewers::Requestors => "/tasks",
            (path, None) => path,
            (path, Some(end)) => path.get(..end + 1).unwrap_or_default(),
        }
    }

    /// The parts of a path that stand for its names; `None`: it is not about this path.
    fn names<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let parts = |path: &'a str| path.split('/').filter(|part| !part.is_empty());
        let mut names = Vec::new();
        let mut given = parts(path);
        for part in parts(self.path) {
            let given = given.next()?;
            match part.starts_with('{') {
                true => names.push(given),
                false if part == given => {}
                false => return None,
            }
        }
        given.next().is_none().then_some(names)
    }
}

/// All of them.
pub fn routes() -> &'static [Route] {
    ROUTES
}

/// What is there for a viewer, or for everyone.
pub(crate) fn find(viewer: Option<&Viewer>, is_read: bool, path: &str) -> Option<(&'static Route, Vec<String>)> {
    ROUTES.iter().filter(|route| route.is_read == is_read).find_map(|route| {
        let is_open = matches!(route.handler, Handler::Open(_));
        let fits = viewer.map_or(is_open, |viewer| !is_open && route.handler.is_for(viewer));
        let names = fits.then(|| route.names(path)).flatten()?;
        Some((route, names.into_iter().map(decoded).collect()))
    })
}

/// A part of a path as it was before it became one.
fn decoded(segment: &str) -> String {
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

static ROUTES: &[Route] = &[
    Route::page(
        login::ACTION,
        Open(|all, Visit { request, .. }| Box::pin(async move { all.login_page(request, StatusCode::OK, None) })),
    ),
    Route::order(
        login::ACTION,
        Open(|all, Visit { request, body, peer, .. }| Box::pin(all.log_in(request, body, peer))),
    ),
    Route::page("/login/once", Open(|all, Visit { request, .. }| Box::pin(async move { all.code_page(request) }))),
    Route::page(oidc::START, Open(|all, Visit { request, host, .. }| Box::pin(all.begin_oidc(request, host)))),
    Route::page(
        oidc::CALLBACK,
        Open(|all, Visit { request, host, peer, .. }| {
            Box::pin(async move {
                match request.method == Method::HEAD {
                    true => method_not_allowed("GET"),
                    false => all.end_oidc(request, host, peer).await,
                }
            })
        }),
    ),
    Route::page(live::PATH, Open(|all, Visit { request, peer, .. }| Box::pin(all.stream(request, peer)))),
    Route::order(TIMES, Any(|_, request, session, _| Box::pin(async move { Routes::set_times(request, session) }))),
    Route::order("/logout", Any(|all, request, session, peer| Box::pin(all.log_out(request, session, peer)))),
    Route::page("/", Requestor(|own, request| Box::pin(own.list(&request.query)))),
    Route::page("/tasks", Requestor(|own, request| Box::pin(own.list(&request.query)))),
    Route::page("/tasks/{task}", Requestor(|own, request| Box::pin(own.show(request.name(0))))),
    Route::page(
        "/tasks/{task}/image/{place}",
        Requestor(|own, request| Box::pin(own.image(request.parts, request.name(0), request.name(1)))),
    ),
    Route::page(
        "/tasks/{task}/file/{place}",
        Requestor(|own, request| Box::pin(own.file(request.parts, request.name(0), request.name(1)))),
    ),
    Route::page(
        "/tools",
        Requestor(|own, request| Box::pin(async move { own.tools(&request.parts.task_calls, &request.query) })),
    ),
    Route::page(
        "/tools/{tool}",
        Requestor(|own, request| Box::pin(async move { own.tool(&request.parts.task_calls, request.name(0)) })),
    ),
    Route::page("/resources", Requestor(|own, request| Box::pin(own.resources(request.parts, &request.query)))),
    Route::page("/prompts", Requestor(|own, request| Box::pin(own.prompts(request.parts, &request.query)))),
    Route::page("/limits", Requestor(|own, request| Box::pin(own.limits(request.parts)))),
    Route::order(
        "/tasks/{task}/answer",
        Requestor(|own, request| Box::pin(own.answer(request.name(0), &request.form))),
    ),
    Route::order("/tasks/{task}/cancel", Requestor(|own, request| Box::pin(own.cancel(request.name(0))))),
    Route::order("/tasks/{task}/pause", Requestor(|own, request| Box::pin(own.pause(request.name(0))))),
    Route::order("/tasks/{task}/resume", Requestor(|own, request| Box::pin(own.resume(request.name(0))))),
    Route::order("/tasks/{task}/steer", Requestor(|own, request| Box::pin(own.steer(request.name(0), &request.form)))),
    Route::order("/tasks/{task}/delete", Requestor(|own, request| Box::pin(own.delete(request.name(0))))),
    Route::order(
        "/tools/{tool}/call",
        Requestor(|own, request| Box::pin(own.call(&request.parts.task_calls, request.name(0), &request.form))),
    ),
    Route::order(
        "/tools/{tool}/try",
        Requestor(|own, request| Box::pin(own.try_tool(request.parts, request.name(0), &request.form))),
    ),
    Route::order(
        "/tools/{tool}/view",
        Requestor(|own, request| Box::pin(own.try_view(request.parts, request.name(0), &request.form))),
    ),
    Route::order(
        "/tools/{tool}/view/call",
        Requestor(|own, request| Box::pin(own.call_from_view(request.parts, request.name(0), &request.form))),
    ),
    Route::order("/resources/read", Requestor(|own, request| Box::pin(own.try_resource(request.parts, &request.form)))),
    Route::order("/prompts/get", Requestor(|own, request| Box::pin(own.try_prompt(request.parts, &request.form)))),
    Route::page("/tenant", Lead(|lead, _| Box::pin(lead.tenant()))),
    Route::page("/tenant/tasks", Lead(|lead, request| Box::pin(lead.tasks(&request.query)))),
    Route::page("/tenant/tasks/{task}", Lead(|lead, request| Box::pin(lead.task(request.name(0), None)))),
    Route::page("/tenant/plugins", Lead(|lead, request| Box::pin(lead.plugins(request.parts)))),
    Route::page("/tenant/denials", Lead(|lead, _| Box::pin(lead.denials()))),
    Route::page("/tenant/audit", Lead(|lead, request| Box::pin(lead.audit(&request.query)))),
    Route::order(
        "/tenant/tasks/{task}/cancel",
        Control(|lead, request| Box::pin(lead.act(request.name(0), TaskOrder::Cancel))),
    ),
    Route::order(
        "/tenant/tasks/{task}/pause",
        Control(|lead, request| Box::pin(lead.act(request.name(0), TaskOrder::Pause))),
    ),
    Route::order(
        "/tenant/tasks/{task}/resume",
        Control(|lead, request| Box::pin(lead.act(request.name(0), TaskOrder::Resume))),
    ),
    Route::page("/", Operator(|pages, _| Box::pin(pages.overview()))),
    Route::page("/tasks", Operator(|pages, request| Box::pin(pages.tasks(&request.query)))),
    Route::page("/tasks/{task}", Operator(|pages, request| Box::pin(pages.task(request.name(0), None)))),
    Route::order("/tasks/bulk", Operator(|pages, request| Box::pin(pages.bulk(&request.form)))),
    Route::order(
        "/tasks/{task}/cancel",
        Operator(|pages, request| Box::pin(pages.act(request.name(0), TaskOrder::Cancel))),
    ),
    Route::order(
        "/tasks/{task}/pause",
        Operator(|pages, request| Box::pin(pages.act(request.name(0), TaskOrder::Pause))),
    ),
    Route::order(
        "/tasks/{task}/resume",
        Operator(|pages, request| Box::pin(pages.act(request.name(0), TaskOrder::Resume))),
    ),
    Route::order(
        "/tasks/{task}/release",
        Operator(|pages, request| Box::pin(pages.act(request.name(0), TaskOrder::Release))),
    ),
    Route::order(
        "/tasks/{task}/purge",
        Operator(|pages, request| Box::pin(pages.act(request.name(0), TaskOrder::Purge))),
    ),
    Route::page("/plugins", Operator(|pages, request| Box::pin(pages.plugins(&request.query)))),
    Route::page("/plugins/{plugin}", Operator(|pages, request| Box::pin(pages.plugin(request.parts, request.name(0))))),
    Route::page(
        "/plugins/{plugin}/tools/{tool}",
        Operator(|pages, request| {
            Box::pin(async move { Ok(pages.plugin_tool(request.parts, request.name(0), request.name(1))) })
        }),
    ),
    Route::page(
        "/plugins/{plugin}/{version}/changes",
        Operator(|pages, request| Box::pin(pages.changes(request.name(0), request.name(1), &request.query))),
    ),
    Route::order("/plugins/stage", Operator(|pages, request| Box::pin(pages.stage(&request.form)))),
    Route::order("/plugins/{plugin}/activate", Operator(|pages, request| order(pages, request, "activate"))),
    Route::order("/plugins/{plugin}/canary", Operator(|pages, request| order(pages, request, "canary"))),
    Route::order("/plugins/{plugin}/promote", Operator(|pages, request| order(pages, request, "promote"))),
    Route::order("/plugins/{plugin}/take-back", Operator(|pages, request| order(pages, request, "take-back"))),
    Route::order("/plugins/{plugin}/rollback", Operator(|pages, request| order(pages, request, "rollback"))),
    Route::order("/plugins/{plugin}/remove", Operator(|pages, request| order(pages, request, "remove"))),
    Route::order(
        "/plugins/{plugin}/remove-version",
        Operator(|pages, request| order(pages, request, "remove-version")),
    ),
    Route::order("/plugins/{plugin}/update", Operator(|pages, request| order(pages, request, "update"))),
    Route::page("/tenants", Operator(|pages, request| Box::pin(pages.tenants(&request.query)))),
    Route::page("/tenants/{tenant}", Operator(|pages, request| Box::pin(pages.tenant(request.name(0))))),
    Route::page("/denials", Operator(|pages, request| Box::pin(pages.denials(&request.query)))),
    Route::page("/audit", Operator(|pages, request| Box::pin(pages.audit(&request.query)))),
    Route::page("/tokens", Operator(|pages, request| Box::pin(pages.tokens(&request.query, None)))),
    Route::order("/tokens", Operator(|pages, request| Box::pin(pages.create_token(&request.form)))),
    Route::order("/tokens/{token}/revoke", Operator(|pages, request| Box::pin(pages.revoke_token(request.name(0))))),
    Route::page("/hosts", Operator(|pages, _| Box::pin(pages.host()))),
    Route::order("/hosts/drain", Operator(|pages, request| Box::pin(pages.drain(&request.form)))),
];

fn order<'a>(pages: &'a OperatorPages<'a>, request: &'a RouteRequest<'a>, action: &'static str) -> BoxFuture<'a, Done> {
    Box::pin(pages.act_on_plugin(request.name(0), action, &request.form))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_there_once_for_each_viewer() {
        let is_for = |viewers: AllowedViewers| match viewers {
            AllowedViewers::Everyone => [true; 4],
            AllowedViewers::Viewers => [false, true, true, true],
            AllowedViewers::Requestors => [false, true, true, false],
            AllowedViewers::Leads | AllowedViewers::ControllingLeads => [false, false, true, false],
            AllowedViewers::Operators => [false, false, false, true],
        };
        for (place, route) in ROUTES.iter().enumerate() {
            let path = route.path.replace(['{', '}'], "");
            for other in &ROUTES[place + 1..] {
                let both = is_for(route.allowed_viewers()).into_iter().zip(is_for(other.allowed_viewers()));
                let is_same = route.is_read == other.is_read && other.names(&path).is_some();
                assert!(!is_same || both.into_iter().all(|(one, other)| !(one && other)), "{path}");
            }
        }
    }

    #[test]
    fn names_are_what_stands_in_their_place() {
        let route = Route::page("/tasks/{task}/image/{place}", Lead(|lead, _| Box::pin(lead.tenant())));
        assert_eq!(route.names("/tasks/a/image/1/"), Some(vec!["a", "1"]));
        for other in ["/", "/tasks/a/image", "/tasks/a/file/1", "/tasks/a/image/1/2"] {
            assert_eq!(route.names(other), None, "{other}");
        }
        assert_eq!((route.head(), decoded("a%2Fb").as_str()), ("/tasks", "a/b"));
        let heads = |path: &str| {
            let found = ROUTES.iter().filter(|route| route.path == path);
            found.map(Route::head).collect::<Vec<_>>()
        };
        assert_eq!((heads("/"), heads("/hosts/drain")), (vec!["/tasks", "/"], vec!["/hosts"]));
    }
}
