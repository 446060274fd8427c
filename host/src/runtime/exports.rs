//! What a component exports: its interfaces, and the one place where they are called.
//!
//! Every plugin exports tools; resources, prompts and completions are looked up in each component and taken where they are there.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre};

use super::bindings::bulkhead::plugin::types as wit;
use super::bindings::exports::bulkhead::plugin::{completions, prompts, resources, tools};
use super::call::Call;
use super::operation::Operation;
use super::world::escaped;
use crate::domain::offer::Reference;

/// Pages of resources that are looked at when a plugin is loaded.
const LISTED_PAGES_MAX: usize = 10;

type Store = wasmtime::Store<Call>;
/// What `call-tool` takes and gives.
type CallTool<'a> = (&'a str, &'a str);
type CalledTool = (Result<tools::ToolOutput, wit::CallError>,);

/// The interfaces of one component.
pub(super) struct Exports {
    tools: tools::GuestIndices,
    call_tool: ComponentExportIndex,
    resources: Option<resources::GuestIndices>,
    prompts: Option<prompts::GuestIndices>,
    completions: Option<completions::GuestIndices>,
}

/// What a guest gave back, unchecked.
pub(super) enum Raw {
    Tool(tools::ToolOutput),
    Resources(resources::ResourcePage),
    Contents(Vec<wit::ResourceContents>),
    Prompt(prompts::PromptOutput),
    Completion(completions::Completion),
}

/// What a plugin says that it offers, unchecked.
pub(super) struct Listed {
    pub(super) tools: Vec<tools::Tool>,
    pub(super) templates: Vec<resources::ResourceTemplate>,
    pub(super) prompts: Vec<prompts::Prompt>,
}

