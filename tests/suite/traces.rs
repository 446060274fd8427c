//! Traces of the host, from a caller's `traceparent` to the collector.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::Setup;
use tests::client::{Client, all_capabilities};
use tests::collector::{Collector, Span, attribute, hex};
use tests::modern::Modern;
use tests::stdio::Pipe;
use tests::wait::until;
use tokio::process::Command;

use crate::egress::Web;

const CALLER: &str = "b7ad6b7169203331";

/// A trace for each number.
fn trace(number: u32) -> String {
    format!("0af7651916cd43dd8448eb21{number:08x}")
}

fn traceparent(number: u32, flags: &str) -> Value {
    json!(format!("00-{}-{CALLER}-{flags}", trace(number)))
}

/// The params of a call of a tool of a request with this trace.
fn call(name: &str, arguments: Value, number: u32, flags: &str) -> Value {
    json!({"name": name, "arguments": arguments, "_meta": {"traceparent": traceparent(number, flags)}})
}

fn waited(number: u32, flags: &str) -> Value {
    call("wait", json!({"ms": 30}), number, flags)
}

fn is_child(child: &Span, parent: &Span) -> bool {
    child.parent_span_id == parent.span_id && child.trace_id == parent.trace_id
}

#[tokio::test]
async fn spans_of_both_eras_and_pipes_have_the_callers_parent_and_the_guest_within() {
    let collector = Collector::start().await;
    let setup = Setup::with(&["desk"]).config(&collector.section(""));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    client.call("tools/call", waited(1, "01")).await.expect("a result");
    client.call("tools/call", waited(2, "00")).await.expect("a result");
    client.call("tools/call", json!({"name": "wait", "arguments": {"ms": 1}})).await.expect("a result");
    let linked = client.request(reqwest::Method::POST).header("traceparent", traceparent(77, "01").as_str().unwrap());
    let request = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {"_meta": {"traceparent": traceparent(4, "01")}}});
    linked.json(&request).send().await.expect("an answer");
    let modern = Modern::full(&host, None).with_meta("traceparent", traceparent(3, "01"));
    modern.result("tools/call", json!({"name": "wait", "arguments": {"ms": 30}})).await;
    modern.call("tools/call", json!({"name": "no_such_tool_planted"})).await.expect_err("there is none");
    host.terminate().await;

    for (number, version) in [(1, "2025-11-25"), (3, "2026-07-28")] {
        let server = collector.one(&trace(number), "tools/call wait");
        assert_eq!((hex(&server.parent_span_id).as_str(), server.kind), (CALLER, 2));
        let says = |key: &str| attribute(&server, key);
        assert_eq!(says("mcp.method.name").unwrap(), "tools/call");
        assert_eq!(
            (says("gen_ai.tool.name").unwrap(), says("gen_ai.operation.name").unwrap()),
            ("wait".into(), "execute_tool".into())
        );
        assert_eq!(
            (says("mcp.protocol.version").unwrap().as_str(), says("network.transport").unwrap().as_str()),
            (version, "tcp")
        );
        assert_eq!(
            (says("error.type"), says("bulkhead.requestor"), says("mcp.session.id").is_some()),
            (None, None, number == 1)
        );
        let guest = collector.one(&trace(number), "bulkhead.guest desk");
        assert!(is_child(&guest, &server) && guest.kind == 1);
        assert_eq!(attribute(&guest, "bulkhead.attempt").unwrap(), "1");
        assert!(attribute(&guest, "bulkhead.memory_bytes").unwrap().parse::<u64>().unwrap() > 10_000);
        assert!(attribute(&guest, "bulkhead.cpu_ms").is_some());
        assert!(guest.events.iter().any(|event| event.name == "sleep"), "{:?}", guest.events);
        assert!(guest.start_time_unix_nano >= server.start_time_unix_nano);
        assert!(guest.end_time_unix_nano - guest.start_time_unix_nano >= 30_000_000, "it waited");
    }
    let failed = collector.one(&trace(3), "tools/call");
    assert_eq!((attribute(&failed, "error.type").unwrap().as_str(), failed.status.unwrap().code), ("-32602", 2));
    let listed = collector.one(&trace(4), "tools/list");
    assert_eq!((listed.links.len(), hex(&listed.links[0].trace_id)), (1, trace(77)), "the header is a link");
    assert_eq!(attribute(&listed, "jsonrpc.request.id").unwrap(), "4");
    assert!(!collector.text().contains(&trace(2)[24..]) && collector.spans().len() == 6, "{:?}", collector.spans());
    assert!(!collector.text().contains("planted"), "what a client calls a tool that there is not is not exported");

    let setup = Setup::with(&["desk"]).config(&collector.section(""));
    let mut pipe = Pipe::connect(&setup, all_capabilities()).await;
    pipe.call("tools/call", waited(5, "01")).await;
    pipe.close().await;
    let server = collector.one(&trace(5), "tools/call wait");
    assert_eq!(
        (hex(&server.parent_span_id).as_str(), attribute(&server, "network.transport").unwrap().as_str()),
        (CALLER, "pipe")
    );
    assert!(is_child(&collector.one(&trace(5), "bulkhead.guest desk"), &server));
}

