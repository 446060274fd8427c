//! Resources, prompts and completions, as far as both eras do them alike: where a page begins and ends, what params
//! name, and which plugin is asked.
//!
//! Owns no conversation: what a plugin says or asks on the way is each era's business, except in lists and completions,
//! where there is nothing to say. Invariant: a plugin that fails stops no other one's resources from being listed.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::cursor::{self, PAGE, Paged, bad_cursor};
use super::error::RpcError;
use super::request_context::RequestContext;
use super::tool_lists::PAGE_BYTES_MAX;
use super::{apps, jsonrpc, reader, tool_search, unknown};
use bulkhead_calls::{Catalog, CatalogPlugin, Operation, PromptEntry, Returned};
use bulkhead_domain::call::{CallError, ClientFeatures};
use bulkhead_domain::server_features::{
    Completion, PartialArgument, Prompt, Reference, Resource, ResourcePage, ResourceTemplate,
};
use bulkhead_domain::tool::Tool;
use bulkhead_tasks::{CallNews, ClientContext, Fallback, PluginRequest, of_kind};

/// Pages of plugins that one page of the list is looked for on; empty ones end it sooner or later.
const LOOKED_AT_MAX: usize = 16;

/// What is on one page of what is left: so many, and of a bounded size together; the first in any case.
fn on_one_page<'a, T>(
    left: &mut Peekable<impl Iterator<Item = &'a T>>,
    length: usize,
    size: impl Fn(&T) -> usize,
) -> Vec<&'a T> {
    let mut entries = Vec::new();
    let mut bytes = 0_usize;
    let fits = |count: usize, bytes: usize| count == 0 || count < length && bytes <= PAGE_BYTES_MAX;
    while let Some(entry) = left.next_if(|entry| fits(entries.len(), bytes + size(entry))) {
        bytes += size(entry);
        entries.push(entry);
    }
    entries
}

/// Bytes of what a client is told of a tool, nearly.
fn tool_bytes(tool: &Tool) -> usize {
    let schemas =
        tool.input_schema.as_str().len() + tool.output_schema.as_ref().map_or(0, |schema| schema.as_str().len());
    let icons: usize = tool.icons.iter().map(|icon| icon.src.len()).sum();
    let meta: usize = tool.meta.iter().map(|(key, value)| key.len() + value.as_str().len()).sum();
    tool.name.len() + tool.title.as_ref().map_or(0, String::len) + tool.description.len() + schemas + icons + meta
}

/// What a prompt is filled in with, by name.
pub(crate) type Arguments = Vec<(String, String)>;

/// A part of a list.
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

impl RequestContext {
    /// `tools/list`: what the requestor may call. Where it searches for tools, those of the host and those that clients
    /// have to see; a cursor of a longer list means the same place in this one.
    pub(crate) fn tools(&self, params: Option<&str>) -> Result<Page<&Tool>, RpcError> {
        const METHOD: &str = "tools/list";
        let tools = self.catalog.tools().iter().map(|entry| &entry.tool).filter(|tool| self.may_call(tool));
        if self.search.is_some() {
            let mut listed: Vec<_> =
                tool_search::tools().iter().chain(tools.filter(|tool| apps::is_listed(tool))).collect();
            listed.sort_by(|one, other| one.name.cmp(&other.name));
            return self.page(METHOD, params, self.tools_page, listed.into_iter(), |tool| &tool.name, tool_bytes);
        }
        self.page(METHOD, params, self.tools_page, tools, |tool| &tool.name, tool_bytes)
    }

    /// `prompts/list`.
    pub(crate) fn prompts(&self, params: Option<&str>) -> Result<Page<&Prompt>, RpcError> {
        let prompts = self.catalog.prompts().iter().map(|entry| &entry.prompt);
        self.page("prompts/list", params, PAGE, prompts, |prompt| &prompt.described.name, |_| 0)
    }

    /// `resources/templates/list`.
    pub(crate) fn templates(&self, params: Option<&str>) -> Result<Page<&ResourceTemplate>, RpcError> {
        let templates = self.catalog.templates().iter().map(|entry| &entry.template);
        self.page("resources/templates/list", params, PAGE, templates, |template| &template.uri_template, |_| 0)
    }

