//! What authors type: a new project, a build, a check.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::wait::soon;
use tests::{Setup, command, place};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// What a build and its compilation may take on a machine that does other things as well.
const BUILDING: Duration = Duration::from_secs(600);

/// How a command ended, and what it said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

async fn plugin(folder: &Path, path: &Path, arguments: &[&str]) -> Said {
    let mut bulkhead = command::bulkhead();
    bulkhead.current_dir(folder).env("PATH", path).arg("plugin");
    // Not through the harness's short patience: a build takes its time on a busy machine.
    Said::of(bulkhead.args(arguments).stdin(Stdio::null()).output().await.expect("the command starts"))
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

/// A language's tools on this machine.
struct Shop {
    language: &'static str,
    path: PathBuf,
    /// For every command.
    variables: Vec<(String, String)>,
    /// For building the component alone, and behind its command.
    building: (Vec<(String, String)>, String),
}

impl Shop {
    fn new(language: &'static str, path: PathBuf) -> Self {
        Self { language, path, variables: Vec::new(), building: Default::default() }
    }

    /// Looks for programs in this folder first.
    fn find_also(&mut self, folder: &Path) {
        for (_, path) in self.building.0.iter_mut().filter(|(key, _)| key == "PATH") {
            *path = format!("{}:{path}", folder.display());
        }
        self.path = [folder.as_os_str(), self.path.as_os_str()].join(std::ffi::OsStr::new(":")).into();
    }

    /// Runs a line as it stands in a README.
    async fn run(&self, folder: &Path, line: &str) -> Said {
        let mut shell = tokio::process::Command::new("sh");
        let is_build = line == "bulkhead plugin build";
        let line = if is_build { format!("{line}{}", self.building.1) } else { line.to_owned() };
        shell.args(["-ec", &line]).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
        shell.env("PATH", &self.path).env("XDG_CACHE_HOME", place::root().join("target/test-code"));
        shell.envs(self.variables.iter().cloned());
        if is_build {
            shell.envs(self.building.0.iter().cloned());
        }
        Said::of(shell.output().await.expect("the shell starts"))
    }
}

/// The commands of a README that end by themselves and fetch nothing.
fn commands(readme: &str) -> Vec<&str> {
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("commands");
    let lines = block.lines().map(|line| line.split(" # ").next().unwrap_or(line).trim_end());
    let others = ["rustup ", "python3 -m venv ", "npm install", "bulkhead serve ", "bulkhead plugin dev"];
    lines.filter(|line| !others.iter().any(|other| line.starts_with(other))).collect()
}

/// From nothing to a called tool, by the commands that the new project's own README names.
async fn whole_way(shop: Shop, prepare: impl FnOnce(&Path)) {
    whole_way_of(shop, &[], 5, prepare).await;
}

/// The same for an MCP server of the language's official SDK, whose tests are those of the component. It takes a
/// minute.
async fn whole_way_of_a_server(shop: Shop, prepare: impl FnOnce(&Path)) {
    if place::rounds(0, 1) == 1 {
        whole_way_of(shop, &["--mcp"], 4, prepare).await;
    }
}

/// `steps`: unit tests if there are some, build, tests, check, call.
async fn whole_way_of(mut shop: Shop, flags: &[&str], steps: usize, prepare: impl FnOnce(&Path)) {
    // Beside the tools, on the same file system.
    let folder = tempfile::tempdir_in(place::root().join("target")).expect("a folder");
    let here = folder.path();
    std::os::unix::fs::symlink(place::host_binary(), here.join("bulkhead")).expect("a link");
    let made = plugin(here, &shop.path, &[&["new", "trip-planner", "--lang", shop.language], flags].concat()).await;
    assert_eq!((made.code, made.out.trim_end()), (Some(0), "trip-planner"), "{}", made.err);
    let project = here.join("trip-planner");
    let missing = plugin(&project, Path::new("/nowhere"), &["build"]).await;
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    assert!(missing.err.contains("is missing") && missing.err.contains("nstall"), "{}", missing.err);
    assert!(!project.join("trip-planner.wasm").exists(), "nothing is there before a build");

    prepare(&project);
    shop.find_also(here);
    let readme = std::fs::read_to_string(project.join("README.md")).expect("a README");
    let commands = commands(&readme);
    assert_eq!(commands.len(), steps, "{commands:?}");
    for command in commands {
        let said = shop.run(&project, command).await;
        assert_eq!(said.code, Some(0), "{command}:\n{}\n{}", said.out, said.err);
        if command.contains("plugin build") {
            assert_eq!(said.out.trim_end(), "trip-planner.wasm", "{}", said.err);
        } else if command.contains("plugin call") {
            assert_eq!(said.out.trim_end(), "Hello, Ada!", "{}", said.err);
        } else if command.starts_with("cc ") {
            assert_eq!(said.out, "ok: greets_by_name\nok: message_stops_the_countdown\n", "{}", said.err);
        }
    }
    // A server of an SDK that can send requests is warned of that, whether it sends some or not.
    let strictly: &[&str] = if flags.is_empty() { &["--strict"] } else { &[] };
    let checked = plugin(&project, &shop.path, &[&["check", "trip-planner.wasm", "--json"], strictly].concat()).await;
    assert_eq!(checked.code, Some(0), "{} {}", checked.out, checked.err);
    let report: Value = serde_json::from_str(&checked.out).expect("JSON");
    assert_eq!(report["name"], "trip-planner", "the manifest is inside: {report}");
    let mut tools: Vec<_> = report["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["countdown", "greet"]);
}

/// Cargo, and whatever it needs on this machine to compile for guests.
fn rust() -> Shop {
    let mut shop = Shop::new("rust", std::env::var_os("PATH").expect("a search path").into());
    let (arguments, variables) = place::guest_toolchain();
    // What the SDK is made of is compiled once for all runs.
    let target = place::root().join("target/author-rust").display().to_string();
    shop.variables = vec![("CARGO_TARGET_DIR".to_owned(), target)];
    let arguments = if arguments.is_empty() { String::new() } else { format!(" -- {}", arguments.join(" ")) };
    shop.building = (variables, arguments);
    shop
}

/// The versions that are known to be there; an author's Cargo takes the newest.
fn lock(project: &Path) {
    std::fs::copy(place::root().join("Cargo.lock"), project.join("Cargo.lock")).expect("a lock file");
}

#[tokio::test]
async fn rust_plugin_is_created_built_and_called() {
    whole_way(rust(), lock).await;
}

#[tokio::test]
async fn rust_mcp_server_is_created_built_and_called() {
    whole_way_of_a_server(rust(), lock).await;
}

#[tokio::test]
async fn rust_build_names_missing_derives_and_results() {
    let folder = tempfile::tempdir_in(place::root().join("target")).expect("a folder");
    std::os::unix::fs::symlink(place::host_binary(), folder.path().join("bulkhead")).expect("a link");
    let mut shop = rust();
    shop.find_also(folder.path());
    plugin(folder.path(), &shop.path, &["new", "derives", "--lang", "rust"]).await;
    let project = folder.path().join("derives");
    lock(&project);
    std::fs::write(
        project.join("src/lib.rs"),
        "use bulkhead_plugin::{Json, tool};
        #[derive(serde::Deserialize)]
        struct Unsaid { name: String }
        #[derive(serde::Serialize, schemars::JsonSchema)]
        struct Bare { name: String }
        struct Mute;
        /// Takes what has no schema.
        #[tool]
        fn takes(what: Unsaid) -> String { what.name }
        /// Returns an object as it is.
        #[tool]
        fn returns() -> Bare { Bare { name: String::new() } }
        /// Returns what cannot be written.
        #[tool]
        fn writes() -> Json<Mute> { Json(Mute) }
        bulkhead_plugin::export!([takes, returns, writes]);",
    )
    .expect("a plugin");
    let built = shop.run(&project, "bulkhead plugin build").await;
    assert_eq!(built.code, Some(1), "{}", built.err);
    for said in [
        "`Unsaid: JsonSchema` is not satisfied",
        "`Bare` cannot be the result of a tool",
        "an object is returned as `Json<Bare>`, where `Bare` has `#[derive(serde::Serialize, schemars::JsonSchema)]`",
        "adding `#[derive(serde::Serialize)]` to your `Mute` type",
        "`Mute: JsonSchema` is not satisfied",
    ] {
        assert!(built.err.contains(said), "{said}:\n{}", built.err);
    }
}

#[tokio::test]
async fn component_of_own_wit_interface_carries_its_docs() {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path().join("lengths");
    std::fs::create_dir_all(project.join("src")).expect("a folder");
    std::fs::create_dir_all(project.join("wit")).expect("a folder");
    let write = |path: &str, text: &str| std::fs::write(project.join(path), text).expect("a file");
    // With the profile of a new project: with another one, Cargo would compile the standard library once more where it
    // is built.
    write(
        "Cargo.toml",
        "[package]\nname = \"lengths\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n[workspace]\n\
         [dependencies]\nwit-bindgen = { version = \"0.63\", default-features = false, features = [\"macros\", \"realloc\", \"std\"] }\n\
         [profile.release]\nopt-level = 3\nlto = true\ncodegen-units = 1\npanic = \"abort\"\nstrip = true\n",
    );
    write(
        "wit/lengths.wit",
        "package acme:lengths@2.1.0;\n
        /// Ways to say how long something is.
        interface units {
            /// How long something is.
            record span {
                /// Whole metres.
                metres: u32,
            }
            /// Converts a length to feet.
            to-feet: func(span: span) -> f64;
        }
        world library { export units; }",
    );
    write(
        "src/lib.rs",
        "wit_bindgen::generate!({ world: \"library\" });
        struct Library;
        impl exports::acme::lengths::units::Guest for Library {
            fn to_feet(span: exports::acme::lengths::units::Span) -> f64 { f64::from(span.metres) / 0.3048 }
        }
        export!(Library);",
    );
    lock(&project);
    std::os::unix::fs::symlink(place::host_binary(), folder.path().join("bulkhead")).expect("a link");
    let mut shop = rust();
    shop.find_also(folder.path());
    let built = shop.run(&project, "bulkhead plugin build").await;
    assert_eq!((built.code, built.out.trim_end()), (Some(0), "lengths.wasm"), "{}", built.err);
    // Alone: no WIT lies beside it.
    let alone = folder.path().join("alone.wasm");
    std::fs::copy(project.join("lengths.wasm"), &alone).expect("a copy");
    let inspected = plugin(folder.path(), &shop.path, &["inspect", "alone.wasm", "--json"]).await;
    let report: Value = serde_json::from_str(&inspected.out).expect("JSON");
    let tool = &report["tools"][0];
    assert_eq!((&tool["name"], &report["typed"]), (&json!("acme_lengths_units_to-feet"), &json!(true)), "{report}");
    assert_eq!(tool["description"], "Converts a length to feet.", "{report}");
    let span = &tool["inputSchema"]["properties"]["span"];
    assert_eq!(span["description"], "How long something is.", "{report}");
    assert_eq!(span["properties"]["metres"]["description"], "Whole metres.", "{report}");
    let shown = plugin(
        folder.path(),
        &shop.path,
        &["call", "alone.wasm", "acme_lengths_units_to-feet", r#"{"span": {"metres": 381}}"#],
    )
    .await;
    assert!(shown.out.contains("1250"), "{} {}", shown.out, shown.err);
}

#[tokio::test]
async fn python_plugin_is_created_built_and_called() {
    if place::left_out(&["python"]) {
        return;
    }
    let shop = Shop::new("python", path_with(&tools("python").join("bin")));
    let environment = |project: &Path| {
        succeed(Command::new("python3").args(["-m", "venv", "--without-pip", ".venv"]).current_dir(project));
        // componentize-py is there already, and nothing is fetched.
        let requirements = std::fs::read_to_string(project.join("requirements.txt")).expect("requirements");
        let others = requirements.lines().filter(|line| !line.starts_with("componentize-py"));
        let others = others.collect::<Vec<_>>().join("\n");
        assert_eq!(others, "./bulkhead/plugins/sdk/python", "the SDK comes from the project's own copy");
        std::fs::write(project.join("others.txt"), others).expect("a file");
        let mut pip = Command::new(tools("python").join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-build-isolation"]);
        let packages = std::fs::read_dir(project.join(".venv/lib")).expect("a library").flatten().next();
        let packages = packages.expect("a version of Python").path().join("site-packages");
        succeed(pip.arg("--target").arg(packages).args(["-r", "others.txt"]).current_dir(project));
        // What an editor finds of the SDK, and of its types.
        let mut mypy = Command::new(tools("python").join("bin/mypy"));
        mypy.args(["--strict", "--python-executable", ".venv/bin/python", "plugin.py"]).current_dir(project);
        succeed(mypy.env("MYPY_CACHE_DIR", "/dev/null"));
    };
    whole_way(shop, environment).await;
}

/// Runs a program that has to succeed.
fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[tokio::test]
async fn javascript_plugin_is_created_built_and_called() {
    if place::left_out(&["javascript"]) {
        return;
    }
    let packages = |project: &Path| {
        let installed = tools("javascript").join("node_modules");
        succeed(Command::new("cp").arg("-al").arg(&installed).arg(project));
        // What npm writes over in its place must not be the one of the tools.
        let list = project.join("node_modules/.package-lock.json");
        std::fs::remove_file(&list).expect("a list");
        std::fs::copy(installed.join(".package-lock.json"), &list).expect("a copy");

        // An author who installs a package has npm bring everything into line with package.json, and loses what is not
        // named there.
        let write = |path: &str, text: &str| std::fs::write(project.join(path), text).expect("a file");
        std::fs::create_dir(project.join("words")).expect("a folder");
        write(
            "words/package.json",
            r#"{"name": "words", "version": "1.0.0", "type": "module", "exports": "./index.js"}"#,
        );
        write("words/index.js", "export const greeting = \"Hello\";\n");
        let mut npm = Command::new("npm");
        npm.args(["install", "--offline", "--no-audit", "--no-fund", "./words"]).current_dir(project);
        succeed(&mut npm);
        let plugin = std::fs::read_to_string(project.join("plugin.js")).expect("the plugin");
        let greeting = "import { greeting } from \"words\";\n\n";
        write("plugin.js", &format!("{greeting}{}", plugin.replace("`Hello, ${name}!`", "`${greeting}, ${name}!`")));

        // What an editor says of the plugin, and of what the documents promise to it.
        write(
            "plugin-outside.js",
            "export async function outside() {
               setTimeout(() => console.log(performance.now(), crypto.randomUUID()), 10);
               const answer = await fetch(new URL(\"https://example.com\"), { headers: new Headers() });
               return structuredClone(new TextEncoder().encode(await answer.text()));
             }",
        );
        let typed = std::fs::read_to_string(project.join("jsconfig.json")).expect("a configuration");
        write("jsconfig.test.json", &typed.replace("\"plugin.js\"", "\"plugin.js\", \"plugin-outside.js\""));
        let mut tsc = Command::new("node_modules/.bin/tsc");
        succeed(tsc.args(["--allowJs", "--noEmit", "-p", "jsconfig.test.json"]).current_dir(project));
    };
    whole_way(Shop::new("js", path_with(Path::new("/nowhere"))), packages).await;
}

/// Installs the packages of JavaScript, and the SDK, as npm does.
fn install_packages(project: &Path) {
    succeed(Command::new("cp").arg("-al").arg(tools("javascript").join("node_modules")).arg(project));
    let sdk = project.join("node_modules/bulkhead-plugin");
    std::os::unix::fs::symlink("../bulkhead/plugins/sdk/javascript", sdk).expect("a link");
}

#[tokio::test]
async fn typescript_plugin_is_created_built_and_called() {
    if place::left_out(&["javascript"]) {
        return;
    }
    whole_way(Shop::new("ts", path_with(Path::new("/nowhere"))), install_packages).await;
}

#[tokio::test]
async fn typescript_mcp_server_is_created_built_and_called() {
    if place::left_out(&["javascript"]) {
        return;
    }
    // It has no SDK to link.
    let packages = |project: &Path| {
        succeed(Command::new("cp").arg("-al").arg(tools("javascript").join("node_modules")).arg(project));
    };
    whole_way_of_a_server(Shop::new("ts", path_with(Path::new("/nowhere"))), packages).await;
}

#[tokio::test]
async fn typescript_build_refuses_type_errors_with_place() {
    if place::left_out(&["javascript"]) {
        return;
    }
    let folder = tempfile::tempdir_in(place::root().join("target")).expect("a folder");
    let path = path_with(Path::new("/nowhere"));
    plugin(folder.path(), &path, &["new", "typed", "--lang", "typescript"]).await;
    let project = folder.path().join("typed");
    install_packages(&project);
    let source = std::fs::read_to_string(project.join("plugin.ts")).expect("the source");
    let wrong = source.replace("readOnly: true,\n      run: greet", "readOnly: 1,\n      run: greet");
    let line = 1 + wrong.lines().position(|line| line.contains("readOnly: 1")).expect("the mistake");
    std::fs::write(project.join("plugin.ts"), wrong).expect("a mistake");
    let built = plugin(&project, &path, &["build"]).await;
    let said = format!(
        "bulkhead: plugin.ts:{line}:7: Type 'number' is not assignable to type 'boolean | undefined'. (TS2322)\n"
    );
    // A machine that is busy hears how long it takes.
    let refusal: String =
        built.err.split_inclusive('\n').filter(|line| !line.starts_with("bulkhead: building ")).collect();
    assert_eq!((built.code, refusal), (Some(1), said), "the types of the SDK are asked");
    assert!(!project.join("typed.wasm").exists(), "no component of what does not fit");
}

#[tokio::test]
async fn javascript_build_names_what_the_engine_lacks() {
    if place::left_out(&["javascript"]) {
        return;
    }
    let folder = tempfile::tempdir_in(place::root().join("target")).expect("a folder");
    let path = path_with(Path::new("/nowhere"));
    plugin(folder.path(), &path, &["new", "lacking", "--lang", "js"]).await;
    let project = folder.path().join("lacking");
    install_packages(&project);
    let package = project.join("node_modules/words");
    std::fs::create_dir(&package).expect("a folder");
    std::fs::write(package.join("package.json"), r#"{"name": "words", "type": "module", "main": "index.js"}"#)
        .expect("a package");
    let source = std::fs::read_to_string(project.join("plugin.js")).expect("the source");
    let using = format!("import {{ words }} from \"words\";\n{source}").replace("`Hello, ${name}!`", "words(name)");
    std::fs::write(project.join("plugin.js"), using).expect("a plugin");
    let build = async |words: &str| {
        std::fs::write(package.join("index.js"), words).expect("a module");
        plugin(&project, &path, &["build"]).await
    };

    let classes = build("// Counts.\n\nexport const words = (text) => text.match(/\\p{L}+/gu).length;\n").await;
    assert_eq!(classes.code, Some(1), "{}", classes.err);
    let said = "node_modules/words/index.js:3:43: `\\p{…}` in a regular expression is not there in a component. List";
    assert!(classes.err.contains(said), "{}", classes.err);
    assert!(!classes.err.contains("plugin.js:"), "no place of the bundle: {}", classes.err);

    let node = build("import { Readable } from \"node:stream\";\nexport const words = Readable;\n").await;
    assert_eq!(node.code, Some(1), "{}", node.err);
    assert!(node.err.contains("`stream` is a module of Node.js, which a component does not have. Use"), "{}", node.err);
    assert!(node.err.contains("node_modules/words/index.js:1:25"), "{}", node.err);

    let process = build("export const words = (text) => text.length;\nconst key = process.env.KEY;\n").await;
    assert_eq!(process.code, Some(1), "{}", process.err);
    let said = "node_modules/words/index.js:2:13: `process` of Node.js is not there in a component. Inside of a tool, `config.get`";
    assert!(process.err.contains(said) && !process.err.contains("ReferenceError"), "{}", process.err);

    let required = build("export const words = require(\"fs\").readFileSync;\n").await;
    assert_eq!(required.code, Some(1), "{}", required.err);
    let said =
        "node_modules/words/index.js:1:22: `fs` is a module of Node.js, which a component does not have. Plugins";
    assert!(required.err.contains(said) && !required.err.contains("missing:"), "{}", required.err);

    let random = build("export const id = Math.random();\nexport const words = () => id;\n").await;
    assert_eq!(random.code, Some(1), "{}", random.err);
    let said = "node_modules/words/index.js:1:24: `Math.random` is called while the plugin is built, where it has no answer. Call";
    assert!(random.err.contains(said) && !random.err.contains("backtrace"), "{}", random.err);

    let own = std::fs::read_to_string(project.join("plugin.js")).expect("the plugin");
    let late_own = own.replace("words(name)", "words(name) + Buffer.from(name)");
    std::fs::write(project.join("plugin.js"), &late_own).expect("a plugin");
    let line = 1 + late_own.lines().position(|line| line.contains("Buffer.from")).expect("the call");
    let late = build(
        "export const words = (text) => Intl.NumberFormat().format(text.length) + require(\"fs\") + Buffer.from(born);\nconst born = Date.now();\n",
    )
    .await;
    assert_eq!(late.code, Some(0), "what may never be reached is no mistake: {}", late.err);
    assert!(late.err.contains("warning: node_modules/words/index.js:1:32: `Intl` is not there"), "{}", late.err);
    assert!(late.err.contains("`fs` is a module of Node.js"), "{}", late.err);
    assert!(late.err.contains(&format!("warning: plugin.js:{line}:")), "{}", late.err);
    assert_eq!(late.err.matches("`Buffer` of Node.js is not there").count(), 1, "packages ask first: {}", late.err);
    let said = "warning: node_modules/words/index.js:2:19: `Date.now()` is read while the plugin is built, and every call sees";
    assert!(late.err.contains(said), "{}", late.err);
    assert!(project.join("lacking.wasm").exists(), "a warning is no refusal: {}", late.err);

    std::fs::write(project.join("plugin.js"), "export const nothing = 1;\n").expect("a plugin");
    let empty = plugin(&project, &path, &["build"]).await;
    assert!(empty.code == Some(1) && empty.err.contains("plugin.js: the plugin exports no tools"), "{}", empty.err);
}

#[tokio::test]
async fn plugin_build_reports_mistake_with_its_place() {
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
    let mut bulkhead = command::bulkhead();
    bulkhead.current_dir(&project).env("PATH", &path).env("RUST_BACKTRACE", "1").args(["plugin", "build"]);
    let built = Said::of(bulkhead.stdin(Stdio::null()).output().await.expect("the command starts"));
    assert_eq!(built.code, Some(1), "{}", built.out);
    let place = "bulkhead: plugin.py:3: tool mute: write a docstring, it is what a model reads to decide whether to call the tool";
    // A slow machine says that it is still at it.
    let without_progress = |said: &str| -> String {
        said.split_inclusive('\n').filter(|line| !line.starts_with("bulkhead: building wrong with ")).collect()
    };
    let said = without_progress(&built.err);
    assert_eq!(said, format!("{place}\n 3 | @tool\n   |  ^^^^\n"), "one line, and the code it is about");
    for other in ["bulkhead_entry", "_tool.py", "/1/", "Stack backtrace"] {
        assert!(!built.err.contains(other), "{other} is no business of the author's: {}", built.err);
    }
    std::fs::write(project.join("plugin.py"), "import bulkhead_plugin\n").expect("a plugin");
    let empty = plugin(&project, &path, &["build"]).await;
    let said = "bulkhead: plugin.py: the plugin has no tool: write `@tool` above a function of plugin.py, or of a module that it imports\n";
    assert_eq!((empty.code, &*without_progress(&empty.err)), (Some(1), said), "a plugin without anything is a mistake");
    assert!(!project.join("wrong.wasm").exists(), "no component of half a plugin");
}

#[tokio::test]
async fn python_build_loads_late_imports_and_names_missing_ones() {
    if place::left_out(&["python"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_with(&tools("python").join("bin"));
    plugin(folder.path(), &path, &["new", "late", "--lang", "python"]).await;
    let project = folder.path().join("late");
    let write = |path: &str, text: &str| std::fs::write(project.join(path), text).expect("a file");
    write(
        "plugin.py",
        "from bulkhead_plugin import tool\n\n@tool\ndef late(text: str) -> str:\n    \"\"\"Imports late.\"\"\"\n    \
         from words import count\n    from importlib import metadata\n    return f'{count(text)} {metadata.__name__}'\n\n\
         import time\nBORN = time.time()\nYEAR = time.localtime().tm_year\nimport random\nDICE = random.Random()\n",
    );
    write(
        "words.py",
        "import importlib\n\ndef count(text):\n    from fractions import Fraction\n    try:\n        import ujson\n    except ImportError:\n        \
         pass\n    return Fraction(len(text), 2) + importlib.import_module('statistics').mean([1, 1])\n\ndef read(name):\n    import no_such_module\n    \
         return importlib.import_module(name)\n",
    );
    let built = plugin(&project, &path, &["build"]).await;
    assert_eq!(built.code, Some(0), "{}", built.err);
    let warnings: Vec<_> = built.err.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 5, "what is optional is not missing: {}", built.err);
    assert!(
        warnings[2]
            .starts_with("warning: plugin.py:11: time.time is read while the plugin is built, and every call sees"),
        "{}",
        built.err
    );
    for (warning, read) in [(3, "plugin.py:12: time.localtime"), (4, "plugin.py:14: the seed of random.Random()")] {
        let said = format!("warning: {read} is read while the plugin is built, and every call sees");
        assert!(warnings[warning].starts_with(&said), "{}", built.err);
    }
    assert!(
        warnings[0].starts_with("warning: words.py:12: no_such_module is imported when a call gets here")
            && warnings[0].contains("No module named 'no_such_module'"),
        "{}",
        built.err
    );
    assert!(warnings[1].starts_with("warning: words.py:13: modules are imported here by names"), "{}", built.err);
    let called = plugin(&project, &path, &["call", "late.wasm", "late", r#"{"text": "abc"}"#]).await;
    assert_eq!((called.code, called.out.trim_end()), (Some(0), "5/2 importlib.metadata"), "{}", called.err);
}

/// A C compiler that keeps what it has made of its library between runs.
fn c() -> Shop {
    let mut shop = Shop::new("c", path_with(&tools("c").join("bin")));
    shop.variables = vec![("ZIG_GLOBAL_CACHE_DIR".to_owned(), tools("c").join("cache").display().to_string())];
    shop
}

#[tokio::test]
async fn c_plugin_is_created_built_and_called() {
    if place::left_out(&["c"]) {
        return;
    }
    whole_way(c(), |_| ()).await;
}

#[tokio::test]
async fn c_plugin_is_served_as_its_table_says() {
    if place::left_out(&["c"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(place::host_binary(), folder.path().join("bulkhead")).expect("a link");
    let mut shop = c();
    shop.find_also(folder.path());
    plugin(folder.path(), &shop.path, &["new", "served", "--lang", "c"]).await;
    let project = folder.path().join("served");
    let built = shop.run(&project, "bulkhead plugin build").await;
    assert_eq!(built.code, Some(0), "{}", built.err);

    let plugins = format!("[[plugin]]\nfile = {:?}\n", project.join("served.wasm"));
    let host = Setup::new().config(&plugins).start().await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let table = std::fs::read_to_string(project.join("tools.json")).expect("a table");
    for tool in serde_json::from_str::<Vec<Value>>(&table).expect("JSON") {
        let listed = page["tools"].as_array().into_iter().flatten().find(|listed| listed["name"] == tool["name"]);
        let listed = listed.unwrap_or_else(|| panic!("no {tool} in {page}"));
        for member in ["description", "inputSchema", "outputSchema", "annotations"] {
            assert_eq!(listed[member], tool[member], "{member} of {tool}");
        }
    }
    let greeting = client.tool("greet", json!({"name": "Zo\u{eb} \"\u{1f600}\""})).await.expect("a greeting");
    assert_eq!(text(&greeting), "Hello, Zo\u{eb} \"\u{1f600}\"!");
    let refused = client.tool("greet", json!({"name": 3})).await.expect("a result");
    assert_eq!(refused["isError"], true, "{refused}");
    let task = client.task("countdown", json!({"seconds": 2})).await;
    client.until_status(&task, "completed").await;
    let counted = client.about("tasks/result", &task).await.expect("a result");
    assert_eq!(counted["structuredContent"], json!({"left": 0, "messages": []}));
}

#[tokio::test]
async fn c_build_names_mistakes_with_their_place() {
    if place::left_out(&["c"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(place::host_binary(), folder.path().join("bulkhead")).expect("a link");
    let mut shop = c();
    shop.find_also(folder.path());
    plugin(folder.path(), &shop.path, &["new", "wrong", "--lang", "c"]).await;
    let project = folder.path().join("wrong");
    let source = std::fs::read_to_string(project.join("plugin.c")).expect("the plugin");
    std::fs::write(project.join("plugin.c"), format!("{source}int wrong(void) {{ return nothing; }}\n"))
        .expect("a file");
    let built = shop.run(&project, "bulkhead plugin build").await;
    let line = source.lines().count() + 1;
    assert!(built.code == Some(1) && built.err.contains(&format!("plugin.c:{line}:26: error:")), "{}", built.err);
    std::fs::write(project.join("plugin.c"), source).expect("a file");
    std::fs::write(project.join("tools.json"), "[{\"name\": \"greet\"}]").expect("a file");
    let built = shop.run(&project, "bulkhead plugin build").await;
    assert!(
        built.code == Some(1) && built.err.contains("tools.json:1:18: missing field `description`"),
        "{}",
        built.err
    );
    assert!(!project.join("wrong.wasm").exists(), "nothing of a build that failed is left");
}

#[tokio::test]
async fn plugin_new_needs_empty_folder_and_plain_name() {
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
async fn plugin_check_reports_refusals_and_warnings() {
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
async fn plugin_dev_serves_changes_and_survives_mistakes() {
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

/// A core module of a toolchain that knows nothing of Bulkhead becomes a plugin.
#[tokio::test]
async fn wrapped_module_is_a_plugin_with_described_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("a file");
    let module = wat::parse_str(
        r#"(module (func (export "acme:units/length@1.0.0#double") (param f64) (result f64)
            local.get 0 local.get 0 f64.add))"#,
    )
    .expect("a module");
    write("units.core.wasm", &module);
    write(
        "units.wit",
        b"package acme:units@1.0.0;
        interface length {
            /// Twice as long.
            double: func(metres: f64) -> f64;
        }
        world library { export length; }",
    );
    write("manifest.toml", b"name = \"units\"\ndescription = \"Lengths.\"\n");
    let nowhere = Path::new("/nowhere");
    let wrap = ["wrap", "units.core.wasm", "--manifest", "manifest.toml", "--wit", "units.wit", "-o", "units.wasm"];
    let untyped = plugin(folder.path(), nowhere, &wrap).await;
    assert_eq!(untyped.code, Some(4), "{}", untyped.err);
    assert!(untyped.err.contains("without types") && untyped.err.contains("--world"), "{}", untyped.err);
    assert!(!folder.path().join("units.wasm").exists(), "nothing of what is refused is written");

    let wrapped = plugin(folder.path(), nowhere, &[&wrap[..], &["--world", "library"]].concat()).await;
    assert_eq!((wrapped.code, wrapped.out.trim_end()), (Some(0), "units.wasm"), "{}", wrapped.err);
    std::fs::remove_file(folder.path().join("units.wit")).expect("the component is to stand alone");
    let inspected = plugin(folder.path(), nowhere, &["inspect", "units.wasm", "--json"]).await;
    let report: Value = serde_json::from_str(&inspected.out).expect("JSON");
    assert_eq!(report["name"], "units", "{report}");
    assert_eq!(report["tools"][0]["description"], "Twice as long.", "{report}");
    let called = ["call", "units.wasm", "acme_units_length_double", r#"{"metres": 21}"#];
    let called = plugin(folder.path(), nowhere, &called).await;
    assert!(called.code == Some(0) && called.out.contains("42"), "{} {}", called.out, called.err);
}
