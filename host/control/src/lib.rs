//! What operators do to a host, and the socket over which they do it while the host runs.
//!
//! Owns the commands, the socket `DATA/control.sock` and its framing. Must not be reachable by anybody but the user
//! that the host runs as. Invariant: a command does the same whether it arrives over the socket or is executed by the
//! command line itself, because both go through one [`Operator`]; what answers it is one type for both sides
//! ([`Request::Answer`]).

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod activity;
pub mod admin;
mod audit;
pub mod client;
pub mod commands;
mod durability;
pub mod erase;
pub mod health;
pub mod history;
pub mod listener;
pub mod operator;
pub mod plugins;
mod read_notes;
pub mod remote;
pub mod scrape;
mod secrets;
pub mod server;
mod socket;
pub mod task_control;
#[cfg(test)]
mod tests;
mod usage;
pub mod views;
pub mod wire;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

pub use commands::{Command, Request};
pub use read_notes::ReadNotes;
pub use secrets::SecretText;

/// The socket's name in the data directory.
pub const SOCKET_NAME: &str = "control.sock";

/// Where a data directory has its socket.
pub fn socket_path(data: &Path) -> PathBuf {
    data.join(SOCKET_NAME)
}

/// Bytes of an operator's request, which is a few names.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Replies are bounded by the page sizes of the commands.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Why a command was not done. Operators may read all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", content = "message", rename_all = "snake_case")]
pub enum ControlError {
    /// What it names does not exist, or is over.
    #[error("{0}")]
    NotFound(String),
    /// It makes no sense as it stands.
    #[error("{0}")]
    Invalid(String),
    /// The host could not do it.
    #[error("{0}")]
    Failed(String),
    /// The host does not serve yet: how far its start is.
    #[error("the host is starting, try again soon: {0}")]
    Starting(String),
    /// The connection broke.
    #[error("the control connection broke: {0}")]
    Connection(String),
}

/// The JSON of a view, on its way from what did a command to who ordered it.
#[derive(Clone, Debug)]
pub struct Answer {
    json: Box<RawValue>,
    /// Whether it says that nothing was done. Known where the view was, for the audit log.
    is_refusal: bool,
}

impl Answer {
    fn of(view: &impl Serialize) -> Result<Self, ControlError> {
        let json = to_raw_value(view).map_err(|error| ControlError::Failed(error.to_string()))?;
        Ok(Self { json, is_refusal: false })
    }

    /// Whether it shows the same as another one.
    pub fn is_same(&self, other: &Self) -> bool {
        self.json.get() == other.json.get()
    }

    /// The view that answers this kind of request.
    ///
    /// # Errors
    ///
    /// A host of another version has made it.
    pub fn read<R: Request>(&self) -> Result<R::Answer, ControlError> {
        serde_json::from_str(self.json.get()).map_err(|error| wire::misread(&error))
    }
}

/// Who orders what the command line does itself, for the audit log.
pub const WITHOUT_HOST: &str = "the command line, without a host";

/// Carries out commands: in a running host, or in the command line when no host runs.
#[async_trait]
pub trait Operator: Send + Sync + 'static {
    /// Does it in the name of who ordered it, which the audit log keeps.
    async fn execute_for(&self, who: &str, command: Command) -> Result<Answer, ControlError>;

    /// Does what only reads, for viewers who were noted when they began to look: the audit log gets no line for each
    /// look.
    ///
    /// # Errors
    ///
    /// Also what changes something, and where no host runs.
    async fn read_unnoted(&self, _: Command) -> Result<Answer, ControlError> {
        Err(ControlError::Invalid("there is nothing here to look at again and again".to_owned()))
    }

    /// Does it for the command line and returns the view of what there is to show.
    async fn execute<R: Request>(&self, request: R) -> Result<R::Answer, ControlError>
    where
        Self: Sized,
    {
        self.execute_for(WITHOUT_HOST, request.into()).await?.read::<R>()
    }
}
