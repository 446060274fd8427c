//! The words of `bulkhead plugin`.

use bulkhead_plugins::sources::Source;
use bulkhead_store::usage_days::USAGE_DAYS_MAX;
use bulkhead_workbench::inspect::InspectArguments;
use bulkhead_workbench::{author, call, replay};
use clap::{Args, Subcommand};

use super::operate::OperateArguments;
use super::values::{OnOff, duration_ms, ratio, share};

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Show a component's tools, schemas, imports, wishes, digest and size
    Inspect(InspectArguments),
    /// Call one tool once, without a host
    Call(call::CallArguments),
    /// Run a recorded call again, from its journal alone
    Replay(replay::ReplayArguments),
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
    /// Show how often its tools were called and failed, by day (UTC) and tool
    #[command(
        after_long_help = "Calls are those that ended, plain ones and tasks. Errors are those of the tool, of the plugin and of limits; a \
        call that was stopped is none. A tool that was not called on a day has no line, and a line without a tool is of resources and \
        prompts. 90 days are kept.\n\n\
        A host writes what it counted once a minute and when it ends; one that is killed loses what it had not written.\n\n\
        Examples:\n  \
        bulkhead plugin usage csv\n  \
        bulkhead plugin usage csv --days 1 --json"
    )]
    Usage {
        /// Its name, as `plugin list` shows it
        #[arg(value_name = "NAME")]
        name: String,
        /// Today and the days before it, so many in all
        #[arg(long, value_name = "COUNT", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=USAGE_DAYS_MAX.into()))]
        days: u32,
        /// Lines of comma-separated values instead of text, the first with the names of the columns
        #[arg(long, conflicts_with = "json")]
        csv: bool,
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
    Author(author::AuthorCommand),
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

/// Which plugins, and where.
#[derive(Args, Debug)]
pub(crate) struct PluginsArguments {
    /// The plugins
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) operate: OperateArguments,
}
