//! EDGE: HTTP and stdio, sessions, credentials.

pub mod principal;
