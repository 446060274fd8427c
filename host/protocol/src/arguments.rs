//! The arguments of a call: their size, and whether they fit the tool's input schema.

use std::sync::Arc;

use super::error::RpcError;
use super::jsonrpc::strict_value;
use super::reader;
use bulkhead_calls::ToolEntry;
use bulkhead_domain::requestor::Requestor;
use bulkhead_tasks::{CallRequest, Tasks};

/// Larger arguments are read and checked on the message workers, where they delay no other connection.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Why a call does not begin.
pub(crate) enum CallRefusal {
    Error(RpcError),
    /// The arguments do not fit the tool's schema: a tool error, which a model can read and react to.
    ToolError(String),
}

impl From<RpcError> for CallRefusal {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// The arguments as they arrived, if they are an object of a size that the tool takes; absent ones are an empty object.
pub(crate) fn object<'a>(tool: &ToolEntry, arguments: Option<&'a str>) -> Result<&'a str, RpcError> {
    let arguments = arguments.unwrap_or("{}");
    if !arguments.starts_with('{') {
        return Err(RpcError::invalid_params(reader::unfit("params.arguments", "an object", arguments)));
    }
    let bytes_max = tool.limits.arguments_bytes;
    if arguments.len() as u64 > bytes_max {
        return Err(RpcError::too_large("arguments_bytes", bytes_max));
    }
    Ok(arguments)
}

/// Checks the arguments of a call against the tool's input schema; large ones off the threads that serve other
/// requests, and the time is charged to their sender's share.
pub(crate) async fn check(tasks: &Tasks, requestor: &Requestor, call: &CallRequest) -> Result<(), CallRefusal> {
    let CallRequest { tool, arguments, .. } = call;
    if arguments.as_str().len() <= INLINE_BYTES_MAX {
        return fit(tool, arguments.as_str());
    }
    let tool = Arc::clone(tool);
    let arguments = arguments.clone();
    let checked = tasks.offload(requestor, move || fit(&tool, arguments.as_str())).await;
    checked.unwrap_or_else(|_| Err(RpcError::host_failure(format_args!("arguments could not be checked")).into()))
}

fn fit(tool: &ToolEntry, arguments: &str) -> Result<(), CallRefusal> {
    let value =
        strict_value(arguments).map_err(|reason| RpcError::invalid_params(format!("params.arguments: {reason}")))?;
    tool.input.check(&value).map_err(|violations| {
        let mut text = format!("The arguments do not fit the input schema of {}:", tool.tool.name);
        for violation in violations {
            text.push('\n');
            text.push_str(&violation.to_string());
        }
        CallRefusal::ToolError(text)
    })
}
