//! The dashboard: who gets in, what each may see and change, and what a page never does.

mod browser;
mod hosts;
mod live;
mod login;
mod operators;
mod own;
mod plugins;
mod previews;
mod routes;
mod tries;

use std::time::{Duration, Instant};

use reqwest::header::{CACHE_CONTROL, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::wait::until;
use tests::{Setup, command};

use browser::{Browser, client, form, link, setup, without_ours};

const ADMIN_TOKEN: &str = "0123456789abcdef0123456789abcdef";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types bulkhead";
const NOBODY: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn link_logs_an_operator_in_once() {
    let host = setup(&["text"]).start().await;
    let link = link(&host).await;
    let browser = Browser::new(&host);
    let path = link.strip_prefix(&browser.base).expect("the dashboard's address").to_owned();
    let (path_only, code) = path.split_once("?code=").expect("a code");
    assert_eq!(path_only, "/login/once");
    // What looks at links beforehand uses nothing up.
    for _ in 0..3 {
        assert_eq!(browser.get(&path).await.status, StatusCode::OK);
    }
    let page = browser.get(&path).await;
    let done = browser.post("/login", &page.token("/login"), &[("code", code)]).await;
    assert_eq!((done.status, done.leads_to()), (StatusCode::SEE_OTHER, "/"));
    let port = browser.base.rsplit(':').next().expect("a port");
    let set: Vec<_> = done.headers.get_all(SET_COOKIE).iter().map(|line| line.to_str().expect("a text")).collect();
    let (name, rest) = set[0].split_once('=').expect("a cookie");
    assert_eq!(name, format!("bulkhead_{port}"));
    assert_eq!(&rest[64..], "; Path=/; HttpOnly; SameSite=Strict");
    let overview = browser.get("/").await;
    assert!(overview.status == StatusCode::OK && overview.text.contains("Needs attention"), "{}", overview.text);

    let other = Browser::new(&host);
    let page = other.get(&path).await;
    let again = other.post("/login", &page.token("/login"), &[("code", code)]).await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert_eq!(other.get("/").await.leads_to(), "/login");

    let out = browser.press("/", "/logout", &[]).await;
    assert_eq!((out.status, out.leads_to()), (StatusCode::SEE_OTHER, "/login"));
    browser.cookies.borrow_mut().insert(name.to_owned(), rest[..64].to_owned());
    assert_eq!(browser.get("/").await.leads_to(), "/login", "the cookie of before is worth nothing");
}

#[tokio::test]
async fn every_answer_has_the_strict_headers() {
    let host = setup(&["text"]).start().await;
    let browser = Browser::operator(&host).await;
    let page = browser.get("/").await;
    let (_, style) = page.text.split_once("rel=\"stylesheet\" href=\"").expect("a style sheet");
    let style = style.split('"').next().expect("an address");
    for path in ["/", "/tasks", "/plugins", "/tenants", "/login", "/nothing", style] {
        let page = browser.get(path).await;
        let header = |name: &str| page.headers.get(name).map(|value| value.to_str().expect("a text"));
        assert_eq!(header("content-security-policy"), Some(POLICY), "{path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(header(name), Some(value), "{path}");
        }
        let kept = if path == style { "public, max-age=31536000, immutable" } else { "no-store" };
        assert_eq!(page.headers[CACHE_CONTROL], kept, "{path}");
        for inline in ["<script", "<style", " style=", " onclick=", " onload=", "javascript:", "http-equiv"] {
            assert!(!without_ours(&page.text).contains(inline), "{inline} in {path}");
        }
    }
    let refused = browser.send(browser.request(Method::POST, "/logout").body("")).await;
    assert_eq!(refused.headers["content-security-policy"], POLICY);
    assert_eq!(browser.send(browser.request(Method::PUT, "/")).await.status, StatusCode::METHOD_NOT_ALLOWED);
    let elsewhere = browser.send(browser.request(Method::GET, "/").header("host", "evil.example")).await;
    assert_eq!(elsewhere.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn each_viewer_sees_what_is_theirs_and_foreign_tasks_look_like_none() {
    let setup = setup(&["hostile"]);
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let ben = setup.token("ben", "globex").await;
    let own = client(&host, &anna).await;
    let task = own.task("speak", json!({"text": "marker-argument"})).await;
    own.until_status(&task, "completed").await;
    let page = format!("/tasks/{task}");
    let none = format!("/tasks/{NOBODY}");
    let nobody = Browser::new(&host);
    let anna = Browser::with_token(&host, &anna).await;
    let ben = Browser::with_token(&host, &ben).await;
    let operator = Browser::operator(&host).await;

    let ok = StatusCode::OK;
    let absent = StatusCode::NOT_FOUND;
    for (path, of_anna, of_ben, of_operator) in [
        ("/", ok, ok, ok),
        ("/tasks", ok, ok, ok),
        ("/tasks?status=succeeded&tool=spea", ok, ok, ok),
        (page.as_str(), ok, absent, ok),
        (none.as_str(), absent, absent, absent),
        ("/tasks/nonsense", absent, absent, absent),
        ("/plugins", absent, absent, ok),
        ("/plugins/hostile", absent, absent, ok),
        ("/plugins/none", absent, absent, absent),
        ("/tenants", absent, absent, ok),
        ("/tenants/acme", absent, absent, ok),
        ("/tenants/none", absent, absent, absent),
        ("/nothing", absent, absent, absent),
    ] {
        let refused = nobody.get(path).await;
        assert_eq!((refused.status, refused.leads_to()), (StatusCode::SEE_OTHER, "/login"), "{path}");
        for (who, browser, expected) in
            [("anna", &anna, of_anna), ("ben", &ben, of_ben), ("the operator", &operator, of_operator)]
        {
            assert_eq!(browser.get(path).await.status, expected, "{path} of {who}");
        }
    }
    let shown = anna.get(&page).await.text;
    assert!(shown.contains("marker-argument") && shown.contains("succeeded"), "{shown}");
    let of_operator = operator.get(&page).await.text;
    assert!(!of_operator.contains("marker-argument") && of_operator.contains("acme"), "{of_operator}");
    assert!(anna.get("/tasks").await.text.contains(&page) && !ben.get("/tasks").await.text.contains(&page));
    assert!(operator.get("/tasks?tenant=acme").await.text.contains(&page));
    assert!(!operator.get("/tasks?tenant=globex").await.text.contains(&page));

    // Foreign and absent, to look at and to change: the same bytes.
    assert_eq!(ben.get(&page).await.text, ben.get(&none).await.text);
    for action in ["cancel", "pause", "resume", "delete", "answer", "purge", "nonsense"] {
        let mut answers = Vec::new();
        for place in [&page, &none] {
            let path = format!("{place}/{action}");
            // No page of Ben's has a form for it.
            let token = ben.get("/tasks").await.token("/logout");
            let done = ben.post(&path, &token, &[("key", "a")]).await;
            answers.push((done.status, done.text));
        }
        assert_eq!(answers[0], answers[1], "{action}");
        assert!(!answers[0].0.is_success() && answers[0].0 != StatusCode::SEE_OTHER, "{action}");
    }
    assert_eq!(anna.get(&page).await.status, ok);
}

#[tokio::test]
async fn requestor_pauses_resumes_cancels_and_deletes_a_task() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;
    own.until_status(&task, "working").await;
    let browser = Browser::with_token(&host, &token).await;
    let page = format!("/tasks/{task}");
    let press = async |action: &str| browser.press(&page, &format!("{page}/{action}"), &[]).await;
    let shows = async |part: &str| browser.get(&page).await.text.contains(part);
    assert_eq!(press("pause").await.leads_to(), page);
    assert!(shows("status paused").await && shows("paused<small>for ").await);
    assert_eq!(press("resume").await.leads_to(), page);
    assert!(!shows("status paused").await && shows("resumed<small>for ").await);
    assert!(browser.get("/tasks?status=running").await.text.contains(&page));
    assert!(!browser.get("/tasks?status=paused").await.text.contains(&page));
    assert_eq!(press("cancel").await.leads_to(), page);
    assert!(shows("status cancelled").await);
    assert_eq!(press("delete").await.leads_to(), "/tasks");
    assert_eq!(browser.get(&page).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn token_with_fewer_rights_does_less() {
    let scopes = "[[auth.scope]]\nname = \"look\"\ntools = [\"*\"]\ntasks = true\n[[auth.scope]]\nname = \"call\"\ntools = [\"*\"]\n";
    let setup = setup(&["desk"]).config(scopes);
    let host = setup.start().await;
    let all = setup.token("anna", "acme").await;
    let made = async |scope: &str| {
        let arguments = ["token", "create", "--requestor", "anna", "--tenant", "acme", "--scope", scope];
        let made = command::json(&arguments, &setup.data()).await;
        made["token"].as_str().expect("a token").to_owned()
    };
    let own = client(&host, &all).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;
    let page = format!("/tasks/{task}");
    let looks = Browser::with_token(&host, &made("look").await).await;
    let shown = looks.get(&page).await;
    assert!(shown.text.contains("/cancel") && !shown.text.contains("/pause"), "{}", shown.text);
    let calls = Browser::with_token(&host, &made("call").await).await;
    assert!(calls.get("/tasks").await.text.contains("does not allow tasks"));
    assert_eq!(calls.get(&page).await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn question_is_answered_in_its_form() {
    let setup = setup(&["probe"]);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    let task = own.task("ask_many", json!({"count": 2})).await;
    own.until_status(&task, "input_required").await;
    let browser = Browser::with_token(&host, &token).await;
    let page = format!("/tasks/{task}");
    let action = format!("/tasks/{task}/answer");
    let shown = browser.get(&page).await.text;
    assert!(shown.contains("A value for q1?") && shown.contains("name=\"field.value\""), "{shown}");
    assert!(browser.get("/").await.text.contains("1 task waits for your answer: "));
    let keys: Vec<_> = shown.split("name=\"key\" value=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let [first, second] = keys[..] else { panic!("{keys:?}") };
    let answer = async |fields: &[(&str, &str)]| browser.press(&page, &action, fields).await;
    // What does not fit the schema comes back, with the reason.
    let refused = answer(&[("key", first), ("do", "accept")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.text.contains("role=\"alert\"") && refused.text.contains("value"), "{}", refused.text);
    assert_eq!(answer(&[("key", "none"), ("do", "accept")]).await.status, StatusCode::CONFLICT);
    let done = answer(&[("key", first), ("do", "accept"), ("field.value", "<b>seven</b>")]).await;
    assert_eq!(done.leads_to(), page, "{}", done.text);
    assert_eq!(answer(&[("key", second), ("do", "decline")]).await.leads_to(), page);
    own.until_status(&task, "completed").await;
    let shown = browser.get(&page).await.text;
    assert!(shown.contains("&lt;b&gt;seven&lt;/b&gt;") && shown.contains("Decline"), "{shown}");
    assert!(!shown.contains("<b>seven"));
}

#[tokio::test]
async fn form_that_is_not_ours_changes_nothing() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let ben = setup.token("ben", "acme").await;
    let own = client(&host, &anna).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;
    let page = format!("/tasks/{task}");
    let action = format!("/tasks/{task}/cancel");
    let browser = Browser::with_token(&host, &anna).await;
    let other = Browser::with_token(&host, &ben).await;
    let shown = browser.get(&page).await;
    let good = shown.token(&action);
    let base = browser.base.clone();
    let foreign = other.get("/tasks").await.token("/logout");
    let wrong_token = [String::new(), shown.token("/logout"), foreign, "0".repeat(64)];
    for token in &wrong_token {
        assert_eq!(browser.post(&action, token, &[]).await.status, StatusCode::FORBIDDEN, "{token}");
    }
    let send = async |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(browser.request(Method::POST, &action), |request, (name, value)| request.header(*name, *value));
        browser.send(form(request, &[("form_token", &good)])).await.status
    };
    for headers in [
        &[][..],
        &[("origin", "null")],
        &[("origin", "http://evil.example")],
        &[("sec-fetch-site", "cross-site"), ("origin", &base)],
        &[("sec-fetch-site", "same-site"), ("origin", &base)],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "same-origin"), ("host", "evil.example")],
    ] {
        assert_eq!(send(headers).await, StatusCode::FORBIDDEN, "{headers:?}");
    }
    let json = browser.request(Method::POST, &action).header("sec-fetch-site", "same-origin");
    let json = json.header("content-type", "application/json").body(format!("{{\"form_token\":\"{good}\"}}"));
    assert_eq!(browser.send(json).await.status, StatusCode::BAD_REQUEST);
    let large = "x".repeat(70_000);
    assert_eq!(browser.post(&action, &good, &[("more", &large)]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(browser.get(&action).await.status, StatusCode::NOT_FOUND, "nothing changes by a GET");
    assert_eq!(own.about("tasks/get", &task).await.expect("a task")["status"], "working");
    // A browser that says its origin and no more is one of ours, too.
    assert_eq!(send(&[("origin", &base)]).await, StatusCode::SEE_OTHER);
    assert_eq!(own.about("tasks/get", &task).await.expect("a task")["status"], "cancelled");
    // Nobody logs a browser in from elsewhere: the form is tied to a cookie that another browser does not have.
    let stranger = Browser::new(&host);
    let token = Browser::new(&host).get("/login").await.token("/login");
    let done = stranger.post("/login", &token, &[("token", &anna)]).await;
    assert_eq!(done.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn revoked_token_ends_its_session() {
    let setup = setup(&["text"]);
    let host = setup.start().await;
    let made = command::json(&["token", "create", "--requestor", "anna"], &setup.data()).await;
    let token = made["token"].as_str().expect("a token");
    let id = made["id"].as_str().expect("an id");
    let browser = Browser::with_token(&host, token).await;
    assert_eq!(browser.get("/tasks").await.status, StatusCode::OK);
    command::json(&["token", "revoke", id], &setup.data()).await;
    let since = Instant::now();
    until("the session to end", async || (browser.get("/tasks").await.leads_to() == "/login").then_some(())).await;
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    assert_eq!(browser.log_in(token).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn what_a_plugin_says_is_text() {
    let setup = setup(&["hostile"]);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    let said =
        "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}<a href=javascript:alert(3)>x</a>&amp;";
    let task = own.task("speak", json!({"text": said})).await;
    own.until_status(&task, "completed").await;
    let browser = Browser::with_token(&host, &token).await;
    let operator = Browser::operator(&host).await;
    let page = format!("/tasks/{task}");
    assert!(browser.get(&page).await.text.contains("&lt;script&gt;alert(1)"));
    // An operator's word is one that everyone sees, and so are the words of plugins while they run.
    let waiting = own.task("ignore_cancel", json!({})).await;
    own.until_status(&waiting, "working").await;
    command::json(&["tasks", "pause", &waiting, "--message", said], &setup.data()).await;
    let paused = format!("/tasks/{waiting}");
    for (browser, path) in [
        (&browser, page.as_str()),
        (&browser, &paused),
        (&browser, "/tasks"),
        (&operator, &page),
        (&operator, &paused),
        (&operator, "/tasks"),
    ] {
        let shown = browser.get(path).await.text;
        assert!(path == page || shown.contains("&lt;script&gt;alert(1)"), "{path}: {shown}");
        for raw in ["<script", "<img", "<a href=javascript", "\u{202e}", "\"'>"] {
            assert!(!without_ours(&shown).contains(raw), "{raw} in {path}");
        }
    }
    // Also what stands in an address is text, and a long one leads nowhere.
    let query = "/tasks?status=%22%3E%3Cscript%3E&tool=%22%3E%3Cscript%3E&tenant=%22%3E%3Cscript%3E";
    for browser in [&browser, &operator] {
        assert!(!without_ours(&browser.get(query).await.text).contains("<script"));
    }
    assert_eq!(browser.get(&format!("/{}", "x".repeat(5_000))).await.status, StatusCode::URI_TOO_LONG);
    let large = own.task("flood_result", json!({"bytes": 1_000_000})).await;
    own.until_status(&large, "completed").await;
    assert!(browser.get(&format!("/tasks/{large}")).await.text.len() < 60 << 10);
}

#[tokio::test]
async fn page_of_a_hundred_tasks_is_small_and_pages_go_on() {
    let setup = setup(&["probe"]);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    let mut tasks = Vec::new();
    for _ in 0..110 {
        tasks.push(own.task("facts", json!({})).await);
    }
    let browser = Browser::with_token(&host, &token).await;
    let operator = Browser::operator(&host).await;
    for (browser, rows) in [(&browser, 50), (&operator, 100)] {
        let mut path = "/tasks".to_owned();
        let mut seen = Vec::new();
        let mut sizes = Vec::new();
        loop {
            let page = browser.get(&path).await;
            assert!(page.text.len() <= 60 << 10, "{} bytes", page.text.len());
            let here: Vec<_> = page.text.split("href=\"/tasks/").skip(1).map(|rest| rest[..32].to_owned()).collect();
            sizes.push(here.len());
            seen.extend(here);
            let Some((before, _)) = page.text.split_once("\" rel=\"next\"") else { break };
            path = before.rsplit('"').next().expect("an address").replace("&amp;", "&");
        }
        assert_eq!(sizes[0], rows);
        let mut all = tasks.clone();
        all.sort();
        seen.sort();
        assert_eq!(seen, all, "each task once");
    }
}

#[tokio::test]
async fn wrong_credentials_are_counted_and_the_administrators_token_lets_in() {
    let setup = setup(&["desk"]);
    std::fs::write(setup.path("admin.token"), ADMIN_TOKEN).expect("a file");
    let file = setup.path("admin.token");
    let admin = format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = {file:?}\n[audit]\nenabled = true\n");
    let setup = setup.config(&admin);
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let browser = Browser::new(&host);
    let mut last = StatusCode::OK;
    for number in 0..12 {
        let wrong = browser.log_in(&format!("wrong-{number}")).await;
        last = wrong.status;
        if last == StatusCode::TOO_MANY_REQUESTS {
            assert!(wrong.headers.contains_key("retry-after"));
            break;
        }
        assert_eq!(last, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    // A good one is good all the same.
    assert_eq!(browser.log_in(ADMIN_TOKEN).await.leads_to(), "/");
    assert!(browser.get("/").await.text.contains("Needs attention"));
    let own = client(&host, &anna).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;
    let page = format!("/tasks/{task}");
    let action = format!("/tasks/{task}/cancel");
    assert_eq!(browser.press(&page, &action, &[]).await.leads_to(), page);
    assert_eq!(own.about("tasks/get", &task).await.expect("a task")["status"], "cancelled");
    let purge = format!("{page}/purge");
    assert_eq!(browser.press(&page, &purge, &[]).await.leads_to(), "/tasks");
    assert_eq!(browser.get(&page).await.status, StatusCode::NOT_FOUND);
    let requestor = Browser::with_token(&host, &anna).await;
    requestor.press("/tasks", "/logout", &[]).await;
    let session = browser.cookies.borrow().values().next().expect("a session").clone();
    let log = until("the lines of the audit log", async || {
        let lines: String = std::fs::read_dir(setup.data().join("audit"))
            .ok()?
            .flatten()
            .fold(String::new(), |all, file| all + &std::fs::read_to_string(file.path()).unwrap_or_default());
        lines.contains("dashboard.logout").then_some(lines)
    })
    .await;
    for part in ["dashboard.login", "dashboard.refused", "dashboard operator at 127.0.0.1", "tasks_purge"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    for secret in [ADMIN_TOKEN, &anna, &session] {
        assert!(!log.contains(secret) && !host.log().contains(secret), "a secret is in a log");
    }
}

#[tokio::test]
async fn requests_of_a_requestor_count_against_its_rate() {
    let setup = setup(&["text"]).config("[limits]\nrequests_per_second = 5\n");
    let host = setup.start().await;
    let browser = Browser::with_token(&host, &setup.token("anna", "acme").await).await;
    let refused = until("a refusal", async || {
        let page = browser.get("/tasks").await;
        (page.status == StatusCode::TOO_MANY_REQUESTS).then_some(page)
    })
    .await;
    assert!(refused.text.contains("requests_per_second") && refused.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn dashboard_is_off_by_default_and_needs_tls_beyond_loopback() {
    let host = Setup::with(&["text"]).start().await;
    assert!(!host.log().contains("the dashboard is served"));
    let arguments = ["dashboard", "login", "--data"];
    let output = command::output(&mut command::bulkhead(), &arguments, Some(&host.setup.data())).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("dashboard.listen"), "{said}");
    let exposed = Setup::with(&["text"]).config("[dashboard]\nlisten = \"0.0.0.0:0\"\n");
    let (code, said) = exposed.refused().await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("dashboard.tls"), "{said}");
}

/// Servers of other ports are sent what a browser keeps for a name of this machine.
#[tokio::test]
async fn browser_is_sent_on_to_a_name_of_its_own() {
    let setup = setup(&["text"]);
    let host = setup.start().await;
    let made = command::json(&["token", "create", "--requestor", "anna"], &setup.data()).await;
    let browser = Browser::new(&host);
    let visit = async |path: &str, name: Option<&str>| {
        let request = browser.request(Method::GET, path).header("sec-fetch-site", "none");
        browser.send(name.iter().fold(request, |request, name| request.header("host", *name))).await
    };
    let mut names = Vec::new();
    for path in ["/", "/login", "/tasks?status=working"] {
        let page = visit(path, None).await;
        let (_, place) = page.leads_to().split_once("http://").expect("an address");
        let (name, rest) = place.split_once('/').expect("a path");
        assert_eq!((page.status, format!("/{rest}").as_str()), (StatusCode::SEE_OTHER, path));
        assert!(name.starts_with("bulkhead-") && page.headers.get(SET_COOKIE).is_none(), "{name}");
        names.push(name.to_owned());
    }
    let [first, second, _] = &names[..] else { unreachable!() };
    assert_ne!(first, second, "a fresh one each time");
    let form_token = visit("/login", Some(first)).await.token("/login");
    let fields = [("form_token", form_token.as_str()), ("token", made["token"].as_str().expect("a token"))];
    let sent = browser.request(Method::POST, "/login").header("sec-fetch-site", "same-origin").header("host", first);
    let done = browser.send(form(sent, &fields)).await;
    assert_eq!((done.status, done.leads_to()), (StatusCode::SEE_OTHER, "/"), "{}", done.text);
    assert_eq!(visit("/tasks", Some(first)).await.status, StatusCode::OK);
    let shared = visit("/tasks", None).await;
    assert_eq!(shared.status, StatusCode::SEE_OTHER, "at a name that other servers have, a session is none");
    assert!(shared.leads_to().starts_with("http://bulkhead-"), "{}", shared.leads_to());
}
