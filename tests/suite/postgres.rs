//! A host whose store is in PostgreSQL: the same promises as on its own disk.

mod away;
pub(crate) mod cluster;
mod cluster_shared;
mod edge;
mod kills;

use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::wait::{soon, until};
use tests::{Setup, command};

use crate::metrics::{METRICS, number, scrape};

use bulkhead_store::postgres_server::{self, PostgresServer};

/// For clients that never wait.
const UNHURRIED: &str = "[limits]\nrequests_per_second = 100000\nrequests_per_second_per_tenant = 100000\n\
    task_creations_per_second = 100000\ntask_creations_per_second_per_tenant = 100000";

/// A host on a schema of its own.
fn on(server: &PostgresServer, setup: Setup) -> Setup {
    let url = setup.path("database");
    std::fs::write(&url, server.address()).expect("a file");
    let schema = postgres_server::new_schema();
    setup.config(&format!("[store]\nengine = \"postgres\"\nurl_file = {url:?}\nschema = \"{schema}\""))
}

/// With the configuration of a setup, whether a host runs or not.
async fn bulkhead(setup: &Setup, arguments: &[&str]) -> std::process::Output {
    let mut words = arguments.iter();
    let mut command = setup.command(words.next().expect("a command"));
    // The options of a command stand behind its verb.
    let options: Vec<_> = command.as_std().get_args().skip(1).map(ToOwned::to_owned).collect();
    command = command::bulkhead();
    command.args(arguments).args(options);
    command.output().await.expect("the command runs")
}

fn text(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_on_postgres_that_is_killed_keeps_tasks_tokens_and_plugins() {
    let Some(server) = postgres_server::shared() else { return };
    let setup = on(server, Setup::new().plugin("primes", "durable = \"off\"").plugin("desk", ""));
    let made = bulkhead(&setup, &["token", "create", "--requestor", "anna", "--tenant", "acme"]).await;
    assert!(made.status.success(), "{}", text(&made));
    let token = String::from_utf8_lossy(&made.stdout).split_whitespace().last().expect("a token").to_owned();

    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let done = client.task("count_primes", json!({"below": 1000})).await;
    client.until_status(&done, "completed").await;
    let result = client.about("tasks/result", &done).await.expect("a result");
    let before = client.about("tasks/get", &done).await.expect("it is there");
    let lost = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    // It waits with its journal in the database.
    let waits = client.task("wait", json!({"ms": 2_000})).await;
    client.until_status(&waits, "working").await;
    let setup = host.kill().await;

    let host = setup.start().await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    assert_eq!(client.about("tasks/get", &done).await.expect("it is there"), before, "nothing of it changed");
    assert_eq!(client.about("tasks/result", &done).await.expect("a result"), result);
    let failed = client.until_status(&lost, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap_or_default().to_lowercase().contains("host"), "{failed}");
    let went_on = client.until_status(&waits, "completed").await;
    assert_eq!(went_on["taskId"], waits.as_str());
    assert!(!setup.data().join("store").exists(), "nothing is kept beside the database");

    // What works with a running host works without one.
    let (status, setup) = host.terminate().await;
    assert!(status.success());
    let listed = bulkhead(&setup, &["tenant", "list"]).await;
    assert!(listed.status.success() && text(&listed).contains("acme"), "{}", text(&listed));
    let checked = bulkhead(&setup, &["store", "check"]).await;
    assert!(checked.status.success(), "{}", text(&checked));
    let refused = bulkhead(&setup, &["store", "rebuild"]).await;
    assert!(!refused.status.success() && text(&refused).contains("point in time"), "{}", text(&refused));
    let purged = bulkhead(&setup, &["tenant", "purge", "acme", "--yes"]).await;
    assert!(purged.status.success(), "{}", text(&purged));
    let listed = bulkhead(&setup, &["tenant", "list"]).await;
    assert!(!text(&listed).contains("acme"), "{}", text(&listed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_outlives_a_crash_of_its_database() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let setup = on(&server, Setup::with(&["primes"]));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let done = client.task("count_primes", json!({"below": 1000})).await;
    client.until_status(&done, "completed").await;
    let ready = async || {
        let answer = reqwest::get(host.address("/readyz")).await.expect("it answers");
        (answer.status().as_u16(), answer.text().await.expect("a text"))
    };
    assert_eq!(ready().await.0, 200);
    server.crash();
    until("the host to say that it is not ready", async || (ready().await.0 == 503).then_some(())).await;
    let refused = client.about("tasks/get", &done).await.expect_err("it cannot be read");
    assert_eq!(refused.code, 1013, "{refused:?}");
    server.run();
    until("the host to be ready again", async || (ready().await.0 == 200).then_some(())).await;
    assert_eq!(client.about("tasks/get", &done).await.expect("it is there")["status"], "completed");
    let again = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&again, "completed").await;
}

/// Whether the kernel will look after the peer of each connection to this port soon.
fn idle_sockets_are_probed(port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    const KEEPALIVE_TIMER: &str = "02";
    /// In hundredths of a second, with some to spare.
    const SOON: u64 = 1_200;
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections of this machine");
    let end = format!(":{port:04X}");
    let mut ends = [0, 0];
    for line in table.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, remote, ESTABLISHED, _, timer, ..] = fields.as_slice() else { continue };
        let Some(side) = [local, remote].iter().position(|address| address.ends_with(&end)) else { continue };
        let Some((KEEPALIVE_TIMER, after)) = timer.split_once(':') else { return false };
        if u64::from_str_radix(after, 16).is_ok_and(|after| after > SOON) {
            return false;
        }
        ends[side] += 1;
    }
    // Of each connection the table has both ends.
    ends[0] > 0 && ends[0] == ends[1]
}

