//! The command line's words. These names are a contract; the help is where people learn them.

use std::path::PathBuf;

use bulkhead_plugins::sources::Source;
use clap::{Args, Parser, Subcommand as ClapSubcommand};

use super::audit::AuditCommand;
use super::far::FarArguments;
use super::limits::LimitsArguments;
use super::operate::{StoreCommand, TenantCommand};
use super::running::HostCommand;
use super::secrets::SecretCommand;
use super::tasks::TasksCommand;
use super::tokens::TokenCommand;
use super::top::TopArguments;
use super::values::{OnOff, duration_ms, ratio, share};

/// A build with debug assertions says so: it is slower, and a test can end it at a crash point.
#[cfg(not(debug_assertions))]
const VERSION: &str = env!("CARGO_PKG_VERSION");
#[cfg(debug_assertions)]
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (debug build)");

/// A WebAssembly plugin host for sandboxed MCP task tools.
#[derive(Debug, Parser)]
#[command(
    name = "bulkhead",
    version = VERSION,
    max_term_width = 120,
    disable_help_subcommand = true,
    help_template = super::help::of_program(),
    after_help = "Examples:\n  \
        bulkhead serve --plugins target/plugins\n  \
        bulkhead plugin call target/plugins/text.wasm echo '{\"text\": \"hello\"}'\n  \
        bulkhead token create --requestor alice\n  \
        bulkhead tasks list --status running\n  \
        bulkhead top"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

#[derive(Debug, ClapSubcommand)]
pub(crate) enum Subcommand {
    /// Serve MCP over HTTP
    Serve(ServeArguments),
    /// Serve MCP on stdin and stdout
    Stdio(SourceArguments),
    /// Write plugins, look into components, call their tools, or change which plugins a host runs
    #[command(help_template = super::help::of_plugins())]
    Plugin {
        #[command(subcommand)]
        command: PluginCommand,
    },
    /// Make, list and revoke bearer tokens
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Keep secrets that plugins use without seeing them
    Secret {
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// Check, export, rebuild and back up the store, change its key
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// List tenants, or erase everything of one
    Tenant {
        #[command(subcommand)]
        command: TenantCommand,
    },
    /// List, show, cancel, pause, resume and purge everybody's tasks
    Tasks {
        #[command(subcommand)]
        command: TasksCommand,
    },
    /// Show what is in use of each limit, and how much there may be
    Limits(LimitsArguments),
    /// Show what runs now, again and again; with --by, what takes the host's time
    Top(TopArguments),
    /// See how a running host is, drain it, or give it another configuration
    Host {
        #[command(subcommand)]
        command: HostCommand,
    },
    /// Log in at the dashboard of a running host
    Dashboard {
        #[command(subcommand)]
        command: super::dashboard::DashboardCommand,
    },
    /// Read the audit log, and check that nobody changed it
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Tell MCP clients of this program or of a host
    Client {
        #[command(subcommand)]
        command: super::client::ClientCommand,
    },
    /// Print the script that completes commands and options in a shell
    #[command(
        after_long_help = "Example:\n  bulkhead completions bash > ~/.local/share/bash-completion/completions/bulkhead"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command
    #[command(hide = true)]
    ManPages {
        /// The folder that they are written into
        folder: PathBuf,
    },
    /// Look at this machine: what a host here would lack, and what to do about it
    Doctor(super::doctor::DoctorArguments),
    /// Explain a command, or a key of the configuration
    Help(super::help::HelpArguments),
    /// Print a page of the documentation that the program writes
    #[command(hide = true)]
    Reference {
        /// Which one
        page: super::reference::Page,
    },
}

/// Where configuration, plugins and data come from.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SourceArguments {
    /// The configuration file; without one, everything has its default
    #[arg(long, value_name = "FILE", env = bulkhead_config::CONFIG_VARIABLE, hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// The data directory [default: ./bulkhead-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// A component to load, whatever version the data directory remembers; may be given more than once
    #[arg(long = "plugin", value_name = "FILE")]
    pub(crate) plugins: Vec<PathBuf>,
    /// A folder whose *.wasm files are loaded; may be given more than once
    #[arg(long = "plugins", value_name = "DIR")]
    pub(crate) plugin_dirs: Vec<PathBuf>,
}

/// Serve MCP over HTTP.
///
/// Prints one line on stdout when it serves: `bulkhead: listening on http://ADDR:PORT/mcp`. Logs go to stderr. GET /healthz and
/// GET /readyz answer without authentication. SIGTERM and SIGINT drain: no new calls, running ones get server.drain_ms, then exit
/// code 0.
///
/// Without any token or [[auth.issuer]] only loopback addresses may be listened on, and everyone is the requestor `local`. Once a
/// token was made, every request needs one, unless auth.anonymous_loopback lets clients on this machine in. Other addresses also need
/// TLS: [server] tls or trusted_proxies.
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
    /// Check the configuration and every plugin, say what is wrong, and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// What --check found as one JSON object instead of text
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
}

