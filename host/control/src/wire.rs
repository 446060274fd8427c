//! How a command and its answer go from one program to another, over the control socket and over the administrators'
//! listener.
//!
//! Owns the versions: who asks says which program it is, and a host refuses what another protocol means, and who does
//! not say it, before it does anything. Invariant: a refusal over versions has a form that every version reads, and
//! names both.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Answer, Command, ControlError};

/// Grows whenever the JSON of a command or of an answer changes so that the other side would misread it.
pub(super) const PROTOCOL: u32 = 1;
/// The member of a request that says who sends it.
const CLIENT: &str = "client";

/// One side of a connection.
#[derive(Serialize, Deserialize)]
struct Program {
    version: Cow<'static, str>,
    protocol: u32,
}

impl Program {
    const THIS: Self = Self { version: Cow::Borrowed(env!("CARGO_PKG_VERSION")), protocol: PROTOCOL };
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bulkhead {} (protocol {})", self.version, self.protocol)
    }
}

#[derive(Serialize)]
struct Sent<'a> {
    #[serde(flatten)]
    command: &'a Command,
    client: Program,
}

/// A command as this program sends it.
///
/// # Errors
///
/// It cannot be written as JSON.
pub fn write_request(command: &Command) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Sent { command, client: Program::THIS })
}

/// A command as some program sent it.
///
/// # Errors
///
/// It is none of this version, or was sent by a program that means something else by it.
pub(super) fn read_request(request: &[u8]) -> Result<Command, ControlError> {
    let wrong = |text: String| ControlError::Invalid(format!("not a command of this version: {text}"));
    let mut members: Map<String, Value> = serde_json::from_slice(request).map_err(|error| wrong(error.to_string()))?;
    let program = members.remove(CLIENT).and_then(|client| serde_json::from_value::<Program>(client).ok());
    let client = program.as_ref().map_or("a program that does not say its version".to_owned(), Program::to_string);
    if program.is_none_or(|program| program.protocol != PROTOCOL) {
        return Err(ControlError::Invalid(format!(
            "the host is {}, and the command comes from {client}: use the command line of the host's version",
            Program::THIS
        )));
    }
    Command::deserialize(Value::Object(members))
        .map_err(|error| wrong(format!("{error} (the host is {}, and the command comes from {client})", Program::THIS)))
}

/// A line in answer to a command.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Ok(Box<RawValue>),
    Error(ControlError),
}

/// What came of a command, as a host sends it.
pub(super) fn write_reply(done: Result<Answer, ControlError>) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&done.map_or_else(Reply::Error, |answer| Reply::Ok(answer.json)))
}

/// What a host says that came of a command; `None`: this is no reply of a host.
pub fn read_reply(reply: &[u8]) -> Option<Result<Answer, ControlError>> {
    match serde_json::from_slice(reply).ok()? {
        Reply::Ok(json) => Some(Ok(Answer { json, is_refusal: false })),
        Reply::Error(error) => Some(Err(error)),
    }
}

/// Why an answer cannot be read. A host of another protocol would have refused the command.
pub(super) fn misread(error: &serde_json::Error) -> ControlError {
    ControlError::Connection(format!(
        "the answer is none that {} knows: use the command line of the host's version ({error})",
        Program::THIS
    ))
}
