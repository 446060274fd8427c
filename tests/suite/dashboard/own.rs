//! What a requestor does in the dashboard: its tools and calls of them, messages to runs, its limits, and images and
//! files of results.

use reqwest::StatusCode;
use serde_json::json;
use tests::client::Client;
use tests::{Host, Setup, command};

use crate::metrics::{METRICS, number, scrape};

use super::browser::{Browser, DASHBOARD, client, setup, without_ours};

const NOBODY: &str = "0123456789abcdef0123456789abcdef";

/// The names of the tools that a page leads to.
fn tools_on(page: &str) -> Vec<String> {
    page.split("href=\"/tools/").skip(1).map(|rest| rest.split('"').next().expect("an address").to_owned()).collect()
}

/// The names of all pages, each of which is small.
async fn tools_of(browser: &Browser) -> Vec<String> {
    let mut path = "/tools".to_owned();
    let mut names = Vec::new();
    loop {
        let page = browser.get(&path).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.text.len() <= 60 << 10, "{} bytes", page.text.len());
        names.extend(tools_on(&page.text));
        let Some((before, _)) = page.text.split_once("\" rel=\"next\"") else { return names };
        path = before.rsplit('"').next().expect("an address").replace("&amp;", "&");
    }
}

/// The names that `tools/list` gives, over all pages.
async fn listed(client: &Client) -> Vec<String> {
    let mut names = Vec::new();
    let mut params = json!({});
    loop {
        let page = client.call("tools/list", params).await.expect("a list");
        let tools = page["tools"].as_array().expect("tools");
        names.extend(tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()));
        match page.get("nextCursor") {
            Some(next) => params = json!({"cursor": next}),
            None => return names,
        }
    }
}

async fn scoped(setup: &Setup, requestor: &str, scope: &str) -> String {
    let arguments = ["token", "create", "--requestor", requestor, "--tenant", "acme", "--scope", scope];
    let made = command::json(&arguments, &setup.data()).await;
    made["token"].as_str().expect("a token").to_owned()
}

/// The id of the task that a form led to.
pub(super) fn task_of(place: &str) -> String {
    place.strip_prefix("/tasks/").unwrap_or_else(|| panic!("{place:?} is no task")).to_owned()
}

pub(super) async fn signed_in(host: &Host, token: &str) -> (Client, Browser) {
    (client(host, token).await, Browser::with_token(host, token).await)
}

