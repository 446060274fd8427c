//! Valid by itself, but offers `echo` as the plugin `text` does.

use bulkhead_plugin::{Plugin, Tool};

fn plugin() -> Plugin {
    Plugin::new().tool(Tool::new("echo", "Another echo.", || "echo"))
}

bulkhead_plugin::manifest!(r#"name = "clash""#);
bulkhead_plugin::export!(plugin);
