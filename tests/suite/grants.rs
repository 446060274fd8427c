//! What an operator grants, what a tenant is left of it, and who hears of what was not granted.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::{Host, Setup, command, place};

use super::egress::Web;

async fn client(host: &Host, token: &str) -> Client {
    Client::connect_as(host, Some(token), all_capabilities()).await
}

/// The lines of the audit log about this event.
fn audited(setup: &Setup, event: &str) -> Vec<Value> {
    let files = std::fs::read_dir(setup.data().join("audit")).expect("a log");
    let files = files.map(|file| file.expect("a file").path());
    let text: String = files
        .filter(|file| file.extension().is_some_and(|end| end == "jsonl"))
        .map(|file| std::fs::read_to_string(file).expect("text"))
        .collect();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["event"] == event).collect()
}

#[tokio::test]
async fn denied_grant_is_named_and_audited_once() {
    let web = Web::start().await;
    let setup = Setup::new()
        .config("[audit]\nenabled = true\n")
        .plugin("http", "[plugin.grants]\nhttp = [\"https://example.com\"]\n")
        .plugin("hostile", "");
    let token = setup.token("alice", "acme").await;
    let host = setup.start().await;
    let alice = client(&host, &token).await;
    let lacking = format!("http {}", web.origin);

    let secret = format!("{}/a-secret-path?and=query", web.origin);
    let refused = alice.tool("http_get", json!({"url": secret})).await.expect("a result");
    assert_eq!(refused["isError"], true);
    let last = refused["content"].as_array().and_then(|content| content.last()).expect("content");
    let cure = "the operator does not grant it: [plugin.grants] http, or the flag --http";
    assert_eq!(last["text"], format!("not granted to this plugin: {lacking} ({cure})"), "{refused}");

    // Three requests of one call are one line; a task is named.
    let wish = json!({"method": "GET", "url": secret, "at_once": 3});
    let task = alice.task("request", wish).await;
    alice.until_status(&task, "completed").await;
    let log = host.log();
    assert_eq!(log.matches("a plugin reached for what is not granted").count(), 2, "{log}");
    assert!(!log.contains("a-secret-path"), "{log}");

    let (_, setup) = host.terminate().await;
    let noted = audited(&setup, "grant.denied");
    let told: Vec<_> = noted.iter().map(|line| (&line["plugin"], &line["reason"], &line["task"])).collect();
    assert_eq!(
        told,
        [(&json!("http"), &json!(lacking), &Value::Null), (&json!("hostile"), &json!(lacking), &json!(task))]
    );
    assert!(noted.iter().all(|line| line["requestor"].is_string() && line["tenant"].is_string()));
    assert!(!serde_json::to_string(&noted).expect("JSON").contains("a-secret-path"));
}

#[tokio::test]
async fn tenant_grant_bound_narrows_egress() {
    let web = Web::start().await;
    let setup = Setup::new()
        .config("[tenant.globex.grants]\nhttp = []\n")
        .config(&format!("[tenant.initech.grants]\nhttp = [\"{}/bytes\"]\n", web.origin))
        .plugin("http", &format!("[plugin.grants]\nhttp = [{:?}]\n", web.origin));
    let mut tokens = Vec::new();
    for tenant in ["acme", "globex", "initech"] {
        tokens.push(setup.token("someone", tenant).await);
    }
    let host = setup.start().await;
    for (token, reaches) in tokens.iter().zip([[true, true], [false, false], [false, true]]) {
        let client = client(&host, token).await;
        for (path, reached) in ["/page", "/bytes/3"].iter().zip(reaches) {
            let page =
                client.tool("http_get", json!({"url": format!("{}{path}", web.origin)})).await.expect("a result");
            assert_eq!(page["isError"] != true, reached, "{path}: {page}");
        }
    }
}

