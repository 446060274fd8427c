//! Interfaces of WASI that are still drafts, in the versions that components are built with: `wasi:config`,
//! `wasi:keyvalue` and `wasi:logging`.
//!
//! Owns their bindings. A draft fits no other version, so each one has its name here, and its types. Invariant: a guest
//! reaches through them what it reaches through `bulkhead:plugin` and nothing else: its settings, its own values within
//! their quota, and its log.

mod config;
mod keyvalue;
mod logging;

use wasmtime::component::Linker;

use super::call::Call;

/// Adds all of them.
pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    config::add_to_linker(linker)?;
    keyvalue::add_to_linker(linker)?;
    logging::add_to_linker(linker)
}
