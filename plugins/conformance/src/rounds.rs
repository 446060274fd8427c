//! Tools whose questions become multi round-trip requests where the client speaks the modern era, and plain requests elsewhere.

use bulkhead_plugin::ask::{self, InputRequest, Prompt, Question, RawAnswer};
use bulkhead_plugin::{ClientFeature, Error, Plugin, Tool, call, task};
use serde_json::{Value, json};

use crate::questions::{field, form, form_request};
use crate::read_only;

pub(crate) fn tools(plugin: Plugin) -> Plugin {
    plugin
        .tool(read_only("test_input_required_result_elicitation", "Asks for a name.", elicitation))
        .tool(read_only("test_input_required_result_sampling", "Asks the client's model.", sampling))
        .tool(read_only("test_input_required_result_list_roots", "Asks for the client's roots.", list_roots))
        .tool(read_only("test_input_required_result_request_state", "Asks to confirm.", confirm))
        .tool(read_only("test_input_required_result_multiple_inputs", "Asks three things at once.", multiple_inputs))
        .tool(read_only("test_input_required_result_multi_round", "Asks twice.", multi_round))
        .tool(read_only("test_input_required_result_tampered_state", "Asks to confirm.", confirm))
        .tool(read_only("test_input_required_result_capabilities", "Asks what the client can answer.", capabilities))
        .tool(Tool::new("test_tool_with_task", "Asks, then becomes a task.", then_task).task_optional())
}

/// Asks for one text.
fn text(key: &str, message: &str, name: &str) -> Result<String, Error> {
    let answer = form(key, message, &field(name, json!({ "type": "string" })))?;
    let Some(content) = answer.content else { return Err(Error::new("the user did not accept")) };
    let content: Value = serde_json::from_str(&content)?;
    Ok(content[name].as_str().unwrap_or_default().to_owned())
}

fn elicitation() -> Result<String, Error> {
    Ok(format!("Hello, {}!", text("user_name", "What is your name?", "name")?))
}

fn sampling() -> Result<String, Error> {
    Ok(ask::sampling("capital_question", Prompt::new("What is the capital of France?", 100))?.text)
}

fn list_roots() -> Result<String, Error> {
    let roots = ask::roots("client_roots")?;
    let uris: Vec<_> = roots.into_iter().map(|root| root.uri).collect();
    Ok(format!("Roots: {}", uris.join(", ")))
}

/// The host seals the state, so a call that comes to its end was continued with the state that it gave out.
fn confirm() -> Result<String, Error> {
    let answer = form("confirm", "Please confirm", &field("ok", json!({ "type": "boolean" })))?;
    Ok(format!("state-ok: {}", answer.content.as_deref().unwrap_or("not confirmed")))
}

fn sampling_request(key: &str, text: &str) -> InputRequest {
    let params = json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
        "maxTokens": 50
    });
    InputRequest { key: key.to_owned(), question: Question::Sampling(params.to_string()), meta: Vec::new() }
}

fn multiple_inputs() -> Result<String, Error> {
    let roots = InputRequest { key: "client_roots".to_owned(), question: Question::Roots, meta: Vec::new() };
    let name = form_request("user_name", "What is your name?", &field("name", json!({ "type": "string" })));
    answered(&[name, sampling_request("greeting", "Generate a greeting"), roots])
}

fn capabilities() -> Result<String, Error> {
    let mut requests = Vec::new();
    if call::client_supports(ClientFeature::ElicitationForm) {
        requests.push(form_request("user_name", "What is your name?", &field("name", json!({ "type": "string" }))));
    }
    if call::client_supports(ClientFeature::Sampling) {
        requests.push(sampling_request("greeting", "Generate a greeting"));
    }
    if requests.is_empty() { Ok("The client can be asked nothing.".to_owned()) } else { answered(&requests) }
}

fn answered(requests: &[InputRequest]) -> Result<String, Error> {
    let shown = |answer: &RawAnswer| match answer {
        RawAnswer::Elicitation(answer) => answer.content.clone().unwrap_or_default(),
        RawAnswer::Sampling(result) => result.clone(),
        RawAnswer::Roots(roots) => format!("{} roots", roots.len()),
        RawAnswer::Refused(reason) => format!("refused: {reason}"),
    };
    let answers = ask::all(requests)?;
    let lines: Vec<_> =
        answers.iter().map(|response| format!("{}: {}", response.key, shown(&response.answer))).collect();
    Ok(lines.join("\n"))
}

fn multi_round() -> Result<String, Error> {
    let name = text("step1", "Step 1: What is your name?", "name")?;
    let color = text("step2", "Step 2: What is your favorite color?", "color")?;
    Ok(format!("{name} likes {color}."))
}

fn then_task() -> Result<String, Error> {
    let name = text("user_name", "What is your name?", "name")?;
    task::detach();
    task::sleep(std::time::Duration::from_millis(200));
    Ok(format!("Hello, {name}! The task is done."))
}
