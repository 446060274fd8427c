//! JSON in, records out, and back: without any component.

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use wasmtime_wasi::cli::StdinStream as _;

use super::content::tool_output;
use super::dialect::without_draft_07;
use super::errors::{Failure, failure};
use super::exchange::Answer;
use super::listener::{Heard, Listener};
use super::messages::{Message, Reply, RpcError, read};
use super::multi_round_trip::{Round, input_needed, round};
use super::reader::{Framing, MessageReader};
use super::recognition::{Ask, Transport, recognize};
use super::requests::{Request, argument_headers, header_value};
use super::stdio::Conversation;
use super::{McpEra, features, tools};
use crate::bindings::bulkhead::plugin::task;
use crate::bindings::bulkhead::plugin::types as wit;
use crate::events::Outbox;
use crate::limits::LimitHit;
use crate::plugin_source::{McpMode, McpSettings};
use bulkhead_calls::ClientView;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, ClientFeatures, LogLevel};

fn text_of(value: &Value) -> Json {
    Json::new(value.to_string())
}

#[test]
fn modern_request_names_itself_in_body_and_headers() {
    let mut request = Request::new(McpEra::Modern, Some("/mcp"), "tools/call").with("name", "\"grün\"".to_owned());
    request.name = Some("grün".to_owned());
    request.features = ClientFeatures::default().with(ClientFeature::ElicitationForm).with(ClientFeature::Roots);
    let request = request.into_http().unwrap();
    let headers = request.headers();
    for (name, value) in [
        ("host", "localhost"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?Z3LDvG4=?="),
    ] {
        assert_eq!(headers[name], value);
    }
    assert!(!headers.contains_key("origin"));
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    let expected = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "grün", "_meta": {
        "progressToken": "call",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bulkhead", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}, "elicitation": {"form": {}}},
        "io.modelcontextprotocol/logLevel": "info",
    }}});
    assert_eq!(body, expected);
}

#[test]
fn legacy_request_has_its_version_and_nothing_of_the_other_era() {
    let request = Request::new(McpEra::Legacy, Some("/"), "tools/list").into_http().unwrap();
    assert_eq!(request.headers()["mcp-protocol-version"], "2025-11-25");
    assert!(!request.headers().contains_key("mcp-method"));
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(body["params"], json!({"_meta": {"progressToken": "call"}}));
}

#[test]
fn header_values_are_plain_or_base64_and_repeat_marked_arguments() {
    for (text, value) in [("plain", "plain"), (" a", "=?base64?IGE=?="), ("=?base64?", "=?base64?PT9iYXNlNjQ/?=")] {
        assert_eq!(header_value(text), value);
    }
    let schema = json!({"properties": {"region": {"x-mcp-header": "Region"}, "deep": {"properties": {
        "count": {"x-mcp-header": "Count"}}}, "other": {}, "absent": {"x-mcp-header": "Absent"}}});
    let arguments = json!({"region": "eu", "deep": {"count": 7}, "other": 1});
    let headers = argument_headers(&schema.to_string(), &arguments.to_string());
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(headers, [("mcp-param-region", "eu"), ("mcp-param-count", "7")]);
}

/// The messages of a body that comes in pieces of this size.
fn messages(framing: Framing, body: &str, piece: usize) -> Result<Vec<String>, LimitHit> {
    let mut reader = MessageReader::new(framing, 100);
    let mut messages = Vec::new();
    for bytes in body.as_bytes().chunks(piece) {
        messages.extend(reader.take(bytes)?);
    }
    messages.extend(reader.finish());
    Ok(messages.into_iter().map(|message| String::from_utf8(message).unwrap()).collect())
}

#[test]
fn events_are_read_as_they_come_whatever_ends_their_lines() {
    let body = ": comment\nevent: message\nid: 1\ndata: {\"a\":\ndata: 1}\n\ndata:two\r\n\r\ndata\rdata: three\r\r\
                datax: none\n\n\ndata: without an end";
    for piece in [1, 2, 7, 1000] {
        assert_eq!(messages(Framing::Events, body, piece).unwrap(), ["{\"a\":\n1}", "two", "\nthree"], "{piece}");
    }
    assert_eq!(messages(Framing::Whole, "{\"a\":\n\n1}", 3).unwrap(), ["{\"a\":\n\n1}"]);
    assert!(messages(Framing::Whole, "", 1).unwrap().is_empty());
}

