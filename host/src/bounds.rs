//! Everything that a client can make grow has a bound, and the README lists it: read off the source.
//!
//! What this cannot see: a `Vec` that only grows, and a bound that is named and not kept. Those are for the tests beside the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::all_keys;

/// Where clients' traffic goes, what guests do to the host, and what both leave behind.
const ROOMS: [&str; 9] = [
    "transport",
    "protocol",
    "tasks",
    "control",
    "runtime/threads",
    "runtime/limits.rs runtime/blocking.rs runtime/egress runtime/clash.rs runtime/secrets runtime/files",
    "secrets outward",
    "store",
    "audit",
];

/// What keeps a collection from growing.
enum By {
    /// A key of the configuration.
    Key(&'static str),
    /// A number in the code.
    Const(&'static str),
    /// Something else, which no client can make more of.
    Because(&'static str),
}
use By::{Because, Const, Key};

const OPERATORS: By = Because("operators make tokens, plugins and names, clients do not");
/// Operators make tenants, and so do the tokens of issuers where they say so.
const TENANTS: By = Key("limits.tenants_total");
const TWIN: By = Because("the twin of the store, for tests and for what needs no disk");
const CHECKS: By = Because("operators check, one store at a time; it is gone when the check is over");
const SHARES: By =
    Because("operators make tenants, and twice as many requestors are remembered as have a call that is ready");

/// Fields that hold collections, by file.
const GROWS: &[(&str, &str, By)] = &[
    ("audit/read.rs", "first", Because("operators read the log, as many lines as they ask for")),
    ("protocol/legacy/sep1686_immediate.rs", "params", Key("server.body_bytes_max")),
    ("protocol/legacy/stream_router.rs", "sent", Const("INPUTS_MAX")),
    ("protocol/legacy/stream_router.rs", "tasks", Const("TASKS_MAX")),
    ("protocol/legacy/get_stream.rs", "known", Const("KNOWN_MAX")),
    ("protocol/modern/connection.rs", "in_flight", Key("limits.requests_open_per_requestor")),
    ("protocol/modern/listen.rs", "shown", Const("TASKS_MAX")),
    ("protocol/modern/bounded_cache.rs", "by_ticket", Const("STATES_TOTAL_MAX")),
    ("protocol/modern/bounded_cache.rs", "held", Const("STATES_TOTAL_MAX")),
    ("protocol/modern/tasks.rs", "input_responses", Key("server.body_bytes_max")),
    ("protocol/offers.rs", "arguments", Key("server.body_bytes_max")),
    ("protocol/session.rs", "expected", Const("EXPECTED_MAX")),
    ("protocol/session.rs", "in_flight", Key("limits.requests_open_per_requestor")),
    ("protocol/session.rs", "subscriptions", Const("SUBSCRIPTIONS_MAX")),
    ("runtime/blocking.rs", "tenants", TENANTS),
    ("runtime/egress/request_quota.rs", "parts", Const("REQUESTS_TOTAL_MAX")),
    ("runtime/egress/request_quota.rs", "tenants", Const("REQUESTS_TOTAL_MAX")),
    ("runtime/files/quota.rs", "under_way", Because("of each call, no more than it may have streams at a time")),
    ("runtime/files/walk.rs", "seen", Because("files with several names in one directory; gone when it is measured")),
    ("runtime/secrets/inject.rs", "frames", Const("BODY_BYTES_MAX")),
    ("runtime/secrets/scrub.rs", "ready", Because("two: the rest of a body and its trailers")),
    ("runtime/threads/queue.rs", "turns", Key("limits.calls_running_total")),
    ("runtime/threads/queue/turns.rs", "accounts", SHARES),
    ("runtime/threads/queue/turns.rs", "order", Key("limits.calls_running_total")),
    ("store/keyvalue.rs", "counts", TENANTS),
    ("store/keyvalue/turns.rs", "tenants", TENANTS),
    ("store/leases.rs", "nodes", Because("hosts on one store, which operators start")),
    ("store/ledger.rs", "requestors", Key("limits.requestors_per_tenant")),
    ("store/ledger.rs", "tenants", TENANTS),
    ("store/memory.rs", "aliases", TWIN),
    ("store/memory.rs", "banished", TWIN),
    ("store/memory.rs", "expiry", TWIN),
    ("store/memory.rs", "list", TWIN),
    ("store/memory.rs", "rows", TWIN),
    ("store/memory.rs", "tasks", TWIN),
    ("store/memory.rs", "unfinished", TWIN),
    ("store/sled.rs", "banished", Because("tenants that operators erase")),
    ("store/sled/backup.rs", "copied", Because("operators make backups; the files of one store")),
    ("store/sled/backup.rs", "touched", Because("operators make backups; keys that are written during one pass")),
    ("store/sled/check.rs", "chunks", CHECKS),
    ("store/sled/check.rs", "index", CHECKS),
    ("store/sled/files.rs", "pending", Because("of each task that is being written, no more than it has payloads")),
    ("store/sled/group.rs", "writes", Const("GROUP_OPERATIONS_MAX")),
    ("store/sled/rebuild.rs", "taken", CHECKS),
    ("store/sled/sealing.rs", "known", TENANTS),
    (
        "store/sled/stock.rs",
        "named",
        Because("of each stored task, no more than it has payloads, while a start or an operator counts"),
    ),
    ("tasks/admission.rs", "queues", Key("limits.tasks_queued_total")),
    ("tasks/admission.rs", "requestors", Key("limits.tasks_queued_total")),
    ("tasks/admission.rs", "tenants", TENANTS),
    ("tasks/admission.rs", "turns", Key("limits.tasks_queued_total")),
    ("tasks/tenant_fence.rs", "tenants", TENANTS),
    ("tasks/breaker.rs", "after", OPERATORS),
    ("tasks/breaker.rs", "faults", Const("FAULTS_SHOWN")),
    ("tasks/breaker.rs", "requestors", Const("REQUESTORS_MAX")),
    ("tasks/breaker.rs", "tenants", Const("TENANTS_MAX")),
    ("tasks/breaker.rs", "versions", Const("VERSIONS_MAX")),
    ("tasks/poll_interval.rs", "usual_ms", Const("ENTRIES_MAX")),
    ("tasks/engine.rs", "cpu_weights", OPERATORS),
    ("tasks/engine.rs", "runs", Key("limits.tasks_queued_total")),
    ("tasks/feed.rs", "by_key", Key("limits.requests_open_total")),
    ("tasks/catalog_events.rs", "said", OPERATORS),
    ("tasks/rate.rs", "tenants", TENANTS),
    ("tasks/shares.rs", "by_tenant", TENANTS),
    ("tasks/shares.rs", "weights", OPERATORS),
    ("tasks/abuse.rs", "seen", Const("REQUESTORS_MAX")),
    ("tasks/canary_stats/window.rs", "of", Const("CALLS_MAX")),
    ("tasks/canary_stats/window.rs", "samples", Const("CALLS_MAX")),
    ("tasks/canary_stats.rs", "watched", Const("CANARIES_MAX")),
    ("transport/quota.rs", "requestors", Key("limits.requests_open_total")),
    ("transport/quota.rs", "tenants", TENANTS),
    ("transport/auth/introspection.rs", "answers", Const("ANSWERS_MAX")),
    ("transport/auth/introspection_limiter.rs", "addresses", Key("server.connections_max")),
    ("transport/auth/token_audit.rs", "at", Const("NOTED_MAX")),
    ("transport/bodies/flow.rs", "requestors", Key("limits.requestors_per_tenant")),
    ("transport/bodies/flow.rs", "tenants", TENANTS),
    ("transport/bodies/room.rs", "line", Key("limits.requests_open_total")),
    ("transport/failures.rs", "over", Const("ADDRESSES_MAX")),
    ("transport/http.rs", "hosts", OPERATORS),
    ("transport/http/addresses.rs", "open", Key("server.connections_max")),
    ("transport/principal.rs", "ids", OPERATORS),
    ("transport/principal.rs", "names", OPERATORS),
    ("transport/principal.rs", "removed", OPERATORS),
    ("transport/principal/provisioning.rs", "requestors", TENANTS),
    ("transport/principal/last_used.rs", "seen", OPERATORS),
    ("transport/session.rs", "entries", Key("limits.sessions_total")),
    ("transport/session.rs", "owners", Key("limits.sessions_total")),
    ("transport/sse.rs", "events", Const("EVENTS_MAX")),
    ("transport/sse.rs", "logs", Const("LOGS_MAX")),
    ("transport/stdio.rs", "requests", Key("limits.requests_open_per_requestor")),
    ("transport/stdio.rs", "standalone", Because("one: the former one is ended before")),
];

/// Limits of a requestor whose tenant or host is bounded by a key of another name.
const COVERED: &[(&str, &str)] = &[
    ("tasks_running_total", "calls_running_total"),
    ("tasks_waiting_total", "calls_resting_total"),
    ("tasks_paused_total", "calls_resting_total"),
];

/// Limits without one for the host: the disk is, which makes the store read-only before it is full.
const BOUNDED_BY_THE_DISK: [&str; 2] = ["tasks_stored_total", "tasks_stored_bytes_total"];

fn files(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.flat_map(|entry| files(&entry.unwrap().path())).collect();
    files.sort();
    files
}

/// The code of the rooms up to its tests, by path below `src`.
fn code() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooms = ROOMS.iter().flat_map(|room| room.split(' '));
    let paths = rooms.flat_map(|room| [files(&root.join(room)), files(&root.join(format!("{room}.rs")))].concat());
    let named = paths.map(|path| (path.strip_prefix(&root).unwrap().to_string_lossy().into_owned(), path));
    let own = named.filter(|(name, _)| name.ends_with(".rs") && !name.contains("tests"));
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    own.map(|(name, path)| (name, without_tests(&read(&path)).to_owned())).collect()
}

/// A file may also name the module of its tests at the top; nothing ends there.
pub(crate) fn without_tests(text: &str) -> &str {
    let mut modules = text.match_indices("\n#[cfg(test)]\nmod ");
    let begins = |at: usize| text[at..].lines().nth(2).is_some_and(|line| line.ends_with('{'));
    modules.find(|(at, _)| begins(*at)).map_or(text, |(at, _)| &text[..at])
}

/// Fields whose type holds a collection that can grow, as (file, field).
fn growing(code: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    const COLLECTIONS: [&str; 7] =
        ["HashMap<", "HashSet<", "BTreeMap<", "BTreeSet<", "VecDeque<", "JoinSet<", "Mutex<Vec<"];
    let mut fields = BTreeSet::new();
    for (file, text) in code {
        let mut inside = false;
        for line in text.lines() {
            let trimmed = line.trim_start().trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ");
            let trimmed = trimmed.trim_start_matches("pub ");
            if trimmed.starts_with("struct ") {
                inside = line.ends_with('{');
            } else if line == "}" {
                inside = false;
            }
            let Some((field, kind)) = trimmed.split_once(": ").filter(|_| inside) else { continue };
            let is_name = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if is_name && COLLECTIONS.iter().any(|collection| kind.contains(collection)) && !kind.starts_with('&') {
                fields.insert((file.clone(), field.to_owned()));
            }
        }
    }
    fields
}

/// Fixed numbers, as (path, value, first sentence of what they say about themselves).
fn fixed(code: &BTreeMap<String, String>) -> Vec<(String, u64, String)> {
    let mut found = Vec::new();
    for (file, text) in code {
        let mut doc = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(said) = line.strip_prefix("/// ") {
                doc = if doc.is_empty() { said.to_owned() } else { format!("{doc} {said}") };
                continue;
            }
            let constant = line.split_once("const ").and_then(|(_, rest)| rest.split_once(": "));
            if let Some((name, rest)) = constant.filter(|(name, _)| name.ends_with("_MAX")) {
                let value = rest.split_once(" = ").and_then(|(_, value)| number(value.trim_end_matches(';')));
                if let Some(value) = value {
                    let module = file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
                    let sentence = doc.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned();
                    found.push((format!("{module}::{name}"), value, sentence));
                }
            }
            doc.clear();
        }
    }
    found
}

/// `4_096`, `64 << 10` or `64 * 1024`.
fn number(text: &str) -> Option<u64> {
    let plain = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    if let Some((left, right)) = text.split_once("<<") {
        return Some(plain(left)? << plain(right)?);
    }
    match text.split_once('*') {
        Some((left, right)) => Some(plain(left)? * plain(right)?),
        None => plain(text),
    }
}

fn keys() -> BTreeSet<String> {
    all_keys().map(crate::config::Key::path).collect()
}

#[test]
fn whatever_a_client_can_make_grow_has_a_bound_that_exists() {
    let code = code();
    let growing = growing(&code);
    assert!(growing.len() > 40, "the search finds what it is for: {growing:?}");
    let named: BTreeSet<_> = GROWS.iter().map(|(file, field, _)| ((*file).to_owned(), (*field).to_owned())).collect();
    let without: Vec<_> = growing.difference(&named).collect();
    assert!(without.is_empty(), "say in GROWS what bounds these: {without:#?}");
    let gone: Vec<_> = named.difference(&growing).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:#?}");
    let (keys, source) = (keys(), all_source());
    for (file, field, by) in GROWS {
        let exists = match by {
            Key(key) => keys.contains(*key),
            Const(name) => source.contains(&format!("const {name}: ")),
            Because(why) => !why.is_empty(),
        };
        assert!(exists, "what is said to bound {file}: {field} does not exist");
    }
}

fn all_source() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&root).iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

