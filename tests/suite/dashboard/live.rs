//! Live pages: what arrives while a page is open, who may follow what, how much of it, and when it ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::command;
use tests::wait::{soon, until};

use super::NOBODY;
use super::browser::{Browser, client, setup};

/// One event of a stream.
#[derive(Debug)]
struct Event {
    name: String,
    /// What a browser hands to the script.
    data: String,
}

/// A page that is followed.
struct Live {
    response: reqwest::Response,
    unread: String,
}

impl Live {
    /// Follows a page; or what was answered instead.
    async fn open(browser: &Browser, page: &str) -> Result<Self, (StatusCode, String)> {
        let response = soon("a stream", browser.request(Method::GET, &live(page)).send()).await.expect("an answer");
        let status = response.status();
        if status != StatusCode::OK {
            return Err((status, response.text().await.expect("a text")));
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Ok(Self { response, unread: String::new() })
    }

    /// The next event; `None`: the stream has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let fields = |field: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
                    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
                };
                let event = Event { name: fields("event"), data: fields("data") };
                self.unread = rest.to_owned();
                if !event.name.is_empty() {
                    return Some(event);
                }
            }
            let piece = soon("an event", self.response.chunk()).await.expect("the stream is not cut")?;
            self.unread.push_str(std::str::from_utf8(&piece).expect("a text"));
        }
    }

    /// Reads on until a part holds this text; all that came until then, by id.
    async fn until(&mut self, id: &str, text: &str) -> BTreeMap<String, String> {
        let mut parts = BTreeMap::new();
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before {text}: {parts:?}"));
            assert_eq!(event.name, "part", "{event:?}");
            let (at, part) = event.data.split_once('\n').expect("an id and a part");
            parts.insert(at.to_owned(), part.to_owned());
            if at == id && part.contains(text) {
                return parts;
            }
        }
    }

    /// Reads to the end, which must come; the last event before it.
    async fn end(mut self) -> Option<Event> {
        let mut last = None;
        while let Some(event) = self.next().await {
            last = Some(event);
        }
        last
    }
}

fn live(page: &str) -> String {
    let escaped: String = page
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("/live?page={escaped}")
}

/// On the overview, while one task runs.
const RUNS_ONE: &str = "<dt>Tasks running</dt><dd><a href=\"/tasks?status=running\">1</a></dd>";

#[tokio::test]
async fn own_task_and_list_change_while_they_are_open() {
    let setup = setup(&["desk", "probe"]);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    let task = own.task("wait", json!({"ms": 600_000})).await;
    own.until_status(&task, "working").await;
    let browser = Browser::with_token(&host, &token).await;
    let page = format!("/tasks/{task}");
    let mut one = Live::open(&browser, &page).await.expect("a stream");
    let first = one.until("live-result", "Not yet").await;
    let ids: Vec<_> = first.keys().map(String::as_str).collect();
    assert_eq!(ids, ["live-actions", "live-inputs", "live-result", "live-steering", "live-task", "live-timeline"]);
    assert!(first["live-task"].contains("status running"), "{first:?}");
    let mut list = Live::open(&browser, "/tasks?status=paused").await.expect("a stream");
    list.until("live-tasks", "No task fits the filter").await;

    own.about("tasks/pause", &task).await.expect("a paused task");
    one.until("live-task", "status paused").await;
    let shown = list.until("live-tasks", &page).await;
    assert!(shown["live-tasks"].contains("status paused"), "{shown:?}");
    // The forms that come are those of this session.
    let changed = one.until("live-actions", "/resume").await;
    let actions = &changed["live-actions"];
    let (_, form) = actions.split_once(&format!("action=\"{page}/resume\"")).expect("a form");
    let (_, value) = form.split_once("name=\"form_token\" value=\"").expect("a token");
    let done = browser.post(&format!("{page}/resume"), value.split('"').next().expect("a value"), &[]).await;
    assert_eq!(done.leads_to(), page);
    // What has not changed does not come again.
    let resumed = one.until("live-timeline", "resumed<small>").await;
    for same in ["live-result", "live-inputs"] {
        assert!(!changed.contains_key(same) && !resumed.contains_key(same), "{changed:?} {resumed:?}");
    }
    list.until("live-tasks", "No task fits the filter").await;

    // A new task is on the list at once, though nothing happens to it after that.
    let mut all = Live::open(&browser, "/tasks").await.expect("a stream");
    let fresh = own.task("wait", json!({"ms": 600_000})).await;
    all.until("live-tasks", &format!("/tasks/{fresh}")).await;

    // Questions come with their fields.
    let asking = own.task("ask_many", json!({"count": 1})).await;
    let mut asked = Live::open(&browser, &format!("/tasks/{asking}")).await.expect("a stream");
    asked.until("live-inputs", "name=\"field.value\"").await;
    // A task that is removed ends the stream of its page, for good.
    own.about("tasks/cancel", &task).await.expect("a cancelled task");
    one.until("live-task", "status cancelled").await;
    assert_eq!(browser.press(&page, &format!("{page}/delete"), &[]).await.leads_to(), "/tasks");
    assert_eq!(one.end().await.expect("a last event").name, "over");
}

