//! Coming in and going out.
//!
//! Owns which credential makes which viewer; that of an issuer comes another way (`oidc`). Must not keep or log one.
//! Invariants: a credential comes in the body of a form that a page of ours showed to the same browser; a wrong one of
//! any kind gets the same answer and counts against its address; a login has a cookie of its own, and ends the session
//! of that browser before it.

use std::net::IpAddr;

use bulkhead_audit::Entry;
use bulkhead_identity::auth::{Limited, Sender, Unauthorized};
use bulkhead_limits::failures::Exceeded;
use bulkhead_net::server::RequestBody;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::digests::{form_token, is_form_token, random_text};
use crate::own_tasks::refused;
use crate::pages::{self, ConfirmCode, Frame, TOKEN_FIELD};
use crate::request::{cookie, read_form};
use crate::respond::{self, Answer};
use crate::routes::{Routes, query};
use crate::session_store::{SessionProof, SessionStoreError};
use crate::sessions::{Login, Viewer, operator_at};

/// Where credentials are sent.
pub(crate) const ACTION: &str = "/login";
/// Characters of a code that logs in at the dashboard; a longer one is none.
const CODE_CHARS_MAX: usize = 128;
/// When to try again while the store cannot be reached.
const RETRY_MS: u64 = 1_000;
const NOT_VALID: &str = "This is not valid here. A link works once and for ten minutes; a token may have been revoked.";
const UNAVAILABLE: &str = "It cannot be checked at the moment who you are: try again.";
const NO_ROOM: &str = "There is no room for a new requestor at the moment: try again later.";

impl Routes {
    /// The page that asks for a credential.
    pub(crate) fn login_page(&self, request: &Parts, status: StatusCode, refused: Option<&str>) -> Answer {
        self.with_login_cookie(request, |token| {
            let issuer = self.parts.oidc.as_ref().map(|client| client.issuer.as_str());
            let page = pages::Login { token, refused, has_admin_token: self.parts.admin_token.is_some(), issuer };
            respond::page(status, pages::login(&self.frame_of_nobody(), &page))
        })
    }

    /// The page of a link, which only asks whether to log in.
    pub(crate) fn code_page(&self, request: &Parts) -> Answer {
        let query = query(request);
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
    pub(crate) async fn log_in(&self, request: &Parts, body: RequestBody, peer: IpAddr) -> Answer {
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
            (Some(code), _) => self.judge_code(code).await,
            (None, Some(token)) => self.judge_token(token, peer).await,
            (None, None) => Err(Unauthorized::Missing),
        };
        match judged {
            Ok(login) => match login.viewer.requestor().map(&self.parts.admit).transpose() {
                Ok(_permit) => self.begin(request, login, peer, respond::see_other("/")).await,
                Err(error) => refused(&self.frame_of_nobody(), &error),
            },
            Err(why) => self.refuse(request, &why, peer, NOT_VALID),
        }
    }

    async fn judge_code(&self, code: &str) -> Result<Login, Unauthorized> {
        let is_good = code.len() <= CODE_CHARS_MAX && self.parts.codes.take(code).await.map_err(unavailable)?;
        let login = || Login::new(Viewer::Operator, Some(SessionProof::Link));
        is_good.then(login).ok_or(Unauthorized::Invalid)
    }

    async fn judge_token(&self, token: &str, peer: IpAddr) -> Result<Login, Unauthorized> {
        if self.parts.admin_token.is_some_and(|ours| ours.fits(token)) {
            return Ok(Login::new(Viewer::Operator, self.sessions.session_rules.admin_token()));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Unauthorized::Malformed)?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let authenticator = &self.parts.authenticator;
        let sender = Sender { address: peer, failures: &self.failures };
        let caller = authenticator.caller(&headers, sender).await?;
        let kept = authenticator.storable(&caller).await;
        Ok(Login::new(Viewer::of(caller, authenticator, &self.parts.clock), kept.map(SessionProof::Token)))
    }

    /// The answer goes with the cookie of a new session.
    pub(crate) async fn begin(&self, request: &Parts, login: Login, peer: IpAddr, mut answer: Answer) -> Answer {
        let entry = noted("dashboard.login", &login.viewer, login.proof.as_ref(), peer);
        match self.sessions.begin(login).await {
            Ok(session) => {
                self.parts.audit.note(|| entry);
                tracing::info!(%peer, "a login at the dashboard");
                // The session before, if there was one, is nobody's any more.
                if let Some(before) = cookie(&request.headers, &self.site.session_cookie) {
                    self.sessions.end(before).await;
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

    /// Says no. What may be a guess counts against its address, and so does a return from an issuer that makes this
    /// host ask there.
    pub(crate) fn refuse(&self, request: &Parts, why: &Unauthorized, peer: IpAddr, message: &str) -> Answer {
        self.parts.audit.note_seldom("dashboard.refused", why.reason());
        tracing::warn!(%peer, reason = why.reason(), "nobody was logged in at the dashboard");
        let page = |status, message| self.login_page(request, status, Some(message));
        match why {
            Unauthorized::Unavailable { .. } | Unauthorized::StoreUnavailable { .. } => {
                page(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE)
            }
            Unauthorized::Limited(Limited::Failures(exceeded)) => self.refuse_failures(request, *exceeded),
            Unauthorized::Limited(_) => page(StatusCode::SERVICE_UNAVAILABLE, NO_ROOM),
            Unauthorized::Missing | Unauthorized::Malformed | Unauthorized::Invalid => match self.failures.note(peer) {
                Ok(()) => page(StatusCode::UNAUTHORIZED, message),
                Err(exceeded) => self.refuse_failures(request, exceeded),
            },
        }
    }

    fn refuse_failures(&self, request: &Parts, exceeded: Exceeded) -> Answer {
        let message = "Too many wrong credentials came from your address: wait a minute.";
        let page = self.login_page(request, StatusCode::TOO_MANY_REQUESTS, Some(message));
        respond::retry_after(page, exceeded.retry_after_ms)
    }

    pub(crate) fn frame_of_nobody(&self) -> Frame<'static> {
        Frame { session: None, here: "", address: "", now: self.parts.clock.now() }
    }
}

/// It cannot be written down that something was used that works once.
pub(crate) fn unavailable(error: SessionStoreError) -> Unauthorized {
    tracing::warn!(%error, "a login at the dashboard cannot be judged");
    Unauthorized::StoreUnavailable { retry_after_ms: RETRY_MS }
}

/// The line of the audit log on who came or went, from where, and by whose word.
pub(crate) fn noted(event: &'static str, viewer: &Viewer, proof: Option<&SessionProof>, peer: IpAddr) -> Entry {
    let entry = Entry::new(event).outcome("succeeded");
    let entry = match proof {
        Some(SessionProof::Login { proof, .. }) => entry.identity(&proof.issuer, &proof.subject, &proof.client),
        _ => entry,
    };
    match viewer {
        Viewer::Operator => entry.operator(&operator_at(proof, peer)),
        Viewer::Requestor { requestor, .. } => entry.by(requestor).because(&format!("at {peer}")),
    }
}
