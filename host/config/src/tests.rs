//! The configuration as an operator writes it, and every way to get it wrong.

mod access;
mod dashboard;
mod metrics;
mod plugins;
mod settings;
mod toolsets;

use std::path::Path;

use super::*;
use bulkhead_calls::{Durability, InDoubt, JournalPolicy};
use bulkhead_domain::tool::TaskSupport;
use bulkhead_plugins::sources::Source;
use bulkhead_runtime::WasiVersion;

fn load(text: &str) -> Result<Config, Vec<String>> {
    load_all(text, &[], &Flags::default())
}

fn load_all(text: &str, variables: &[(&str, &str)], flags: &Flags) -> Result<Config, Vec<String>> {
    let file = File { path: Path::new("etc/bulkhead.toml"), text };
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::load(Some(file), variables, flags).map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

fn refused(text: &str) -> Vec<String> {
    load(text).unwrap_err()
}

/// One refusal whose line begins and ends as given.
#[track_caller]
fn refused_once(text: &str, begins: &str, holds: &str) {
    let problems = refused(text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with(begins), "{:?} does not begin with {begins:?}", problems[0]);
    assert!(problems[0].contains(holds), "{:?} does not hold {holds:?}", problems[0]);
}

/// The configuration contract, with every key at its default and both optional sections in use.
const CONTRACT: &str = r#"
[server]
listen = "127.0.0.1:8808"
data = "./bulkhead-data"
allowed_hosts = []
allowed_origins = []
trusted_proxies = []
ready_requires = []
drain_ms = 10000
connections_max = 10000
connections_per_address = 1000
header_bytes_max = 32768
header_read_ms_max = 10000
body_bytes_max = 4194304
sse_after_ms = 5000
sse_keepalive_ms = 15000
session_idle_ms_max = 3600000
sessions_per_requestor = 1000
credential_failures_per_minute = 60
connection_workers = true
memory_images = true
tools_per_page = 200
tool_search = false

[limits]
calls_running_per_requestor = 16
calls_running_per_tenant = 64
calls_running_total = 256
call_queue_ms_max = 2000
calls_queued_per_requestor = 64
calls_queued_per_tenant = 256
calls_queued_total = 2048
tasks_running_per_requestor = 12
tasks_running_per_tenant = 48
tasks_queued_per_requestor = 256
tasks_queued_per_tenant = 1024
tasks_queued_total = 16384
tasks_waiting_per_requestor = 256
tasks_waiting_per_tenant = 384
tasks_paused_per_requestor = 64
tasks_paused_per_tenant = 128
calls_resting_per_tenant = 384
calls_resting_total = 768
tasks_resident_total = 64
task_evict_after_ms = 10000
task_evict_cpu_ms = 2000
tasks_stored_per_requestor = 10000
tasks_stored_bytes_per_requestor = 268435456
tasks_stored_per_tenant = 100000
tasks_stored_bytes_per_tenant = 2147483648
requests_per_second = 200
requests_per_second_per_tenant = 1000
request_bytes_per_second = 134217728
request_bytes_per_second_per_tenant = 536870912
task_creations_per_second = 50
task_creations_per_second_per_tenant = 250
requests_open_per_requestor = 1024
requests_open_per_tenant = 4096
requests_open_total = 16384
request_bytes_open_per_requestor = 67108864
request_bytes_open_per_tenant = 134217728
request_bytes_open_total = 536870912
sessions_per_tenant = 10000
sessions_total = 100000
requestors_per_tenant = 10000
requestor_creations_per_second_per_tenant = 10
tenants_total = 1000
event_bytes_per_requestor = 67108864
event_bytes_per_tenant = 268435456
event_bytes_total = 1073741824
answer_bytes_per_requestor = 33554432
answer_bytes_per_tenant = 67108864
answer_bytes_total = 167772160
ttl_ms_default = 3600000
ttl_ms_max = 86400000
ttl_unlimited = false
steer_queue = 16
steer_bytes_max = 16384
failed_lookups_per_minute = 600
failed_lookups_block_ms = 60000
early_polls_per_minute = 600

[call]
cpu_ms = 30000
wall_ms = 600000
memory_bytes = 67108864
arguments_bytes = 1048576
result_bytes = 4194304
log_bytes = 262144
events_per_second = 50
promote_after_ms = 1000
cancel_grace_ms = 200
epoch_tick_ms = 10
journal_bytes = 4194304
journal_entries = 100000
journal_response_bytes = 1048576

[compile]
memory_bytes = 2147483648
cpu_ms = 120000
functions_max = 200000

[log]
level = "info"
format = "text"
slow_ms = 10000

[audit]
enabled = false
file_bytes_max = 67108864
files_max = 64
operator_reads = true

[sources]
component_bytes_max = 134217728
fetch_ms_max = 120000
watch = []
private_hosts = []
plain_http_hosts = []
roots = []

[tenant.acme]
cpu_weight = 3
[tenant.acme.limits]
calls_running_per_tenant = 128
ttl_ms_default = 60_000

[[plugin]]
name = "csv"
file = "plugins/csv.wasm"
prefix = ""
on_restart = "rerun"
config = { delimiter = ",", rows = 10, names = ["a", { b = 1.5 }] }
[plugin.grants]
directories = [ { host = "/srv/data", guest = "/data", write = false } ]
http = [ "https://api.example.com", "https://*.example.org:8443" ]
env = ["TZ"]
[plugin.call]
cpu_ms = 120000
[plugin.tool.csv_profile]
task_support = "optional"
promote_after_ms = 500
"#;

#[test]
fn contract_config_loads_and_states_the_defaults() {
    let config = load(CONTRACT).unwrap();
    let defaults = Config::load(None, [], &Flags::default()).unwrap();
    assert_eq!(config.limits, defaults.limits);
    assert_eq!(config.call, defaults.call);
    assert_eq!(config.log, defaults.log);
    assert_eq!(config.server.data, Path::new("etc/./bulkhead-data"));
    assert_eq!(ServerConfig { data: defaults.server.data.clone(), ..config.server.clone() }, defaults.server);

    let acme = &config.tenants["acme"].limits;
    assert_eq!((acme.calls_running_per_tenant, acme.ttl_ms_default, acme.ttl_ms_max), (128, 60_000, 86_400_000));

    let plugin = &config.plugins[0];
    assert_eq!(plugin.source, Source::File("etc/plugins/csv.wasm".into()));
    assert!(plugin.policy.source.rerun);
    assert_eq!(plugin.policy.source.config["rows"].as_str(), "10");
    assert_eq!(plugin.policy.source.config["names"].as_str(), r#"["a",{"b":1.5}]"#);
    assert_eq!(plugin.policy.source.grants.directories[0].host, Path::new("/srv/data"));
    assert_eq!(plugin.policy.source.limits.cpu_ms, 120_000);
    let tool = &plugin.policy.source.tools["csv_profile"];
    assert_eq!(tool.task_support, Some(TaskSupport::Optional));
    assert_eq!((tool.limits.cpu_ms, tool.limits.promote_after_ms, tool.limits.wall_ms), (120_000, 500, 600_000));
}

#[test]
fn contract_config_names_every_key() {
    for key in all_keys() {
        assert!(CONTRACT.contains(&format!("\n{} = ", key.name)), "{} is not in the contract", key.path());
    }
}

#[test]
fn every_config_default_is_within_bounds() {
    for key in all_keys() {
        key.check(&key.default()).unwrap();
    }
}

#[test]
fn unknown_config_keys_are_refused_with_line() {
    refused_once("[server]\nlisten_on = 1\n", "etc/bulkhead.toml:2: server.listen_on: no such key", "");
    refused_once("\n\n[sever]\n", "etc/bulkhead.toml:3: sever: no such section", "[server]");
    refused_once("[tenant.a]\nname = 1", "etc/bulkhead.toml:2: tenant.a.name: no such key", "");
    refused_once("[tenant.a.limits]\nx = 1", "etc/bulkhead.toml:2: tenant.a.limits.x: no such key", "");
    refused_once("[[plugin]]\nfile = 'a'\npath = 'b'", "etc/bulkhead.toml:3: plugin.?.path: no such key", "");
    refused_once("[[plugin]]\nfile = 'a'\n[plugin.call]\nx = 1", "etc/bulkhead.toml:4: plugin.?.call.x: no such", "");
    refused_once("[[plugin]]\nfile = 'a'\n[plugin.grants]\nnet = 1", "etc/bulkhead.toml:4: plugin.?.grants.net:", "");
    refused_once("[[plugin]]\nfile = 'a'\n[plugin.tool.t]\nx = 1", "etc/bulkhead.toml:4: plugin.?.tool.t.call.x:", "");
    refused_once("[token.a]\n", "etc/bulkhead.toml:1: token: ", "bulkhead token create");
}

#[test]
fn wrong_config_types_are_refused() {
    refused_once("[call]\ncpu_ms = '5'", "etc/bulkhead.toml:2: call.cpu_ms: must be an integer", "not a string");
    refused_once("[call]\ncpu_ms = 1.5", "etc/bulkhead.toml:2: call.cpu_ms: must be an integer", "fraction");
    refused_once("[call]\ncpu_ms = -5", "etc/bulkhead.toml:2: call.cpu_ms: must be an integer", "negative");
    refused_once("[limits]\nttl_unlimited = 1", "etc/bulkhead.toml:2: limits.ttl_unlimited: must be true or", "");
    refused_once("[server]\nlisten = 8808", "etc/bulkhead.toml:2: server.listen: must be a string", "");
    refused_once("[server]\nallowed_hosts = ['a', 1]", "etc/bulkhead.toml:2: server.allowed_hosts: must be a list", "");
    refused_once("[[plugin]]\nfile = 1", "etc/bulkhead.toml:2: plugin.?.file: must be a string", "not integer");
    refused_once("server = 1", "etc/bulkhead.toml:1: server: must be a table", "");
    refused_once("[plugin]\nfile = 'a'", "etc/bulkhead.toml:1: plugin: write [[plugin]]", "");
}

#[test]
fn config_values_out_of_bounds_are_refused() {
    refused_once(
        "[limits]\nttl_ms_max = 2592000001",
        "etc/bulkhead.toml:2: limits.ttl_ms_max:",
        "maximum of 2592000000",
    );
    refused_once("[call]\ncpu_ms = 3600001", "etc/bulkhead.toml:2: call.cpu_ms:", "maximum of 3600000");
    refused_once("[call]\nwall_ms = 86400001", "etc/bulkhead.toml:2: call.wall_ms:", "maximum of 86400000");
    refused_once("[call]\nmemory_bytes = 4294967297", "etc/bulkhead.toml:2: call.memory_bytes:", "4294967296");
    refused_once("[server]\ndrain_ms = 600001", "etc/bulkhead.toml:2: server.drain_ms:", "maximum of 600000");
    refused_once("[server]\nbody_bytes_max = 67108865", "etc/bulkhead.toml:2: server.body_bytes_max:", "67108864");
    refused_once("[limits]\ncalls_running_total = 0", "etc/bulkhead.toml:2: limits.calls_running_total:", "not be 0");
    refused_once("[server]\ndata = ''", "etc/bulkhead.toml:2: server.data: must not be empty", "");
    refused_once("[server]\nlisten = 'localhost'", "etc/bulkhead.toml:2: server.listen:", "ADDR:PORT");
    refused_once("[log]\nlevel = 'loud'", "etc/bulkhead.toml:2: log.level:", "not one of off, error");
}

#[test]
fn plugin_is_of_wasi_02_unless_its_entry_says_03() {
    let allowed =
        |toml: &str| load(&format!("[[plugin]]\nfile = 'a.wasm'\n{toml}")).unwrap().plugins[0].policy.source.wasi;
    assert_eq!(allowed(""), WasiVersion::V0_2);
    assert_eq!(allowed("wasi = '0.2'"), WasiVersion::V0_2);
    assert_eq!(allowed("wasi = '0.3'"), WasiVersion::V0_3);
    let preview = "[[plugin]]\nname = 'a'\nfile = 'a.wasm'\nwasi = 'p3'";
    refused_once(preview, "etc/bulkhead.toml:4: plugin.a.wasi:", "not one of 0.2, 0.3");
}

#[test]
fn standard_error_is_in_results_as_the_entry_says() {
    let allowed = |toml: &str| {
        load(&format!("[[plugin]]\nfile = 'a.wasm'\n{toml}")).unwrap().plugins[0].policy.source.stderr_in_results
    };
    assert_eq!(allowed(""), None);
    assert_eq!(allowed("stderr_in_results = true"), Some(true));
    assert_eq!(allowed("stderr_in_results = false"), Some(false));
    let wrong = "[[plugin]]\nname = 'a'\nfile = 'a.wasm'\nstderr_in_results = 'yes'";
    refused_once(wrong, "etc/bulkhead.toml:4: plugin.a.stderr_in_results:", "true or false");
}

#[test]
fn contradicting_config_values_name_both_places() {
    let ttl = "[limits]\nttl_ms_max = 1000\nttl_ms_default = 2000";
    refused_once(ttl, "etc/bulkhead.toml:3: limits.ttl_ms_default = 2000 contradicts", "etc/bulkhead.toml:2");
    let default = "[limits]\nttl_ms_default = 86400001";
    refused_once(default, "etc/bulkhead.toml:2: limits.ttl_ms_default", "limits.ttl_ms_max = 86400000 (default)");
    for (low, high) in [
        ("calls_running_per_requestor", "calls_running_per_tenant"),
        ("calls_running_per_tenant", "calls_running_total"),
        ("tasks_running_per_requestor", "calls_running_per_requestor"),
        ("tasks_stored_per_requestor", "tasks_stored_per_tenant"),
    ] {
        let text = format!("[limits]\n{low} = 9\n{high} = 8");
        refused_once(&text, &format!("etc/bulkhead.toml:2: limits.{low} = 9 contradicts limits.{high} = 8"), ":3)");
    }
    refused_once(
        "[limits]\ntasks_stored_bytes_per_requestor = 2000\n[call]\nresult_bytes = 3000",
        "etc/bulkhead.toml:4: call.result_bytes = 3000 contradicts limits.tasks_stored_bytes_per_requestor",
        "etc/bulkhead.toml:2",
    );
    refused_once("[tenant.a.limits]\ncalls_running_per_tenant = 300", "etc/bulkhead.toml:2: tenant.a.limits.", "= 256");
    refused_once(
        "[limits]\nsteer_bytes_max = 4000\n[server]\nbody_bytes_max = 2000",
        "etc/bulkhead.toml:2: limits.steer_bytes_max",
        "etc/bulkhead.toml:4",
    );
    refused_once(
        "[[plugin]]\nname='a'\nfile='a'\n[plugin.call]\nresult_bytes = 5000\n[limits]\ntasks_stored_bytes_per_requestor = 4096",
        "etc/bulkhead.toml:5: plugin.a.call.result_bytes",
        "",
    );
}

#[test]
fn default_task_limits_leave_permits_for_plain_calls() {
    let limits = load("").unwrap().limits;
    assert!(limits.tasks_running_per_requestor < limits.calls_running_per_requestor);
    assert!(limits.tasks_running_per_tenant < limits.calls_running_per_tenant);
    let raised = load("[limits]\ntasks_running_per_requestor = 60\ncalls_running_per_requestor = 64").unwrap().limits;
    assert_eq!(raised.tasks_running_per_tenant, 60, "what nobody set follows");
}

#[test]
fn unset_limits_follow_a_lowered_limit() {
    let config =
        load("[limits]\ncalls_running_total = 4\nttl_ms_max = 1000\n[tenant.a.limits]\nttl_ms_max = 500").unwrap();
    let limits = &config.limits;
    assert_eq!((limits.calls_running_per_tenant, limits.tasks_running_per_requestor), (4, 4));
    assert_eq!(limits.ttl_ms_default, 1000);
    assert_eq!(config.tenants["a"].limits.ttl_ms_default, 500);
}

#[test]
fn unset_limits_follow_a_raised_limit() {
    let text = "[server]\nsessions_per_requestor = 200000\n[limits]\nrequests_per_second = 5000\n\
                [tenant.a.limits]\nrequests_per_second = 9000\n[tenant.b.limits]\nrequests_per_second_per_tenant = 10";
    let config = load(text).unwrap();
    assert_eq!((config.limits.sessions_per_tenant, config.limits.sessions_total), (200_000, 200_000));
    assert_eq!(config.limits.requests_per_second_per_tenant, 5_000);
    let rates = |tenant: &str| {
        let limits = &config.tenants[tenant].limits;
        (limits.requests_per_second, limits.requests_per_second_per_tenant)
    };
    assert_eq!((rates("a"), rates("b")), ((9_000, 9_000), (10, 10)));
    refused_once(
        "[limits]\nrequests_per_second = 9\nrequests_per_second_per_tenant = 8",
        "etc/bulkhead.toml:2: limits.requests_per_second = 9 contradicts limits.requests_per_second_per_tenant = 8",
        ":3)",
    );
    refused_once(
        "[tenant.a.limits]\nrequests_open_per_tenant = 90000",
        "etc/bulkhead.toml:2: tenant.a.limits.requests_open_per_tenant = 90000 contradicts limits.requests_open_total",
        "whole host",
    );
}

#[test]
fn tenant_cpu_weight_is_read_and_bounded() {
    let config = load("[tenant.a]\ncpu_weight = 5\n[tenant.b.limits]\nttl_ms_max = 500").unwrap();
    assert_eq!((config.tenants["a"].cpu_weight, config.tenants["b"].cpu_weight), (5, 1));
    assert_eq!(config.tenants["a"].limits, config.limits);
    for wrong in ["0", "1001", "-1", "'much'", "1.5"] {
        let text = format!("[tenant.a]\ncpu_weight = {wrong}");
        refused_once(&text, "etc/bulkhead.toml:2: tenant.a.cpu_weight:", "from 1 to 1000");
    }
}

#[test]
fn host_wide_config_keys_cannot_be_overridden() {
    refused_once("[tenant.a.limits]\ncalls_running_total = 1", "etc/bulkhead.toml:2: tenant.a.limits.", "whole host");
    refused_once(
        "[[plugin]]\nfile='a'\n[plugin.call]\nepoch_tick_ms = 1",
        "etc/bulkhead.toml:4: plugin.?.call.",
        "whole host",
    );
}

#[test]
fn config_flags_override_variables_override_file() {
    let flags = Flags { listen: Some("127.0.0.1:0".to_owned()), ..Flags::default() };
    let variables = [("BULKHEAD_LIMITS_TTL_MS_MAX", "5000"), ("BULKHEAD_SERVER_LISTEN", "127.0.0.1:1"), ("HOME", "/x")];
    let config = load_all("[limits]\nttl_ms_max = 7000\n[server]\nlisten = '127.0.0.1:2'", &variables, &flags).unwrap();
    assert_eq!((config.limits.ttl_ms_max, config.server.listen.port()), (5000, 0));
}

#[test]
fn every_scalar_config_key_has_a_variable() {
    for key in all_keys() {
        let Some(variable) = key.variable() else { continue };
        let text = match key.kind {
            Kind::Number { default, .. } => default.to_string(),
            Kind::Switch { default } => default.to_string(),
            Kind::Text { default, .. } => default.to_owned(),
            Kind::List => continue,
        };
        load_all("", &[(&variable, &text)], &Flags::default()).unwrap();
    }
}

#[test]
fn bad_config_variables_and_flags_are_refused_by_name() {
    let refused = |name: &str, value: &str| load_all("", &[(name, value)], &Flags::default()).unwrap_err().join("\n");
    assert!(refused("BULKHEAD_LIMIT_TTL", "1").starts_with("environment variable BULKHEAD_LIMIT_TTL: no such key"));
    assert!(refused("BULKHEAD_CALL_CPU_MS", "many").contains("BULKHEAD_CALL_CPU_MS: call.cpu_ms: \"many\" is not"));
    assert!(refused("BULKHEAD_CALL_CPU_MS", "3600001").contains("maximum of 3600000"));
    assert!(refused("BULKHEAD_SERVER_ALLOWED_HOSTS", "a").contains("is a list: set it in the file"));
    let flags = Flags { listen: Some("nowhere".to_owned()), ..Flags::default() };
    assert!(load_all("", &[], &flags).unwrap_err()[0].starts_with("--listen: server.listen:"));
}

#[test]
fn all_config_errors_are_reported_at_once() {
    let text = "[server]\nx = 1\n[call]\ncpu_ms = 0\n[[plugin]]\nname = 'a b'\non_restart = 'never'\n";
    let problems = load_all(text, &[("BULKHEAD_X", "1")], &Flags::default()).unwrap_err();
    assert_eq!(problems.len(), 6, "{problems:#?}");
    let places: Vec<_> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    assert!(places[..5].is_sorted() && places[5].starts_with("environment"), "{places:?}");
}

#[test]
fn durability_is_read_with_its_words() {
    let plugin =
        |keys: &str| load(&format!("[[plugin]]\nfile = 'a.wasm'\n{keys}")).unwrap().plugins.remove(0).policy.source;
    let bare = plugin("");
    assert_eq!((bare.durable, bare.journal), (Durability::Auto, JournalPolicy::default()));
    let said = plugin("durable = 'required'\nin_doubt = 'resend-idempotent'\nidempotency_header = 'X-Once'");
    assert_eq!((said.durable, said.journal.in_doubt), (Durability::Required, InDoubt::ResendIdempotent));
    assert_eq!(said.journal.idempotency_header.unwrap(), "x-once");
    assert_eq!(plugin("idempotency_header = ''").journal.idempotency_header, None);
    let wrong = "[[plugin]]\nfile = 'a'\nidempotency_header = 'a b'";
    refused_once(wrong, "etc/bulkhead.toml:3: plugin.?.idempotency_header:", "is not the name of a header");
    refused_once(
        "[[plugin]]\nfile = 'a'\ndurable = 'on'",
        "etc/bulkhead.toml:3: plugin.?.durable:",
        "off, auto, required",
    );
}

#[test]
fn broken_toml_is_refused_with_its_line() {
    let problems = refused("[server]\nlisten = \n");
    assert!(problems[0].starts_with("etc/bulkhead.toml:2: not valid TOML:"), "{problems:?}");
    let problems = refused("[log]\nlevel = 'info'\nlevel = 'debug'\n");
    assert!(problems[0].starts_with("etc/bulkhead.toml:3: not valid TOML:"), "{problems:?}");
}

#[test]
fn reference_and_help_name_every_key() {
    let page = configuration_markdown();
    let help = keys_help();
    for key in all_keys() {
        assert!(help.contains(key.name));
        assert!(page.contains(&format!("| `{}` |", key.path())));
    }
    assert!(page.contains("| `limits.ttl_ms_max` | ms | 86,400,000 | 1 | 2,592,000,000 | host, tenant |"));
}

/// Whether the reference describes a key of a table, or holds its number.
fn is_described(header: &str, key: &str) -> bool {
    let table = reference::TABLES.iter().find(|table| table.header == header);
    table.is_some_and(|table| table.keys.iter().any(|(name, ..)| *name == key))
        || keys_help().contains(&format!("  {}.{key} = ", header.trim_matches(['[', ']'])))
}

#[test]
fn reference_describes_every_key_of_every_table() {
    const NAMED: &str = "[[plugin]]\nfile = 'a'\n";
    for (header, text) in [
        ("[admin]", "[admin]\nnonsense = 1"),
        ("[metrics]", "[metrics]\nnonsense = 1"),
        ("[dashboard]", "[dashboard]\nnonsense = 1"),
        ("[server] tls", "[server]\ntls = { nonsense = 1 }"),
        ("[secrets]", "[secrets]\nnonsense = 1"),
        ("[store]", "[store]\nnonsense = 1"),
        ("[cluster]", "[cluster]\nnonsense = 1"),
        ("[encryption]", "[encryption]\nnonsense = 1"),
        ("[[auth.scope]]", "[[auth.scope]]\nnonsense = 1"),
        ("[[trust]]", "[[trust]]\nnonsense = 1"),
        ("[[plugin]]", &format!("{NAMED}nonsense = 1")),
        ("[plugin.grants]", &format!("{NAMED}[plugin.grants]\nnonsense = 1")),
        ("[plugin.kv]", &format!("{NAMED}[plugin.kv]\nnonsense = 1")),
        ("[plugin.canary]", &format!("{NAMED}[plugin.canary]\nnonsense = 1")),
    ] {
        let problems = refused(text);
        let known = problems
            .iter()
            .find_map(|problem| problem.split_once("; there are ").or(problem.split_once("; there is ")));
        let (_, known) = known.unwrap_or_else(|| panic!("{header}: {problems:?}"));
        for key in known.replace(" and ", ", ").split(", ") {
            assert!(is_described(header, key), "{header} takes {key}, which its table does not declare");
        }
    }
}
