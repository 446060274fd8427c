//! Named places at which a test ends the host: between an effect and its record, and on either side of what makes them
//! one.
//!
//! Owns the names' way to the program that ends the host. Must not end it itself. Invariant: in a build without debug
//! assertions, as every release is one, a place is nothing. This file stands alone, so that a test compiles it as a
//! release is compiled.

use std::sync::OnceLock;

static REACHED: OnceLock<fn(&'static str)> = OnceLock::new();

/// This function hears of each place from now on, once for ever. A build without debug assertions has no places.
pub fn watch(reached: fn(&'static str)) {
    if cfg!(debug_assertions) {
        REACHED.get_or_init(|| reached);
    }
}

/// This place is reached.
#[inline(always)]
pub fn reach(name: &'static str) {
    if cfg!(debug_assertions)
        && let Some(reached) = REACHED.get()
    {
        reached(name);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn place_is_reached_with_debug_assertions_alone() {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        watch(|_| {
            COUNT.fetch_add(1, Ordering::SeqCst);
        });
        reach("a place");
        assert_eq!(COUNT.load(Ordering::SeqCst), u32::from(cfg!(debug_assertions)));
    }
}
