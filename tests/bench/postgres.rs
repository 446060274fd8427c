//! A store in PostgreSQL against the one on the host's disk, and what the database costs.
//!
//! The server keeps its data below the folder for temporary files, on whose disk `fdatasync` is measured too.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bulkhead_store::TaskStore as _;
use bulkhead_store::postgres::{Address, PostgresOptions, PostgresStore};
use bulkhead_store::postgres_server::{self, PostgresServer};
use tests::Setup;

use crate::Plan;
use crate::load::{self, Measured};
use crate::report::{Budget, Report};
use crate::store::creation;
use crate::throughput::{CONNECTIONS, UNLIMITED, connections, echo};

/// The least that is left of the rate of plain calls.
const ECHO_RATE_MIN: f64 = 0.97;
/// A plain call sends the database nothing; what the host does by itself once in a while is counted, too.
const STATEMENTS_MAX: f64 = 0.01;
/// One writer: so many times what the disk needs for a block of the write-ahead log, and this for two round trips.
const SYNCS_MAX: f64 = 1.5;
const ROUND_TRIPS: Duration = Duration::from_millis(1);
/// How much more 256 writers get done than 64.
const GROUPING_MIN: f64 = 1.8;
/// Of all processes of the database, for a task that one of 64 writers creates.
const DATABASE_CPU_US_MAX: f64 = 50.0;
/// What a commit of one creation adds to the write-ahead log, roughly.
const LOG_BLOCK: [u8; 8_192] = [7; 8_192];
const TURNS: u32 = 6;

/// Every row of it.
pub(crate) async fn postgres(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let server = PostgresServer::start_on_disk(&std::env::temp_dir(), &["shared_buffers=256MB"]);
    let Some(server) = server else { return Ok(()) };
    echoes(plan, &server, report).await?;
    one_writer(plan, &server, report).await?;
    many_writers(plan, &server, report).await
}

/// Plain calls on a host whose store is in the database, against one on its disk, in turns.
async fn echoes(plan: &Plan, server: &PostgresServer, report: &mut Report) -> anyhow::Result<()> {
    // Between here and there another program could take the port, but the system hands them out in turn.
    let page = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let on_disk = Setup::with(&["text"]).config(UNLIMITED).config("[metrics]\nlisten = \"127.0.0.1:0\"");
    let on_disk = on_disk.config("[store]\nengine = \"sled\"").start().await;
    let setup = Setup::with(&["text"]).config(UNLIMITED).config(&format!("[metrics]\nlisten = \"{page}\""));
    let url = setup.path("database");
    std::fs::write(&url, server.address())?;
    let schema = postgres_server::new_schema();
    let section = format!("[store]\nengine = \"postgres\"\nurl_file = {url:?}\nschema = \"{schema}\"");
    let in_database = setup.config(&section).start().await;
    let mut rates = [const { Vec::new() }; 2];
    let mut statements = 0.0;
    for turn in 0..TURNS {
        // The host that goes first in one turn goes last in the next.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let host = [&in_database, &on_disk][at];
            let sessions = connections(host, CONNECTIONS).await?;
            let before = statements_sent(page).await?;
            rates[at].push(load::drive(sessions, plan.each / TURNS, echo).await?);
            if at == 0 {
                statements += statements_sent(page).await? - before;
            }
        }
    }
    let [in_database, on_disk] = rates.map(Measured::of_turns);
    let made_of =
        format!("{:.0}/s to {:.0}/s on the host's disk, in turns", in_database.per_second, on_disk.per_second);
    let ratio = in_database.per_second / on_disk.per_second;
    report.add("postgres: echo, 16 connections", made_of, ratio, "x", Budget::AtLeast(ECHO_RATE_MIN));
    let calls = in_database.calls() as f64;
    let made_of = format!("{statements:.0} of the host itself, beside {calls:.0} calls");
    let budget = Budget::AtMost(STATEMENTS_MAX);
    report.add("postgres: statements for each echo", made_of, statements / calls, "statements", budget);
    Ok(())
}

/// What a host has sent its database so far, by its page of metrics.
async fn statements_sent(page: SocketAddr) -> anyhow::Result<f64> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let text = http.get(format!("http://{page}/metrics")).send().await?.error_for_status()?.text().await?;
    let line = text.lines().find_map(|line| line.strip_prefix("bulkhead_store_statements_total "));
    Ok(line.context("a host that counts statements")?.trim().parse()?)
}

