use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_domain::clock::{Clock as _, ManualClock};
use bulkhead_domain::requestor::RequestorId;
use bulkhead_identity::auth::{NOTICED_MS_MAX, Sender};
use bulkhead_identity::principal::{Principals, TokenVerifier};
use bulkhead_limits::failures::Failures;
use bulkhead_store::memory::MemoryStore;
use http::{HeaderMap, HeaderValue, header};

use super::*;
use crate::digests::{form_token, is_form_token};
use crate::session_store::SessionStoreError;

/// The rows of sessions, which outlive each `Sessions`.
#[derive(Default)]
struct Rows {
    rows: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    is_full: AtomicBool,
    is_shared: AtomicBool,
}

impl Rows {
    fn check(&self) -> Result<(), SessionStoreError> {
        let is_full = self.is_full.load(Ordering::Relaxed);
        if is_full { Err(SessionStoreError("the disk is full".to_owned())) } else { Ok(()) }
    }

    fn count(&self) -> usize {
        self.rows.lock().len()
    }
}

#[async_trait]
impl SessionStore for Rows {
    async fn all(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, SessionStoreError> {
        Ok(self.rows.lock().clone().into_iter().collect())
    }

    async fn put(&self, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), SessionStoreError> {
        self.check()?;
        self.rows.lock().extend(rows);
        Ok(())
    }

    async fn remove(&self, keys: Vec<Vec<u8>>) -> Result<(), SessionStoreError> {
        self.check()?;
        self.rows.lock().retain(|key, _| !keys.contains(key));
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    async fn find(&self, digest: &[u8; 32]) -> Result<Option<(Vec<u8>, Vec<u8>)>, SessionStoreError> {
        let rows = self.rows.lock();
        let found = rows.iter().find(|(key, _)| key.starts_with(digest));
        Ok(found.map(|(key, row)| (key.clone(), row.clone())))
    }

    async fn replace(&self, key: Vec<u8>, row: Vec<u8>) -> Result<bool, SessionStoreError> {
        Ok(self.rows.lock().get_mut(&key).map(|value| *value = row).is_some())
    }

    async fn use_once(&self, _: [u8; 16], _: UnixMs) -> Result<bool, SessionStoreError> {
        Ok(true)
    }
}

/// A host with tokens, whose process ends and starts.
struct Bench {
    clock: Arc<ManualClock>,
    rows: Arc<Rows>,
    principals: Principals,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_000));
        let rows = Arc::default();
        Self { clock, rows, principals: Principals::new(Arc::new(MemoryStore::new())) }
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        let verifier = TokenVerifier::new(self.principals.clone(), self.clock.clone());
        Arc::new(Authenticator::new(vec![Arc::new(verifier)], false))
    }

    async fn start(&self) -> Sessions {
        self.start_with(Some("token")).await
    }

    async fn start_with(&self, admin_token: Option<&str>) -> Sessions {
        let rules = session_rules(admin_token);
        Sessions::open(self.clock.clone(), self.authenticator(), self.rows.clone(), [1; 32], rules).await
    }

    /// Logs a requestor in with a new token; gives the cookie and the id of the token.
    async fn log_in(&self, sessions: &Sessions, name: &str) -> (String, String) {
        let token = self.principals.create_token(name, "acme", None, self.clock.now()).await.unwrap();
        let value = HeaderValue::from_str(&format!("Bearer {}", token.token)).unwrap();
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let authenticator = self.authenticator();
        let failures = Failures::new(1);
        let sender = Sender { address: [127, 0, 0, 1].into(), failures: &failures };
        let caller = authenticator.caller(&headers, sender).await.unwrap_or_else(|_| panic!("it is good"));
        let proof = authenticator.storable(&caller).await.map(SessionProof::Token);
        assert!(proof.is_some());
        let clock: SharedClock = self.clock.clone();
        let login = Login::new(Viewer::of(caller, &authenticator, &clock), proof);
        (sessions.begin(login).await.unwrap(), token.info.id)
    }
}

fn session_rules(admin_token: Option<&str>) -> SessionRules {
    SessionRules::new(&[1; 32], admin_token.map(AdminTokenDigest::of_token), None)
}

fn by_link() -> Login {
    Login::new(Viewer::Operator, Some(SessionProof::Link))
}

