//! Commands and web services: components that a platform starts or sends requests to, and that this host offers as
//! tools.
//!
//! Owns the two tools that stand for `wasi:cli/run` and `wasi:http/incoming-handler`, and what passes in and out of
//! them. The sandbox around a call is the same as for every plugin. Invariant: a call has an instance of its own, so
//! that no program meets what another call left; what comes out is kept within the call's limits while it is written,
//! not after.

mod answers;
mod command;
pub(super) mod mcp;
mod service;

use serde_json::Value;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Instance, InstancePre};
use wasmtime_wasi::p2::bindings::CommandIndices;
use wasmtime_wasi_http::p2::bindings::ProxyIndices;

pub(super) use self::command::Program;
use super::bindings::bulkhead::plugin::types as wit;
use super::bindings::exports::bulkhead::plugin::tools;
use super::call::Call;
use super::last_words::LastWords;
use super::trap_causes::HostFailure;
use bulkhead_calls::Operation;
use bulkhead_domain::call::CallError;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::text::escaped;
use mcp::EntryPoint;

/// Exported by what has a `main`, in each version that the host knows.
const RUN: &str = "wasi:cli/run@0.2.";
/// Exported by what answers HTTP requests, likewise.
const HANDLER: &str = "wasi:http/incoming-handler@0.2.";
/// The tool of a web service. That of a command is called like its plugin.
pub const REQUEST: &str = "request";

/// What a component exports of the two.
pub(super) struct Programs {
    command: Option<CommandIndices>,
    service: Option<ProxyIndices>,
}

impl Programs {
    /// `None`: it exports neither.
    ///
    /// # Errors
    ///
    /// One is there, and not as WASI says.
    pub(super) fn find(instance: &InstancePre<Call>) -> Result<Option<Self>, String> {
        let command = exported(instance, RUN, CommandIndices::new)?;
        let service = exported(instance, HANDLER, ProxyIndices::new)?;
        Ok((command.is_some() || service.is_some()).then_some(Self { command, service }))
    }

    /// By what it answers as an MCP server: HTTP requests, or lines of standard input.
    pub(super) fn entry_point(&self, is_over_http: bool) -> Option<EntryPoint<'_>> {
        match is_over_http {
            true => self.service.as_ref().map(EntryPoint::Service),
            false => self.command.as_ref().map(EntryPoint::Command),
        }
    }

    pub(super) fn has_service(&self) -> bool {
        self.service.is_some()
    }

    pub(super) fn has_command(&self) -> bool {
        self.command.is_some()
    }

    /// The tools, of a plugin of this name. How long they run is unknown, so they may become tasks; the operator may
    /// narrow that.
    ///
    /// # Errors
    ///
    /// An exported function has other types than WASI says.
    pub(super) fn tools(
        &self,
        plugin: &str,
        store: &mut wasmtime::Store<Call>,
        instance: &Instance,
    ) -> wasmtime::Result<Vec<tools::Tool>> {
        let mut found = Vec::new();
        if let Some(command) = &self.command {
            command.load(&mut *store, instance)?;
            found.push(tool(plugin, command::description(plugin), &command::input_schema(), None));
        }
        if let Some(service) = &self.service {
            service.load(&mut *store, instance)?;
            let output_schema = service::output_schema().to_string();
            found.push(tool(REQUEST, service::description(plugin), &service::input_schema(), Some(output_schema)));
        }
        Ok(found)
    }

    /// What a call of the command has around it, made of its arguments; `None`: the call is of something else.
    ///
    /// # Errors
    ///
    /// The arguments do not fit.
    pub(super) fn program(
        &self,
        operation: &Operation,
        plugin: &str,
        limits: &CallLimits,
        last_words: &LastWords,
    ) -> Result<Option<Program>, CallError> {
        let Operation::CallTool { tool, arguments } = operation else { return Ok(None) };
        if self.command.is_none() || self.service.is_some() && **tool == *REQUEST {
            return Ok(None);
        }
        let program = Program::new(plugin, arguments.as_str(), limits.result_bytes, last_words.clone());
        program.map(Some).map_err(CallError::InvalidParams)
    }

    /// Runs the program, or has the service answer a request.
    pub(super) async fn call(
        &self,
        store: &mut wasmtime::Store<Call>,
        instance: &Instance,
        tool: &str,
        arguments: &str,
    ) -> wasmtime::Result<Result<tools::ToolOutput, wit::CallError>> {
        match (&self.command, &self.service) {
            (_, Some(service)) if tool == REQUEST => {
                service::request(service, store, instance, arguments).await.map(Ok)
            }
            (Some(command), _) => run(command, store, instance).await.map(Ok),
            _ => Ok(Err(wit::CallError::NotFound("this version of the plugin has no such tool".to_owned()))),
        }
    }
}

/// Runs `main` to its end, or until it ends itself.
async fn run(
    command: &CommandIndices,
    store: &mut wasmtime::Store<Call>,
    instance: &Instance,
) -> wasmtime::Result<tools::ToolOutput> {
    let command = command.load(&mut *store, instance)?;
    let returned = command.wasi_cli_run().call_run(&mut *store).await;
    let program = store.data().program.as_ref();
    let program = program.ok_or_else(|| HostFailure("a program was run without its streams".to_owned()))?;
    program.ended(returned)
}

/// Looks for an interface by the beginning of its name.
fn exported<T>(
    instance: &InstancePre<Call>,
    name: &str,
    find: impl FnOnce(&InstancePre<Call>) -> wasmtime::Result<T>,
) -> Result<Option<T>, String> {
    let component = instance.component();
    let ty = component.component_type();
    let mut exports = ty.exports(component.engine());
    let is_this = |item: &ComponentItem| matches!(item, ComponentItem::ComponentInstance(_));
    let Some((export, _)) = exports.find(|(export, item)| export.starts_with(name) && is_this(&item.ty)) else {
        return Ok(None);
    };
    find(instance).map(Some).map_err(|error| {
        format!("its export {} is not that of WASI: {}", escaped(export), escaped(&format!("{error:#}")))
    })
}

fn tool(name: &str, description: String, input_schema: &Value, output_schema: Option<String>) -> tools::Tool {
    tools::Tool {
        name: name.to_owned(),
        title: None,
        description,
        input_schema: input_schema.to_string(),
        output_schema,
        annotations: None,
        task_support: tools::TaskSupport::Optional,
        icons: Vec::new(),
        meta: Vec::new(),
    }
}
