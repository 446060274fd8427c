//! Replay equivalence: a call that runs again from its journal does the same, without clock, network, store or client.

mod checkpoints;
mod checks;
mod equivalence;
mod golden;
mod heard;
mod mutation;
mod open_requests;
mod orders;
mod outside;
mod plain_call;
mod prefixes;
mod random;
mod rust;
mod scripts;

use serde_json::{Value, json};

use self::outside::{Nowhere, NowhereToKeep, Peer, Values};
use super::*;
use bulkhead_calls::journal::{History, JournalReport, JournalStatus, Reason};
use bulkhead_calls::policy::Grants;
use bulkhead_domain::call::{ClientFeatures, ElicitationAction, InputRequest, InputRequestKind, InputResponse, Root};
use bulkhead_domain::limits::KeyValueLimits;

/// How a call ends.
type Outcome = Result<ToolOutput, CallError>;

/// Everything that a client can be asked for.
fn features() -> ClientFeatures {
    use ClientFeature::{ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingContext, SamplingTools, Tasks};
    let all = [ElicitationForm, ElicitationUrl, Sampling, SamplingTools, SamplingContext, Roots, Tasks];
    all.into_iter().fold(ClientFeatures::default(), ClientFeatures::with)
}

/// What the client of a test answers.
fn answer(request: &InputRequest) -> InputResponse {
    let form = match request.key.as_str() {
        "journey" => json!({"destination": "Rome", "travellers": 2}),
        "details" => json!({"class": "economy", "confirm": true}),
        "choice" => json!({"color": "red", "amount": 2}),
        key if key.starts_with("pair-") => json!({"same": true}),
        _ => json!({"value": "x", "name": "Ada", "confirm": true}),
    };
    let json = |value: Value| Json::new(value.to_string());
    match &request.kind {
        InputRequestKind::Form { .. } => {
            InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(json(form)) }
        }
        InputRequestKind::Url { .. } => InputResponse::Elicitation { action: ElicitationAction::Accept, content: None },
        InputRequestKind::Sampling(_) => InputResponse::Sampling(json(json!({
            "role": "assistant", "model": "m", "stopReason": "endTurn", "content": {"type": "text", "text": "words"}
        }))),
        InputRequestKind::Roots => {
            InputResponse::Roots(vec![Root { uri: "file:///a".to_owned(), name: Some("a".to_owned()) }])
        }
    }
}

/// What a client does to a call from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Levers {
    /// Steers it with this text.
    steer: Option<&'static str>,
    cancel: bool,
}

/// Drives a call that runs for the first time, or goes on.
async fn drive(mut running: RunningCall, levers: Levers) -> (Outcome, Option<JournalReport>) {
    let control = running.control.clone();
    let pull = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        control.steering_pending(levers.steer.is_some());
        if levers.cancel {
            control.signal_cancel();
        }
        std::future::pending::<()>().await;
    };
    let read = async {
        while let Some(event) = running.events.recv().await {
            match event {
                CallEvent::Finished(outcome) => return output_of(outcome),
                CallEvent::InputRequests { requests, reply, .. } => {
                    _ = reply.send(Ok(requests.iter().map(answer).collect()));
                }
                CallEvent::Sleep { ms, reply } => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    _ = reply.send(());
                }
                CallEvent::Detach { reply } => _ = reply.send(Some("task-1".to_owned())),
                CallEvent::Steering { reply, .. } => {
                    running.control.steering_pending(false);
                    _ = reply.send(levers.steer.iter().map(|&text| text.to_owned()).collect());
                }
                _ => {}
            }
        }
        panic!("the events ended without Finished")
    };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(Duration::from_secs(120), read) => outcome.expect("a call ends"),
        () = pull => unreachable!(),
    };
    (outcome, running.control.journal().cloned())
}

