//! Resources, prompts and completions, in both eras.

use tokio::sync::{mpsc, oneshot};

use super::*;
use bulkhead_calls::catalog::PluginFeatures;
use bulkhead_calls::{CallEvent, CatalogPlugin, ListKind, Operation, PromptEntry, Returned, SkillEntry, TemplateEntry};
use bulkhead_domain::call::{CallError, ClientFeature, InputRequest, InputRequestKind, InputResponse};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::server_features::{
    Completion, Described, Prompt, PromptArgument, PromptMessage, PromptOutput, Resource, ResourcePage,
    ResourceTemplate,
};
use bulkhead_domain::skills::{Skill, SkillFile};
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::tool::{Content, ContentKind, ResourceBody, ResourceContents, Role};
use bulkhead_domain::uri_template::UriTemplate;
use bulkhead_domain::{Json, call::InputRequestError};

/// Resources of the first plugin, over three pages; the second one has one page, and the third one breaks.
const COUNT: usize = 5;

fn library(name: &str, has_resources: bool, has_rest: bool, limits: &CallLimits) -> Arc<CatalogPlugin> {
    Arc::new(CatalogPlugin {
        plugin: PluginVersion { name: name.into(), digest: [2; 32] },
        limits: limits.clone(),
        has_resources,
        has_prompts: has_rest,
        has_completions: has_rest,
        activity: Arc::default(),
    })
}

/// What the scripted plugins offer.
pub(super) fn offers(limits: &CallLimits) -> Vec<PluginFeatures> {
    let bare = |library: Arc<CatalogPlugin>| PluginFeatures {
        library,
        prompts: vec![],
        templates: vec![],
        resources: vec![],
        skills: vec![],
    };
    let first = library("first", true, true, limits);
    let argument = |name: &str, required| PromptArgument {
        described: Described { name: name.into(), title: None, description: Some("An argument.".into()) },
        required,
    };
    let prompt = |name: &str, arguments| {
        let prompt = Prompt {
            described: Described { name: format!("x_{name}"), title: Some("A prompt".into()), description: None },
            arguments,
            icons: Vec::new(),
            meta: vec![("example.com/a".into(), Json::new("1"))],
        };
        Arc::new(PromptEntry {
            prompt,
            plugin_prompt: name.into(),
            library: Arc::clone(&first),
            metrics: Default::default(),
        })
    };
    let template = ResourceTemplate {
        uri_template: "a://{id}/data".into(),
        described: Described { name: "data".into(), ..Described::default() },
        mime_type: Some("text/plain".into()),
        annotations: None,
        icons: Vec::new(),
        meta: Vec::new(),
    };
    let parsed = UriTemplate::parse(&template.uri_template).unwrap();
    let prompts =
        vec![prompt("plain", vec![argument("needed", true), argument("free", false)]), prompt("asking", vec![])];
    let templates = vec![Arc::new(TemplateEntry { template, parsed, library: Arc::clone(&first) })];
    let resources = vec![resource("a://0".into())];
    let skills = vec![Arc::new(SkillEntry { skill: skill(), library: Arc::clone(&first) })];
    let owned = PluginFeatures { library: Arc::clone(&first), prompts, templates, resources, skills };
    vec![owned, bare(library("second", true, false, limits)), bare(library("broken", true, false, limits))]
}

fn skill() -> Skill {
    let file = |path: &str, digit, bytes| SkillFile {
        uri: format!("skill://first/review/{path}"),
        sha256: [digit; 32],
        bytes,
    };
    let frontmatter = json!({"name": "review", "description": "Reviews.", "metadata": {"version": "1"}});
    Skill {
        uri: "skill://first/review/SKILL.md".into(),
        frontmatter: Json::new(frontmatter.to_string()),
        files: vec![file("SKILL.md", 1, 40), file("style.md", 2, 6)],
    }
}

fn resource(uri: String) -> Resource {
    let described = Described { name: uri.clone(), ..Described::default() };
    let mime_type = Some("text/plain".into());
    let size = Some(1);
    let annotations = None;
    Resource { uri, described, mime_type, size, annotations, icons: Vec::new(), meta: Vec::new() }
}

