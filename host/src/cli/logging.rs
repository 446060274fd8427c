//! Where logs go: stderr, always, since stdout is for what was asked for.

use bulkhead::config::{LogConfig, LogFormat};
use tracing_subscriber::EnvFilter;

/// Starts logging. Libraries are held to warnings, so that a debug log is about the host.
pub(crate) fn start(config: &LogConfig) {
    let level = &config.level;
    let filter = match level.as_str() {
        "debug" | "trace" => EnvFilter::new(format!("warn,bulkhead={level}")),
        _ => EnvFilter::new(level),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // There is one logger per process; a second start changes nothing.
    let _ = match config.format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// For commands that run one plugin for a person: what its guest prints, and what is wrong.
pub(crate) fn start_for_a_person() {
    let filter = EnvFilter::new("warn,bulkhead::runtime::world=debug");
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time();
    // As above.
    let _ = builder.with_target(false).try_init();
}
