//! Secrets in a store, with keys that come and go.

use parking_lot::Mutex;

use super::*;
use bulkhead_store::memory::MemoryStore;
use bulkhead_store::{RowStore as _, sled};

const ONE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const TWO: &str = "0202020202020202020202020202020202020202020202020202020202020202";
const VALUE: &str = "the-marker-value";
const TENANT: TenantId = TenantId([1; 16]);
const OTHER: TenantId = TenantId([2; 16]);

type Given = Arc<Mutex<Option<String>>>;

/// Keys from a text that tests change.
fn source(given: &Given) -> KeySource {
    let given = Arc::clone(given);
    Box::new(move || match &*given.lock() {
        Some(text) => VaultKeys::from_variable("KEY", text).map(Some),
        None => Ok(None),
    })
}

fn given(text: &str) -> Given {
    Arc::new(Mutex::new(Some(text.to_owned())))
}

async fn opened(store: Arc<dyn Store>, keys: &str) -> Secrets {
    Secrets::open(store, source(&given(keys))).await.unwrap()
}

fn which(name: &str, plugin: &str, tenant: Option<TenantId>) -> SecretRef {
    SecretRef { name: name.to_owned(), plugin: plugin.to_owned(), tenant: tenant.map(|id| (id, "acme".to_owned())) }
}

fn wish(which: SecretRef, value: &str) -> NewSecret {
    let places = InjectionPoints { header: true, ..InjectionPoints::default() };
    NewSecret { which, destinations: vec!["https://a.example/v1".parse().unwrap()], places, value: value.to_owned() }
}

