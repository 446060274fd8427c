//! `bulkhead help`: of a command what its `--help` says, of a key of the configuration what it is for; and the groups
//! that long lists of commands are shown in.
//!
//! Must not describe a command itself: clap's tree has the words. Invariant: every shown command is in one group.

use std::process::ExitCode;

use anyhow::Context as _;
use bulkhead_author_cli::EXIT_USAGE;
use bulkhead_config::{explain_key, tables_of_keys};
use bulkhead_console::{print_error, print_line};
use clap::builder::StyledStr;
use clap::{Args, Command, CommandFactory as _, Subcommand as _};

use super::args::{Arguments, Subcommand};
use super::plugin_arguments::PluginCommand;

/// The word before a key.
const CONFIG: &str = "config";
/// Columns of a list of commands.
const COLUMNS_MAX: usize = 100;

/// A heading with the commands under it.
type Group = (&'static str, &'static [&'static str]);

const OF_PROGRAM: &[Group] = &[
    ("Serve", &["serve", "stdio", "config", "client"]),
    ("Plugins", &["plugin", "secret"]),
    ("Who may come in", &["token", "tenant", "dashboard"]),
    ("Watch and steer a host", &["host", "top", "limits", "tasks", "audit", "store"]),
    ("This machine and this program", &["doctor", "completions", "help"]),
];

const OF_PLUGINS: &[Group] = &[
    ("Write a plugin", &["new", "build", "test", "dev", "wrap", "compose"]),
    ("Look into a component", &["inspect", "check", "call", "replay"]),
    ("Publish a component", &["keygen", "sign", "push", "pull"]),
    ("See what a host runs", &["list", "versions", "usage", "changes", "grants", "verify"]),
    ("Change what a host runs", &["add", "stage", "activate", "update", "promote", "rollback", "durable", "remove"]),
];

/// Explain a command, or a key of the configuration.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    bulkhead help tasks list                         what `bulkhead tasks list --help` says\n  \
    bulkhead help config                             the tables of the configuration file\n  \
    bulkhead help config limits                      every key of a table\n  \
    bulkhead help config limits.ttl_ms_max           one key: meaning, default, bounds, variable\n  \
    bulkhead help config ttl_ms_max                  the same, wherever the key stands\n  \
    bulkhead help config BULKHEAD_LIMITS_TTL_MS_MAX  the same, by its variable")]
pub(crate) struct HelpArguments {
    /// The words of a command, or `config` and a key or table of the configuration
    #[arg(value_name = "COMMAND|config KEY")]
    topic: Vec<String>,
}

pub(crate) fn run(arguments: &HelpArguments) -> anyhow::Result<ExitCode> {
    let topic: Vec<_> = arguments.topic.iter().map(String::as_str).collect();
    match explained(&topic) {
        Ok(Explained::Command(mut command)) => command.print_long_help().context("the help cannot be printed")?,
        Ok(Explained::Text(text)) => print_line(text.trim_end()),
        Err(unknown) => {
            print_error(unknown);
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    }
    Ok(ExitCode::SUCCESS)
}

enum Explained {
    Command(Box<Command>),
    Text(String),
}

/// A command comes before a key of the same name.
fn explained(topic: &[&str]) -> Result<Explained, String> {
    let mut root = Arguments::command();
    // Gives the commands below their full names.
    root.build();
    if topic == [CONFIG] {
        return Ok(Explained::Text(format!(
            "Tables of the configuration file. `bulkhead help config TABLE` lists the keys of one, `bulkhead config show` the values \
             that hold.\n\n  {}",
            tables_of_keys().join("\n  ")
        )));
    }
    let unknown = match command(&root, topic) {
        Ok(command) => return Ok(Explained::Command(Box::new(command.clone()))),
        Err(unknown) => unknown,
    };
    match topic {
        [CONFIG, words @ ..] => explain_key(&words.join(" ")).map(Explained::Text),
        _ => Err(unknown),
    }
}

fn command<'a>(root: &'a Command, topic: &[&str]) -> Result<&'a Command, String> {
    let mut command = root;
    for word in topic {
        command = command.find_subcommand(word).ok_or_else(|| {
            let known = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
            let near = bulkhead_protocol::nearest_name(word, known);
            let near = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
            let path = command.get_bin_name().unwrap_or_else(|| command.get_name());
            format!("`{path}` has no command {word:?}{near}; `{path} --help` lists them")
        })?;
    }
    Ok(command)
}

/// The help of the program, with its commands in groups.
pub(super) fn of_program() -> StyledStr {
    grouped(&Subcommand::augment_subcommands(Command::new("bulkhead")), OF_PROGRAM)
}

/// The help of `bulkhead plugin`.
pub(super) fn of_plugins() -> StyledStr {
    grouped(&PluginCommand::augment_subcommands(Command::new("plugin")), OF_PLUGINS)
}

fn grouped(command: &Command, groups: &[Group]) -> StyledStr {
    let style = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let names = groups.iter().flat_map(|(_, names)| names.iter().map(|name| name.len()));
    let width = names.max().unwrap_or_default();
    let mut list = String::new();
    for (heading, names) in groups {
        list += &format!("{style}{heading}:{style:#}\n");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = folded(&about.map(ToString::to_string).unwrap_or_default(), width + 4);
            list += &format!("  {literal}{name}{literal:#}{:pad$}  {}\n", "", about, pad = width - name.len());
        }
        list.push('\n');
    }
    StyledStr::from(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{style}Options:{style:#}\n{{options}}{{after-help}}"
    ))
}

