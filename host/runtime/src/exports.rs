//! What a component exports: its interfaces, and the one place where they are called.
//!
//! Every plugin of our world exports tools; resources, prompts and completions are looked up in each component and
//! taken where they are there. The functions of a component that does not know us are tools too, and so are a program
//! and a web service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc};

use super::bindings::bulkhead::plugin::types as wit;
use super::bindings::exports::bulkhead::plugin::{completions, prompts, resources, tools};
use super::call::Call;
use super::last_words::LastWords;
use super::programs::{Program, Programs};
use super::read::ComponentBytes as Component;
use super::typed;
use bulkhead_calls::Operation;
use bulkhead_domain::call::CallError;
use bulkhead_domain::exports::NO_USABLE_FUNCTION;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::server_features::Reference;
use bulkhead_domain::text::escaped;

/// Pages of a list that are looked at when a plugin is loaded.
pub(super) const LISTED_PAGES_MAX: usize = 10;

type Store = wasmtime::Store<Call>;
/// Parameters and result of `call-tool`.
type CallTool<'a> = (&'a str, &'a str);
type CalledTool = (Result<tools::ToolOutput, wit::CallError>,);

/// The interfaces of one component.
pub(super) struct Exports {
    tools: Tools,
    resources: Option<resources::GuestIndices>,
    prompts: Option<prompts::GuestIndices>,
    completions: Option<completions::GuestIndices>,
}

/// Where a component's tools come from.
enum Tools {
    /// It lists them.
    Listed { tools: tools::GuestIndices, call_tool: CallToolExport },
    /// They are its functions.
    Typed(typed::Functions),
    /// It is a program or a web service.
    Programs(Programs),
}

/// What a guest gave back, unchecked.
#[derive(Debug)]
pub(super) enum RawOutput {
    Tool(tools::ToolOutput),
    Resources(resources::ResourcePage),
    Contents(Vec<wit::ResourceContents>),
    Prompt(prompts::PromptOutput),
    Completion(completions::Completion),
}

/// What a plugin says that it offers, unchecked.
pub(super) struct RawListing {
    pub(super) tools: Vec<tools::Tool>,
    pub(super) templates: Vec<resources::ResourceTemplate>,
    pub(super) prompts: Vec<prompts::Prompt>,
}

