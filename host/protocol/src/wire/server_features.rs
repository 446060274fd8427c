//! Resources, prompts and completions: entries of lists, and the bodies of results.
//!
//! A body knows its own members only; each era adds what its results have around them.

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::output::{AnnotationsView, Block, ContentsView, role_name};
use super::{IconView, MetaView, RelatedTask, entry_if};
use bulkhead_domain::Json;
use bulkhead_domain::server_features::{
    Completion, Described, Prompt, PromptArgument, PromptMessage, PromptOutput, Resource, ResourceTemplate,
};
use bulkhead_domain::tool::{Icon, ResourceContents};

/// The members of a result that its method is about.
pub(crate) trait Body {
    /// Writes them.
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// A body as a whole result, with nothing around it.
pub(crate) struct Bare<B>(pub(crate) B);

impl<B: Body> Serialize for Bare<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.write(&mut map)?;
        map.end()
    }
}

/// A body with a plugin's metadata, and the task that it belongs to.
pub(crate) struct WithMeta<'a, B> {
    pub(crate) body: B,
    pub(crate) meta: &'a [(String, Json)],
    pub(crate) related: Option<&'a RelatedTask>,
}

impl<B: Body> Body for WithMeta<'_, B> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.body.write(map)?;
        entry_if(map, "_meta", MetaView::new(self.meta, self.related))
    }
}

/// A page of a list: the list's name, its entries, and where the next page begins.
pub(crate) struct PageBody<T> {
    pub(crate) name: &'static str,
    pub(crate) entries: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

impl<T: Serialize> Body for PageBody<T> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry(self.name, &self.entries)?;
        entry_if(map, "nextCursor", self.next_cursor.as_ref())
    }
}

/// What a resource holds.
pub(crate) struct ContentsBody<'a>(pub(crate) &'a [ResourceContents]);

impl Body for ContentsBody<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let contents: Vec<_> = self.0.iter().map(ContentsView).collect();
        map.serialize_entry("contents", &contents)
    }
}

/// A prompt that was filled in; without its metadata, which each era writes in its own place.
pub(crate) struct PromptBody<'a>(pub(crate) &'a PromptOutput);

impl Body for PromptBody<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        entry_if(map, "description", self.0.description.as_ref())?;
        map.serialize_entry("messages", &Messages(&self.0.messages))
    }
}

struct Messages<'a>(&'a [PromptMessage]);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Message<'a> {
            role: &'static str,
            content: Block<'a>,
        }
        let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
        for message in self.0 {
            seq.serialize_element(&Message { role: role_name(message.role), content: Block(&message.content) })?;
        }
        seq.end()
    }
}

/// Suggestions; without their metadata.
pub(crate) struct CompletionBody<'a>(pub(crate) &'a Completion);

impl Body for CompletionBody<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Suggested<'a> {
            values: &'a [String],
            #[serde(skip_serializing_if = "Option::is_none")]
            total: Option<u32>,
            has_more: bool,
        }
        let Completion { values, total, has_more, .. } = self.0;
        map.serialize_entry("completion", &Suggested { values, total: *total, has_more: *has_more })
    }
}

/// A resource in a list. `icons`: the revision knows them (2025-11-25 and later); so for the other two.
pub(crate) struct ResourceView<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) icons: bool,
}

impl Serialize for ResourceView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let resource = self.resource;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uri", &resource.uri)?;
        described(&mut map, &resource.described)?;
        entry_if(&mut map, "mimeType", resource.mime_type.as_ref())?;
        entry_if(&mut map, "size", resource.size)?;
        entry_if(&mut map, "annotations", resource.annotations.as_ref().map(AnnotationsView))?;
        icons(&mut map, &resource.icons, self.icons)?;
        entry_if(&mut map, "_meta", MetaView::new(&resource.meta, None))?;
        map.end()
    }
}

/// A family of resources in a list.
pub(crate) struct TemplateView<'a> {
    pub(crate) template: &'a ResourceTemplate,
    pub(crate) icons: bool,
}

impl Serialize for TemplateView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let template = self.template;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uriTemplate", &template.uri_template)?;
        described(&mut map, &template.described)?;
        entry_if(&mut map, "mimeType", template.mime_type.as_ref())?;
        entry_if(&mut map, "annotations", template.annotations.as_ref().map(AnnotationsView))?;
        icons(&mut map, &template.icons, self.icons)?;
        entry_if(&mut map, "_meta", MetaView::new(&template.meta, None))?;
        map.end()
    }
}

/// A prompt in a list.
pub(crate) struct PromptView<'a> {
    pub(crate) prompt: &'a Prompt,
    pub(crate) icons: bool,
}

impl Serialize for PromptView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let prompt = self.prompt;
        let mut map = serializer.serialize_map(None)?;
        described(&mut map, &prompt.described)?;
        if !prompt.arguments.is_empty() {
            map.serialize_entry("arguments", &prompt.arguments.iter().map(ArgumentView).collect::<Vec<_>>())?;
        }
        icons(&mut map, &prompt.icons, self.icons)?;
        entry_if(&mut map, "_meta", MetaView::new(&prompt.meta, None))?;
        map.end()
    }
}

struct ArgumentView<'a>(&'a PromptArgument);

impl Serialize for ArgumentView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        described(&mut map, &self.0.described)?;
        map.serialize_entry("required", &self.0.required)?;
        map.end()
    }
}

fn described<M: SerializeMap>(map: &mut M, described: &Described) -> Result<(), M::Error> {
    map.serialize_entry("name", &described.name)?;
    entry_if(map, "title", described.title.as_ref())?;
    entry_if(map, "description", described.description.as_ref())
}

pub(super) fn icons<M: SerializeMap>(map: &mut M, icons: &[Icon], known: bool) -> Result<(), M::Error> {
    let shown = (known && !icons.is_empty()).then(|| icons.iter().map(IconView::from).collect::<Vec<_>>());
    entry_if(map, "icons", shown)
}
