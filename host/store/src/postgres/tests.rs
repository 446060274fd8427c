//! What only this engine has: the fence, doubt, refusals of servers.

mod copies;
mod hosts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Connection;
use super::schema::lock_number;
use super::{Address, PostgresOptions, PostgresStore, examine};
use crate::postgres_server::{PostgresServer, new_schema, shared};
use crate::samples::{creation, requestor, task};
use crate::vault::VaultKeys;
use crate::{Creation, Error, RowKind, RowStore as _, TaskStore as _};
use bulkhead_domain::Json;

fn options(server: &PostgresServer) -> PostgresOptions {
    let address = Address::parse(&server.address()).unwrap();
    PostgresOptions { address, schema: new_schema(), keys: None, dialer: None, host: None }
}

async fn refusal(options: PostgresOptions) -> Error {
    match PostgresStore::open(options).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

async fn sql(options: &PostgresOptions, text: &str) {
    let connection = Connection::bare(&options.address, None).await.unwrap();
    let text = format!("set search_path = {}; {text}", options.schema);
    connection.batch(&text).await.unwrap_or_else(|failure| panic!("{}", failure.describe()));
}

#[tokio::test]
async fn second_host_is_refused_while_the_first_one_lives() {
    let Some(server) = shared() else { return };
    let options = options(server);
    let first = PostgresStore::open(options.clone()).await.unwrap();
    let error = refusal(options.clone()).await;
    assert!(matches!(&error, Error::Locked(sentence) if sentence.contains("another host works")), "{error}");
    first.put_row(RowKind::Token, b"k", b"v".to_vec(), true).await.unwrap();
    first.close().await.unwrap();
    let second = PostgresStore::open(options).await.unwrap();
    assert_eq!(second.row(RowKind::Token, b"k").await.unwrap(), Some(b"v".to_vec()));
}

#[tokio::test]
async fn host_whose_fence_another_one_took_writes_and_reads_nothing() {
    let Some(server) = shared() else { return };
    let options = options(server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    store.put_row(RowKind::Token, b"k", b"v".to_vec(), true).await.unwrap();
    assert!(store.generation(RowKind::Token).is_some());
    sql(&options, "update write_fence set holder = 'another', number = number + 1").await;
    let refused = store.put_row(RowKind::Token, b"k", b"late".to_vec(), false).await;
    assert!(matches!(refused, Err(Error::Lost)), "{refused:?}");
    assert!(matches!(store.create(creation(task(requestor(1, 1), 1))).await, Err(Error::Lost)));
    assert!(matches!(store.row(RowKind::Token, b"k").await, Err(Error::Lost)), "it may be of the past");
    assert_eq!(store.generation(RowKind::Token), None);
    assert!(store.read_only().unwrap().contains("another host"));
    sql(&options, "do $$ begin assert (select value from stored_row) = 'v'; end $$").await;
}

/// The client library says of a transaction that the server has undone that its commit succeeded.
#[tokio::test]
async fn group_that_the_server_undid_is_not_acknowledged() {
    let Some(server) = shared() else { return };
    let options = options(server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    sql(&options, "alter table stored_row add check (length(value) < 100)").await;
    sql(&options, "alter table task add check (length(arguments) < 100)").await;
    let refused = store.put_row(RowKind::Token, b"long", vec![1; 200], true).await;
    assert!(matches!(refused, Err(Error::Engine(_))), "{refused:?}");
    assert_eq!(store.row(RowKind::Token, b"long").await.unwrap(), None);
    let owner = requestor(1, 1);
    let long = Creation { arguments: Json::new(format!("\"{}\"", "a".repeat(200))), ..creation(task(owner, 1)) };
    assert!(store.create(long).await.is_err());
    assert_eq!(store.usage(&owner).await.unwrap(), Default::default(), "what was counted is taken back");
    store.put_row(RowKind::Token, b"short", vec![1; 20], true).await.unwrap();
    store.create(creation(task(owner, 1))).await.unwrap();
    assert_eq!(store.usage(&owner).await.unwrap().0.tasks, 1);
}

/// What writers heard of rows that each wrote once.
#[derive(Default)]
struct Heard {
    done: Vec<Vec<u8>>,
    undone: Vec<Vec<u8>>,
    in_doubt: usize,
}

/// Writes rows of its own until it is told to stop.
async fn write_rows(store: Arc<PostgresStore>, writer: u32, is_over: Arc<AtomicBool>) -> Heard {
    let mut heard = Heard::default();
    for number in 0_u32.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
        match store.put_row(RowKind::Token, &key, b"v".to_vec(), true).await {
            Ok(()) => heard.done.push(key),
            Err(Error::Unavailable { .. }) => {
                heard.undone.push(key);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(Error::InDoubt) => heard.in_doubt += 1,
            Err(error) => panic!("{error}"),
        }
    }
    heard
}

/// Writers at work, while `disturb` is at work, and then a look at what is there.
async fn all_that_was_acknowledged_is_there(store: Arc<PostgresStore>, disturb: impl Future<Output = ()>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let writers = (0..8).map(|writer| tokio::spawn(write_rows(Arc::clone(&store), writer, Arc::clone(&is_over))));
    let writers: Vec<_> = writers.collect();
    disturb.await;
    while store.put_row(RowKind::Session, b"up again", b"v".to_vec(), false).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let mut there: Vec<_> = store.rows(RowKind::Token, None, 1_000_000).await.unwrap();
    let mut done = 0;
    for writer in writers {
        let heard = writer.await.unwrap();
        there = store.rows(RowKind::Token, None, 1_000_000).await.unwrap();
        let is_there = |key: &Vec<u8>| there.binary_search_by(|(other, _)| other.cmp(key)).is_ok();
        assert!(heard.done.iter().all(is_there), "an acknowledged row is gone");
        assert!(!heard.undone.iter().any(is_there), "a row is there that was not written");
        done += heard.done.len();
    }
    assert!(done > 0 && there.len() >= done);
    assert_eq!(store.read_only(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_lose_no_group_and_write_none_twice() {
    let Some(server) = shared() else { return };
    let options = options(server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let number = lock_number("host", &options.schema).cast_unsigned();
    let [high, low] = [number >> 32, number & 0xffff_ffff];
    let text = format!(
        "select pg_terminate_backend(pid) from pg_locks
         where locktype = 'advisory' and classid::bigint = {high} and objid::bigint = {low}"
    );
    all_that_was_acknowledged_is_there(store, async {
        for _ in 0..20 {
            sql(&options, &text).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_of_the_server_loses_nothing_and_writes_go_on_by_themselves() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let options = options(&server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let looking = Arc::clone(&store);
    all_that_was_acknowledged_is_there(store, async {
        for end in [PostgresServer::crash, PostgresServer::kill] {
            end(&server);
            let refused = looking.row(RowKind::Token, b"k").await;
            assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
            server.run();
            while looking.row(RowKind::Token, b"k").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .await;
}

/// Its connections stay open, and nothing comes back on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_stands_still_is_away_until_it_answers_again() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let options = options(&server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let looking = Arc::clone(&store);
    all_that_was_acknowledged_is_there(store, async {
        server.pause();
        let refused = looking.row(RowKind::Token, b"k").await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        assert!(looking.read_only().unwrap().contains("does not answer"));
        // Neither waits for the server, nor for what the writer waits for.
        for _ in 0..10_u8 {
            let refused = tokio::join!(
                looking.row(RowKind::Token, b"k"),
                looking.put_row(RowKind::Session, b"late", b"v".to_vec(), false)
            );
            assert!(matches!(refused, (Err(Error::Unavailable { .. }), Err(Error::Unavailable { .. }))), "{refused:?}");
        }
        server.resume();
        while looking.row(RowKind::Token, b"k").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(looking.row(RowKind::Session, b"late").await.unwrap(), None, "what was refused is not done later");
    })
    .await;
}

/// A reader notices it where nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_that_waits_for_too_long_finds_out_whether_the_server_answers() {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let options = options(&server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    store.put_row(RowKind::Token, b"k", b"v".to_vec(), true).await.unwrap();
    // Each session that reads is there before the lock, which a new one would have to wait for.
    for _ in 0..2 {
        store.row(RowKind::Token, b"k").await.unwrap();
    }
    // One that only has to wait for a lock, which is given free at last, is no reason.
    let locked = Connection::bare(&options.address, None).await.unwrap();
    locked.batch("begin").await.unwrap();
    locked.batch(&format!("lock table {}.stored_row in access exclusive mode", options.schema)).await.unwrap();
    let before = store.counts().statements;
    let reading = Arc::clone(&store);
    let read = tokio::spawn(async move { reading.row(RowKind::Token, b"k").await });
    while store.counts().statements < before + 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    locked.batch("commit").await.unwrap();
    assert_eq!(read.await.unwrap().unwrap(), Some(b"v".to_vec()));
    assert_eq!(store.counts().reconnects, 0, "the server answered");
    server.pause();
    let refused = store.row(RowKind::Token, b"k").await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    server.resume();
    while store.row(RowKind::Token, b"k").await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.put_row(RowKind::Token, b"k", b"w".to_vec(), false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_would_lose_writes_or_see_the_password_is_refused() {
    let Some(server) = PostgresServer::start(&["fsync=off", "password_encryption=md5"]) else { return };
    let options = options(&server);
    assert_eq!(examine(&options).await.unwrap().fsync, "off");
    let error = refusal(options.clone()).await.to_string();
    assert!(error.contains("set fsync = on in postgresql.conf"), "{error}");
    sql(&options, "create role guest login password 'hunter2'").await;
    for method in ["md5", "password"] {
        server.set_access(&format!("local all guest {method}\nlocal all all trust\n"));
        let address = server.address().replace("user=bulkhead", "user=guest password=hunter2");
        let guest = PostgresOptions { address: Address::parse(&address).unwrap(), ..options.clone() };
        // The server reads its file a little later.
        let error = loop {
            if let Err(error) = examine(&guest).await {
                break error.to_string();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(error.contains("scram-sha-256") && !error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn schema_of_something_else_or_of_a_newer_program_is_refused() {
    let Some(server) = shared() else { return };
    for (tables, expected) in [
        ("create table customer (name text)", "tables of something else"),
        ("create table meta (key text)", "tables of something else"),
        (
            "create table meta (one boolean, version integer, program text); insert into meta values (true, 99, '9.0.0')",
            "use the newer program",
        ),
    ] {
        let options = options(server);
        sql(&options, &format!("create schema {}; {tables}", options.schema)).await;
        let error = refusal(options).await.to_string();
        assert!(error.contains(expected), "{error}");
    }
    let wrong = PostgresOptions { schema: "Robert'); drop".to_owned(), ..options(server) };
    assert!(refusal(wrong).await.to_string().contains("[store] schema"));
    let no_rights = options(server);
    sql(&no_rights, "do $$ begin create role stranger login; exception when duplicate_object then null; end $$").await;
    let address = server.address().replace("user=bulkhead", "user=stranger");
    let no_rights = PostgresOptions { address: Address::parse(&address).unwrap(), ..no_rights };
    assert!(refusal(no_rights).await.to_string().contains("create schema"), "it says what the owner has to do");
}

#[tokio::test]
async fn sealed_database_is_not_opened_without_its_key() {
    let Some(server) = shared() else { return };
    let key = |digits: &str| VaultKeys::from_variable("KEY", &digits.repeat(32)).ok();
    let options = PostgresOptions { keys: key("5a"), ..options(server) };
    let store = PostgresStore::open(options.clone()).await.unwrap();
    let owner = requestor(1, 1);
    let secret = Creation { arguments: Json::new(r#""visible""#), ..creation(task(owner, 1)) };
    store.create(secret).await.unwrap();
    store.close().await.unwrap();
    sql(&options, "do $$ begin assert (select position('visible' in arguments) = 0 from task); end $$").await;
    for keys in [None, key("6b")] {
        let error = refusal(PostgresOptions { keys, ..options.clone() }).await;
        assert!(matches!(error, Error::Sealed(_)), "{error}");
    }
    let store = PostgresStore::open(options).await.unwrap();
    assert_eq!(store.get(&owner, task(owner, 1).id).await.unwrap().unwrap().revision, 1);
}
