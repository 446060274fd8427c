//! The requests that a server gets.
//!
//! Owns their bytes. Invariant: they follow from their arguments alone: no clock, no chance, no count of requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};

use super::McpEra;
use crate::app_views::views_extension;
use bulkhead_domain::call::{ClientFeature, ClientFeatures, UI_EXTENSION};

/// The id of every call: it is the only one of its instance.
pub(super) const REQUEST_ID: u64 = 1;
/// The id of the handshake before it, over standard input.
pub(super) const GREETING_ID: u64 = 0;
/// The token of its progress.
pub(super) const PROGRESS_TOKEN: &str = "call";
/// Whom a request is for: servers that fear rebinding take loopback names alone.
const HOST_NAME: &str = "localhost";
/// The lowest level of records that a server is asked for. What a client wants of them is decided here.
const LOG_LEVEL: &str = "info";

/// The keyword of a schema that names a header.
const HEADER_MARK: &str = "x-mcp-header";

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");

/// One request, before it is bytes.
pub(crate) struct Request {
    pub(super) era: McpEra,
    /// `None`: it is written to standard input.
    pub(super) path: Option<String>,
    pub(super) method: &'static str,
    /// What `Mcp-Name` repeats.
    pub(super) name: Option<String>,
    /// Members of the params, each with its JSON text.
    pub(super) params: Vec<(&'static str, String)>,
    /// What the server may ask.
    pub(super) features: ClientFeatures,
    /// Arguments that headers repeat.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Request {
    pub(super) fn new(era: McpEra, path: Option<&str>, method: &'static str) -> Self {
        Self {
            era,
            path: path.map(str::to_owned),
            method,
            name: None,
            params: Vec::new(),
            features: ClientFeatures::default(),
            headers: Vec::new(),
        }
    }

    /// The first request to a server of 2025-11-25. Calls over HTTP do without.
    pub(super) fn initialize(path: Option<&str>) -> Self {
        let mut request = Self::new(McpEra::Legacy, path, "initialize");
        let info = client_info().to_string();
        let version = Value::from(McpEra::Legacy.revision()).to_string();
        request.params = vec![("protocolVersion", version), ("capabilities", "{}".to_owned()), ("clientInfo", info)];
        request
    }

    pub(crate) fn is_over_http(&self) -> bool {
        self.path.is_some()
    }

    /// Whether a handshake goes before it.
    pub(super) fn is_greeted(&self) -> bool {
        self.era == McpEra::Legacy && self.method != "initialize"
    }

    /// As a server reads it from standard input, with the handshake where its era has one.
    pub(super) fn into_lines(self) -> String {
        let call = self.body();
        if !self.is_greeted() {
            return format!("{call}\n");
        }
        let params = json!({
            "protocolVersion": self.era.revision(),
            "capabilities": capabilities(self.features),
            "clientInfo": client_info(),
        });
        let greeting = json!({"jsonrpc": "2.0", "id": GREETING_ID, "method": "initialize", "params": params});
        let greeted = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        format!("{greeting}\n{greeted}\n{call}\n")
    }

    /// With another member of its params.
    pub(super) fn with(mut self, member: &'static str, json: String) -> Self {
        self.params.push((member, json));
        self
    }

    /// About something that the headers name as well.
    pub(super) fn named(mut self, member: &'static str, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self.with(member, Value::from(name).to_string())
    }

    /// A later page of a list.
    pub(super) fn at_cursor(self, cursor: Option<&str>) -> Self {
        match cursor {
            Some(cursor) => self.with("cursor", Value::from(cursor).to_string()),
            None => self,
        }
    }

    /// As HTTP has it; `None`: its path is none.
    pub(super) fn into_http(self) -> Option<http::Request<Bytes>> {
        let body = self.body();
        let mut request = http::Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.as_deref()?.parse::<Uri>().ok()?;
        let size = HeaderValue::from(request.body().len());
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_static(HOST_NAME));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_LENGTH, size);
        if self.method != "initialize" {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(self.era.revision()));
        }
        if self.era == McpEra::Modern {
            headers.insert(MCP_METHOD, HeaderValue::from_static(self.method));
            headers.extend(self.name.as_deref().map(|name| (MCP_NAME, header_value(name))));
            headers.extend(self.headers);
        }
        Some(request)
    }

    fn body(&self) -> String {
        let mut members: Vec<_> = self.params.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
        if self.method != "initialize" {
            members.push(format!("\"_meta\":{}", self.meta()));
        }
        let params = members.join(",");
        format!(r#"{{"jsonrpc":"2.0","id":{REQUEST_ID},"method":"{}","params":{{{params}}}}}"#, self.method)
    }

    fn meta(&self) -> Value {
        match self.era {
            McpEra::Legacy => json!({"progressToken": PROGRESS_TOKEN}),
            McpEra::Modern => json!({
                "progressToken": PROGRESS_TOKEN,
                "io.modelcontextprotocol/protocolVersion": self.era.revision(),
                "io.modelcontextprotocol/clientInfo": client_info(),
                "io.modelcontextprotocol/clientCapabilities": capabilities(self.features),
                "io.modelcontextprotocol/logLevel": LOG_LEVEL,
            }),
        }
    }
}

