//! Starting: after a kill in the middle of a start, with a full disk, with lax permissions, with damaged files beside
//! the store.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_domain::Json;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Outcome, Phase, Retention, Task, TaskId};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_store::sled::{ProbeMode, SledOptions, SledStore};
use bulkhead_store::{Creation, StoredCaps, TaskStore as _};
use rustix::process::{Pid, Signal, getuid, kill_process};
use serde_json::json;
use tests::client::Client;
use tests::place::rounds;
use tests::small_disk::SmallDisk;
use tests::wait::{PATIENCE, soon};
use tests::{Setup, command};

/// Puts tasks that are over into the store of a data directory, so that it takes a while to examine.
async fn fill(data: &Path, tasks: u64) {
    std::fs::create_dir_all(data).expect("a data directory");
    let options = SledOptions { probe: ProbeMode::InProcess, ..SledOptions::new(data) };
    let store = tokio::task::spawn_blocking(move || SledStore::open(options)).await.expect("it ends");
    let store: Arc<SledStore> = store.expect("a new store");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let now = u64::try_from(now.as_millis()).expect("a time");
    let writers = (0..64).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in (writer..tasks).step_by(64) {
                store.create(ended(number, now)).await.expect("there is room");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("it ends");
    }
    store.close().await.expect("a sound store");
}

