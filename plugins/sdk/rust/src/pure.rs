//! Plugins that use nothing of WASI.
//!
//! Owns what takes the place of the functions that the standard library asks WASI for, whether a plugin uses them or
//! not: to print, to read the environment, to exit. Must not give a plugin anything. Invariant: what a program can see
//! of this is what it would see of a world without output, without variables and without an exit.

/// Leaves WASI out of the component: for plugins that compute, and talk to nobody but the host. Each call of such a
/// plugin costs a good deal less, because nothing of WASI has to be instantiated for it, and everybody can see in the
/// component that it asks for nothing.
///
/// What is printed (the message of a panic, too) goes nowhere, there are no environment variables, files, clocks or
/// sockets, and [`std::process::exit`] stops the call like a panic does.
///
/// ```no_run
/// bulkhead_plugin::pure!();
/// # fn main() {}
/// ```
///
/// Only compilers that reach WASI through its first preview (all of today's that use an adapter) are affected; for
/// others this says nothing, and the component keeps what its standard library imports.
#[macro_export]
macro_rules! pure {
    () => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            /// A byte range of the first preview's calls.
            #[repr(C)]
            struct Range {
                start: u32,
                bytes: u32,
            }

            /// No variables, in no bytes.
            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_environ_sizes_get(count: *mut u32, bytes: *mut u32) -> i32 {
                // SAFETY: the C library passes the addresses of two variables of its own.
                unsafe {
                    *count = 0;
                    *bytes = 0;
                }
                0
            }

            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_environ_get(_: *mut *mut u8, _: *mut u8) -> i32 {
                0
            }

            /// Everything is taken and nothing shown.
            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_fd_write(
                _: i32,
                ranges: *const Range,
                count: usize,
                written: *mut u32,
            ) -> i32 {
                // SAFETY: the C library passes as many ranges as it says, and the address of a variable of its own.
                unsafe {
                    *written = core::slice::from_raw_parts(ranges, count).iter().map(|range| range.bytes).sum();
                }
                0
            }

            #[unsafe(no_mangle)]
            extern "C" fn __imported_wasi_snapshot_preview1_proc_exit(_: i32) -> ! {
                core::arch::wasm32::unreachable()
            }
        };
    };
}
