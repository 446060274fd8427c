//! Questions to a client, as requests or as parts of results; and its answers.
//!
//! Owns the shapes of `elicitation/create`, `sampling/createMessage` and `roots/list` in both directions. An answer
//! that does not fit its question is told to the guest as refused, with the reason: it is a decision of the client like
//! any other.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::arguments::INLINE_BYTES_MAX;
use crate::capabilities::ClientTasks;
use crate::error::RpcError;
use crate::jsonrpc::{self, strict_value};
use crate::reader;
use crate::session::Reply;
use crate::version::Version;
use crate::wire::{MetaView, Raw, RelatedTask};
use bulkhead_calls::schema::Validator;
use bulkhead_domain::Json;
use bulkhead_domain::call::{
    ClientFeature, ClientFeatures, ElicitationAction, InputRequest, InputRequestKind, InputResponse, Root,
};
use bulkhead_domain::requestor::Requestor;
use bulkhead_tasks::Tasks;

/// What of a client's error text a guest gets to read.
const REFUSAL_CHARS_MAX: usize = 500;

/// Whether a client that declared these features can be asked this.
pub(crate) fn can_answer(features: ClientFeatures, kind: &InputRequestKind) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct SamplingNeeds<'a> {
        #[serde(borrow)]
        tools: Option<&'a RawValue>,
        #[serde(borrow)]
        tool_choice: Option<&'a RawValue>,
        include_context: Option<String>,
    }
    let mut able = features.contains(kind.feature());
    if let InputRequestKind::Sampling(text) = kind {
        let needs: SamplingNeeds<'_> = serde_json::from_str(text.as_str()).unwrap_or_default();
        let tools = needs.tools.is_some() || needs.tool_choice.is_some();
        let context = needs.include_context.is_some_and(|context| context != "none");
        able &= !tools || features.contains(ClientFeature::SamplingTools);
        able &= !context || features.contains(ClientFeature::SamplingContext);
    }
    able
}

/// The request's method.
pub(crate) fn method(kind: &InputRequestKind) -> &'static str {
    match kind {
        InputRequestKind::Form { .. } | InputRequestKind::Url { .. } => "elicitation/create",
        InputRequestKind::Sampling(_) => "sampling/createMessage",
        InputRequestKind::Roots => "roots/list",
    }
}

/// Whether the client takes this request as a task of its own.
pub(crate) fn as_client_task(client: ClientTasks, kind: &InputRequestKind) -> bool {
    match kind {
        InputRequestKind::Form { .. } | InputRequestKind::Url { .. } => client.elicitation,
        InputRequestKind::Sampling(_) => client.sampling,
        InputRequestKind::Roots => false,
    }
}

#[derive(Serialize)]
struct Ttl {
    ttl: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputRequestParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_schema: Option<Raw<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elicitation_id: Option<&'a str>,
    /// Members of a sampling request.
    #[serde(flatten)]
    other: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Ttl>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<MetaView<'a>>,
}

/// How a question is to be asked.
#[derive(Clone, Copy)]
pub(crate) struct InputRequestOptions<'a> {
    pub(crate) version: Version,
    pub(crate) related: Option<&'a RelatedTask>,
    /// Set: as a task of the client that is kept this long.
    pub(crate) task_ttl_ms: Option<u64>,
}

/// The request as a line; `None` when what the guest asks is no JSON.
pub(crate) fn request(id: &str, request: &InputRequest, options: InputRequestOptions<'_>) -> Option<String> {
    jsonrpc::request(id, method(&request.kind), &ask(request, options)?)
}

/// A question as a part of a result, the way of 2026-07-28.
#[derive(Serialize)]
pub(crate) struct InputRequestView<'a> {
    method: &'static str,
    params: InputRequestParams<'a>,
}

impl<'a> InputRequestView<'a> {
    /// `None` when what the guest asks is no JSON.
    pub(crate) fn new(request: &'a InputRequest) -> Option<Self> {
        let options = InputRequestOptions { version: Version::V2025_11_25, related: None, task_ttl_ms: None };
        // URL elicitations have no id any more.
        let params = InputRequestParams { elicitation_id: None, ..ask(request, options)? };
        Some(Self { method: method(&request.kind), params })
    }
}

fn ask<'a>(request: &'a InputRequest, options: InputRequestOptions<'a>) -> Option<InputRequestParams<'a>> {
    let mut ask = InputRequestParams {
        mode: None,
        message: None,
        requested_schema: None,
        url: None,
        elicitation_id: None,
        other: Map::new(),
        task: options.task_ttl_ms.map(|ttl| Ttl { ttl }),
        meta: MetaView::new(&request.meta, options.related),
    };
    match &request.kind {
        InputRequestKind::Form { message, requested_schema } => {
            ask.mode = options.version.has_tasks().then_some("form");
            ask.message = Some(message);
            ask.requested_schema = Some(Raw(requested_schema));
        }
        InputRequestKind::Url { message, url, elicitation_id } => {
            (ask.mode, ask.message) = (Some("url"), Some(message.as_str()));
            (ask.url, ask.elicitation_id) = (Some(url.as_str()), Some(elicitation_id.as_str()));
        }
        InputRequestKind::Sampling(text) => {
            ask.other = serde_json::from_str(text.as_str()).ok()?;
            ask.other.remove("task");
            ask.other.remove("_meta");
        }
        InputRequestKind::Roots => {}
    }
    Some(ask)
}