#[tokio::test]
async fn secret_is_scoped_to_plugin_and_tenant() {
    let store = Arc::new(MemoryStore::new());
    let secrets = opened(store.clone(), ONE).await;
    for (which, value) in [
        (which("KEY", "p", None), "for everybody"),
        (which("KEY", "p", Some(TENANT)), "for one tenant"),
        (which("OTHER", "p", Some(TENANT)), "for one tenant too"),
        (which("KEY", "pq", None), "another plugin's"),
    ] {
        secrets.set(wish(which, value), 5).await.unwrap();
    }
    let values = async |tenant, plugin| {
        let mut found = secrets.of(tenant, plugin).await.unwrap();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.into_iter().map(|secret| secret.value).collect::<Vec<_>>()
    };
    assert_eq!(values(TENANT, "p").await, ["for one tenant", "for one tenant too"]);
    assert_eq!(values(OTHER, "p").await, ["for everybody"]);
    assert_eq!(values(TENANT, "pq").await, ["another plugin's"]);
    assert!(values(TENANT, "nobody").await.is_empty());
    secrets.remove(&which("KEY", "p", Some(TENANT))).await.unwrap();
    assert_eq!(values(TENANT, "p").await, ["for everybody", "for one tenant too"]);
    let absent = secrets.remove(&which("KEY", "p", Some(TENANT))).await.unwrap_err();
    assert_eq!(absent.to_string(), "there is no secret KEY of plugin p for tenant acme");
    for (key, _) in store.rows(RowKind::GuestSecret, None, 99).await.unwrap() {
        if RowKind::GuestSecret.tenant_of(&key) == Some(TENANT) {
            store.remove_row(RowKind::GuestSecret, &key).await.unwrap();
        }
    }
    assert_eq!(values(TENANT, "p").await, ["for everybody"]);
    assert_eq!(secrets.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn invalid_secret_is_refused_without_showing_its_value() {
    let secrets = opened(Arc::new(MemoryStore::new()), ONE).await;
    let good = || wish(which("KEY", "p", None), VALUE);
    let long = "x".repeat(2_049);
    for wrong in [
        NewSecret { which: which("a b", "p", None), ..good() },
        NewSecret { which: which("KEY", "", None), ..good() },
        NewSecret { destinations: Vec::new(), ..good() },
        NewSecret { places: InjectionPoints::default(), ..good() },
        NewSecret { value: "short".to_owned(), ..good() },
        NewSecret { value: long, ..good() },
        NewSecret { value: format!("{VALUE}\n"), ..good() },
        NewSecret { value: format!("{VALUE}ü"), ..good() },
    ] {
        let refused = secrets.set(wrong, 1).await.unwrap_err().to_string();
        assert!(!refused.contains("marker"), "{refused}");
    }
    assert!(secrets.list().await.unwrap().is_empty());
    for at in 0..64 {
        secrets.set(wish(which(&format!("K{at}"), "p", None), VALUE), 1).await.unwrap();
    }
    assert!(secrets.set(wish(which("K64", "p", None), VALUE), 1).await.is_err());
    for tenant in [TENANT, OTHER] {
        secrets.set(wish(which("K64", "p", Some(tenant)), VALUE), 1).await.expect("each tenant has room of its own");
    }
    secrets.set(wish(which("K7", "p", None), VALUE), 1).await.unwrap();
}

#[tokio::test]
async fn secret_key_rotation_loses_nothing() {
    let store = Arc::new(MemoryStore::new());
    let keys = given(ONE);
    let secrets = Secrets::open(store.clone(), source(&keys)).await.unwrap();
    secrets.set(wish(which("KEY", "p", None), VALUE), 1).await.unwrap();
    secrets.set(wish(which("KEY", "q", None), VALUE), 1).await.unwrap();
    let before = secrets.list().await.unwrap();

    *keys.lock() = Some(TWO.to_owned());
    let refused = secrets.rotate().await.unwrap_err().to_string();
    assert!(refused.contains("KEY of plugin p") && refused.contains(&before[0].key), "{refused}");
    assert_eq!(secrets.of(TENANT, "p").await.unwrap()[0].value, VALUE, "the keys that are good stay");

    *keys.lock() = Some(format!("{TWO},{ONE}"));
    assert_eq!(secrets.rotate().await.unwrap(), 2);
    assert_eq!(secrets.rotate().await.unwrap(), 0);
    let after = secrets.list().await.unwrap();
    assert!(after.iter().all(|shown| shown.key != before[0].key && !shown.outdated), "{after:?}");
    assert_eq!(opened(store, TWO).await.of(TENANT, "q").await.unwrap()[0].value, VALUE);
}

#[tokio::test]
async fn start_with_wrong_or_no_secret_key_is_refused() {
    let store = Arc::new(MemoryStore::new());
    let none: Given = Arc::default();
    let without = Secrets::open(store.clone(), source(&none)).await.unwrap();
    let refused = without.set(wish(which("KEY", "p", None), VALUE), 1).await.unwrap_err();
    assert!(refused.to_string().contains("[secrets] key_file"), "{refused}");
    opened(store.clone(), ONE).await.set(wish(which("KEY", "p", None), VALUE), 1).await.unwrap();
    for (keys, part) in [(given(TWO), "not among the keys that were given"), (none, "BULKHEAD_SECRET_KEY")] {
        let refused = Secrets::open(store.clone(), source(&keys)).await.err().unwrap().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    assert!(Secrets::open(store.clone(), source(&given("no key"))).await.is_err());
    assert_eq!(opened(store, ONE).await.list().await.unwrap().len(), 1, "nothing was lost");
}

#[tokio::test]
async fn a_secret_whose_key_is_lost_can_be_listed_and_removed() {
    let store = Arc::new(MemoryStore::new());
    opened(store.clone(), ONE).await.set(wish(which("KEY", "p", None), VALUE), 1).await.unwrap();
    for keys in [Given::default(), given("no key"), given(TWO)] {
        let secrets = Secrets::unopened(store.clone(), source(&keys));
        assert_eq!(secrets.list().await.unwrap().len(), 1);
        assert!(secrets.of(TENANT, "p").await.is_err());
    }
    for keys in [Given::default(), given(TWO)] {
        let refused = Secrets::open(store.clone(), source(&keys)).await.err().unwrap().to_string();
        assert!(refused.contains("`bulkhead secret remove KEY --plugin p`"), "{refused}");
    }
    Secrets::unopened(store.clone(), source(&Given::default())).remove(&which("KEY", "p", None)).await.unwrap();
    assert!(Secrets::open(store, source(&Given::default())).await.is_ok());
}

#[tokio::test]
async fn tampered_secret_binding_cannot_be_opened() {
    let store = Arc::new(MemoryStore::new());
    let secrets = opened(store.clone(), ONE).await;
    secrets.set(wish(which("KEY", "p", None), VALUE), 1).await.unwrap();
    let (key, value) = store.rows(RowKind::GuestSecret, None, 9).await.unwrap().remove(0);
    let mut row = Row::decode(&value).unwrap();
    row.destinations = vec!["https://evil.example".to_owned()];
    store.put_row(RowKind::GuestSecret, &key, row.encode().unwrap(), false).await.unwrap();
    assert!(matches!(secrets.of(TENANT, "p").await, Err(Error::Sealed { error: vault::Error::Opened, .. })));
    // Nor does a row in another one's place.
    let moved = Scope::of(&which("KEY", "q", None)).key();
    store.put_row(RowKind::GuestSecret, &moved, value, false).await.unwrap();
    assert!(secrets.of(TENANT, "q").await.is_err());
}

#[tokio::test]
async fn secret_values_are_not_on_disk_or_listed() {
    let dir = tempfile::tempdir().unwrap();
    let options = sled::SledOptions {
        probe: sled::ProbeMode::InProcess,
        ballast_bytes: 0,
        free_bytes_min: 1,
        ..sled::SledOptions::new(dir.path())
    };
    let store = sled::SledStore::open(options).unwrap();
    let secrets = opened(store.clone(), ONE).await;
    let shown = secrets.set(wish(which("KEY", "p", None), VALUE), 1).await.unwrap();
    assert_eq!(
        (shown.destinations, shown.places),
        (vec!["https://a.example:443/v1".to_owned()], vec!["header".to_owned()])
    );
    assert!(!serde_json::to_string(&secrets.list().await.unwrap()).unwrap().contains("marker"));
    bulkhead_store::TaskStore::close(&*store).await.unwrap();
    drop((secrets, store));
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let bytes = std::fs::read(&entry).unwrap();
                assert!(!bytes.windows(6).any(|bytes| bytes == b"marker"), "{}", entry.display());
            }
        }
    }
}
