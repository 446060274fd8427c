//! The command line, with and without a running host.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::client::{Client, HELLO};
use tests::wait::{soon, until};
use tests::{Setup, command, place};

#[tokio::test]
async fn serve_check_reports_bad_plugins_and_does_not_serve() {
    let setup = Setup::with(&["text", "primes"]);
    let mut check = setup.command("serve");
    let output = command::output(&mut check, &["--check"], None).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("listening"));

    let setup = Setup::with(&["text", "bad_schema", "bad_name"]);
    let mut check = setup.command("serve");
    let output = command::output(&mut check, &["--check"], None).await;
    assert!(!output.status.success(), "two plugins are bad");
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("bad_schema") && said.contains("bad_name"), "everything wrong at once: {said}");

    let output = command::output(&mut setup.command("serve"), &["--check", "--json"], None).await;
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let named = |plugin: &str| found["problems"].as_array().unwrap().iter().any(|one| one.to_string().contains(plugin));
    assert!(named("bad_schema") && named("bad_name"), "{found}");
    assert_eq!((output.status.code(), &found["valid"]), (Some(1), &json!(false)));

    let wrong = Setup::new().config("[server]\nlisten = 3");
    let output = command::output(&mut wrong.command("serve"), &["--check", "--json"], None).await;
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), found["problems"].as_array().map(Vec::len)), (Some(2), Some(1)), "{found}");
}

#[tokio::test]
async fn configured_names_that_clients_refuse_are_warned_of_by_the_check_and_in_the_log() {
    let names = "prefix = \"t.\"\n[plugin.tool.echo]\nname = \"say.it\"";
    let setup = Setup::new().plugin("text", names);
    let expected = ["plugin text: prefix = \"t.\": it holds \".\"", "plugin text: name = \"say.it\": it holds \".\""];
    let output = command::output(&mut setup.command("serve"), &["--check", "--json"], None).await;
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let warnings: Vec<&str> = found["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!((output.status.code(), &found["valid"], warnings.len()), (Some(0), &json!(true), 2), "{found}");
    let plain = command::output(&mut setup.command("serve"), &["--check"], None).await;
    let plain = String::from_utf8_lossy(&plain.stderr).into_owned();
    let host = setup.start().await;
    for start in expected {
        assert!(warnings.iter().any(|warning| warning.starts_with(start)), "{start}: {warnings:?}");
        assert!(plain.lines().any(|line| line.contains(&format!("warning: {start}"))), "{start}: {plain}");
        let is_warned = || host.log().lines().any(|line| line.contains(" WARN ") && line.contains(start));
        until(start, async || is_warned().then_some(())).await;
    }
    host.terminate().await;
}

#[tokio::test]
async fn plugin_inspect_shows_tools_imports_and_digest() {
    let file = place::component("csv").display().to_string();
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(shown["tools"][0]["name"], "csv_profile", "{shown}");
    assert!(said.contains("wasi:filesystem"), "imports are listed: {said}");
    assert_eq!(shown["sha256"].as_str().or(shown["digest"].as_str()).map(str::len), Some(64), "{shown}");
    let plain = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file], None).await;
    let tools = plain.find("csv_profile");
    let imports = plain.find("wasi:filesystem");
    assert!(tools.is_some() && tools < imports, "what it is for comes first: {plain}");
}

#[tokio::test]
async fn plugin_inspect_shows_prompts_and_resources() {
    let file = place::component("conformance").display().to_string();
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    let one = |list: &str, key: &str, value: &str| {
        let entries = shown[list].as_array().unwrap_or_else(|| panic!("no {list}: {shown}"));
        entries.iter().find(|entry| entry[key] == value).cloned().unwrap_or_else(|| panic!("no {value}: {entries:?}"))
    };
    let prompt = one("prompts", "name", "test_prompt_with_arguments");
    assert_eq!((&prompt["arguments"][0]["name"], &prompt["arguments"][0]["required"]), (&json!("arg1"), &json!(true)));
    assert!(one("resources", "uri", "test://static-text")["mimeType"].is_string());
    assert!(one("resourceTemplates", "uriTemplate", "test://template/{id}/data")["name"].is_string());
    let plain = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file], None).await;
    for line in ["test_prompt_with_arguments(arg1, arg2)", "test://static-text  (", "test://template/{id}/data  ("] {
        assert!(plain.contains(line), "{line}: {plain}");
    }

    let bare = command::run(&mut command::bulkhead(), &["plugin", "inspect", &component("text"), "--json"], None).await;
    let bare: Value = serde_json::from_str(&bare).expect("JSON");
    assert_eq!([&bare["prompts"], &bare["resources"], &bare["resourceTemplates"]], [&json!([]); 3]);
}

