//! Suggestions for arguments of prompts and variables of resource templates.

use std::collections::BTreeMap;

use crate::bindings::bulkhead::plugin::types::CallError;
use crate::bindings::completions::{Completion, PartialArgument, Reference};
use crate::{Prompt, ResourceTemplate};

/// Suggestions that fit into one answer, as MCP says.
const VALUES_MAX: usize = 100;

/// An argument as far as it was typed.
#[derive(Debug, Clone)]
pub struct Partial {
    value: String,
    context: BTreeMap<String, String>,
}

impl Partial {
    /// What was typed.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Another argument that is already decided; empty where it is not.
    #[must_use]
    pub fn context(&self, name: &str) -> &str {
        self.context.get(name).map_or("", String::as_str)
    }
}

pub(crate) type Completer = Box<dyn Fn(&Partial) -> Vec<String>>;

/// Suggests values. What nobody suggests anything for has no suggestions, which is no error.
pub(crate) fn complete(
    prompts: &[Prompt],
    templates: &[ResourceTemplate],
    reference: Reference,
    argument: PartialArgument,
) -> Result<Completion, CallError> {
    let completers = match reference {
        Reference::Prompt(name) => prompts
            .iter()
            .find(|prompt| prompt.info.name == name)
            .map(|prompt| &prompt.completers)
            .ok_or_else(|| CallError::NotFound(format!("there is no prompt {name}")))?,
        Reference::Resource(uri) => templates
            .iter()
            .find(|template| template.info.uri_template == uri)
            .map(|template| &template.completers)
            .ok_or_else(|| CallError::NotFound(format!("there is no resource template {uri}")))?,
    };
    let partial = Partial { value: argument.value, context: argument.context.into_iter().collect() };
    let completer = completers.iter().find(|(name, _)| *name == argument.name);
    let mut values = completer.map(|(_, suggest)| suggest(&partial)).unwrap_or_default();
    let total = u32::try_from(values.len()).ok();
    let has_more = values.len() > VALUES_MAX;
    values.truncate(VALUES_MAX);
    Ok(Completion { values, total, has_more, meta: Vec::new() })
}
