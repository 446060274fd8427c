//! Live pages: a stream of the parts of a page that have changed, for as long as the page is open.
//!
//! Owns the streams and their bounds. Must not know a page: it draws the one that is asked for by the routes, under the
//! rights of its session, and takes the [marked parts](crate::pages::live) out of it. Invariants: a stream shows what
//! its page shows to the same session at that moment, or it ends; nothing is drawn before the browser has taken what
//! was drawn last; a drawing of a requestor's page is charged as a request is.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_audit::Entry;
use bulkhead_control::Operator;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::TaskId;
use bulkhead_limits::scoped::ScopeKey;
use bulkhead_limits::{Full, Permit, Scope, ScopedCounter};
use bulkhead_tasks::{Error, TaskNews};
use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Frame;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::own_tasks::{absent, refused};
use crate::pages;
use crate::request::{Form, cookie};
use crate::respond::{self, Answer};
use crate::routes::{Reader, Routes};
use crate::sessions::{Session, Viewer};
use crate::shared_reads::FollowedReads;

/// Where live pages are streamed from; the page is in the query.
pub(crate) const PATH: &str = "/live";

/// Live pages of the dashboard of one session; a browser has six connections to a host.
const STREAMS_PER_SESSION_MAX: u64 = 8;
/// Live pages of the dashboard of one tenant's requestors.
const STREAMS_PER_TENANT_MAX: u64 = 64;
/// Live pages of the dashboard beyond which requestors get no more; the rest is left for operators.
const STREAMS_OF_REQUESTORS_MAX: u64 = 192;
/// Live pages of the dashboard.
const STREAMS_MAX: u64 = 256;
/// Characters of the address of a live page.
const PAGE_CHARS_MAX: usize = 2_000;

/// After a drawing, the next one waits so long: what changes in between is drawn once.
const DRAW_PAUSE: Duration = Duration::from_millis(200);
/// Then a stream ends and the browser comes back: before its connection is cut.
const STREAM: Duration = Duration::from_secs(240);
/// How often it is looked whether the session has ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks after which a silent stream says that it is there, so that both ends notice when the other is gone.
const LOOKS_PER_HEARTBEAT: u32 = 15;
/// The browser comes back after so many milliseconds when a stream was cut.
const HELLO: &str = "retry: 1000\n\n";
const HEARTBEAT: &str = ":\n\n";
/// Tells the browser not to come back: the session has ended, or the page is not there any more.
const OVER: &str = "event: over\ndata:\n\n";

/// Whose stream it is. Operators belong to no tenant.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamOwner {
    tenant: Option<TenantId>,
    session: [u8; 32],
}

impl ScopeKey for StreamOwner {
    fn tenant(&self) -> TenantId {
        self.tenant.unwrap_or(TenantId([0; 16]))
    }
}

const OF_SESSION: &str = "live pages of one session";
const OF_TENANT: &str = "live pages of the tenant";
const OF_HOST: &str = "live pages of the host";

/// Counts the streams.
pub(crate) fn counter() -> Arc<ScopedCounter<StreamOwner>> {
    ScopedCounter::new(|owner: Option<&StreamOwner>| {
        let is_requestor = owner.is_some_and(|owner| owner.tenant.is_some());
        let (of_tenant, of_host) = match is_requestor {
            true => (STREAMS_PER_TENANT_MAX, STREAMS_OF_REQUESTORS_MAX),
            false => (STREAMS_MAX, STREAMS_MAX),
        };
        [
            Scope::Requestor.bound(OF_SESSION, STREAMS_PER_SESSION_MAX),
            Scope::Tenant.bound(OF_TENANT, of_tenant),
            Scope::Total.bound(OF_HOST, of_host),
        ]
    })
}

/// One live page.
struct LivePage {
    routes: Arc<Routes>,
    cookie: String,
    session: Arc<Session>,
    peer: IpAddr,
    page: Parts,
    changes: Changes,
    /// What the browser has of each part.
    sent: HashMap<String, String>,
    has_changed: bool,
    draw_at: Instant,
    ends_at: Instant,
    looking: Interval,
    silent_looks: u32,
    is_over: bool,
    _permits: (Permit<StreamOwner>, Option<Permit>),
}

/// What tells that a page is to be drawn anew.
enum Changes {
    /// Of a requestor's tasks; of one of them where the page is about one.
    Own { news: broadcast::Receiver<TaskNews>, task: Option<TaskId> },
    Operators {
        reads: Arc<FollowedReads>,
        /// The same, for who reads.
        operator: Arc<dyn Operator>,
    },
}

