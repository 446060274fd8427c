//! Resources, prompts and completions of a server as the records of `wit/`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::{Annotations, Contents, Icon, Role, annotated, block, icons, parsed, resource, role};
use super::messages::{Members, meta};
use crate::bindings::bulkhead::plugin::types as wit;
use crate::bindings::exports::bulkhead::plugin::{completions, prompts, resources};
use bulkhead_domain::Json;

/// A page of a list.
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList {
    resources: Vec<Resource>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TemplateList {
    resource_templates: Vec<Template>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptList {
    prompts: Vec<Prompt>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    uri: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
    annotations: Option<Annotations>,
    #[serde(default)]
    icons: Vec<Icon>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Template {
    uri_template: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    annotations: Option<Annotations>,
    #[serde(default)]
    icons: Vec<Icon>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(default)]
    arguments: Vec<Argument>,
    #[serde(default)]
    icons: Vec<Icon>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(default)]
    required: bool,
}

#[derive(Deserialize)]
struct ReadResult {
    contents: Vec<Contents>,
}

#[derive(Deserialize)]
struct PromptResult {
    description: Option<String>,
    messages: Vec<PromptMessage>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
struct PromptMessage {
    role: Role,
    content: Box<RawValue>,
}

#[derive(Deserialize)]
struct CompleteResult {
    completion: Completion,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Completion {
    values: Vec<String>,
    total: Option<u32>,
    #[serde(default)]
    has_more: bool,
}

/// The result of `resources/list`.
pub(super) fn resource_page(result: &Json) -> Result<Page<resources::ResourceInfo>, String> {
    let ResourceList { resources, next_cursor: next } = parsed(result.as_str())?;
    let item = |listed: Resource| resources::ResourceInfo {
        uri: listed.uri,
        name: listed.name,
        title: listed.title,
        description: listed.description,
        mime_type: listed.mime_type,
        size: listed.size,
        annotations: listed.annotations.map(annotated),
        icons: icons(listed.icons),
        meta: meta(listed.meta),
    };
    Ok(Page { items: resources.into_iter().map(item).collect(), next })
}

/// The result of `resources/templates/list`.
pub(super) fn template_page(result: &Json) -> Result<Page<resources::ResourceTemplate>, String> {
    let TemplateList { resource_templates, next_cursor: next } = parsed(result.as_str())?;
    let item = |listed: Template| resources::ResourceTemplate {
        uri_template: listed.uri_template,
        name: listed.name,
        title: listed.title,
        description: listed.description,
        mime_type: listed.mime_type,
        annotations: listed.annotations.map(annotated),
        icons: icons(listed.icons),
        meta: meta(listed.meta),
    };
    Ok(Page { items: resource_templates.into_iter().map(item).collect(), next })
}

/// The result of `prompts/list`.
pub(super) fn prompt_page(result: &Json) -> Result<Page<prompts::Prompt>, String> {
    let PromptList { prompts, next_cursor: next } = parsed(result.as_str())?;
    let argument = |Argument { name, title, description, required }| prompts::PromptArgument {
        name,
        title,
        description,
        required,
    };
    let item = |listed: Prompt| prompts::Prompt {
        name: listed.name,
        title: listed.title,
        description: listed.description,
        arguments: listed.arguments.into_iter().map(argument).collect(),
        icons: icons(listed.icons),
        meta: meta(listed.meta),
    };
    Ok(Page { items: prompts.into_iter().map(item).collect(), next })
}

/// The result of `resources/read`.
pub(super) fn contents(result: &Json) -> Result<Vec<wit::ResourceContents>, String> {
    let ReadResult { contents } = parsed(result.as_str())?;
    contents.into_iter().map(resource).collect()
}

/// The result of `prompts/get`.
pub(super) fn prompt_output(result: &Json) -> Result<prompts::PromptOutput, String> {
    let PromptResult { description, messages, meta: members } = parsed(result.as_str())?;
    let message = |(at, message): (usize, PromptMessage)| {
        let content = block(message.content.get()).map_err(|wrong| format!("message {at}: {wrong}"))?;
        Ok(prompts::PromptMessage { role: role(message.role), content })
    };
    let messages = messages.into_iter().enumerate().map(message).collect::<Result<_, String>>()?;
    Ok(prompts::PromptOutput { description, messages, meta: meta(members) })
}

/// The result of `completion/complete`.
pub(super) fn completion(result: &Json) -> Result<completions::Completion, String> {
    let CompleteResult { completion, meta: members } = parsed(result.as_str())?;
    let Completion { values, total, has_more } = completion;
    Ok(completions::Completion { values, total, has_more, meta: meta(members) })
}