/// Has a command import this from a pipe, and kills it once it has read all but what a pipe holds.
async fn kill_rebuild_in_the_middle(setup: &Setup, lines: &str) {
    let pipe = setup.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    // More than a batch of whatever engine, and more than the pipe.
    let more: String = (0..1_200)
        .map(|number| format!("{{\"kind\":\"row\",\"row\":\"S\",\"key\":\"{number:08}\",\"value\":\"\"}}{:80}\n", ""))
        .collect();
    let half: String = lines.lines().take(lines.lines().count() / 2).map(|line| format!("{line}\n")).collect();
    let input = format!("{half}{more}{}", " ".repeat(100_000));
    let (written, is_written) = tokio::sync::oneshot::channel();
    let to = pipe.clone();
    // A thread of its own: where the command does not read, nothing waits for it.
    std::thread::spawn(move || {
        use std::io::Write as _;
        let opened = std::fs::File::options().read(true).write(true).open(to);
        let written_whole = opened.and_then(|mut pipe| pipe.write_all(input.as_bytes()).map(|()| pipe));
        let _ = written.send(written_whole);
    });
    let mut command = command::bulkhead();
    command.args(["store", "rebuild", "--from"]).arg(&pipe);
    command.args(["--config", setup.path("bulkhead.toml").to_str().expect("UTF-8")]).arg("--data").arg(setup.data());
    let mut child = command.spawn().expect("the command starts");
    let _pipe = soon("the command to read", is_written).await.expect("a writer").expect("a pipe");
    assert!(child.try_wait().expect("a process").is_none(), "it waits for the rest");
    child.kill().await.expect("it is killed");
    std::fs::remove_file(pipe).expect("a pipe");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_moves_to_a_database_and_back_also_when_a_move_is_killed() {
    let Some(server) = postgres_server::shared() else { return };
    // On the host's disk, whatever the others of this run have.
    let disk = Setup::with(&["primes"]).config("[store]\nengine = \"sled\"");
    let made = bulkhead(&disk, &["token", "create", "--requestor", "anna", "--tenant", "acme"]).await;
    let token = String::from_utf8_lossy(&made.stdout).split_whitespace().last().expect("a token").to_owned();
    let host = disk.start().await;
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let done = client.task("count_primes", json!({"below": 1000})).await;
    client.until_status(&done, "completed").await;
    let before = client.about("tasks/get", &done).await.expect("it is there");
    let result = client.about("tasks/result", &done).await.expect("a result");
    let (status, disk) = host.terminate().await;
    assert!(status.success());

    let lines_of = async |setup: &Setup, name: &str| {
        let file = disk.path(name);
        let exported = bulkhead(setup, &["store", "export", file.to_str().expect("UTF-8")]).await;
        assert!(exported.status.success(), "{}", text(&exported));
        (file.clone(), std::fs::read_to_string(file).expect("an export"))
    };
    let (file, whole) = lines_of(&disk, "whole").await;
    // Behind the first line, which names a database.
    let rows = |text: &str| text.lines().skip(1).map(ToOwned::to_owned).collect::<Vec<_>>();
    let rebuilt = async |setup: &Setup, file: &std::path::Path| {
        drop(setup.command("serve"));
        kill_rebuild_in_the_middle(setup, &whole).await;
        let rebuilt = bulkhead(setup, &["store", "rebuild", "--from", file.to_str().expect("UTF-8")]).await;
        assert!(rebuilt.status.success(), "{}", text(&rebuilt));
    };
    let database = on(server, Setup::with(&["primes"]));
    rebuilt(&database, &file).await;
    let (there, text_there) = lines_of(&database, "there").await;
    assert_eq!(rows(&text_there), rows(&whole));
    let again = bulkhead(&database, &["store", "rebuild", "--from", file.to_str().expect("UTF-8")]).await;
    assert!(!again.status.success() && text(&again).contains("holds a store already"), "{}", text(&again));

    let other = Setup::with(&["primes"]).config("[store]\nengine = \"sled\"");
    rebuilt(&other, &there).await;
    let (_, text_back) = lines_of(&other, "back").await;
    assert_eq!(rows(&text_back), rows(&whole));
    for setup in [database, other] {
        let host = setup.start().await;
        let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
        assert_eq!(client.about("tasks/get", &done).await.expect("it is there"), before);
        assert_eq!(client.about("tasks/result", &done).await.expect("a result"), result);
        let checked = bulkhead(&setup, &["store", "check"]).await;
        assert!(checked.status.success(), "{}", text(&checked));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_call_sends_the_database_nothing() {
    let Some(server) = postgres_server::shared() else { return };
    let setup = on(server, Setup::with(&["text", "primes"]).config(METRICS).config(UNHURRIED));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let statements = async || number(&scrape(&host, "text/plain").await, &["bulkhead_store_statements_total"]);
    client.tool("echo", json!({"text": "a"})).await.expect("an echo");
    let before = statements().await;
    for _ in 0..200 {
        client.tool("echo", json!({"text": "a"})).await.expect("an echo");
    }
    let after = statements().await;
    // What the host does by itself once in a while is there, too.
    assert!(after - before < 50.0, "{before} → {after}: less than one for four calls");
    let done = client.task("count_primes", json!({"below": 1000})).await;
    client.until_status(&done, "completed").await;
    assert!(statements().await > after, "a task is counted");
}

#[tokio::test]
async fn host_says_what_is_wrong_with_its_database() {
    let Some(server) = postgres_server::shared() else { return };
    let away = Setup::new();
    let url = away.path("database");
    std::fs::write(&url, "host=/nowhere user=u password=hunter2 dbname=d").expect("a file");
    let away = away.config(&format!("[store]\nengine = \"postgres\"\nurl_file = {url:?}"));
    let (_, said) = away.refused().await;
    assert!(said.contains("cannot be reached: start it") && !said.contains("hunter2"), "{said}");
    let found = bulkhead(&away, &["doctor"]).await;
    assert!(text(&found).contains("FAIL database") && !text(&found).contains("hunter2"), "{}", text(&found));

    let setup = on(server, Setup::new());
    std::fs::create_dir_all(setup.data().join("store")).expect("a folder");
    let (_, said) = setup.refused().await;
    assert!(said.contains("a store of its own") && said.contains("store rebuild --from FILE"), "{said}");
    std::fs::remove_dir(setup.data().join("store")).expect("it was empty");
    let _host = setup.start().await;
    let found = text(&bulkhead(&setup, &["doctor"]).await);
    assert!(found.contains("ok   database: server: PostgreSQL 1"), "{found}");
    let other = Setup::new();
    std::fs::copy(setup.path("bulkhead.toml"), other.path("other.toml")).expect("a copy");
    let sections = std::fs::read_to_string(other.path("other.toml")).expect("a file");
    let (_, said) = other.config(&sections).refused().await;
    assert!(said.contains("another host works with the schema"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_over_a_network_is_reached_by_tls_and_a_bound_proof_alone() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let port = free.port();
    let certificate = include_bytes!("../harness/keys/host1.pem");
    let key = include_bytes!("../harness/keys/host1.key.pem");
    let files: [(&str, &[u8]); 2] = [("host.pem", certificate), ("host.key", key)];
    let port_setting = format!("port={port}");
    let settings = [
        "ssl=on",
        "ssl_cert_file=../host.pem",
        "ssl_key_file=../host.key",
        "listen_addresses=127.0.0.1",
        port_setting.as_str(),
    ];
    let Some(server) = PostgresServer::start_with(&files, &settings) else { return };
    server.crash();
    server.execute("create role anna login superuser password 'hunter2'");
    server.run();
    let with_access = |lines: &str| {
        server.set_access(&format!("{lines}\nlocal all all trust\n"));
    };
    let setup = |address: &str, roots: Option<&str>| {
        let setup = Setup::new();
        let url = setup.path("database");
        std::fs::write(&url, address).expect("a file");
        let roots = roots.map(|name| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/keys").join(name);
            format!("ca_file = {path:?}\n")
        });
        let roots = roots.unwrap_or_default();
        setup.config(&format!("[store]\nengine = \"postgres\"\nurl_file = {url:?}\n{roots}"))
    };
    let address = format!("postgresql://anna:hunter2@localhost:{port}/postgres");
    let refused = async |setup: Setup, expected: &str| {
        let said = until("the host to give up for this reason", async || {
            let (_, said) = setup.refused().await;
            assert!(!said.contains("hunter2"), "{said}");
            said.contains(expected).then_some(said)
        });
        said.await
    };
    with_access("hostssl all all 127.0.0.1/32 scram-sha-256");
    refused(setup(&address, None), "is not trusted").await;
    refused(setup(&address, Some("root2.pem")), "is not trusted").await;
    refused(setup(&address.replace("hunter2", "wrong"), Some("root1.pem")), "refuses the host").await;
    let host = setup(&address, Some("root1.pem")).start().await;
    // Both ends look after an idle peer, so that neither the host nor its lock outlives a partition by hours.
    until("both ends to look after the other", async || idle_sockets_are_probed(port).then_some(())).await;
    drop(host);
    // A server that would take any password, or a proof for another connection, learns nothing.
    for method in ["trust", "password"] {
        with_access(&format!("hostssl all all 127.0.0.1/32 {method}"));
        refused(setup(&address, Some("root1.pem")), "SCRAM bound to the connection").await;
    }
}
