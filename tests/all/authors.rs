//! What authors type: a new project, a build, a check.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::wait::soon;
use tests::{command, place};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// What a build and its compilation may take on a machine that does other things as well.
const BUILDING: Duration = Duration::from_secs(600);

/// How a command ended, and what it said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn plugin(folder: &Path, path: &Path, arguments: &[&str]) -> Said {
    let mut bulkhead = command::bulkhead();
    bulkhead.current_dir(folder).env("PATH", path).arg("plugin");
    // Not through the harness's short patience: a build takes its time on a busy machine.
    let output = bulkhead.args(arguments).stdin(Stdio::null()).output().await.expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn tools(language: &str) -> PathBuf {
    place::root().join("target/guest-tools").join(language)
}

/// The search path of this process, behind a folder.
fn path_with(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path.into()
}

/// From nothing to a called tool.
async fn whole_way(language: &str, path: &Path, prepare: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let made = plugin(here, path, &["new", "trip-planner", "--lang", language]).await;
    assert_eq!((made.code, made.out.trim_end()), (Some(0), "trip-planner"), "{}", made.err);
    let project = here.join("trip-planner");
    let missing = plugin(&project, Path::new("/nowhere"), &["build"]).await;
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    assert!(missing.err.contains("is missing") && missing.err.contains("nstall"), "{}", missing.err);
    assert!(!project.join("trip-planner.wasm").exists(), "nothing is there before a build");

    prepare(&project);
    let built = plugin(&project, path, &["build"]).await;
    assert_eq!((built.code, built.out.trim_end()), (Some(0), "trip-planner.wasm"), "{}", built.err);
    let checked = plugin(&project, path, &["check", "trip-planner.wasm", "--json", "--strict"]).await;
    assert_eq!(checked.code, Some(0), "{} {}", checked.out, checked.err);
    let report: Value = serde_json::from_str(&checked.out).expect("JSON");
    assert_eq!(report["name"], "trip-planner", "the manifest is inside: {report}");
    assert_eq!(report["tools"], json!(["greet", "countdown"]));
    let called = plugin(&project, path, &["call", "trip-planner.wasm", "greet", r#"{"name": "Ada"}"#]).await;
    assert_eq!((called.code, called.out.trim_end()), (Some(0), "Hello, Ada!"), "{}", called.err);
}

#[tokio::test]
async fn a_python_author_gets_from_nothing_to_a_called_tool() {
    if place::left_out(&["python"]) {
        return;
    }
    whole_way("python", &path_with(&tools("python").join("bin")), |_| {}).await;
}

#[tokio::test]
async fn a_javascript_author_gets_from_nothing_to_a_called_tool() {
    if place::left_out(&["javascript"]) {
        return;
    }
    let link = |project: &Path| {
        let modules = project.join("node_modules");
        std::os::unix::fs::symlink(tools("javascript").join("node_modules"), modules).expect("a link");
    };
    whole_way("js", &path_with(Path::new("/nowhere")), link).await;
}

#[tokio::test]
async fn a_mistake_in_a_plugin_is_told_where_it_is_built() {
    if place::left_out(&["python"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_with(&tools("python").join("bin"));
    plugin(folder.path(), &path, &["new", "wrong", "--lang", "python"]).await;
    let project = folder.path().join("wrong");
    std::fs::write(
        project.join("plugin.py"),
        "from bulkhead_plugin import tool\n\n@tool\ndef mute(a: int) -> str:\n    return ''\n",
    )
    .expect("a plugin");
    let built = plugin(&project, &path, &["build"]).await;
    assert_eq!(built.code, Some(1), "{}", built.out);
    assert!(built.err.contains("tool mute: write a docstring"), "{}", built.err);
    assert!(!project.join("wrong.wasm").exists(), "no component of half a plugin");
}

#[tokio::test]
async fn projects_are_made_in_empty_folders_under_plain_names_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    std::fs::write(here.join("mine.txt"), "mine").expect("a file");
    for arguments in [
        &["new", "../up", "--lang", "rust"][..],
        &["new", "Upper", "--lang", "rust"],
        &["new", "good", "--lang", "rust", "--dir", "."],
        &["new", "good", "--lang", "cobol"],
    ] {
        let said = plugin(here, Path::new("/nowhere"), arguments).await;
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.err);
    }
    let left: Vec<_> = std::fs::read_dir(here).expect("a folder").collect();
    assert_eq!(left.len(), 1, "nothing was made");
    let said = plugin(here, Path::new("/nowhere"), &["build", "."]).await;
    assert!(said.code == Some(1) && said.err.contains("plugin new"), "{}", said.err);
}

#[tokio::test]
async fn check_says_what_is_refused_and_what_could_be_better() {
    let check = async |name: &str, more: &[&str]| {
        let file = place::component(name).display().to_string();
        plugin(Path::new("/"), Path::new("/nowhere"), &[&["check", &file, "--json"], more].concat()).await
    };
    for name in ["bad_schema", "bad_twins", "bad_import", "bad_panic", "bad_name"] {
        let said = check(name, &[]).await;
        assert_eq!(said.code, Some(4), "{name}: {}", said.err);
        let report: Value = serde_json::from_str(&said.out).expect("JSON");
        assert!(report["refused"].as_array().is_some_and(|refused| !refused.is_empty()), "{report}");
    }
    let said = check("text", &["--strict"]).await;
    assert_eq!(said.code, Some(0), "{}", said.out);
    let said = check("hostile", &["--strict"]).await;
    assert_eq!(said.code, Some(1), "{}", said.out);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("clients assume the worst"), "{report}");
    assert_eq!(check("hostile", &[]).await.code, Some(0), "warnings alone do not fail");
}

#[tokio::test]
async fn a_project_is_served_while_it_changes_and_a_mistake_stops_nothing() {
    if place::left_out(&["python"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_with(&tools("python").join("bin"));
    plugin(folder.path(), &path, &["new", "live", "--lang", "python"]).await;
    let project = folder.path().join("live");
    let mut dev = command::bulkhead();
    dev.args(["plugin", "dev", "--listen", "127.0.0.1:0"]).current_dir(&project).env("PATH", &path);
    let log = folder.path().join("log");
    let mut dev = dev
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(dev.stdout.take().expect("a pipe")).lines();
    let url = loop {
        let line = lines.next_line().await.expect("stdout can be read").expect("a host");
        if let Some(url) = line.strip_prefix("bulkhead: listening on ") {
            break url.to_owned();
        }
    };
    // What the versions are is said on stdout as well; nobody may be kept waiting by a full pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let mut client = Client::new(&url, None);
    client.initialize(json!({})).await;
    let greeting = async || match client.tool("greet", json!({"name": "Ada"})).await {
        Ok(result) => text(&result).to_owned(),
        Err(_) => String::new(),
    };
    let becomes = async |expected: &str| {
        let begin = Instant::now();
        while greeting().await != expected {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(begin.elapsed() < BUILDING, "it never said {expected:?}; the log:\n{said}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    becomes("Hello, Ada!").await;

    let source = std::fs::read_to_string(project.join("plugin.py")).expect("the source");
    std::fs::write(project.join("plugin.py"), format!("{source}\nraise RuntimeError('a mistake')\n"))
        .expect("a mistake");
    let begin = Instant::now();
    while !std::fs::read_to_string(&log).unwrap_or_default().contains("the version before goes on serving") {
        assert!(begin.elapsed() < BUILDING, "the mistake was not noticed");
        assert_eq!(greeting().await, "Hello, Ada!");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    std::fs::write(project.join("plugin.py"), source.replace("Hello", "Welcome")).expect("the next version");
    becomes("Welcome, Ada!").await;

    let pid = dev.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)).expect("it runs");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it can be told to stop");
    let status = soon("both to stop", dev.wait()).await.expect("it can be waited for");
    assert!(status.success(), "{status}");
    assert!(reqwest::get(&url).await.is_err(), "the host is gone too");
}
