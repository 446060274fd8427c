//! What a plugin offers, and what a call of it returns.

use super::Json;

/// Whether a call may become a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskSupport {
    /// Always answered plainly.
    Forbidden,
    /// Either.
    Optional,
    /// Only as a task.
    Required,
}

/// Hints for clients. `idempotent` is also the condition for running a call again after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ToolAnnotations {
    pub title: Option<String>,
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// An image for a client to show.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Icon {
    pub src: String,
    pub mime_type: Option<String>,
    pub sizes: Vec<String>,
    pub theme: Option<String>,
}

/// (key, JSON value) pairs that a plugin attached.
pub type Meta = Vec<(String, Json)>;

/// One tool as a plugin declared it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tool {
    /// With the plugin's configured prefix already in front.
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Json,
    pub output_schema: Option<Json>,
    pub annotations: Option<ToolAnnotations>,
    /// After the operator's narrowing.
    pub task_support: TaskSupport,
    pub icons: Vec<Icon>,
    pub meta: Meta,
}

/// Who a piece of content is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
}

/// Hints about a piece of content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    pub audience: Vec<Role>,
    /// 0 to 1.
    pub priority: Option<f64>,
    /// ISO 8601.
    pub last_modified: Option<String>,
}

/// What a resource holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceBody {
    Text(String),
    Blob(Vec<u8>),
}

/// The contents of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceContents {
    pub uri: String,
    pub mime_type: Option<String>,
    pub body: ResourceBody,
    pub meta: Meta,
}

/// One content block.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub kind: ContentKind,
    pub annotations: Option<Annotations>,
    pub meta: Meta,
}

/// What a content block is.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentKind {
    Text(String),
    Image { data: Vec<u8>, mime_type: String },
    Audio { data: Vec<u8>, mime_type: String },
    ResourceLink(ResourceLink),
    Resource(ResourceContents),
}

/// A pointer to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceLink {
    pub uri: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
}

/// What a call returns when the tool ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    pub content: Vec<Content>,
    pub structured: Option<Json>,
    /// The tool ran and did not succeed.
    pub is_error: bool,
    pub meta: Meta,
}

impl ToolOutput {
    /// A tool's own failure with one line of text.
    pub fn failure(text: impl Into<String>) -> Self {
        let content = Content { kind: ContentKind::Text(text.into()), annotations: None, meta: Vec::new() };
        Self { content: vec![content], structured: None, is_error: true, meta: Vec::new() }
    }
}
