//! The trace that a request belongs to, in the terms of W3C Trace Context.
//!
//! Owns what a record keeps of it. Must not know any wire or export format. Invariant: neither id is zero, which the
//! specification keeps for "there is none".

use std::fmt;

use super::hex;

/// Which span of which trace began something: what a `traceparent` says.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The whole trace, across all systems.
    pub trace_id: [u8; 16],
    /// The span that the next one is a child of.
    pub parent_id: [u8; 8],
    /// Whether the sender records the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The context of these ids; `None` when one of them is zero, which is no id.
    pub fn new(trace_id: [u8; 16], parent_id: [u8; 8], is_sampled: bool) -> Option<Self> {
        let is_valid = trace_id != [0; 16] && parent_id != [0; 8];
        is_valid.then_some(Self { trace_id, parent_id, is_sampled })
    }
}

/// As in a `traceparent` of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", hex(&self.trace_id), hex(&self.parent_id))
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_context_is_shown_as_a_traceparent_and_never_has_an_id_of_zero() {
        let context = TraceContext::new([0xab; 16], [1; 8], true).unwrap();
        assert_eq!(context.to_string(), format!("00-{}-{}-01", "ab".repeat(16), "01".repeat(8)));
        assert_eq!(TraceContext::new([0; 16], [1; 8], true), None);
        assert_eq!(TraceContext::new([1; 16], [0; 8], false), None);
    }
}
