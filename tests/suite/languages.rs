//! Plugins in Python and JavaScript: what the Rust samples show, and that their runtimes are held by the same limits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::modern::Modern;
use tests::stream::Incoming;
use tests::wait::soon;
use tests::{Host, Setup, place};

use crate::egress::Web;

pub(crate) const SAMPLES: [&str; 2] = ["dedup", "meetings"];
pub(crate) const PROBES: [&str; 2] = ["probe-python", "probe-javascript"];

pub(crate) fn left_out() -> bool {
    place::left_out(&["python", "javascript"])
}

pub(crate) async fn host(plugins: &[&str]) -> Host {
    Setup::with(plugins).start().await
}

fn records() -> Value {
    json!({"records": ["Ada Lovelace, London", "London: Ada Lovelace", "Alan Turing", "Allan Turring", "Grace Hopper"],
        "threshold": 0.95})
}

fn week() -> Value {
    let busy = json!([{"start": "2026-03-02T00:00:00Z", "end": "2026-03-02T16:00:00Z"}]);
    json!({"participants": [{"name": "Ada", "busy": busy}, {"name": "Alan"}],
        "from": "2026-03-02T00:00:00Z", "to": "2026-03-07T00:00:00Z", "minutes": 60})
}

/// Each sample's tool with what it is asked and what comes out.
fn dialogs() -> [(&'static str, Value, &'static str, Value, Value); 2] {
    [
        (
            "find_duplicates",
            records(),
            "pair-2-3",
            json!({"same": true}),
            json!({"groups": [[0, 1], [2, 3]], "doubtful": [], "compared": 5, "complete": true, "messages": []}),
        ),
        (
            "arrange_meeting",
            week(),
            "slot",
            json!({"start": "2026-03-03T09:00Z", "topic": "Lunch"}),
            json!({"arranged": true, "start": "2026-03-03T09:00Z", "end": "2026-03-03T10:00Z", "participants": ["Ada", "Alan"],
                "messages": [], "summary": "Lunch: 2026-03-03T09:00Z with Ada, Alan."}),
        ),
    ]
}

/// The next request on a stream; notifications before it are passed over.
async fn next_request(stream: &mut Incoming) -> Value {
    loop {
        let message = soon("a question", stream.next()).await.expect("the stream goes on");
        assert!(message.get("method").is_some(), "a response came before the question: {message}");
        if message.get("id").is_some() {
            return message;
        }
    }
}

#[tokio::test]
async fn script_plugin_task_sends_input_requests_and_progress() {
    if left_out() {
        return;
    }
    let host = host(&SAMPLES).await;
    let client = Client::connect(&host).await;
    let mut events = client.listen().await;
    for (tool, arguments, _, answer, expected) in dialogs() {
        let params =
            json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}, "_meta": {"progressToken": tool}});
        let created = client.call("tools/call", params).await.expect("a task");
        let id = created["task"]["taskId"].as_str().expect("an id").to_owned();
        let mut progress = 0.0;
        let asked = loop {
            let message = soon("a question", events.next()).await.expect("the stream goes on");
            if message["method"] == "notifications/progress" {
                assert_eq!(message["params"]["progressToken"], tool);
                assert!(message["params"]["progress"].as_f64() > Some(progress), "{message}");
                progress = message["params"]["progress"].as_f64().unwrap_or_default();
            } else if message["method"] == "elicitation/create" {
                break message;
            }
        };
        assert!(progress > 0.0, "{tool} reports progress before it asks");
        client.respond(&asked, json!({"action": "accept", "content": answer})).await;
        client.until_status(&id, "completed").await;
        let result = client.about("tasks/result", &id).await.expect("the result");
        assert_eq!(result["structuredContent"], expected, "{tool}");
    }
}

