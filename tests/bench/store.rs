//! Durable creation against the store alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bulkhead_domain::Json;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Active, CallId, Lease, NodeId, Origin, Outcome, Phase, Retention, Task, TaskId};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_store::sled::{ProbeMode, SledOptions, SledStore};
use bulkhead_store::{Change, Creation, StoredCaps, TaskStore as _};
use serde_json::json;
use tests::Setup;
use tests::client::{Client, all_capabilities};

use crate::Plan;
use crate::load::{self, Connection, Measured};
use crate::report::{Budget, Report};
use crate::throughput::{CONNECTIONS, UNLIMITED};

/// Sixteen requestors create tasks as fast as they are acknowledged.
pub(crate) async fn creations(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let bare = bare_store(plan.each).await?;
    let setup = Setup::with(&["primes"]).config(UNLIMITED);
    let mut tokens = Vec::new();
    for at in 0..CONNECTIONS {
        tokens.push(setup.token(&format!("requestor-{at}"), &format!("tenant-{}", at % 4)).await);
    }
    let host = setup.start().await;
    let mut connections = Vec::new();
    for token in &tokens {
        let client = Client::connect_as(&host, Some(token), all_capabilities()).await;
        let session = client.session.clone().context("a session")?;
        let bearer = format!("Bearer {token}");
        let headers =
            [("authorization", &*bearer), ("mcp-session-id", &*session), ("mcp-protocol-version", "2025-11-25")];
        connections.push(Connection::open(&host.url, &headers).await?);
    }
    let created = load::drive(connections, plan.each, |_, turn| {
        let params = json!({"name": "count_primes", "arguments": {"below": 10}, "task": {"ttl": 600_000}});
        json!({"jsonrpc": "2.0", "id": turn, "method": "tools/call", "params": params}).to_string()
    });
    let created = created.await?;
    let made_of = format!(
        "{:.0}/s, each also run to its end, to {:.0}/s of the bare store with the same writes",
        created.per_second, bare.per_second
    );
    let ratio = created.per_second / bare.per_second;
    report.add("tasks: durable creation, 16 requestors", made_of, ratio, "x", Budget::AtLeast(0.5));
    let made_of =
        format!("p99 {:.2} ms; the bare store {:.2} ms", created.quantile_us(0.99) / 1e3, bare.quantile_us(0.5) / 1e3);
    report.add("tasks: durable creation, median", made_of, created.quantile_us(0.5) / 1e3, "ms", Budget::AtMost(1.5));
    Ok(())
}

/// The same records, straight into the store.
async fn bare_store(each: Duration) -> anyhow::Result<Measured> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().to_owned();
    let open = move || SledStore::open(SledOptions { probe: ProbeMode::InProcess, ..SledOptions::new(data) });
    let store: Arc<SledStore> = tokio::task::spawn_blocking(open).await??;
    let writers = (0..CONNECTIONS as u8).map(|who| {
        let store = store.clone();
        tokio::spawn(async move {
            let begin = Instant::now();
            let mut times = Vec::new();
            let mut ending = None;
            for turn in 0u64.. {
                let sent = Instant::now();
                if sent - begin > each {
                    break;
                }
                let created = store.create(creation(who, turn)).await?;
                times.push(sent.elapsed());
                // As in the host, the end of the task is written while its requestor goes on to the next one.
                if let Some(end) = ending.replace(tokio::spawn(end(store.clone(), created))) {
                    end.await??;
                }
            }
            anyhow::Ok(times)
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut all = Vec::new();
    for writer in writers {
        all.extend(writer.await??);
    }
    store.close().await?;
    Ok(Measured::new(each, all))
}

/// Writes the output of a task.
async fn end(store: Arc<SledStore>, mut task: Task) -> anyhow::Result<()> {
    task.phase = Phase::Ended(Outcome::Output { is_error: false });
    let output = ToolOutput { is_error: false, ..ToolOutput::failure(r#"{"count":4,"below":10,"complete":true}"#) };
    store.commit(Change { output: Some(Arc::new(output.into())), ..Change::of(task) }).await?;
    Ok(())
}

/// What the host writes for the same call.
pub(crate) fn creation(who: u8, turn: u64) -> Creation {
    let mut id = [who; 16];
    id[..8].copy_from_slice(&turn.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    let requestor = Requestor { tenant: TenantId([who % 4; 16]), id: RequestorId([who; 16]) };
    let sample = Task::sample(requestor, TaskId(id));
    let task = Task {
        origin: Origin { session: Some([who; 16]), ..sample.origin.clone() },
        created_at: 1_800_000_000_000 + turn,
        updated_at: 1_800_000_000_000 + turn,
        retention: Retention::FromCreation { ttl_ms: 600_000 },
        phase: Phase::Active(Active::Running),
        call_id: CallId([who; 16]),
        lease: Some(Lease { node: NodeId([7; 16]), until: 1_800_000_000_000 }),
        attempt: 1,
        ..sample
    };
    let caps = StoredCaps {
        tasks_per_requestor: u32::MAX,
        bytes_per_requestor: u64::MAX,
        tasks_per_tenant: u32::MAX,
        bytes_per_tenant: u64::MAX,
    };
    Creation {
        task,
        arguments: Json::new(r#"{"below":10}"#),
        output: None,
        reserved_bytes: 1 << 16,
        caps,
        journal: None,
    }
}
