//! Every member of every request, with every wrong JSON type: read off the official schemas, so that no member is
//! forgotten.
//!
//! The answer to a member of the wrong type is -32602 and names the member's path and the type that is expected. What
//! the host passes over is listed here, and the list fails when an entry of it is not passed over any more.

use std::collections::BTreeSet;

use super::*;
use crate::method_names;
use crate::reader::member;
use bulkhead_domain::task::Era;

/// One value of each JSON type, numbers with and without a fraction.
const VALUES: [&str; 8] = ["null", "true", "1", "1.0", "1.5", "\"x\"", "[]", "{}"];

/// What tells of the host's insides.
const FORBIDDEN: [&str; 12] = [
    "struct ",
    "enum ",
    "tagged",
    "invalid type",
    "invalid params",
    "missing field",
    "u64",
    "u32",
    "i64",
    "f64",
    "schema does not",
    "a map",
];

/// What the host does not read of its clients, and takes whatever it is. Whatever stands below is not read either.
const PASSED_OVER: [(&str, &str, &str); 32] = [
    ("legacy", "ping", "params"),
    ("legacy", "initialize", "params._meta"),
    ("legacy", "logging/setLevel", "params._meta"),
    ("legacy", "tools/list", "params._meta"),
    ("legacy", "tasks/list", "params._meta"),
    ("legacy", "resources/list", "params._meta"),
    ("legacy", "resources/templates/list", "params._meta"),
    ("legacy", "resources/subscribe", "params._meta"),
    ("legacy", "resources/unsubscribe", "params._meta"),
    ("legacy", "prompts/list", "params._meta"),
    ("legacy", "completion/complete", "params._meta"),
    ("legacy", "initialize", "params.clientInfo.description"),
    ("legacy", "initialize", "params.clientInfo.icons"),
    ("legacy", "initialize", "params.clientInfo.title"),
    ("legacy", "initialize", "params.clientInfo.websiteUrl"),
    ("legacy", "initialize", "params.capabilities.experimental.x"),
    ("legacy", "initialize", "params.capabilities.experimental[\"dev.bulkhead/task-interaction\"]"),
    ("legacy", "initialize", "params.capabilities.roots.listChanged"),
    ("legacy", "initialize", "params.capabilities.tasks.list"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientInfo\"]"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientCapabilities\"].experimental.x"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientCapabilities\"].extensions.x"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientCapabilities\"].elicitation.form.x"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientCapabilities\"].elicitation.url.x"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientCapabilities\"].sampling.context.x"),
    ("modern", "*", "params._meta[\"io.modelcontextprotocol/clientCapabilities\"].sampling.tools.x"),
    // Answers are held against their questions when there are any.
    ("modern", "tools/call", "params.inputResponses.x"),
    ("modern", "resources/read", "params.inputResponses.x"),
    ("modern", "prompts/get", "params.inputResponses.x"),
    ("modern", "tasks/update", "params.inputResponses.x"),
    ("legacy", "completion/complete", "params.ref.title"),
    ("modern", "completion/complete", "params.ref.title"),
];

/// A place in a message.
#[derive(Clone, Debug)]
enum Step {
    Member(String),
    Item,
}

/// A member as a schema has it.
#[derive(Clone, Debug)]
struct SchemaPosition {
    path: String,
    steps: Vec<Step>,
    /// JSON types that may stand there; empty: any.
    types: BTreeSet<String>,
    required: bool,
}

/// One of the official schemas.
struct Schema(Value);

