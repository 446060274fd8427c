//! What a guest may call: the `task` and `config` interfaces (`keyvalue` is next door).
//!
//! Every import passes [`Call::enter`] first: the one place per call where a guest can be held. Invariant: nothing here blocks a
//! thread, and nothing fails because the client cannot show what was said.

use std::time::Duration;

use tokio::sync::oneshot;
use wasmtime::Result;

use super::bindings::bulkhead::plugin::task as wit;
use super::bindings::bulkhead::plugin::{config, types};
use super::call::Call;
use super::fault::HostFailure;
use super::input_requests;
use super::json::accept;
use super::wasi_context::{Stream, beginning, escaped, random, random_id};
use super::{CallEvent, ClientView};
use bulkhead_domain::Json;
use bulkhead_domain::call::{InputRequestError, LogLevel};

/// A sleep shorter than this keeps its running slot: giving it up and taking it again would cost more, and a guest could keep
/// the task engine busy with it.
const SLEEP_IN_PLACE_MS: u64 = 20;

/// Bytes of a guest's log record in the operator's log.
const LOGGED_BYTES_MAX: usize = 2048;

impl Call {
    /// The door of every import: a paused guest waits here.
    pub(super) async fn enter(&mut self) {
        if self.shared.is_paused() {
            self.shared.turn().await;
        }
    }

    fn audience(&self) -> ClientView {
        self.shared.audience(&self.facts)
    }

    /// A record of the guest's log: for the operator at debug level, and for the client that wants records of this level.
    pub(super) fn log_record(
        &self,
        level: LogLevel,
        logger: Option<String>,
        data: String,
        as_json: impl FnOnce(String) -> Json,
    ) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let text = escaped(beginning(&data, LOGGED_BYTES_MAX));
            tracing::debug!(plugin = &**self.denials.plugin(), ?level, text, "guest log");
        }
        if self.audience().log_level.is_some_and(|lowest| level >= lowest) {
            self.outbox.log(level, logger, as_json(data));
        }
    }

    /// Sends an event that has a reply, and waits for it with both clocks stopped. `None`: the receiver is gone.
    async fn converse<T>(&mut self, event: impl FnOnce(oneshot::Sender<T>) -> CallEvent) -> Option<T> {
        let (reply, replied) = oneshot::channel();
        let hold = self.shared.hold();
        self.outbox.say(event(reply)).await.ok()?;
        let reply = replied.await.ok();
        drop(hold);
        self.enter().await;
        reply
    }
}

impl wit::Host for Call {
    async fn progress(&mut self, progress: f64, total: Option<f64>, message: Option<String>) -> Result<()> {
        self.enter().await;
        if self.audience().wants_progress {
            self.outbox.progress(progress, total, message);
        }
        Ok(())
    }

    async fn set_status(&mut self, message: String) -> Result<()> {
        self.enter().await;
        self.outbox.status(message);
        Ok(())
    }

    async fn log(&mut self, level: wit::LogLevel, logger: Option<String>, data: String) -> Result<()> {
        self.enter().await;
        // A record that is not JSON is still worth reading: it goes out as a JSON string.
        let as_json =
            |data: String| accept(&data).unwrap_or_else(|_| Json::new(serde_json::Value::String(data).to_string()));
        self.log_record(level.into(), logger, data, as_json);
        Ok(())
    }

    async fn ask(
        &mut self,
        requests: Vec<wit::InputRequest>,
    ) -> Result<Result<Vec<wit::InputResponse>, wit::AskError>> {
        self.enter().await;
        let features = self.audience().features;
        let (seed, drawn) = (self.facts.seed, &mut self.ids_drawn);
        let new_id = || {
            let mut rng = random(seed, Stream::Host);
            // Each id has eight words of the stream for itself.
            rng.set_word_pos(u128::from(*drawn) * 8);
            *drawn += 1;
            random_id(&mut rng)
        };
        let requests = match input_requests::check(requests, features, new_id) {
            Ok(requests) => requests,
            Err(error) => return Ok(Err(ask_error(error))),
        };
        let keys: Vec<_> = requests.iter().map(|request| request.key.clone()).collect();
        match self.converse(|reply| CallEvent::InputRequests { requests, reply }).await {
            Some(Ok(answers)) if answers.len() == keys.len() => Ok(Ok(input_requests::responses(keys, answers))),
            Some(Ok(answers)) => {
                Err(HostFailure(format!("{} questions were given {} answers", keys.len(), answers.len())).into())
            }
            Some(Err(error)) => Ok(Err(ask_error(error))),
            None => Ok(Err(wit::AskError::Unreachable("there is no way to reach the client".to_owned()))),
        }
    }

