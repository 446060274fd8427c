//! Replies of the operator as text for people.

use std::time::{SystemTime, UNIX_EPOCH};

use bulkhead_config::amounts::{amount, has_unit};
use bulkhead_domain::text::on_terminal;
use serde::Serialize;
use serde_json::Value;

use super::terminal;

/// Milliseconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// How answers are laid out for people.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// When the answer is looked at.
    pub now: u64,
    /// What tables have to fit in; `None`: they are as wide as they are.
    pub columns: Option<usize>,
    pub colours: bool,
}

/// Between two columns of a table.
const GAP: &str = "  ";
/// Stands for the rest of a cell.
const CUT: char = '…';
/// No column is made narrower than this, or than its head.
const COLUMN_CHARACTERS_MIN: usize = 8;

const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const PLAIN: &str = "\u{1b}[0m";

impl Layout {
    /// For stdout as it is now: a terminal has a width and colours, a pipe has neither.
    pub fn of_stdout(wide: bool) -> Self {
        let columns = if wide { None } else { terminal::columns() };
        Self { now: now(), columns, colours: terminal::has_colours(&std::io::stdout()) }
    }

    /// As files and other programs get it.
    pub fn plain(now: u64) -> Self {
        Self { now, columns: None, colours: false }
    }

    /// A time, as a span from now.
    pub fn when(&self, at: impl Into<Option<u64>>) -> String {
        when(at, self.now)
    }

    /// Columns, as wide as their widest cell if there is room. The last one is not padded.
    pub fn table(&self, head: &[&str], rows: &[Vec<String>]) -> String {
        let mut widths: Vec<usize> = head.iter().map(|cell| cell.len()).collect();
        let least: Vec<usize> = widths.iter().map(|width| (*width).max(COLUMN_CHARACTERS_MIN)).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some(columns) = self.columns {
            narrow(&mut widths, &least, columns);
        }
        let mut lines = vec![self.line(head, &widths, |_, text| self.painted(BOLD, text))];
        for row in rows {
            let cells: Vec<_> = row.iter().map(String::as_str).collect();
            lines.push(self.line(&cells, &widths, |at, text| {
                let colour = head.get(at).and_then(|head| colour(head, text.trim_end()));
                colour.map_or(text.clone(), |colour| self.painted(colour, text))
            }));
        }
        lines.join("\n")
    }

    fn line(&self, cells: &[&str], widths: &[usize], paint: impl Fn(usize, String) -> String) -> String {
        let cells = cells.iter().zip(widths).enumerate();
        let end = cells.len();
        let padded = cells.map(|(at, (cell, width))| {
            let text = cut(cell, *width);
            paint(at, if at + 1 == end { text } else { format!("{text:<width$}") })
        });
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    }

    fn painted(&self, colour: &str, text: String) -> String {
        if self.colours { format!("{colour}{text}{PLAIN}") } else { text }
    }
}

/// Takes from the widest columns until all fit. The first column names the row, so the others give first.
fn narrow(widths: &mut [usize], least: &[usize], columns: usize) {
    for first in [1, 0] {
        loop {
            let taken = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
            let Some(excess) = taken.checked_sub(columns).filter(|excess| *excess > 0) else { return };
            let wide = widths.iter().zip(least).skip(first).filter(|(width, least)| width > least);
            let Some(widest) = wide.map(|(width, _)| *width).max() else { break };
            // Down to the next one, so that equally wide columns stay equally wide.
            let next = widths.iter().skip(first).filter(|width| **width < widest).max().copied().unwrap_or_default();
            let mut narrowed = widths.iter_mut().zip(least).skip(first);
            if let Some((width, least)) = narrowed.find(|(width, least)| **width == widest && **width > **least) {
                *width = (*width - excess.min(widest - next).max(1)).max(*least);
            }
        }
    }
}

/// So much of a text; the end of what is longer is left out.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain([CUT]).collect()
}

/// What colour a cell has under this head.
fn colour(head: &str, text: &str) -> Option<&'static str> {
    match head {
        "STATUS" | "STATE" => match text {
            "failed" | "tool_error" | "broken" | "quarantined" | "revoked" | "expired" => Some(RED),
            "running" | "active" | "succeeded" => Some(GREEN),
            "queued" | "input_required" | "paused" | "awaited" | "canary" | "draining" => Some(YELLOW),
            _ => None,
        },
        "FULL" => match text.strip_suffix(" %")?.parse::<u64>().ok()? {
            0..80 => None,
            80..95 => Some(YELLOW),
            _ => Some(RED),
        },
        _ => None,
    }
}