impl Schema {
    fn read(name: &str) -> Self {
        let path = format!("{}/../../tests/fixtures/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
        Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// The schema of a request's params.
    fn params(&self, method: &str) -> Option<Value> {
        let definitions = self.0["$defs"].as_object().unwrap().values();
        let mut parts = definitions.flat_map(|definition| {
            let all = definition["allOf"].as_array().map_or_else(|| vec![definition], |all| all.iter().collect());
            all.into_iter()
        });
        parts
            .find(|part| part["properties"]["method"]["const"] == method)
            .map(|part| part["properties"]["params"].clone())
    }

    /// What a schema may stand for.
    fn variants(&self, schema: &Value) -> Vec<Value> {
        if let Some(target) = schema["$ref"].as_str() {
            return self.variants(&self.0["$defs"][target.strip_prefix("#/$defs/").unwrap()]);
        }
        match schema["anyOf"].as_array() {
            Some(all) => all.iter().flat_map(|one| self.variants(one)).collect(),
            None => vec![schema.clone()],
        }
    }

    fn walk(&self, schema: &Value, place: SchemaPosition, found: &mut Vec<SchemaPosition>) {
        let variants = self.variants(schema);
        let mut types = BTreeSet::new();
        for variant in &variants {
            match &variant["type"] {
                Value::String(name) => drop(types.insert(name.clone())),
                Value::Array(names) => types.extend(names.iter().map(|name| name.as_str().unwrap().to_owned())),
                _ if variant["enum"].is_array() => drop(types.insert("string".to_owned())),
                _ => {}
            }
        }
        found.push(SchemaPosition { types, ..place.clone() });
        if place.steps.len() > 6 {
            return;
        }
        for variant in &variants {
            let required: Vec<_> = variant["required"].as_array().into_iter().flatten().collect();
            for (name, schema) in variant["properties"].as_object().into_iter().flatten() {
                let required = variants.len() == 1 && required.iter().any(|one| *one == name);
                self.walk(schema, place.below(Step::Member(name.clone()), required), found);
            }
            if variant["additionalProperties"].as_object().is_some_and(|schema| !schema.is_empty()) {
                let below = place.below(Step::Member("x".to_owned()), false);
                self.walk(&variant["additionalProperties"], below, found);
            }
            if variant["items"].is_object() {
                self.walk(&variant["items"], place.below(Step::Item, false), found);
            }
        }
    }
}

impl SchemaPosition {
    fn below(&self, step: Step, required: bool) -> Self {
        let path = match &step {
            Step::Member(name) => member(&self.path, name),
            Step::Item => format!("{}[0]", self.path),
        };
        let steps = self.steps.iter().cloned().chain([step]).collect();
        Self { path, steps, types: BTreeSet::new(), required }
    }

    fn takes(&self, value: &Value) -> bool {
        let mut names = match value {
            Value::Null => vec!["null"],
            Value::Bool(_) => vec!["boolean"],
            Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
                vec!["integer", "number"]
            }
            Value::Number(_) => vec!["number"],
            Value::String(_) => vec!["string"],
            Value::Array(_) => vec!["array"],
            Value::Object(_) => vec!["object"],
        }
        .into_iter();
        self.types.is_empty() || names.any(|name| self.types.contains(name))
    }

    /// The message with this value there, or without the member.
    fn put(&self, message: &Value, value: Option<&Value>) -> Value {
        let mut message = message.clone();
        let (last, parents) = self.steps.split_last().unwrap();
        let mut at = &mut message;
        for step in parents {
            at = inside(at, step);
        }
        match (last, value) {
            (Step::Member(name), None) => drop(at.as_object_mut().unwrap().remove(name)),
            (_, None) => unreachable!("items are not required"),
            (step, Some(value)) => *inside(at, step) = value.clone(),
        }
        message
    }

    fn is_there(&self, message: &Value) -> bool {
        let found = self.steps.iter().try_fold(message, |at, step| match step {
            Step::Member(name) => at.get(name),
            Step::Item => at.get(0),
        });
        found.is_some()
    }
}

fn inside<'a>(at: &'a mut Value, step: &Step) -> &'a mut Value {
    match step {
        Step::Member(name) => {
            if !at.is_object() {
                *at = json!({});
            }
            &mut at[name.as_str()]
        }
        Step::Item => {
            if at.as_array().is_none_or(Vec::is_empty) {
                *at = json!([null]);
            }
            &mut at[0]
        }
    }
}

/// Members that this host has beside those of the schemas.
fn own(era: &str, method: &str) -> Option<Value> {
    let text = json!({"type": "string"});
    let task = json!({"type": "object", "properties": {"taskId": text}, "required": ["taskId"]});
    let wish = json!({"type": "object", "properties": {"taskId": text, "keepAlive": {"type": "number"}}, "required": ["taskId"]});
    let in_meta = |name: &str, schema: &Value| json!({"type": "object", "properties": {"_meta": {"type": "object", "properties": {name: schema}}}});
    let flags = json!({"type": "object", "properties": {"steer": {"type": "boolean"}, "pause": {"type": "boolean"}}});
    Some(match (era, method) {
        (_, "tasks/steer") => {
            json!({"type": "object", "properties": {"taskId": text, "message": text}, "required": ["taskId", "message"]})
        }
        (_, "tasks/pause" | "tasks/resume" | "tasks/delete") => task,
        (_, "skills/list") => json!({"type": "object", "properties": {"cursor": text}}),
        (_, "skills/get") => json!({"type": "object", "properties": {"uri": text}, "required": ["uri"]}),
        ("legacy", "tools/call") => json!({"type": "object", "properties": {"_meta": {"type": "object", "properties":
            {"dev.bulkhead/idempotencyKey": text, "modelcontextprotocol.io/task": wish}}}}),
        ("legacy", "resources/read" | "prompts/get") => in_meta("modelcontextprotocol.io/task", &wish),
        ("legacy", "initialize") => {
            json!({"type": "object", "properties": {"capabilities": {"type": "object", "properties":
            {"experimental": {"type": "object", "properties": {"dev.bulkhead/task-interaction": flags}}}}}})
        }
        ("modern", "tools/call") => json!({"type": "object", "properties": {"_meta": {"type": "object", "properties": {
            "dev.bulkhead/idempotencyKey": text,
            "io.modelcontextprotocol/relatedTaskIds": {"type": "array", "items": text},
            "io.modelcontextprotocol/clientCapabilities": {"type": "object", "properties": {"extensions": {"type": "object", "properties":
                {"io.modelcontextprotocol/tasks": flags, "dev.bulkhead/task-interaction": flags}}}}}}}}),
        ("modern", "subscriptions/listen") => {
            json!({"type": "object", "properties": {"notifications": {"type": "object",
            "properties": {"taskIds": {"type": "array", "items": text}}}}})
        }
        _ => return None,
    })
}

