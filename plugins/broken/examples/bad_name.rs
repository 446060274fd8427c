//! Offers tools whose names are not allowed: control characters, a space, nothing at all, too long.

#[path = "raw/mod.rs"]
mod raw;

raw::plugin!(vec![
    raw::tool("line\r\nbreak", raw::ANYTHING),
    raw::tool("escape\u{1b}[31m", raw::ANYTHING),
    raw::tool("two words", raw::ANYTHING),
    raw::tool("", raw::ANYTHING),
    raw::tool(&"x".repeat(129), raw::ANYTHING),
]);
