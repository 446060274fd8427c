//! Where an operator's command looks for the data directory of its host.
//!
//! Owns the order: `--data`, `BULKHEAD_SERVER_DATA`, the configuration (`--config`, `BULKHEAD_CONFIG`,
//! `./bulkhead.toml`, `/etc/bulkhead/bulkhead.toml`), `./bulkhead-data`. Invariant: a file that nobody named is read
//! only where nothing else says where the data is, and only if it belongs to the user or to root, so that a folder that
//! others write to cannot lead a command elsewhere.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bulkhead_assembly::sources;
use bulkhead_config::{CONFIG_VARIABLE, Config, Flags, Setting};

const DATA_VARIABLE: &str = "BULKHEAD_SERVER_DATA";
/// Files that are read although nobody named them, if they are there.
const FILES: [&str; 2] = ["./bulkhead.toml", "/etc/bulkhead/bulkhead.toml"];

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The user or root.
    Trusted,
    Other,
    /// There is no such file.
    Nobody,
}

/// What was found, and everything that was looked at for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    config: Option<PathBuf>,
    data: Option<PathBuf>,
    /// Where the data is, as far as it is known without the configuration.
    named: Option<PathBuf>,
    looked_at: Vec<String>,
}

impl Found {
    /// `data` and `config` are what was given on the command line.
    pub(super) fn search(data: Option<&Path>, config: Option<&Path>) -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        search(data, config, variable, owner)
    }

    /// The data directory, if it was named outside of the configuration.
    pub(super) fn named(&self) -> Option<&Path> {
        self.named.as_deref()
    }

    /// The whole configuration.
    pub(super) fn load(&self) -> anyhow::Result<Config> {
        sources::load(self.config.as_deref(), &Flags { data: self.data.clone(), ..Flags::default() })
    }

    /// The values of the configuration with their places, and the file with its SHA-256.
    pub(super) fn settings(&self, tenant: Option<&str>) -> anyhow::Result<(Vec<Setting>, Option<&Path>, [u8; 32])> {
        let flags = Flags { data: self.data.clone(), ..Flags::default() };
        let (settings, digest) = sources::settings(self.config.as_deref(), &flags, tenant)?;
        Ok((settings, self.config.as_deref(), digest))
    }

    /// Says that there is no store, where it was looked for, and what to do.
    pub(super) fn no_store(&self, config: &Config) -> anyhow::Error {
        let mut text = format!("there is no store in {}", config.server.data.display());
        text.push_str("; the data directory was looked for in this order:");
        for source in &self.looked_at {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {source}");
        }
        if self.config.is_some() && !config.data_named {
            text.push_str("\n  [server] data in it: not set");
        }
        if !config.data_named {
            let _ = write!(text, "\n  {}: the default", config.server.data.display());
        }
        text.push_str(
            "\nname the data directory of the host with --data DIR or BULKHEAD_SERVER_DATA, or make one with \
             `bulkhead serve --data DIR`",
        );
        anyhow::Error::msg(text)
    }
}

fn owner(path: &Path) -> Owner {
    match std::fs::metadata(path) {
        Ok(file) if !file.is_file() => Owner::Nobody,
        Ok(file) if file.uid() == 0 || file.uid() == rustix::process::geteuid().as_raw() => Owner::Trusted,
        Ok(_) => Owner::Other,
        Err(_) => Owner::Nobody,
    }
}

fn search(
    data: Option<&Path>,
    config: Option<&Path>,
    variable: impl Fn(&str) -> Option<PathBuf>,
    owner: impl Fn(&Path) -> Owner,
) -> Found {
    let mut looked_at = Vec::new();
    let mut look = |source: &str, found: Option<&Path>, absent: &str| {
        looked_at.push(match found {
            Some(path) => format!("{source}: {}", path.display()),
            None => format!("{source}: {absent}"),
        });
        found.map(Path::to_owned)
    };
    let data = look("--data", data, "not given");
    let named = data.clone().or_else(|| look(DATA_VARIABLE, variable(DATA_VARIABLE).as_deref(), "not set"));
    let given = config;
    let mut config = given.map(Path::to_owned).or_else(|| variable(CONFIG_VARIABLE));
    if named.is_none() {
        let given = look("--config", given, "not given");
        config = given.or_else(|| look(CONFIG_VARIABLE, variable(CONFIG_VARIABLE).as_deref(), "not set"));
        for file in FILES.map(Path::new) {
            if config.is_some() {
                break;
            }
            match owner(file) {
                Owner::Trusted => config = look("configuration file", Some(file), ""),
                Owner::Other => _ = look(&file.display().to_string(), None, "not read: it belongs to another user"),
                Owner::Nobody => _ = look(&file.display().to_string(), None, "not there"),
            }
        }
    }
    Found { config, data, named, looked_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        (data, config): (Option<&str>, Option<&str>),
        variables: &[(&str, &str)],
        files: &[(&str, Owner)],
    ) -> Found {
        let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let owner = |path: &Path| {
            files.iter().find(|(file, _)| Path::new(file) == path).map_or(Owner::Nobody, |(_, owner)| *owner)
        };
        search(data.map(Path::new), config.map(Path::new), variable, owner)
    }

    fn assert_chosen(found: &Found, named: Option<&str>, config: Option<&str>) {
        assert_eq!(found.named.as_deref(), named.map(Path::new), "{found:?}");
        assert_eq!(found.config.as_deref(), config.map(Path::new), "{found:?}");
    }

    #[test]
    fn data_directory_is_looked_for_in_order() {
        let local = ("./bulkhead.toml", Owner::Trusted);
        let system = ("/etc/bulkhead/bulkhead.toml", Owner::Trusted);
        let variables = [("BULKHEAD_SERVER_DATA", "/v"), ("BULKHEAD_CONFIG", "/v.toml")];
        let both = [local, system];
        assert_chosen(&found((Some("d"), Some("c.toml")), &variables, &both), Some("d"), Some("c.toml"));
        assert_chosen(&found((None, None), &variables, &both), Some("/v"), Some("/v.toml"));
        let config_only = &variables[1..];
        assert_chosen(&found((None, Some("c.toml")), config_only, &both), None, Some("c.toml"));
        assert_chosen(&found((None, None), config_only, &both), None, Some("/v.toml"));
        assert_chosen(&found((None, None), &[], &both), None, Some("./bulkhead.toml"));
        assert_chosen(&found((None, None), &[], &[system]), None, Some("/etc/bulkhead/bulkhead.toml"));
        assert_chosen(&found((None, None), &[], &[]), None, None);
        // Who says where the data is gets no grants from a file that happens to lie there.
        assert_chosen(&found((Some("d"), None), &[], &both), Some("d"), None);
    }

    #[test]
    fn configuration_of_another_user_is_not_read() {
        let found = found((None, None), &[], &[("./bulkhead.toml", Owner::Other)]);
        assert_chosen(&found, None, None);
        assert!(found.looked_at.iter().any(|source| source == "./bulkhead.toml: not read: it belongs to another user"));
    }

    #[test]
    fn missing_store_names_every_place_that_was_looked_at() {
        let found = found((None, None), &[], &[]);
        let said = found.no_store(&found.load().unwrap()).to_string();
        for source in ["--data", "BULKHEAD_SERVER_DATA", "--config", "BULKHEAD_CONFIG", "./bulkhead.toml"] {
            assert!(said.contains(&format!("\n  {source}: not ")), "{source}: {said}");
        }
        assert!(said.contains("\n  /etc/bulkhead/bulkhead.toml: not there\n"), "{said}");
        assert!(said.contains("bulkhead-data: the default\nname the data directory"), "{said}");
    }
}
