//! Requests that share one connection (stdio), so that a notification can cancel one of them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use crate::error::RpcError;
use crate::jsonrpc::{self, RequestId};

/// The modern requests of one connection that are being served. Nothing else is shared between them.
#[derive(Debug, Default)]
pub struct Connection {
    in_flight: Mutex<HashMap<RequestId, Arc<Notify>>>,
    closing: watch::Sender<bool>,
}

impl Connection {
    /// Ends what would otherwise last as long as the connection. Calls go on.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Notes a request; ids are unique among those that are being served.
    pub(super) fn begin(self: &Arc<Self>, id: &RequestId) -> Result<InFlight, RpcError> {
        let cancelled = Arc::new(Notify::new());
        let mut in_flight = self.in_flight.lock();
        if in_flight.contains_key(id) {
            return Err(RpcError::invalid_request("a request with this id is still being served"));
        }
        in_flight.insert(id.clone(), Arc::clone(&cancelled));
        Ok(InFlight { connection: Arc::clone(self), id: id.clone(), cancelled })
    }

    /// Whether a notification cancels a request of this connection; then it is cancelled.
    pub(crate) fn cancelled(&self, method: &str, params: Option<&str>) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled {
            request_id: RequestId,
        }
        if method != "notifications/cancelled" {
            return false;
        }
        let Ok(params) = jsonrpc::params::<Cancelled>(params) else { return false };
        let Some(cancelled) = self.in_flight.lock().get(&params.request_id).cloned() else { return false };
        cancelled.notify_one();
        true
    }
}

/// A request, until this is dropped.
pub(super) struct InFlight {
    connection: Arc<Connection>,
    id: RequestId,
    cancelled: Arc<Notify>,
}

impl InFlight {
    /// Returns when the client cancels the request.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.connection.in_flight.lock().remove(&self.id);
    }
}
