//! What operators watch hosts with: the alerts and the dashboard below `host/contrib`, against the metrics that a host
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bulkhead_metrics::families::{FAMILIES, Family};
use saphyr::{LoadableYamlNode as _, YamlOwned};
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::prometheus::{Prometheus, programs};
use tests::{Host, Setup, place};

use crate::metrics::{http, page_of, scrape};

const RULES: &str = "host/contrib/prometheus";
const DASHBOARD: &str = "host/contrib/grafana/bulkhead.json";
const PAGE: &str = "host/docs/operate/alerts.md";

fn file(path: &str) -> String {
    std::fs::read_to_string(place::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A YAML file of ours: mappings, lists and texts.
fn yaml(path: &str) -> Value {
    fn value(node: &YamlOwned) -> Value {
        if let Some(mapping) = node.as_mapping() {
            return mapping.iter().map(|(key, node)| (key.as_str().expect("a key").to_owned(), value(node))).collect();
        }
        match node.as_sequence() {
            Some(nodes) => nodes.iter().map(value).collect(),
            None => node.as_str().map_or(Value::Null, Value::from),
        }
    }
    let documents = YamlOwned::load_from_str(&file(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    value(&documents[0])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn alerts() -> Vec<Value> {
    let rules = yaml(&format!("{RULES}/alerts.yml"));
    list(&rules["groups"]).iter().flat_map(|group| list(&group["rules"])).cloned().collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&file(DASHBOARD)).expect("JSON")
}

/// The queries of panels and of variables by where they stand, with what Grafana would put in place of the variables.
fn queries_of_dashboard() -> Vec<(String, String)> {
    let filled = |query: &str| {
        let range = query.replace("$__rate_interval", "1m");
        ["$instance", "$plugin", "$tenant"].iter().fold(range, |query, variable| query.replace(variable, ".*"))
    };
    let dashboard = dashboard();
    let mut queries = Vec::new();
    for panel in list(&dashboard["panels"]) {
        for target in list(&panel["targets"]) {
            queries.push((format!("the panel {}", panel["title"]), filled(text(&target["expr"]))));
        }
    }
    for variable in list(&dashboard["templating"]["list"]) {
        let values =
            text(&variable["query"]["query"]).strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let Some((series, label)) = values.and_then(|values| values.rsplit_once(", ")) else { continue };
        queries.push((format!("the variable {}", variable["name"]), filled(&format!("count by ({label}) ({series})"))));
    }
    queries
}

fn queries_of_alerts() -> Vec<(String, String)> {
    let query = |rule: &Value| (format!("the alert {}", rule["alert"]), text(&rule["expr"]).to_owned());
    alerts().iter().map(query).collect()
}

/// The names that series have on the page of a scrape, with their families.
fn declared() -> BTreeMap<String, &'static Family> {
    let names = |family: &'static Family| {
        let suffixes: &[&str] = if family.type_name() == "histogram" { &["_bucket", "_count", "_sum"] } else { &[""] };
        suffixes.iter().map(move |suffix| (format!("{}{suffix}", family.shown_name()), family))
    };
    FAMILIES.iter().flat_map(|family| names(family)).collect()
}

/// A query without the texts in it.
fn without_texts(query: &str) -> String {
    query.split('"').step_by(2).collect()
}

/// The metrics of hosts that a query names; `up` is Prometheus's own.
fn metrics_in(query: &str) -> BTreeSet<String> {
    let query = without_texts(query);
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_metric = |word: &&str| ["bulkhead_", "mcp_server_", "process_"].iter().any(|own| word.starts_with(own));
    words.filter(is_metric).map(str::to_owned).collect()
}

/// The labels that a query selects or sums by.
fn labels_in(query: &str) -> BTreeSet<String> {
    let query = without_texts(query);
    let within = |open: &'static str, close: char| {
        let parts = query.split(open).skip(1).filter_map(move |rest| rest.split(close).next());
        parts.flat_map(|part| part.split(',')).map(|label| label.trim().trim_end_matches(['=', '!', '~']).to_owned())
    };
    within("by (", ')').chain(within("on (", ')')).chain(within("{", '}')).collect()
}

/// What a query names that no host has.
fn unknown_in(query: &str) -> Vec<String> {
    let declared = declared();
    let metrics = metrics_in(query);
    let mut unknown: Vec<_> = metrics.iter().filter(|name| !declared.contains_key(*name)).cloned().collect();
    let mut known: BTreeSet<_> = ["job", "instance", "le"].map(str::to_owned).into();
    known.extend(
        metrics
            .iter()
            .filter_map(|name| declared.get(name))
            .flat_map(|family| family.labels)
            .map(|label| (*label).to_owned()),
    );
    unknown.extend(labels_in(query).difference(&known).map(|label| format!("the label {label}")));
    unknown
}

#[test]
fn query_with_another_metric_or_label_is_noticed() {
    let query = "sum by (job, plugin) (rate(bulkhead_calls_total{outcome=~\"trap|gone_label\"}[5m])) > 0.05 and on (job) up == 1";
    assert_eq!(unknown_in(query), Vec::<String>::new());
    assert_eq!(
        unknown_in(&query.replace("calls_total", "calls")),
        ["bulkhead_calls", "the label outcome", "the label plugin"]
    );
    assert_eq!(unknown_in(&query.replace("outcome", "result")), ["the label result"]);
    assert_eq!(unknown_in(&query.replace("job, plugin", "tenant")), ["the label tenant"]);
    assert_eq!(unknown_in("bulkhead_call_busy_seconds"), ["bulkhead_call_busy_seconds"]);
    assert_eq!(
        unknown_in("histogram_quantile(0.9, sum by (le) (bulkhead_call_busy_seconds_bucket))"),
        Vec::<String>::new()
    );
}

#[test]
fn alerts_and_dashboard_name_only_metrics_and_labels_that_a_host_has() {
    let mut queries = [queries_of_alerts(), queries_of_dashboard()].concat();
    for test in list(&yaml(&format!("{RULES}/alerts.test.yml"))["tests"]) {
        let series = list(&test["input_series"]).iter().map(|series| text(&series["series"]).to_owned());
        queries.extend(series.map(|series| (format!("the test of {}", test["name"]), series)));
    }
    let mut wrong = String::new();
    for (place, query) in &queries {
        for unknown in unknown_in(query) {
            writeln!(wrong, "{place}: {unknown}").expect("strings take text");
        }
    }
    for page in [PAGE, "host/docs/operate/metrics.md"] {
        let shown: BTreeSet<_> = FAMILIES.iter().map(|family| family.shown_name()).collect();
        for unknown in metrics_in(&file(page)).difference(&shown) {
            writeln!(wrong, "{page}: {unknown}").expect("strings take text");
        }
    }
    assert!(wrong.is_empty(), "host/metrics has no such names:\n{wrong}");
}

#[test]
fn every_alert_has_a_severity_a_test_that_fires_it_and_a_heading_that_says_what_to_do() {
    let page = file(PAGE);
    let headings: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let tests = yaml(&format!("{RULES}/alerts.test.yml"));
    let fires = |test: &&Value| {
        let expected = list(&test["alert_rule_test"]).iter().filter(|moment| moment["alertname"] == test["name"]);
        expected.flat_map(|moment| list(&moment["exp_alerts"])).count() > 0
    };
    let tested: BTreeSet<_> = list(&tests["tests"]).iter().filter(fires).map(|test| text(&test["name"])).collect();
    let alerts = alerts();
    let names: BTreeSet<_> = alerts.iter().map(|rule| text(&rule["alert"])).collect();
    assert_eq!((alerts.len(), &headings, &tested), (names.len(), &names, &names));
    for rule in &alerts {
        let annotations = &rule["annotations"];
        assert!(["critical", "warning"].contains(&text(&rule["labels"]["severity"])), "{rule}");
        assert!(["summary", "description"].iter().all(|name| !text(&annotations[name]).is_empty()), "{rule}");
        let heading = text(&rule["alert"]).to_lowercase();
        assert_eq!(text(&annotations["runbook"]), format!("{PAGE}#{heading}"));
    }
}

#[test]
fn every_panel_has_a_description_a_unit_and_a_position_of_its_own() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in list(&dashboard["panels"]) {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64()), "two panels have the id of {title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(x + w <= 24, "{title} is wider than the dashboard");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} lies on another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(!text(&panel["description"]).is_empty(), "{title}");
        assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title}");
        assert!(!list(&panel["targets"]).is_empty(), "{title}");
        assert_eq!(panel["datasource"], json!({"type": "prometheus", "uid": "${datasource}"}), "{title}");
    }
    // As `python3 -m json.tool --indent 2 --no-ensure-ascii` writes it, so that changes stay small.
    assert_eq!(file(DASHBOARD), format!("{}\n", serde_json::to_string_pretty(&dashboard).expect("JSON")));
}

