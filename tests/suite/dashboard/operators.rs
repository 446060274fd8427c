//! What operators do at the dashboard beside single tasks: who may, what it does, and what is said of it.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::wait::until;
use tests::{Host, command};

use super::browser::{Browser, client, form, setup};

const AUDIT: &str = "[audit]\nenabled = true\n";

async fn is_draining(host: &Host) -> bool {
    let health = command::outcome(&["host", "health"], &host.setup.data()).await;
    health.1["draining"] == true
}

#[tokio::test]
async fn pages_and_orders_of_operators_are_theirs_alone() {
    let setup = setup(&["text"]).config(AUDIT);
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let id =
        command::json(&["token", "list"], &setup.data()).await["tokens"][0]["id"].as_str().expect("an id").to_owned();
    let nobody = Browser::new(&host);
    let requestor = Browser::with_token(&host, &anna).await;
    let operator = Browser::operator(&host).await;
    for path in ["/denials", "/audit", "/audit?event=task.&tenant=acme", "/tokens", "/tokens?tenant=acme", "/hosts"] {
        assert_eq!(nobody.get(path).await.leads_to(), "/login", "{path}");
        assert_eq!(requestor.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
        let page = operator.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.text.contains("aria-current=\"page\"") && !page.text.contains(" style="), "{path}");
    }
    let revoke = format!("/tokens/{id}/revoke");
    let orders: [(&str, &[(&str, &str)]); 4] = [
        ("/tokens", &[("requestor", "eve"), ("tenant", "acme")]),
        (&revoke, &[]),
        ("/hosts/drain", &[("do", "begin")]),
        ("/tasks/bulk", &[("do", "cancel"), ("id", "0123456789abcdef0123456789abcdef")]),
    ];
    let foreign = operator.get("/tasks").await.token("/logout");
    let of_requestor = requestor.get("/tasks").await.token("/logout");
    for (path, fields) in orders {
        assert_eq!(nobody.post(path, "", fields).await.status, StatusCode::UNAUTHORIZED, "{path}");
        for (browser, tokens) in
            [(&requestor, ["", &of_requestor, &foreign]), (&operator, ["", &foreign, &of_requestor])]
        {
            for token in tokens {
                assert_eq!(browser.post(path, token, fields).await.status, StatusCode::FORBIDDEN, "{path}");
            }
        }
        for headers in [&[][..], &[("origin", "http://evil.example")], &[("sec-fetch-site", "cross-site")]] {
            let request = headers
                .iter()
                .fold(operator.request(Method::POST, path), |request, (name, value)| request.header(*name, *value));
            assert_eq!(operator.send(form(request, fields)).await.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
        if path != "/tokens" {
            assert_eq!(operator.get(path).await.status, StatusCode::NOT_FOUND, "nothing changes by a GET: {path}");
        }
    }
    let tokens = command::json(&["token", "list"], &setup.data()).await;
    assert_eq!(tokens["tokens"].as_array().map(Vec::len), Some(1), "{tokens}");
    assert!(tokens["tokens"][0]["revoked_at"].is_null() && !is_draining(&host).await, "{tokens}");
}

#[tokio::test]
async fn token_is_shown_once_works_and_is_revoked() {
    let setup = setup(&["text"]).config(AUDIT);
    let host = setup.start().await;
    let operator = Browser::operator(&host).await;
    let refused = operator.press("/tokens", "/tokens", &[("requestor", "a\u{7}b"), ("tenant", "acme")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    assert!(refused.text.contains("notice bad") && refused.text.contains("value=\"acme\""), "{}", refused.text);
    let fields = [("requestor", "anna"), ("tenant", "acme"), ("name", "laptop"), ("days", "30"), ("scopes", "")];
    let made = operator.press("/tokens", "/tokens", &fields).await;
    assert_eq!((made.status, made.headers["cache-control"].to_str().ok()), (StatusCode::OK, Some("no-store")));
    let (_, rest) = made.text.split_once("<pre tabindex=\"0\">").expect("a token");
    let token = rest.split('<').next().expect("a token").to_owned();
    let listed = operator.get("/tokens").await.text;
    assert!(listed.contains("laptop") && listed.contains("anna") && !listed.contains(&token), "{listed}");
    assert!(!operator.get("/tokens?tenant=globex").await.text.contains("laptop"));

    let own = client(&host, &token).await;
    own.tool("echo", json!({"text": "a"})).await.expect("a result");
    let id =
        command::json(&["token", "list"], &setup.data()).await["tokens"][0]["id"].as_str().expect("an id").to_owned();
    let done = operator.press("/tokens", &format!("/tokens/{id}/revoke"), &[]).await;
    assert_eq!(done.leads_to(), "/tokens");
    let page = operator.get("/tokens").await.text;
    assert!(page.contains("revoked") && !page.contains("/revoke\""), "{page}");
    assert_eq!(own.send("ping", json!({})).await.status, StatusCode::UNAUTHORIZED);
    let log = audit_text(&setup.data(), "token_revoke").await;
    assert!(log.contains("token_create") && log.contains("dashboard operator at 127.0.0.1"), "{log}");
    assert!(!log.contains(&token) && !host.log().contains(&token), "the secret is in a log");
}

/// The lines of the audit log, once they have this.
async fn audit_text(data: &std::path::Path, part: &str) -> String {
    until("the lines of the audit log", async || {
        let files = std::fs::read_dir(data.join("audit")).ok()?.flatten();
        let text: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        text.contains(part).then_some(text)
    })
    .await
}

#[tokio::test]
async fn drain_is_begun_and_ended_with_a_word() {
    let setup = setup(&["text"]);
    let host = setup.start().await;
    let own = client(&host, &setup.token("anna", "acme").await).await;
    let operator = Browser::operator(&host).await;
    let page = operator.get("/hosts").await.text;
    assert!(page.contains("<summary>Drain…</summary>") && page.contains("value=\"begin\""), "{page}");
    let nonsense = operator.press("/hosts", "/hosts/drain", &[("do", "stop")]).await;
    assert_eq!(nonsense.status, StatusCode::NOT_FOUND);
    let begun = operator.press("/hosts", "/hosts/drain", &[("do", "begin")]).await;
    assert_eq!(begun.leads_to(), "/hosts");
    own.tool("echo", json!({"text": "a"})).await.expect_err("nothing new");
    assert!(operator.get("/hosts").await.text.contains("The host drains"));
    let overview = operator.get("/").await.text;
    assert!(overview.contains("<a href=\"/hosts\">The host drains: it takes nothing new"), "{overview}");
    operator.press("/hosts", "/hosts/drain", &[("do", "end")]).await;
    own.tool("echo", json!({"text": "a"})).await.expect("a result");
    assert!(!operator.get("/").await.text.contains("The host drains"));
}

#[tokio::test]
async fn one_order_for_several_tasks_says_what_came_of_each() {
    let setup = setup(&["desk"]);
    let host = setup.start().await;
    let own = client(&host, &setup.token("anna", "acme").await).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let task = own.task("wait", json!({"ms": 600_000})).await;
        own.until_status(&task, "working").await;
        tasks.push(task);
    }
    let operator = Browser::operator(&host).await;
    let order = async |order: &str, ids: &[&str], more: &[(&str, &str)]| {
        let ids: Vec<_> = ids.iter().map(|id| ("id", *id)).collect();
        let fields = [&[("do", order)], &ids[..], more].concat();
        operator.press("/tasks", "/tasks/bulk", &fields).await
    };
    let page = operator.get("/tasks").await.text;
    assert!(tasks.iter().all(|id| page.contains(&format!("name=\"id\" value=\"{id}\""))), "{page}");
    let none = "0123456789abcdef0123456789abcdef";
    let first = tasks[0].as_str();
    let second = tasks[1].as_str();
    let paused = order("pause", &[first, second, none, "<b>", first], &[]).await;
    assert!(paused.text.contains("2 done, 2 refused.") && paused.text.contains("no such task"), "{}", paused.text);
    assert!(!paused.text.contains("<b>"), "{}", paused.text);
    assert_eq!(own.about("tasks/get", &tasks[2]).await.expect("a task")["status"], "working");
    let listed = operator.get("/tasks?status=paused").await.text;
    assert!(listed.contains(first) && listed.contains(second) && !listed.contains(&tasks[2]), "{listed}");
    let resumed = order("resume", &[first, &tasks[2]], &[]).await;
    assert!(resumed.text.contains("1 done, 1 refused.") && resumed.text.contains("not paused"), "{}", resumed.text);
    let cancelled = order("cancel", &[first, second], &[]).await;
    assert!(cancelled.text.contains("2 done, 0 refused."), "{}", cancelled.text);
    assert_eq!(own.about("tasks/get", first).await.expect("a task")["status"], "cancelled");

    // What is removed is asked for twice.
    let asked = order("purge", &[first, second], &[]).await;
    assert!(asked.text.contains("Purge 2 tasks") && own.about("tasks/get", first).await.is_ok(), "{}", asked.text);
    let token = asked.token("/tasks/bulk");
    let fields = [("do", "purge"), ("confirmed", "yes"), ("id", first), ("id", second)];
    let purged = operator.post("/tasks/bulk", &token, &fields).await;
    assert!(purged.text.contains("2 done, 0 refused."), "{}", purged.text);
    own.about("tasks/get", first).await.expect_err("it is gone");

    let many: Vec<String> = (0..201).map(|number| format!("{number:032x}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (what, ids) in [("cancel", &many[..]), ("cancel", &many[..0]), ("fly", &many[..1])] {
        assert_eq!(order(what, ids, &[]).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{what}");
    }
    assert_eq!(order("cancel", &many[..200], &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn audit_log_is_read_in_pages_with_its_chain() {
    let setup = setup(&["text"]).config(AUDIT);
    let host = setup.start().await;
    let own = client(&host, &setup.token("anna", "acme").await).await;
    for _ in 0..120 {
        own.tool("echo", json!({"text": "marker-argument"})).await.expect("a result");
    }
    let operator = Browser::operator(&host).await;
    let page = async |path: &str| operator.get(path).await.text;
    let shown = until("the line of the login", async || {
        let shown = page("/audit?event=dashboard.login").await;
        shown.contains("<td>dashboard.login</td>").then_some(shown)
    })
    .await;
    assert!(
        shown.contains("The chain holds from line 1 to line ") && shown.contains("the oldest that is kept"),
        "{shown}"
    );
    assert!(shown.contains("dashboard operator at 127.0.0.1") && !shown.contains("<td>call.ended</td>"), "{shown}");
    // The newest first, all of them once, in small pages.
    let mut path = "/audit?event=call.&tenant=acme".to_owned();
    let mut lines = Vec::new();
    loop {
        let shown = page(&path).await;
        assert!(shown.len() <= 60 << 10 && !shown.contains("marker-argument"), "{} bytes", shown.len());
        let here = shown.split("<tr><td>").skip(1).filter_map(|row| row.split('<').next()?.parse::<u64>().ok());
        lines.extend(here);
        assert!(shown.contains("anna@acme"), "{shown}");
        let Some((before, _)) = shown.split_once("\" rel=\"next\"") else { break };
        path = before.rsplit('"').next().expect("an address").replace("&amp;", "&");
    }
    assert!(lines.len() == 120 && lines.is_sorted_by(|one, other| one > other), "{lines:?}");
    assert!(page("/audit?tenant=none").await.contains("there is no tenant"));
    assert!(page("/audit?after=1.3").await.contains("no page of the audit log ended at this place"));

    let listed = command::json(&["audit", "list", "--event", "dashboard.", "--max", "1"], &setup.data()).await;
    assert_eq!((&listed["lines"][0]["event"], &listed["chain"]["sound"]), (&json!("dashboard.login"), &json!(true)));
    let log = setup.data().join("audit");
    let file =
        std::fs::read_dir(&log).expect("a log").flatten().find(|file| file.file_name() != "lock").expect("a file");
    let text = std::fs::read_to_string(file.path()).expect("a log");
    std::fs::write(file.path(), text.replacen("\"plugin\":\"text\"", "\"plugin\":\"rext\"", 1)).expect("it is written");
    assert!(page("/audit").await.contains("The chain is broken: line "));
}

#[tokio::test]
async fn denials_say_whose_and_which_limit_and_a_host_without_a_log_says_so() {
    let setup = setup(&["text"]).config(AUDIT).config("[limits]\nrequests_per_second = 5\n");
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let own = client(&host, &token).await;
    until("a refusal", async || own.tool("echo", json!({"text": "a"})).await.is_err().then_some(())).await;
    Browser::new(&host).log_in("wrong").await;
    let operator = Browser::operator(&host).await;
    let denials = until("the denials", async || {
        let shown = operator.get("/denials").await.text;
        (shown.contains("requests_per_second") && shown.contains("dashboard.refused")).then_some(shown)
    })
    .await;
    assert!(denials.contains("Refusals of the last hour by limit"), "{denials}");
    until("the limit to need attention", async || {
        let overview = operator.get("/").await.text;
        overview.contains("<a href=\"/denials\">requests_per_second refuses ").then_some(())
    })
    .await;
    assert!(operator.get("/denials?tenant=none").await.text.contains("there is no tenant"));
    let silent = super::browser::setup(&["text"]).start().await;
    let operator = Browser::operator(&silent).await;
    for path in ["/audit", "/denials"] {
        assert!(operator.get(path).await.text.contains("audit.enabled = true"), "{path}");
    }
}

#[tokio::test]
async fn charts_and_tenants_have_numbers_of_calls() {
    let setup = setup(&["text"]);
    let host = setup.start().await;
    let own = Client::connect_as(&host, Some(&setup.token("anna", "acme").await), all_capabilities()).await;
    let operator = Browser::operator(&host).await;
    let overview = until("numbers of calls", async || {
        own.tool("echo", json!({"text": "a"})).await.expect("a result");
        let shown = operator.get("/").await.text;
        shown.contains("ok, a second").then_some(shown)
    })
    .await;
    for part in [
        "<svg viewBox=",
        "class=\"line l0\" d=\"M",
        "p99, ms",
        "guests, % of a processor",
        "running, at most",
        "[metrics]",
    ] {
        assert!(overview.contains(part), "{part} is not in {overview}");
    }
    let (_, calls) = overview.split_once("ok, a second").expect("a table");
    let rate = calls.split("</td><td>").nth(1).and_then(|cell| cell.split('<').next()).expect("a number");
    assert!(rate.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{rate} in {overview}");
    assert!(overview.len() <= 60 << 10 && !overview.contains(" style="), "{} bytes", overview.len());

    let tenant = operator.get("/tenants/acme").await.text;
    for part in ["Calls by day", "Usage by day", "href=\"/tasks?tenant=acme\"", "<meter"] {
        assert!(tenant.contains(part), "{part} is not in {tenant}");
    }
    let none = operator.get("/tasks?tenant=none&status=running").await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    assert!(none.text.contains("There is no tenant none.") && none.text.contains("value=\"none\""), "{}", none.text);
    assert!(operator.get("/tasks?tenant=acme").await.text.contains("No task fits."));
}

#[tokio::test]
async fn durable_task_says_so_on_its_pages_and_is_released_there() {
    let setup = setup(&[]).plugin("desk", "durable = \"auto\"");
    let host = setup.start().await;
    let anna = setup.token("anna", "acme").await;
    let own = client(&host, &anna).await;
    let task = own.task("book_trip", json!({})).await;
    own.until_status(&task, "input_required").await;
    drop(own);

    let host = host.kill().await.start().await;
    let operator = Browser::operator(&host).await;
    let requestor = Browser::with_token(&host, &anna).await;
    let path = format!("/tasks/{task}");
    let page = operator.get(&path).await;
    for text in ["<dt>Durable</dt><dd>journal, ", "<dt>Dormant</dt><dd>since ", "the run was lost with its host"] {
        assert!(page.text.contains(text), "{text}: {}", page.text);
    }
    let page = requestor.get(&path).await;
    assert!(page.text.contains("the run was lost with its host"), "{}", page.text);

    command::json(&["tasks", "hold", &task], &setup.data()).await;
    let page = operator.get(&path).await;
    assert!(page.text.contains("it is held by the operator") && page.text.contains("Release"), "{}", page.text);
    let of_requestor = requestor.get(&path).await.text;
    assert!(of_requestor.contains("it is held") && !of_requestor.contains("/resume"), "{of_requestor}");
    let release = format!("{path}/release");
    assert_eq!(operator.post(&release, &page.token(&release), &[]).await.status, StatusCode::SEE_OTHER);
    let shown = command::json(&["tasks", "show", &task], &setup.data()).await;
    assert_eq!((&shown["status"], shown.get("held")), (&json!("input_required"), None), "{shown}");
}
