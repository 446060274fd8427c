//! Who is logged in.
//!
//! Owns the sessions, in memory and as rows that outlive the process, and the tokens of their forms. Must not keep a
//! cookie's value: a digest is enough to know it. Invariants: a session ends 30 minutes after it was used last and 12
//! hours after it began, and with the credential that began it; one that has ended is in no row; one identity, one
//! tenant and the host have so many at most, and operators are never kept out by requestors.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::rights::Rights;
use bulkhead_identity::auth::{Authenticator, Caller, Revalidation, Unauthorized};
use parking_lot::Mutex;

use self::other_hosts::WrittenRow;
use crate::digests::{derive, digest, random_text};
use crate::session_store::{SessionProof, SessionRow, SessionRules, SessionStore, key, read_key};

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
/// Rows of sessions of the dashboard in one write.
const ROWS_WRITTEN_MAX: usize = 256;

type Digest = [u8; 32];

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
    /// Who was let in with a credential.
    pub(crate) fn of(caller: Caller, authenticator: &Arc<Authenticator>, clock: &SharedClock) -> Self {
        // A change of its rights ends the session, too: what is drawn follows them.
        let credential = Revalidation::new(authenticator, &caller, true, clock);
        let credential = Box::new(tokio::sync::Mutex::new(credential));
        Self::Requestor { requestor: caller.requestor, rights: caller.rights, credential }
    }

    /// The requestor with its rights, unless it is an operator.
    pub(crate) fn known(&self) -> Option<(&Requestor, &Rights)> {
        match self {
            Self::Operator => None,
            Self::Requestor { requestor, rights, .. } => Some((requestor, rights)),
        }
    }

    /// The requestor, unless it is an operator.
    pub(crate) fn requestor(&self) -> Option<&Requestor> {
        match self {
            Self::Operator => None,
            Self::Requestor { requestor, .. } => Some(requestor),
        }
    }
}

/// A person who may come in.
pub(crate) struct Login {
    pub(crate) viewer: Viewer,
    /// What the session goes on by after a restart; `None`: it ends with the process.
    pub(crate) proof: Option<SessionProof>,
    /// By the steady clock, when its credential has an end.
    pub(crate) ends_at: UnixMs,
}

impl Login {
    /// Who stays as long as a session may last.
    pub(crate) fn new(viewer: Viewer, proof: Option<SessionProof>) -> Self {
        Self { viewer, proof, ends_at: UnixMs::MAX }
    }
}

/// One login.
pub(crate) struct Session {
    pub(crate) viewer: Viewer,
    /// Signs the tokens of its forms.
    pub(crate) key: [u8; 32],
    proof: Option<SessionProof>,
    /// These by the steady clock.
    began_at: UnixMs,
    ends_at: UnixMs,
    used_at: AtomicU64,
    /// The last use that is in its row.
    written_at: AtomicU64,
    /// Whether its pages show times as they are.
    has_exact_times: AtomicBool,
    /// Whether there is a row of it.
    is_stored: AtomicBool,
}

impl Session {
    /// One of an operator, for pages.
    #[cfg(test)]
    pub(crate) fn of_operator() -> Self {
        let used_at = AtomicU64::new(0);
        let written_at = AtomicU64::new(0);
        let began_at = 0;
        let ends_at = UnixMs::MAX;
        Self {
            viewer: Viewer::Operator,
            key: [1; 32],
            proof: None,
            began_at,
            ends_at,
            used_at,
            written_at,
            has_exact_times: AtomicBool::default(),
            is_stored: AtomicBool::default(),
        }
    }

    fn is_over(&self, now: UnixMs) -> bool {
        is_over(self.began_at, self.used_at.load(Ordering::Relaxed), self.ends_at, now)
    }

    pub(crate) fn has_exact_times(&self) -> bool {
        self.has_exact_times.load(Ordering::Relaxed)
    }

    pub(crate) fn set_exact_times(&self, are_exact: bool) {
        self.has_exact_times.store(are_exact, Ordering::Relaxed);
    }

    pub(crate) fn proof(&self) -> Option<&SessionProof> {
        self.proof.as_ref()
    }

    /// What an operator is called who came with it, in lines of the audit log.
    pub(crate) fn operator_at(&self, peer: IpAddr) -> String {
        operator_at(self.proof.as_ref(), peer)
    }

    fn has_unwritten_use(&self) -> bool {
        self.proof.is_some() && self.used_at.load(Ordering::Relaxed) > self.written_at.load(Ordering::Relaxed)
    }

