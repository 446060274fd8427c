//! The protocol's objects as JSON for a reader without a client: `bulkhead plugin inspect` and `plugin call`.
//!
//! Owns that view and nothing that goes over the wire. Invariant: nothing is left out for the sake of an old revision.

use serde_json::{Result, Value};

use super::wire::{OutputView, PromptView, ResourceView, TemplateView, ToolMembers, ToolView};
use bulkhead_domain::Json;
use bulkhead_domain::server_features::{Prompt, Resource, ResourceTemplate};
use bulkhead_domain::tool::{Tool, ToolOutput};

/// A tool's output.
///
/// # Errors
///
/// When a text of the plugin is no JSON; what the sandbox let through is.
pub fn output_json(output: &ToolOutput) -> Result<Value> {
    let mut shown = serde_json::to_value(OutputView { output, related: None })?;
    put(&mut shown, "structuredContent", output.structured.as_ref())?;
    Ok(shown)
}

/// A tool in a list.
///
/// # Errors
///
/// As [`output_json`].
pub fn tool_json(tool: &Tool) -> Result<Value> {
    let mut shown = serde_json::to_value(ToolView { tool, members: ToolMembers::WithTasks { tasks: true } })?;
    put(&mut shown, "outputSchema", tool.output_schema.as_ref())?;
    Ok(shown)
}

/// A prompt in a list.
///
/// # Errors
///
/// As [`output_json`].
pub fn prompt_json(prompt: &Prompt) -> Result<Value> {
    serde_json::to_value(PromptView { prompt, icons: true })
}

/// A resource in a list.
///
/// # Errors
///
/// As [`output_json`].
pub fn resource_json(resource: &Resource) -> Result<Value> {
    serde_json::to_value(ResourceView { resource, icons: true })
}

/// A family of resources in a list.
///
/// # Errors
///
/// As [`output_json`].
pub fn template_json(template: &ResourceTemplate) -> Result<Value> {
    serde_json::to_value(TemplateView { template, icons: true })
}

/// The older revisions know objects only, and their views leave the rest out.
fn put(shown: &mut Value, key: &str, text: Option<&Json>) -> Result<()> {
    if let (Value::Object(map), Some(text)) = (shown, text) {
        map.insert(key.to_owned(), serde_json::from_str(text.as_str())?);
    }
    Ok(())
}
