//! What a call was granted, and what its guest reached for besides.
//!
//! Owns what a failure says of it. Invariant: the log and the event stream hear of a call once, however often it tries,
//! and a call that fails says what it lacked and what cures that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::events::Outbox;
use crate::granted::Granted;
use bulkhead_calls::Returned;
use bulkhead_calls::policy::Denial;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::imports::{Grant, grant_hint};
use bulkhead_domain::text::{beginning, escaped};
use bulkhead_domain::tool::{Content, ContentKind, Meta};

/// Different grants that a call's failure names.
const NAMED_MAX: usize = 8;

/// Bytes of a setting's name in a call's failure.
const SETTING_BYTES_MAX: usize = 128;

/// What one call was granted, and what it reached for besides. Cheap to clone: what all calls of a plugin count up and
/// down is counted once for each.
#[derive(Clone)]
pub(super) struct Denials(Arc<OfCall>);

struct OfCall {
    plugin: Arc<str>,
    granted: Arc<Granted>,
    outbox: Outbox,
    found: Mutex<Vec<Denial>>,
    looked_for: LookedFor,
}

/// What the host sees a guest look for without seeing what for.
#[derive(Default)]
struct LookedFor {
    directories: AtomicBool,
    variables: AtomicBool,
    /// Settings that are not there; a guest may well do without.
    settings: Mutex<Vec<String>>,
}

impl Denials {
    pub(super) fn new(plugin: Arc<str>, granted: Arc<Granted>, outbox: Outbox) -> Self {
        let found = Mutex::default();
        let looked_for = LookedFor::default();
        Self(Arc::new(OfCall { plugin, granted, outbox, found, looked_for }))
    }

    /// The plugin's name.
    pub(super) fn plugin(&self) -> &Arc<str> {
        &self.0.plugin
    }

    pub(super) fn granted(&self) -> &Granted {
        &self.0.granted
    }

    /// The guest was refused something for want of a grant.
    pub(super) fn note(&self, denial: Denial) {
        let mut found = self.0.found.lock();
        if found.is_empty() && !self.0.outbox.is_silent() {
            tracing::warn!(plugin = &*self.0.plugin, grant = %denial, "a plugin reached for what is not granted");
            self.0.outbox.denied(denial.clone());
        }
        if found.len() < NAMED_MAX && !found.contains(&denial) {
            found.push(denial);
        }
    }

    /// What was lacking so far.
    pub(super) fn found(&self) -> Vec<Denial> {
        self.0.found.lock().clone()
    }

    pub(super) fn looked_for_directories(&self) {
        self.0.looked_for.directories.store(true, Ordering::Relaxed);
    }

    pub(super) fn looked_for_variables(&self) {
        self.0.looked_for.variables.store(true, Ordering::Relaxed);
    }

    /// The plugin's configuration has no such setting.
    pub(super) fn looked_for_setting(&self, key: &str) {
        let key = escaped(beginning(key, SETTING_BYTES_MAX));
        let mut settings = self.0.looked_for.settings.lock();
        if settings.len() < NAMED_MAX && !settings.contains(&key) {
            settings.push(key);
        }
    }

    /// The outcome, which names what was not granted if it is a failure. Of a guest that looked for directories, every
    /// one counts that it wants; of one that looked for variables, those that its failure speaks of.
    pub(super) fn name_in(&self, outcome: Result<Returned, CallError>) -> Result<Returned, CallError> {
        let has_failed = match &outcome {
            Ok(Returned::Tool(output)) => output.is_error,
            Ok(_) => false,
            Err(_) => true,
        };
        if !has_failed {
            return outcome;
        }
        let OfCall { granted, looked_for, .. } = &*self.0;
        if looked_for.directories.load(Ordering::Relaxed) {
            let missing = granted.missing_directories.iter();
            missing.for_each(|directory| self.note(Denial::Directory(directory.clone())));
        }
        if looked_for.variables.load(Ordering::Relaxed) {
            let named = granted.missing_variables.iter().filter(|key| speaks_of(&outcome, key));
            named.for_each(|key| self.note(Denial::Variable(key.clone())));
        }
        let certain: Vec<_> = self.found().iter().map(|denial| denial.explain(&granted.sides)).collect();
        let why = if certain.is_empty() {
            let guessed = self.guessed(&outcome);
            if guessed.is_empty() {
                return outcome;
            }
            format!("a grant may be missing: {}", guessed.join("; "))
        } else {
            format!("not granted to this plugin: {}", certain.join("; "))
        };
        let with = |text: String| format!("{text} ({why})");
        match outcome {
            Ok(Returned::Tool(mut output)) => {
                let text = |text| Content { kind: ContentKind::Text(text), annotations: None, meta: Meta::new() };
                // An error without a text is told by its structured content, until there is another text.
                if let (true, Some(error)) = (output.content.is_empty(), &output.structured) {
                    output.content.push(text(error.as_str().to_owned()));
                }
                output.content.push(text(why));
                Ok(Returned::Tool(output))
            }
            Err(CallError::InvalidParams(text)) => Err(CallError::InvalidParams(with(text))),
            Err(CallError::NotFound(text)) => Err(CallError::NotFound(with(text))),
            Err(CallError::Custom { code, message, data }) => {
                Err(CallError::Custom { code, message: with(message), data })
            }
            Err(CallError::Fault { kind, reason }) => Err(CallError::Fault { kind, reason: with(reason) }),
            // Their texts are fixed.
            other => other,
        }
    }

