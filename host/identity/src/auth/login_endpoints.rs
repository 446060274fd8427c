//! Where an issuer lets people in.
//!
//! Owns asking the issuer for its endpoints. Must not know a browser. Invariant: the issuer is asked at most once every
//! `keys_retry_ms`, by one request at a time.

use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};
use url::Url;

use super::keys::{IssuerKeys, server_url};
use super::verifier::Denied;
use bulkhead_domain::UnixMs;
use bulkhead_net::client::Client;

/// Codes of logins that are exchanged at one issuer at a time; more are refused. Stops strangers from keeping an issuer
/// busy.
const EXCHANGES_MAX: usize = 8;

/// Where an issuer lets people in.
#[derive(Clone)]
pub(super) struct Endpoints {
    pub(super) authorization: Url,
    pub(super) token: Url,
}

/// The same, once it was asked for.
pub(super) struct LoginEndpoints {
    keys: Arc<IssuerKeys>,
    pub(super) client: Client,
    known: Mutex<Known>,
    pub(super) exchanges: Semaphore,
}

#[derive(Default)]
struct Known {
    endpoints: Option<Endpoints>,
    /// By the steady clock; 0: never.
    asked_at: UnixMs,
    found_at: UnixMs,
}

impl LoginEndpoints {
    pub(super) fn new(keys: Arc<IssuerKeys>, client: Client) -> Arc<Self> {
        Arc::new(Self { keys, client, known: Mutex::default(), exchanges: Semaphore::new(EXCHANGES_MAX) })
    }

    /// In a task of its own: a browser that goes away while it waits must not take the answer from the others.
    pub(super) async fn get(self: &Arc<Self>) -> Result<Endpoints, Denied> {
        let endpoints = Arc::clone(self);
        let answer = tokio::spawn(async move { endpoints.ask().await }).await;
        answer.unwrap_or_else(|error| Err(unavailable(&self.keys.options.issuer, &error.to_string())))
    }

    /// Held as long as keys are, and then in place of new ones that cannot be had.
    async fn ask(&self) -> Result<Endpoints, Denied> {
        let mut known = self.known.lock().await;
        let now = self.keys.now.steady();
        let options = &self.keys.options;
        let age = |at: UnixMs| now.saturating_sub(at);
        let is_fresh = known.endpoints.is_some() && age(known.found_at) <= options.keys_fresh_ms;
        let is_due = known.asked_at == 0 || age(known.asked_at) >= options.keys_retry_ms;
        if !is_fresh && is_due {
            let found = self.keys.discover(|metadata| {
                let authorization = server_url(metadata.authorization_endpoint.as_deref(), "authorization_endpoint")?;
                let token = server_url(metadata.token_endpoint.as_deref(), "token_endpoint")?;
                Ok(Endpoints { authorization, token })
            });
            let found = found.await;
            // Counted from the end: those who waited for a slow failure must not begin another one.
            known.asked_at = self.keys.now.steady().max(1);
            match found {
                Ok(endpoints) => (known.endpoints, known.found_at) = (Some(endpoints), now),
                Err(error) => {
                    return known.endpoints.clone().ok_or_else(|| unavailable(&options.issuer, &error.to_string()));
                }
            }
        }
        known.endpoints.clone().ok_or_else(|| Denied::Unavailable { incident: "unknown".to_owned() })
    }
}

/// Nobody is let in, and the operator learns why.
pub(super) fn unavailable(issuer: &str, why: &str) -> Denied {
    let incident = format!("{:08x}", getrandom::u32().unwrap_or_default());
    tracing::error!(issuer, incident, why, "nobody can log in at the issuer");
    Denied::Unavailable { incident }
}
