//! What probes and a service manager hear of a host: while it is well, while its guests stand still, and while it goes
//! down.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::parked::ParkedThreads;
use tests::wait::until;
use tests::{Host, Setup, command, place};

/// Longer than guests may stand still.
const LONG: Duration = Duration::from_secs(12);

async fn probe(host: &Host, path: &str) -> (u16, Value) {
    let answer = reqwest::get(host.address(path)).await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// A service manager that only listens.
struct Listener(tokio::net::UnixDatagram);

impl Listener {
    /// On a socket of the file system, or on an abstract one; with what a host must be started with.
    fn new(setup: Setup, is_abstract: bool) -> (Self, Setup) {
        let path = setup.path("notify").to_str().expect("a path").to_owned();
        let (address, name) = match is_abstract {
            true => (SocketAddr::from_abstract_name(&path).expect("a name"), format!("@{path}")),
            false => (SocketAddr::from_pathname(&path).expect("a path"), path),
        };
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let socket = tokio::net::UnixDatagram::from_std(socket).expect("a socket");
        (Self(socket), setup.env("NOTIFY_SOCKET", &name))
    }

    /// What has come so far.
    fn heard(&self) -> Vec<String> {
        let mut buffer = [0; 1024];
        let mut heard = Vec::new();
        while let Ok(bytes) = self.0.try_recv(&mut buffer) {
            heard.push(String::from_utf8_lossy(&buffer[..bytes]).into_owned());
        }
        heard
    }

    async fn next(&self) -> String {
        let mut buffer = [0; 1024];
        let next = tests::wait::soon("word to the service manager", self.0.recv(&mut buffer)).await;
        String::from_utf8_lossy(&buffer[..next.expect("it can be read")]).into_owned()
    }
}

#[tokio::test]
async fn parked_guest_threads_fail_health_probe_and_watchdog_until_they_go_on() {
    let (manager, setup) = Listener::new(Setup::with(&["text"]).env("WATCHDOG_USEC", "400000"), false);
    let host = setup.start().await;
    assert_eq!(probe(&host, "/healthz").await, (200, json!({"status": "ok"})));
    let client = Client::connect(&host).await;
    let parked = ParkedThreads::of(&host, "guest");
    let since = Instant::now();
    let reason = "the guests' threads stand still";
    until("the probe to fail", async || (probe(&host, "/healthz").await.0 == 503).then_some(())).await;
    assert!(since.elapsed() > Duration::from_secs(7), "after {:?} they may only be slow", since.elapsed());
    assert_eq!(probe(&host, "/healthz").await.1, json!({"status": "unhealthy", "reason": reason}));
    assert_eq!(probe(&host, "/readyz").await, (503, json!({"status": "unready", "reason": reason})));
    let (code, view) = command::outcome(&["host", "health"], &setup.data()).await;
    assert_eq!((code, &view["healthy"], &view["reasons"]), (Some(1), &json!(false), &json!([reason])), "{view}");
    assert_eq!(view["guests"]["running"], false, "{view}");
    assert!(view["guests"]["silent_ms"].as_u64().is_some_and(|ms| ms > 10_000), "{view}");

    // The socket holds ten messages; one more may have waited for room since the host was well, for a second at most.
    manager.heard();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    manager.heard();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(manager.heard(), Vec::<String>::new(), "the service manager must kill such a host");
    drop(parked);
    until("the probe to pass", async || (probe(&host, "/healthz").await.0 == 200).then_some(())).await;
    assert_eq!(manager.next().await, "WATCHDOG=1");
    assert_eq!(probe(&host, "/readyz").await.0, 200);
    let upper = client.tool("word_count", json!({"text": "it goes on"})).await.expect("calls go on");
    assert!(!text(&upper).is_empty());
}

#[tokio::test]
async fn guests_that_compute_leave_the_host_healthy() {
    let limits = "[limits]\ncalls_running_per_requestor = 64\ntasks_running_per_requestor = 64\n[call]\ncpu_ms = 600000\nwall_ms = 600000";
    let setup = Setup::with(&["hostile"]).config(limits);
    let host = setup.start().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    for _ in 0..32 {
        client.task("spin", json!({})).await;
    }
    let since = Instant::now();
    let mut looks = 0;
    while since.elapsed() < LONG {
        assert_eq!(probe(&host, "/healthz").await.0, 200, "after {:?}", since.elapsed());
        looks += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(looks > 10, "{looks} looks");
    let view = command::json(&["host", "health"], &setup.data()).await;
    assert_eq!((&view["healthy"], &view["guests"]["running"]), (&json!(true), &json!(true)), "{view}");
}

#[tokio::test]
async fn broken_plugin_makes_a_host_unready_only_where_it_is_required() {
    let setup = Setup::with(&["text", "bad_schema"]);
    let host = setup.start().await;
    assert_eq!(probe(&host, "/readyz").await, (200, json!({"status": "ready"})));
    let view = command::json(&["host", "health"], &setup.data()).await;
    let plugins = json!({"configured": 2, "serving": 1, "broken": ["bad_schema"], "awaited": [], "missing": []});
    assert_eq!((&view["ready"], &view["plugins"]), (&json!(true), &plugins), "{view}");
    assert_eq!(view["store"], json!({"writable": true, "problem": null}), "{view}");
    assert!(view["disk_free_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{view}");
    assert_eq!((&view["clock"]["ahead_of_system_ms"], &view["draining"]), (&json!(0), &json!(false)), "{view}");
    host.terminate().await;

    for (required, missing) in
        [("plugin:text", None), ("plugin:bad_schema", Some("bad_schema")), ("plugin:x", Some("x"))]
    {
        let setup = setup.clone().config(&format!("[server]\nready_requires = [{required:?}]"));
        let host = setup.start().await;
        let (status, said) = probe(&host, "/readyz").await;
        let (code, view) = command::outcome(&["host", "health"], &setup.data()).await;
        match missing {
            None => assert_eq!((status, code), (200, Some(0)), "{said} {view}"),
            Some(name) => {
                let reason = "a required plugin is not served";
                assert_eq!(
                    (status, said),
                    (503, json!({"status": "unready", "reason": reason})),
                    "no name for strangers"
                );
                assert_eq!((code, &view["reasons"]), (Some(1), &json!([reason])), "{view}");
                assert_eq!(view["plugins"]["missing"], json!([name]), "{view}");
            }
        }
        assert_eq!(probe(&host, "/healthz").await.0, 200);
        host.terminate().await;
    }
}

/// A file below `components` is gone, as after a backup that leaves it out.
#[tokio::test]
async fn missing_component_makes_a_host_unready_until_an_update_brings_it_back() {
    let updates: [&[&str]; 2] = [&["plugin", "update", "text"], &["plugin", "update", "text", "--activate"]];
    for update in updates {
        let setup = Setup::new();
        let host = setup.start().await;
        let data = setup.data();
        let file = place::component("text").display().to_string();
        command::json(&["plugin", "add", &file, "--name", "text"], &data).await;
        host.terminate().await;
        let kept = std::fs::read_dir(data.join("components")).expect("a folder");
        let kept: Vec<_> = kept.map(|entry| entry.expect("an entry").path()).collect();
        let kept: Vec<_> = kept.iter().filter(|path| path.extension().is_some_and(|end| end == "wasm")).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        std::fs::remove_file(kept[0]).expect("the component can be removed");

        let host = setup.start().await;
        let reason = "the component of a plugin is missing";
        assert_eq!(probe(&host, "/readyz").await, (503, json!({"status": "unready", "reason": reason})));
        let (code, view) = command::outcome(&["host", "health"], &data).await;
        assert_eq!((code, &view["reasons"]), (Some(1), &json!([reason])), "{view}");
        let listed = command::json(&["plugin", "list"], &data).await;
        assert_eq!(listed["plugins"][0]["state"], "broken", "{listed}");
        assert!(listed["plugins"][0]["problems"].to_string().contains("`bulkhead plugin add "), "{listed}");
        let (code, refused) = command::outcome(&["plugin", "activate", "text"], &data).await;
        assert_eq!((code, &refused["done"]), (Some(4), &json!(false)), "it is not back: {refused}");
        assert!(refused.to_string().contains("cannot be read"), "{refused}");

        let (code, done) = command::outcome(update, &data).await;
        assert_eq!((code, &done["done"]), (Some(0), &json!(true)), "{update:?}: {done}");
        assert_eq!(probe(&host, "/readyz").await, (200, json!({"status": "ready"})), "{update:?}");
        let echoed = Client::connect(&host).await.tool("echo", json!({"text": "again"})).await.expect("it is called");
        assert_eq!(text(&echoed), "again");
        host.terminate().await;
    }
}

#[tokio::test]
async fn service_manager_hears_ready_reload_watchdog_and_stop() {
    let (manager, setup) = Listener::new(Setup::new().env("WATCHDOG_USEC", "100000"), false);
    assert!(setup.serve().arg("--check").output().await.expect("it starts").status.success());
    assert_eq!(manager.heard(), Vec::<String>::new(), "a check serves nothing");
    let host = setup.start().await;
    assert_eq!(manager.next().await, "READY=1", "nothing comes before");
    assert_eq!(probe(&host, "/healthz").await.0, 200);
    for _ in 0..3 {
        assert_eq!(manager.next().await, "WATCHDOG=1");
    }
    let reloaded = command::json(&["host", "reload"], &setup.data()).await;
    assert_eq!(reloaded["done"], true, "{reloaded}");
    let mut said: Vec<_> = manager.heard().into_iter().filter(|word| word != "WATCHDOG=1").collect();
    assert_eq!(said.pop().as_deref(), Some("READY=1"));
    assert!(said.pop().is_some_and(|word| word.starts_with("RELOADING=1\nMONOTONIC_USEC=")) && said.is_empty());
    command::json(&["host", "reload", "--check"], &setup.data()).await;
    assert!(manager.heard().iter().all(|word| word == "WATCHDOG=1"), "nothing is reloaded");

    let (status, _) = host.terminate().await;
    assert!(status.success(), "{status}");
    let said: Vec<_> = manager.heard().into_iter().filter(|word| word != "WATCHDOG=1").collect();
    assert_eq!(said, ["STOPPING=1"]);
}

#[tokio::test]
async fn service_manager_may_listen_on_an_abstract_name_and_want_no_watchdog() {
    let (manager, setup) = Listener::new(Setup::new(), true);
    let host = setup.start().await;
    assert_eq!(manager.next().await, "READY=1");
    host.terminate().await;
    assert_eq!(manager.heard(), ["STOPPING=1"]);
    // Nobody listens any more.
    drop(manager);
    let (status, _) = setup.start().await.terminate().await;
    assert!(status.success(), "{status}");
}

/// The rates of `bulkhead top --by`, once they have a row that fits.
async fn rates(setup: &Setup, by: &str, fits: impl Fn(&Value) -> bool) -> Value {
    until("the rates", async || {
        let arguments = ["top", "--by", by, "--once", "--interval", "1s"];
        let rates = command::json(&arguments, &setup.data()).await;
        rates["rows"].as_array().expect("rows").iter().find(|row| fits(row)).cloned()
    })
    .await
}

#[tokio::test]
async fn top_shows_what_calls_cost_by_each_group_and_leaves_the_rest_alone() {
    let setup =
        Setup::with(&["primes", "hostile"]).config("[limits]\ncalls_running_per_requestor = 2\ncall_queue_ms_max = 0");
    let anna = setup.token("anna", "acme").await;
    let bob = setup.token("bob", "beta").await;
    let host = setup.start().await;
    let anna = Client::connect_as(&host, Some(&anna), all_capabilities()).await;
    let bob = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    let works = async {
        loop {
            anna.tool("count_primes", json!({"below": 3_000_000})).await.expect("it is counted");
            bob.tool("trap", json!({})).await.expect_err("it traps");
        }
    };
    let looks = async {
        let is_positive = |row: &Value, member: &str| row[member].as_f64().is_some_and(|rate| rate > 0.0);
        let calls = |row: &Value| is_positive(row, "calls_per_second");
        let tool = rates(&setup, "tool", |row| row["tool"] == "count_primes" && is_positive(row, "cpu_percent")).await;
        assert_eq!((&tool["plugin"], &tool["errors_per_second"]), (&json!("primes"), &json!(0.0)), "{tool}");
        assert!(is_positive(&tool, "p50_ms") && tool["p99_ms"].as_f64() >= tool["p50_ms"].as_f64(), "{tool}");
        let requestor = rates(&setup, "requestor", |row| row["requestor"] == "bob" && calls(row)).await;
        assert_eq!((&requestor["tenant"], requestor.get("plugin")), (&json!("beta"), None), "{requestor}");
        assert_eq!(requestor["errors_per_second"], requestor["calls_per_second"], "{requestor}");
        assert_eq!(requestor["outcomes_per_second"], json!({"trap": requestor["calls_per_second"]}), "{requestor}");
        let tenant = rates(&setup, "tenant", |row| row["tenant"] == "acme" && calls(row)).await;
        assert!(tenant.get("requestor").is_none(), "{tenant}");
        rates(&setup, "plugin", |row| row["plugin"] == "hostile" && calls(row)).await;
    };
    tokio::select! {
        () = works => {}
        () = looks => {}
    }
    for _ in 0..2 {
        anna.task("count_primes", json!({"below": 2_000_000_000})).await;
    }
    // A call of the loop above may still have one of the two places.
    until("both tasks to run", async || {
        let running = command::json(&["tasks", "list", "--status", "running"], &setup.data()).await;
        running["tasks"].as_array().is_some_and(|tasks| tasks.len() == 2).then_some(())
    })
    .await;
    let refused = async {
        loop {
            anna.tool("count_primes", json!({"below": 10})).await.expect_err("both places are taken");
        }
    };
    let looks = async {
        for (by, name) in [("requestor", "anna"), ("tool", "count_primes")] {
            let is_refused = |row: &Value| row["refused_per_second"].as_f64().is_some_and(|rate| rate > 0.0);
            let row = rates(&setup, by, |row| row[by] == name && is_refused(row)).await;
            assert_eq!((&row["calls_per_second"], &row["p50_ms"]), (&json!(0.0), &Value::Null), "{row}");
            // Two tasks compute, and neither has ended.
            assert!(row["cpu_percent"].as_f64().is_some_and(|percent| percent > 5.0), "{row}");
        }
    };
    tokio::select! {
        () = refused => {}
        () = looks => {}
    }
    let plain = command::json(&["top", "--once"], &setup.data()).await;
    let mut members: Vec<_> = plain.as_object().expect("an object").keys().collect();
    members.sort();
    assert_eq!(members, ["at", "host", "limits", "plugins", "tenants"], "{plain}");

    let too_long = ["top", "--by", "tool", "--interval", "6m", "--data"];
    let refused = command::output(&mut command::bulkhead(), &too_long, Some(&setup.data())).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--interval is longer than 5m"), "{said}");
}
