//! What was tried, with its answer and both messages; and the lists of resources and prompts to try.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_protocol::{PageAnswer, PageRequest};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::lists::counted;
use super::media::media_type;
use super::{Frame, more, notice, table, token};
use crate::columns::{FAMILIES, RESOURCES};
use crate::fields::{self, Kind};
use crate::request::Form;
use crate::sessions::Session;
use crate::text;
use crate::tried::{Body, Part, Tried, TriedResult};

/// Where resources are read and prompts filled in.
const READ: &str = "/resources/read";
const GET: &str = "/prompts/get";
/// Characters of an address that a button on a page of the dashboard stands for.
const URI_CHARS_MAX: usize = 2_000;
/// Arguments of a prompt that a page of the dashboard shows.
const ARGUMENTS_SHOWN_MAX: usize = 20;

/// Something that was tried.
pub(crate) struct TriedPage<'a> {
    pub(crate) title: &'a str,
    /// The page before, and what it is called.
    pub(crate) back: &'a str,
    pub(crate) back_label: &'a str,
    pub(crate) request: &'a PageRequest,
    /// `None`: nothing came in time.
    pub(crate) answer: Option<&'a PageAnswer>,
    pub(crate) tried: &'a Tried,
    pub(crate) took_ms: u64,
    /// Of the result.
    pub(crate) view: Option<&'a Markup>,
    pub(crate) again: &'a Markup,
}

/// `with_bytes`: whether images and files are on the page, too.
pub(crate) fn tried(frame: &Frame<'_>, page: &TriedPage<'_>, with_bytes: bool) -> Markup {
    frame.show(
        page.title,
        html! {
            p { a href=(page.back) { (page.back_label) } }
            // Without room for bytes there is none for a view.
            @if let Some(view) = page.view.filter(|_| with_bytes) { (view) }
            h2 { "Answer" }
            (outcome(page.tried, page.took_ms))
            @if let Tried::Result(result) = page.tried { (result_of(result, with_bytes)) }
            (messages(page.request, page.answer))
            h2 { "Once more" }
            (page.again)
        },
    )
}

/// What came of it, in a line.
fn outcome(tried: &Tried, took_ms: u64) -> Markup {
    let took = text::duration(took_ms);
    match tried {
        Tried::Result(result) if result.has_failed => {
            notice("bad", &format!("The tool says that it failed, after {took}."))
        }
        Tried::Result(_) => notice("good", &format!("Done in {took}.")),
        Tried::Task(id) => html! {
            p.notice.ask role="status" {
                "It takes longer, so it goes on as a task: "
                a href={ "/tasks/" (id) } { "see how it stands" }
            }
        },
        Tried::InputRequests(messages) => html! {
            div.notice.ask role="status" {
                p { "The plugin asks something before it goes on. Call the tool as a task to answer it on the page of the task." }
                @for question in messages { blockquote { (text::block(question)) } }
                p.note { "The text above is the plugin's." }
            }
        },
        Tried::Refused { code, message } => html! {
            p.notice.bad.lines role="alert" { (text::block(message)) " (code " (code) ")" }
        },
        Tried::TooLarge(bytes) => notice(
            "bad",
            &format!(
                "The answer has {}: too much for a page. Call the tool as a task to download the result, or call it with an MCP client.",
                text::bytes(*bytes as u64)
            ),
        ),
        Tried::Stopped => notice(
            "bad",
            &format!(
                "It was stopped after {took}: a page waits no longer. Call the tool as a task if it has tasks, or call it with an MCP client."
            ),
        ),
    }
}

fn result_of(result: &TriedResult, with_bytes: bool) -> Markup {
    html! {
        @for part in &result.parts { (part_of(part, with_bytes)) }
        @if result.parts_left_out > 0 {
            p { (result.parts_left_out) " more parts are in the message below, as far as that is shown." }
        }
        @if let Some(structured) = &result.structured {
            h3 { "Structured" }
            pre tabindex="0" { (text::json(structured)) }
        }
        p.note { "All of this is the plugin's." }
    }
}

fn part_of(part: &Part, with_bytes: bool) -> Markup {
    html! {
        @if let Some(of) = &part.of { p.part { code { (text::line(of)) } } }
        @match &part.body {
            Body::Text(text) => pre tabindex="0" { (text::block(text)) },
            Body::Link(uri) => p { "A resource: " code { (text::line(uri)) } },
            Body::Unknown => p { "Something that no page shows: it is in the message below." },
            Body::Bytes { what, mime, data } => (bytes(what, mime, data, with_bytes)),
        }
    }
}

/// An image to unfold, or a file to download. Nothing of it is kept, so both are in the page.
fn bytes(what: &str, mime: &str, data: &[u8], with_bytes: bool) -> Markup {
    let about = format!("{what} ({}, {})", text::line(mime), text::bytes(data.len() as u64));
    html! {
        @match (with_bytes, media_type(data)) {
            (true, Some(media)) => details {
                summary { (about) }
                img src={ "data:" (media) ";base64," (STANDARD.encode(data)) } alt="The image of the result";
            },
            (true, None) => p {
                (about) " "
                a href={ "data:application/octet-stream;base64," (STANDARD.encode(data)) } download="result.bin" { "Download it" }
            },
            (false, _) => p { (about) ": there is no room for it, because other answers wait to be read." },
        }
    }
}

