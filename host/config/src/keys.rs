//! The table of keys: name, unit, default, bounds and meaning, once. Parsing, variables, checks and documents all read
//! it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::key::{Bound, Field, Key, Kind, Scope, Unit, Value};
use bulkhead_domain::limits::{CallLimits, CompileLimits, Limits};
use bulkhead_domain::names::check_name;
use bulkhead_net::address::{Network, NotANetwork};
use bulkhead_plugins::sources::{COMPONENT_BYTES_MAX, FETCH_MS_DEFAULT};

/// How text goes to the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

macro_rules! field {
    ($type:ty, $blank:expr, $kind:ident, $parse:expr) => {
        impl Field for $type {
            fn blank() -> Self {
                $blank
            }
            fn set(&mut self, value: &Value) -> Result<(), String> {
                let Value::$kind(value) = value else { return Err(format!("cannot be {}", value.article())) };
                let parse: fn(&_) -> Result<$type, String> = $parse;
                *self = parse(value)?;
                Ok(())
            }
        }
    };
}
field!(u32, 0, Number, |number: &u64| Self::try_from(*number).map_err(|_| format!("{number} is too large")));
field!(u64, 0, Number, |number| Ok(*number));
field!(bool, false, Switch, |switch| Ok(*switch));
field!(String, Self::new(), Text, |text: &String| Ok(text.clone()));
field!(PathBuf, Self::new(), Text, |text: &String| Ok(Self::from(text)));
field!(LogFormat, Self::Text, Text, |text: &String| Ok(if text == "json" { Self::Json } else { Self::Text }));
field!(SocketAddr, Self::from(([127, 0, 0, 1], 0)), Text, |text: &String| {
    text.parse()
        .map_err(|_| format!("{text:?} is not ADDR:PORT with a numeric address, like 127.0.0.1:8808 or [::1]:8808"))
});
field!(Vec<String>, Self::new(), List, |list: &Vec<String>| Ok(list.clone()));
field!(Vec<Network>, Self::new(), List, |list: &Vec<String>| {
    list.iter().map(|text| text.parse()).collect::<Result<_, NotANetwork>>().map_err(|error| error.to_string())
});

const fn count(default: u64, min: u64, max: u64) -> Kind {
    Kind::Number { unit: Unit::Count, default, min, max }
}

const fn ms(default: u64, min: u64, max: u64) -> Kind {
    Kind::Number { unit: Unit::Milliseconds, default, min, max }
}

const fn bytes(default: u64, min: u64, max: u64) -> Kind {
    Kind::Number { unit: Unit::Bytes, default, min, max }
}

const fn per_second(default: u64, max: u64) -> Kind {
    Kind::Number { unit: Unit::PerSecond, default, min: 1, max }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// Binds each field of a struct to its key; a field without a key does not compile. With the types of the fields, makes
/// the struct too.
macro_rules! section {
    ($keys:ident, $blank:ident, struct $type:ident, $section:literal, {
        $($field:ident: $field_type:ty = $kind:expr, $scope:ident, $doc:literal;)+
    }) => {
        #[doc = concat!("`[", $section, "]`.")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $type {
            $(#[doc = $doc] pub $field: $field_type),+
        }

        section!($keys, $blank, $type, $section, { $($field: $kind, $scope, $doc;)+ });
    };
    ($keys:ident, $blank:ident, $type:ident, $section:literal, {
        $($field:ident: $kind:expr, $scope:ident, $doc:literal;)+
    }) => {
        pub(super) static $keys: &[Bound<$type>] = &[$(Bound {
            key: Key { section: $section, name: stringify!($field), kind: $kind, scope: Scope::$scope, doc: $doc },
            field: |section| &mut section.$field,
        }),+];

        pub(super) fn $blank() -> $type {
            $type { $($field: Field::blank()),+ }
        }
    };
}

/// What a host must have before it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyRequirement {
    /// The plugin of this name is served.
    Plugin(String),
}

impl ReadyRequirement {
    fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix("plugin:").filter(|name| check_name(name).is_ok());
        let name = name.ok_or_else(|| format!("{text:?} is not plugin:NAME, such as plugin:csv"))?;
        Ok(Self::Plugin(name.to_owned()))
    }
}