/// The answer in a client's response.
pub(crate) fn answer(kind: &InputRequestKind, reply: &Reply) -> InputResponse {
    match reply {
        Ok(result) => read_answer(kind, result)
            .unwrap_or_else(|reason| InputResponse::Refused(format!("the client's answer cannot be used: {reason}"))),
        Err(error) => InputResponse::Refused(error.message.chars().take(REFUSAL_CHARS_MAX).collect()),
    }
}

/// The same; a large one is read off the threads that serve other requests, and charged to its sender's share.
pub(crate) async fn answer_offloaded(
    tasks: &Tasks,
    requestor: &Requestor,
    kind: &InputRequestKind,
    reply: Reply,
) -> InputResponse {
    if reply.as_ref().map_or(0, |result| result.len()) <= INLINE_BYTES_MAX {
        return answer(kind, &reply);
    }
    let kind = kind.clone();
    let read = tasks.offload(requestor, move || answer(&kind, &reply)).await;
    read.unwrap_or_else(|_| InputResponse::Refused("the host could not read the client's answer".to_owned()))
}

/// The answer in a result object, or why it is none to this question. Also for the dashboard, whose users answer in a
/// form.
///
/// # Errors
///
/// The object is no answer, or one that the requested schema does not allow.
pub fn read_answer(kind: &InputRequestKind, result: &str) -> Result<InputResponse, String> {
    match kind {
        InputRequestKind::Form { requested_schema, .. } => elicited(result, Some(requested_schema)),
        InputRequestKind::Url { .. } => elicited(result, None),
        InputRequestKind::Sampling(_) => sampled(result),
        InputRequestKind::Roots => roots(result),
    }
}

/// What is said of an answer among others that is none to its question.
pub(crate) fn unusable_answer(key: &str, reason: &str) -> RpcError {
    let path = reader::member("params.inputResponses", key);
    RpcError::invalid_params(format!("{path} cannot be used: {reason}"))
}

fn read<'a, T: Deserialize<'a>>(result: &'a str) -> Result<T, String> {
    reader::read(result, "")
}

fn elicited(result: &str, schema: Option<&Json>) -> Result<InputResponse, String> {
    #[derive(Deserialize)]
    struct Elicited<'a> {
        action: String,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }
    let elicited: Elicited<'_> = read(result)?;
    let action = match elicited.action.as_str() {
        "accept" => ElicitationAction::Accept,
        "decline" => ElicitationAction::Decline,
        "cancel" => ElicitationAction::Cancel,
        _ => return Err("action must be accept, decline or cancel".to_owned()),
    };
    let content = match schema {
        Some(schema) if action == ElicitationAction::Accept => Some(form_content(elicited.content, schema)?),
        _ => None,
    };
    Ok(InputResponse::Elicitation { action, content })
}

fn form_content(content: Option<&RawValue>, schema: &Json) -> Result<Json, String> {
    let text = content.map_or("{}", RawValue::get);
    let value = strict_value(text).map_err(|reason| format!("content: {reason}"))?;
    if !value.is_object() {
        return Err(reader::unfit("content", "an object", text));
    }
    let validator = Validator::compile(schema.as_str())
        .map_err(|wrong| format!("the requested schema cannot be used: {}", wrong.join("; ")))?;
    validator.check(&value).map_err(|violations| {
        let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
        format!("content: {}", texts.join("; ")).chars().take(REFUSAL_CHARS_MAX).collect::<String>()
    })?;
    Ok(Json::new(text))
}

fn sampled(result: &str) -> Result<InputResponse, String> {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only their presence is asked for")]
    struct Sampled<'a> {
        role: String,
        model: String,
        #[serde(borrow)]
        content: &'a RawValue,
    }
    read::<Sampled<'_>>(result)?;
    strict_value(result)?;
    Ok(InputResponse::Sampling(Json::new(result)))
}

