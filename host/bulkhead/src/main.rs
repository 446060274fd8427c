//! The command line: the only place that reads the environment, handles signals and may use `anyhow`.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "`bulkhead` needs Linux (its sandbox and its store use openat2, epoll and /proc): on other systems run it in a container or a \
     virtual machine; authors of plugins build `bulkhead-plugin` (`cargo build -p bulkhead-author-cli`) there"
);

mod cli;
mod crash;

use std::process::ExitCode;

/// What one request allocates on a thread of the edge, a guest's thread often frees: the system's allocator makes both
/// wait for each other's lock there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: milliseconds for which mimalloc keeps freed pages before it returns them to the kernel. The
/// crate has no constant for it; the number is its place in `mi_option_e` (`mimalloc.h`).
const MIMALLOC_PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Milliseconds for which freed pages are kept. With mimalloc's own second, a burst of large results holds its pages
/// for as long as the burst lasts, far above the limits on answer bytes; without any delay, creating a task costs 8 %
/// more processor time.
const FREED_PAGES_KEPT_MS: std::ffi::c_long = 10;

/// Returns freed pages to the kernel soon. `MIMALLOC_PURGE_DELAY` in the environment takes precedence.
#[allow(
    unsafe_code,
    reason = "the allocator's options are set by a C function; it writes one integer, and no other thread runs yet"
)]
fn return_freed_memory_soon() {
    // SAFETY: the option exists in this version of mimalloc, and the function takes any value.
    unsafe { libmimalloc_sys::mi_option_set_default(MIMALLOC_PURGE_DELAY, FREED_PAGES_KEPT_MS) }
}

fn main() -> ExitCode {
    return_freed_memory_soon();
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        // The store examines a database in a child process before it opens it.
        Some(first) if first == bulkhead_store::sled::PROBE_ARGUMENT => {
            let Some(data) = arguments.next() else { return ExitCode::from(bulkhead_author_cli::EXIT_USAGE) };
            bulkhead_store::sled::probe_main(std::path::Path::new(&data))
        }
        // The sandbox has components compiled in one, too.
        Some(first) if first == bulkhead_runtime::COMPILE_ARGUMENT => bulkhead_runtime::compile_main(arguments),
        _ => {
            // The processes that the host starts to help it count no places.
            if cfg!(debug_assertions) {
                crash::watch();
            }
            cli::run()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "the option is read by a C function")]
    fn freed_memory_is_returned_soon() {
        // SAFETY: the option exists, and the function reads one integer.
        let delay = || unsafe { libmimalloc_sys::mi_option_get(MIMALLOC_PURGE_DELAY) };
        // mimalloc's default: another number here means that the option is no longer in this place.
        assert_eq!(delay(), 1000, "the option's place in `mi_option_e` has changed");
        return_freed_memory_soon();
        assert_eq!(delay(), FREED_PAGES_KEPT_MS);
    }
}
