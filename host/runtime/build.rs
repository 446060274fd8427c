//! Builds nothing: Cargo looks at build-dependencies only beside a build script.

fn main() {}
