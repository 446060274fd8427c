//! How the output of a task lies on disk, open and sealed.
//!
//! Owns the order of its members. Must not decide anything. Invariant: the golden bytes of [`super`]'s tests.

use serde::{Deserialize, Serialize};

use super::Error;
use super::repr::{Blob, JsonText, List, Meta, Repr, repr_enum, repr_struct};
use bulkhead_domain::server_features::{Completion, PromptMessage, PromptOutput};
use bulkhead_domain::task::TaskOutput;
use bulkhead_domain::tool::{
    Annotations, Content, ContentKind, ResourceBody, ResourceContents, ResourceLink, Role, ToolOutput,
};

/// An output, open or sealed.
#[derive(Serialize, Deserialize)]
pub(super) enum StoredOutput {
    Open(TaskOutputRepr),
    /// The bytes of an open one, with their version.
    Sealed(Blob),
}

repr_enum!(RoleRepr of Role { User, Assistant });
repr_struct!(AnnotationsRepr of Annotations {
    audience: List<RoleRepr>,
    priority: Option<f64>,
    last_modified: Option<String>,
});
repr_enum!(ResourceBodyRepr of ResourceBody { Text(text: String), Blob(bytes: Blob) });
repr_struct!(ResourceContentsRepr of ResourceContents {
    uri: String,
    mime_type: Option<String>,
    body: ResourceBodyRepr,
    meta: Meta,
});
repr_struct!(ResourceLinkRepr of ResourceLink {
    uri: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
});
repr_enum!(ContentKindRepr of ContentKind {
    Text(text: String),
    Image { data: Blob, mime_type: String },
    Audio { data: Blob, mime_type: String },
    ResourceLink(link: ResourceLinkRepr),
    Resource(contents: ResourceContentsRepr),
});
repr_struct!(ContentRepr of Content { kind: ContentKindRepr, annotations: Option<AnnotationsRepr>, meta: Meta });
repr_struct!(ToolOutputRepr of ToolOutput {
    content: List<ContentRepr>,
    structured: Option<JsonText>,
    is_error: bool,
    meta: Meta,
});
repr_struct!(PromptMessageRepr of PromptMessage { role: RoleRepr, content: ContentRepr });
repr_struct!(PromptOutputRepr of PromptOutput {
    description: Option<String>,
    messages: List<PromptMessageRepr>,
    meta: Meta,
});
repr_struct!(CompletionRepr of Completion { values: List<String>, total: Option<u32>, has_more: bool, meta: Meta });
repr_enum!(TaskOutputRepr of TaskOutput {
    Tool(output: ToolOutputRepr),
    Contents(contents: List<ResourceContentsRepr>),
    Prompt(output: PromptOutputRepr),
    Completion(completion: CompletionRepr),
    Answer(result: JsonText),
});
