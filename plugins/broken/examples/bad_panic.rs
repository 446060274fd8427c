//! Panics when it is asked for its tools.

use bulkhead_plugin::Plugin;

fn plugin() -> Plugin {
    panic!("this plugin panics while it lists its tools")
}

bulkhead_plugin::export!(plugin);
