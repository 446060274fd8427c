//! Named places at which a test ends the host: between an effect and its record, and on either side of what makes them one.
//!
//! Owns the names' way to the program that ends the host. Must not end it itself. Invariant: in a build without debug assertions, as every
//! release is one, a place is nothing.

#[cfg(debug_assertions)]
use std::sync::OnceLock;

#[cfg(debug_assertions)]
static REACHED: OnceLock<fn(&'static str)> = OnceLock::new();

/// This function hears of each place from now on, once for ever.
#[cfg(debug_assertions)]
pub fn watch(reached: fn(&'static str)) {
    REACHED.get_or_init(|| reached);
}

/// This place is reached.
#[cfg(debug_assertions)]
pub fn reach(name: &'static str) {
    if let Some(reached) = REACHED.get() {
        reached(name);
    }
}

/// This place is reached.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reach(_name: &'static str) {}
