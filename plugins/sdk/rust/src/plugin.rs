//! A plugin as a list of what it offers, and a tool as a function with a name.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::bulkhead::plugin::types::{CallError, ResourceContents};
use crate::bindings::completions::{Completion, PartialArgument, Reference};
use crate::bindings::exports::bulkhead::plugin::tools;
use crate::bindings::prompts::{Prompt as PromptInfo, PromptOutput};
use crate::bindings::resources::{ResourcePage, ResourceTemplate as TemplateInfo};
use crate::listing::listed;
use crate::output::{IntoOutput, Output};
use crate::{Prompt, Resource, ResourceTemplate, TaskSupport, complete, input, prompt, resource, schema};

/// What a plugin offers, in the order in which clients see it.
#[derive(Default)]
pub struct Plugin {
    tools: Vec<Tool>,
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
    prompts: Vec<Prompt>,
}

impl Plugin {
    /// A plugin that offers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a resource. The plugin must be exported with resources: `export!(plugin, resources)`.
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self
    }

    /// Adds a family of resources. The plugin must be exported with resources: `export!(plugin, resources)`.
    #[must_use]
    pub fn resource_template(mut self, template: ResourceTemplate) -> Self {
        self.templates.push(template);
        self
    }

    /// Adds a prompt. The plugin must be exported with prompts: `export!(plugin, prompts)`.
    #[must_use]
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        self.prompts.push(prompt);
        self
    }

    /// One page of the resources.
    ///
    /// # Errors
    ///
    /// When the cursor is none of this list.
    pub fn list_resources(&self, cursor: Option<&str>) -> Result<ResourcePage, CallError> {
        resource::page(&self.resources, cursor)
    }

    /// The families of resources.
    #[must_use]
    pub fn list_templates(&self) -> Vec<TemplateInfo> {
        self.templates.iter().map(|template| template.info.clone()).collect()
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// [`CallError::NotFound`] for an unknown URI, else what went wrong.
    pub fn read(&self, uri: &str) -> Result<Vec<ResourceContents>, CallError> {
        resource::read(&self.resources, &self.templates, uri)
    }

    /// The prompts.
    #[must_use]
    pub fn list_prompts(&self) -> Vec<PromptInfo> {
        self.prompts.iter().map(|prompt| prompt.info.clone()).collect()
    }

    /// Fills in a prompt.
    ///
    /// # Errors
    ///
    /// [`CallError::NotFound`] for an unknown name, else what went wrong.
    pub fn get_prompt(&self, name: &str, arguments: Vec<(String, String)>) -> Result<PromptOutput, CallError> {
        prompt::get(&self.prompts, name, arguments)
    }

    /// Suggests values for an argument.
    ///
    /// # Errors
    ///
    /// [`CallError::NotFound`] for an unknown prompt or template.
    pub fn complete(&self, reference: Reference, argument: PartialArgument) -> Result<Completion, CallError> {
        complete::complete(&self.prompts, &self.templates, reference, argument)
    }

    /// What the host asks for at load.
    #[must_use]
    pub fn list(&self) -> Vec<tools::Tool> {
        self.tools.iter().map(Tool::describe).collect()
    }

    /// Runs a tool by name on a JSON object.
    ///
    /// ```
    /// # use bulkhead_plugin::{Plugin, Tool};
    /// let plugin = Plugin::new().tool(Tool::new("pi", "The number.", || "3.14159"));
    /// assert!(!plugin.call("pi", "{}").unwrap().is_error);
    /// assert!(plugin.call("e", "{}").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError::NotFound`] for an unknown name, else the error of the call that the tool returned.
    pub fn call(&self, name: &str, arguments: &str) -> Result<tools::ToolOutput, CallError> {
        let Some(tool) = self.tools.iter().find(|tool| tool.info.name == name) else {
            return Err(CallError::NotFound(format!("there is no tool {name}")));
        };
        (tool.run)(arguments).map(Into::into)
    }
}

/// A function that can be a tool: no argument or one, and a result that [`IntoOutput`] knows.
///
/// The one argument is the type of the whole arguments object. `Marker` tells the two shapes apart and is always
/// inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a tool",
    note = "its one parameter, where it has any, is the type of the whole arguments object, with `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "it returns `String`, `&'static str`, `()`, `Output`, `Json<T>` with `#[derive(serde::Serialize, schemars::JsonSchema)]` on `T`, or a `Result` of one of these with `Error`"
)]
pub trait Handler<Marker>: 'static {
    /// The JSON Schema of the arguments.
    fn input_schema() -> Value;
    /// The JSON Schema of the structured result, if there is one.
    fn output_schema() -> Option<Value>;
    /// Runs the function on a JSON object.
    ///
    /// # Errors
    ///
    /// Those of the call itself.
    fn run(&self, arguments: &str) -> Result<Output, CallError>;
}