impl Exports {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// When tools are not there, or an interface is there with other types than the world's.
    pub(super) fn find(instance: &InstancePre<Call>) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let found = tools::GuestIndices::new(instance).and_then(|tools| Ok((tools, call_tool(instance)?)));
        let tools = found.map_err(|error| {
            let wrong = escaped(&format!("{error:#}"));
            problems.push(format!("it does not export bulkhead:plugin/tools@0.1.0 of the world: {wrong}"));
        });
        let mut optional = Optional { instance, problems };
        let resources = optional.interface("bulkhead:plugin/resources@", resources::GuestIndices::new);
        let prompts = optional.interface("bulkhead:plugin/prompts@", prompts::GuestIndices::new);
        let completions = optional.interface("bulkhead:plugin/completions@", completions::GuestIndices::new);
        match tools {
            Ok((tools, call_tool)) if optional.problems.is_empty() => {
                Ok(Self { tools, call_tool, resources, prompts, completions })
            }
            _ => Err(optional.problems),
        }
    }

    pub(super) fn has_resources(&self) -> bool {
        self.resources.is_some()
    }

    pub(super) fn has_prompts(&self) -> bool {
        self.prompts.is_some()
    }

    pub(super) fn has_completions(&self) -> bool {
        self.completions.is_some()
    }

    /// Calls the function that the operation is about.
    pub(super) async fn perform(
        &self,
        store: &mut Store,
        instance: &Instance,
        operation: Operation,
    ) -> wasmtime::Result<Result<Raw, wit::CallError>> {
        match operation {
            Operation::CallTool { tool, arguments } => {
                // Nothing but the one function that is called: checking the types of the others takes longer than many tools.
                let call = instance.get_typed_func::<CallTool<'_>, CalledTool>(&mut *store, self.call_tool)?;
                let (returned,) = call.call_async(store, (&tool, arguments.as_str())).await?;
                Ok(returned.map(Raw::Tool))
            }
            Operation::ListResources { cursor } => {
                let Some(resources) = &self.resources else { return Ok(Err(not_offered("resources"))) };
                let guest = resources.load(&mut *store, instance)?;
                Ok(guest.call_list_resources(store, cursor.as_deref()).await?.map(Raw::Resources))
            }
            Operation::ReadResource { uri } => {
                let Some(resources) = &self.resources else { return Ok(Err(not_offered("resources"))) };
                let guest = resources.load(&mut *store, instance)?;
                Ok(guest.call_read_resource(store, &uri).await?.map(Raw::Contents))
            }
            Operation::GetPrompt { prompt, arguments } => {
                let Some(prompts) = &self.prompts else { return Ok(Err(not_offered("prompts"))) };
                let guest = prompts.load(&mut *store, instance)?;
                Ok(guest.call_get_prompt(store, &prompt, &arguments).await?.map(Raw::Prompt))
            }
            Operation::Complete { reference, argument } => {
                let Some(completions) = &self.completions else { return Ok(Err(not_offered("completions"))) };
                let guest = completions.load(&mut *store, instance)?;
                let reference = match reference {
                    Reference::Prompt(name) => completions::Reference::Prompt(name),
                    Reference::Template(text) => completions::Reference::Resource(text),
                };
                let argument = completions::PartialArgument {
                    name: argument.name,
                    value: argument.value,
                    context: argument.context,
                };
                Ok(guest.call_complete(store, &reference, &argument).await?.map(Raw::Completion))
            }
        }
    }

    /// Everything that is listed at load.
    pub(super) async fn list(
        &self,
        store: &mut Store,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Listed, wit::CallError>> {
        let tools = self.tools.load(&mut *store, instance)?.call_list_tools(&mut *store).await?;
        let templates = match &self.resources {
            None => Vec::new(),
            Some(resources) => match resources.load(&mut *store, instance)?.call_list_templates(&mut *store).await? {
                Ok(templates) => templates,
                Err(error) => return Ok(Err(error)),
            },
        };
        let prompts = match &self.prompts {
            None => Vec::new(),
            Some(prompts) => match prompts.load(&mut *store, instance)?.call_list_prompts(&mut *store).await? {
                Ok(prompts) => prompts,
                Err(error) => return Ok(Err(error)),
            },
        };
        Ok(Ok(Listed { tools, templates, prompts }))
    }

    /// The URIs of the resources that can be listed, as far as a few pages go.
    pub(super) async fn uris(&self, store: &mut Store, instance: &Instance) -> wasmtime::Result<Vec<String>> {
        let mut uris = Vec::new();
        let Some(resources) = &self.resources else { return Ok(uris) };
        let guest = resources.load(&mut *store, instance)?;
        let mut cursor = None;
        for _ in 0..LISTED_PAGES_MAX {
            let Ok(page) = guest.call_list_resources(&mut *store, cursor.as_deref()).await? else { break };
            uris.extend(page.items.into_iter().map(|resource| resource.uri));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(uris)
    }
}

/// Where `call-tool` is.
fn call_tool(instance: &InstancePre<Call>) -> wasmtime::Result<ComponentExportIndex> {
    let component = instance.component();
    let found = component
        .get_export_index(None, "bulkhead:plugin/tools@0.1.0")
        .and_then(|tools| component.get_export_index(Some(&tools), "call-tool"));
    found.ok_or_else(|| wasmtime::Error::msg("there is no call-tool"))
}

fn not_offered(what: &str) -> wit::CallError {
    wit::CallError::NotFound(format!("this version of the plugin offers no {what}"))
}

/// Looks for interfaces that need not be there, and says what is wrong with one that is.
struct Optional<'a> {
    instance: &'a InstancePre<Call>,
    problems: Vec<String>,
}

impl Optional<'_> {
    fn interface<T>(&mut self, name: &str, find: impl FnOnce(&InstancePre<Call>) -> wasmtime::Result<T>) -> Option<T> {
        let component = self.instance.component();
        let ty = component.component_type();
        let is_this = |(export, is_interface): (&str, bool)| is_interface && export.starts_with(name);
        let mut exports = ty
            .exports(component.engine())
            .map(|(export, item)| (export, matches!(item.ty, ComponentItem::ComponentInstance(_))));
        if !exports.any(is_this) {
            return None;
        }
        let found = find(self.instance).map_err(|error| {
            let wrong = escaped(&format!("{error:#}"));
            self.problems.push(format!("its export {name}… is not that of the world: {wrong}"));
        });
        found.ok()
    }
}