#[tokio::test]
async fn plugin_call_shows_array_result_unchanged() {
    let probe = component("probe");
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &probe, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    let tools = shown["tools"].as_array().expect("tools");
    let squares = tools.iter().find(|tool| tool["name"] == "squares").expect("the tool");
    assert_eq!(squares["outputSchema"]["type"], "array");
    let (code, out, _) = call(&["plugin", "call", &probe, "squares", r#"{"count": 2}"#, "--json"]).await;
    let result: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &result["structuredContent"]), (Some(0), &json!([1, 4])));
}

fn component(name: &str) -> String {
    place::component(name).display().to_string()
}

#[tokio::test]
async fn plugin_inspect_refuses_bad_components() {
    for name in ["bad_schema", "bad_twins", "bad_import", "bad_panic"] {
        let file = place::component(name).display().to_string();
        let output = command::output(&mut command::bulkhead(), &["plugin", "inspect", &file], None).await;
        assert_eq!(output.status.code(), Some(4), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn file_that_is_not_there_has_one_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.wasm").display().to_string();
    let folder = folder.path().display().to_string();
    for (file, why) in [(&missing, "cannot be read"), (&folder, "is a folder")] {
        for arguments in [vec!["inspect", file], vec!["check", file], vec!["call", file, "echo", "{}"]] {
            let (code, _, said) = call(&[&["plugin"], &*arguments].concat()).await;
            assert!(code == Some(1) && said.contains(file) && said.contains(why), "{arguments:?}: {code:?} {said}");
        }
    }
}

async fn call(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command::output(&mut command::bulkhead(), arguments, None).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn plugin_call_has_an_exit_code_per_outcome() {
    let text = place::component("text").display().to_string();
    let hostile = place::component("hostile").display().to_string();
    let desk = place::component("desk").display().to_string();
    let (code, out, _) = call(&["plugin", "call", &text, "echo", r#"{"text": "hello"}"#]).await;
    assert_eq!((code, out.trim_end()), (Some(0), "hello"));
    let (code, out, _) = call(&["plugin", "call", &text, "word_count", r#"{"text": "a b"}"#, "--json"]).await;
    let result: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &result["structuredContent"]["words"]), (Some(0), &json!(2)));
    tests::schema::conform(&result, "CallToolResult");
    assert_eq!(call(&["plugin", "call", &hostile, "read_file", r#"{"path": "/etc/passwd"}"#]).await.0, Some(1));
    assert_eq!(call(&["plugin", "call", &text, "echo", "not json"]).await.0, Some(2));
    assert_eq!(call(&["plugin", "call", &text, "echo", r#"{"text": 7}"#]).await.0, Some(2));
    assert_eq!(call(&["plugin", "call", &text, "missing", "{}"]).await.0, Some(2));
    let (code, _, said) = call(&["plugin", "call", &hostile, "trap", "{}"]).await;
    assert_eq!(code, Some(3), "{said}");
    let bad = place::component("bad_schema").display().to_string();
    assert_eq!(call(&["plugin", "call", &bad, "x", "{}"]).await.0, Some(4));
    assert_eq!(call(&["plugin", "call", &desk, "book_trip", "{}"]).await.0, Some(5), "stdin is no terminal");
}

#[tokio::test]
async fn plugin_call_takes_input_answers_from_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let answers = folder.path().join("answers.json");
    let content = json!({
        "journey": {"action": "accept", "content": {"destination": "Cork", "travellers": 1}},
        "details": {"action": "accept", "content": {"class": "economy", "confirm": true}}
    });
    std::fs::write(&answers, content.to_string()).expect("a file");
    let desk = place::component("desk").display().to_string();
    let answers = answers.display().to_string();
    let (code, out, said) = call(&["plugin", "call", &desk, "book_trip", "{}", "--answers", &answers]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("Booked 1 economy seats to Cork."), "{out}");
    assert!(said.contains("The destination is known"), "progress goes to stderr: {said}");
}

#[tokio::test]
async fn plugin_call_reads_granted_folders_only() {
    let csv = place::component("csv").display().to_string();
    let data = place::root().join("plugins/samples/csv/testdata").display().to_string();
    let arguments = r#"{"path": "/data/airports.csv"}"#;
    let grant = format!("{data}:/data");
    let (code, out, said) = call(&["plugin", "call", &csv, "csv_profile", arguments, "--dir", &grant, "--json"]).await;
    assert_eq!(code, Some(0), "{said}");
    let result: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(result["structuredContent"]["rows"], 3376, "{result}");
    assert_eq!(call(&["plugin", "call", &csv, "csv_profile", arguments]).await.0, Some(1), "nothing is granted");
}

/// Token commands end to end, on a data directory with or without a host.
async fn tokens_live_and_die(setup: &Setup, url: Option<&str>) {
    let data = setup.data();
    let made = command::json(&["token", "create", "--requestor", "alice", "--tenant", "acme"], &data).await;
    let token = made["token"].as_str().expect("the token").to_owned();
    let id = made["id"].as_str().expect("an id").to_owned();
    let listed = command::json(&["token", "list"], &data).await;
    assert!(!listed.to_string().contains(&token), "only its hash is kept");
    let entry = listed["tokens"].as_array().expect("a list").iter().find(|entry| entry["id"] == id.as_str());
    assert_eq!(entry.expect("it is listed")["requestor"], "alice");
    let status = async |token: &str| {
        let url = url?;
        Some(Client::new(url, Some(token)).post(HELLO, None).await.status.as_u16())
    };
    assert!(status(&token).await.is_none_or(|status| status == 200));
    command::json(&["token", "revoke", &id], &data).await;
    assert!(status(&token).await.is_none_or(|status| status == 401), "revoked at once");
    let listed = command::json(&["token", "list"], &data).await;
    assert!(listed.to_string().contains("revoked_at"), "{listed}");
}

#[tokio::test]
async fn token_commands_work_with_and_without_a_host() {
    let setup = Setup::with(&["text"]);
    tokens_live_and_die(&setup, None).await;
    let host = setup.start().await;
    tokens_live_and_die(&setup, Some(&host.url)).await;
}

#[tokio::test]
async fn task_commands_list_and_cancel_tasks_of_all_requestors() {
    let setup = Setup::with(&["desk", "primes"]);
    let token = setup.token("alice", "acme").await;
    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), json!({})).await;
    let running = client.task("wait", json!({"ms": 600_000})).await;
    let done = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&done, "completed").await;
    let data = setup.data();
    let ids = async |arguments: &[&str]| -> Vec<String> {
        let listed = command::json(arguments, &data).await;
        let tasks = listed["tasks"].as_array().expect("a list").iter();
        tasks.map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
    };
    let mut all = ids(&["tasks", "list"]).await;
    all.sort();
    let mut expected = [running.clone(), done.clone()];
    expected.sort();
    assert_eq!(all, expected);
    assert_eq!(ids(&["tasks", "list", "--requestor", "nobody"]).await, Vec::<String>::new());
    let shown = command::json(&["tasks", "show", &done], &data).await;
    assert_eq!((&shown["requestor"], &shown["tool"]), (&json!("alice"), &json!("count_primes")));
    assert!(
        !shown.to_string().contains("structured") && !shown.to_string().contains("content"),
        "results stay with their requestor: {shown}"
    );
    command::json(&["tasks", "cancel", &running], &data).await;
    client.until_status(&running, "cancelled").await;

    let left = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    let setup = host.kill().await;
    assert_eq!(ids(&["tasks", "list"]).await.len(), 3, "also without a host");
    assert_eq!(command::json(&["tasks", "show", &done], &setup.data()).await["status"], "succeeded");
    command::json(&["tasks", "cancel", &left], &data).await;
    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), json!({})).await;
    client.until_status(&left, "cancelled").await;
}

#[tokio::test]
async fn task_commands_pause_and_resume_without_a_host_too() {
    let setup = Setup::with(&["primes"]);
    let token = setup.token("alice", "acme").await;
    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), json!({})).await;
    let loops = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    client.until_status(&loops, "working").await;
    let data = setup.data();
    let paused = command::json(&["tasks", "pause", &loops], &data).await;
    assert_eq!((&paused["status"], &paused["status_message"]), (&json!("paused"), &json!("paused by the operator")));
    let seen = client.about("tasks/get", &loops).await.expect("it is there");
    // This client knows nothing of pauses: it sees the status before, and that it is paused.
    assert_eq!((&seen["status"], &seen["statusMessage"]), (&json!("working"), &json!("paused by the operator")));
    let again = command::output(&mut command::bulkhead(), &["tasks", "pause", &loops, "--data"], Some(&data)).await;
    assert!(String::from_utf8_lossy(&again.stderr).contains("already paused"), "{again:?}");
    let resumed = command::json(&["tasks", "resume", &loops], &data).await;
    assert_eq!((&resumed["status"], &resumed["status_message"]), (&json!("running"), &json!(null)));
    command::json(&["tasks", "pause", &loops, "--message", "until the disk is larger"], &data).await;
    let seen = client.about("tasks/get", &loops).await.expect("it is there");
    assert_eq!(seen["statusMessage"], "paused: until the disk is larger");

    let setup = host.kill().await;
    let shown = command::json(&["tasks", "show", &loops], &data).await;
    assert_eq!((&shown["status"], &shown["status_message"]), (&json!("paused"), &json!("until the disk is larger")));
    assert_eq!(command::json(&["tasks", "resume", &loops], &data).await["status"], "running", "also without a host");
    let paused = command::json(&["tasks", "pause", &loops], &data).await;
    assert_eq!(paused["status"], "paused");
    command::json(&["tasks", "cancel", &loops], &data).await;
    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), json!({})).await;
    client.until_status(&loops, "cancelled").await;
}

#[tokio::test]
async fn store_check_export_rebuild_and_backup_commands_work() {
    let setup = Setup::with(&["primes"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    for below in 0..20 {
        let id = client.task("count_primes", json!({"below": below * 100})).await;
        client.until_status(&id, "completed").await;
    }
    let listed = client.tasks().await;
    let data = setup.data();
    command::json(&["store", "check"], &data).await;
    let copy = setup.path("copy");
    command::json(&["store", "backup", &copy.display().to_string()], &data).await;
    export(&setup, "with.jsonl").await;
    let file = setup.path("with.jsonl").display().to_string();
    let output =
        command::output(&mut command::bulkhead(), &["store", "rebuild", "--from", &file, "--data"], Some(&data)).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("stop it"), "an old export is no news to a running host: {said}");
    command::json(&["store", "rebuild"], &data).await;
    assert_eq!(client.tasks().await, listed, "the running host goes on with a rebuilt store");
    host.terminate().await;
    command::json(&["store", "check"], &data).await;
    export(&setup, "without.jsonl").await;
    command::json(&["store", "rebuild"], &data).await;

    let host = setup.start().await;
    assert_eq!(Client::connect(&host).await.tasks().await, listed, "a rebuilt store holds the same");
    host.terminate().await;
    std::fs::rename(&data, setup.path("away")).expect("the old one goes");
    std::fs::rename(&copy, &data).expect("the copy takes its place");
    let host = setup.start().await;
    assert_eq!(Client::connect(&host).await.tasks().await, listed, "a backup holds the same");
}

async fn export(setup: &Setup, name: &str) {
    let file = setup.path(name);
    command::json(&["store", "export", &file.display().to_string()], &setup.data()).await;
    let text = std::fs::read_to_string(&file).expect("the export");
    assert!(text.lines().count() >= 20, "a line for each task at least");
    for line in text.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
    }
}

#[tokio::test]
async fn commands_report_unknown_ids() {
    let setup = Setup::new();
    let data = setup.data();
    let never = "f".repeat(32);
    for arguments in [["tasks", "show", &never], ["tasks", "cancel", &never], ["token", "revoke", "nothing"]] {
        let mut all = arguments.to_vec();
        all.push("--data");
        let output = command::output(&mut command::bulkhead(), &all, Some(&data)).await;
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [&["nonsense"][..], &["serve", "--nonsense"], &["plugin", "inspect", "/no/such/file.wasm"]] {
        let output = command::output(&mut command::bulkhead(), arguments, None).await;
        assert!(!output.status.success() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn command_does_not_wait_for_a_stopped_host() {
    let setup = Setup::new();
    let host = setup.start().await;
    let serving = async || host.log().lines().find(|line| line.contains("serving ")).map(ToOwned::to_owned);
    let serving = until("the line that it serves", serving).await;
    assert!(serving.contains(&format!(" pid={} ", host.pid())), "which process to kill: {serving}");
    let process = Pid::from_raw(host.pid().try_into().expect("a process id")).expect("a process id");
    kill_process(process, Signal::STOP).expect("the host can be signalled");
    let data = setup.data();
    let mut bulkhead = command::bulkhead();
    let asked = command::output(&mut bulkhead, &["tasks", "list", "--data"], Some(&data));
    let output = soon("the command to give up", asked).await;
    kill_process(process, Signal::CONT).expect("the host can be signalled");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("`kill -CONT {}`", host.pid())), "{said}");
    command::json(&["tasks", "list"], &data).await;
    host.terminate().await;
}
