//! Answers to a plugin's questions: from a file, else from the terminal.

use std::collections::HashMap;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use bulkhead_domain::call::{ElicitationAction, InputRequest, InputRequestKind, InputResponse, Root};
use bulkhead_domain::text::on_terminal;
use bulkhead_domain::{Json, without_byte_order_mark};
use serde_json::{Map, Value, json};

/// Where answers come from.
pub(crate) struct Answers {
    /// By key; a list holds the answers of one key in turn.
    file: Map<String, Value>,
    taken: HashMap<String, usize>,
    terminal: bool,
}

/// No answer: which question, and what could be done about it.
#[derive(Debug)]
pub(crate) struct Unanswered(pub(crate) String);

impl Answers {
    /// Reads the file of `--answers`; the terminal counts only if there is one on both ends.
    pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let file = file.map_or_else(|| Ok(Self::given(Map::new())), Self::of_file)?.file;
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Ok(Self { file, taken: HashMap::new(), terminal })
    }

    /// Those of a file alone; nobody is asked.
    pub(crate) fn of_file(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("the answers {} cannot be read", path.display()))?;
        let file = serde_json::from_str(without_byte_order_mark(&text));
        Ok(Self::given(file.with_context(|| format!("the answers {} are not a JSON object", path.display()))?))
    }

    /// These alone; nobody is asked.
    pub(crate) fn given(file: Map<String, Value>) -> Self {
        Self { file, taken: HashMap::new(), terminal: false }
    }

    /// Whether a question is answered without asking anybody.
    pub(crate) fn has(&self, key: &str) -> bool {
        match self.file.get(key) {
            Some(Value::Array(list)) => self.taken.get(key).copied().unwrap_or_default() < list.len(),
            found => found.is_some(),
        }
    }

    /// The answer to one question. Blocks while a person types.
    pub(crate) fn answer(&mut self, request: &InputRequest) -> anyhow::Result<Result<InputResponse, Unanswered>> {
        if self.has(&request.key) {
            return self.of_file_alone(request).map(Ok);
        }
        if !self.terminal {
            let wanted = format!(
                "the question {:?} has no answer: {}; put one under this key into the file of --answers",
                request.key,
                describe(&request.kind)
            );
            return Ok(Err(Unanswered(wanted)));
        }
        Ok(match ask_person(request) {
            Some(answer) => Ok(answer),
            None => Err(Unanswered(format!("the question {:?} was not answered", request.key))),
        })
    }

    /// The answer that the file has.
    pub(crate) fn of_file_alone(&mut self, request: &InputRequest) -> anyhow::Result<InputResponse> {
        let value = self.next(&request.key).with_context(|| format!("{:?} has no answer", request.key))?;
        parse(&request.kind, &value).with_context(|| format!("the answer to {:?} in --answers is wrong", request.key))
    }

    fn next(&mut self, key: &str) -> Option<Value> {
        let taken = self.taken.entry(key.to_owned()).or_default();
        let found = match self.file.get(key)? {
            Value::Array(list) => list.get(*taken).cloned(),
            one => Some(one.clone()),
        };
        *taken += 1;
        found
    }
}

/// Reads an answer in the shape of an MCP result.
fn parse(kind: &InputRequestKind, value: &Value) -> anyhow::Result<InputResponse> {
    if let Some(error) = value.get("error") {
        return Ok(InputResponse::Refused(error.as_str().context("\"error\" must be a text")?.to_owned()));
    }
    match kind {
        InputRequestKind::Form { .. } | InputRequestKind::Url { .. } => {
            let action = match value["action"].as_str() {
                Some("accept") => ElicitationAction::Accept,
                Some("decline") => ElicitationAction::Decline,
                Some("cancel") => ElicitationAction::Cancel,
                _ => anyhow::bail!("it needs \"action\": \"accept\", \"decline\" or \"cancel\""),
            };
            let content = value.get("content").map(|content| Json::new(content.to_string()));
            if matches!(kind, InputRequestKind::Form { .. }) && action == ElicitationAction::Accept {
                anyhow::ensure!(value["content"].is_object(), "an accepted form needs \"content\", an object");
            }
            Ok(InputResponse::Elicitation { action, content })
        }
        InputRequestKind::Sampling(_) => {
            anyhow::ensure!(value["role"].is_string(), "it needs the result of sampling: role, content and model");
            Ok(InputResponse::Sampling(Json::new(value.to_string())))
        }
        InputRequestKind::Roots => {
            let roots = value["roots"].as_array().context("it needs \"roots\", a list")?;
            let root = |root: &Value| {
                let uri = root["uri"].as_str().context("each root needs a \"uri\"")?.to_owned();
                Ok(Root { uri, name: root["name"].as_str().map(str::to_owned) })
            };
            Ok(InputResponse::Roots(roots.iter().map(root).collect::<anyhow::Result<_>>()?))
        }
    }
}

