//! The command line: the only place that reads the environment, handles signals and may use `anyhow`.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;

use std::process::ExitCode;

/// What one request allocates on a thread of the edge, a guest's thread often frees: the system's allocator makes both wait for each
/// other's lock there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        // The store examines a database in a child process before it opens it.
        Some(first) if first == bulkhead::store::sled::PROBE_ARGUMENT => {
            let Some(data) = arguments.next() else { return ExitCode::from(cli::EXIT_USAGE) };
            bulkhead::store::sled::probe_main(std::path::Path::new(&data))
        }
        // The sandbox has components compiled in one, too.
        Some(first) if first == bulkhead::runtime::COMPILE_ARGUMENT => bulkhead::runtime::compile_main(arguments),
        _ => cli::run(),
    }
}
