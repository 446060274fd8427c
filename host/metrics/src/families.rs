//! Every family of metrics: its name, its labels and what it says.
//!
//! Owns the table that the reference page is generated from. Must not hold a number. Invariant: what is shown is in
//! this table, and the values of its labels come from the code, from the catalog or from names in the configuration,
//! never from a message.

use prometheus_client::registry::Unit;

use crate::histogram::{self, Buckets, Histogram};

/// What a family is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Counter,
    /// A counter of seconds, counted in microseconds.
    Seconds,
    Gauge,
    Histogram(&'static Buckets),
}

/// A row of the table.
#[derive(Debug)]
pub struct Family {
    /// Without unit and suffix.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Option<Unit>,
    pub labels: &'static [&'static str],
    pub(crate) meaning: &'static str,
}

impl Family {
    /// As it stands on the page of a scrape.
    pub fn shown_name(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        let suffix = if matches!(self.kind, Kind::Counter | Kind::Seconds) { "_total" } else { "" };
        format!("{}{unit}{suffix}", self.name)
    }

    /// As Prometheus calls its kind.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Counter | Kind::Seconds => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }

    /// Lines of one series.
    pub(crate) fn lines(&self) -> usize {
        match self.kind {
            Kind::Histogram(buckets) => Histogram::lines(buckets),
            Kind::Counter | Kind::Seconds | Kind::Gauge => 1,
        }
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name).copied()
    }
}

macro_rules! families {
    ($($id:ident = $name:literal, $kind:expr, $unit:expr, $labels:expr, $meaning:literal;)*) => {
        $(pub static $id: Family =
            Family { name: $name, kind: $kind, unit: $unit, labels: &$labels, meaning: $meaning };)*
        /// All of them, in the order in which they are shown.
        pub static FAMILIES: &[&Family] = &[$(&$id),*];
    };
}

