//! What a requestor sees of a tool's view: a plain call whose result is shown as an MCP App shows it, and what the view
//! calls.
//!
//! Must not let a view do what its viewer may not. Invariants: a view is read and calls tools as a client of its viewer
//! would, with a form's token; it calls tools of its own plugin alone; without an origin for previews none of this is
//! there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_domain::call::VIEW_MIME_TYPE;
use bulkhead_domain::tool::Tool;
use bulkhead_protocol::{MayBecomeTask, PageAnswer, PageRequest};
use http::StatusCode;
use maud::Markup;
use serde_json::{Value, json};

use crate::app_preview::PreviewedBy;
use crate::host_name::VERSION;
use crate::own_tasks::{Own, absent};
use crate::own_tries::Attempt;
use crate::pages::{self, ShownView};
use crate::request::Form;
use crate::respond::{self, Answer};
use crate::server::DashboardParts;
use crate::tried::{ANSWER_BYTES_MAX, Tried};
use crate::{arguments, text};

/// Codes of JSON-RPC.
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

/// The view that is shown with a result.
#[derive(Clone, Copy)]
pub(crate) struct WantedView<'a> {
    pub(crate) by: PreviewedBy<'a>,
    tool: &'a Tool,
    uri: &'a str,
    /// What the tool was called with.
    arguments: &'a str,
}

/// A view as it was read.
struct ReadView {
    html: String,
    /// Of its `_meta.ui`.
    csp: Value,
}

impl Own<'_> {
    /// Calls a tool plainly and shows its view with the result.
    pub(crate) async fn try_view(&self, parts: &DashboardParts, name: &str, form: &Form) -> Answer {
        let calls = &parts.task_calls;
        let offered = calls.tool(self.requestor, self.rights, name);
        let (Some(offered), Some(by)) = (offered, self.previews) else { return absent(&self.frame) };
        let Some(uri) = offered.view() else { return absent(&self.frame) };
        let tool = offered.tool();
        let request = arguments::read(tool.input_schema.as_str(), form)
            .and_then(|arguments| Ok((PageRequest::call_tool(name, arguments.trim(), MayBecomeTask::No)?, arguments)));
        let (request, arguments) = match request {
            Ok(request) => request,
            Err(why) => return self.tool_page(calls, name, StatusCode::UNPROCESSABLE_ENTITY, Some((form, &why))),
        };
        let view = WantedView { by, tool, uri: &uri, arguments: arguments.trim() };
        let attempt = Attempt {
            request: &request,
            title: text::line(name),
            back: (format!("/tools/{name}"), "To the tool"),
            again: self.call_form(&offered, Some(form)),
            view: Some(view),
        };
        self.attempt(parts, attempt).await
    }

    /// The frame of a view that gets this answer to the call of its tool.
    pub(crate) async fn view(&self, parts: &DashboardParts, view: WantedView<'_>, answer: &PageAnswer) -> Markup {
        let WantedView { by, tool, uri, arguments } = view;
        let read = self.send_request(parts, &PageRequest::read_resource(uri)).await;
        let read = read.as_ref().ok_or_else(|| "it was not read in time".to_owned()).and_then(ReadView::read);
        let frame = read.and_then(|ReadView { html, csp }| {
            let address = by.frame_address(&csp).ok_or("it names more domains than a preview allows")?;
            Ok((address, html))
        });
        let (frame_address, html) = match frame {
            Ok(frame) => frame,
            Err(why) => return pages::no_view(&why),
        };
        let schema: Value = serde_json::from_str(tool.input_schema.as_str()).unwrap_or_default();
        let described = json!({"name": tool.name, "description": tool.description, "inputSchema": schema});
        let data = json!({"html": html, "input": arguments, "answer": answer.response.text(), "tool": described,
            "version": VERSION});
        let call = format!("/tools/{}/view/call", tool.name);
        let shown = ShownView { tool, frame_address, origin: by.origin(), call, data: data.to_string() };
        pages::view(self.session, &shown)
    }

    /// Calls a tool for the view of this one, which is answered with a message of JSON-RPC.
    pub(crate) async fn call_from_view(&self, parts: &DashboardParts, name: &str, form: &Form) -> Answer {
        let calls = &parts.task_calls;
        let shown = calls.tool(self.requestor, self.rights, name).filter(|shown| shown.view().is_some());
        let (Some(shown), Some(_)) = (shown, self.previews) else { return absent(&self.frame) };
        let named = form.get("name").unwrap_or_default();
        let Some(meant) = calls.tool_of_view(self.requestor, self.rights, &shown, named) else {
            let why = format!("Unknown tool: {}. A view calls tools of its own plugin", text::line(named));
            return refusal(INVALID_PARAMS, &why);
        };
        let arguments = form.get("arguments").unwrap_or("{}");
        let request = match PageRequest::call_tool(&meant.tool().name, arguments, MayBecomeTask::No) {
            Ok(request) => request,
            Err(why) => return refusal(INVALID_PARAMS, &format!("arguments: {why}")),
        };
        let Some(answer) = self.send_request(parts, &request).await else {
            return refusal(INTERNAL_ERROR, "The call was stopped: a page waits no longer");
        };
        if answer.response.wire_len() > ANSWER_BYTES_MAX {
            return refusal(INTERNAL_ERROR, "The result is too large for a preview");
        }
        let message = answer.response.text().into_owned().into_bytes();
        self.held(parts, StatusCode::OK, JSON, message).unwrap_or_else(|_| {
            refusal(INTERNAL_ERROR, "There is no room for the result: other answers wait to be read")
        })
    }
}

