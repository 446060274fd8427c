//! Resources, prompts and completions that come out of a guest: made into the domain's values and checked on the way.
//!
//! Owns that border, at load (what is declared) and in a call (what is returned). Invariant: as for outputs of tools:
//! what passes is well-formed and within the call's size.

use std::collections::HashSet;
use std::sync::Arc;

use super::bindings::exports::bulkhead::plugin::{completions, prompts as wit_prompts, resources as wit_resources};
use super::content::{
    annotate, annotations_size, block_size, check_extras, content, contents_size, icons, icons_size, meta_size,
    mime_type, resource, uri,
};
use super::declared::{check_description, check_line, check_name};
use super::exports::RawListing;
use super::fault::{invalid_output, limit};
use super::json::accept_meta;
use bulkhead_calls::catalog::PluginFeatures;
use bulkhead_calls::{CatalogPlugin, PromptEntry, TemplateEntry, URI_BYTES_MAX};
use bulkhead_domain::call::CallError;
use bulkhead_domain::server_features::{
    Completion, Described, Prompt, PromptArgument, PromptMessage, PromptOutput, Resource, ResourcePage,
    ResourceTemplate,
};
use bulkhead_domain::text::{Bytes, escaped};
use bulkhead_domain::tool::ResourceContents;
use bulkhead_domain::uri_template::UriTemplate;
use bulkhead_metrics::Metrics;

use super::bindings::bulkhead::plugin::types as wit;

/// Prompts of one plugin, and templates. Stops a plugin that fills every client's context.
const ENTRIES_MAX: usize = 512;
/// Arguments of one prompt.
const ARGUMENTS_MAX: usize = 64;
/// Resources on one page.
const PAGE_MAX: usize = 1000;
/// Bytes of a plugin's cursor, which clients carry back and forth.
const CURSOR_BYTES_MAX: usize = 1024;
/// Bytes of a name or title.
const NAME_BYTES_MAX: usize = 256;
/// Suggestions in one answer, as the protocol says.
const VALUES_MAX: usize = 100;
/// Bytes of one suggestion.
const VALUE_BYTES_MAX: usize = 1024;

