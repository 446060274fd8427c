//! The host of `bulkhead plugin dev`: a host as it is for users, which tells its author of every call.
//!
//! Owns what is told and the answers that come from a file. Must not change what a call does: it stands between the
//! engine and the sandbox, and passes every event on that it has not answered itself. Invariant: nothing of a plugin
//! acts on the author's terminal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bulkhead_assembly::{HostStartup, Origin, ServiceManager, serve};
use bulkhead_author::Project;
use bulkhead_calls::secrets::Secret;
use bulkhead_calls::{
    CallEvent, CallSpec, Catalog, CatalogPlugin, Executor, Operation, Returned, RunningCall, StartError, ToolEntry,
};
use bulkhead_config::{Config, Flags, PluginConfig};
use bulkhead_console::{logging, tell_address};
use bulkhead_domain::route::Route;
use bulkhead_domain::task::PluginVersion;
use bulkhead_runtime::Sandbox;
use clap::Args;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::call::{Observed, every_feature, explain, note, observed, text};
use super::grant_arguments::GrantArguments;
use super::input_answers::{Answers, describe, plain};
use super::plugin_test::WithSecrets;

/// Characters of arguments, results and questions that are shown.
const SHOWN_CHARACTERS: usize = 400;
/// Events of a call that may wait to be passed on; the sandbox merges what comes faster.
const EVENTS_PASSED_MAX: usize = 16;

/// Serve a project, and build and switch again whenever its sources change.
///
/// Starts a host of its own. Every call is told on stderr: its arguments, questions and answers, what the plugin
/// prints, and what came of it after how long. BULKHEAD_LOG_LEVEL adds the host's own logs. What does not build or is
/// refused is said, and the version before goes on serving. Ctrl-C ends both.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin dev trip-planner")]
pub struct DevArguments {
    /// The project's folder
    #[arg(value_name = "DIR", default_value = ".")]
    pub(super) dir: PathBuf,
    /// The address to listen on; port 0 picks a free one [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) listen: Option<String>,
    /// The host's data directory [default: DIR/.bulkhead-dev]
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// A clone of Bulkhead, for its interface and SDK [default: DIR/bulkhead]
    #[arg(long, value_name = "DIR")]
    pub(super) sdk: Option<PathBuf>,
    /// The configuration file of the host; what it grants the [[plugin]] of this name holds as well
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Answers to the plugin's questions, as for `plugin call`; the client is asked what is not in it
    #[arg(long, value_name = "FILE")]
    pub(super) answers: Option<PathBuf>,
    /// Only serve: what the command runs beside itself
    #[arg(long = "host", hide = true)]
    pub(super) is_host: bool,
    /// Passed on to Cargo
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(super) cargo: Vec<String>,
    #[command(flatten)]
    pub(super) grants: GrantArguments,
}

/// Serves until a signal ends it.
pub(super) async fn run(arguments: DevArguments, data: &Path) -> anyhow::Result<()> {
    let project = Project::find(&arguments.dir)?;
    let flags = Flags { listen: arguments.listen, data: Some(data.to_owned()), ..Flags::default() };
    let secrets = arguments.grants.secrets()?;
    let plugin = project.name;
    let grants = arguments.grants;
    let add_grants = Box::new(move |config: &mut Config| grant(config, &plugin, &grants));
    let origin = Origin { file: arguments.config, flags, add_grants: Some(add_grants) };
    let (config, digest) = origin.read()?;
    let level = logging::start_for_an_author(&config.log);
    let answers = arguments.answers.as_deref().map(Answers::of_file).transpose()?;
    let teller = CallTeller { answers: answers.map(Mutex::new).map(Arc::new), secrets, calls: Arc::default() };
    let observe_calls = Box::new(move |sandbox: Arc<Sandbox>| -> Arc<dyn Executor> {
        Arc::new(ToldSandbox { sandbox, teller: teller.clone(), io: Handle::current() })
    });
    let manager = ServiceManager::default();
    serve(
        HostStartup { origin, config, digest, level, observe_calls: Some(observe_calls), manager, hold_tasks: false },
        tell_address,
    )
    .await
}

