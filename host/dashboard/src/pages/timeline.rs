//! The life of a task as a drawing: what it was when, and how long each of it took.
//!
//! Must not know whose task it is. Invariant: what was not kept is drawn as unknown, never as what was before it.

use bulkhead_control::views::{TaskStatus, TimelineView, TransitionView};
use bulkhead_domain::UnixMs;
use maud::{Markup, html};

use crate::text;

/// The drawing, in units of its own; the page stretches it.
const WIDTH: u64 = 600;
const HEIGHT: u64 = 20;
/// What is too short to be seen is drawn as wide as this.
const WIDTH_MIN: u64 = 2;

/// What a task is at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    Running,
    Asking,
    Paused,
    /// It rests, and has left memory.
    Dormant,
    /// Its host ended, and it was not brought back yet.
    Interrupted,
    /// What happened meanwhile was not kept.
    Unknown,
}

impl State {
    /// In the order of the legend, each with its class in the style sheet.
    const ALL: [(Self, &str, &str); 7] = [
        (Self::Queued, "queued", "l5"),
        (Self::Running, "running", "l0"),
        (Self::Asking, "asking", "l3"),
        (Self::Paused, "paused", "l4"),
        (Self::Dormant, "dormant", "l6"),
        (Self::Interrupted, "without its host", "l1"),
        (Self::Unknown, "not kept", "l2"),
    ];

    fn words_and_class(self) -> (&'static str, &'static str) {
        let found = Self::ALL.into_iter().find(|(state, ..)| *state == self);
        found.map_or(("", ""), |(_, words, class)| (words, class))
    }
}

/// A time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    state: State,
    from: UnixMs,
    until: UnixMs,
}

impl Segment {
    fn ms(&self) -> u64 {
        self.until.saturating_sub(self.from)
    }
}

/// A task, as far as its life is drawn.
pub(super) struct Lifetime<'a> {
    pub(super) created_at: UnixMs,
    pub(super) updated_at: UnixMs,
    pub(super) status: TaskStatus,
    pub(super) timeline: Option<&'a TimelineView>,
}

