//! The command line's words. These names are a contract; the help is where people learn them.

use std::path::PathBuf;

use clap::{Parser, Subcommand as ClapSubcommand};

use super::audit::AuditCommand;
use super::limits::LimitsArguments;
use super::plugin_arguments::PluginCommand;
use super::running::HostCommand;
use super::secrets::SecretCommand;
use super::serve::ServeArguments;
use super::source_arguments::SourceArguments;
use super::store::StoreCommand;
use super::tasks::TasksCommand;
use super::tenant::TenantCommand;
use super::tokens::TokenCommand;
use super::top::TopArguments;

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
    /// Show the values of the configuration, and where each comes from
    Config {
        #[command(subcommand)]
        command: super::config::ConfigCommand,
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