field!(Vec<ReadyRequirement>, Self::new(), List, |list: &Vec<String>| {
    list.iter().map(|text| ReadyRequirement::parse(text)).collect()
});

section!(SERVER, blank_server, struct ServerConfig, "server", {
    listen: SocketAddr = Kind::Text { default: "127.0.0.1:8808", allowed: &[] }, Host,
        "ADDR:PORT to listen on; port 0 picks a free one; anything but a loopback address needs authentication and TLS";
    data: PathBuf = Kind::Text { default: "./bulkhead-data", allowed: &[] }, Host,
        "The data directory: tasks, tokens, compiled plugins, the control socket";
    allowed_hosts: Vec<String> = Kind::List, Host,
        "Host names that requests may be sent to, besides the loopback names";
    allowed_origins: Vec<String> = Kind::List, Host,
        "Exact origins of web pages that may call the host; also answered by CORS";
    trusted_proxies: Vec<Network> = Kind::List, Host,
        "Addresses and networks of proxies that have TLS in front of this host; only they say who is behind them";
    ready_requires: Vec<ReadyRequirement> = Kind::List, Host,
        "What must be served before /readyz says ready, each plugin:NAME; a plugin that is not named here and does not run leaves the host ready";
    drain_ms: u64 = ms(10_000, 0, 600_000), Host,
        "How long running calls may go on after SIGTERM";
    connections_max: u32 = count(10_000, 1, 1_000_000), Host,
        "Open connections; more wait to be accepted";
    connections_per_address: u32 = count(1_000, 1, 1_000_000), Host,
        "Open connections from one address, or one IPv6 network of 64 bits; more are closed at once. Configured proxies have no such limit";
    header_bytes_max: u32 = bytes(32 * KIB, KIB, MIB), Host,
        "All headers of one request together";
    header_read_ms_max: u64 = ms(10_000, 1, 600_000), Host,
        "How long a client may take to send its headers";
    body_bytes_max: u64 = bytes(4 * MIB, KIB, 64 * MIB), Host,
        "One request body, and one line over stdio";
    sse_after_ms: u64 = ms(5_000, 0, HOUR), Host,
        "A request that has sent nothing for this long goes on as an event stream, if the client accepts one";
    sse_keepalive_ms: u64 = ms(15_000, 1, HOUR), Host,
        "A comment is sent on an event stream that has been silent for this long";
    session_idle_ms_max: u64 = ms(HOUR, 1, 30 * DAY), Host,
        "A session without a request for this long is forgotten";
    sessions_per_requestor: u32 = count(1_000, 1, 1_000_000), Host,
        "Sessions of one requestor at a time";
    credential_failures_per_minute: u32 = count(60, 1, 1_000_000), Host,
        "Credentials from one address (of IPv6: one /64) that may be invalid, before the answer is 429; valid ones are not counted";
    connection_workers: bool = Kind::Switch { default: true }, Host,
        "Whether a connection stays on one thread and leaves it for large bodies; false lets all threads serve all connections";
    memory_images: bool = Kind::Switch { default: true }, Host,
        "Whether plugins with much data, such as scripts, have memories whose written pages are restored after each call; false leaves them to the instance pool";
    tools_per_page: u32 = count(200, 1, 1_000), Host,
        "Tools on one page of tools/list";
    tool_search: bool = Kind::Switch { default: false }, Host,
        "Whether clients are listed search_tools and call_tool in the place of all tools; a toolset may say otherwise";
});