/// What was sent and what came.
fn messages(request: &PageRequest, answer: Option<&PageAnswer>) -> Markup {
    html! {
        details {
            summary { "Messages" }
            h3 { "Request" }
            pre tabindex="0" { (text::json(request.text())) }
            @if let Some(answer) = answer {
                @for report in &answer.reports {
                    h3 { "On the way" }
                    pre tabindex="0" { (text::json(report)) }
                }
                @if answer.reports_left_out > 0 { p { (answer.reports_left_out) " more messages are not shown." } }
                h3 { "Response" }
                pre tabindex="0" { (text::json(&answer.response.text())) }
            }
        }
    }
}

pub(crate) fn resource_again(session: &Session, uri: &str) -> Markup {
    html! { form method="post" action=(READ) { (address_field(session, uri)) } }
}

fn address_field(session: &Session, uri: &str) -> Markup {
    html! {
        (token(session, READ))
        label { "Address" input type="text" name="address" value=(uri) required autocomplete="off" spellcheck="false"; }
        button type="submit" { "Read it" }
    }
}

pub(crate) fn prompt_again(session: &Session, name: &str, form: &Form) -> Markup {
    let arguments = fields::sent(form).take(ARGUMENTS_SHOWN_MAX).map(|(name, _)| (name.to_owned(), json!({}), false));
    prompt_form(session, name, arguments, Some(form))
}

fn prompt_form(
    session: &Session,
    name: &str,
    arguments: impl Iterator<Item = (String, Value, bool)>,
    filled: Option<&Form>,
) -> Markup {
    html! {
        form method="post" action=(GET) {
            (token(session, GET))
            input type="hidden" name="prompt" value=(name);
            @for (name, field, is_required) in arguments {
                (fields::show_field(&name, &field, &Kind::Multiline, is_required, filled))
            }
            button type="submit" { "Fill it in" }
        }
    }
}

/// A part of a list, as the protocol answers it.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) entries: Vec<Value>,
    /// Where the next part begins.
    pub(crate) next: Option<String>,
}

impl Listed {
    /// The entries of an answer, or what it is instead.
    pub(crate) fn read(answer: &PageAnswer, member: &str) -> Result<Self, Tried> {
        match Tried::read(answer) {
            Tried::Result(_) => {}
            other => return Err(other),
        }
        let mut message: Value = serde_json::from_str(&answer.response.text()).unwrap_or_default();
        let next = message.pointer("/result/nextCursor").and_then(Value::as_str).map(str::to_owned);
        let entries = message.get_mut("result").and_then(|result| result.get_mut(member)).map(Value::take);
        Ok(Self { entries: entries.and_then(|entries| Some(entries.as_array()?.clone())).unwrap_or_default(), next })
    }
}

/// A page of a list.
pub(crate) struct ListedPage<'a> {
    pub(crate) entries: &'a [Value],
    /// Of resources whose addresses are made.
    pub(crate) families: &'a [Value],
    pub(crate) next: Option<String>,
}

pub(crate) fn resources(frame: &Frame<'_>, session: &Session, page: &ListedPage<'_>) -> Markup {
    let form = "read";
    frame.show(
        "Resources",
        html! {
            form id=(form) method="post" action=(READ) { (address_field(session, "")) }
            @if page.entries.is_empty() && page.families.is_empty() {
                p { "No plugin lists a resource for you." }
            }
            @if !page.entries.is_empty() {
                (counted(page.entries.len(), page.next.is_some(), "resource", "resources"))
                (table("Resources", RESOURCES, html! {
                    @for entry in page.entries {
                        @let uri = member(entry, "uri");
                        @let name = text::cell(name_of(entry));
                        tr {
                            td { (name) }
                            td { code { (text::line(uri)) } }
                            td { (text::cell(member(entry, "mimeType"))) }
                            td { (text::line(member(entry, "description"))) }
                            td {
                                @if uri.chars().nth(URI_CHARS_MAX).is_none() {
                                    button.plain type="submit" form=(form) formnovalidate name="uri" value=(uri) aria-label={ "Read " (name) } { "Read" }
                                }
                            }
                        }
                    }
                }))
                (more(page.next.as_deref()))
            }
            @if !page.families.is_empty() {
                h2 { "Families of resources" }
                p.note { "Put values in place of what is in braces, and read that address." }
                (table("Families of resources", FAMILIES, html! {
                    @for entry in page.families {
                        tr {
                            td { (text::cell(name_of(entry))) }
                            td { code { (text::line(member(entry, "uriTemplate"))) } }
                            td { (text::cell(member(entry, "mimeType"))) }
                            td { (text::line(member(entry, "description"))) }
                        }
                    }
                }))
            }
        },
    )
}

