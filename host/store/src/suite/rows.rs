//! One suite of facts about small rows, for every store.

use super::{Bed, create};
use crate::samples::{requestor, task};
use crate::{Error, ROW_BYTES_MAX, ROW_KEY_BYTES_MAX, RowKind, host_secret};

facts!(
    rows_are_kept_by_kind,
    row_size_is_bounded,
    several_rows_change_together_or_not_at_all,
    hosts_that_begin_together_have_one_secret,
    generation_moves_with_the_rows_of_its_kind,
);

async fn hosts_that_begin_together_have_one_secret(bed: Bed) {
    let store = bed.store();
    let [one, other] = [host_secret(&*store, b"k"), host_secret(&*store, b"k")];
    let (one, other) = futures::future::join(one, other).await;
    let one = one.unwrap();
    assert_eq!(other.unwrap(), one);
    assert_eq!(host_secret(&*store, b"k").await.unwrap(), one);
    assert_ne!(host_secret(&*store, b"other").await.unwrap(), one);
    store.put_row(RowKind::Secret, b"short", b"k".to_vec(), false).await.unwrap();
    assert!(matches!(host_secret(&*store, b"short").await, Err(Error::Corrupt(_))));
}

async fn generation_moves_with_the_rows_of_its_kind(bed: Bed) {
    let store = bed.store();
    let generation = |kind| store.generation(kind).unwrap();
    let before = generation(RowKind::Token);
    assert_eq!(generation(RowKind::Token), before);
    store.put_row(RowKind::Token, b"a", b"1".to_vec(), true).await.unwrap();
    let put = generation(RowKind::Token);
    assert_ne!(put, before);
    store.change_rows(RowKind::Token, Vec::new(), vec![(b"a".to_vec(), None)], None).await.unwrap();
    let changed = generation(RowKind::Token);
    assert_ne!(changed, put);
    if let Bed::Disk { .. } | Bed::Postgres { .. } = bed {
        store.put_row(RowKind::Session, b"a", b"1".to_vec(), true).await.unwrap();
        create(&*store, task(requestor(1, 1), 1)).await;
        assert_eq!(generation(RowKind::Token), changed, "other rows and tasks leave it alone");
    }
}

async fn rows_are_kept_by_kind(bed: Bed) {
    let store = bed.store();
    for (key, value) in [("b", "2"), ("a", "1"), ("c", "3"), ("", "0")] {
        store.put_row(RowKind::Token, key.as_bytes(), value.into(), true).await.unwrap();
    }
    store.put_row(RowKind::Session, b"a", b"other".to_vec(), false).await.unwrap();
    assert_eq!(store.row(RowKind::Token, b"a").await.unwrap(), Some(b"1".to_vec()));
    assert_eq!(store.row(RowKind::Secret, b"a").await.unwrap(), None);
    assert!(matches!(store.put_row(RowKind::Token, b"a", b"9".to_vec(), true).await, Err(Error::Exists)));
    store.put_row(RowKind::Token, b"a", b"4".to_vec(), false).await.unwrap();
    let keys = |rows: Vec<(Vec<u8>, Vec<u8>)>| rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    let all = store.rows(RowKind::Token, None, 9).await.unwrap();
    assert_eq!(all[1], (b"a".to_vec(), b"4".to_vec()));
    assert_eq!(keys(all), [&b""[..], b"a", b"b", b"c"]);
    assert_eq!(keys(store.rows(RowKind::Token, Some(b"a"), 1).await.unwrap()), [b"b"]);
    store.remove_row(RowKind::Token, b"b").await.unwrap();
    store.remove_row(RowKind::Token, b"b").await.unwrap();
    assert_eq!(keys(store.rows(RowKind::Token, Some(b""), 9).await.unwrap()), [b"a", b"c"]);
    assert_eq!(store.rows(RowKind::Plugin, None, 9).await.unwrap(), []);
}

async fn several_rows_change_together_or_not_at_all(mut bed: Bed) {
    let store = bed.store();
    let row = |key: &str, value: Option<&str>| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()));
    let kind = RowKind::Plugin;
    let first = vec![row("a", Some("1")), row("b", Some("1")), row("absent", None)];
    store.change_rows(kind, vec![row("a", None)], first, None).await.unwrap();
    let second = vec![row("a", Some("2")), row("b", None)];
    for stale in [row("a", None), row("a", Some("0")), row("absent", Some("1"))] {
        let refused = store.change_rows(kind, vec![row("b", Some("1")), stale], second.clone(), None).await;
        assert!(matches!(refused, Err(Error::Conflict)));
    }
    let large = vec![row("a", Some("3")), (b"b".to_vec(), Some(vec![0; ROW_BYTES_MAX + 1]))];
    assert!(matches!(store.change_rows(kind, Vec::new(), large, None).await, Err(Error::Quota { .. })));
    assert_eq!(store.row(kind, b"a").await.unwrap(), Some(b"1".to_vec()));
    store.change_rows(kind, vec![row("a", Some("1")), row("b", Some("1"))], second, None).await.unwrap();
    drop(store);
    bed.reopen().await;
    assert_eq!(bed.store().rows(kind, None, 9).await.unwrap(), [(b"a".to_vec(), b"2".to_vec())]);
}

async fn row_size_is_bounded(bed: Bed) {
    let store = bed.store();
    store.put_row(RowKind::Plugin, b"p", vec![1; ROW_BYTES_MAX], false).await.unwrap();
    let refused = store.put_row(RowKind::Plugin, b"p", vec![2; ROW_BYTES_MAX + 1], false).await;
    assert!(matches!(refused, Err(Error::Quota { .. })));
    let refused = store.put_row(RowKind::Plugin, &[1; ROW_KEY_BYTES_MAX + 1], vec![2], false).await;
    assert!(matches!(refused, Err(Error::Quota { .. })));
    assert_eq!(store.row(RowKind::Plugin, b"p").await.unwrap(), Some(vec![1; ROW_BYTES_MAX]));
}