#[test]
fn lines_are_messages_whatever_ends_the_last_one() {
    let lines = "{\"a\": 1}\n\n \r\n{\"b\":\r2}\r\nlast";
    for piece in [1, 5, 100] {
        assert_eq!(messages(Framing::JsonLines, lines, piece).unwrap(), ["{\"a\": 1}", "{\"b\":\r2}\r", "last"]);
    }
    let hit = LimitHit::Output { what: "answer", bytes_max: 100 };
    assert_eq!(messages(Framing::JsonLines, &"x".repeat(101), 10), Err(hit));
    assert_eq!(messages(Framing::JsonLines, &"\n".repeat(401), 10), Err(LimitHit::Messages { bytes_max: 400 }));
}

#[test]
fn handshake_goes_before_a_call_of_an_old_server_over_lines() {
    let call = |era| Request::new(era, None, "tools/call").with("name", "\"t\"".to_owned());
    let modern = call(McpEra::Modern).into_lines();
    assert!(
        modern.starts_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"") && modern.lines().count() == 1
    );
    let features = ClientFeatures::default().with(ClientFeature::Roots).with_views();
    let lines = Request { features, ..call(McpEra::Legacy) }.into_lines();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let methods: Vec<_> = lines.iter().map(|line| line["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/call"]);
    let views = json!({"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}});
    let declared = json!({"roots": {}, "extensions": views});
    assert_eq!(lines[0]["params"]["capabilities"], declared, "what the client can be asked and shown");
    assert_eq!(Request::initialize(None).into_lines().lines().count(), 1);
}

#[test]
fn server_is_answered_over_lines_alone() {
    let (sender, _receiver) = tokio::sync::mpsc::channel(1);
    let audience = ClientView { features: ClientFeatures::default(), log_level: None, wants_progress: false };
    let listener = || Listener::new("p", Outbox::new(sender.clone(), 1, 0), audience);
    let request = json!({"jsonrpc": "2.0", "id": "a", "method": "roots/list"}).to_string();
    assert!(listener().hear(request.as_bytes()).unwrap().is_none());
    let mut conversation = listener().in_conversation(true);
    let heard = conversation.hear(request.as_bytes()).unwrap();
    assert!(matches!(heard, Some(Heard::Request(request)) if request.id == json!("a") && request.params() == "{}"));
    let refusal = json!({"jsonrpc": "2.0", "id": 0, "error": {"code": -1, "message": "no"}}).to_string();
    let heard = conversation.hear(refusal.as_bytes()).unwrap();
    assert!(matches!(heard, Some(Heard::Reply(Reply::Error(_)))), "a refused handshake ends the call");
    assert!(conversation.hear(refusal.as_bytes()).unwrap().is_none(), "there is one handshake");
}

#[tokio::test(start_paused = true)]
async fn guest_that_reads_nothing_in_a_loop_is_made_to_wait() {
    let conversation = Conversation::default();
    let mut stdin = conversation.p2_stream();
    let begun = tokio::time::Instant::now();
    for _ in 0..40 {
        assert!(stdin.read(10).unwrap().is_empty());
        conversation.nap().await;
    }
    assert_eq!(begun.elapsed().as_millis(), 40, "5 ms for each look but the first 32");
    conversation.push("line");
    assert_eq!(stdin.read(10).unwrap(), "line\n");
    conversation.nap().await;
    assert_eq!(begun.elapsed().as_millis(), 40, "something came");
}

#[test]
fn messages_are_bounded_while_they_come() {
    let hit = LimitHit::Output { what: "answer", bytes_max: 100 };
    let one = "x".repeat(94);
    assert_eq!(messages(Framing::Events, &format!("data: {one}\n\n"), 10).unwrap().len(), 1);
    assert_eq!(
        messages(Framing::Events, &format!("data: {one}\ndata: {one}"), 10),
        Err(hit.clone()),
        "a frame of many lines"
    );
    assert_eq!(messages(Framing::Events, &"data: ".repeat(40), 10), Err(hit.clone()), "a line without an end");
    assert_eq!(messages(Framing::Whole, &"x".repeat(101), 10), Err(hit));
    let comments = ": alive\n\n".repeat(50);
    assert_eq!(messages(Framing::Events, &comments, 9), Err(LimitHit::Messages { bytes_max: 400 }));
}

#[test]
fn only_the_answer_to_the_call_is_its_reply() {
    let reads = |value: Value| read(&text_of(&value));
    let reply = |id: Value| reads(json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    assert!(matches!(reply(json!(1)), Message::Reply(Reply::Result(_))));
    for id in [json!(2), json!("1"), json!(null), json!(1.5)] {
        assert!(matches!(reply(id.clone()), Message::Stray), "{id}");
    }
    let error = json!({"code": -1, "message": "m"});
    for id in [json!(1), json!(null)] {
        let failed = reads(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        assert!(matches!(failed, Message::Reply(Reply::Error(_))), "{id}");
    }
    for stray in [
        json!({"jsonrpc": "2.0", "id": 1, "result": {}, "error": error}),
        json!({"jsonrpc": "2.0", "id": null, "method": "sampling/createMessage", "params": {}}),
        json!({"jsonrpc": "1.0", "id": 1, "result": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": []}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "x", "progress": 1}}),
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "loud", "data": 1}}),
    ] {
        assert!(matches!(reads(stray.clone()), Message::Stray), "{stray}");
    }
    let progress = json!({"progressToken": "call", "progress": 1, "total": 2, "message": "m"});
    let progress = reads(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}));
    assert!(matches!(progress, Message::Progress { progress, total: Some(_), message: Some(_) } if progress == 1.0));
    let log = json!({"level": "error", "data": {"a": 1}});
    let log = reads(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log}));
    assert!(matches!(log, Message::Log { level: LogLevel::Error, logger: None, data } if data == r#"{"a":1}"#));
}

#[test]
fn stray_messages_are_bounded() {
    let (sender, _receiver) = tokio::sync::mpsc::channel(1);
    let audience = ClientView { features: ClientFeatures::default(), log_level: None, wants_progress: false };
    let mut listener = Listener::new("p", Outbox::new(sender, 1, 0), audience);
    let stray = vec![b'x'; 32 << 10];
    assert!(listener.hear(&stray).unwrap().is_none());
    assert!(listener.hear(&stray).unwrap().is_none());
    assert_eq!(listener.hear(b"more").unwrap_err(), LimitHit::StrayMessages { bytes_max: 64 << 10 });
}

#[test]
fn results_become_records_without_what_belongs_to_the_protocol() {
    let result = json!({"resultType": "complete", "isError": true, "structuredContent": {"n": 1},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}, "example.com/own": [1], "progressToken": 1},
        "content": [
            {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 0.5}},
            {"type": "image", "data": "/wA=", "mimeType": "image/png"},
            {"type": "audio", "data": "", "mimeType": "audio/wav", "_meta": {"mcp.dev/x": 1, "a": 2}},
            {"type": "resource_link", "uri": "a:b", "name": "n", "size": 7, "icons": []},
            {"type": "resource", "resource": {"uri": "a:c", "mimeType": "text/plain", "text": "x"}},
            {"type": "resource", "resource": {"uri": "a:d", "blob": "AA=="}}]});
    let output = tool_output(&text_of(&result)).unwrap();
    assert!(output.is_error && output.structured.as_deref() == Some(r#"{"n":1}"#));
    assert_eq!(output.meta, [("example.com/own".to_owned(), "[1]".to_owned())]);
    let [wit::Content::Text(text), wit::Content::Image(image), wit::Content::Audio(audio), rest @ ..] =
        &output.content[..]
    else {
        panic!("{output:?}")
    };
    assert_eq!((text.text.as_str(), text.annotations.as_ref().unwrap().priority), ("t", Some(0.5)));
    assert_eq!((image.data.as_slice(), image.mime_type.as_str()), (&[0xFF, 0][..], "image/png"));
    assert_eq!(audio.meta, [("a".to_owned(), "2".to_owned())]);
    let [wit::Content::ResourceLink(link), wit::Content::Resource(text), wit::Content::Resource(blob)] = rest else {
        panic!("{rest:?}")
    };
    assert_eq!((link.uri.as_str(), link.size), ("a:b", Some(7)));
    assert!(matches!(&text.contents.body, wit::ResourceBody::Text(text) if text == "x"));
    assert!(matches!(&blob.contents.body, wit::ResourceBody::Blob(data) if data == &[0]));
}

#[test]
fn malformed_result_is_refused_by_place() {
    for (content, why) in [
        (json!({"type": "text"}), "content 0: it has no text"),
        (json!({"type": "video"}), "content 0: \"video\" is no kind of content"),
        (json!({"type": "image", "data": "?", "mimeType": "a/b"}), "content 0: its data is no base64"),
        (json!({"type": "resource", "resource": {"uri": "a:b"}}), "content 0: a resource has either"),
        (json!(7), "content 0: "),
    ] {
        let wrong = tool_output(&text_of(&json!({"content": [content]}))).unwrap_err();
        assert!(wrong.starts_with(why), "{wrong}");
    }
    assert!(tool_output(&text_of(&json!({"content": "x"}))).is_err());
}

#[test]
fn draft_07_passes_only_where_it_means_the_same() {
    let draft = |mut schema: Value| {
        schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        without_draft_07(&schema.to_string())
    };
    let plain = json!({"type": "object", "properties": {"a": {"type": "string", "format": "uri"}, "definitions": {}},
        "additionalProperties": false, "anyOf": [{"required": ["a"]}], "x-own": {"items": [1]}});
    let passed: Value = serde_json::from_str(&draft(plain.clone()).unwrap().unwrap()).unwrap();
    assert_eq!(passed, plain);
    for (schema, keyword) in [
        (json!({"properties": {"a": {"items": [{}]}}}), "\"items\""),
        (json!({"definitions": {}}), "\"definitions\""),
        (json!({"properties": {"a": {"anyOf": [{"$ref": "#", "type": "string"}]}}}), "\"$ref\""),
        (json!({"not": {"dependencies": {}}}), "\"dependencies\""),
        (json!({"additionalProperties": {"unevaluatedProperties": false}}), "\"unevaluatedProperties\""),
    ] {
        let wrong = draft(schema).unwrap_err();
        assert!(wrong.contains(keyword), "{wrong}");
    }
    for other in [r#"{"type":"object"}"#, r#"{"$schema":"https://json-schema.org/draft/2020-12/schema"}"#, "7"] {
        assert_eq!(without_draft_07(other), Ok(None), "{other}");
    }
}

#[test]
fn error_codes_become_the_interface_s_errors() {
    let of = |code: i64, message: &str, data: Option<Value>, reads: bool| {
        let data = data.map(|data| serde_json::value::to_raw_value(&data).unwrap());
        match failure(RpcError { code, message: message.to_owned(), data }, reads) {
            Failure::Error(error) => error,
            Failure::InputNeeded(_) => panic!("asked"),
        }
    };
    assert!(matches!(of(-32602, "bad", None, false), wit::CallError::InvalidParams(text) if text == "bad"));
    assert!(matches!(of(-32602, "Tool x not found", None, false), wit::CallError::NotFound(_)));
    assert!(matches!(of(-32602, "bad", None, true), wit::CallError::NotFound(_)));
    assert!(matches!(of(-32002, "gone", None, false), wit::CallError::NotFound(_)));
    let missing = |capabilities: Value| Some(json!({"requiredCapabilities": capabilities}));
    for (capabilities, expected) in [
        (json!({"elicitation": {"form": {}}}), wit::ClientFeature::ElicitationForm),
        (json!({"elicitation": {"url": {}}}), wit::ClientFeature::ElicitationUrl),
        (json!({"sampling": {"tools": {}}}), wit::ClientFeature::SamplingTools),
        (json!({"roots": {}}), wit::ClientFeature::Roots),
    ] {
        let error = of(-32021, "no", missing(capabilities), false);
        assert!(matches!(error, wit::CallError::MissingCapability(feature) if feature == expected), "{error:?}");
    }
    for code in [-32603, -32021, -32042, 7] {
        let error = of(code, "why", None, false);
        assert!(matches!(&error, wit::CallError::Internal(text) if text.contains("why")), "{error:?}");
    }
    let data =
        json!({"elicitations": [{"mode": "url", "elicitationId": "1", "url": "https://a.example", "message": "m"}]});
    let data = Some(serde_json::value::to_raw_value(&data).unwrap());
    let Failure::InputNeeded(needed) = failure(RpcError { code: -32042, message: String::new(), data }, false) else {
        panic!("not asked")
    };
    assert!(needed.is_agreement && needed.state.is_none() && needed.requests.len() == 1, "{needed:?}");
}

#[test]
fn input_requests_become_questions_and_answers_the_next_round() {
    let result = json!({"resultType": "input_required", "requestState": "s\"1", "inputRequests": {
        "form": {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"type": "object"}}},
        "page": {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a"}},
        "model": {"method": "sampling/createMessage", "params": {"messages": [], "_meta": {"a": 1}, "maxTokens": 1}},
        "roots": {"method": "roots/list"}}});
    let needed = input_needed(&text_of(&result)).unwrap().unwrap();
    let requests = needed.requests;
    let [form, page, model, roots] = &requests[..] else { panic!("{requests:?}") };
    assert!(matches!(&form.question, task::Question::Form(form) if form.requested_schema == r#"{"type":"object"}"#));
    assert!(matches!(&page.question, task::Question::Url(page) if page.url == "https://a"));
    assert!(matches!(&model.question, task::Question::Sampling(text) if text == r#"{"messages":[],"maxTokens":1}"#));
    assert!(matches!(&roots.question, task::Question::Roots));
    let response = |key: &str, answer| task::InputResponse { key: key.to_owned(), answer, meta: Vec::new() };
    let accepted = |content: Option<&str>| {
        let action = task::ElicitationAction::Accept;
        task::Answer::Elicitation(task::ElicitationAnswer { action, content: content.map(str::to_owned) })
    };
    let root = task::Root { uri: "file:///a".to_owned(), name: None, meta: Vec::new() };
    let responses = vec![
        response("form", accepted(Some(r#"{"name":"Ada"}"#))),
        response("page", accepted(None)),
        response("model", task::Answer::Sampling(r#"{"role":"assistant"}"#.to_owned())),
        response("roots", task::Answer::Roots(vec![root])),
    ];
    let Round { responses, state } = round(responses, needed.state, false).unwrap();
    assert_eq!(state.as_deref(), Some(r#""s\"1""#));
    let expected = json!({"form": {"action": "accept", "content": {"name": "Ada"}}, "page": {"action": "accept"},
        "model": {"role": "assistant"}, "roots": {"roots": [{"uri": "file:///a"}]}});
    assert_eq!(serde_json::from_str::<Value>(&responses.unwrap()).unwrap(), expected);
    let refused = response("form", task::Answer::Refused("no".to_owned()));
    assert!(round(vec![refused], None, false).unwrap_err().contains("did not answer"));
}

#[test]
fn result_that_asks_wrongly_is_refused() {
    let of = |result: Value| input_needed(&text_of(&result));
    assert!(of(json!({"content": []})).unwrap().is_none());
    for (result, why) in [
        (json!({"resultType": "task", "taskId": "1"}), "\"task\""),
        (json!({"resultType": "input_required"}), "neither which nor its state"),
        (json!({"resultType": "input_required", "requestState": "s".repeat((64 << 10) + 1)}), "65536 is the most"),
        (
            json!({"resultType": "input_required", "inputRequests": {"k": {"method": "tools/call"}}}),
            "\"tools/call\" is nothing that a client is asked",
        ),
    ] {
        let wrong = of(result).unwrap_err();
        assert!(wrong.contains(why), "{wrong}");
    }
}

/// A server that answers by method and cursor; 404 to all else.
struct Server(fn(&Request) -> Option<Answer>);

impl Ask for Server {
    async fn ask(&mut self, request: Request) -> Result<Answer, CallError> {
        Ok((self.0)(&request).unwrap_or_else(|| answer(404, &Value::Null)))
    }
}

fn answer(status: u16, result: &Value) -> Answer {
    let reply = result.is_object().then(|| Reply::Result(text_of(result)));
    Answer { status: StatusCode::from_u16(status).unwrap(), headers: HeaderMap::new(), reply }
}

fn refused(status: u16, code: i64, message: &str) -> Answer {
    let error = RpcError { code, message: message.to_owned(), data: None };
    Answer { reply: Some(Reply::Error(error)), ..answer(status, &Value::Null) }
}

fn one_tool() -> Value {
    json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "forbidden"}}]})
}

async fn found(
    server: fn(&Request) -> Option<Answer>,
    mode: Option<McpMode>,
) -> Result<Option<(McpEra, String)>, String> {
    let found = recognize(&mut Server(server), &McpSettings { mode, path: None }, Transport::Http).await;
    let found = found.map_err(|wrong| wrong.problems.join("; "))?;
    Ok(found.map(|found| (found.server.era, found.server.path.unwrap())))
}

#[tokio::test]
async fn era_is_what_discovery_says_and_not_that_a_list_succeeds() {
    let modern = |request: &Request| match (request.path.as_deref().unwrap(), request.method) {
        ("/mcp", "server/discover") => {
            Some(answer(200, &json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})))
        }
        ("/mcp", "tools/list") => Some(answer(200, &one_tool())),
        _ => None,
    };
    assert_eq!(found(modern, None).await, Ok(Some((McpEra::Modern, "/mcp".to_owned()))));
    // It answers whatever revision the list is asked in.
    let legacy = |request: &Request| match (request.path.as_deref().unwrap(), request.method) {
        ("/", "server/discover") => Some(refused(200, -32601, "Method not found")),
        ("/", "tools/list") => Some(answer(200, &one_tool())),
        _ => None,
    };
    assert_eq!(found(legacy, None).await, Ok(Some((McpEra::Legacy, "/".to_owned()))));
    assert_eq!(found(|_| None, Some(McpMode::Auto)).await, Ok(None));
    let refused = found(|_| None, Some(McpMode::Http)).await.unwrap_err();
    assert!(refused.contains("/mcp is none (404 Not Found); / is none"), "{refused}");
}

#[tokio::test]
async fn server_with_sessions_or_authorization_is_refused_in_words() {
    let session = |_: &Request| {
        let mut answer = answer(200, &json!({}));
        answer.headers.insert("mcp-session-id", HeaderValue::from_static("1"));
        Some(answer)
    };
    let stateful = |request: &Request| match request.method {
        "tools/list" => Some(refused(400, -32000, "Bad Request: Server not initialized")),
        _ => Some(refused(400, -32000, "unsupported")),
    };
    let guarded = |_: &Request| Some(refused(401, -32001, "Unauthorized"));
    for (server, why) in [
        (session as fn(&Request) -> Option<Answer>, "it answers with a session id"),
        (stateful, "it refuses a request without a session (\"Bad Request: Server not initialized\")"),
        (guarded, "answers 401 to a request without credentials"),
    ] {
        let refused = found(server, None).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let plain = |_: &Request| Some(answer(403, &Value::Null));
    assert_eq!(found(plain, None).await, Ok(None), "a web service may forbid what it likes");
    assert!(found(plain, Some(McpMode::Http)).await.is_err());
}

#[tokio::test]
async fn endless_list_is_refused_and_what_is_dropped_is_said() {
    let endless = |request: &Request| match request.method {
        "server/discover" => {
            Some(answer(200, &json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})))
        }
        _ => Some(answer(200, &json!({"tools": [], "nextCursor": "on"}))),
    };
    assert!(found(endless, None).await.unwrap_err().contains("it has more than 10 pages"));
    let page = json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}, "execution": {},
        "_meta": {"io.modelcontextprotocol/x": 1, "own": 2}}]});
    let page = tools::page(&text_of(&page)).unwrap();
    assert_eq!(page.dropped, ["execution of tool t", "_meta io.modelcontextprotocol/x of tool t"]);
    assert_eq!(page.tools[0].meta, [("own".to_owned(), "2".to_owned())]);
}