#[tokio::test]
async fn promtool_takes_the_alerts_and_each_fires_for_what_it_is_for() {
    let Some(programs) = programs().await else { return };
    for arguments in
        [["check", "rules", "--lint-fatal", "alerts.yml"].as_slice(), &["test", "rules", "alerts.test.yml"]]
    {
        let mut promtool = tokio::process::Command::new(programs.join("promtool"));
        let output =
            promtool.args(arguments).current_dir(place::root().join(RULES)).output().await.expect("promtool starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

/// A host with samples of everything that one run of a minute can have.
async fn busy_host() -> Host {
    let sections = "[metrics]\nlisten = \"127.0.0.1:0\"\n[audit]\nenabled = true\n[tenant.acme]\ncpu_weight = 2\n\
         [limits]\ntasks_queued_per_requestor = 1\ntasks_running_per_requestor = 1";
    let web = crate::egress::Web::start().await;
    let nobody = "http://127.0.0.1:1";
    let grants = format!("[plugin.grants]\nhttp = {:?}\n", [&web.origin, nobody]);
    let setup = Setup::with(&["text", "hostile"]).plugin("http", &grants).config(sections);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    for _ in 0..20 {
        client.tool("echo", json!({"text": "a"})).await.expect("a result");
    }
    client.tool("trap", json!({})).await.expect_err("a trap");
    let first = client.task("ignore_cancel", json!({})).await;
    client.until_status(&first, "working").await;
    client.task("ignore_cancel", json!({})).await;
    client.create("ignore_cancel", json!({})).await.expect_err("the queue is full");
    for origin in [web.origin.as_str(), nobody] {
        client.tool("http_get", json!({"url": format!("{origin}/")})).await.expect("a result");
    }
    let past = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    past.request(reqwest::Method::DELETE).send().await.expect("an answer");
    let refused = http().post(&host.url).bearer_auth("nonsense").body("{}").send().await;
    assert_eq!(refused.expect("an answer").status(), reqwest::StatusCode::UNAUTHORIZED);
    host
}

/// What is wrong with the answers of a Prometheus that scraped this page, and how many queries of the dashboard are
/// about what is on it.
async fn complaints(prometheus: &Prometheus, page: &str) -> (Vec<String>, usize) {
    let is_there = |metric: &String| [' ', '{'].iter().any(|next| page.contains(&format!("\n{metric}{next}")));
    let mut wrong = Vec::new();
    let mut about = 0;
    for (place, query) in queries_of_dashboard() {
        let said = prometheus.query(&query).await;
        let is_about = metrics_in(&query).iter().all(is_there);
        about += usize::from(is_about);
        if said["status"] != "success" || (is_about && list(&said["data"]["result"]).is_empty()) {
            wrong.push(format!("{place}: {query}: {said}"));
        }
    }
    for rule in alerts() {
        let query = text(&rule["expr"]);
        let said = prometheus.query(query).await;
        // What wakes a person at night is silent while all is well.
        let is_silent = rule["labels"]["severity"] == "critical" && metrics_in(query).iter().all(is_there);
        if said["status"] != "success" || (is_silent && !list(&said["data"]["result"]).is_empty()) {
            wrong.push(format!("the alert {}: {query}: {said}", rule["alert"]));
        }
    }
    (wrong, about)
}

#[tokio::test]
async fn every_query_is_answered_by_a_prometheus_that_scraped_a_host() {
    let Some(programs) = programs().await else { return };
    let host = busy_host().await;
    let page = scrape(&host, "text/plain").await;
    let target = page_of(&host).replace("http://", "").replace("/metrics", "");
    let prometheus = Prometheus::start(&programs, &target).await;
    let mut found = (Vec::new(), 0);
    // A rate needs two scrapes, and on a busy machine one may come too late.
    for _ in 0..30 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        found = complaints(&prometheus, &page).await;
        if found.0.is_empty() {
            break;
        }
    }
    let (wrong, about) = found;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(about > 60, "only {about} queries of the dashboard are about what this host has");
}
