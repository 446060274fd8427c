//! Charts: lines over time, drawn as SVG by the host, with their numbers as a table.
//!
//! Must not know what is shown. Invariants: what stands in an attribute is a number or a class of the style sheet,
//! never a style; the same numbers make the same bytes; a chart of so many points has a bounded size.

use std::fmt::Write as _;

use bulkhead_domain::UnixMs;
use bulkhead_domain::timestamp::iso8601;
use maud::{Markup, html};

/// Lines of one chart; the style sheet has a colour and a pattern for each.
pub(crate) const LINES_MAX: usize = 6;
/// Points of one line of a chart of the dashboard.
pub(crate) const POINTS_MAX: usize = 60;
/// Marks of time below a chart.
const TIME_MARKS: usize = 3;
/// The drawing, in units of its own; the page stretches it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;

/// A line: a number for each time, where there is one.
pub(crate) struct ChartLine {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<f64>>,
}

/// Lines over the same times.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// Behind a number.
    pub(crate) unit: &'a str,
    /// What a point of time is called in the table.
    pub(crate) times: &'a [String],
    pub(crate) lines: Vec<ChartLine>,
    /// What a reader has to know of the numbers.
    pub(crate) note: Option<String>,
    /// Said where there is nothing to draw.
    pub(crate) nothing: &'a str,
}

/// The hour and minute of a time, or more of it where points are closer.
pub(crate) fn clock_time(at: UnixMs) -> String {
    iso8601(at).get(11..19).unwrap_or_default().to_owned()
}

/// A number with as many digits as tell something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1_000.0.. => crate::text::count(value.round().max(0.0) as u64),
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Chart<'_> {
    pub(crate) fn show(&self) -> Markup {
        let values = || self.lines.iter().flat_map(|line| line.values.iter().flatten());
        let (least, most) =
            values().fold((f64::INFINITY, 0_f64), |(least, most), value| (least.min(*value), most.max(*value)));
        html! {
            figure.chart {
                figcaption {
                    b { (self.title) }
                    @if least.is_finite() { " " span.note { "min " (number(least)) " · max " (number(most)) " " (self.unit) } }
                }
                @if least.is_finite() {
                    @let top = round_above(most);
                    div.plot {
                        p.high { span { (number(top)) } span { "0" } }
                        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label={ (self.title) ": the numbers are in the table below" } {
                            @for (place, line) in self.lines.iter().enumerate().take(LINES_MAX) {
                                path class={ "line l" (place) } d=(path(&line.values, top)) {}
                            }
                        }
                        p.long { @for time in self.time_marks() { span { (time) } } }
                    }
                    p.legend { @for (place, line) in self.lines.iter().enumerate().take(LINES_MAX) {
                        span class={ "l" (place) } { (sample(place)) " " (line.name) } " "
                    } }
                    @if let Some(note) = &self.note { p.note { (note) } }
                    (self.table())
                } @else { p.note { (self.nothing) } }
            }
        }
    }

    /// The first time, the last and those between them.
    fn time_marks(&self) -> impl Iterator<Item = &String> {
        let last = self.times.len().saturating_sub(1);
        let steps = last.min(TIME_MARKS - 1);
        (0..=steps).filter_map(move |mark| self.times.get((mark * last).checked_div(steps).unwrap_or(0)))
    }

    fn table(&self) -> Markup {
        html! {
            details {
                summary { "Numbers of " (self.title) }
                div.scroll role="region" aria-label=(self.title) tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Time" } @for line in self.lines.iter().take(LINES_MAX) { th scope="col" { (line.name) ", " (self.unit) } } } }
                        tbody { @for (at, time) in self.times.iter().enumerate().rev() {
                            tr { td { (time) } @for line in self.lines.iter().take(LINES_MAX) {
                                td { (line.values.get(at).copied().flatten().map_or_else(|| "–".to_owned(), number)) }
                            } }
                        } }
                    }
                }
            }
        }
    }
}

/// A piece of a line, for the legend.
fn sample(number: usize) -> Markup {
    html! { svg viewBox="0 0 24 6" aria-hidden="true" { path class={ "line l" (number) } d="M0 3H24" {} } }
}

