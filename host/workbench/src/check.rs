//! `bulkhead plugin check`: what a host refuses in a component, what can never work, and what its users would miss.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bulkhead_assembly::{compile_cache, host, sources};
use bulkhead_author_cli::{CheckArguments, EXIT_FAILED, EXIT_REFUSED};
use bulkhead_config::Flags;
use bulkhead_console::{logging, print_line, progress};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::tool::Tool;
use bulkhead_domain::tool_names::{PORTABLE_NAME_CHARS_MAX, refusal, underscored};
use bulkhead_runtime::inspect::Inspection;
use serde_json::{Value, json};

use super::app_views;
use super::durability::PluginDurability;
use super::inspect::{server_json, server_lines, wrong_integers};

/// Bytes of a description that a model reads at every turn.
const DESCRIPTION_LONG: usize = 2048;
/// Keywords of JSON Schema that say nothing about an object. At the root they show that the arguments were thought of
/// as one value.
const NOT_OF_OBJECTS: [&str; 14] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
];

/// What came out.
struct Report {
    name: String,
    facts: Option<(Inspection, PluginDurability)>,
    load_ms: u128,
    refused: Vec<String>,
    found: Findings,
}

/// What is wrong with a component that a host takes.
#[derive(Default)]
struct Findings {
    /// What can never work.
    errors: Vec<String>,
    warnings: Vec<String>,
}

