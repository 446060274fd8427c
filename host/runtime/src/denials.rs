//! What a call was granted, and what its guest reached for besides.
//!
//! Owns the words for it: a grant is named as the operator would write it, and as such it is read again. Invariant: the log and the event
//! stream hear of a call once, however often it tries, and a call that fails says what it lacked and what cures that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::events::Outbox;
use crate::granted::Granted;
use bulkhead_calls::Returned;
use bulkhead_calls::policy::{GrantSide, GrantSides};
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::imports::{Grant, grant_hint};
use bulkhead_domain::text::{beginning, escaped};
use bulkhead_domain::tool::{Content, ContentKind, Meta};

/// Different grants that a call's failure names.
const NAMED_MAX: usize = 8;

/// What a request lacks where its host is granted.
pub(super) const OTHER_PATH: &str = " with this path";

/// Bytes of a setting's name in a call's failure.
const SETTING_BYTES_MAX: usize = 128;

/// What one call was granted, and what it reached for besides. Cheap to clone: what all calls of a plugin count up and down is
/// counted once for each.
#[derive(Clone)]
pub(super) struct Denials(Arc<OfCall>);

struct OfCall {
    plugin: Arc<str>,
    granted: Arc<Granted>,
    outbox: Outbox,
    found: Mutex<Vec<String>>,
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

    /// The guest was refused something for want of this grant.
    pub(super) fn note(&self, grant: String) {
        let mut found = self.0.found.lock();
        if found.is_empty() && !self.0.outbox.is_silent() {
            tracing::warn!(plugin = &*self.0.plugin, grant, "a plugin reached for what is not granted");
            self.0.outbox.denied(grant.clone());
        }
        if found.len() < NAMED_MAX && !found.contains(&grant) {
            found.push(grant);
        }
    }

    /// The grants that were lacking so far.
    pub(super) fn found(&self) -> Vec<String> {
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

    /// The outcome, which names what was not granted if it is a failure. Of a guest that looked for directories, every one counts
    /// that it wants; of one that looked for variables, those that its failure speaks of.
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
            granted.missing_directories.iter().for_each(|grant| self.note(grant.clone()));
        }
        if looked_for.variables.load(Ordering::Relaxed) {
            let named = granted.missing_variables.iter().filter(|key| speaks_of(&outcome, key));
            named.for_each(|key| self.note(variable(key)));
        }
        let mut found = self.0.found.lock().clone();
        let is_certain = !found.is_empty();
        if !is_certain {
            found = self.guessed(&outcome);
        }
        if found.is_empty() {
            return outcome;
        }
        let found = found.iter().map(|grant| match cure(grant, &granted.sides) {
            Some(cure) => format!("{grant} ({cure})"),
            None => grant.clone(),
        });
        let found: Vec<_> = found.collect();
        let what = if is_certain { "not granted to this plugin" } else { "a grant may be missing" };
        let why = format!("{what}: {}", found.join("; "));
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

    /// What may have been missing. For a component that says nothing of what it wants: the grants of the kinds that it looked for and has
    /// none of. For one that wants variables, those that it has not got, if it crashed. For each, the settings that it asked for in vain.
    /// The host hands out all variables at once, and does not see which of them a guest looks for. The C library looks
    /// for directories and variables at the start of every call, so of those nothing is guessed where the plugin says
    /// itself why it failed; and a guest that crashes looks for variables in any case.
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
        let settings = settings.iter().map(|key| format!("{} {key}", Grant::Config.key()));
        let has_looked = has_crashed && looked_for.variables.load(Ordering::Relaxed);
        let variables = granted.missing_variables.iter().filter(|_| has_looked).map(|key| variable(key));
        let usable = granted.usable.iter().filter(may_lack).map(|(grant, interface)| grant_hint(*grant, interface));
        usable.chain(variables).chain(settings).take(NAMED_MAX).collect()
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

fn variable(key: &str) -> String {
    format!("{} {key}", Grant::Env.key())
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

/// What cures the want of a grant: the key or the flag of the side that withholds it. `None`: the grant itself says it.
fn cure(grant: &str, sides: &GrantSides) -> Option<String> {
    let (kind, what) = grant.split_once(' ').unwrap_or((grant, ""));
    match kind {
        "http" => {
            let request = what.strip_suffix(OTHER_PATH).unwrap_or(what).parse().ok()?;
            sides.withholding_http(&request).map(|side| side.explain(Grant::Http))
        }
        "directory" => {
            let (guest, mode) = what.rsplit_once(" (")?;
            let side = sides.withholding_directory(guest, mode.starts_with("write"));
            side.map(|side| side.explain(Grant::Directories))
        }
        "env" => sides.withholding_variable(what).map(|side| side.explain(Grant::Env)),
        "kv" => sides.withholding_keyvalue().map(|side| side.explain(Grant::Kv)),
        "config" => Some(GrantSide::Operator.explain(Grant::Config)),
        "secret" => {
            Some("none of this name is for this request: `bulkhead secret set`, or the flag --secret".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_calls::policy::{Bound, Grants};
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
    fn denied_grant_is_named_with_the_one_side_that_withholds_it_and_its_key() {
        let nothing = Bound {
            directories: Some(Vec::new()),
            http: Some(Vec::new()),
            env: Some(Vec::new()),
            keyvalue: Some(false),
        };
        let by_operator = GrantSides::default();
        let by_manifest = GrantSides { manifest: nothing.clone(), ..GrantSides::default() };
        let granted = Grants { http: vec!["https://a.example/v1".parse().unwrap()], ..Grants::default() };
        let by_tenant = GrantSides { operator: granted.clone(), tenant: nothing, ..GrantSides::default() };
        let by_path = GrantSides { operator: granted, ..GrantSides::default() };
        let operator = "the operator does not grant it: ";
        let manifest = "its manifest does not ask for it: [grants] ";
        for (grant, sides, cure) in [
            ("http https://a.example", &by_operator, format!(" ({operator}[plugin.grants] http, or the flag --http)")),
            ("env KEY", &by_operator, format!(" ({operator}[plugin.grants] env, or the flag --env)")),
            (
                "directory /data (write)",
                &by_operator,
                format!(" ({operator}[plugin.grants] directories, or the flag --dir)"),
            ),
            ("kv", &by_operator, format!(" ({operator}[plugin.kv], or the flag --kv)")),
            (
                "secret KEY in the header",
                &by_operator,
                " (none of this name is for this request: `bulkhead secret set`, or the flag --secret)".to_owned(),
            ),
            ("http https://a.example", &by_manifest, format!(" ({manifest}http)")),
            ("env KEY", &by_manifest, format!(" ({manifest}env)")),
            ("directory /data (read)", &by_manifest, format!(" ({manifest}directories)")),
            ("kv", &by_manifest, format!(" ({manifest}kv)")),
            (
                "http GET https://a.example with this path",
                &by_tenant,
                " (the caller's tenant is not left it: [tenant.NAME.grants] http)".to_owned(),
            ),
            ("http GET https://a.example with this path", &by_path, String::new()),
        ] {
            let denials = denials(Granted { sides: Arc::new(sides.clone()), ..Granted::default() });
            denials.note(grant.to_owned());
            let said = last_text(denials.name_in(failure("it failed")));
            assert_eq!(said, format!("not granted to this plugin: {grant}{cure}"));
            assert!(!said.contains(" or its manifest"), "{said}");
        }
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
}
