//! The bench: every number as a ratio to something that was measured in the same run, so that it means the same on
//! every machine.
//!
//! Owns the list of measurements and how they are shown. Host, bare handler and native server are processes of their
//! own, so that none of them shares a thread with the load generator.

mod costs;
mod dormant;
mod durable;
mod guests;
mod leads;
mod levers;
mod load;
mod many;
mod modern;
mod pages;
mod peers;
mod postgres;
mod report;
mod store;
mod swap;
mod throughput;

use std::time::Duration;

use clap::Parser;

use report::Report;

/// The host's own, for the sandbox that is measured in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the host against a bare HTTP handler, a native server and its own store.
#[derive(Parser)]
struct Arguments {
    /// How long each measurement lasts.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only measurements whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Tasks that wait at the same time, for the measurement `dormant`.
    #[arg(long, default_value_t = 10_000)]
    tasks: usize,
    /// Serves one of the peers; the bench starts itself with this.
    #[arg(long, hide = true)]
    peer: Option<peers::Peer>,
}

/// How long, and what.
pub(crate) struct Plan {
    pub(crate) each: Duration,
    pub(crate) tasks: usize,
    only: Option<String>,
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(peer) = arguments.peer {
        return peers::serve(peer).await;
    }
    if cfg!(debug_assertions) {
        eprintln!("This is the dev profile: the numbers say little. `cargo xtask bench` measures with optimisation.\n");
    }
    let plan = Plan {
        each: Duration::from_secs(arguments.seconds.max(1)),
        tasks: arguments.tasks.max(1),
        only: arguments.only,
    };
    let mut report = Report::default();
    if plan.wants("modern") {
        modern::calls(&plan, &mut report).await?;
        modern::promotion(&plan, &mut report).await?;
        modern::polling(&plan, &mut report).await?;
    }
    if plan.wants("levers") {
        levers::pause(&mut report).await?;
        levers::steer(&mut report).await?;
        levers::fan_out(&mut report).await?;
        levers::traces(&plan, &mut report).await?;
    }
    if plan.wants("echo") || plan.wants("get") {
        throughput::calls_and_reads(&plan, &mut report).await?;
    }
    if plan.wants("one-client") {
        throughput::one_client(&plan, &mut report).await?;
    }
    if plan.wants("switches") {
        throughput::switches(&plan, &mut report).await?;
    }
    if plan.wants("durable") {
        durable::calls(&plan, &mut report).await?;
        durable::replays(&plan, &mut report).await?;
    }
    if plan.wants("metrics") {
        throughput::metrics(&plan, &mut report).await?;
    }
    if plan.wants("profiles") {
        throughput::profiles(&plan, &mut report).await?;
    }
    if plan.wants("sandbox") {
        guests::sandbox_alone(&plan, &mut report).await?;
    }
    if plan.wants("resets") {
        guests::resets(&plan, &mut report).await?;
    }
    if plan.wants("tasks") {
        store::creations(&plan, &mut report).await?;
        throughput::created_to_completed(&plan, &mut report).await?;
    }
    if plan.wants("postgres") {
        postgres::postgres(&plan, &mut report).await?;
    }
    if plan.wants("loops") {
        costs::reads_beside_loops(&plan, &mut report).await?;
    }
    if plan.wants("crowd") {
        costs::a_call_beside_a_crowd(&plan, &mut report).await?;
    }
    if plan.wants("dormant") {
        dormant::many(&plan, &mut report).await?;
        dormant::wakes(&mut report).await?;
    }
    if plan.wants("leads") {
        leads::pages(&plan, &mut report).await?;
    }
    if plan.wants("pages") {
        pages::pages(&plan, &mut report).await?;
    }
    if plan.wants("memory") {
        costs::memory(&mut report).await?;
    }
    if plan.wants("start") {
        costs::warm_start(&mut report).await?;
    }
    if plan.wants("swap") {
        swap::swaps(&plan, &mut report).await?;
    }
    if plan.wants("plugins") {
        many::plugins(&plan, &mut report).await?;
    }
    if plan.wants("growth") {
        throughput::growth(&plan, &mut report).await?;
    }
    report.print();
    Ok(())
}