/// Tells a server that reads on that nobody wants its answer.
pub(super) fn cancellation() -> String {
    let params = json!({"requestId": REQUEST_ID, "reason": "the client cancelled the call"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string()
}

/// The version is that of these bytes: another one of the host sends the same.
fn client_info() -> Value {
    json!({"name": "bulkhead", "version": "1"})
}

/// What the client of the call can be asked.
fn capabilities(features: ClientFeatures) -> Value {
    let some = |members: &[(&str, ClientFeature)]| {
        let declared = members.iter().filter(|(_, feature)| features.contains(*feature));
        declared.map(|(name, _)| ((*name).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>()
    };
    let mut declared = some(&[("roots", ClientFeature::Roots)]);
    let modes = some(&[("form", ClientFeature::ElicitationForm), ("url", ClientFeature::ElicitationUrl)]);
    if !modes.is_empty() {
        declared.insert("elicitation".to_owned(), modes.into());
    }
    if features.contains(ClientFeature::Sampling) {
        let more = some(&[("tools", ClientFeature::SamplingTools), ("context", ClientFeature::SamplingContext)]);
        declared.insert("sampling".to_owned(), more.into());
    }
    if features.has_views() {
        declared.insert("extensions".to_owned(), json!({UI_EXTENSION: views_extension()}));
    }
    declared.into()
}

/// A text as the value of a header, in base64 where it would not be one.
pub(super) fn header_value(text: &str) -> HeaderValue {
    let is_plain = !text.starts_with([' ', '\t']) && !text.ends_with([' ', '\t']) && !text.starts_with("=?base64?");
    let plain = text.bytes().all(|byte| (0x20..0x7F).contains(&byte)).then(|| HeaderValue::from_str(text).ok());
    let encoded = || HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text)));
    plain.flatten().filter(|_| is_plain).or_else(|| encoded().ok()).unwrap_or_else(|| HeaderValue::from_static(""))
}

/// The headers that repeat arguments whose schema says so.
pub(super) fn argument_headers(schema: &str, arguments: &str) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    if schema.contains(HEADER_MARK) {
        let schema = serde_json::from_str(schema).unwrap_or_default();
        let arguments = serde_json::from_str(arguments).unwrap_or_default();
        add_headers(&schema, &arguments, &mut headers);
    }
    headers
}

fn add_headers(schema: &Value, arguments: &Value, headers: &mut Vec<(HeaderName, HeaderValue)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name) else { continue };
        let text = match argument {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(argument.to_string()),
            _ => None,
        };
        let mark = property.get(HEADER_MARK).and_then(Value::as_str);
        let header = mark.and_then(|mark| HeaderName::from_bytes(format!("mcp-param-{mark}").as_bytes()).ok());
        headers.extend(header.zip(text).map(|(header, text)| (header, header_value(&text))));
        add_headers(property, argument, headers);
    }
}
