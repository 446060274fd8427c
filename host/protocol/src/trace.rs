//! Trace context that clients send along (`_meta` of a request, in the formats of the W3C).
//!
//! Owns the reading of it. Invariant: what is malformed is passed over: no request fails for its trace. `baggage` is
//! never looked at, because it may hold anything.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reader;
use bulkhead_domain::trace::TraceContext;

/// Of the flags: the caller records its spans.
const SAMPLED_FLAG: u8 = 1;

/// The length that receivers have to carry; a longer one is useless.
const STATE_BYTES_MAX: usize = 512;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Meta<'a>,
}

/// Raw, so that one that is no text does not hide the other.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow)]
    tracestate: Option<&'a RawValue>,
}

/// What a client says of the trace that its request is part of.
pub(super) struct CallerTrace {
    pub(super) context: TraceContext,
    pub(super) state: Option<String>,
}

/// Reads `VERSION-TRACE-PARENT-FLAGS`; later versions may go on after another hyphen.
pub(super) fn read_traceparent(text: &str) -> Option<TraceContext> {
    let mut parts = text.split('-');
    let mut hex = |digits: usize| {
        let part = parts.next()?;
        let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (is_hex && part.len() == digits).then_some(part)
    };
    let version = hex(2)?;
    let trace_id = hex(32)?;
    let parent_id = hex(16)?;
    let flags = hex(2)?;
    let has_more = parts.next().is_some();
    let trace_id = u128::from_str_radix(trace_id, 16).ok()?.to_be_bytes();
    let parent_id = u64::from_str_radix(parent_id, 16).ok()?.to_be_bytes();
    let flags = u8::from_str_radix(flags, 16).ok()?;
    if version == "ff" || (version == "00" && has_more) {
        return None;
    }
    TraceContext::new(trace_id, parent_id, flags & SAMPLED_FLAG != 0)
}

/// A list of `key=value` in visible ASCII.
fn state(text: &str) -> Option<&str> {
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let is_list = text.split(',').all(|member| member.trim().is_empty() || member.contains('='));
    (is_visible && is_list && !text.is_empty() && text.len() <= STATE_BYTES_MAX).then_some(text)
}

/// What the params of a request say of its trace.
pub(super) fn of_caller(params: &str) -> Option<CallerTrace> {
    if !params.contains("traceparent") {
        return None;
    }
    let text = |raw: Option<&RawValue>| reader::read_if_fits::<String>(raw?.get());
    let Params { meta } = reader::read_if_fits(params)?;
    let context = read_traceparent(&text(meta.traceparent)?)?;
    let state = text(meta.tracestate).filter(|text| state(text).is_some());
    Some(CallerTrace { context, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_needs_four_valid_parts() {
        let parent = read_traceparent(PARENT).unwrap();
        assert_eq!(u128::from_be_bytes(parent.trace_id), 0x0af7651916cd43dd8448eb211c80319c);
        assert_eq!(u64::from_be_bytes(parent.parent_id), 0xb7ad6b7169203331);
        let flagged = |flags: &str| read_traceparent(&format!("{}{flags}", &PARENT[..53])).unwrap().is_sampled;
        assert!(flagged("01") && flagged("ff") && !flagged("00") && !flagged("fe"));
        assert!(read_traceparent(&PARENT.replacen("00", "cc", 1)).is_some(), "a later version");
        assert!(read_traceparent(&format!("{}-more", PARENT.replacen("00", "cc", 1))).is_some());
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace('7', "g"),
        ] {
            assert_eq!(read_traceparent(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn tracestate_must_be_a_bounded_list() {
        assert!(state("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE").is_some());
        for wrong in ["", "rojo", "a=1\n", "\u{e9}=1", &format!("a={}", "x".repeat(STATE_BYTES_MAX))] {
            assert_eq!(state(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn malformed_trace_context_is_ignored() {
        let read = |text: &str| of_caller(text).is_some();
        assert!(read(&format!(r#"{{"_meta":{{"traceparent":"{PARENT}","tracestate":5,"baggage":{{}}}}}}"#)));
        for wrong in [
            r#"{"_meta":{"traceparent":5}}"#,
            r#"{"_meta":{"traceparent":"no"}}"#,
            r#"{"_meta":5,"traceparent":1}"#,
            r#"{"traceparent":"no"}"#,
            r#"["traceparent"]"#,
            "{}",
        ] {
            assert!(!read(wrong), "{wrong}");
        }
    }
}
