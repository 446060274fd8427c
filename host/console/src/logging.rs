//! Where logs go: stderr, always, since stdout is for what was asked for.

use bulkhead_config::{LogConfig, LogFormat};
use bulkhead_runtime::PRINTED;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::log_trace::{Form, WithTrace};
use super::terminal;

/// Nobody asked for the host's own records then.
const LEVEL_DEFAULT: &str = "info";

/// Sets another level.
pub type Level = Box<dyn Fn(&str) + Send + Sync>;

/// Starts logging, at a level that can be changed.
pub fn start(config: &LogConfig) -> Level {
    let builder = tracing_subscriber::fmt().with_env_filter(filter(&config.level)).with_writer(std::io::stderr);
    // There is one logger per process; a second start changes nothing, and neither does a level for a logger that is
    // gone.
    match config.format {
        LogFormat::Text => {
            let ansi = terminal::has_colours(&std::io::stderr());
            let builder = builder.with_ansi(ansi);
            // The line is put together apart from the writer, which knows of colours.
            let with_trace = |lines: Format| WithTrace { lines: lines.with_ansi(ansi), form: Form::Text };
            let builder = builder.map_event_format(with_trace).with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = builder.try_init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        }
        LogFormat::Json => {
            let with_trace = |lines| WithTrace { lines, form: Form::Json };
            let builder = builder.json().flatten_event(true).map_event_format(with_trace).with_filter_reloading();
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
pub fn start_for_a_person() {
    let filter = EnvFilter::new(format!("warn,{PRINTED}=debug"));
    let ansi = terminal::has_colours(&std::io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi);
    let records = fmt::format().without_time().with_target(false);
    // As above.
    let _ = builder.event_format(ForAPerson(records)).try_init();
}

/// The same for a host that an author runs beside an editor, whose level the configuration can set.
pub fn start_for_an_author(config: &LogConfig) -> Level {
    if config.level == LEVEL_DEFAULT {
        start_for_a_person();
        Box::new(|_| ())
    } else {
        start(config)
    }
}

/// What a guest prints, as it prints it; the host's own records as ever.
struct ForAPerson(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for ForAPerson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        if event.metadata().target() != PRINTED {
            return self.0.format_event(context, writer, event);
        }
        let mut line = Message(String::new());
        event.record(&mut line);
        writeln!(writer, "{}", line.0)
    }
}

/// The text of a record, without its fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
