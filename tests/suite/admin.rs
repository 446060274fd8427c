//! Administration: everybody's tasks, limits in use, draining and another configuration, here and over the network.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::modern::Modern;
use tests::place::variant;
use tests::wait::{soon, until};
use tests::{Host, Setup, command};

use super::egress::Web;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

async fn admin(host: &Host, arguments: &[&str]) -> (Option<i32>, Value) {
    let arguments = [arguments, &["--json"]].concat();
    let output = command::output(&mut command::bulkhead(), &with_data(&arguments, &host.setup.data()), None).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.lines().last().unwrap_or_default();
    let value = serde_json::from_str(last).unwrap_or_else(|_| json!(String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), value)
}

fn with_data<'a>(arguments: &[&'a str], data: &'a Path) -> Vec<&'a str> {
    let data = ["--data", data.to_str().expect("a path")];
    arguments.iter().copied().chain(data).collect()
}

async fn done(host: &Host, arguments: &[&str]) -> Value {
    let (code, value) = admin(host, arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {value}");
    value
}

async fn client(host: &Host, requestor: &str, tenant: &str) -> Client {
    let token = host.setup.token(requestor, tenant).await;
    Client::connect_as(host, Some(&token), all_capabilities()).await
}

/// The audit log, once it has so many lines with this text: it is written a moment after.
async fn audit_log(setup: &Setup, text: &str, count: usize) -> String {
    until("the audit log", async || {
        let arguments = ["audit", "tail", "-n", "200", "--json", "--data"];
        let log = command::run(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
        (log.lines().filter(|line| line.contains(text)).count() >= count).then_some(log)
    })
    .await
}

fn ids(value: &Value) -> Vec<String> {
    let tasks = value["tasks"].as_array().unwrap_or_else(|| panic!("no tasks: {value}"));
    tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn admin_lists_steers_and_purges_tasks_of_all_requestors() {
    let setup = Setup::with(&["hostile", "text"]).config("[audit]\nenabled = true");
    let host = setup.start().await;
    let anna = client(&host, "anna", "acme").await;
    let ben = client(&host, "ben", "globex").await;
    let mut of_anna = Vec::new();
    for _ in 0..3 {
        of_anna.push(anna.task("ignore_cancel", json!({})).await);
    }
    let of_ben = ben.task("ignore_cancel", json!({})).await;
    let over = ben.task("trap", json!({})).await;
    ben.until_status(&over, "failed").await;

    assert_eq!(ids(&done(&host, &["tasks", "list", "--page"]).await).len(), 5);
    let mut listed = ids(&done(&host, &["tasks", "list", "--page", "--tenant", "acme"]).await);
    listed.sort();
    of_anna.sort();
    assert_eq!(listed, of_anna);
    assert_eq!(
        ids(&done(&host, &["tasks", "list", "--page", "--requestor", "ben", "--status", "running"]).await),
        [of_ben.as_str()]
    );
    assert_eq!(ids(&done(&host, &["tasks", "list", "--page", "--plugin", "text"]).await), [""; 0]);
    assert_eq!(ids(&done(&host, &["tasks", "list", "--page", "--status", "failed"]).await), [over.as_str()]);
    let (code, said) = admin(&host, &["tasks", "list", "--page", "--status", "nonsense"]).await;
    assert!(code != Some(0) && said.to_string().contains("input_required"), "{said}");
    // Pages meet without a gap.
    let mut all = Vec::new();
    let mut after = None::<String>;
    loop {
        let mut arguments = vec!["tasks", "list", "--page", "--max", "2"];
        arguments.extend(after.iter().flat_map(|place| ["--after", place.as_str()]));
        let page = done(&host, &arguments).await;
        all.extend(ids(&page));
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    let count = all.len();
    let distinct = all.into_iter().collect::<std::collections::HashSet<_>>();
    assert_eq!((count, distinct.len()), (5, 5));

    let shown = done(&host, &["tasks", "show", &of_ben]).await;
    assert_eq!((&shown["plugin"], &shown["tenant"]), (&json!("hostile"), &json!("globex")));
    let paused = done(&host, &["tasks", "pause", "--batch", "--tenant", "acme", "--message", "a moment"]).await;
    assert_eq!(ids(&paused).len(), 3);
    assert_eq!(done(&host, &["tasks", "show", &of_anna[0]]).await["status_message"], "a moment");
    assert_eq!(ids(&done(&host, &["tasks", "resume", "--batch", &of_anna[0]]).await).len(), 1);
    // One that cannot be does not keep the others from it.
    let (code, value) = admin(&host, &["tasks", "cancel", "--batch", &over, &of_anna[0]]).await;
    assert_eq!(
        (code, ids(&value), value["refused"][0]["id"].as_str()),
        (Some(1), vec![of_anna[0].clone()], Some(over.as_str()))
    );
    let (code, _) = admin(&host, &["tasks", "purge", "--batch"]).await;
    assert_ne!(code, Some(0), "nothing is purged without saying what");
    assert_eq!(ids(&done(&host, &["tasks", "purge", "--batch", "--tenant", "acme"]).await).len(), 3);
    let gone = anna.about("tasks/get", &of_anna[1]).await.expect_err("no task");
    assert_eq!(gone.code, anna.about("tasks/get", &"0".repeat(32)).await.expect_err("no task").code);
    assert_eq!(ids(&done(&host, &["tasks", "list", "--page"]).await).len(), 2);

    let log = audit_log(&host.setup, "tasks_purge", 3).await;
    let purges = log.lines().filter(|line| line.contains("tasks_purge")).collect::<Vec<_>>();
    assert_eq!(purges.len(), 3, "{log}");
    assert!(purges.iter().all(|line| line.contains("\"operator\":\"user ")), "{purges:?}");
}

#[tokio::test]
async fn limits_are_shown_with_their_usage() {
    let host = Setup::with(&["hostile"]).config("[tenant.acme.limits]\ncalls_running_per_tenant = 7").start().await;
    let anna = client(&host, "anna", "acme").await;
    host.setup.token("idle", "acme").await;
    let task = anna.task("ignore_cancel", json!({})).await;
    anna.until_status(&task, "working").await;
    let shown = until("the task to be counted", async || {
        let shown = done(&host, &["limits"]).await;
        // It sleeps most of the time, and rests then.
        (shown["requestors"][0]["limits"]["tasks_stored_per_requestor"]["in_use"] == 1).then_some(shown)
    })
    .await;
    assert_eq!(shown["tenants"][0]["limits"]["calls_running_per_tenant"]["max"], 7, "{shown}");
    assert_eq!(shown["host"]["calls_running_total"]["max"], 256);
    let of = |whose: &Value, limit: &str| whose[limit]["in_use"].as_u64().expect("a number");
    let all = &shown["host"];
    let acme = &shown["tenants"][0]["limits"];
    let own = &shown["requestors"][0]["limits"];
    assert_eq!(
        (of(all, "sessions_total"), of(acme, "sessions_per_tenant"), of(own, "sessions_per_requestor")),
        (1, 1, 1)
    );
    assert!(of(all, "connections_max") >= 1, "{all}");
    for (limit, whose) in [("total", all), ("per_tenant", acme), ("per_requestor", own)] {
        for kind in ["requests_open", "event_bytes", "answer_bytes"] {
            assert!(whose[format!("{kind}_{limit}")]["max"].as_u64() > Some(0), "{kind}_{limit}: {whose}");
        }
    }
    assert_eq!(shown["requestors"].as_array().map(Vec::len), Some(1), "who uses nothing is not shown: {shown}");
    let follows = anna.listen().await;
    until("the open request to be counted", async || {
        let shown = done(&host, &["limits"]).await;
        let open = |whose: &Value, limit: &str| whose[limit]["in_use"] == 1;
        let is_seen = open(&shown["requestors"][0]["limits"], "requests_open_per_requestor")
            && open(&shown["tenants"][0]["limits"], "requests_open_per_tenant")
            && open(&shown["host"], "requests_open_total");
        is_seen.then_some(())
    })
    .await;
    drop(follows);
    let asked = done(&host, &["limits", "--requestor", "idle"]).await;
    assert_eq!(asked["requestors"][0]["limits"]["calls_running_per_requestor"]["in_use"], 0, "{asked}");
}

#[tokio::test]
async fn drain_finishes_running_tasks_and_refuses_new_calls() {
    let host = Setup::with(&["primes", "text"]).start().await;
    let client = client(&host, "anna", "acme").await;
    let task = client.task("count_primes", json!({"below": 3_000_000})).await;
    // Whoever follows it may go: it was said, and holds.
    let waiting = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    let drain = ["host", "drain", "--data"];
    let mut following = command::bulkhead()
        .args(drain)
        .arg(host.setup.data())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("a command");
    let refuses = async || (client.tool("echo", json!({"text": "a"})).await.is_err()).then_some(());
    until("the host to take nothing new", refuses).await;
    following.kill().await.expect("it still followed");
    client.tool("echo", json!({"text": "a"})).await.expect_err("nothing new");
    client.about("tasks/cancel", &waiting).await.expect("cancelled");
    let said = done(&host, &["host", "drain"]).await;
    assert_eq!((&said["still"], &said["draining"]), (&json!(true), &json!(true)), "{said}");
    let over = client.about("tasks/get", &task).await.expect("its own task");
    assert_eq!(over["status"], "completed", "what ran was waited for, and can be read");
    client.tool("echo", json!({"text": "a"})).await.expect_err("nothing new");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let ready = async || http.get(host.address("/readyz")).send().await.expect("an answer");
    let response = ready().await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.text().await.expect("a text").contains("draining"));
    assert_eq!(done(&host, &["host", "drain", "--undo"]).await["draining"], false);
    assert_eq!(ready().await.status(), StatusCode::OK);
    client.tool("echo", json!({"text": "a"})).await.expect("a result");
}

fn write(setup: &Setup, change: impl FnOnce(String) -> String) {
    let file = setup.path("bulkhead.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    std::fs::write(file, change(text)).expect("the configuration");
}

/// How many requests of a burst are let through.
async fn burst(client: &Client) -> usize {
    let mut passed = 0;
    for _ in 0..40 {
        passed += usize::from(client.call("ping", json!({})).await.is_ok());
    }
    passed
}

#[tokio::test]
async fn config_reload_applies_wholly_or_not_at_all() {
    let setup = Setup::with(&["text"]).config("[audit]\nenabled = true\n[limits]\nrequests_per_second = 200");
    let host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    assert_eq!(burst(&client).await, 40);
    assert_eq!(done(&host, &["host", "reload"]).await["changed"], json!([]));
    let began = done(&host, &["host", "status"]).await;
    assert_eq!((&began["pid"], &began["draining"]), (&json!(host.pid()), &json!(false)), "{began}");
    assert_eq!(began["data"], json!(setup.data()));
    assert!(began["address"].as_str().is_some_and(|address| address.ends_with("/mcp")), "{began}");

    let good = std::fs::read_to_string(setup.path("bulkhead.toml")).expect("the configuration");
    // What is wrong is named with its file, its line and its key; nothing of it holds.
    write(&setup, |text| text.replace("= 200", "= 1\nnonsense = 1"));
    let (code, said) = admin(&host, &["host", "reload"]).await;
    let said = said.to_string();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("bulkhead.toml:5") && said.contains("limits.nonsense: no such key"), "{said}");
    write(&setup, |_| "[limits\n".to_owned());
    assert_eq!(admin(&host, &["host", "reload"]).await.0, Some(1));
    std::fs::remove_file(setup.path("bulkhead.toml")).expect("a file");
    assert_eq!(admin(&host, &["host", "reload"]).await.0, Some(1));
    // What needs a restart keeps the rest from being taken over, too.
    let at_start = good.replace("= 200", "= 1\n[server]\ndrain_ms = 1");
    std::fs::write(setup.path("bulkhead.toml"), &at_start).expect("the configuration");
    let (code, said) = admin(&host, &["host", "reload"]).await;
    assert!(code == Some(1) && said.to_string().contains("needs a restart: server.drain_ms"), "{said}");
    assert_eq!(burst(&client).await, 40);

    // Not even the names of its tenants are remembered of what is only checked, or refused at the very end.
    let slip = format!("[tenant.acmee.limits]\nsteer_queue = 1\n{good}");
    std::fs::write(setup.path("bulkhead.toml"), &slip).expect("the configuration");
    assert_eq!(done(&host, &["host", "reload", "--check"]).await["changed"], json!(["tenant.acmee.limits"]));
    let nowhere = "[plugin.grants]\ndirectories = [{ host = \"/nowhere/at/all\", guest = \"/data\" }]\n";
    std::fs::write(setup.path("bulkhead.toml"), format!("{slip}\n{nowhere}")).expect("the configuration");
    let (code, said) = admin(&host, &["host", "reload"]).await;
    assert!(code == Some(1) && said.to_string().contains("/nowhere/at/all"), "{said}");
    let tenants = async || command::json(&["tenant", "list"], &setup.data()).await.to_string();
    assert!(!tenants().await.contains("acmee"));
    std::fs::write(setup.path("bulkhead.toml"), &slip).expect("the configuration");
    assert_eq!(done(&host, &["host", "reload"]).await["done"], true);
    assert!(tenants().await.contains("acmee"), "now it was taken over");
    std::fs::write(setup.path("bulkhead.toml"), &good).expect("the configuration");
    assert_eq!(done(&host, &["host", "reload"]).await["done"], true);

    std::fs::write(setup.path("bulkhead.toml"), good.replace("= 200", "= 1")).expect("the configuration");
    let checked = done(&host, &["host", "reload", "--check"]).await;
    assert_eq!((&checked["done"], &checked["changed"]), (&json!(false), &json!(["limits.requests_per_second"])));
    assert_eq!(burst(&client).await, 40);
    let changed = done(&host, &["host", "reload"]).await;
    assert_eq!((&changed["done"], &changed["changed"]), (&json!(true), &checked["changed"]));
    assert!(burst(&client).await < 40, "the new limit holds for a session that was open before");

    let log = audit_log(&setup, "configuration.changed", 9).await;
    let noted: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let noted: Vec<_> = noted.iter().filter(|line| line["event"] == "configuration.changed").collect();
    let last = noted.last().expect("a line");
    assert_eq!(last["configuration_sha256"], changed["configuration_sha256"]);
    let status = done(&host, &["host", "status"]).await;
    assert_eq!(status["config_sha256"], changed["configuration_sha256"], "what is in effect, not what began");
    assert_eq!(status["started_at"], began["started_at"]);
    assert_ne!(last["configuration_sha256"], last["configuration_sha256_before"]);
    assert!(last["operator"].as_str().is_some_and(|who| who.starts_with("user ")), "{last}");
    assert_eq!(noted.iter().filter(|line| line["outcome"] == "refused").count(), 5, "{noted:?}");

    // A signal does the same.
    std::fs::write(setup.path("bulkhead.toml"), &good).expect("the configuration");
    let pid = host.pid().to_string();
    assert!(std::process::Command::new("kill").args(["-HUP", &pid]).status().expect("a signal").success());
    audit_log(&setup, "\"operator\":\"SIGHUP\"", 1).await;
    until("the former limit", async || (burst(&client).await == 40).then_some(())).await;
}

#[tokio::test]
async fn config_reload_changes_tenant_settings() {
    let web = Web::start().await;
    let setup = Setup::new()
        .config("[audit]\nenabled = true")
        .plugin("http", &format!("[plugin.grants]\nhttp = [{:?}]\n", web.origin));
    let host = setup.start().await;
    let anna = client(&host, "anna", "acme").await;
    let ben = client(&host, "ben", "globex").await;
    let reaches = async |client: &Client| {
        let page = client.tool("http_get", json!({"url": format!("{}/page", web.origin)})).await.expect("a result");
        page["isError"] != true
    };
    let good = std::fs::read_to_string(setup.path("bulkhead.toml")).expect("the configuration");
    let configure = |sections: &str| {
        std::fs::write(setup.path("bulkhead.toml"), format!("{sections}\n{good}")).expect("the configuration");
    };
    let add = async |text: &str| {
        let file = setup.path("text.wasm");
        std::fs::write(&file, variant("text", "Compares two", text)).expect("a component");
        let file = file.to_str().expect("a path");
        command::outcome(&["plugin", "add", file, "--name", "text"], &setup.data()).await.1
    };
    assert_eq!(add("Compares two").await["done"], true);
    assert!(reaches(&anna).await && reaches(&ben).await);

    // With something that needs a restart beside it, none of it holds.
    let less = "[tenant.acme]\ncpu_weight = 7\nchanged_definitions = \"allow\"\n[tenant.acme.grants]\nhttp = []\n\
                [tenant.globex]\nchanged_definitions = \"allow\"";
    configure(&format!("{less}\n[server]\ndrain_ms = 1"));
    assert!(admin(&host, &["host", "reload"]).await.1.to_string().contains("needs a restart: server.drain_ms"));
    assert!(reaches(&anna).await);
    configure(less);
    let names = ["tenant.acme.cpu_weight", "tenant.acme.grants", "tenant.acme.changed_definitions"];
    let changed = done(&host, &["host", "reload"]).await;
    assert_eq!(changed["changed"], json!([names.as_slice(), &["tenant.globex.changed_definitions"]].concat()));
    assert!(!reaches(&anna).await && reaches(&ben).await, "the session is older than the bound");
    // Nobody says anything for those of neither tenant, so their plugin's own rule holds.
    assert_eq!(add("Comparez two").await["done"], false);
    let held = command::outcome(&["plugin", "activate", "text", "--tenant", "acme"], &setup.data()).await.1;
    assert_eq!(held["done"], true, "what acme alone gets, acme lets pass: {held}");
    command::json(&["plugin", "rollback", "text"], &setup.data()).await;

    configure(&less.replace("allow", "hold").replace("http = []", "env = []"));
    let changed = done(&host, &["host", "reload"]).await;
    let now = [&names[1..], &["tenant.globex.changed_definitions"]].concat();
    assert_eq!(changed["changed"], json!(now));
    assert!(reaches(&anna).await, "what was taken away is there again");
    assert_eq!(add("Compares tow").await["done"], false);
    let held = command::outcome(&["plugin", "activate", "text", "--tenant", "acme"], &setup.data()).await.1;
    assert_eq!(held["done"], false, "{held}");
    configure("");
    assert_eq!(done(&host, &["host", "reload"]).await["changed"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn kill_during_config_reload_starts_with_the_file() {
    let setup = Setup::with(&["text"]);
    let mut host = setup.start().await;
    let token = setup.token("anna", "acme").await;
    for round in 0..5_u64 {
        let limits = format!("[limits]\nsteer_queue = {}\n[tenant.t{round}.limits]\nsteer_queue = 1\n", round + 1);
        write(&setup, |text| format!("{limits}{}", &text[text.find("[[plugin]]").expect("a plugin")..]));
        let data = setup.data();
        let reload = tokio::spawn(async move {
            let arguments = ["host", "reload", "--data"];
            command::output(&mut command::bulkhead(), &arguments, Some(&data)).await
        });
        tokio::time::sleep(Duration::from_millis(5 * round)).await;
        host.kill().await;
        // It had an answer, or an error: never a hang.
        soon("the command", reload).await.expect("a task");
        host = setup.start().await;
        let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
        client.tool("echo", json!({"text": "a"})).await.expect("a result");
    }
}

#[tokio::test]
async fn config_reload_under_load_fails_no_call() {
    let setup = Setup::new().plugin("text", "# terms\n").config("[[auth.scope]]\nname = \"all\"\ntools = [\"*\"]");
    let host = setup.start().await;
    let data = setup.data();
    let scoped = async |scope: &str| {
        let made = command::json(&["token", "create", "--requestor", "ci", "--scope", scope], &data).await;
        made["token"].as_str().expect("a token").to_owned()
    };
    let all = scoped("all").await;
    let few = scoped("few").await;
    let names = async |modern: &Modern| {
        let list = modern.result("tools/list", json!({})).await;
        list["tools"].as_array().expect("tools").iter().map(|tool| tool["name"].clone()).collect::<Vec<_>>()
    };
    let all = Modern::plain(&host, Some(&all));
    let few = Modern::plain(&host, Some(&few));
    assert!(names(&few).await.is_empty());
    let free = Modern::plain(&host, Some(&setup.token("anna", "acme").await));
    let mut listening = few.send("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})).await;
    soon("the acknowledgement", listening.next()).await.expect("an acknowledgement");

    let stop = AtomicBool::new(false);
    let load = async {
        let mut calls = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            let result = all.call("tools/call", json!({"name": "echo", "arguments": {"text": "x"}})).await;
            result.unwrap_or_else(|failure| panic!("a call failed while the configuration changed: {failure:?}"));
            calls += 1;
        }
        calls
    };
    let change = async {
        let few_scope = "[[auth.scope]]\nname = \"few\"\ntools = [\"echo\"]\n[[auth.scope]]\nname = \"all\"";
        write(&setup, |text| text.replace("[[auth.scope]]\nname = \"all\"", few_scope));
        let changed = done(&host, &["host", "reload"]).await;
        assert_eq!(changed["changed"], json!(["auth.scope"]));
        for round in 0..5_u32 {
            let cpu = format!("[plugin.call]\ncpu_ms = {}\n# terms\n", 1_000 + round);
            let text = std::fs::read_to_string(setup.path("bulkhead.toml")).expect("the configuration");
            let begin = text.find("[plugin.call]").or_else(|| text.find("# terms")).expect("the place");
            std::fs::write(setup.path("bulkhead.toml"), format!("{}{cpu}", &text[..begin])).expect("a file");
            let changed = done(&host, &["host", "reload"]).await;
            assert_eq!(changed["changed"], json!(["plugin text"]), "{round}");
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (calls, ()) = tokio::join!(load, change);
    assert!(calls > 0);
    assert_eq!(names(&few).await, [json!("echo")], "the new scope holds for a token that is older");
    let rest = async { while listening.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(15), rest).await.expect("a stream with other rights than before ends");
    // A new name in front is what is offered from now on.
    write(&setup, |text| text.replace("[plugin.call]", "prefix = \"t_\"\n[plugin.call]"));
    done(&host, &["host", "reload"]).await;
    assert!(names(&free).await.contains(&json!("t_echo")));
    // Terms that cannot be are refused, and the former ones hold.
    write(&setup, |text| {
        text.replace("prefix = \"t_\"", "prefix = \"u_\"")
            .replace("# terms", "[plugin.grants]\ndirs = [{ host = \"/nowhere/at/all\", guest = \"/x\" }]")
    });
    let (code, said) = admin(&host, &["host", "reload"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(names(&free).await.contains(&json!("t_echo")), "{said}");
}

/// The address of the administrators' listener, from the log.
async fn listener(host: &Host) -> String {
    until("the administrators' listener", async || {
        let log = host.log();
        let line = log.lines().find(|line| line.contains("administrators are served"))?.to_owned();
        let at = line.find("http://127.0.0.1:").or_else(|| line.find("https://127.0.0.1:"))?;
        let rest = &line[at..];
        Some(rest[..rest.find(['"', ' ']).unwrap_or(rest.len())].to_owned())
    })
    .await
}

#[tokio::test]
async fn remote_admin_needs_its_own_token() {
    let setup = Setup::with(&["text"]);
    let secret = setup.path("admin.token");
    std::fs::write(&secret, format!("{TOKEN}\n")).expect("a file");
    let setup =
        setup.config(&format!("[audit]\nenabled = true\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = {secret:?}"));
    let host = setup.start().await;
    let url = listener(&host).await;
    let file = secret.to_str().expect("a path");
    let remote = async |file: &str, arguments: &[&str]| {
        let arguments = [arguments, &["--json", "--url", &url, "--token-file", file]].concat();
        let output = command::output(&mut command::bulkhead(), &arguments, None).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), serde_json::from_str::<Value>(said.trim()).unwrap_or_default())
    };
    let anna = client(&host, "anna", "acme").await;
    let (code, tokens) = remote(file, &["token", "list"]).await;
    assert_eq!((code, &tokens["tokens"][0]["requestor"]), (Some(0), &json!("anna")));
    assert_eq!(remote(file, &["limits"]).await.0, Some(0));
    assert_eq!(remote(file, &["host", "reload"]).await.1["done"], true);
    let id = tokens["tokens"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(remote(file, &["token", "revoke", &id]).await.0, Some(0));
    assert_eq!(anna.send("ping", json!({})).await.status, StatusCode::UNAUTHORIZED);

    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let send = async |token: &str, mut body: Value| {
        body["client"] = json!({"version": "0.1.0", "protocol": 1});
        let request = http.post(format!("{url}/admin")).bearer_auth(token).body(body.to_string());
        soon("an answer", request.send()).await.expect("an answer")
    };
    // What names paths of the machine, and MCP, is not for afar.
    for body in [
        json!({"command": "stdio_attach"}),
        json!({"command": "store_export", "file": "/tmp/x"}),
        json!({"command": "token_create", "requestor": "a", "tenant": "b", "expires_at": null}),
    ] {
        assert_eq!(send(TOKEN, body.clone()).await.status(), StatusCode::FORBIDDEN, "{body}");
    }
    assert_eq!(http.post(format!("{url}/mcp")).send().await.expect("an answer").status(), StatusCode::NOT_FOUND);
    let page = http.post(format!("{url}/admin")).bearer_auth(TOKEN).header("origin", "http://localhost");
    assert_eq!(page.body("{}").send().await.expect("an answer").status(), StatusCode::FORBIDDEN);
    // Requestors' tokens are none here, and the administrators' is none there.
    let requestors = setup.token("ben", "acme").await;
    assert_eq!(send(&requestors, json!({"command": "token_list"})).await.status(), StatusCode::UNAUTHORIZED);
    let client = Client::new(&host.url, Some(TOKEN));
    assert_eq!(client.send("ping", json!({})).await.status, StatusCode::UNAUTHORIZED);
    let mut last = StatusCode::UNAUTHORIZED;
    for number in 0..12 {
        last = send(&format!("wrong-{number}"), json!({"command": "token_list"})).await.status();
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(send(TOKEN, json!({"command": "token_list"})).await.status(), StatusCode::OK);
    let log = audit_log(&setup, "admin.refused", 1).await;
    assert!(log.contains("administrator at 127.0.0.1") && log.contains("admin.refused"), "{log}");
    assert!(!log.contains(TOKEN) && !host.log().contains(TOKEN));

    std::fs::write(setup.path("short"), "short").expect("a file");
    let short = setup.path("short");
    assert_ne!(remote(short.to_str().expect("a path"), &["limits"]).await.0, Some(0));
    let refused = Setup::with(&["text"]).config("[admin]\nlisten = \"0.0.0.0:0\"\ntoken_file = \"x\"");
    assert!(refused.refused().await.1.contains("admin.tls"));
}

#[tokio::test]
async fn remote_admin_is_served_with_tls() {
    let setup = Setup::with(&["text"]);
    for (name, text) in [
        ("host.pem", include_str!("../harness/keys/host1.pem")),
        ("host.key", include_str!("../harness/keys/host1.key.pem")),
        ("root.pem", include_str!("../harness/keys/root1.pem")),
        ("other.pem", include_str!("../harness/keys/root2.pem")),
        ("admin.token", TOKEN),
    ] {
        std::fs::write(setup.path(name), text).expect("a file");
    }
    let sha256 = "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9";
    let setup = setup.config(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_sha256 = \"{sha256}\"\n\
         tls = {{ certificate = \"host.pem\", key = \"host.key\" }}"
    ));
    let host = setup.start().await;
    let url = listener(&host).await;
    let file = |name: &str| setup.path(name).to_str().expect("a path").to_owned();
    let limits = async |url: &str, root: &str| {
        let token = file("admin.token");
        let root = file(root);
        let arguments = ["limits", "--url", url, "--token-file", &token, "--ca", &root, "--json"];
        command::output(&mut command::bulkhead(), &arguments, None).await
    };
    assert!(limits(&url, "root.pem").await.status.success());
    let refused = limits(&url, "other.pem").await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("TLS failed"));
    assert!(!limits(&url.replace("https://", "http://"), "root.pem").await.status.success());
}
