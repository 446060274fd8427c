//! What a guest may call: the `task` and `config` interfaces (`keyvalue` is next door).
//!
//! Every import passes [`Call::enter`] first: the one place per call where a guest can be held. Invariant: nothing here
//! blocks a thread, and nothing fails because the client cannot show what was said.

use tokio::sync::oneshot;
use wasmtime::Result;

use super::app_views::views_extension;
use super::bindings::bulkhead::plugin::task as wit;
use super::bindings::bulkhead::plugin::{config, types};
use super::call::Call;
use super::input_requests;
use super::journal::Sleep;
use super::json::accept;
use super::trap_causes::HostFailure;
use super::wasi_context::{Stream, random, random_id};
use bulkhead_calls::journal::names::{self, Import};
use bulkhead_calls::{CallEvent, ClientView};
use bulkhead_domain::Json;
use bulkhead_domain::call::{InputRequestError, LogLevel, UI_EXTENSION};
use bulkhead_domain::text::{beginning, escaped};

/// A sleep shorter than this keeps its running slot: giving it up and taking it again would cost more, and a guest
/// could keep the task engine busy with it.
const SLEEP_IN_PLACE_MS: u64 = 20;

/// Bytes of a guest's log record in the operator's log.
const LOGGED_BYTES_MAX: usize = 2048;

impl Call {
    /// The door of every import: a paused guest waits here, and the journal counts it.
    pub(super) async fn enter(&mut self, import: Import) -> Result<()> {
        self.turn().await;
        self.step(import)
    }

    async fn turn(&mut self) {
        if self.shared.is_paused() {
            self.shared.turn().await;
        }
    }

    fn audience(&self) -> ClientView {
        self.shared.audience(&self.facts)
    }

    /// A record of the guest's log: for the operator at debug level, and for the client that wants records of this
    /// level.
    pub(super) fn log_record(
        &self,
        level: LogLevel,
        logger: Option<String>,
        data: String,
        as_json: impl FnOnce(String) -> Json,
    ) {
        if tracing::enabled!(tracing::Level::DEBUG) && !self.is_replaying() {
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
        self.turn().await;
        reply
    }
}

impl wit::Host for Call {
    async fn progress(&mut self, progress: f64, total: Option<f64>, message: Option<String>) -> Result<()> {
        self.enter(names::TASK_PROGRESS).await?;
        if self.audience().wants_progress {
            self.outbox.progress(progress, total, message);
        }
        Ok(())
    }

    async fn set_status(&mut self, message: String) -> Result<()> {
        self.enter(names::TASK_SET_STATUS).await?;
        self.outbox.status(message);
        Ok(())
    }

    async fn log(&mut self, level: wit::LogLevel, logger: Option<String>, data: String) -> Result<()> {
        self.enter(names::TASK_LOG).await?;
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
        self.enter(names::TASK_ASK).await?;
        let features = self.shown_audience()?.features;
        let seed = self.facts.seed;
        let drawn = &mut self.ids_drawn;
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
        let answers = match self.recorded_answers(&requests)? {
            Some(answers) => answers,
            None => {
                let journal = self.journaled_question();
                self.declare().await?;
                let answers = self.converse(|reply| CallEvent::InputRequests { requests, journal, reply }).await;
                self.record_answers(&answers);
                answers
            }
        };
        match answers {
            Some(Ok(answers)) if answers.len() == keys.len() => Ok(Ok(input_requests::responses(keys, answers))),
            Some(Ok(answers)) => {
                Err(HostFailure(format!("{} questions were given {} answers", keys.len(), answers.len())).into())
            }
            Some(Err(error)) => Ok(Err(ask_error(error))),
            None => Ok(Err(wit::AskError::Unreachable("there is no way to reach the client".to_owned()))),
        }
    }

    async fn detach(&mut self) -> Result<()> {
        self.enter(names::TASK_DETACH).await?;
        if self.shown_task()?.is_some() || self.detach_settled {
            return Ok(());
        }
        self.detach_settled = true;
        if self.has_to_ask()?
            && let Some(Some(id)) = self.converse(|reply| CallEvent::Detach { reply }).await
        {
            self.shared.set_task_id(id);
            self.shown_task()?;
        }
        Ok(())
    }

    async fn steering(&mut self) -> Result<Vec<String>> {
        self.enter(names::TASK_STEERING).await?;
        if let Some(messages) = self.recorded_messages()? {
            return Ok(messages);
        }
        if !self.shared.has_steering() {
            return Ok(Vec::new());
        }
        let journal = self.journaled_messages();
        self.declare().await?;
        let messages = self.converse(|reply| CallEvent::Steering { journal, reply }).await.unwrap_or_default();
        self.record_messages(&messages);
        Ok(messages)
    }