families! {
    OPERATION_DURATION = "mcp_server_operation_duration", Kind::Histogram(&histogram::OPERATIONS), Some(Unit::Seconds),
        ["mcp_method_name", "gen_ai_tool_name", "gen_ai_prompt_name", "error_type", "mcp_protocol_version", "network_transport"],
        "From the receipt of a request to its final answer";
    SESSION_DURATION = "mcp_server_session_duration", Kind::Histogram(&histogram::SESSIONS), Some(Unit::Seconds),
        ["mcp_protocol_version", "network_transport"],
        "From the handshake of a legacy session to its end";
    CALLS = "bulkhead_calls", Kind::Counter, None, ["plugin", "tool", "outcome"],
        "Calls of tools that ended, plain or as tasks";
    CALL_CPU = "bulkhead_call_cpu", Kind::Seconds, Some(Unit::Seconds), ["plugin"],
        "CPU time of guests, of calls that ended";
    CALL_BUSY = "bulkhead_call_busy", Kind::Histogram(&histogram::DURATIONS), Some(Unit::Seconds), ["plugin"],
        "From the first instruction of a call to its end, with its waits";
    PERMIT_WAIT = "bulkhead_permit_wait", Kind::Histogram(&histogram::DURATIONS), Some(Unit::Seconds), ["kind"],
        "How long calls waited that had to wait for a permit: plain calls, tasks, calls that go on again, and tasks that had left memory";
    CALLS_RUNNING = "bulkhead_calls_running", Kind::Gauge, None, [], "Calls that run, plain ones and tasks";
    CALLS_QUEUED = "bulkhead_calls_queued", Kind::Gauge, None, [], "Plain calls that wait for a permit";
    CALLS_RESTING = "bulkhead_calls_resting", Kind::Gauge, None, [],
        "Calls that hold an instance without running: they asked, sleep or are paused";
    TASKS = "bulkhead_tasks", Kind::Gauge, None, ["status"], "Tasks that are not over";
    TASKS_CREATED = "bulkhead_tasks_created", Kind::Counter, None, ["design"],
        "Tasks that were created, by the design that their client speaks";
    TASKS_ENDED = "bulkhead_tasks_ended", Kind::Counter, None, ["outcome"], "Tasks that ended";
    TASKS_PROMOTED = "bulkhead_tasks_promoted", Kind::Counter, None, [], "Plain calls that became tasks on the way";
    TASKS_RECOVERED = "bulkhead_tasks_recovered", Kind::Counter, None, ["how"],
        "Tasks of an earlier host that this one took over";
    TASKS_HELD = "bulkhead_tasks_held", Kind::Gauge, None, [],
        "Tasks that the host or an operator holds until they are released";
    TASKS_DORMANT = "bulkhead_tasks_dormant", Kind::Gauge, None, [],
        "Tasks that have left memory until they go on";
    EVICTIONS = "bulkhead_task_evictions", Kind::Counter, None, ["cause"],
        "Tasks that left memory while they rested, by why";
    WAKES = "bulkhead_task_wakes", Kind::Counter, None, ["cause"],
        "Tasks that had left memory and went on, by why";
    RESUMES = "bulkhead_task_resumes", Kind::Counter, None, [],
        "Tasks that went on where they were, after their host had ended or they were released";
    DIVERGENCES = "bulkhead_task_divergences", Kind::Counter, None, [],
        "Calls that did something else than their journal says, when they were brought back";
    JOURNAL_APPENDS = "bulkhead_journal_appends", Kind::Counter, None, [],
        "Pieces that the journals of calls grew by on disk";
    JOURNAL_BYTES = "bulkhead_journal", Kind::Counter, Some(Unit::Bytes), [],
        "What the journals of calls grew by on disk";
    DEMOTED = "bulkhead_journal_demotions", Kind::Counter, None, ["reason"],
        "Calls whose journal was given up, by what no journal holds";
    REFUSALS = "bulkhead_refusals", Kind::Counter, None, ["limit"],
        "Requests that a quota or rate refused, by the limit's name";
    CREDENTIALS_REFUSED = "bulkhead_credentials_refused", Kind::Counter, None, ["reason"],
        "Requests of clients whose credential was refused";
    LIMIT_RATIO = "bulkhead_limit", Kind::Gauge, Some(Unit::Ratios), ["limit"],
        "How much of a limit of the host is in use, 0 to 1";
    CONNECTIONS = "bulkhead_connections", Kind::Gauge, None, [], "Connections of clients";
    REQUESTS_OPEN = "bulkhead_requests_open", Kind::Gauge, None, [], "Requests that are not answered, streams among them";
    STREAMS_OPEN = "bulkhead_streams_open", Kind::Gauge, None, [], "Event streams that clients listen to";
    SESSIONS = "bulkhead_sessions", Kind::Gauge, None, [], "Sessions of legacy clients";
    EVENT_BYTES = "bulkhead_event", Kind::Gauge, Some(Unit::Bytes), [], "Events that are kept for streams that are taken up again";
    ANSWER_BYTES = "bulkhead_answer_unread", Kind::Gauge, Some(Unit::Bytes), [], "Large answers that clients have not read";
    PLUGIN_INFO = "bulkhead_plugin_info", Kind::Gauge, None, ["plugin", "version", "state"],
        "Always 1, with the active version of a plugin and its state";
    PLUGIN_CALLS = "bulkhead_plugin_calls", Kind::Gauge, None, ["plugin"], "Calls of a plugin, running and waiting, on any version";
    PLUGIN_QUARANTINED = "bulkhead_plugin_quarantined", Kind::Gauge, None, ["plugin"], "Requestors that a plugin's faults keep away from it";
    PLUGIN_SWITCHES = "bulkhead_plugin_switches", Kind::Counter, None, ["plugin", "turn"],
        "Switches of a plugin to another version, by what they meant for clients";
    SOURCE_CHECKS = "bulkhead_source_checks", Kind::Counter, None, ["plugin", "result"],
        "Components that came from a watched folder or were fetched for a plugin that was awaited";
    GRANT_DENIED = "bulkhead_grant_denied", Kind::Counter, None, ["plugin", "kind"],
        "Calls that reached for what their plugin is not granted, by the first grant that was missing";
    PLUGIN_CANARY = "bulkhead_plugin_canary", Kind::Gauge, Some(Unit::Ratios), ["plugin", "version"],
        "The part of the requestors that a canary gets, beside its tenants";
    COMPILE = "bulkhead_compile", Kind::Histogram(&histogram::DURATIONS), Some(Unit::Seconds), [], "How long components took to compile";
    CODE_CACHE = "bulkhead_code_cache", Kind::Counter, None, ["result"], "Components whose compiled code was looked for";
    EGRESS_DURATION = "bulkhead_egress_duration", Kind::Histogram(&histogram::DURATIONS), Some(Unit::Seconds), ["plugin", "outcome"],
        "Requests of plugins over HTTP, from the call to the headers of the answer";
    IN_DOUBT = "bulkhead_requests_in_doubt", Kind::Counter, None, ["plugin"],
        "HTTP requests of durable tasks that a killed host had sent, and of which nobody knows whether they took effect";
    STORE_GROUP = "bulkhead_store_group_operations", Kind::Histogram(&histogram::GROUPS), None, ["engine"],
        "Operations that were made durable together";
    STORE_SYNC = "bulkhead_store_sync", Kind::Histogram(&histogram::DURATIONS), Some(Unit::Seconds), ["engine"],
        "How long the disk took to make a group durable";
    STORE_WAITING = "bulkhead_store_waiting", Kind::Gauge, None, ["engine"], "Operations that wait to be made durable";
    STORE_FREE = "bulkhead_store_free", Kind::Gauge, Some(Unit::Bytes), [], "Free bytes of the disk with the data directory";
    STORE_READ_ONLY = "bulkhead_store_read_only", Kind::Gauge, None, [], "1 while the store refuses writes";
    STORE_STATEMENTS = "bulkhead_store_statements", Kind::Counter, None, [],
        "Statements that were sent to the database, where the store is in one";
    STORE_RECONNECTS = "bulkhead_store_reconnects", Kind::Counter, None, [],
        "How often the connection that writes to the database was made again";
    STORE_IN_DOUBT = "bulkhead_store_in_doubt", Kind::Counter, None, [],
        "Groups of writes of which the database had not said whether they were done when the connection broke";
    STORE_LOST_GROUPS = "bulkhead_store_lost_groups", Kind::Counter, None, [],
        "Groups of writes that the database had acknowledged and lost: a standby took over that did not have them";
    GUEST_THREADS_BUSY = "bulkhead_guest_threads_busy", Kind::Gauge, None, [], "Threads that run a guest at this moment";
    GUESTS_WAITING = "bulkhead_guests_waiting", Kind::Gauge, None, [], "Guests that could run and wait for a thread";
    TICK_LATE = "bulkhead_tick_late", Kind::Histogram(&histogram::DURATIONS), Some(Unit::Seconds), [],
        "How late the ticks came that end the turns of guests";
    HEALTHY = "bulkhead_healthy", Kind::Gauge, None, [], "What /healthz says: 0 when another start would help";
    READY = "bulkhead_ready", Kind::Gauge, None, [], "What /readyz says: 0 when the host should get no traffic";
    AUDIT_WAITING = "bulkhead_audit_waiting", Kind::Gauge, None, [], "Lines that wait to be written to the audit log";
    AUDIT_LOST = "bulkhead_audit_lost", Kind::Counter, None, [], "Lines that the audit log could not take";
    TENANT_CPU = "bulkhead_tenant_cpu", Kind::Counter, Some(Unit::Seconds), ["tenant"], "CPU time of a tenant's calls on the guests' threads";
    TENANT_CALLS_RUNNING = "bulkhead_tenant_calls_running", Kind::Gauge, None, ["tenant"], "Calls of a tenant that run";
    TENANT_CALLS = "bulkhead_tenant_calls", Kind::Counter, None, ["tenant"], "Calls of a tenant that ended";
    TENANT_REFUSALS = "bulkhead_tenant_refusals", Kind::Counter, None, ["tenant"], "Requests of a tenant that a quota or rate refused";
    TENANT_STORED = "bulkhead_tenant_stored", Kind::Gauge, Some(Unit::Bytes), ["tenant"], "What a tenant's tasks take up in the store";
    SPANS_DROPPED = "bulkhead_spans_dropped", Kind::Counter, None, [], "Spans that the collector of traces did not get";
    SERIES_OVERFLOW = "bulkhead_series_overflow", Kind::Counter, None, [],
        "Series for which metrics.series_max left no room";
    BUILD_INFO = "bulkhead_build_info", Kind::Gauge, None, ["version"],
        "Always 1, with the version of the host";
    PROCESS_CPU = "process_cpu", Kind::Counter, Some(Unit::Seconds), [],
        "CPU time of the host's process, user and system";
    PROCESS_RESIDENT = "process_resident_memory", Kind::Gauge, Some(Unit::Bytes), [],
        "Resident memory of the host's process";
    PROCESS_VIRTUAL = "process_virtual_memory", Kind::Gauge, Some(Unit::Bytes), [],
        "Virtual memory of the host's process, most of it reserved for guests and never used";
    PROCESS_OPEN_FDS = "process_open_fds", Kind::Gauge, None, [],
        "File descriptors that are open";
    PROCESS_MAX_FDS = "process_max_fds", Kind::Gauge, None, [],
        "File descriptors that may be open";
    PROCESS_START = "process_start_time", Kind::Gauge, Some(Unit::Seconds), [],
        "When the process started, since 1970";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_one_name_and_a_meaning() {
        for (at, family) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES.iter().skip(at + 1).all(|other| other.name != family.name), "{}", family.name);
            assert!(!family.meaning.is_empty() && !family.meaning.ends_with('.'), "{}", family.name);
            assert!(!family.name.ends_with("_total") && !family.name.ends_with("_seconds"), "{}", family.name);
            let own = ["bulkhead_", "mcp_server_", "process_"];
            assert!(own.iter().any(|prefix| family.name.starts_with(prefix)), "{}", family.name);
        }
        assert_eq!(CALL_CPU.shown_name(), "bulkhead_call_cpu_seconds_total");
        assert_eq!(OPERATION_DURATION.shown_name(), "mcp_server_operation_duration_seconds");
    }

    #[test]
    fn no_label_names_a_requestor_or_what_a_message_says() {
        let never = ["requestor", "session", "task", "call", "uri", "address", "user_agent", "token", "secret", "host"];
        for family in FAMILIES {
            assert!(family.labels.iter().all(|label| !never.contains(label)), "{}", family.name);
        }
    }
}