/// The text in lines, all but the first with so many spaces before them.
fn folded(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if indent + line.chars().count() + 1 + word.chars().count() <= COLUMNS_MAX => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_is_in_one_group() {
        let mut root = Arguments::command();
        root.build();
        for (path, groups) in [(&[][..], OF_PROGRAM), (&["plugin"], OF_PLUGINS)] {
            let command = command(&root, path).unwrap();
            let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
            let mut shown: Vec<_> = shown.map(Command::get_name).collect();
            let mut grouped: Vec<_> = groups.iter().flat_map(|(_, names)| *names).copied().collect();
            shown.sort_unstable();
            grouped.sort_unstable();
            assert_eq!(grouped, shown);
        }
    }

    #[test]
    fn help_lists_commands_below_their_groups() {
        let mut root = Arguments::command();
        root.build();
        for (path, groups) in [(&[][..], OF_PROGRAM), (&["plugin"], OF_PLUGINS)] {
            let mut command = command(&root, path).unwrap().clone();
            for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                assert!(
                    help.contains("Usage: bulkhead") && help.contains("\nOptions:\n") && !help.contains("{about"),
                    "{help}"
                );
                for (heading, names) in groups {
                    let under = help.split_once(&format!("\n{heading}:\n")).unwrap().1.split("\n\n").next().unwrap();
                    for name in *names {
                        assert!(
                            under.lines().any(|line| line.starts_with(&format!("  {name} "))),
                            "{heading} {name}: {help}"
                        );
                    }
                }
                assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
            }
        }
    }

    #[test]
    fn help_explains_commands_and_keys_and_offers_near_ones() {
        let text = |topic: &[&str]| match explained(topic) {
            Ok(Explained::Command(mut command)) => command.render_long_help().to_string(),
            Ok(Explained::Text(text)) => text,
            Err(unknown) => format!("unknown: {unknown}"),
        };
        for (topic, part) in [
            (&["tasks", "list"][..], "Usage: bulkhead tasks list"),
            (&[], "Usage: bulkhead"),
            (&["help"], "bulkhead help config limits.ttl_ms_max"),
            (&["config", "limits.ttl_ms_max"], "limits.ttl_ms_max\n"),
            (&["config"], "\n  plugin.grants\n"),
            (
                &["config", "server.lisen"],
                "unknown: the configuration has no key \"server.lisen\" (did you mean server.listen",
            ),
            (&["plugin", "instal"], "unknown: `bulkhead plugin` has no command \"instal\""),
            (&["tokn"], "unknown: `bulkhead` has no command \"tokn\" (did you mean token?)"),
        ] {
            let said = text(topic);
            assert!(said.contains(part), "{topic:?}: {said}");
        }
    }
}
