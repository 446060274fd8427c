//! Tool search: two tools in the place of many, and calls through one of them that are the calls themselves.

use super::tool_lists::{excluding, said_everywhere};
use super::*;
use bulkhead_domain::Json;
use bulkhead_domain::rights::{ScopeBook, ScopeRule};
use bulkhead_domain::tool::{TaskSupport, Tool};

/// Names of what a search answers.
fn found(result: &Value) -> Vec<&str> {
    let tools = result["structuredContent"]["tools"].as_array().unwrap_or_else(|| panic!("{result}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn search(query: &str, limit: u64) -> Value {
    json!({"name": "search_tools", "arguments": {"query": query, "limit": limit}})
}

fn through(params: &Value) -> Value {
    let mut wrapped = params.clone();
    wrapped["name"] = json!("call_tool");
    wrapped["arguments"] = json!({"name": params["name"], "arguments": params["arguments"]});
    wrapped
}

#[tokio::test]
async fn searching_clients_are_listed_two_tools() {
    let world = world();
    world.list_by(Vec::new(), true);
    let anna = world.anna().await;
    let modern = world.plain();
    let mut answers = Transcript::default();
    let legacy_list = anna.result("tools/list", json!({})).await;
    let modern_list = modern.result("tools/list", json!({})).await;
    for (era, listed) in [("legacy", legacy_list), ("modern", modern_list)] {
        for tool in listed["tools"].as_array().unwrap() {
            jsonschema::validator_for(&tool["inputSchema"]).unwrap();
            assert_eq!(bulkhead_calls::schema::refusals(&tool["inputSchema"]), Vec::<String>::new(), "{tool}");
        }
        answers.note(era, &listed);
    }
    answers.expect(&expect![[r#"
        legacy: {"tools":[{"name":"call_tool","title":"Call tool","description":"Calls a tool of this server by its name and answers what it answers. search_tools finds names.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The name of the tool, as search_tools gives it."},"arguments":{"type":"object","description":"Its arguments, as its input schema wants them.","properties":{}}},"required":["name"],"additionalProperties":false},"execution":{"taskSupport":"optional"}},{"name":"search_tools","title":"Search tools","description":"Finds the tools of this server that fit what is to be done, the best first: the name, description and input schema of each. The server has more tools than it lists, so search before you give up. call_tool calls what was found.","inputSchema":{"type":"object","properties":{"query":{"type":"string","minLength":1,"maxLength":1000,"description":"What is to be done, in a few words."},"limit":{"type":"integer","minimum":1,"maximum":20,"default":5,"description":"How many tools at most."}},"required":["query"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false},"execution":{"taskSupport":"forbidden"}}]}
        modern: {"resultType":"complete","tools":[{"name":"call_tool","title":"Call tool","description":"Calls a tool of this server by its name and answers what it answers. search_tools finds names.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The name of the tool, as search_tools gives it."},"arguments":{"type":"object","description":"Its arguments, as its input schema wants them.","properties":{}}},"required":["name"],"additionalProperties":false}},{"name":"search_tools","title":"Search tools","description":"Finds the tools of this server that fit what is to be done, the best first: the name, description and input schema of each. The server has more tools than it lists, so search before you give up. call_tool calls what was found.","inputSchema":{"type":"object","properties":{"query":{"type":"string","minLength":1,"maxLength":1000,"description":"What is to be done, in a few words."},"limit":{"type":"integer","minimum":1,"maximum":20,"default":5,"description":"How many tools at most."}},"required":["query"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}],"ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
    // A place in the list as it was before: what comes after it.
    world.protocol.set_tool_listing(ToolListing { per_page: 50, ..ToolListing::default() });
    let cursor = anna.result("tools/list", json!({})).await["nextCursor"].clone();
    world.list_by(Vec::new(), true);
    assert_eq!(anna.result("tools/list", json!({"cursor": cursor})).await["tools"], json!([]));
    assert_eq!(anna.error("tools/list", json!({"cursor": "x"})).await["code"], -32602);
}

#[tokio::test]
async fn search_answers_definitions_that_can_be_called() {
    let world = world();
    world.list_by(Vec::new(), true);
    let anna = world.anna().await;
    let result = anna.result("tools/call", search("plays an echo", 1)).await;
    let mut answers = Transcript::default();
    answers.note("legacy", &result);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
    let modern = world.plain().result("tools/call", search("plays an echo", 1)).await;
    answers.note("modern", &modern);
    answers.expect(&expect![[r#"
        legacy: {"content":[{"type":"text","text":"{\"tools\":[{\"name\":\"echo\",\"description\":\"Plays echo.\",\"inputSchema\":{   \"type\": \"object\",   \"properties\": {     \"text\": {       \"type\": \"string\"     }   },   \"required\": [     \"text\"   ] },\"execution\":{\"taskSupport\":\"forbidden\"}}]}"}],"structuredContent":{"tools":[{"name":"echo","description":"Plays echo.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},"execution":{"taskSupport":"forbidden"}}]}}
        modern: {"resultType":"complete","content":[{"type":"text","text":"{\"tools\":[{\"name\":\"echo\",\"description\":\"Plays echo.\",\"inputSchema\":{   \"type\": \"object\",   \"properties\": {     \"text\": {       \"type\": \"string\"     }   },   \"required\": [     \"text\"   ] }}]}"}],"structuredContent":{"tools":[{"name":"echo","description":"Plays echo.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}]},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
    assert_eq!(found(&anna.result("tools/call", search("plays", 20)).await).len(), 20);
    let default = anna.result("tools/call", json!({"name": "search_tools", "arguments": {"query": "plays"}})).await;
    assert_eq!(found(&default).len(), 5);
    assert_eq!(found(&anna.result("tools/call", search("zeppelin", 5)).await), [""; 0]);
    // Where there are no tasks, a tool that is always one cannot be called, and is not found.
    let older = world.client(ANNA, "2025-06-18", json!({})).await;
    assert_eq!(found(&anna.result("tools/call", search("only_task", 1)).await), ["only_task"]);
    assert!(!found(&older.result("tools/call", search("only_task", 20)).await).contains(&"only_task"));
}

#[tokio::test]
async fn search_finds_what_its_requestor_may_call_and_nothing_else() {
    let world = world();
    world.list_by(vec![excluding(&["slow"])], true);
    let rule = ScopeRule { name: "some".into(), tools: vec!["quick".into(), "slow".into()], ..ScopeRule::default() };
    let rights = ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "t", "r", false);
    let limited = world.plain().with_rights(rights.clone());
    assert_eq!(found(&limited.result("tools/call", search("plays quick slow echo", 20)).await), ["quick"]);
    let everything = world.plain().result("tools/call", search("plays quick slow echo", 20)).await;
    assert!(found(&everything).contains(&"echo") && !found(&everything).contains(&"slow"));
    for (name, text) in [("echo", "Unknown tool: echo"), ("slow", "Unknown tool: slow"), ("ehco", "Unknown tool: ehco")]
    {
        let direct = limited.ask("tools/call", json!({"name": name, "arguments": {}})).await;
        let wrapped = limited.ask("tools/call", through(&json!({"name": name, "arguments": {}}))).await;
        assert_eq!((&direct, direct["error"]["message"].as_str()), (&wrapped, Some(text)));
    }
    assert_eq!(
        limited.result("tools/call", through(&json!({"name": "quick", "arguments": {}}))).await["content"][0]["text"],
        "done"
    );
}

#[tokio::test]
async fn call_through_the_host_is_the_call_itself() {
    let world = world();
    world.list_by(Vec::new(), true);
    let calls = [
        json!({"name": "echo", "arguments": {"text": "hello"}}),
        json!({"name": "echo", "arguments": {"text": 7}}),
        json!({"name": "echo", "arguments": []}),
        json!({"name": "echo", "arguments": {"text": "a"}, "task": {"ttl": 1_000}}),
        json!({"name": "count", "arguments": {}, "_meta": {"progressToken": "p"}}),
        json!({"name": "fails", "arguments": {}}),
        json!({"name": "custom", "arguments": {}}),
        json!({"name": "structured", "arguments": {}}),
        json!({"name": "lacks", "arguments": {}}),
        json!({"name": "nobody", "arguments": {}}),
        json!({"name": "quick", "arguments": {}, "requestState": "x"}),
        json!({"name": "call_tool", "arguments": {"name": "echo", "arguments": {"text": "twice"}}}),
        json!({"name": "search_tools", "arguments": {}}),
    ];
    for params in &calls[..11] {
        let direct = said_everywhere(&world, "tools/call", params).await;
        let wrapped = said_everywhere(&world, "tools/call", &through(params)).await;
        assert_eq!(direct, wrapped, "{params}");
        assert!(direct.iter().all(|frames| !frames.is_empty()));
    }
    // It leads to tools of plugins, not to those of the host: of these names there are none.
    for params in &calls[11..] {
        let name = params["name"].as_str().unwrap();
        for frames in said_everywhere(&world, "tools/call", &through(params)).await {
            let said: Value = serde_json::from_str(&frames[0]).unwrap();
            let message = said["error"]["message"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned();
            assert!(message.starts_with(&format!("Unknown tool: {name}")), "{message}");
        }
    }
}

#[tokio::test]
async fn tasks_questions_and_progress_go_through_the_host() {
    let world = world();
    world.list_by(Vec::new(), true);
    let anna = world.anna().await;
    // A task of the core, under the name of the tool itself.
    let params =
        json!({"name": "call_tool", "arguments": {"name": "only_task", "arguments": {}}, "task": {"ttl": 60_000}});
    let task = anna.result("tools/call", params).await["task"]["taskId"].as_str().unwrap().to_owned();
    anna.until(&task, "completed").await;
    assert_eq!(anna.result("tasks/result", json!({"taskId": task})).await["content"][0]["text"], "done");
    let stored = world.tasks.get(&ANNA, bulkhead_domain::task::TaskId::parse(&task).unwrap()).await.unwrap();
    assert_eq!(stored.work.label(), "only_task");
    // One of SEP-1686.
    let meta = json!({"modelcontextprotocol.io/task": {"taskId": "mine", "keepAlive": 5_000}});
    let params = json!({"name": "call_tool", "arguments": {"name": "quick", "arguments": {}}, "_meta": meta});
    let mut talk = anna.open(7, "tools/call", params).await;
    assert_eq!(
        talk.next_of("notifications/tasks/created").await["params"]["_meta"]["modelcontextprotocol.io/related-task"]["taskId"],
        "mine"
    );
    // A question in the middle of a plain call.
    let mut talk = anna.open(8, "tools/call", through(&json!({"name": "form", "arguments": {}}))).await;
    let question = talk.next_of("elicitation/create").await;
    anna.answer(&question, json!({"action": "accept", "content": {"name": "Ada"}})).await;
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "Accept {\"name\":\"Ada\"}");
    // Modern: promotion, and a state that goes on whichever way the tool is called.
    let slow = world.tasked().result("tools/call", through(&json!({"name": "slow", "arguments": {}}))).await;
    assert_eq!(slow["resultType"], "task", "{slow}");
    let asked = world.plain().result("tools/call", through(&json!({"name": "form", "arguments": {}}))).await;
    let answers = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let retry =
        json!({"name": "form", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
    let [first, again] = [through(&retry), retry];
    let done = world.plain().result("tools/call", first).await;
    assert_eq!(done["content"][0]["text"], "Accept {\"name\":\"Ada\"}");
    assert_eq!(world.plain().result("tools/call", again).await, done, "the same answer to the same state");
    // What a tool wants repeated beside the message cannot be known to who calls through the host.
    let headers = through(&json!({"name": "headers", "arguments": {"region": "north"}}));
    assert_eq!(world.plain().result("tools/call", headers).await["content"][0]["text"], "done");
}

#[tokio::test]
async fn wrong_arguments_of_host_tools_are_answers_for_a_model() {
    let world = world();
    world.list_by(Vec::new(), true);
    let long = "x".repeat(1_001);
    let mut answers = Transcript::default();
    for (case, name, arguments) in [
        ("no query", "search_tools", json!({})),
        ("query of another type", "search_tools", json!({"query": 1})),
        ("empty query", "search_tools", json!({"query": ""})),
        ("long query", "search_tools", json!({"query": long})),
        ("limit too small", "search_tools", json!({"query": "a", "limit": 0})),
        ("limit too large", "search_tools", json!({"query": "a", "limit": 21})),
        ("unknown argument", "search_tools", json!({"query": "a", "offset": 1})),
        ("no name", "call_tool", json!({})),
        ("unknown argument of a call", "call_tool", json!({"name": "echo", "args": {}})),
        ("no object", "call_tool", json!([])),
    ] {
        let said = said_everywhere(&world, "tools/call", &json!({"name": name, "arguments": arguments})).await;
        let contents = said.iter().map(|frames| {
            let mut result = serde_json::from_str::<Value>(&frames[0]).unwrap()["result"].take();
            assert_eq!(result["isError"], true, "{result}");
            result["content"].take()
        });
        let contents: Vec<_> = contents.collect();
        assert!(contents.iter().all(|content| *content == contents[0]), "{contents:?}");
        answers.note(case, &contents[0]);
    }
    answers.expect(&expect![[r#"
        no query: [{"type":"text","text":"The arguments do not fit the input schema of search_tools:\nquery is missing; it must be a string"}]
        query of another type: [{"type":"text","text":"The arguments do not fit the input schema of search_tools:\nquery must be a string, not a number"}]
        empty query, long query: [{"type":"text","text":"The arguments do not fit the input schema of search_tools:\nquery must have 1 to 1000 characters"}]
        limit too small, limit too large: [{"type":"text","text":"The arguments do not fit the input schema of search_tools:\nlimit must be an integer from 1 to 20"}]
        unknown argument: [{"type":"text","text":"The arguments do not fit the input schema of search_tools:\nit: unknown field `offset`, expected `query` or `limit`"}]
        no name: [{"type":"text","text":"The arguments do not fit the input schema of call_tool:\nname is missing; it must be a string"}]
        unknown argument of a call: [{"type":"text","text":"The arguments do not fit the input schema of call_tool:\nit: unknown field `args`, expected `name` or `arguments`"}]
        no object: [{"type":"text","text":"The arguments do not fit the input schema of call_tool:\nit must be an object, not an array"}]
    "#]]);
    let anna = world.anna().await;
    let task = json!({"name": "search_tools", "arguments": {"query": "a"}, "task": {}});
    assert_eq!(anna.error("tools/call", task).await["message"], "search_tools cannot be called as a task");
}

#[tokio::test]
async fn host_tools_are_unknown_to_clients_that_do_not_search() {
    let world = world();
    for name in ["search_tools", "call_tool"] {
        for frames in said_everywhere(&world, "tools/call", &json!({"name": name, "arguments": {"query": "a"}})).await {
            let said: Value = serde_json::from_str(&frames[0]).unwrap();
            assert_eq!(said["error"], json!({"code": -32602, "message": format!("Unknown tool: {name}")}));
        }
    }
}

/// The corpus: sixty tools of samples and of plugins as others have them.
fn corpus() -> Vec<Tool> {
    let tools: Vec<Value> = serde_json::from_str(include_str!("tool_search/tools.json")).unwrap();
    let tool = |tool: Value| Tool {
        name: tool["name"].as_str().unwrap().to_owned(),
        title: tool["title"].as_str().map(str::to_owned),
        description: tool["description"].as_str().unwrap().to_owned(),
        input_schema: Json::new(tool["inputSchema"].to_string()),
        task_support: TaskSupport::Forbidden,
        ..Tool::sample("")
    };
    tools.into_iter().map(tool).collect()
}

/// The requests were written before the ranking: they are not to be changed to suit it.
#[tokio::test]
async fn nine_of_ten_requests_find_their_tool_among_five() {
    let requests: Vec<Value> = serde_json::from_str(include_str!("tool_search/requests.json")).unwrap();
    let tools = corpus();
    assert_eq!((tools.len(), requests.len()), (60, 40));
    let spoken = |text: &str| {
        let words = text.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty());
        format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase())
    };
    let spaced = |name: &str| -> String {
        name.chars().flat_map(|one| one.is_uppercase().then_some(' ').into_iter().chain([one])).collect()
    };
    let world = world_of(10_000, |guests| guest::Scripted::listing(guests, tools.clone()));
    world.protocol.set_tool_listing(ToolListing { per_page: 1_000, ..ToolListing::default() });
    let anna = world.anna().await;
    let whole = anna.result("tools/list", json!({})).await.to_string().len();
    world.list_by(Vec::new(), true);
    let short = anna.result("tools/list", json!({})).await.to_string().len();
    let mut hits = 0;
    let mut answers = 0;
    for request in &requests {
        let text = request["request"].as_str().unwrap();
        let tool = request["tool"].as_str().unwrap();
        let holds = |tool: &Tool| spoken(text).contains(&spoken(&spaced(&tool.name)));
        assert!(!tools.iter().any(holds), "{text} holds a name");
        let result = anna.result("tools/call", search(text, 5)).await;
        answers += result["content"].to_string().len();
        match found(&result).iter().position(|name| *name == tool) {
            Some(_) => hits += 1,
            None => eprintln!("missed: {text:?} wants {tool}, found {:?}", found(&result)),
        }
    }
    let mean = answers / requests.len();
    eprintln!(
        "tools/list of 60 tools: {whole} bytes; with tool search: {short} bytes, and {mean} bytes for a search of 5"
    );
    eprintln!("recall@5: {hits} of {}", requests.len());
    assert!(hits * 10 >= requests.len() * 9, "{hits} of {}", requests.len());
    assert!(short * 10 < whole, "{short} of {whole} bytes");
}
