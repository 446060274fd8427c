//! Export, rebuild and check: a store moves between the engines and stays the same.

use std::path::Path;
use std::sync::Arc;

use super::super::{PostgresOptions, PostgresStore, check, export, rebuild};
use super::{options, sql};
use crate::postgres_server::shared;
use crate::samples::{completion, creation, output, requestor, task};
use crate::sled::{self, ProbeMode, SledOptions, SledStore};
use crate::vault::VaultKeys;
use crate::{Creation, Error, RowKind, Store, TaskStore as _};
use bulkhead_domain::task::Task;

async fn fill(store: &dyn Store) {
    for number in 1..41 {
        let aliased =
            Task { alias: Some(format!("a{number}")), attempt: 1, ..task(requestor(1, (number % 3) as u8), number) };
        let journal = (number % 4 == 1).then(|| crate::samples::tail(1, 0, &vec![7; 9_000]));
        let created = Creation { reserved_bytes: 77, journal, ..creation(aliased) };
        let created = store.create(created).await.unwrap();
        if number % 5 > 0 {
            store.commit(completion(&created, output("x".repeat(number as usize * 2_000)))).await.unwrap();
        }
    }
    for number in 0..20_u8 {
        store.put_row(RowKind::Token, &[number], vec![number; 50], false).await.unwrap();
        store.put_row(RowKind::Secret, &[b's', number], vec![number; 9], false).await.unwrap();
    }
}

fn keys(sealed: bool) -> Option<VaultKeys> {
    sealed.then(|| VaultKeys::from_variable("KEY", &"5a".repeat(32)).unwrap())
}

fn on_disk(dir: &Path, sealed: bool) -> Arc<SledStore> {
    let options =
        SledOptions { probe: ProbeMode::InProcess, ballast_bytes: 0, free_bytes_min: 1, ..SledOptions::new(dir) };
    SledStore::open(SledOptions { keys: keys(sealed), ..options }).unwrap()
}

/// The lines behind the first, which names a database.
fn lines(exported: &[u8]) -> Vec<&str> {
    std::str::from_utf8(exported).unwrap().lines().skip(1).collect()
}

async fn exported(options: PostgresOptions) -> Vec<u8> {
    let store = PostgresStore::open(options).await.unwrap();
    let mut out = Vec::new();
    let moved = export(&store, &mut out).await.unwrap();
    assert_eq!(moved.lost, [""; 0]);
    let report = check(&store).await.unwrap();
    assert_eq!((report.tasks, report.problems.as_slice()), (moved.tasks, &[] as &[String]));
    store.close().await.unwrap();
    out
}

async fn there_and_back(sealed: bool) {
    let Some(server) = shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(dir.path(), sealed);
    fill(&*store).await;
    let usage = store.usage(&requestor(1, 1)).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let mut before = Vec::new();
    sled::export(dir.path(), &mut before).unwrap();

    let options = PostgresOptions { keys: keys(sealed), ..options(server) };
    let moved = rebuild(options.clone(), &mut before.as_slice()).await.unwrap();
    assert_eq!(moved.tasks, 40);
    let there = exported(options.clone()).await;
    assert_eq!(lines(&there), lines(&before));
    let store = PostgresStore::open(options).await.unwrap();
    assert_eq!(store.usage(&requestor(1, 1)).await.unwrap(), usage);
    let task = store.by_alias(&requestor(1, 1), "a1").await.unwrap().expect("an alias");
    assert!(store.get(&requestor(1, 1), task).await.unwrap().is_some_and(|task| task.alias.as_deref() == Some("a1")));

    let other = tempfile::tempdir().unwrap();
    sled::rebuild(other.path(), Some(&mut there.as_slice())).unwrap();
    assert_eq!(sled::check(other.path()).unwrap().problems, [""; 0]);
    let mut back = Vec::new();
    sled::export(other.path(), &mut back).unwrap();
    assert_eq!(lines(&back), lines(&before));
}

#[tokio::test]
async fn store_moves_from_disk_to_database_and_back_with_the_same_lines() {
    there_and_back(false).await;
}

