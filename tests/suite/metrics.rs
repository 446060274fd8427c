//! Metrics: what a scrape reads of a real host, who may read it, and what is never in it.

use std::process::Stdio;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::modern::Modern;
use tests::prometheus::{Prometheus, programs};
use tests::wait::until;
use tests::{Host, Setup, command};
use tokio::io::AsyncWriteExt as _;

pub(crate) const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\n";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";

/// With room for a client that never waits.
fn unhurried() -> String {
    format!("{METRICS}[limits]\nrequests_per_second = 100000\nrequests_per_second_per_tenant = 100000\n")
}

/// Where the page of a host is: its log says so, and those of earlier lives of its data directory before.
pub(crate) fn page_of(host: &Host) -> String {
    let log = host.log();
    let line = log.lines().rfind(|line| line.contains("metrics are served")).unwrap_or_else(|| panic!("{log}"));
    let (_, address) = line.split_once("address=\"http://").unwrap_or_else(|| panic!("no address in {line}"));
    format!("http://{}", address.split('"').next().expect("an address"))
}

pub(crate) fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

pub(crate) async fn scrape(host: &Host, accept: &str) -> String {
    let response = http().get(page_of(host)).header(ACCEPT, accept).send().await.expect("a page");
    assert_eq!(response.status(), StatusCode::OK);
    response.text().await.expect("a text")
}