/// Params that a method takes.
fn good(era: &str, method: &str) -> Vec<Value> {
    let mut all = match method {
        "initialize" => vec![
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}),
        ],
        "logging/setLevel" => vec![json!({"level": "info"})],
        "tools/call" => vec![json!({"name": "quick", "arguments": {}})],
        "subscriptions/listen" => vec![json!({"notifications": {}})],
        "tasks/update" => vec![json!({"taskId": "0", "inputResponses": {}})],
        "tasks/steer" => vec![json!({"taskId": "0", "message": "m"})],
        "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/delete" | "tasks/pause" | "tasks/resume" => {
            vec![json!({"taskId": "0"})]
        }
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => vec![json!({"uri": "a://0"})],
        "skills/get" => vec![json!({"uri": "skill://first/review/SKILL.md"})],
        "prompts/get" => vec![json!({"name": "x_plain", "arguments": {"needed": "n"}})],
        "completion/complete" => vec![
            json!({"ref": {"type": "ref/prompt", "name": "x_plain"}, "argument": {"name": "needed", "value": "n"}}),
            json!({"ref": {"type": "ref/resource", "uri": "a://{id}/data"}, "argument": {"name": "id", "value": "n"}}),
        ],
        _ => vec![json!({})],
    };
    if era == "modern" {
        let features = json!({"steer": true, "pause": true});
        let capabilities = json!({"elicitation": {}, "extensions":
            {"io.modelcontextprotocol/tasks": {}, "dev.bulkhead/task-interaction": features}});
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities});
        all.iter_mut().for_each(|params| params["_meta"] = meta.clone());
    }
    all
}

/// The members of a method's params, the params themselves first.
fn places(era: &str, method: &str, schemas: &[Schema]) -> Vec<SchemaPosition> {
    let root = SchemaPosition {
        path: "params".into(),
        steps: vec![Step::Member("params".into())],
        types: BTreeSet::new(),
        required: false,
    };
    let mut found = Vec::new();
    for schema in schemas {
        if let Some(params) = schema.params(method) {
            schema.walk(&params, root.clone(), &mut found);
        }
    }
    if let Some(more) = own(era, method) {
        schemas[0].walk(&more, root, &mut found);
    }
    // Where two schemas have one member, the first one that says anything about its type is right.
    let mut places: Vec<SchemaPosition> = Vec::new();
    for place in found {
        match places.iter_mut().find(|other| other.path == place.path) {
            Some(other) if other.types.is_empty() => other.types = place.types,
            Some(_) => {}
            None => places.push(place),
        }
    }
    places
}

/// The answer to a message: the error, if it is one.
async fn refusal(world: &World, peer: Peer<'_>, message: &Value) -> Option<(i64, String)> {
    let text = message.to_string();
    let line = match world.receive(peer, &text).await {
        Received::Exchange(mut exchange) => {
            match tokio::time::timeout(Duration::from_millis(20), exchange.next()).await {
                Ok(Some(frame)) => frame.message.into_text(),
                _ => return None,
            }
        }
        Received::Rejected { body, .. } => body,
        Received::Opened { reply, .. } => reply,
        Received::Accepted | Received::Settling(_) => return None,
    };
    let said: Value = serde_json::from_str(&line).unwrap();
    let error = &said["error"];
    error["code"].as_i64().map(|code| (code, error["message"].as_str().unwrap().to_owned()))
}

