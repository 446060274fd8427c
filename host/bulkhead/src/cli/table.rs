//! Replies of the operator as text for people.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

/// Milliseconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Columns, as wide as their widest cell. The last one is not padded.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// One line for each member that has a value.
pub(crate) fn fields(view: &impl Serialize) -> String {
    fields_at(view, now())
}

pub(super) fn fields_at(view: &impl Serialize, now: u64) -> String {
    let object = match serde_json::to_value(view) {
        Ok(Value::Object(object)) => object,
        other => return other.map_or_else(|error| error.to_string(), |value| value.to_string()),
    };
    let width = object.keys().map(String::len).max().unwrap_or(0);
    let lines = object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let text = if name.ends_with("_at") { when(value.as_u64(), now) } else { member(value) };
        format!("{name:<width$}  {text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A member of an object in a cell: no quotes around texts.
pub(crate) fn member(value: &Value) -> String {
    match value {
        Value::Null => cell(None::<&str>),
        Value::String(text) => cell(text.as_str()),
        other => cell(other.to_string().as_str()),
    }
}

/// A text in a cell, without control characters.
pub(crate) fn cell<'a>(text: impl Into<Option<&'a str>>) -> String {
    let text = text.into().unwrap_or("-");
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// The word for a state, as it is in JSON.
pub(crate) fn word(state: &impl Serialize) -> String {
    serde_json::to_value(state).as_ref().map_or_else(|error| error.to_string(), member)
}

/// A time in milliseconds as "3m ago" or "in 2h".
pub(crate) fn when(at: impl Into<Option<u64>>, now: u64) -> String {
    let Some(at) = at.into() else { return "-".to_owned() };
    let (ms, ago) = if at <= now { (now - at, true) } else { (at - now, false) };
    let seconds = ms / 1_000;
    let span = match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    if ago { format!("{span} ago") } else { format!("in {span}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_columns_are_aligned() {
        let rows = vec![vec!["1".to_owned(), "long cell".to_owned(), String::new()], vec!["22".to_owned()]];
        assert_eq!(table(&["id", "name", "end"], &rows), "id  name       end\n1   long cell\n22");
    }

    #[test]
    fn table_times_are_shown_as_spans() {
        assert_eq!(when(1_000, 61_000), "60s ago");
        assert_eq!(when(10_000_000, 0), "in 2h");
        assert_eq!(when(None::<u64>, 0), "-");
    }

    #[test]
    fn empty_table_fields_are_omitted() {
        assert_eq!(fields(&json!({ "id": "a\u{1b}b", "error": null, "count": 3 })), "id     a b\ncount  3");
    }
}
