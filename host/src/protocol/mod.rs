//! EDGE: MCP without HTTP.
//!
//! Owns the wire: JSON-RPC, both eras' methods, field names and codes, and how a task is shown. Must not see a header, a token
//! or a byte of storage. Invariant: every request gets exactly one final frame, and nothing internal has a way into one.
