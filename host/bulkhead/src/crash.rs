//! Ends the host at a place, for tests of what survives.
//!
//! Owns what `CRASH_AT` means: the process ends by SIGKILL, so that nothing is tidied up and no other thread goes on,
//! when it reaches the N-th place, whatever its name (`CRASH_AT=N`), or the place of this name for the COUNTth time
//! (`CRASH_AT=NAME:COUNT`). Each place that is reached is a line on stderr, the one at which the host ends the last: so
//! tests learn how many there are, and which. `CRASH_AT=0` only tells them. Is in builds with debug assertions alone.
//! Invariant: without the variable nothing ends, and nothing is said.

use std::io::Write as _;
use std::sync::OnceLock;

use bulkhead_domain::crash_points;
use parking_lot::Mutex;

const VARIABLE: &str = "CRASH_AT";

static WATCHED: OnceLock<Mutex<Watched>> = OnceLock::new();

/// What was reached, and what is waited for.
#[derive(Default)]
struct Watched {
    /// `None`: any.
    name: Option<String>,
    /// 0: none.
    wanted: u32,
    places: u32,
    /// Of those that count for `wanted`.
    counted: u32,
}

/// Reads the variable.
pub(crate) fn watch() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let (name, count) = match text.split_once(':') {
        Some((name, count)) => (Some(name.to_owned()), count),
        None => (None, text.as_str()),
    };
    let Ok(wanted) = count.parse() else { return };
    WATCHED.get_or_init(|| Mutex::new(Watched { name, wanted, ..Watched::default() }));
    crash_points::watch(reached);
}

fn reached(name: &'static str) {
    let Some(watched) = WATCHED.get() else { return };
    let mut watched = watched.lock();
    watched.places += 1;
    watched.counted += u32::from(watched.name.as_deref().is_none_or(|wanted| wanted == name));
    // A host whose stderr is closed is tested, too.
    let _ = writeln!(std::io::stderr(), "crash point {}: {name}", watched.places);
    if watched.wanted != 0 && watched.counted == watched.wanted {
        // No other thread passes a place from here on: the lock is held until the signal has come.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort();
    }
}
