//! `bulkhead plugin call`: one call, without store, tasks or clients; what every such call begins with.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_assembly::{SystemClock, compile_cache, host, sources};
use bulkhead_author_cli::{EXIT_FAILED, EXIT_USAGE};
use bulkhead_calls::policy::Denial;
use bulkhead_calls::{
    CallContext, CallEvent, CallSpec, Catalog, Control, Executor as _, GuestServices, Journaling, OnDemand, Operation,
    OutsideWorld, Returned, RunningCall, ToolEntry,
};
use bulkhead_config::{Config, Flags, PluginConfig};
use bulkhead_console::{logging, print_error, print_line, progress};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, ClientFeatures, InputRequest, InputResponse, LogLevel};
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::CallId;
use bulkhead_domain::tool::{ContentKind, ToolOutput};
use bulkhead_identity::principal::TENANT_DEFAULT;
use bulkhead_protocol::output_json;
use bulkhead_runtime::{Sandbox, TenantNames};
use bulkhead_threads::Share;
use clap::Args;
use tempfile::TempDir;

use super::grant_arguments::GrantArguments;
use super::input_answers::{Answers, Unanswered, plain};
use super::inspect::refuse;
use super::journal_file::{self, JournalFile};
use super::plugin_test::WithSecrets;

const EXIT_SUCCESS: u8 = 0;
pub(super) const EXIT_CALL: u8 = 3;
const EXIT_UNANSWERED: u8 = 5;

/// Call one tool once, without a host.
///
/// Progress, status and logs go to stderr, the result to stdout. Questions of the plugin are answered from the file of
/// --answers, else asked on the terminal.
///
/// The file of --answers is a JSON object: the question's key gives the answer, or a list of answers when the key is
/// asked more than once. A form or URL takes {"action": "accept", "content": {...}} (or "decline", "cancel"), sampling
/// takes the result object of a sampling/createMessage request, roots take {"roots": [{"uri": "file:///..."}]}, and
/// each takes {"error": "why"}.
///
/// --journal keeps what the tool saw (times, answers, responses, values), for `plugin replay`. A tool that sees what no
/// journal holds, such as a file, gives it up: the call goes on, and the reason is said.
#[derive(Args, Debug)]
#[command(after_long_help = "Exit codes:\n  \
    0  the tool succeeded\n  \
    1  the tool reported an error (isError), the journal is not written, or the command itself failed\n  \
    2  the command line, the configuration, the arguments or the answers are wrong\n  \
    3  the call broke: a trap, a limit, a deadline, an error of the plugin\n  \
    4  the component was refused\n  \
    5  a question had no answer\n\n\
    Examples:\n  \
    bulkhead plugin call target/plugins/text.wasm echo '{\"text\": \"hello\"}'\n  \
    bulkhead plugin call target/plugins/csv.wasm csv_profile '{\"path\": \"/data/airports.csv\"}' --dir ./data:/data\n  \
    bulkhead plugin call target/plugins/desk.wasm book_trip '{}' --answers answers.json --journal trip.journal")]
pub struct CallArguments {
    /// Answers to the plugin's questions
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// The result as JSON, as an MCP client would see it
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the call's journal into this file, which is replaced; it holds what the tool saw, so keep it to yourself
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: CallTarget,
}

/// What is called, and what it may reach.
#[derive(Args, Debug)]
pub struct CallTarget {
    /// The component
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The tool's name
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// The arguments, a JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub(crate) arguments: String,
    /// Take limits, and grants and settings of the [[plugin]] with this FILE, from a configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) grants: GrantArguments,
}

/// Without a host there is one tenant.
#[derive(Debug)]
pub(super) struct Alone;

#[async_trait::async_trait]
impl TenantNames for Alone {
    async fn name(&self, _: TenantId) -> Option<String> {
        Some(TENANT_DEFAULT.to_owned())
    }
}

/// What a call without a host has around it.
pub(super) struct CallWorld {
    pub(super) services: Arc<dyn GuestServices>,
    /// Stands in for network and clock.
    pub(super) outside: Option<Arc<dyn OutsideWorld>>,
}

/// What can be seen of a call while it runs.
pub(super) enum Observed {
    Note(String),
    /// The plugin reached for something that it has not got.
    GrantDenied(Denial),
}

/// How a call ended.
pub(super) enum End {
    Finished(Result<ToolOutput, CallError>),
    Unanswered(Unanswered),
}

