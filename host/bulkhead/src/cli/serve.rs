//! `bulkhead serve`.

use std::process::ExitCode;

use bulkhead_assembly::{ConfigCheck, HostStartup, Origin, ServiceManager, check, serve};
use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_config::{Flags, Insecure, Problems};
use bulkhead_console::{logging, print_error, print_line, tell_address};
use clap::Args;
use serde_json::json;

use super::exit_code::exit_code;
use super::source_arguments::SourceArguments;

/// Serve MCP over HTTP.
///
/// Prints one line on stdout when it serves: `bulkhead: listening on http://ADDR:PORT/mcp`. Logs go to stderr. GET
/// /healthz and GET /readyz answer without authentication. SIGTERM and SIGINT drain: no new calls, running ones get
/// server.drain_ms, then exit code 0.
///
/// Without any token or [[auth.issuer]] only loopback addresses may be listened on, and everyone is the requestor
/// `local`. Once a token was made, every request needs one, unless auth.anonymous_loopback lets clients on this machine
/// in. Other addresses also need TLS: [server] tls or trusted_proxies.
#[derive(Args, Debug)]
#[command(after_long_help = bulkhead_config::keys_help())]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) sources: SourceArguments,
    /// The address to listen on; port 0 picks a free one [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<String>,
    /// Listen for other machines without TLS: an eavesdropper can read tokens, calls and results
    #[arg(long)]
    pub(crate) insecure_allow_plaintext: bool,
    /// Listen for other machines without authentication: every client that can connect may do everything
    #[arg(long)]
    pub(crate) insecure_allow_anonymous: bool,
    /// Hold the tasks that an earlier host left, each until `bulkhead tasks release`; new ones run
    #[arg(long, conflicts_with = "check")]
    pub(crate) hold_tasks: bool,
    /// Check the configuration and every plugin, say what is wrong, and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// What --check found as one JSON object instead of text
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
}

pub(crate) async fn run(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    let insecure =
        Insecure { plaintext: arguments.insecure_allow_plaintext, anonymous: arguments.insecure_allow_anonymous };
    let flags = Flags { listen: arguments.listen, insecure, ..arguments.sources.flags() };
    let origin = Origin { file: arguments.sources.config, flags, add_grants: None };
    let (config, digest) = match origin.read() {
        Err(error) if arguments.json => return Ok(unchecked(&error)),
        read => read?,
    };
    let level = logging::start(&config.log);
    if arguments.check {
        return match check(&config).await {
            Err(error) if arguments.json => Ok(unchecked(&error)),
            checked => Ok(show(&checked?, arguments.json)),
        };
    }
    let manager = ServiceManager::of_environment();
    let hold_tasks = arguments.hold_tasks;
    serve(HostStartup { origin, config, digest, level, observe_calls: None, manager, hold_tasks }, tell_address)
        .await?;
    Ok(ExitCode::SUCCESS)
}

fn show(checked: &ConfigCheck, as_json: bool) -> ExitCode {
    let ConfigCheck { tools, problems, warnings } = checked;
    let is_valid = problems.is_empty();
    if as_json {
        print_line(json!({ "valid": is_valid, "tools": tools, "problems": problems, "warnings": warnings }));
    } else {
        warnings.iter().for_each(|warning| print_error(format_args!("warning: {warning}")));
        problems.iter().for_each(print_error);
        if is_valid {
            print_line(format_args!("the configuration is valid; {tools} tools would be served"));
        }
    }
    if is_valid { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) }
}

/// The same of what keeps plugins from being looked at.
fn unchecked(error: &anyhow::Error) -> ExitCode {
    let problems = match error.downcast_ref::<Problems>() {
        Some(Problems(found)) => found.iter().map(ToString::to_string).collect(),
        None => vec![format!("{error:#}")],
    };
    show(&ConfigCheck { problems, ..ConfigCheck::default() }, true);
    ExitCode::from(exit_code(error))
}