fn roots(result: &str) -> Result<InputResponse, String> {
    #[derive(Deserialize)]
    struct Listed {
        roots: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        uri: String,
        name: Option<String>,
    }
    let listed: Listed = read(result)?;
    Ok(InputResponse::Roots(listed.roots.into_iter().map(|entry| Root { uri: entry.uri, name: entry.name }).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::PeerError;
    use serde_json::json;

    fn reply(value: &Value) -> Reply {
        Ok(value.to_string().into())
    }

    fn form() -> InputRequestKind {
        let schema = json!({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]});
        InputRequestKind::Form { message: "How old?".into(), requested_schema: Json::new(schema.to_string()) }
    }

    fn asked(kind: InputRequestKind) -> InputRequest {
        InputRequest { key: "k".into(), kind, meta: Vec::new() }
    }

    fn line(kind: InputRequestKind, manner: InputRequestOptions<'_>) -> Value {
        serde_json::from_str(&request("a-1", &asked(kind), manner).unwrap()).unwrap()
    }

    const PLAIN: InputRequestOptions<'static> =
        InputRequestOptions { version: Version::V2025_11_25, related: None, task_ttl_ms: None };

    #[test]
    fn input_requests_have_the_shape_of_their_revision() {
        let Value::Object(mut expected) = json!({"mode": "form", "message": "How old?", "requestedSchema":
            {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}})
        else {
            unreachable!()
        };
        assert_eq!(line(form(), PLAIN)["params"], Value::Object(expected.clone()));
        expected.remove("mode");
        let older = InputRequestOptions { version: Version::V2025_06_18, ..PLAIN };
        assert_eq!(line(form(), older)["params"], Value::Object(expected));

        let url = InputRequestKind::Url {
            message: "Go".into(),
            url: "https://a.example".into(),
            elicitation_id: "e1".into(),
        };
        let task = RelatedTask::core(bulkhead_domain::task::TaskId([0x11; 16]));
        let related = InputRequestOptions { related: Some(&task), task_ttl_ms: Some(5000), ..PLAIN };
        let expected = json!({"jsonrpc": "2.0", "id": "a-1", "method": "elicitation/create", "params": {"mode": "url",
            "message": "Go", "url": "https://a.example", "elicitationId": "e1", "task": {"ttl": 5000},
            "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "11".repeat(16)}}}});
        assert_eq!(line(url, related), expected);

        let sampling =
            InputRequestKind::Sampling(Json::new(r#"{"messages":[],"maxTokens":5,"task":{"ttl":1},"_meta":{"a":1}}"#));
        assert_eq!(line(sampling, PLAIN)["params"], json!({"messages": [], "maxTokens": 5}));
        assert_eq!(line(InputRequestKind::Roots, PLAIN)["method"], "roots/list");
        let form = InputRequestKind::Form { message: String::new(), requested_schema: Json::new("{}") };
        for kind in [form, InputRequestKind::Sampling(Json::new("{}")), InputRequestKind::Roots] {
            assert_eq!(method(&kind), kind.operation_name(), "traces call it what the wire does");
        }
    }

    #[test]
    fn elicitation_answer_is_checked_against_form_schema() {
        let accept = |content: Value| answer(&form(), &reply(&json!({"action": "accept", "content": content})));
        let accepted =
            InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(Json::new(r#"{"age":7}"#)) };
        assert_eq!(accept(json!({"age": 7})), accepted);
        for wrong in [json!({"age": "x"}), json!({}), json!(null), json!([])] {
            assert!(matches!(accept(wrong), InputResponse::Refused(_)));
        }
        let declined = answer(&form(), &reply(&json!({"action": "decline", "content": {"age": "x"}})));
        assert_eq!(declined, InputResponse::Elicitation { action: ElicitationAction::Decline, content: None });
        assert!(matches!(answer(&form(), &reply(&json!({"action": "maybe"}))), InputResponse::Refused(_)));
    }

    #[test]
    fn invalid_input_answers_become_refusals() {
        let error = Err(PeerError { message: "User rejected".into() });
        assert_eq!(answer(&InputRequestKind::Roots, &error), InputResponse::Refused("User rejected".into()));
        assert!(matches!(answer(&InputRequestKind::Roots, &reply(&json!([]))), InputResponse::Refused(_)));
        assert!(matches!(
            answer(&InputRequestKind::Sampling(Json::new("{}")), &reply(&json!({"role": "x"}))),
            InputResponse::Refused(_)
        ));
    }

    #[test]
    fn roots_and_sampling_answers_are_passed_on() {
        let listed = answer(&InputRequestKind::Roots, &reply(&json!({"roots": [{"uri": "file:///a", "name": "A"}]})));
        assert_eq!(listed, InputResponse::Roots(vec![Root { uri: "file:///a".into(), name: Some("A".into()) }]));
        let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}});
        let sampled = answer(&InputRequestKind::Sampling(Json::new("{}")), &reply(&message));
        assert_eq!(sampled, InputResponse::Sampling(Json::new(message.to_string())));
    }

    #[test]
    fn sampling_with_tools_needs_the_client_capability() {
        let kind = InputRequestKind::Sampling(Json::new(r#"{"messages":[],"maxTokens":5,"tools":[]}"#));
        let sampling = ClientFeatures::default().with(ClientFeature::Sampling);
        assert!(!can_answer(sampling, &kind));
        assert!(can_answer(sampling.with(ClientFeature::SamplingTools), &kind));
    }
}
