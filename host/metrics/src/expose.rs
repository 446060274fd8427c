//! The page that a scrape gets.
//!
//! Owns both formats: OpenMetrics 1.0.0 and the older text of Prometheus, 0.0.4. This is the only file that encodes.
//! Invariant: the families come in the order of the table, one after the other, and only OpenMetrics has exemplars.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry as Encoded;

use crate::families::{FAMILIES, Family, Kind};
use crate::histogram::{Distribution, Histogram};
use crate::registry::{Labels, OVERFLOW, Series};
use crate::{Metrics, Readings};
use bulkhead_domain::hex;

const MICROSECONDS: f64 = 1e6;

/// In which form a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

impl Form {
    /// The form that a client asks for in the header `Accept`: OpenMetrics only where that names it.
    pub fn accepted(accept: Option<&str>) -> Self {
        let mut kinds = accept.unwrap_or_default().split(',');
        let wants = kinds.any(|kind| {
            let mut parts = kind.split(';').map(str::trim);
            let is_open = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
            // Older drafts wrote counters in another way. A weight of nothing is a refusal.
            is_open
                && parts.all(|part| {
                    let (name, value) = part.split_once('=').unwrap_or((part, ""));
                    match name.trim().to_ascii_lowercase().as_str() {
                        "version" => value.trim().trim_matches('"').starts_with("1."),
                        "q" => value.trim().parse().is_ok_and(|weight: f32| weight > 0.0),
                        _ => true,
                    }
                })
        });
        if wants { Self::OpenMetrics } else { Self::Text }
    }

    /// The header `Content-Type` of a page.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// A number with its labels.
type Number = (Labels, f64);

/// A family of counters or gauges, as the library encodes them.
struct Numbers {
    family: &'static Family,
    numbers: Vec<Number>,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").field("family", &self.family.name).finish_non_exhaustive()
    }
}

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Family { name, unit, meaning, kind, labels, .. } = self.family;
        let is_counter = matches!(kind, Kind::Counter | Kind::Seconds);
        let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
        let mut metric = encoder.encode_descriptor(name, meaning, unit.as_ref(), kind)?;
        for (values, number) in &self.numbers {
            let set = labels.iter().zip(values).filter(|(_, value)| !value.is_empty());
            let set: Vec<(&str, &str)> = set.map(|(label, value)| (*label, value.as_str())).collect();
            let one = metric.encode_family(&set)?;
            if is_counter {
                ConstCounter::new(*number).encode(one)?;
            } else {
                ConstGauge::new(*number).encode(one)?;
            }
        }
        Ok(())
    }
}

/// Writes a page of everything that is counted, and of what was read for it.
///
/// # Errors
/// None that can be met: a text takes everything.
pub fn page(metrics: &Metrics, readings: Readings, form: Form) -> Result<String, fmt::Error> {
    let mut page = String::new();
    let mut read: HashMap<&str, Vec<Number>> = HashMap::new();
    for (family, labels, number) in readings.numbers {
        read.entry(family.name).or_default().push((labels, number));
    }
    let mut lines_left = metrics.lines_max();
    for family in FAMILIES {
        let counted = metrics.series(family);
        if let Kind::Histogram(_) = family.kind {
            let all = counted.into_iter().filter_map(|(labels, series)| match series {
                Series::Histogram(histogram) => Some((labels, histogram)),
                Series::Counter(_) => None,
            });
            write_histograms(&mut page, family, all, form)?;
            continue;
        }
        let scale = if matches!(family.kind, Kind::Seconds) { MICROSECONDS } else { 1.0 };
        let counted = counted.into_iter().filter_map(|(labels, series)| match series {
            Series::Counter(counter) => Some((labels, counter.read() as f64 / scale)),
            Series::Histogram(_) => None,
        });
        let mut numbers: Vec<_> = counted.chain(read.remove(family.name).into_iter().flatten()).collect();
        bound(family, &mut numbers, &mut lines_left);
        if numbers.is_empty() {
            continue;
        }
        let mut one = Encoded::default();
        one.register_collector(Box::new(Numbers { family, numbers }));
        match form {
            Form::OpenMetrics => text::encode_registry(&mut page, &one)?,
            Form::Text => prometheus_text::encode(&mut page, &one)?,
        }
    }
    if form == Form::OpenMetrics {
        text::encode_eof(&mut page)?;
    }
    Ok(page)
}

/// Sums what is more than there is room for in one series.
fn bound(family: &Family, numbers: &mut Vec<Number>, lines_left: &mut usize) {
    if numbers.len() > *lines_left && !family.labels.is_empty() {
        let rest: f64 = numbers.drain(*lines_left..).map(|(_, number)| number).sum();
        numbers.push((vec![OVERFLOW.to_owned(); family.labels.len()], rest));
    }
    *lines_left = lines_left.saturating_sub(numbers.len());
}