async fn open(server: &PostgresServer) -> anyhow::Result<Arc<PostgresStore>> {
    let schema = postgres_server::new_schema();
    let options =
        PostgresOptions { address: Address::parse(&server.address())?, schema, keys: None, dialer: None, host: None };
    Ok(PostgresStore::open(options).await?)
}

/// A writer that waits for each task, and the same disk without a database, in turns.
async fn one_writer(plan: &Plan, server: &PostgresServer, report: &mut Report) -> anyhow::Result<()> {
    let store = open(server).await?;
    let mut created = Vec::new();
    let mut synced = Vec::new();
    for turn in 0..TURNS {
        synced.push(
            tokio::task::spawn_blocking({
                let each = plan.each / TURNS / 2;
                move || sync_times(each)
            })
            .await??,
        );
        created.push(create(&store, 1, turn, plan.each / TURNS).await?);
    }
    store.close().await?;
    let [created, synced] = [created, synced].map(|turns| Measured::of_turns(turns).quantile_us(0.5) / 1e3);
    let allowed = SYNCS_MAX * synced + ROUND_TRIPS.as_secs_f64() * 1e3;
    let made_of = format!("median {created:.2} ms; fdatasync {synced:.2} ms, which allows {allowed:.2} ms");
    report.add("postgres: durable create, 1 writer", made_of, created / allowed, "x", Budget::AtMost(1.0));
    Ok(())
}

/// Blocks of a log that is as long as it will be, each synced.
fn sync_times(each: Duration) -> anyhow::Result<Measured> {
    const BLOCKS: u64 = 2_048;
    let mut file: File = tempfile::tempfile()?;
    for _ in 0..BLOCKS {
        file.write_all(&LOG_BLOCK)?;
    }
    file.sync_all()?;
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < each {
        if (times.len() as u64).is_multiple_of(BLOCKS) {
            file.rewind()?;
        }
        let sent = Instant::now();
        file.write_all(&LOG_BLOCK)?;
        file.sync_data()?;
        times.push(sent.elapsed());
    }
    Ok(Measured::new(began.elapsed(), times))
}

/// 64 writers and 256, in turns, and what the database spends on the former.
async fn many_writers(plan: &Plan, server: &PostgresServer, report: &mut Report) -> anyhow::Result<()> {
    let store = open(server).await?;
    let mut few = Vec::new();
    let mut many = Vec::new();
    let mut used_us = 0.0;
    for turn in 0..TURNS {
        let before = server.cpu_ms();
        few.push(create(&store, 64, 2 * turn, plan.each / TURNS).await?);
        used_us += (server.cpu_ms() - before) as f64 * 1e3;
        many.push(create(&store, 256, 2 * turn + 1, plan.each / TURNS).await?);
    }
    store.close().await?;
    let [few, many] = [few, many].map(Measured::of_turns);
    let made_of = format!("{:.0}/s to {:.0}/s of 64 writers, in turns", many.per_second, few.per_second);
    let ratio = many.per_second / few.per_second;
    report.add("postgres: durable creates, 256 writers", made_of, ratio, "x", Budget::AtLeast(GROUPING_MIN));
    let made_of = format!("all processes of the database, {} creates at {:.0}/s", few.calls(), few.per_second);
    let us = used_us / few.calls() as f64;
    let budget = Budget::AtMost(DATABASE_CPU_US_MAX);
    report.add("postgres: the database's time for a create, 64 writers", made_of, us, "µs", budget);
    Ok(())
}

/// So many writers that create tasks, each as soon as the one before is durable.
async fn create(store: &Arc<PostgresStore>, writers: u16, turn: u32, each: Duration) -> anyhow::Result<Measured> {
    let began = Instant::now();
    let writers = (0..writers).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut times = Vec::new();
            for number in 0_u64.. {
                let sent = Instant::now();
                if sent - began > each {
                    break;
                }
                store.create(creation(writer as u8, u64::from(turn) << 32 | number)).await?;
                times.push(sent.elapsed());
            }
            anyhow::Ok(times)
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut all = Vec::new();
    for writer in writers {
        all.extend(writer.await??);
    }
    Ok(Measured::new(began.elapsed(), all))
}
