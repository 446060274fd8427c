//! `bulkhead plugin test`: the calls of a project's `tests/*.toml`, against its component, under every limit of a host.
//!
//! Owns the order of things and the report. Must not let anything of a test leave the machine. Invariant: a test passes
//! only if all that its file says came true, and nothing happened that it does not say: no request that nobody
//! expected, no question without an answer.

mod compare;
mod format;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bulkhead_assembly::{SystemClock, compile_cache, host, sources};
use bulkhead_author::Project;
use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_calls::Executor as _;
use bulkhead_calls::policy::DirGrant;
use bulkhead_calls::secrets::Secret;
use bulkhead_config::{Config, Flags, PluginConfig, keyvalue_defaults};
use bulkhead_console::{logging, print_error, print_line, progress};
use bulkhead_domain::Json;
use bulkhead_domain::clock::SharedClock;
use bulkhead_protocol::output_json;
use bulkhead_runtime::{LoadError, Sandbox};
use clap::Args;
use serde::Serialize;
use url::Url;

use self::compare::Ended;
use self::format::{Case, TestFile};
use self::world::{RecordedWorld, StandingClock};
pub(super) use self::world::{WithSecrets, secret};
use super::call::{self, Alone, CallWorld, End, Observed, usage};
use super::input_answers::{Answers, Unanswered};
use super::inspect::refuse;
use super::source_files;

/// Run the tests of a plugin against its built component.
///
/// The tests are the files tests/*.toml of the project. Each [[case]] calls a tool and says what must come of it:
/// `text`, `text_contains`, `structured`, `result` (all of it), `contains` (a part) or `error`. A file says in which
/// world its cases run: [settings], [kv] (what is kept), [secrets.NAME], [[directories]], `clock` (which stands) and
/// [[http]], recorded answers by method and URL. Nothing leaves the machine: a request without an answer fails its
/// case, and so does a question without one in `answers`.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Exit codes: 0, all passed; 1, a case failed; 2, a test file is wrong, or there is none; 4, a host refuses \
    the component.\n\n\
    Examples:\n  \
    bulkhead plugin build && bulkhead plugin test\n  \
    bulkhead plugin test target/plugins/http.wasm --tests plugins/samples/http/tests"
)]
pub struct TestArguments {
    /// The project's folder, or a component
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    target: PathBuf,
    /// The folder with the tests [default: DIR/tests, or tests beside FILE]
    #[arg(long, value_name = "DIR")]
    tests: Option<PathBuf>,
    /// Take limits from a configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What came of one case.
#[derive(Debug, Serialize)]
struct CaseReport {
    file: String,
    name: String,
    passed: bool,
    ms: u64,
    failures: Vec<String>,
}

pub(super) async fn run(arguments: TestArguments) -> anyhow::Result<ExitCode> {
    logging::start_for_a_person();
    let (component, folder) = match locate(&arguments) {
        Ok(paths) => paths,
        Err(error) => return Ok(usage(&error)),
    };
    let newer_source = newer_source(&arguments, &component, &folder);
    let files = match read_files(&folder) {
        Ok(files) => files,
        Err(error) => return Ok(usage(&error)),
    };
    let flags = Flags { plugins: vec![component.clone()], ..Flags::default() };
    let config = sources::load(arguments.config.as_deref(), &flags)?;
    let scratch = tempfile::tempdir().context("there is no room for a temporary folder")?;
    let sandbox = host::sandbox(&config, scratch.path(), compile_cache::of_user(), Some(Arc::new(Alone)))?;
    // Folders of a test are named from the project's.
    let root = folder.parent().unwrap_or(&folder);
    let mut reports = Vec::new();
    for (path, file) in &files {
        let what = format!("compiling {}", component.display());
        let loading = Suite::load(&sandbox, &config, root, file);
        let suite = match progress::during(&what, loading).await {
            Ok(Ok(suite)) => suite,
            Ok(Err(refused)) => return Ok(refuse(&refused)),
            Err(error) => return Ok(usage(&error.context(path.display().to_string()))),
        };
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        for case in &file.cases {
            let begin = Instant::now();
            let failures = suite.run(case).await.with_context(|| format!("{name}: {}", case.name))?;
            let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            let file = name.clone();
            let name = case.name.clone();
            let report = CaseReport { file, name, passed: failures.is_empty(), ms, failures };
            if !arguments.json {
                print_line(as_text(&report));
            }
            reports.push(report);
        }
    }
    Ok(finish(&component, newer_source.as_deref(), &reports, arguments.json)?)
}

/// A source of the project that the component is older than. The author is told: what is tested is not what they have
/// just written.
fn newer_source(arguments: &TestArguments, component: &Path, tests: &Path) -> Option<PathBuf> {
    let project = &arguments.target;
    // A component alone has no folder of sources; one that cannot be read is no reason not to test what is built.
    let newer = source_files::newer_than(component, project, tests).ok().flatten();
    if let Some(source) = &newer {
        let folder = if project == Path::new(".") { String::new() } else { format!(" {}", project.display()) };
        print_error(format_args!(
            "{} is newer than {}, which is tested as it is: `bulkhead plugin build{folder}` makes it anew",
            shown(source),
            shown(component)
        ));
    }
    newer
}

/// As short as it can be typed.
fn shown(path: &Path) -> std::path::Display<'_> {
    path.strip_prefix("./").unwrap_or(path).display()
}