section!(LIMITS, blank_limits, Limits, "limits", {
    calls_running_per_requestor: count(16, 1, 4_096), Override,
        "Running calls of one requestor, plain ones and tasks together";
    calls_running_per_tenant: count(64, 1, 4_096), Override,
        "Running calls of all requestors of one tenant";
    calls_running_total: count(256, 1, 4_096), Host,
        "Running calls of the whole host, an eighth of them for tenants that have none; also the size of the instance pool";
    call_queue_ms_max: ms(2_000, 0, 600_000), Override,
        "How long a plain call waits for a permit before it is refused";
    calls_queued_per_requestor: count(64, 0, 100_000), Override,
        "Plain calls of one requestor that wait for a permit";
    calls_queued_per_tenant: count(256, 0, 100_000), Override,
        "Plain calls of all requestors of one tenant that wait for a permit";
    calls_queued_total: count(2_048, 0, 100_000), Host,
        "Plain calls of the whole host that wait for a permit";
    tasks_running_per_requestor: count(12, 1, 4_096), Override,
        "Running tasks of one requestor; the rest of its running calls is left to plain ones";
    tasks_running_per_tenant: count(48, 1, 4_096), Override,
        "Running tasks of all requestors of one tenant, likewise";
    tasks_queued_per_requestor: count(256, 0, 1_000_000), Override,
        "Tasks of one requestor that wait for their turn";
    tasks_queued_per_tenant: count(1_024, 0, 1_000_000), Override,
        "Tasks of all requestors of one tenant that wait for their turn";
    tasks_queued_total: count(16_384, 0, 10_000_000), Host,
        "Tasks of the whole host that wait for their turn";
    tasks_waiting_per_requestor: count(256, 0, 1_000_000), Override,
        "Tasks of one requestor that hold an instance without running: asked, sleeping or parked";
    tasks_waiting_per_tenant: count(384, 0, 1_000_000), Override,
        "Those of all requestors of one tenant";
    tasks_paused_per_requestor: count(64, 0, 1_000_000), Override,
        "Paused tasks of one requestor";
    tasks_paused_per_tenant: count(128, 0, 1_000_000), Override,
        "Paused tasks of all requestors of one tenant";
    calls_resting_per_tenant: count(384, 0, 4_096), Override,
        "Waiting and paused calls of one tenant together: each holds an instance";
    calls_resting_total: count(768, 1, 4_096), Host,
        "Waiting and paused calls of the whole host, an eighth for tenants that have none; in the pool beside the running ones";
    tasks_resident_total: count(64, 0, 4_096), Host,
        "Durable tasks that rest in memory; above it, those that rest longest leave memory until they go on";
    task_evict_after_ms: ms(10_000, 0, DAY), Override,
        "How long a durable task rests before it leaves memory";
    task_evict_cpu_ms: ms(2_000, 0, HOUR), Override,
        "Processor time of a call above which its task stays in memory: it would be used again when it goes on";
    tasks_stored_per_requestor: count(10_000, 1, 100_000_000), Override,
        "Tasks of one requestor in the store, finished ones included, until they expire";
    tasks_stored_bytes_per_requestor: bytes(256 * MIB, KIB, TIB), Override,
        "Bytes of those tasks: records, arguments, results, and what is reserved for results";
    tasks_stored_per_tenant: count(100_000, 1, 100_000_000), Override,
        "Tasks of all requestors of one tenant in the store";
    tasks_stored_bytes_per_tenant: bytes(2 * GIB, KIB, TIB), Override,
        "Bytes of those tasks";
    requests_per_second: per_second(200, 1_000_000), Override,
        "Requests of one requestor, with a burst of twice this";
    requests_per_second_per_tenant: per_second(1_000, 10_000_000), Override,
        "Requests of all requestors of one tenant, with a burst of twice this";
    request_bytes_per_second: per_second(128 * MIB, 4_000_000_000), Override,
        "Bytes of one requestor's bodies above 64 KiB, with a burst of twice this; a body waits up to 10 s for its turn";
    request_bytes_per_second_per_tenant: per_second(512 * MIB, 4_000_000_000), Override,
        "Those of all requestors of one tenant, with a burst of twice this";
    task_creations_per_second: per_second(50, 1_000_000), Override,
        "New tasks of one requestor, with a burst of twice this";
    task_creations_per_second_per_tenant: per_second(250, 10_000_000), Override,
        "New tasks of all requestors of one tenant, with a burst of twice this";
    requests_open_per_requestor: count(1_024, 1, 1_000_000), Override,
        "Open requests of one requestor, over HTTP and stdio; every event stream and every subscriptions/listen is one, and a request of a session is open until it ends, even if its client has gone";
    requests_open_per_tenant: count(4_096, 1, 1_000_000), Override,
        "Open requests of all requestors of one tenant";
    requests_open_total: count(16_384, 1, 10_000_000), Host,
        "Open requests of the whole host";
    request_bytes_open_per_requestor: bytes(64 * MIB, 64 * KIB, TIB), Override,
        "Bytes of one requestor's bodies above 64 KiB that are in memory, from before they are read until their message is dealt with; a body waits up to 10 s for room, and a larger one than this is refused";
    request_bytes_open_per_tenant: bytes(128 * MIB, 64 * KIB, TIB), Override,
        "Those of all requestors of one tenant";
    request_bytes_open_total: bytes(512 * MIB, 64 * KIB, TIB), Host,
        "Those of the whole host";
    sessions_per_tenant: count(10_000, 1, 1_000_000), Override,
        "Sessions of all requestors of one tenant at a time; for one requestor, server.sessions_per_requestor says so";
    sessions_total: count(100_000, 1, 10_000_000), Host,
        "Sessions of the whole host at a time";
    requestors_per_tenant: count(10_000, 1, 10_000_000), Override,
        "Requestors of one tenant above which access tokens bring in no more; they are remembered until their tenant is erased";
    requestor_creations_per_second_per_tenant: per_second(10, 1_000_000), Host,
        "Requestors of one tenant that come with an access token for the first time, with a burst of twice this";
    tenants_total: count(1_000, 1, 1_000_000), Host,
        "Tenants of the host above which access tokens bring in no more that the configuration does not name";
    event_bytes_per_requestor: bytes(64 * MIB, KIB, TIB), Override,
        "Events of one requestor that are kept so that their streams can be resumed; the oldest go first";
    event_bytes_per_tenant: bytes(256 * MIB, KIB, TIB), Override,
        "Those of all requestors of one tenant";
    event_bytes_total: bytes(GIB, KIB, TIB), Host,
        "Those of the whole host";
    answer_bytes_per_requestor: bytes(32 * MIB, KIB, TIB), Override,
        "Answers of one requestor above 64 KiB that wait to be read; with less than a quarter left no call starts, and an answer without room is an error";
    answer_bytes_per_tenant: bytes(64 * MIB, KIB, TIB), Override,
        "Those of all requestors of one tenant";
    answer_bytes_total: bytes(160 * MIB, KIB, TIB), Host,
        "Those of the whole host";
    ttl_ms_default: ms(HOUR, 1, 30 * DAY), Override,
        "How long a task is kept when its client does not say";
    ttl_ms_max: ms(DAY, 1, 30 * DAY), Override,
        "The longest time that a client may ask for; longer wishes are shortened to it";
    ttl_unlimited: Kind::Switch { default: false }, Override,
        "Whether a client may ask for a task that never expires";
    steer_queue: count(16, 0, 10_000), Override,
        "Steering messages waiting for one task";
    steer_bytes_max: bytes(16 * KIB, 1, MIB), Override,
        "One steering message";
    failed_lookups_per_minute: count(600, 1, 1_000_000), Override,
        "Looks of one requestor for tasks that are not there or not its own; with more, it is logged and blocked for a while";
    failed_lookups_block_ms: ms(60_000, 0, DAY), Override,
        "How long such a requestor may look for no task at all, whichever it is; 0 is never blocked";
    early_polls_per_minute: count(600, 1, 1_000_000), Override,
        "Polls of one requestor that come in less than a quarter of the interval that it was given; more are logged";
});

