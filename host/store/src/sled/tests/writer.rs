//! A process that writes, says what was acknowledged, and is killed; and the check of what it said.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::{open, runtime};
use crate::Creation;
use crate::TaskStore;
use crate::samples::{completion, creation, output, requestor, task, task_id};
use crate::sled::SledStore;
use crate::sled::check;
use bulkhead_domain::Json;
use bulkhead_domain::task::Task;

const DIR: &str = "BULKHEAD_TEST_STORE_DIR";
const BYTES: &str = "BULKHEAD_TEST_OUTPUT_BYTES";
const FIRST: &str = "BULKHEAD_TEST_FIRST_TASK";
const WRITERS: u64 = 16;
/// Every so many tasks, one is removed again.
const REMOVED_EVERY: u64 = 5;

/// The child: writes for ever. Each line is an acknowledgement: created, done, removed; `-` says that a removal begins.
#[test]
#[ignore = "the child process of the crash tests"]
fn child() {
    let variable = |name| std::env::var(name).unwrap();
    let bytes = variable(BYTES).parse().unwrap();
    let first: u64 = variable(FIRST).parse().unwrap();
    let store = open(Path::new(&variable(DIR)));
    runtime().block_on(async {
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(&store), first + writer, bytes)));
        futures::future::join_all(writers).await;
        // The writers end when the disk goes away; the process waits to be killed all the same.
        std::future::pending::<()>().await;
    });
}

async fn write(store: Arc<SledStore>, first: u64, bytes: usize) {
    for number in (first..).step_by(WRITERS as usize) {
        let created = store.create(wanted(number, bytes)).await.unwrap();
        say('c', number);
        store.commit(completion(&created, output(text(number, bytes)))).await.unwrap();
        say('d', number);
        if number % REMOVED_EVERY == 0 {
            say('-', number);
            store.remove(&created.requestor, created.id).await.unwrap();
            say('r', number);
        }
    }
}

fn say(what: char, number: u64) {
    // One write, so that a kill cuts no line of an acknowledgement that matters.
    std::io::stdout().lock().write_all(format!("\nack {what} {number}\n").as_bytes()).unwrap();
}

fn owner(number: u64) -> bulkhead_domain::requestor::Requestor {
    requestor(1, (number % 3) as u8)
}

fn wanted(number: u64, bytes: usize) -> Creation {
    let aliased = Task { alias: Some(number.to_string()), ..task(owner(number), number) };
    Creation {
        arguments: Json::new(format!("\"{}\"", text(number, bytes / 2))),
        reserved_bytes: bytes as u64,
        ..creation(aliased)
    }
}

fn text(number: u64, bytes: usize) -> String {
    let pattern = format!("{number} ");
    pattern.repeat(bytes.div_ceil(pattern.len()))
}

/// What a child said, task by task: the last of its lines.
pub(super) type Acknowledged = HashMap<u64, char>;

/// Starts a child.
pub(super) fn start(dir: &Path, bytes: usize, first: u64, adapt: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "sled::tests::writer::child", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(BYTES, bytes.to_string())
        .env(FIRST, first.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    adapt(&mut command);
    command.spawn().unwrap()
}

/// A round with fewer acknowledgements proves little.
pub(super) const ACKNOWLEDGEMENTS_MIN: usize = 100;

/// Lets the child write for a while after its first acknowledgements, kills it with SIGKILL, and gives what it said.
pub(super) fn kill_after(child: Child, time: Duration) -> Acknowledged {
    end_after(child, ACKNOWLEDGEMENTS_MIN, time, || {})
}

/// The same, after so many acknowledgements, and with something that happens just before the kill.
pub(super) fn end_after(
    mut child: Child,
    acknowledgements_min: usize,
    time: Duration,
    before: impl FnOnce(),
) -> Acknowledged {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut said = Acknowledged::new();
        // The last line may be cut, and is not UTF-8 trouble: it is ASCII.
        while let Some(Ok(line)) = lines.next() {
            if let Some((what, number)) = line.strip_prefix("ack ").and_then(|rest| rest.split_once(' ')) {
                said.insert(number.parse().unwrap(), what.chars().next().unwrap());
                let _ = sender.send(());
            }
        }
        said
    });
    let begun = (0..acknowledgements_min).all(|_| receiver.recv_timeout(Duration::from_secs(60)).is_ok());
    std::thread::sleep(time);
    before();
    child.kill().unwrap();
    let status = child.wait_with_output().unwrap();
    let said = reader.join().unwrap();
    assert!(begun, "the child wrote too little: {}", String::from_utf8_lossy(&status.stderr));
    assert!(!status.status.success());
    said
}

/// Everything that was acknowledged is there, nothing is half there, and the store works.
pub(super) fn verify(dir: &Path, bytes: usize, said: &Acknowledged) {
    let store = open(dir);
    runtime().block_on(async {
        for (&number, &last) in said {
            let found = store.get(&owner(number), task_id(number)).await.unwrap();
            let result = store.output(&owner(number), task_id(number)).await.unwrap();
            match last {
                'c' => assert!(found.is_some(), "task {number} was created and is gone"),
                'd' => {
                    assert!(found.is_some_and(|task| task.outcome().is_some()), "task {number} was done and is not");
                    assert_eq!(result, Some(output(text(number, bytes))));
                    let arguments = store.arguments(&owner(number), task_id(number)).await.unwrap();
                    assert_eq!(arguments, Some(wanted(number, bytes).arguments));
                }
                '-' => {}
                'r' => assert!(found.is_none() && result.is_none(), "task {number} was removed and is there"),
                other => panic!("the child said {other:?}"),
            }
        }
        store.close().await.unwrap();
    });
    drop(store);
    let report = check(dir).unwrap();
    assert_eq!(report.problems, [] as [String; 0]);
    // An operation that was not acknowledged may be there or not, and so each writer may have one more.
    let there = said.values().filter(|last| matches!(last, 'c' | 'd')).count() as u64;
    assert!((there..=there + 2 * WRITERS).contains(&report.tasks), "{there} acknowledged, {} there", report.tasks);
}

/// The tasks that are there without an acknowledgement, so that the next round can expect them.
pub(super) fn unacknowledged(dir: &Path, said: &Acknowledged) -> Acknowledged {
    let store = open(dir);
    runtime().block_on(async {
        let mut after = None;
        let mut more = Acknowledged::new();
        loop {
            let page = store.scan(after, 500).await.unwrap();
            let Some(last) = page.last() else { return more };
            after = Some((last.requestor, last.id));
            let new = page.iter().map(|task| task.created_at).filter(|number| !said.contains_key(number));
            more.extend(new.map(|number| (number, 'c')));
        }
    })
}
