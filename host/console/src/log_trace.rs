//! The trace that a line of the log belongs to.
//!
//! Owns how a line names the recorded request or task that it was written within. It is looked up where a line is
//! written: a span of `tracing` for each request would say the same, and cost more than the recording, for requests
//! that most often log nothing. Must not change a line of anything else.

use std::fmt::Write as _;

use bulkhead_domain::hex;
use bulkhead_traces::Span;
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The form of lines.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    /// One object a line.
    Json,
}

/// Lines of this format, with their trace.
pub(super) struct WithTrace<F> {
    pub(super) lines: F,
    pub(super) form: Form,
}

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        // What is not recorded may name the trace of its caller itself.
        let recorded = bulkhead_traces::current().filter(|_| context.lookup_current().is_none());
        let Some(span) = recorded else { return self.lines.format_event(context, writer, event) };
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&named(line.trim_end_matches('\n'), &fields(&span), self.form))
    }
}

fn fields(span: &Span) -> Vec<(&'static str, String)> {
    let context = span.context();
    let mut fields = vec![("trace_id", hex(&context.trace_id)), ("span_id", hex(&context.parent_id))];
    fields.extend(span.parent_id().map(|id| ("parent_id", hex(&id))));
    fields.extend(span.trace_state().map(|state| ("tracestate", state.to_owned())));
    fields
}

/// A line with these fields, at its end.
fn named(line: &str, fields: &[(&'static str, String)], form: Form) -> String {
    let mut named = line.to_owned();
    match (form, line.strip_suffix('}')) {
        (Form::Json, Some(open)) => {
            let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), Value::from(value.as_str())));
            let mut object: Map<_, _> = fields.collect();
            object.insert("name".to_owned(), Value::from("request"));
            let object = Value::Object(object);
            named = format!("{open},\"span\":{object},\"spans\":[{object}]}}");
        }
        _ => {
            for (key, value) in fields {
                // A text has no way to fail.
                let _ = write!(named, " {key}={value}");
            }
        }
    }
    named.push('\n');
    named
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::time::Duration;

    use bulkhead_domain::requestor::TenantId;
    use bulkhead_domain::trace::TraceContext;
    use bulkhead_net::dial;
    use bulkhead_traces::{FollowedMax, Tracer, TracerOptions};
    use tokio::runtime::Handle;

    use super::*;

    const CALLER: TraceContext = TraceContext { trace_id: [0xab; 16], parent_id: [1; 8], is_sampled: true };

    fn tracer() -> Tracer {
        Tracer::start(TracerOptions {
            endpoint: "http://127.0.0.1:9".parse().unwrap(),
            headers: Vec::new(),
            tls: dial::tls_config(&[]).unwrap(),
            ratio: 0.0,
            followed_max: FollowedMax { per_tenant: 10, total: 10 },
            names_requestor: false,
            service_name: "tested".to_owned(),
            service_version: "1",
            resource: Vec::new(),
            io: Handle::current(),
            batch_max: Duration::from_secs(60),
        })
    }

    /// The lines that are written by this in each form.
    fn lines(work: impl Fn()) -> (String, String) {
        let written = |form| {
            let (reader, writer) = io::pipe().unwrap();
            let builder = tracing_subscriber::fmt().with_writer(Mutex::new(writer)).with_ansi(false).without_time();
            match form {
                Form::Text => {
                    let builder = builder.map_event_format(|lines| WithTrace { lines, form });
                    tracing::subscriber::with_default(builder.finish(), &work);
                }
                Form::Json => {
                    let builder = builder.json().flatten_event(true);
                    let builder = builder.map_event_format(|lines| WithTrace { lines, form });
                    tracing::subscriber::with_default(builder.finish(), &work);
                }
            }
            io::read_to_string(reader).unwrap()
        };
        (written(Form::Text), written(Form::Json))
    }

    #[tokio::test]
    async fn lines_within_a_recorded_request_name_its_trace() {
        let span = tracer().request("ping", Some(&CALLER), TenantId([1; 16])).unwrap();
        span.set_trace_state("a=\"1\"");
        let (text, json) = lines(|| {
            let _entered = span.enter();
            tracing::info!(method = "ping", "{{said}}");
        });
        let trace_id = "ab".repeat(16);
        let span_id = hex(&span.context().parent_id);
        let named = format!(" trace_id={trace_id} span_id={span_id} parent_id=0101010101010101 tracestate=a=\"1\"\n");
        assert!(text.ends_with(&named) && text.contains("{said} method=\"ping\""), "{text}");
        let json: Value = serde_json::from_str(&json).unwrap();
        let span = serde_json::json!({"trace_id": trace_id, "span_id": span_id, "parent_id": "01".repeat(8),
            "tracestate": "a=\"1\"", "name": "request"});
        assert_eq!((&json["span"], &json["spans"]), (&span, &serde_json::json!([span])));
        assert_eq!((&json["message"], &json["method"]), (&"{said}".into(), &"ping".into()));
    }

    #[tokio::test]
    async fn lines_of_anything_else_stay_as_they_are() {
        let (text, json) = lines(|| tracing::info!("said"));
        assert!(text.ends_with(": said\n") && !json.contains("span"), "{text}{json}");
        let (text, json) =
            lines(|| tracing::info_span!("request", trace_id = "theirs").in_scope(|| tracing::info!("said")));
        assert!(text.contains("request{trace_id=\"theirs\"}") && text.ends_with(": said\n"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["span"]["trace_id"], "theirs");
        let span = tracer().request("ping", Some(&CALLER), TenantId([1; 16])).unwrap();
        let (_, json) = lines(|| {
            let _entered = span.enter();
            tracing::info_span!("request", trace_id = "theirs").in_scope(|| tracing::info!("said"));
        });
        assert_eq!(json.matches("\"span\"").count(), 1, "{json}");
    }
}