/// A tool of a component, ready to be called.
pub(super) struct Prepared {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) tool: Arc<ToolEntry>,
    /// Where the sandbox has its files: dropped after it.
    _scratch: TempDir,
}

pub async fn run(arguments: CallArguments) -> anyhow::Result<ExitCode> {
    let CallArguments { answers, json, journal, target } = arguments;
    logging::start_for_a_person();
    sources::require_file(&target.file)?;
    let (mut answers, secrets) = match (Answers::read(answers.as_deref()), target.grants.secrets()) {
        (Ok(answers), Ok(secrets)) => (answers, secrets),
        (Err(error), _) | (_, Err(error)) => return Ok(usage(&error)),
    };
    let prepared = match prepare(&target).await? {
        Ok(prepared) => prepared,
        Err(code) => return Ok(code),
    };
    let journal = journal.as_deref().map(JournalFile::create).transpose()?;
    let inner = bulkhead_tasks::in_memory(Arc::new(SystemClock::default()));
    let world = CallWorld { services: Arc::new(WithSecrets { inner, secrets }), outside: None };
    let mut spec = spec(&prepared.tool, &target.arguments, world)?;
    if journal.is_some() {
        journal_file::fix_randomness(&mut spec);
        spec.journaling = Journaling::InMemory;
    }
    let running = prepared.sandbox.start(spec)?;
    let control = running.control.clone();
    let mut observe = |observed| match observed {
        Observed::Note(text) => note(&text),
        Observed::GrantDenied(denial) => note(&format!("not granted: {denial}")),
    };
    let code = match converse(running, &mut answers, &mut observe).await {
        Ok(end) => tell(end, json)?,
        Err(error) => return Ok(usage(&error)),
    };
    Ok(ExitCode::from(match journal {
        Some(journal) => keep(journal, &control, code),
        None => code,
    }))
}

/// Loads a component and finds the tool that is called. `Err`: what the command ends with, and why has been said.
pub(super) async fn prepare(target: &CallTarget) -> anyhow::Result<Result<Prepared, ExitCode>> {
    let flags = Flags { plugins: vec![target.file.clone()], ..Flags::default() };
    let config = sources::load(target.config.as_deref(), &flags)?;
    if let Err(wrong) = read_arguments(&target.arguments) {
        return Ok(Err(usage(&wrong)));
    }
    let plugin = match plugin(&config, target) {
        Ok(plugin) => plugin,
        Err(error) => return Ok(Err(usage(&error))),
    };
    let scratch = tempfile::tempdir().context("there is no room for a temporary folder")?;
    let sandbox = host::sandbox(&config, scratch.path(), compile_cache::of_user(), Some(Arc::new(Alone)))?;
    let source = match sources::whole_source(plugin, &config, &sandbox).await? {
        Ok(source) => source,
        Err(error) => return Ok(Err(refuse(&error))),
    };
    let loading = sandbox.load(source);
    let what = format!("compiling {}", target.file.display());
    let loaded = match progress::during(&what, loading).await {
        Ok(loaded) => loaded,
        Err(error) => return Ok(Err(refuse(&error))),
    };
    sandbox.publish(vec![loaded]);
    let catalog = sandbox.catalog();
    let Some(tool) = find_tool(&catalog, &target.tool).cloned() else {
        print_error(no_tool(&catalog, &target.tool));
        return Ok(Err(ExitCode::from(EXIT_USAGE)));
    };
    if let Err(wrong) = check(&tool, &target.arguments) {
        return Ok(Err(usage(&wrong)));
    }
    Ok(Ok(Prepared { sandbox, tool, _scratch: scratch }))
}

/// Says how a call ended; its exit code.
fn tell(end: End, json: bool) -> anyhow::Result<u8> {
    Ok(match end {
        End::Finished(Ok(output)) => {
            if json {
                print_line(output_json(&output)?)
            } else {
                print_line(text(&output))
            }
            if output.is_error { EXIT_FAILED } else { EXIT_SUCCESS }
        }
        End::Finished(Err(error)) => {
            print_error(explain(&error));
            EXIT_CALL
        }
        End::Unanswered(Unanswered(why)) => {
            print_error(why);
            EXIT_UNANSWERED
        }
    })
}