/// Adds the grants to the plugin's entry, or to what holds for plugins without one.
fn grant(config: &mut Config, plugin: &str, grants: &GrantArguments) -> anyhow::Result<()> {
    let named = config.plugins.iter_mut().find(|entry| entry.name().is_some_and(|name| name == plugin));
    let unnamed = || PluginConfig::found(PathBuf::new(), config.call.clone());
    match named {
        Some(entry) => grants.grant(entry),
        None => grants.grant(config.unnamed.get_or_insert_with(unnamed)),
    }
}

/// What tells an author of their calls, and answers the questions that the file of `--answers` answers.
#[derive(Clone)]
struct CallTeller {
    answers: Option<Arc<Mutex<Answers>>>,
    secrets: Vec<Secret>,
    /// How many there were.
    calls: Arc<AtomicU64>,
}

struct ToldSandbox {
    sandbox: Arc<Sandbox>,
    teller: CallTeller,
    io: Handle,
}

impl Executor for ToldSandbox {
    fn catalog(&self) -> Arc<Catalog> {
        self.sandbox.catalog()
    }

    fn catalog_for(&self, takes_part: &dyn Fn(&Route) -> bool) -> Arc<Catalog> {
        self.sandbox.catalog_for(takes_part)
    }

    fn tool<'a>(&'a self, version: &'a PluginVersion, name: &'a str) -> BoxFuture<'a, Option<Arc<ToolEntry>>> {
        self.sandbox.tool(version, name)
    }

    fn library<'a>(&'a self, version: &'a PluginVersion) -> BoxFuture<'a, Option<Arc<CatalogPlugin>>> {
        self.sandbox.library(version)
    }

    fn start(&self, mut spec: CallSpec) -> Result<RunningCall, StartError> {
        let CallTeller { answers, secrets, calls } = &self.teller;
        let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
        note(&format!("call {number}: {}", request(&spec.operation)));
        if !secrets.is_empty()
            && let Some(inner) = spec.facts.guest_services.take()
        {
            spec.facts.guest_services = Some(Arc::new(WithSecrets { inner, secrets: secrets.clone() }));
        }
        if answers.is_some() {
            // Whatever the client can do: the file answers for it.
            spec.facts.features = every_feature();
        }
        let RunningCall { mut events, control, stop } = self.sandbox.start(spec)?;
        let (sender, passed) = mpsc::channel(EVENTS_PASSED_MAX);
        let answers = answers.clone();
        let begin = Instant::now();
        self.io.spawn(async move {
            while let Some(event) = events.recv().await {
                tell(number, &event, begin);
                let Some(event) = answer(number, event, answers.as_deref()) else { continue };
                // Nobody waits for the call any more: its last owner stops it.
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        Ok(RunningCall { events: passed, control, stop })
    }

    fn engine_hash(&self) -> u64 {
        self.sandbox.engine_hash()
    }
}

/// Answers input requests that the file has answers to, all of them or none; returns every other event. What a durable
/// task asks is kept with its journal, and its client answers it.
fn answer(number: u64, event: CallEvent, answers: Option<&Mutex<Answers>>) -> Option<CallEvent> {
    let Some(answers) = answers else { return Some(event) };
    let CallEvent::InputRequests { requests, journal: None, reply } = event else { return Some(event) };
    let given = {
        let mut answers = answers.lock();
        let all = requests.iter().all(|request| answers.has(&request.key));
        all.then(|| requests.iter().map(|request| answers.of_file_alone(request)).collect::<anyhow::Result<Vec<_>>>())
    };
    match given {
        Some(Ok(given)) => {
            note(&format!("call {number}: answered from --answers"));
            // A call that is over does not take its reply.
            _ = reply.send(Ok(given));
            None
        }
        Some(Err(wrong)) => {
            note(&format!("call {number}: {wrong:#}"));
            Some(CallEvent::InputRequests { requests, journal: None, reply })
        }
        None => Some(CallEvent::InputRequests { requests, journal: None, reply }),
    }
}

/// A line for an event.
fn tell(number: u64, event: &CallEvent, begin: Instant) {
    let line = match event {
        CallEvent::InputRequests { requests, .. } => {
            let each = requests.iter().map(|request| format!("{:?}, {}", request.key, describe(&request.kind)));
            format!("asks {}", short(&each.collect::<Vec<_>>().join("; ")))
        }
        CallEvent::Sleep { ms, .. } => format!("sleeps {ms} ms"),
        CallEvent::Finished(outcome) => {
            let came = match outcome {
                Ok(Returned::Tool(output)) if output.is_error => {
                    format!("the tool reported an error: {}", text(output))
                }
                Ok(Returned::Tool(output)) => text(output),
                Ok(_) => "done".to_owned(),
                Err(error) => explain(error),
            };
            format!("ended after {} ms: {}", begin.elapsed().as_millis(), short(&came))
        }
        other => match observed(other) {
            Some(Observed::Note(text)) => short(&text),
            Some(Observed::GrantDenied(denial)) => format!("not granted: {denial}"),
            None => return,
        },
    };
    note(&format!("call {number}: {line}"));
}

fn request(operation: &Operation) -> String {
    match operation {
        Operation::CallTool { tool, arguments } => format!("{tool} {}", short(arguments.as_str())),
        Operation::ListResources { .. } => "lists resources".to_owned(),
        Operation::ReadResource { uri } => format!("reads the resource {}", short(uri)),
        Operation::GetPrompt { prompt, .. } => format!("gets the prompt {}", short(prompt)),
        Operation::Complete { .. } => "completes an argument".to_owned(),
    }
}

/// One line of what a plugin or a client wrote, as much as a person reads.
fn short(text: &str) -> String {
    let one_line = plain(text).replace('\n', " ");
    let mut shown: String = one_line.chars().take(SHOWN_CHARACTERS).collect();
    if shown.len() < one_line.len() {
        shown.push_str(" ...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::Json;
    use bulkhead_domain::call::{InputRequest, InputRequestKind, InputResponse};
    use tokio::sync::oneshot;

    use super::*;

    fn asked(
        keys: &[&str],
    ) -> (CallEvent, oneshot::Receiver<Result<Vec<InputResponse>, bulkhead_domain::call::InputRequestError>>) {
        let kind = InputRequestKind::Form { message: "m".to_owned(), requested_schema: Json::new("{}") };
        let request = |key: &&str| InputRequest { key: (*key).to_owned(), kind: kind.clone(), meta: Vec::new() };
        let (reply, replied) = oneshot::channel();
        (CallEvent::InputRequests { requests: keys.iter().map(request).collect(), journal: None, reply }, replied)
    }

    #[test]
    fn questions_are_answered_from_the_file_all_or_none() {
        let file = serde_json::json!({ "a": { "action": "decline" }, "wrong": { "action": "perhaps" } });
        let answers = Mutex::new(Answers::given(file.as_object().unwrap().clone()));
        let (event, mut replied) = asked(&["a"]);
        assert!(answer(1, event, Some(&answers)).is_none());
        assert!(replied.try_recv().unwrap().is_ok());
        for keys in [&["a", "b"][..], &["wrong"]] {
            let (event, mut replied) = asked(keys);
            assert!(answer(1, event, Some(&answers)).is_some(), "the client is asked: {keys:?}");
            assert!(replied.try_recv().is_err(), "{keys:?}");
        }
        let (event, _replied) = asked(&["a"]);
        assert!(answer(1, event, None).is_some());
    }

    #[test]
    fn what_is_shown_is_one_short_line() {
        assert_eq!(short("a\nb\u{1b}[31m"), "a b [31m");
        let long = short(&"x".repeat(1000));
        assert_eq!(long.len(), SHOWN_CHARACTERS + 4);
    }
}