pub(crate) fn describe(kind: &InputRequestKind) -> String {
    match kind {
        InputRequestKind::Form { message, .. } => format!("a form: {}", plain(message)),
        InputRequestKind::Url { message, url, .. } => format!("a page to visit: {} ({})", plain(message), plain(url)),
        InputRequestKind::Sampling(_) => "a text to be written by a model".to_owned(),
        InputRequestKind::Roots => "the root folders".to_owned(),
    }
}

/// `None` when the terminal was closed.
fn ask_person(request: &InputRequest) -> Option<InputResponse> {
    show(&format!("? {}", describe(&request.kind)));
    match &request.kind {
        InputRequestKind::Form { requested_schema, .. } => ask_form(requested_schema),
        InputRequestKind::Url { .. } => {
            let done = line("  done? [yes / no / cancel] ")?;
            let action = match done.as_str() {
                "yes" | "y" => ElicitationAction::Accept,
                "cancel" => ElicitationAction::Cancel,
                _ => ElicitationAction::Decline,
            };
            Some(InputResponse::Elicitation { action, content: None })
        }
        InputRequestKind::Sampling(params) => {
            show(&plain(params.as_str()));
            let text = line("  answer as the model: ")?;
            let result =
                json!({ "role": "assistant", "model": "a person", "content": { "type": "text", "text": text } });
            Some(InputResponse::Sampling(Json::new(result.to_string())))
        }
        InputRequestKind::Roots => {
            let uris = line("  URIs, with spaces between: ")?;
            let root = |uri: &str| Root { uri: uri.to_owned(), name: None };
            Some(InputResponse::Roots(uris.split_whitespace().map(root).collect()))
        }
    }
}

/// Field by field; an empty line takes the default or leaves out what is optional.
fn ask_form(schema: &Json) -> Option<InputResponse> {
    show("  (!decline declines, !cancel cancels, an empty line leaves a field out)");
    let schema: Value = serde_json::from_str(schema.as_str()).unwrap_or_default();
    let required = |name: &str| {
        schema.get("required").and_then(Value::as_array).is_some_and(|list| list.iter().any(|item| item == name))
    };
    let mut content = Map::new();
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        loop {
            let text = line(&prompt(name, field, required(name)))?;
            let ended = |action| Some(InputResponse::Elicitation { action, content: None });
            match text.as_str() {
                "!decline" => return ended(ElicitationAction::Decline),
                "!cancel" => return ended(ElicitationAction::Cancel),
                "" if field.get("default").is_some() => {
                    content.insert(name.clone(), field["default"].clone());
                }
                "" if required(name) => {
                    show("  this field is required");
                    continue;
                }
                "" => {}
                text => match typed(field, text) {
                    Ok(value) => {
                        content.insert(name.clone(), value);
                    }
                    Err(wrong) => {
                        show(&format!("  {wrong}"));
                        continue;
                    }
                },
            }
            break;
        }
    }
    let content = Json::new(Value::Object(content).to_string());
    Some(InputResponse::Elicitation { action: ElicitationAction::Accept, content: Some(content) })
}

fn prompt(name: &str, field: &Value, required: bool) -> String {
    let title = field["title"].as_str().or_else(|| field["description"].as_str()).unwrap_or(name);
    let mut hints = vec![field["type"].as_str().unwrap_or("string").to_owned()];
    if let Some(choices) = field["enum"].as_array() {
        hints.push(choices.iter().map(|choice| choice.as_str().unwrap_or_default()).collect::<Vec<_>>().join(" | "));
    }
    if let Some(default) = field.get("default") {
        hints.push(format!("default {default}"));
    } else if !required {
        hints.push("optional".to_owned());
    }
    format!("  {} [{}]: ", plain(title), plain(&hints.join(", ")))
}

