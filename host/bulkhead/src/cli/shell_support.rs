//! `bulkhead completions` and `bulkhead man-pages`: what a shell and `man` know of the command line.
//!
//! Owns how both are written. Must not know what the commands are: clap's tree is the only source, so nothing here has
//! to change with it. Invariant: the same program writes the same bytes everywhere; neither the date nor the
//! environment is in them.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::args::Arguments;

/// Prints the script that completes commands and options in a shell.
pub(crate) fn print_completions(shell: Shell) -> anyhow::Result<()> {
    bulkhead_console::print_line(String::from_utf8(completions(shell))?.trim_end());
    Ok(())
}

/// Writes a page for each command that is not hidden into a folder, which is made if it is missing.
pub(crate) fn write_man_pages(folder: &Path) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Arguments::command(), folder));
    written.with_context(|| format!("cannot write into {}", folder.display()))
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "bulkhead", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Command;

    use super::*;

    /// The names of the pages, one for each command that is shown.
    fn pages(command: &Command, parent: &str, names: &mut BTreeSet<String>) {
        if command.is_hide_set() {
            return;
        }
        let name = if parent.is_empty() { "bulkhead".to_owned() } else { format!("{parent}-{}", command.get_name()) };
        for below in command.get_subcommands() {
            pages(below, &name, names);
        }
        names.insert(format!("{name}.1"));
    }

    #[test]
    fn every_shown_command_has_a_man_page_and_no_hidden_one() {
        let folder = tempfile::tempdir().unwrap();
        write_man_pages(&folder.path().join("man1")).unwrap();
        let written: BTreeSet<String> = std::fs::read_dir(folder.path().join("man1"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut expected = BTreeSet::new();
        pages(&Arguments::command(), "", &mut expected);
        assert!(expected.len() > 40 && expected.contains("bulkhead-plugin-call.1"), "{expected:?}");
        assert_eq!(written, expected);
        let page = std::fs::read_to_string(folder.path().join("man1/bulkhead-serve.1")).unwrap();
        assert!(page.contains(r"\-\-insecure\-allow\-anonymous"), "{page}");
    }

    #[test]
    fn completions_know_commands_and_options_of_each_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            for word in ["insecure-allow-anonymous", "rollback", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