/// Checks what a plugin declares beside its tools, and puts the operator's prefix before its prompts.
///
/// # Errors
///
/// Everything that is wrong, each with the name of what it is about.
pub(super) fn declared(
    listed: RawListing,
    prefix: &str,
    library: &Arc<CatalogPlugin>,
    metrics: &Metrics,
) -> Result<PluginFeatures, Vec<String>> {
    let mut problems = Vec::new();
    let RawListing { prompts, templates, .. } = listed;
    for (count, what) in [(prompts.len(), "prompts"), (templates.len(), "resource templates")] {
        if count > ENTRIES_MAX {
            problems.push(format!("it offers {count} {what}; {ENTRIES_MAX} is the most"));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut offers = PluginFeatures {
        library: Arc::clone(library),
        prompts: Vec::new(),
        templates: Vec::new(),
        resources: Vec::new(),
        skills: Vec::new(),
    };
    let mut seen = HashSet::new();
    for listed in prompts {
        let shown = escaped(&listed.name).to_string();
        let plugin_prompt = listed.name.clone();
        if !seen.insert(listed.name.clone()) {
            problems.push(format!("prompt {shown:?}: its name is used twice"));
        }
        match prompt(listed, prefix) {
            Ok(prompt) => {
                let metrics = metrics.prompt(&library.plugin.name, &prompt.described.name);
                let library = Arc::clone(library);
                offers.prompts.push(Arc::new(PromptEntry { prompt, plugin_prompt, library, metrics }));
            }
            Err(wrong) => problems.extend(wrong.into_iter().map(|wrong| format!("prompt {shown:?}: {wrong}"))),
        }
    }
    for listed in templates {
        let shown = escaped(&listed.uri_template).to_string();
        if offers.templates.iter().any(|other| other.template.uri_template == listed.uri_template) {
            problems.push(format!("resource template {shown:?}: it is there twice"));
        }
        match template(listed) {
            Ok((template, parsed)) => {
                offers.templates.push(Arc::new(TemplateEntry { template, parsed, library: Arc::clone(library) }));
            }
            Err(wrong) => {
                problems.extend(wrong.into_iter().map(|wrong| format!("resource template {shown:?}: {wrong}")));
            }
        }
    }
    if problems.is_empty() { Ok(offers) } else { Err(problems) }
}

fn prompt(prompt: wit_prompts::Prompt, prefix: &str) -> Result<Prompt, Vec<String>> {
    let mut wrong = Vec::new();
    let name = format!("{prefix}{}", prompt.name);
    check_name(&prompt.name, &name, &mut wrong);
    let described = described("", name, prompt.title, prompt.description, &mut wrong);
    check_extras(&prompt.icons, &prompt.meta, &mut wrong);
    let meta = accept_meta(prompt.meta).map_err(|problem| wrong.push(problem)).unwrap_or_default();
    if prompt.arguments.len() > ARGUMENTS_MAX {
        wrong.push(format!("it has {} arguments; {ARGUMENTS_MAX} is the most", prompt.arguments.len()));
    }
    let mut arguments: Vec<PromptArgument> = Vec::new();
    for argument in prompt.arguments {
        if argument.name.is_empty() || arguments.iter().any(|other| other.described.name == argument.name) {
            wrong.push(format!("its argument {:?} has no name of its own", escaped(&argument.name).to_string()));
        }
        check_line("argument's name", &argument.name, NAME_BYTES_MAX, &mut wrong);
        let wit_prompts::PromptArgument { name, title, description, required } = argument;
        arguments.push(PromptArgument {
            described: self::described("argument's ", name, title, description, &mut wrong),
            required,
        });
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    Ok(Prompt { described, arguments, icons: icons(prompt.icons), meta })
}

/// Checks how an entry is shown, apart from its name. What is wrong begins with `whose`.
fn described(
    whose: &str,
    name: String,
    title: Option<String>,
    description: Option<String>,
    wrong: &mut Vec<String>,
) -> Described {
    check_line(&format!("{whose}title"), title.as_deref().unwrap_or_default(), NAME_BYTES_MAX, wrong);
    check_description(description.as_deref().unwrap_or_default(), wrong);
    Described { name, title, description }
}

fn template(template: wit_resources::ResourceTemplate) -> Result<(ResourceTemplate, UriTemplate), Vec<String>> {
    let mut wrong = Vec::new();
    let parsed = UriTemplate::parse(&template.uri_template).map_err(|problem| wrong.push(problem));
    check_line("text", &template.uri_template, URI_BYTES_MAX, &mut wrong);
    check_line("name", &template.name, NAME_BYTES_MAX, &mut wrong);
    let described = described("", template.name, template.title, template.description, &mut wrong);
    let mime_type = template.mime_type.map(mime_type).transpose().map_err(|problem| wrong.push(problem));
    check_extras(&template.icons, &template.meta, &mut wrong);
    let meta = accept_meta(template.meta).map_err(|problem| wrong.push(problem));
    let (Ok(parsed), Ok(mime_type), Ok(meta), true) = (parsed, mime_type, meta, wrong.is_empty()) else {
        return Err(wrong);
    };
    let checked = ResourceTemplate {
        uri_template: template.uri_template,
        described,
        mime_type,
        annotations: template.annotations.map(annotate),
        icons: icons(template.icons),
        meta,
    };
    Ok((checked, parsed))
}

/// The resources that a plugin listed when it was loaded, without those that no page may hold.
pub(super) fn listable(returned: Vec<wit_resources::ResourceInfo>) -> Vec<Resource> {
    returned.into_iter().filter_map(|item| listed(item).ok()).collect()
}

/// A page of resources.
pub(super) fn page(returned: wit_resources::ResourcePage, bytes_max: u64) -> Result<ResourcePage, CallError> {
    let item_size = |item: &wit_resources::ResourceInfo| {
        let texts = [&item.title, &item.description, &item.mime_type].into_iter().flatten().map(String::len);
        let annotations = item.annotations.as_ref().map_or(0, annotations_size);
        let bytes = item.uri.len() + item.name.len() + texts.sum::<usize>() + annotations;
        bytes + icons_size(&item.icons) + meta_size(&item.meta) + 32
    };
    within(returned.items.iter().map(item_size).sum(), bytes_max)?;
    if returned.items.len() > PAGE_MAX {
        return Err(limit(format!("a page has {} resources; {PAGE_MAX} is the most", returned.items.len())));
    }
    if returned.next.as_ref().is_some_and(|next| next.len() > CURSOR_BYTES_MAX) {
        return Err(limit(format!("a cursor has more than {CURSOR_BYTES_MAX} bytes")));
    }
    let items = returned
        .items
        .into_iter()
        .enumerate()
        .map(|(at, item)| listed(item).map_err(|wrong| invalid_output(format!("resource {at}: {wrong}"))));
    Ok(ResourcePage { items: items.collect::<Result<_, _>>()?, next: returned.next })
}

fn listed(item: wit_resources::ResourceInfo) -> Result<Resource, String> {
    if item.uri.len() > URI_BYTES_MAX {
        return Err(format!("its URI has more than {URI_BYTES_MAX} bytes"));
    }
    let mut wrong = Vec::new();
    check_extras(&item.icons, &item.meta, &mut wrong);
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    Ok(Resource {
        uri: uri(item.uri)?,
        described: Described { name: item.name, title: item.title, description: item.description },
        mime_type: item.mime_type.map(mime_type).transpose()?,
        size: item.size,
        annotations: item.annotations.map(annotate),
        icons: icons(item.icons),
        meta: accept_meta(item.meta)?,
    })
}

/// What a resource holds: never nothing, which would pass for an empty resource.
pub(super) fn contents(
    returned: Vec<wit::ResourceContents>,
    bytes_max: u64,
) -> Result<Vec<ResourceContents>, CallError> {
    if returned.is_empty() {
        return Err(invalid_output("the plugin returned a resource without contents"));
    }
    within(returned.iter().map(contents_size).sum(), bytes_max)?;
    let contents = returned
        .into_iter()
        .enumerate()
        .map(|(at, contents)| resource(contents).map_err(|wrong| invalid_output(format!("contents {at}: {wrong}"))));
    contents.collect()
}

/// A prompt that was filled in.
pub(super) fn prompt_output(returned: wit_prompts::PromptOutput, bytes_max: u64) -> Result<PromptOutput, CallError> {
    let messages: usize = returned.messages.iter().map(|message| block_size(&message.content)).sum();
    let description = returned.description.as_ref().map_or(0, String::len);
    within(messages + description + meta_size(&returned.meta), bytes_max)?;
    let messages = returned.messages.into_iter().enumerate().map(|(at, message)| {
        let content = content(message.content).map_err(|wrong| invalid_output(format!("message {at}: {wrong}")))?;
        Ok(PromptMessage { role: message.role.into(), content })
    });
    let messages = messages.collect::<Result<_, CallError>>()?;
    let meta = accept_meta(returned.meta).map_err(invalid_output)?;
    Ok(PromptOutput { description: returned.description, messages, meta })
}

/// Suggestions, cut to what one answer may hold.
pub(super) fn completion(returned: completions::Completion, bytes_max: u64) -> Result<Completion, CallError> {
    within(meta_size(&returned.meta), bytes_max)?;
    let count = returned.values.len();
    let has_more = returned.has_more || count > VALUES_MAX;
    let total = returned.total.or_else(|| u32::try_from(count).ok().filter(|_| !returned.has_more));
    let values: Vec<String> = returned.values.into_iter().take(VALUES_MAX).collect();
    if values.iter().any(|value| value.len() > VALUE_BYTES_MAX) {
        return Err(limit(format!("a suggestion has more than {VALUE_BYTES_MAX} bytes")));
    }
    let meta = accept_meta(returned.meta).map_err(invalid_output)?;
    Ok(Completion { values, total, has_more, meta })
}

fn within(bytes: usize, bytes_max: u64) -> Result<(), CallError> {
    if bytes as u64 > bytes_max {
        return Err(limit(format!("the plugin returned {bytes} bytes; {} is the most", Bytes(bytes_max))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_and_resource_icons_and_meta_are_bounded() {
        let icons =
            |count| vec![wit::Icon { src: "https://a".into(), mime_type: None, sizes: vec![], theme: None }; count];
        let meta = |count: usize| (0..count).map(|at| (format!("a{at}"), "1".to_owned())).collect::<Vec<_>>();
        let declared_prompt = |icons, meta| {
            let name = "p".to_owned();
            let arguments = vec![];
            prompt(wit_prompts::Prompt { name, title: None, description: None, arguments, icons, meta }, "")
        };
        assert!(declared_prompt(icons(16), meta(64)).is_ok());
        let wrong = declared_prompt(icons(10_000), meta(65)).unwrap_err();
        assert_eq!(wrong[..1], ["it has 10000 icons; 16 is the most"]);
        assert_eq!(wrong.last().unwrap(), "it has 65 members of meta; 64 is the most");
        let item = |icons, meta| {
            let uri = "a://b".to_owned();
            let name = "b".to_owned();
            let annotations = None;
            let title = None;
            let description = None;
            let mime_type = None;
            let size = None;
            wit_resources::ResourceInfo { uri, name, title, description, mime_type, size, annotations, icons, meta }
        };
        let listing = |items| page(wit_resources::ResourcePage { items, next: None, meta: vec![] }, 1 << 30);
        assert!(listing(vec![item(icons(16), meta(64))]).is_ok());
        let error = listing(vec![item(icons(1), meta(1)), item(icons(17), meta(1))]).unwrap_err();
        assert!(error.to_string().contains("resource 1: it has 17 icons; 16 is the most"), "{error}");
    }

    #[test]
    fn completion_values_are_bounded() {
        let returned = |count: usize, total| completions::Completion {
            values: (0..count).map(|number| number.to_string()).collect(),
            total,
            has_more: false,
            meta: Vec::new(),
        };
        let all = completion(returned(100, None), 100).unwrap();
        assert_eq!((all.values.len(), all.total, all.has_more), (100, Some(100), false));
        let cut = completion(returned(101, None), 100).unwrap();
        assert_eq!((cut.values.len(), cut.total, cut.has_more), (100, Some(101), true));
        let few = completion(returned(1, Some(7)), 100).unwrap();
        assert_eq!((few.values.len(), few.total, few.has_more), (1, Some(7), false));
        let long = completions::Completion { values: vec!["x".repeat(VALUE_BYTES_MAX + 1)], ..returned(0, None) };
        assert!(completion(long, 100).is_err());
    }
}
