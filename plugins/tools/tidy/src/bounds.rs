//! Everything that a client can make grow has a bound that the documents list: read off the source.
//!
//! What this cannot see: a `Vec` that only grows, and a bound that is named and not kept. Those are for the tests
//! beside the code.

use std::collections::BTreeSet;

use quote::ToTokens as _;
use syn::visit::Visit;

use crate::Finding;
use crate::code::{self, Source, Token};
use crate::repository::Repository;

/// Where clients' traffic goes, what guests do to the host, and what both leave behind.
const MODULES: [&str; 33] = [
    "audit",
    "calls/journal",
    "calls/operation.rs",
    "calls/secrets.rs",
    "control",
    "dashboard",
    "domain/skills.rs",
    "identity",
    "limits",
    "metrics",
    "net",
    "plugins/health",
    "protocol",
    "runtime/blocking.rs",
    "runtime/clash.rs",
    "runtime/component_names.rs",
    "runtime/compose.rs",
    "runtime/egress",
    "runtime/engine.rs",
    "runtime/files",
    "runtime/journal",
    "runtime/memory_images",
    "runtime/limits.rs",
    "runtime/programs",
    "runtime/secrets",
    "runtime/skills.rs",
    "runtime/wasi_drafts",
    "runtime/wasi_needs.rs",
    "store",
    "tasks",
    "threads",
    "traces",
    "transport",
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
const TWIN: By = Because("the twin of the store, for tests and for what needs no disk");
const TENANTS: By = Key("limits.tenants_total");
const CHECKS: By = Because("operators check, one store at a time; it is gone when the check is over");
const UNITS: By = Because("each entry holds a unit, and the bounds that the units are taken within come with them");
const SHARES: By =
    Because("operators make tenants, and twice as many requestors are remembered as have a call that is ready");

/// Fields that hold collections, by file.
const GROWS: &[(&str, &str, By)] = &[
    ("audit/read.rs", "first", Because("operators read the log, as many lines as they ask for")),
    ("dashboard/codes.rs", "open", Const("CODES_MAX")),
    ("dashboard/oidc.rs", "used", Const("ATTEMPTS_MAX")),
    ("dashboard/sessions.rs", "ended", Because("rows of sessions, of which there are SESSIONS_MAX at a time")),
    (
        "dashboard/lead_reads.rs",
        "tenants",
        Because("each waits on one of the dashboard's connections, or is one of READS_MAX reads that run or rest"),
    ),
    ("dashboard/live.rs", "sent", Because("the parts of one page, which the templates name")),
    ("dashboard/orders.rs", "all", Const("ORDERS_MAX")),
    ("dashboard/sessions.rs", "sessions", Const("SESSIONS_MAX")),
    ("dashboard/shared_reads.rs", "followed", Const("READS_PER_PAGE_MAX")),
    (
        "dashboard/shared_reads.rs",
        "pollers",
        Because("each of STREAMS_MAX live pages follows READS_PER_PAGE_MAX reads at most"),
    ),
    ("metrics/activity.rs", "busy", Because("the steps of the times are in the code")),
    (
        "metrics/activity.rs",
        "removed",
        Because("operators remove plugins; a name goes when nothing of its plugin is loaded"),
    ),
    ("metrics/activity.rs", "tools", Because("plugins offer them, and they go with the last version that does")),
    ("metrics/lib.rs", "counters", Because("the words are in the code: names of limits, and reasons")),
    ("metrics/registry.rs", "families", Because("metrics.series_max bounds the lines of all series together")),
    ("metrics/registry.rs", "overflow", Because("there is at most one for each family, and those are in the code")),
    ("metrics/registry.rs", "removed", OPERATORS),
    ("plugins/health/breaker.rs", "after", OPERATORS),
    ("plugins/health/breaker.rs", "faults", Const("FAULTS_SHOWN")),
    ("plugins/health/breaker.rs", "requestors", Const("REQUESTORS_MAX")),
    ("plugins/health/breaker.rs", "tenants", Const("TENANTS_MAX")),
    ("plugins/health/breaker.rs", "versions", Const("VERSIONS_MAX")),
    ("plugins/health/canary_stats/window.rs", "of", Const("CALLS_MAX")),
    ("plugins/health/canary_stats/window.rs", "samples", Const("CALLS_MAX")),
    ("plugins/health/canary_stats.rs", "watched", Const("CANARIES_MAX")),
    ("plugins/health/divergences.rs", "demoted", OPERATORS),
    ("plugins/health/divergences.rs", "waiting", Const("WAITING_MAX")),
    ("control/activity.rs", "requestors", Key("limits.requestors_per_tenant")),
    ("control/activity.rs", "tenants", TENANTS),
    ("control/history.rs", "calls", Because("the words are in the code")),
    ("control/history.rs", "plugins", OPERATORS),
    ("control/history.rs", "refusals", Because("the words are in the code: names of limits")),
    ("control/history.rs", "samples", Const("SAMPLES_MAX")),
    ("control/views/activity.rs", "outcomes", Because("the words are in the code")),
    ("control/views/audit.rs", "facts", Because("a line of the audit log has a bounded number of them")),
    ("control/views/audit.rs", "names", Const("LINES_MAX")),
    ("control/read_notes.rs", "noted", Const("LOOKS_MAX")),
    ("control/views/history.rs", "calls", Because("the words are in the code")),
    ("control/views/history.rs", "refusals", Because("the words are in the code: names of limits")),
    ("protocol/legacy/sep1686_immediate.rs", "params", Key("server.body_bytes_max")),
    ("protocol/legacy/stream_router.rs", "sent", Const("INPUTS_MAX")),
    ("protocol/legacy/stream_router.rs", "tasks", Const("TASKS_MAX")),
    ("protocol/legacy/get_stream.rs", "known", Const("KNOWN_MAX")),
    ("protocol/modern/connection.rs", "in_flight", Key("limits.requests_open_per_requestor")),
    ("protocol/modern/listen.rs", "shown", Const("TASKS_MAX")),
    ("protocol/modern/bounded_cache.rs", "by_id", Const("STATES_TOTAL_MAX")),
    ("protocol/modern/bounded_cache.rs", "held", Const("STATES_TOTAL_MAX")),
    ("protocol/modern/tasks.rs", "input_responses", Key("server.body_bytes_max")),
    ("protocol/server_features.rs", "arguments", Key("server.body_bytes_max")),
    ("protocol/session.rs", "expected", Const("EXPECTED_MAX")),
    ("protocol/session.rs", "in_flight", Key("limits.requests_open_per_requestor")),
    ("protocol/live_sessions.rs", "known", Key("limits.sessions_total")),
    ("protocol/session/subscriptions.rs", "followed", Const("SUBSCRIPTIONS_MAX")),
    (
        "protocol/tool_lists.rs",
        "indexes",
        Because("one for each catalog that is offered, which plugins and canaries make"),
    ),
    ("protocol/tool_lists.rs", "views", Const("VIEWS_MAX")),
    ("protocol/tool_search/index.rs", "places", Const("TOOL_WORDS_MAX")),
    ("runtime/memory_images/slots.rs", "free", Const("WARM_SLOTS_MAX")),
    ("runtime/memory_images/stacks.rs", "free", Const("FREE_STACKS_MAX")),
    ("runtime/files/descriptors.rs", "open", Const("HOST_RESOURCES_MAX")),
    ("runtime/files/quota.rs", "under_way", Because("of each call, no more than it may have streams at a time")),
    ("runtime/files/walk.rs", "seen", Because("files with several names in one directory; gone when it is measured")),
    ("runtime/journal/clock.rs", "timers", Const("HOST_RESOURCES_MAX")),
    ("runtime/journal/entry.rs", "outcomes", Because("of one journal, which is bounded as a whole")),
    ("runtime/journal/header.rs", "settings", Const("PINNED_BYTES_MAX")),
    ("runtime/journal/requests.rs", "open", Const("HOST_RESOURCES_MAX")),
    ("runtime/journal/requests.rs", "waiting", Const("HOST_RESOURCES_MAX")),
    (
        "runtime/programs/mcp/stdio.rs",
        "input",
        Because("the request and the answers to as many questions as a call may ask"),
    ),
    ("runtime/programs/mcp/stdio.rs", "requests", Because("of one answer, whose lines together are bounded")),
    ("runtime/secrets/inject.rs", "frames", Const("BODY_BYTES_MAX")),
    ("runtime/secrets/scrub.rs", "ready", Because("two: the rest of a body and its trailers")),
    ("runtime/skills.rs", "by_name", Const("SKILLS_MAX")),
    ("runtime/skills.rs", "files", Const("SKILL_FILES_MAX")),
    ("runtime/skills.rs", "summaries", Const("SKILLS_MAX")),
    ("threads/queue.rs", "turns", Key("limits.calls_running_total")),
    ("threads/queue/fair_order.rs", "accounts", SHARES),
    ("threads/queue/fair_order.rs", "order", Key("limits.calls_running_total")),
    ("store/keyvalue.rs", "counts", TENANTS),
    ("store/leases.rs", "nodes", Because("hosts on one store, which operators start")),
    ("store/sled/store_inner.rs", "ledger", Key("limits.requestors_per_tenant")),
    ("store/memory.rs", "aliases", TWIN),
    ("store/memory.rs", "blocked_tenants", TWIN),
    ("store/memory.rs", "expiry", TWIN),
    ("store/memory.rs", "ledger", TWIN),
    ("store/memory.rs", "list", TWIN),
    ("store/memory.rs", "rows", TWIN),
    ("store/memory.rs", "tasks", TWIN),
    ("store/memory.rs", "unfinished", TWIN),
    ("store/sled/store_inner.rs", "blocked_tenants", Because("tenants that operators erase")),
    ("store/sled/backup.rs", "copied", Because("operators make backups; the files of one store")),
    (
        "store/sled/change_capture.rs",
        "touched",
        Because("operators make backups; keys that are written during one pass"),
    ),
    ("store/sled/check.rs", "chunks", CHECKS),
    ("store/sled/check.rs", "index", CHECKS),
    (
        "store/sled/committer.rs",
        "left_journals",
        Because("tasks that ended with a long journal, until the next idle moment"),
    ),
    ("store/sled/files.rs", "pending", Because("of each task that is being written, no more than it has payloads")),
    ("store/sled/group.rs", "writes", Const("GROUP_OPERATIONS_MAX")),
    (
        "store/sled/reading/recovery.rs",
        "segments",
        Because("segments of the store's own file, in the child that examines it"),
    ),
    ("store/sled/rebuild.rs", "taken", CHECKS),
    ("store/tenant_keys.rs", "known", TENANTS),
    ("store/postgres.rs", "beside", Because("three tasks of a host that shares its schema")),
    ("store/postgres/held.rs", "requestors", Const("REQUESTORS_MAX")),
    ("store/postgres/held.rs", "tenants", Const("REQUESTORS_MAX")),
    ("store/postgres/membership.rs", "letters_given", Const("LETTERS_MAX")),
    ("store/postgres/overlay.rs", "aliases", Const("GROUP_OPERATIONS_MAX")),
    ("store/postgres/overlay.rs", "journals", Const("GROUP_OPERATIONS_MAX")),
    ("store/postgres/overlay.rs", "ledger", Because("requestors and tenants of one group of operations")),
    ("store/postgres/overlay.rs", "rows", Const("GROUP_OPERATIONS_MAX")),
    ("store/postgres/overlay.rs", "tasks", Const("GROUP_OPERATIONS_MAX")),
    ("store/postgres/state.rs", "blocked_tenants", Because("tenants that operators erase")),
    ("store/postgres/state.rs", "ledger", Key("limits.requestors_per_tenant")),
    ("store/sled/store_counts.rs", "ledger", Key("limits.requestors_per_tenant")),
    (
        "store/sled/store_counts.rs",
        "named",
        Because("of each stored task, no more than it has payloads, while a start or an operator counts"),
    ),
    ("tasks/parts/activity.rs", "requestors", Const("REQUESTORS_COUNTED_PER_TENANT_MAX")),
    ("tasks/parts/activity.rs", "tenants", Const("REQUESTORS_COUNTED_MAX")),
    ("tasks/parts/admission.rs", "counts", Key("limits.tasks_queued_total")),
    ("tasks/parts/admission.rs", "queues", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/admission.rs", "turns", Key("limits.tasks_queued_total")),
    ("tasks/parts/availability.rs", "blocked", TENANTS),
    ("tasks/parts/poll_intervals.rs", "usual_ms", Const("POLL_INTERVALS_MAX")),
    ("tasks/engine.rs", "cpu_weights", OPERATORS),
    // Dormant tasks are bounded by what may be stored.
    ("tasks/parts/other_hosts.rs", "changed", Because("of the tasks that are looked at in one round")),
    ("tasks/parts/other_hosts.rs", "created", Because("of the tasks that are looked at in one round")),
    ("tasks/parts/other_hosts.rs", "lacking", Const("LACKING_MAX")),
    ("tasks/parts/other_hosts.rs", "tasks", Because("tasks that a client's stream of this host listens to")),
    ("tasks/parts/other_hosts.rs", "unfinished", Const("UNFINISHED_MAX")),
    ("tasks/parts/shared_counts.rs", "awaited_elsewhere", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/shared_counts.rs", "changed", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/shared_counts.rs", "full", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/shared_counts.rs", "full_tenants", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/shared_counts.rs", "used", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/shared_counts.rs", "written", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/watchers.rs", "runs", Key("limits.tasks_stored_per_tenant")),
    (
        "tasks/parts/watchers.rs",
        "versions",
        Because("versions of tasks that have runs: those of none go with the next one"),
    ),
    ("tasks/parts/deadlines.rs", "due", Key("limits.tasks_stored_per_tenant")),
    ("tasks/parts/residents.rs", "by_age", Key("limits.calls_resting_total")),
    ("tasks/parts/feed.rs", "by_key", Key("limits.requests_open_total")),
    ("tasks/parts/catalog_events.rs", "changed_lists", OPERATORS),
    ("limits/rate.rs", "tenants", TENANTS),
    ("limits/scoped.rs", "holders", UNITS),
    ("limits/scoped.rs", "table", UNITS),
    ("limits/scoped.rs", "tenants", UNITS),
    (
        "limits/scoped_semaphore.rs",
        "keys",
        Because("what waits: calls that run, writes of theirs, and requests with a token"),
    ),
    ("tasks/parts/tenant_usage.rs", "cpu_us", TENANTS),
    ("tasks/parts/shares.rs", "by_tenant", TENANTS),
    ("tasks/parts/shares.rs", "weights", OPERATORS),
    ("tasks/parts/abuse.rs", "seen", Const("REQUESTORS_MAX")),
    ("identity/auth/introspection.rs", "answers", Const("ANSWERS_MAX")),
    ("identity/auth/token_audit.rs", "at", Const("NOTED_MAX")),
    ("traces/queue.rs", "batches", Const("SPANS_QUEUED_MAX")),
    (
        "traces/sampling.rs",
        "followed",
        Because(
            "each has used some of traces.followed_per_second_total, and is forgotten when its own share has paid for that",
        ),
    ),
    ("transport/bodies/byte_rate.rs", "requestors", Key("limits.requestors_per_tenant")),
    ("transport/bodies/byte_rate.rs", "tenants", TENANTS),
    ("transport/bodies/memory_budget.rs", "line", Key("limits.requests_open_total")),
    ("limits/failures.rs", "over", Const("ADDRESSES_MAX")),
    ("transport/http.rs", "hosts", OPERATORS),
    ("net/server/addresses.rs", "open", Key("server.connections_max")),
    ("identity/principal.rs", "ids", OPERATORS),
    ("identity/principal.rs", "names", OPERATORS),
    ("identity/principal.rs", "removed", OPERATORS),
    ("identity/principal/provisioning.rs", "requestors", TENANTS),
    ("identity/principal/last_used.rs", "seen", OPERATORS),
    ("identity/principal/token_cache.rs", "tokens", Const("TOKENS_CACHED_MAX")),
    ("transport/session/entries.rs", "entries", Key("limits.sessions_total")),
    ("transport/session/entries.rs", "owners", Key("limits.sessions_total")),
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

/// Kinds of limits that have a key for the requestor, the tenant and the host.
const KINDS: [&str; 8] = [
    "answer_bytes",
    "calls_queued",
    "calls_running",
    "event_bytes",
    "request_bytes_open",
    "requests_open",
    "sessions",
    "tasks_queued",
];

/// The page of every key, which the program writes.
const KEYS_PAGE: &str = "host/docs/reference/configuration.md";
/// The page of every fixed bound, which this program writes.
const PAGE: &str = "host/docs/reference/bounds.md";

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let keys = keys(&repository.text(KEYS_PAGE)?);
    anyhow::ensure!(keys.contains("limits.requests_open_total"), "{KEYS_PAGE} has no table of limits");
    let sources = sources(repository);
    let constants: BTreeSet<_> =
        repository.host().flat_map(|source| constants(&source.file)).map(|it| it.name).collect();
    let mut findings = wrong_collections(&sources, GROWS, &keys, &constants);
    for source in &sources {
        findings.extend(unbounded_channels(source));
        findings.extend(unnamed_bounds(source));
        findings.extend(unknown_limits(source, &keys));
    }
    findings.extend(missing_levels(&keys));
    let (_, without_sentence) = fixed_table(&sources);
    findings.extend(without_sentence);
    findings.extend(stale(&repository.text(PAGE)?, &page(repository)));
    Ok(findings)
}

/// Here and not only among the documents, which are checked when everything is compiled: a new bound is easily
/// forgotten.
fn stale(there: &str, page: &str) -> Option<Finding> {
    (there != page).then(|| format!("{PAGE} is stale: run `cargo xtask docs`"))
}

/// The text of [`PAGE`].
pub(crate) fn page(repository: &Repository) -> String {
    let (table, _) = fixed_table(&sources(repository));
    format!("{INTRODUCTION}\n{table}")
}

const INTRODUCTION: &str = "\
# Fixed bounds

For operators and contributors. These bounds are constants in the code, each with what it bounds; the ones that you can set are in
[configuration.md](configuration.md). `cargo xtask docs` writes this page from the source; do not edit it.

Values are counts, bytes or milliseconds, as the name or the sentence says. A value is left out where it is computed from others.
";

/// The sources that are looked at.
fn sources(repository: &Repository) -> Vec<&Source> {
    let is_within = |source: &&Source| {
        let rest = MODULES.iter().filter_map(|module| source.name.strip_prefix(module));
        rest.into_iter().any(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    };
    repository.host().filter(is_within).collect()
}

/// The keys of the generated page, with their section: `limits.requests_open_total`.
fn keys(page: &str) -> BTreeSet<String> {
    let names = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    names.filter(|name| name.contains('.')).map(str::to_owned).collect()
}

/// A key's name without its section.
fn name_of(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, name)| name)
}

fn wrong_collections(
    sources: &[&Source],
    grows: &[(&str, &str, By)],
    keys: &BTreeSet<String>,
    constants: &BTreeSet<String>,
) -> Vec<Finding> {
    let growing: BTreeSet<_> = sources
        .iter()
        .flat_map(|source| growing_fields(&source.file).into_iter().map(|field| (source.name.as_str(), field)))
        .collect();
    let named: BTreeSet<_> = grows.iter().map(|(file, field, _)| (*file, (*field).to_owned())).collect();
    let mut findings: Vec<_> = growing
        .difference(&named)
        .map(|(file, field)| {
            format!("{file}: `{field}` can grow: say in GROWS of plugins/tools/tidy/src/bounds.rs what bounds it")
        })
        .collect();
    let gone = named.difference(&growing);
    findings.extend(gone.map(|(file, field)| format!("GROWS names `{field}` of {file}, which does not exist")));
    for (file, field, by) in grows {
        let exists = match by {
            Key(key) => keys.contains(*key),
            Const(name) => constants.contains(*name),
            Because(why) => !why.is_empty(),
        };
        if !exists {
            findings.push(format!("what GROWS says to bound `{field}` of {file} does not exist"));
        }
    }
    findings
}

/// The fields whose type holds a collection that can grow.
fn growing_fields(file: &syn::File) -> Vec<String> {
    // By how their names end: `FxHashMap` is one, too.
    // `ScopedTable` is of `limits`, and `Ledger` is the store's.
    const COLLECTIONS: [&str; 8] =
        ["HashMap", "HashSet", "BTreeMap", "BTreeSet", "VecDeque", "JoinSet", "ScopedTable", "Ledger"];
    struct Fields(Vec<String>);
    impl<'a> Visit<'a> for Fields {
        fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
            for field in &item.fields {
                let Some(name) = &field.ident else { continue };
                if matches!(field.ty, syn::Type::Reference(_)) {
                    continue;
                }
                let tokens = code::tokens(&field.ty);
                let is_collection =
                    tokens.iter().any(|token| COLLECTIONS.iter().any(|name| token.text.ends_with(name)));
                if is_collection || !code::lines_with(&tokens, "Mutex<Vec<").is_empty() {
                    self.0.push(name.to_string());
                }
            }
        }
    }
    let mut fields = Fields(Vec::new());
    fields.visit_file(file);
    fields.0
}