#[tokio::test]
async fn tools_are_those_that_the_client_is_listed() {
    let setup = Setup::new()
        .config(DASHBOARD)
        .config("[[toolset]]\nname = \"few\"\ntenants = [\"globex\"]\nexclude = { tools = [\"word_count\"] }")
        .plugin("text", "[plugin.tool.echo]\nname = \"say\"\n[plugin.tool.diff]\nhidden = true\n")
        .plugin("primes", "");
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let ben = setup.token("ben", "globex").await;
    let (of_anna, anna) = signed_in(&host, &anna).await;
    let (of_ben, ben) = signed_in(&host, &ben).await;
    let seen = tools_of(&anna).await;
    let other = tools_of(&ben).await;
    assert_eq!(seen, ["count_primes", "say", "word_count"]);
    assert_eq!(seen, listed(&of_anna).await);
    assert_eq!(other, listed(&of_ben).await);
    assert!(!other.contains(&"word_count".to_owned()), "{other:?}");
    assert_eq!(tools_on(&anna.get("/tools?name=prime").await.text), ["count_primes"]);
    // Hidden, renamed, excluded and unknown: the same bytes.
    let none = ben.get("/tools/none").await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    for name in ["diff", "echo", "word_count"] {
        let page = ben.get(&format!("/tools/{name}")).await;
        assert_eq!((page.status, page.text), (none.status, none.text.clone()), "{name}");
    }
    assert_eq!(anna.get("/tools/word_count").await.status, StatusCode::OK);
    let calls = async |name: &str| {
        let token = ben.get("/tools").await.token("/logout");
        let done = ben.post(&format!("/tools/{name}/call"), &token, &[]).await;
        (done.status, done.text)
    };
    assert_eq!(calls("word_count").await, calls("none").await);
    let operator = Browser::operator(&host).await;
    for path in ["/tools", "/tools/say", "/limits"] {
        assert_eq!(operator.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn tool_is_called_as_a_task_in_its_form() {
    let setup = setup(&["primes", "probe"]);
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let page = "/tools/count_primes";
    let action = "/tools/count_primes/call";
    let shown = browser.get(page).await.text;
    for part in [
        "<code>below</code></td><td>integer</td><td>yes</td>",
        "Count the primes smaller than this.",
        "Only reads</dt><dd>yes",
        "type=\"number\" name=\"field.below\"",
        "<code>complete</code></td><td>boolean</td>",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let call = async |fields: &[(&str, &str)]| browser.press(page, action, fields).await;
    let refused = call(&[("field.below", "many")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.text.contains("role=\"alert\"") && refused.text.contains("value=\"many\""), "{}", refused.text);
    for (arguments, status) in [
        ("{\"below\": \"<b>\"}", StatusCode::UNPROCESSABLE_ENTITY),
        ("{\"below\": 1, \"below\": 2}", StatusCode::UNPROCESSABLE_ENTITY),
        ("[1]", StatusCode::UNPROCESSABLE_ENTITY),
        ("{", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let refused = call(&[("as", "json"), ("arguments", arguments)]).await;
        assert_eq!(refused.status, status, "{arguments}: {}", refused.text);
        assert!(refused.text.contains("<details open>") && !refused.text.contains("<b>"), "{}", refused.text);
    }
    assert_eq!(call(&[]).await.status, StatusCode::UNPROCESSABLE_ENTITY, "what is required is missing");
    assert!(own.tasks().await.is_empty(), "what was refused made no task");
    for fields in [&[("field.below", "100")][..], &[("as", "json"), ("arguments", " {\"below\": 100} ")]] {
        let done = call(fields).await;
        assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
        let task = task_of(done.leads_to());
        own.until_status(&task, "completed").await;
        let result = browser.get(done.leads_to()).await.text;
        assert!(result.contains("&quot;count&quot;: 25") && result.contains("count_primes"), "{result}");
    }
    assert_eq!(own.tasks().await.len(), 2);
    // One that takes only plain calls has no other button, and one that takes only tasks neither.
    let plain = browser.get("/tools/settings").await.text;
    assert!(plain.contains("/tools/settings/try") && !plain.contains("/tools/settings/call"), "{plain}");
    let only = browser.get("/tools/required").await.text;
    assert!(only.contains("/tools/required/call") && !only.contains("/tools/required/try"), "{only}");
    let fields = [("as", "json"), ("arguments", "{\"ms\": 1}")];
    let done = browser.press("/tools/required", "/tools/required/call", &fields).await;
    own.until_status(&task_of(done.leads_to()), "completed").await;
}

#[tokio::test]
async fn call_of_the_form_is_counted_like_one_of_a_client() {
    let setup = setup(&["primes", "text"]).config(METRICS);
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let page = "/tools/count_primes";
    let action = "/tools/count_primes/call";
    let done = browser.press(page, action, &[("field.below", "100")]).await;
    own.until_status(&task_of(done.leads_to()), "completed").await;
    for wrong in ["{\"below\": 1, \"below\": 2}", "{}"] {
        let refused = browser.press(page, action, &[("as", "json"), ("arguments", wrong)]).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    }
    let page = scrape(&host, "*/*").await;
    let counted = |more: &str| {
        let of = format!(
            "mcp_method_name=\"tools/call\",gen_ai_tool_name=\"count_primes\",{more}network_transport=\"tcp\"}}"
        );
        number(&page, &["mcp_server_operation_duration_seconds_count{", &of])
    };
    assert_eq!(counted(""), 1.0);
    assert_eq!(counted("error_type=\"-32602\","), 1.0);
    assert_eq!(counted("error_type=\"tool_error\","), 1.0);
}

#[tokio::test]
async fn question_of_a_task_that_the_form_began_reaches_its_page() {
    let setup = setup(&["probe"]);
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let done = browser.press("/tools/ask_many", "/tools/ask_many/call", &[("field.count", "1")]).await;
    let task = task_of(done.leads_to());
    own.until_status(&task, "input_required").await;
    let shown = browser.get(done.leads_to()).await.text;
    assert!(shown.contains("A value for q1?") && shown.contains("name=\"field.value\""), "{shown}");
    // What only a client can give is refused to the plugin at once.
    let done = browser.press("/tools/ask_roots", "/tools/ask_roots/call", &[("as", "json")]).await;
    let asked = own.about("tasks/result", &task_of(done.leads_to())).await;
    assert!(format!("{asked:?}").contains("oots"), "{asked:?}");
}

#[tokio::test]
async fn scopes_and_limits_hold_for_calls_of_the_form() {
    let scopes = "[[auth.scope]]\nname = \"primes\"\ntools = [\"count_*\"]\ntasks = true\n\
        [[auth.scope]]\nname = \"plain\"\ntools = [\"*\"]\n[[auth.scope]]\nname = \"none\"\ntasks = true\n\
        [limits]\ntasks_stored_per_requestor = 1\n";
    let setup = setup(&["text", "primes"]).config(scopes);
    let host = setup.start().await;
    let primes = scoped(&setup, "anna", "primes").await;
    let (own, browser) = signed_in(&host, &primes).await;
    assert_eq!(tools_of(&browser).await, ["count_primes"]);
    assert_eq!(tools_of(&browser).await, listed(&own).await);
    assert_eq!(browser.get("/tools/echo").await.text, browser.get("/tools/none").await.text);
    let plain = Browser::with_token(&host, &scoped(&setup, "anna", "plain").await).await;
    let shown = plain.get("/tools/count_primes").await.text;
    assert!(shown.contains("does not allow tasks") && !shown.contains("/call\""), "{shown}");
    let done = plain.press("/tools/count_primes", "/tools/count_primes/try", &[("field.below", "9")]).await;
    assert!(done.text.contains("Done in "), "{}", done.text);
    let none = Browser::with_token(&host, &scoped(&setup, "anna", "none").await).await;
    assert!(none.get("/tools").await.text.contains("no tool that you may call"));
    let call = async || browser.press("/tools/count_primes", "/tools/count_primes/call", &[("field.below", "9")]).await;
    assert_eq!(call().await.status, StatusCode::SEE_OTHER);
    let full = call().await;
    assert_eq!(full.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(full.text.contains("tasks_stored_per_requestor") && full.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn message_reaches_the_run() {
    let scopes = "[[auth.scope]]\nname = \"look\"\ntools = [\"*\"]\ntasks = true\n\
        [[auth.scope]]\nname = \"all\"\ntools = [\"*\"]\ntasks = true\nsteer = true\n";
    let setup = setup(&["probe"]).config(scopes);
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &scoped(&setup, "anna", "all").await).await;
    let task = own.task("steered", json!({})).await;
    own.until_status(&task, "working").await;
    let page = format!("/tasks/{task}");
    let action = format!("/tasks/{task}/steer");
    let looks = Browser::with_token(&host, &scoped(&setup, "anna", "look").await).await;
    assert!(!looks.get(&page).await.text.contains(&action));
    let ben = Browser::with_token(&host, &scoped(&setup, "ben", "all").await).await;
    let token = ben.get("/tasks").await.token("/logout");
    let foreign = ben.post(&action, &token, &[("message", "a")]).await;
    let absent = ben.post(&format!("/tasks/{NOBODY}/steer"), &token, &[("message", "a")]).await;
    assert_eq!((foreign.status, &foreign.text), (absent.status, &absent.text));
    assert_ne!(foreign.status, StatusCode::SEE_OTHER);
    let long = browser.press(&page, &action, &[("message", &"x".repeat(60_000))]).await;
    assert_eq!(long.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", long.text);
    let done = browser.press(&page, &action, &[("message", "to the <b>left</b>\r\nand on")]).await;
    assert_eq!(done.leads_to(), page, "{}", done.text);
    own.until_status(&task, "completed").await;
    let result = own.about("tasks/result", &task).await.expect("a result");
    assert_eq!(result["content"][0]["text"], "to the <b>left</b>\nand on");
    let shown = browser.get(&page).await.text;
    assert!(shown.contains("&lt;b&gt;left") && !shown.contains(&action), "{shown}");
}

#[tokio::test]
async fn limits_show_what_is_ones_own() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let (own, anna) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let ben = Browser::with_token(&host, &setup.token("ben", "acme").await).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;
    own.until_status(&task, "working").await;
    let in_use = async |browser: &Browser, limit: &str| {
        let page = browser.get("/limits").await.text;
        let (_, row) = page.split_once(&format!("<code>{limit}</code>")).unwrap_or_else(|| panic!("{limit} in {page}"));
        let (_, value) = row.split_once("value=\"").expect("a meter");
        value.split('"').next().expect("a number").to_owned()
    };
    for limit in ["tasks_stored_per_requestor", "tasks_stored_per_tenant"] {
        assert_eq!(in_use(&anna, limit).await, "1", "{limit}");
        assert_eq!(in_use(&ben, limit).await, "0", "{limit}");
    }
    // The request for the page itself.
    assert_eq!(in_use(&ben, "requests_open_per_tenant").await, "1");
    let page = ben.get("/limits").await.text;
    assert!(page.contains("task_creations_per_second") && !page.contains("anna") && !page.contains("_total"), "{page}");
}

#[tokio::test]
async fn image_is_shown_when_it_is_asked_for_and_other_media_are_files() {
    let setup = setup(&["probe"]);
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let task = own.task("contents", json!({})).await;
    own.until_status(&task, "completed").await;
    let page = format!("/tasks/{task}");
    let shown = browser.get(&page).await.text;
    assert!(!shown.contains("<img") && !shown.contains("data:image"), "{shown}");
    assert!(shown.contains(&format!("{page}/image/1")) && !shown.contains(&format!("{page}/image/2")), "{shown}");
    let image = browser.get(&format!("{page}/image/1")).await;
    assert!(image.text.contains("<img src=\"data:image/png;base64,iVBORw0KGgo"), "{}", image.text);
    assert_eq!(image.headers["content-type"], "text/html; charset=utf-8");
    for place in [1, 2] {
        let file = browser.get(&format!("{page}/file/{place}")).await;
        assert_eq!(file.headers["content-type"], "application/octet-stream");
        assert_eq!(file.headers["content-disposition"], "attachment; filename=\"result.bin\"");
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        assert!(place == 1 || file.text.starts_with("RIFF"), "{}", file.text);
    }
    for none in ["image/2", "image/0", "file/0", "file/99", "image/-1", "image/x", "sound/1"] {
        assert_eq!(browser.get(&format!("{page}/{none}")).await.status, StatusCode::NOT_FOUND, "{none}");
    }
    let ben = Browser::with_token(&host, &setup.token("ben", "acme").await).await;
    for what in ["image/1", "file/1"] {
        let foreign = ben.get(&format!("{page}/{what}")).await;
        let absent = ben.get(&format!("/tasks/{NOBODY}/{what}")).await;
        assert_eq!((foreign.status, &foreign.text), (StatusCode::NOT_FOUND, &absent.text), "{what}");
        assert_eq!(Browser::operator(&host).await.get(&format!("{page}/{what}")).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn page_of_many_tools_is_small_and_pages_go_on() {
    let mut setup = setup(&[]);
    for number in 0..6 {
        setup = setup.plugin_as(&format!("probe-{number}"), "probe", &format!("prefix = \"p{number}_\"\n"));
    }
    let host = setup.start().await;
    let (own, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let seen = tools_of(&browser).await;
    assert!(seen.len() >= 100, "{} tools", seen.len());
    assert_eq!(seen, listed(&own).await, "each tool once, in the order of the list");
    for name in &seen[..20] {
        let page = browser.get(&format!("/tools/{name}")).await;
        assert!(page.status == StatusCode::OK && page.text.len() <= 60 << 10, "{name}: {} bytes", page.text.len());
    }
}

#[tokio::test]
async fn what_a_plugin_says_of_its_tools_is_text() {
    let said = "\\\"'><script>alert(1)</script><img src=x onerror=alert(2)><a href=javascript:alert(3)>x</a>";
    let long = "<script>".repeat(2_000);
    let toml = format!(
        "[plugin.tool.speak]\ntitle = \"{said}\"\ndescription = \"{said}\"\n[plugin.tool.trap]\ndescription = \"{long}\"\n"
    );
    let setup = Setup::new().config(DASHBOARD).plugin("hostile", &toml);
    let host = setup.start().await;
    let (_, browser) = signed_in(&host, &setup.token("anna", "acme").await).await;
    let names = tools_of(&browser).await;
    assert!(names.contains(&"speak".to_owned()), "{names:?}: {}", host.log());
    let paths = names.iter().map(|name| format!("/tools/{name}"));
    for path in paths.chain(["/tools".to_owned(), "/tools?name=%22%3E%3Cscript%3E&after=%22%3E%3Cimg".to_owned()]) {
        let shown = without_ours(&browser.get(&path).await.text);
        for raw in ["<script", "<img", "<a href=javascript", "\u{202e}", "\"'>", " style="] {
            assert!(!shown.contains(raw), "{raw} in {path}");
        }
    }
    assert!(browser.get("/tools/speak").await.text.contains("&lt;script&gt;alert(1)"));
    // A form of the plugin's with a text of a stranger's comes back as text.
    let fields = [("as", "json"), ("arguments", "</textarea><script>")];
    let refused = browser.press("/tools/speak", "/tools/speak/call", &fields).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let shown = without_ours(&refused.text);
    assert!(shown.contains("&lt;/textarea&gt;&lt;script&gt;") && !shown.contains("<script"), "{shown}");
}

#[tokio::test]
async fn lead_sees_its_tenant_without_what_is_its_requestors() {
    let scopes = "[[auth.scope]]\nname = \"use\"\ntools = [\"*\"]\ntasks = true\nsteer = true\n\
        [[auth.scope]]\nname = \"lead\"\ntenant = true\n\
        [[auth.scope]]\nname = \"control\"\ntenant = true\ntenant_control = true\n[audit]\nenabled = true\n";
    let setup = setup(&["hostile", "desk"]).config(scopes);
    let host = setup.start().await;
    let anna = scoped(&setup, "anna", "use").await;
    let arguments = ["token", "create", "--requestor", "zoe", "--tenant", "globex", "--scope", "use"];
    let zoe = command::json(&arguments, &setup.data()).await["token"].as_str().expect("a token").to_owned();
    let of_anna = client(&host, &anna).await;
    let of_zoe = client(&host, &zoe).await;
    let spoken = of_anna.task("speak", json!({"text": "marker-argument"})).await;
    of_anna.until_status(&spoken, "completed").await;
    let running = of_anna.task("wait", json!({"ms": 600_000})).await;
    let foreign = of_zoe.task("wait", json!({"ms": 600_000})).await;
    of_anna.until_status(&running, "working").await;
    let lead = Browser::with_token(&host, &scoped(&setup, "leo", "lead").await).await;
    let control = Browser::with_token(&host, &scoped(&setup, "cleo", "control").await).await;
    let plain = Browser::with_token(&host, &anna).await;

    let page = |task: &str| format!("/tenant/tasks/{task}");
    let shown = lead.get("/tenant/tasks").await.text;
    assert!(shown.contains(&page(&spoken)) && shown.contains(&page(&running)) && shown.contains("anna"), "{shown}");
    // Whatever tenant an address names, a lead sees its own.
    for path in ["/tenant/tasks", "/tenant/tasks?tenant=globex", "/tenant/tasks?requestor=zoe", "/tenant"] {
        let shown = lead.get(path).await;
        assert_eq!(shown.status, StatusCode::OK, "{path}");
        // What it asked for itself is in the field of the filter, and in the way back of a form.
        let own_address = path.replace('/', "%2F").replace('?', "%3F").replace('=', "%3D");
        let part = shown.text.replace("value=\"zoe\"", "").replace(&format!("to={own_address}\""), "");
        assert!(!part.contains(&foreign) && !part.contains("zoe") && !part.contains("globex"), "{path}: {part}");
    }
    let limits = lead.get("/tenant").await.text;
    assert!(
        limits.contains("tasks_running_per_tenant") && limits.contains("anna") && !limits.contains("_total"),
        "{limits}"
    );
    let task = lead.get(&page(&spoken)).await.text;
    assert!(task.contains("succeeded") && !task.contains("marker-argument"), "{task}");
    // The requestor's own page is not the lead's, and another tenant's task is not there.
    let none = lead.get(&page(NOBODY)).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    for path in [page(&foreign), page("nonsense"), "/tenant/nothing".to_owned()] {
        let shown = lead.get(&path).await;
        assert_eq!((shown.status, shown.text), (none.status, none.text.clone()), "{path}");
    }
    assert_ne!(lead.get(&format!("/tasks/{spoken}")).await.status, StatusCode::OK);
    // Who leads nothing has no such pages.
    assert!(!plain.get("/tasks").await.text.contains("href=\"/tenant\""));
    for path in ["/tenant".to_owned(), "/tenant/tasks".to_owned(), page(&running), page(NOBODY)] {
        assert_eq!(plain.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }

    // One who only looks changes nothing; one who controls does, in its own tenant.
    assert!(!lead.get(&page(&running)).await.text.contains("/cancel"));
    let press = async |action: &str| {
        let action = format!("{}/{action}", page(&running));
        control.press(&page(&running), &action, &[]).await
    };
    assert_eq!(press("pause").await.leads_to(), page(&running));
    assert!(control.get(&page(&running)).await.text.contains("status paused"));
    assert_eq!(press("resume").await.leads_to(), page(&running));
    assert_eq!(press("cancel").await.leads_to(), page(&running));
    assert_eq!(of_anna.about("tasks/get", &running).await.expect("a task")["status"], "cancelled");
    let token = control.get("/tenant").await.token("/logout");
    let refused = control.post(&format!("{}/cancel", page(&foreign)), &token, &[]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(of_zoe.about("tasks/get", &foreign).await.expect("a task")["status"], "working");
    let log = std::fs::read_dir(setup.data().join("audit"))
        .expect("a folder")
        .flatten()
        .fold(String::new(), |all, file| all + &std::fs::read_to_string(file.path()).unwrap_or_default());
    assert!(log.contains("dashboard lead cleo@acme at 127.0.0.1"), "{log}");
}
