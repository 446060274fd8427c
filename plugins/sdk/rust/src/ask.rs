//! Questions: to the user through the client, and to the client's model.
//!
//! A question waits for its answer without using CPU time, for as long as the host allows. Its key names it to the
//! client (1 to 64 characters of `[A-Za-z0-9_.-]`); give each question of a tool a key of its own.
//!
//! A task waits where it stands. A plain call of a client of MCP 2026-07-28 is answered with the questions, and the
//! request that brings the answers goes on with it: with the same call if it comes within some minutes, else with a new
//! one, which is **run again from the start** and gets the earlier answers by key. So ask before you act, with the same
//! keys in the same order each time; or call [`task::detach`](crate::task::detach) first, which makes the call a task
//! where the client has them.
//!
//! `?` on an [`AskError`] does the right thing: a client that cannot show the question is told so, everything else
//! becomes a failed result.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::bindings::bulkhead::plugin::task as host;
use crate::{ClientFeature, input, schema};

pub use host::{
    ElicitationAction, ElicitationAnswer, FormRequest, InputRequest, InputResponse, Question, Root, UrlRequest,
};

/// Any answer, as the host gives it; for [`all`].
pub use host::Answer as RawAnswer;

/// What the user did with a form or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    /// Filled in, or agreed.
    Accepted(T),
    /// Said no.
    Declined,
    /// Closed it without a choice.
    Dismissed,
}

impl<T> Answer<T> {
    /// The content, where a tool can only go on with one.
    ///
    /// # Errors
    ///
    /// [`AskError::NotAccepted`], which `?` turns into a failed result.
    pub fn accepted(self) -> Result<T, AskError> {
        match self {
            Self::Accepted(content) => Ok(content),
            Self::Declined | Self::Dismissed => Err(AskError::NotAccepted),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskError {
    /// The client did not declare that it can show this.
    Unsupported(ClientFeature),
    /// The question is malformed, or the answer does not fit the type.
    Invalid(String),
    /// There is no way to reach the client any more, or it did not answer in time.
    Unreachable(String),
    /// The client answered with an error, such as a user who refused the sampling.
    Refused(String),
    /// The user declined or closed the form; only from [`Answer::accepted`].
    NotAccepted,
    /// The call was cancelled while it waited.
    Cancelled,
}

impl fmt::Display for AskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(feature) => write!(formatter, "the client does not support {feature:?}"),
            Self::Invalid(reason) => write!(formatter, "the question or its answer is not valid: {reason}"),
            Self::Unreachable(reason) => write!(formatter, "the client cannot be asked: {reason}"),
            Self::Refused(reason) => write!(formatter, "the client refused: {reason}"),
            Self::NotAccepted => formatter.write_str("the user did not accept"),
            Self::Cancelled => formatter.write_str("the call was cancelled"),
        }
    }
}

impl std::error::Error for AskError {}

impl From<host::AskError> for AskError {
    fn from(error: host::AskError) -> Self {
        match error {
            host::AskError::Unsupported(feature) => Self::Unsupported(feature),
            host::AskError::Invalid(reason) => Self::Invalid(reason),
            host::AskError::Unreachable(reason) => Self::Unreachable(reason),
            host::AskError::Cancelled => Self::Cancelled,
        }
    }
}

/// Asks the user to fill in a form whose fields are those of `T`: strings, numbers, booleans and enums without data.
/// Doc comments become the fields' descriptions. Never ask for a password or any other secret this way.
///
/// ```no_run
/// use bulkhead_plugin::{Error, ask};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Address {
///     /// Street and number.
///     street: String,
///     /// How many parcels there are.
///     #[schemars(range(min = 1, max = 20))]
///     parcels: u8,
/// }
///
/// fn pick_up() -> Result<String, Error> {
///     let address = ask::form::<Address>("address", "Where shall we pick up?")?.accepted()?;
///     Ok(format!("{} parcels from {}", address.parcels, address.street))
/// }
/// ```
///
/// # Errors
///
/// See [`AskError`].
pub fn form<T: DeserializeOwned + JsonSchema>(key: &str, message: &str) -> Result<Answer<T>, AskError> {
    let requested_schema = schema::of_form::<T>().to_string();
    let answer = elicit(key, Question::Form(FormRequest { message: message.to_owned(), requested_schema }))?;
    Ok(match answer.action {
        ElicitationAction::Accept => {
            let content = answer.content.ok_or_else(|| AskError::Invalid("the answer is empty".to_owned()))?;
            Answer::Accepted(input::read(&content).map_err(|error| AskError::Invalid(error.to_string()))?)
        }
        ElicitationAction::Decline => Answer::Declined,
        ElicitationAction::Cancel => Answer::Dismissed,
    })
}

/// Asks the user to visit a page, for everything that must not pass through the client. `Accepted` says that the user
/// agreed to go there, not that anything was completed. The URL is `https:` and carries no secrets.
///
/// # Errors
///
/// See [`AskError`].
pub fn url(key: &str, message: &str, url: &str) -> Result<Answer<()>, AskError> {
    let answer = elicit(key, Question::Url(UrlRequest { message: message.to_owned(), url: url.to_owned() }))?;
    Ok(match answer.action {
        ElicitationAction::Accept => Answer::Accepted(()),
        ElicitationAction::Decline => Answer::Declined,
        ElicitationAction::Cancel => Answer::Dismissed,
    })
}

