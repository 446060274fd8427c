//! Builds nothing: Cargo looks at build-dependencies only beside a build script.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