/// A line alone, as small as a word. Its numbers stand elsewhere.
pub(crate) fn sparkline(values: &[Option<f64>]) -> Markup {
    let most = values.iter().flatten().fold(0_f64, |most, value| most.max(*value));
    html! {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
            path class="line l0" d=(path(values, most)) {}
        }
    }
}

/// The next number above that is 1, 2 or 5 with zeros.
fn round_above(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let step = 10_f64.powf(most.log10().floor());
    let above = [1.0, 2.0, 5.0].into_iter().map(|factor| factor * step).find(|round| *round >= most);
    above.unwrap_or(10.0 * step)
}

/// One move to the begin of each part without a gap, and lines from there; a lone number is a short line.
fn path(values: &[Option<f64>], most: f64) -> String {
    let step = WIDTH / (values.len().saturating_sub(1).max(1)) as f64;
    let scale = if most > 0.0 { (HEIGHT - 2.0) / most } else { 0.0 };
    let mut drawn = String::new();
    let mut has_begun = false;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else {
            has_begun = false;
            continue;
        };
        let x = at as f64 * step;
        let y = HEIGHT - 1.0 - value * scale;
        let is_alone = !has_begun && values.get(at + 1).copied().flatten().is_none();
        let _ = write!(drawn, "{}{x:.0} {y:.0}", if has_begun { "L" } else { "M" });
        if is_alone {
            let _ = write!(drawn, "h2");
        }
        has_begun = true;
    }
    drawn
}

