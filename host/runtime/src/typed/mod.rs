//! Typed mode: a component that does not know us, each of whose functions is a tool.
//!
//! Owns everything between a component's exported functions and the tools that clients see: names, schemas,
//! descriptions, and the conversion of arguments and results. The sandbox around a call is the same as for every
//! plugin. Invariant: a function of the author's is a tool, or is left out with a reason that operators can read; and a
//! function's tool depends on the component alone, descriptions apart.

mod docs;
mod elsewhere;
mod glossary;
mod names;
mod schema;
mod shape;
#[cfg(test)]
pub(super) mod tests;
mod value;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, Instance, Val};

pub use self::docs::wit_file;
use self::docs::{Docs, plain};
use self::glossary::Glossary;
use self::names::Export;
use self::schema::{ERROR, RESULT};
use self::shape::{Field, Reader, Returns, Shape};
use super::bindings::bulkhead::plugin::types as wit;
use super::bindings::exports::bulkhead::plugin::tools;
use super::call::Call;
use super::declared::base_names;
use super::plugin_source::ToolPolicy;
use super::trap_causes::HostFailure;
use bulkhead_domain::exports::{of_function, of_parameter, of_result};
use bulkhead_domain::text::{beginning, escaped};

/// Interfaces of this package make a component one of ours.
pub(super) const OUR_PACKAGE: &str = "bulkhead:plugin/";

/// Instances inside of instances. WIT has one level.
const NESTING_MAX: usize = 4;

/// Bytes of a description; a longer one ends there.
const DESCRIPTION_BYTES_MAX: usize = 8 << 10;

/// Bytes of a schema with descriptions in it. Stops documentation that keeps a model from reading the rest.
const DESCRIBED_BYTES_MAX: usize = 64 << 10;

/// The functions of one component.
pub(super) struct Functions {
    functions: Vec<Function>,
    /// Those that cannot be tools, each with the reason.
    left_out: Vec<String>,
    glossary: Glossary,
}

/// One function with all that a call of it needs.
struct Function {
    /// The tool's.
    name: String,
    description: String,
    index: ComponentExportIndex,
    parameters: Vec<Field>,
    returns: Returns,
}

/// A function as it was found.
struct ExportedFunction {
    export: Export,
    index: ComponentExportIndex,
    ty: ComponentFunc,
}

impl Functions {
    /// The functions of a component that exports no interface of ours.
    ///
    /// # Errors
    ///
    /// Every function that cannot be a tool, each with the reason, if none can be.
    pub(super) fn find(component: &Component, bytes: &[u8], wit_file: Option<&Path>) -> Result<Self, Vec<String>> {
        let found = collect(component);
        if found.is_empty() {
            let ty = component.component_type();
            return Err(vec![escaped(&elsewhere::why_no_tools(ty.exports(component.engine()).map(|(name, _)| name)))]);
        }
        let docs = Docs::of(bytes, wit_file);
        let mut left_out = Vec::new();
        let exports: Vec<_> = found.iter().map(|found| found.export.clone()).collect();
        let names = names::of(&exports);
        let functions = found.into_iter().zip(names).filter_map(|(found, name)| {
            let read = found.read(name, &docs);
            read.map_err(|wrong| left_out.extend(wrong)).ok()
        });
        let functions: Vec<_> = functions.collect();
        if functions.is_empty() {
            return Err(left_out);
        }
        Ok(Self { functions, left_out, glossary: Glossary::of(component, &docs) })
    }

    /// What is no tool, and why.
    pub(super) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// The functions as tools. How long they run is unknown, so they may become tasks; the operator may narrow that.
    pub(super) fn tools(&self) -> Vec<tools::Tool> {
        let tool = |function: &Function| tools::Tool {
            name: function.name.clone(),
            title: None,
            description: function.description.clone(),
            input_schema: self.described(|glossary| schema::input(&function.parameters, glossary)),
            output_schema: Some(self.described(|glossary| schema::output(&function.returns, glossary))),
            annotations: None,
            task_support: tools::TaskSupport::Optional,
            icons: Vec::new(),
            meta: Vec::new(),
        };
        self.functions.iter().map(tool).collect()
    }

