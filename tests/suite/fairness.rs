//! The processors are shared between tenants, not between calls: whoever loops a hundred times gets no more than who
//! calls once.

use serde_json::json;
use tests::client::{Client, all_capabilities, text};
use tests::wait::until;
use tests::{Host, Setup, command};

/// As many running calls as one tenant may want.
const MANY: &str = "[log]\nlevel = \"warn\"\n[limits]\ncalls_running_per_requestor = 250\ncalls_running_per_tenant = 500\n\
                    calls_running_total = 520\ntasks_running_per_requestor = 250\nrequests_per_second = 10000\n\
                    task_creations_per_second = 10000\n[call]\ncpu_ms = 3600000\nwall_ms = 3600000\n";

/// So many that one call takes several tenths of a second.
const PRIMES: u64 = 100_000_000;

/// A crowd of two requestors of one tenant, and somebody alone in another one.
async fn scene(setup: &Setup) -> (Host, [Client; 2], Client) {
    let mallory = [setup.token("mallory", "crowd").await, setup.token("marvin", "crowd").await];
    let bob = setup.token("bob", "alone").await;
    let host = setup.start().await;
    let [first, second] = &mallory;
    let crowd = [
        Client::connect_as(&host, Some(first), all_capabilities()).await,
        Client::connect_as(&host, Some(second), all_capabilities()).await,
    ];
    let alone = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    (host, crowd, alone)
}

/// Loops for ever, so many times each.
async fn loops(crowd: &[Client; 2], each: usize) -> Vec<(Client, String)> {
    let mut loops = Vec::new();
    for client in crowd {
        for _ in 0..each {
            loops.push((client.clone_session(), client.task("spin", json!({})).await));
        }
    }
    loops
}

/// The processor time that the host uses while one call is made, in milliseconds.
async fn cpu_ms_beside_a_call(host: &Host, client: &Client) -> u64 {
    let before = host.cpu_ms();
    let counted = client.tool("count_primes", json!({"below": PRIMES})).await.expect("it is counted");
    assert!(!text(&counted).is_empty());
    host.cpu_ms() - before
}

#[tokio::test]
async fn call_gets_its_cpu_share_beside_500_loops() {
    let setup = Setup::with(&["hostile", "primes"]).config(MANY);
    let (host, crowd, alone) = scene(&setup).await;
    cpu_ms_beside_a_call(&host, &alone).await;
    let needs_ms = cpu_ms_beside_a_call(&host, &alone).await;
    let loops = loops(&crowd, 250).await;
    let used_ms = cpu_ms_beside_a_call(&host, &alone).await;
    // Of so many threads it gets one to itself, or half of the only one. In the order of arrival, all 500 would have
    // their turns between two of its own.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2) as u64;
    assert!(
        used_ms <= 2 * threads * needs_ms + 500,
        "{used_ms} ms were used up by the time that it had its {needs_ms} ms"
    );

    // Loops of a crowd stop like any others.
    let (client, id) = &loops[250];
    client.about("tasks/cancel", id).await.expect("it is cancelled");
    client.until_status(id, "cancelled").await;
    for (client, id) in &loops {
        drop(client.about("tasks/cancel", id).await);
    }
    until("the processors to be free", async || {
        (host.cpu_ms_in(std::time::Duration::from_millis(200)).await <= 50).then_some(())
    })
    .await;
}

#[tokio::test]
async fn loop_among_many_keeps_its_own_cpu_limit() {
    let setup = Setup::with(&["hostile", "primes"]).config(&MANY.replace("cpu_ms = 3600000", "cpu_ms = 150"));
    let (_host, crowd, alone) = scene(&setup).await;
    let loops = loops(&crowd, 20).await;
    let refused = alone.tool("spin", json!({})).await.expect_err("it has a budget");
    assert_eq!(refused.code, 1002, "{refused:?}");
    for (client, id) in &loops {
        client.until_status(id, "failed").await;
    }
}

/// The processor time that the host uses until four calls of one tenant have used up theirs, 500 ms each, in
/// milliseconds.
async fn cpu_ms_until_four_are_over(host: &Host, client: &Client) -> u64 {
    let before = host.cpu_ms();
    let calls = (0..4).map(|_| client.tool("spin", json!({})));
    for ended in futures::future::join_all(calls).await {
        assert_eq!(ended.expect_err("it has a budget").code, 1002);
    }
    host.cpu_ms() - before
}

#[tokio::test]
async fn tenant_cpu_weight_applies_and_changes_on_reload() {
    const WEIGHT: &str = "[tenant.alone]\ncpu_weight = 3\n";
    let limits = MANY.replace("cpu_ms = 3600000", "cpu_ms = 500");
    let setup = Setup::new().config(&format!("{limits}{WEIGHT}")).plugin("hostile", "quarantine_after = 0");
    let (host, crowd, alone) = scene(&setup).await;
    let _loops = loops(&crowd, 20).await;
    // Theirs are 2,000 ms, and the crowd gets a third of that beside them.
    let heavy_ms = cpu_ms_until_four_are_over(&host, &alone).await;
    assert!((2_200..3_300).contains(&heavy_ms), "of {heavy_ms} ms, 2,000 were theirs");

    let file = setup.path("bulkhead.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration").replace(WEIGHT, "");
    std::fs::write(&file, text).expect("the configuration");
    let changed = command::json(&["host", "reload"], &setup.data()).await;
    assert_eq!(changed["changed"], json!(["tenant.alone.cpu_weight"]), "{changed}");
    let even_ms = cpu_ms_until_four_are_over(&host, &alone).await;
    assert!((3_500..5_000).contains(&even_ms), "of {even_ms} ms, 2,000 were theirs, and as much the crowd's");
}
