//! Components from Rust, by Cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Error, Options, Project, programs};

/// What components are compiled for.
pub const TARGET: &str = "wasm32-wasip2";

pub(crate) fn build(project: &Project, options: &Options) -> Result<Vec<u8>, Error> {
    let Some(cargo) = programs::find("cargo", &[]) else {
        let remedy = format!("Install Rust from https://rustup.rs, then `rustup target add {TARGET}`.");
        return Err(Error::Missing { what: "cargo".to_owned(), remedy });
    };
    // Said before minutes of compiling end in "can't find crate for `core`". Who builds the library beside knows what
    // to do.
    if !has_target() && !options.cargo.iter().any(|argument| argument.contains("build-std")) {
        let what = format!("the standard library for {TARGET}");
        return Err(Error::Missing { what, remedy: target_remedy() });
    }
    let mut command = Command::new(cargo);
    command.current_dir(&project.folder);
    command.args([
        "build",
        kind_of_target(&project.folder),
        "--release",
        "--target",
        TARGET,
        "--message-format=json-render-diagnostics",
    ]);
    command.args(&options.cargo);
    let built = programs::output("cargo build", &mut command)?;
    let component = component(&built).ok_or_else(|| Error::Failed {
        step: "cargo build",
        reason: "it made no component: the package needs `[lib]` with `crate-type = [\"cdylib\"]`".to_owned(),
    })?;
    programs::read(&component)
}

/// A package that has a `main` and no library is a command, which is a component as it is.
fn kind_of_target(folder: &Path) -> &'static str {
    let has = |file: &str| folder.join("src").join(file).is_file();
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let names_library = manifest.lines().any(|line| line.trim() == "[lib]");
    if has("main.rs") && !has("lib.rs") && !names_library { "--bins" } else { "--lib" }
}

/// Every way to a compiler for the target, in the words of `XTASK_GUEST_TOOLCHAIN`.
fn target_remedy() -> String {
    format!(
        "Install it with `rustup target add {TARGET}`. Where rustup cannot download it, a clone of Bulkhead gets a compiler: \
         `XTASK_GUEST_TOOLCHAIN=debian cargo xtask plugins text` unpacks that of Debian (`installed` takes one that is there, `rustup` \
         asks rustup again), and `(. CLONE/target/guests/toolchain.sh && bulkhead plugin build -- $GUEST_ARGUMENTS)` builds with it, \
         where CLONE is its folder."
    )
}

/// Whether the standard library of the target is installed for the compiler that Cargo takes.
pub fn has_target() -> bool {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(compiler).args(["--print", "target-libdir", "--target", TARGET]).output();
    asked.is_ok_and(|said| PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()).is_dir())
}

/// The file that Cargo names last: that of the package itself.
fn component(messages: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts.rev().find_map(|message| {
        let files = message.get("filenames")?.as_array()?;
        files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".wasm")).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_target_names_every_way_to_a_compiler() {
        let remedy = target_remedy();
        for way in [
            "rustup target add wasm32-wasip2",
            "XTASK_GUEST_TOOLCHAIN=debian",
            "`installed`",
            "`rustup`",
            "toolchain.sh",
        ] {
            assert!(remedy.contains(way), "{way}: {remedy}");
        }
    }

    #[test]
    fn package_with_main_alone_is_built_as_a_command() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
        write("Cargo.toml", "[package]\nname = 'a'\n");
        assert_eq!(kind_of_target(folder.path()), "--lib", "Cargo says best what is missing");
        write("src/main.rs", "");
        assert_eq!(kind_of_target(folder.path()), "--bins");
        write("src/lib.rs", "");
        assert_eq!(kind_of_target(folder.path()), "--lib");
        std::fs::remove_file(folder.path().join("src/lib.rs")).unwrap();
        write("Cargo.toml", "[lib]\npath = 'lib.rs'\n");
        assert_eq!(kind_of_target(folder.path()), "--lib");
    }

    #[test]
    fn rust_component_is_last_wasm_file_of_cargo() {
        let messages = r#"{"reason":"compiler-artifact","filenames":["/t/libdep.rlib"]}
not json
{"reason":"compiler-artifact","filenames":["/t/libhello.rlib","/t/hello.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(component(messages), Some(PathBuf::from("/t/hello.wasm")));
        assert_eq!(component("{}"), None);
    }
}
