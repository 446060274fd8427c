//! Resources, prompts and completions of plugins in Python and JavaScript, in both eras.

use serde_json::{Value, json};
use tests::Host;
use tests::client::{Client, Failure};
use tests::modern::Modern;

use crate::languages::{PROBES, SAMPLES, host, left_out};

struct Both {
    legacy: Client,
    modern: Modern,
}

impl Both {
    async fn connect(host: &Host) -> Self {
        Self { legacy: Client::connect(host).await, modern: Modern::plain(host, None) }
    }

    async fn ask(&self, method: &str, params: Value) -> [Result<Value, Failure>; 2] {
        [self.legacy.call(method, params.clone()).await, self.modern.call(method, params).await]
    }

    /// The same member of the result in both eras.
    async fn get(&self, method: &str, params: Value, member: &str) -> Value {
        let [legacy, modern] = self.ask(method, params.clone()).await;
        let legacy = legacy.expect("a result");
        let modern = modern.expect("a result");
        assert_eq!(legacy[member], modern[member], "{method} {params}");
        legacy[member].clone()
    }

    /// All pages of a list; each plugin's own pages follow those of the one before.
    async fn list(&self, method: &str, member: &str) -> Value {
        let mut all = Vec::new();
        let (mut items, mut cursor) = self.page(method, member, None).await;
        loop {
            all.append(&mut items);
            let Some(next) = cursor else { return Value::Array(all) };
            (items, cursor) = self.page(method, member, Some(next)).await;
        }
    }

    async fn page(&self, method: &str, member: &str, cursor: Option<Value>) -> (Vec<Value>, Option<Value>) {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        let result = self.modern.result(method, params).await;
        (result[member].as_array().cloned().unwrap_or_default(), result.get("nextCursor").cloned())
    }

    async fn code(&self, method: &str, params: Value) -> i64 {
        let [legacy, modern] = self.ask(method, params.clone()).await;
        let legacy = legacy.expect_err("an error");
        let modern = modern.expect_err("an error");
        for failure in [&legacy, &modern] {
            assert!(!failure.message.contains("business"), "what went wrong is for the operator: {failure:?}");
        }
        // What is not there has a code of its own in the older era.
        assert!(legacy.code == modern.code || (legacy.code, modern.code) == (-32002, -32602), "{method} {params}");
        modern.code
    }
}

fn named<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    let found = list.as_array().into_iter().flatten().find(|item| item[key] == value);
    found.unwrap_or_else(|| panic!("no {value} in {list}"))
}

#[tokio::test]
async fn resources_are_listed_and_read() {
    if left_out() {
        return;
    }
    let host = host(&PROBES).await;
    let both = Both::connect(&host).await;
    let listed = both.list("resources/list", "resources").await;
    let families = both.list("resources/templates/list", "resourceTemplates").await;
    for language in ["py", "js"] {
        let text = format!("{language}-probe://text");
        let expected = json!({"uri": text, "name": "text", "title": "A text", "description": "Always the same.",
            "mimeType": "text/plain", "size": 5, "annotations": {"audience": ["user"], "priority": 0.5}});
        assert_eq!(named(&listed, "uri", &text), &expected);
        assert_eq!(
            named(&families, "uriTemplate", &format!("{language}-probe://fruit/{{name}}/{{+rest}}"))["name"],
            "fruit"
        );
        let read = async |uri: &str| both.get("resources/read", json!({"uri": uri}), "contents").await;
        assert_eq!(read(&text).await, json!([{"uri": text, "mimeType": "text/plain", "text": "plain"}]));
        let fruit = |name: &str| format!("{language}-probe://fruit/{name}");
        let contents = read(&fruit("pear%20tree/x")).await;
        let found: Value = serde_json::from_str(contents[0]["text"].as_str().expect("a text")).expect("JSON");
        assert_eq!(found, json!({"name": "pear tree", "rest": "x"}), "{contents}");
        assert_eq!(contents[0]["mimeType"], "application/json", "{contents}");
        assert_eq!(read(&fruit("bytes/x")).await[0]["blob"], "AP8=");
        let code = async |uri: String| both.code("resources/read", json!({"uri": uri})).await;
        assert_eq!(code(fruit("none/x")).await, -32602);
        assert_eq!(code(format!("{language}-probe://vegetable")).await, -32602);
        assert_eq!(code(fruit("wrong/x")).await, -32603);
    }
}

