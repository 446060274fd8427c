//! Ends the host at a named place, for tests of what survives.
//!
//! Owns what `CRASH_AT=NAME:COUNT` means: the process ends when it reaches that place for the COUNTth time, as it would by
//! SIGKILL: nothing is tidied up, and no other thread goes on. Must not be in a release. Invariant: without the variable nothing ends.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bulkhead_domain::crash_points;

const VARIABLE: &str = "CRASH_AT";

static WANTED: OnceLock<(String, AtomicU32)> = OnceLock::new();

/// Reads the variable.
pub(crate) fn watch() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let Some((name, count)) = text.split_once(':') else { return };
    let Ok(count) = count.parse::<u32>() else { return };
    WANTED.get_or_init(|| (name.to_owned(), AtomicU32::new(count)));
    crash_points::watch(reached);
}

fn reached(name: &'static str) {
    let Some((wanted, left)) = WANTED.get() else { return };
    if name == wanted && left.fetch_sub(1, Ordering::SeqCst) == 1 {
        std::process::abort();
    }
}
