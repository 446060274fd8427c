//! The second version of the records: tasks that are no call of a tool, and what they come to. Frozen as the first one is.
//!
//! Owns what differs from [`super::v1`], and uses its parts for the rest. Must not decide anything. Invariant: the golden bytes of
//! [`super`]'s tests.

use super::repr::{List, Repr, repr_enum, repr_struct};
use super::v1::{
    ContentV1, InputV1, JsonText, LeaseV1, MetaV1, OriginV1, PhaseV1, PluginVersionV1, RequestorV1, ResourceContentsV1,
    RetentionV1, RoleV1, ToolOutputV1,
};
use bulkhead_domain::server_features::{Completion, PromptMessage, PromptOutput};
use bulkhead_domain::task::{Task, TaskOutput, Work};

repr_enum!(WorkV2 of Work { Tool(name: String), Resource, Prompt, Completion, Answered });
repr_struct!(TaskV2 of Task {
    id: [u8; 16],
    requestor: RequestorV1,
    revision: u64,
    work: WorkV2,
    plugin: PluginVersionV1,
    engine_hash: u64,
    origin: OriginV1,
    arguments_digest: [u8; 32],
    created_at: u64,
    updated_at: u64,
    retention: RetentionV1,
    poll_interval_ms: u32,
    phase: PhaseV1,
    status_message: Option<String>,
    inputs: List<InputV1>,
    steering: List<String>,
    steering_delivered: u64,
    alias: Option<String>,
    seed: [u8; 32],
    call_id: [u8; 16],
    lease: Option<LeaseV1>,
    attempt: u32,
    related: List<[u8; 16]>,
} without timeline, holder, durable);

repr_struct!(PromptMessageV2 of PromptMessage { role: RoleV1, content: ContentV1 });
repr_struct!(PromptOutputV2 of PromptOutput {
    description: Option<String>,
    messages: List<PromptMessageV2>,
    meta: MetaV1,
});
repr_struct!(CompletionV2 of Completion { values: List<String>, total: Option<u32>, has_more: bool, meta: MetaV1 });
repr_enum!(TaskOutputV2 of TaskOutput {
    Tool(output: ToolOutputV1),
    Contents(contents: List<ResourceContentsV1>),
    Prompt(output: PromptOutputV2),
    Completion(completion: CompletionV2),
    Answer(result: JsonText),
});
