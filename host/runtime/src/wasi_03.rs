//! What guests of WASI 0.3 may import beside all of 0.2.
//!
//! Owns which of its interfaces there are, and what stands before some of their functions, as in 0.2. Must not decide
//! what is granted: clocks, randomness, variables and outgoing requests come from the same context of the call as those
//! of 0.2, and sockets are refused by it. Invariant: nothing of 0.3 reaches more than 0.2 does. Its files are not here:
//! the quotas of directories count what goes through 0.2.

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;
use wasmtime_wasi::cli::WasiCliView as _;
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;
use wasmtime_wasi::p3::{cli, clocks, random, sockets};

use super::call::Call;

const ENVIRONMENT: &str = "wasi:cli/environment@0.3.0";

/// Adds them.
pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    cli::add_to_linker(linker)?;
    clocks::add_to_linker(linker)?;
    random::add_to_linker(linker)?;
    sockets::add_to_linker(linker)?;
    wasmtime_wasi_http::p3::add_to_linker(linker)?;
    linker.allow_shadowing(true);
    linker.instance(ENVIRONMENT)?.func_wrap("get-environment", |mut store: StoreContextMut<'_, Call>, ()| {
        let call = store.data_mut();
        call.denials.looked_for_variables();
        Ok((call.cli().get_environment()?,))
    })?;
    linker.allow_shadowing(false);
    Ok(())
}
