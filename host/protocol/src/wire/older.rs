//! Output for revision 2025-03-26, which has neither structured content nor links to resources.
//!
//! Invariant: nothing is lost on the way: what the revision has no place for is there as text.

use std::borrow::Cow;

use crate::version::Version;
use bulkhead_domain::server_features::PromptOutput;
use bulkhead_domain::task::TaskOutput;
use bulkhead_domain::tool::{Content, ContentKind, ResourceLink, ToolOutput};

/// A tool's output as the revision has it.
pub(crate) fn tool_output(output: &ToolOutput, version: Version) -> Cow<'_, ToolOutput> {
    let is_fine = output.structured.is_none() && !output.content.iter().any(is_link);
    if version.has_structured_output() || is_fine {
        return Cow::Borrowed(output);
    }
    let mut older = output.clone();
    older.content.iter_mut().for_each(unlink);
    if let Some(structured) = older.structured.take() {
        let has_text = output.content.iter().any(|block| matches!(block.kind, ContentKind::Text(_)));
        if !has_text {
            let kind = ContentKind::Text(structured.as_str().to_owned());
            older.content.push(Content { kind, annotations: None, meta: Vec::new() });
        }
    }
    Cow::Owned(older)
}

/// The messages of a prompt as the revision has them.
pub(crate) fn prompt_output(output: &PromptOutput, version: Version) -> Cow<'_, PromptOutput> {
    if version.has_structured_output() || !output.messages.iter().any(|message| is_link(&message.content)) {
        return Cow::Borrowed(output);
    }
    let mut older = output.clone();
    older.messages.iter_mut().for_each(|message| unlink(&mut message.content));
    Cow::Owned(older)
}

/// What a task came to, likewise.
pub(crate) fn task_output(output: &TaskOutput, version: Version) -> Cow<'_, TaskOutput> {
    let older = match output {
        TaskOutput::Tool(tool) => match tool_output(tool, version) {
            Cow::Owned(older) => Some(TaskOutput::Tool(older)),
            Cow::Borrowed(_) => None,
        },
        TaskOutput::Prompt(prompt) => match prompt_output(prompt, version) {
            Cow::Owned(older) => Some(TaskOutput::Prompt(older)),
            Cow::Borrowed(_) => None,
        },
        TaskOutput::Contents(_) | TaskOutput::Completion(_) | TaskOutput::Answer(_) => None,
    };
    older.map_or(Cow::Borrowed(output), Cow::Owned)
}

fn is_link(block: &Content) -> bool {
    matches!(block.kind, ContentKind::ResourceLink(_))
}

/// Puts the name and the address in the place of a link.
fn unlink(block: &mut Content) {
    if let ContentKind::ResourceLink(ResourceLink { name, uri, .. }) = &block.kind {
        block.kind = ContentKind::Text(format!("{name}: {uri}"));
    }
}
