//! Never finishes listing its tools.

use bulkhead_plugin::Plugin;

fn plugin() -> Plugin {
    let mut turns = 0u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

bulkhead_plugin::export!(plugin);