/// A request to the client's model.
#[derive(Debug, Clone)]
pub struct Prompt {
    parameters: Map<String, Value>,
}

impl Prompt {
    /// One user message, answered with at most `max_tokens` tokens.
    pub fn new(text: impl Into<String>, max_tokens: u32) -> Self {
        let mut prompt = Self { parameters: Map::new() };
        prompt.parameters.insert("messages".to_owned(), json!([]));
        prompt.parameters.insert("maxTokens".to_owned(), json!(max_tokens));
        prompt.message("user", text)
    }

    /// One more message; the role is `user` or `assistant`.
    #[must_use]
    pub fn message(mut self, role: &str, text: impl Into<String>) -> Self {
        if let Some(Value::Array(messages)) = self.parameters.get_mut("messages") {
            messages.push(json!({ "role": role, "content": { "type": "text", "text": text.into() } }));
        }
        self
    }

    /// The system prompt.
    #[must_use]
    pub fn system(self, text: impl Into<String>) -> Self {
        let text: String = text.into();
        self.parameter("systemPrompt", json!(text))
    }

    /// The sampling temperature.
    #[must_use]
    pub fn temperature(self, temperature: f64) -> Self {
        self.parameter("temperature", json!(temperature))
    }

    /// Any other member of the params of `sampling/createMessage`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: Value) -> Self {
        self.parameters.insert(name.to_owned(), value);
        self
    }
}

/// What the client's model said.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The text blocks, joined.
    pub text: String,
    /// The model's name.
    pub model: String,
    /// Why it stopped, such as `endTurn` or `maxTokens`.
    pub stop_reason: Option<String>,
    /// The whole result object.
    pub result: Value,
}

/// Asks the client's model.
///
/// ```no_run
/// # fn run() -> Result<String, bulkhead_plugin::Error> {
/// use bulkhead_plugin::ask::{self, Prompt};
///
/// let prompt = Prompt::new("Name a river in Peru.", 50).system("Answer in one word.");
/// let river = ask::sampling("river", prompt)?.text;
/// # Ok(river) }
/// ```
///
/// # Errors
///
/// See [`AskError`].
pub fn sampling(key: &str, prompt: Prompt) -> Result<Completion, AskError> {
    match one(key, Question::Sampling(Value::Object(prompt.parameters).to_string()))? {
        RawAnswer::Sampling(json) => completion(&json),
        other => Err(unexpected(other)),
    }
}

/// The client's root folders.
///
/// # Errors
///
/// See [`AskError`].
pub fn roots(key: &str) -> Result<Vec<Root>, AskError> {
    match one(key, Question::Roots)? {
        RawAnswer::Roots(roots) => Ok(roots),
        other => Err(unexpected(other)),
    }
}

/// Asks several questions at once, at most 16, and waits for all answers, which come in the order of the questions.
///
/// # Errors
///
/// See [`AskError`].
pub fn all(requests: &[InputRequest]) -> Result<Vec<InputResponse>, AskError> {
    Ok(host::ask(requests)?)
}

fn one(key: &str, question: Question) -> Result<RawAnswer, AskError> {
    let mut answers = all(&[InputRequest { key: key.to_owned(), question, meta: Vec::new() }])?;
    match answers.pop() {
        Some(response) => Ok(response.answer),
        None => Err(AskError::Invalid("the host returned no answer".to_owned())),
    }
}

fn elicit(key: &str, question: Question) -> Result<ElicitationAnswer, AskError> {
    match one(key, question)? {
        RawAnswer::Elicitation(answer) => Ok(answer),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: RawAnswer) -> AskError {
    match answer {
        RawAnswer::Refused(reason) => AskError::Refused(reason),
        RawAnswer::Elicitation(_) | RawAnswer::Sampling(_) | RawAnswer::Roots(_) => {
            AskError::Invalid("the answer belongs to another kind of question".to_owned())
        }
    }
}

/// Reads a result of `sampling/createMessage`, whose content is one block or several.
fn completion(json: &str) -> Result<Completion, AskError> {
    let result: Value = serde_json::from_str(json).map_err(|error| AskError::Invalid(error.to_string()))?;
    let text = match &result["content"] {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        block => block["text"].as_str().unwrap_or_default().to_owned(),
    };
    let model = result["model"].as_str().unwrap_or_default().to_owned();
    let stop_reason = result["stopReason"].as_str().map(str::to_owned);
    Ok(Completion { text, model, stop_reason, result })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_completion_has_one_or_several_blocks() {
        let one = completion(r#"{"role":"assistant","model":"m","content":{"type":"text","text":"a"}}"#).unwrap();
        assert_eq!((one.text.as_str(), one.model.as_str(), one.stop_reason), ("a", "m", None));
        let blocks = r#"{"model":"m","stopReason":"endTurn","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#;
        let several = completion(blocks).unwrap();
        assert_eq!((several.text.as_str(), several.stop_reason.as_deref()), ("ab", Some("endTurn")));
    }

    #[test]
    fn sampling_prompt_becomes_create_message_params() {
        let prompt = Prompt::new("hello", 9).system("be short");
        let expected = json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": "hello" } }],
            "maxTokens": 9,
            "systemPrompt": "be short"
        });
        assert_eq!(Value::Object(prompt.parameters), expected);
    }
}
