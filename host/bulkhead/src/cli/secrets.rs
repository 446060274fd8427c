//! `bulkhead secret`: what plugins may use without seeing it.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use anyhow::Context as _;
use bulkhead_calls::secrets::VALUE_BYTES;
use bulkhead_console::print_error;
use bulkhead_console::table::{Layout, cell, fields};
use bulkhead_control::SecretText;
use bulkhead_control::commands::{PluginList, SecretList, SecretRemove, SecretRotate, SecretSet};
use bulkhead_control::views::SecretListView;
use bulkhead_domain::without_byte_order_mark;
use bulkhead_tasks::secrets::SecretInfo;
use clap::Subcommand;

use super::operate::{Absent, OperateArguments, execute, is_host_running, show, show_answer, show_fields};

/// Works with a running host (over DATA/control.sock) and without. Secrets are sealed with the keys of [secrets]
/// key_file, or of the variable BULKHEAD_SECRET_KEY.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Keep a secret, whose value is read from stdin; one of the same name is replaced
    #[command(
        after_long_help = "The plugin writes {{secret:NAME}} into a request, and the host puts the value there if the request goes \
                           to a destination of the secret. Answers from there have the placeholder where the value was.\n\n\
                           Example:\n  pass show github | bulkhead secret set GITHUB --plugin issues --to https://api.github.com"
    )]
    Set {
        /// What the plugin calls it: 1 to 64 characters of A-Z a-z 0-9 _ . -
        #[arg(value_name = "NAME")]
        name: String,
        /// The plugin that may use it
        #[arg(long, value_name = "NAME")]
        plugin: String,
        /// Only in calls of this tenant [default: of every tenant]
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Where it may go: https://HOST[:PORT][/PATH], with everything below the path, or METHOD,... and such an
        /// address; may be given more than once
        #[arg(long = "to", value_name = "URL", required = true)]
        destinations: Vec<String>,
        /// Where in a request: header, query or body; may be given more than once. What a client can make the plugin
        /// write there, it can make it send
        #[arg(long = "in", value_name = "PLACE", default_value = "header", value_parser = ["header", "query", "body"])]
        places: Vec<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// List secrets, without their values
    List(OperateArguments),
    /// Remove a secret; requests that name it are refused from now on
    Remove {
        #[arg(value_name = "NAME")]
        name: String,
        /// Whose secret it is
        #[arg(long, value_name = "NAME")]
        plugin: String,
        /// The tenant that it is for, if it is for one
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Read the keys again, and seal every secret with the first one
    Rotate(OperateArguments),
}

pub(crate) async fn run(command: SecretCommand) -> anyhow::Result<ExitCode> {
    match command {
        SecretCommand::Set { name, plugin, tenant, destinations, places, operate } => {
            let value = read_value()?;
            let request = SecretSet { name, plugin: plugin.clone(), tenant, destinations, places, value };
            let view = execute(&operate, request, Absent::Create).await?;
            warn_of_unknown_plugin(&operate, &plugin).await;
            show(&operate, &view, |_| fields(&view))
        }
        SecretCommand::List(operate) => show_answer(&operate, SecretList {}, secret_table).await,
        SecretCommand::Remove { name, plugin, tenant, operate } => {
            show_fields(&operate, SecretRemove { name, plugin, tenant }).await
        }
        SecretCommand::Rotate(operate) => show_fields(&operate, SecretRotate {}).await,
    }
}

/// Tells of a plugin that no running host has: mostly a slip of the pen, but it may be added later.
async fn warn_of_unknown_plugin(operate: &OperateArguments, plugin: &str) {
    if !matches!(is_host_running(operate).await, Ok(true)) {
        return;
    }
    let Ok(listed) = execute(operate, PluginList {}, Absent::Refuse).await else { return };
    if !listed.plugins.iter().any(|known| known.name == plugin) {
        print_error(format_args!(
            "the host has no plugin {plugin}: the secret is kept until there is one (`bulkhead plugin list` shows the names)"
        ));
    }
}

/// From stdin, without the end of its line: an argument would be in the shell's history and in every list of processes.
fn read_value() -> anyhow::Result<SecretText> {
    let stdin = std::io::stdin();
    anyhow::ensure!(
        !stdin.is_terminal(),
        "pipe the value in, so that it is not shown: `pass show NAME | bulkhead secret set ...` or `... < FILE`"
    );
    let mut text = String::new();
    let bytes_max = *VALUE_BYTES.end() as u64;
    // Three more for a byte order mark, two for the end of a line, one for what is too much.
    stdin.lock().take(bytes_max + 6).read_to_string(&mut text).context("the value cannot be read from stdin")?;
    Ok(SecretText(value_in(&text).to_owned()))
}

/// The value in what was piped in.
fn value_in(text: &str) -> &str {
    let value = without_byte_order_mark(text);
    let value = value.strip_suffix('\n').unwrap_or(value);
    value.strip_suffix('\r').unwrap_or(value)
}

pub(super) fn secret_table(view: &SecretListView, layout: &Layout) -> String {
    let joined = |texts: &[String]| texts.iter().map(|text| cell(text.as_str())).collect::<Vec<_>>().join(" ");
    let row = |secret: &SecretInfo| {
        vec![
            cell(&*secret.name),
            cell(&*secret.plugin),
            cell(secret.tenant.as_deref().unwrap_or("(all)")),
            joined(&secret.destinations),
            joined(&secret.places),
            layout.when(secret.set_at),
            format!("{}{}", cell(&*secret.key), if secret.outdated { " (rotate)" } else { "" }),
        ]
    };
    let rows: Vec<_> = view.secrets.iter().map(row).collect();
    layout.table(&["NAME", "PLUGIN", "TENANT", "TO", "IN", "SET", "KEY"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_secret_is_what_was_piped_in_without_its_mark_and_the_end_of_its_line() {
        for text in ["s3cret value", "s3cret value\n", "s3cret value\r\n", "\u{feff}s3cret value\n"] {
            assert_eq!(value_in(text), "s3cret value", "{text:?}");
        }
    }
}
