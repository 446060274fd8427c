//! Logging in at an issuer: the way there and back.
//!
//! Owns what ties the return to the browser that left. Must not keep or log a code or a token. Invariants: who comes
//! back has a cookie of the last ten minutes that fits the state, and does so once; nothing else changes by a GET, and
//! this one begins nothing but a session; an address with too many failures makes this host ask nobody.

use std::collections::VecDeque;
use std::net::IpAddr;

use bulkhead_domain::UnixMs;
use bulkhead_identity::auth::{Limited, LoggedIn, LoginAnswer, LoginAttempt, LoginClient, Unauthorized, look_at};
use http::StatusCode;
use http::request::Parts;
use parking_lot::Mutex;

use crate::digests::{digest, form_token, is_form_token, random_text, short_digest};
use crate::login::unavailable;
use crate::own_tasks::{absent, refused};
use crate::pages;
use crate::request::{Form, cookie};
use crate::respond::{self, Answer};
use crate::routes::{Routes, query};
use crate::session_store::SessionProof;
use crate::sessions::{Login, Viewer};
use crate::text;

/// Where a browser leaves, and where it comes back.
pub(crate) const START: &str = "/login/oidc";
pub(crate) const CALLBACK: &str = "/login/callback";
/// How long a browser may be away to log in at an issuer, in milliseconds.
const AWAY_MS_MAX: u64 = 10 * 60_000;
/// Logins at an issuer that came back and are remembered for it; then the oldest is forgotten, and only the issuer
/// knows that its code was used.
const ATTEMPTS_MAX: usize = 4_096;
const AGAIN: &str = "The login did not succeed. Begin it anew; it has to end within ten minutes in the same browser.";

/// Attempts that came back.
#[derive(Default)]
pub(crate) struct UsedAttempts {
    /// When each came back.
    used: Mutex<VecDeque<([u8; 32], UnixMs)>>,
}

impl UsedAttempts {
    /// Whether it is the first time.
    fn note(&self, attempt: &str, now: UnixMs) -> bool {
        let attempt = digest(attempt);
        let mut used = self.used.lock();
        while used.len() >= ATTEMPTS_MAX || used.front().is_some_and(|(_, at)| now.saturating_sub(*at) >= AWAY_MS_MAX) {
            used.pop_front();
        }
        let is_first = used.iter().all(|(known, _)| *known != attempt);
        if is_first {
            used.push_back((attempt, now));
        }
        is_first
    }
}

impl Routes {
    /// Sends a browser to the issuer.
    pub(crate) async fn begin_oidc(&self, request: &Parts, host: &str) -> Answer {
        let Some(client) = &self.parts.oidc else { return absent(&self.frame_of_nobody()) };
        let Some(random) = random_text::<32>() else {
            return respond::refusal(StatusCode::SERVICE_UNAVAILABLE, "The host has no randomness: try again\n");
        };
        let value = format!("{random}.{}", self.parts.clock.steady());
        match self.parts.authenticator.login_address(client, &self.attempt(&value, host)).await {
            Ok(address) => {
                let mut answer = respond::see_other(address.as_str());
                let seconds = AWAY_MS_MAX / 1_000;
                let name = &self.site.attempt_cookie;
                respond::set_cookie_for_return(&mut answer, name, &value, seconds, self.site.has_tls);
                answer
            }
            Err(why) => {
                self.parts.audit.note_seldom("dashboard.refused", why.reason());
                let message = "Nobody can log in at the issuer at the moment: try again.";
                self.login_page(request, StatusCode::SERVICE_UNAVAILABLE, Some(message))
            }
        }
    }

    /// The cookie of a browser and the key of this host make all of its attempt, so that nothing is kept for those who
    /// do not come back.
    fn attempt(&self, cookie: &str, host: &str) -> LoginAttempt {
        let part = |name: &str| form_token(&self.login_key, &format!("{name}\n{cookie}"));
        let scheme = if self.site.has_tls { "https" } else { "http" };
        LoginAttempt {
            state: part("state"),
            nonce: part("nonce"),
            verifier: part("verifier"),
            redirect_uri: format!("{scheme}://{}{CALLBACK}", host.to_ascii_lowercase()),
        }
    }

