//! `bulkhead plugin inspect`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_assembly::{compile_cache, host, sources};
use bulkhead_author_cli::EXIT_REFUSED;
use bulkhead_config::{ConfigLocation, Flags, PluginConfig};
use bulkhead_console::{logging, print_error, print_line, progress};
use bulkhead_domain::imports::grant_hint;
use bulkhead_domain::server_features::{Described, Prompt, PromptArgument};
use bulkhead_domain::text::on_terminal;
use bulkhead_protocol::{prompt_json, resource_json, template_json, tool_json};
use bulkhead_runtime::inspect::Inspection;
use bulkhead_runtime::{LoadError, McpServer, Presentation};
use clap::Args;
use serde_json::{Value, json};

use super::durability::PluginDurability;
use super::grants::Table;
use super::input_answers::plain;

/// Show a component's tools, schemas, imports, wishes, digest and size.
///
/// The component is loaded as a host would load it, and everything wrong with it is reported. Exit code 4: a host would
/// refuse it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin inspect target/plugins/csv.wasm")]
pub struct InspectArguments {
    /// The component
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show what the [[plugin]] with this FILE or the plugin's name grants, and what tenants are left of it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

pub async fn run(arguments: InspectArguments) -> anyhow::Result<ExitCode> {
    logging::start_for_a_person();
    sources::require_file(&arguments.file)?;
    let flags = Flags { plugins: vec![arguments.file.clone()], ..Flags::default() };
    let config = sources::load(arguments.config.as_deref(), &flags)?;
    let scratch = tempfile::tempdir()?;
    let sandbox = host::sandbox(&config, scratch.path(), compile_cache::of_user(), None)?;
    let of_file = |plugin: &&PluginConfig| plugin.pinned && plugin.location != ConfigLocation::Flag("--plugin");
    let mut source = match sources::bare_component(&arguments.file, &config, &sandbox).await? {
        Ok(source) => source,
        Err(error) => return Ok(refuse(&error)),
    };
    if let Some(entry) = config.plugins.iter().find(of_file) {
        source.wasi = entry.policy.source.wasi;
        source.mcp = entry.policy.source.mcp.clone();
    }
    let inspecting = sandbox.inspect(source);
    let what = format!("compiling {}", arguments.file.display());
    let inspected = progress::during(&what, inspecting).await;
    match inspected {
        Ok(inspection) => {
            // The component may be configured under its name, from another place.
            let of_name = |plugin: &&PluginConfig| plugin.name() == Some(&inspection.name);
            let mut plugins = config.plugins.iter();
            let entry = plugins.clone().find(of_file).or_else(|| plugins.find(of_name));
            let table = Table::new(&inspection, entry, &config);
            let durable = PluginDurability::of(&inspection, entry, &config);
            let mut value = describe(&inspection)?;
            let warnings = wrong_integers(&inspection, &arguments.file)?;
            if let Some(members) = value.as_object_mut() {
                if !warnings.is_empty() {
                    members.insert("warnings".to_owned(), json!(warnings));
                }
                members.insert("grants".to_owned(), table.as_json());
                members.insert("durable".to_owned(), durable.as_json());
                let tools = members.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten();
                let named = inspection.tools.iter().zip(&inspection.own_names);
                for ((tool, own), shown) in named.zip(tools) {
                    if let Some(shown) = shown.as_object_mut().filter(|_| *own != tool.name) {
                        shown.insert("ownName".to_owned(), json!(own));
                    }
                    present(shown, entry, &tool.name);
                }
            }
            if arguments.json {
                print_line(serde_json::to_string_pretty(&value)?)
            } else {
                for warning in &warnings {
                    print_error(format_args!("warning: {warning}"));
                }
                print_line(text(&inspection, &value, &table, &durable))
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Ok(refuse(&error)),
    }
}

/// The places where integers of typed functions arrive as others than were sent.
pub(super) fn wrong_integers(inspection: &Inspection, file: &Path) -> anyhow::Result<Vec<String>> {
    if !inspection.typed {
        return Ok(Vec::new());
    }
    Ok(bulkhead_author::check::wrong_integers(&std::fs::read(file)?))
}

/// Adds what the configuration says of a tool, if it says how clients see it.
fn present(shown: &mut Value, entry: Option<&PluginConfig>, tool: &str) {
    let policy = entry.and_then(|entry| entry.policy.source.tools.get(tool));
    let (Some(shown), Some(policy)) = (shown.as_object_mut(), policy) else { return };
    let Presentation { title, description, .. } = &policy.presentation;
    let texts = [("name", &policy.name), ("title", title), ("description", description)];
    let given = texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), json!(text.as_ref()?))));
    let hidden = policy.hidden.then(|| ("hidden".to_owned(), json!(true)));
    let configured: serde_json::Map<_, _> = given.chain(hidden).collect();
    if !configured.is_empty() {
        shown.insert("configured".to_owned(), Value::Object(configured));
    }
}