    /// A page of a list that is known already and sorted by name.
    pub(crate) fn page<'a, T>(
        &self,
        method: &str,
        params: Option<&str>,
        length: usize,
        all: impl Iterator<Item = &'a T>,
        name: impl Fn(&T) -> &String,
        size: impl Fn(&T) -> usize,
    ) -> Result<Page<&'a T>, RpcError> {
        let after = self.position(method, &jsonrpc::params::<Paged>(params)?)?;
        let is_left = |entry: &&'a T| after.as_ref().is_none_or(|after| name(entry).as_bytes() > after.as_slice());
        let mut left = all.filter(is_left).peekable();
        let entries = on_one_page(&mut left, length, size);
        let next_cursor = match (left.next(), entries.last()) {
            (Some(_), Some(last)) => self.sign(method, name(last).as_bytes()),
            _ => None,
        };
        Ok(Page { entries, next_cursor })
    }

    fn position(&self, method: &str, paged: &Paged) -> Result<Option<Vec<u8>>, RpcError> {
        let key = &self.shared.options.cursor_key;
        let open = |cursor: &String| cursor::verify(key, method, &self.requestor, cursor).ok_or_else(bad_cursor);
        paged.cursor.as_ref().map(open).transpose()
    }

    fn sign(&self, method: &str, position: &[u8]) -> Option<String> {
        cursor::sign(&self.shared.options.cursor_key, method, &self.requestor, position)
    }

    /// `resources/list`: plugin after plugin, each in pages of its own.
    pub(crate) async fn resources(&self, paged: &Paged) -> Result<Page<Resource>, RpcError> {
        const METHOD: &str = "resources/list";
        let catalog = &self.catalog;
        let libraries: Vec<_> = catalog.libraries().iter().filter(|library| library.has_resources).collect();
        let mut at = 0;
        let mut inside = None;
        let begins = paged.cursor.is_none();
        if let Some(position) = self.position(METHOD, paged)? {
            let (plugin, cursor): (String, Option<String>) =
                serde_json::from_slice(&position).map_err(|_| bad_cursor())?;
            let position = libraries.iter().position(|library| library.plugin.name == plugin);
            (at, inside) = (position.ok_or_else(bad_cursor)?, cursor);
        }
        let mut entries = Vec::new();
        let mut listed = false;
        let mut failure = None;
        for _ in 0..LOOKED_AT_MAX {
            let Some(library) = libraries.get(at) else { break };
            let operation = Operation::ListResources { cursor: inside.take() };
            match self.quietly::<ResourcePage>(library, operation).await? {
                Ok(page) => {
                    listed = true;
                    let own = page.items.into_iter().filter(|resource| catalog.may_list(library, &resource.uri));
                    entries.extend(own);
                    inside = page.next;
                }
                Err(error) => {
                    // The text may be the plugin's own.
                    let error_text = error.to_string();
                    tracing::warn!(plugin = library.plugin.name, error = ?error_text, "a plugin's resources cannot be listed");
                    failure = Some(error);
                }
            }
            if inside.is_none() {
                at += 1;
            }
            if !entries.is_empty() {
                break;
            }
        }
        // Who has seen a part of the list is better served with its end than with an error.
        if let Some(error) = failure.filter(|_| begins && !listed) {
            return Err(RpcError::from(&error));
        }
        let next_cursor = libraries.get(at).and_then(|library| {
            let position = serde_json::to_vec(&(&library.plugin.name, &inside)).ok()?;
            self.sign(METHOD, &position)
        });
        Ok(Page { entries, next_cursor })
    }

    /// `completion/complete`.
    pub(crate) async fn complete(&self, wanted: CompletionRequest) -> Result<Completion, RpcError> {
        let Some((library, operation)) = wanted.operation() else { return Ok(Completion::default()) };
        let completed = self.quietly(&library, operation).await?;
        completed.map_err(|error| RpcError::from(&error))
    }

    /// Which plugin has this resource, as far as this requestor may read it.
    pub(crate) async fn owner(&self, uri: &str) -> Result<Option<Arc<CatalogPlugin>>, RpcError> {
        let mut fallback = Fallback::default();
        for library in self.catalog.readers(uri) {
            let operation = Operation::ReadResource { uri: uri.to_owned() };
            match self.quietly::<Vec<_>>(&library, operation).await? {
                Ok(_) => return Ok(Some(library)),
                Err(error) if fallback.tries_next(&error) => {}
                Err(error) => return Err(RpcError::from(&error)),
            }
        }
        fallback.broke.map_or(Ok(None), |error| Err(RpcError::from(&error)))
    }

    /// A request without notifications or input requests.
    async fn quietly<T: TryFrom<Returned>>(
        &self,
        library: &Arc<CatalogPlugin>,
        operation: Operation,
    ) -> Result<Result<T, CallError>, RpcError> {
        let client = ClientContext { features: ClientFeatures::default(), log_level: None, wants_progress: false };
        let request = PluginRequest { library: Arc::clone(library), operation, client };
        let mut call = self.shared.tasks.request(&self.requestor, request).await?;
        loop {
            if let CallNews::Finished(result) = call.next().await {
                return Ok(result.and_then(of_kind));
            }
        }
    }
}