/// What a person typed, as the field's type.
fn typed(field: &Value, text: &str) -> Result<Value, &'static str> {
    match field["type"].as_str() {
        Some("integer") => text.parse::<i64>().map(Value::from).map_err(|_| "a whole number is needed"),
        Some("number") => text.parse::<f64>().map(Value::from).map_err(|_| "a number is needed"),
        Some("boolean") => match text {
            "yes" | "y" | "true" => Ok(Value::Bool(true)),
            "no" | "n" | "false" => Ok(Value::Bool(false)),
            _ => Err("yes or no is needed"),
        },
        Some("array") => Ok(text.split(',').map(|item| Value::from(item.trim())).collect()),
        _ => match field["enum"].as_array() {
            Some(choices) if !choices.iter().any(|choice| choice == text) => Err("one of the choices is needed"),
            _ => Ok(Value::from(text)),
        },
    }
}

fn line(prompt: &str) -> Option<String> {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{prompt}").and_then(|()| stderr.flush());
    let mut text = String::new();
    match std::io::stdin().lock().read_line(&mut text) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(text.trim().to_owned()),
    }
}

fn show(text: &str) {
    // If nobody reads stderr, nobody can be asked.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A plugin's text, without what would act on a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|character| if character == '\n' { character } else { on_terminal(character) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_plugin_acts_on_no_terminal_and_shows_what_nobody_sees() {
        assert_eq!(plain("a\n\u{1b}b\u{202e}c\u{ad}"), "a\n b\u{fffd}c\u{fffd}");
    }

    fn form(key: &str) -> InputRequest {
        let kind = InputRequestKind::Form { message: "m".to_owned(), requested_schema: Json::new("{}") };
        InputRequest { key: key.to_owned(), kind, meta: Vec::new() }
    }

    fn of_file(value: Value) -> Answers {
        let Value::Object(file) = value else { panic!("not an object") };
        Answers::given(file)
    }

    #[test]
    fn byte_order_mark_in_front_of_input_answers_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answers.json");
        std::fs::write(&file, "\u{feff}{\"a\": {\"action\": \"decline\"}}").unwrap();
        assert!(Answers::of_file(&file).unwrap().has("a"));
    }

    #[test]
    fn listed_input_answers_are_used_in_turn() {
        let mut answers = of_file(json!({ "a": [{ "action": "accept", "content": {} }, { "action": "decline" }] }));
        assert!(answers.has("a") && !answers.has("b"));
        let mut next = || answers.answer(&form("a")).unwrap();
        assert!(matches!(next(), Ok(InputResponse::Elicitation { action: ElicitationAction::Accept, .. })));
        assert!(matches!(next(), Ok(InputResponse::Elicitation { action: ElicitationAction::Decline, .. })));
        assert!(next().unwrap_err().0.contains("\"a\""));
        assert!(!answers.has("a"), "both are taken");
    }

    #[test]
    fn single_input_answer_is_reused() {
        let mut answers = of_file(json!({ "a": { "error": "busy" } }));
        for _ in 0..3 {
            assert_eq!(answers.answer(&form("a")).unwrap().unwrap(), InputResponse::Refused("busy".to_owned()));
        }
        assert!(answers.answer(&form("b")).unwrap().is_err());
    }

    #[test]
    fn invalid_input_answers_are_refused() {
        for wrong in [json!({ "action": "maybe" }), json!({ "action": "accept" }), json!(5), json!({ "error": 5 })] {
            assert!(of_file(json!({ "a": wrong })).answer(&form("a")).is_err(), "{wrong}");
        }
        let sampling = InputRequest { kind: InputRequestKind::Sampling(Json::new("{}")), ..form("a") };
        assert!(of_file(json!({ "a": { "text": "x" } })).answer(&sampling).is_err());
        let roots = InputRequest { kind: InputRequestKind::Roots, ..form("a") };
        assert!(of_file(json!({ "a": { "roots": [{}] } })).answer(&roots).is_err());
        let given = of_file(json!({ "a": { "roots": [{ "uri": "file:///x" }] } })).answer(&roots).unwrap().unwrap();
        assert_eq!(given, InputResponse::Roots(vec![Root { uri: "file:///x".to_owned(), name: None }]));
    }

    #[test]
    fn typed_input_answer_is_converted_to_field_type() {
        assert_eq!(typed(&json!({ "type": "integer" }), "5"), Ok(json!(5)));
        assert!(typed(&json!({ "type": "integer" }), "5.5").is_err());
        assert_eq!(typed(&json!({ "type": "boolean" }), "yes"), Ok(json!(true)));
        assert!(typed(&json!({ "type": "string", "enum": ["a"] }), "b").is_err());
        assert_eq!(typed(&json!({ "type": "array" }), "a, b"), Ok(json!(["a", "b"])));
    }
}
