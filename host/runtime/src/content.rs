//! Blocks of content, resources and icons that come out of a guest: how large they are, and what they become.
//!
//! Invariant: what passes is well-formed; everything else is refused with a reason.

use super::bindings::bulkhead::plugin::types as wit;
use super::json::accept_meta;
use super::limits::{ICON_BYTES_MAX, ICONS_MAX, META_BYTES_MAX, META_MEMBERS_MAX};
use bulkhead_domain::tool::{Annotations, Content, ContentKind, Icon, ResourceBody, ResourceContents, ResourceLink};

/// Bytes of one block on the wire, nearly. Even an empty one costs its envelope.
pub(super) fn block_size(block: &wit::Content) -> usize {
    let annotations = match block {
        wit::Content::Text(text) => &text.annotations,
        wit::Content::Image(media) | wit::Content::Audio(media) => &media.annotations,
        wit::Content::ResourceLink(link) => &link.annotations,
        wit::Content::Resource(embedded) => &embedded.annotations,
    };
    let bytes = match block {
        wit::Content::Text(text) => text.text.len() + meta_size(&text.meta),
        wit::Content::Image(media) | wit::Content::Audio(media) => {
            base64_size(&media.data) + media.mime_type.len() + meta_size(&media.meta)
        }
        wit::Content::ResourceLink(link) => {
            let texts = [&link.title, &link.description, &link.mime_type].into_iter().flatten();
            link.uri.len() + link.name.len() + texts.map(String::len).sum::<usize>() + meta_size(&link.meta)
        }
        wit::Content::Resource(embedded) => contents_size(&embedded.contents) + meta_size(&embedded.meta),
    };
    bytes + annotations.as_ref().map_or(0, annotations_size) + 32
}

pub(super) fn annotations_size(annotations: &wit::Annotations) -> usize {
    annotations.last_modified.as_ref().map_or(0, String::len) + annotations.audience.len() * 12
}

pub(super) fn icons_size(icons: &[wit::Icon]) -> usize {
    let sizes = |icon: &wit::Icon| icon.sizes.iter().map(|size| size.len() + 3).sum::<usize>();
    icons.iter().map(|icon| icon.src.len() + icon.mime_type.as_ref().map_or(0, String::len) + sizes(icon) + 32).sum()
}

/// The same for what a resource holds.
pub(super) fn contents_size(contents: &wit::ResourceContents) -> usize {
    let body = match &contents.body {
        wit::ResourceBody::Text(text) => text.len(),
        wit::ResourceBody::Blob(data) => base64_size(data),
    };
    contents.uri.len() + contents.mime_type.as_ref().map_or(0, String::len) + body + meta_size(&contents.meta)
}

pub(super) fn base64_size(data: &[u8]) -> usize {
    data.len().div_ceil(3) * 4
}

pub(super) fn meta_size(pairs: &wit::Meta) -> usize {
    pairs.iter().map(|(key, value)| key.len() + value.len()).sum()
}

pub(super) fn content(block: wit::Content) -> Result<Content, String> {
    let (kind, annotations, meta) = match block {
        wit::Content::Text(text) => (ContentKind::Text(text.text), text.annotations, text.meta),
        wit::Content::Image(media) => (
            ContentKind::Image { data: media.data, mime_type: mime_type(media.mime_type)? },
            media.annotations,
            media.meta,
        ),
        wit::Content::Audio(media) => (
            ContentKind::Audio { data: media.data, mime_type: mime_type(media.mime_type)? },
            media.annotations,
            media.meta,
        ),
        wit::Content::ResourceLink(link) => {
            let kind = ContentKind::ResourceLink(ResourceLink {
                uri: uri(link.uri)?,
                name: link.name,
                title: link.title,
                description: link.description,
                mime_type: link.mime_type.map(mime_type).transpose()?,
                size: link.size,
            });
            (kind, link.annotations, link.meta)
        }
        wit::Content::Resource(embedded) => {
            (ContentKind::Resource(resource(embedded.contents)?), embedded.annotations, embedded.meta)
        }
    };
    Ok(Content { kind, annotations: annotations.map(annotate), meta: accept_meta(meta)? })
}

pub(super) fn resource(contents: wit::ResourceContents) -> Result<ResourceContents, String> {
    let body = match contents.body {
        wit::ResourceBody::Text(text) => ResourceBody::Text(text),
        wit::ResourceBody::Blob(data) => ResourceBody::Blob(data),
    };
    let meta = accept_meta(contents.meta)?;
    let mime_type = contents.mime_type.map(mime_type).transpose()?;
    Ok(ResourceContents { uri: uri(contents.uri)?, mime_type, body, meta })
}

pub(super) fn mime_type(text: String) -> Result<String, String> {
    let printable = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if printable && text.split_once('/').is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty()) {
        Ok(text)
    } else {
        Err(format!("{text:?} is not a MIME type"))
    }
}

pub(super) fn uri(text: String) -> Result<String, String> {
    let has_scheme = text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    if has_scheme && !text.contains(|character: char| character.is_control() || character == ' ') {
        Ok(text)
    } else {
        Err(format!("{text:?} is not a URI"))
    }
}

pub(super) fn annotate(annotations: wit::Annotations) -> Annotations {
    let audience = annotations.audience.into_iter().map(Into::into).collect();
    let priority = annotations.priority.filter(|priority| (0.0..=1.0).contains(priority));
    Annotations { audience, priority, last_modified: annotations.last_modified }
}

/// Icons whose source a client may fetch or has at hand; others are dropped, as the interface says.
pub(super) fn icons(icons: Vec<wit::Icon>) -> Vec<Icon> {
    icons
        .into_iter()
        .filter(|icon| icon.src.starts_with("https:") || icon.src.starts_with("data:"))
        .map(|icon| Icon { src: icon.src, mime_type: icon.mime_type, sizes: icon.sizes, theme: icon.theme })
        .collect()
}

/// Refuses more icons or `_meta` than everything in a list may have, before a client has to read it.
pub(super) fn check_extras(icons: &[wit::Icon], meta: &wit::Meta, wrong: &mut Vec<String>) {
    let counted = [
        (icons.len(), ICONS_MAX, "icons"),
        (icons_size(icons), ICON_BYTES_MAX, "bytes of icons"),
        (meta.len(), META_MEMBERS_MAX, "members of meta"),
        (meta_size(meta), META_BYTES_MAX, "bytes of meta"),
    ];
    let over = counted.into_iter().filter(|(count, most, _)| count > most);
    wrong.extend(over.map(|(count, most, what)| format!("it has {count} {what}; {most} is the most")));
}