#[tokio::test]
async fn each_tenant_has_its_own_directory_with_its_own_quota() {
    let setup = Setup::new();
    let folder = setup.path("tenants");
    std::fs::create_dir(&folder).expect("a folder");
    let grant = format!(
        "[plugin.grants]\ndirectories = [{{ host = {:?}, guest = \"/data\", write = true, bytes_max = 20000 }}]\n",
        folder.join("{tenant}")
    );
    let setup = setup.plugin("hostile", &grant);
    let alice = setup.token("alice", "acme").await;
    let bob = setup.token("bob", "globex").await;
    let host = setup.start().await;
    let alice = client(&host, &alice).await;
    let bob = client(&host, &bob).await;
    let write = async |client: &Client, path: &str, bytes: usize| {
        client.tool("write_file", json!({"path": path, "text": "x".repeat(bytes)})).await.expect("a result")
    };
    assert_ne!(write(&alice, "/data/mine", 12_000).await["isError"], true);
    let full = write(&alice, "/data/more", 12_000).await;
    assert_eq!(full["isError"], true, "{full}");
    assert!(text(&full).contains("space"), "the guest reads of a full disk: {full}");
    assert_ne!(write(&bob, "/data/mine", 12_000).await["isError"], true, "another tenant has room");
    for path in ["/data/more", "/data/../acme/mine", "/acme/mine"] {
        let read = bob.tool("read_file", json!({"path": path})).await.expect("a result");
        assert_eq!(read["isError"], true, "{path}: {read}");
    }
    for tenant in ["acme", "globex"] {
        let found = std::fs::metadata(folder.join(tenant)).expect("a folder");
        assert_eq!(found.permissions().mode() & 0o777, 0o700);
    }
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 2);
}

#[tokio::test]
async fn tenant_purge_names_remaining_directories() {
    let setup = Setup::new();
    let folder = setup.path("tenants");
    std::fs::create_dir(&folder).expect("a folder");
    let setup = setup.plugin("hostile", &directory(&folder.join("{tenant}"), true));
    let tokens = [setup.token("alice", "acme").await, setup.token("bob", "globex").await];
    let host = setup.start().await;
    for token in tokens {
        let kept = client(&host, &token).await.tool("write_file", json!({"path": "/data/mine", "text": "x"})).await;
        assert_ne!(kept.expect("a result")["isError"], true);
    }
    let purged = command::json(&["tenant", "purge", "acme", "--yes"], &setup.data()).await;
    assert_eq!(purged["directories"], json!([folder.join("acme")]), "{purged}");
    assert!(folder.join("acme/mine").exists(), "they are the operator's");

    // Without a host the configuration says which ones.
    let (_, setup) = host.terminate().await;
    let file = setup.path("bulkhead.toml").display().to_string();
    let arguments = ["tenant", "purge", "globex", "--yes", "--config", &file, "--data"];
    let output = command::output(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&folder.join("globex").display().to_string()), "{output:?}");
}

/// `[plugin.grants]` with one directory.
fn directory(host: &Path, write: bool) -> String {
    format!("[plugin.grants]\ndirectories = [{{ host = {host:?}, guest = \"/data\", write = {write} }}]\n")
}

#[tokio::test]
async fn overlapping_directory_grants_are_refused() {
    let setup = Setup::new();
    let outer = setup.path("outer");
    let beside = setup.path("beside");
    std::fs::create_dir_all(outer.join("tenants")).expect("a folder");
    std::fs::create_dir(&beside).expect("a folder");
    let inner = outer.join("tenants/{tenant}");
    let with = |writes: &Path| {
        let second = directory(writes, true);
        setup.clone().plugin_as("first", "hostile", &directory(&inner, false)).plugin_as(
            "second",
            "hostile",
            &format!("prefix = \"second_\"\n{second}"),
        )
    };
    let names_both = |said: &str| {
        said.contains("plugin.first.grants.directories (/data)")
            && said.contains("plugin.second.grants.directories (/data)")
            && said.contains("beside it")
    };
    let (code, said) = with(&outer).refused().await;
    assert!(code == Some(2) && names_both(&said), "{code:?} {said}");

    let host = with(&beside).start().await;
    let setup = host.setup.clone();
    let configuration = std::fs::read_to_string(setup.path("bulkhead.toml")).expect("the configuration");
    let good = format!("{beside:?}");
    let bad = format!("{outer:?}");
    assert!(configuration.contains(&good));
    std::fs::write(setup.path("bulkhead.toml"), configuration.replace(&good, &bad)).expect("the configuration");
    let arguments = ["host", "reload", "--data"];
    let output = command::output(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && names_both(&said), "{said}");
    // Nothing has changed.
    let client = Client::connect(&host).await;
    let written = client.tool("second_write_file", json!({"path": "/data/a", "text": "x"})).await.expect("a result");
    assert!(written["isError"] != true && beside.join("a").is_file(), "{written}");
}