fn ended(number: u64, now: u64) -> Creation {
    let id = (u128::from(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(number)).to_be_bytes();
    let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([(number % 8) as u8; 16]) };
    let task = Task {
        created_at: now,
        updated_at: now,
        retention: Retention::FromCreation { ttl_ms: 86_400_000 },
        phase: Phase::Ended(Outcome::Output { is_error: false }),
        attempt: 1,
        ..Task::sample(requestor, TaskId(id))
    };
    let caps = StoredCaps {
        tasks_per_requestor: u32::MAX,
        bytes_per_requestor: u64::MAX,
        tasks_per_tenant: u32::MAX,
        bytes_per_tenant: u64::MAX,
    };
    let output = ToolOutput { is_error: false, ..ToolOutput::failure("a line of text. ".repeat(600)) };
    Creation {
        task,
        arguments: Json::new(r#"{"below":10}"#),
        output: Some(Arc::new(output.into())),
        reserved_bytes: 0,
        caps,
        journal: None,
    }
}

/// Kills a host so long after its start, and returns as soon as it is gone.
async fn kill_during_start(setup: &Setup, after: Duration) {
    let mut host = setup.serve();
    let mut host = host.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    tokio::time::sleep(after).await;
    host.start_kill().expect("it can be killed");
    soon("the host to be gone", host.wait()).await.expect("it can be waited for");
}

#[tokio::test]
async fn start_after_kill_during_start_succeeds() {
    let setup = Setup::new();
    fill(&setup.data(), 1_000).await;
    let mut seed = 0x5EED_u64;
    let count = rounds(12, 200);
    for round in 0..count {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        kill_during_start(&setup, Duration::from_millis(5 + (seed >> 33) % 146)).await;
        // It says why when it does not come up.
        setup.start().await.kill().await;
        if round % 50 == 49 {
            println!("{} kills", round + 1);
        }
    }
    let left = || std::fs::read_dir(setup.data().join("store")).expect("a store").flatten();
    setup.start().await.terminate().await;
    assert_eq!(left().filter(|entry| entry.file_name().to_string_lossy().starts_with("scratch")).count(), 0);
    let report = command::json(&["store", "check"], &setup.data()).await;
    assert_eq!((&report["problems"], &report["tasks"]), (&json!([]), &json!(1_000)), "{report}");
}

#[tokio::test]
async fn command_says_how_far_the_start_of_a_host_is() {
    let setup = Setup::new().own_code().plugin("csv", "");
    let mut host = setup.serve();
    let mut host = host.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut refusals = Vec::new();
    let status = async {
        loop {
            let output =
                command::output(&mut command::bulkhead(), &["host", "status", "--data"], Some(&setup.data())).await;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => return,
                Some(75) => refusals.push(said),
                // Before there is a data directory.
                code => assert!(code == Some(1) && refusals.is_empty(), "{code:?} {said}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the host to serve", status).await;
    let compiling = "the host is starting, try again soon: loading plugins, 0 of 1 done: compiling csv";
    assert!(refusals.iter().any(|said| said.contains(compiling)), "{refusals:?}");
    host.start_kill().expect("it can be killed");
    soon("the host to be gone", host.wait()).await.expect("it can be waited for");
}

/// The children of a process.
fn children(of: u32) -> Vec<Pid> {
    let path = format!("/proc/{of}/task");
    let threads = std::fs::read_dir(path).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let ids: Vec<_> = lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    ids.iter().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

#[tokio::test]
async fn killed_store_probe_is_not_reported_as_damage() {
    let setup = Setup::new();
    fill(&setup.data(), 1_000).await;
    // Without the mark of a clean end.
    setup.start().await.kill().await;

    let mut host = setup.serve();
    let host = host.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = host.id().expect("it runs");
    let killer = tokio::spawn(async move {
        loop {
            for child in children(pid) {
                // It may have come to its end by itself.
                let _ = kill_process(child, Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let output = soon("the host to give up", host.wait_with_output()).await.expect("it ends");
    killer.abort();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("SIGKILL (signal 9)") && said.contains("start again"), "{said}");
    assert!(!said.contains("damaged database") && !said.contains("rebuild"), "{said}");

    let mut limited = tokio::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\""]).arg(setup.serve().as_std().get_program());
    limited.args(setup.serve().as_std().get_args()).stdin(Stdio::null());
    let output = soon("the host to give up", limited.output()).await.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("SIGXFSZ") && said.contains("ulimit -f"), "{said}");
    assert!(!said.contains("damaged database") && !said.contains("rebuild"), "{said}");

    setup.start().await.terminate().await;
    let report = command::json(&["store", "check"], &setup.data()).await;
    assert_eq!((&report["problems"], &report["tasks"]), (&json!([]), &json!(1_000)), "{report}");
}

#[tokio::test]
async fn host_starts_on_a_full_disk() {
    let setup = Setup::with(&["primes"]).own_code();
    let Some(disk) = SmallDisk::mount(setup.data(), 192) else { return };
    let mut host = setup.start().await;
    let client = Client::connect(&host).await;
    let task = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&task, "completed").await;
    // After a kill, after that of a host on a full disk, and after a clean end.
    for clean in [false, false, true] {
        if clean {
            host.terminate().await;
        } else {
            host.kill().await;
        }
        disk.fill();
        host = setup.start().await;
        let client = Client::connect(&host).await;
        assert_eq!(client.about("tasks/get", &task).await.expect("it is read")["status"], "completed");
        let result = client.about("tasks/result", &task).await.expect("it is read");
        assert_eq!(result["structuredContent"]["count"], 25);
        let ready = reqwest::get(host.address("/readyz")).await.expect("an answer").status();
        assert_eq!(ready, 503, "it cannot write");
    }
    disk.make_room();
    let begun = std::time::Instant::now();
    while !reqwest::get(host.address("/readyz")).await.expect("an answer").status().is_success() {
        assert!(begun.elapsed() < PATIENCE, "there is room, and the host does not write");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let client = Client::connect(&host).await;
    let task = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&task, "completed").await;
}

/// Everything below a folder that others than its owner may read or write.
fn exposed(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let facts = entry.metadata().expect("it is there");
        if facts.permissions().mode() & 0o077 != 0 {
            found.push(entry.path());
        }
        if facts.is_dir() {
            found.extend(exposed(&entry.path()));
        }
    }
    found
}

/// The same command, begun by a shell that hides nothing.
fn with_umask_0(command: &tokio::process::Command) -> tokio::process::Command {
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(command.as_std().get_program());
    shell.args(command.as_std().get_args());
    shell.envs(command.as_std().get_envs().filter_map(|(key, value)| Some((key, value?))));
    shell
}

#[tokio::test]
async fn data_and_export_files_are_private_for_any_umask() {
    let setup = Setup::with(&["primes"]).own_code().config("[audit]\nenabled = true");
    let mut host = with_umask_0(&setup.serve());
    let mut host = host.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
    let mut lines = tokio::io::BufReader::new(host.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let read = tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut line);
    soon("the host to listen", read).await.expect("a line");
    let data = setup.data();
    let running = setup.path("running");
    let stopped = setup.path("stopped");
    let copy = setup.path("copy");
    let run = async |arguments: &[&str]| {
        let mut plain = command::bulkhead();
        plain.args(arguments).arg("--data").arg(&data);
        let output = with_umask_0(&plain).output().await.expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["store", "export", &running.display().to_string()]).await;
    run(&["store", "backup", &copy.display().to_string()]).await;
    assert_eq!(exposed(&data), Vec::<PathBuf>::new());
    host.start_kill().expect("it can be killed");
    host.wait().await.expect("it ends");
    run(&["store", "export", &stopped.display().to_string()]).await;
    run(&["store", "rebuild"]).await;
    run(&["token", "create", "--requestor", "anna", "--tenant", "acme"]).await;
    for folder in [&data, &copy] {
        assert_eq!(exposed(folder), Vec::<PathBuf>::new());
    }
    for file in [&running, &stopped] {
        assert_eq!(file.metadata().expect("an export").permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn serve_says_in_its_log_what_it_compiles_while_that_takes_long() {
    // It says so once a second, and no machine makes code of all of them within one.
    let plugins = ["conformance", "csv", "desk", "durable", "hostile", "markup", "primes", "probe", "text"];
    let host = Setup::with(&plugins).own_code().start_within(10 * PATIENCE).await;
    let log = host.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("loading plugins, ")).collect();
    assert!(lines.iter().any(|line| line.contains("of 9 done: compiling ")), "{log}");
    let (_, setup) = host.terminate().await;
    let again = setup.start().await;
    let log = again.log();
    assert_eq!(log.matches(": compiling ").count(), lines.len(), "what is compiled already is not said to be: {log}");
}

/// What a host says that is begun by these words of a shell, and gives up.
async fn refused_after(setup: &Setup, begin: &str, raise: &str) {
    let mut limited = tokio::process::Command::new("sh");
    limited.args(["-c", &format!("{begin} \"$0\" \"$@\"")]).arg(setup.serve().as_std().get_program());
    limited.args(setup.serve().as_std().get_args()).stdin(Stdio::null());
    let output = soon("the host to give up", limited.output()).await.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{begin}: {said}");
    assert!(said.contains(raise) && !said.contains("panicked") && !said.contains("damage"), "{begin}: {said}");
}

#[tokio::test]
async fn host_without_threads_or_files_says_what_to_raise_and_leaves_a_sound_store_alone() {
    let setup = Setup::with(&["primes"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let task = client.task("count_primes", json!({"below": 100})).await;
    let before = client.until_status(&task, "completed").await;
    // The next start examines what a killed host has left.
    host.kill().await;
    for setup in [&Setup::new(), &setup] {
        // The system refuses root no threads by their number, but stacks take address space.
        for (limit, raise) in
            [("ulimit -n 24", "`ulimit -n`"), ("ulimit -n 100", "`ulimit -n`"), ("ulimit -v 8000000", "`ulimit -v`")]
        {
            refused_after(setup, &format!("{limit}; exec"), raise).await;
        }
    }
    let host = setup.start().await;
    assert_eq!(Client::connect(&host).await.until_status(&task, "completed").await, before);
}

/// A user of its own, which has no other process.
const USER_OF_FEW_THREADS: u32 = 54_321;

#[tokio::test]
async fn host_of_a_user_with_few_threads_says_what_to_raise() {
    let setup = Setup::new();
    let limited =
        format!("setpriv --reuid {USER_OF_FEW_THREADS} --regid {USER_OF_FEW_THREADS} --clear-groups prlimit --nproc=3");
    let mut version = tokio::process::Command::new("sh");
    version.args(["-c", &format!("{limited} \"$0\" --version")]).arg(setup.serve().as_std().get_program());
    let is_reached = version.output().await.is_ok_and(|output| output.status.success());
    if !getuid().is_root() || !is_reached {
        eprintln!("not run: only root may start the program as another user, who has to be able to read it");
        return;
    }
    refused_after(&setup, &format!("exec {limited}"), "`ulimit -u`").await;
}
