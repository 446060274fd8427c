//! A guest that plays its part by the tool's name.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::offers;
use bulkhead_calls::testing::ScriptedLevers;
use bulkhead_calls::{
    CallEvent, CallSpec, Catalog, Control, Executor, ListKind, Operation, Returned, RunningCall, StartError,
    StopOnDrop, ToolEntry,
};
use bulkhead_domain::Json;
use bulkhead_domain::call::{
    CallError, ClientFeature, FaultKind, InputRequest, InputRequestError, InputRequestKind, InputResponse, LogLevel,
};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::tool::{TaskSupport, Tool, ToolOutput};

pub(super) struct Scripted {
    catalog: Arc<Catalog>,
    guests: Arc<Guests>,
}

/// What became of the guests.
#[derive(Debug, Default)]
pub(super) struct Guests {
    pub(super) started: AtomicU64,
    pub(super) living: AtomicU64,
    /// The number of every list.
    pub(super) lists: AtomicU64,
}

struct Life(Arc<Guests>);

impl Life {
    fn begin(guests: &Arc<Guests>) -> Self {
        guests.started.fetch_add(1, Ordering::SeqCst);
        guests.living.fetch_add(1, Ordering::SeqCst);
        Self(guests.clone())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.living.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Enough for three pages.
pub(super) const FILLERS: usize = 110;

impl Scripted {
    pub(super) fn new(guests: Arc<Guests>) -> Self {
        let mut tools = vec![
            entry("echo", TaskSupport::Forbidden),
            entry("only_task", TaskSupport::Required),
            entry("task_asks", TaskSupport::Required),
            entry("broken_json", TaskSupport::Forbidden),
        ];
        let optional = [
            "count",
            "forever",
            "fails",
            "faulty",
            "structured",
            "form",
            "url",
            "two_forms",
            "all",
            "custom",
            "quick",
            "slow",
            "detaches",
            "at_once",
            "same_key",
            "lacks",
            "headers",
            "list",
            "steered",
            "continues",
            "reports",
        ];
        tools.extend(optional.map(|name| entry(name, TaskSupport::Optional)));
        tools.extend((0..FILLERS).map(|number| entry(&format!("z{number:03}"), TaskSupport::Forbidden)));
        Self { catalog: Arc::new(Catalog::new(tools)), guests }
    }

    /// The same without this tool.
    pub(super) fn lacking(guests: Arc<Guests>, name: &str) -> Self {
        let all = Self::new(guests.clone()).catalog;
        let others = all.tools().iter().filter(|entry| entry.tool.name != name).cloned().collect();
        Self { catalog: Arc::new(Catalog::new(others)), guests }
    }

    /// These tools alone, as they are.
    pub(super) fn listing(guests: Arc<Guests>, tools: Vec<Tool>) -> Self {
        let entry = |tool| Arc::new(ToolEntry::sample("listed", tool, limits("")));
        Self { catalog: Arc::new(Catalog::new(tools.into_iter().map(entry).collect())), guests }
    }

    /// The tools of an MCP App under a prefix: one with a view, one for views alone and one for models alone; and one
    /// of another plugin.
    pub(super) fn with_app(guests: Arc<Guests>) -> Self {
        let of_app = |own: &str, ui: Value| {
            let known = entry(own, TaskSupport::Optional);
            let meta = vec![("ui".to_owned(), Json::new(ui.to_string()))];
            let tool = Tool { name: format!("c_{own}"), meta, ..known.tool.clone() };
            let sample = ToolEntry::sample("chart", tool, limits(own));
            Arc::new(ToolEntry { plugin_tool: own.into(), base_name: own.into(), ..sample })
        };
        let tools = vec![
            of_app("count", json!({"resourceUri": "ui://c_chart/view.html"})),
            of_app("quick", json!({"visibility": ["app"]})),
            of_app("fails", json!({"visibility": ["model"]})),
            entry("echo", TaskSupport::Forbidden),
            entry("views", TaskSupport::Optional),
        ];
        Self { catalog: Arc::new(Catalog::new(tools)), guests }
    }

    /// Everything that there is, of as many plugins as may not break.
    pub(super) fn complete(guests: Arc<Guests>) -> Self {
        // Made once: a fuzzer wants thousands of them in a second.
        static EVERYTHING: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
            let tools = Scripted::new(Arc::default()).catalog;
            Arc::new(tools.as_ref().clone().with(offers::offers(&limits(""))))
        });
        Self { catalog: EVERYTHING.clone(), guests }
    }