#[derive(Debug, ClapSubcommand)]
pub(crate) enum PluginCommand {
    /// Show a component's tools, schemas, imports, wishes, digest and size
    Inspect(InspectArguments),
    /// Call one tool once, without a host
    Call(super::call::CallArguments),
    /// Run a recorded call again, from its journal alone
    Replay(super::replay::ReplayArguments),
    /// List the plugins of a host, what runs on them, and their last faults
    List(OperateArguments),
    /// List the versions of a plugin
    Versions {
        /// Its name, as `plugin list` shows it
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Show what a switch to a version would change: definitions, imports and grants
    Changes {
        /// A plugin, for its canary or else what was staged last, or NAME@VERSION with the beginning of a digest
        #[arg(value_name = "NAME[@VERSION]")]
        target: String,
        /// Only this tool, as a whole
        #[arg(long, value_name = "TOOL")]
        tool: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Show what a version needs and asks for, what the configuration grants, and what comes of both
    Grants {
        /// A plugin, for its active version, or NAME@VERSION with the beginning of a digest
        #[arg(value_name = "NAME[@VERSION]")]
        target: String,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Take a component in as a version of a plugin and check it; calls notice nothing
    #[command(after_long_help = SWITCH_HELP)]
    Stage {
        /// The component: a file, https://HOST/PATH or oci://REGISTRY/REPOSITORY:TAG
        #[arg(value_name = "SOURCE")]
        source: Source,
        /// Which plugin it is a version of [default: as the component says, else the source's name]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// What its SHA-256 must be
        #[arg(long, value_name = "DIGEST")]
        sha256: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Stage components and switch to them, all of them at once or none
    #[command(after_long_help = SWITCH_HELP)]
    Add {
        /// The components: files, https://HOST/PATH or oci://REGISTRY/REPOSITORY:TAG
        #[arg(value_name = "SOURCE", required = true)]
        sources: Vec<Source>,
        /// Which plugin it is a version of [default: as the component says, else the source's name]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// What its SHA-256 must be
        #[arg(long, value_name = "DIGEST")]
        sha256: Option<String>,
        /// Also when tools are removed, inputs narrowed or accepted definitions changed
        #[arg(long)]
        accept: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Look at a plugin's source again and stage what is there
    #[command(after_long_help = SWITCH_HELP)]
    Update {
        /// The plugin
        #[arg(value_name = "NAME")]
        name: String,
        /// Switch to it, too
        #[arg(long)]
        activate: bool,
        /// Also when tools are removed, inputs narrowed or accepted definitions changed
        #[arg(long, requires = "activate")]
        accept: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Switch to versions that were staged or active before, all of them at once or none
    #[command(after_long_help = SWITCH_HELP)]
    Activate {
        /// A plugin, to switch to what was staged last, or NAME@VERSION with the beginning of a digest
        #[arg(value_name = "NAME[@VERSION]", required = true)]
        targets: Vec<String>,
        /// Also when tools are removed, inputs narrowed or accepted definitions changed
        #[arg(long)]
        accept: bool,
        #[command(flatten)]
        canary: Box<CanaryArguments>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Make canaries the active versions, all of them at once
    Promote(PluginsArguments),
    /// Take canaries back, or switch back to the versions before the present ones
    Rollback(PluginsArguments),
    /// Say whether new calls of a version keep journals; the host itself says `off` after three divergences in a day
    Durable {
        /// A plugin, for its active version, or NAME@VERSION with the beginning of a digest
        #[arg(value_name = "NAME[@VERSION]")]
        target: String,
        /// `on`: as the configuration says; `off`: tasks that begin from now on end with their host
        #[arg(value_name = "on|off")]
        durable: OnOff,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Take a plugin out of service (`rollback` brings it back), or remove a version that nothing runs on
    Remove {
        /// The plugin
        #[arg(value_name = "NAME")]
        name: String,
        /// Remove this version and its files instead: the beginning of its digest
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Read every kept component again, and compare what runs with what was accepted
    Verify {
        /// Only this plugin
        #[arg(value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    #[command(flatten)]
    Author(super::author::AuthorCommand),
}

/// Who gets a version that is tried beside the active one, and when it is taken back.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Canary (a part of the requestors gets the version)")]
pub(crate) struct CanaryArguments {
    /// So many of the requestors, always the same ones; more later keeps those who are in
    #[arg(long = "canary", value_name = "PERCENT", value_parser = share)]
    pub(crate) share: Option<u16>,
    /// Everybody of this tenant; may be given more than once
    #[arg(long = "tenant", value_name = "TENANT")]
    pub(crate) tenants: Vec<String>,
    /// Take it back when more of its calls break [default: 5, or the plugin's own; 100: never]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) max_fault_percent: Option<u8>,
    /// Take it back when the slowest twentieth of a tool's calls takes so many times as long as with the active version
    /// [default: never, or the plugin's own; 0: never]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub(crate) max_latency_ratio: Option<u32>,
    /// How far back its calls count, such as 30s, 10m or 2h [default: 10m, or the plugin's own]
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    pub(crate) window: Option<u64>,
    /// Calls that it takes for a verdict, without those of any one requestor [default: 20, or the plugin's own]
    #[arg(long, value_name = "COUNT")]
    pub(crate) min_calls: Option<u32>,
}

const SWITCH_HELP: &str = "Works with a running host (over DATA/control.sock) and without.\n\n\
    Exit code 4: refused, or it needs --accept; the reasons are printed, and nothing has changed.\n\n\
    Examples:\n  \
    bulkhead plugin add csv.wasm\n  \
    bulkhead plugin add https://plugins.example.com/csv.wasm --sha256 5f0c...\n  \
    bulkhead plugin update csv --activate\n  \
    bulkhead plugin stage csv.wasm && bulkhead plugin activate csv --accept\n  \
    bulkhead plugin activate csv@3f2a text@91c0\n  \
    bulkhead plugin activate csv --canary 10% --tenant acme --max-latency-ratio 1.5\n  \
    bulkhead plugin promote csv\n  \
    bulkhead plugin rollback csv";

/// Show a component's tools, schemas, imports, wishes, digest and size.
///
/// The component is loaded as a host would load it, and everything wrong with it is reported. Exit code 4: a host would refuse it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin inspect target/plugins/csv.wasm")]
pub(crate) struct InspectArguments {
    /// The component
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show what the [[plugin]] with this FILE or the plugin's name grants, and what tenants are left of it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which plugins, and where.
#[derive(Args, Debug)]
pub(crate) struct PluginsArguments {
    /// The plugins
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) operate: OperateArguments,
}

/// Which host, and how to answer.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OperateArguments {
    /// The host's data directory [default: BULKHEAD_SERVER_DATA, else what the configuration says, else ./bulkhead-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The configuration file [default: BULKHEAD_CONFIG; where nothing names the data directory, else ./bulkhead.toml, else
    /// /etc/bulkhead/bulkhead.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) far: FarArguments,
    /// One JSON value instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Tables as wide as they are, also where the terminal is narrower
    #[arg(long)]
    pub(crate) wide: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Pairs of arguments that refuse each other, of which the environment can give one.
    fn conflicts_with_the_environment(command: &clap::Command, found: &mut Vec<String>) {
        for argument in command.get_arguments() {
            let others = command.get_arg_conflicts_with(argument).into_iter();
            let set_by_environment = others.filter(|other| other.get_env().is_some());
            found.extend(set_by_environment.map(|other| format!("{}: {argument} {other}", command.get_name())));
        }
        command.get_subcommands().for_each(|command| conflicts_with_the_environment(command, found));
    }

    #[test]
    fn no_argument_refuses_what_the_environment_sets() {
        let mut found = Vec::new();
        conflicts_with_the_environment(&Arguments::command(), &mut found);
        assert_eq!(found, Vec::<String>::new(), "nobody wrote the other on the line");
    }

    /// Commands whose result is no value, and why.
    const WITHOUT_JSON: [(&str, &str); 6] = [
        ("stdio", "its stdout is a client's, in MCP"),
        ("completions", "the result is a script for a shell"),
        ("help", "the result is text for a person"),
        ("man-pages", "the results are pages in files"),
        ("reference", "the result is a page of the documentation"),
        ("plugin dev", "it serves until it is ended, and has no result"),
    ];

    fn commands_without_json(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        if command.get_subcommands().next().is_none() {
            if !command.get_arguments().any(|argument| argument.get_long() == Some("json")) {
                found.push(path.to_owned());
            }
            return;
        }
        for command in command.get_subcommands() {
            commands_without_json(command, format!("{path} {}", command.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_command_with_a_result_has_it_as_json() {
        let mut found = Vec::new();
        commands_without_json(&Arguments::command(), "", &mut found);
        let mut excused: Vec<_> = WITHOUT_JSON.iter().map(|(command, _)| (*command).to_owned()).collect();
        found.sort();
        excused.sort();
        assert_eq!(found, excused, "(- with a reason, + without --json): give the new command one or the other");
    }

    #[test]
    fn long_help_names_every_key() {
        let mut command = Arguments::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_long_help().to_string();
        for key in bulkhead_config::all_keys() {
            assert!(help.contains(key.name), "{}", key.name);
        }
    }
}