/// Reads the events of a replay: there is nothing but its end.
async fn read_replay(mut running: RunningCall) -> (Outcome, JournalReport) {
    let read = async {
        match running.events.recv().await {
            Some(CallEvent::Finished(outcome)) => output_of(outcome),
            other => panic!("while a journal is replayed nothing is said: {other:?}"),
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(120), read).await.expect("a replay ends");
    (outcome, running.control.journal().expect("a report").clone())
}

/// A plugin with its grants, and what is around its calls.
struct Place {
    house: House,
    peer: Arc<Peer>,
    values: Arc<Values>,
}

impl Place {
    /// `None`: the plugin was not built.
    async fn of(name: &str, grant: impl FnOnce(&mut PluginSource)) -> Option<Self> {
        Some(Self::with(sample(name)?, grant).await)
    }

    async fn with(plugin: PluginSource, grant: impl FnOnce(&mut PluginSource)) -> Self {
        Self::in_house(House::new(), plugin, grant).await
    }

    async fn in_house(house: House, mut plugin: PluginSource, grant: impl FnOnce(&mut PluginSource)) -> Self {
        plugin.name = Some("sample".to_owned());
        plugin.grants = Grants {
            http: vec!["http://peer.test".parse().unwrap()],
            env: vec!["GRANTED".to_owned()],
            keyvalue: Some(KeyValueLimits { keys_max: 100, bytes_max: 1 << 20, value_bytes_max: 1 << 16 }),
            ..Grants::default()
        };
        plugin.config.insert("unit".to_owned(), Json::new("\"metre\""));
        grant(&mut plugin);
        house.publish(plugin).await;
        Self { house, peer: Arc::default(), values: Arc::default() }
    }

    fn start(&self, tool: &str, arguments: &Value, journaling: Journaling) -> RunningCall {
        let is_new = !matches!(journaling, Journaling::Replay(_) | Journaling::Check { .. });
        let peer = Arc::clone(&self.peer);
        let values = Arc::clone(&self.values);
        self.house.start_with(tool, &arguments.to_string(), |spec| {
            spec.journaling = journaling;
            spec.facts.features = features();
            spec.facts.log_level = Some(LogLevel::Debug);
            if is_new {
                spec.facts.outside = Some(peer);
                spec.facts.guest_services = Some(values);
            } else {
                spec.facts.outside = Some(Arc::new(Nowhere));
                spec.facts.guest_services = Some(Arc::new(NowhereToKeep));
            }
        })
    }

    async fn record(&self, tool: &str, arguments: &Value, levers: Levers) -> (Outcome, JournalReport) {
        let (outcome, report) = drive(self.start(tool, arguments, Journaling::InMemory), levers).await;
        (outcome, report.unwrap_or_else(|| panic!("{tool} has no journal")))
    }

    async fn replay(&self, tool: &str, arguments: &Value, history: History) -> (Outcome, JournalReport) {
        read_replay(self.start(tool, arguments, Journaling::Replay(history))).await
    }

    /// Replays a journal and goes no further.
    async fn check(&self, tool: &str, arguments: &Value, history: History) -> (Outcome, JournalReport) {
        read_replay(self.start(tool, arguments, Journaling::Check { history, spent: Spent::default() })).await
    }

    /// Goes on from a journal that has no end, with the same things around it.
    async fn go_on(&self, tool: &str, arguments: &Value, history: History) -> (Outcome, JournalReport) {
        self.go_on_beside(&self.peer, tool, arguments, history).await
    }

    /// The same with a peer of its own, which counts no request of an earlier run that is still under way.
    async fn go_on_beside(
        &self,
        peer: &Arc<Peer>,
        tool: &str,
        arguments: &Value,
        history: History,
    ) -> (Outcome, JournalReport) {
        let running = self.house.start_with(tool, &arguments.to_string(), |spec| {
            spec.journaling = Journaling::Replay(history);
            spec.facts.features = features();
            spec.facts.log_level = Some(LogLevel::Debug);
            spec.facts.outside = Some(Arc::clone(peer) as Arc<dyn OutsideWorld>);
            spec.facts.guest_services = Some(Arc::clone(&self.values) as Arc<dyn GuestServices>);
        });
        let (outcome, report) = drive(running, Levers::default()).await;
        (outcome, report.expect("a report"))
    }
}

/// An outcome without what differs from call to call.
fn comparable(outcome: &Outcome) -> String {
    match outcome {
        Err(CallError::Internal { .. }) => "internal".to_owned(),
        other => format!("{other:?}"),
    }
}
