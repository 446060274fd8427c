//! Guests that do what they are told.

use std::collections::HashMap;
use std::sync::Arc;

use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, FaultKind, InputRequest, InputRequestKind};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::tool::{Tool, ToolOutput};
use bulkhead_runtime::{
    CallEvent, CallSpec, Catalog, Control, Executor, Returned, RunningCall, StartError, StopOnDrop, ToolEntry,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// What a guest does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Finish,
    /// The tool's own failure.
    Fail,
    /// A fault.
    Break,
    Ask,
}

#[derive(Clone)]
struct Guest {
    orders: mpsc::UnboundedSender<Order>,
    /// Whose it is, as far as the sandbox may know.
    alias: String,
    asks: bool,
}

type Guests = Arc<Mutex<HashMap<String, Vec<Guest>>>>;

/// The executor: every call gets a guest that waits for orders.
pub(crate) struct Stage {
    catalog: Arc<Catalog>,
    guests: Guests,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let catalog = Catalog::new(vec![entry("once", false), entry("again", true)]);
        Self { catalog: Arc::new(catalog), guests: Guests::default() }
    }

    /// The tasks whose guests wait for an order, in order.
    pub(crate) fn idle(&self) -> Vec<String> {
        let guests = self.guests.lock();
        let mut idle: Vec<_> = guests
            .iter()
            .filter(|(_, guests)| guests.iter().any(|guest| !guest.asks))
            .map(|(id, _)| id.clone())
            .collect();
        // The ids themselves are random; where they stand in the catalogue of guests must not depend on them more than it has to.
        idle.sort();
        idle
    }

    pub(crate) fn tell(&self, id: &str, order: Order) {
        if let Some(guest) = self.guests.lock().get(id).and_then(|guests| guests.last()) {
            let _ = guest.orders.send(order);
        }
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.guests.lock().contains_key(id)
    }

    /// For every task with a guest: how many it has, whose, and whether they compute (and do not wait for an answer).
    pub(crate) fn census(&self) -> Vec<(String, usize, String, bool)> {
        let guests = self.guests.lock();
        let of = |(id, guests): (&String, &Vec<Guest>)| {
            let alias = guests.first().map(|guest| guest.alias.clone()).unwrap_or_default();
            (id.clone(), guests.len(), alias, guests.iter().any(|guest| !guest.asks))
        };
        guests.iter().map(of).collect()
    }
}

/// Takes the guest off the stage, however it ends.
struct Exit {
    guests: Guests,
    id: String,
}

impl Drop for Exit {
    fn drop(&mut self) {
        let mut guests = self.guests.lock();
        if let Some(here) = guests.get_mut(&self.id) {
            here.pop();
            if here.is_empty() {
                guests.remove(&self.id);
            }
        }
    }
}

impl Executor for Stage {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn start(&self, spec: CallSpec) -> Result<RunningCall, StartError> {
        let id = spec.facts.task_id.clone().unwrap_or_default();
        let (orders, inbox) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::channel(16);
        let guest = Guest { orders, alias: spec.facts.requestor_alias.text(), asks: false };
        self.guests.lock().entry(id.clone()).or_default().push(guest);
        let exit = Exit { guests: self.guests.clone(), id: id.clone() };
        let playing = tokio::spawn(play(self.guests.clone(), id, inbox, sender, exit));
        Ok(RunningCall { events, control: Control::default(), stop: StopOnDrop::new(Arc::new(playing)) })
    }

    fn engine_hash(&self) -> u64 {
        1
    }
}

async fn play(
    guests: Guests,
    id: String,
    mut inbox: mpsc::UnboundedReceiver<Order>,
    events: mpsc::Sender<CallEvent>,
    exit: Exit,
) {
    let mark = |asks: bool| {
        if let Some(guest) = guests.lock().get_mut(&id).and_then(|guests| guests.last_mut()) {
            guest.asks = asks;
        }
    };
    let mut result = Err(CallError::Interrupted);
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Finish => {
                let mut output = ToolOutput::failure(format!("output of {id}"));
                output.is_error = false;
                result = Ok(output);
                break;
            }
            Order::Fail => {
                result = Ok(ToolOutput::failure(format!("output of {id}")));
                break;
            }
            Order::Break => {
                result = Err(CallError::Fault { kind: FaultKind::Trap, reason: "told to".to_owned() });
                break;
            }
            Order::Ask => {
                let kind = InputRequestKind::Form { message: "who?".to_owned(), requested_schema: Json::new("{}") };
                let request = InputRequest { key: "name".to_owned(), kind, meta: Vec::new() };
                let (reply, answers) = oneshot::channel();
                mark(true);
                if events.send(CallEvent::InputRequests { requests: vec![request], reply }).await.is_err() {
                    return;
                }
                let _ = answers.await;
                mark(false);
            }
        }
    }
    drop(exit);
    let _ = events.send(CallEvent::Finished(result.map(Returned::Tool))).await;
}

fn entry(name: &str, rerun: bool) -> Arc<ToolEntry> {
    let limits =
        CallLimits { result_bytes: 1 << 16, promote_after_ms: 10, cancel_grace_ms: 0, ..CallLimits::generous() };
    Arc::new(ToolEntry { rerun_on_restart: rerun, ..ToolEntry::sample("stage", Tool::sample(name), limits) })
}
