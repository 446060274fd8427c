//! The four numbers that an operator looks at first, each with its last hour and what it was an hour ago.
//!
//! Must not ask for anything: all of it is in the history of the host. Invariant: a number of few calls says so.

use bulkhead_control::views::{HistoryPointView, HistoryView};
use maud::{Markup, html};

use crate::chart::{clock_time, number, sparkline};
use crate::text;

/// One in a hundred is said of so many calls.
pub(super) const CALLS_FOR_P99: u64 = 100;
/// What is shown is of this long.
const RECENT_MS: u64 = 300_000;
/// What it is compared with is at least this much older.
const COMPARED_MS: u64 = 3_000_000;

/// What is read of some points.
type Value = fn(&[&HistoryPointView]) -> Option<f64>;

/// A number with what it came from.
struct Tile {
    label: &'static str,
    address: &'static str,
    now: Option<f64>,
    before: Option<f64>,
    written: fn(f64) -> String,
    note: Option<String>,
    hour: Vec<Option<f64>>,
}

pub(super) fn tiles(history: &HistoryView, waiting: u64) -> Markup {
    let points = &history.points;
    let newest = points.last().map_or(0, |point| point.at);
    let recent: Vec<_> = points.iter().filter(|point| point.at.saturating_add(RECENT_MS) > newest).collect();
    let oldest_end = points.first().map_or(0, |point| point.at.saturating_add(RECENT_MS));
    let is_old = |point: &&HistoryPointView| point.at < oldest_end && point.at.saturating_add(COMPARED_MS) <= newest;
    let before: Vec<_> = points.iter().filter(is_old).collect();
    let calls = calls_of(&recent);
    let of_few = (1..CALLS_FOR_P99).contains(&calls).then(|| format!("of {calls} calls only"));
    let tile = |label, address, value: Value, written: fn(f64) -> String, note| Tile {
        label,
        address,
        now: value(&recent),
        before: value(&before),
        written,
        note,
        hour: points.iter().map(|point| value(&[point])).collect(),
    };
    let tiles = [
        tile("Calls a second", "/plugins", calls_a_second, number, None),
        tile("Errors", "/denials", errors_percent, |value| format!("{} %", number(value)), of_few.clone()),
        tile("p99", "/plugins", p99_ms, text::duration_of_ms, of_few),
        Tile {
            now: Some(waiting as f64),
            ..tile("Waiting for people", "/tasks?status=input_required", waiting_at_most, number_of_tasks, None)
        },
    ];
    html! {
        ul.tiles aria-label="The last five minutes" { @for tile in &tiles { (tile.show()) } }
        @if before.is_empty() {
            @if let Some(first) = points.first() {
                p.note { "Counted since " (clock_time(first.at.saturating_sub(first.span_ms))) " UTC: there is no hour to compare with yet." }
            }
        }
    }
}

impl Tile {
    fn show(&self) -> Markup {
        html! {
            li {
                a href=(self.address) { (self.label) }
                b { (self.now.map_or_else(|| "–".to_owned(), self.written)) }
                (sparkline(&self.hour))
                span.note {
                    @if let Some(change) = self.change() { (change) }
                    @if let Some(note) = self.note.as_ref().filter(|_| self.now.is_some()) { " " (note) }
                }
            }
        }
    }

    /// Against an hour ago.
    fn change(&self) -> Option<String> {
        let [now, before] = [self.now?, self.before?].map(self.written);
        Some(match self.now? > self.before? {
            _ if now == before => "as an hour ago".to_owned(),
            true => format!("▲ from {before} an hour ago"),
            false => format!("▼ from {before} an hour ago"),
        })
    }
}

fn calls_of(points: &[&HistoryPointView]) -> u64 {
    points.iter().flat_map(|point| point.calls.values()).sum()
}

fn calls_a_second(points: &[&HistoryPointView]) -> Option<f64> {
    let span_ms: u64 = points.iter().map(|point| point.span_ms).sum();
    (span_ms > 0).then(|| calls_of(points) as f64 * 1_000.0 / span_ms as f64)
}

/// A call that was stopped is no error.
fn errors_percent(points: &[&HistoryPointView]) -> Option<f64> {
    let calls = calls_of(points);
    let is_error = |(name, _): &(&String, &u64)| !["ok", "cancelled"].contains(&name.as_str());
    let errors: u64 = points.iter().flat_map(|point| &point.calls).filter(is_error).map(|(_, calls)| calls).sum();
    (calls > 0).then(|| errors as f64 * 100.0 / calls as f64)
}

/// That of the slowest span.
fn p99_ms(points: &[&HistoryPointView]) -> Option<f64> {
    points.iter().filter_map(|point| point.p99_us).max().map(|us| us as f64 / 1_000.0)
}

fn waiting_at_most(points: &[&HistoryPointView]) -> Option<f64> {
    points.iter().map(|point| point.tasks_waiting).max().map(|tasks| tasks as f64)
}

fn number_of_tasks(tasks: f64) -> String {
    text::count(tasks.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(minute: u64, ok: u64, trap: u64, waiting: u64) -> HistoryPointView {
        HistoryPointView {
            at: (1 + minute) * 60_000,
            span_ms: 60_000,
            calls: [("ok".to_owned(), ok), ("trap".to_owned(), trap), ("cancelled".to_owned(), 0)].into(),
            p99_us: Some(1_500 * (1 + minute)),
            tasks_waiting: waiting,
            ..HistoryPointView::default()
        }
    }

    #[test]
    fn tiles_say_what_is_now_and_what_was_an_hour_ago() {
        let points =
            (0..60).map(|minute| point(minute, if minute < 30 { 60 } else { 120 }, minute / 30 * 6, 3)).collect();
        let shown = tiles(&HistoryView { points }, 5).into_string();
        for part in [
            "<a href=\"/plugins\">Calls a second</a><b>2.1</b>",
            "▲ from 1.0 an hour ago",
            "<b>4.8 %</b>",
            "▲ from 0 % an hour ago",
            "<b>90 ms</b>",
            "<a href=\"/tasks?status=input_required\">Waiting for people</a><b>5</b>",
            "▲ from 3 an hour ago",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(shown.matches("<svg class=\"spark\"").count(), 4);
        assert!(!shown.contains("only") && !shown.contains("style") && shown.len() < 5_000, "{} bytes", shown.len());
    }

    #[test]
    fn tiles_of_few_calls_and_of_a_new_host_say_so() {
        let shown = tiles(&HistoryView { points: vec![point(0, 3, 0, 0)] }, 0).into_string();
        assert_eq!(shown.matches("of 3 calls only").count(), 2, "errors and p99: {shown}");
        assert!(shown.contains("Counted since 00:00:00 UTC") && !shown.contains("an hour ago"), "{shown}");
        let empty = tiles(&HistoryView::default(), 0).into_string();
        assert_eq!(empty.matches("<b>–</b>").count(), 3, "{empty}");
    }
}
