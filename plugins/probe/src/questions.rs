//! Every kind of question.

use bulkhead_plugin::ask::{self, FormRequest, InputRequest, Prompt, Question, RawAnswer};
use bulkhead_plugin::{Error, kv};
use schemars::JsonSchema;
use serde::Deserialize;

/// A form with one field.
const FORM: &str = r#"{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}"#;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Page {
    /// An absolute `https:` URL.
    url: String,
}

pub(crate) fn url(Page { url }: Page) -> Result<String, Error> {
    let answer = ask::url("page", "Please visit this page.", &url)?;
    Ok(format!("{answer:?}"))
}

pub(crate) fn roots() -> Result<String, Error> {
    let roots = ask::roots("roots")?;
    Ok(roots.into_iter().map(|root| root.uri).collect::<Vec<_>>().join("\n"))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Text {
    /// The user's message.
    text: String,
}

pub(crate) fn sampling(Text { text }: Text) -> Result<String, Error> {
    let completion = ask::sampling("completion", Prompt::new(text, 100))?;
    Ok(format!("{}: {}", completion.model, completion.text))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Count {
    /// How many questions.
    count: u32,
}

/// The keys are `q1`, `q2` and so on.
pub(crate) fn many(Count { count }: Count) -> Result<String, Error> {
    let requests: Vec<InputRequest> = (1..=count).map(|number| form(&format!("q{number}"), FORM)).collect();
    let answers = ask::all(&requests)?;
    Ok(answers.iter().map(|response| format!("{}={}\n", response.key, shown(&response.answer))).collect())
}

/// The key is `again` each time, for the host to tell apart.
pub(crate) fn again(Count { count }: Count) -> Result<String, Error> {
    let mut text = String::new();
    for _ in 0..count {
        for response in ask::all(&[form("again", FORM)])? {
            text.push_str(&format!("{}={}\n", response.key, shown(&response.answer)));
        }
    }
    Ok(text)
}

/// Counts under the key `runs` how often it went on after its question, so that tests see it from the next call.
pub(crate) fn counted() -> Result<String, Error> {
    let wrong = |error| Error::new(format!("{error:?}"));
    ask::all(&[form("value", FORM)])?;
    let runs = kv::get("runs").map_err(wrong)?.map_or(0, |runs| runs.len()) + 1;
    kv::set("runs", "x".repeat(runs)).map_err(wrong)?;
    Ok(format!("run {runs}"))
}

/// Nested objects are no form.
pub(crate) fn wrongly() -> Result<String, Error> {
    let schema = r#"{"type":"object","properties":{"inner":{"type":"object","properties":{}}}}"#;
    let answers = ask::all(&[form("wrong", schema)])?;
    Ok(format!("{} answers", answers.len()))
}

fn form(key: &str, schema: &str) -> InputRequest {
    let form = FormRequest { message: format!("A value for {key}?"), requested_schema: schema.to_owned() };
    InputRequest { key: key.to_owned(), question: Question::Form(form), meta: Vec::new() }
}

fn shown(answer: &RawAnswer) -> String {
    match answer {
        RawAnswer::Elicitation(answer) => {
            format!("{:?} {}", answer.action, answer.content.as_deref().unwrap_or_default())
        }
        other => format!("{other:?}"),
    }
}