/// Says everything that is wrong with a component.
pub(super) fn refuse(error: &LoadError) -> ExitCode {
    for problem in &error.problems {
        print_error(format_args!("plugin {}: {problem}", error.plugin));
    }
    ExitCode::from(EXIT_REFUSED)
}

fn describe(inspection: &Inspection) -> anyhow::Result<Value> {
    let tools = inspection.tools.iter().map(tool_json).collect::<Result<Vec<_>, _>>()?;
    let prompts = inspection.prompts.iter().map(prompt_json).collect::<Result<Vec<_>, _>>()?;
    let resources = inspection.resources.iter().map(resource_json).collect::<Result<Vec<_>, _>>()?;
    let templates = inspection.templates.iter().map(template_json).collect::<Result<Vec<_>, _>>()?;
    let manifest: Option<toml::Table> = match &inspection.manifest {
        Some(manifest) => Some(toml::from_str(&manifest.text)?),
        None => None,
    };
    let usable: Vec<_> = inspection
        .usable_grants
        .iter()
        .map(|(grant, import)| json!({"grant": grant.key(), "import": import}))
        .collect();
    let value = json!({
        "name": inspection.name,
        "sha256": inspection.digest,
        "bytes": inspection.size,
        "imports": inspection.imports,
        "exports": inspection.exports,
        "typed": inspection.typed,
        "manifest": manifest,
        "tools": tools,
        "prompts": prompts,
        "resources": resources,
        "resourceTemplates": templates,
    });
    // Where there are any: what is said of other components stays as it was.
    let server = inspection.mcp.iter().map(server_json).map(|server| ("mcp", server));
    let more = [("leftOut", json!(inspection.left_out)), ("usableGrants", json!(usable))]
        .into_iter()
        .filter(|(_, list)| *list != json!([]))
        .chain(server);
    let members = value.as_object().cloned().unwrap_or_default().into_iter();
    Ok(members.chain(more.map(|(name, list)| (name.to_owned(), list))).collect())
}

/// What was found out about an MCP server.
pub(super) fn server_json(server: &McpServer) -> Value {
    let McpServer { era, path, server, dropped, .. } = server;
    json!({"revision": era.revision(), "path": path, "server": server, "dropped": dropped})
}

/// The same in lines: where it is, and what it says that no client sees.
pub(super) fn server_lines(server: &McpServer) -> Vec<String> {
    let McpServer { era, path, server, dropped, .. } = server;
    let name = server.as_ref().map(|name| format!(", {}", plain(name))).unwrap_or_default();
    let dropped = dropped.iter().map(|dropped| format!("dropped: {}", plain(dropped)));
    let address = path.as_ref().map_or_else(|| "over standard input".to_owned(), |path| format!("at {path}"));
    std::iter::once(format!("server of {} {address}{name}", era.revision())).chain(dropped).collect()
}

