//! The wire form of commands: what command lines and hosts of other versions, and administrators' scripts, send.

use serde_json::{Value, json};

use super::*;

/// Every command with all of its members, as it is sent.
const COMMANDS: [&str; 56] = [
    r#"{"command":"token_create","requestor":"alice","tenant":"acme","expires_at":7,"name":"laptop","scopes":["tools"]}"#,
    r#"{"command":"token_list"}"#,
    r#"{"command":"token_revoke","id":"t1"}"#,
    r#"{"command":"secret_set","name":"KEY","plugin":"csv","tenant":"acme","destinations":["https://a.example"],"places":["header"],"value":"v"}"#,
    r#"{"command":"secret_list"}"#,
    r#"{"command":"secret_remove","name":"KEY","plugin":"csv","tenant":null}"#,
    r#"{"command":"secret_rotate"}"#,
    r#"{"command":"store_check"}"#,
    r#"{"command":"store_export","file":"/tmp/x"}"#,
    r#"{"command":"store_rebuild","from":"/tmp/x"}"#,
    r#"{"command":"store_backup","directory":"/tmp/d"}"#,
    r#"{"command":"store_rekey"}"#,
    r#"{"command":"tenant_list"}"#,
    r#"{"command":"tenant_purge","tenant":"acme"}"#,
    r#"{"command":"tenant_names","ids":["01","02"]}"#,
    r#"{"command":"tenant_usage","tenant":"acme","days":30}"#,
    r#"{"command":"tasks_list","requestor":"alice","tenant":null,"count_max":100}"#,
    r#"{"command":"tasks_show","id":"i"}"#,
    r#"{"command":"tasks_cancel","id":"i"}"#,
    r#"{"command":"tasks_pause","id":"i","message":"m"}"#,
    r#"{"command":"tasks_resume","id":"i"}"#,
    r#"{"command":"tasks_hold","id":"i","message":"m"}"#,
    r#"{"command":"tasks_release","id":"i"}"#,
    r#"{"command":"tasks_fail","id":"i","message":"m"}"#,
    r#"{"command":"tasks_journal","id":"i","entries_max":5,"from":7}"#,
    r#"{"command":"tasks_replay","id":"i"}"#,
    r#"{"command":"tasks_purge","id":"i"}"#,
    r#"{"command":"tasks_page","filter":{"tenant":"acme","requestor":null,"plugin":"csv","status":"queued"},"after":"a.b.c","count_max":5}"#,
    r#"{"command":"tasks_page","filter":{"tenant":null,"requestor":null,"plugin":null,"status":null,"tool":"csv_query","since":5,"until":9},"after":null,"count_max":5}"#,
    r#"{"command":"limits_in_use","filter":{"tenant":null,"requestor":"alice","plugin":null,"status":null},"count_max":5}"#,
    r#"{"command":"drain_begin"}"#,
    r#"{"command":"drain_end"}"#,
    r#"{"command":"drain_show"}"#,
    r#"{"command":"host_show"}"#,
    r#"{"command":"activity_show","by":"requestor"}"#,
    r#"{"command":"history_show","points_max":60}"#,
    r#"{"command":"health_show"}"#,
    r#"{"command":"dashboard_login"}"#,
    r#"{"command":"reload","check":true}"#,
    r#"{"command":"audit_page","events":["task."],"tenant":"acme","after":"1.0","count_max":5}"#,
    r#"{"command":"plugin_list"}"#,
    r#"{"command":"plugin_versions","name":"csv"}"#,
    r#"{"command":"plugin_usage","name":"csv","days":7}"#,
    r#"{"command":"plugin_changes","name":"csv","version":"3f2a","tool":"csv_query"}"#,
    r#"{"command":"plugin_grants","name":"csv","version":"3f2a"}"#,
    r#"{"command":"plugin_stage","source":"/p/csv.wasm","sha256":"00","name":"csv"}"#,
    r#"{"command":"plugin_add","sources":["/p/csv.wasm"],"sha256":null,"name":null,"accept":true}"#,
    r#"{"command":"plugin_update","name":"csv","activate":true,"accept":false}"#,
    r#"{"command":"plugin_activate","targets":[{"name":"csv","version":"3f2a"},{"name":"text","version":null}],"accept":false}"#,
    r#"{"command":"plugin_canary","targets":[{"name":"csv","version":null}],"share":1000,"tenants":["acme"],"bounds":{"fault_percent_max":5,"latency_percent_max":150,"window_ms":600000,"calls_min":20},"accept":false}"#,
    r#"{"command":"plugin_promote","names":["csv"]}"#,
    r#"{"command":"plugin_rollback","names":["csv"]}"#,
    r#"{"command":"plugin_durable","name":"csv","version":"3f2a","durable":true}"#,
    r#"{"command":"plugin_remove","name":"csv","version":"3f2a"}"#,
    r#"{"command":"plugin_verify","name":"csv"}"#,
    r#"{"command":"stdio_attach"}"#,
];

