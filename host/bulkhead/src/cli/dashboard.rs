//! `bulkhead dashboard`.

use std::process::ExitCode;

use bulkhead_control::commands::DashboardLogin;
use bulkhead_control::views::DashboardLoginView;
use clap::Subcommand;

use super::operate::{OperateArguments, show_answer};

/// Pages in a browser: what runs, who uses what, and a requestor's own tasks. The configuration turns them on:
/// [dashboard] listen.
#[derive(Debug, Subcommand)]
pub(crate) enum DashboardCommand {
    /// Print a link that logs an operator in, once and within ten minutes
    #[command(
        after_long_help = "The link is for the browser of whoever runs the host: what it opens shows all tenants, and can \
        cancel and remove their tasks. Needs the running host on this machine."
    )]
    Login(OperateArguments),
}

pub(crate) async fn run(command: DashboardCommand) -> anyhow::Result<ExitCode> {
    let DashboardCommand::Login(operate) = command;
    show_answer(&operate, DashboardLogin {}, |view, _| link(view)).await
}

pub(super) fn link(view: &DashboardLoginView) -> String {
    view.link.clone()
}