/// The number of the one line that has all of these parts.
pub(crate) fn number(page: &str, parts: &[&str]) -> f64 {
    let fits = |line: &&str| !line.starts_with('#') && parts.iter().all(|part| line.contains(part));
    let found: Vec<_> = page.lines().filter(fits).collect();
    let [line] = found[..] else { panic!("{parts:?} fit {found:?} of\n{page}") };
    let value = line.split(" # ").next().and_then(|line| line.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// The series, without their numbers.
fn series(page: &str) -> Vec<&str> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect()
}

#[tokio::test]
async fn calls_refusals_and_tool_errors_are_counted_by_outcome_and_limit() {
    let sections = format!("{METRICS}[limits]\ntasks_queued_per_requestor = 1\ntasks_running_per_requestor = 1");
    let setup = Setup::with(&["hostile", "text"]).config(&sections);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    client.tool("echo", json!({"text": "a"})).await.expect("a result");
    client.tool("trap", json!({})).await.expect_err("a trap");
    let wrong = client.tool("echo", json!({"text": 5})).await.expect("a result");
    assert_eq!(wrong["isError"], true);
    Modern::plain(&host, None).tool("echo", json!({"text": "a"})).await;
    let first = client.task("ignore_cancel", json!({})).await;
    client.until_status(&first, "working").await;
    client.task("ignore_cancel", json!({})).await;
    let full = client.create("ignore_cancel", json!({})).await.expect_err("the queue is full");
    assert_eq!(full.data["limit"], "tasks_queued_per_requestor");
    let refused = http().post(&host.url).header("authorization", "Bearer nonsense").body("{}").send().await;
    assert_eq!(refused.expect("an answer").status(), StatusCode::UNAUTHORIZED);

    let page = scrape(&host, "*/*").await;
    let call = |tool, outcome| number(&page, &["bulkhead_calls_total{", tool, outcome]);
    assert_eq!(call("tool=\"echo\"", "outcome=\"ok\""), 2.0);
    assert_eq!(call("tool=\"trap\"", "outcome=\"trap\""), 1.0);
    let operation = |more: &[&str]| {
        let count = ["mcp_server_operation_duration_seconds_count{", "mcp_method_name=\"tools/call\""];
        number(&page, &[&count[..], more].concat())
    };
    let of_echo = "gen_ai_tool_name=\"echo\"";
    assert_eq!(operation(&[of_echo, "error_type=\"tool_error\"", "2025-11-25", "network_transport=\"tcp\""]), 1.0);
    assert_eq!(operation(&[&format!("{of_echo},mcp_protocol_version=\"2026-07-28\"")]), 1.0);
    assert_eq!(operation(&["gen_ai_tool_name=\"trap\"", "error_type=\"1001\""]), 1.0);
    assert_eq!(number(&page, &["bulkhead_refusals_total{limit=\"tasks_queued_per_requestor\"}"]), 1.0);
    assert_eq!(number(&page, &["bulkhead_credentials_refused_total{"]), 1.0);
    assert_eq!(number(&page, &["bulkhead_tasks_created_total{design=\"core\"}"]), 2.0);
    assert_eq!(number(&page, &["bulkhead_tasks{status=\"queued\"}"]), 1.0);
    assert_eq!(number(&page, &["bulkhead_calls_running "]), 1.0);
    assert!(number(&page, &["bulkhead_call_cpu_seconds_total{plugin=\"hostile\"}"]) > 0.0);
    assert!(number(&page, &["bulkhead_store_sync_seconds_count{engine=\"sled\"}"]) > 0.0);
    assert!(number(&page, &["process_resident_memory_bytes "]) > 1e6);
    assert_eq!(number(&page, &["bulkhead_plugin_info{plugin=\"text\"", "state=\"active\""]), 1.0);
}

#[tokio::test]
async fn what_clients_make_up_is_no_label_and_no_line() {
    const MARKERS: [&str; 5] = ["marker-argument", "marker-requestor", "marker-tool", "marker-uri", "marker-tenant"];
    let setup = Setup::with(&["text", "primes"]).config(&unhurried());
    let host = setup.start().await;
    let token = setup.token("marker-requestor", "marker-tenant").await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    client.tool("echo", json!({"text": "marker-argument"})).await.expect("a result");
    let task = client.task("count_primes", json!({"below": 10})).await;
    client.until_status(&task, "completed").await;
    let made_up = async |number: usize| {
        let _ = client.tool(&format!("marker-tool-{number}"), json!({})).await.expect_err("no tool");
        let _ = client.call(&format!("marker-method-{number}"), json!({})).await.expect_err("no method");
        let uri = json!({"uri": format!("marker-uri://{number}")});
        let _ = client.call("resources/read", uri).await.expect_err("no resource");
    };
    made_up(0).await;
    // The counter of a rate may begin to refuse meanwhile, which is a series of its own.
    let before = scrape(&host, "*/*").await;
    for number in 1..200 {
        made_up(number).await;
    }
    let after = scrape(&host, "*/*").await;
    let is_client = |line: &&str| line.starts_with("mcp_") || line.starts_with("bulkhead_calls_total");
    let of = |page: &str| series(page).into_iter().filter(is_client).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(of(&before), of(&after));
    assert_eq!(number(&after, &["_count{mcp_method_name=\"_OTHER\"", "error_type=\"-32601\""]), 200.0);
    for marker in MARKERS.into_iter().chain([task.as_str(), token.as_str(), "marker-method"]) {
        assert!(!after.contains(marker), "{marker}");
    }
}

#[tokio::test]
async fn traced_request_leaves_its_trace_as_an_exemplar_for_openmetrics_only() {
    let host = Setup::with(&["text"]).config(METRICS).start().await;
    let client = Client::connect(&host).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let meta = json!({"traceparent": format!("00-{trace}-b7ad6b7169203331-01")});
    let params = json!({"name": "echo", "arguments": {"text": "a"}, "_meta": meta});
    client.call("tools/call", params).await.expect("a result");
    let open = scrape(&host, OPEN_METRICS).await;
    assert!(open.ends_with("# EOF\n"));
    let traced: Vec<_> = open.lines().filter(|line| line.contains(trace)).collect();
    assert_eq!(traced.len(), 1, "{open}");
    assert!(traced[0].starts_with("mcp_server_operation_duration_seconds_bucket{"), "{traced:?}");
    assert!(!scrape(&host, "text/plain").await.contains(trace));
}

#[tokio::test]
async fn page_needs_its_token_where_one_is_set() {
    let setup = Setup::with(&["text"]);
    std::fs::write(setup.path("token"), TOKEN).expect("a file");
    let file = setup.path("token");
    let host = setup.config(&format!("{METRICS}token_file = {file:?}\n")).start().await;
    let get = async |path: &str, token: Option<&str>| {
        let request = http().get(page_of(&host).replace("/metrics", path));
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        request.send().await.expect("an answer")
    };
    let good = get("/metrics", Some(TOKEN)).await;
    assert_eq!(good.status(), StatusCode::OK);
    assert_eq!(good.headers()[CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(get("/mcp", Some(TOKEN)).await.status(), StatusCode::NOT_FOUND);
    for wrong in [None, Some("0123456789abcdef0123456789abcdee"), Some("")] {
        let refused = get("/metrics", wrong).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{wrong:?}");
        assert!(!refused.text().await.expect("a text").contains("bulkhead_"));
    }
    assert!(!host.log().contains(TOKEN));
}

#[tokio::test]
async fn listener_beyond_loopback_needs_token_and_tls() {
    for more in ["", "token_sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\n"] {
        let section = format!("[metrics]\nlisten = \"0.0.0.0:0\"\n{more}");
        let (code, said) = Setup::with(&["text"]).config(&section).refused().await;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("metrics.listen") && said.contains("metrics.tls"), "{said}");
    }
}

#[tokio::test]
async fn series_go_with_a_removed_plugin_and_a_purged_tenant() {
    let sections = format!("{METRICS}[tenant.acme]\ncpu_weight = 2\n");
    let setup = Setup::new().config(&sections);
    let host = setup.start().await;
    let data = setup.data();
    let component = tests::place::component("text");
    let add = ["plugin", "add", component.to_str().expect("a path")];
    command::json(&add, &data).await;
    let token = setup.token("anna", "acme").await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    client.tool("echo", json!({"text": "a"})).await.expect("a result");
    let page = scrape(&host, "*/*").await;
    assert_eq!(number(&page, &["bulkhead_calls_total{plugin=\"text\"", "echo"]), 1.0);
    assert!(number(&page, &["bulkhead_tenant_cpu_seconds_total{tenant=\"acme\"}"]) > 0.0);
    assert_eq!(number(&page, &["bulkhead_tenant_calls_running{tenant=\"_other\"}"]), 0.0);

    command::json(&["plugin", "remove", "text"], &data).await;
    command::json(&["tenant", "purge", "acme", "--yes"], &data).await;
    until("the series to go", async || {
        let page = scrape(&host, "*/*").await;
        let left = |line: &&str| {
            ["plugin=\"text\"", "gen_ai_tool_name=\"echo\"", "acme"].iter().any(|part| line.contains(part))
        };
        let left: Vec<_> = page.lines().filter(left).collect();
        left.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn prometheus_scrapes_a_host_under_load_and_promtool_has_no_complaint() {
    let Some(programs) = programs().await else { return };
    let sections =
        format!("{METRICS}[limits]\nrequests_per_second = 100000\nrequests_per_second_per_tenant = 100000\n");
    let host = Setup::with(&["text", "hostile"]).config(&sections).start().await;
    let client = Client::connect(&host).await;
    let target = page_of(&host).replace("http://", "").replace("/metrics", "");
    let prometheus = Prometheus::start(&programs, &target).await;
    let called = async {
        loop {
            client.tool("echo", json!({"text": "a"})).await.expect("a result");
        }
    };
    let scraped = until("three scrapes", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let said = prometheus.get("/api/v1/query?query=count_over_time(up%5B1m%5D)").await?;
        let count: f64 = said["data"]["result"][0]["value"][1].as_str()?.parse().ok()?;
        (count >= 3.0).then_some(())
    });
    tokio::select! {
        () = called => {}
        () = scraped => {}
    }
    let targets = prometheus.get("/api/v1/targets").await.expect("an answer");
    let active = &targets["data"]["activeTargets"][0];
    assert_eq!((&active["health"], &active["lastError"]), (&json!("up"), &json!("")), "{targets}");
    let said = prometheus.get("/api/v1/query?query=bulkhead_calls_total").await.expect("an answer");
    assert_eq!(said["data"]["result"][0]["metric"]["tool"], Value::from("echo"), "{said}");

    client.tool("trap", json!({})).await.expect_err("a trap");
    let page = scrape(&host, "text/plain").await;
    let mut promtool = tokio::process::Command::new(programs.join("promtool"));
    let promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut promtool = promtool.stderr(Stdio::piped()).spawn().expect("promtool starts");
    promtool.stdin.take().expect("a pipe").write_all(page.as_bytes()).await.expect("it reads");
    let output = promtool.wait_with_output().await.expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
