//! Codes with which an operator of the machine logs in: made over the control socket, worth one login within ten
//! minutes.
//!
//! Must not keep a code as it is: a digest is enough to know it. Invariant: a code is taken out before it lets anybody
//! in, so it works once.
//!
//! Where several hosts share a store, a code lets in at any of them: it says itself until when, under a keyed digest,
//! and a row says that it was used.

use std::collections::VecDeque;
use std::sync::Arc;

use bulkhead_control::admin::LoginLinks;
use bulkhead_control::views::DashboardLoginView;
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use parking_lot::Mutex;

use crate::digests::{derive, digest, form_token, is_form_token, random_text, short_digest};
use crate::session_store::{SessionStore, SessionStoreError};

/// How long a code can be used, in milliseconds.
const CODE_MS_MAX: u64 = 10 * 60_000;
/// Codes of the dashboard that were made and not used; a further one ends the oldest.
const CODES_MAX: usize = 16;
/// Characters of a code before its keyed digest, where hosts share a store: random ones, and the time of its end.
const SHARED_CODE_CHARS: usize = 32;

/// The codes that can be used now.
pub struct LoginCodes {
    /// Where the dashboard is, as `http://127.0.0.1:8810`.
    base: String,
    clock: SharedClock,
    open: Mutex<VecDeque<OpenCode>>,
    shared: Option<SharedCodes>,
}

/// What makes and knows codes of all hosts that share a store.
struct SharedCodes {
    key: [u8; 32],
    store: Arc<dyn SessionStore>,
}

impl SharedCodes {
    /// `None` without randomness.
    fn make(&self, ends_at: UnixMs) -> Option<String> {
        let code = format!("{}{ends_at:016x}", random_text::<8>()?);
        Some(format!("{code}{}", form_token(&self.key, &code)))
    }

    async fn take(&self, code: &str, now: UnixMs) -> Result<bool, SessionStoreError> {
        let Some((code, token)) = code.split_at_checked(SHARED_CODE_CHARS) else { return Ok(false) };
        let ends_at = code.get(16..).and_then(|digits| UnixMs::from_str_radix(digits, 16).ok());
        let Some(ends_at) = ends_at.filter(|ends_at| *ends_at > now && is_form_token(&self.key, code, token)) else {
            return Ok(false);
        };
        self.store.use_once(short_digest(code), ends_at).await
    }
}

struct OpenCode {
    digest: [u8; 32],
    /// By the steady clock.
    ends_at: UnixMs,
}

impl LoginCodes {
    pub fn new(base: String, clock: SharedClock) -> Self {
        Self { base, clock, open: Mutex::default(), shared: None }
    }

    /// Has codes work at every host that shares the store, if others may.
    pub fn sharing(self, secret: &[u8; 32], store: Arc<dyn SessionStore>) -> Self {
        let shared = store.is_shared().then(|| SharedCodes { key: derive(secret, "codes", &[]), store });
        Self { shared, ..self }
    }

    /// Makes one; `None` without randomness.
    fn make(&self) -> Option<String> {
        if let Some(shared) = &self.shared {
            return shared.make(self.clock.now().saturating_add(CODE_MS_MAX));
        }
        let code = random_text::<16>()?;
        let mut open = self.open.lock();
        while open.len() >= CODES_MAX {
            open.pop_front();
        }
        let ends_at = self.clock.steady().saturating_add(CODE_MS_MAX);
        open.push_back(OpenCode { digest: digest(&code), ends_at });
        Some(code)
    }

    /// Whether it is one; from now on it is none.
    pub(crate) async fn take(&self, code: &str) -> Result<bool, SessionStoreError> {
        match &self.shared {
            Some(shared) => shared.take(code, self.clock.now()).await,
            None => Ok(self.take_own(code)),
        }
    }

    fn take_own(&self, code: &str) -> bool {
        let wanted = digest(code);
        let now = self.clock.steady();
        let mut open = self.open.lock();
        open.retain(|code| code.ends_at > now);
        let before = open.len();
        open.retain(|code| code.digest != wanted);
        open.len() < before
    }
}

impl LoginLinks for LoginCodes {
    fn make_link(&self) -> Option<DashboardLoginView> {
        let code = self.make()?;
        let expires_at = self.clock.now().saturating_add(CODE_MS_MAX);
        Some(DashboardLoginView { link: format!("{}/login/once?code={code}", self.base), expires_at })
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::clock::ManualClock;

    use super::*;

    fn codes() -> (Arc<ManualClock>, LoginCodes) {
        let clock = Arc::new(ManualClock::at(1_000));
        (Arc::clone(&clock), LoginCodes::new("http://127.0.0.1:1".to_owned(), clock))
    }

    #[test]
    fn code_lets_in_once_and_within_its_time() {
        let (clock, codes) = codes();
        let code = codes.make().unwrap();
        assert!(!codes.take_own("") && !codes.take_own(&code.to_uppercase()));
        assert!(codes.take_own(&code));
        assert!(!codes.take_own(&code), "a code works once");
        let late = codes.make().unwrap();
        clock.set(1_000 + CODE_MS_MAX);
        assert!(!codes.take_own(&late), "its time is over");
    }

    #[test]
    fn more_codes_than_there_may_be_end_the_oldest() {
        let (_, codes) = codes();
        let made: Vec<_> = (0..=CODES_MAX).map(|_| codes.make().unwrap()).collect();
        assert!(!codes.take_own(&made[0]));
        assert!(made[1..].iter().all(|code| codes.take_own(code)));
    }

    #[test]
    fn link_holds_a_code_that_works() {
        let (_, codes) = codes();
        let link = codes.make_link().unwrap();
        let code = link.link.strip_prefix("http://127.0.0.1:1/login/once?code=").unwrap();
        assert!(codes.take_own(code));
    }
}
