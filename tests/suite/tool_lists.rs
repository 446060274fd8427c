//! Which tools clients see: hidden and renamed ones, toolsets of tenants and requestors, and tool search, at the start
//! and when the configuration is read again.

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::modern::Modern;
use tests::place::variant;
use tests::{Host, Setup, command};

const SAY: &str =
    "[plugin.tool.echo]\nname = \"say\"\ndescription = \"Repeats a sentence.\"\n[plugin.tool.diff]\nhidden = true\n";

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

async fn connect(host: &Host, token: &str) -> Client {
    Client::connect_as(host, Some(token), all_capabilities()).await
}

/// Writes another configuration and has the host read it.
async fn reload(setup: &Setup, from: &str, to: &str) -> (Option<i32>, String) {
    let file = setup.path("bulkhead.toml");
    let configuration = std::fs::read_to_string(&file).expect("the configuration");
    let changed = configuration.replace(from, to);
    assert_ne!(changed, configuration);
    std::fs::write(file, changed).expect("the configuration");
    let output = command::output(&mut command::bulkhead(), &["host", "reload", "--data"], Some(&setup.data())).await;
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn each_requestor_sees_the_tools_of_its_toolsets() {
    let setup = Setup::new()
        .config("[audit]\nenabled = true\n[tenant.acme]\n[tenant.other]")
        .config("[[toolset]]\nname = \"readers\"\ntenants = [\"acme\"]\nrequestors = [\"alice\"]\ninclude = { tools = [\"say\"] }")
        .config("[[toolset]]\nname = \"searchers\"\ntenants = [\"other\"]\ntool_search = true")
        .plugin("text", SAY)
        .plugin("primes", "");
    let alice = setup.token("alice", "acme").await;
    let ann = setup.token("ann", "acme").await;
    let bob = setup.token("bob", "other").await;
    let host = setup.start().await;
    let modern = |token: &str| Modern::full(&host, Some(token));
    assert_eq!(names(&modern(&alice).result("tools/list", json!({})).await), ["say"]);
    assert_eq!(names(&modern(&ann).result("tools/list", json!({})).await), ["count_primes", "say", "word_count"]);
    assert_eq!(names(&modern(&bob).result("tools/list", json!({})).await), ["call_tool", "search_tools"]);
    // Nobody finds what the operator hides, and who searches finds the rest in the operator's words.
    let found =
        modern(&bob).tool("search_tools", json!({"query": "repeat a sentence or compare texts", "limit": 20})).await;
    assert_eq!(names(&found["structuredContent"])[0], "say");
    assert!(!names(&found["structuredContent"]).contains(&"diff"), "{found}");
    let said = modern(&bob).tool("call_tool", json!({"name": "say", "arguments": {"text": "hello"}})).await;
    assert_eq!(text(&said), "hello");
    let clients = [connect(&host, &alice).await, connect(&host, &bob).await];
    for client in &clients {
        for name in ["diff", "echo"] {
            let refused = client.tool(name, json!({"text": "a"})).await.expect_err("it is not there");
            assert_eq!((refused.code, refused.message), (-32602, format!("Unknown tool: {name}")));
        }
    }
    let refused = clients[0].tool("word_count", json!({"text": "a"})).await.expect_err("it is in no toolset of hers");
    assert_eq!(refused.message, "Unknown tool: word_count");
    // A task through the host is the tool's own.
    let task = json!({"name": "count_primes", "arguments": {"below": 100}});
    let task = clients[1].task("call_tool", task).await;
    clients[1].until_status(&task, "completed").await;

    let (_, setup) = host.terminate().await;
    let log = std::fs::read_dir(setup.data().join("audit"))
        .expect("a folder")
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).unwrap_or_default());
    let lines: Vec<Value> =
        log.collect::<String>().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |event: &str| {
        lines.iter().filter(|line| line["event"] == event).map(|line| line["tool"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((of("call.ended"), of("task.created")), (vec![json!("say")], vec![json!("count_primes")]));
}

#[tokio::test]
async fn reload_tells_running_sessions_of_other_tools() {
    let setup = Setup::new()
        .config("[server]\ntools_per_page = 2\n[[toolset]]\nname = \"all\"\nexclude = { tools = [\"nothing\"], plugins = [\"prime\"] }")
        .plugin("text", SAY)
        .plugin("primes", "");
    let host = setup.start().await;
    let warned = host.log().lines().filter(|line| line.contains("a toolset names a plugin that is not there")).count();
    assert_eq!(warned, 1, "{}", host.log());
    let client = Client::connect(&host).await;
    let first = client.call("tools/list", json!({})).await.expect("a list");
    assert!(names(&first) == ["count_primes", "say"] && first["nextCursor"].is_string(), "{first}");
    let mut stream = client.listen().await;
    let changed = async |stream: &mut tests::stream::Incoming| {
        let told = stream.next().await.expect("a message");
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    };
    assert_eq!(reload(&setup, "\"nothing\"", "\"*_primes\"").await.0, Some(0));
    changed(&mut stream).await;
    assert_eq!(names(&client.call("tools/list", json!({})).await.expect("a list")), ["say", "word_count"]);
    assert_eq!(reload(&setup, "hidden = true", "name = \"compare\"").await.0, Some(0));
    changed(&mut stream).await;
    assert_eq!(names(&client.call("tools/list", json!({})).await.expect("a list")), ["compare", "say"]);
    // A name that clashes is refused with both, and the former configuration holds.
    for (name, other) in [("say", "\"echo\" and \"diff\""), ("count_primes", "plugin primes")] {
        let (code, said) = reload(&setup, "\"compare\"", &format!("\"{name}\"")).await;
        assert!(code == Some(1) && said.contains(&format!("{name:?}")) && said.contains("\"diff\""), "{said}");
        assert!(said.contains(other), "{said}");
        std::fs::write(
            setup.path("bulkhead.toml"),
            std::fs::read_to_string(setup.path("bulkhead.toml"))
                .expect("the configuration")
                .replace(&format!("[plugin.tool.diff]\nname = {name:?}"), "[plugin.tool.diff]\nname = \"compare\""),
        )
        .expect("the configuration");
    }
    assert_eq!(names(&client.call("tools/list", json!({})).await.expect("a list")), ["compare", "say"]);
    assert_eq!(reload(&setup, "[server]", "[server]\ntool_search = true").await.0, Some(0));
    changed(&mut stream).await;
    assert_eq!(names(&client.call("tools/list", json!({})).await.expect("a list")), ["call_tool", "search_tools"]);
}

#[tokio::test]
async fn clashing_tool_name_is_refused_at_start_with_both_names() {
    let clash = "[plugin.tool.echo]\nname = \"count_primes\"\n";
    let setup = Setup::new().plugin("primes", "").plugin("text", clash);
    let (code, said) = setup.clone().argument("--check").refused().await;
    let names_both =
        |said: &str| said.contains("\"echo\"") && said.contains("\"count_primes\"") && said.contains("plugin primes");
    assert!(code == Some(1) && names_both(&said), "{code:?} {said}");
    let host = setup.start().await;
    assert!(names_both(&host.log().replace("\\\"", "\"")), "{}", host.log());
    let client = Client::connect(&host).await;
    assert_eq!(names(&client.call("tools/list", json!({})).await.expect("a list")), ["count_primes"]);
}

#[tokio::test]
async fn accepted_definition_is_the_plugins_own_whatever_the_operator_says_of_it() {
    let place = Setup::new();
    let plain = place.clone().plugin("text", "");
    let said = place.plugin("text", SAY);
    let host = plain.start().await;
    let listed = async || command::json(&["plugin", "list"], &plain.data()).await["plugins"][0].take();
    let before = listed().await;
    assert_eq!((&before["tools"], &before["tools_hidden"]), (&json!(3), &json!(null)));
    // The operator's own words need nobody's word, while the host runs and when it starts.
    let file = plain.path("bulkhead.toml");
    let configuration = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(&file, format!("{configuration}{SAY}")).expect("the configuration");
    command::json(&["host", "reload"], &plain.data()).await;
    let shown = async |host: &Host| Client::connect(host).await.call("tools/list", json!({})).await.expect("a list");
    let tools = shown(&host).await;
    assert_eq!(names(&tools), ["say", "word_count"]);
    assert_eq!(tools["tools"][0]["description"], "Repeats a sentence.");
    let after = listed().await;
    assert_eq!((&after["tools"], &after["tools_hidden"]), (&json!(3), &json!(1)));
    host.terminate().await;
    let host = said.start().await;
    assert_eq!(shown(&host).await, tools);

    // A hidden or renamed tool that changes still waits for it.
    for (from, to, tool) in [
        ("Returns the text as it is.", "Returns the text as it IS.", "echo"),
        ("Compares two texts line by line", "Compares TWO texts line by line", "diff"),
    ] {
        let other = said.path("other.wasm");
        std::fs::write(&other, variant("text", from, to)).expect("a file");
        let arguments = ["plugin", "add", other.to_str().expect("UTF-8"), "--name", "text"];
        let (code, refused) = command::outcome(&arguments, &said.data()).await;
        let held = format!("the tool {tool} changes: description");
        assert!(code != Some(0) && refused.to_string().contains(&held), "{code:?} {refused}");
    }
    drop(host);

    let component = tests::place::component("text");
    let arguments = ["plugin", "inspect", component.to_str().expect("UTF-8"), "--json", "--config"];
    let shown = command::output(&mut command::bulkhead(), &arguments, Some(&file)).await;
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let configured = |name: &str| {
        let tools = shown["tools"].as_array().expect("a list");
        tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["configured"].clone()).expect("the tool")
    };
    assert_eq!(configured("echo"), json!({"name": "say", "description": "Repeats a sentence."}));
    assert_eq!((configured("diff"), configured("word_count")), (json!({"hidden": true}), Value::Null));
}
