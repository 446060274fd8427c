//! Who is logged in.
//!
//! Owns the sessions, in memory, and the tokens of their forms. Must not keep a cookie's value: a digest is enough to know it. Invariants: a
//! session ends 30 minutes after it was used last and 12 hours after it began, and with the credential that began it; one identity, one
//! tenant and the host have so many at most, and operators are never kept out by requestors.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_domain::{UnixMs, hex, unhex};
use bulkhead_identity::auth::Revalidation;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// A session of the dashboard that nobody uses ends after so many milliseconds.
const IDLE_MS_MAX: u64 = 30 * 60_000;
/// Every session of the dashboard ends after so many milliseconds.
const SESSION_MS_MAX: u64 = 12 * 3_600_000;
/// Sessions of the dashboard of one requestor, and of all operators together; a further one ends the oldest.
const SESSIONS_OF_ONE_MAX: usize = 20;
/// Sessions of the dashboard of one tenant.
const SESSIONS_OF_TENANT_MAX: usize = 500;
/// Sessions of the dashboard of all requestors.
const SESSIONS_MAX: usize = 4_000;

/// SHA-256 of a secret text.
pub(crate) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Random bytes as hexadecimal digits; `None` without randomness.
pub(crate) fn random_text<const N: usize>() -> Option<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

/// The token of a form: nobody else can make it, and it is good for one address only.
pub(crate) fn form_token(key: &[u8; 32], action: &str) -> String {
    mac(key, action).map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default()
}

/// Compares in constant time.
pub(crate) fn is_form_token(key: &[u8; 32], action: &str, token: &str) -> bool {
    let (Some(token), Some(mac)) = (unhex::<32>(token), mac(key, action)) else { return false };
    mac.verify_slice(&token).is_ok()
}

fn mac(key: &[u8; 32], action: &str) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(action.as_bytes());
    Some(mac)
}

/// Whom a session is for.
pub(crate) enum Viewer {
    Operator,
    Requestor {
        requestor: Requestor,
        rights: Rights,
        /// Says when the credential has ended.
        credential: Box<tokio::sync::Mutex<Revalidation>>,
    },
}

impl Viewer {
    /// The requestor, unless it is an operator.
    pub(crate) fn requestor(&self) -> Option<&Requestor> {
        match self {
            Self::Operator => None,
            Self::Requestor { requestor, .. } => Some(requestor),
        }
    }
}

/// One login.
pub(crate) struct Session {
    pub(crate) viewer: Viewer,
    /// Signs the tokens of its forms.
    pub(crate) key: [u8; 32],
    /// These two by the steady clock.
    began_at: UnixMs,
    used_at: AtomicU64,
}

impl Session {
    fn is_over(&self, now: UnixMs) -> bool {
        now.saturating_sub(self.began_at) >= SESSION_MS_MAX
            || now.saturating_sub(self.used_at.load(Ordering::Relaxed)) >= IDLE_MS_MAX
    }
}

/// Why nobody more can log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error("the tenant has {SESSIONS_OF_TENANT_MAX} sessions of the dashboard: try again later, or log out elsewhere")]
    OfTenant,
    #[error("there are {SESSIONS_MAX} sessions of the dashboard: try again later")]
    OfHost,
    #[error("the host has no randomness")]
    NoRandomness,
}

/// All of them, by the digest of their cookie.
pub(crate) struct Sessions {
    clock: SharedClock,
    sessions: Mutex<HashMap<[u8; 32], Arc<Session>>>,
}

