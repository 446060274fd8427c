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
fn new_build_and_wrap_answer_programs_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let json = |arguments: &[&str]| -> serde_json::Value {
        let ran = run(folder.path(), arguments);
        assert!(ran.status.success(), "{arguments:?}: {}", text(&ran.stderr));
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    let made = json(&["new", "trip-planner", "--lang", "python", "--dir", &path("trip"), "--json"]);
    let expected = serde_json::json!({
        "folder": path("trip"), "name": "trip-planner", "language": "python", "readme": path("trip/README.md"),
    });
    assert_eq!(made, expected);

    // A stand-in for the language's tools, which prints as they do.
    let component = wat::parse_str("(component)").unwrap();
    std::fs::write(path("any.wasm"), &component).unwrap();
    let tool = "#!/bin/sh\necho built\necho [] > late.json\necho [] > read.json\nwhile [ \"$1\" != -o ]; do shift; done\n/bin/cp \"${0%/*}/any.wasm\" \"$2\"\n";
    std::fs::write(path("componentize-py"), tool).unwrap();
    std::fs::set_permissions(path("componentize-py"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let built = json(&["build", &path("trip"), "--json"]);
    assert_eq!(built["file"], path("trip/trip-planner.wasm"));
    assert_eq!((&built["name"], &built["language"]), (&"trip-planner".into(), &"python".into()));
    let written = std::fs::read(path("trip/trip-planner.wasm")).unwrap();
    assert_eq!(built["bytes"], written.len());
    assert_eq!(built["component"].as_str().map(str::len), Some(64), "{built}");

    std::fs::write(path("units.toml"), "name = \"units\"\n").unwrap();
    let bare = "(component (instance $i) (export \"acme:units/length@1.0.0\" (instance $i)))";
    std::fs::write(path("units.wasm"), wat::parse_str(bare).unwrap()).unwrap();
    let out = path("out.wasm");
    let wrapped = json(&["wrap", &path("units.wasm"), "--manifest", &path("units.toml"), "-o", &out, "--json"]);
    assert_eq!(wrapped["file"], out);
    assert!(wrapped["warnings"].is_array() && wrapped["component"] != built["component"], "{wrapped}");

    let failed = run(folder.path(), &["build", &path("nothing"), "--json"]);
    assert_eq!((failed.status.code(), text(&failed.stdout)), (Some(1), ""), "what is wrong is on stderr");
}

#[test]
fn with_a_host_on_the_path_its_commands_are_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().join("bulkhead");
    std::fs::write(&host, "#!/bin/sh\necho \"$@\"\nexit 5\n").unwrap();
    std::fs::set_permissions(&host, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (arguments, passed) in [
        (&["call", "x.wasm", "greet", "--json", "--help"][..], "plugin call x.wasm greet --json --help\n"),
        (&["replay", "x.wasm", "greet", "--journal", "x.journal"], "plugin replay x.wasm greet --journal x.journal\n"),
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
