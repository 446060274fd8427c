//! Values for the store's tests.

use std::sync::Arc;

use super::journal::{Append, HEAD_VERSION, JournalHead, JournalState};
use super::{Change, Creation, StoredCaps};
use bulkhead_domain::Json;
use bulkhead_domain::call::*;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::server_features::{Completion, PromptMessage, PromptOutput};
use bulkhead_domain::task::*;
use bulkhead_domain::timeline::{TIMELINE_MAX, Timeline, TimelineEntry, Transition};
use bulkhead_domain::tool::*;
use bulkhead_domain::trace::TraceContext;

/// Caps that nothing in a test reaches.
pub(super) const WIDE: StoredCaps = StoredCaps {
    tasks_per_requestor: 1_000_000,
    bytes_per_requestor: 1 << 40,
    tasks_per_tenant: 1_000_000,
    bytes_per_tenant: 1 << 40,
};

/// The requestor with this number, in the tenant with that one.
pub fn requestor(tenant: u8, id: u8) -> Requestor {
    Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
}

/// The task id with this number.
pub fn task_id(number: u64) -> TaskId {
    let mut id = [0x7a; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    TaskId(id)
}

/// A queued task; created at its number.
pub fn task(requestor: Requestor, number: u64) -> Task {
    Task {
        work: Work::Tool("csv_profile".to_owned()),
        plugin: PluginVersion { name: "csv".to_owned(), digest: [3; 32] },
        engine_hash: 0x0123_4567_89ab_cdef,
        arguments_digest: [4; 32],
        created_at: number,
        updated_at: number,
        retention: Retention::FromCreation { ttl_ms: 1_000 },
        seed: [5; 32],
        call_id: CallId([6; 16]),
        ..Task::sample(requestor, task_id(number))
    }
}

/// A creation of a task with small arguments and no reservation.
pub fn creation(task: Task) -> Creation {
    Creation { task, arguments: Json::new(r#"{"a":1}"#), output: None, reserved_bytes: 0, caps: WIDE, journal: None }
}

/// Bytes for a journal, from a run, at a row.
pub fn tail(attempt: u32, at_row: u32, bytes: &[u8]) -> Append {
    Append { bytes: bytes.to_vec(), ..Append::of_head(attempt, at_row, journal_head().unchanged()) }
}

/// A head in which every member is used.
pub fn journal_head() -> JournalHead {
    JournalHead {
        version: HEAD_VERSION,
        attempt: 2,
        rows: 3,
        bytes: 9_000,
        step: 77_761,
        entries: 33,
        cpu_us: 1_500_000,
        wall_us: 90_000_000,
        resumes_since_growth: 1,
        cooperative: true,
        state: JournalState::Sound,
        wake_at: Some(1_700_000_000_123),
    }
}

/// An output of one text.
pub fn output(text: impl Into<String>) -> TaskOutput {
    TaskOutput::Tool(ToolOutput { is_error: false, ..ToolOutput::failure(text) })
}

/// The change that completes a task.
pub fn completion(task: &Task, output: TaskOutput) -> Change {
    let phase = Phase::Ended(Outcome::Output { is_error: output.is_error() });
    Change { output: Some(Arc::new(output)), ..Change::of(Task { phase, lease: None, ..task.clone() }) }
}

/// A task in which every field and every kind of question, answer and id is used.
pub fn full_task() -> Task {
    let meta = || vec![("dev.example/k".to_owned(), Json::new("[1]"))];
    let ask = |key: &str, kind| InputRequest { key: key.to_owned(), kind, meta: meta() };
    let input = |key: &str, kind, answer| Input {
        issued_key: format!("{key}-2"),
        request: ask(key, kind),
        answer: Some(answer),
    };
    let form = InputRequestKind::Form { message: "Which column?".to_owned(), requested_schema: Json::new("{}") };
    let url = InputRequestKind::Url {
        message: "Log in".to_owned(),
        url: "https://example.org/login".to_owned(),
        elicitation_id: "e1".to_owned(),
    };
    let accepted =
        InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(Json::new(r#"{"x":2}"#)) };
    let roots = InputResponse::Roots(vec![Root { uri: "file:///a".to_owned(), name: Some("a".to_owned()) }]);
    Task {
        revision: 7,
        origin: Origin {
            era: Era::Modern,
            design: Design::Sep1686,
            session: Some([9; 16]),
            features: ClientFeatures::default().with(ClientFeature::Sampling).with(ClientFeature::Tasks),
            log_level: Some(LogLevel::Warning),
            progress_token: Some(Json::new("\"t\"")),
            trace: None,
        },
        updated_at: 1_700_000_000_123,
        created_at: 1_700_000_000_000,
        retention: Retention::FromCompletion { keep_alive_ms: 60_000 },
        phase: Phase::Paused { before: Active::InputRequired },
        status_message: Some("waiting".to_owned()),
        inputs: vec![
            input("form", form, accepted),
            input("url", url, InputResponse::Elicitation { action: ElicitationAction::Decline, content: None }),
            input("sampling", InputRequestKind::Sampling(Json::new("{}")), InputResponse::Sampling(Json::new("{}"))),
            input("roots", InputRequestKind::Roots, roots),
            input("again", InputRequestKind::Roots, InputResponse::Refused("no".to_owned())),
            Input { issued_key: "open".to_owned(), request: ask("open", InputRequestKind::Roots), answer: None },
        ],
        steering: vec!["faster".to_owned()],
        steering_delivered: 3,
        alias: Some("mine".to_owned()),
        lease: Some(Lease { node: NodeId([8; 16]), until: 99 }),
        attempt: 2,
        related: vec![task_id(1)],
        ..task(requestor(1, 2), 300)
    }
}

/// The full task with a trace, every kind of transition, a holder and a durable marker.
pub fn traced_task() -> Task {
    let transitions = [
        Transition::Started { attempt: 1 },
        Transition::InputRequested { requests: 2 },
        Transition::Answered { open: 1 },
        Transition::Paused,
        Transition::Resumed,
        Transition::Interrupted,
        Transition::Cancelled { from: Active::InputRequired, is_paused: true },
        Transition::Succeeded,
        Transition::ToolError,
        Transition::Failed,
    ];
    // More than one of each, so that there is something left out.
    let all = transitions.into_iter().cycle().take(TIMELINE_MAX);
    let entries = (0..).zip(all).map(|(n, transition)| TimelineEntry { at: 1_700_000_000_000 + n * 1_000, transition });
    let mut task = Task {
        timeline: Timeline::restored(entries.collect(), 6).expect("as many as fit"),
        holder: Holder::new("host-1"),
        durable: DurableMarker::new(1, 2, 0xfedc_ba98, vec![1, 2, 3]),
        ..full_task()
    };
    task.origin.trace = TraceContext::new([0xab; 16], [0xcd; 8], true);
    task
}

/// An output of each kind of work that is no call of a tool.
pub fn other_outputs() -> Vec<TaskOutput> {
    let meta = || vec![("k".to_owned(), Json::new("[1]"))];
    let body = ResourceBody::Blob(vec![0, 255]);
    let contents = ResourceContents { uri: "x:y".to_owned(), mime_type: Some("a/b".to_owned()), body, meta: meta() };
    let content = Content { kind: ContentKind::Text("hello".to_owned()), annotations: None, meta: meta() };
    let messages = vec![PromptMessage { role: Role::Assistant, content }];
    let prompt = PromptOutput { description: Some("d".to_owned()), messages, meta: meta() };
    let values = vec!["one".to_owned(), "two".to_owned()];
    let completion = Completion { values, total: Some(9), has_more: true, meta: meta() };
    vec![
        TaskOutput::Contents(vec![contents]),
        TaskOutput::Prompt(prompt),
        TaskOutput::Completion(completion),
        TaskOutput::Answer(Json::new(r#"{"tools":[]}"#)),
    ]
}

/// An output with every kind of content.
pub fn full_output() -> TaskOutput {
    TaskOutput::Tool(full_tool_output())
}

fn full_tool_output() -> ToolOutput {
    let plain = |kind| Content { kind, annotations: None, meta: Vec::new() };
    let annotations = Annotations {
        audience: vec![Role::User, Role::Assistant],
        priority: Some(0.5),
        last_modified: Some("2026".to_owned()),
    };
    let link = ResourceLink {
        uri: "file:///r".to_owned(),
        name: "r".to_owned(),
        title: Some("R".to_owned()),
        description: None,
        mime_type: Some("text/plain".to_owned()),
        size: Some(12),
    };
    let contents = |body| ResourceContents { uri: "x:y".to_owned(), mime_type: None, body, meta: Vec::new() };
    ToolOutput {
        content: vec![
            Content { kind: ContentKind::Text("hello".to_owned()), annotations: Some(annotations), meta: Vec::new() },
            plain(ContentKind::Image { data: vec![0, 255], mime_type: "image/png".to_owned() }),
            plain(ContentKind::Audio { data: vec![1, 2, 3], mime_type: "audio/wav".to_owned() }),
            plain(ContentKind::ResourceLink(link)),
            plain(ContentKind::Resource(contents(ResourceBody::Text("t".to_owned())))),
            plain(ContentKind::Resource(contents(ResourceBody::Blob(vec![7])))),
        ],
        structured: Some(Json::new(r#"{"rows":3}"#)),
        is_error: true,
        meta: vec![("k".to_owned(), Json::new("null"))],
    }
}
