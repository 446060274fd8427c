//! Builds the workspace's test programs and runs them.
//!
//! Owns how many run at once, and what is known of their times: `test`'s own runner says what each test took. Must not
//! know what a test needs. Invariant: every test program that Cargo builds is run, and the first that fails ends the
//! run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use xtask::steps::{self, Times};
use xtask::{layout, serve};

use crate::lint;

/// The program whose tests start hosts: most of its time is theirs, and much of it is spent waiting for them.
const INTEGRATION: &str = "integration";

/// Tests of `integration` that run at once, for each processor.
const INTEGRATION_TESTS_PER_PROCESSOR: usize = 2;

/// A test program that Cargo has built.
struct TestProgram {
    /// The package and, where it has several, the target.
    title: String,
    executable: PathBuf,
    /// Where Cargo would run it: the package's folder.
    folder: PathBuf,
}

/// What the tests of one program took, by their names.
type TestTimes = Vec<(String, Duration)>;

/// All test programs of the workspace, and the host that they start.
pub(crate) struct TestPrograms {
    units: Vec<TestProgram>,
    integration: TestProgram,
}

impl TestPrograms {
    /// Builds them; with `lints`, what is built is also linted and documented.
    pub(crate) fn build(lints: bool) -> anyhow::Result<Self> {
        let mut cargo = cargo(lints)?;
        cargo.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
        let title = if lints { "the tests, with lints and documentation" } else { "the tests" };
        eprintln!("xtask: {title}");
        let started = Instant::now();
        let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
        let stdout = child.stdout.take().context("cargo has no output")?;
        let mut programs = Vec::new();
        for line in BufReader::new(stdout).lines() {
            programs.extend(test_program(&line?)?);
        }
        let (status, times) = steps::wait(&mut child, started)?;
        ensure!(status.success(), "{title}: failed with {status}");
        eprintln!("xtask: {title}: {:.1} s", times.wall.as_secs_f64());
        steps::note(title, times)?;
        ensure_host_is_shared(lints)?;
        let at = programs.iter().position(|program| program.title == INTEGRATION);
        let integration = programs.swap_remove(at.context("cargo builds no program `integration`")?);
        programs.sort_by(|one, other| one.title.cmp(&other.title));
        Ok(Self { units: programs, integration })
    }

    /// Runs them with these arguments for each. `environment`: variables that they get.
    pub(crate) fn run(&self, arguments: &[String], environment: &[(&str, String)]) -> anyhow::Result<()> {
        let prepare = |program: &TestProgram| -> anyhow::Result<Command> {
            let mut command = program.command(arguments)?;
            command.envs(environment.iter().map(|(key, value)| (key, value)));
            Ok(command)
        };
        run_units(&self.units, prepare)?;
        run_integration(INTEGRATION, prepare(&self.integration)?, arguments)
    }

    /// Runs the integration tests with these parts in their names again, for hosts whose stores are in PostgreSQL.
    pub(crate) fn run_on_postgres(&self, names: &[&str], environment: &[(&str, String)]) -> anyhow::Result<()> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut command = self.integration.command(&names)?;
        command.envs(environment.iter().map(|(key, value)| (key, value))).env("XTASK_STORE", "postgres");
        run_integration("integration on PostgreSQL", command, &names)
    }
}

/// Runs the integration tests and notes what each took.
fn run_integration(title: &str, mut command: Command, arguments: &[String]) -> anyhow::Result<()> {
    if !arguments.iter().any(|argument| argument.starts_with("--test-threads")) {
        let threads = processors() * INTEGRATION_TESTS_PER_PROCESSOR;
        command.arg(format!("--test-threads={threads}"));
    }
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| title.to_owned())?;
    let stdout = child.stdout.take().context("a test program has no output")?;
    let mut tests = TestTimes::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        tests.extend(test_time(&line));
        println!("{line}");
    }
    let (status, times) = steps::wait(&mut child, started)?;
    note(title, times, &tests, |name| name.split("::").next().unwrap_or(name).to_owned())?;
    ensure!(status.success(), "{title}: failed with {status}");
    Ok(())
}

/// Runs the tests in documentation, which Cargo alone can; of what was built with lints.
pub(crate) fn run_documentation_tests() -> anyhow::Result<()> {
    let mut cargo = cargo(true)?;
    cargo.args(["test", "--workspace", "--doc"]);
    steps::run("the tests in documentation", &mut cargo)
}

/// Looks whether the host that was built with the tests is the one of `cargo xtask run`: nothing is left for Cargo to
/// compile.
fn ensure_host_is_shared(lints: bool) -> anyhow::Result<()> {
    let mut cargo = cargo(lints)?;
    let messages = steps::output(cargo.args(serve::HOST).args(["--message-format", "json-render-diagnostics"]))?;
    let mut compiled = BTreeSet::new();
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line).context("cargo's messages")?;
        if message["reason"] == "compiler-artifact" && message["fresh"] == false {
            compiled.insert(message["target"]["name"].as_str().unwrap_or_default().to_owned());
        }
    }
    ensure!(
        compiled.is_empty(),
        "`cargo xtask run` compiles what the tests have compiled with other features, {}: let tests/Cargo.toml ask for the features \
         that tests of other packages ask for",
        Vec::from_iter(compiled).join(", ")
    );
    Ok(())
}