impl Lifetime<'_> {
    fn is_over(&self) -> bool {
        use TaskStatus::{Cancelled, Failed, Succeeded, ToolError};
        matches!(self.status, Succeeded | ToolError | Failed | Cancelled)
    }

    /// When it ended, or now.
    fn end(&self, now: UnixMs) -> UnixMs {
        let last = self.timeline.and_then(|timeline| timeline.entries.last()).map(|entry| entry.at);
        if self.is_over() { last.unwrap_or(self.updated_at) } else { now.max(self.updated_at) }
    }

    /// From its creation to its end or until now.
    pub(super) fn took(&self, now: UnixMs) -> Markup {
        let took = text::duration(self.end(now).saturating_sub(self.created_at));
        html! { (took) @if !self.is_over() { " so far" } }
    }

    /// The time behind each entry of the timeline, and before the first.
    fn segments(&self, now: UnixMs) -> Vec<Segment> {
        let mut state = State::Queued;
        let mut before_pause = State::Queued;
        let mut from = self.created_at;
        let mut segments = Vec::new();
        let entries = self.timeline.map(|timeline| timeline.entries.as_slice()).unwrap_or_default();
        let gap_after = self.timeline.and_then(|timeline| timeline.left_out).map(|gap| gap.after);
        for (index, entry) in entries.iter().enumerate() {
            let was = if gap_after == Some(index) { State::Unknown } else { state };
            segments.push(Segment { state: was, from, until: entry.at });
            from = entry.at;
            state = match entry.transition {
                TransitionView::Started { .. } | TransitionView::Continued { .. } | TransitionView::Woken { .. } => {
                    State::Running
                }
                TransitionView::InputRequested { .. } => State::Asking,
                TransitionView::Answered { open: 0 } => State::Running,
                TransitionView::Answered { .. } => State::Asking,
                TransitionView::Paused => {
                    before_pause = state;
                    State::Paused
                }
                TransitionView::Resumed => before_pause,
                TransitionView::Dormant => State::Dormant,
                TransitionView::Interrupted => State::Interrupted,
                TransitionView::Cancelled { .. }
                | TransitionView::Succeeded
                | TransitionView::ToolError
                | TransitionView::Failed => break,
            };
        }
        if !self.is_over() {
            segments.push(Segment { state, from, until: self.end(now) });
        } else if entries.is_empty() {
            segments.push(Segment { state: State::Unknown, from, until: self.end(now) });
        }
        segments
    }

    /// The drawing, with how long it was what.
    pub(super) fn drawn(&self, now: UnixMs) -> Markup {
        let segments = self.segments(now);
        let all_ms = self.end(now).saturating_sub(self.created_at).max(1);
        let scaled = |ms: u64| ms.saturating_mul(WIDTH) / all_ms;
        let sums: Vec<_> = State::ALL
            .into_iter()
            .filter_map(|(state, words, class)| {
                let ms: u64 = segments.iter().filter(|segment| segment.state == state).map(Segment::ms).sum();
                segments.iter().any(|segment| segment.state == state).then_some((words, class, text::duration(ms)))
            })
            .collect();
        let label: Vec<_> = sums.iter().map(|(words, _, took)| format!("{words} {took}")).collect();
        html! {
            svg.life viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label={ "The time of the task: " (label.join(", ")) } {
                @for segment in &segments {
                    @let (words, class) = segment.state.words_and_class();
                    rect class=(class) x=(scaled(segment.from.saturating_sub(self.created_at)).min(WIDTH - WIDTH_MIN)) y="0"
                        width=(scaled(segment.ms()).max(WIDTH_MIN)) height=(HEIGHT) {
                        title { (words) " " (text::duration(segment.ms())) }
                    }
                }
            }
            p.legend { @for (words, class, took) in &sums {
                span {
                    svg viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) x="0" y="0" width="10" height="10" {} }
                    " " (words) " " (took)
                } " "
            } }
        }
    }

    /// How long it stayed what it became with an entry; nothing after the last one of a task that is over.
    pub(super) fn lasted(&self, index: usize, now: UnixMs) -> Markup {
        let segment = self.segments(now).get(index + 1).copied();
        html! { @if let Some(segment) = segment { small { "for " (text::duration(segment.ms())) } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(timeline: &TimelineView, status: TaskStatus) -> Lifetime<'_> {
        Lifetime { created_at: 1_000, updated_at: 9_000, status, timeline: Some(timeline) }
    }

    fn timeline(entries: &[(u64, &str)], left_out: &str) -> TimelineView {
        let entries: Vec<_> =
            entries.iter().map(|(at, rest)| format!(r#"{{"at":{at},"transition":{rest}}}"#)).collect();
        serde_json::from_str(&format!(r#"{{"entries":[{}]{left_out}}}"#, entries.join(","))).unwrap()
    }

    #[test]
    fn life_of_a_task_is_drawn_with_the_length_of_each_part() {
        let entries = [
            (2_000, r#""started","attempt":1"#),
            (3_000, r#""input_requested","requests":1"#),
            (4_000, r#""dormant""#),
            (5_000, r#""answered","open":0"#),
            (5_000, r#""woken","attempt":2,"cause":"answered""#),
            (5_500, r#""paused""#),
            (7_000, r#""resumed""#),
            (8_000, r#""interrupted""#),
            (8_500, r#""continued","attempt":2"#),
            (11_000, r#""succeeded""#),
        ];
        let timeline = timeline(&entries, "");
        let lifetime = lifetime(&timeline, TaskStatus::Succeeded);
        assert_eq!(lifetime.took(99_000).into_string(), "10 s");
        let drawn = lifetime.drawn(99_000).into_string();
        let label = "queued 1 s, running 5 s, asking 1 s, paused 1.5 s, dormant 1 s, without its host 500 ms";
        assert!(drawn.contains(&format!("aria-label=\"The time of the task: {label}\"")), "{drawn}");
        assert!(drawn.contains(
            "<rect class=\"l3\" x=\"120\" y=\"0\" width=\"60\" height=\"20\"><title>asking 1 s</title></rect>"
        ));
        assert!(!drawn.contains("style") && drawn.len() < 3_000, "{} bytes", drawn.len());
        assert_eq!(lifetime.lasted(1, 99_000).into_string(), "<small>for 1 s</small>");
        assert_eq!(lifetime.lasted(9, 99_000).into_string(), "", "it is over");
    }

    #[test]
    fn what_still_goes_on_lasts_until_now_and_what_was_not_kept_is_unknown() {
        let entries = [(2_000, r#""started","attempt":1"#), (6_000, r#""input_requested","requests":1"#)];
        let timeline = timeline(&entries, r#","left_out":{"after":1,"count":7}"#);
        let lifetime = lifetime(&timeline, TaskStatus::InputRequired);
        assert_eq!(lifetime.took(21_000).into_string(), "20 s so far");
        let drawn = lifetime.drawn(21_000).into_string();
        assert!(drawn.contains("queued 1 s, asking 15 s, not kept 4 s"), "{drawn}");
        let queued = Lifetime { timeline: None, status: TaskStatus::Queued, ..lifetime };
        assert!(queued.drawn(21_000).into_string().contains("The time of the task: queued 20 s\""));
    }
}
