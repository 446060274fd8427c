//! Where logs go: stderr, always, since stdout is for what was asked for.

use bulkhead::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

/// Sets another level.
pub(crate) type Level = Box<dyn Fn(&str) + Send + Sync>;

/// Starts logging, at a level that can be changed.
pub(crate) fn start(config: &LogConfig) -> Level {
    let builder = tracing_subscriber::fmt().with_env_filter(filter(&config.level)).with_writer(std::io::stderr);
    // There is one logger per process; a second start changes nothing, and neither does a level for a logger that is gone.
    match config.format {
        LogFormat::Text => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let builder = builder.with_ansi(ansi).with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = builder.try_init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = builder.try_init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        }
    }
}

/// Libraries are held to warnings, so that a debug log is about the host.
fn filter(level: &str) -> EnvFilter {
    match level {
        "debug" | "trace" => EnvFilter::new(format!("warn,bulkhead={level}")),
        _ => EnvFilter::new(level),
    }
}

/// For commands that run one plugin for a person: what its guest prints, and what is wrong.
pub(crate) fn start_for_a_person() {
    let filter = EnvFilter::new("warn,bulkhead::runtime::world=debug");
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time();
    // As above.
    let _ = builder.with_target(false).try_init();
}
