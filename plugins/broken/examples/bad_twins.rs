//! Offers two tools of the same name.

#[path = "raw/mod.rs"]
mod raw;

raw::plugin!(vec![raw::tool("twin", raw::ANYTHING), raw::tool("twin", raw::ANYTHING)]);
