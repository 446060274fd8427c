//! Where a host's configuration, plugins and data come from, as it is said on the command line.

use std::path::PathBuf;

use bulkhead_config::Flags;
use clap::Args;

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

impl SourceArguments {
    /// Everything but the file.
    pub(crate) fn flags(&self) -> Flags {
        let Self { config: _, data, plugins, plugin_dirs } = self.clone();
        Flags { data, plugins, plugin_dirs, ..Flags::default() }
    }
}
