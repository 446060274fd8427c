//! Traces: spans of the host's work, and their way to a collector.
//!
//! Owns which requests are recorded, what a span may hold at most, the queue in front of the collector, and the
//! exchange with it (OTLP over HTTP). It is the only crate that knows OpenTelemetry: others hold a [`Span`], or none.
//! Must not know what a request or a call is, nor read the environment. Invariants: nothing that makes or ends a span
//! waits for the collector; what the collector does not take is counted and forgotten; a request that is not recorded
//! has no span.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod current;
mod export;
mod otlp;
mod queue;
mod random;
mod sampling;
mod span;
#[cfg(test)]
mod tests;
mod tracer;

pub use current::{Entered, InSpan, WithinSpan, current};
pub use otlp::Value;
pub use span::{Kind, Span};
pub use tracer::{FollowedMax, Tracer, TracerOptions};