/// What the host can do for resources, prompts and completions, as clients are told.
#[derive(Default, Serialize)]
pub(crate) struct FeatureCapabilities {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourceAbilities>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<ListAbilities>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completions: Option<Empty>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceAbilities {
    subscribe: bool,
    list_changed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListAbilities {
    list_changed: bool,
}

impl FeatureCapabilities {
    pub(crate) fn new(catalog: &Catalog) -> Self {
        Self {
            resources: catalog.has_resources().then_some(ResourceAbilities { subscribe: true, list_changed: true }),
            prompts: catalog.has_prompts().then_some(ListAbilities { list_changed: true }),
            completions: catalog.has_completions().then_some(Empty {}),
        }
    }
}

/// An object that says nothing more.
#[derive(Serialize)]
pub(crate) struct Empty {}

/// Reads the params of `prompts/get`: the prompt and its arguments.
pub(crate) fn prompt(catalog: &Catalog, params: Option<&str>) -> Result<(Arc<PromptEntry>, Arguments), RpcError> {
    #[derive(Deserialize)]
    struct Params {
        name: String,
        arguments: Option<BTreeMap<String, String>>,
    }
    let params: Params = jsonrpc::params(params)?;
    let arguments = params.arguments.unwrap_or_default();
    let entry = catalog.prompt(&params.name).ok_or_else(|| unknown_prompt(catalog, &params.name))?;
    let required = entry.prompt.arguments.iter().filter(|argument| argument.required);
    let missing: Vec<_> = required
        .filter(|argument| !arguments.contains_key(&argument.described.name))
        .map(|argument| argument.described.name.as_str())
        .collect();
    if !missing.is_empty() {
        return Err(RpcError::invalid_params(format!(
            "Missing required arguments: {}; each must be a string in params.arguments",
            missing.join(", ")
        )));
    }
    Ok((Arc::clone(entry), arguments.into_iter().collect()))
}

/// Reads the params of everything that is about one resource.
pub(crate) fn uri(params: Option<&str>) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    let Params { uri } = jsonrpc::params(params)?;
    let has_scheme = uri.split_once(':').is_some_and(|(scheme, _)| !scheme.is_empty());
    if has_scheme && !uri.contains(|character: char| character.is_control() || character == ' ') {
        Ok(uri)
    } else {
        Err(RpcError::invalid_params("params.uri is not an absolute URI"))
    }
}

/// What is to be completed, and by which plugin.
pub(crate) struct CompletionRequest {
    library: Arc<CatalogPlugin>,
    reference: Reference,
    argument: PartialArgument,
}

impl CompletionRequest {
    /// Who is asked for what. `None`: the plugin has no suggestions.
    pub(crate) fn operation(self) -> Option<(Arc<CatalogPlugin>, Operation)> {
        let Self { library, reference, argument } = self;
        library.has_completions.then_some((library, Operation::Complete { reference, argument }))
    }
}

/// Reads the params of `completion/complete`.
pub(crate) fn wanted(catalog: &Catalog, params: Option<&str>) -> Result<CompletionRequest, RpcError> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        r#ref: Ref<'a>,
        argument: Argument,
        context: Option<Context>,
    }
    /// Its type says which of the two it needs.
    #[derive(Deserialize)]
    struct Ref<'a> {
        r#type: String,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        uri: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Argument {
        name: String,
        value: String,
    }
    #[derive(Deserialize)]
    struct Context {
        arguments: Option<BTreeMap<String, String>>,
    }
    let Params { r#ref, argument: Argument { name, value }, context } = jsonrpc::params::<Params<'_>>(params)?;
    let required = |member: Option<&RawValue>, path| match member {
        Some(raw) => jsonrpc::member::<String>(raw.get(), path),
        None => Err(RpcError::invalid_params(reader::missing(path, "a string"))),
    };
    let (library, reference, is_known) = match r#ref.r#type.as_str() {
        "ref/prompt" => {
            let prompt = required(r#ref.name, "params.ref.name")?;
            let entry = catalog.prompt(&prompt).ok_or_else(|| unknown_prompt(catalog, &prompt))?;
            let is_known = entry.prompt.arguments.iter().any(|argument| argument.described.name == name);
            (&entry.library, Reference::Prompt(entry.plugin_prompt.clone()), is_known)
        }
        "ref/resource" => {
            let uri = required(r#ref.uri, "params.ref.uri")?;
            let templates = catalog.templates().iter().map(|entry| entry.template.uri_template.as_str());
            let entry = catalog.template(&uri).ok_or_else(|| unknown::refusal("resource template", &uri, templates))?;
            let is_known = entry.parsed.variables().any(|variable| variable == name);
            (&entry.library, Reference::Template(uri), is_known)
        }
        _ => return Err(RpcError::invalid_params("params.ref.type must be \"ref/prompt\" or \"ref/resource\"")),
    };
    if !is_known {
        return Err(unknown::refusal("argument", &name, std::iter::empty()));
    }
    let context = context.and_then(|context| context.arguments).unwrap_or_default();
    let argument = PartialArgument { name, value, context: context.into_iter().collect() };
    Ok(CompletionRequest { library: Arc::clone(library), reference, argument })
}

fn unknown_prompt(catalog: &Catalog, name: &str) -> RpcError {
    unknown::refusal("prompt", name, catalog.prompts().iter().map(|entry| entry.prompt.described.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_ends_by_count_and_by_bytes() {
        let large = PAGE_BYTES_MAX / 2;
        for (sizes, length, expected) in [
            (vec![1; 5], 200, vec![5]),
            (vec![1; 5], 2, vec![2, 2, 1]),
            (vec![large, large, 1], 200, vec![2, 1]),
            (vec![large, large + 1, 1], 200, vec![1, 2]),
            (vec![1, 3 * large, 3 * large, 1], 200, vec![1, 1, 1, 1]),
            (vec![large; 4], 1, vec![1, 1, 1, 1]),
        ] {
            let mut left = sizes.iter().peekable();
            let mut pages = Vec::new();
            while left.peek().is_some() {
                let count = on_one_page(&mut left, length, |size: &usize| *size).len();
                assert_ne!(count, 0, "{sizes:?} does not come to an end");
                pages.push(count);
            }
            assert_eq!(pages, expected, "{sizes:?}");
        }
    }

    #[test]
    fn tool_counts_with_all_its_texts() {
        let tool = Tool { description: "d".repeat(1_000), ..Tool::sample("t") };
        let plain = tool_bytes(&Tool::sample("t"));
        assert!(tool_bytes(&tool) >= 1_000);
        let meta = vec![("k".repeat(10), bulkhead_domain::Json::new("x".repeat(90)))];
        assert_eq!(tool_bytes(&Tool { meta, ..Tool::sample("t") }), plain + 100);
    }
}
