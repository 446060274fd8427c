//! Links the component without the WASI functions that it can do without: instantiating them takes longer than many a tool runs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "wasm") {
        // What is printed still arrives; environment variables and files are not there.
        println!("cargo::rustc-cdylib-link-arg=--wasi-adapter=proxy");
    }
}
