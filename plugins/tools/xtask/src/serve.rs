//! `cargo xtask run`: a host with the sample plugins, from nothing to a client line to paste.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::{guests, layout, steps};

/// What `cargo xtask run --help` prints. The arguments are read by hand: a parser would be compiled while a visitor
/// waits.
pub const HELP: &str = "\
Build guests and host, then serve the sample plugins.

Usage: cargo xtask run [OPTIONS] [-- ARGUMENTS]

Arguments:
  [ARGUMENTS]...           Passed on to `bulkhead serve`

Options:
      --listen ADDRESS     The address to listen on [default: 127.0.0.1:8808]
      --dashboard ADDRESS  The address of the dashboard [default: 127.0.0.1:8810]
      --release            Build the host with the release profile: it serves several times as fast, and compiles for longer
  -h, --help               Print help
";

/// Where to listen, and how to build.
#[derive(Debug, PartialEq)]
pub struct Options {
    listen: String,
    dashboard: String,
    release: bool,
    /// Passed on to `bulkhead serve`.
    arguments: Vec<String>,
}

impl Options {
    /// Reads what stands behind `cargo xtask run`; `None` is who wants help.
    ///
    /// # Errors
    /// There is no such option, or its value is missing.
    pub fn parse(arguments: &[String]) -> anyhow::Result<Option<Self>> {
        let mut options = Self {
            listen: "127.0.0.1:8808".to_owned(),
            dashboard: "127.0.0.1:8810".to_owned(),
            release: false,
            arguments: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let named = argument.split_once('=');
            let name = named.map_or(argument.as_str(), |(name, _)| name);
            let mut value = || {
                let value = named.map(|(_, value)| value.to_owned()).or_else(|| rest.next().cloned());
                value.with_context(|| format!("{name} needs an address"))
            };
            match argument.as_str() {
                "--" => {
                    options.arguments = rest.cloned().collect();
                    break;
                }
                "-h" | "--help" => return Ok(None),
                "--release" => options.release = true,
                _ if name == "--listen" => options.listen = value()?,
                _ if name == "--dashboard" => options.dashboard = value()?,
                _ => bail!("there is no argument `{argument}`; what `bulkhead serve` takes stands behind `--`"),
            }
        }
        Ok(Some(options))
    }
}

/// What Cargo is given to build the host that a visitor waits for: that of the tests, so that the second command finds
/// it built.
pub const HOST: [&str; 4] = ["build", "--workspace", "--bin", "bulkhead"];

/// The guests that a visitor wants to see, with what their tools are.
const SAMPLES: [(&str, &str); 6] = [
    ("text", "echo, word_count, diff"),
    ("primes", "count_primes"),
    ("csv", "csv_profile (reads /data, which is plugins/samples/csv/testdata)"),
    ("http", "http_get (may reach https://example.com)"),
    ("desk", "book_trip, summarize, wait"),
    ("colour", "prism_colour_…: a library that knows nothing of this host"),
];

/// Builds everything and becomes the host.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let samples = SAMPLES.map(|(name, _)| name.to_owned());
    let mut cargo = steps::cargo();
    cargo.args(HOST).arg("--target-dir").arg(layout::target());
    // A first look compiles once: what only helps the next compilation is left out.
    cargo.env("CARGO_INCREMENTAL", "0");
    if options.release {
        cargo.arg("--release");
    }
    // The guests are linked one after the other, and leave a processor to the host.
    std::thread::scope(|scope| {
        let host = scope.spawn(move || steps::run("build the host", &mut cargo));
        let built = guests::build(&samples);
        host.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        built.map(drop)
    })?;

    let config = write_config(&options.dashboard)?;
    let data = layout::target().join("bulkhead-data");
    explain(&options.listen, &config, &data);
    if !options.release {
        eprintln!("This is a debug build; `cargo xtask run --release` serves several times as fast.");
    }
    let host = layout::target().join(if options.release { "release" } else { "debug" }).join("bulkhead");
    print_login_link(&host, &data)?;
    // The host takes this process's place, so that Ctrl-C and SIGTERM reach it and its exit code is ours.
    // Pinned, because what was just built is what a visitor wants to see, whatever the data directory remembers.
    let pinned =
        SAMPLES.iter().flat_map(|(name, _)| ["--plugin".into(), layout::components().join(format!("{name}.wasm"))]);
    let failure = Command::new(&host)
        .arg("serve")
        .args(pinned)
        .args(["--listen", &options.listen])
        .arg("--config")
        .arg(&config)
        .arg("--data")
        .arg(&data)
        .args(&options.arguments)
        .current_dir(layout::root())
        .exec();
    Err(failure).with_context(|| format!("cannot start {}", host.display()))
}

