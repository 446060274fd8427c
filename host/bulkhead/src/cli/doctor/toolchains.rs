//! What plugins are built with. A host needs none of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bulkhead_author::{COMPONENTIZE_PY, RUST_TARGET, ZIG, c_compiler, find_program, has_rust_target, node};

use super::Finding;

/// One finding for each language.
pub(super) fn look() -> Vec<Finding> {
    vec![
        rust(find_program("cargo", &[]).as_deref(), has_rust_target()),
        python(find_program("componentize-py", &[]).as_deref(), find_program("python3", &[]).as_deref()),
        javascript(node().map(|node| version(&node)).map_err(|missing| missing.to_string())),
        c(c_compiler()),
    ]
}

fn rust(cargo: Option<&Path>, has_target: bool) -> Finding {
    const SUBJECT: &str = "plugins in Rust";
    match cargo {
        Some(cargo) if has_target => Finding::ok(SUBJECT, format!("{}, with {RUST_TARGET}", version(cargo))),
        Some(cargo) => Finding::warn(
            SUBJECT,
            format!("{}, without {RUST_TARGET}", version(cargo)),
            format!("`rustup target add {RUST_TARGET}`, if plugins are built here."),
        ),
        None => Finding::warn(SUBJECT, "no cargo", "Install Rust from https://rustup.rs, if plugins are built here."),
    }
}

fn python(componentize: Option<&Path>, python: Option<&Path>) -> Finding {
    const SUBJECT: &str = "plugins in Python";
    match (componentize, python) {
        (Some(componentize), _) => Finding::ok(SUBJECT, version(componentize)),
        (None, Some(python)) => Finding::warn(
            SUBJECT,
            format!("{}, without componentize-py on the PATH", version(python)),
            format!("`pip install {COMPONENTIZE_PY}` in the project's .venv, if plugins are built here."),
        ),
        (None, None) => {
            Finding::warn(SUBJECT, "no python3", "Install Python 3.10 or newer, if plugins are built here.")
        }
    }
}

/// `node`: its version, or why there is none that will do.
fn javascript(node: Result<String, String>) -> Finding {
    const SUBJECT: &str = "plugins in JavaScript";
    match node {
        Ok(version) => Finding::ok(SUBJECT, format!("Node.js {version}")),
        Err(missing) => Finding::warn(SUBJECT, missing, "That, if plugins are built here."),
    }
}

fn c(compiler: Option<PathBuf>) -> Finding {
    const SUBJECT: &str = "plugins in C";
    match compiler {
        Some(compiler) => Finding::ok(SUBJECT, format!("{}, for WASI", compiler.display())),
        None => Finding::warn(
            SUBJECT,
            "no compiler for WASI",
            format!("`pip install {ZIG}` in the project's .venv, or WASI_SDK_PATH, if plugins are built here."),
        ),
    }
}

/// What a program says of itself, in one line.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let line: String = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect();
    if line.is_empty() { program.display().to_string() } else { line }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_tools_are_warnings_with_the_command_that_installs_them() {
        let cargo = Path::new("/nowhere/cargo");
        assert_eq!(rust(Some(cargo), true).verdict, Verdict::Ok);
        assert_eq!(c(Some("/opt/wasi-sdk/bin/clang".into())).verdict, Verdict::Ok);
        for (finding, remedy) in [
            (rust(Some(cargo), false), "rustup target add"),
            (rust(None, false), "rustup.rs"),
            (python(None, Some(Path::new("/nowhere/python3"))), "pip install"),
            (python(None, None), "Python"),
            (javascript(Err("Node.js is missing.".to_owned())), "built here"),
            (c(None), "pip install ziglang"),
        ] {
            assert_eq!(finding.verdict, Verdict::Warn, "{finding:?}");
            assert!(finding.remedy.is_some_and(|text| text.contains(remedy)), "{remedy}");
        }
    }
}