/// What it is for comes first, what it needs for that after it.
fn text(inspection: &Inspection, value: &Value, table: &Table, durable: &PluginDurability) -> String {
    let mut lines = vec![
        format!("name     {}", inspection.name),
        format!("sha256   {}", inspection.digest),
        format!("bytes    {}", inspection.size),
    ];
    lines.extend(durable.as_lines().into_iter().map(|line| format!("durable  {line}")));
    lines.extend(inspection.mcp.iter().flat_map(server_lines).map(|line| format!("mcp      {line}")));
    tools(inspection, value, &mut lines);
    offers(inspection, &mut lines);
    let mut list = |title: &str, items: &[String]| {
        lines.push(format!("\n{title}"));
        lines.extend(items.iter().map(|item| format!("  {item}")));
    };
    list("imports", &inspection.imports);
    list("exports", &inspection.exports);
    match &inspection.manifest {
        Some(manifest) => list("manifest (what the plugin wants)", &plain_lines(manifest.text.trim())),
        None => list("manifest (what the plugin wants)", &["none".to_owned()]),
    }
    if !inspection.usable_grants.is_empty() {
        let usable: Vec<_> =
            inspection.usable_grants.iter().map(|(grant, interface)| grant_hint(*grant, interface)).collect();
        list("grants that its imports can use", &usable);
    }
    lines.extend(
        table.as_lines().iter().flat_map(|line| if line.is_empty() { vec![String::new()] } else { plain_lines(line) }),
    );
    lines.join("\n")
}

fn tools(inspection: &Inspection, value: &Value, lines: &mut Vec<String>) {
    lines.push(if inspection.typed { "\ntools (its functions)" } else { "\ntools" }.to_owned());
    for (tool, shown) in inspection.tools.iter().zip(value["tools"].as_array().into_iter().flatten()) {
        lines.push(format!("  {}  (tasks: {})", tool.name, format!("{:?}", tool.task_support).to_lowercase()));
        if let Some(own) = shown.get("ownName").and_then(Value::as_str) {
            lines.push(format!("      inside  {own}"));
        }
        let configured = shown.get("configured").and_then(Value::as_object).into_iter().flatten();
        lines.extend(configured.map(|(key, text)| format!("      configured: {key} = {text}")));
        lines.extend(plain_lines(&tool.description).into_iter().map(|line| format!("      {line}")));
        lines.push(format!("      input   {}", plain(&shown["inputSchema"].to_string())));
        if let Some(output) = shown.get("outputSchema") {
            lines.push(format!("      output  {}", plain(&output.to_string())));
        }
    }
    if !inspection.left_out.is_empty() {
        lines.push("\nleft out (no tools can be made of these)".to_owned());
        lines.extend(inspection.left_out.iter().map(|function| format!("  {function}")));
    }
}

/// What it offers beside its tools, where it offers any.
fn offers(inspection: &Inspection, lines: &mut Vec<String>) {
    let mut list = |title: &str, entries: Vec<(String, Option<&String>)>| {
        if entries.is_empty() {
            return;
        }
        lines.push(format!("\n{title}"));
        for (entry, description) in entries {
            lines.extend(plain_lines(&entry).into_iter().map(|line| format!("  {line}")));
            let description = description.map(|text| plain_lines(text)).unwrap_or_default();
            lines.extend(description.into_iter().map(|line| format!("      {line}")));
        }
    };
    let prompt = |prompt: &Prompt| {
        let argument = |argument: &PromptArgument| {
            let mark = if argument.required { "" } else { "?" };
            format!("{}{mark}", argument.described.name)
        };
        let arguments: Vec<_> = prompt.arguments.iter().map(argument).collect();
        format!("{}({})", prompt.described.name, arguments.join(", "))
    };
    fn typed<'a>(uri: &str, shown: &'a Described, mime_type: Option<&String>) -> (String, Option<&'a String>) {
        let mime_type = mime_type.map(|text| format!(", {text}")).unwrap_or_default();
        (format!("{uri}  ({}{mime_type})", shown.name), shown.description.as_ref())
    }
    list("prompts", inspection.prompts.iter().map(|it| (prompt(it), it.described.description.as_ref())).collect());
    let shown = inspection.resources.iter().map(|it| typed(&it.uri, &it.described, it.mime_type.as_ref()));
    list("resources (those listed without grants)", shown.collect());
    let shown = inspection.templates.iter().map(|it| typed(&it.uri_template, &it.described, it.mime_type.as_ref()));
    list("resource templates", shown.collect());
}

/// A plugin's text, without what would act on a terminal.
fn plain_lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.chars().map(on_terminal).collect()).collect()
}