const JSON: &str = "application/json";

/// What a view is told in place of a result.
fn refusal(code: i64, message: &str) -> Answer {
    let message = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}});
    respond::answer(StatusCode::OK, JSON, message.to_string().into())
}

impl ReadView {
    /// Of what a resource was read as, or why that is no view.
    fn read(answer: &PageAnswer) -> Result<Self, String> {
        match Tried::read(answer) {
            Tried::Result(_) => Self::of_message(&answer.response.text()),
            Tried::Refused { message, .. } => Err(text::line(&message)),
            Tried::TooLarge(bytes) => Err(format!("it has {}", text::bytes(bytes as u64))),
            Tried::Task(_) | Tried::InputRequests(_) | Tried::Stopped => Err("it was not read".to_owned()),
        }
    }

    fn of_message(message: &str) -> Result<Self, String> {
        let mut message: Value = serde_json::from_str(message).map_err(|why| why.to_string())?;
        let contents = message.pointer_mut("/result/contents/0").ok_or("it has no contents")?;
        let mime = contents.get("mimeType").and_then(Value::as_str).unwrap_or_default();
        if mime != VIEW_MIME_TYPE {
            return Err(format!("its media type is {:?}, not {VIEW_MIME_TYPE}", text::line(mime)));
        }
        let csp = contents.pointer_mut("/_meta/ui/csp").map(Value::take).unwrap_or_default();
        let bytes = contents.get("blob").and_then(Value::as_str).and_then(|data| STANDARD.decode(data).ok());
        let html = match contents.get_mut("text").map(Value::take) {
            Some(Value::String(html)) => Some(html),
            _ => bytes.and_then(|bytes| String::from_utf8(bytes).ok()),
        };
        Ok(Self { html: html.ok_or("it is no text")?, csp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_is_html_of_its_media_type_with_what_it_may_reach() {
        let read = |contents: Value| ReadView::of_message(&json!({"result": {"contents": [contents]}}).to_string());
        let csp = json!({"connectDomains": ["https://a.example"]});
        let whole = json!({"uri": "ui://a", "mimeType": VIEW_MIME_TYPE, "text": "<p>", "_meta": {"ui": {"csp": csp}}});
        let ReadView { html, csp: named } = read(whole).unwrap();
        assert_eq!((html.as_str(), named), ("<p>", csp));
        let bytes = read(json!({"mimeType": VIEW_MIME_TYPE, "blob": "PHA+"})).unwrap();
        assert_eq!((bytes.html.as_str(), bytes.csp), ("<p>", Value::Null));
        for (contents, expected) in [
            (json!({"mimeType": "text/html", "text": "<p>"}), "media type is \"text/html\""),
            (json!({"text": "<p>"}), "media type is \"\""),
            (json!({"mimeType": VIEW_MIME_TYPE, "blob": "/w=="}), "no text"),
            (json!({"mimeType": VIEW_MIME_TYPE}), "no text"),
        ] {
            let why = read(contents).err().unwrap();
            assert!(why.contains(expected), "{why}");
        }
        assert!(ReadView::of_message("{}").is_err());
    }
}