/// Leaves a process behind that asks the host for a login link once it is there, and prints it. It goes when the host
/// does.
fn print_login_link(host: &Path, data: &Path) -> anyhow::Result<()> {
    const ASK: &str = r#"
        for _ in $(seq 200); do
            kill -0 "$1" || exit
            if link=$("$2" dashboard login --data "$3"); then
                printf '\nDashboard, logged in as an operator (once, within ten minutes):\n  %s\n\n' "$link" >&3
                exit
            fi
            sleep 0.3
        done 3>&2 2> /dev/null &"#;
    let mut shell = Command::new("sh");
    // The number of this process is that of the host in a moment.
    shell.args(["-c", ASK, "sh"]).arg(std::process::id().to_string()).arg(host).arg(data);
    let status = shell.stdin(Stdio::null()).status().context("cannot start a shell")?;
    anyhow::ensure!(status.success(), "the shell failed with {status}");
    Ok(())
}

/// The sample configuration: the dashboard, one entry a plugin, and grants for the two that can do nothing without.
fn write_config(dashboard: &str) -> anyhow::Result<PathBuf> {
    let mut text = String::from("# Written by `cargo xtask run`, each time anew.\n");
    writeln!(text, "\n[dashboard]\nlisten = {dashboard:?}")?;
    for (name, _) in SAMPLES {
        let file = layout::components().join(format!("{name}.wasm"));
        writeln!(text, "\n[[plugin]]\nname = {name:?}\nfile = {:?}", file.display().to_string())?;
        match name {
            "csv" => {
                let folder = layout::guest("csv")?.join("testdata").display().to_string();
                writeln!(
                    text,
                    "[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/data\", write = false }}]"
                )?;
            }
            "http" => writeln!(text, "[plugin.grants]\nhttp = [\"https://example.com\"]")?,
            _ => {}
        }
    }
    let path = layout::target().join("xtask-run.toml");
    std::fs::write(&path, text)?;
    Ok(path)
}

fn explain(listen: &str, config: &Path, data: &Path) {
    eprintln!("\nServing with {}, data in {}:", config.display(), data.display());
    for (name, tools) in SAMPLES {
        eprintln!("  {name:7} {tools}");
    }
    eprintln!(
        r#"
Look at it with MCP Inspector; in its page choose Transport Type `Streamable HTTP` and URL `http://{listen}/mcp`:
  npx @modelcontextprotocol/inspector

Or with curl:
  MCP=http://{listen}/mcp
  J='content-type: application/json'; A='accept: application/json, text/event-stream'; V='mcp-protocol-version: 2025-11-25'
  S=$(curl -si $MCP -H "$J" -H "$A" -d '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"curl","version":"0"}}}}}}' | tr -d '\r' | sed -n 's/^mcp-session-id: //Ip')
  curl -s $MCP -H "$J" -H "$A" -H "$V" -H "mcp-session-id: $S" -d '{{"jsonrpc":"2.0","method":"notifications/initialized"}}'
  curl -s $MCP -H "$J" -H "$A" -H "$V" -H "mcp-session-id: $S" -d '{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"csv_profile","arguments":{{"path":"/data/airports.csv"}},"task":{{"ttl":600000}}}}}}'
  curl -s $MCP -H "$J" -H "$A" -H "$V" -H "mcp-session-id: $S" -d '{{"jsonrpc":"2.0","id":3,"method":"tasks/list"}}'
"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_the_command_line() {
        let options = |listen: &str, dashboard: &str, release: bool, arguments: &[&str]| Options {
            listen: listen.to_owned(),
            dashboard: dashboard.to_owned(),
            release,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        };
        let local = "127.0.0.1:8808";
        let pages = "127.0.0.1:8810";
        for (line, expected) in [
            ("", Ok(Some(options(local, pages, false, &[])))),
            ("--release --listen [::1]:1", Ok(Some(options("[::1]:1", pages, true, &[])))),
            ("--listen=:1 --dashboard=:2", Ok(Some(options(":1", ":2", false, &[])))),
            (
                "--dashboard :2 -- --listen :3 --help",
                Ok(Some(options(local, ":2", false, &["--listen", ":3", "--help"]))),
            ),
            ("--release --help", Ok(None)),
            ("-h", Ok(None)),
            ("--listen", Err("--listen needs an address")),
            (
                "--release=yes",
                Err("there is no argument `--release=yes`; what `bulkhead serve` takes stands behind `--`"),
            ),
            ("text", Err("there is no argument `text`; what `bulkhead serve` takes stands behind `--`")),
        ] {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let parsed = Options::parse(&arguments).map_err(|error| error.to_string());
            assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
        }
    }
}
