//! Offers more tools than anyone needs.

#[path = "raw/mod.rs"]
mod raw;

raw::plugin!((0..100_000).map(|number| raw::tool(&format!("tool_{number}"), raw::ANYTHING)).collect());
