//! Runs one call in a sandbox: the executor of [`bulkhead_calls`].
//!
//! Owns wasmtime: the engine, the plugins by name and digest, one fresh store and instance per call, every limit of a
//! guest and every grant. Must not learn whose call it runs, nor know what a task is. Invariant: a call sends exactly
//! one [`CallEvent::Finished`](bulkhead_calls::CallEvent::Finished), always last, and once its
//! [`RunningCall`](bulkhead_calls::RunningCall) is dropped nothing of it goes on.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod app_views;
mod bindings;
mod blocking;
mod cache;
mod call;
mod call_activity;
mod call_state;
mod clash;
mod compile;
mod component_names;
mod component_store;
mod compose;
mod content;
mod counted_call;
mod declared;
mod denials;
mod egress;
mod engine;
mod engines;
mod events;
mod exports;
mod fault;
mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod granted;
mod header_params;
mod host_context;
mod imports;
mod input_requests;
pub mod inspect;
mod journal;
mod json;
mod keyvalue;
mod last_words;
mod limits;
mod link;
mod load;
mod manifest;
mod memory_images;
mod output;
mod perform;
mod plugin;
mod plugin_source;
mod programs;
mod published;
mod read;
mod sampling;
pub mod sandbox;
mod secrets;
mod server_features;
mod skills;
mod supervise;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, reason = "only tests use it, and a fixture that fails ends its test")]
mod testing;
#[cfg(test)]
mod tests;
mod trap_causes;
mod typed;
mod wasi_03;
mod wasi_context;
mod wasi_drafts;
mod wasi_needs;
mod wit_enums;

pub use app_views::{VIEW_SCHEME, ViewReach};
pub use cache::{CodeCacheBounds, CodeCacheConfig};
pub use compile::{COMPILE_ARGUMENT, CompilerMode, compile_main};
pub use component_store::{ComponentStore, Wit};
pub use compose::{COMPOSED_MAX, Part, compose};
pub use files::{NamedDirectory, Overlap, directories_of, exposing, overlaps};
pub use host_context::TenantNames;
pub use journal::durable_hindrance;
pub use load::{LoadError, LoadedPlugin};
pub use plugin_source::{McpMode, McpSettings, PluginSource, Presentation, Source, ToolPolicy};
pub use programs::REQUEST as REQUEST_TOOL;
pub use programs::mcp::{McpEra, McpServer};
pub use published::Canary;
pub use read::read_component;
pub use sandbox::{LoadProgress, Sandbox, SandboxConfig, SandboxError};
pub use skills::SkillSummary;
pub use typed::wit_file;
pub use wasi_context::PRINTED;
pub use wasi_needs::WasiVersion;

/// The release of wasmtime that runs components, which it does not say itself.
pub const WASMTIME_VERSION: &str = "48.0.8";