impl Exports {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// When tools are not there, an interface is there with other types than the world's, or a function cannot be a
    /// tool.
    pub(super) fn find(instance: &InstancePre<Call>, file: &Component) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let tools = listed(instance).or_else(|error| {
            let component = instance.component();
            let is_foreign = !typed::is_ours(component);
            // Who has functions of their own means these.
            if is_foreign && !typed::has_functions(component) {
                match Programs::find(instance) {
                    Ok(Some(programs)) => return Ok(Tools::Programs(programs)),
                    Ok(None) => {}
                    Err(wrong) => {
                        problems.push(wrong);
                        return Err(());
                    }
                }
            }
            let functions =
                is_foreign.then(|| typed::Functions::find(component, &file.bytes, file.wit_file.as_deref()));
            match functions {
                Some(Ok(functions)) => return Ok(Tools::Typed(functions)),
                Some(Err(wrong)) => {
                    problems.push(NO_USABLE_FUNCTION.to_owned());
                    problems.extend(wrong);
                }
                None => {
                    let wrong = escaped(&format!("{error:#}"));
                    problems.push(format!("it does not export bulkhead:plugin/tools@0.1.0 of the world: {wrong}"));
                }
            }
            Err(())
        });
        let mut optional = Optional { instance, problems };
        let resources = optional.interface("bulkhead:plugin/resources@", resources::GuestIndices::new);
        let prompts = optional.interface("bulkhead:plugin/prompts@", prompts::GuestIndices::new);
        let completions = optional.interface("bulkhead:plugin/completions@", completions::GuestIndices::new);
        match tools {
            Ok(tools) if optional.problems.is_empty() => Ok(Self { tools, resources, prompts, completions }),
            _ => Err(optional.problems),
        }
    }

    /// Whether the component says nothing of tools: they are made of what it exports.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self.tools, Tools::Typed(_) | Tools::Programs(_))
    }

    /// The component as a program or a web service.
    pub(super) fn programs(&self) -> Option<&Programs> {
        match &self.tools {
            Tools::Programs(programs) => Some(programs),
            Tools::Listed { .. } | Tools::Typed(_) => None,
        }
    }

    /// What the call of a command has around it; `None`: the operation is none.
    ///
    /// # Errors
    ///
    /// Its arguments do not fit.
    pub(super) fn program(
        &self,
        operation: &Operation,
        plugin: &str,
        limits: &CallLimits,
        last_words: &LastWords,
    ) -> Result<Option<Program>, CallError> {
        match &self.tools {
            Tools::Programs(programs) => programs.program(operation, plugin, limits, last_words),
            _ => Ok(None),
        }
    }

    /// The component's own functions that are no tools, each with the reason.
    pub(super) fn left_out(&self) -> &[String] {
        match &self.tools {
            Tools::Listed { .. } | Tools::Programs(_) => &[],
            Tools::Typed(functions) => functions.left_out(),
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
        operation: &Operation,
    ) -> wasmtime::Result<Result<RawOutput, wit::CallError>> {
        match operation {
            Operation::CallTool { tool, arguments } => {
                let returned = match &self.tools {
                    Tools::Listed { call_tool, .. } => {
                        let call = call_tool.of(store, instance)?;
                        call.call_async(store, (tool, arguments.as_str())).await?.0
                    }
                    Tools::Typed(functions) => functions.call(store, instance, tool, arguments.as_str()).await?,
                    Tools::Programs(programs) => programs.call(store, instance, tool, arguments.as_str()).await?,
                };
                Ok(returned.map(RawOutput::Tool))
            }
            Operation::ListResources { cursor } => {
                let Some(resources) = &self.resources else { return Ok(Err(not_offered("resources"))) };
                let guest = resources.load(&mut *store, instance)?;
                Ok(guest.call_list_resources(store, cursor.as_deref()).await?.map(RawOutput::Resources))
            }
            Operation::ReadResource { uri } => {
                let Some(resources) = &self.resources else { return Ok(Err(not_offered("resources"))) };
                let guest = resources.load(&mut *store, instance)?;
                Ok(guest.call_read_resource(store, uri).await?.map(RawOutput::Contents))
            }
            Operation::GetPrompt { prompt, arguments } => {
                let Some(prompts) = &self.prompts else { return Ok(Err(not_offered("prompts"))) };
                let guest = prompts.load(&mut *store, instance)?;
                Ok(guest.call_get_prompt(store, prompt, arguments).await?.map(RawOutput::Prompt))
            }
            Operation::Complete { reference, argument } => {
                let Some(completions) = &self.completions else { return Ok(Err(not_offered("completions"))) };
                let guest = completions.load(&mut *store, instance)?;
                let reference = match reference {
                    Reference::Prompt(name) => completions::Reference::Prompt(name.clone()),
                    Reference::Template(text) => completions::Reference::Resource(text.clone()),
                };
                let argument = completions::PartialArgument {
                    name: argument.name.clone(),
                    value: argument.value.clone(),
                    context: argument.context.clone(),
                };
                Ok(guest.call_complete(store, &reference, &argument).await?.map(RawOutput::Completion))
            }
        }
    }

    /// Everything that is listed at load.
    pub(super) async fn list(
        &self,
        store: &mut Store,
        instance: &Instance,
    ) -> wasmtime::Result<Result<RawListing, wit::CallError>> {
        let tools = match &self.tools {
            Tools::Listed { tools, .. } => tools.load(&mut *store, instance)?.call_list_tools(&mut *store).await?,
            Tools::Typed(functions) => functions.tools(),
            Tools::Programs(programs) => {
                let plugin = Arc::clone(store.data().denials.plugin());
                programs.tools(&plugin, store, instance)?
            }
        };
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
        Ok(Ok(RawListing { tools, templates, prompts }))
    }

    /// The resources that can be listed, as far as a few pages go.
    pub(super) async fn resources(
        &self,
        store: &mut Store,
        instance: &Instance,
    ) -> wasmtime::Result<Vec<resources::ResourceInfo>> {
        let mut listed = Vec::new();
        let Some(resources) = &self.resources else { return Ok(listed) };
        let guest = resources.load(&mut *store, instance)?;
        let mut cursor = None;
        for _ in 0..LISTED_PAGES_MAX {
            let Ok(page) = guest.call_list_resources(&mut *store, cursor.as_deref()).await? else { break };
            listed.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(listed)
    }
}

/// The interface by which a component lists its tools and has them called.
fn listed(instance: &InstancePre<Call>) -> wasmtime::Result<Tools> {
    let tools = tools::GuestIndices::new(instance)?;
    let component = instance.component();
    let call_tool = component
        .get_export_index(None, "bulkhead:plugin/tools@0.1.0")
        .and_then(|tools| component.get_export_index(Some(&tools), "call-tool"))
        .ok_or_else(|| wasmtime::Error::msg("there is no call-tool"))?;
    let call_tool = CallToolExport { index: call_tool, checked: AtomicBool::new(false) };
    Ok(Tools::Listed { tools, call_tool })
}

/// The function that calls a tool. Nothing but this one is looked up for a call, and its types are compared once: both
/// take longer than many tools.
struct CallToolExport {
    index: ComponentExportIndex,
    /// Whether its types are known to be ours.
    checked: AtomicBool,
}

impl CallToolExport {
    #[expect(
        unsafe_code,
        reason = "its types were checked before, and are those of the component, not of the instance"
    )]
    fn of<'a>(&self, store: &mut Store, instance: &Instance) -> wasmtime::Result<TypedFunc<CallTool<'a>, CalledTool>> {
        if !self.checked.load(Ordering::Acquire) {
            let call = instance.get_typed_func::<CallTool<'a>, CalledTool>(&mut *store, &self.index)?;
            self.checked.store(true, Ordering::Release);
            return Ok(call);
        }
        let func =
            instance.get_func(&mut *store, self.index).ok_or_else(|| wasmtime::Error::msg("there is no call-tool"))?;
        // SAFETY: the types have to be those of the function. The flag is set only after wasmtime itself has found the
        // export of this index to have them. Exports are read from one component for one component: an index of another
        // one is refused by `get_func`, and what an index means, types included, is fixed when a component is compiled.
        Ok(unsafe { TypedFunc::new_unchecked(func) })
    }
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
