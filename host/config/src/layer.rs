//! Values as they were set, one layer over another, and the rules between them.

use std::collections::{BTreeMap, BTreeSet};

use super::key::{Bound, Key, Scope, Value};
use super::keys;
use super::report::{ConfigLocation, Report};

/// (section, name)
type Path = (&'static str, &'static str);

/// A number, another that it may not be larger than, and why.
type Rule = (Path, Path, &'static str);

/// What one source set.
pub(super) type Values = BTreeMap<Path, (Value, ConfigLocation)>;

/// The values of the host, or those of a tenant, a plugin or a tool over them.
#[derive(Debug)]
pub(super) struct Layer<'a> {
    below: Option<&'a Layer<'a>>,
    /// In front of `section.name` in messages.
    prefix: String,
    values: Values,
    /// Those of them that nobody set: they followed another one up.
    followed: BTreeSet<Path>,
}

/// The first may not be larger than the second, and why. The second follows the first up when nobody set it: who lets
/// one requestor do more cannot want its tenant to stop it.
const FOLLOWS_UP: &[Rule] = &[
    requestor_of_tenant("calls_queued_per_requestor", "calls_queued_per_tenant"),
    tenant_of_host("calls_queued_per_tenant", "calls_queued_total"),
    requestor_of_tenant("tasks_running_per_requestor", "tasks_running_per_tenant"),
    requestor_of_tenant("tasks_queued_per_requestor", "tasks_queued_per_tenant"),
    tenant_of_host("tasks_queued_per_tenant", "tasks_queued_total"),
    requestor_of_tenant("tasks_waiting_per_requestor", "tasks_waiting_per_tenant"),
    requestor_of_tenant("tasks_paused_per_requestor", "tasks_paused_per_tenant"),
    requestor_of_tenant("requests_per_second", "requests_per_second_per_tenant"),
    requestor_of_tenant("request_bytes_per_second", "request_bytes_per_second_per_tenant"),
    requestor_of_tenant("request_bytes_open_per_requestor", "request_bytes_open_per_tenant"),
    tenant_of_host("request_bytes_open_per_tenant", "request_bytes_open_total"),
    requestor_of_tenant("task_creations_per_second", "task_creations_per_second_per_tenant"),
    requestor_of_tenant("requests_open_per_requestor", "requests_open_per_tenant"),
    tenant_of_host("requests_open_per_tenant", "requests_open_total"),
    (
        ("server", "sessions_per_requestor"),
        ("limits", "sessions_per_tenant"),
        "a requestor cannot have more sessions than its tenant",
    ),
    tenant_of_host("sessions_per_tenant", "sessions_total"),
    requestor_of_tenant("event_bytes_per_requestor", "event_bytes_per_tenant"),
    tenant_of_host("event_bytes_per_tenant", "event_bytes_total"),
    requestor_of_tenant("answer_bytes_per_requestor", "answer_bytes_per_tenant"),
    tenant_of_host("answer_bytes_per_tenant", "answer_bytes_total"),
];

const fn limits(low: &'static str, high: &'static str, why: &'static str) -> Rule {
    (("limits", low), ("limits", high), why)
}

const fn requestor_of_tenant(requestor: &'static str, tenant: &'static str) -> Rule {
    limits(requestor, tenant, "a requestor cannot have more than its tenant")
}

const fn tenant_of_host(tenant: &'static str, total: &'static str) -> Rule {
    limits(tenant, total, "a tenant cannot have more than the whole host")
}

/// The first may not be larger than the second, and why.
const NOT_OVER: &[Rule] = &[
    // From the outside in: a value that nobody set follows the one above it down.
    limits("calls_running_per_tenant", "calls_running_total", "a tenant cannot run more than the whole host"),
    limits("calls_running_per_requestor", "calls_running_per_tenant", "a requestor cannot run more than its tenant"),
    limits("tasks_running_per_requestor", "calls_running_per_requestor", "a running task is a running call"),
    limits("tasks_running_per_tenant", "calls_running_per_tenant", "a running task is a running call"),
    tenant_of_host("calls_resting_per_tenant", "calls_resting_total"),
    (("server", "connections_per_address"), ("server", "connections_max"), "they are connections"),
    limits("tasks_stored_per_requestor", "tasks_stored_per_tenant", "a requestor cannot store more than its tenant"),
    limits(
        "tasks_stored_bytes_per_requestor",
        "tasks_stored_bytes_per_tenant",
        "a requestor cannot store more than its tenant",
    ),
    limits("ttl_ms_default", "ttl_ms_max", "a task that says nothing cannot be kept longer than any other"),
    (("limits", "steer_bytes_max"), ("server", "body_bytes_max"), "a message arrives in one request body"),
    (("call", "arguments_bytes"), ("server", "body_bytes_max"), "arguments arrive in one request body"),
    (("call", "arguments_bytes"), ("limits", "tasks_stored_bytes_per_requestor"), "the arguments of a task are stored"),
    (
        ("call", "result_bytes"),
        ("limits", "tasks_stored_bytes_per_requestor"),
        "the room for a result is reserved when a task is created, so no task could ever start",
    ),
    (("call", "result_bytes"), ("limits", "answer_bytes_per_requestor"), "a result is counted until it is read"),
];