#[tokio::test]
async fn granting_the_host_data_directory_is_refused() {
    let setup = Setup::new();
    let data = setup.data();
    let beside = setup.path("beside");
    std::fs::create_dir(&beside).expect("a folder");
    let above = data.parent().expect("a folder");
    let names_it =
        |said: &str| said.contains("plugin.hostile.grants.directories (/data)") && said.contains("server.data");
    for place in [data.as_path(), above] {
        let (code, said) = setup.clone().plugin("hostile", &directory(place, false)).refused().await;
        assert!(code == Some(2) && names_it(&said), "{code:?} {said}");
    }

    let host = setup.plugin("hostile", &directory(&beside, false)).start().await;
    let file = host.setup.path("bulkhead.toml");
    let configuration = std::fs::read_to_string(&file).expect("the configuration");
    let changed = configuration.replace(&format!("{beside:?}"), &format!("{above:?}"));
    assert_ne!(changed, configuration);
    std::fs::write(file, changed).expect("the configuration");
    let output =
        command::output(&mut command::bulkhead(), &["host", "reload", "--data"], Some(&host.setup.data())).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && names_it(&said), "{said}");
}

#[tokio::test]
async fn queued_task_of_older_version_loses_removed_grants() {
    let setup = Setup::new().config("[limits]\ntasks_running_per_requestor = 1\n[call]\ncpu_ms = 600000\n");
    let folder = setup.path("folder");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("a"), "granted").expect("a file");
    let grant = directory(&folder, false);
    let setup = setup.plugin("hostile", &format!("accept_changes = \"any\"\n{grant}"));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    // One runs, the others wait behind it with the version that they were made with.
    let mut tasks = Vec::new();
    let read = json!({"path": "/data/a"});
    for (tool, arguments) in
        [("spin", json!({})), ("read_file", read.clone()), ("spin", json!({})), ("read_file", read)]
    {
        tasks.push(client.task(tool, arguments).await);
    }
    let other = setup.path("other.wasm");
    let words = ["Reads a file and returns its text.", "Reads a file and returns its TEXT."];
    std::fs::write(&other, place::variant("hostile", words[0], words[1])).expect("a file");
    let arguments = ["plugin", "add", other.to_str().expect("UTF-8"), "--name", "hostile", "--accept"];
    command::json(&arguments, &setup.data()).await;
    assert!(client.call("tools/list", json!({})).await.expect("a list").to_string().contains(words[1]));
    client.about("tasks/cancel", &tasks[0]).await.expect("it is cancelled");
    client.until_status(&tasks[1], "completed").await;
    assert_eq!(text(&client.about("tasks/result", &tasks[1]).await.expect("a result")), "granted");

    let configuration = std::fs::read_to_string(setup.path("bulkhead.toml")).expect("the configuration");
    std::fs::write(setup.path("bulkhead.toml"), configuration.replace(&grant, "")).expect("the configuration");
    let reloaded = command::json(&["host", "reload"], &setup.data()).await;
    assert_eq!(reloaded["changed"], json!(["plugin hostile"]));
    client.about("tasks/cancel", &tasks[2]).await.expect("it is cancelled");
    client.until_status(&tasks[3], "failed").await;
    let refused = client.about("tasks/result", &tasks[3]).await.expect("a result");
    assert!(refused["isError"] == true && !refused.to_string().contains("granted\""), "{refused}");

    let mut versions = Vec::new();
    for task in [&tasks[1], &tasks[3], &client.task("spin", json!({})).await] {
        let shown = command::json(&["tasks", "show", task], &setup.data()).await;
        versions.push(shown["plugin_sha256"].as_str().expect("a digest").to_owned());
    }
    assert!(versions[0] == versions[1] && versions[1] != versions[2], "both were of the older version: {versions:?}");
}