#[tokio::test]
async fn outgoing_requests_are_spans_and_carry_the_trace_only_where_granted() {
    let collector = Collector::start().await;
    let told = Web::start().await;
    let untold = Web::start().await;
    let grants = format!("[plugin.grants]\nhttp = [{{ to = '{}', trace = true }}, '{}']\n", told.origin, untold.origin);
    let host = Setup::new().plugin("http", &grants).config(&collector.section("")).start().await;
    let client = Client::connect(&host).await;
    let url = |web: &Web| json!({"url": format!("{}/planted-path?planted=query", web.origin)});
    for (number, web, flags) in [(1, &told, "01"), (2, &untold, "01"), (3, &told, "00")] {
        client.call("tools/call", call("http_get", url(web), number, flags)).await.expect("a result");
    }
    host.terminate().await;
    for number in [1, 2] {
        let guest = collector.one(&trace(number), "bulkhead.guest http");
        let sent = collector.one(&trace(number), "GET 127.0.0.1");
        assert!(is_child(&sent, &guest) && sent.kind == 3);
        assert_eq!(attribute(&sent, "http.response.status_code").unwrap(), "200");
        assert_eq!(attribute(&sent, "server.address").unwrap(), "127.0.0.1");
        if number == 1 {
            let expected = format!("traceparent: 00-{}-{}-01", trace(1), hex(&sent.span_id));
            assert!(told.asked()[0].contains(&expected), "{:?}", told.asked());
        }
    }
    assert!(!told.asked()[1].contains("traceparent") && !untold.asked()[0].contains("traceparent"));
    assert!(!collector.text().contains("planted"), "paths and queries are in no span");
}

