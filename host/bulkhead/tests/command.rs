//! Where the program is built from its own package: cargo builds a package's programs for `cargo test --workspace` only
//! if the package has a test like this one, and the integration suite in `tests/` starts the program that this leaves
//! in the target folder.

use std::process::Command;

#[test]
fn the_program_says_which_version_it_is() {
    let output = Command::new(env!("CARGO_BIN_EXE_bulkhead")).arg("--version").output().expect("the program starts");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(said.trim_end(), concat!("bulkhead ", env!("CARGO_PKG_VERSION"), " (debug build)"));
}