#[test]
fn channels_are_bounded() {
    let unbounded: Vec<_> =
        code().into_iter().filter(|(_, text)| text.contains("unbounded_")).map(|(file, _)| file).collect();
    assert!(unbounded.is_empty(), "{unbounded:?}");
}

/// The constants that a piece of code names.
fn constants(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let is_constant = |word: &&str| {
        word.len() > 1
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && !word.contains(|letter: char| letter.is_ascii_lowercase())
    };
    words.filter(is_constant)
}

/// What is not called a bound is not in the table.
#[test]
fn numbers_that_make_queues_places_and_rates_are_called_bounds() {
    let shares = ["_PER_ADDRESS", "_PER_MINUTE", "_PER_REQUESTOR", "_PER_SECOND", "_PER_TENANT"];
    let is_share = |name: &&str| shares.iter().any(|share| name.contains(share));
    let (mut seen, mut unlisted) = (0, Vec::new());
    for (file, text) in code() {
        for line in text.lines() {
            let calls = ["Semaphore::new(", "channel(", ".listen("].into_iter();
            let made_with = calls.filter_map(|call| Some(line.split_once(call)?.1)).flat_map(constants);
            let declared =
                line.split_once("const ").map_or("", |(_, rest)| rest.split(": ").next().unwrap_or_default());
            for name in made_with.chain(constants(declared).filter(is_share)) {
                seen += 1;
                if !name.ends_with("_MAX") {
                    unlisted.push(format!("{file}: {name}"));
                }
            }
        }
    }
    assert!(seen > 10, "the search finds what it is for");
    assert!(unlisted.is_empty(), "call these _MAX: {unlisted:#?}");
}

