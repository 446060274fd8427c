//! Versions of plugins in the dashboard: what an operator reads, switches and takes back, and what nobody can do there.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::place::{component, variant};
use tests::wait::until;
use tests::web::{Answer, Web};
use tests::{Host, Setup, command};

use super::browser::{Browser, DASHBOARD, client, form, setup, without_ours};
use crate::canary::{FIRST, SECOND, listed, said, stage};
use crate::sources::sha256;

/// What `word_count` says of itself, and what another version says.
const COUNTS: &str = "Counts the lines, words, characters and bytes of a text.";
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>";

const ACTIONS: [&str; 8] =
    ["activate", "canary", "promote", "take-back", "rollback", "remove", "remove-version", "update"];

/// The first version of `text` with other words of the same length in its place.
fn text_with(from: &str, to: &str) -> Vec<u8> {
    variant("text", from, &format!("{to:<width$}", width = from.len()))
}

fn version(staged: &Value) -> String {
    staged["version"].as_str().expect("a digest").to_owned()
}

fn changes_of(version: &str) -> String {
    format!("/plugins/text/{version}/changes")
}

/// The value of a field of the page.
fn field<'a>(page: &'a str, name: &str) -> &'a str {
    let (_, rest) =
        page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().expect("a value")
}

async fn active(setup: &Setup) -> String {
    listed(setup, "text").await["active"].as_str().unwrap_or_default().to_owned()
}