#[tokio::test]
async fn plugin_inspect_shows_wanted_granted_and_effective_grants() {
    let setup = Setup::new();
    let file = place::component("csv");
    let config = setup.path("bulkhead-inspect.toml");
    let text = format!(
        "[tenant.acme.grants]\ndirectories = []\n[[plugin]]\nfile = {file:?}\n[plugin.grants]\nenv = [\"HOME\"]\n\
         directories = [{{ host = \"/tmp\", guest = \"/data\", write = true }}]\n"
    );
    std::fs::write(&config, text).expect("a file");
    let file = file.display().to_string();
    let config = config.display().to_string();
    let arguments = ["plugin", "inspect", &file, "--config", &config];
    let said = command::run(&mut command::bulkhead(), &[&arguments[..], &["--json"]].concat(), None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    let row = |table: &Value, grant: &str| {
        table.as_array().expect("rows").iter().find(|row| row["grant"] == grant).cloned().unwrap_or_default()
    };
    let everybody = &shown["grants"]["everybody"];
    assert_eq!(
        row(everybody, "directory /data"),
        json!({"grant": "directory /data", "wanted": "read", "granted": "write", "effective": "read"})
    );
    assert_eq!(
        row(everybody, "env HOME"),
        json!({"grant": "env HOME", "wanted": "-", "granted": "yes", "effective": "-"})
    );
    assert_eq!(row(everybody, "call.cpu_ms")["wanted"], "any");
    assert_eq!(
        row(&shown["grants"]["tenants"]["acme"], "directory /data"),
        json!({"grant": "directory /data", "wanted": "read", "granted": "write", "left": "-", "effective": "-"})
    );
    let plain = command::run(&mut command::bulkhead(), &arguments, None).await;
    let line = plain.lines().find(|line| line.trim_start().starts_with("directory /data")).expect("a line");
    assert_eq!(line.split_whitespace().skip(2).collect::<Vec<_>>(), ["read", "write", "read"]);
    assert!(plain.contains("grants in calls of tenant acme"), "{plain}");
    let bare = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let bare: Value = serde_json::from_str(&bare).expect("JSON");
    assert_eq!(row(&bare["grants"]["everybody"], "directory /data")["effective"], "-");
}

#[tokio::test]
async fn guest_text_cannot_forge_log_lines() {
    let setup = Setup::new().config("[log]\nlevel = \"debug\"\n").plugin("hostile", "");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    client.call("logging/setLevel", json!({"level": "debug"})).await.expect("set");
    let words = "\u{1b}[2J\u{7}one\nFORGED ERROR a line of the host\r\u{202e}two\u{0}\u{9b}31m";
    let params = json!({"name": "speak", "arguments": {"text": words}, "_meta": {"progressToken": 1}});
    let (result, heard) = client.call_hearing("tools/call", params).await;
    assert_eq!(text(&result.expect("a result")), words, "results are data");
    let log = host.log();
    assert!(log.contains("FORGED"), "it was logged: {log}");
    assert!(!log.lines().any(|line| line.trim_start().starts_with("FORGED")), "{log}");
    let acting = |character: char| matches!(character, '\u{1b}' | '\u{7}' | '\r' | '\0' | '\u{9b}' | '\u{202e}');
    for line in log.lines().filter(|line| line.contains("FORGED")) {
        assert!(!line.contains(acting), "{line:?}");
    }
    let told = |method: &str| heard.iter().find(|message| message["method"] == method);
    let progress = told("notifications/progress").expect("progress");
    assert_eq!(progress["params"]["message"], words);
    assert_eq!(told("notifications/message").expect("a record")["params"]["data"], words);
}

/// Threads of the host.
fn threads(host: &Host) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", host.pid())).expect("a running host").count()
}

/// Guests cannot make one; another process or the operator can.
#[tokio::test]
async fn fifo_in_granted_directory_blocks_no_thread() {
    const CALLS: usize = 8;
    const OPENS: usize = 60;
    let setup = Setup::new().env("RUST_BACKTRACE", "1");
    let folder = setup.path("shared");
    std::fs::create_dir(&folder).expect("a folder");
    let made = std::process::Command::new("mkfifo").arg(folder.join("fifo")).status().expect("mkfifo");
    assert!(made.success());
    let grants = format!(
        "[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/data\", write = true, bytes_max = 20000 }}]\n"
    );
    let host = setup.plugin("hostile", &grants).start().await;
    let client = Client::connect(&host).await;
    let walk = async |steps: Value| {
        let output = client.tool("files", json!({"directory": "/data", "steps": steps})).await.expect("a result");
        let results = output["structuredContent"]["results"].as_array().expect("results").clone();
        results.iter().map(|result| result.as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    let few = threads(&host);
    let steps: Vec<_> = (0..OPENS / 2)
        .flat_map(|_| [json!({"do": "read", "path": "fifo"}), json!({"do": "write", "path": "fifo", "bytes": 1})])
        .collect();
    let calls = futures::future::join_all((0..CALLS).map(|_| walk(json!(steps)))).await;
    assert!(calls.iter().flatten().all(|result| result == "not-permitted"), "{calls:?}");
    // An open that waited for another end of the FIFO would keep its thread. On a busy machine a thread that is done is
    // not always free again when the next open comes, so there are some more than the calls need.
    assert!(threads(&host) <= few + CALLS * OPENS / 4, "{} threads, {few} before", threads(&host));
    // What guests read of an error says nothing of the host.
    let [full] = walk(json!([{"do": "write", "path": "a", "bytes": 1 << 20}])).await.try_into().expect("one result");
    assert!(full.contains("os error 28") && full.len() < 200, "{full}");
    let (status, _) = host.terminate().await;
    assert!(status.success(), "{status}");
}
