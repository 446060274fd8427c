//! The program `bulkhead-plugin`, with and without a host beside it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

fn run(path: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_bulkhead-plugin"));
    program.args(arguments).env("PATH", path).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn without_a_host_a_plugin_is_started_checked_and_signed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = run(folder.path(), &["new", "trip-planner", "--lang", "rust", "--dir", &path("trip-planner")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(folder.path().join("trip-planner/tests/plugin.toml").is_file());

    let component = "(component (instance $i) (export \"acme:units/length@1.0.0\" (instance $i)))";
    std::fs::write(path("units.wasm"), wat::parse_str(component).unwrap()).unwrap();
    let checked = run(folder.path(), &["check", &path("units.wasm")]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("it carries no manifest"), "{}", text(&checked.stdout));
    assert!(text(&checked.stderr).contains("bulkhead is not on the PATH"), "{}", text(&checked.stderr));

    assert!(run(folder.path(), &["keygen", &path("acme")]).status.success());
    let signed = run(folder.path(), &["sign", &path("units.wasm"), "--key", &path("acme.key")]);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    assert!(folder.path().join("units.wasm.sig").is_file());

    let called = run(folder.path(), &["call", "units.wasm", "x"]);
    assert_eq!(called.status.code(), Some(1));
    assert!(text(&called.stderr).contains("`call` is a command of the host"), "{}", text(&called.stderr));
}

#[test]
fn with_a_host_on_the_path_its_commands_are_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().join("bulkhead");
    std::fs::write(&host, "#!/bin/sh\necho \"$@\"\nexit 5\n").unwrap();
    std::fs::set_permissions(&host, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (arguments, passed) in [
        (&["call", "x.wasm", "greet", "--json", "--help"][..], "plugin call x.wasm greet --json --help\n"),
        (&["test", "."], "plugin test .\n"),
        (&["dev", "--http", "https://a.example"], "plugin dev --http https://a.example\n"),
        (&["check", "x.wasm", "--strict"], "plugin check --strict -- x.wasm\n"),
    ] {
        let run = run(folder.path(), arguments);
        assert_eq!((run.status.code(), text(&run.stdout)), (Some(5), passed), "{}", text(&run.stderr));
    }
    let checked = run(folder.path(), &["check", "--static", "x.wasm"]);
    assert_eq!((checked.status.code(), text(&checked.stdout)), (Some(1), ""), "the host is left alone");
}
