//! Finds a compiler for `wasm32-wasip2` in one of three ways and says which one and why.
//!
//! The result is a set of arguments and variables for Cargo; nothing is installed outside the repository's target
//! folder, except by rustup when that way is taken.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::{debian, layout, steps};

/// The guests' target.
pub const TARGET: &str = "wasm32-wasip2";

const FORCE: &str = "XTASK_GUEST_TOOLCHAIN";

/// How to call Cargo so that it can build a guest.
#[derive(Default)]
pub struct Toolchain {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Toolchain {
    /// Adds what this toolchain needs to a Cargo command.
    pub fn apply(&self, cargo: &mut Command) {
        cargo.args(&self.arguments).envs(self.variables.iter().map(|(key, value)| (key, value)));
    }

    /// Writes down what worked, for the tests that build a plugin as its author does, and for the shells of authors.
    pub fn remember(&self) -> anyhow::Result<()> {
        let path = layout::guest_target().join("toolchain.json");
        std::fs::write(&path, self.json()).with_context(|| path.display().to_string())?;
        let path = layout::guest_target().join("toolchain.sh");
        let found_in = std::env::var("PATH").unwrap_or_default();
        std::fs::write(&path, self.script(&found_in)).with_context(|| path.display().to_string())
    }

    fn json(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(|argument| json_string(argument)).collect();
        let variables =
            self.variables.iter().map(|(key, value)| format!("{}:{}", json_string(key), json_string(value)));
        let variables = Vec::from_iter(variables).join(",");
        format!(r#"{{"arguments":[{}],"variables":{{{variables}}}}}"#, arguments.join(","))
    }

    /// The same for a shell, whose own search path comes behind. `found_in`: the search path that this toolchain was
    /// found with.
    fn script(&self, found_in: &str) -> String {
        let mut lines = vec![format!("# Made by `cargo xtask plugins`: what it takes to compile for {TARGET} here.")];
        lines.extend(self.variables.iter().map(|(key, value)| match value.strip_suffix(found_in) {
            Some(own) if *key == "PATH" => format!("export PATH={}\"$PATH\"", quoted(own)),
            _ => format!("export {key}={}", quoted(value)),
        }));
        lines.push(format!("GUEST_ARGUMENTS={}\n", quoted(&self.arguments.join(" "))));
        lines.join("\n")
    }
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..' ' => quoted += &format!("\\u{:04x}", u32::from(character)),
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

/// As one word of a shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Takes the first way that works, or the one that `XTASK_GUEST_TOOLCHAIN` names.
pub fn find() -> anyhow::Result<Toolchain> {
    match std::env::var(FORCE).ok().as_deref() {
        None | Some("") => {}
        Some("installed") => return announce("installed", &format!("{FORCE} asks for it"), installed()),
        Some("rustup") => return announce("rustup", &format!("{FORCE} asks for it"), rustup()),
        Some("debian") => return announce("debian", &format!("{FORCE} asks for it"), debian()),
        Some(other) => bail!("{FORCE}={other}: it must be `installed`, `rustup` or `debian`"),
    }
    let mut refusals = Vec::new();
    match installed() {
        Ok(toolchain) => return announce("installed", "the target is there", Ok(toolchain)),
        Err(error) => refusals.push(format!("installed: {error:#}")),
    }
    if std::env::var("RUSTUP_AUTO_INSTALL").as_deref() == Ok("0") {
        refusals.push("rustup: not tried, RUSTUP_AUTO_INSTALL=0 says that it must not download".to_owned());
    } else {
        match rustup() {
            Ok(toolchain) => return announce("rustup", &refusals.join("; "), Ok(toolchain)),
            Err(error) => refusals.push(format!("rustup: {error:#}")),
        }
    }
    match debian() {
        Ok(toolchain) => announce("debian", &refusals.join("; "), Ok(toolchain)),
        Err(error) => {
            refusals.push(format!("debian: {error:#}"));
            bail!(
                "no compiler for {TARGET}. The easiest way to get one is `rustup target add {TARGET}`.\n  {}",
                refusals.join("\n  ")
            )
        }
    }
}

fn announce(way: &str, reason: &str, toolchain: anyhow::Result<Toolchain>) -> anyhow::Result<Toolchain> {
    let toolchain = toolchain.with_context(|| format!("guest toolchain `{way}` ({reason})"))?;
    eprintln!("xtask: guest toolchain: {way} ({reason})");
    Ok(toolchain)
}

fn rustc() -> Command {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(layout::root());
    rustc
}

fn installed() -> anyhow::Result<Toolchain> {
    let folder = steps::output(rustc().args(["--print", "target-libdir", "--target", TARGET]))?;
    if !Path::new(folder.trim()).is_dir() {
        bail!("the standard library for {TARGET} is not installed");
    }
    Ok(Toolchain::default())
}

fn rustup() -> anyhow::Result<Toolchain> {
    steps::output(Command::new("rustup").args(["target", "add", TARGET]).current_dir(layout::root()))?;
    installed()
}

/// Debian's compiler with the standard library built from its sources. rustup's Cargo and linkers are still used:
/// Debian's Cargo lacks what a build of the standard library needs.
fn debian() -> anyhow::Result<Toolchain> {
    let facts = steps::output(rustc().arg("-vV"))?;
    let host = facts.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let sysroot = PathBuf::from(steps::output(rustc().args(["--print", "sysroot"]))?.trim());
    let linkers = sysroot.join("lib/rustlib").join(host).join("bin");
    if !linkers.join("wasm-component-ld").is_file() {
        bail!("{} holds no wasm-component-ld; rustup's toolchain has one", linkers.display());
    }
    let compiler = debian::compiler()?;
    let path = format!(
        "{}:{}:{}",
        linkers.display(),
        linkers.join("gcc-ld").display(),
        std::env::var("PATH").context("PATH is not set")?
    );
    Ok(Toolchain {
        // Without the library that prints backtraces, which a guest without symbols cannot print.
        arguments: vec!["-Zbuild-std=std,panic_abort".to_owned(), "-Zbuild-std-features=".to_owned()],
        variables: vec![
            ("RUSTC", compiler.program().display().to_string()),
            ("RUSTC_BOOTSTRAP", "1".to_owned()),
            ("LD_LIBRARY_PATH", compiler.library_path),
            ("PATH", path),
            (
                "CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS",
                format!("-L native={}", compiler.folder.join("usr/lib/wasm32-wasi").display()),
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchain_is_written_as_json() {
        let variables = vec![("RUSTC", "/a \"b\"\\c\n/rustc".to_owned()), ("PATH", "/ä:/bin".to_owned())];
        let toolchain = Toolchain { arguments: vec!["-Zbuild-std=std".to_owned(), "-v".to_owned()], variables };
        let expected = r#"{"arguments":["-Zbuild-std=std","-v"],"variables":{"RUSTC":"/a \"b\"\\c\u000a/rustc","PATH":"/ä:/bin"}}"#;
        assert_eq!(toolchain.json(), expected);
        assert_eq!(Toolchain::default().json(), r#"{"arguments":[],"variables":{}}"#);
    }

    #[test]
    fn toolchain_script_sets_cargo_variables_and_keeps_path() {
        let variables = vec![("RUSTC", "/it's here/rustc".to_owned()), ("PATH", "/linkers:/bin:/usr/bin".to_owned())];
        let toolchain = Toolchain { arguments: vec!["-Zbuild-std=std".to_owned(), "-v".to_owned()], variables };
        let print =
            format!("{}printf '%s\\n' \"$RUSTC\" \"$PATH\" $GUEST_ARGUMENTS", toolchain.script("/bin:/usr/bin"));
        let printed = steps::output(Command::new("/bin/sh").args(["-ec", &print]).env("PATH", "/mine")).unwrap();
        assert_eq!(printed, "/it's here/rustc\n/linkers:/mine\n-Zbuild-std=std\n-v\n");
    }
}