fn write_histograms(
    page: &mut String,
    family: &Family,
    all: impl Iterator<Item = (Labels, Arc<Histogram>)>,
    form: Form,
) -> fmt::Result {
    let name = family.shown_name();
    for (at, (labels, histogram)) in all.enumerate() {
        if at == 0 {
            writeln!(page, "# HELP {name} {}.\n# TYPE {name} {}", family.meaning, family.type_name())?;
            if let Some(unit) = family.unit.as_ref().filter(|_| form == Form::OpenMetrics) {
                writeln!(page, "# UNIT {name} {}", unit.as_str())?;
            }
        }
        let set = label_set(family.labels, &labels);
        let braced = if set.is_empty() { String::new() } else { format!("{{{set}}}") };
        let comma = if set.is_empty() { "" } else { "," };
        let Distribution { buckets, sum, count } = histogram.read();
        for (end, up_to, exemplar) in buckets {
            let end = if end.is_finite() { format!("{end:?}") } else { "+Inf".to_owned() };
            write!(page, "{name}_bucket{{{set}{comma}le=\"{end}\"}} {up_to}")?;
            if let Some(exemplar) = exemplar.filter(|_| form == Form::OpenMetrics) {
                let trace_id = hex(&exemplar.trace_id);
                let value = exemplar.value;
                let at = exemplar.unix_ms;
                write!(page, " # {{trace_id=\"{trace_id}\"}} {value} {}.{:03}", at / 1_000, at % 1_000)?;
            }
            page.push('\n');
        }
        writeln!(page, "{name}_sum{braced} {sum:?}\n{name}_count{braced} {count}")?;
    }
    Ok(())
}

/// Labels as they stand between braces.
fn label_set(names: &[&str], values: &[String]) -> String {
    let mut set = String::new();
    for (name, value) in names.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
        if !set.is_empty() {
            set.push(',');
        }
        set.push_str(name);
        set.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => set.push_str("\\\\"),
                '"' => set.push_str("\\\""),
                '\n' => set.push_str("\\n"),
                other => set.push(other),
            }
        }
        set.push('"');
    }
    set
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::families::{BUILD_INFO, CALL_CPU};
    use crate::{Answer, MetricsOptions, Outcome, Transport};

    fn some() -> Metrics {
        Metrics::new(MetricsOptions { series_max: 1_000, tools: true })
    }

    #[test]
    fn open_metrics_is_written_only_for_who_accepts_it() {
        let open = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;q=0.3";
        assert_eq!(Form::accepted(Some(open)), Form::OpenMetrics);
        for other in [
            None,
            Some("*/*"),
            Some("text/plain"),
            Some("application/openmetrics-text; version=0.0.1"),
            Some("application/openmetrics-text;q=0"),
        ] {
            assert_eq!(Form::accepted(other), Form::Text, "{other:?}");
        }
        assert_eq!(Form::accepted(Some("application/openmetrics-text")), Form::OpenMetrics);
    }

    #[test]
    fn both_forms_say_the_same_numbers() {
        let metrics = some();
        let plugin = metrics.plugin("csv");
        let tool = metrics.tool(&plugin, "say \"hi\"\\\n");
        tool.call_ended(Outcome::ToolError);
        plugin.call_ended(Duration::from_micros(2_500_000), Duration::from_secs(3));
        let trace_id = 0x0af7651916cd43dd8448eb211c80319c_u128.to_be_bytes();
        tool.operation.ended(
            Duration::from_millis(3),
            Answer::ToolError,
            "2026-07-28",
            Transport::Http,
            Some(&trace_id),
        );
        let mut readings = Readings::default();
        readings.read(&BUILD_INFO, ["1.2.3"], 1.0);
        let open = page(&metrics, readings, Form::OpenMetrics).unwrap();
        let escaped = r#"tool="say \"hi\"\\\n""#;
        for line in [
            "# TYPE bulkhead_calls counter",
            &format!("bulkhead_calls_total{{plugin=\"csv\",{escaped},outcome=\"tool_error\"}} 1.0"),
            "# UNIT bulkhead_call_cpu_seconds seconds",
            "bulkhead_call_cpu_seconds_total{plugin=\"csv\"} 2.5",
            "bulkhead_build_info{version=\"1.2.3\"} 1.0",
            "# EOF",
        ] {
            assert!(open.lines().any(|written| written == line), "{line}\n{open}");
        }
        let labels = format!(
            "mcp_method_name=\"tools/call\",gen_ai_{},error_type=\"tool_error\",mcp_protocol_version=\"2026-07-28\",network_transport=\"tcp\"",
            escaped.replacen("tool=", "tool_name=", 1)
        );
        let bucket = format!("mcp_server_operation_duration_seconds_bucket{{{labels},le=\"0.005\"}} 1");
        let with_trace = format!("{bucket} # {{trace_id=\"0af7651916cd43dd8448eb211c80319c\"}} 0.003 ");
        assert!(open.lines().any(|line| line.starts_with(&with_trace)), "{with_trace}\n{open}");
        let text = page(&metrics, Readings::default(), Form::Text).unwrap();
        assert!(text.lines().any(|line| line == bucket), "{text}");
        assert!(text.contains("# TYPE bulkhead_calls_total counter\n"), "{text}");
        for never in ["trace_id", "# EOF", "# UNIT"] {
            assert!(!text.contains(never), "{never}");
        }
    }

    #[test]
    fn what_is_read_stays_within_the_bound_too() {
        let metrics = Metrics::new(MetricsOptions { series_max: 3, tools: true });
        let mut readings = Readings::default();
        (0..10).for_each(|at| readings.read(&CALL_CPU, [&format!("p{at}")], 1.0));
        let text = page(&metrics, readings, Form::Text).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("bulkhead_call_cpu")).count(), 4, "{text}");
        assert!(text.contains("bulkhead_call_cpu_seconds_total{plugin=\"_overflow\"} 7"), "{text}");
    }
}
