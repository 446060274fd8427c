//! Guests that do what they are told.

use std::collections::HashMap;
use std::sync::Arc;

use bulkhead_calls::{
    CallEvent, CallSpec, Catalog, Control, Executor, JournalPolicy, JournalSink, JournaledQuestion, Journaling,
    Returned, RunningCall, StartError, StopOnDrop, Tail, ToolEntry,
};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, FaultKind, InputRequest, InputRequestKind};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::tool::{Tool, ToolOutput};
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
        let lasting = ToolEntry { journal: Some(JournalPolicy::default()), ..entry("lasting", false) };
        let entries = [entry("once", false), entry("again", true), lasting];
        let catalog = Catalog::new(entries.into_iter().map(Arc::new).collect());
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
        // The ids themselves are random; where they stand in the catalogue of guests must not depend on them more than
        // it has to.
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
        let script = Script::of(spec.journaling);
        let playing = tokio::spawn(play(self.guests.clone(), id, inbox, sender, script, exit));
        Ok(RunningCall { events, control: Control::scripted(), stop: StopOnDrop::new(Arc::new(playing)) })
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
    mut script: Script,
    exit: Exit,
) {
    let mark = |asks: bool| {
        if let Some(guest) = guests.lock().get_mut(&id).and_then(|guests| guests.last_mut()) {
            guest.asks = asks;
        }
    };
    let mut result = Err(CallError::Interrupted);
    while let Some(order) = script.next(&mut inbox).await {
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
                let asks = CallEvent::InputRequests { requests: vec![request], journal: script.asks(), reply };
                if events.send(asks).await.is_err() {
                    return;
                }
                if let Ok(Ok(answers)) = answers.await {
                    script.answered += answers.len();
                }
                mark(false);
            }
        }
    }
    drop(exit);
    let _ = events.send(CallEvent::Finished(result.map(Returned::Tool))).await;
}

/// What a guest did before, which is its journal: a byte for each question.
#[derive(Default)]
struct Script {
    /// Questions of an earlier run that this one has yet to ask.
    left: usize,
    bytes: Vec<u8>,
    answered: usize,
    sink: Option<Arc<dyn JournalSink>>,
}

impl Script {
    fn of(journaling: Journaling) -> Self {
        match journaling {
            Journaling::To { sink, .. } => Self { sink: Some(sink), ..Self::default() },
            Journaling::From { history, sink, .. } => {
                let bytes = history.0.to_vec();
                Self { left: bytes.len(), bytes, sink: Some(sink), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    async fn next(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Option<Order> {
        if self.left > 0 { Some(Order::Ask) } else { orders.recv().await }
    }

    /// What is kept with the question that it asks now.
    fn asks(&mut self) -> Option<JournaledQuestion> {
        let sink = self.sink.as_ref()?;
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.bytes.push(b'?'),
        }
        let at = sink.kept();
        let bytes = self.bytes.get(at as usize..).unwrap_or_default().to_vec();
        let tail =
            Tail { at, bytes, step: self.bytes.len() as u64, entries: self.bytes.len() as u32, ..Tail::default() };
        Some(JournaledQuestion { asked_before: self.answered, tail })
    }
}

fn entry(name: &str, rerun: bool) -> ToolEntry {
    let limits =
        CallLimits { result_bytes: 1 << 16, promote_after_ms: 10, cancel_grace_ms: 0, ..CallLimits::generous() };
    ToolEntry { rerun_on_restart: rerun, ..ToolEntry::sample("stage", Tool::sample(name), limits) }
}
