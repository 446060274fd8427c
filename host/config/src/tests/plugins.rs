//! Entries of plugins: sources, trust, grants, tools and the policy for new versions.

use super::*;
use bulkhead_plugins::{AcceptChanges, DrainThen, Pinning};
use bulkhead_runtime::{McpMode, McpSettings};

#[test]
fn plugin_change_policy_is_read() {
    let text = "[[plugin]]\nfile='a'\naccept_changes='compatible'\ndrain_ms=5000\ndrain_then='fail'\nquarantine_after=0\n\
        [[plugin]]\nfile='b'";
    let config = load(text).unwrap();
    let [plugin, other] = config.plugins.as_slice() else { panic!() };
    assert_eq!((plugin.policy.accept_changes, plugin.policy.drain_ms), (AcceptChanges::Compatible, 5_000));
    assert_eq!((plugin.policy.drain_then, plugin.policy.quarantine_after), (DrainThen::Fail, 0));
    assert_eq!((other.policy.accept_changes, other.policy.drain_ms), (AcceptChanges::Nothing, 0));
    assert_eq!((other.policy.drain_then, other.policy.quarantine_after), (DrainThen::Wait, 10));
    let refused = |line: &str, why: &str| {
        refused_once(&format!("[[plugin]]\nfile='a'\n{line}"), "etc/bulkhead.toml:3: plugin.?.", why);
    };
    refused("accept_changes = 'all'", "none, compatible, any");
    refused("drain_ms = -1", "a whole number from 0 to 2592000000");
    refused("drain_ms = '5s'", "a whole number");
    refused("drain_then = 'stop'", "wait, cancel, fail");
    refused("quarantine_after = 1000001", "to 1000000");
}

#[test]
fn canary_bounds_are_read() {
    let text = "[[plugin]]\nfile='a'\n[plugin.canary]\nfault_percent_max=1\nlatency_percent_max=150\nwindow_ms=60000\ncalls_min=50\nwatch_switch_ms=9";
    let plugin = &load(text).unwrap().plugins[0];
    let bounds = plugin.policy.canary;
    assert_eq!(plugin.policy.watch_switch_ms, 9);
    assert_eq!((bounds.fault_percent_max, bounds.latency_percent_max), (1, 150));
    assert_eq!((bounds.window_ms, bounds.calls_min), (60_000, 50));
    for (line, why) in [
        ("canary = { fault_percent_max = 101 }", "to 100"),
        ("canary = { latency_percent_max = 99 }", "at least 1"),
        ("canary = { window_ms = 0 }", "at least a millisecond"),
        ("canary = { calls_min = 0 }", "at least one call"),
        ("canary = { percent = 5 }", "no such key"),
        ("canary = 5", "table"),
    ] {
        refused_once(&format!("[[plugin]]\nfile='a'\n{line}"), "etc/bulkhead.toml:3:", why);
    }
}

#[test]
fn tool_presentation_is_configured_by_operator() {
    let config = load(
        "[[plugin]]\nfile='a'\n[plugin.tool.a_b_c]\ntitle='T'\ndescription='D'\ncpu_ms=5\n\
         annotations = { read_only = true, idempotent = false }",
    )
    .unwrap();
    let tool = &config.plugins[0].policy.source.tools["a_b_c"];
    let presentation = &tool.presentation;
    assert_eq!((presentation.title.as_deref(), presentation.description.as_deref()), (Some("T"), Some("D")));
    let annotations = presentation.annotations.as_ref().unwrap();
    assert_eq!(
        (annotations.read_only, annotations.idempotent, annotations.open_world),
        (Some(true), Some(false), None)
    );
    assert_eq!(tool.limits.cpu_ms, 5);
    let refused = |line: &str, why: &str| {
        refused_once(&format!("[[plugin]]\nfile='a'\n[plugin.tool.t]\n{line}"), "etc/bulkhead.toml:4:", why);
    };
    refused("annotations = { readonly = true }", "no such annotation");
    refused("annotations = { read_only = 1 }", "true or false");
    refused("title = 1", "title");
}

