//! What the commands that run one plugin for its author may grant it: the same words for all of them.

use std::path::PathBuf;

use anyhow::Context as _;
use bulkhead_assembly::sources;
use bulkhead_calls::policy::DirGrant;
use bulkhead_calls::secrets::Secret;
use bulkhead_config::{PluginConfig, keyvalue_defaults, variable_name};
use bulkhead_domain::Json;
use clap::Args;

use super::plugin_test::secret;

/// Grants beside those of the configuration.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Grants (beside those of the configuration)")]
pub(crate) struct GrantArguments {
    /// Grant a folder for reading, or with :rw for writing too; may be given more than once
    #[arg(long = "dir", value_name = "HOST:GUEST[:rw]")]
    directories: Vec<String>,
    /// Grant a destination of outgoing HTTP; may be given more than once
    #[arg(long = "http", value_name = "SCHEME://HOST[:PORT]")]
    http: Vec<String>,
    /// Grant a variable of this environment; may be given more than once
    #[arg(long = "env", value_name = "NAME")]
    env: Vec<String>,
    /// Grant the key-value store
    #[arg(long)]
    kv: bool,
    /// Set one of the plugin's settings, to JSON or else to the text; may be given more than once
    #[arg(long = "setting", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Let requests to a destination carry a secret in their headers, whose value is that of the environment variable
    /// NAME; may be given more than once
    #[arg(long = "secret", value_name = "NAME@URL")]
    secrets: Vec<String>,
}

impl GrantArguments {
    /// Adds the grants to those that a plugin has.
    pub(super) fn grant(&self, plugin: &mut PluginConfig) -> anyhow::Result<()> {
        let source = &mut plugin.policy.source;
        for text in &self.directories {
            source.grants.directories.push(directory(text)?);
        }
        for text in &self.http {
            source.grants.http.push(text.parse().context("--http")?);
        }
        for name in &self.env {
            source.grants.env.push(variable_name(name).map_err(|wrong| anyhow::anyhow!("--env: {wrong}"))?);
        }
        if self.kv {
            source.grants.keyvalue.get_or_insert_with(keyvalue_defaults);
        }
        for text in &self.settings {
            let (key, value) = setting(text)?;
            source.config.insert(key, value);
        }
        sources::refuse_overlaps(std::slice::from_ref(plugin))
    }

    /// As they were typed, for another process.
    pub(super) fn to_arguments(&self) -> Vec<String> {
        let Self { directories, http, env, kv, settings, secrets } = self;
        let lists =
            [("--dir", directories), ("--http", http), ("--env", env), ("--setting", settings), ("--secret", secrets)];
        let each =
            lists.into_iter().flat_map(|(flag, values)| values.iter().map(move |value| format!("{flag}={value}")));
        each.chain(kv.then(|| "--kv".to_owned())).collect()
    }

    /// The secrets, with their values.
    pub(super) fn secrets(&self) -> anyhow::Result<Vec<Secret>> {
        self.secrets.iter().map(|text| read_secret(text, sources::variable)).collect()
    }
}

/// HOST:GUEST[:rw]
fn directory(text: &str) -> anyhow::Result<DirGrant> {
    let (rest, write) = text.strip_suffix(":rw").map_or((text, false), |rest| (rest, true));
    let parts = rest.rsplit_once(':').filter(|(host, guest)| !host.is_empty() && guest.starts_with('/'));
    let (host, guest) = parts.with_context(|| format!("--dir {text:?} is not HOST:GUEST with an absolute GUEST"))?;
    Ok(DirGrant { host: PathBuf::from(host), guest: guest.to_owned(), write, bytes_max: None })
}

/// KEY=VALUE
fn setting(text: &str) -> anyhow::Result<(String, Json)> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = parts.with_context(|| format!("--setting {text:?} is not KEY=VALUE"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::from(value));
    Ok((key.to_owned(), Json::new(value.to_string())))
}

/// NAME@URL; the value never stands on a command line, where every process of the machine can read it.
fn read_secret(text: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Secret> {
    let parts = text.split_once('@').filter(|(name, _)| !name.is_empty());
    let (name, url) = parts.with_context(|| format!("--secret {text:?} is not NAME@URL"))?;
    let value = variable(name);
    let value = value.with_context(|| {
        format!("--secret {name}: the environment variable {name} is not set; its value is the secret")
    })?;
    secret(name, value, &[url.to_owned()], &["header".to_owned()]).with_context(|| format!("--secret {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_is_json_or_else_text() {
        for (text, value) in [("a=3", "3"), ("a={\"b\": [1]}", "{\"b\":[1]}"), ("a=hello", "\"hello\""), ("a=", "\"\"")]
        {
            assert_eq!(setting(text).unwrap().1.as_str(), value, "{text}");
        }
        for wrong in ["a", "=1"] {
            assert!(setting(wrong).unwrap_err().to_string().contains("KEY=VALUE"));
        }
    }

    #[test]
    fn secret_takes_its_value_from_the_environment() {
        let variable = |name: &str| (name == "TOKEN").then(|| "0123456789".to_owned());
        let secret = read_secret("TOKEN@https://api.example.com/v1", variable).unwrap();
        assert_eq!((secret.name.as_str(), secret.value.as_str()), ("TOKEN", "0123456789"));
        assert_eq!(secret.destinations[0].to_string(), "https://api.example.com:443/v1");
        for (text, why) in
            [("TOKEN", "NAME@URL"), ("OTHER@https://a.example", "is not set"), ("TOKEN@ftp://a", "TOKEN")]
        {
            let error = format!("{:#}", read_secret(text, variable).unwrap_err());
            assert!(error.contains(why) && !error.contains("0123456789"), "{error}");
        }
    }

    #[test]
    fn directory_grant_names_both_sides() {
        let grant = directory("./data:/data:rw").unwrap();
        assert_eq!((grant.host.to_str(), grant.guest.as_str(), grant.write), (Some("./data"), "/data", true));
        assert!(!directory("/a:/b").unwrap().write);
        for wrong in ["data", ":/data", "a:data"] {
            assert!(directory(wrong).unwrap_err().to_string().contains("absolute GUEST"), "{wrong}");
        }
    }
}
