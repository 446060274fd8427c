//! What a call was granted, and what its guest reached for besides.
//!
//! Owns the words for it: a grant is named as the operator would write it. Invariant: the log and the event stream hear of a call
//! once, however often it tries, and a call that fails says what it lacked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::events::Outbox;
use crate::granted::Granted;
use bulkhead_calls::Returned;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::imports::{Grant, grant_hint};
use bulkhead_domain::text::{beginning, escaped};
use bulkhead_domain::tool::{Content, ContentKind, Meta};

/// Different grants that a call's failure names.
const NAMED_MAX: usize = 8;

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

    /// The outcome, which names what was not granted if it is a failure. Of a guest that looked
    /// for directories or variables, everything of the kind counts that it wants.
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
        for (looked, missing) in [
            (&looked_for.directories, &granted.missing_directories),
            (&looked_for.variables, &granted.missing_variables),
        ] {
            if looked.load(Ordering::Relaxed) {
                missing.iter().for_each(|grant| self.note(grant.clone()));
            }
        }
        let mut found = self.0.found.lock().clone();
        let is_certain = !found.is_empty();
        if !is_certain {
            found = self.guessed(&outcome);
        }
        if found.is_empty() {
            return outcome;
        }
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

    /// What may have been missing, for a component that says nothing of what it wants: the grants of the kinds that it looked for and has
    /// none of, and the settings that it asked for in vain. The C library looks for directories and variables at the start of every
    /// call, so of those nothing is guessed where the plugin says itself why it failed; and a guest that crashes looks for variables in
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
        let settings = settings.iter().map(|key| format!("{} {key}", Grant::Config.key()));
        granted.usable.iter().filter(may_lack).map(|usable| grant_hint(*usable)).chain(settings).collect()
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