fn passed_over(era: &str, method: &str, path: &str) -> Option<usize> {
    PASSED_OVER.iter().position(|(of, name, root)| {
        let below = path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        *of == era && (*name == "*" || *name == method) && below
    })
}

/// What is wrong with the answers to one method, and which entries of the list above were of use.
async fn examine(era: &'static str, method: &'static str, schemas: &[Schema]) -> (Vec<String>, BTreeSet<usize>, usize) {
    let world = world_of(10_000, guest::Scripted::complete);
    let interaction = json!({"dev.bulkhead/task-interaction": {"steer": true, "pause": true}});
    let session = match (era, method) {
        ("legacy", "initialize") | ("modern", _) => None,
        _ => Some(world.client(ANNA, "2025-11-25", json!({"experimental": interaction})).await.session),
    };
    let declared = (era == "modern").then(|| Declared {
        protocol_version: Some("2026-07-28".into()),
        method: Some(method.into()),
        ..Declared::default()
    });
    let ask = async |params: &Value, place: &SchemaPosition, value: Option<&Value>| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut declared = declared.clone();
        let name = [&params["name"], &params["taskId"], &params["uri"]].into_iter().find_map(Value::as_str);
        if let Some(declared) = &mut declared {
            declared.name = name.map(|name| name.to_owned().into());
        }
        let peer = Peer { declared, ..Peer::unheralded(ANNA, session.clone()) };
        refusal(&world, peer, &place.put(&message, value)).await
    };
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let mut asked = 0;
    let good = good(era, method);
    for place in places(era, method, schemas) {
        let in_message = |params: &&Value| place.is_there(&json!({"params": params}));
        let params = good.iter().rev().find(in_message).unwrap_or(&good[0]);
        let ignored = passed_over(era, method, &place.path);
        for text in VALUES {
            asked += 1;
            let value: Value = serde_json::from_str(text).unwrap();
            let said = ask(params, &place, Some(&value)).await;
            let complains = |words: &str| {
                said.as_ref()
                    .is_some_and(|(code, said)| *code == -32602 && said.starts_with(&format!("{}{words}", place.path)))
            };
            if let Some((_, said)) = &said {
                wrong.extend(
                    FORBIDDEN
                        .iter()
                        .filter(|word| said.contains(*word))
                        .map(|word| format!("{method}: {}: {text}: {said:?} holds {word:?}", place.path)),
                );
            }
            // `null` is as good as nothing, and nothing is not enough where something is required.
            let refused =
                complains(" must be a") || value.is_null() && place.required && complains(" is missing; it must be a");
            let fits = place.takes(&value);
            if let Some(entry) = ignored {
                if refused || complains(" is missing") {
                    wrong.push(format!("{method}: {}: {text} is not passed over: {said:?}", place.path));
                } else if !fits {
                    used.insert(entry);
                }
                continue;
            }
            let names_the_type =
                place.types.iter().any(|name| said.as_ref().is_some_and(|(_, said)| said.contains(name.as_str())));
            // `null` may stand for a member that is not there.
            let absent = value.is_null() && !place.required;
            let absent_params = place.path == "params" && value.is_null();
            match (fits, refused && names_the_type) {
                (true, false) | (false, true) => {}
                (false, false) if absent || absent_params => {}
                _ => wrong.push(format!("{method}: {} {:?}: {text}: {said:?}", place.path, place.types)),
            }
        }
        if place.required && ignored.is_none() && place.is_there(&json!({"params": params})) {
            asked += 1;
            let said = ask(params, &place, None).await;
            let expected = format!("{} is missing; it must be ", place.path);
            if !said.as_ref().is_some_and(|(code, said)| *code == -32602 && said.starts_with(&expected)) {
                wrong.push(format!("{method}: {} is not there: {said:?}", place.path));
            }
        }
    }
    (wrong, used, asked)
}

#[tokio::test]
async fn every_wrong_params_member_names_its_expected_type() {
    let legacy = [Schema::read("2025-11-25")];
    let modern = [Schema::read("2026-07-28"), Schema::read("ext-tasks")];
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let mut asked = 0;
    let methods = method_names(Era::Legacy).map(|method| ("legacy", method, &legacy[..]));
    let methods = methods.chain(method_names(Era::Modern).map(|method| ("modern", method, &modern[..])));
    for (era, method, schemas) in methods {
        let (problems, entries, count) = examine(era, method, schemas).await;
        assert!(count >= 8, "{era} {method} is in no schema");
        wrong.extend(problems.into_iter().map(|problem| format!("{era} {problem}")));
        used.extend(entries);
        asked += count;
    }
    let stale = (0..PASSED_OVER.len()).filter(|entry| !used.contains(entry)).map(|entry| PASSED_OVER[entry]);
    wrong.extend(stale.map(|entry| format!("{entry:?} is not passed over by anything")));
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked > 2_500, "only {asked} requests were made of the schemas");
}