impl<'a> Layer<'a> {
    /// The host's own, empty.
    pub(super) fn base() -> Self {
        Self { below: None, prefix: String::new(), values: Values::new(), followed: BTreeSet::new() }
    }

    /// A checked layer above this one.
    pub(super) fn overlaid(&'a self, prefix: String, values: Values, report: &Report) -> Layer<'a> {
        let mut layer = Layer { below: Some(self), prefix, values, followed: BTreeSet::new() };
        layer.settle(report);
        layer
    }

    /// Takes a text from a variable or a flag.
    pub(super) fn set_text(
        &mut self,
        section: &'static str,
        name: &'static str,
        text: &str,
        location: &ConfigLocation,
        report: &Report,
    ) {
        let Some(key) = keys::find(section, name) else { return };
        match key.parse(text) {
            Ok(value) => set(&mut self.values, key, value, &self.prefix, location, report),
            Err(message) => report.add(location, format!("{}: {message}", key.path())),
        }
    }

    /// Takes a value from the file.
    pub(super) fn set(&mut self, key: &'static Key, value: Value, location: &ConfigLocation, report: &Report) {
        set(&mut self.values, key, value, &self.prefix, location, report);
    }

    /// Where a value was set.
    pub(super) fn location(&self, section: &'static str, name: &'static str) -> ConfigLocation {
        self.get((section, name)).1
    }

    /// The value that holds here.
    pub(super) fn get(&self, path: Path) -> (Value, ConfigLocation) {
        match (self.values.get(&path), self.below) {
            (Some(found), _) => found.clone(),
            (None, Some(below)) => below.get(path),
            (None, None) => {
                let default = keys::find(path.0, path.1).map_or(Value::Other("nothing"), Key::default);
                (default, ConfigLocation::Default)
            }
        }
    }

    /// Applies the rules between limits. What this layer set itself must keep them; what it did not set follows down,
    /// so that lowering one limit does not oblige anybody to lower everything below it.
    pub(super) fn settle(&mut self, report: &Report) {
        self.follow_up();
        for &(low, high, why) in NOT_OVER.iter().chain(FOLLOWS_UP) {
            let ((Value::Number(low_value), low_place), (Value::Number(high_value), high_place)) =
                (self.get(low), self.get(high))
            else {
                continue;
            };
            if low_value <= high_value {
                continue;
            }
            if self.values.get(&low).is_some_and(|(_, location)| *location != ConfigLocation::Default) {
                report.add(
                    &low_place,
                    format!(
                        "{}{}.{} = {low_value} contradicts {}.{} = {high_value} ({high_place}): {why}",
                        self.prefix, low.0, low.1, high.0, high.1
                    ),
                );
            } else {
                self.values.insert(low, (Value::Number(high_value), ConfigLocation::Default));
            }
        }
    }

    /// Raises an upper limit that no layer set to the lower limit that a layer set above it.
    fn follow_up(&mut self) {
        for &(low, high, _) in FOLLOWS_UP {
            let ((Value::Number(low_value), low_place), (Value::Number(high_value), _)) =
                (self.get(low), self.get(high))
            else {
                continue;
            };
            let follows =
                self.below.is_none() || keys::find(high.0, high.1).is_some_and(|key| key.scope == Scope::Override);
            if low_value > high_value && low_place != ConfigLocation::Default && !self.is_set(high) && follows {
                // Said by nobody, but not to be lowered again by the rules: it has the place of what it follows.
                self.values.insert(high, (Value::Number(low_value), low_place));
                self.followed.insert(high);
            }
        }
    }

    /// Whether it was set, here or below.
    fn is_set(&self, path: Path) -> bool {
        match (self.values.get(&path), self.below) {
            (Some((_, location)), _) => *location != ConfigLocation::Default && !self.followed.contains(&path),
            (None, Some(below)) => below.is_set(path),
            (None, None) => false,
        }
    }

    /// Whether nobody set it and it followed another one up, here or below.
    pub(super) fn has_followed(&self, path: Path) -> bool {
        match self.below {
            Some(below) if !self.values.contains_key(&path) => below.has_followed(path),
            _ => self.followed.contains(&path),
        }
    }

    /// Writes the values that hold here into a section's struct.
    pub(super) fn fill<S>(&self, bounds: &[Bound<S>], mut section: S, report: &Report) -> S {
        for bound in bounds {
            let (value, location) = self.get((bound.key.section, bound.key.name));
            if let Err(message) = (bound.field)(&mut section).set(&value) {
                report.add(&location, format!("{}{}: {message}", self.prefix, bound.key.path()));
            }
        }
        section
    }
}

/// Keeps a value that is within its bounds.
pub(super) fn set(
    values: &mut Values,
    key: &'static Key,
    value: Value,
    prefix: &str,
    location: &ConfigLocation,
    report: &Report,
) {
    match key.check(&value) {
        Ok(()) => {
            values.insert((key.section, key.name), (value, location.clone()));
        }
        Err(message) => report.add(location, format!("{prefix}{}: {message}", key.path())),
    }
}
