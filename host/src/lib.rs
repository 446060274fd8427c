//! Bulkhead: a WebAssembly plugin host for sandboxed task tools.
//!
//! Data flows one way: `transport → protocol → tasks → {runtime, store} → domain`. `ARCHITECTURE.md` beside this crate has
//! the map; each module's own documentation says what it owns and what it must not do.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod domain;

pub mod audit;
pub mod outward;
pub mod vault;

pub mod runtime;
pub mod store;

pub mod secrets;

pub mod tasks;

pub mod plugins;

pub mod sources;

pub mod protocol;

pub mod transport;

pub mod config;

pub mod control;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod bounds;
