//! How a task may change.
