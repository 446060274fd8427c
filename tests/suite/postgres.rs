//! A host whose store is in PostgreSQL: the same promises as on its own disk.

use serde_json::json;
use tests::client::{Client, all_capabilities};
use tests::wait::until;
use tests::{Setup, command};

use bulkhead_store::postgres_server::{self, PostgresServer};

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
    let refused = bulkhead(&setup, &["store", "check"]).await;
    assert!(!refused.status.success() && text(&refused).contains("pg_amcheck"), "{}", text(&refused));
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
    assert!(said.contains("a store of its own"), "{said}");
    std::fs::remove_dir(setup.data().join("store")).expect("it was empty");
    let _host = setup.start().await;
    let found = text(&bulkhead(&setup, &["doctor"]).await);
    assert!(found.contains("ok   database: server: PostgreSQL 15"), "{found}");
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
    drop(host);
    // A server that would take any password, or a proof for another connection, learns nothing.
    for method in ["trust", "password"] {
        with_access(&format!("hostssl all all 127.0.0.1/32 {method}"));
        refused(setup(&address, Some("root1.pem")), "SCRAM bound to the connection").await;
    }
}