/// Writes the journal of a call that ended with this code; the code of both.
fn keep(journal: JournalFile, control: &Control, code: u8) -> u8 {
    match journal.write(control.journal()) {
        Ok(line) => {
            note(&line);
            code
        }
        Err(error) => {
            print_error(format_args!("{error:#}"));
            if code == EXIT_SUCCESS { EXIT_FAILED } else { code }
        }
    }
}

pub(super) fn usage(error: &anyhow::Error) -> ExitCode {
    print_error(format_args!("{error:#}"));
    ExitCode::from(EXIT_USAGE)
}

/// The plugin of the file, with the grants of the command line beside those of the configuration.
fn plugin(config: &Config, target: &CallTarget) -> anyhow::Result<PluginConfig> {
    let plugin = config.plugins.iter().find(|plugin| plugin.pinned).cloned();
    let mut plugin = plugin.context("the component is not in the configuration")?;
    target.grants.grant(&mut plugin)?;
    Ok(plugin)
}

/// A tool by the name that clients see, else by that without the operator's prefix or the one inside the plugin.
pub(super) fn find_tool<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Arc<ToolEntry>> {
    catalog.get(name).or_else(|| catalog.tools().iter().find(|tool| tool.is_own_name(name)))
}

pub(super) fn no_tool(catalog: &Catalog, name: &str) -> String {
    let names: Vec<_> = catalog.tools().iter().map(|tool| tool.tool.name.as_str()).collect();
    let hint = match bulkhead_protocol::nearest_name(name, names.iter().copied()) {
        Some(near) => format!(" (did you mean {near}?)"),
        None => String::new(),
    };
    let what = if names.len() == 1 { "the only one is" } else { "there are" };
    format!("there is no tool {name:?}{hint}; {what} {}", names.join(", "))
}

/// What is no JSON object is so for every tool.
fn read_arguments(arguments: &str) -> anyhow::Result<serde_json::Value> {
    let value: serde_json::Value = serde_json::from_str(arguments)
        .context("the arguments are not JSON: an object is expected, such as '{\"text\": \"hello\"}'")?;
    anyhow::ensure!(value.is_object(), "the arguments are not a JSON object, such as '{{\"text\": \"hello\"}}'");
    Ok(value)
}

/// What a client would be told before the call.
pub(super) fn check(tool: &ToolEntry, arguments: &str) -> anyhow::Result<()> {
    let value = read_arguments(arguments)?;
    if let Err(violations) = tool.input.check(&value) {
        let lines: Vec<_> = violations
            .iter()
            .map(|violation| {
                format!("{}: {}", if violation.path.is_empty() { "/" } else { &violation.path }, violation.message)
            })
            .collect();
        anyhow::bail!("the arguments do not fit the tool's schema: {}", lines.join("; "));
    }
    Ok(())
}

pub(super) fn spec(tool: &ToolEntry, arguments: &str, world: CallWorld) -> anyhow::Result<CallSpec> {
    let mut id = [0; 16];
    let mut seed = [0; 32];
    getrandom::fill(&mut id)?;
    getrandom::fill(&mut seed)?;
    Ok(CallSpec {
        plugin: tool.plugin.clone(),
        tenant: TenantId([0; 16]),
        operation: Operation::CallTool { tool: tool.plugin_tool.clone(), arguments: Json::new(arguments) },
        share: Share::default(),
        activity: None,
        limits: tool.limits.clone(),
        journaling: Journaling::Off,
        facts: CallContext {
            call_id: CallId(id),
            idempotency_key: OnDemand::Text(CallId(id).to_string()),
            requestor_alias: OnDemand::Text("command-line".to_owned()),
            features: every_feature(),
            log_level: Some(LogLevel::Debug),
            seed,
            wants_progress: true,
            guest_services: Some(world.services),
            outside: world.outside,
            ..CallContext::detached()
        },
    })
}

/// A person or a file that answers for a client can answer everything.
pub(super) fn every_feature() -> ClientFeatures {
    let features =
        [ClientFeature::ElicitationForm, ClientFeature::ElicitationUrl, ClientFeature::Sampling, ClientFeature::Roots];
    features.into_iter().fold(ClientFeatures::default(), ClientFeatures::with)
}

