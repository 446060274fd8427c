//! Text that others wrote, and numbers, as a page shows them.
//!
//! Must not make markup. Invariant: what a plugin or a client wrote is bounded, and changes neither the direction nor
//! the layout of what stands around it.

pub(crate) use bulkhead_config::amounts::{bytes, count, duration};
use bulkhead_domain::UnixMs;
use bulkhead_domain::text::{UNSEEN, is_unseen};
use bulkhead_domain::timestamp::iso8601;
use serde_json::Value;

/// Characters of a line that a plugin or a client wrote, on a page of the dashboard.
const LINE_CHARS_MAX: usize = 200;
/// Characters of a text that a plugin or a client wrote, on a page of the dashboard.
const BLOCK_CHARS_MAX: usize = 16_000;
/// Bytes of markup for a text that a plugin or a client wrote, in a list of many on a page of the dashboard.
const CELL_BYTES_MAX: usize = 40;
/// Bytes of JSON that is indented for a page of the dashboard.
const INDENTED_BYTES_MAX: usize = 64 << 10;

fn bounded(text: &str, chars_max: usize, keep: impl Fn(char) -> bool) -> String {
    let shown = |character| if is_unseen(character) && !keep(character) { UNSEEN } else { character };
    let mut bounded: String = text.chars().take(chars_max).map(shown).collect();
    if text.chars().nth(chars_max).is_some() {
        bounded.push('…');
    }
    bounded
}

/// One line.
pub(crate) fn line(text: &str) -> String {
    bounded(text, LINE_CHARS_MAX, |_| false)
}

/// The begin of a line, for a list of many whose items have pages of their own. Characters that are longer in markup
/// count as they are there.
pub(crate) fn cell(text: &str) -> String {
    let mut bytes = 0;
    let begin = text.chars().take_while(|character| {
        bytes += match character {
            '"' => "&quot;".len(),
            '&' => "&amp;".len(),
            '<' | '>' => "&lt;".len(),
            other => other.len_utf8(),
        };
        bytes <= CELL_BYTES_MAX
    });
    bounded(text, begin.count(), |_| false)
}

/// Text with its lines.
pub(crate) fn block(text: &str) -> String {
    bounded(text, BLOCK_CHARS_MAX, |character| matches!(character, '\n' | '\t'))
}

/// Text with its lines, so much of it.
pub(crate) fn passage(text: &str, chars_max: usize) -> String {
    bounded(text, chars_max, |character| matches!(character, '\n' | '\t'))
}

/// JSON, indented where that costs little.
pub(crate) fn json(text: &str) -> String {
    let value = (text.len() <= INDENTED_BYTES_MAX).then(|| serde_json::from_str::<Value>(text).ok()).flatten();
    block(&value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| text.to_owned()))
}

/// How long ago something was, or how long it is until then.
pub(crate) fn relative(at: UnixMs, now: UnixMs) -> String {
    let ms = at.abs_diff(now);
    let is_past = at <= now;
    let seconds = ms / 1_000;
    let span = match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    };
    if is_past { format!("{span} ago") } else { format!("in {span}") }
}

/// When something was, to the second.
pub(crate) fn moment(at: UnixMs) -> String {
    let exact = iso8601(at);
    match exact.split_once('T') {
        Some((day, time)) => format!("{day} {} UTC", time.get(..8).unwrap_or(time)),
        None => exact,
    }
}

/// How long something took that was measured.
pub(crate) fn duration_of_ms(ms: f64) -> String {
    match ms {
        0.0..10.0 => format!("{ms:.1} ms"),
        _ => duration(ms.max(0.0).round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_bounded_and_turns_nothing_around() {
        assert_eq!(line("a\nb\u{202e}c\0"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(block("a\n\tb\u{2066}"), "a\n\tb\u{fffd}");
        assert_eq!(line(&"x".repeat(1_000_000)).chars().count(), LINE_CHARS_MAX + 1);
        assert_eq!(line(&"x".repeat(LINE_CHARS_MAX)).chars().count(), LINE_CHARS_MAX);
    }

    #[test]
    fn cell_is_bounded_as_it_is_in_markup() {
        let shown = |text: &str| maud::html! { (cell(text)) }.into_string();
        assert_eq!(shown(&"x".repeat(CELL_BYTES_MAX)), "x".repeat(CELL_BYTES_MAX));
        for hostile in ["<", "\"", "&", "x", "\u{1f600}", "\u{202e}"] {
            let shown = shown(&hostile.repeat(1_000));
            assert!(shown.len() <= CELL_BYTES_MAX + '…'.len_utf8() && shown.ends_with('…'), "{shown}");
        }
    }

    #[test]
    fn json_is_indented_when_it_is_small_and_shown_as_it_is_otherwise() {
        assert_eq!(json(r#"{"b":1,"a":[]}"#), "{\n  \"b\": 1,\n  \"a\": []\n}");
        assert_eq!(json("{"), "{");
        let large = format!("[{}1]", "1,".repeat(INDENTED_BYTES_MAX));
        assert!(json(&large).starts_with("[1,1,"));
    }

    #[test]
    fn measured_durations_have_a_digit_where_they_are_short() {
        assert_eq!([0.04, 7.26, 90.4, 1_500.0].map(duration_of_ms), ["0.0 ms", "7.3 ms", "90 ms", "1.5 s"]);
    }

    #[test]
    fn times_are_said_from_now() {
        assert_eq!((relative(1_000, 61_000), relative(7_201_000, 1_000)), ("1 min ago".into(), "in 2 h".into()));
    }
}