/// A plugin, a browser of an operator, and a version that is staged.
async fn staged(setup: &Setup, bytes: &[u8]) -> (Host, Browser, String) {
    let host = setup.start().await;
    let version = version(&stage(setup, "text", bytes).await);
    let browser = Browser::operator(&host).await;
    (host, browser, version)
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_staged_read_accepted_activated_and_rolled_back() {
    let web = Web::start().await;
    let setup = Setup::with(&["text"]).config(DASHBOARD);
    let section = web.section(&setup.path(""));
    let setup = setup.config(&section).config("[audit]\nenabled = true\n");
    let host = setup.start().await;
    let browser = Browser::operator(&host).await;
    let first = active(&setup).await;
    let url = web.url("/text.wasm");
    let bytes = text_with(COUNTS, HOSTILE);
    let digest = sha256(&bytes);
    web.has("/text.wasm", Answer::Body(bytes));
    let fields = [("source", url.as_str()), ("name", "text"), ("sha256", &digest)];
    let done = browser.press("/plugins", "/plugins/stage", &fields).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{}", done.text);
    // Compiling may take longer than a form waits: then the order is on the page until it is done.
    let page = until("the version to be staged", async || {
        let shown = browser.get("/plugins").await.text;
        assert!(!shown.contains("not done"), "{shown}");
        let (_, rest) = shown.split_once("<a href=\"/plugins/text/")?;
        Some(format!("/plugins/text/{}", rest.split('"').next()?))
    })
    .await;
    let second = page.split('/').nth(3).expect("a digest").to_owned();
    assert_eq!(page, changes_of(&second));

    // What it changes is text, and what is held back is named.
    let shown = browser.get(&page).await;
    assert_eq!(shown.status, StatusCode::OK);
    for part in [
        "Changed tool <code>word_count</code>",
        COUNTS,
        "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;",
        "text: the tool word_count changes: description",
        "I have read these changes and accept them",
        &url,
    ] {
        assert!(shown.text.contains(part), "{part} is not in {}", shown.text);
    }
    let text = without_ours(&shown.text);
    assert!(!text.contains("<script") && !text.contains("<img"), "{text}");

    // Without the word nothing happens, and the page with the form is where it leads; a word for something else is
    // none.
    let client = Client::connect(&host).await;
    let action = "/plugins/text/activate";
    let mark = field(&shown.text, "mark").to_owned();
    let activate = async |fields: &[(&str, &str)]| browser.press(&page, action, fields).await;
    let refused = activate(&[("version", &second)]).await;
    assert_eq!((refused.status, refused.leads_to()), (StatusCode::SEE_OTHER, page.as_str()));
    assert!(browser.get(&page).await.text.contains("nothing has changed: this needs your word"));
    for wrong in ["", "0", &"0".repeat(64)] {
        let refused = activate(&[("version", &second), ("accept", "yes"), ("mark", wrong)]).await;
        assert_eq!(refused.leads_to(), page, "{wrong}");
        assert!(browser.get(&page).await.text.contains("is not what you have read any more"));
    }
    assert_eq!(active(&setup).await, first);
    let done = activate(&[("version", &second), ("accept", "yes"), ("mark", &mark)]).await;
    assert_eq!(done.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, second);
    assert!(browser.get("/plugins/text").await.text.contains("everybody has"));
    let tools = client.call("tools/list", json!({})).await.expect("an answer").to_string();
    assert!(tools.contains("<script>alert(1)"), "{tools}");

    // Back, once: a form of before finds that the versions stand otherwise.
    let back = "/plugins/text/rollback";
    let token = browser.get("/plugins/text").await.token(back);
    assert_eq!(browser.post(back, &token, &[("version", &second)]).await.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, first);
    assert_eq!(browser.post(back, &token, &[("version", &second)]).await.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, first, "the second press changed something");
    assert!(browser.get("/plugins/text").await.text.contains("the versions stand otherwise"));
    // What was accepted once needs no word.
    assert!(!browser.get(&page).await.text.contains("I have read"));
    assert_eq!(activate(&[("version", &second)]).await.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, second);

    let log = until("the lines of the audit log", async || {
        let files = std::fs::read_dir(setup.data().join("audit")).ok()?.flatten();
        let lines =
            files.fold(String::new(), |all, file| all + &std::fs::read_to_string(file.path()).unwrap_or_default());
        lines.contains("plugin_rollback").then_some(lines)
    })
    .await;
    for part in ["plugin_stage", "plugin_activate", "dashboard operator at 127.0.0.1"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_shows_its_verdict_and_is_taken_back_and_promoted() {
    let setup = setup(&["text"]);
    let (host, browser, second) = staged(&setup, &variant("text", FIRST, SECOND)).await;
    let first = active(&setup).await;
    let client = Client::connect(&host).await;
    let page = changes_of(&second);
    let begin = async |percent: &str| {
        let fields = [("version", second.as_str()), ("percent", percent), ("window", "30"), ("calls", "3")];
        browser.press(&page, "/plugins/text/canary", &fields).await
    };
    for wrong in ["101", "x", "-1"] {
        assert_eq!(begin(wrong).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    }
    assert_eq!(begin("100").await.leads_to(), "/plugins/text");
    assert_eq!(listed(&setup, "text").await["canary"]["percent"], 100.0);
    assert_eq!(said(&client).await, SECOND);
    let shown = browser.get("/plugins/text").await.text;
    for part in ["100 % of the requestors", "30 min: 1 calls, 0 faults", "none yet: it takes 3 calls"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    for _ in 0..3 {
        assert_eq!(said(&client).await, SECOND);
    }
    assert!(browser.get("/plugins/text").await.text.contains("within its bounds so far"));
    // While there is one, there is nothing to switch to.
    let other = changes_of(&first);
    assert!(!browser.get(&other).await.text.contains("/plugins/text/activate"));
    assert!(browser.get(&page).await.text.contains("It is the canary"));

    let press = async |action: &str, version: &str| {
        browser.press("/plugins/text", &format!("/plugins/text/{action}"), &[("version", version)]).await
    };
    // Not of a version that is not the canary.
    assert_eq!(press("promote", &first).await.leads_to(), "/plugins/text");
    assert!(browser.get("/plugins/text").await.text.contains("the versions stand otherwise"));
    assert_eq!(press("take-back", &second).await.leads_to(), "/plugins/text");
    assert_eq!((active(&setup).await, said(&client).await.as_str()), (first.clone(), FIRST));
    assert_eq!(begin("100").await.leads_to(), "/plugins/text");
    assert_eq!(press("promote", &second).await.leads_to(), "/plugins/text");
    assert_eq!((active(&setup).await, said(&client).await.as_str()), (second.clone(), SECOND));
    assert!(browser.get("/plugins/text").await.text.contains("which was the canary"));

    // Out of service and back; then the version that nothing runs on goes for good.
    assert_eq!(press("remove", &second).await.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, "");
    assert_eq!(browser.press("/plugins/text", "/plugins/text/rollback", &[]).await.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, second);
    let gone = until("the first version to retire", async || {
        let page = browser.get(&other).await;
        page.text.contains("/plugins/text/remove-version").then_some(page)
    })
    .await;
    let token = gone.token("/plugins/text/remove-version");
    let done = browser.post("/plugins/text/remove-version", &token, &[("version", &first)]).await;
    assert_eq!(done.leads_to(), "/plugins/text");
    assert_eq!(browser.get(&other).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_page_shows_grants_and_every_version() {
    let setup = setup(&["text", "http"]);
    let (_host, browser, second) = staged(&setup, &variant("text", FIRST, SECOND)).await;
    let shown = browser.get("/plugins/text").await.text;
    for part in [&second[..12], "checked", "active", "call.cpu_ms", "Signed by"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let of_http = browser.get("/plugins/http").await.text;
    assert!(of_http.contains("wasi:http/outgoing-handler"), "{of_http}");
    let told = command::json(&["plugin", "grants", "http"], &setup.data()).await;
    assert!(told["imports"].to_string().contains("wasi:http/outgoing-handler"), "{told}");
    let nothing = browser.get(&changes_of(&second)).await.text;
    assert!(nothing.contains("Nothing that clients see, and nothing that it may reach."), "{nothing}");
    let told = command::json(&["plugin", "changes", "text"], &setup.data()).await;
    assert_eq!((&told["version"], &told["held"], &told["tools"]), (&json!(second), &json!([]), &json!([])));
    for absent in ["/plugins/none/00/changes", "/plugins/text/ffff/changes", "/plugins/text/x/y/z", "/plugins/stage"] {
        assert_eq!(browser.get(absent).await.status, StatusCode::NOT_FOUND, "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_the_machine_and_hostile_names_are_refused_as_text() {
    let setup = setup(&["text"]);
    let (_host, browser, _) = staged(&setup, &variant("text", FIRST, SECOND)).await;
    let file = component("text").display().to_string();
    let stage = async |source: &str, name: &str| {
        let done = browser.press("/plugins", "/plugins/stage", &[("source", source), ("name", name)]).await;
        assert_eq!((done.status, done.leads_to()), (StatusCode::SEE_OTHER, "/plugins"), "{source}");
        without_ours(&browser.get("/plugins").await.text)
    };
    for source in [file.as_str(), "./text.wasm", "file:///etc/passwd", "http://a.example/x.wasm", "/etc/passwd", ""] {
        let shown = stage(source, "text").await;
        let (newest, _) = shown.split_once("</div>").expect("an order");
        assert!(newest.contains("on the machine of the host only"), "{source}: {newest}");
    }
    let shown = stage("https://127.0.0.1:9/\"><script>alert(1)</script>\u{202e}.wasm", "<img src=x>").await;
    for raw in ["<script", "<img", "\u{202e}"] {
        assert!(!shown.contains(raw), "{raw} in {shown}");
    }
    let versions = command::json(&["plugin", "versions", "text"], &setup.data()).await;
    assert_eq!(versions["versions"].as_array().map(Vec::len), Some(2), "{versions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requestors_and_forms_that_are_not_ours_change_nothing() {
    let setup = setup(&["text"]);
    let (host, browser, second) = staged(&setup, &text_with(COUNTS, "Counts.")).await;
    let token = setup.token("anna", "acme").await;
    let anna = Browser::with_token(&host, &token).await;
    let first = active(&setup).await;
    let page = changes_of(&second);
    let shown = browser.get(&page).await;
    let mark = field(&shown.text, "mark").to_owned();
    for path in ["/plugins", "/plugins/text", &page, "/plugins/none"] {
        let own = anna.get(path).await;
        let absent = anna.get("/nothing").await;
        assert_eq!((own.status, own.text), (StatusCode::NOT_FOUND, absent.text), "{path}");
    }
    let foreign = anna.get("/tasks").await.token("/logout");
    let token_of_another_form = shown.token("/plugins/text/activate");
    let fields = [("version", second.as_str()), ("accept", "yes"), ("mark", &mark), ("percent", "100")];
    let paths = ACTIONS.map(|action| format!("/plugins/text/{action}"));
    for path in paths.iter().map(String::as_str).chain(["/plugins/stage"]) {
        for (who, token) in [(&browser, ""), (&browser, foreign.as_str()), (&anna, &foreign)] {
            assert_eq!(who.post(path, token, &fields).await.status, StatusCode::FORBIDDEN, "{path}");
        }
        if path != "/plugins/text/activate" {
            assert_eq!(
                browser.post(path, &token_of_another_form, &fields).await.status,
                StatusCode::FORBIDDEN,
                "{path}"
            );
        }
        let elsewhere = browser.request(Method::POST, path).header("sec-fetch-site", "cross-site");
        assert_eq!(browser.send(form(elsewhere, &fields)).await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(browser.get(path).await.status, StatusCode::NOT_FOUND, "nothing changes by a GET");
    }
    let cross = browser.request(Method::POST, "/plugins/text/activate").header("origin", "http://evil.example");
    let good = [&[("form_token", token_of_another_form.as_str())][..], &fields].concat();
    assert_eq!(browser.send(form(cross, &good)).await.status, StatusCode::FORBIDDEN);
    let line = listed(&setup, "text").await;
    assert_eq!((active(&setup).await, &line["canary"], &line["state"]), (first, &Value::Null, &json!("active")));
    let said = client(&host, &token).await.tool("echo", json!({"text": "a"})).await.expect("it runs");
    assert_eq!(text(&said), "a");
    // The same form is good when it is sent as it should be.
    let done = browser.post("/plugins/text/activate", &token_of_another_form, &fields).await;
    assert_eq!(done.leads_to(), "/plugins/text");
    assert_eq!(active(&setup).await, second);
}