#[tokio::test]
async fn script_plugin_call_does_multi_round_trip_across_restart() {
    if left_out() {
        return;
    }
    let setup = Setup::with(&SAMPLES);
    let mut host = setup.start().await;
    for (tool, arguments, key, answer, expected) in dialogs() {
        let asked = Modern::plain(&host, None).tool(tool, arguments.clone()).await;
        assert!(asked["inputRequests"][key].is_object(), "{asked}");
        // The guest that stood still is gone; the request has all that is needed to run it again.
        host.kill().await;
        host = setup.start().await;
        let answers = json!({key: {"action": "accept", "content": answer}});
        let again = json!({"name": tool, "arguments": arguments, "requestState": asked["requestState"],
            "inputResponses": answers});
        let done = Modern::plain(&host, None).result("tools/call", again).await;
        assert_eq!(done["structuredContent"], expected, "{tool}");
    }
}

#[tokio::test]
async fn script_plugin_task_is_ended_early_by_steering() {
    if left_out() {
        return;
    }
    let host = host(&SAMPLES).await;
    let mut client = Modern::full(&host, None);
    client.capabilities["elicitation"] = Value::Null;
    if let Some(capabilities) = client.capabilities.as_object_mut() {
        capabilities.remove("elicitation");
    }
    let records: Vec<String> = (0..3000).map(|n| format!("record number {n} of the list {}", n * 7919)).collect();
    let everyone: Vec<Value> = (0..100)
        .map(|n| json!({"name": format!("P{n}"), "busy": [{"start": "2026-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}]}))
        .collect();
    let years = json!({"participants": everyone, "from": "2026-03-02T00:00:00Z", "to": "2090-03-02T00:00:00Z", "minutes": 5,
        "step_minutes": 1, "hours": {"from": 0, "to": 24}});
    for (tool, arguments) in [("find_duplicates", json!({"records": records})), ("arrange_meeting", years)] {
        let id = client.task(tool, arguments).await;
        client.result("tasks/steer", json!({"taskId": id, "message": "stop"})).await;
        let done = client.until_status(&id, "completed").await;
        let said = &done["result"]["structuredContent"];
        assert_eq!(said["messages"], json!(["stop"]), "{tool}: {done}");
        assert!(said["complete"] == false || said["arranged"] == false, "{tool}: {done}");
    }
}

#[tokio::test]
async fn script_plugin_wrong_values_are_failed_results() {
    if left_out() {
        return;
    }
    let host = host(&SAMPLES).await;
    let client = Client::connect(&host).await;
    let mut backwards = week();
    backwards["to"] = json!("2020-01-01T00:00:00Z");
    let result = client.tool("find_slots", backwards).await.expect("a result");
    assert_eq!((&result["isError"], text(&result)), (&json!(true), "`to` is not after `from`"));
    let mut upside_down = records();
    upside_down["doubtful"] = json!(0.99);
    let refused = client.tool("find_duplicates", upside_down).await.expect_err("refused");
    assert_eq!((refused.code, refused.message.contains("doubtful is larger")), (-32602, true), "{refused:?}");
    let refused = client.tool("find_duplicates", json!({"record": []})).await;
    assert!(refused.is_err() || refused.is_ok_and(|result| result["isError"] == true), "the schema is closed");
}

#[tokio::test]
async fn script_plugin_errors_have_protocol_codes() {
    if left_out() {
        return;
    }
    let host = host(&PROBES).await;
    let client = Client::connect(&host).await;
    // The text of a Python exception says little alone: that of a `KeyError` is the key.
    for (tool, said) in [("py_raise", "ValueError: a mistake"), ("js_throw", "a mistake")] {
        for (how, code) in [("params", -32602), ("custom", 77)] {
            let failure = client.tool(tool, json!({"how": how})).await.expect_err("an error of the call");
            assert_eq!(failure.code, code, "{tool} {how}: {failure:?}");
        }
        let failure = client.tool(tool, json!({"how": "missing"})).await.expect_err("an error of the call");
        assert!(failure.message.contains("no such thing"), "{failure:?}");
        let result = client.tool(tool, json!({"how": "error"})).await.expect("a failed result");
        assert_eq!((&result["isError"], text(&result)), (&json!(true), said), "{tool}");
    }
    let nothing = client.tool("js_throw", json!({"how": "nothing"})).await.expect("a failed result");
    assert_eq!(nothing["isError"], true, "a function is no result: {nothing}");
    let exit = client.tool("py_raise", json!({"how": "exit"})).await.expect_err("a guest that exits has crashed");
    assert_eq!(exit.code, 1001, "{exit:?}");
    assert_eq!(text(&client.tool("py_echo", json!({"text": "still here"})).await.expect("an echo")), "still here");
}

#[tokio::test]
async fn script_plugin_loops_and_allocations_end_at_limits() {
    if left_out() {
        return;
    }
    let setup = Setup::with(&[&PROBES[..], &["text"]].concat()).config("[call]\ncpu_ms = 1500\nwall_ms = 60000");
    let mut host = setup.start().await;
    let client = Client::connect(&host).await;
    for (tool, codes) in [
        ("py_spin", &[1002][..]),
        ("js_spin", &[1002]),
        ("py_grow", &[1002]),
        ("js_grow", &[1002]),
        ("py_recurse", &[1001, 0]),
        ("js_recurse", &[1001, 0]),
    ] {
        let attack = async { client.tool(tool, json!({})).await };
        let beside = async { client.tool("echo", json!({"text": "beside"})).await.expect("an echo") };
        let (outcome, beside) = soon(tool, async { tokio::join!(attack, beside) }).await;
        assert_eq!(text(&beside), "beside");
        match outcome {
            Err(failure) => assert!(codes.contains(&failure.code), "{tool}: {failure:?}"),
            // Too deep a recursion is an exception that the SDK catches.
            Ok(result) => assert!(codes.contains(&0) && result["isError"] == true, "{tool}: {result}"),
        }
        assert!(host.is_alive(), "{tool} took the host down:\n{}", host.log());
    }
    let before = host.cpu_ms_in(Duration::from_millis(500)).await;
    assert!(before < 250, "nothing runs on: {before} ms of processor time in half a second");
}

#[tokio::test]
async fn script_plugin_task_cancel_always_stops_it() {
    if left_out() {
        return;
    }
    let host = host(&PROBES).await;
    let client = Client::connect(&host).await;
    for tool in ["py_tidy", "js_tidy", "py_spin", "js_spin"] {
        let id = client.task(tool, json!({})).await;
        client.until_status(&id, "working").await;
        let cancelled = client.about("tasks/cancel", &id).await.expect("it is cancelled");
        assert_eq!(cancelled["status"], "cancelled", "{tool}");
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let used = host.cpu_ms_in(Duration::from_millis(500)).await;
    assert!(used < 250, "cancelled guests used {used} ms of processor time in half a second");
}

#[tokio::test]
async fn script_plugin_content_and_input_request_kinds_work() {
    if left_out() {
        return;
    }
    let host = host(&PROBES).await;
    let client = Client::connect(&host).await;
    for language in ["py", "js"] {
        let blocks = client.tool(&format!("{language}_blocks"), json!({})).await.expect("blocks");
        let kinds: Vec<_> = blocks["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
        assert_eq!(kinds, ["text", "image", "audio", "resource_link", "resource"], "{blocks}");
        assert_eq!(blocks["content"][4]["resource"]["blob"], "AAE=", "{blocks}");
        assert_eq!((&blocks["structuredContent"]["n"], &blocks["_meta"]["example.com/k"]), (&json!(1), &json!([1])));

        let params = json!({"name": format!("{language}_ask"), "arguments": {}});
        let mut reply = client.send("tools/call", params).await;
        for _ in 0..4 {
            let asked = next_request(&mut reply).await;
            let method = asked["method"].as_str().unwrap_or_default();
            let answer = match method {
                "elicitation/create" if asked["params"]["mode"] == "url" => json!({"action": "decline"}),
                "elicitation/create" => json!({"action": "accept", "content": {"color": "red", "amount": 3}}),
                "roots/list" => json!({"roots": [{"uri": "file:///work"}]}),
                _ => json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "words"}}),
            };
            client.respond(&asked, answer).await;
        }
        let message = reply.response_after(&mut Vec::new()).await;
        let said: Value = serde_json::from_str(text(&message["result"])).expect("JSON");
        let choice = if language == "py" { json!(["red", 3, null]) } else { json!({"color": "red", "amount": 3}) };
        let expected =
            json!({"form": "accept", "choice": choice, "url": "decline", "said": "words", "roots": ["file:///work"]});
        assert_eq!(said, expected, "{language}");
    }
    let mute = Client::connect_as(&host, None, json!({})).await;
    for tool in ["py_ask", "js_ask"] {
        let failure = mute.tool(tool, json!({})).await.expect_err("nobody can be asked");
        assert!(failure.message.contains("elicitation"), "{tool}: {failure:?}");
    }
}

#[tokio::test]
async fn script_plugin_guests_see_only_their_call() {
    if left_out() {
        return;
    }
    let setup = Setup::with(&["probe-javascript"]).plugin("probe-python", "config = { delimiter = \";\" }");
    let host = setup.env("SECRET_OF_THE_HOST", "hunter2").start().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    for (tool, delimiter) in [("py_facts", ";"), ("js_facts", ",")] {
        let facts = client.tool(tool, json!({})).await.expect("facts");
        let facts: Value = serde_json::from_str(text(&facts)).expect("JSON");
        assert_eq!((&facts["attempt"], &facts["sampling"]), (&json!(1), &json!(true)), "{facts}");
        assert_eq!(facts["delimiter"], delimiter, "{facts}");
        assert_eq!(facts["views"], json!([false, null, null]), "{facts}");
        assert!(facts["id"].as_str().is_some_and(|id| id.len() >= 32), "{facts}");
    }
    let views = json!({"mimeTypes": ["text/html;profile=mcp-app"]});
    let with_views = json!({"extensions": {"io.modelcontextprotocol/ui": views}});
    let viewer = Client::connect_as(&host, None, with_views).await;
    for tool in ["py_facts", "js_facts"] {
        let facts = viewer.tool(tool, json!({})).await.expect("facts");
        let facts: Value = serde_json::from_str(text(&facts)).expect("JSON");
        assert_eq!(facts["views"], json!([true, views, null]), "{facts}");
    }
    let outside = client.tool("py_outside", json!({})).await.expect("a result");
    let outside = &outside["structuredContent"];
    assert_eq!(outside["environment"], json!({}), "{outside}");
    for path in ["/etc/passwd", "/", "plugin.py"] {
        assert!(outside[path].as_str().is_some_and(|text| text.starts_with("refused")), "{path}: {outside}");
    }
}

#[tokio::test]
async fn script_plugin_time_and_random_are_per_call() {
    if left_out() {
        return;
    }
    let host = host(&PROBES).await;
    let client = Client::connect(&host).await;
    let draw = async |tool: &str| {
        let result = client.tool(tool, json!({})).await.expect("a number");
        serde_json::from_str::<Value>(text(&result)).expect("JSON")
    };
    let first = draw("py_chance").await;
    let second = draw("py_chance").await;
    assert_ne!(first["number"], second["number"]);
    assert!(second["now_ms"].as_u64() >= first["now_ms"].as_u64(), "{first} {second}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_millis();
    let off = u128::from(second["now_ms"].as_u64().unwrap_or_default()).abs_diff(now);
    assert!(off < 60_000, "the guest's clock is off by {off} ms");
    let first = draw("js_later").await;
    let second = draw("js_later").await;
    assert_ne!(first["number"], second["number"], "{first} {second}");
    assert!(first["waited_ms"].as_u64() >= Some(30), "a timer waits: {first}");
}

/// A host where the probe reaches these origins.
async fn with_egress(origins: &[&str]) -> (Host, Client) {
    let host = Setup::new().plugin("probe-python", &format!("[plugin.grants]\nhttp = {origins:?}\n")).start().await;
    let client = Client::connect(&host).await;
    (host, client)
}

#[tokio::test]
async fn python_http_reaches_granted_service() {
    if left_out() {
        return;
    }
    let web = Web::answering(|request| {
        let answer = match request.split(' ').nth(1).unwrap_or_default() {
            "/moved" => "302 Found\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n",
            "/broken" => "200 OK\r\ncontent-length: 100\r\n\r\ntoo little",
            _ => "200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello",
        };
        format!("HTTP/1.1 {answer}").into_bytes()
    })
    .await;
    let (_host, client) = with_egress(&[&web.origin]).await;
    let url = |path: &str| format!("{}{path}", web.origin);

    let got = client.tool("py_fetch", json!({"url": url("/a b?c=ü#d")})).await.expect("a result");
    assert_eq!(got["structuredContent"], json!({"status": 200, "type": "text/plain", "text": "hello"}), "{got}");
    let asked = web.asked();
    assert!(asked[0].starts_with("GET /a%20b?c=%C3%BC HTTP/1.1\r\n"), "{asked:?}");

    let posted =
        client.tool("py_fetch", json!({"url": url("/"), "body": "ä".repeat(100_000)})).await.expect("a result");
    assert_eq!(posted["structuredContent"]["status"], 200, "{posted}");
    let asked = web.asked();
    let head = asked[1].to_ascii_lowercase();
    assert!(head.starts_with("post / http/1.1\r\n") && head.contains("x-probe: yes\r\n"), "{}", &head[..200]);
    assert!(head.contains("content-type: application/json\r\n"), "{}", &head[..200]);
    assert!(asked[1].ends_with(&format!("{{\"said\": \"{}\"}}", "ä".repeat(100_000))), "the whole body arrives");

    let opened = client.tool("py_urlopen", json!({"url": url("/moved")})).await.expect("a result");
    assert_eq!(text(&opened), format!("200 {} hello", url("/there")), "urllib follows redirects");
    let broken = client.tool("py_fetch", json!({"url": url("/broken")})).await.expect("a result");
    assert_eq!(broken["structuredContent"]["reason"], "failed", "{broken}");
}

#[tokio::test]
async fn python_http_refusal_names_missing_grant() {
    if left_out() {
        return;
    }
    let web = Web::start().await;
    let other = Web::start().await;
    let (_host, client) = with_egress(&[&other.origin]).await;
    let refused = client.tool("py_fetch", json!({"url": format!("{}/path", web.origin)})).await.expect("a result");
    assert_eq!(refused["structuredContent"], json!({"reason": "denied", "grant": web.origin}), "{refused}");
    let refused = client.tool("py_urlopen", json!({"url": web.origin})).await.expect("a result");
    assert!(refused["isError"] == true && text(&refused).contains(&web.origin), "{refused}");
    let cause =
        format!("http {} (the operator does not grant it: [plugin.grants] http, or the flag --http)", web.origin);
    assert!(refused["content"][1]["text"].as_str().is_some_and(|text| text.ends_with(&cause)), "{refused}");
    let wrong = client.tool("py_fetch", json!({"url": "file:///etc/passwd"})).await.expect("a result");
    assert_eq!(wrong["structuredContent"]["reason"], "invalid", "{wrong}");
    assert_eq!((web.asked().len(), other.asked().len()), (0, 0));
}

#[tokio::test]
async fn python_coroutine_waits_on_the_host_and_returns() {
    if left_out() {
        return;
    }
    let host = host(&["probe-python"]).await;
    let client = Client::connect(&host).await;
    let begin = Instant::now();
    let gathered = client.tool("py_gather", json!({"count": 6})).await.expect("a result");
    assert_eq!(text(&gathered), "[6, 5, 4, 3, 2, 1]", "{gathered}");
    assert_eq!(gathered["structuredContent"], json!({"result": [6, 5, 4, 3, 2, 1]}), "{gathered}");
    assert!(begin.elapsed() >= Duration::from_millis(300), "it waits for the longest: {:?}", begin.elapsed());
}