#[tokio::test]
async fn session_is_begun_used_and_ended_at_any_host_that_shares_the_rows() {
    let bench = Bench::new();
    bench.rows.is_shared.store(true, Ordering::Relaxed);
    let one = bench.start().await;
    let two = bench.start().await;
    let (own, _) = bench.log_in(&one, "anna").await;
    let operators = one.begin(by_link()).await.unwrap();
    for cookie in [&own, &operators] {
        let here = one.find(cookie).await.unwrap();
        let there = two.find(cookie).await.unwrap();
        assert_eq!(here.key, there.key, "a form of one host is good at the other");
        assert_eq!(here.viewer.requestor(), there.viewer.requestor());
    }
    // Used at one of them alone for longer than it may be idle.
    for _ in 0..3 {
        bench.clock.set(bench.clock.now() + IDLE_MS_MAX - 1);
        assert!(two.find(&own).await.is_some());
        two.sweep().await;
        one.sweep().await;
    }
    assert!(one.find(&operators).await.is_none() && two.find(&operators).await.is_none(), "nobody used it");
    assert!(one.find(&own).await.is_some());
    assert_eq!(bench.rows.count(), 1);
    // Ended at one while the other has a use of it to write.
    bench.clock.set(bench.clock.now() + 1);
    assert!(one.find(&own).await.is_some());
    two.end(&own).await;
    one.sweep().await;
    assert_eq!(bench.rows.count(), 0, "it does not come back");
    assert!(one.find(&own).await.is_none() && two.find(&own).await.is_none());
}

#[tokio::test]
async fn look_does_not_keep_a_session_from_ending() {
    let bench = Bench::new();
    let clock = &bench.clock;
    let sessions = bench.start().await;
    let cookie = sessions.begin(by_link()).await.unwrap();
    for minutes in 1..30 {
        clock.set(1_000 + minutes * 60_000);
        assert!(sessions.look(&cookie).await.is_some(), "{minutes}");
    }
    clock.set(1_000 + IDLE_MS_MAX);
    assert!(sessions.look(&cookie).await.is_none());
}

#[tokio::test]
async fn session_ends_when_it_is_idle_and_when_it_is_old() {
    let bench = Bench::new();
    let clock = &bench.clock;
    let sessions = bench.start().await;
    let cookie = sessions.begin(by_link()).await.unwrap();
    assert!(sessions.find(&cookie).await.is_some());
    assert!(sessions.find(&cookie.to_uppercase()).await.is_none());
    clock.set(1_000 + IDLE_MS_MAX);
    assert!(sessions.find(&cookie).await.is_none());
    let cookie = sessions.begin(by_link()).await.unwrap();
    let began = 1_000 + IDLE_MS_MAX;
    for minutes in (0..720).step_by(20) {
        clock.set(began + minutes * 60_000);
        assert!(sessions.find(&cookie).await.is_some(), "{minutes}");
    }
    clock.set(began + SESSION_MS_MAX);
    assert!(sessions.find(&cookie).await.is_none(), "also when it is used all the time");
    let ends_at = clock.steady() + 5_000;
    let cookie = sessions.begin(Login { ends_at, ..by_link() }).await.unwrap();
    clock.set(ends_at - 1);
    assert!(sessions.find(&cookie).await.is_some());
    clock.set(ends_at);
    assert!(sessions.find(&cookie).await.is_none(), "its credential has ended");
    assert_eq!(bench.rows.count(), 0);
}

#[tokio::test]
async fn one_identity_has_a_bounded_number_of_sessions_and_the_oldest_ends() {
    let bench = Bench::new();
    let sessions = bench.start().await;
    let mut cookies = Vec::new();
    for number in 0..=SESSIONS_OF_ONE_MAX {
        bench.clock.set(1_000 + number as u64);
        cookies.push(sessions.begin(by_link()).await.unwrap());
    }
    assert_eq!(bench.rows.count(), SESSIONS_OF_ONE_MAX);
    // The bound holds for those of an earlier process, too.
    for sessions in [sessions, bench.start().await] {
        assert!(sessions.find(&cookies[0]).await.is_none());
        for cookie in &cookies[1..] {
            assert!(sessions.find(cookie).await.is_some());
        }
    }
    let sessions = bench.start().await;
    sessions.begin(by_link()).await.unwrap();
    assert!(sessions.find(&cookies[1]).await.is_none());
    sessions.end(&cookies[2]).await;
    assert!(sessions.find(&cookies[2]).await.is_none());
    assert!(bench.start().await.find(&cookies[2]).await.is_none());
}

