//! Answers as snapshots. `UPDATE_EXPECT=1` writes those of a test run into the tests; the diff is read like code.

use expect_test::Expect;
use serde_json::{Value, json};

use bulkhead_domain::task::TaskId;

/// What was answered: each answer whole on a line, behind the names of all that were answered the same.
#[derive(Default)]
pub(super) struct Transcript(Vec<(String, Value)>);

impl Transcript {
    pub(super) fn note(&mut self, name: &str, answer: &Value) {
        let answer = masked(answer);
        match self.0.iter_mut().find(|(_, noted)| *noted == answer) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => self.0.push((name.to_owned(), answer)),
        }
    }

    pub(super) fn expect(&self, snapshot: &Expect) {
        let lines: Vec<_> = self.0.iter().map(|(names, answer)| format!("{names}: {answer}\n")).collect();
        snapshot.assert_eq(&lines.concat());
    }
}

/// An answer without what differs between two runs: ids, intervals, incidents and sealed states.
fn masked(answer: &Value) -> Value {
    match answer {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, member)| match member {
                    Value::Number(_) if name.starts_with("poll") => (name.clone(), json!("<ms>")),
                    Value::String(_) if name == "requestState" => (name.clone(), json!("<state>")),
                    Value::String(_) if name == "incident" => (name.clone(), json!("<incident>")),
                    _ => (name.clone(), masked(member)),
                })
                .collect(),
        ),
        Value::Array(entries) => entries.iter().map(masked).collect(),
        Value::String(text) if TaskId::parse(text).is_some() => json!("<id>"),
        other => other.clone(),
    }
}
