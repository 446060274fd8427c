//! The messages of OTLP that are sent and read, in protobuf.
//!
//! Owns the numbers of their fields, as `trace.proto`, `common.proto` and `trace_service.proto` of opentelemetry-proto
//! give them. A span is written piece by piece while it is recorded, so nothing is left to convert when it is sent.
//! Must not know what is recorded. Invariant: the code that the OpenTelemetry project generates from those files reads
//! what is written here; the tests read with it.

use bulkhead_domain::hex_digits;
use bulkhead_domain::trace::TraceContext;

use super::Kind;

/// How a field's value is written.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// Of a span's or a link's flags, above those of its trace context: whether the parent is of another process is known,
/// and it is.
const HAS_IS_REMOTE_FLAG: u32 = 0x100;
const IS_REMOTE_FLAG: u32 = 0x200;
const STATUS_ERROR: u64 = 2;

/// What an attribute says.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Text(&'a str),
    Integer(i64),
    /// A text of hexadecimal digits.
    Hex(&'a [u8]),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_length(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// The bytes of a field with so many bytes in it. Its number is less than 16.
fn sized(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u32) {
    varint(out, u64::from(field << 3 | kind));
}

/// What comes before the bytes of a text or a message.
fn head(out: &mut Vec<u8>, field: u32, length: usize) {
    tag(out, field, BYTES);
    varint(out, length as u64);
}

fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    head(out, field, value.len());
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A `KeyValue`.
fn key_value(out: &mut Vec<u8>, field: u32, key: &str, value: Value<'_>) {
    let length = match value {
        Value::Text(text) => sized(text.len()),
        Value::Hex(bytes) => sized(2 * bytes.len()),
        Value::Integer(value) => 1 + varint_length(value.cast_unsigned()),
    };
    head(out, field, sized(key.len()) + sized(length));
    bytes(out, 1, key.as_bytes());
    head(out, 2, length);
    match value {
        Value::Text(text) => bytes(out, 1, text.as_bytes()),
        Value::Hex(bytes) => {
            head(out, 1, 2 * bytes.len());
            out.extend(bytes.iter().flat_map(|byte| hex_digits(*byte)));
        }
        Value::Integer(value) => number(out, 3, value.cast_unsigned()),
    }
}

/// What a span is and how it ended, but its name.
pub(super) struct SpanEnd<'a> {
    pub(super) context: TraceContext,
    pub(super) parent_id: Option<[u8; 8]>,
    pub(super) is_parent_remote: bool,
    pub(super) trace_state: Option<&'a str>,
    pub(super) kind: Kind,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) has_failed: bool,
    pub(super) events_dropped: u32,
}

