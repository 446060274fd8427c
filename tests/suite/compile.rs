//! Components that are made to exhaust the compiler: refused with the limit and its value, and the host notices
//! nothing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::wait::until;
use tests::{Host, Setup, command};

/// An unsigned number as WebAssembly writes it.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// A section, or anything else that says its length first.
fn sized(id: &[u8], content: &[u8]) -> Vec<u8> {
    [id, &number(content.len()), content].concat()
}

fn component(sections: &[u8]) -> Vec<u8> {
    [b"\0asm\x0d\0\x01\0", sections].concat()
}

/// A component with one module that has this many functions, each with this body, of type `i32 -> i32`.
fn functions(count: usize, body: &[u8]) -> Vec<u8> {
    let types = [number(1), vec![0x60, 1, 0x7f, 1, 0x7f]].concat();
    let declared = [number(count), vec![0; count]].concat();
    let body = sized(&[], &[&[0], body, &[0x0b]].concat());
    let code = [number(count), body.repeat(count)].concat();
    let sections = [sized(&[1], &types), sized(&[3], &declared), sized(&[10], &code)].concat();
    component(&sized(&[1], &[&b"\0asm\x01\0\0\0"[..], &sections].concat()))
}

/// As many values alive at once as a function of this size can hold: what a register allocator likes least.
fn alive(values: usize) -> Vec<u8> {
    // The argument plus 0, plus 1, plus 2 and so on, all on the stack, then added up.
    let each = (0..values).flat_map(|value| {
        let seven = |shift: usize| u8::try_from(value >> shift & 0x7f).expect("seven bits");
        [0x20, 0, 0x41, seven(0) | 0x80, seven(7) | 0x80, seven(14) | 0x80, 0, 0x6a]
    });
    each.chain(std::iter::repeat_n(0x6a, values - 1)).collect()
}

/// Compiles for minutes.
fn bomb() -> Vec<u8> {
    functions(24, &alive(100_000))
}

fn nested(depth: usize) -> Vec<u8> {
    (0..depth).fold(component(&[]), |inner, _| component(&sized(&[4], &inner)))
}

async fn checked(setup: &Setup, wasm: &[u8], variables: &[(&str, &str)]) -> Value {
    let path = setup.path("bomb.wasm");
    fs::write(&path, wasm).expect("the component is written");
    let mut check = command::bulkhead();
    check.envs(variables.iter().copied()).args(["plugin", "check", "--json"]).arg(path);
    // Nothing of it is worth keeping.
    check.env("XDG_CACHE_HOME", setup.path("caches"));
    let output = command::output(&mut check, &[], None).await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

async fn refused(setup: &Setup, wasm: &[u8], variables: &[(&str, &str)], why: &str) {
    let said = checked(setup, wasm, variables).await;
    let reasons = said["refused"].as_array().expect("a list");
    assert!(reasons.iter().any(|reason| reason.as_str().is_some_and(|reason| reason.contains(why))), "{why}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compile_limit_refusal_names_limit_and_value() {
    let setup = Setup::new();
    refused(&setup, &functions(200_001, &[0x41, 0]), &[], "200000 is the most (compile.functions_max)").await;
    let few = [("BULKHEAD_COMPILE_FUNCTIONS_MAX", "3")];
    refused(&setup, &functions(4, &[0x41, 0]), &few, "at least 4 functions; 3 is the most").await;
    refused(&setup, &functions(1, &alive(300_000)), &[], "one of its functions has 2700001 bytes").await;
    refused(&setup, &nested(200), &[], "nested more than 16 deep").await;
    let seconds = [("BULKHEAD_COMPILE_CPU_MS", "2000")];
    refused(&setup, &bomb(), &seconds, "more processor time than compile.cpu_ms = 2000").await;
    let little = [("BULKHEAD_COMPILE_MEMORY_BYTES", "268435456")];
    refused(&setup, &bomb(), &little, "more memory than compile.memory_bytes = 268435456").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compiler_validation_error_is_passed_on() {
    let setup = Setup::new();
    // i32.add with nothing on the stack.
    refused(&setup, &functions(1, &[0x6a]), &[], "it is not a valid component: ").await;
}

/// A process as /proc shows it.
struct Process(i32);

impl Process {
    fn file(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.0).into()
    }

    fn field(&self, name: &str) -> String {
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }

    /// A number out of `stat`, counted after the command's name.
    fn stat(&self, at: usize) -> i32 {
        let stat = fs::read_to_string(self.file("stat")).expect("the process is there");
        let mut fields = stat.rsplit(')').next().expect("fields").split_whitespace();
        fields.nth(at).and_then(|field| field.parse().ok()).expect("a number")
    }

    fn is_there(&self) -> bool {
        self.file("status").exists()
    }
}

/// By number.
fn open_files(process: &Process) -> Vec<(u32, PathBuf)> {
    let files = fs::read_dir(process.file("fd")).expect("its files").flatten();
    files
        .filter_map(|file| Some((file.file_name().to_str()?.parse().ok()?, fs::read_link(file.path()).ok()?)))
        .collect()
}

/// Everything that a process has started and that is not gone, zombies included.
fn children(parent: u32) -> Vec<Process> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Process).filter(|process| process.field("PPid") == parent.to_string()).collect()
}

