//! MCP servers: web services that answer JSON-RPC at one path, and commands that answer it line by line, whose tools
//! are the plugin's own.
//!
//! Owns the way between the protocol that such a component speaks and the records of `wit/`. Nothing of it goes round
//! the checks of these records. Invariants: a request has an instance of its own and is answered in it; its bytes
//! follow from the operation and the answers of earlier rounds alone, so that a replay sends the same; what comes back
//! is bounded while it comes; no word of a server passes for the protocol's or the host's.

mod calls;
mod content;
mod dialect;
mod errors;
mod exchange;
mod features;
mod listener;
mod messages;
mod multi_round_trip;
mod reader;
mod recognition;
mod requests;
mod server_requests;
mod stdio;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use self::calls::{Rooms, perform};
pub(crate) use self::exchange::{Answer, EntryPoint, exchange};
pub(crate) use self::recognition::{Ask, Found, Transport, recognize};
pub(crate) use self::requests::Request;
pub(crate) use self::server_requests::add_to_linker;
pub(crate) use self::stdio::Conversation;

/// The revision of MCP that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpEra {
    /// 2025-11-25, without a session.
    Legacy,
    /// 2026-07-28.
    Modern,
}

impl McpEra {
    /// As it is written in messages.
    pub fn revision(self) -> &'static str {
        match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }
}

/// What was found out about the MCP server that a component is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServer {
    pub era: McpEra,
    /// Where it answers; `None`: over standard input and output.
    pub path: Option<String>,
    /// Name and version, as it says.
    pub server: Option<String>,
    /// What it says and no client sees.
    pub dropped: Vec<String>,
    pub(crate) features: McpFeatures,
}

/// What a server has beside its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct McpFeatures {
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
    pub(crate) completions: bool,
}