    /// `None`: there is nothing that could be kept.
    fn row(&self) -> Option<SessionRow> {
        let used_at = self.used_at.load(Ordering::Relaxed);
        Some(SessionRow { began_at: self.began_at, used_at, ends_at: self.ends_at, proof: self.proof.clone()? })
    }
}

fn is_over(began_at: UnixMs, used_at: UnixMs, ends_at: UnixMs, now: UnixMs) -> bool {
    now.saturating_sub(began_at) >= SESSION_MS_MAX || now.saturating_sub(used_at) >= IDLE_MS_MAX || now >= ends_at
}

/// An operator, by name where an issuer gave one, and where from.
pub(crate) fn operator_at(proof: Option<&SessionProof>, peer: IpAddr) -> String {
    match proof {
        Some(SessionProof::Login { proof, .. }) => format!("dashboard operator {:?} at {peer}", proof.subject),
        _ => format!("dashboard operator at {peer}"),
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

/// A session that there is.
enum SessionEntry {
    Open(Arc<Session>),
    /// An earlier process has left it: it is judged when its cookie comes.
    Stored {
        whose: Option<Requestor>,
        row: Box<SessionRow>,
    },
}

impl SessionEntry {
    fn whose(&self) -> Option<&Requestor> {
        match self {
            Self::Open(session) => session.viewer.requestor(),
            Self::Stored { whose, .. } => whose.as_ref(),
        }
    }

    fn began_at(&self) -> UnixMs {
        match self {
            Self::Open(session) => session.began_at,
            Self::Stored { row, .. } => row.began_at,
        }
    }

    fn is_over(&self, now: UnixMs) -> bool {
        match self {
            Self::Open(session) => session.is_over(now),
            Self::Stored { row, .. } => is_over(row.began_at, row.used_at, row.ends_at, now),
        }
    }
}

/// All of them, by the digest of their cookie.
pub(crate) struct Sessions {
    clock: SharedClock,
    authenticator: Arc<Authenticator>,
    rows: Arc<dyn SessionStore>,
    secret: [u8; 32],
    /// What a row of a session has to fit, and what the row of a new one says.
    pub(crate) session_rules: SessionRules,
    sessions: Mutex<HashMap<Digest, SessionEntry>>,
    /// Rows of sessions that have ended, which the store did not remove yet.
    ended: Mutex<Vec<Vec<u8>>>,
}

impl Sessions {
    /// Goes on with what an earlier process has left. A store that cannot be read has left nothing.
    pub(crate) async fn open(
        clock: SharedClock,
        authenticator: Arc<Authenticator>,
        rows: Arc<dyn SessionStore>,
        secret: [u8; 32],
        session_rules: SessionRules,
    ) -> Self {
        let sessions = Mutex::default();
        let ended = Mutex::default();
        let opened = Self { clock, authenticator, rows, secret, session_rules, sessions, ended };
        match opened.rows.all().await {
            Ok(rows) => {
                let ended = opened.take_over(rows);
                opened.remove_rows(ended).await;
            }
            Err(error) => tracing::error!(%error, "the sessions of the dashboard cannot be read: all have ended"),
        }
        opened
    }

    /// Returns the keys of what does not go on.
    fn take_over(&self, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<Vec<u8>> {
        let now = self.clock.steady();
        let mut ended = Vec::new();
        let mut sessions = self.sessions.lock();
        for (key, bytes) in rows {
            let read = read_key(&key).zip(SessionRow::decode(&bytes));
            let fits = read.filter(|(_, row)| {
                self.session_rules.fits(&row.proof) && sessions.len() < SESSIONS_MAX + SESSIONS_OF_ONE_MAX
            });
            let Some(((digest, whose), mut row)) = fits else {
                ended.push(key);
                continue;
            };
            // A machine's clock may have been set back in between: nothing lasts longer by that.
            (row.began_at, row.used_at) = (row.began_at.min(now), row.used_at.min(now));
            let entry = SessionEntry::Stored { whose, row: Box::new(row) };
            if entry.is_over(now) {
                ended.push(key);
            } else {
                sessions.insert(digest, entry);
            }
        }
        ended
    }

    /// Begins one; gives the value of its cookie.
    pub(crate) async fn begin(&self, login: Login) -> Result<String, TooMany> {
        let cookie = random_text::<32>().ok_or(TooMany::NoRandomness)?;
        let digest = digest(&cookie);
        let now = self.clock.steady();
        let Login { viewer, proof, ends_at } = login;
        let session = Arc::new(Session {
            viewer,
            key: derive(&self.secret, "forms", &digest),
            proof,
            began_at: now,
            ends_at,
            used_at: AtomicU64::new(now),
            written_at: AtomicU64::new(now),
            has_exact_times: AtomicBool::default(),
            is_stored: AtomicBool::default(),
        });
        let ended = self.insert(digest, &session, now)?;
        self.remove_rows(ended).await;
        self.write(vec![(digest, session)]).await;
        Ok(cookie)
    }

    /// Returns the keys of those that ended for it.
    fn insert(&self, digest: Digest, session: &Arc<Session>, now: UnixMs) -> Result<Vec<Vec<u8>>, TooMany> {
        let mut sessions = self.sessions.lock();
        // Of what was not used here, another host may know better.
        if !self.rows.is_shared() {
            self.ended.lock().append(&mut take_ended(&mut sessions, now));
        }
        let mut ended = Vec::new();
        let who = session.viewer.requestor();
        let of_same = |known: &SessionEntry| known.whose() == who;
        let same = sessions.values().filter(|known| of_same(known)).count();
        if same >= SESSIONS_OF_ONE_MAX {
            let oldest = sessions.iter().filter(|(_, known)| of_same(known)).min_by_key(|(_, known)| known.began_at());
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                sessions.remove(&oldest);
                ended.push(key(&oldest, who));
            }
        } else if let Some(who) = who {
            let mut of_tenant = 0;
            let mut of_all = 0;
            for other in sessions.values().filter_map(SessionEntry::whose) {
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
        sessions.insert(digest, SessionEntry::Open(Arc::clone(session)));
        Ok(ended)
    }

    /// The session of a cookie, if its credential is still good.
    pub(crate) async fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        let session = self.look(cookie).await?;
        session.used_at.store(self.clock.steady(), Ordering::Relaxed);
        Some(session)
    }

    /// The same for what goes on without a person, such as a live page: it does not keep the session from ending for
    /// want of use.
    pub(crate) async fn look(&self, cookie: &str) -> Option<Arc<Session>> {
        let digest = digest(cookie);
        if !self.hear_of(&digest).await {
            return None;
        }
        let session = match self.judged(&digest).await? {
            Ok(session) => session,
            // Nobody can say at the moment: it is not let in, and may be later.
            Err(unjudged) if unjudged.is_no_judgement() => return None,
            Err(_) => {
                self.end_known(&digest).await;
                return None;
            }
        };
        let now = self.clock.steady();
        if session.is_over(now) || !self.is_good(&session).await {
            self.end_known(&digest).await;
            return None;
        }
        Some(session)
    }

    /// What an earlier process or another host has left is judged first.
    async fn judged(&self, digest: &Digest) -> Option<Result<Arc<Session>, Unauthorized>> {
        let (whose, row) = match self.sessions.lock().get(digest)? {
            SessionEntry::Open(session) => return Some(Ok(Arc::clone(session))),
            SessionEntry::Stored { whose, row } => (*whose, SessionRow::clone(row)),
        };
        let restored = match self.restore(digest, whose, row).await {
            Ok(session) => Arc::new(session),
            Err(unauthorized) => return Some(Err(unauthorized)),
        };
        // Two requests may have come at once, and it may have ended meanwhile.
        let mut sessions = self.sessions.lock();
        let known = sessions.get_mut(digest)?;
        if let SessionEntry::Stored { .. } = known {
            *known = SessionEntry::Open(Arc::clone(&restored));
        }
        match known {
            SessionEntry::Open(session) => Some(Ok(Arc::clone(session))),
            SessionEntry::Stored { .. } => Some(Ok(restored)),
        }
    }

    async fn restore(
        &self,
        digest: &Digest,
        whose: Option<Requestor>,
        row: SessionRow,
    ) -> Result<Session, Unauthorized> {
        let viewer = match whose {
            None => Viewer::Operator,
            Some(whose) => {
                let kept = row.proof.of_requestor().ok_or(Unauthorized::Invalid)?;
                let caller = self.authenticator.stored_caller(&kept).await?;
                if caller.requestor != whose {
                    return Err(Unauthorized::Invalid);
                }
                Viewer::of(caller, &self.authenticator, &self.clock)
            }
        };
        let SessionRow { began_at, used_at, ends_at, proof } = row;
        Ok(Session {
            viewer,
            key: derive(&self.secret, "forms", digest),
            proof: Some(proof),
            began_at,
            ends_at,
            used_at: AtomicU64::new(used_at),
            written_at: AtomicU64::new(used_at),
            has_exact_times: AtomicBool::default(),
            is_stored: AtomicBool::new(true),
        })
    }

    /// Whether its credential still is.
    async fn is_good(&self, session: &Session) -> bool {
        match (&session.viewer, &session.proof) {
            (Viewer::Requestor { credential, .. }, _) => credential.lock().await.check().await.is_ok(),
            (Viewer::Operator, Some(SessionProof::Login { proof, .. })) => {
                // While nobody can say it, the end of the id token is what bounds it.
                self.authenticator.still_holds(proof).await.map_or_else(|why| why.is_no_judgement(), |()| true)
            }
            (Viewer::Operator, _) => true,
        }
    }

    /// Ends it.
    pub(crate) async fn end(&self, cookie: &str) {
        let digest = digest(cookie);
        self.hear_of(&digest).await;
        self.end_known(&digest).await;
    }

    async fn end_known(&self, digest: &Digest) {
        let ended = self.sessions.lock().remove(digest).map(|known| key(digest, known.whose()));
        self.remove_rows(ended.into_iter().collect()).await;
    }

    /// Ends those of a tenant. Their rows go with the tenant's others.
    pub(crate) fn forget_tenant(&self, tenant: TenantId) {
        self.sessions.lock().retain(|_, known| known.whose().is_none_or(|whose| whose.tenant != tenant));
    }

    /// Drops those whose time is over, and writes when the others were used.
    pub(crate) async fn sweep(&self) {
        let now = self.clock.steady();
        let (ended, used) = {
            let mut sessions = self.sessions.lock();
            let ended = take_ended(&mut sessions, now);
            let used = sessions.iter().filter_map(|(digest, known)| match known {
                SessionEntry::Open(session) if session.has_unwritten_use() => Some((*digest, Arc::clone(session))),
                SessionEntry::Open(_) | SessionEntry::Stored { .. } => None,
            });
            (ended, used.collect::<Vec<_>>())
        };
        let ended = if self.rows.is_shared() { self.ended_everywhere(ended, now).await } else { ended };
        self.remove_rows(ended).await;
        for used in used.chunks(ROWS_WRITTEN_MAX) {
            self.write(used.to_vec()).await;
        }
    }

    /// Writes the rows of sessions. What cannot be written is tried again with the next sweep; until then a restart
    /// ends it.
    async fn write(&self, sessions: Vec<(Digest, Arc<Session>)>) {
        let mut rows = Vec::with_capacity(sessions.len());
        for (digest, session) in &sessions {
            let Some(row) = session.row() else { continue };
            let used_at = row.used_at;
            if let Some(bytes) = row.encode() {
                session.written_at.store(used_at, Ordering::Relaxed);
                rows.push(WrittenRow { digest: *digest, session, bytes });
            }
        }
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.write_rows(rows).await {
            tracing::warn!(%error, "sessions of the dashboard are not written: a restart of the host would end them");
            sessions.iter().for_each(|(_, session)| session.written_at.store(0, Ordering::Relaxed));
        }
        // One that ended meanwhile must not come back with the next process.
        let gone = |(digest, _): &&(Digest, Arc<Session>)| !self.sessions.lock().contains_key(digest);
        let gone = sessions.iter().filter(gone).map(|(digest, session)| key(digest, session.viewer.requestor()));
        let gone: Vec<_> = gone.collect();
        self.remove_rows(gone).await;
    }

    /// Removes rows, those also that could not be removed before.
    async fn remove_rows(&self, keys: Vec<Vec<u8>>) {
        let mut keys = keys;
        keys.append(&mut self.ended.lock());
        for keys in keys.chunks(ROWS_WRITTEN_MAX) {
            if let Err(error) = self.rows.remove(keys.to_vec()).await {
                tracing::warn!(%error, "sessions of the dashboard that have ended are not removed yet");
                self.ended.lock().extend_from_slice(keys);
            }
        }
    }
}

/// Takes out those whose time is over; returns their keys.
fn take_ended(sessions: &mut HashMap<Digest, SessionEntry>, now: UnixMs) -> Vec<Vec<u8>> {
    let over = sessions.extract_if(|_, known| known.is_over(now));
    over.map(|(digest, known)| key(&digest, known.whose())).collect()
}

mod other_hosts;
#[cfg(test)]
mod tests;