fn finish(
    component: &Path,
    newer_source: Option<&Path>,
    reports: &[CaseReport],
    as_json: bool,
) -> serde_json::Result<ExitCode> {
    let failed = reports.iter().filter(|report| !report.passed).count();
    let passed = reports.len() - failed;
    if as_json {
        let report = serde_json::json!({
            "component": component, "newer_source": newer_source, "passed": passed, "failed": failed, "cases": reports,
        });
        print_line(serde_json::to_string_pretty(&report)?);
    } else {
        print_line(format_args!("{} tests: {passed} passed, {failed} failed", reports.len()));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

fn as_text(report: &CaseReport) -> String {
    let CaseReport { file, name, passed, ms, failures } = report;
    let verdict = if *passed { "ok  " } else { "FAIL" };
    let mut lines = vec![format!("{verdict} {file}: {name} ({ms} ms)")];
    lines.extend(failures.iter().flat_map(|failure| failure.lines()).map(|line| format!("     {line}")));
    lines.join("\n")
}

/// Where the component and the tests are.
fn locate(arguments: &TestArguments) -> anyhow::Result<(PathBuf, PathBuf)> {
    let target = &arguments.target;
    let (component, folder) = if target.is_dir() {
        let project = Project::find(target)?;
        (target.join(format!("{}.wasm", project.name)), target.clone())
    } else {
        (target.clone(), target.parent().unwrap_or(Path::new("")).to_owned())
    };
    anyhow::ensure!(
        component.is_file(),
        "there is no component {}: `bulkhead plugin build` makes it",
        component.display()
    );
    Ok((component, arguments.tests.clone().unwrap_or_else(|| folder.join("tests"))))
}

fn read_files(folder: &Path) -> anyhow::Result<Vec<(PathBuf, TestFile)>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("the tests in {} cannot be read", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    anyhow::ensure!(!paths.is_empty(), "there are no tests in {}: expected *.toml with [[case]]", folder.display());
    paths.into_iter().map(|path| Ok((path.clone(), format::read(&path)?))).collect()
}

/// A test file with the plugin loaded as the file wants it.
struct Suite<'a> {
    sandbox: &'a Arc<Sandbox>,
    file: &'a TestFile,
    plugin: PluginConfig,
    secrets: Vec<Secret>,
}

impl<'a> Suite<'a> {
    /// `Ok(Err(_))`: the component itself is refused.
    async fn load(
        sandbox: &'a Arc<Sandbox>,
        config: &Config,
        root: &Path,
        file: &'a TestFile,
    ) -> anyhow::Result<Result<Self, LoadError>> {
        let plugin = config.plugins.iter().find(|plugin| plugin.pinned).cloned();
        let mut plugin = plugin.context("the component is not in the configuration")?;
        let source = &mut plugin.policy.source;
        source.config.extend(file.settings.iter().map(|(key, value)| (key.clone(), Json::new(value.to_string()))));
        if file.kv.is_some() {
            source.grants.keyvalue.get_or_insert_with(keyvalue_defaults);
        }
        for directory in &file.directories {
            let host = root.join(&directory.host);
            anyhow::ensure!(host.is_dir(), "directories: there is no folder {}", host.display());
            let grant = DirGrant { host, guest: directory.guest.clone(), write: directory.write, bytes_max: None };
            source.grants.directories.push(grant);
        }
        // What has an answer is granted, as far as the manifest asks for it.
        let recorded = file.http.iter().chain(file.cases.iter().flat_map(|case| &case.http));
        for url in recorded.map(|recorded| &recorded.url) {
            let parsed: Url = url.parse().with_context(|| format!("http: {url:?} is not an absolute URL"))?;
            let origin = parsed.origin().ascii_serialization();
            source.grants.http.push(origin.parse().with_context(|| format!("http: {url:?}"))?);
        }
        sources::refuse_overlaps(std::slice::from_ref(&plugin))?;
        let secrets = world::secrets(&file.secrets)?;
        match sandbox.load(sources::plugin_source(plugin.clone(), &Arc::default())).await {
            Ok(loaded) => {
                sandbox.publish(vec![loaded]);
                Ok(Ok(Self { sandbox, file, plugin, secrets }))
            }
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Everything in which a case differs from what is expected.
    async fn run(&self, case: &Case) -> anyhow::Result<Vec<String>> {
        let catalog = self.sandbox.catalog();
        let Some(tool) = call::find_tool(&catalog, &case.tool) else {
            return Ok(vec![call::no_tool(&catalog, &case.tool)]);
        };
        let unix_ms = case.clock.or(self.file.clock).map(format::unix_ms).transpose()?;
        let world = Arc::new(RecordedWorld::new(unix_ms, &case.http, &self.file.http)?);
        let clock: SharedClock = match unix_ms {
            Some(ms) => Arc::new(StandingClock(ms)),
            None => Arc::new(SystemClock::default()),
        };
        let inner = bulkhead_tasks::in_memory(clock);
        let limits = self.plugin.policy.source.grants.keyvalue.clone().unwrap_or_else(keyvalue_defaults);
        for (key, value) in self.file.kv.iter().flatten() {
            let kept = inner.set(&tool.plugin.name, &limits, key.clone(), value.clone().into_bytes(), None, None).await;
            kept.with_context(|| format!("kv.{key}"))?;
        }
        let arguments = serde_json::to_string(&case.arguments)?;
        let mut failures = Vec::new();
        let ended = if let Err(wrong) = call::check(tool, &arguments) {
            Ended::Failed(format!("{wrong:#}"))
        } else {
            let services = Arc::new(WithSecrets { inner, secrets: self.secrets.clone() });
            let outside = Some(world.clone() as _);
            let running = self.sandbox.start(call::spec(tool, &arguments, CallWorld { services, outside })?)?;
            let mut answers = Answers::given(case.answers.clone());
            let mut observe = |observed: Observed| {
                if let Observed::GrantDenied(denial) = observed {
                    failures.push(format!(
                        "the plugin wanted what it has not got: {denial}; a request needs an [[http]] answer here and a destination \
                         in the manifest's grants.http"
                    ));
                }
            };
            match call::converse(running, &mut answers, &mut observe).await {
                Ok(End::Finished(Ok(output))) => Ended::Result(output_json(&output)?),
                Ok(End::Finished(Err(error))) => Ended::Failed(call::explain(&error)),
                Ok(End::Unanswered(Unanswered(why))) => {
                    failures.push(why);
                    return Ok(failures);
                }
                Err(wrong) => {
                    failures.push(format!("{wrong:#}"));
                    return Ok(failures);
                }
            }
        };
        failures.extend(world.problems());
        failures.extend(compare::differences(&case.expect, &ended));
        Ok(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_case_shows_what_differs_below_its_name() {
        let report = CaseReport {
            file: "tests/greet.toml".to_owned(),
            name: "greets".to_owned(),
            passed: false,
            ms: 3,
            failures: vec!["the text differs (- expected, + found):\n  - a\n  + b".to_owned()],
        };
        let text = "FAIL tests/greet.toml: greets (3 ms)\n     the text differs (- expected, + found):\n       - a\n       + b";
        assert_eq!(as_text(&report), text);
    }
}