    /// The same with resources, prompts and completions of so many plugins.
    pub(super) fn offering(guests: Arc<Guests>, plugins: usize) -> Self {
        let offers = offers::offers(&limits("")).into_iter().take(plugins);
        Self { catalog: Arc::new(Catalog::new(vec![entry("echo", TaskSupport::Forbidden)]).with(offers)), guests }
    }
}

fn entry(name: &str, task_support: TaskSupport) -> Arc<ToolEntry> {
    let schema = match name {
        "echo" => json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
        "headers" => json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}),
        _ => json!({"type": "object"}),
    };
    let tool = Tool {
        description: format!("Plays {name}."),
        input_schema: Json::new(serde_json::to_string_pretty(&schema).unwrap()),
        task_support,
        ..Tool::sample(name)
    };
    let rerun_on_restart = name == "two_forms";
    Arc::new(ToolEntry { rerun_on_restart, ..ToolEntry::sample("scripted", tool, limits(name)) })
}

fn limits(name: &str) -> CallLimits {
    CallLimits {
        wall_ms: 60_000,
        promote_after_ms: match name {
            "at_once" => 0,
            "detaches" | "form" | "two_forms" | "quick" | "reports" => 60_000,
            _ => 10,
        },
        result_bytes: 1 << 20,
        cancel_grace_ms: 20,
        ..CallLimits::generous()
    }
}

impl Executor for Scripted {
    fn catalog(&self) -> Arc<Catalog> {
        let lists = self.guests.lists.load(Ordering::SeqCst);
        let renewed = |catalog: Arc<Catalog>, kind| Arc::new(catalog.renewed(kind, lists));
        if lists == 0 { self.catalog.clone() } else { ListKind::ALL.into_iter().fold(self.catalog.clone(), renewed) }
    }

    fn start(&self, spec: CallSpec) -> Result<RunningCall, StartError> {
        let (sender, events) = mpsc::channel(16);
        let life = Life::begin(&self.guests);
        let levers = Arc::new(ScriptedLevers::default());
        let control = Control::new(Arc::<ScriptedLevers>::clone(&levers));
        let guest = tokio::spawn(async move {
            let _life = life;
            let finished = match &spec.operation {
                Operation::CallTool { .. } => play(&spec, &levers, &sender).await.map(Returned::Tool),
                operation => offers::play(&spec.plugin.name, operation, &sender).await,
            };
            let _ = sender.send(CallEvent::Finished(finished)).await;
        });
        Ok(RunningCall { events, control, stop: StopOnDrop::new(Arc::new(guest)) })
    }

    fn engine_hash(&self) -> u64 {
        1
    }
}

fn text(text: impl Into<String>) -> ToolOutput {
    ToolOutput { is_error: false, ..ToolOutput::failure(text) }
}