#[test]
fn what_a_requestor_may_have_its_tenant_and_the_host_have_limits_for() {
    let names: BTreeSet<_> = all_keys().map(|key| key.name.to_owned()).collect();
    let mut missing = Vec::new();
    for kind in names.iter().filter_map(|name| name.strip_suffix("_per_requestor")) {
        for level in ["per_tenant", "total"] {
            let wanted = format!("{kind}_{level}");
            let covered = COVERED.iter().any(|(name, by)| *name == wanted && names.contains(*by));
            if !names.contains(&wanted) && !covered && !BOUNDED_BY_THE_DISK.contains(&wanted.as_str()) {
                missing.push(wanted);
            }
        }
    }
    for rate in names.iter().filter(|name| name.ends_with("s_per_second") && !name.starts_with("events")) {
        let wanted = format!("{rate}_per_tenant");
        if !names.contains(&wanted) {
            missing.push(wanted);
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    for kind in [
        "calls_running",
        "calls_queued",
        "tasks_queued",
        "requests_open",
        "request_bytes_open",
        "sessions",
        "event_bytes",
        "answer_bytes",
    ] {
        for level in ["per_requestor", "per_tenant", "total"] {
            assert!(names.contains(&format!("{kind}_{level}")), "{kind}_{level}");
        }
    }
    for name in ["connections_max", "connections_per_address"] {
        assert!(names.contains(name), "{name}");
    }
}

/// Whoever is refused looks the limit's name up.
#[test]
fn a_refusal_names_a_limit_that_is_documented() {
    let names: BTreeSet<_> = all_keys().map(|key| key.name).collect();
    let (mut unknown, mut seen) = (Vec::new(), 0);
    for (file, text) in code() {
        // Every second part of a line lies between quotation marks.
        for literal in text.lines().flat_map(|line| line.split('"').skip(1).step_by(2)) {
            let is_name = literal.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if is_name && (literal.contains("_per_") || literal.ends_with("_total")) {
                seen += 1;
                if !names.contains(literal) {
                    unknown.push(format!("{file}: {literal}"));
                }
            }
        }
    }
    assert!(seen > 20, "the search finds what it is for");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

fn fixed_table() -> String {
    let mut table = String::from("| bound | value | what it bounds |\n| --- | --- | --- |\n");
    for (path, value, sentence) in fixed(&code()) {
        assert!(!sentence.is_empty(), "{path} needs a sentence that says what it bounds");
        table.push_str(&format!("| `{path}` | {value} | {sentence} |\n"));
    }
    table
}

#[test]
fn readme_has_the_table_of_fixed_bounds() {
    let table = fixed_table();
    for name in [
        "secrets::DESTINATIONS_MAX",
        "store::ROW_BYTES_MAX",
        "sse::EVENTS_MAX",
        "sse::LOGS_MAX",
        "endpoint::STANDALONE_MAX",
        "listen::RESOURCES_MAX",
        "PARKED_TOTAL_MAX",
    ] {
        assert!(table.contains(name), "{name}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- bounds:begin -->\n", "<!-- bounds:end -->");
    let (head, rest) = readme.split_once(begin).unwrap();
    let (there, tail) = rest.split_once(end).unwrap();
    if there != table && std::env::var_os("BULKHEAD_WRITE_README").is_some() {
        fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert!(there == table, "run this test with BULKHEAD_WRITE_README=1, or put this between the markers:\n{table}");
}
