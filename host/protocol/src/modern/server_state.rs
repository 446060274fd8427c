//! What the era keeps between requests.
//!
//! Must not decide anything. Invariant: a request that finds nothing here is answered all the same.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;

use super::multi_round_trip::MultiRoundTrips;
use crate::context::{ProtocolOptions, ServerInfo};

/// Nothing that a request depends on.
pub(crate) struct State {
    pub(super) server_info: Box<RawValue>,
    pub(super) rounds: Arc<MultiRoundTrips>,
    pub(super) closing: watch::Sender<bool>,
}

impl State {
    pub(crate) fn new(options: &ProtocolOptions) -> Self {
        Self {
            server_info: to_raw_value(&ServerInfo::from(options)).unwrap_or_else(|_| RawValue::NULL.to_owned()),
            rounds: Arc::new(MultiRoundTrips::new(&options.cursor_key)),
            closing: watch::Sender::new(false),
        }
    }

    /// Drops the guest that is parked under a state id: its call goes on at another host.
    pub(crate) fn forget_parked(&self, state_id: &[u8; 16]) {
        drop(self.rounds.unpark(state_id));
    }

    /// Ends every listen stream, those that begin later too.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }
}
