//! Offers tools whose input schemas are no JSON Schemas for an object.

#[path = "raw/mod.rs"]
mod raw;

raw::plugin!(vec![
    raw::tool("unknown_type", r#"{"type":"objekt"}"#),
    raw::tool("keyword_of_the_wrong_type", r#"{"type":"object","required":"text"}"#),
    raw::tool("no_object", r#"{"type":"string"}"#),
]);
