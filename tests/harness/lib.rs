//! What the suites and the bench share: a host as a process, and clients that look at every message.
//!
//! Owns starting and stopping real hosts and speaking to them. Must not know what any suite wants to prove. Invariant:
//! every message that a host sends through here is checked against the official schema, whoever asked for it.

pub mod client;
pub mod collector;
pub mod command;
pub mod host;
pub mod issuer;
pub mod modern;
pub mod parked;
pub mod place;
pub mod power_cut;
pub mod process;
pub mod prometheus;
pub mod raw;
pub mod registry;
pub mod relay;
pub mod schema;
pub mod small_disk;
pub mod stdio;
pub mod store_engine;
pub mod stream;
pub mod wait;
pub mod web;

pub use client::{Client, Failure};
pub use host::{Host, Setup};
