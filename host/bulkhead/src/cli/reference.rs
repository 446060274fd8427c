//! `bulkhead reference`: the pages below `host/docs/reference` that the program writes about itself.
//!
//! Owns the Markdown of the command line. Must not read a file or the environment: the same program prints the same
//! page everywhere. `cargo xtask docs` writes what it prints into the tree, but for the command line, which `cargo
//! xtask dist` writes into packages.

mod errors;

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _, ValueEnum};

use super::args::Arguments;

/// A page that the program writes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Page {
    /// Every key of the configuration.
    Configuration,
    /// Every error code and HTTP status.
    Errors,
    /// Every command and option.
    Cli,
    /// Every metric.
    Metrics,
    /// What each MCP client's configuration must say.
    ClientSetup,
}

/// Prints a page.
pub(crate) fn print(page: Page) {
    let text = match page {
        Page::Configuration => bulkhead_config::configuration_markdown(),
        Page::Errors => errors::markdown(),
        Page::Cli => cli_markdown(),
        Page::Metrics => bulkhead_metrics::markdown(),
        Page::ClientSetup => super::client::markdown(),
    };
    bulkhead_console::print_line(text.trim_end());
}

const INTRODUCTION: &str = "\
# Command line

For operators and plugin authors. This page lists every command of `bulkhead`, as the program of this package describes it.

`bulkhead COMMAND --help` says the same. Commands that print data take `--json`. Exit code 0 is success, 1 a failure, 2 a wrong command
line or configuration, 75 that another process has the data directory (a host that starts, or a command): try again soon. Commands
with other codes name them.
";

fn cli_markdown() -> String {
    let mut root = Arguments::command();
    // Gives the commands below their full names.
    root.build();
    let mut page = String::from(INTRODUCTION);
    for command in root.get_subcommands() {
        describe(&mut page, command, "bulkhead");
    }
    page
}

/// A command with those below it. Hidden commands are left out.
fn describe(page: &mut String, command: &Command, parent: &str) {
    if command.is_hide_set() {
        return;
    }
    let path = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    // Writing to a String cannot fail.
    let _ = write!(page, "\n## {path}\n\n{}\n\n```text\n{usage}\n```\n", escaped(&about));
    let is_help =
        |argument: &Arg| matches!(argument.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong);
    let arguments = command.get_arguments();
    let own: Vec<_> = arguments.filter(|argument| !argument.is_hide_set() && !is_help(argument)).collect();
    if !own.is_empty() {
        page.push('\n');
    }
    for argument in own {
        let _ = writeln!(page, "- `{argument}`: {}", escaped(&help(argument)));
    }
    match command.get_after_long_help() {
        Some(_) if command.get_name() == "serve" => {
            page.push_str("\nThe keys of the configuration are in [configuration.md](configuration.md).\n");
        }
        Some(more) => {
            let _ = write!(page, "\n```text\n{more}\n```\n");
        }
        None => {}
    }
    for below in command.get_subcommands() {
        describe(page, below, &path);
    }
}

/// What an argument means, with its words and its default.
fn help(argument: &Arg) -> String {
    let text = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if !argument.get_action().takes_values() {
        return help;
    }
    let values = argument.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if !values.is_empty() {
        let _ = write!(help, " [one of: {}]", values.join(", "));
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() {
        let _ = write!(help, " [default: {}]", defaults.join(", "));
    }
    help
}

/// Text of the help as Markdown that shows the same characters.
fn escaped(text: &str) -> String {
    text.replace('[', "\\[").replace('*', "\\*").replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_and_option_is_on_the_page() {
        fn walk(command: &Command, path: &str, page: &str) -> usize {
            if command.is_hide_set() {
                return 0;
            }
            let path = format!("{path} {}", command.get_name());
            assert!(page.contains(&format!("\n## {path}\n")), "{path}");
            let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for argument in visible.filter_map(Arg::get_long).filter(|long| *long != "help") {
                assert!(page.contains(&format!("- `--{argument}")), "{path} --{argument}");
            }
            1 + command.get_subcommands().map(|below| walk(below, &path, page)).sum::<usize>()
        }
        let mut root = Arguments::command();
        let page = cli_markdown();
        root.build();
        let count: usize = root.get_subcommands().map(|command| walk(command, "bulkhead", &page)).sum();
        assert!(count > 40, "{count}");
        assert!(!page.contains("bulkhead reference"), "hidden commands are for the project itself");
    }
}