#[test]
fn every_command_keeps_its_wire_form() {
    for sent in COMMANDS {
        let command: Command = serde_json::from_str(sent).unwrap_or_else(|error| panic!("{sent}: {error}"));
        assert_eq!(serde_json::to_string(&command).unwrap(), sent);
    }
}

#[test]
fn commands_may_leave_out_what_has_a_default() {
    for (short, long) in [
        (
            r#"{"requestor":"a","tenant":"b","command":"token_create"}"#,
            r#"{"command":"token_create","requestor":"a","tenant":"b","expires_at":null,"name":null,"scopes":null}"#,
        ),
        (
            r#"{"command":"tasks_page","count_max":5,"unknown":1}"#,
            r#"{"command":"tasks_page","filter":{"tenant":null,"requestor":null,"plugin":null,"status":null},"after":null,"count_max":5}"#,
        ),
        (
            r#"{"command":"tasks_journal","id":"i"}"#,
            r#"{"command":"tasks_journal","id":"i","entries_max":null,"from":0}"#,
        ),
        (r#"{"command":"reload"}"#, r#"{"command":"reload","check":false}"#),
        (r#"{"command":"drain_show","unknown":1}"#, r#"{"command":"drain_show"}"#),
        (
            r#"{"command":"plugin_changes","name":"csv","version":null}"#,
            r#"{"command":"plugin_changes","name":"csv","version":null,"tool":null}"#,
        ),
        (r#"{"command":"plugin_grants","name":"csv"}"#, r#"{"command":"plugin_grants","name":"csv","version":null}"#),
        (r#"{"command":"plugin_verify"}"#, r#"{"command":"plugin_verify","name":null}"#),
        (
            r#"{"command":"plugin_durable","name":"csv","durable":false}"#,
            r#"{"command":"plugin_durable","name":"csv","version":null,"durable":false}"#,
        ),
        (
            r#"{"command":"audit_page","count_max":5}"#,
            r#"{"command":"audit_page","events":[],"tenant":null,"after":null,"count_max":5}"#,
        ),
    ] {
        let command: Command = serde_json::from_str(short).unwrap_or_else(|error| panic!("{short}: {error}"));
        assert_eq!(serde_json::to_string(&command).unwrap(), long);
    }
    for wrong in [r#"{"command":"tasks_show"}"#, r#"{"command":"plugin_fly"}"#, r#"{"id":"x"}"#, "[]", "1"] {
        assert!(serde_json::from_str::<Command>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn only_reads_and_what_is_about_the_running_host_may_come_over_the_network() {
    let remote = COMMANDS
        .into_iter()
        .filter(|sent| serde_json::from_str::<Command>(sent).is_ok_and(|command| command.is_for_administrators()));
    let remote: Vec<_> = remote.filter_map(|sent| sent.split('"').nth(3)).collect();
    let expected = [
        "token_list",
        "token_revoke",
        "tenant_list",
        "tenant_usage",
        "tasks_show",
        "tasks_cancel",
        "tasks_pause",
        "tasks_resume",
        "tasks_hold",
        "tasks_release",
        "tasks_fail",
        "tasks_journal",
        "tasks_replay",
        "tasks_purge",
        "tasks_page",
        "tasks_page",
        "limits_in_use",
        "drain_begin",
        "drain_end",
        "drain_show",
        "host_show",
        "activity_show",
        "history_show",
        "health_show",
        "reload",
        "audit_page",
        "plugin_list",
        "plugin_versions",
        "plugin_usage",
    ];
    assert_eq!(remote, expected);
}

#[test]
fn commands_of_the_dashboard_name_no_path_and_switch_to_nothing_unread() {
    let is_for_dashboard = |sent: &str| {
        let command: Command = serde_json::from_str(sent).unwrap_or_else(|error| panic!("{sent}: {error}"));
        assert!(command.is_for_dashboard() || !command.is_for_administrators(), "{sent}");
        command.is_for_dashboard() && !command.is_for_administrators()
    };
    let more: Vec<_> =
        COMMANDS.into_iter().filter(|sent| is_for_dashboard(sent)).filter_map(|sent| sent.split('"').nth(3)).collect();
    // Of the others, one stages a path, one switches to what it finds, one is of a set, the canary names no version,
    // and no page has a button for journals.
    assert_eq!(
        more,
        ["token_create", "plugin_changes", "plugin_grants", "plugin_promote", "plugin_rollback", "plugin_remove"]
    );
    let canary = COMMANDS.into_iter().find(|sent| sent.contains("plugin_canary")).unwrap();
    assert!(is_for_dashboard(&canary.replace(r#""version":null"#, r#""version":"3f2a""#)));

    let stage = |source: &str| json!({"command": "plugin_stage", "source": source, "sha256": null, "name": null});
    for (source, is_elsewhere) in [
        ("https://plugins.example.com/csv.wasm", true),
        ("oci://ghcr.io/acme/csv:1.3", true),
        ("/p/csv.wasm", false),
        ("./csv.wasm", false),
        ("csv.wasm", false),
        ("../../etc/passwd", false),
        ("file:///p/csv.wasm", false),
        ("http://plugins.example.com/csv.wasm", false),
        (" https://plugins.example.com/csv.wasm", false),
        ("HTTPS://plugins.example.com/csv.wasm", false),
        ("oci:/p/csv.wasm", false),
        ("https://", false),
        ("oci://", false),
        ("", false),
    ] {
        assert_eq!(is_for_dashboard(&stage(source).to_string()), is_elsewhere, "{source}");
    }
    let update =
        |activate: bool| json!({"command": "plugin_update", "name": "csv", "activate": activate, "accept": false});
    assert!(is_for_dashboard(&update(false).to_string()) && !is_for_dashboard(&update(true).to_string()));
    let activate =
        |targets: Value| json!({"command": "plugin_activate", "targets": targets, "accept": true}).to_string();
    let one = json!({"name": "csv", "version": "3f2a"});
    let latest = json!({"name": "csv", "version": null});
    assert!(is_for_dashboard(&activate(json!([one]))));
    for wrong in [json!([]), json!([latest]), json!([one, one])] {
        assert!(!is_for_dashboard(&activate(wrong.clone())), "{wrong}");
    }
}

#[test]
fn summaries_for_the_audit_log_hold_no_value_and_no_tenant_that_is_erased() {
    for sent in COMMANDS {
        let command: Command = serde_json::from_str(sent).unwrap();
        let summary = command.summary();
        match sent.split('"').nth(3) {
            Some("secret_set") => assert_eq!(summary, sent.replace(r#""value":"v""#, r#""value":"""#)),
            Some("tenant_purge") => assert_eq!(summary, r#"{"command":"tenant_purge"}"#),
            _ => assert_eq!(summary, sent),
        }
    }
}

#[tokio::test]
async fn another_protocol_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_path(folder.path());
    let operator = Arc::new(operator(&Arc::new(MemoryStore::new())));
    let _server = serving(&path, operator);
    let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
    let here = concat!("bulkhead ", env!("CARGO_PKG_VERSION"), " (protocol 1)");
    for (sent, says) in [
        // Today's command line, and one that is newer but means the same.
        (r#"{"command":"token_list","client":{"version":"0.1.0","protocol":1}}"#, vec![r#"{"ok":{"tokens":[]}}"#]),
        (r#"{"command":"token_list","client":{"version":"0.9.0","protocol":1,"more":0}}"#, vec![r#"{"ok""#]),
        // Whatever comes with another protocol is not looked at.
        (
            r#"{"command":"token_list","client":{"version":"9.8.7","protocol":2}}"#,
            vec![r#"{"error":{"kind":"invalid""#, here, "bulkhead 9.8.7 (protocol 2)"],
        ),
        (r#"{"orders":[],"client":{"version":"9.8.7","protocol":2}}"#, vec![here, "bulkhead 9.8.7 (protocol 2)"]),
        (r#"{"command":"token_list","client":"new"}"#, vec![here, "does not say its version"]),
        (r#"{"command":"token_list"}"#, vec![r#"{"error":{"kind":"invalid""#, here, "does not say its version"]),
        // What is not known of the same protocol is refused with the versions, too.
        (
            r#"{"command":"token_fly","client":{"version":"0.9.0","protocol":1}}"#,
            vec!["token_fly", here, "bulkhead 0.9.0 (protocol 1)"],
        ),
        (
            r#"{"command":"token_revoke","client":{"version":"0.9.0","protocol":1}}"#,
            vec!["`id`", here, "bulkhead 0.9.0 (protocol 1)"],
        ),
    ] {
        stream.write_all(format!("{sent}\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        for part in says {
            assert!(line.contains(part), "{sent}: {line}");
        }
    }
}

/// A host of another version, which answers each line with one of its own.
async fn host_that_answers(path: &Path, answer: &'static str) -> tokio::task::JoinHandle<String> {
    let listener = super::super::socket::listen(path).unwrap();
    tokio::spawn(async move {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        line
    })
}

#[tokio::test]
async fn a_host_of_another_version_is_named_with_the_command_lines_own() {
    let here = concat!("bulkhead ", env!("CARGO_PKG_VERSION"), " (protocol 1)");
    let refusal = r#"{"error":{"kind":"invalid","message":"the host is bulkhead 9.8.7 (protocol 2), ..."}}"#;
    for (answer, says) in [
        (refusal, vec!["bulkhead 9.8.7 (protocol 2)"]),
        (r#"{"ok":{"list":[]}}"#, vec![here, "use the command line of the host's version"]),
        ("[]", vec!["no reply"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let host = host_that_answers(&socket_path(folder.path()), answer).await;
        let client = ControlClient::connect(folder.path()).await.unwrap().unwrap();
        let refused = client.execute(TokenList {}).await.unwrap_err().to_string();
        for part in says {
            assert!(refused.contains(part), "{refused}");
        }
        // What is sent says who sends it, behind the command.
        let version = env!("CARGO_PKG_VERSION");
        let sent = format!("{{\"command\":\"token_list\",\"client\":{{\"version\":\"{version}\",\"protocol\":1}}}}\n");
        assert_eq!(host.await.unwrap(), sent);
    }
}

#[test]
fn all_that_is_sent_is_the_command_and_who_sends_it() {
    for sent in COMMANDS {
        let command: Command = serde_json::from_str(sent).unwrap();
        let line = String::from_utf8(crate::wire::write_request(&command).unwrap()).unwrap();
        let (before, who) = line.split_once(r#","client":"#).unwrap();
        assert_eq!(format!("{before}}}"), sent);
        assert!(who.ends_with(r#""protocol":1}}"#), "{who}");
        assert_eq!(crate::wire::read_request(line.as_bytes()).unwrap(), command);
    }
}