/// Writes the name of a span: what is done, and to whom.
pub(super) fn name(out: &mut Vec<u8>, operation: &str, target: Option<&str>) {
    let Some(target) = target else { return bytes(out, 5, operation.as_bytes()) };
    head(out, 5, operation.len() + 1 + target.len());
    out.extend_from_slice(operation.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
}

/// Writes an attribute of a span.
pub(super) fn attribute(out: &mut Vec<u8>, key: &str, value: Value<'_>) {
    key_value(out, 9, key, value);
}

/// Writes an event of a span.
pub(super) fn event(out: &mut Vec<u8>, at_ns: u64, name: &str) {
    head(out, 11, 9 + sized(name.len()));
    fixed64(out, 1, at_ns);
    bytes(out, 2, name.as_bytes());
}

/// Writes a link of a span to one of another process.
pub(super) fn link(out: &mut Vec<u8>, to: &TraceContext) {
    head(out, 13, sized(to.trace_id.len()) + sized(to.parent_id.len()) + 5);
    bytes(out, 1, &to.trace_id);
    bytes(out, 2, &to.parent_id);
    fixed32(out, 6, u32::from(to.is_sampled) | HAS_IS_REMOTE_FLAG | IS_REMOTE_FLAG);
}

/// Writes the rest of a span.
pub(super) fn end(out: &mut Vec<u8>, span: &SpanEnd<'_>) {
    bytes(out, 1, &span.context.trace_id);
    bytes(out, 2, &span.context.parent_id);
    if let Some(state) = span.trace_state {
        bytes(out, 3, state.as_bytes());
    }
    if let Some(parent_id) = &span.parent_id {
        bytes(out, 4, parent_id);
    }
    let kind = match span.kind {
        Kind::Internal => 1,
        Kind::Server => 2,
        Kind::Client => 3,
    };
    number(out, 6, kind);
    fixed64(out, 7, span.start_ns);
    fixed64(out, 8, span.end_ns);
    if span.events_dropped > 0 {
        number(out, 12, span.events_dropped.into());
    }
    if span.has_failed {
        head(out, 15, 2);
        number(out, 3, STATUS_ERROR);
    }
    let remote = if span.is_parent_remote { IS_REMOTE_FLAG } else { 0 };
    fixed32(out, 16, u32::from(span.context.is_sampled) | HAS_IS_REMOTE_FLAG | remote);
}

/// Adds a whole span to those that are sent together.
pub(super) fn add_span(out: &mut Vec<u8>, span: &[u8]) {
    bytes(out, 2, span);
}

/// What every request says of this host.
pub(super) struct Origin {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Origin {
    pub(super) fn new<'a>(
        attributes: impl Iterator<Item = (&'a str, &'a str)>,
        scope: (&'static str, &'static str),
    ) -> Self {
        let mut attributes_of = Vec::new();
        let mut named = Vec::new();
        for (key, value) in attributes {
            key_value(&mut attributes_of, 1, key, value.into());
        }
        bytes(&mut named, 1, scope.0.as_bytes());
        bytes(&mut named, 2, scope.1.as_bytes());
        let mut origin = Self { resource: Vec::new(), scope: Vec::new() };
        bytes(&mut origin.resource, 1, &attributes_of);
        bytes(&mut origin.scope, 1, &named);
        origin
    }

    /// An `ExportTraceServiceRequest` of these [spans](add_span).
    pub(super) fn request(&self, spans: &[u8]) -> Vec<u8> {
        let of_scope = self.scope.len() + spans.len();
        let all = self.resource.len() + sized(of_scope);
        let mut out = Vec::with_capacity(sized(all));
        head(&mut out, 1, all);
        out.extend_from_slice(&self.resource);
        head(&mut out, 2, of_scope);
        out.extend_from_slice(&self.scope);
        out.extend_from_slice(spans);
        out
    }
}

/// How many spans the collector did not want, by its `ExportTraceServiceResponse`. What is no such message says nothing
/// of them.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let partial = field(answer, 1).and_then(|found| match found {
        Found::Bytes(message) => field(message, 1),
        Found::Number(_) => None,
    });
    match partial {
        Some(Found::Number(spans)) => spans,
        Some(Found::Bytes(_)) | None => 0,
    }
}