/// The greatest lines by their sums, and what is left of the others as one; those without any number above nothing are
/// left out.
pub(crate) fn greatest(mut lines: Vec<ChartLine>) -> Vec<ChartLine> {
    let sum = |line: &ChartLine| line.values.iter().flatten().sum::<f64>();
    lines.retain(|line| sum(line) > 0.0);
    lines.sort_by(|one, other| sum(other).total_cmp(&sum(one)).then_with(|| one.name.cmp(&other.name)));
    if lines.len() <= LINES_MAX {
        return lines;
    }
    let rest = lines.split_off(LINES_MAX - 1);
    let times = rest.iter().map(|line| line.values.len()).max().unwrap_or_default();
    let of_all = |at: usize| Some(rest.iter().filter_map(|line| line.values.get(at).copied().flatten()).sum());
    lines.push(ChartLine { name: "others".to_owned(), values: (0..times).map(of_all).collect() });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, values: &[f64]) -> ChartLine {
        ChartLine { name: name.to_owned(), values: values.iter().map(|value| Some(*value)).collect() }
    }

    #[test]
    fn chart_is_a_picture_with_its_numbers_as_a_table() {
        let times = ["18:00:00".to_owned(), "18:00:10".to_owned(), "18:00:20".to_owned()];
        let lines = vec![
            line("ok", &[1.0, 4.0, 2.0]),
            ChartLine { name: "trap".to_owned(), values: vec![None, Some(0.5), None] },
        ];
        let note = Some("Few.".to_owned());
        let chart = Chart { title: "Calls", unit: "a second", times: &times, lines, note, nothing: "None." };
        let shown = chart.show().into_string();
        let expected = "<figure class=\"chart\"><figcaption><b>Calls</b> <span class=\"note\">min 0.50 · max 4.0 a second</span></figcaption>\
            <div class=\"plot\"><p class=\"high\"><span>5.0</span><span>0</span></p>\
            <svg viewBox=\"0 0 600 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Calls: the numbers are in the table below\">\
            <path class=\"line l0\" d=\"M0 79L300 21L600 60\"></path><path class=\"line l1\" d=\"M300 89h2\"></path></svg>\
            <p class=\"long\"><span>18:00:00</span><span>18:00:10</span><span>18:00:20</span></p></div>\
            <p class=\"legend\"><span class=\"l0\"><svg viewBox=\"0 0 24 6\" aria-hidden=\"true\"><path class=\"line l0\" d=\"M0 3H24\"></path></svg> ok</span> \
            <span class=\"l1\"><svg viewBox=\"0 0 24 6\" aria-hidden=\"true\"><path class=\"line l1\" d=\"M0 3H24\"></path></svg> trap</span> </p>\
            <p class=\"note\">Few.</p>\
            <details><summary>Numbers of Calls</summary><div class=\"scroll\" role=\"region\" aria-label=\"Calls\" tabindex=\"0\"><table>\
            <thead><tr><th scope=\"col\">Time</th><th scope=\"col\">ok, a second</th><th scope=\"col\">trap, a second</th></tr></thead><tbody>\
            <tr><td>18:00:20</td><td>2.0</td><td>–</td></tr>\
            <tr><td>18:00:10</td><td>4.0</td><td>0.50</td></tr>\
            <tr><td>18:00:00</td><td>1.0</td><td>–</td></tr></tbody></table></div></details></figure>";
        assert_eq!(shown, expected);
    }

    #[test]
    fn chart_without_numbers_says_so() {
        let chart = Chart {
            title: "Calls",
            unit: "a second",
            times: &[],
            lines: vec![line("ok", &[])],
            note: None,
            nothing: "None.",
        };
        assert_eq!(
            chart.show().into_string(),
            "<figure class=\"chart\"><figcaption><b>Calls</b></figcaption><p class=\"note\">None.</p></figure>"
        );
    }

    #[test]
    fn names_in_a_chart_are_text_and_no_attribute_holds_a_style() {
        let lines = vec![line("<script>", &[1.0])];
        let chart = Chart { title: "\"><b", unit: "", times: &["now".to_owned()], lines, note: None, nothing: "" };
        let shown = chart.show().into_string();
        assert!(!shown.contains("<script") && !shown.contains("style") && shown.contains("&lt;script&gt;"), "{shown}");
        assert!(shown.contains("aria-label=\"&quot;&gt;&lt;b"), "{shown}");
    }

    #[test]
    fn nothing_is_at_the_bottom_and_gaps_are_left_open() {
        assert_eq!(path(&[Some(0.0), Some(0.0)], 0.0), "M0 99L600 99");
        assert_eq!(path(&[Some(1.0), None, Some(1.0), Some(0.0)], 1.0), "M0 1h2M400 1L600 99");
        assert_eq!(path(&[Some(1.0)], 1.0), "M0 1h2");
    }

    #[test]
    fn chart_is_small_however_much_there_is_to_show() {
        let lines = (0..40).map(|at| line(&format!("outcome_{at}"), &vec![f64::from(at); POINTS_MAX])).collect();
        let lines = greatest(lines);
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!((lines[0].name.as_str(), lines[5].name.as_str()), ("outcome_39", "others"));
        assert_eq!(lines[5].values[0], Some((1..=34).sum::<i32>().into()));
        let times: Vec<_> = (0..POINTS_MAX as u64).map(|at| clock_time(at * 60_000)).collect();
        let shown = Chart { title: "Calls", unit: "a second", times: &times, lines, note: None, nothing: "" }
            .show()
            .into_string();
        assert!(shown.len() < 14 << 10, "{} bytes", shown.len());
    }

    #[test]
    fn top_of_a_chart_is_a_round_number_and_times_are_marked_at_both_ends() {
        let tops = [0.0, 0.3, 1.0, 1.2, 4.0, 51.0, 200.0].map(round_above);
        assert_eq!(tops.map(number), ["1.0", "0.50", "1.0", "2.0", "5.0", "100", "200"]);
        let times: Vec<_> = (0..60).map(|minute| minute.to_string()).collect();
        let marks = |count: usize| {
            let chart =
                Chart { title: "", unit: "", times: &times[..count], lines: Vec::new(), note: None, nothing: "" };
            chart.time_marks().cloned().collect::<Vec<_>>()
        };
        assert_eq!(marks(60), ["0", "29", "59"]);
        assert_eq!(
            (marks(2), marks(1), marks(0)),
            (vec!["0".to_owned(), "1".to_owned()], vec!["0".to_owned()], vec![])
        );
        assert!(sparkline(&[Some(1.0), None, Some(2.0)]).into_string().contains("d=\"M0 50h2M600 1h2\""));
    }

    #[test]
    fn numbers_have_the_digits_that_tell_something() {
        let shown = [0.0, 0.014, 3.26, 141.4, 12_345.6].map(number);
        assert_eq!(shown, ["0", "0.01", "3.3", "141", "12,346"]);
        assert_eq!(clock_time(0), "00:00:00");
    }
}
