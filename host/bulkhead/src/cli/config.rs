//! `bulkhead config`: the configuration as a host that starts now would have it.

use std::path::PathBuf;
use std::process::ExitCode;

use bulkhead_config::amounts::granted_amount;
use bulkhead_config::{Origin, Setting};
use bulkhead_console::print_line;
use bulkhead_console::table::{Layout, cell, member};
use bulkhead_domain::hex;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::data_directory::Found;

/// Needs no host: reads the file, the environment and --data, as `bulkhead serve` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the value of each key of the fixed sections, and where it comes from
    #[command(after_long_help = "Examples:\n  \
        bulkhead config show --changed\n  \
        bulkhead config show --tenant acme\n  \
        bulkhead config show limits\n\n\
        A running host has what it last read: compare `config_sha256` of `bulkhead host status` with that of --json. \
        `bulkhead help config KEY` explains a key, and `bulkhead plugin list` shows plugins.")]
    Show(ShowArguments),
}

/// Which values, and how to show them.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// Only this key, or the keys of this section
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// What holds for the requestors of this tenant, of the limits that a tenant may have otherwise
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only what is not the default
    #[arg(long)]
    changed: bool,
    /// The data directory that `serve` is given [default: BULKHEAD_SERVER_DATA, else what the configuration says, else
    /// ./bulkhead-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration file [default: BULKHEAD_CONFIG; where nothing names the data directory, else ./bulkhead.toml,
    /// else /etc/bulkhead/bulkhead.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON value instead of text
    #[arg(long)]
    json: bool,
    /// Tables as wide as they are, also where the terminal is narrower
    #[arg(long)]
    wide: bool,
}

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    let ConfigCommand::Show(arguments) = command;
    let ShowArguments { key, tenant, changed, data, config, json, wide } = arguments;
    let found = Found::search(data.as_deref(), config.as_deref());
    let (mut settings, file, digest) = found.settings(tenant.as_deref())?;
    if let Some(wanted) = &key {
        settings.retain(|setting| is_meant(&setting.key, wanted));
        anyhow::ensure!(
            !settings.is_empty(),
            "there is no value of {wanted:?} here: name a key of {}, such as limits.ttl_ms_max",
            if tenant.is_some() { "[limits] that a tenant may have otherwise" } else { "a fixed section" }
        );
    }
    settings.retain(|setting| !changed || setting.origin != Origin::Default);
    print_line(match json {
        true => answer(&settings, file.map(|file| file.display().to_string()), &hex(&digest)).to_string(),
        false if settings.is_empty() => "every value is the default".to_owned(),
        false => table(&settings, &Layout::of_stdout(wide)),
    });
    Ok(ExitCode::SUCCESS)
}

/// A section is meant with all its keys.
fn is_meant(key: &str, wanted: &str) -> bool {
    key == wanted || key.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
}

fn answer(settings: &[Setting], file: Option<String>, digest: &str) -> Value {
    let setting = |setting: &Setting| {
        let is_default = setting.origin == Origin::Default;
        json!({ "key": setting.key, "value": setting.value, "origin": setting.origin.to_string(), "default": is_default })
    };
    json!({ "config": file, "config_sha256": digest, "settings": settings.iter().map(setting).collect::<Vec<_>>() })
}

fn table(settings: &[Setting], layout: &Layout) -> String {
    let value = |Setting { key, value, .. }: &Setting| {
        let number = value.as_u64().map(|number| number.to_string());
        number.and_then(|number| granted_amount(key, &number)).unwrap_or_else(|| member(value))
    };
    let row = |setting: &Setting| vec![cell(&*setting.key), value(setting), cell(&*setting.origin.to_string())];
    layout.table(&["KEY", "VALUE", "FROM"], &settings.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use bulkhead_config::ConfigLocation;

    use super::*;

    #[test]
    fn values_are_shown_with_where_they_come_from() {
        let location = ConfigLocation::File { file: "b.toml".to_owned(), line: 7 };
        let settings = [
            Setting { key: "log.level".to_owned(), value: json!("debug"), origin: Origin::Set(location) },
            Setting { key: "server.roots".to_owned(), value: json!(["a"]), origin: Origin::Default },
            Setting { key: "call.memory_bytes".to_owned(), value: json!(67_108_864), origin: Origin::Default },
        ];
        let expected = "KEY                VALUE     FROM\nlog.level          debug     b.toml:7\n\
            server.roots       [\"a\"]     default\ncall.memory_bytes  64.0 MiB  default";
        assert_eq!(table(&settings, &Layout::plain(0)), expected);
        let json = answer(&settings, None, "ab");
        assert_eq!(
            json["settings"][0],
            json!({ "key": "log.level", "value": "debug", "origin": "b.toml:7", "default": false })
        );
        assert_eq!((&json["config"], &json["config_sha256"]), (&Value::Null, &json!("ab")));
    }

    #[test]
    fn section_means_its_keys_and_no_others() {
        for (key, wanted, expected) in [
            ("limits.ttl_ms_max", "limits", true),
            ("limits.ttl_ms_max", "limits.ttl_ms_max", true),
            ("limits.ttl_ms_max", "limits.ttl_ms", false),
            ("log.level", "lo", false),
        ] {
            assert_eq!(is_meant(key, wanted), expected, "{key} {wanted}");
        }
    }
}