/// JSON knows one kind of number: what has no fraction is an integer wherever a schema says integer.
#[tokio::test]
async fn integer_spellings_are_equivalent() {
    let world = world();
    let anna = world.anna().await;
    // Not by `json!`, which would spell them its own way.
    let ask = async |params: &str, method: &str| {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let Received::Exchange(mut exchange) = world.receive(anna.peer(), &message).await else { panic!("none") };
        serde_json::from_str::<Value>(&exchange.next().await.unwrap().message.text()).unwrap()
    };
    for ttl in ["90000", "90000.0", "9e4", "9.0E+4"] {
        let made = ask(&format!(r#"{{"name":"quick","task":{{"ttl":{ttl}}}}}"#), "tools/call").await;
        assert_eq!(made["result"]["task"]["ttl"], 90_000, "{ttl}: {made}");
    }
    for (ttl, expected) in [
        ("90000.5", "params.task.ttl must be an integer, not a number with a fraction"),
        ("-1.0", "params.task.ttl must be an integer from 0 to 18446744073709551615"),
        ("1e30", "params.task.ttl must be an integer from 0 to 18446744073709551615"),
        ("\"90000\"", "params.task.ttl must be an integer, not a string"),
    ] {
        let made = ask(&format!(r#"{{"name":"quick","task":{{"ttl":{ttl}}}}}"#), "tools/call").await;
        assert_eq!(made["error"], json!({"code": -32602, "message": expected}), "{ttl}");
    }
    for token in ["7", "7.0", "0.7e1"] {
        let params = format!(r#"{{"name":"count","_meta":{{"progressToken":{token}}}}}"#);
        let progress = ask(&params, "tools/call").await;
        assert_eq!(progress["params"]["progressToken"], 7, "{token}: {progress}");
    }
    let wish = |keep_alive: &str| {
        format!(
            r#"{{"name":"quick","_meta":{{"modelcontextprotocol.io/task":{{"taskId":"k{keep_alive}","keepAlive":{keep_alive}}}}}}}"#
        )
    };
    for keep_alive in ["60000", "60000.0", "6e4"] {
        let created = ask(&wish(keep_alive), "tools/call").await;
        assert_eq!(created["method"], "notifications/tasks/created", "{keep_alive}: {created}");
        let shown = ask(&format!(r#"{{"taskId":"k{keep_alive}"}}"#), "tasks/get").await;
        assert_eq!(shown["result"]["keepAlive"], 60_000, "{keep_alive}: {shown}");
    }
}

/// What is asked for in forms is held against their schemas, for which `7.0` is an integer too.
#[test]
fn input_answer_integer_spellings_are_accepted() {
    use crate::input_requests::read_answer;
    use bulkhead_domain::Json;
    use bulkhead_domain::call::{InputRequestKind, InputResponse};
    let schema =
        json!({"type": "object", "properties": {"age": {"type": "integer", "maximum": 150}}, "required": ["age"]});
    let kind = InputRequestKind::Form { message: "How old?".into(), requested_schema: Json::new(schema.to_string()) };
    let answer = |text: &str| read_answer(&kind, text);
    for age in ["7", "7.0", "0.7e1"] {
        let read = answer(&format!(r#"{{"action":"accept","content":{{"age":{age}}}}}"#)).unwrap();
        let InputResponse::Elicitation { content: Some(content), .. } = read else { panic!("{age}") };
        assert_eq!(content.as_str(), format!(r#"{{"age":{age}}}"#), "the guest gets what was written");
    }
    for (text, expected) in [
        ("[]", "it must be an object, not an array"),
        (r#"{"action":7}"#, "action must be a string, not a number"),
        (r#"{"content":{}}"#, "action is missing; it must be a string"),
        (r#"{"action":"accept","content":["age"]}"#, "content must be an object, not an array"),
        (r#"{"action":"accept","content":{"age":7.5}}"#, "content: /age: 7.5 is not of type \"integer\""),
        (r#"{"action":"accept","content":{"age":1e3}}"#, "content: /age: 1000.0 is greater than the maximum of 150"),
        (r#"{"action":"accept"}"#, "content: the member `age` is missing"),
    ] {
        assert_eq!(answer(text).unwrap_err(), expected, "{text}");
    }
}
