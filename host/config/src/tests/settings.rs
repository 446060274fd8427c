//! The values that hold, with where they come from.

use super::*;

#[test]
fn settings_say_the_value_that_holds_and_why() {
    let text = "[limits]\ncalls_running_total = 8\ntasks_queued_per_requestor = 5000\n[tenant.acme.limits]\ntasks_queued_per_requestor = 7\n";
    let file = Some(File { path: Path::new("b.toml"), text });
    let variables = [("BULKHEAD_LOG_LEVEL".to_owned(), "debug".to_owned())];
    let shown = |tenant: Option<&str>, key: &str| {
        let settings = Config::settings(file, variables.clone(), &Flags::default(), tenant).unwrap();
        let setting = settings.into_iter().find(|setting| setting.key == key);
        setting.map(|setting| format!("{} {}", setting.value, setting.origin))
    };
    for (tenant, key, expected) in [
        (None, "log.level", Some("\"debug\" environment variable BULKHEAD_LOG_LEVEL")),
        (None, "log.format", Some("\"text\" default")),
        (None, "limits.calls_running_total", Some("8 b.toml:2")),
        (None, "limits.calls_running_per_tenant", Some("8 lowered to the limit above it")),
        (None, "limits.tasks_queued_per_tenant", Some("5000 raised to what b.toml:3 says")),
        (Some("acme"), "limits.tasks_queued_per_requestor", Some("7 b.toml:5")),
        (Some("acme"), "limits.calls_running_per_tenant", Some("8 lowered to the limit above it")),
        (Some("other"), "limits.tasks_queued_per_requestor", Some("5000 b.toml:3")),
        (Some("acme"), "limits.calls_running_total", None),
        (Some("acme"), "log.level", None),
    ] {
        assert_eq!(shown(tenant, key).as_deref(), expected, "{tenant:?} {key}");
    }
    let wrong =
        Config::settings(Some(File { path: Path::new("b.toml"), text: "[limit]\n" }), [], &Flags::default(), None);
    assert!(wrong.unwrap_err().to_string().contains("b.toml:1: limit: no such section"));
}