pub(crate) fn prompts(frame: &Frame<'_>, session: &Session, page: &ListedPage<'_>) -> Markup {
    frame.show(
        "Prompts",
        html! {
            @if page.entries.is_empty() { p { "No plugin has a prompt for you." } } @else {
                (counted(page.entries.len(), page.next.is_some(), "prompt", "prompts"))
                @for entry in page.entries {
                    details {
                        summary { (text::line(name_of(entry))) }
                        @let description = member(entry, "description");
                        @if !description.is_empty() { blockquote { (text::block(description)) } }
                        (prompt_form(session, member(entry, "name"), arguments_of(entry), None))
                    }
                }
                (more(page.next.as_deref()))
            }
        },
    )
}

/// The arguments of a prompt: each with its name, how a field shows it, and whether it is required.
fn arguments_of(prompt: &Value) -> impl Iterator<Item = (String, Value, bool)> {
    let arguments = prompt.get("arguments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    arguments.iter().take(ARGUMENTS_SHOWN_MAX).map(|argument| {
        let is_required = argument.get("required") == Some(&Value::Bool(true));
        let shown = json!({"title": name_of(argument), "description": member(argument, "description")});
        (member(argument, "name").to_owned(), shown, is_required)
    })
}

fn member<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The title of something, or its name.
fn name_of(entry: &Value) -> &str {
    Some(member(entry, "title")).filter(|title| !title.is_empty()).unwrap_or_else(|| member(entry, "name"))
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::task::TaskId;

    use super::*;

    fn shown(tried: &Tried) -> String {
        outcome(tried, 1_200).into_string()
    }

    #[test]
    fn outcome_says_where_to_go_on() {
        let task = TaskId::parse("0123456789abcdef0123456789abcdef").unwrap();
        assert!(shown(&Tried::Task(task)).contains("href=\"/tasks/0123456789abcdef0123456789abcdef\""));
        assert!(shown(&Tried::Stopped).contains("stopped after 1.2 s") && shown(&Tried::Stopped).contains("as a task"));
        assert!(shown(&Tried::TooLarge(5 << 20)).contains("5.0 MiB"));
        let asked = shown(&Tried::InputRequests(vec!["<b>Which?</b>".to_owned()]));
        assert!(asked.contains("&lt;b&gt;Which?") && asked.contains("the plugin's"), "{asked}");
        let refused = shown(&Tried::Refused { code: 1010, message: "full\nof it".to_owned() });
        assert!(refused.contains("role=\"alert\"") && refused.contains("(code 1010)"), "{refused}");
    }

    #[test]
    fn bytes_are_an_image_only_if_they_are_one_and_nothing_runs() {
        let part = |data: &[u8], with_bytes| {
            let body = Body::Bytes { what: "An image", mime: "text/html".to_owned(), data: data.to_vec() };
            part_of(&Part { of: None, body }, with_bytes).into_string()
        };
        let png = part(b"\x89PNG\r\n\x1a\n", true);
        assert!(png.contains("<details>") && png.contains("src=\"data:image/png;base64,"), "{png}");
        let html = part(b"<script>", true);
        assert!(!html.contains("<img") && html.contains("href=\"data:application/octet-stream;base64,"), "{html}");
        assert!(html.contains("download="), "{html}");
        assert!(!part(b"\x89PNG\r\n\x1a\n", false).contains("base64"), "without room there are words alone");
    }

    #[test]
    fn prompt_has_a_field_for_each_argument_and_keeps_what_was_filled_in() {
        let session = Session::of_operator();
        let prompt = json!({"name": "plan", "arguments": [{"name": "city", "required": true, "description": "Where"}]});
        let page = ListedPage { entries: &[prompt], families: &[], next: None };
        let frame = Frame { session: None, here: "", address: "", now: 1 };
        let shown = prompts(&frame, &session, &page).into_string();
        assert!(
            shown.contains("name=\"field.city\" rows=\"3\" required") && shown.contains("value=\"plan\""),
            "{shown}"
        );
        let form = Form::parse(b"prompt=plan&field.city=Ulm%3Cb%3E&other=x");
        let again = prompt_again(&session, "plan", &form).into_string();
        assert!(again.contains("Ulm&lt;b&gt;</textarea>") && !again.contains("other"), "{again}");
    }

    #[test]
    fn resource_is_read_by_a_button_of_one_form() {
        let session = Session::of_operator();
        let long = json!({"uri": format!("a://{}", "x".repeat(URI_CHARS_MAX)), "name": "long"});
        let page = ListedPage { entries: &[json!({"uri": "a://<1>", "name": "one"}), long], families: &[], next: None };
        let frame = Frame { session: None, here: "", address: "", now: 1 };
        let shown = resources(&frame, &session, &page).into_string();
        assert_eq!((shown.matches("form=\"read\"").count(), shown.matches("name=\"form_token\"").count()), (1, 1));
        assert!(shown.contains("value=\"a://&lt;1&gt;\" aria-label=\"Read one\""), "{shown}");
    }
}
