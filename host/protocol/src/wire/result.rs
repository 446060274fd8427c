//! What a task came to, as the result of the request that it was made of.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{Error as _, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::server_features::{Bare, CompletionBody, ContentsBody, PromptBody, WithMeta};
use super::{MetaView, OutputView, RelatedTask, single_line};
use bulkhead_domain::Json;
use bulkhead_domain::task::TaskOutput;

/// An output as the result that its method has, with the task named in the metadata.
pub(crate) struct TaskOutputView<'a> {
    pub(crate) output: &'a TaskOutput,
    pub(crate) related: &'a RelatedTask,
}

impl Serialize for TaskOutputView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let related = Some(self.related);
        match self.output {
            TaskOutput::Tool(output) => OutputView { output, related }.serialize(serializer),
            TaskOutput::Contents(contents) => {
                Bare(WithMeta { body: ContentsBody(contents), meta: &[], related }).serialize(serializer)
            }
            TaskOutput::Prompt(output) => {
                Bare(WithMeta { body: PromptBody(output), meta: &output.meta, related }).serialize(serializer)
            }
            TaskOutput::Completion(completion) => {
                let body = CompletionBody(completion);
                Bare(WithMeta { body, meta: &completion.meta, related }).serialize(serializer)
            }
            TaskOutput::Answer(answer) => {
                answered(answer, self.related).map_err(S::Error::custom)?.serialize(serializer)
            }
        }
    }
}

/// A result of the host's own; those have no metadata of theirs.
fn answered(answer: &Json, related: &RelatedTask) -> serde_json::Result<BTreeMap<String, Box<RawValue>>> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&single_line(answer.as_str()))?;
    members.insert("_meta".to_owned(), to_raw_value(&MetaView { meta: &[], related: Some(related) })?);
    Ok(members)
}