    /// A schema with the author's words in it, unless they make it too long.
    fn described(&self, schema: impl Fn(&Glossary) -> Value) -> String {
        let described = schema(&self.glossary).to_string();
        if described.len() <= DESCRIBED_BYTES_MAX { described } else { schema(&Glossary::default()).to_string() }
    }

    /// Calls the function behind a tool.
    pub(super) async fn call(
        &self,
        store: &mut wasmtime::Store<Call>,
        instance: &Instance,
        tool: &str,
        arguments: &str,
    ) -> wasmtime::Result<Result<tools::ToolOutput, wit::CallError>> {
        let Some(function) = self.functions.iter().find(|function| function.name == tool) else {
            return Ok(Err(wit::CallError::NotFound("this version of the plugin has no such function".to_owned())));
        };
        let arguments: Value = match serde_json::from_str(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(Err(wit::CallError::InvalidParams(format!("arguments: {error}")))),
        };
        let values = match value::arguments(&function.parameters, &arguments) {
            Ok(values) => values,
            // Like arguments that do not fit the schema: an answer that a model can read and react to.
            Err(argument_error) => {
                return Ok(Ok(said(format!("The arguments do not fit the types of the function: {argument_error}"))));
            }
        };
        drop(arguments);
        let guest = instance
            .get_func(&mut *store, function.index)
            .ok_or_else(|| HostFailure(format!("the function of tool {tool} is not in the instance")))?;
        let mut results = match function.returns {
            Returns::Nothing => Vec::new(),
            _ => vec![Val::Bool(false)],
        };
        guest.call_async(store, &values, &mut results).await?;
        let output = function
            .output(results.first())
            .ok_or_else(|| HostFailure(format!("the result of tool {tool} is not of its type")))?;
        Ok(Ok(output))
    }
}

/// Whether a component is meant for this host, so that it is either a plugin of our world or wrong.
pub(super) fn is_ours(component: &Component) -> bool {
    component.component_type().exports(component.engine()).any(|(name, _)| name.starts_with(OUR_PACKAGE))
}

/// Whether a component exports functions of its author's.
pub(super) fn has_functions(component: &Component) -> bool {
    !collect(component).is_empty()
}

/// Puts the operator's words in the place of those that were found.
pub(super) fn present(tools: &mut [tools::Tool], policies: &BTreeMap<String, ToolPolicy>) {
    let names = base_names(tools);
    for (tool, name) in tools.iter_mut().zip(names) {
        let Some(ToolPolicy { presentation, .. }) = policies.get(&name) else { continue };
        tool.title.clone_from(&presentation.title);
        if let Some(description) = &presentation.description {
            tool.description.clone_from(description);
        }
        tool.annotations = presentation.annotations.as_ref().map(|hints| tools::ToolAnnotations {
            title: hints.title.clone(),
            read_only_hint: hints.read_only,
            destructive_hint: hints.destructive,
            idempotent_hint: hints.idempotent,
            open_world_hint: hints.open_world,
        });
    }
}

/// Finds the author's functions at the root and in instances, in the component's order.
fn collect(component: &Component) -> Vec<ExportedFunction> {
    let engine = component.engine();
    let mut found = Vec::new();
    let names = component.component_type().exports(engine).map(|(name, _)| name.to_owned()).collect();
    collect_from(component, None, names, &mut found, 0);
    found
}