section!(CALL, blank_call, CallLimits, "call", {
    cpu_ms: ms(30_000, 1, HOUR), Override,
        "CPU time of one call; counts while the guest computes";
    wall_ms: ms(600_000, 1, DAY), Override,
        "Wall clock of one call; stops while it waits or is paused";
    memory_bytes: bytes(64 * MIB, 64 * KIB, 4 * GIB), Override,
        "All linear memories of one call together";
    arguments_bytes: bytes(MIB, 2, 64 * MIB), Override,
        "The arguments of one call, as JSON";
    result_bytes: bytes(4 * MIB, KIB, 64 * MIB), Override,
        "The result of one call";
    log_bytes: bytes(256 * KIB, 0, 64 * MIB), Override,
        "Everything that one call logs or prints";
    events_per_second: per_second(50, 10_000), Override,
        "Progress, status and log messages of one call together; more are merged";
    promote_after_ms: ms(1_000, 0, HOUR), Override,
        "When a call of a tool with optional task support becomes a task (clients of 2026-07-28); 0 is at once";
    cancel_grace_ms: ms(200, 0, 60_000), Override,
        "Between the cancel signal and the end of the sandbox";
    epoch_tick_ms: ms(10, 1, 1_000), Host,
        "How often a computing guest gives way to others";
    journal_bytes: bytes(4 * MIB, 64 * KIB, 64 * MIB), Override,
        "Journal of one durable call; one that gets longer is given up, and its call can only begin again";
    journal_entries: count(100_000, 1_000, 10_000_000), Override,
        "The same, in entries: each is read again when the call is resumed";
    journal_response_bytes: bytes(MIB, KIB, 64 * MIB), Override,
        "HTTP response that a durable call is sent; a longer one is not kept, and its journal is given up";
});

