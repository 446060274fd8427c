//! The questions of a guest: what may be asked, and how.

use serde_json::Value;

use super::bindings::bulkhead::plugin::task as wit;
use super::json::{accept_meta, accept_object};
use super::limits::{INPUT_REQUEST_BYTES_MAX, INPUT_REQUESTS_MAX};
use super::sampling;
use bulkhead_domain::call::{
    ClientFeature, ClientFeatures, InputRequest, InputRequestError, InputRequestKind, InputResponse,
};
use bulkhead_domain::names::check_name;

/// Checks the questions of one `ask` against the interface and against what the client declared.
///
/// `new_id` makes the id of a question by URL.
pub(super) fn check(
    requests: Vec<wit::InputRequest>,
    features: ClientFeatures,
    mut new_id: impl FnMut() -> String,
) -> Result<Vec<InputRequest>, InputRequestError> {
    if requests.is_empty() || requests.len() > INPUT_REQUESTS_MAX {
        return Err(InputRequestError::Invalid(format!(
            "ask 1 to {INPUT_REQUESTS_MAX} questions at once, not {}",
            requests.len()
        )));
    }
    let mut checked: Vec<InputRequest> = Vec::with_capacity(requests.len());
    for request in requests {
        let key = request.key;
        if check_name(&key).is_err() {
            return Err(InputRequestError::Invalid(format!("key {key:?} is not 1 to 64 characters of [A-Za-z0-9_.-]")));
        }
        if checked.iter().any(|earlier| earlier.key == key) {
            return Err(InputRequestError::Invalid(format!("key {key:?} is used twice")));
        }
        let invalid = |wrong: String| InputRequestError::Invalid(format!("{key}: {wrong}"));
        for feature in needed(&request.question).map_err(invalid)? {
            if !features.contains(feature) {
                return Err(InputRequestError::Unsupported(feature));
            }
        }
        let question = question(request.question, &mut new_id).map_err(invalid)?;
        let meta = accept_meta(request.meta).map_err(invalid)?;
        checked.push(InputRequest { key, kind: question, meta });
    }
    Ok(checked)
}

/// What the client must have declared to be asked this.
fn needed(question: &wit::Question) -> Result<Vec<ClientFeature>, String> {
    Ok(match question {
        wit::Question::Form(_) => vec![ClientFeature::ElicitationForm],
        wit::Question::Url(_) => vec![ClientFeature::ElicitationUrl],
        wit::Question::Roots => vec![ClientFeature::Roots],
        wit::Question::Sampling(params) => {
            let params = object(params).map_err(|wrong| format!("sampling parameters: {wrong}"))?;
            let mut needed = vec![ClientFeature::Sampling];
            if params.contains_key("tools") || params.contains_key("toolChoice") {
                needed.push(ClientFeature::SamplingTools);
            }
            if params.get("includeContext").is_some_and(|context| context != "none") {
                needed.push(ClientFeature::SamplingContext);
            }
            needed
        }
    })
}

fn question(question: wit::Question, new_id: &mut impl FnMut() -> String) -> Result<InputRequestKind, String> {
    match question {
        wit::Question::Form(form) => {
            bounded(form.message.len() + form.requested_schema.len())?;
            check_form(&object(&form.requested_schema).map_err(|wrong| format!("requested schema: {wrong}"))?)?;
            let requested_schema = accept_object(&form.requested_schema)?;
            Ok(InputRequestKind::Form { message: form.message, requested_schema })
        }
        wit::Question::Url(page) => {
            bounded(page.message.len() + page.url.len())?;
            check_url(&page.url)?;
            Ok(InputRequestKind::Url { message: page.message, url: page.url, elicitation_id: new_id() })
        }
        wit::Question::Sampling(params) => {
            bounded(params.len())?;
            sampling::check(&object(&params).map_err(|wrong| format!("sampling parameters: {wrong}"))?)?;
            Ok(InputRequestKind::Sampling(accept_object(&params)?))
        }
        wit::Question::Roots => Ok(InputRequestKind::Roots),
    }
}

fn bounded(bytes: usize) -> Result<(), String> {
    if bytes <= INPUT_REQUEST_BYTES_MAX {
        Ok(())
    } else {
        Err(format!("{bytes} bytes; a question has at most {INPUT_REQUEST_BYTES_MAX}"))
    }
}

fn object(text: &str) -> Result<serde_json::Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(error) => Err(format!("not well-formed JSON: {error}")),
    }
}

/// A form is a flat object: text, numbers, booleans, and choices of one or of several.
fn check_form(schema: &serde_json::Map<String, Value>) -> Result<(), String> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("a form's schema says \"type\": \"object\"".to_owned());
    }
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return Err("a form's schema has \"properties\"".to_owned());
    };
    for (name, property) in properties {
        let is_choice = |items: &Value| items.get("enum").is_some() || items.get("anyOf").is_some();
        match property.get("type").and_then(Value::as_str) {
            Some("string" | "number" | "integer" | "boolean") => {}
            Some("array") if property.get("items").is_some_and(is_choice) => {}
            Some("array") => return Err(format!("property {name:?}: a list in a form is a choice (items with enum)")),
            _ => return Err(format!("property {name:?}: forms hold strings, numbers, booleans and choices only")),
        }
    }
    match schema.get("required") {
        None => Ok(()),
        Some(Value::Array(names)) => {
            let unknown = names.iter().find(|name| !name.as_str().is_some_and(|name| properties.contains_key(name)));
            unknown.map_or(Ok(()), |name| Err(format!("required property {name} does not exist")))
        }
        Some(_) => Err("\"required\" is a list of property names".to_owned()),
    }
}