fn unbounded_channels(source: &Source) -> Vec<Finding> {
    let tokens = source.tokens();
    let unbounded = tokens.iter().filter(|token| token.text.starts_with("unbounded_"));
    unbounded.map(|token| format!("{}:{}: {} has no bound", source.name, token.line, token.text)).collect()
}

struct Constant {
    name: String,
    value: Option<u64>,
    /// The first sentence of its documentation.
    sentence: String,
}

/// The constants of a file, in order.
fn constants(file: &syn::File) -> Vec<Constant> {
    struct Constants(Vec<Constant>);
    impl Constants {
        fn add(&mut self, name: &syn::Ident, value: &syn::Expr, attributes: &[syn::Attribute]) {
            let documentation = code::documentation(attributes);
            let sentence = documentation.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned();
            let value = number(&value.to_token_stream().to_string());
            self.0.push(Constant { name: name.to_string(), value, sentence });
        }
    }
    impl<'a> Visit<'a> for Constants {
        fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
            self.add(&item.ident, &item.expr, &item.attrs);
        }
        fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
            self.add(&item.ident, &item.expr, &item.attrs);
        }
    }
    let mut constants = Constants(Vec::new());
    constants.visit_file(file);
    constants.0
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

fn is_constant(word: &str) -> bool {
    word.len() > 1
        && word.starts_with(|first: char| first.is_ascii_uppercase())
        && !word.contains(|letter: char| letter.is_ascii_lowercase())
}

