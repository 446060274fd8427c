//! Coming in and going out.
//!
//! Owns which credential makes which viewer. Must not keep or log one. Invariants: a credential comes in the body of a form that a page of
//! ours showed to the same browser; a wrong one of any kind gets the same answer and counts against its address.

use std::net::IpAddr;

use bulkhead_audit::Entry;
use bulkhead_identity::auth::{Revalidation, Sender, Unauthorized};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::body::Incoming;

use crate::own_tasks::refused;
use crate::pages::{self, ConfirmCode, Frame, Login, TOKEN_FIELD};
use crate::request::{Form, cookie, read_form};
use crate::respond::{self, Answer};
use crate::routes::Routes;
use crate::sessions::{Viewer, form_token, is_form_token, random_text};

/// Where credentials are sent.
pub(crate) const ACTION: &str = "/login";
/// Characters of a code that logs in at the dashboard; a longer one is none.
const CODE_CHARS_MAX: usize = 64;

impl Routes {
    /// The page that asks for a credential.
    pub(crate) fn login_page(&self, request: &Parts, status: StatusCode, refused: Option<&str>) -> Answer {
        self.with_login_cookie(request, |token| {
            let page = Login { token, refused, has_admin_token: self.parts.admin_token.is_some() };
            respond::page(status, pages::login(&self.frame_of_nobody(), &page))
        })
    }

    /// The page of a link, which only asks whether to log in.
    pub(crate) fn code_page(&self, request: &Parts, query: &Form) -> Answer {
        let code = query.get("code").unwrap_or_default();
        let code: String = code.chars().filter(char::is_ascii_hexdigit).take(CODE_CHARS_MAX).collect();
        self.with_login_cookie(request, |token| {
            respond::page(
                StatusCode::OK,
                pages::confirm_code(&self.frame_of_nobody(), &ConfirmCode { token, code: &code }),
            )
        })
    }

    /// A form for a browser that has no session: a cookie of its own ties the form to it.
    fn with_login_cookie(&self, request: &Parts, page: impl FnOnce(&str) -> Answer) -> Answer {
        let known = cookie(&request.headers, &self.site.login_cookie).filter(|value| value.len() == 2 * 16);
        let Some(value) = known.map(str::to_owned).or_else(random_text::<16>) else {
            return respond::refusal(StatusCode::SERVICE_UNAVAILABLE, "The host has no randomness: try again\n");
        };
        let mut answer = page(&form_token(&self.login_key, &format!("{ACTION}\n{value}")));
        if known.is_none() {
            respond::set_cookie(&mut answer, &self.site.login_cookie, &value, self.site.has_tls);
        }
        answer
    }

    /// A credential was sent.
    pub(crate) async fn log_in(&self, request: &Parts, body: Incoming, peer: IpAddr) -> Answer {
        let Some(form) = read_form(&request.headers, body).await else {
            return respond::refusal(StatusCode::BAD_REQUEST, "A form of bounded size is expected\n");
        };
        let browser = cookie(&request.headers, &self.site.login_cookie).unwrap_or_default();
        let token = form.get(TOKEN_FIELD).unwrap_or_default();
        if !is_form_token(&self.login_key, &format!("{ACTION}\n{browser}"), token) {
            return self.login_page(
                request,
                StatusCode::FORBIDDEN,
                Some("This page was open for too long: try again."),
            );
        }
        let judged = match (form.filled("code"), form.filled("token")) {
            (Some(code), _) => self.judge_code(code),
            (None, Some(token)) => self.judge_token(token, peer).await,
            (None, None) => Err(Unauthorized::Missing),
        };
        match judged {
            Ok(viewer) => match viewer.requestor().map(&self.parts.admit).transpose() {
                Ok(_place) => self.begin(request, viewer, peer),
                Err(error) => refused(&self.frame_of_nobody(), &error),
            },
            Err(why) => self.refuse(request, &why, peer),
        }
    }

    fn judge_code(&self, code: &str) -> Result<Viewer, Unauthorized> {
        let is_good = code.len() <= CODE_CHARS_MAX && self.parts.codes.take(code);
        is_good.then_some(Viewer::Operator).ok_or(Unauthorized::Invalid)
    }

    async fn judge_token(&self, token: &str, peer: IpAddr) -> Result<Viewer, Unauthorized> {
        if self.parts.admin_token.is_some_and(|ours| ours.fits(token)) {
            return Ok(Viewer::Operator);
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Unauthorized::Malformed)?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let authenticator = &self.parts.authenticator;
        let sender = Sender { address: peer, failures: &self.failures };
        let caller = authenticator.caller(&headers, sender).await?;
        // A change of its rights ends the session, too: what is drawn follows them.
        let credential = Revalidation::new(authenticator, &caller, true, &self.parts.clock);
        let credential = Box::new(tokio::sync::Mutex::new(credential));
        Ok(Viewer::Requestor { requestor: caller.requestor, rights: caller.rights, credential })
    }

    fn begin(&self, request: &Parts, viewer: Viewer, peer: IpAddr) -> Answer {
        let entry = noted("dashboard.login", &viewer, peer);
        match self.sessions.begin(viewer) {
            Ok(session) => {
                self.parts.audit.note(|| entry);
                tracing::info!(%peer, "a login at the dashboard");
                let mut answer = respond::see_other("/");
                // The session before, if there was one, is nobody's any more.
                if let Some(before) = cookie(&request.headers, &self.site.session_cookie) {
                    self.sessions.end(before);
                }
                respond::set_cookie(&mut answer, &self.site.session_cookie, &session, self.site.has_tls);
                respond::set_cookie(&mut answer, &self.site.login_cookie, "", self.site.has_tls);
                answer
            }
            Err(full) => {
                self.parts.audit.note_seldom("dashboard.refused", "too many sessions of the dashboard");
                self.login_page(request, StatusCode::SERVICE_UNAVAILABLE, Some(&full.to_string()))
            }
        }
    }

    fn refuse(&self, request: &Parts, why: &Unauthorized, peer: IpAddr) -> Answer {
        self.parts.audit.note_seldom("dashboard.refused", why.reason());
        tracing::warn!(%peer, "an invalid credential was refused at the dashboard");
        if let Unauthorized::Unavailable { .. } = why {
            let said = "The token cannot be checked at the moment: try again.";
            return self.login_page(request, StatusCode::SERVICE_UNAVAILABLE, Some(said));
        }
        match self.failures.note(peer) {
            Ok(()) => {
                let said =
                    "This is not valid here. A link works once and for ten minutes; a token may have been revoked.";
                self.login_page(request, StatusCode::UNAUTHORIZED, Some(said))
            }
            Err(exceeded) => {
                let said = "Too many wrong credentials came from your address: wait a minute.";
                let page = self.login_page(request, StatusCode::TOO_MANY_REQUESTS, Some(said));
                respond::retry_after(page, exceeded.retry_after_ms)
            }
        }
    }

    fn frame_of_nobody(&self) -> Frame<'static> {
        Frame { session: None, here: "", now: self.parts.clock.now() }
    }
}

/// The line of the audit log on who came or went, and from where.
pub(crate) fn noted(event: &'static str, viewer: &Viewer, peer: IpAddr) -> Entry {
    let entry = Entry::new(event).outcome("succeeded");
    match viewer {
        Viewer::Operator => entry.operator(&format!("dashboard operator at {peer}")),
        Viewer::Requestor { requestor, .. } => entry.by(requestor).because(&format!("at {peer}")),
    }
}