#[tokio::test]
async fn nothing_that_clients_and_plugins_say_is_in_a_span() {
    let collector = Collector::start().await;
    let setup = Setup::with(&["probe"]);
    let token = setup.token("planted-requestor", "planted-tenant").await;
    let host = setup.config(&collector.section("ratio = 1")).start().await;
    let mut client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    client.set_token(&token);
    client.tool("log", json!({"level": "info", "message": "planted-argument"})).await.expect("a result");
    let refused = client.tool("fail", json!({"way": "planted-way"})).await.expect("a result");
    assert_eq!(refused["isError"], true, "there is no such way");
    let id = client.task("log", json!({"level": "info", "message": "planted-task"})).await;
    client.until_status(&id, "completed").await;
    client.call("planted/method", json!({})).await.expect_err("no such method");
    client.call("resources/read", json!({"uri": "planted://uri"})).await.expect_err("no such resource");
    let session = client.session.clone().expect("a session");
    host.terminate().await;
    assert!(collector.spans().len() > 6, "{:?}", collector.spans());
    let text = collector.text();
    for secret in ["planted", token.as_str(), session.as_str(), id.as_str()] {
        assert!(!text.contains(secret), "{secret} was exported");
    }
    assert!(collector.spans().iter().any(|span| span.name == "_OTHER"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_sampled_flags_are_followed_within_its_budget() {
    let collector = Collector::start().await;
    let setup = Setup::with(&["desk"]);
    let greedy = setup.token("greedy", "one").await;
    let modest = setup.token("modest", "two").await;
    let config = format!(
        "{}[limits]\nrequests_per_second = 100000\nrequests_per_second_per_tenant = 100000",
        collector.section("followed_per_second = 5")
    );
    let host = setup.config(&config).start().await;
    let client = Client::connect_as(&host, Some(&greedy), all_capabilities()).await;
    let other = Client::connect_as(&host, Some(&modest), all_capabilities()).await;
    let begun = Instant::now();
    for number in 0..400 {
        client.call("ping", json!({"_meta": {"traceparent": traceparent(number, "01")}})).await.expect("an answer");
    }
    let seconds = begun.elapsed().as_secs() as usize + 2;
    other.call("tools/call", waited(1_000, "01")).await.expect("a result");
    host.terminate().await;
    let followed = collector.spans().iter().filter(|span| span.name == "ping").count();
    assert!((5..=5 * seconds).contains(&followed) && followed < 400, "{followed} in less than {seconds} s");
    let server = collector.one(&trace(1_000), "tools/call wait");
    assert!(
        is_child(&collector.one(&trace(1_000), "bulkhead.guest desk"), &server),
        "the other tenant's trace is whole"
    );
}

#[tokio::test]
async fn collector_that_is_away_or_silent_holds_up_no_call() {
    let collector = Collector::start().await;
    collector.fall_silent();
    for endpoint in [collector.endpoint.as_str(), "http://127.0.0.1:9"] {
        let config = format!(
            "[traces]\nendpoint = '{endpoint}'\nratio = 1\n[limits]\nrequests_per_second = 100000\nrequests_per_second_per_tenant = 100000"
        );
        let host = Setup::with(&["desk"]).config(&config).start().await;
        let client = Client::connect(&host).await;
        let mut slowest = Duration::ZERO;
        for _ in 0..1_500 {
            let begun = Instant::now();
            client.call("ping", json!({})).await.expect("an answer");
            slowest = slowest.max(begun.elapsed());
        }
        assert!(slowest < Duration::from_secs(3), "{slowest:?}");
        client.tool("wait", json!({"ms": 1})).await.expect("a result");
        host.ask_to_stop();
        let dropped = until("the count of what was dropped", async || {
            let log = host.log();
            log.lines().find(|line| line.contains("spans were not exported")).map(str::to_owned)
        });
        let line = dropped.await;
        let dropped = line.split("dropped=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let dropped: u64 = dropped.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        assert!(dropped > 1_500, "each request and the guest are counted: {line}");
    }
}

#[tokio::test]
async fn batch_that_the_collector_refuses_is_sent_again() {
    let collector = Collector::start().await;
    collector.refuse(2);
    let host = Setup::with(&["desk"]).config(&collector.section("ratio = 1")).start().await;
    let client = Client::connect(&host).await;
    client.call("tools/call", waited(1, "01")).await.expect("a result");
    until("the second refusal", async || (collector.refusals_left() == 0).then_some(())).await;
    collector.until("the span after two refusals", |span| span.name == "tools/call wait").await;
    assert!(is_child(&collector.one(&trace(1), "bulkhead.guest desk"), &collector.one(&trace(1), "tools/call wait")));
    let said = |text: &str| host.log().lines().filter(|line| line.contains(text)).count();
    until("the line of the log", async || (said("spans are exported again") == 1).then_some(())).await;
    assert_eq!(said("spans cannot be exported"), 1, "it is said once: {}", host.log());
    host.terminate().await;
    assert_eq!(collector.spans().iter().filter(|span| span.name == "initialize").count(), 1, "nothing comes twice");
}

/// The `traceparent` in a request that the client got.
fn told(params: &Value) -> &str {
    params["_meta"]["traceparent"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn requests_to_the_client_are_spans_within_the_guest_until_they_are_answered() {
    let collector = Collector::start().await;
    let setup = Setup::with(&["desk"]).config("[call]\npromote_after_ms = 0\n").config(&collector.section(""));
    let host = setup.start().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    let summarize = |number, flags| call("summarize", json!({"text": "long"}), number, flags);
    let answer = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "short"}});
    let mut told_of = Vec::new();
    for (number, flags) in [(1, "01"), (2, "01"), (3, "00")] {
        let mut reply = client.send("tools/call", summarize(number, flags)).await;
        let asked = reply.next().await.expect("a request");
        assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
        told_of.push(told(&asked["params"]).to_owned());
        tokio::time::sleep(Duration::from_millis(50)).await;
        match number {
            2 => client.refuse(&asked, -1, "no").await,
            _ => client.respond(&asked, answer.clone()).await,
        }
        reply.response_after(&mut Vec::new()).await;
    }
    let modern = Modern::full(&host, None).with_meta("traceparent", traceparent(4, "01"));
    let trip = modern.task("book_trip", json!({})).await;
    let asked = until("the request", async || {
        let task = modern.result("tasks/get", json!({"taskId": trip})).await;
        task["inputRequests"].get("journey").cloned()
    });
    told_of.push(told(&asked.await["params"]).to_owned());
    let declined = json!({"journey": {"action": "decline"}});
    modern.result("tasks/update", json!({"taskId": trip, "inputResponses": declined})).await;
    modern.until_status(&trip, "completed").await;
    host.terminate().await;

    assert_eq!(told_of.remove(2), "", "nothing is told of a request that is not recorded");
    let names = [(1, "sampling/createMessage"), (2, "sampling/createMessage"), (4, "elicitation/create")];
    for ((number, name), told) in names.into_iter().zip(told_of) {
        let span = collector.one(&trace(number), name);
        assert!(is_child(&span, &collector.one(&trace(number), "bulkhead.guest desk")) && span.kind == 3);
        assert_eq!(told, format!("00-{}-{}-01", trace(number), hex(&span.span_id)));
        assert_eq!(attribute(&span, "mcp.method.name").as_deref(), Some(name));
        let refused = (number == 2).then(|| "refused".to_owned());
        assert_eq!(attribute(&span, "error.type"), refused, "an answer that declines is one");
        if number < 4 {
            assert!(span.end_time_unix_nano - span.start_time_unix_nano >= 50_000_000, "it waited");
        }
    }
}

#[tokio::test]
async fn log_lines_of_recorded_requests_name_trace_and_span() {
    let collector = Collector::start().await;
    let config = format!("{}[log]\nlevel = 'debug'\nformat = 'json'\nslow_ms = 50", collector.section(""));
    let host = Setup::with(&["probe", "desk"]).config(&config).start().await;
    let client = Client::connect(&host).await;
    client
        .call("tools/call", call("log", json!({"level": "info", "message": "mark"}), 1, "01"))
        .await
        .expect("a result");
    client.call("tools/call", call("wait", json!({"ms": 120}), 2, "01")).await.expect("a result");
    client.tool("log", json!({"level": "info", "message": "planted"})).await.expect("a result");
    let lines = || host.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<Value>>();
    let slow =
        until("the slow line", async || lines().into_iter().find(|line| line["message"] == "a request took long"));
    let slow = slow.await;
    assert_eq!(
        (&slow["level"], &slow["method"], &slow["tool"]),
        (&json!("WARN"), &json!("tools/call"), &json!("wait"))
    );
    assert!(slow["ms"].as_u64().unwrap() >= 120 && slow["outcome"] == "ok", "{slow}");
    assert_eq!(slow["span"]["trace_id"], trace(2));
    let of_first: Vec<_> = lines().into_iter().filter(|line| line["span"]["trace_id"] == trace(1)).collect();
    assert!(of_first.iter().any(|line| line["message"] == "request" && line["tool"] == "log"), "{of_first:?}");
    assert!(of_first.iter().any(|line| line.to_string().contains("mark")), "the guest's own line, too: {of_first:?}");
    let access = lines().into_iter().find(|line| line["message"] == "request" && line["span"]["trace_id"] == trace(1));
    assert!(!access.unwrap().to_string().contains("mark"), "no argument is in the line of a request");
    let documented = std::fs::read_to_string(tests::place::root().join("host/docs/operate/logs.md")).expect("the page");
    let is_documented = |field: &String| documented.contains(&format!("`{field}`"));
    for line in lines().iter().filter(|line| line.get("outcome").is_some()) {
        let of = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
        let fields = of(line).into_iter().chain(of(&line["span"])).flatten();
        let fields: Vec<_> = fields.filter(|field| !["span", "spans", "name"].contains(&field.as_str())).collect();
        assert!(fields.iter().all(is_documented), "{fields:?}");
    }
    let spans = of_first.iter().map(|line| line["span"]["span_id"].as_str().expect("a span")).collect::<Vec<_>>();
    host.terminate().await;
    let server = collector.one(&trace(1), "tools/call log");
    assert!(spans.iter().all(|span| *span == hex(&server.span_id)), "{spans:?}");
}

#[tokio::test]
async fn trace_goes_on_over_promotion_and_a_kill() {
    let collector = Collector::start().await;
    let setup = Setup::new().plugin("primes", "durable = \"off\"\non_restart = \"rerun\"");
    let setup = setup.config("[call]\ncpu_ms = 600000\npromote_after_ms = 0").config(&collector.section(""));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let mut params = call("count_primes", json!({"below": 20_000_000}), 1, "01");
    params["task"] = json!({"ttl": 600_000});
    let created = client.call("tools/call", params).await.expect("a task");
    let id = created["task"]["taskId"].as_str().expect("an id").to_owned();
    let promoted =
        |host: &tests::Host, number| Modern::full(host, None).with_meta("traceparent", traceparent(number, "01"));
    let second = promoted(&host, 2).task("count_primes", json!({"below": 20_000_000})).await;
    let setup = host.kill().await;
    let host = setup.start().await;
    let third = promoted(&host, 3).task("count_primes", json!({"below": 1_000_000})).await;
    Client::connect(&host).await.until_status(&id, "completed").await;
    for id in [&second, &third] {
        Modern::full(&host, None).until_status(id, "completed").await;
    }
    host.terminate().await;
    for number in [1, 2] {
        let task = collector.one(&trace(number), "bulkhead.task count_primes");
        assert!(
            task.parent_span_id.len() == 8 && hex(&task.parent_span_id) != CALLER,
            "its parent is the host's own span"
        );
        let guest = collector.one(&trace(number), "bulkhead.guest primes");
        assert!(is_child(&guest, &task));
        let attempt = |span: &Span| attribute(span, "bulkhead.attempt").expect("an attempt");
        assert_eq!((attempt(&task), attempt(&guest)), ("2".to_owned(), "2".to_owned()), "the first one was killed");
    }
    let server = collector.one(&trace(3), "tools/call count_primes");
    let task = collector.one(&trace(3), "bulkhead.task count_primes");
    assert!(is_child(&task, &server) && is_child(&collector.one(&trace(3), "bulkhead.guest primes"), &task));

    let setup = Setup::with(&["desk"]).config("[call]\npromote_after_ms = 50").config(&collector.section(""));
    let host = setup.start().await;
    let late = promoted(&host, 4).task("wait", json!({"ms": 400})).await;
    Modern::full(&host, None).until_status(&late, "completed").await;
    host.terminate().await;
    let server = collector.one(&trace(4), "tools/call wait");
    assert!(is_child(&collector.one(&trace(4), "bulkhead.task wait"), &server));
    assert!(is_child(&collector.one(&trace(4), "bulkhead.guest desk"), &server), "it began before it was a task");
}

/// The program of the collector that `cargo xtask plugins` installs.
fn real_collector() -> Option<PathBuf> {
    let libraries = std::fs::read_dir(tests::place::root().join("target/guest-tools/collector/lib"));
    let mut found = libraries.into_iter().flatten().filter_map(Result::ok);
    let program = found.find_map(|python| {
        let program = python.path().join("site-packages/rotel/rotel-agent");
        program.is_file().then_some(program)
    });
    if program.is_none() {
        let is_required = std::env::var("XTASK_SCRIPT_GUESTS").as_deref() == Ok("required");
        assert!(!is_required, "the collector is missing: run `cargo xtask plugins`");
        eprintln!("not run: the collector is missing (`cargo xtask plugins` installs it)");
    }
    program
}

#[tokio::test]
async fn a_collector_of_another_project_takes_the_spans() {
    let Some(program) = real_collector() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    // Between here and there another program could take the ports, but the system hands them out in turn.
    let free =
        || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").to_string();
    let http = free();
    let grpc = free();
    let to = || Stdio::from(std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a file"));
    let mut command = Command::new(program);
    command.args(["start", "--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc, "--exporter", "blackhole"]);
    command.args(["--debug-log", "traces", "--debug-log-verbosity", "detailed", "--traces-batch-timeout", "100ms"]);
    let _collector = command.stdout(to()).stderr(to()).kill_on_drop(true).spawn().expect("a collector");
    until("the collector", async || tokio::net::TcpStream::connect(&http).await.ok()).await;
    let host = Setup::with(&["desk"]).config(&format!("[traces]\nendpoint = 'http://{http}'")).start().await;
    let client = Client::connect(&host).await;
    client.call("tools/call", waited(1, "01")).await.expect("a result");
    host.terminate().await;
    let said = until("the spans in the collector's log", async || {
        let said = std::fs::read_to_string(&log).expect("a log");
        said.contains("bulkhead.guest desk").then_some(said)
    });
    let said = said.await;
    assert!(said.contains("tools/call wait") && said.contains(&trace(1)) && said.contains(CALLER), "{said}");
}