    /// What may have been missing. For a component that says nothing of what it wants: the grants of the kinds that it
    /// looked for and has none of. For one that wants variables, those that it has not got, if it crashed. For each,
    /// the settings that it asked for in vain. The host hands out all variables at once, and does not see which of them
    /// a guest looks for. The C library looks for directories and variables at the start of every call, so of those
    /// nothing is guessed where the plugin says itself why it failed; and a guest that crashes looks for variables in
    /// any case.
    fn guessed(&self, outcome: &Result<Returned, CallError>) -> Vec<String> {
        let OfCall { granted, looked_for, .. } = &*self.0;
        let has_crashed = matches!(outcome, Err(CallError::Fault { kind: FaultKind::Trap, .. }));
        let is_explained = is_explained(outcome);
        let may_lack = |(grant, _): &&(Grant, &str)| match grant {
            Grant::Directories => {
                !is_explained && granted.directories.is_empty() && looked_for.directories.load(Ordering::Relaxed)
            }
            Grant::Env => {
                !is_explained
                    && !has_crashed
                    && granted.environment.is_empty()
                    && looked_for.variables.load(Ordering::Relaxed)
            }
            // The host sees what is missing of the others.
            Grant::Http | Grant::Kv | Grant::Config => false,
        };
        let settings = looked_for.settings.lock();
        let settings = settings.iter().cloned().map(Denial::Setting);
        let has_looked = has_crashed && looked_for.variables.load(Ordering::Relaxed);
        let variables = granted.missing_variables.iter().filter(|_| has_looked).cloned().map(Denial::Variable);
        let denials = variables.chain(settings).map(|denial| denial.explain(&granted.sides));
        let usable = granted.usable.iter().filter(may_lack).map(|(grant, interface)| grant_hint(*grant, interface));
        usable.chain(denials).take(NAMED_MAX).collect()
    }
}

/// Whether the plugin says of a failure why: with a value of its error type, or as an error of the protocol.
fn is_explained(outcome: &Result<Returned, CallError>) -> bool {
    match outcome {
        Ok(Returned::Tool(output)) => output.structured.is_some(),
        Ok(_) => false,
        Err(CallError::InvalidParams(_) | CallError::NotFound(_) | CallError::Custom { .. }) => true,
        Err(_) => false,
    }
}

