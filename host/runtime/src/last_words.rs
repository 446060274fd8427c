//! What is shown of what a guest wrote to standard error before it failed.
//!
//! Owns whether callers see it, and which parts of it nobody sees. Must not read standard error of a call that went
//! well. Invariant: no text of standard error gets into a result or into the log of crashes but through here, where
//! granted values are replaced.

use std::sync::Arc;

use serde_json::Value;

use crate::granted::Granted;
use crate::wasi_context::StderrTail;
use bulkhead_domain::text::escaped;

/// Bytes of a granted value that is replaced. Shorter ones are words and numbers such as `debug`, of which texts are
/// full.
const REPLACED_BYTES_MIN: usize = 6;
/// How the line begins that Rust's library prints below every message of a panic.
const RUST_NOTE: &str = "note: run with `RUST_BACKTRACE=";

/// The end of a guest's standard error for those who may see it.
#[derive(Clone)]
pub(crate) struct LastWords {
    granted: Arc<Granted>,
    is_in_results: bool,
}

/// A text that the operator gave to the plugin.
struct GrantedValue {
    /// What the plugin knows it by.
    name: String,
    text: String,
}

impl LastWords {
    /// Of a call to which this is granted; in its result, if the operator or the kind of the component allows it.
    pub(crate) fn new(granted: Arc<Granted>, is_in_results: bool) -> Self {
        Self { granted, is_in_results }
    }

    /// All that was kept, for the caller; empty where callers are not shown it.
    pub(crate) fn for_caller(&self, stderr: &StderrTail) -> String {
        if self.is_in_results { self.text(stderr) } else { String::new() }
    }

    /// The last line, for the caller: of a language's runtime the one that names the error, below the places where it
    /// came by.
    pub(crate) fn last_line_for_caller(&self, stderr: &StderrTail) -> Option<String> {
        if self.is_in_results { self.lines(stderr).pop() } else { None }
    }

    /// The lines in one for the caller.
    pub(crate) fn line_for_caller(&self, stderr: &StderrTail) -> Option<String> {
        if self.is_in_results { self.line(stderr) } else { None }
    }

    /// The lines in one, for the operator; `None`: nothing was written there.
    pub(crate) fn line(&self, stderr: &StderrTail) -> Option<String> {
        let lines = self.lines(stderr);
        (!lines.is_empty()).then(|| lines.join(" / "))
    }

    fn lines(&self, stderr: &StderrTail) -> Vec<String> {
        let text = self.text(stderr);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(RUST_NOTE));
        lines.map(escaped).collect()
    }

    fn text(&self, stderr: &StderrTail) -> String {
        let mut text = stderr.text();
        if text.is_empty() {
            return text;
        }
        let values = granted_values(&self.granted);
        if stderr.is_full() {
            // It may begin with the end of a value.
            let cut = values.iter().map(|value| end_of_value(&value.text, &text)).max();
            text.drain(..cut.unwrap_or_default());
        }
        for value in values {
            if text.contains(&value.text) {
                text = text.replace(&value.text, &format!("[value of {}]", value.name));
            }
        }
        text
    }
}

/// The variables and the texts among the settings, the longest first: one may be part of another.
fn granted_values(granted: &Granted) -> Vec<GrantedValue> {
    let mut values = Vec::new();
    for (name, value) in &granted.environment {
        add_lines(name, value, &mut values);
    }
    for (name, setting) in &granted.settings {
        if let Ok(setting) = serde_json::from_str(setting.as_str()) {
            add_texts(name, &setting, &mut values);
        }
    }
    values.sort_by_key(|value| std::cmp::Reverse(value.text.len()));
    values
}