/// One line for each member that has a value.
pub fn fields(view: &impl Serialize) -> String {
    fields_at(view, now())
}

pub fn fields_at(view: &impl Serialize, now: u64) -> String {
    let object = match serde_json::to_value(view) {
        Ok(Value::Object(object)) => object,
        other => return other.map_or_else(|error| error.to_string(), |value| value.to_string()),
    };
    let width = object.keys().map(String::len).max().unwrap_or(0);
    let lines = object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let text = match value.as_u64() {
            at if name.ends_with("_at") => when(at, now),
            Some(number) if has_unit(name) => amount(name, number),
            _ => member(value),
        };
        format!("{name:<width$}  {text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A member of an object in a cell: no quotes around texts.
pub fn member(value: &Value) -> String {
    match value {
        Value::Null => cell(None::<&str>),
        Value::String(text) => cell(text.as_str()),
        other => cell(other.to_string().as_str()),
    }
}

/// A text in a cell, without what would act on a terminal and with a mark for what nobody sees.
pub fn cell<'a>(text: impl Into<Option<&'a str>>) -> String {
    let text = text.into().unwrap_or("-");
    text.chars().map(on_terminal).collect()
}

/// The word for a state, as it is in JSON.
pub fn word(state: &impl Serialize) -> String {
    serde_json::to_value(state).as_ref().map_or_else(|error| error.to_string(), member)
}

/// A time in milliseconds as "3m ago" or "in 2h".
pub fn when(at: impl Into<Option<u64>>, now: u64) -> String {
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
    fn cell_acts_on_no_terminal_and_shows_what_nobody_sees() {
        assert_eq!(cell("a\nb\u{1b}[2J\u{202e}c\u{200b}d\u{2028}"), "a b [2J\u{fffd}c\u{fffd}d\u{fffd}");
        assert_eq!(member(&json!({"a\u{ad}": "b\u{feff}"})), "{\"a\u{fffd}\":\"b\u{fffd}\"}");
    }

    #[test]
    fn table_columns_are_aligned() {
        let rows = vec![vec!["1".to_owned(), "long cell".to_owned(), String::new()], vec!["22".to_owned()]];
        assert_eq!(Layout::plain(0).table(&["id", "name", "end"], &rows), "id  name       end\n1   long cell\n22");
    }

    #[test]
    fn table_fits_its_terminal_and_keeps_what_names_a_row() {
        let row = |id: &str, tool: &str, message: &str| vec![id.to_owned(), tool.to_owned(), message.to_owned()];
        let rows = [row(&"1".repeat(32), "count_primes", &"m".repeat(50)), row("2", "echo", "-")];
        let head = ["ID", "TOOL", "MESSAGE"];
        let wide = Layout::plain(0).table(&head, &rows);
        assert_eq!(wide.lines().map(|line| line.chars().count()).max(), Some(32 + 2 + 12 + 2 + 50));
        for columns in [120, 98, 80, 58, 52, 40, 28] {
            let text = Layout { columns: Some(columns), ..Layout::plain(0) }.table(&head, &rows);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
            assert_eq!(text.contains(&"1".repeat(32)), columns >= 52, "{columns}: {text}");
            assert_eq!(text.contains('…'), columns < 98, "{columns}: {text}");
        }
        // Where nothing can give any more, the table is wider than its terminal.
        let text = Layout { columns: Some(5), ..Layout::plain(0) }.table(&head, &rows);
        assert_eq!(text.lines().nth(1), Some("1111111…  count_p…  mmmmmmm…"));
    }

    #[test]
    fn table_colours_leave_its_columns_as_they_are() {
        let rows = [vec!["a".to_owned(), "failed".to_owned(), "99 %".to_owned()]];
        let head = ["ID", "STATUS", "FULL"];
        let coloured = Layout { colours: true, ..Layout::plain(0) }.table(&head, &rows);
        assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m") && coloured.contains("\u{1b}[31m99 %\u{1b}[0m"));
        let bare = [BOLD, RED, PLAIN].iter().fold(coloured, |text, code| text.replace(code, ""));
        let bare: Vec<_> = bare.lines().map(str::trim_end).collect();
        assert_eq!(bare.join("\n"), Layout::plain(0).table(&head, &rows));
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
