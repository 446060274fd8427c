use super::tokens::digest;
use super::*;
use crate::auth::{Scopes, Sender, Verified, Verifier as _};
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::Limits;
use bulkhead_limits::failures::Failures;
use bulkhead_store::memory::MemoryStore;
use bulkhead_store::sled::{ProbeMode, SledOptions, SledStore};

fn principals() -> Principals {
    Principals::new(Arc::new(MemoryStore::new()))
}

async fn verify(verifier: &TokenVerifier, token: &str) -> Result<Verified, Denied> {
    let failures = Failures::new(1);
    verifier.verify(token, Sender { address: [127, 0, 0, 1].into(), failures: &failures }).await
}

#[tokio::test]
async fn token_resolves_to_requestor_and_is_not_stored() {
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    let new = principals.create_token("alice", "acme", None, 1).await.unwrap();
    assert!(new.token.starts_with("bh_") && new.token.len() == 46);
    let resolved = principals.resolve_token(&new.token, 2).await.unwrap().unwrap();
    assert_eq!(resolved.requestor.tenant, principals.tenant("acme").await.unwrap());
    let second = principals.create_token("alice", "acme", None, 3).await.unwrap();
    assert_ne!(second.token, new.token);
    assert_eq!(principals.resolve_token(&second.token, 4).await.unwrap().unwrap().requestor, resolved.requestor);
    for (key, value) in bulkhead_store::RowStore::rows(&*store, RowKind::Token, None, 10).await.unwrap() {
        let secret = new.token.trim_start_matches("bh_").as_bytes();
        assert!(!value.windows(secret.len()).any(|bytes| bytes == secret) && key.len() == 32);
    }
}

#[tokio::test]
async fn tenant_id_resolves_to_its_name() {
    let principals = principals();
    for name in ["a", "acme", "z"] {
        let id = principals.tenant(name).await.unwrap();
        principals.create_token("alice", name, None, 1).await.unwrap();
        assert_eq!(principals.tenant_name(id).await.unwrap().as_deref(), Some(name));
    }
    assert_eq!(principals.tenant_name(TenantId([9; 16])).await.unwrap(), None);
}

#[tokio::test]
async fn unknown_expired_and_revoked_tokens_are_not_resolved() {
    let principals = principals();
    let expiring = principals.create_token("alice", "acme", Some(100), 1).await.unwrap();
    assert!(principals.resolve_token(&expiring.token, 99).await.unwrap().is_some());
    assert_eq!(principals.resolve_token(&expiring.token, 100).await.unwrap(), None);
    let revoked = principals.create_token("alice", "acme", None, 1).await.unwrap();
    principals.revoke_token(&revoked.info.id, 5).await.unwrap();
    assert_eq!(principals.revoke_token(&revoked.info.id, 9).await.unwrap().revoked_at, Some(5));
    assert_eq!(principals.resolve_token(&revoked.token, 6).await.unwrap(), None);
    for unknown in ["", "bh_", "x", &format!("bh_{}", "A".repeat(43)), &format!("bh_{}", "A".repeat(9000))] {
        assert_eq!(principals.resolve_token(unknown, 6).await.unwrap(), None);
    }
    assert!(!principals.any_active_token(100).await.unwrap());
    assert!(principals.any_active_token(99).await.unwrap());
    assert!(matches!(principals.revoke_token("0", 1).await, Err(Error::UnknownToken(_))));
}

#[tokio::test]
async fn token_keeps_name_scopes_and_last_use() {
    let principals = principals();
    let scopes = ["read".to_owned()];
    let wish = TokenSpec {
        requestor: "alice",
        tenant: "acme",
        expires_at: None,
        label: Some("laptop"),
        scopes: Some(&scopes),
    };
    let new = principals.create(wish, 1).await.unwrap();
    let verifier = TokenVerifier::new(principals.clone(), Arc::new(ManualClock::at(50)));
    let verified = verify(&verifier, &new.token).await.unwrap();
    assert_eq!((verified.name.as_str(), verified.tenant.as_str()), ("alice", "acme"));
    assert_eq!(verified.scopes, Scopes::Fixed(scopes.to_vec()));
    assert_eq!(principals.tokens().await.unwrap()[0].last_used_at, None);
    // Neither of them undoes the other.
    principals.revoke_token(&new.info.id, 60).await.unwrap();
    verifier.used().write().await.unwrap();
    let told = &principals.tokens().await.unwrap()[0];
    assert_eq!((told.last_used_at, told.revoked_at, told.name.as_deref()), (Some(50), Some(60), Some("laptop")));
    assert!(matches!(verify(&verifier, &new.token).await, Err(Denied::Invalid)));
    for bad in ["", "a b", "a\"b"] {
        let scopes = [bad.to_owned()];
        let wish = TokenSpec { scopes: Some(&scopes), ..wish };
        assert!(matches!(principals.create(wish, 1).await, Err(Error::Scope(_))), "{bad:?}");
    }
}