/// Constants that size a queue or are a share of something, and are not called a bound: the table would not list them.
fn unnamed_bounds(source: &Source) -> Vec<Finding> {
    const SHARES: [&str; 5] = ["_PER_ADDRESS", "_PER_MINUTE", "_PER_REQUESTOR", "_PER_SECOND", "_PER_TENANT"];
    let tokens = source.tokens();
    let mut named: Vec<String> = arguments(tokens).filter(|word| is_constant(word)).map(str::to_owned).collect();
    let declared = constants(&source.file).into_iter().map(|constant| constant.name);
    named.extend(declared.filter(|name| SHARES.iter().any(|share| name.contains(share))));
    let unlisted = named.into_iter().filter(|name| !name.ends_with("_MAX"));
    unlisted.map(|name| format!("{}: {name} is a bound: end its name in _MAX", source.name)).collect()
}

/// The words in the arguments of what makes queues: `Semaphore::new(…)`, `channel(…)`, `x.listen(…)`.
fn arguments(tokens: &[Token]) -> impl Iterator<Item = &str> {
    let opens = tokens.windows(2).enumerate().filter_map(|(at, pair)| {
        let [name, open] = pair else { return None };
        let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at)).map(|token| token.text.as_str());
        let makes = match name.text.as_str() {
            "channel" => true,
            "listen" => before(1) == Some("."),
            "new" => before(3) == Some("Semaphore"),
            _ => false,
        };
        (makes && open.text == "(").then_some(at + 2)
    });
    opens.flat_map(|at| {
        let mut depth = 1;
        tokens.get(at..).into_iter().flatten().map(|token| token.text.as_str()).take_while(move |text| {
            match *text {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            depth > 0
        })
    })
}

