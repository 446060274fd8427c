//! The wire form of commands: what command lines and hosts of other versions, and administrators' scripts, send.

use super::*;

/// Every command with all of its members, as it is sent.
const COMMANDS: [&str; 38] = [
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
    r#"{"command":"tasks_list","requestor":"alice","tenant":null,"count_max":100}"#,
    r#"{"command":"tasks_show","id":"i"}"#,
    r#"{"command":"tasks_cancel","id":"i"}"#,
    r#"{"command":"tasks_pause","id":"i","message":"m"}"#,
    r#"{"command":"tasks_resume","id":"i"}"#,
    r#"{"command":"tasks_purge","id":"i"}"#,
    r#"{"command":"tasks_page","filter":{"tenant":"acme","requestor":null,"plugin":"csv","status":"queued"},"after":"a.b.c","count_max":5}"#,
    r#"{"command":"limits_in_use","filter":{"tenant":null,"requestor":"alice","plugin":null,"status":null},"count_max":5}"#,
    r#"{"command":"drain_begin"}"#,
    r#"{"command":"drain_end"}"#,
    r#"{"command":"drain_show"}"#,
    r#"{"command":"reload","check":true}"#,
    r#"{"command":"plugin_list"}"#,
    r#"{"command":"plugin_versions","name":"csv"}"#,
    r#"{"command":"plugin_stage","source":"/p/csv.wasm","sha256":"00","name":"csv"}"#,
    r#"{"command":"plugin_add","sources":["/p/csv.wasm"],"sha256":null,"name":null,"accept":true}"#,
    r#"{"command":"plugin_update","name":"csv","activate":true,"accept":false}"#,
    r#"{"command":"plugin_activate","targets":[{"name":"csv","version":"3f2a"},{"name":"text","version":null}],"accept":false}"#,
    r#"{"command":"plugin_canary","targets":[{"name":"csv","version":null}],"share":1000,"tenants":["acme"],"bounds":{"fault_percent_max":5,"latency_percent_max":150,"window_ms":600000,"calls_min":20},"accept":false}"#,
    r#"{"command":"plugin_promote","names":["csv"]}"#,
    r#"{"command":"plugin_rollback","names":["csv"]}"#,
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
        (r#"{"command":"reload"}"#, r#"{"command":"reload","check":false}"#),
        (r#"{"command":"drain_show","unknown":1}"#, r#"{"command":"drain_show"}"#),
        (r#"{"command":"plugin_verify"}"#, r#"{"command":"plugin_verify","name":null}"#),
    ] {
        let command: Command = serde_json::from_str(short).unwrap_or_else(|error| panic!("{short}: {error}"));
        assert_eq!(serde_json::to_string(&command).unwrap(), long);
    }
    for wrong in [r#"{"command":"tasks_show"}"#, r#"{"command":"plugin_fly"}"#, r#"{"id":"x"}"#, "[]", "1"] {
        assert!(serde_json::from_str::<Command>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn only_what_is_about_the_running_host_may_come_over_the_network() {
    let remote = COMMANDS
        .into_iter()
        .filter(|sent| serde_json::from_str::<Command>(sent).is_ok_and(|command| command.is_for_administrators()));
    let remote: Vec<_> = remote.filter_map(|sent| sent.split('"').nth(3)).collect();
    let expected = [
        "token_list",
        "token_revoke",
        "tasks_show",
        "tasks_cancel",
        "tasks_pause",
        "tasks_resume",
        "tasks_purge",
        "tasks_page",
        "limits_in_use",
        "drain_begin",
        "drain_end",
        "drain_show",
        "reload",
    ];
    assert_eq!(remote, expected);
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