#[test]
fn plugin_entries_are_checked() {
    refused_once("[[plugin]]\nname = 'a'", "etc/bulkhead.toml:1: plugin.a.file: missing", "");
    let same = "[[plugin]]\nname = 'a'\nfile = 'a'\n[[plugin]]\nname = 'a'\nfile = 'b'";
    refused_once(same, "etc/bulkhead.toml:4: plugin.name: \"a\" is already the plugin at etc/bulkhead.toml:1", "");
    let grant = |line: &str| format!("[[plugin]]\nfile = 'a'\n[plugin.grants]\n{line}");
    for pattern in [
        "example.com",
        "https://example.com/a/../b",
        "get https://a",
        "ftp://a",
        "https://a.*.b",
        "https://user@a",
        "https://",
    ] {
        refused_once(&grant(&format!("http = ['{pattern}']")), "etc/bulkhead.toml:4: plugin.?.grants.http:", pattern);
    }
    refused_once(&grant("env = ['A=B']"), "etc/bulkhead.toml:4: plugin.?.grants.env:", "name of an environment");
    refused_once(&grant("directories = [{ host = '/x' }]"), "etc/bulkhead.toml:4:", "needs `host`");
    refused_once(&grant("directories = [{ host = '/x', guest = '../y' }]"), "etc/bulkhead.toml:4:", "absolute");
    let up = grant("directories = [{ host = '/x/{tenant}/../y', guest = '/y' }]");
    refused_once(&up, "etc/bulkhead.toml:4:", "behind {tenant}");
    refused_once(
        &grant("directories = [{ host = '/x', guest = '/y', bytes_max = 1 }]"),
        "etc/bulkhead.toml:4:",
        "write = true",
    );
    refused_once("[[plugin]]\nfile='a'\n[plugin.tool.t]\ntask_support = 'maybe'", "etc/bulkhead.toml:4:", "not one of");
}

#[test]
fn writable_directory_grant_has_a_default_quota() {
    let quota = |more: &str| {
        let directory = format!("directories = [{{ host = '/x', guest = '/y'{more} }}]");
        load(&format!("[[plugin]]\nfile = 'a'\n[plugin.grants]\n{directory}")).unwrap().plugins[0]
            .policy
            .source
            .grants
            .directories[0]
            .bytes_max
    };
    assert_eq!(quota(", write = true"), Some(1 << 30));
    assert_eq!(quota(", bytes_max = 1125899906842624, write = true"), Some(1 << 50));
    assert_eq!((quota(""), quota(", write = false")), (None, None));
}

#[test]
fn plugin_source_and_trust_patterns_are_read() {
    let text = "[sources]\nfetch_ms_max = 5000\nprivate_hosts = ['registry.lan']\nroots = ['ca.pem']\n\
        [[trust]]\nsource = 'https://example.com/**'\nkeys = ['acme.pub']\n[[trust]]\nsource = './own/*'\nunsigned = true\n\
        [[plugin]]\nname = 'a'\nurl = 'https://example.com/a.wasm'\n[[plugin]]\nname = 'b'\noci = 'ghcr.io/a/b:1'\n";
    let config = load(text).unwrap();
    assert_eq!((config.sources.fetch_ms_max, config.sources.roots), (5_000, vec!["etc/ca.pem".to_owned()]));
    assert_eq!(config.trust[0].keys, [Path::new("etc/acme.pub")]);
    assert!(!config.trust[0].same_repository);
    let strict = load("[[trust]]\nsource = 'oci://**'\nkeys = ['acme.pub']\nsame_repository = true").unwrap();
    assert!(strict.trust[0].same_repository && strict.trust[0].changed_definitions.is_none());
    let pinned = load(
        "[[trust]]\nsource = '**'\nunsigned = true\nchanged_definitions = 'show'\n[tenant.a]\nchanged_definitions = 'hold'",
    );
    let pinned = pinned.unwrap();
    assert_eq!(pinned.trust[0].changed_definitions, Some(Pinning::Show));
    assert_eq!(pinned.tenants["a"].changed_definitions, Some(Pinning::Hold));
    let wrong = "etc/bulkhead.toml:2: tenant.a.changed_definitions:";
    refused_once("[tenant.a]\nchanged_definitions = 'ask'", wrong, "hold, show, allow");
    assert_eq!((config.trust[1].pattern.to_string(), config.trust[1].keys.len()), ("\"etc/own/*\"".to_owned(), 0));
    let sources: Vec<_> = config.plugins.iter().map(|plugin| plugin.source.to_string()).collect();
    assert_eq!(sources, ["https://example.com/a.wasm", "oci://ghcr.io/a/b:1"]);

    refused_once("[[plugin]]\nurl = 'https://a.example/x'", "etc/bulkhead.toml:1: plugin.?.name: missing", "");
    let two = "[[plugin]]\nname = 'a'\nfile = 'a'\noci = 'b.example/c'";
    refused_once(two, "etc/bulkhead.toml:1: plugin.a.file: a component has one source", "");
    refused_once("[[plugin]]\nname = 'a'\nurl = 'http://a.example'", "etc/bulkhead.toml:3: plugin.a.url:", "use https");
    refused_once("[[plugin]]\nname = 'a'\nurl = 'oci://a.example/b'", "etc/bulkhead.toml:3: plugin.a.url:", "begin");
    refused_once("[[plugin]]\nfile = 'a'\nsha256 = '12'", "etc/bulkhead.toml:3: plugin.?.sha256:", "64 hexadecimal");
    let nameless = format!("[[plugin]]\nfile = 'a'\nsha256 = '{}'", "5".repeat(64));
    refused_once(&nameless, "etc/bulkhead.toml:1: plugin.?.name: missing", "sha256 needs one");
    load(&format!("{nameless}\nname = 'a'")).unwrap();
    let composed = "[[plugin]]\nname = 'a'\nfile = 'a'\ncompose = ['b.wasm', 'oci://ghcr.io/a/c:1']";
    let parts: Vec<_> = load(composed).unwrap().plugins[0].compose.iter().map(ToString::to_string).collect();
    assert_eq!(parts, ["etc/b.wasm", "oci://ghcr.io/a/c:1"]);
    let nameless = "[[plugin]]\nfile = 'a'\ncompose = ['b']";
    refused_once(nameless, "etc/bulkhead.toml:1: plugin.?.name: missing", "compose needs one");
    let plain = "[[plugin]]\nname = 'a'\nfile = 'a'\ncompose = ['http://a.example/b']";
    refused_once(plain, "etc/bulkhead.toml:4: plugin.a.compose:", "use https");
    let many = format!("[[plugin]]\nname = 'a'\nfile = 'a'\ncompose = {:?}", ["b"; 16]);
    refused_once(&many, "etc/bulkhead.toml:1: plugin.a.compose: with the plugin's own, 16 components", "");
    refused_once("[[trust]]\nsource = '**'", "etc/bulkhead.toml:1: trust.keys:", "unsigned = true");
    refused_once("[[trust]]\nkeys = ['a']", "etc/bulkhead.toml:1: trust.source: missing", "");
    refused_once("[[trust]]\nsource = 'example.com'\nkeys = ['a']", "etc/bulkhead.toml:2: trust.source:", "begins");
}