/// `https`, or `http` to this machine; no credentials in it.
fn check_url(url: &str) -> Result<(), String> {
    let wrong = || format!("{url:?} is not an absolute https URL");
    let parsed: http::Uri = url.parse().map_err(|_| wrong())?;
    let authority = parsed.authority().ok_or_else(wrong)?;
    if authority.as_str().contains('@') {
        return Err("the URL holds credentials".to_owned());
    }
    match parsed.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]") => Ok(()),
        _ => Err(wrong()),
    }
}

/// Gives each answer back under the key that the guest used.
pub(super) fn responses(keys: Vec<String>, answers: Vec<InputResponse>) -> Vec<wit::InputResponse> {
    keys.into_iter()
        .zip(answers)
        .map(|(key, answer)| wit::InputResponse { key, answer: wit_answer(answer), meta: Vec::new() })
        .collect()
}

fn wit_answer(answer: InputResponse) -> wit::Answer {
    match answer {
        InputResponse::Elicitation { action, content } => wit::Answer::Elicitation(wit::ElicitationAnswer {
            action: action.into(),
            content: content.map(|content| content.as_str().to_owned()),
        }),
        InputResponse::Sampling(result) => wit::Answer::Sampling(result.as_str().to_owned()),
        InputResponse::Roots(roots) => wit::Answer::Roots(
            roots.into_iter().map(|root| wit::Root { uri: root.uri, name: root.name, meta: Vec::new() }).collect(),
        ),
        InputResponse::Refused(message) => wit::Answer::Refused(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        key: &str,
        question: wit::Question,
        features: &[ClientFeature],
    ) -> Result<Vec<InputRequest>, InputRequestError> {
        let features = features.iter().fold(ClientFeatures::default(), |all, feature| all.with(*feature));
        let request = wit::InputRequest { key: key.to_owned(), question, meta: Vec::new() };
        check(vec![request], features, || "id".to_owned())
    }

    fn form(schema: &str) -> wit::Question {
        wit::Question::Form(wit::FormRequest { message: "m".to_owned(), requested_schema: schema.to_owned() })
    }

    fn url(url: &str) -> wit::Question {
        wit::Question::Url(wit::UrlRequest { message: "m".to_owned(), url: url.to_owned() })
    }

    #[test]
    fn input_request_needs_a_declared_feature() {
        assert_eq!(ask("k", wit::Question::Roots, &[]), Err(InputRequestError::Unsupported(ClientFeature::Roots)));
        assert!(ask("k", wit::Question::Roots, &[ClientFeature::Roots]).is_ok());
        let with_tools = wit::Question::Sampling("{\"tools\":[]}".to_owned());
        assert_eq!(
            ask("k", with_tools, &[ClientFeature::Sampling]),
            Err(InputRequestError::Unsupported(ClientFeature::SamplingTools))
        );
        let with_context = wit::Question::Sampling("{\"includeContext\":\"thisServer\"}".to_owned());
        assert_eq!(
            ask("k", with_context, &[ClientFeature::Sampling]),
            Err(InputRequestError::Unsupported(ClientFeature::SamplingContext))
        );
    }

    #[test]
    fn malformed_sampling_input_request_is_refused() {
        let features = [ClientFeature::Sampling];
        let sampling = |text: &str| ask("k", wit::Question::Sampling(text.to_owned()), &features);
        assert!(sampling(r#"{"messages":[],"maxTokens":5}"#).is_ok());
        for bad in ["[]", "{", r#"{"messages":[]}"#] {
            assert!(matches!(sampling(bad), Err(InputRequestError::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn input_request_keys_are_short_and_plain() {
        for key in ["", "a b", "ü", &"x".repeat(65)] {
            assert!(
                matches!(ask(key, wit::Question::Roots, &[ClientFeature::Roots]), Err(InputRequestError::Invalid(_))),
                "{key}"
            );
        }
        assert!(ask(&"x".repeat(64), wit::Question::Roots, &[ClientFeature::Roots]).is_ok());
    }

    #[test]
    fn input_request_forms_must_be_flat() {
        let features = [ClientFeature::ElicitationForm];
        for good in [
            r#"{"type":"object","properties":{}}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]}"#,
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x"]}}}}"#,
        ] {
            assert!(ask("k", form(good), &features).is_ok(), "{good}");
        }
        for bad in [
            "[]",
            "{",
            r#"{"type":"string"}"#,
            r#"{"type":"object"}"#,
            r#"{"type":"object","properties":{"a":{"type":"object"}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}"#,
            r#"{"type":"object","properties":{},"required":["a"]}"#,
        ] {
            assert!(matches!(ask("k", form(bad), &features), Err(InputRequestError::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn input_request_urls_are_https_or_local() {
        let features = [ClientFeature::ElicitationUrl];
        for good in ["https://example.com/pay?x=1", "http://localhost:8080/", "http://127.0.0.1/a"] {
            assert!(ask("k", url(good), &features).is_ok(), "{good}");
        }
        for bad in [
            "/pay",
            "http://example.com/",
            "javascript:alert(1)",
            "https://user:pw@example.com/",
            "http://localhost.evil.com/",
        ] {
            assert!(matches!(ask("k", url(bad), &features), Err(InputRequestError::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn input_requests_are_limited_to_sixteen() {
        let request =
            |at: usize| wit::InputRequest { key: format!("k{at}"), question: wit::Question::Roots, meta: Vec::new() };
        let features = ClientFeatures::default().with(ClientFeature::Roots);
        assert!(check((0..16).map(request).collect(), features, String::new).is_ok());
        assert!(check((0..17).map(request).collect(), features, String::new).is_err());
        assert!(check(Vec::new(), features, String::new).is_err());
        assert!(check(vec![request(1), request(1)], features, String::new).is_err());
    }
}