#[tokio::test]
async fn operators_see_lists_plugins_and_tasks_change() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let own = client(&host, &setup.token("anna", "acme").await).await;
    setup.token("ben", "globex").await;
    let operator = Browser::operator(&host).await;
    let mut overview = Live::open(&operator, "/").await.expect("a stream");
    overview.until("live-overview", "Needs attention").await;
    let mut of_acme = Live::open(&operator, "/tasks?tenant=acme").await.expect("a stream");
    let mut of_globex = Live::open(&operator, "/tasks?tenant=globex").await.expect("a stream");
    let mut plugins = Live::open(&operator, "/plugins").await.expect("a stream");
    of_acme.until("live-tasks", "No task fits").await;
    of_globex.until("live-tasks", "No task fits").await;
    plugins.until("live-plugins", "/plugins/desk").await;

    let task = own.task("wait", json!({"ms": 600_000})).await;
    let page = format!("/tasks/{task}");
    of_acme.until("live-tasks", &page).await;
    overview.until("live-overview", RUNS_ONE).await;
    let mut one = Live::open(&operator, &page).await.expect("a stream");
    one.until("live-timeline", "created").await;
    let press = format!("{page}/pause");
    assert_eq!(operator.press(&page, &press, &[]).await.leads_to(), page);
    one.until("live-task", "status paused").await;
    of_acme.until("live-tasks", "status paused").await;
    // What the other filter shows has not changed: nothing has come but its first part.
    let other = tokio::time::timeout(Duration::from_millis(100), of_globex.next()).await;
    assert!(other.is_err(), "{other:?}");
    // Pages without live parts, and those that are none.
    for none in ["/tenants", "/plugins/desk", "/nothing", "/live", "", "tasks", "http://example.com/"] {
        let (status, _) = Live::open(&operator, none).await.err().expect("a refusal");
        assert_eq!(status, StatusCode::NOT_FOUND, "{none}");
    }
}

#[tokio::test]
async fn foreign_task_is_followed_like_one_that_never_was() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let ben = setup.token("ben", "acme").await;
    let task = client(&host, &anna).await.task("wait", json!({"ms": 600_000})).await;
    let browser = Browser::with_token(&host, &ben).await;
    let mut answers = Vec::new();
    for id in [&task, NOBODY] {
        let page = browser.get(&format!("/tasks/{id}")).await;
        answers.push((page.status, page.text));
        answers.push(Live::open(&browser, &format!("/tasks/{id}")).await.err().expect("a refusal"));
    }
    assert_eq!(answers[0].0, StatusCode::NOT_FOUND);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    // Nor does the list tell of what others do.
    let mut list = Live::open(&browser, "/tasks").await.expect("a stream");
    list.until("live-tasks", "You have no tasks").await;
    client(&host, &anna).await.about("tasks/cancel", &task).await.expect("a cancelled task");
    let other = tokio::time::timeout(Duration::from_millis(500), list.next()).await;
    assert!(other.is_err(), "{other:?}");
    // Operators' pages are none of theirs, and nobody follows without a session or from elsewhere.
    let refused = async |browser: &Browser, page: &str| Live::open(browser, page).await.err().expect("a refusal").0;
    assert_eq!(refused(&browser, "/plugins").await, StatusCode::NOT_FOUND);
    assert_eq!(refused(&Browser::new(&host), "/tasks").await, StatusCode::UNAUTHORIZED);
    let foreign = browser.request(Method::GET, &live("/tasks")).header("sec-fetch-site", "same-site");
    let foreign = foreign.header("host", format!("bulkhead-{}.localhost", "0".repeat(32)));
    assert_eq!(browser.send(foreign).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn stream_ends_with_its_session() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let made = command::json(&["token", "create", "--requestor", "anna"], &setup.data()).await;
    let token = made["token"].as_str().expect("a token");
    let id = made["id"].as_str().expect("an id");
    let revoked = Browser::with_token(&host, token).await;
    let out = Browser::operator(&host).await;
    let own = Live::open(&revoked, "/tasks").await.expect("a stream");
    let of_operator = Live::open(&out, "/tasks").await.expect("a stream");
    out.press("/", "/logout", &[]).await;
    let since = Instant::now();
    assert_eq!(of_operator.end().await.expect("a last event").name, "over");
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    command::json(&["token", "revoke", id], &setup.data()).await;
    let since = Instant::now();
    assert_eq!(own.end().await.expect("a last event").name, "over");
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}

