//! Named places at which a test ends the host: between an effect and its record, and on either side of what makes them one.
//!
//! Owns the names' way to the program that ends the host. Must not end it itself. Invariant: without the feature `crash-points`, which no release
//! has, a place is nothing.

#[cfg(feature = "crash-points")]
use std::sync::OnceLock;

#[cfg(feature = "crash-points")]
static REACHED: OnceLock<fn(&'static str)> = OnceLock::new();

/// This function hears of each place from now on, once for ever.
#[cfg(feature = "crash-points")]
pub fn watch(reached: fn(&'static str)) {
    REACHED.get_or_init(|| reached);
}

/// This place is reached.
#[cfg(feature = "crash-points")]
pub fn reach(name: &'static str) {
    if let Some(reached) = REACHED.get() {
        reached(name);
    }
}

/// This place is reached.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn reach(_name: &'static str) {}