section!(COMPILE, blank_compile, CompileLimits, "compile", {
    memory_bytes: bytes(2 * GIB, 256 * MIB, 64 * GIB), Host,
        "Memory of the process that compiles one component";
    cpu_ms: ms(120_000, 1_000, HOUR), Host,
        "CPU time of that process, over all its threads; counted in whole seconds";
    functions_max: count(200_000, 1, 1_000_000), Host,
        "Functions of one component, over all its modules";
});

section!(LOG, blank_log, struct LogConfig, "log", {
    level: String = Kind::Text { default: "info", allowed: &["off", "error", "warn", "info", "debug", "trace"] }, Host,
        "What is logged: off, error, warn, info, debug or trace";
    format: LogFormat = Kind::Text { default: "text", allowed: &["text", "json"] }, Host,
        "How it is logged, on stderr: text or json";
    slow_ms: u64 = ms(10_000, 0, DAY), Host,
        "A request that takes longer is a warning in the log, with its method, tool and outcome; 0: none is";
});

section!(AUDIT, blank_audit, struct AuditConfig, "audit", {
    enabled: bool = Kind::Switch { default: false }, Host,
        "Whether an audit log is kept in the data directory: who did what, never with which arguments";
    file_bytes_max: u64 = bytes(64 * MIB, 64 * KIB, GIB), Host,
        "A file of the audit log that is longer is followed by another one";
    files_max: u64 = count(64, 0, 1_000_000), Host,
        "Files of the audit log that are kept; older ones are removed, and the log says so; 0 keeps all";
    operator_reads: bool = Kind::Switch { default: true }, Host,
        "Whether what operators only look at is in the audit log, the same once a minute; looks at what is one tenant's always are";
});

section!(SOURCES, blank_sources, struct SourcesConfig, "sources", {
    component_bytes_max: u64 = bytes(COMPONENT_BYTES_MAX, KIB, COMPONENT_BYTES_MAX), Host,
        "A component that is fetched, or found in a watched folder";
    fetch_ms_max: u64 = ms(FETCH_MS_DEFAULT, 1, HOUR), Host,
        "How long fetching a component may take, its redirects and signatures included";
    watch: Vec<String> = Kind::List, Host,
        "Folders whose *.wasm files become plugins, and new versions of them, while the host runs";
    private_hosts: Vec<String> = Kind::List, Host,
        "Hosts (names or addresses) that components may be fetched from although their addresses are not public";
    plain_http_hosts: Vec<String> = Kind::List, Host,
        "Hosts whose registries are spoken to over http, which anybody on the way can change; those on this machine always are";
    roots: Vec<String> = Kind::List, Host,
        "Files with more certificates (PEM) that servers of components may be certified by";
});

/// Paths that start at the folder of the file.
pub(super) fn is_path(key: &Key) -> bool {
    matches!((key.section, key.name), ("server", "data") | ("sources", "roots" | "watch"))
}

/// Every key, in the order of the file.
pub fn all() -> impl Iterator<Item = &'static Key> {
    fn of<S>(bounds: &'static [Bound<S>]) -> impl Iterator<Item = &'static Key> {
        bounds.iter().map(|bound| &bound.key)
    }
    of(SERVER).chain(of(LIMITS)).chain(of(CALL)).chain(of(COMPILE)).chain(of(LOG)).chain(of(AUDIT)).chain(of(SOURCES))
}

/// For the message about a name that no key of the section has: the one that was probably meant.
pub(super) fn hint(section: &str, name: &str) -> String {
    let known = all().filter(|key| key.section == section).map(|key| key.name);
    bulkhead_protocol::nearest_name(name, known).map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

/// The key of this name.
pub(super) fn find(section: &str, name: &str) -> Option<&'static Key> {
    all().find(|key| key.section == section && key.name == name)
}