#[tokio::test]
async fn sealed_store_moves_from_disk_to_database_and_back_with_the_same_lines() {
    there_and_back(true).await;
}

#[tokio::test]
async fn rebuild_of_broken_export_names_the_line_and_leaves_the_schema_empty() {
    let Some(server) = shared() else { return };
    let first = options(server);
    let store = PostgresStore::open(first.clone()).await.unwrap();
    fill(&*store).await;
    let held = rebuild(first.clone(), &mut &b""[..]).await;
    assert!(matches!(&held, Err(Error::Locked(_))), "{held:?}");
    store.close().await.unwrap();
    let whole = exported(first.clone()).await;
    let refused = rebuild(first, &mut whole.as_slice()).await.unwrap_err().to_string();
    assert!(refused.contains("holds a store already") && refused.contains("cascade"), "{refused}");

    let second = options(server);
    for (bad, reason) in [
        (b"{\"kind\":\"task\"}\n".to_vec(), "missing field"),
        (b"{\"kind\":\"row\",\"row\":\"?\",\"key\":\"\",\"value\":\"\"}\n".to_vec(), "no rows of kind ?"),
        (whole.split_inclusive(|byte| *byte == b'\n').nth(1).unwrap().to_vec(), "comes twice"),
    ] {
        let broken = [whole.as_slice(), &bad].concat();
        let refused = rebuild(second.clone(), &mut broken.as_slice()).await;
        assert!(
            matches!(&refused, Err(Error::Corrupt(text)) if text.contains("line") && text.contains(reason)),
            "{refused:?}"
        );
    }
    // Nothing of the attempts is in the way.
    rebuild(second.clone(), &mut whole.as_slice()).await.unwrap();
    assert_eq!(lines(&exported(second).await), lines(&whole));
}

#[tokio::test]
async fn key_that_comes_twice_in_an_export_is_refused_with_the_lines_of_the_second() {
    let Some(server) = shared() else { return };
    let filled = options(server);
    let store = PostgresStore::open(filled.clone()).await.unwrap();
    fill(&*store).await;
    store.close().await.unwrap();
    let whole = String::from_utf8(exported(filled).await).unwrap();
    let empty = options(server);
    // More than are sent at once.
    let between: String = (0..600)
        .map(|number| format!("{{\"kind\":\"row\",\"row\":\"S\",\"key\":\"{number:08}\",\"value\":\"\"}}\n"))
        .collect();
    let last = whole.lines().count() + 601;
    for marker in [r#""kind":"task""#, r#""row":"B""#, r#""row":"J""#] {
        let line = whole.lines().find(|line| line.contains(marker)).unwrap_or_else(|| panic!("no {marker}"));
        let twice = format!("{whole}{between}{line}\n");
        let Err(Error::Corrupt(refusal)) = rebuild(empty.clone(), &mut twice.as_bytes()).await else {
            panic!("{marker} was taken twice");
        };
        let expected = format!("lines 513 to {last} of the export: a task, an alias or a row comes twice");
        assert_eq!(refusal, expected, "{marker}");
    }
    rebuild(empty, &mut whole.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn check_names_what_does_not_fit_together() {
    let Some(server) = shared() else { return };
    let options = options(server);
    let store = PostgresStore::open(options.clone()).await.unwrap();
    fill(&*store).await;
    assert_eq!(check(&store).await.unwrap().problems, [""; 0]);
    for (damage, problem) in [
        (
            "update task set expires_at = 1 where id = (select id from task order by id limit 1)",
            "the record and its columns differ",
        ),
        ("update task set record = 'x' where id = (select id from task order by id desc limit 1)", "task"),
        (
            "delete from journal where number = 3 and id = (select id from journal order by id limit 1)",
            "pieces are missing",
        ),
        ("delete from task where id = (select id from journal order by id desc limit 1)", "belongs to no task"),
    ] {
        let before = check(&store).await.unwrap().problems;
        sql(&options, damage).await;
        let mut found = check(&store).await.unwrap().problems;
        found.retain(|problem| !before.contains(problem));
        assert!(found.len() == 1 && found[0].contains(problem), "{damage}: {found:?}");
    }
}