fn cargo(lints: bool) -> anyhow::Result<Command> {
    let mut cargo = steps::cargo();
    if lints {
        lint::apply(&mut cargo)?;
    }
    Ok(cargo)
}

/// The test program that a message of Cargo names.
fn test_program(message: &str) -> anyhow::Result<Option<TestProgram>> {
    let message: serde_json::Value = serde_json::from_str(message).context("cargo's messages")?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let (Some(executable), true) = (message["executable"].as_str(), is_test) else { return Ok(None) };
    let manifest = PathBuf::from(message["manifest_path"].as_str().context("an artifact without a manifest")?);
    let folder = manifest.parent().context("a manifest without a folder")?.to_owned();
    let title = message["target"]["name"].as_str().context("an artifact without a name")?.to_owned();
    Ok(Some(TestProgram { title, executable: executable.into(), folder }))
}

impl TestProgram {
    fn command(&self, arguments: &[String]) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.executable);
        command.args(arguments).args(["-Zunstable-options", "--report-time"]);
        // The runner says what each test took where it is asked for what is not stable yet.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        // Tests of macros are linked with the compiler's libraries, which Cargo names in the same way.
        let libraries = steps::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
        command.env("LD_LIBRARY_PATH", libraries.trim());
        Ok(command)
    }
}

/// Runs as many at once as there are processors; what one prints is shown when it has ended.
fn run_units(
    programs: &[TestProgram],
    prepare: impl Fn(&TestProgram) -> anyhow::Result<Command> + Sync,
) -> anyhow::Result<()> {
    let waiting = Mutex::new(programs.iter());
    let next = || waiting.lock().ok()?.next();
    let work = || -> anyhow::Result<()> {
        while let Some(program) = next() {
            if let Err(error) = run_unit(program, prepare(program)?) {
                // Nothing further is begun.
                while next().is_some() {}
                return Err(error);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors()).map(|_| scope.spawn(work)).collect();
        let outcomes = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        outcomes.collect()
    })
}

fn run_unit(program: &TestProgram, mut command: Command) -> anyhow::Result<()> {
    let path = layout::target().join(format!("{}.output", program.title));
    let file = std::fs::File::create(&path).with_context(|| format!("{}", path.display()))?;
    let started = Instant::now();
    let mut child = command.stdout(file.try_clone()?).stderr(file).spawn().with_context(|| program.title.clone())?;
    let (status, times) = steps::wait(&mut child, started)?;
    let printed = std::fs::read(&path)?;
    let printed = String::from_utf8_lossy(&printed);
    if !printed.contains("running 0 tests") {
        println!("{}:\n{printed}", program.title);
    }
    std::fs::remove_file(&path)?;
    if !status.success() {
        bail!("the unit tests of {}: failed with {status}", program.title);
    }
    let tests: TestTimes = printed.lines().filter_map(test_time).collect();
    note(&program.title, times, &tests, |_| program.title.clone())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a line of the runner says of a test: `test NAME ... ok <0.123s>`.
fn test_time(line: &str) -> Option<(String, Duration)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.rsplit_once('<')?.1.strip_suffix("s>")?;
    let name = name.split(" - ").next().unwrap_or(name);
    Some((name.to_owned(), Duration::from_secs_f64(seconds.parse().ok()?)))
}

/// Writes a program's times, and those of its tests and of the modules that `module` puts them into.
fn note(title: &str, times: Times, tests: &TestTimes, module: impl Fn(&str) -> String) -> anyhow::Result<()> {
    steps::note(&format!("tests: {title}"), times)?;
    let mut lines = String::new();
    let mut modules = BTreeMap::<String, Duration>::new();
    for (name, time) in tests {
        writeln!(lines, "{title}::{name}\t{:.2}", time.as_secs_f64())?;
        *modules.entry(module(name)).or_default() += *time;
    }
    steps::append("tests", &lines)?;
    let mut lines = String::new();
    for (module, time) in modules {
        writeln!(lines, "{module}\t{:.1}", time.as_secs_f64())?;
    }
    steps::append("modules", &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_tests_are_read_from_the_runner() {
        let time = |line: &str| test_time(line).map(|(name, time)| (name, time.as_millis()));
        assert_eq!(time("test a::b ... ok <1.250s>"), Some(("a::b".to_owned(), 1_250)));
        assert_eq!(time("test a - should panic ... ok <0.001s>"), Some(("a".to_owned(), 1)));
        assert_eq!(time("test a::b ... FAILED <0.010s>"), Some(("a::b".to_owned(), 10)));
        assert_eq!(time("test a::b ... ignored"), None);
        assert_eq!(time("running 3 tests"), None);
    }

    #[test]
    fn only_test_programs_are_taken_from_the_messages_of_cargo() {
        let message = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","target":{{"name":"a"}},"profile":{{"test":{test}}},
                    "executable":"/t/a-1"}}"#
            )
        };
        let program = test_program(&message(true)).unwrap().unwrap();
        assert_eq!((&*program.title, program.folder), ("a", PathBuf::from("/a")));
        assert!(test_program(&message(false)).unwrap().is_none());
        assert!(test_program(r#"{"reason":"build-finished","success":true}"#).unwrap().is_none());
    }
}
