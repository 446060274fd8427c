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

#[test]
fn database_is_named_by_a_file_or_a_variable() {
    let database = |text: &str| load(text).map(|config| config.database);
    assert_eq!(database("[store]\nengine = 'sled'").unwrap(), None);
    let named = database("[store]\nengine = 'postgres'\nurl_file = 'url'\nca_file = 'ca'").unwrap().unwrap();
    assert_eq!(named.url, SecretLocation::File("etc/url".into()));
    assert_eq!((named.schema.as_str(), named.ca_file), ("bulkhead", Some("etc/ca".into())));
    // Also where the variable's name begins as those of keys do.
    let text = "[store]\nengine = 'postgres'\nurl_env = 'BULKHEAD_DATABASE'\nschema = 'other'";
    let config = load_all(text, &[("BULKHEAD_DATABASE", "postgresql:///b")], &Flags::default()).unwrap();
    let named = config.database.unwrap();
    assert_eq!((named.url, named.schema.as_str()), (SecretLocation::Variable("BULKHEAD_DATABASE".to_owned()), "other"));

    refused_once("[store]\nengine = 'postgres'", "etc/bulkhead.toml:1: ", "needs url_file");
    refused_once("[store]\nengine = 'oracle'", "etc/bulkhead.toml:1: ", "sled or postgres");
    refused_once("[store]\nurl_env = 'U'", "etc/bulkhead.toml:1: ", "need engine");
    let both = "[store]\nengine = 'postgres'\nurl_env = 'U'\nurl_file = 'f'";
    refused_once(both, "etc/bulkhead.toml:1: ", "not both");
    let written = "[store]\nengine = 'postgres'\nurl_env = 'U'\nurl = 'u'";
    refused_once(written, "etc/bulkhead.toml:4: ", "may hold a password");
}

#[test]
fn byte_order_mark_in_front_of_a_configuration_is_skipped() {
    let text = "[server]\ntools_per_page = 7\n";
    assert_eq!(
        load(&format!("\u{feff}{text}")).unwrap().server.tools_per_page,
        load(text).unwrap().server.tools_per_page
    );
}

#[test]
fn hosts_share_a_database_only_where_one_is_named() {
    const STORE: &str = "[store]\nengine = 'postgres'\nurl_env = 'U'\n";
    let cluster = |text: &str| load(text).map(|config| config.cluster);
    assert_eq!(cluster(STORE).unwrap(), None);
    let named = cluster(&format!("{STORE}[cluster]\nname = 'one'")).unwrap().unwrap();
    assert_eq!((named.name.as_str(), named.lease.as_millis()), ("one", 30_000));
    let named = cluster(&format!("{STORE}[cluster]\nname = 'one'\nlease_ms = 2000")).unwrap().unwrap();
    assert_eq!(named.lease.as_millis(), 2_000);
    assert!(named.shares_limits);
    let each = cluster(&format!("{STORE}[cluster]\nname = 'one'\nshare = 'each'")).unwrap().unwrap();
    assert!(!each.shares_limits);

    refused_once("[cluster]\nname = 'one'", "etc/bulkhead.toml:1: ", "engine = \"postgres\"");
    refused_once(&format!("{STORE}[cluster]\nlease_ms = 2000"), "etc/bulkhead.toml:4: ", "needs name");
    refused_once(&format!("{STORE}[cluster]\nname = 'one'\nlease_ms = 10"), "etc/bulkhead.toml:6: ", "lease_ms");
    refused_once(&format!("{STORE}[cluster]\nname = 'one'\nshare = 'half'"), "etc/bulkhead.toml:6: ", "split, each");
    refused_once(&format!("{STORE}[cluster]\nname = 'a b'"), "etc/bulkhead.toml:5: ", "name");
}