impl Sessions {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { clock, sessions: Mutex::default() }
    }

    /// Begins one; gives the value of its cookie.
    pub(crate) fn begin(&self, viewer: Viewer) -> Result<String, TooMany> {
        let cookie = random_text::<32>().ok_or(TooMany::NoRandomness)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|_| TooMany::NoRandomness)?;
        let now = self.clock.steady();
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| !session.is_over(now));
        let who = viewer.requestor().copied();
        let of_same = |session: &Session| session.viewer.requestor() == who.as_ref();
        let same = sessions.values().filter(|session| of_same(session)).count();
        if same >= SESSIONS_OF_ONE_MAX {
            let oldest = sessions.iter().filter(|(_, session)| of_same(session)).min_by_key(|(_, it)| it.began_at);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                sessions.remove(&oldest);
            }
        } else if let Some(who) = who {
            let others = sessions.values().filter_map(|session| session.viewer.requestor());
            let (mut of_tenant, mut of_all) = (0, 0);
            for other in others {
                of_all += 1;
                of_tenant += usize::from(other.tenant == who.tenant);
            }
            if of_tenant >= SESSIONS_OF_TENANT_MAX {
                return Err(TooMany::OfTenant);
            }
            if of_all >= SESSIONS_MAX {
                return Err(TooMany::OfHost);
            }
        }
        let session = Session { viewer, key, began_at: now, used_at: AtomicU64::new(now) };
        sessions.insert(digest(&cookie), Arc::new(session));
        Ok(cookie)
    }

    /// The session of a cookie, if its credential is still good.
    pub(crate) async fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        let session = self.look(cookie).await?;
        session.used_at.store(self.clock.steady(), Ordering::Relaxed);
        Some(session)
    }

    /// The same for what goes on without a person, such as a live page: it does not keep the session from ending for want of use.
    pub(crate) async fn look(&self, cookie: &str) -> Option<Arc<Session>> {
        let (digest, now) = (digest(cookie), self.clock.steady());
        let session = self.sessions.lock().get(&digest).cloned()?;
        let is_good = match &session.viewer {
            Viewer::Operator => true,
            Viewer::Requestor { credential, .. } => credential.lock().await.check().await.is_ok(),
        };
        if !is_good || session.is_over(now) {
            self.sessions.lock().remove(&digest);
            return None;
        }
        Some(session)
    }

    /// Ends it.
    pub(crate) fn end(&self, cookie: &str) {
        self.sessions.lock().remove(&digest(cookie));
    }

    /// Drops those whose time is over.
    pub(crate) fn forget_idle(&self) {
        let now = self.clock.steady();
        self.sessions.lock().retain(|_, session| !session.is_over(now));
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::clock::ManualClock;

    use super::*;

    #[tokio::test]
    async fn session_ends_when_it_is_idle_and_when_it_is_old() {
        let clock = Arc::new(ManualClock::at(1_000));
        let sessions = Sessions::new(clock.clone());
        let cookie = sessions.begin(Viewer::Operator).unwrap();
        assert!(sessions.find(&cookie).await.is_some());
        assert!(sessions.find(&cookie.to_uppercase()).await.is_none());
        clock.set(1_000 + IDLE_MS_MAX);
        assert!(sessions.find(&cookie).await.is_none());
        let cookie = sessions.begin(Viewer::Operator).unwrap();
        let began = 1_000 + IDLE_MS_MAX;
        for minutes in (0..720).step_by(20) {
            clock.set(began + minutes * 60_000);
            assert!(sessions.find(&cookie).await.is_some(), "{minutes}");
        }
        clock.set(began + SESSION_MS_MAX);
        assert!(sessions.find(&cookie).await.is_none(), "also when it is used all the time");
    }

    #[tokio::test]
    async fn look_does_not_keep_a_session_from_ending() {
        let clock = Arc::new(ManualClock::at(1_000));
        let sessions = Sessions::new(clock.clone());
        let cookie = sessions.begin(Viewer::Operator).unwrap();
        for minutes in 1..30 {
            clock.set(1_000 + minutes * 60_000);
            assert!(sessions.look(&cookie).await.is_some(), "{minutes}");
        }
        clock.set(1_000 + IDLE_MS_MAX);
        assert!(sessions.look(&cookie).await.is_none());
    }

    #[tokio::test]
    async fn one_identity_has_a_bounded_number_of_sessions_and_the_oldest_ends() {
        let clock = Arc::new(ManualClock::at(1_000));
        let sessions = Sessions::new(clock.clone());
        let mut cookies = Vec::new();
        for number in 0..=SESSIONS_OF_ONE_MAX {
            clock.set(1_000 + number as u64);
            cookies.push(sessions.begin(Viewer::Operator).unwrap());
        }
        assert!(sessions.find(&cookies[0]).await.is_none());
        for cookie in &cookies[1..] {
            assert!(sessions.find(cookie).await.is_some());
        }
        sessions.end(&cookies[1]);
        assert!(sessions.find(&cookies[1]).await.is_none());
    }

    #[test]
    fn form_token_is_good_for_its_session_and_address_only() {
        let (key, other) = ([1; 32], [2; 32]);
        let token = form_token(&key, "/logout");
        assert!(is_form_token(&key, "/logout", &token));
        for (key, action, token) in [
            (&other, "/logout", token.as_str()),
            (&key, "/tasks/1/cancel", &token),
            (&key, "/logout", ""),
            (&key, "/logout", &token[..62]),
            (&key, "/logout", &"0".repeat(64)),
        ] {
            assert!(!is_form_token(key, action, token), "{action} {token}");
        }
    }
}