/// Plays a plugin that is asked for something else than a tool.
pub(super) async fn play(
    plugin: &str,
    operation: &Operation,
    events: &mpsc::Sender<CallEvent>,
) -> Result<Returned, CallError> {
    match (plugin, operation) {
        ("broken", _) => Err(CallError::Internal { incident: "77".into() }),
        ("first", Operation::ListResources { cursor }) => {
            let Ok(from) = cursor.as_deref().map_or(Ok(0), str::parse::<usize>) else {
                return Err(CallError::NotFound("no page".into()));
            };
            let items = (from..COUNT).take(2).map(|number| resource(format!("a://{number}"))).collect();
            let next = (from < COUNT - 2).then(|| (from + 2).to_string());
            Ok(Returned::Resources(ResourcePage { items, next }))
        }
        // The first one belongs to somebody else.
        (_, Operation::ListResources { .. }) => {
            let items = vec![resource("a://0".into()), resource("b://0".into())];
            Ok(Returned::Resources(ResourcePage { items, next: None }))
        }
        (_, Operation::ReadResource { uri }) => {
            let has = if plugin == "first" { uri.starts_with("a://") } else { uri.starts_with("b://") };
            if !has {
                return Err(CallError::NotFound("no".into()));
            }
            if uri == "a://slow" {
                let _ = events.send(CallEvent::Progress { progress: 1.0, total: None, message: None }).await;
                std::future::pending::<()>().await;
            }
            let _ = events.send(CallEvent::ResourceUpdated(uri.clone())).await;
            let body = ResourceBody::Text(format!("{plugin} has {uri}"));
            Ok(Returned::Contents(vec![ResourceContents { uri: uri.clone(), mime_type: None, body, meta: vec![] }]))
        }
        (_, Operation::GetPrompt { prompt, arguments }) => {
            let text = if prompt == "asking" { ask(events).await } else { format!("{arguments:?}") };
            let content = Content { kind: ContentKind::Text(text), annotations: None, meta: Vec::new() };
            let messages = vec![PromptMessage { role: Role::Assistant, content }];
            Ok(Returned::Prompt(PromptOutput { description: None, messages, meta: vec![] }))
        }
        (_, Operation::Complete { argument, .. }) => {
            let others = argument.context.iter().map(|(_, value)| value.clone());
            let values = std::iter::once(format!("{}1", argument.value)).chain(others).collect();
            Ok(Returned::Completion(Completion { values, total: Some(2), has_more: false, meta: vec![] }))
        }
        (_, Operation::CallTool { .. }) => panic!("a tool is played elsewhere"),
    }
}

async fn ask(events: &mpsc::Sender<CallEvent>) -> String {
    let (reply, answers) = oneshot::channel();
    let requests = vec![InputRequest { key: "roots".into(), kind: InputRequestKind::Roots, meta: Vec::new() }];
    let _ = events.send(CallEvent::InputRequests { requests, journal: None, reply }).await;
    match answers.await {
        Ok(Ok(answers)) => match answers.first() {
            Some(InputResponse::Roots(roots)) => roots.iter().map(|root| root.uri.as_str()).collect(),
            other => format!("{other:?}"),
        },
        Ok(Err(InputRequestError::Unsupported(ClientFeature::Roots))) => "unsupported".into(),
        other => format!("{other:?}"),
    }
}