#[tokio::test]
async fn streams_are_bounded_for_a_session_and_for_the_host() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let mut streams = Vec::new();
    for (number, name) in ["anna", "ben", "carl"].into_iter().enumerate() {
        let token = setup.token(name, &format!("tenant-{number}")).await;
        for _ in 0..8 {
            let mut browser = Browser::new(&host);
            // One address has so many connections; this machine has several.
            let from = [127, 0, 0, 10 + u8::try_from(number).expect("a few")];
            let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
            browser.http = http.local_address(std::net::IpAddr::from(from)).build().expect("a client");
            assert_eq!(browser.log_in(&token).await.leads_to(), "/");
            for _ in 0..8 {
                streams.push(Live::open(&browser, "/tasks").await.expect("a stream"));
            }
            let (status, said) = Live::open(&browser, "/tasks").await.err().expect("a refusal");
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{said}");
            assert!(said.contains("close one"), "{said}");
        }
    }
    let more = Browser::with_token(&host, &setup.token("dora", "acme").await).await;
    let (status, said) = Live::open(&more, "/tasks").await.err().expect("a refusal");
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{said}");
    assert!(said.contains("reload"), "{said}");
    // Pages are served all the same, and operators follow theirs.
    assert_eq!(more.get("/tasks").await.status, StatusCode::OK);
    let operator = Browser::operator(&host).await;
    let _overview = Live::open(&operator, "/").await.expect("a stream");
    // What goes makes room.
    streams.truncate(100);
    until("room", async || Live::open(&more, "/tasks").await.ok()).await;
}

#[tokio::test]
async fn looks_of_operators_leave_one_line_in_the_audit_log() {
    let setup = setup(&["desk"]).config("[audit]\nenabled = true\n");
    let host = setup.start().await;
    let own = client(&host, &setup.token("anna", "acme").await).await;
    let operator = Browser::operator(&host).await;
    let lines = || {
        let files = std::fs::read_dir(setup.data().join("audit")).expect("a log").flatten();
        files.fold(String::new(), |all, file| all + &std::fs::read_to_string(file.path()).unwrap_or_default())
    };
    let mut overview = Live::open(&operator, "/").await.expect("a stream");
    let mut list = Live::open(&operator, "/tasks?tenant=acme").await.expect("a stream");
    until("two lines", async || (lines().matches("\"dashboard.live\"").count() == 2).then_some(())).await;
    let before = lines();
    assert!(before.contains("dashboard operator at 127.0.0.1") && before.contains("/tasks?tenant=acme"), "{before}");
    assert!(!before.contains("limits_in_use") && !before.contains("tasks_page"), "{before}");
    let task = own.task("wait", json!({"ms": 600_000})).await;
    list.until("live-tasks", &task).await;
    overview.until("live-overview", RUNS_ONE).await;
    // Several polls later: the lines of the task are all that has come.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = lines();
    let of_operators = |log: &str| log.lines().filter(|line| line.contains("dashboard operator at")).count();
    assert_eq!(of_operators(&after), of_operators(&before), "{after}");
}

#[tokio::test]
async fn pages_do_without_a_script() {
    let setup = setup(&["probe", "desk"]);
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    let waits = own.task("wait", json!({"ms": 600_000})).await;
    let asks = own.task("ask_many", json!({"count": 1})).await;
    own.until_status(&asks, "input_required").await;
    let browser = Browser::with_token(&host, &token).await;
    let operator = Browser::operator(&host).await;
    let script = operator.get("/").await.text;
    let (_, script) = script.split_once("<script src=\"").expect("a script");
    let script = operator.get(script.split('"').next().expect("an address")).await;
    assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
    assert!(script.text.len() <= 8 << 10 && script.text.contains("EventSource"));
    const RELOADS: &str = "<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>";
    for (browser, path, reloads) in [
        (&operator, "/", true),
        (&operator, "/plugins", false),
        (&operator, "/tenants", false),
        (&operator, "/tasks", false),
        (&operator, &format!("/tasks/{waits}"), true),
        // A person fills something in here.
        (&browser, &format!("/tasks/{waits}"), false),
        (&browser, &format!("/tasks/{asks}"), false),
        (&browser, "/tasks", false),
        (&browser, "/login", false),
    ] {
        let text = browser.get(path).await.text;
        assert_eq!(text.contains(RELOADS), reloads, "{path}: {text}");
    }
}