/// Whoever is refused looks the limit's name up: a literal that reads like one is one.
fn unknown_limits(source: &Source, keys: &BTreeSet<String>) -> Vec<Finding> {
    let names: BTreeSet<_> = keys.iter().map(|key| name_of(key)).collect();
    let is_limit = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            && !text.starts_with('_')
            && (text.contains("_per_") || text.ends_with("_total"))
    };
    let tokens = source.tokens().iter();
    let literals = tokens.filter_map(|token| Some((token.string.as_deref()?, token.line)));
    let unknown = literals.filter(|(text, _)| is_limit(text) && !names.contains(text));
    unknown.map(|(text, line)| format!("{}:{line}: no key is called {text}", source.name)).collect()
}

/// A limit of a requestor has one for its tenant and one for the host, so that many requestors are bounded too.
fn missing_levels(keys: &BTreeSet<String>) -> Vec<Finding> {
    let names: BTreeSet<_> = keys.iter().map(|key| name_of(key)).collect();
    let mut wanted = BTreeSet::new();
    for kind in names.iter().filter_map(|name| name.strip_suffix("_per_requestor")) {
        for level in ["per_tenant", "total"] {
            let name = format!("{kind}_{level}");
            let is_covered = COVERED.iter().any(|(covered, by)| *covered == name && names.contains(*by));
            if !is_covered && !BOUNDED_BY_THE_DISK.contains(&name.as_str()) {
                wanted.insert(name);
            }
        }
    }
    let rates = names.iter().filter(|name| name.ends_with("s_per_second") && !name.starts_with("events"));
    wanted.extend(rates.map(|rate| format!("{rate}_per_tenant")));
    for kind in KINDS {
        wanted.extend(["per_requestor", "per_tenant", "total"].map(|level| format!("{kind}_{level}")));
    }
    wanted.extend(["connections_max", "connections_per_address"].map(str::to_owned));
    let missing = wanted.into_iter().filter(|name| !names.contains(name.as_str()));
    missing.map(|name| format!("there is no key {name}: somebody can go around the limits beside it")).collect()
}

