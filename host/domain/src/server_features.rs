//! What a plugin offers beside its tools: resources, prompts, and suggestions for their arguments.

use super::tool::{Annotations, Content, Icon, Meta, Role};

/// How an entry of a list, or an argument, is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
}

/// A resource in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub uri: String,
    pub described: Described,
    pub mime_type: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
    pub annotations: Option<Annotations>,
    pub icons: Vec<Icon>,
    pub meta: Meta,
}

/// A family of resources.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceTemplate {
    /// RFC 6570.
    pub uri_template: String,
    pub described: Described,
    pub mime_type: Option<String>,
    pub annotations: Option<Annotations>,
    pub icons: Vec<Icon>,
    pub meta: Meta,
}

/// A part of a plugin's list of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourcePage {
    pub items: Vec<Resource>,
    /// Where the next part begins; the plugin's own words.
    pub next: Option<String>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptArgument {
    pub described: Described,
    pub required: bool,
}

/// A prompt in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The name has the plugin's configured prefix already in front.
    pub described: Described,
    pub arguments: Vec<PromptArgument>,
    pub icons: Vec<Icon>,
    pub meta: Meta,
}

/// One message of a prompt that was filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    pub role: Role,
    pub content: Content,
}

/// A prompt that was filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptOutput {
    pub description: Option<String>,
    pub messages: Vec<PromptMessage>,
    pub meta: Meta,
}

/// Whose argument is being completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A prompt, by the name inside its plugin.
    Prompt(String),
    /// A resource template, by its text.
    Template(String),
}

/// An argument as far as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialArgument {
    pub name: String,
    pub value: String,
    /// Arguments that are already decided.
    pub context: Vec<(String, String)>,
}

/// Suggestions, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    pub values: Vec<String>,
    pub total: Option<u32>,
    pub has_more: bool,
    pub meta: Meta,
}