#[test]
fn plugin_flags_pin_named_plugins() {
    let flags = Flags { plugins: vec!["etc/a.wasm".into(), "b.wasm".into()], ..Flags::default() };
    let config =
        load_all("[[plugin]]\nname = 'a'\nfile = './a.wasm'\n[[plugin]]\nfile = 'c.wasm'", &[], &flags).unwrap();
    let plugins: Vec<_> = config.plugins.iter().map(|plugin| (plugin.label(), plugin.pinned)).collect();
    assert_eq!(plugins, [("a".to_owned(), true), ("etc/c.wasm".to_owned(), false), ("b.wasm".to_owned(), true)]);
}

#[test]
fn plugin_kv_table_grants_keyvalue_quota() {
    let grants = |line: &str| {
        load(&format!("[[plugin]]\nfile='a'\n{line}")).unwrap().plugins.remove(0).policy.source.grants.keyvalue
    };
    assert_eq!(grants(""), None);
    let by_default = grants("[plugin.kv]").unwrap();
    assert_eq!((by_default.keys_max, by_default.bytes_max, by_default.value_bytes_max), (10_000, 16 << 20, 64 << 10));
    let own = grants("[plugin.kv]\nkeys_max=3\nbytes_max=9\nvalue_bytes_max=5\n[plugin.grants]\nenv=['A']").unwrap();
    assert_eq!((own.keys_max, own.bytes_max, own.value_bytes_max), (3, 9, 5));
    for (line, why) in [
        ("kv = { keys_max = 0 }", "from 1 to 1000000"),
        ("kv = { value_bytes_max = 1048577 }", "from 1 to 1048576"),
        ("kv = { bytes = 5 }", "no such key"),
        ("kv = true", "table"),
    ] {
        refused_once(&format!("[[plugin]]\nfile='a'\n{line}"), "etc/bulkhead.toml:3:", why);
    }
}

#[test]
fn plugin_says_whether_it_is_an_mcp_server_and_where() {
    let read = |toml: &str| {
        let file = format!("[[plugin]]\nname = 'a'\nfile = 'a.wasm'\n{toml}");
        load(&file).unwrap().plugins[0].policy.source.mcp.clone()
    };
    assert_eq!(read(""), McpSettings::default());
    assert_eq!(read("mcp = 'off'").mode, Some(McpMode::Off));
    assert_eq!(read("mcp = 'stdio'").mode, Some(McpMode::Stdio));
    let both = read("mcp = 'http'\nmcp_path = '/api/mcp?v=1'");
    assert_eq!(both, McpSettings { mode: Some(McpMode::Http), path: Some("/api/mcp?v=1".to_owned()) });
    for (toml, why) in
        [("mcp = 'tcp'", "not one of auto, http, stdio, off"), ("mcp_path = 'mcp'", "not the path of a request")]
    {
        let file = format!("[[plugin]]\nname = 'a'\nfile = 'a.wasm'\n{toml}");
        refused_once(&file, "etc/bulkhead.toml:4: plugin.a.mcp", why);
    }
}