impl<F, R> Handler<fn() -> R> for F
where
    F: Fn() -> R + 'static,
    R: IntoOutput,
{
    fn input_schema() -> Value {
        schema::no_arguments()
    }

    fn output_schema() -> Option<Value> {
        R::output_schema()
    }

    fn run(&self, _arguments: &str) -> Result<Output, CallError> {
        self().into_output()
    }
}

impl<F, A, R> Handler<fn(A) -> R> for F
where
    F: Fn(A) -> R + 'static,
    A: DeserializeOwned + JsonSchema,
    R: IntoOutput,
{
    fn input_schema() -> Value {
        schema::of_arguments::<A>()
    }

    fn output_schema() -> Option<Value> {
        R::output_schema()
    }

    fn run(&self, arguments: &str) -> Result<Output, CallError> {
        match input::read(arguments) {
            Ok(arguments) => self(arguments).into_output(),
            // The host has checked the schema, so this is what a schema cannot say; the model can still correct it.
            Err(error) => Ok(Output::text(format!("these arguments do not fit: {error}")).failed()),
        }
    }
}

type Run = Box<dyn Fn(&str) -> Result<Output, CallError>>;

/// One tool: a name, a description, a function, and hints for clients.
pub struct Tool {
    info: tools::Tool,
    input_schema: fn() -> Value,
    /// Said in place of the type's own.
    said_schema: Option<Value>,
    output_schema: fn() -> Option<Value>,
    run: Run,
}

impl Tool {
    /// A tool that runs `handler`.
    ///
    /// The name is 1 to 64 characters of `[A-Za-z0-9_.-]`. The description is what a model reads to decide whether to
    /// call the tool: say what it does and what comes back. The tool is plain until
    /// [`task_optional`](Tool::task_optional) or [`task_required`](Tool::task_required) say otherwise.
    pub fn new<Marker, H: Handler<Marker>>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: H,
    ) -> Self {
        let info = tools::Tool {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: String::new(),
            output_schema: None,
            annotations: None,
            task_support: TaskSupport::Forbidden,
            icons: Vec::new(),
            meta: Vec::new(),
        };
        Self {
            info,
            input_schema: H::input_schema,
            said_schema: None,
            output_schema: H::output_schema,
            run: Box::new(move |arguments| handler.run(arguments)),
        }
    }

    /// Says what clients may send in place of the schema that the arguments' type has. The host checks arguments
    /// against it, so the type must take whatever it allows.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.said_schema = Some(schema);
        self
    }

    /// Clients that know MCP Apps show the view with this URI for the tool's results; see [`App`](crate::App). The
    /// result says the same in text, for the model and for every other client.
    #[must_use]
    pub fn view(self, uri: &str) -> Self {
        self.meta("ui", &serde_json::json!({ "resourceUri": uri }))
    }

    /// Only views call the tool: a model does not see it.
    #[must_use]
    pub fn for_views_only(self) -> Self {
        self.meta("ui", &serde_json::json!({ "visibility": ["app"] }))
    }

    /// A call may become a task: the client or the host decides. For everything that may take longer than a second.
    #[must_use]
    pub fn task_optional(mut self) -> Self {
        self.info.task_support = TaskSupport::Optional;
        self
    }

    /// The tool only runs as a task.
    #[must_use]
    pub fn task_required(mut self) -> Self {
        self.info.task_support = TaskSupport::Required;
        self
    }

    /// Hint: the tool changes nothing.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.hint(|hints| hints.read_only_hint = Some(true))
    }

    /// Hint: a second call with the same arguments changes nothing more. Only with this hint may the host run a call
    /// again after a restart, and only where the operator allows it.
    #[must_use]
    pub fn idempotent(self) -> Self {
        self.hint(|hints| hints.idempotent_hint = Some(true))
    }

    /// Hint: whether the tool may delete or overwrite something. Clients assume so unless told.
    #[must_use]
    pub fn destructive(self, destructive: bool) -> Self {
        self.hint(|hints| hints.destructive_hint = Some(destructive))
    }

    /// Hint: whether the tool deals with an open set of outside things, as a web search does. Clients assume so unless
    /// told.
    #[must_use]
    pub fn open_world(self, open: bool) -> Self {
        self.hint(|hints| hints.open_world_hint = Some(open))
    }

    fn hint(mut self, set: impl FnOnce(&mut tools::ToolAnnotations)) -> Self {
        set(self.info.annotations.get_or_insert(tools::ToolAnnotations {
            title: None,
            read_only_hint: None,
            destructive_hint: None,
            idempotent_hint: None,
            open_world_hint: None,
        }));
        self
    }

    fn describe(&self) -> tools::Tool {
        let mut info = self.info.clone();
        info.input_schema = self.said_schema.clone().unwrap_or_else(self.input_schema).to_string();
        info.output_schema = (self.output_schema)().map(|schema| schema.to_string());
        info
    }
}

listed!(Tool);