/// Whether a failure's own words name this variable.
fn speaks_of(outcome: &Result<Returned, CallError>, key: &str) -> bool {
    let is_named = |text: &str| {
        text.split(|character: char| !character.is_alphanumeric() && character != '_').any(|word| word == key)
    };
    match outcome {
        Ok(Returned::Tool(output)) => {
            let is_text = |content: &Content| matches!(&content.kind, ContentKind::Text(text) if is_named(text));
            output.content.iter().any(is_text) || output.structured.as_ref().is_some_and(|json| is_named(json.as_str()))
        }
        Ok(_) => false,
        Err(error) => is_named(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_calls::policy::{DirGrant, GrantSides};
    use bulkhead_domain::Json;
    use bulkhead_domain::tool::ToolOutput;
    use tokio::sync::mpsc;

    fn denials(granted: Granted) -> Denials {
        let outbox = Outbox::new(mpsc::channel(4).0, 100, 1 << 10);
        Denials::new("probe".into(), Arc::new(granted), outbox)
    }

    /// The last text of a failure.
    fn last_text(outcome: Result<Returned, CallError>) -> String {
        match outcome {
            Ok(Returned::Tool(output)) => match output.content.last().map(|content| content.kind.clone()) {
                Some(ContentKind::Text(text)) => text,
                other => panic!("{other:?}"),
            },
            Err(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn failure(text: &str) -> Result<Returned, CallError> {
        Ok(Returned::Tool(ToolOutput::failure(text)))
    }

    fn trap() -> Result<Returned, CallError> {
        Err(CallError::Fault { kind: FaultKind::Trap, reason: "it broke".to_owned() })
    }

    #[test]
    fn failed_call_names_what_was_denied_with_its_cure() {
        let denials = denials(Granted::default());
        let setting = Denial::Setting("size".to_owned());
        for denial in [Denial::Keyvalue, setting.clone(), setting] {
            denials.note(denial);
        }
        let said = last_text(denials.name_in(failure("it failed")));
        let sides = GrantSides::default();
        let setting = Denial::Setting("size".to_owned()).explain(&sides);
        assert_eq!(said, format!("not granted to this plugin: {}; {setting}", Denial::Keyvalue.explain(&sides)));
    }

    #[test]
    fn missing_variable_is_named_where_a_failure_speaks_of_it() {
        let granted = Granted { missing_variables: vec!["KEY".to_owned()], ..Granted::default() };
        let cure = "(the operator does not grant it: [plugin.grants] env, or the flag --env)";
        let certain = format!("not granted to this plugin: env KEY {cure}");
        let structured = ToolOutput { structured: Some(Json::new(r#"{"error":"no KEY"}"#)), ..ToolOutput::failure("") };
        for (outcome, looks, said) in [
            (failure("KeyError: 'KEY'"), true, certain.clone()),
            (Ok(Returned::Tool(structured)), true, certain),
            (failure("KeyError: 'KEY'"), false, "KeyError: 'KEY'".to_owned()),
            // The C library of most languages looks for variables in every call.
            (failure("the MONKEY has no name"), true, "the MONKEY has no name".to_owned()),
            (Err(CallError::NotFound("no such page".to_owned())), true, "no such page".to_owned()),
            (trap(), true, format!("it broke (a grant may be missing: env KEY {cure})")),
            (trap(), false, "it broke".to_owned()),
        ] {
            let denials = denials(granted.clone());
            if looks {
                denials.looked_for_variables();
            }
            assert_eq!(last_text(denials.name_in(outcome)), said);
        }
    }

    #[test]
    fn grant_is_guessed_after_a_look_that_found_nothing_where_the_failure_does_not_explain_itself() {
        let usable = vec![(Grant::Directories, "wasi:filesystem/preopens"), (Grant::Env, "wasi:cli/environment")];
        let nothing = Granted { usable, ..Granted::default() };
        let directory = DirGrant { host: "/srv".into(), guest: "/data".to_owned(), write: false, bytes_max: None };
        let with_directory = Granted { directories: vec![directory], ..nothing.clone() };
        let variable = ("LANG".to_owned(), "C".to_owned());
        let with_variable = Granted { environment: vec![variable], ..nothing.clone() };
        let directories = "directories (it imports wasi:filesystem/preopens)";
        let variables = "env (it imports wasi:cli/environment)";
        let may_miss = |grants: &str| format!("a grant may be missing: {grants}");
        let success = |text| Ok(Returned::Tool(ToolOutput { is_error: false, ..ToolOutput::failure(text) }));
        let explained =
            || Ok(Returned::Tool(ToolOutput { structured: Some(Json::new("{}")), ..ToolOutput::failure("no") }));
        for (granted, looks, outcome, said) in [
            (&nothing, [true, true], failure("no"), may_miss(&format!("{directories}; {variables}"))),
            (&nothing, [true, false], failure("no"), may_miss(directories)),
            (&nothing, [false, true], failure("no"), may_miss(variables)),
            (&nothing, [false, false], failure("no"), "no".to_owned()),
            (&with_directory, [true, true], failure("no"), may_miss(variables)),
            (&with_variable, [true, true], failure("no"), may_miss(directories)),
            (&nothing, [true, true], explained(), "no".to_owned()),
            (&nothing, [true, true], success("no"), "no".to_owned()),
            (&nothing, [true, true], Err(CallError::NotFound("no".to_owned())), "no".to_owned()),
            // What crashes looks for variables in any case.
            (&nothing, [true, true], trap(), format!("it broke ({})", may_miss(directories))),
            (&nothing, [false, true], trap(), "it broke".to_owned()),
        ] {
            let denials = denials(granted.clone());
            let [looks_for_directories, looks_for_variables] = looks;
            if looks_for_directories {
                denials.looked_for_directories();
            }
            if looks_for_variables {
                denials.looked_for_variables();
            }
            assert_eq!(last_text(denials.name_in(outcome)), said, "{looks:?}");
        }
    }
}
