//! Offers a tool whose input schema is not even JSON.

#[path = "raw/mod.rs"]
mod raw;

raw::plugin!(vec![raw::tool("not_json", r#"{"type":"#)]);
