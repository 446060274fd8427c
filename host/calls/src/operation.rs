//! The operations of a plugin, and what each returns.

use std::sync::Arc;

use bulkhead_domain::Json;
use bulkhead_domain::server_features::{Completion, PartialArgument, PromptOutput, Reference, ResourcePage};
use bulkhead_domain::task::TaskOutput;
use bulkhead_domain::tool::{ResourceContents, ToolOutput};

/// Bytes of a resource's URI, that of a request or of a report. Stops megabytes in what is kept of it.
pub const URI_BYTES_MAX: usize = 2048;

/// One request to a plugin, in the plugin's own names: without the configured prefix.
#[derive(Clone, Debug)]
pub enum Operation {
    CallTool {
        /// Shared with the catalog, so that neither a call nor its journal copies it.
        tool: Arc<str>,
        arguments: Json,
    },
    ListResources {
        /// Where the page begins; none: at the beginning.
        cursor: Option<String>,
    },
    ReadResource {
        uri: String,
    },
    GetPrompt {
        prompt: String,
        arguments: Vec<(String, String)>,
    },
    Complete {
        reference: Reference,
        argument: PartialArgument,
    },
}

impl Operation {
    /// Its purpose, for people.
    pub fn label(&self) -> &str {
        match self {
            Self::CallTool { tool, .. } => tool,
            Self::ListResources { .. } => "(resources)",
            Self::ReadResource { .. } => "(resource)",
            Self::GetPrompt { .. } => "(prompt)",
            Self::Complete { .. } => "(completion)",
        }
    }

    /// Bytes of everything that the client chose, and how many may pass at most where less than the call's arguments
    /// may.
    pub fn size(&self) -> (u64, u64) {
        let pairs = |pairs: &[(String, String)]| pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let (bytes, max): (usize, usize) = match self {
            Self::CallTool { arguments, .. } => (arguments.as_str().len(), usize::MAX),
            Self::ListResources { cursor } => (cursor.as_ref().map_or(0, String::len), usize::MAX),
            Self::ReadResource { uri } => (uri.len(), URI_BYTES_MAX),
            Self::GetPrompt { arguments, .. } => (pairs(arguments), usize::MAX),
            Self::Complete { reference, argument } => {
                let (Reference::Prompt(name) | Reference::Template(name)) = reference;
                let context: usize = pairs(&argument.context);
                (name.len() + argument.name.len() + argument.value.len() + context, usize::MAX)
            }
        };
        (bytes as u64, max as u64)
    }
}

/// What an operation returns.
#[derive(Clone, Debug)]
pub enum Returned {
    Tool(ToolOutput),
    Resources(ResourcePage),
    Contents(Vec<ResourceContents>),
    Prompt(PromptOutput),
    Completion(Completion),
}

/// Each kind of answer is a type of its own.
macro_rules! kinds {
    ($($kind:ident($type:ty)),*) => {$(
        impl From<$type> for Returned {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        }

        impl TryFrom<Returned> for $type {
            /// What it was instead.
            type Error = Returned;

            fn try_from(returned: Returned) -> Result<Self, Returned> {
                match returned {
                    Returned::$kind(value) => Ok(value),
                    other => Err(other),
                }
            }
        }
    )*};
}

kinds!(
    Tool(ToolOutput),
    Resources(ResourcePage),
    Contents(Vec<ResourceContents>),
    Prompt(PromptOutput),
    Completion(Completion)
);

/// A page of a list is nothing that a task comes to.
impl TryFrom<Returned> for TaskOutput {
    type Error = Returned;

    fn try_from(returned: Returned) -> Result<Self, Returned> {
        match returned {
            Returned::Tool(output) => Ok(Self::Tool(output)),
            Returned::Contents(contents) => Ok(Self::Contents(contents)),
            Returned::Prompt(output) => Ok(Self::Prompt(output)),
            Returned::Completion(completion) => Ok(Self::Completion(completion)),
            Returned::Resources(_) => Err(returned),
        }
    }
}
