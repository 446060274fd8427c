//! A page of the host as a client of it: one request of the newest revision at a time, put to `Protocol::receive` like
//! any other.
//!
//! Owns the messages that a page sends, and which of the reports before an answer it keeps. Must not check anything:
//! limits, rates, rights, schemas and the order in which they are looked at are those of every client. Invariant: what
//! a page is answered is what another client of the same requestor would be; dropping a request that is under way stops
//! its call.

use bytes::Bytes;
use futures::StreamExt as _;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::capabilities::TASKS_EXTENSION;
use crate::encoded_message::EncodedMessage;
use crate::envelope::Envelope;
use crate::error::{Rejection, RpcError};
use crate::jsonrpc::error_body;
use crate::version::MODERN;
use crate::{Mcp as _, Peer, Protocol, Received};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;

/// Messages before an answer that a page of the host is given.
const REPORTS_MAX: usize = 20;
/// Characters of each.
const REPORT_CHARS_MAX: usize = 2_000;

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct PageClient {
    protocol: Protocol,
}

/// A list that a page reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageList {
    Resources,
    ResourceTemplates,
    Prompts,
}

impl PageList {
    fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The member of its result with the entries.
    pub fn member(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

/// A request as it is sent.
#[derive(Clone, Debug)]
pub struct PageRequest(String);

/// Whether a call may go on as a task when it takes long, and ask its person there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayBecomeTask {
    Yes,
    No,
}

#[derive(Default, Serialize)]
struct Params<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
    #[serde(rename = "_meta")]
    meta: Value,
}

#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    id: u32,
    method: &'static str,
    params: Params<'a>,
}

impl PageRequest {
    /// `tools/call`. `arguments` is a text that should be a JSON object.
    ///
    /// # Errors
    ///
    /// Why it is no JSON.
    pub fn call_tool(name: &str, arguments: &str, may_become_task: MayBecomeTask) -> Result<Self, String> {
        let arguments: &RawValue = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        let capabilities = match may_become_task {
            // What is asked of a task is answered on its page.
            MayBecomeTask::Yes => json!({"elicitation": {"form": {}, "url": {}}, "extensions": {TASKS_EXTENSION: {}}}),
            MayBecomeTask::No => json!({}),
        };
        let params = Params { name: Some(name), arguments: Some(arguments), ..Params::default() };
        Ok(Self::new("tools/call", params, &capabilities))
    }

    /// `resources/read`.
    pub fn read_resource(uri: &str) -> Self {
        Self::new("resources/read", Params { uri: Some(uri), ..Params::default() }, &json!({}))
    }

    /// `prompts/get`.
    pub fn get_prompt(name: &str, arguments: &[(String, String)]) -> Self {
        let arguments = arguments.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        let arguments = serde_json::value::to_raw_value(&Value::Object(arguments)).ok();
        let params = Params { name: Some(name), arguments: arguments.as_deref(), ..Params::default() };
        Self::new("prompts/get", params, &json!({}))
    }

    /// A page of a list.
    pub fn list(list: PageList, cursor: Option<&str>) -> Self {
        Self::new(list.method(), Params { cursor, ..Params::default() }, &json!({}))
    }

    fn new(method: &'static str, params: Params<'_>, capabilities: &Value) -> Self {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        if let Value::Object(meta) = &mut meta {
            meta.insert("io.modelcontextprotocol/logLevel".to_owned(), "info".into());
            meta.insert("progressToken".to_owned(), 1.into());
        }
        let message = Message { jsonrpc: "2.0", id: 1, method, params: Params { meta, ..params } };
        // Of texts and JSON alone there is always a text.
        Self(serde_json::to_string(&message).unwrap_or_default())
    }

    /// The message.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// What came of a request.
#[derive(Debug)]
pub struct PageAnswer {
    pub response: EncodedMessage,
    /// Why it was refused as a whole, if it was.
    pub rejection: Option<Rejection>,
    /// The first messages before it: progress and logs. Each is cut.
    pub reports: Vec<String>,
    /// How many more there were.
    pub reports_left_out: usize,
}

impl Protocol {
    /// What pages of the host send requests with.
    pub fn page_client(&self) -> PageClient {
        PageClient { protocol: self.clone() }
    }
}

impl PageClient {
    /// Sends a request in the name of a requestor, and waits for the answer.
    pub async fn send(&self, requestor: &Requestor, rights: &Rights, request: &PageRequest) -> PageAnswer {
        let envelope = Envelope::parse(Bytes::copy_from_slice(request.0.as_bytes()));
        let peer = Peer {
            requestor: *requestor,
            rights: rights.clone(),
            session: None,
            declared: None,
            traceparent: None,
            connection: None,
            full: None,
            reads_events: true,
            ends: None,
        };
        let mut answer = PageAnswer {
            response: EncodedMessage::from(String::new()),
            rejection: None,
            reports: Vec::new(),
            reports_left_out: 0,
        };
        match self.protocol.receive(peer, &envelope) {
            Received::Exchange(mut exchange) => {
                while let Some(frame) = exchange.next().await {
                    if frame.last {
                        answer.response = frame.message;
                        answer.rejection = frame.rejection;
                        break;
                    }
                    answer.report(&frame.message);
                }
            }
            Received::Rejected { rejection, body } => {
                answer.response = body.into();
                answer.rejection = Some(rejection);
            }
            Received::Opened { .. } | Received::Accepted | Received::Settling(_) => {}
        }
        if answer.response.held() == 0 {
            answer.response = unanswered();
        }
        answer
    }
}

impl PageAnswer {
    fn report(&mut self, message: &EncodedMessage) {
        if self.reports.len() == REPORTS_MAX {
            self.reports_left_out += 1;
            return;
        }
        self.reports.push(message.text().chars().take(REPORT_CHARS_MAX).collect());
    }
}

/// In place of a response that there is not.
fn unanswered() -> EncodedMessage {
    error_body(None, &RpcError::host_failure(format_args!("a request of a page has no answer"))).into()
}