async fn compiling(host: &Host) -> Process {
    // Once the component has been read, the watch on the pipe is a thread of its own.
    until("a child that compiles", async || {
        children(host.pid()).pop().filter(|child| child.field("Threads").parse().is_ok_and(|threads: u32| threads > 1))
    })
    .await
}

fn resident_kib(host: &Host) -> u64 {
    let process = Process(host.pid().try_into().expect("a process id"));
    process.field("VmRSS").split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Begins to add the bomb in the place of `text`.
fn add_bomb(host: &Host) -> tokio::task::JoinHandle<String> {
    let path = host.setup.path("bomb.wasm");
    fs::write(&path, bomb()).expect("the component is written");
    let mut add = command::bulkhead();
    add.args(["plugin", "add"]).arg(path).args(["--name", "text", "--data"]).arg(host.setup.data());
    tokio::spawn(async move {
        let output = add.output().await.expect("the command starts");
        assert!(!output.status.success(), "it was taken");
        String::from_utf8_lossy(&output.stderr).into_owned()
    })
}

async fn echoes(client: &Client) {
    let said = client.tool("echo", json!({"text": "here"})).await.expect("an echo");
    assert_eq!(text(&said), "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_serves_while_compile_exhausts_its_limits() {
    let limits = "[compile]\nmemory_bytes = 1073741824\ncpu_ms = 4000";
    let host = Setup::with(&["text"]).config(limits).start().await;
    let client = Client::connect(&host).await;
    echoes(&client).await;
    let before = resident_kib(&host);
    let adding = add_bomb(&host);
    let child = compiling(&host).await;
    let mut most = before;
    while child.is_there() {
        echoes(&client).await;
        most = most.max(resident_kib(&host));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let said = adding.await.expect("it ends");
    assert!(said.contains("compile.memory_bytes = 1073741824") || said.contains("compile.cpu_ms = 4000"), "{said}");
    // The component itself has 22 MB; it is held while it is compiled, and as what the command sent.
    assert!(most < before + 160 * 1024, "{before} KiB became {most}");
    assert_eq!(children(host.pid()).len(), 0, "nothing is left of the child");
    echoes(&client).await;
    let shown = command::json(&["plugin", "versions", "text"], &host.setup.data()).await;
    assert_eq!(shown["versions"].as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(shown["versions"][0]["state"], "active", "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compiler_child_is_confined_and_death_is_refusal() {
    let host = Setup::with(&["text"]).start().await;
    let client = Client::connect(&host).await;
    let adding = add_bomb(&host);
    let child = compiling(&host).await;

    let variables = fs::read(child.file("environ")).expect("its environment");
    let variables = String::from_utf8_lossy(&variables).into_owned();
    assert!(
        variables.split_terminator('\0').all(|one| one.starts_with("RAYON_") || one.starts_with("MIMALLOC_")),
        "{variables}"
    );
    // What whoever runs the tests left open for everybody is not the host's.
    let ours: Vec<_> = open_files(&Process(std::process::id().try_into().expect("a process id")));
    let others: Vec<_> = open_files(&child)
        .into_iter()
        .filter(|(number, file)| *number > 2 && !ours.contains(&(*number, file.clone())))
        .collect();
    assert_eq!(others, Vec::new(), "it has its three pipes");
    assert_eq!(child.field("NoNewPrivs"), "1");
    assert_eq!(fs::read_to_string(child.file("oom_score_adj")).expect("a score").trim(), "1000");
    let limits = fs::read_to_string(child.file("limits")).expect("its limits");
    for (limit, bound) in [("Max data size", "2147483648"), ("Max cpu time", "120"), ("Max file size", "0")] {
        let line = limits.lines().find(|line| line.starts_with(limit)).expect("a line");
        assert_eq!(line.strip_prefix(limit).and_then(|line| line.split_whitespace().next()), Some(bound), "{line}");
    }
    assert_eq!(child.stat(2), child.0, "it leads a process group of its own");
    let host_process = Process(host.pid().try_into().expect("a process id"));
    assert_eq!(child.stat(16), (host_process.stat(16) + 5).min(19), "it is nice");

    kill_process(Pid::from_raw(child.0).expect("a process id"), Signal::KILL).expect("it is killed");
    let said = adding.await.expect("it ends");
    assert!(said.contains("the process that was compiling it was killed (signal 9)"), "{said}");
    assert_eq!(children(host.pid()).len(), 0, "nothing is left of the child");
    echoes(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_component_is_recompiled_after_compiler_kill() {
    let setup = Setup::new();
    let folder = setup.path("drop");
    fs::create_dir(&folder).expect("a folder");
    let setup = setup.config("[sources]\nwatch = ['drop']").own_code();
    let host = setup.start().await;
    // Nobody has compiled this one yet.
    let bytes = tests::place::variant("text", "The texts are the same.", "The texts are not dead.");
    fs::write(folder.join("text.wasm"), bytes).expect("it is written");
    let child = compiling(&host).await;
    kill_process(Pid::from_raw(child.0).expect("a process id"), Signal::KILL).expect("it is killed");
    let line = async |holds: fn(&Value) -> bool| {
        let listed = command::json(&["plugin", "list"], &setup.data()).await;
        listed["plugins"].as_array().expect("a list").iter().any(holds).then_some(())
    };
    let failed = |line: &Value| line["problems"].to_string().contains("was killed (signal 9)\",\"it is tried again");
    until("the failure to be seen", || line(failed)).await;
    until("it to be active", || line(|line| line["state"] == "active" && line["problems"] == json!([]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compiler_child_does_not_outlive_its_host() {
    let host = Setup::with(&["text"]).start().await;
    let adding = add_bomb(&host);
    let child = compiling(&host).await;
    host.kill().await;
    until("the child to be gone", async || (!child.is_there()).then_some(())).await;
    adding.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_component_is_compiled_once() {
    let mut setup = Setup::new().own_code().config("[log]\nlevel = \"debug\"");
    for at in 0..8 {
        setup = setup.plugin_as(&format!("text-{at}"), "text", &format!("prefix = \"p{at}_\""));
    }
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    assert_eq!(text(&client.tool("p7_echo", json!({"text": "x"})).await.expect("an echo")), "x");
    let compiled = host.log().matches("a component was compiled").count();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!((1..=cores).contains(&compiled), "{compiled} compilations on {cores} cores");
}

#[tokio::test]
async fn unused_component_files_are_removed_after_a_month() {
    let setup = Setup::with(&["text"]).own_code();
    setup.start().await.terminate().await;
    let folders = ["components", "cache"].map(|name| setup.data().join(name));
    let files = || folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten());
    let own: Vec<PathBuf> = files().map(|file| file.path()).collect();
    assert_eq!(own.len(), 2, "a component and its code: {own:?}");
    let engine = own.iter().find_map(|path| path.file_name()?.to_str()?.split_once('-')).expect("code").1.to_owned();
    let strangers = |digit: &str| {
        let digest = digit.repeat(64);
        [format!("components/{digest}.wasm"), format!("components/{digest}.wit"), format!("cache/{digest}-{engine}")]
            .map(|name| setup.data().join(name))
    };
    let old = strangers("a");
    let young = strangers("b");
    for path in old.iter().chain(&young) {
        fs::write(path, "x").expect("it is written");
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(31 * 24 * 3600);
    for path in old.iter().chain(&own) {
        fs::File::options().append(true).open(path).and_then(|file| file.set_modified(long_ago)).expect("it is aged");
    }
    let host = setup.start().await;
    until("the old ones to be gone", async || (!old.iter().any(|path| path.exists())).then_some(())).await;
    assert!(own.iter().chain(&young).all(|path| path.exists()));
    echoes(&Client::connect(&host).await).await;
}
