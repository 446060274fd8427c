//! Replies of the operator as text for people.

use std::time::{SystemTime, UNIX_EPOCH};

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

/// A table of the objects in one member of a reply.
pub(crate) fn list(value: &Value, member: &str, head: &[&str], row: impl Fn(&Value) -> Vec<String>) -> String {
    let rows: Vec<_> = value[member].as_array().into_iter().flatten().map(row).collect();
    table(head, &rows)
}

/// Some members of an object as cells.
pub(crate) fn cells<const N: usize>(object: &Value, members: [&str; N]) -> [String; N] {
    members.map(|member| cell(&object[member]))
}

/// One line for each field that has a value.
pub(crate) fn fields(value: &Value) -> String {
    let Some(object) = value.as_object() else { return value.to_string() };
    let width = object.keys().map(String::len).max().unwrap_or(0);
    let lines = object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let text = if name.ends_with("_at") { when(value, now()) } else { cell(value) };
        format!("{name:<width$}  {text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A value in a cell: no quotes around texts, nothing for null, no control characters.
pub(crate) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// A time in milliseconds as "3m ago" or "in 2h".
pub(crate) fn when(value: &Value, now: u64) -> String {
    let Some(at) = value.as_u64() else { return "-".to_owned() };
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
        assert_eq!(when(&json!(1_000), 61_000), "60s ago");
        assert_eq!(when(&json!(10_000_000), 0), "in 2h");
        assert_eq!(when(&json!(null), 0), "-");
    }

    #[test]
    fn empty_table_fields_are_omitted() {
        assert_eq!(fields(&json!({ "id": "a\u{1b}b", "error": null, "count": 3 })), "id     a b\ncount  3");
    }
}
