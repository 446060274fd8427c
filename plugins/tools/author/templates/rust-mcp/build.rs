//! Lets the server be linked with Debian's wasi-libc, which has no `pthread_join` and `pthread_detach`: the standard
//! library names both where something could begin a thread, as tokio could. None begins there, and what is not there is
//! a trap if it is called.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "wasm") {
        println!("cargo::rustc-link-arg-bins=--unresolved-symbols=ignore-all");
    }
}