fn collect_from(
    component: &Component,
    within: Option<(&str, &ComponentExportIndex)>,
    names: Vec<String>,
    found: &mut Vec<ExportedFunction>,
    depth: usize,
) {
    for name in names {
        let Some((item, index)) = component.get_export(within.map(|(_, index)| index), name.as_str()) else { continue };
        match item {
            ComponentItem::ComponentFunc(ty) => {
                let export = Export { interface: within.map(|(interface, _)| interface.to_owned()), function: name };
                found.push(ExportedFunction { export, index, ty });
            }
            ComponentItem::ComponentInstance(ty) if depth == 0 && elsewhere::holds(component.engine(), &name, &ty) => {}
            ComponentItem::ComponentInstance(ty) if depth < NESTING_MAX => {
                let inner = ty.exports(component.engine()).map(|(name, _)| name.to_owned()).collect();
                let interface = within.map_or_else(|| name.clone(), |(outer, _)| format!("{outer}/{name}"));
                collect_from(component, Some((&interface, &index)), inner, found, depth + 1);
            }
            _ => {}
        }
    }
}

impl ExportedFunction {
    /// The function, or everything that keeps it from being a tool.
    fn read(self, name: String, docs: &Docs) -> Result<Function, Vec<String>> {
        let Self { export, index, ty } = self;
        let mut problems = Vec::new();
        let mut reader = Reader::new();
        let mut parameters = Vec::new();
        for (name, ty) in ty.params() {
            match shape::name(name).and_then(|name| Ok(Field { name, shape: reader.shape(&ty)? })) {
                Ok(parameter) => parameters.push(parameter),
                Err(wrong) => problems.push(of_parameter(beginning(name, shape::NAME_BYTES_MAX), wrong)),
            }
        }
        let returns = reader.returns(ty.results().next().as_ref()).map_err(|wrong| problems.push(of_result(wrong)));
        match returns {
            Ok(returns) if problems.is_empty() => {
                let written = docs.find(&export).map(plain);
                let description = written.unwrap_or_else(|| words::describe(&export, &parameters, &returns));
                let description = beginning(&description, DESCRIPTION_BYTES_MAX).to_owned();
                Ok(Function { name, description, index, parameters, returns })
            }
            _ => {
                let shown = escaped(&export.to_string());
                Err(problems.into_iter().map(|problem| of_function(&shown, problem)).collect())
            }
        }
    }
}

impl Function {
    /// What the call gave back, as a tool's output. `None`: not a value of the function's type.
    fn output(&self, result: Option<&Val>) -> Option<tools::ToolOutput> {
        match (&self.returns, result) {
            (Returns::Nothing, None) => Some(output(Value::Object(Map::new()), false)),
            (Returns::Value(shape), Some(value)) => success(Some(shape), Some(value)),
            (Returns::Fallible { ok, .. }, Some(Val::Result(Ok(value)))) => success(ok.as_ref(), value.as_deref()),
            (Returns::Fallible { error, .. }, Some(Val::Result(Err(value)))) => {
                failure(error.as_ref(), value.as_deref())
            }
            _ => None,
        }
    }
}

fn success(shape: Option<&Shape>, value: Option<&Val>) -> Option<tools::ToolOutput> {
    let structured = match (shape, value) {
        (None, None) => Value::Object(Map::new()),
        (Some(shape @ Shape::Record(_)), Some(value)) => value::write(shape, value)?,
        (Some(shape), Some(value)) => member(RESULT, value::write(shape, value)?),
        _ => return None,
    };
    Some(output(structured, false))
}

fn failure(shape: Option<&Shape>, value: Option<&Val>) -> Option<tools::ToolOutput> {
    match (shape, value) {
        (None, None) => Some(said("The function failed and did not say why.")),
        (Some(shape), Some(value)) => Some(output(member(ERROR, value::write(shape, value)?), true)),
        _ => None,
    }
}

fn member(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

fn output(structured: Value, is_error: bool) -> tools::ToolOutput {
    tools::ToolOutput { content: Vec::new(), structured: Some(structured.to_string()), is_error, meta: Vec::new() }
}

/// A failure in words alone.
fn said(text: impl Into<String>) -> tools::ToolOutput {
    let text = wit::TextContent { text: text.into(), annotations: None, meta: Vec::new() };
    let content = vec![wit::Content::Text(text)];
    tools::ToolOutput { content, structured: None, is_error: true, meta: Vec::new() }
}
