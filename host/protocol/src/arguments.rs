//! The arguments of a call: their size, and whether they fit the tool's input schema.

use std::sync::Arc;

use super::error::RpcError;
use super::jsonrpc::strict_value;
use super::reader;
use bulkhead_calls::ToolEntry;
use bulkhead_domain::Json;
use bulkhead_domain::requestor::Requestor;
use bulkhead_tasks::Tasks;

/// Larger arguments are read and checked on the message workers, where they delay no other connection.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Why arguments cannot be used.
pub(crate) enum ArgumentError {
    /// They are no usable JSON.
    Malformed(RpcError),
    /// They do not fit the tool's schema: a tool error, which a model can read and react to.
    Schema(String),
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

/// Checks large arguments off the threads that serve other requests; the time is charged to their sender's share.
pub(crate) async fn fit_offloaded(
    tasks: &Tasks,
    requestor: &Requestor,
    tool: Arc<ToolEntry>,
    arguments: Json,
) -> Result<(), ArgumentError> {
    let checked = tasks.offload(requestor, move || fit(&tool, arguments.as_str())).await;
    checked.unwrap_or_else(|_| {
        Err(ArgumentError::Malformed(RpcError::host_failure(format_args!("arguments could not be checked"))))
    })
}

/// Checks arguments against the tool's input schema.
pub(crate) fn fit(tool: &ToolEntry, arguments: &str) -> Result<(), ArgumentError> {
    let value = strict_value(arguments)
        .map_err(|reason| ArgumentError::Malformed(RpcError::invalid_params(format!("params.arguments: {reason}"))))?;
    tool.input.check(&value).map_err(|violations| {
        let mut text = format!("The arguments do not fit the input schema of {}:", tool.tool.name);
        for violation in violations {
            text.push('\n');
            text.push_str(&violation.to_string());
        }
        ArgumentError::Schema(text)
    })
}
