//! From a compiled component to one whose imports are all there.
//!
//! Owns the linker: every import that a guest may have, each with a row in `bulkhead_domain::imports`.

use wasmtime::StoreContextMut;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker, Resource};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi_io::streams::Error;

use super::bindings::PluginFull;
use super::call::Call;
use super::engine::EngineKind;
use super::exports::Exports;
use super::files;
use super::journal;
use super::limits::{MEMORIES_MAX, TABLES_MAX};
use super::programs::mcp;
use super::read::ComponentBytes;
use super::wasi_03;
use super::wasi_drafts;
use bulkhead_domain::text::escaped;

/// Every import that a guest of this kind may have.
pub(super) fn linker(engine: &wasmtime::Engine, kind: EngineKind) -> wasmtime::Result<Linker<Call>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    PluginFull::add_to_linker::<_, HasSelf<_>>(&mut linker, |call| call)?;
    wasi_drafts::add_to_linker(&mut linker)?;
    journal::add_to_linker(&mut linker)?;
    files::guard(&mut linker)?;
    mcp::add_to_linker(&mut linker)?;
    linker.allow_shadowing(true);
    linker.instance("wasi:io/error@0.2.12")?.func_wrap("[method]error.to-debug-string", to_debug_string)?;
    linker.allow_shadowing(false);
    if kind == EngineKind::Concurrent {
        wasi_03::add_to_linker(&mut linker)?;
    }
    Ok(linker)
}

/// Lets a guest read what went wrong, and nothing of where in the host it did: with `RUST_BACKTRACE` set, the debug
/// text of an error holds the host's stack.
fn to_debug_string(mut store: StoreContextMut<'_, Call>, (error,): (Resource<Error>,)) -> wasmtime::Result<(String,)> {
    let call = store.data_mut();
    let error = format!("{:#}", call.ctx().table.get(&error)?);
    Ok((call.text_of_error(error),))
}

/// Links a component: every import is there, and what it exports is the world, or functions that can be tools.
pub(super) fn link(
    linker: &Linker<Call>,
    component: &Component,
    raw: &ComponentBytes,
) -> Result<(InstancePre<Call>, Exports), Vec<String>> {
    let mut problems = resources(component);
    let instance = linker.instantiate_pre(component).map_err(|error| {
        problems.push(format!("its imports cannot be satisfied: {}", escaped(&format!("{error:#}"))));
    });
    let Ok(instance) = instance else { return Err(problems) };
    let exports = Exports::find(&instance, raw).map_err(|wrong| problems.extend(wrong));
    match exports {
        Ok(exports) if problems.is_empty() => Ok((instance, exports)),
        _ => Err(problems),
    }
}

/// What an instance takes, where that is known before there is one.
fn resources(component: &Component) -> Vec<String> {
    let Some(required) = component.resources_required() else {
        return vec!["it imports core modules, which a plugin cannot".to_owned()];
    };
    let mut problems = Vec::new();
    if required.num_memories as usize > MEMORIES_MAX {
        problems.push(format!("it has {} memories; {MEMORIES_MAX} is the most", required.num_memories));
    }
    if required.num_tables as usize > TABLES_MAX {
        problems.push(format!("it has {} tables; {TABLES_MAX} is the most", required.num_tables));
    }
    problems
}