pub(super) async fn run(arguments: CheckArguments) -> anyhow::Result<ExitCode> {
    logging::start_for_a_person();
    sources::require_file(&arguments.file)?;
    let report = look(&arguments.file).await?;
    if arguments.json {
        print_line(serde_json::to_string_pretty(&as_json(&report))?);
    } else {
        print_line(as_text(&report));
    }
    Ok(if !report.refused.is_empty() {
        ExitCode::from(EXIT_REFUSED)
    } else if !report.found.errors.is_empty() || arguments.strict && !report.found.warnings.is_empty() {
        ExitCode::from(EXIT_FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

async fn look(file: &Path) -> anyhow::Result<Report> {
    let config = sources::load(None, &Flags::default())?;
    let scratch = tempfile::tempdir()?;
    let sandbox = host::sandbox(&config, scratch.path(), compile_cache::of_user(), None)?;
    let source = || sources::bare_source(file, config.call.clone());
    let begin = Instant::now();
    let what = format!("compiling {}", file.display());
    let inspection = match progress::during(&what, sandbox.inspect(source())).await {
        Ok(inspection) => inspection,
        Err(error) => {
            let load_ms = begin.elapsed().as_millis();
            let name = error.plugin;
            let refused = error.problems;
            return Ok(Report { name, facts: None, load_ms, refused, found: Findings::default() });
        }
    };
    let load_ms = begin.elapsed().as_millis();
    let mut found = Findings { errors: Vec::new(), warnings: of_manifest(&inspection, &config.call) };
    found.warnings.extend(inspection.left_out.iter().map(|function| bulkhead_author::check::left_out(function)));
    if offers_nothing(&inspection) {
        found.errors.push("it offers no tool, no prompt and no resource".to_owned());
    }
    of_tools(&inspection.tools, &mut found);
    let input_schemas =
        inspection.tools.iter().filter_map(|tool| serde_json::from_str(tool.input_schema.as_str()).ok());
    if inspection.typed && input_schemas.into_iter().any(|schema: Value| !undescribed(&schema).is_empty()) {
        found.warnings.push(format!(
            "a component itself has no descriptions: put its WIT beside it as {}, or into it with `bulkhead plugin wrap --wit`",
            file.with_extension("wit").display()
        ));
    }
    found.warnings.extend(of_names(&inspection.own_names, &inspection.tools, inspection.typed));
    found.warnings.extend(app_views::warnings(&inspection.tools, &inspection.resources, &inspection.templates));
    found.warnings.extend(wrong_integers(&inspection, file)?);
    // The second time compiles nothing; what differs differs by itself.
    let again = sandbox.inspect(source()).await;
    if !again.is_ok_and(|again| format!("{:?}", again.tools) == format!("{:?}", inspection.tools)) {
        found
            .warnings
            .push("list-tools says something else each time: clients see a list that changes at every load".to_owned());
    }
    let name = inspection.name.clone();
    let durable = PluginDurability::of(&inspection, None, &config);
    Ok(Report { name, facts: Some((inspection, durable)), load_ms, refused: Vec::new(), found })
}

/// Resources may be there with grants only, so a component that exports them is taken at its word.
fn offers_nothing(inspection: &Inspection) -> bool {
    let Inspection { tools, prompts, templates, resources, exports, .. } = inspection;
    let exports_resources = exports.iter().any(|export| export.starts_with("bulkhead:plugin/resources@"));
    tools.is_empty() && prompts.is_empty() && templates.is_empty() && resources.is_empty() && !exports_resources
}

fn of_manifest(inspection: &Inspection, defaults: &CallLimits) -> Vec<String> {
    let text = inspection.manifest.as_ref().map(|manifest| manifest.text.as_str());
    let mut warnings = bulkhead_author::check::manifest_warnings(text, &inspection.imports);
    let table = text.and_then(|text| text.parse::<toml::Table>().ok());
    let call = table.as_ref().and_then(|table| table.get("call")).and_then(toml::Value::as_table);
    for (key, default) in limits(defaults) {
        if let Some(wanted) = call.and_then(|call| call.get(key)).and_then(toml::Value::as_integer)
            && u64::try_from(wanted).is_ok_and(|wanted| wanted > default)
        {
            warnings.push(format!(
                "the manifest wants call.{key} = {wanted}; the default is {default}, so operators must raise it for this plugin"
            ));
        }
    }
    warnings
}

/// What a manifest may wish for, with the defaults.
fn limits(defaults: &CallLimits) -> [(&'static str, u64); 7] {
    [
        ("cpu_ms", defaults.cpu_ms),
        ("wall_ms", defaults.wall_ms),
        ("memory_bytes", defaults.memory_bytes),
        ("arguments_bytes", defaults.arguments_bytes),
        ("result_bytes", defaults.result_bytes),
        ("log_bytes", defaults.log_bytes),
        ("events_per_second", defaults.events_per_second.into()),
    ]
}

/// Names that clients refuse, so that they see others. That of a function is made of its interface's: it has dots
/// whatever its author does.
fn of_names(own_names: &[String], tools: &[Tool], typed: bool) -> Vec<String> {
    let tools = own_names.iter().zip(tools);
    let other = tools.filter(|(own, tool)| match typed {
        true => tool.name != underscored(own),
        false => tool.name != **own,
    });
    let described = |(own, tool): (&String, &Tool)| {
        let why = refusal(own, PORTABLE_NAME_CHARS_MAX).unwrap_or_else(|| "another has it".to_owned());
        format!("tool {own}: some clients refuse its name, so that they see {}: {why}", tool.name)
    };
    other.map(described).collect()
}

fn of_tools(tools: &[Tool], found: &mut Findings) {
    if tools.is_empty() {
        found.warnings.push("it offers no tool".to_owned());
    }
    for tool in tools {
        let mut warn = |text: String| found.warnings.push(format!("tool {}: {text}", tool.name));
        if tool.description.trim().is_empty() {
            warn("it has no description: a model cannot know when to call it".to_owned());
        }
        if tool.description.len() > DESCRIPTION_LONG {
            warn(format!("its description has {} bytes, which a model reads at every turn", tool.description.len()));
        }
        let hints = tool.annotations.as_ref();
        if hints.is_none_or(|hints| hints.read_only.is_none() && hints.destructive.is_none()) {
            warn(
                "it does not say whether it changes anything (read-only, destructive): clients assume the worst"
                    .to_owned(),
            );
        }
        let Ok(schema) = serde_json::from_str::<Value>(tool.input_schema.as_str()) else { continue };
        of_schema(&schema, &mut warn);
        // Of what has a form that means the same, clients are listed that.
        bulkhead_calls::schema::refusals(&schema)
            .into_iter()
            .for_each(|refused| warn(format!("its input schema has {refused}")));
        let why_never = why_never_called(&schema);
        found.errors.extend(why_never.map(|why| format!("tool {}: no call of it can succeed: {why}", tool.name)));
    }
}

/// A member that has to be there and must not be.
fn why_never_called(schema: &Value) -> Option<String> {
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    if !is_closed || schema.get("patternProperties").is_some() {
        return None;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let name = required.find(|name| properties.is_none_or(|properties| !properties.contains_key(*name)))?;
    Some(format!("its input schema requires {name}, has no property {name}, and allows no additional properties"))
}

/// The members of an input schema that say nothing of what they are for.
fn undescribed(schema: &Value) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let is_undescribed = |(_, property): &(&String, &Value)| property.get("description").is_none();
    properties.filter(is_undescribed).map(|(name, _)| name.as_str()).collect()
}

fn of_schema(schema: &Value, warn: &mut impl FnMut(String)) {
    let keywords: Vec<_> = NOT_OF_OBJECTS.into_iter().filter(|keyword| schema.get(keyword).is_some()).collect();
    if !keywords.is_empty() {
        warn(format!(
            "its input schema says {}, which means nothing for an object: the arguments are one object, with a member for each",
            keywords.join(", ")
        ));
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let undescribed = undescribed(schema);
    if !undescribed.is_empty() {
        warn(format!("no description of {}", undescribed.join(", ")));
    }
    let required = schema.get("required").and_then(Value::as_array);
    let stray = required.into_iter().flatten().filter_map(Value::as_str).find(|name| !properties.contains_key(*name));
    if let Some(name) = stray {
        warn(format!("{name} is required, but no property"));
    }
}

fn as_json(report: &Report) -> Value {
    let facts = report.facts.as_ref().map(|(facts, _)| facts);
    json!({
        "name": report.name,
        "sha256": facts.map(|facts| &facts.digest),
        "bytes": facts.map(|facts| facts.size),
        "tools": facts.map(|facts| facts.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>()),
        "mcp": facts.and_then(|facts| facts.mcp.as_ref()).map(server_json),
        "durable": report.facts.as_ref().map(|(_, durable)| durable.as_json()),
        "loadMs": u64::try_from(report.load_ms).unwrap_or(u64::MAX),
        "refused": report.refused,
        "errors": report.found.errors,
        "warnings": report.found.warnings,
    })
}

fn as_text(report: &Report) -> String {
    let mut lines = Vec::new();
    lines.extend(report.refused.iter().map(|problem| format!("refused: {problem}")));
    lines.extend(report.found.errors.iter().map(|error| format!("error: {error}")));
    lines.extend(report.found.warnings.iter().map(|warning| format!("warning: {warning}")));
    match &report.facts {
        Some((facts, durable)) => {
            lines.extend(durable.as_lines().into_iter().map(|line| format!("durable: {line}")));
            lines.extend(facts.mcp.iter().flat_map(server_lines).map(|line| format!("mcp: {line}")));
            lines.push(format!(
                "{}: a host takes it: {} tools, {} bytes, loaded in {} ms, {} errors, {} warnings",
                report.name,
                facts.tools.len(),
                facts.size,
                report.load_ms,
                report.found.errors.len(),
                report.found.warnings.len()
            ));
        }
        None => lines.push(format!("{}: a host refuses it", report.name)),
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::Json;

    use super::*;

    fn found(schema: &Value) -> Findings {
        let tool = Tool { input_schema: Json::new(schema.to_string()), ..Tool::sample("greet") };
        let mut found = Findings::default();
        of_tools(&[tool], &mut found);
        found
    }

    #[test]
    fn uncallable_tool_schema_is_an_error() {
        let closed = json!({"type": "object", "required": ["name"], "additionalProperties": false});
        assert_eq!(
            found(&closed).errors,
            [
                "tool greet: no call of it can succeed: its input schema requires name, has no property name, and allows no \
              additional properties"
            ]
        );
        for callable in [
            json!({"type": "object", "required": ["name"]}),
            json!({"type": "object", "required": ["name"], "additionalProperties": false, "properties": {"name": {}}}),
            json!({"type": "object", "required": ["name"], "additionalProperties": false, "patternProperties": {"^n": {}}}),
            json!({"type": "object", "additionalProperties": false}),
        ] {
            assert_eq!(found(&callable).errors, Vec::<String>::new(), "{callable}");
        }
    }

    #[test]
    fn tool_names_that_clients_refuse_are_warned() {
        let long = "x".repeat(70);
        let own = ["a.b", "a_b", "greet", "c.d", &long].map(str::to_owned);
        let shown = bulkhead_domain::tool_names::portable(&own.each_ref().map(String::as_str));
        let tools: Vec<_> = shown.iter().map(|name| Tool::sample(name)).collect();
        let begin = |warnings: Vec<String>| {
            warnings.iter().map(|warning| warning.split(':').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(begin(of_names(&own, &tools, false)), ["tool a.b", "tool c.d", &format!("tool {long}")]);
        assert_eq!(
            begin(of_names(&own, &tools, true)),
            ["tool a.b", &format!("tool {long}")],
            "dots of functions are nobody's choice"
        );
        let clash = of_names(&own, &tools, false).remove(0);
        assert!(clash.contains("so that they see a_b-"), "{clash}");
    }

    #[test]
    fn schemas_that_model_interfaces_refuse_are_warned() {
        let warnings =
            found(&json!({"type": "object", "properties": {}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}))
                .warnings;
        assert!(
            warnings
                .iter()
                .any(|warning| warning.contains("at the top (at the root), which Anthropic and OpenAI refuse")),
            "{warnings:?}"
        );
    }

    #[test]
    fn schema_keywords_meaningless_for_objects_are_warned() {
        let warns = |schema: Value| {
            found(&schema).warnings.iter().any(|warning| warning.contains("which means nothing for an object"))
        };
        assert!(warns(json!({"type": "object", "minimum": 0, "additionalProperties": false})));
        assert!(warns(json!({"type": "object", "items": {"type": "string"}})));
        assert!(!warns(json!({"type": "object", "properties": {"n": {"minimum": 0}}})));
    }
}