fn names(list: &Value, member: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|entry| entry[member].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn capabilities_name_offered_lists_and_others_are_unknown() {
    let bare = world();
    let offering = world_offering();
    let anna = bare.anna().await;
    for method in ["resources/list", "prompts/list", "completion/complete", "resources/subscribe"] {
        assert_eq!(anna.error(method, json!({})).await["code"], -32601);
        assert_eq!(bare.plain().refusal(method, json!({})).await.0, -32601);
    }
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let received = offering.receive(Peer::unheralded(ANNA, None), &hello.to_string()).await;
    let Received::Opened { reply, .. } = received else { panic!("not opened") };
    let reply: Value = serde_json::from_str(&reply).unwrap();
    official::check("2025-11-25", "initialize", &reply);
    let mut answers = Transcript::default();
    answers.note("initialize", &reply["result"]["capabilities"]);
    let discovered = offering.plain().result("server/discover", json!({})).await;
    answers.note("server/discover", &discovered["capabilities"]);
    answers.expect(&expect![[r#"
        initialize: {"logging":{},"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"extensions":{"io.modelcontextprotocol/skills":{}},"experimental":{"modelcontextprotocol.io/task":{"list":{},"delete":{},"requests":{"ping":{},"logging":{"setLevel":{}},"tools":{"list":{},"call":{}},"resources":{"list":{},"templates/list":{},"read":{},"subscribe":{},"unsubscribe":{}},"prompts":{"list":{},"get":{}},"completion":{"complete":{}},"skills":{"list":{},"get":{}}}}}}
        server/discover: {"logging":{},"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"extensions":{"io.modelcontextprotocol/tasks":{},"dev.bulkhead/task-interaction":{"steer":true,"pause":true},"io.modelcontextprotocol/skills":{}}}
    "#]]);
}

#[tokio::test]
async fn resources_list_pages_by_plugin_and_skips_broken_ones() {
    let world = world_offering();
    let anna = world.anna().await;
    let modern = world.plain();
    let mut cursor = json!({});
    let mut pages = Vec::new();
    loop {
        let page = anna.result("resources/list", cursor.clone()).await;
        let again = modern.result("resources/list", cursor).await;
        assert_eq!((&page["resources"], &page["nextCursor"]), (&again["resources"], &again["nextCursor"]));
        assert_eq!((&again["cacheScope"], again["ttlMs"].is_u64()), (&json!("private"), true));
        pages.push(names(&page["resources"], "uri"));
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = json!({"cursor": next});
    }
    // The plugin that breaks comes last.
    let expected: [&[&str]; 5] = [&["a://0", "a://1"], &["a://2", "a://3"], &["a://4"], &["b://0"], &[]];
    assert_eq!(pages, expected);
}

#[tokio::test]
async fn list_cursor_is_bound_to_list_and_requestor() {
    let world = world_offering();
    let anna = world.anna().await;
    let next = anna.result("resources/list", json!({})).await["nextCursor"].clone();
    for method in ["prompts/list", "resources/templates/list", "tools/list"] {
        assert_eq!(anna.error(method, json!({"cursor": next})).await["code"], -32602);
    }
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    assert_eq!(bob.error("resources/list", json!({"cursor": next})).await["code"], -32602);
    assert_eq!(bob.error("resources/list", json!({"cursor": "x"})).await["code"], -32602);
}

#[tokio::test]
async fn resource_is_read_from_the_plugin_having_it() {
    let world = world_offering();
    let anna = world.anna().await;
    let modern = world.plain();
    for (uri, text) in
        [("a://0", "first has a://0"), ("a://7/data", "first has a://7/data"), ("b://0", "second has b://0")]
    {
        let read = anna.result("resources/read", json!({"uri": uri})).await;
        assert_eq!(read, json!({"contents": [{"uri": uri, "text": text}]}));
        let again = modern.result("resources/read", json!({"uri": uri})).await;
        assert_eq!((&again["contents"], &again["ttlMs"]), (&read["contents"], &json!(0)));
    }
    assert_eq!(anna.error("resources/read", json!({"uri": "no uri"})).await["code"], -32602);
    // It might have had it.
    assert_eq!(anna.error("resources/read", json!({"uri": "c://0"})).await["data"], json!({"incident": "77"}));
    assert_eq!(modern.refusal("resources/read", json!({"uri": "c://0"})).await.0, -32603);
}

#[tokio::test]
async fn unknown_resource_error_follows_each_era() {
    let world = world_nowhere();
    let anna = world.anna().await;
    let expected = json!({"code": -32002, "message": "Resource not found", "data": {"uri": "c://0"}});
    assert_eq!(anna.error("resources/read", json!({"uri": "c://0"})).await, expected);
    assert_eq!(anna.error("resources/subscribe", json!({"uri": "c://0"})).await, expected);
    let refused = world.plain().ask("resources/read", json!({"uri": "c://0"})).await;
    let expected = json!({"code": -32602, "message": "Resource not found", "data": {"uri": "c://0"}});
    assert_eq!(refused["error"], expected);
}

#[tokio::test]
async fn resource_updates_are_notified_to_subscribers_only() {
    let world = world_offering();
    let anna = world.anna().await;
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    anna.result("resources/subscribe", json!({"uri": "a://0"})).await;
    let mut stream = anna.standalone();
    let mut other = bob.standalone();
    let mut listen = world
        .plain()
        .open(
            "subscriptions/listen",
            json!({"notifications":
        {"resourceSubscriptions": ["b://0", "b://0"], "promptsListChanged": true}}),
        )
        .await;
    assert!(stream.is_silent().await && other.is_silent().await);
    let acknowledged = listen.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let honoured = json!({"resourceSubscriptions": ["b://0"], "promptsListChanged": true});
    assert_eq!(acknowledged["params"]["notifications"], honoured);

    // The look whether it is there made the plugin speak.
    assert_eq!(listen.next().await["params"]["uri"], "b://0");
    // One that its plugin lists for nobody in particular is everybody's; of any other one only its own requestor hears.
    bob.result("resources/read", json!({"uri": "a://0"})).await;
    bob.result("resources/read", json!({"uri": "b://0"})).await;
    assert!(listen.is_silent().await);
    anna.result("resources/read", json!({"uri": "b://0"})).await;
    let updated = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a://0"}});
    assert_eq!(stream.next().await, updated);
    let told = listen.next().await;
    assert_eq!((&told["method"], &told["params"]["uri"]), (&updated["method"], &json!("b://0")));
    assert!(stream.is_silent().await && other.is_silent().await);

    anna.result("resources/unsubscribe", json!({"uri": "a://0"})).await;
    bob.result("resources/read", json!({"uri": "a://0"})).await;
    assert!(stream.is_silent().await);
}

#[tokio::test]
async fn catalog_change_is_notified_for_every_offered_list() {
    let world = world_offering();
    let anna = world.anna().await;
    let mut stream = anna.standalone();
    assert!(stream.is_silent().await);
    world.change_lists();
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(stream.next().await["method"].as_str().unwrap().to_owned());
    }
    let expected = [ListKind::Tools, ListKind::Resources, ListKind::Prompts].map(notifications::list_changed_method);
    assert_eq!(told, expected);
    assert!(stream.is_silent().await);
}

#[tokio::test]
async fn prompts_are_listed_rendered_and_validated() {
    let world = world_offering();
    let anna = world.anna().await;
    let modern = world.plain();
    let listed = anna.result("prompts/list", json!({})).await;
    assert_eq!(names(&listed["prompts"], "name"), ["x_asking", "x_plain"]);
    assert_eq!(modern.result("prompts/list", json!({})).await["prompts"], listed["prompts"]);
    assert_eq!(listed["prompts"][1]["_meta"], json!({"example.com/a": 1}));

    let params = json!({"name": "x_plain", "arguments": {"needed": "n"}});
    let text = json!({"type": "text", "text": r#"[("needed", "n")]"#});
    let got = anna.result("prompts/get", params.clone()).await;
    assert_eq!(got["messages"], json!([{"role": "assistant", "content": text}]));
    assert_eq!(modern.result("prompts/get", params).await["messages"], got["messages"]);
    for (params, words) in [
        (json!({"name": "plain"}), "Unknown prompt: plain"),
        (json!({"name": "x_plain", "arguments": {"free": "f"}}), "Missing required arguments: needed"),
        (
            json!({"name": "x_plain", "arguments": {"needed": 1}}),
            "params.arguments.needed must be a string, not a number",
        ),
    ] {
        let error = anna.error("prompts/get", params.clone()).await;
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        assert_eq!(modern.refusal("prompts/get", params).await.0, -32602);
    }
}

#[tokio::test]
async fn prompt_may_send_input_requests_in_both_eras() {
    let world = world_offering();
    let anna = world.anna().await;
    let mut talk = anna.open(4, "prompts/get", json!({"name": "x_asking"})).await;
    let question = talk.next().await;
    assert_eq!(question["method"], "roots/list");
    anna.answer(&question, json!({"roots": [{"uri": "file:///a"}]})).await;
    let response = talk.next().await;
    assert_eq!(response["result"]["messages"][0]["content"]["text"], "file:///a");

    let modern = world.plain();
    let asked = modern.result("prompts/get", json!({"name": "x_asking"})).await;
    assert_eq!(
        (&asked["resultType"], &asked["inputRequests"]["roots"]["method"]),
        (&json!("input_required"), &json!("roots/list"))
    );
    let answers = json!({"roots": {"roots": [{"uri": "file:///b"}]}});
    let state = &asked["requestState"];
    let params = json!({"name": "x_asking", "inputResponses": answers, "requestState": state});
    let got = modern.result("prompts/get", params.clone()).await;
    assert_eq!(got["messages"][0]["content"]["text"], "file:///b");
    assert_eq!(modern.result("prompts/get", params).await, got, "a lost reply can be had again");
    let elsewhere = json!({"name": "x_plain", "arguments": {"needed": "n"}, "requestState": state});
    assert_eq!(modern.refusal("prompts/get", elsewhere).await.0, -32602);
}

#[tokio::test]
async fn completion_covers_prompt_arguments_and_template_variables() {
    let world = world_offering();
    let anna = world.anna().await;
    let modern = world.plain();
    let context = json!({"arguments": {"free": "c"}});
    for reference in
        [json!({"type": "ref/prompt", "name": "x_plain"}), json!({"type": "ref/resource", "uri": "a://{id}/data"})]
    {
        let name = if reference["name"].is_string() { "needed" } else { "id" };
        let params = json!({"ref": reference, "argument": {"name": name, "value": "v"}, "context": context});
        let expected = json!({"values": ["v1", "c"], "total": 2, "hasMore": false});
        assert_eq!(anna.result("completion/complete", params.clone()).await["completion"], expected);
        assert_eq!(modern.result("completion/complete", params).await["completion"], expected);
        let wrong = json!({"ref": reference, "argument": {"name": "other", "value": ""}});
        assert_eq!(anna.error("completion/complete", wrong).await["code"], -32602);
    }
    for reference in [
        json!({"type": "ref/prompt", "name": "no"}),
        json!({"type": "ref/resource", "uri": "a://1"}),
        json!({"type": "x"}),
    ] {
        let params = json!({"ref": reference, "argument": {"name": "needed", "value": ""}});
        assert_eq!(anna.error("completion/complete", params).await["code"], -32602);
    }
}
