//! A host from its configuration: store, sandbox, engine, protocol and listeners; and a data directory without a host.
//!
//! Owns the order in which a host is put together, follows another configuration and ends, and what is read for it:
//! files and the environment. Must not print, nor read an argument: what is to be said is a value that it returns, a
//! line of the log, or a callback. Invariant: a host runs on one whole configuration, and a data directory is one
//! host's or one command's.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod audit;
mod check;
pub mod compile_cache;
mod dashboard;
mod database_maintenance;
pub mod host;
mod host_identity;
mod limit_shares;
pub mod offline;
mod plugin_start;
mod progress;
mod reload;
pub mod resources;
mod scraping;
mod secrets;
mod serve;
mod service_manager;
pub mod sources;
mod stdio;
pub mod store_engine;
mod store_maintenance;
mod system_clock;
mod tenants;
mod traces;
pub mod trust;

pub use check::{ConfigCheck, check};
pub use reload::{HostStartup, Origin};
pub use serve::{serve, stop_signal};
pub use service_manager::ServiceManager;
pub use stdio::serve_client;
pub use system_clock::SystemClock;