/// Tells what the call says and gives it what it asks for, to its end.
pub(super) async fn converse(
    mut running: RunningCall,
    answers: &mut Answers,
    observe: &mut (dyn FnMut(Observed) + Send),
) -> anyhow::Result<End> {
    while let Some(event) = running.events.recv().await {
        if let Some(observed) = observed(&event) {
            observe(observed);
        }
        match event {
            CallEvent::InputRequests { requests, reply, .. } => match answer_all(answers, &requests)? {
                // Here and below: a call that is over does not take its reply.
                Ok(given) => _ = reply.send(Ok(given)),
                Err(unanswered) => return Ok(End::Unanswered(unanswered)),
            },
            CallEvent::Detach { reply } => _ = reply.send(None),
            CallEvent::Steering { reply, .. } => _ = reply.send(Vec::new()),
            CallEvent::Sleep { ms, reply } => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    _ = reply.send(());
                });
            }
            CallEvent::Progress { .. } | CallEvent::Status(_) | CallEvent::Log { .. } | CallEvent::GrantDenied(_) => {}
            CallEvent::ListsChanged(_) | CallEvent::ResourceUpdated(_) => {}
            CallEvent::Finished(Ok(Returned::Tool(output))) => return Ok(End::Finished(Ok(output))),
            CallEvent::Finished(Err(error)) => return Ok(End::Finished(Err(error))),
            CallEvent::Finished(Ok(_)) => anyhow::bail!("the call gave back what is no output of a tool"),
        }
    }
    anyhow::bail!("the call ended without a result")
}

/// What an event tells a person who watches.
pub(super) fn observed(event: &CallEvent) -> Option<Observed> {
    Some(match event {
        CallEvent::Progress { progress, total, message } => {
            let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
            Observed::Note(format!("progress: {progress}{total} {}", message.as_deref().unwrap_or_default()))
        }
        CallEvent::Status(text) => Observed::Note(format!("status: {text}")),
        CallEvent::Log { level, logger, data } => {
            let logger = logger.as_ref().map(|logger| format!(" {logger}")).unwrap_or_default();
            Observed::Note(format!("{}{logger}: {}", format!("{level:?}").to_lowercase(), data.as_str()))
        }
        CallEvent::GrantDenied(denial) => Observed::GrantDenied(denial.clone()),
        _ => return None,
    })
}

fn answer_all(
    answers: &mut Answers,
    requests: &[InputRequest],
) -> anyhow::Result<Result<Vec<InputResponse>, Unanswered>> {
    let mut given = Vec::new();
    for request in requests {
        match tokio::task::block_in_place(|| answers.answer(request))? {
            Ok(answer) => given.push(answer),
            Err(unanswered) => return Ok(Err(unanswered)),
        }
    }
    Ok(Ok(given))
}

/// A line on stderr about the call.
pub(super) fn note(text: &str) {
    use std::io::Write as _;
    // If nobody reads stderr, nobody wants to know.
    let _ = writeln!(std::io::stderr(), "{}", plain(text.trim_end()));
}

pub(super) fn explain(error: &CallError) -> String {
    match error {
        CallError::InvalidParams(text) => format!("the plugin refused the arguments: {}", plain(text)),
        CallError::NotFound(text) => format!("the plugin did not find it: {}", plain(text)),
        CallError::MissingCapability(feature) => format!("the plugin needs {feature:?} of its client"),
        CallError::Custom { code, message, .. } => format!("the plugin failed with code {code}: {}", plain(message)),
        CallError::Fault { kind, reason } => format!("the call was ended ({kind:?}): {}", plain(reason)),
        CallError::Internal { incident } => format!("the call broke (incident {incident})"),
        CallError::Interrupted => "the call was interrupted".to_owned(),
    }
}

/// The output for a person: texts as they are, everything else by what it is.
pub(super) fn text(output: &ToolOutput) -> String {
    let mut parts: Vec<_> = output
        .content
        .iter()
        .map(|content| match &content.kind {
            ContentKind::Text(text) => plain(text),
            ContentKind::Image { data, mime_type } => format!("[image {mime_type}, {} bytes]", data.len()),
            ContentKind::Audio { data, mime_type } => format!("[audio {mime_type}, {} bytes]", data.len()),
            ContentKind::ResourceLink(link) => format!("[resource {}]", plain(&link.uri)),
            ContentKind::Resource(resource) => format!("[resource {}, embedded]", plain(&resource.uri)),
        })
        .collect();
    if parts.is_empty()
        && let Some(structured) = &output.structured
    {
        parts.push(structured.as_str().to_owned());
    }
    parts.join("\n")
}