impl Changes {
    /// Done when there is something new. May be dropped and called again.
    async fn next(&mut self) {
        match self {
            Self::Operators { reads, .. } => reads.changed().await,
            Self::Own { news, task } => loop {
                match news.recv().await {
                    Ok(news) if is_about(&news, *task) => return,
                    Ok(_) => {}
                    // What was lost may have been about it.
                    Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => return std::future::pending().await,
                }
            },
        }
    }

    /// What is drawn now shows all that is known so far.
    fn catch_up(&mut self) {
        if let Self::Own { news, .. } = self {
            while matches!(news.try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
        }
    }
}

/// Whether an operator's page is about no single tenant, requestor or task.
fn is_of_host_alone(uri: &Uri) -> bool {
    let is_of_one = |begin: &str| uri.path().strip_prefix(begin).is_some_and(|rest| !rest.is_empty());
    let query = Form::parse(uri.query().unwrap_or_default().as_bytes());
    !["/tasks/", "/tenants/"].into_iter().any(is_of_one)
        && ["tenant", "requestor"].into_iter().all(|name| query.filled(name).is_none())
}

/// Whether the page shows it.
fn is_about(news: &TaskNews, wanted: Option<TaskId>) -> bool {
    let id = match news {
        TaskNews::Changed(task) => task.id,
        TaskNews::Created(id) | TaskNews::Gone(id) | TaskNews::Progress { id, .. } => *id,
        TaskNews::Log { .. } => return false,
    };
    wanted.is_none_or(|wanted| wanted == id)
}

/// What came of drawing a page.
enum Drawn {
    Parts(Bytes),
    /// As the browser has it.
    Same,
    /// The requestor's rate has no room until then.
    Later(Instant),
    /// It is not there any more, or not for this session.
    Gone,
    /// The host could not, for now: the browser tries again.
    Failed,
}

impl Routes {
    /// Begins a stream. A page that its session could not open is answered as the page is.
    pub(crate) async fn stream(self: &Arc<Self>, request: &Parts, peer: IpAddr) -> Answer {
        // A page of another port of this machine is of the same site, so the cookie would come along.
        if request.headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin") {
            return respond::refusal(StatusCode::FORBIDDEN, "Live pages are for pages of the dashboard only\n");
        }
        let cookie = cookie(&request.headers, &self.site.session_cookie).unwrap_or_default();
        let Some(session) = self.sessions.look(cookie).await else {
            return respond::refusal(StatusCode::UNAUTHORIZED, "Your session has ended: log in again\n");
        };
        let frame = pages::Frame { session: Some(&session), here: "", address: "", now: self.parts.clock.now() };
        let Some(page) = page_of(request) else { return absent(&frame) };
        let open = match session.viewer.requestor().map(&self.parts.admit).transpose() {
            Ok(open) => open,
            Err(error) => return refused(&frame, &error),
        };
        let owner = StreamOwner { tenant: session.viewer.requestor().map(|who| who.tenant), session: session.key };
        let permits = match self.streams.acquire(&owner, 1) {
            Ok(permit) => (permit, open),
            Err(full) => return too_many(full),
        };
        let changes = match session.viewer.requestor() {
            None => {
                let reads = Arc::new(FollowedReads::new(Arc::clone(&self.reads)));
                Changes::Operators { operator: reads.clone(), reads }
            }
            Some(requestor) => Changes::Own { news: self.parts.tasks.feed(requestor), task: task_of(page.uri.path()) },
        };
        let mut looking = tokio::time::interval(LOOK_EVERY);
        looking.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut live = LivePage {
            routes: Arc::clone(self),
            cookie: cookie.to_owned(),
            session: Arc::clone(&session),
            peer,
            page,
            changes,
            sent: HashMap::new(),
            has_changed: false,
            draw_at: Instant::now(),
            ends_at: Instant::now() + STREAM,
            looking,
            silent_looks: 0,
            is_over: false,
            _permits: permits,
        };
        let first = live.answer(false).await;
        if first.status() != StatusCode::OK {
            return first;
        }
        let Some(parts) = live.events(&respond::text_of(first).await) else { return absent(&frame) };
        if let Viewer::Operator = session.viewer {
            let who = session.operator_at(peer);
            let shown = live.page.uri.to_string();
            let notes = &self.parts.read_notes;
            if !is_of_host_alone(&live.page.uri) || notes.is_due(&who, &shown, self.parts.clock.now()) {
                self.parts
                    .audit
                    .note(|| Entry::new("dashboard.live").named(&shown).operator(&who).outcome("succeeded"));
            }
        }
        let hello = Bytes::from([HELLO.as_bytes(), parts.as_ref()].concat());
        let rest = futures::stream::unfold(live, |mut live| async move { Some((live.next().await?, live)) });
        let pieces = futures::stream::once(std::future::ready(hello)).chain(rest);
        respond::events(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))).boxed())
    }
}