fn add_texts(name: &str, setting: &Value, values: &mut Vec<GrantedValue>) {
    match setting {
        Value::String(text) => add_lines(name, text, values),
        Value::Array(items) => items.iter().for_each(|item| add_texts(name, item, values)),
        Value::Object(members) => members.values().for_each(|member| add_texts(name, member, values)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Each line by itself: languages print a text of several in ways of their own.
fn add_lines(name: &str, text: &str, values: &mut Vec<GrantedValue>) {
    let lines = text.lines().map(str::trim).filter(|line| line.len() >= REPLACED_BYTES_MIN);
    values.extend(lines.map(|line| GrantedValue { name: name.to_owned(), text: line.to_owned() }));
}

/// With how many bytes of a value's end a text begins, which lacks the value's beginning.
fn end_of_value(value: &str, text: &str) -> usize {
    let mut ends = value.char_indices().skip(1).filter_map(|(at, _)| value.get(at..));
    ends.find(|end| text.starts_with(end)).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasi_context::STDERR_TAIL_BYTES_MAX;
    use bulkhead_domain::Json;

    const KEY: &str = "sk-äb\"cd\\ef";

    fn words(is_in_results: bool) -> LastWords {
        let environment = [("API_KEY", KEY), ("LEVEL", "debug"), ("PEM", "-----BEGIN\nMIIEow\n")];
        let settings =
            [("nested", r#"{"a": ["https://x.example/longer", 1234567, null]}"#), ("url", "\"https://x.example\"")];
        let granted = Granted {
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            settings: settings.map(|(name, json)| (name.to_owned(), Json::new(json))).into(),
            ..Granted::default()
        };
        LastWords::new(Arc::new(granted), is_in_results)
    }

    fn tail(text: &str) -> StderrTail {
        let tail = StderrTail::default();
        tail.push(text.as_bytes());
        tail
    }

    #[test]
    fn granted_values_are_replaced_by_their_names() {
        for (printed, shown) in [
            (&*format!("no access with {KEY}{KEY}"), "no access with [value of API_KEY][value of API_KEY]"),
            ("level debug, 1234567", "level debug, 1234567"),
            ("bad key '-----BEGIN\\nMIIEow\\n'", "bad key '[value of PEM]\\n[value of PEM]\\n'"),
            ("get https://x.example/longer/1", "get [value of nested]/1"),
            ("get https://x.example/1", "get [value of url]/1"),
            ("nothing of it", "nothing of it"),
            ("", ""),
        ] {
            let tail = tail(printed);
            assert_eq!(words(true).for_caller(&tail), shown);
            assert_eq!(words(true).last_line_for_caller(&tail).unwrap_or_default(), escaped(shown));
            assert_eq!(words(false).line(&tail).unwrap_or_default(), escaped(shown), "nor does the log have them");
        }
    }

    #[test]
    fn end_of_a_granted_value_at_the_cut_is_left_out() {
        for kept in 1..KEY.len() {
            let rest = format!(" was refused{}", "x".repeat(STDERR_TAIL_BYTES_MAX - 12 - kept));
            let shown = words(true).for_caller(&tail(&format!("{KEY}{rest}")));
            assert!(shown.starts_with(" was refused"), "{kept}: {shown:?}");
        }
        // What was not cut is whole.
        assert_eq!(words(true).for_caller(&tail("ef is no key")), "ef is no key");
    }

    #[test]
    fn callers_see_nothing_where_it_is_not_allowed() {
        let tail = tail("because\n");
        let hidden = words(false);
        assert_eq!(hidden.for_caller(&tail), "");
        assert_eq!((hidden.last_line_for_caller(&tail), hidden.line_for_caller(&tail)), (None, None));
        assert_eq!(hidden.line(&tail).as_deref(), Some("because"), "the operator does");
        assert_eq!(words(true).line_for_caller(&tail).as_deref(), Some("because"));
    }

    #[test]
    fn last_line_names_the_error() {
        let python = tail("Traceback:\n  line 3\x1b\nKeyError: 'k'\n\n");
        assert_eq!(words(true).line(&python).as_deref(), Some("Traceback: / line 3\\u{1b} / KeyError: 'k'"));
        assert_eq!(words(true).last_line_for_caller(&python).as_deref(), Some("KeyError: 'k'"));
        let rust = "thread 'main' (1) panicked at src/lib.rs:4:5:\nno colour\nnote: run with `RUST_BACKTRACE=1` environment \
                    variable to display a backtrace\n";
        assert_eq!(words(true).last_line_for_caller(&tail(rust)).as_deref(), Some("no colour"));
        let nothing = StderrTail::default();
        assert_eq!((words(true).line(&nothing), words(true).last_line_for_caller(&nothing)), (None, None));
    }
}
