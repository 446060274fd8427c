//! Tools that ask the user or the client's model.

use bulkhead_plugin::ask::{self, AskError, ElicitationAnswer, FormRequest, InputRequest, Prompt, Question, RawAnswer};
use bulkhead_plugin::{Error, Plugin};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::read_only;

pub(crate) fn tools(plugin: Plugin) -> Plugin {
    plugin
        .tool(read_only("test_sampling", "Asks the client's model.", sampling))
        .tool(read_only("test_elicitation", "Asks the user.", elicitation))
        .tool(read_only("test_elicitation_sep1034_defaults", "Asks with defaults.", defaults))
        .tool(read_only("test_elicitation_sep1330_enums", "Asks with every kind of choice.", enums))
        .tool(read_only("test_missing_capability", "Needs a client whose model can be asked.", missing_capability))
        .tool(read_only("test_streaming_elicitation", "Reports, then asks.", streaming))
}

/// Asks with a form whose schema is written by hand.
pub(crate) fn form(key: &str, message: &str, schema: &Value) -> Result<ElicitationAnswer, AskError> {
    match ask::all(&[form_request(key, message, schema)])?.pop().map(|response| response.answer) {
        Some(RawAnswer::Elicitation(answer)) => Ok(answer),
        Some(RawAnswer::Refused(reason)) => Err(AskError::Refused(reason)),
        other => Err(AskError::Invalid(format!("{other:?} is no answer to a form"))),
    }
}

pub(crate) fn form_request(key: &str, message: &str, schema: &Value) -> InputRequest {
    let form = FormRequest { message: message.to_owned(), requested_schema: schema.to_string() };
    InputRequest { key: key.to_owned(), question: Question::Form(form), meta: Vec::new() }
}

/// A form's schema with one required field.
pub(crate) fn field(name: &str, schema: Value) -> Value {
    json!({ "type": "object", "properties": { name: schema }, "required": [name] })
}

/// What the user did, as the suite's texts say it.
fn shown(answer: &ElicitationAnswer) -> String {
    let action = match answer.action {
        ask::ElicitationAction::Accept => "accept",
        ask::ElicitationAction::Decline => "decline",
        ask::ElicitationAction::Cancel => "cancel",
    };
    format!("action={action}, content={}", answer.content.as_deref().unwrap_or("{}"))
}

#[derive(Deserialize, JsonSchema)]
struct Sampling {
    /// The prompt for the model.
    prompt: String,
}

fn sampling(Sampling { prompt }: Sampling) -> Result<String, Error> {
    let completion = ask::sampling("completion", Prompt::new(prompt, 100))?;
    Ok(format!("LLM response: {}", completion.text))
}

#[derive(Deserialize, JsonSchema)]
struct Elicitation {
    /// What the user reads.
    message: String,
}

fn elicitation(Elicitation { message }: Elicitation) -> Result<String, Error> {
    let schema = json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" }
        },
        "required": ["username", "email"]
    });
    Ok(format!("User response: {}", shown(&form("user", &message, &schema)?)))
}

fn defaults() -> Result<String, Error> {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "User name", "default": "John Doe" },
            "age": { "type": "integer", "description": "User age", "default": 30 },
            "score": { "type": "number", "description": "User score", "default": 95.5 },
            "status": {
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active"
            },
            "verified": { "type": "boolean", "description": "Verification status", "default": true }
        },
        "required": []
    });
    let answer = form("profile", "Please review and update the form fields with defaults", &schema)?;
    Ok(format!("Elicitation completed: {}", shown(&answer)))
}

fn enums() -> Result<String, Error> {
    let titled = |values: &[&str], titles: &[&str]| -> Vec<Value> {
        values.iter().zip(titles).map(|(value, title)| json!({ "const": value, "title": title })).collect()
    };
    let options = ["option1", "option2", "option3"];
    let values = ["value1", "value2", "value3"];
    let schema = json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": options },
            "titledSingle": {
                "type": "string",
                "oneOf": titled(&values, &["First Option", "Second Option", "Third Option"])
            },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"]
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
            "titledMulti": {
                "type": "array",
                "items": { "anyOf": titled(&values, &["First Choice", "Second Choice", "Third Choice"]) }
            }
        },
        "required": []
    });
    let answer = form("choices", "Please select options from the enum fields", &schema)?;
    Ok(format!("Elicitation completed: {}", shown(&answer)))
}

fn missing_capability() -> Result<String, Error> {
    Ok(ask::sampling("needed", Prompt::new("Say hello.", 50))?.text)
}

fn streaming() -> Result<String, Error> {
    bulkhead_plugin::task::progress(1.0, Some(2.0), Some("About to ask"));
    let schema = field("name", json!({ "type": "string" }));
    Ok(format!("Elicitation completed: {}", shown(&form("user_name", "What is your name?", &schema)?)))
}