    async fn sleep(&mut self, ms: u64) -> Result<()> {
        self.enter(names::TASK_SLEEP).await?;
        let (left, until) = match self.sleep_of(ms)? {
            Sleep::Over => return Ok(()),
            Sleep::Wait(left, until) => (left, until),
        };
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let is_kept = left_ms >= SLEEP_IN_PLACE_MS
            && self.converse(|reply| CallEvent::Sleep { ms: left_ms, reply }).await.is_some();
        // Short, or nobody keeps time for this call.
        if !is_kept && left.is_zero() {
            tokio::task::yield_now().await;
        } else if !is_kept {
            tokio::time::sleep(left).await;
        }
        self.slept(until);
        self.turn().await;
        Ok(())
    }

    async fn safe_point(&mut self) -> Result<wit::Signals> {
        self.enter(names::TASK_SAFE_POINT).await?;
        let (cancelled, steering) = self.shared.look();
        let shown = self.shown_signals(u8::from(cancelled) | u8::from(steering) << 1)?;
        let mut signals = wit::Signals::empty();
        if shown & 1 != 0 {
            signals |= wit::Signals::CANCELLED;
        }
        if shown & 2 != 0 {
            signals |= wit::Signals::STEERING_PENDING;
        }
        Ok(signals)
    }

    async fn lists_changed(&mut self, kind: wit::ListKind) -> Result<()> {
        self.enter(names::TASK_LISTS_CHANGED).await?;
        self.outbox.lists_changed(kind.into());
        Ok(())
    }

    async fn resource_updated(&mut self, uri: String) -> Result<()> {
        self.enter(names::TASK_RESOURCE_UPDATED).await?;
        self.outbox.resource_updated(uri);
        Ok(())
    }

    async fn call_id(&mut self) -> Result<String> {
        self.enter(names::TASK_CALL_ID).await?;
        Ok(self.facts.call_id.to_string())
    }

    async fn task_id(&mut self) -> Result<Option<String>> {
        self.enter(names::TASK_TASK_ID).await?;
        self.shown_task()
    }

    async fn attempt(&mut self) -> Result<u32> {
        self.enter(names::TASK_ATTEMPT).await?;
        Ok(self.shown_attempt())
    }

    async fn idempotency_key(&mut self) -> Result<String> {
        self.enter(names::TASK_IDEMPOTENCY_KEY).await?;
        Ok(self.facts.idempotency_key.text())
    }

    async fn requestor_id(&mut self) -> Result<String> {
        self.enter(names::TASK_REQUESTOR_ID).await?;
        Ok(self.facts.requestor_alias.text())
    }

    async fn client_supports(&mut self, feature: wit::ClientFeature) -> Result<bool> {
        self.enter(names::TASK_CLIENT_SUPPORTS).await?;
        Ok(self.shown_audience()?.features.contains(feature.into()))
    }

    async fn client_extension(&mut self, name: String) -> Result<Option<String>> {
        self.enter(names::TASK_CLIENT_EXTENSION).await?;
        let has_views = self.shown_audience()?.features.has_views();
        Ok((has_views && name == UI_EXTENSION).then(|| views_extension().to_string()))
    }

    async fn wanted_log_level(&mut self) -> Result<Option<wit::LogLevel>> {
        self.enter(names::TASK_WANTED_LOG_LEVEL).await?;
        Ok(self.shown_audience()?.log_level.map(Into::into))
    }

    async fn related_tasks(&mut self) -> Result<Vec<String>> {
        self.enter(names::TASK_RELATED_TASKS).await?;
        Ok(self.facts.related_tasks.clone())
    }

    async fn checkpoint(&mut self, state: Vec<u8>) -> Result<Result<(), String>> {
        self.enter(names::TASK_CHECKPOINT).await?;
        self.write_checkpoint(state)
    }

    async fn restored(&mut self) -> Result<Option<Vec<u8>>> {
        self.enter(names::TASK_RESTORED).await?;
        Ok(self.restored_state())
    }
}

impl types::Host for Call {}

impl config::Host for Call {
    async fn get(&mut self, key: String) -> Result<Option<String>> {
        self.enter(names::CONFIG_GET).await?;
        Ok(self.denials.granted().settings.get(&key).map(|value| value.as_str().to_owned()))
    }

    async fn all(&mut self) -> Result<Vec<(String, String)>> {
        self.enter(names::CONFIG_ALL).await?;
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