#[tokio::test]
async fn prompts_are_filled_in_and_completed() {
    if left_out() {
        return;
    }
    let host = host(&PROBES).await;
    let both = Both::connect(&host).await;
    let listed = both.list("prompts/list", "prompts").await;
    for language in ["py", "js"] {
        let name = format!("{language}_compare");
        let prompt = named(&listed, "name", &name);
        assert_eq!((&prompt["title"], &prompt["description"]), (&json!("Compare"), &json!("Compares two words.")));
        let first = json!({"name": "first", "description": "The first word.", "required": true});
        assert_eq!(prompt["arguments"][0], first, "{prompt}");
        assert_eq!(
            (&prompt["arguments"][1]["name"], prompt["arguments"][1]["required"] == true),
            (&json!("second"), false)
        );

        let given = json!({"name": name, "arguments": {"first": "tea"}});
        let said = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        let expected = json!([said("user", "tea or nothing?"), said("assistant", "tea")]);
        assert_eq!(both.get("prompts/get", given, "messages").await, expected);
        assert_eq!(both.code("prompts/get", json!({"name": name, "arguments": {}})).await, -32602);

        let complete = async |reference: Value, argument: &str, typed: &str| {
            let params = json!({"ref": reference, "argument": {"name": argument, "value": typed},
                "context": {"arguments": {"first": "apple"}}});
            both.get("completion/complete", params, "completion").await["values"].clone()
        };
        let prompt = || json!({"type": "ref/prompt", "name": name});
        let family = json!({"type": "ref/resource", "uri": format!("{language}-probe://fruit/{{name}}/{{+rest}}")});
        assert_eq!(complete(prompt(), "second", "a").await, json!(["apricot"]), "the first one is decided");
        assert_eq!(complete(prompt(), "first", "a").await, json!([]), "nobody suggests any");
        assert_eq!(complete(family, "name", "a").await, json!(["apple", "apricot"]));
    }
}

#[tokio::test]
async fn script_plugin_samples_offer_resources_and_prompts() {
    if left_out() {
        return;
    }
    let samples = host(&SAMPLES).await;
    let both = Both::connect(&samples).await;
    let uri = "dedup://compared/Lovelace,%20ADA";
    assert_eq!(both.get("resources/read", json!({"uri": uri}), "contents").await[0]["text"], "ada lovelace");
    let plan = json!({"name": "plan_meeting", "arguments": {"kind": "Review", "with": "Ada"}});
    let messages = both.get("prompts/get", plan, "messages").await;
    let text = messages[0]["content"]["text"].as_str().unwrap_or_default();
    assert!(text.contains("with Ada") && text.contains("60 minutes"), "{messages}");
    let typed =
        json!({"ref": {"type": "ref/prompt", "name": "plan_meeting"}, "argument": {"name": "kind", "value": "w"}});
    assert_eq!(both.get("completion/complete", typed, "completion").await["values"], json!(["workshop"]));

    // Each exports what it has: a component of the other's interfaces would show empty lists.
    for (sample, has, lacks) in [("dedup", "resources", "prompts"), ("meetings", "prompts", "resources")] {
        let alone = host(&[sample]).await;
        let told = Modern::plain(&alone, None).result("server/discover", json!({})).await["capabilities"].clone();
        assert!(told[has].is_object() && told.get(lacks).is_none(), "{sample}: {told}");
    }
}
