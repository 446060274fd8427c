//! `bulkhead host`: what there is only of a host that runs.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_console::table::{cell, fields};
use bulkhead_control::commands::{ConfigReload, DrainBegin, DrainEnd, DrainShow, HealthShow, HostShow};
use bulkhead_control::views::{DrainView, ReloadView};
use clap::Subcommand;

use super::operate::{Absent, OperateArguments, execute, show, show_answer, show_fields};

/// Between two looks at what is left to end.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Needs a running host, on this machine or, with --url, anywhere.
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Show which host answers, since when and where, whether it takes new work, and how much of the old one there is
    Status(OperateArguments),
    /// Show whether the host is healthy and ready, and what that is read from
    #[command(after_long_help = "Exit code 1: the host is unhealthy or not ready; `reasons` says why.")]
    Health(OperateArguments),
    /// Take nothing new, let what runs come to its end, and show how far that is; the host goes on answering reads
    Drain {
        /// Do not wait for the end
        #[arg(long, conflicts_with_all = ["undo", "status"])]
        no_wait: bool,
        /// Take new work again
        #[arg(long, conflicts_with = "status")]
        undo: bool,
        /// Only show what is left: `host status`
        #[arg(long, hide = true)]
        status: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Read the configuration again and take it over, all of it or nothing (as SIGHUP does)
    #[command(
        after_long_help = "Limits, [tenant.NAME.limits], [call], the terms and grants of plugins, auth.anonymous_loopback, \
        [[auth.scope]], [[auth.issuer]], [[trust]], [sources] and log.level are taken over. Where anything else is different, a \
        restart is needed, and nothing is taken over.\n\nExit code 1: nothing has changed; the reasons are printed."
    )]
    Reload {
        /// Only say what would change, or what is wrong
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

pub(crate) async fn run(command: HostCommand) -> anyhow::Result<ExitCode> {
    match command {
        HostCommand::Status(operate) | HostCommand::Drain { status: true, operate, .. } => {
            show_fields(&operate, HostShow {}).await
        }
        HostCommand::Health(operate) => {
            let view = execute(&operate, HealthShow {}, Absent::Refuse).await?;
            let code = show(&operate, &view, |_| fields(&view))?;
            Ok(if view.healthy && view.ready { code } else { ExitCode::from(EXIT_FAILED) })
        }
        HostCommand::Drain { undo: true, operate, .. } => show_fields(&operate, DrainEnd {}).await,
        HostCommand::Drain { no_wait, operate, .. } => drain(&operate, !no_wait).await,
        HostCommand::Reload { check, operate } => {
            show_answer(&operate, ConfigReload { check }, |view, _| reloaded(view)).await
        }
    }
}

async fn drain(operate: &OperateArguments, wait: bool) -> anyhow::Result<ExitCode> {
    let mut view = execute(operate, DrainBegin {}, Absent::Refuse).await?;
    loop {
        let code = show(operate, &view, |_| left(&view))?;
        if !wait || view.still || !view.draining {
            return Ok(code);
        }
        let before = view;
        // Nothing is said twice.
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            view = execute(operate, DrainShow {}, Absent::Refuse).await?;
            if view != before {
                break;
            }
        }
    }
}

pub(super) fn left(view: &DrainView) -> String {
    let DrainView { plain_calls, tasks_running, tasks_queued, tasks_waiting, tasks_paused, .. } = view;
    format!(
        "left: {plain_calls} calls, {tasks_running} running tasks (and {tasks_queued} queued, {tasks_waiting} waiting, \
         {tasks_paused} paused, which stay)"
    )
}

pub(super) fn reloaded(view: &ReloadView) -> String {
    let changed: Vec<_> = view.changed.iter().map(|key| cell(&**key)).collect();
    match (changed.is_empty(), view.done) {
        (true, _) => "nothing is different".to_owned(),
        (false, true) => format!("changed: {}", changed.join(", ")),
        (false, false) => format!("would change: {}", changed.join(", ")),
    }
}