/// The table of constants that are bounds, and those that do not say what they bound.
fn fixed_table(sources: &[&Source]) -> (String, Vec<Finding>) {
    let mut table = String::from("| bound | value | what it bounds |\n| --- | --- | --- |\n");
    let mut without_sentence = Vec::new();
    for source in sources {
        let module = source.name.trim_end_matches(".rs").trim_end_matches("/mod").trim_end_matches("/lib");
        let module = module.replace('/', "::");
        for constant in constants(&source.file).into_iter().filter(|constant| constant.name.ends_with("_MAX")) {
            let Some(value) = constant.value else { continue };
            let name = constant.name;
            let sentence = constant.sentence;
            if sentence.is_empty() {
                without_sentence
                    .push(format!("{}: document {name} with a sentence that says what it bounds", source.name));
            }
            table.push_str(&format!("| `{module}::{name}` | {value} | {sentence} |\n"));
        }
    }
    (table, without_sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::source;

    fn keys_of(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| format!("limits.{name}")).collect()
    }

    #[test]
    fn collections_without_an_existing_bound_are_found() {
        let source = source(
            "tasks/a.rs",
            "struct A<'a> { pub(crate) listed: Mutex<FxHashMap<u8, u8>>, forgotten: std::collections::VecDeque<u8>,
             lent: &'a HashMap<u8, u8>, plain: Vec<u8>, locked: Mutex<Vec<u8>>, counted: ScopedTable<u8, u8> }",
        );
        let grows = [
            ("tasks/a.rs", "listed", Key("limits.x")),
            ("tasks/a.rs", "locked", Const("X_MAX")),
            ("tasks/a.rs", "gone", Because("it is gone")),
        ];
        let found = |keys: &BTreeSet<String>, constants: &[&str]| {
            let constants = constants.iter().map(|name| (*name).to_owned()).collect();
            wrong_collections(&[&source], &grows, keys, &constants).len()
        };
        assert_eq!(found(&keys_of(&["x"]), &["X_MAX"]), 3, "two are forgotten and one is gone");
        assert_eq!(found(&BTreeSet::new(), &[]), 5, "and two bounds do not exist");
    }

    #[test]
    fn queues_without_a_named_bound_are_found() {
        let found = |text: &str| {
            let source = source("tasks/a.rs", text);
            unbounded_channels(&source).len() + unnamed_bounds(&source).len()
        };
        assert_eq!(found("fn f() { mpsc::unbounded_channel(); }"), 1);
        assert_eq!(
            found("fn f() { mpsc::channel::<u8>(X); mpsc::channel(QUEUE); Semaphore::new(min(1, PERMITS)); }"),
            2
        );
        assert_eq!(found("fn f() { socket.listen(BACKLOG); listen(BACKLOG); Other::new(PERMITS); }"), 1);
        assert_eq!(found("const LOOKS_PER_MINUTE: u32 = 3; const LOOKS_PER_MINUTE_MAX: u32 = 3;"), 1);
        assert_eq!(found("fn f() { mpsc::channel(QUEUE_MAX); }"), 0);
    }

    #[test]
    fn refusals_that_name_no_key_are_found() {
        let source = source(
            "tasks/a.rs",
            "fn f() { refuse(\"calls_per_requestor\"); refuse(\"tasks_total\"); say(\"a_per_b c\") }",
        );
        let findings = unknown_limits(&source, &keys_of(&["tasks_total"]));
        assert_eq!(findings, ["tasks/a.rs:1: no key is called calls_per_requestor"]);
    }

    #[test]
    fn limits_without_a_tenant_or_host_level_are_found() {
        let mut names: Vec<String> = KINDS
            .iter()
            .flat_map(|kind| ["per_requestor", "per_tenant", "total"].map(|level| format!("{kind}_{level}")))
            .collect();
        names.extend(
            ["connections_max", "connections_per_address", "looks_per_second", "things_per_requestor"]
                .map(str::to_owned),
        );
        let keys = names.iter().map(|name| format!("limits.{name}")).collect();
        let missing: Vec<_> =
            missing_levels(&keys).into_iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
        assert_eq!(
            missing,
            [
                "there is no key looks_per_second_per_tenant",
                "there is no key things_per_tenant",
                "there is no key things_total"
            ]
        );
    }

    #[test]
    fn page_without_a_new_bound_is_found() {
        let page = |text: &str| fixed_table(&[&source("store/sled.rs", text)]).0;
        let there = page("/// Bytes of a row.\nconst ROW_BYTES_MAX: u64 = 4;");
        assert_eq!(stale(&there, &there), None);
        let now = page("/// Bytes of a row.\nconst ROW_BYTES_MAX: u64 = 4;\n/// Rows.\nconst ROWS_MAX: u64 = 2;");
        assert!(stale(&there, &now).is_some_and(|finding| finding.contains("cargo xtask docs")));
    }

    #[test]
    fn fixed_bounds_are_listed_with_their_sentence() {
        let source = source(
            "store/sled.rs",
            "/// Bytes of a row. More is refused.\nconst ROW_BYTES_MAX: u64 = 64 << 10;\nconst BARE_MAX: u8 = 1_000;\nconst X: u8 = 1;",
        );
        let (table, without) = fixed_table(&[&source]);
        assert!(table.ends_with(
            "| `store::sled::ROW_BYTES_MAX` | 65536 | Bytes of a row |\n| `store::sled::BARE_MAX` | 1000 |  |\n"
        ));
        assert_eq!(without.len(), 1);
    }
}