impl LivePage {
    /// The next piece of the stream; `None`: it has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        loop {
            if self.has_changed && self.draw_at <= Instant::now() {
                match self.draw().await {
                    Drawn::Parts(parts) => return Some(parts),
                    Drawn::Same => {}
                    Drawn::Later(at) => (self.has_changed, self.draw_at) = (true, at),
                    Drawn::Gone => return self.end(),
                    Drawn::Failed => return None,
                }
            }
            tokio::select! {
                () = self.changes.next(), if !self.has_changed => self.has_changed = true,
                () = tokio::time::sleep_until(self.draw_at), if self.has_changed => {}
                _ = self.looking.tick() => match self.routes.sessions.look(&self.cookie).await {
                    None => return self.end(),
                    Some(_) if self.ends_at <= Instant::now() => return None,
                    Some(session) => {
                        self.session = session;
                        self.silent_looks += 1;
                        if self.silent_looks >= LOOKS_PER_HEARTBEAT {
                            self.silent_looks = 0;
                            return Some(Bytes::from_static(HEARTBEAT.as_bytes()));
                        }
                    }
                }
            }
        }
    }

    fn end(&mut self) -> Option<Bytes> {
        self.is_over = true;
        Some(Bytes::from_static(OVER.as_bytes()))
    }

    async fn draw(&mut self) -> Drawn {
        let admitted = self.session.viewer.requestor().map(&self.routes.parts.admit).transpose();
        let _open = match admitted {
            Ok(open) => open,
            Err(error) => return Drawn::Later(Instant::now() + wait_of(&error)),
        };
        self.has_changed = false;
        self.changes.catch_up();
        let answer = self.answer(true).await;
        self.draw_at = Instant::now() + DRAW_PAUSE;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Drawn::Gone,
            _ => return Drawn::Failed,
        }
        match self.events(&respond::text_of(answer).await) {
            None => Drawn::Gone,
            Some(parts) if parts.is_empty() => Drawn::Same,
            Some(parts) => {
                self.silent_looks = 0;
                Drawn::Parts(parts)
            }
        }
    }

    /// The page as its session would get it now. `follows`: whether it had it before.
    async fn answer(&self, follows: bool) -> Answer {
        let operator = match &self.changes {
            Changes::Operators { operator, .. } => operator,
            Changes::Own { .. } => &self.routes.parts.operator,
        };
        let reader = Reader { operator, follows };
        Box::pin(self.routes.read(&self.page, self.peer, &self.session, reader)).await
    }

    /// The parts of a page that the browser does not have, as events; `None`: it has no live parts.
    fn events(&mut self, page: &str) -> Option<Bytes> {
        let mut events = String::new();
        let mut has_parts = false;
        for (name, part) in pages::live::parts(page) {
            has_parts = true;
            if self.sent.get(name).is_none_or(|sent| sent != part) {
                write_event(&mut events, name, part);
                self.sent.insert(name.to_owned(), part.to_owned());
            }
        }
        has_parts.then(|| events.into())
    }
}

/// One event: the id of the element on its first line, its contents on the others.
fn write_event(events: &mut String, name: &str, part: &str) {
    events.push_str("event: part\ndata: live-");
    events.push_str(name);
    // Each of them ends a line of an event, whatever a text means by it.
    for line in part.split(['\n', '\r']) {
        events.push_str("\ndata: ");
        events.push_str(line);
    }
    events.push_str("\n\n");
}

/// The page that the stream is to be about, as the request for it.
fn page_of(request: &Parts) -> Option<Parts> {
    let query = Form::parse(request.uri.query().unwrap_or_default().as_bytes());
    let page = query.get("page").filter(|page| page.starts_with('/') && page.len() <= PAGE_CHARS_MAX)?;
    Request::builder().method(Method::GET).uri(page).body(()).ok().map(|page| page.into_parts().0)
}

/// The task that a page is about; `None`: it is about all of them.
fn task_of(path: &str) -> Option<TaskId> {
    path.strip_prefix("/tasks/").and_then(TaskId::parse)
}

/// How long until the requestor's rate has room again.
fn wait_of(error: &Error) -> Duration {
    let ms = match error {
        Error::Rate { retry_after_ms, .. } => Some(*retry_after_ms),
        Error::Quota { retry_after_ms, .. } | Error::Unavailable { retry_after_ms, .. } => *retry_after_ms,
        _ => None,
    };
    Duration::from_millis(ms.unwrap_or_default()).max(LOOK_EVERY)
}

