//! Results of the modern era: each says what it is, and who answers.

use std::collections::HashSet;
use std::sync::Arc;

use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::server_state::State;
use super::task::{self, Face};
use crate::input_requests::InputRequestView;
use crate::jsonrpc::{RequestId, response};
use crate::wire::{Blocks, Body, ContentsBody, PromptBody, Raw, entry_if, reserved};
use crate::{Frame, ProtocolContext};
use bulkhead_calls::Returned;
use bulkhead_domain::call::InputRequest;
use bulkhead_domain::task::Task;
use bulkhead_domain::tool::{Meta, ToolOutput};

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` of everything on a listen stream.
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Plugins may be exchanged while the host runs; who wants to know at once listens.
const TTL_MS: u64 = 60_000;

/// A whole result: a body with what all results have.
pub(super) struct Complete<'a, T> {
    state: &'a State,
    body: T,
    plugin: &'a [(String, bulkhead_domain::Json)],
    subscription: Option<&'a RequestId>,
}

/// Nothing but what all results have.
impl Body for () {
    fn write<M: SerializeMap>(&self, _map: &mut M) -> Result<(), M::Error> {
        Ok(())
    }
}

impl<'a, T> Complete<'a, T> {
    pub(super) fn new(state: &'a State, body: T) -> Self {
        Self::with_meta(state, body, &[])
    }

    /// The same with a plugin's metadata.
    pub(super) fn with_meta(state: &'a State, body: T, plugin: &'a [(String, bulkhead_domain::Json)]) -> Self {
        Self { state, body, plugin, subscription: None }
    }
}

impl<'a> Complete<'a, ()> {
    /// The end of a listen stream.
    pub(super) fn of_subscription(state: &'a State, subscription: &'a RequestId) -> Self {
        Self { state, body: (), plugin: &[], subscription: Some(subscription) }
    }
}

impl<T: Body> Serialize for Complete<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("resultType", "complete")?;
        self.body.write(&mut map)?;
        map.serialize_entry(
            "_meta",
            &ResultMeta { state: self.state, plugin: self.plugin, subscription: self.subscription },
        )?;
        map.end()
    }
}

struct ResultMeta<'a> {
    state: &'a State,
    plugin: &'a [(String, bulkhead_domain::Json)],
    subscription: Option<&'a RequestId>,
}

impl Serialize for ResultMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_plugin_meta(&mut map, self.plugin)?;
        map.serialize_entry::<str, RawValue>(SERVER_INFO, &self.state.server_info)?;
        entry_if(&mut map, SUBSCRIPTION_ID, self.subscription)?;
        map.end()
    }
}

/// What a plugin attached. Keys that MCP reserves are the host's alone.
fn write_plugin_meta<M: SerializeMap>(map: &mut M, meta: &[(String, bulkhead_domain::Json)]) -> Result<(), M::Error> {
    let mut seen = HashSet::new();
    for (key, value) in meta {
        if !reserved(key) && seen.insert(key.as_str()) {
            map.serialize_entry(key, &Raw(value))?;
        }
    }
    Ok(())
}

/// A body with how long, and by whom, it may be kept.
pub(super) struct Cacheable<B> {
    pub(super) body: B,
    pub(super) scope: &'static str,
}

impl<B: Body> Body for Cacheable<B> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.body.write(map)?;
        map.serialize_entry("ttlMs", &TTL_MS)?;
        map.serialize_entry("cacheScope", self.scope)
    }
}

/// What a request to a plugin comes to.
pub(super) enum Ending {
    Output(Returned),
    /// A task, with which the call goes on.
    Task(Arc<Task>),
    /// Questions that have to be answered first, under their issued keys, and the state to come back with, where one is
    /// needed.
    InputRequired {
        input_requests: Vec<(String, InputRequest)>,
        state: Option<String>,
    },
}

impl Ending {
    /// The response that says it.
    pub(super) fn frame(&self, id: &RequestId, state: &State) -> Frame {
        response(id, &EndingView { state, ending: self }).of_tool(self.is_tool_error()).into()
    }

    /// Whether a tool says that it failed.
    pub(super) fn is_tool_error(&self) -> bool {
        matches!(self, Self::Output(Returned::Tool(output)) if output.is_error)
    }
}

/// The answer of a tool of the host.
pub(super) fn answered(shared: &ProtocolContext, id: &RequestId, output: ToolOutput) -> Frame {
    let ending = Ending::Output(Returned::Tool(output));
    ending.frame(id, &shared.modern)
}

/// An ending as a result.
pub(super) struct EndingView<'a> {
    pub(super) state: &'a State,
    pub(super) ending: &'a Ending,
}

impl Serialize for EndingView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut plugin: &Meta = &Vec::new();
        match self.ending {
            Ending::Output(returned) => plugin = write_returned(&mut map, returned)?.unwrap_or(plugin),
            Ending::Task(task) => {
                map.serialize_entry("resultType", "task")?;
                task::write_task(&mut map, task, Face::plain())?;
            }
            Ending::InputRequired { input_requests, state } => {
                map.serialize_entry("resultType", "input_required")?;
                map.serialize_entry("inputRequests", &InputRequests::of(input_requests))?;
                entry_if(&mut map, "requestState", state.as_ref())?;
            }
        }
        map.serialize_entry("_meta", &ResultMeta { state: self.state, plugin, subscription: None })?;
        map.end()
    }
}

/// Writes the result of a plugin; returns its metadata.
fn write_returned<'a, M: SerializeMap>(map: &mut M, returned: &'a Returned) -> Result<Option<&'a Meta>, M::Error> {
    match returned {
        Returned::Tool(output) => {
            write_output(map, output)?;
            Ok(Some(&output.meta))
        }
        Returned::Prompt(output) => {
            map.serialize_entry("resultType", "complete")?;
            PromptBody(output).write(map)?;
            Ok(Some(&output.meta))
        }
        Returned::Contents(contents) => {
            map.serialize_entry("resultType", "complete")?;
            ContentsBody(contents).write(map)?;
            // They may be one requestor's alone, and other ones the next time.
            map.serialize_entry("ttlMs", &0)?;
            map.serialize_entry("cacheScope", "private")?;
            Ok(None)
        }
        Returned::Resources(_) | Returned::Completion(_) => Err(M::Error::custom("a list is no ending of a call")),
    }
}

fn write_output<M: SerializeMap>(map: &mut M, output: &ToolOutput) -> Result<(), M::Error> {
    map.serialize_entry("resultType", "complete")?;
    map.serialize_entry("content", &Blocks(output))?;
    entry_if(map, "structuredContent", output.structured.as_ref().map(Raw))?;
    entry_if(map, "isError", output.is_error.then_some(true))
}

/// An output inside the task that it belongs to.
pub(super) struct Inlined<'a>(pub(super) &'a ToolOutput);

impl Serialize for Inlined<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct PluginMeta<'a>(&'a Meta);
        impl Serialize for PluginMeta<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                write_plugin_meta(&mut map, self.0)?;
                map.end()
            }
        }
        let mut map = serializer.serialize_map(None)?;
        write_output(&mut map, self.0)?;
        let attached = self.0.meta.iter().any(|(key, _)| !reserved(key));
        entry_if(&mut map, "_meta", attached.then_some(PluginMeta(&self.0.meta)))?;
        map.end()
    }
}

/// Questions by their issued keys.
pub(super) struct InputRequests<'a>(Vec<(&'a str, &'a InputRequest)>);

impl<'a> InputRequests<'a> {
    fn of(input_requests: &'a [(String, InputRequest)]) -> Self {
        Self(input_requests.iter().map(|(key, request)| (key.as_str(), request)).collect())
    }

    /// The unanswered input requests of a task.
    pub(super) fn outstanding(task: &'a Task) -> Self {
        Self(task.outstanding().map(|input| (input.issued_key.as_str(), &input.request)).collect())
    }
}

impl Serialize for InputRequests<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, request) in &self.0 {
            let view = InputRequestView::new(request).ok_or_else(|| S::Error::custom("a question is no JSON"))?;
            map.serialize_entry(key, &view)?;
        }
        map.end()
    }
}
