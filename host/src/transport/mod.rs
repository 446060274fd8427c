//! EDGE: HTTP and stdio, sessions, credentials.