    async fn detach(&mut self) -> Result<()> {
        self.enter().await;
        if self.detach_settled || self.shared.task_id().is_some() || self.facts.task_id.is_some() {
            return Ok(());
        }
        self.detach_settled = true;
        if let Some(Some(id)) = self.converse(|reply| CallEvent::Detach { reply }).await {
            self.shared.set_task_id(id);
        }
        Ok(())
    }

    async fn steering(&mut self) -> Result<Vec<String>> {
        self.enter().await;
        if !self.shared.has_steering() {
            return Ok(Vec::new());
        }
        Ok(self.converse(|reply| CallEvent::Steering { reply }).await.unwrap_or_default())
    }

    async fn sleep(&mut self, ms: u64) -> Result<()> {
        self.enter().await;
        if ms >= SLEEP_IN_PLACE_MS && self.converse(|reply| CallEvent::Sleep { ms, reply }).await.is_some() {
            return Ok(());
        }
        // Short, or nobody keeps time for this call.
        if ms == 0 {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        self.enter().await;
        Ok(())
    }

    async fn safe_point(&mut self) -> Result<wit::Signals> {
        self.enter().await;
        let (cancelled, steering) = self.shared.look();
        let mut signals = wit::Signals::empty();
        if cancelled {
            signals |= wit::Signals::CANCELLED;
        }
        if steering {
            signals |= wit::Signals::STEERING_PENDING;
        }
        Ok(signals)
    }

    async fn lists_changed(&mut self, kind: wit::ListKind) -> Result<()> {
        self.enter().await;
        self.outbox.lists_changed(kind.into());
        Ok(())
    }

    async fn resource_updated(&mut self, uri: String) -> Result<()> {
        self.enter().await;
        self.outbox.resource_updated(uri);
        Ok(())
    }

    async fn call_id(&mut self) -> Result<String> {
        self.enter().await;
        Ok(self.facts.call_id.to_string())
    }

    async fn task_id(&mut self) -> Result<Option<String>> {
        self.enter().await;
        Ok(self.shared.task_id().map(str::to_owned).or_else(|| self.facts.task_id.clone()))
    }

    async fn attempt(&mut self) -> Result<u32> {
        self.enter().await;
        Ok(self.facts.attempt)
    }

    async fn idempotency_key(&mut self) -> Result<String> {
        self.enter().await;
        Ok(self.facts.idempotency_key.text())
    }

    async fn requestor_id(&mut self) -> Result<String> {
        self.enter().await;
        Ok(self.facts.requestor_alias.text())
    }

    async fn client_supports(&mut self, feature: wit::ClientFeature) -> Result<bool> {
        self.enter().await;
        Ok(self.audience().features.contains(feature.into()))
    }

    async fn wanted_log_level(&mut self) -> Result<Option<wit::LogLevel>> {
        self.enter().await;
        Ok(self.audience().log_level.map(Into::into))
    }

    async fn related_tasks(&mut self) -> Result<Vec<String>> {
        self.enter().await;
        Ok(self.facts.related_tasks.clone())
    }
}

impl types::Host for Call {}

impl config::Host for Call {
    async fn get(&mut self, key: String) -> Result<Option<String>> {
        self.enter().await;
        Ok(self.denials.granted().settings.get(&key).map(|value| value.as_str().to_owned()))
    }

    async fn all(&mut self) -> Result<Vec<(String, String)>> {
        self.enter().await;
        let settings = self.denials.granted().settings.iter();
        Ok(settings.map(|(key, value)| (key.clone(), value.as_str().to_owned())).collect())
    }
}

fn ask_error(error: InputRequestError) -> wit::AskError {
    match error {
        InputRequestError::Unsupported(feature) => wit::AskError::Unsupported(feature.into()),
        InputRequestError::Invalid(wrong) => wit::AskError::Invalid(wrong),
        InputRequestError::Unreachable(why) => wit::AskError::Unreachable(why),
        InputRequestError::Cancelled => wit::AskError::Cancelled,
    }
}