    /// A browser comes back.
    pub(crate) async fn end_oidc(&self, request: &Parts, host: &str, peer: IpAddr) -> Answer {
        let Some(client) = &self.parts.oidc else { return absent(&self.frame_of_nobody()) };
        let value = cookie(&request.headers, &self.site.attempt_cookie).unwrap_or_default();
        let mut answer = match self.judge_return(client, value, host, &query(request), peer).await {
            Ok(Ok(login)) => match login.viewer.requestor().map(&self.parts.admit).transpose() {
                Ok(_permit) => {
                    let page = respond::page(StatusCode::OK, pages::logged_in());
                    self.begin(request, login, peer, page).await
                }
                Err(error) => refused(&self.frame_of_nobody(), &error),
            },
            Ok(Err(message)) => {
                self.parts.audit.note_seldom("dashboard.refused", "the issuer let nobody in");
                self.login_page(request, StatusCode::FORBIDDEN, Some(&message))
            }
            Err(why) => {
                if why.is_no_judgement() && self.failures.exceeded(peer).is_none() {
                    // It has cost a question to the issuer.
                    let _ = self.failures.note(peer);
                }
                self.refuse(request, &why, peer, AGAIN)
            }
        };
        if !value.is_empty() {
            respond::set_cookie(&mut answer, &self.site.attempt_cookie, "", self.site.has_tls);
        }
        answer
    }

    /// Whether an attempt has not come back before: to any host, where several share a store.
    async fn is_first_return(&self, value: &str, now: UnixMs) -> Result<bool, Unauthorized> {
        let store = &self.parts.session_store;
        if !store.is_shared() {
            return Ok(self.used_attempts.note(value, now));
        }
        store.use_once(short_digest(value), now.saturating_add(AWAY_MS_MAX)).await.map_err(unavailable)
    }

    /// Who it is, or what the issuer says instead.
    async fn judge_return(
        &self,
        client: &LoginClient,
        value: &str,
        host: &str,
        query: &Form,
        peer: IpAddr,
    ) -> Result<Result<Login, String>, Unauthorized> {
        let authenticator = &self.parts.authenticator;
        let clock = &self.parts.clock;
        let now = clock.steady();
        let left_at = value.split_once('.').and_then(|(_, at)| at.parse::<UnixMs>().ok());
        let is_in_time = left_at.is_some_and(|at| now.saturating_sub(at) < AWAY_MS_MAX);
        let is_own = is_form_token(&self.login_key, &format!("state\n{value}"), query.get("state").unwrap_or_default());
        // Who answered, where it says so (RFC 9207).
        let is_from_there = query.get("iss").is_none_or(|issuer| issuer == client.issuer);
        if !is_own || !is_in_time || !is_from_there || !self.is_first_return(value, now).await? {
            return Err(Unauthorized::Invalid);
        }
        if let Some(exceeded) = self.failures.exceeded(peer) {
            return Err(Unauthorized::Limited(Limited::Failures(exceeded)));
        }
        if let Some(error) = query.get("error") {
            return Ok(Err(format!("The issuer did not let you in: {}", text::line(error))));
        }
        let attempt = self.attempt(value, host);
        let code = query.get("code").unwrap_or_default();
        let (viewer, proof) = match authenticator.logged_in(client, LoginAnswer { code, attempt: &attempt }).await? {
            LoggedIn::Operator(proof) => (Viewer::Operator, proof),
            LoggedIn::Requestor(proof) => {
                let caller = authenticator.stored_caller(&proof.clone().into()).await?;
                (Viewer::of(caller, authenticator, clock), proof)
            }
        };
        // Further than a session lasts it does not matter.
        let ends_at = look_at(clock, u64::MAX, proof.expires_at);
        let proof: Option<SessionProof> = self.sessions.session_rules.login(proof);
        Ok(Ok(Login { viewer, proof, ends_at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_comes_back_once_within_its_time_and_few_are_remembered() {
        let attempts = UsedAttempts::default();
        assert!(attempts.note("a", 1_000));
        assert!(!attempts.note("a", 1_000 + AWAY_MS_MAX - 1));
        for number in 0..2 * ATTEMPTS_MAX {
            assert!(attempts.note(&number.to_string(), 2_000), "{number}");
        }
        assert_eq!(attempts.used.lock().len(), ATTEMPTS_MAX);
        assert!(!attempts.note(&(2 * ATTEMPTS_MAX - 1).to_string(), 2_000));
        assert!(attempts.note("b", 2_000 + AWAY_MS_MAX));
        assert_eq!(attempts.used.lock().len(), 1, "those whose time is over are forgotten");
    }
}