#[tokio::test]
async fn session_goes_on_after_a_restart_with_its_bounds_and_its_forms() {
    let bench = Bench::new();
    let sessions = bench.start().await;
    let by_link = sessions.begin(by_link()).await.unwrap();
    let (anna, _) = bench.log_in(&sessions, "anna").await;
    let in_memory = sessions.begin(Login::new(Viewer::Operator, None)).await.unwrap();
    bench.clock.set(1_000 + IDLE_MS_MAX - 1);
    let before = sessions.find(&anna).await.unwrap();
    sessions.sweep().await;
    let after = bench.start().await;
    let restored = after.find(&anna).await.unwrap();
    assert_eq!(restored.viewer.requestor(), before.viewer.requestor());
    assert!(restored.viewer.requestor().is_some() && restored.key == before.key);
    assert!(after.find(&by_link).await.is_some());
    assert!(after.find(&in_memory).await.is_none(), "nothing of it can be judged anew");
    // The row says when it was used, and when it began.
    bench.clock.set(1_000 + IDLE_MS_MAX);
    assert!(bench.start().await.find(&anna).await.is_some());
    assert!(bench.start().await.find(&by_link).await.is_none(), "its last use was in no row");
    bench.clock.set(1_000 + SESSION_MS_MAX);
    assert!(bench.start().await.find(&anna).await.is_none());
    assert_eq!(bench.rows.count(), 0);
}

#[tokio::test]
async fn revoked_token_and_changed_administrators_token_end_sessions_of_before() {
    let bench = Bench::new();
    let sessions = bench.start().await;
    let (anna, id) = bench.log_in(&sessions, "anna").await;
    let (ben, _) = bench.log_in(&sessions, "ben").await;
    let proof = session_rules(Some("token")).admin_token();
    let administrator = sessions.begin(Login::new(Viewer::Operator, proof)).await.unwrap();
    assert!(bench.start().await.find(&administrator).await.is_some());
    let running = bench.start().await;
    assert!(running.find(&anna).await.is_some());
    bench.principals.revoke_token(&id, bench.clock.now()).await.unwrap();
    bench.clock.set(1_000 + NOTICED_MS_MAX);
    assert!(running.find(&anna).await.is_none(), "a restored session is judged anew as any other");
    let after = bench.start_with(Some("another")).await;
    for cookie in [&anna, &administrator] {
        assert!(after.find(cookie).await.is_none());
    }
    assert!(after.find(&ben).await.is_some());
    assert!(bench.start().await.find(&administrator).await.is_none(), "also when the old one comes back");
    assert_eq!(bench.rows.count(), 1);
}

#[tokio::test]
async fn sessions_of_a_tenant_are_forgotten_and_a_full_disk_keeps_nobody_out() {
    let bench = Bench::new();
    let sessions = bench.start().await;
    let (anna, _) = bench.log_in(&sessions, "anna").await;
    let tenant = sessions.find(&anna).await.unwrap().viewer.requestor().unwrap().tenant;
    sessions.forget_tenant(tenant);
    assert!(sessions.find(&anna).await.is_none());
    let first = sessions.begin(by_link()).await.unwrap();
    bench.rows.is_full.store(true, Ordering::Relaxed);
    let second = sessions.begin(by_link()).await.unwrap();
    assert!(sessions.find(&second).await.is_some());
    sessions.end(&first).await;
    assert!(bench.start().await.find(&second).await.is_none());
    bench.rows.is_full.store(false, Ordering::Relaxed);
    sessions.sweep().await;
    let after = bench.start().await;
    assert!(after.find(&first).await.is_none(), "what has ended is removed as soon as it can be");
    assert!(after.find(&second).await.is_some(), "and what goes on is written");
}

#[tokio::test]
async fn rows_that_cannot_be_read_let_nobody_in_and_go() {
    let bench = Bench::new();
    let cookie = bench.start().await.begin(by_link()).await.unwrap();
    let own = key(&digest(&cookie), None);
    let row = bench.rows.rows.lock()[&own].clone();
    let foreign = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
    for (key, row) in [
        (own.clone(), row[..row.len() - 1].to_vec()),
        (own.clone(), vec![]),
        (own[..31].to_vec(), row.clone()),
        // An operator's row under a requestor's key makes nobody an operator.
        (key(&digest(&cookie), Some(&foreign)), row.clone()),
    ] {
        *bench.rows.rows.lock() = BTreeMap::from_iter([(key, row)]);
        assert!(bench.start().await.find(&cookie).await.is_none());
        assert_eq!(bench.rows.count(), 0);
    }
}

#[test]
fn form_token_is_good_for_its_session_and_address_only() {
    let key = [1; 32];
    let other = [2; 32];
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