fn too_many(full: Full) -> Answer {
    let (status, message) = match full.limit {
        OF_SESSION => {
            (StatusCode::TOO_MANY_REQUESTS, "Your session follows as many pages as it may: close one of them\n")
        }
        OF_TENANT => {
            (StatusCode::TOO_MANY_REQUESTS, "Your tenant follows as many pages as it may: close one of them\n")
        }
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The host streams as many pages as it can: reload this one to see changes\n",
        ),
    };
    respond::retry_after(respond::refusal(status, message), 15_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(tenant: Option<u8>, session: u16) -> StreamOwner {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&session.to_be_bytes());
        StreamOwner { tenant: tenant.map(|tenant| TenantId([tenant; 16])), session: key }
    }

    #[test]
    fn streams_are_bounded_and_requestors_leave_some_to_operators() {
        let streams = counter();
        let take = |tenant, session| streams.acquire(&owner(tenant, session), 1);
        let mut held: Vec<_> = (0..8).map(|_| take(Some(1), 1).unwrap()).collect();
        assert_eq!(too_many(take(Some(1), 1).err().unwrap()).status(), StatusCode::TOO_MANY_REQUESTS);
        held.extend((8..64).map(|number| take(Some(1), 2 + number / 8).unwrap()));
        let refused = take(Some(1), 100).err().unwrap();
        assert_eq!((refused.limit, too_many(refused).status()), (OF_TENANT, StatusCode::TOO_MANY_REQUESTS));
        for tenant in 2..=3 {
            held.extend((0..64).map(|number| take(Some(tenant), 200 * u16::from(tenant) + number / 8).unwrap()));
        }
        let refused = take(Some(4), 900).err().unwrap();
        assert_eq!((refused.limit, too_many(refused).status()), (OF_HOST, StatusCode::SERVICE_UNAVAILABLE));
        held.extend((0..64).map(|number| take(None, 1_000 + number / 8).unwrap()));
        assert_eq!(take(None, 2_000).err().unwrap(), Full { limit: OF_HOST, value: STREAMS_MAX });
        held.clear();
        assert_eq!(streams.total(), 0);
    }

    #[test]
    fn event_has_an_id_and_the_lines_of_its_part() {
        let mut events = String::new();
        write_event(&mut events, "task", "<pre>1\n2\r3</pre>");
        assert_eq!(events, "event: part\ndata: live-task\ndata: <pre>1\ndata: 2\ndata: 3</pre>\n\n");
    }

    #[test]
    fn page_of_a_stream_is_an_address_of_the_dashboard() {
        let page = |uri: &str| {
            let request = Request::builder().uri(uri).body(()).unwrap().into_parts().0;
            page_of(&request).map(|page| page.uri.to_string())
        };
        assert_eq!(page("/live?page=%2Ftasks%3Fstatus%3Dpaused").as_deref(), Some("/tasks?status=paused"));
        for none in ["/live", "/live?page=", "/live?page=tasks", "/live?page=http%3A%2F%2Fa%2F", "/live?page=%2F%00"] {
            assert_eq!(page(none), None, "{none}");
        }
        assert_eq!(page(&format!("/live?page=%2F{}", "a".repeat(PAGE_CHARS_MAX))), None);
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(task_of(&format!("/tasks/{id}")).map(|id| id.to_string()).as_deref(), Some(id));
        assert_eq!((task_of("/tasks"), task_of("/tasks/1")), (None, None));
    }

    #[test]
    fn page_of_one_tenant_or_task_is_not_of_the_host_alone() {
        let is_of_host = |uri: &'static str| is_of_host_alone(&Uri::from_static(uri));
        for own in ["/", "/tasks?tool=wait&tenant=", "/plugins/csv", "/tenants", "/tenants/?sort=name"] {
            assert!(is_of_host(own), "{own}");
        }
        for other in ["/tasks/1", "/tasks?tenant=acme", "/tasks?requestor=anna", "/tenants/acme"] {
            assert!(!is_of_host(other), "{other}");
        }
    }

    #[test]
    fn news_of_other_tasks_and_logs_draw_nothing() {
        let one = TaskId([1; 16]);
        let other = TaskId([2; 16]);
        let progress = TaskNews::Progress { id: one, progress: 1.0, total: None, message: None };
        assert!(is_about(&progress, Some(one)) && is_about(&progress, None) && !is_about(&progress, Some(other)));
        assert!(is_about(&TaskNews::Gone(one), Some(one)));
    }
}