#[test]
fn resources_prompts_and_completions_become_records() {
    let page = features::resource_page(&text_of(&json!({"nextCursor": "2", "resources": [
        {"uri": "a:b", "name": "n", "size": 3, "annotations": {"audience": ["assistant"]},
         "_meta": {"io.modelcontextprotocol/x": 1, "ui": {}}}]})));
    let page = page.unwrap();
    assert_eq!((page.next.as_deref(), page.items[0].size, page.items[0].meta.len()), (Some("2"), Some(3), 1));
    let page =
        features::template_page(&text_of(&json!({"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "n"}]})));
    assert_eq!(page.unwrap().items[0].uri_template, "a:{b}");
    let page = features::prompt_page(&text_of(&json!({"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]})));
    assert!(!page.unwrap().items[0].arguments[0].required);
    let message = json!({"role": "assistant", "content": {"type": "text", "text": "t"}});
    let output = features::prompt_output(&text_of(&json!({"messages": [message]}))).unwrap();
    assert!(output.messages[0].role == wit::Role::Assistant && output.description.is_none());
    let wrong = json!({"messages": [{"role": "user", "content": {"type": "text"}}]});
    assert_eq!(features::prompt_output(&text_of(&wrong)).unwrap_err(), "message 0: it has no text");
    let completion = json!({"completion": {"values": ["a"], "total": 7, "hasMore": true}});
    let completion = features::completion(&text_of(&completion)).unwrap();
    assert_eq!((completion.values.len(), completion.total, completion.has_more), (1, Some(7), true));
}