#[tokio::test]
async fn token_row_of_another_layout_is_refused_by_its_number() {
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    let new = principals.create_token("alice", "acme", None, 1).await.unwrap();
    let key = digest(&new.token);
    let mut bytes = bulkhead_store::RowStore::row(&*store, RowKind::Token, &key).await.unwrap().unwrap();
    for version in [1, 3] {
        bytes[0] = version;
        bulkhead_store::RowStore::put_row(&*store, RowKind::Token, &key, bytes.clone(), false).await.unwrap();
        let refused = principals.resolve_token(&new.token, 2).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("layout {version} is of another version")), "{refused}");
    }
}

#[tokio::test]
async fn one_name_in_two_tenants_is_two_requestors() {
    let principals = principals();
    let mut seen = vec![principals.local_requestor().await.unwrap()];
    for (name, tenant) in [("alice", "acme"), ("alice", "other"), ("local", "default"), ("bob", "acme")] {
        let token = principals.create_token(name, tenant, None, 1).await.unwrap().token;
        seen.push(principals.resolve_token(&token, 1).await.unwrap().unwrap().requestor);
    }
    let mut ids: Vec<_> = seen.iter().map(|requestor| requestor.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), seen.len());
    assert_eq!(seen[1].tenant, seen[4].tenant);
    assert_ne!(seen[1].tenant, seen[2].tenant);
    assert_eq!(principals.names().await.unwrap().len(), seen.len());
    assert_eq!(principals.local_requestor().await.unwrap(), seen[0]);
}

#[tokio::test]
async fn first_token_ends_anonymous_access() {
    ends_anonymous_access(Arc::new(MemoryStore::new())).await;
}

/// This store says when nothing has changed, and is asked once only.
#[tokio::test(flavor = "multi_thread")]
async fn cached_token_state_follows_store_generation() {
    let folder = tempfile::tempdir().unwrap();
    let options = SledOptions { probe: ProbeMode::InProcess, ..SledOptions::new(folder.path().to_owned()) };
    let store = tokio::task::spawn_blocking(|| SledStore::open(options)).await.unwrap().unwrap();
    assert!(bulkhead_store::RowStore::generation(&*store, RowKind::Token).is_some());
    ends_anonymous_access(store.clone()).await;
    bulkhead_store::TaskStore::close(&*store).await.unwrap();
}

async fn ends_anonymous_access(store: Arc<dyn Store>) {
    let principals = Principals::new(Arc::clone(&store));
    let verifier = TokenVerifier::new(principals.clone(), Arc::new(ManualClock::at(50)));
    for _ in 0..3 {
        assert_eq!(verifier.anonymous().await.unwrap(), Some(principals.local_requestor().await.unwrap()));
    }
    // Somebody else on the same store, as the control socket is.
    let new = Principals::new(store).create_token("alice", "acme", Some(100), 1).await.unwrap();
    assert_eq!(verifier.anonymous().await.unwrap(), None);
    for _ in 0..2 {
        let beside = verifier.anonymous_beside_tokens().await.unwrap();
        assert_eq!(beside, Some(principals.local_requestor().await.unwrap()), "where the operator lets them in");
    }
    let alice = verify(&verifier, &new.token).await.unwrap().requestor;
    assert_ne!(alice, principals.local_requestor().await.unwrap());
    principals.revoke_token(&new.info.id, 2).await.unwrap();
    assert!(matches!(verify(&verifier, &new.token).await, Err(Denied::Invalid)));
    assert_eq!(verifier.anonymous().await.unwrap(), None);
}

/// A request with a token that was used before asks the store for nothing, until a row of a token or a principal
/// changes.
#[tokio::test]
async fn token_that_was_looked_up_is_good_until_it_ends() {
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    let new = principals.create_token("alice", "acme", Some(100), 1).await.unwrap();
    let found = principals.resolve_token(&new.token, 2).await.unwrap();
    assert!(found.is_some());
    store.fail_next_reads(1);
    assert_eq!(principals.resolve_token(&new.token, 99).await.unwrap(), found);
    assert_eq!(principals.resolve_token(&new.token, 100).await.unwrap(), None, "it has expired");
    store.fail_next_reads(0);
    Principals::new(store.clone()).revoke_token(&new.info.id, 3).await.unwrap();
    assert_eq!(principals.resolve_token(&new.token, 4).await.unwrap(), None, "it was revoked elsewhere");
}

async fn with_rules(principals: &Principals, name: &str) -> Result<TenantId, Error> {
    let ruled = principals.look_up([name.to_owned()].iter()).await?;
    principals.adopt(&ruled).await?;
    Ok(ruled.id(name).unwrap())
}