#[derive(Clone, Copy)]
enum Found<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The last value of this field in a message.
fn field(mut message: &[u8], wanted: u64) -> Option<Found<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let tag = read_varint(&mut message)?;
        let value = match u32::try_from(tag & 7).ok()? {
            VARINT => Found::Number(read_varint(&mut message)?),
            BYTES => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                Found::Bytes(message.split_off(..length)?)
            }
            FIXED64 => Found::Bytes(message.split_off(..8)?),
            FIXED32 => Found::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        if tag >> 3 == wanted {
            found = Some(value);
        }
    }
    found
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *message.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value;
    use opentelemetry_proto::tonic::trace::v1::Span;
    use prost::Message as _;

    use super::*;

    const CONTEXT: TraceContext = TraceContext { trace_id: [7; 16], parent_id: [9; 8], is_sampled: true };

    fn end_of(kind: Kind) -> SpanEnd<'static> {
        SpanEnd {
            context: CONTEXT,
            parent_id: None,
            is_parent_remote: false,
            trace_state: None,
            kind,
            start_ns: 1,
            end_ns: u64::MAX,
            has_failed: false,
            events_dropped: 0,
        }
    }

    #[test]
    fn the_generated_code_reads_every_field_of_a_span() {
        let mut out = Vec::new();
        name(&mut out, "tools/call", Some("echo"));
        let long = "ü".repeat(9_000);
        let said = [
            ("none", Value::Text("")),
            ("long", Value::Text(&long)),
            ("hex", Value::Hex(&[0, 0xab, 0xff])),
            ("zero", Value::Integer(0)),
            ("large", Value::Integer(i64::MAX)),
            ("less", Value::Integer(-1)),
        ];
        for (key, value) in said {
            attribute(&mut out, key, value);
        }
        event(&mut out, 5, "sleep");
        link(&mut out, &TraceContext { trace_id: [3; 16], ..CONTEXT });
        link(&mut out, &TraceContext { is_sampled: false, ..CONTEXT });
        let whole = SpanEnd {
            parent_id: Some([4; 8]),
            is_parent_remote: true,
            trace_state: Some("a=1"),
            has_failed: true,
            events_dropped: 300,
            ..end_of(Kind::Client)
        };
        end(&mut out, &whole);
        let span = Span::decode(out.as_slice()).unwrap();
        assert_eq!((span.name.as_str(), span.kind, span.flags), ("tools/call echo", 3, 0x301));
        assert_eq!((span.trace_id, span.span_id, span.parent_span_id), (vec![7; 16], vec![9; 8], vec![4; 8]));
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1, u64::MAX));
        assert_eq!((span.trace_state.as_str(), span.dropped_events_count, span.status.unwrap().code), ("a=1", 300, 2));
        assert_eq!((span.events[0].name.as_str(), span.events[0].time_unix_nano), ("sleep", 5));
        let links: Vec<_> = span.links.iter().map(|link| (link.trace_id[0], link.span_id.len(), link.flags)).collect();
        assert_eq!(links, [(3, 8, 0x301), (7, 8, 0x300)]);
        let read = span.attributes.iter().map(|attribute| match attribute.value.clone().unwrap().value.unwrap() {
            any_value::Value::StringValue(text) => (attribute.key.as_str(), text),
            any_value::Value::IntValue(number) => (attribute.key.as_str(), format!("= {number}")),
            other => panic!("{other:?}"),
        });
        let read: Vec<_> = read.collect();
        let expected = [
            ("none", String::new()),
            ("long", long.clone()),
            ("hex", "00abff".to_owned()),
            ("zero", "= 0".to_owned()),
            ("large", format!("= {}", i64::MAX)),
            ("less", "= -1".to_owned()),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn requests_hold_any_number_of_spans_and_say_whose_they_are() {
        let origin = Origin::new([("service.name", "tested"), ("a", "b")].into_iter(), ("bulkhead", "1"));
        for spans in [0, 1, 3, 200] {
            let mut together = Vec::new();
            for kind in [Kind::Server, Kind::Internal].into_iter().cycle().take(spans) {
                let mut one = Vec::new();
                name(&mut one, "ping", None);
                end(&mut one, &end_of(kind));
                add_span(&mut together, &one);
            }
            let request = ExportTraceServiceRequest::decode(origin.request(&together).as_slice()).unwrap();
            let all = &request.resource_spans[0];
            let keys: Vec<_> = all.resource.iter().flat_map(|it| &it.attributes).map(|it| it.key.as_str()).collect();
            assert_eq!(keys, ["service.name", "a"]);
            let of_scope = &all.scope_spans[0];
            let scope = of_scope.scope.as_ref().unwrap();
            assert_eq!((scope.name.as_str(), scope.version.as_str()), ("bulkhead", "1"));
            assert_eq!(of_scope.spans.len(), spans);
            assert!(of_scope.spans.iter().zip([2, 1].into_iter().cycle()).all(|(span, kind)| span.kind == kind));
            assert!(of_scope.spans.iter().all(|span| (span.name.as_str(), span.flags) == ("ping", 0x101)));
        }
    }

    #[test]
    fn answers_that_the_generated_code_writes_are_read_and_others_say_nothing() {
        let answer = |rejected_spans, error_message: &str| {
            let partial_success =
                Some(ExportTracePartialSuccess { rejected_spans, error_message: error_message.to_owned() });
            ExportTraceServiceResponse { partial_success }.encode_to_vec()
        };
        for spans in [0, 1, 127, 128, 1 << 40] {
            assert_eq!(rejected(&answer(spans, "too many")), u64::try_from(spans).unwrap());
        }
        for nothing in
            [&b""[..], b"{}", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x08\x01", b"\x0a\x02\x0a\x00", &[0xff; 99]]
        {
            assert_eq!(rejected(nothing), 0, "{nothing:?}");
        }
        let whole = answer(300, "why");
        assert!((0..whole.len()).all(|end| rejected(&whole[..end]) == 0), "what is cut off says nothing");
    }
}
