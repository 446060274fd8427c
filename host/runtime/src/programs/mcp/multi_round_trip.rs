//! What a server asks its client between two rounds of one call, and what it gets.
//!
//! The state that it wants back stays in the host: no client sees it, so it needs no seal.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::content::parsed;
use super::messages::Members;
use crate::bindings::bulkhead::plugin::task as wit;
use bulkhead_domain::Json;

/// Bytes of the state between two rounds. Stops megabytes that a waiting call holds.
pub(super) const STATE_BYTES_MAX: usize = 64 << 10;

/// What is asked before the next round.
#[derive(Debug)]
pub(super) struct InputNeeded {
    pub(super) requests: Vec<wit::InputRequest>,
    /// As the server wrote it.
    pub(super) state: Option<String>,
    /// Whether the request is sent again as it was, once the client has agreed to everything.
    pub(super) is_agreement: bool,
}

/// What the next round's request has beside the call's own.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// JSON texts.
    pub(super) responses: Option<String>,
    pub(super) state: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    result_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired {
    input_requests: Option<Members>,
    request_state: Option<String>,
}

#[derive(Deserialize)]
struct Asking {
    method: String,
    params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Elicitation {
    mode: Option<String>,
    message: String,
    requested_schema: Option<Box<RawValue>>,
    url: Option<String>,
}

/// What a result asks. `None`: the call is complete.
///
/// # Errors
///
/// It is neither.
pub(super) fn input_needed(result: &Json) -> Result<Option<InputNeeded>, String> {
    match parsed::<Kind>(result.as_str())?.result_type.as_deref() {
        None | Some("complete") => return Ok(None),
        Some("input_required") => {}
        Some(other) => return Err(format!("its resultType is {other:?}, which nobody asked it for")),
    }
    let InputRequired { input_requests, request_state: state } = parsed(result.as_str())?;
    if input_requests.is_none() && state.is_none() {
        return Err("it wants input and says neither which nor its state".to_owned());
    }
    if let Some(bytes) = state.as_ref().map(String::len).filter(|bytes| *bytes > STATE_BYTES_MAX) {
        return Err(format!("its requestState has {bytes} bytes; {STATE_BYTES_MAX} is the most"));
    }
    let requests = input_requests.unwrap_or_default().0.into_iter();
    let requests = requests.map(|(key, text)| {
        let question = parsed::<Asking>(text.get())
            .and_then(Asking::question)
            .map_err(|wrong| format!("input request {key:?}: {wrong}"))?;
        Ok(wit::InputRequest { key, question, meta: Vec::new() })
    });
    Ok(Some(InputNeeded { requests: requests.collect::<Result<_, String>>()?, state, is_agreement: false }))
}

impl Asking {
    fn question(self) -> Result<wit::Question, String> {
        question(&self.method, self.params.as_ref().map_or("{}", |params| params.get()))
    }
}

/// Whether a client can be asked this at all.
pub(super) fn is_question(method: &str) -> bool {
    matches!(method, "elicitation/create" | "sampling/createMessage" | "roots/list")
}

/// What a request asks of the client.
///
/// # Errors
///
/// It is nothing that a client is asked, or not as it has to be.
pub(super) fn question(method: &str, params: &str) -> Result<wit::Question, String> {
    match method {
        "elicitation/create" => {
            let Elicitation { mode, message, requested_schema, url } = parsed(params)?;
            match (mode.as_deref(), requested_schema, url) {
                (None | Some("form"), Some(schema), _) => {
                    let requested_schema = schema.get().to_owned();
                    Ok(wit::Question::Form(wit::FormRequest { message, requested_schema }))
                }
                (Some("url"), _, Some(url)) => Ok(wit::Question::Url(wit::UrlRequest { message, url })),
                _ => Err("it is neither a form with its schema nor a URL".to_owned()),
            }
        }
        // What belongs to the protocol is the host's to say.
        "sampling/createMessage" => Ok(wit::Question::Sampling(parsed::<Members>(params)?.without("_meta"))),
        "roots/list" => Ok(wit::Question::Roots),
        other => Err(format!("{other:?} is nothing that a client is asked")),
    }
}

/// What the next round has of the answers.
///
/// # Errors
///
/// The client refused one of them; says so in words for the model.
pub(super) fn round(
    responses: Vec<wit::InputResponse>,
    state: Option<String>,
    is_agreement: bool,
) -> Result<Round, String> {
    let mut members = Vec::with_capacity(responses.len());
    for wit::InputResponse { key, answer, .. } in responses {
        let answer = answer_text(answer, is_agreement)?;
        members.push(format!("{}:{answer}", Value::from(key)));
    }
    let state = state.map(|state| Value::from(state).to_string());
    let has_responses = !is_agreement && !members.is_empty();
    Ok(Round { responses: has_responses.then(|| format!("{{{}}}", members.join(","))), state })
}

/// An answer as a text of JSON.
///
/// # Errors
///
/// The client refused; says so in words for the model.
pub(super) fn answer_text(answer: wit::Answer, is_agreement: bool) -> Result<String, String> {
    match answer {
        wit::Answer::Elicitation(answer) => elicited(answer, is_agreement),
        wit::Answer::Sampling(result) => Ok(result),
        wit::Answer::Roots(roots) => Ok(rooted(&roots).to_string()),
        wit::Answer::Refused(why) => Err(format!("The client did not answer what the tool asked: {why}")),
    }
}

fn elicited(answer: wit::ElicitationAnswer, is_agreement: bool) -> Result<String, String> {
    let action = match answer.action {
        wit::ElicitationAction::Accept => "accept",
        wit::ElicitationAction::Decline => "decline",
        wit::ElicitationAction::Cancel => "cancel",
    };
    if is_agreement && action != "accept" {
        return Err("The tool needs the user to visit a page first, and they did not agree to.".to_owned());
    }
    Ok(match answer.content {
        Some(content) => format!(r#"{{"action":"{action}","content":{content}}}"#),
        None => format!(r#"{{"action":"{action}"}}"#),
    })
}

fn rooted(roots: &[wit::Root]) -> Value {
    let root = |root: &wit::Root| match &root.name {
        Some(name) => json!({"uri": root.uri, "name": name}),
        None => json!({"uri": root.uri}),
    };
    json!({"roots": roots.iter().map(root).collect::<Vec<_>>()})
}