#[tokio::test]
async fn configured_tenants_are_created_together_or_not_at_all() {
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    let old = principals.tenant("old").await.unwrap();
    let names = ["old", "one", "two"].map(str::to_owned);
    let ruled = principals.look_up(names.iter()).await.unwrap();
    assert_eq!(ruled.id("old"), Some(old));
    assert_eq!(principals.tenants().await.unwrap(), [("old".to_owned(), old)], "looking up makes nothing");
    // Somebody else comes first with one of them.
    let two = principals.tenant("two").await.unwrap();
    assert!(matches!(principals.adopt(&ruled).await, Err(Error::Store(store::Error::Conflict))));
    assert_eq!(principals.find_tenant("one").await.unwrap(), None);
    let ruled = principals.look_up(names.iter()).await.unwrap();
    principals.adopt(&ruled).await.unwrap();
    assert_eq!(ruled.id("two"), Some(two));
    for name in ["old", "one", "two"] {
        assert_eq!(principals.tenant(name).await.unwrap(), ruled.id(name).unwrap(), "{name}");
    }
}

#[tokio::test]
async fn erased_configured_tenant_name_is_blocked_until_restart() {
    let store = Arc::new(MemoryStore::new());
    let principals = Principals::new(store.clone());
    let acme = with_rules(&principals, "acme").await.unwrap();
    let free = principals.tenant("free").await.unwrap();
    let old = principals.create_token("alice", "acme", None, 1).await.unwrap().token;
    let anna = Identity { verifier: "oauth", issuer: "https://login.example.com", subject: "anna", client: "" };
    let limits = LiveLimits::from(Limits::generous());
    let tenant = InTenant { name: "acme", is_configured: true };
    principals.identified(anna, tenant, &limits).await.unwrap();
    for tenant in [acme, free] {
        principals.remove_tokens(tenant).await.unwrap();
        principals.remove_tenant(tenant).await.unwrap();
    }
    let removed = |result: Result<(), Error>| matches!(result, Err(Error::Removed(name)) if name == "acme");
    assert!(removed(principals.create_token("alice", "acme", None, 1).await.map(drop)));
    let by_access_token = principals.identified(anna, tenant, &limits).await;
    assert!(matches!(by_access_token, Err(Denied::Invalid)), "{by_access_token:?}");
    assert!(removed(with_rules(&principals, "acme").await.map(drop)));
    assert!(removed(principals.clone().tenant("acme").await.map(drop)), "whoever asks");
    let verifier = TokenVerifier::new(principals.clone(), Arc::new(ManualClock::at(50)));
    assert!(matches!(verifier.verify_again(&old).await, Err(Denied::Invalid)));
    // Without rules of its own, a name is free at once.
    assert_ne!(principals.tenant("free").await.unwrap(), free);
    // Another host on the same store begins with the rules for whoever has the name then.
    let restarted = Principals::new(store);
    assert_ne!(with_rules(&restarted, "acme").await.unwrap(), acme);
    let verifier = TokenVerifier::new(restarted, Arc::new(ManualClock::at(50)));
    assert!(matches!(verifier.verify_again(&old).await, Err(Denied::Invalid)));
}

#[tokio::test]
async fn oauth_identity_stays_in_its_first_tenant() {
    let principals = principals();
    let anna = Identity { verifier: "oauth", issuer: "https://login.example.com", subject: "anna", client: "" };
    let limits = LiveLimits::from(Limits::generous());
    let tenant = |name| InTenant { name, is_configured: true };
    let first = principals.identified(anna, tenant("acme"), &limits).await.unwrap();
    assert_eq!(first, (principals.requestor(anna, "globex").await.unwrap(), "acme".to_owned()));
    // The rules of scopes go by this name, and it must be that of the tenant's id.
    assert_eq!(principals.identified(anna, tenant("globex"), &limits).await.unwrap(), first);
    assert_eq!(first.0.tenant, principals.tenant("acme").await.unwrap());
}

#[tokio::test]
async fn concurrent_requestor_creation_agrees_on_one_id() {
    let principals = principals();
    let made = futures::future::join_all((0..32).map(|_| principals.local_requestor())).await;
    let first = *made[0].as_ref().unwrap();
    assert!(made.into_iter().all(|one| one.unwrap() == first));
}

#[tokio::test]
async fn requestor_and_tenant_names_needing_quotes_are_refused() {
    for name in ["", "a b", "a/b", "ä", &"a".repeat(65)] {
        assert!(matches!(principals().create_token(name, "t", None, 1).await, Err(Error::Name { .. })), "{name}");
        assert!(matches!(principals().create_token("t", name, None, 1).await, Err(Error::Name { .. })), "{name}");
    }
}

#[test]
fn oauth_identity_keys_do_not_collide() {
    let key = |issuer, subject| Identity { verifier: "v", issuer, subject, client: "" }.key();
    assert_ne!(key("ab", "c"), key("a", "bc"));
}