async fn play(
    spec: &CallSpec,
    levers: &ScriptedLevers,
    events: &mpsc::Sender<CallEvent>,
) -> Result<ToolOutput, CallError> {
    let Operation::CallTool { tool, arguments } = &spec.operation else { panic!("{:?}", spec.operation) };
    match &**tool {
        "echo" => {
            let arguments: Value = serde_json::from_str(arguments.as_str()).unwrap();
            Ok(text(arguments["text"].as_str().unwrap()))
        }
        "count" => {
            for (at, level) in [(1.0, LogLevel::Debug), (1.0, LogLevel::Info), (2.0, LogLevel::Error)] {
                // Long enough for a stream to be there, short enough for a test.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                let message = Some(format!("step {at}"));
                let _ = events.send(CallEvent::Progress { progress: at, total: Some(2.0), message }).await;
                let _ = events.send(CallEvent::Log { level, logger: None, data: Json::new("{\"a\": 1}") }).await;
            }
            Ok(text("counted"))
        }
        "views" => Ok(text(spec.facts.features.has_views().to_string())),
        "fails" => Ok(ToolOutput::failure("no such city")),
        "faulty" => Err(CallError::Fault { kind: FaultKind::Trap, reason: "the tool trapped".into() }),
        "custom" => {
            let data = Some(Json::new("{\"why\": 1}"));
            Err(CallError::Custom { code: 77, message: "no".into(), data })
        }
        "structured" => Ok(ToolOutput { structured: Some(Json::new("{\"a\": 1}")), ..ToolOutput::default() }),
        "broken_json" => Ok(ToolOutput { structured: Some(Json::new("{\"a\":")), ..ToolOutput::default() }),
        "form" | "task_asks" => told(ask(events, vec![form("name")]).await),
        "url" => {
            let kind = InputRequestKind::Url {
                message: "Sign in".into(),
                url: "https://example.com/in".into(),
                elicitation_id: "e-1".into(),
            };
            told(ask(events, vec![asked("page", kind)]).await)
        }
        "two_forms" => {
            let first = ask(events, vec![form("one")]).await;
            let second = ask(events, vec![form("two")]).await;
            Ok(text(format!("{first:?} {second:?}")))
        }
        "all" => {
            let sampling =
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9});
            let requests = vec![
                form("name"),
                asked("sample", InputRequestKind::Sampling(Json::new(sampling.to_string()))),
                asked("roots", InputRequestKind::Roots),
            ];
            told(ask(events, requests).await)
        }
        "only_task" | "quick" | "at_once" | "headers" => Ok(text("done")),
        "slow" => {
            let progress = CallEvent::Progress { progress: 1.0, total: None, message: None };
            let _ = events.send(progress).await;
            let _ = events.send(CallEvent::Status("half way".into())).await;
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
            Ok(text("slowly done"))
        }
        "detaches" => {
            let (reply, id) = oneshot::channel();
            let _ = events.send(CallEvent::Detach { reply }).await;
            // Nobody is there any more.
            let Ok(id) = id.await else { return std::future::pending().await };
            let name = told(ask(events, vec![form("name")]).await)?;
            Ok(ToolOutput { structured: Some(Json::new(json!([id]).to_string())), ..name })
        }
        "same_key" => {
            let first = ask(events, vec![form("name"), form("name")]).await;
            let second = ask(events, vec![form("name")]).await;
            told(first.and_then(|first| Ok(first.into_iter().skip(1).chain(second?).collect())))
        }
        "continues" => Ok(text(spec.facts.related_tasks.join(" "))),
        "reports" => {
            let name = told(ask(events, vec![form("name")]).await)?;
            let audience = levers.audience(&spec.facts);
            if audience.wants_progress {
                let _ = events.send(CallEvent::Progress { progress: 1.0, total: None, message: None }).await;
            }
            if audience.log_level.is_some_and(|lowest| LogLevel::Debug >= lowest) {
                let data = Json::new("\"heard\"");
                let _ = events.send(CallEvent::Log { level: LogLevel::Debug, logger: None, data }).await;
            }
            Ok(name)
        }
        "lacks" => Err(CallError::MissingCapability(ClientFeature::Sampling)),
        "list" => Ok(ToolOutput { structured: Some(Json::new("[1, 2]")), ..ToolOutput::default() }),
        "steered" => loop {
            let (reply, messages) = oneshot::channel();
            let _ = events.send(CallEvent::Steering { journal: None, reply }).await;
            let Ok(messages) = messages.await else { return std::future::pending().await };
            if !messages.is_empty() {
                break Ok(text(messages.join(" ")));
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        },
        _ => std::future::pending().await,
    }
}

fn form(key: &str) -> InputRequest {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let kind = InputRequestKind::Form { message: format!("{key}?"), requested_schema: Json::new(schema.to_string()) };
    asked(key, kind)
}

fn asked(key: &str, kind: InputRequestKind) -> InputRequest {
    InputRequest { key: key.into(), kind, meta: Vec::new() }
}

async fn ask(
    events: &mpsc::Sender<CallEvent>,
    requests: Vec<InputRequest>,
) -> Result<Vec<InputResponse>, InputRequestError> {
    let (reply, answers) = oneshot::channel();
    let _ = events.send(CallEvent::InputRequests { requests, journal: None, reply }).await;
    answers.await.unwrap_or(Err(InputRequestError::Cancelled))
}

fn told(answers: Result<Vec<InputResponse>, InputRequestError>) -> Result<ToolOutput, CallError> {
    let words = answers.map(|answers| answers.iter().map(word).collect::<Vec<_>>().join(", "));
    Ok(match words {
        Ok(words) => text(words),
        Err(error) => ToolOutput::failure(format!("{error:?}")),
    })
}

fn word(answer: &InputResponse) -> String {
    match answer {
        InputResponse::Elicitation { action, content } => {
            format!("{action:?} {}", content.as_ref().map_or("nothing", Json::as_str))
        }
        InputResponse::Sampling(message) => format!("sampled {}", message.as_str()),
        InputResponse::Roots(roots) => format!("{} roots", roots.len()),
        InputResponse::Refused(reason) => format!("refused: {reason}"),
    }
}
