//! `wasi:keyvalue`: the plugin's own values, those of `bulkhead:plugin/keyvalue`, under the same quota.
//!
//! There is one bucket, `default`. Counters are decimal numbers. Invariant: what compares and writes does both in one
//! step of the store.

use std::fmt::Display;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, LinkerInstance, Lower, Resource, ResourceType};
use wasmtime_wasi::WasiView as _;

use crate::bindings::bulkhead::plugin::keyvalue as wit;
use crate::call::Call;
use crate::keyvalue::KEY_BYTES_MAX;
use bulkhead_calls::guest_services::KeyPage;
use bulkhead_calls::journal::names;

/// Names of the bucket.
const BUCKETS: [&str; 2] = ["default", ""];
/// Keys of one batch.
const BATCH_KEYS_MAX: usize = 100;
/// Bytes of all values that one batch gives.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Times that one call tries to count up while others write the same key.
const COUNTING_ATTEMPTS_MAX: usize = 100;

/// A guest's handle of the bucket.
#[derive(Default)]
struct Bucket {
    /// The number of the page that would be next, and the key that it begins after: in the first draft a cursor is a
    /// number.
    next_page: Option<(u64, String)>,
}

/// What a guest saw under a key before it swaps the value.
struct Cas {
    key: String,
    /// Its SHA-256; the value may be large.
    seen: Option<[u8; 32]>,
}

#[derive(ComponentType, Lower)]
#[component(variant)]
enum Error {
    #[component(name = "no-such-store")]
    NoSuchStore,
    #[component(name = "access-denied")]
    AccessDenied,
    #[component(name = "other")]
    Other(String),
}

impl Error {
    fn other(why: impl Into<String>) -> Self {
        Self::Other(why.into())
    }
}

impl From<wit::Error> for Error {
    fn from(error: wit::Error) -> Self {
        match error {
            wit::Error::Denied(_) => Self::AccessDenied,
            wit::Error::Quota(why)
            | wit::Error::TooLarge(why)
            | wit::Error::Invalid(why)
            | wit::Error::Unavailable(why) => Self::Other(why),
        }
    }
}

/// Why an operation gives nothing.
enum Failed {
    /// The guest is told.
    Told(Error),
    /// The call ends.
    Trap(wasmtime::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl From<wit::Error> for Failed {
    fn from(error: wit::Error) -> Self {
        Self::Told(error.into())
    }
}

impl From<wasmtime::Error> for Failed {
    fn from(error: wasmtime::Error) -> Self {
        Self::Trap(error)
    }
}

#[derive(ComponentType, Lower)]
#[component(variant)]
enum CasError {
    #[component(name = "store-error")]
    Store(Error),
    #[component(name = "cas-failed")]
    Failed(Resource<Cas>),
}

/// A page of the first draft.
#[derive(ComponentType, Lower)]
#[component(record)]
struct NumberedPage {
    keys: Vec<String>,
    cursor: Option<u64>,
}

/// A page of the second one.
#[derive(ComponentType, Lower)]
#[component(record)]
struct NamedPage {
    keys: Vec<String>,
    cursor: Option<String>,
}

type Told<T, E = Error> = wasmtime::Result<(Result<T, E>,)>;

/// The result as a guest sees it.
fn told<T>(result: Result<T, Failed>) -> Told<T> {
    match result {
        Ok(value) => Ok((Ok(value),)),
        Err(Failed::Told(error)) => Ok((Err(error),)),
        Err(Failed::Trap(error)) => Err(error),
    }
}

type Store<'a> = StoreContextMut<'a, Call>;
type Pairs = Vec<(String, Vec<u8>)>;

pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    for version in ["0.2.0-draft", "0.2.0-draft2"] {
        add_bucket(&mut linker.instance(&format!("wasi:keyvalue/store@{version}"))?)?;
        add_batch(&mut linker.instance(&format!("wasi:keyvalue/batch@{version}"))?)?;
    }
    // What the drafts differ in.
    linker.instance("wasi:keyvalue/store@0.2.0-draft")?.func_wrap_async(
        "[method]bucket.list-keys",
        |mut store: Store<'_>, (bucket, cursor): (Resource<Bucket>, Option<u64>)| {
            Box::new(async move { told(numbered_page(store.data_mut(), bucket, cursor).await) })
        },
    )?;
    linker.instance("wasi:keyvalue/store@0.2.0-draft2")?.func_wrap_async(
        "[method]bucket.list-keys",
        |mut store: Store<'_>, (_, cursor): (Resource<Bucket>, Option<String>)| {
            Box::new(async move {
                let page = page(store.data_mut(), cursor).await;
                told(page.map(|page| NamedPage { keys: page.keys, cursor: page.next }))
            })
        },
    )?;
    linker.instance("wasi:keyvalue/atomics@0.2.0-draft")?.func_wrap_async(
        "increment",
        |mut store: Store<'_>, (_, key, delta): (Resource<Bucket>, String, u64)| {
            Box::new(async move { told(increment(store.data_mut(), &key, delta, u64::checked_add).await) })
        },
    )?;
    add_atomics(&mut linker.instance("wasi:keyvalue/atomics@0.2.0-draft2")?)
}

fn add_bucket(interface: &mut LinkerInstance<'_, Call>) -> wasmtime::Result<()> {
    interface.resource("bucket", ResourceType::host::<Bucket>(), |mut store, rep| {
        store.data_mut().ctx().table.delete(Resource::<Bucket>::new_own(rep))?;
        Ok(())
    })?;
    interface.func_wrap_async("open", |mut store: Store<'_>, (name,): (String,)| {
        Box::new(async move { told(open(store.data_mut(), &name).await) })
    })?;
    interface.func_wrap_async("[method]bucket.get", |mut store: Store<'_>, (_, key): (Resource<Bucket>, String)| {
        Box::new(async move {
            let call = store.data_mut();
            call.enter(names::BUCKET_GET).await?;
            told(get(call, &key).await)
        })
    })?;
    interface.func_wrap_async(
        "[method]bucket.set",
        |mut store: Store<'_>, (_, key, value): (Resource<Bucket>, String, Vec<u8>)| {
            Box::new(async move {
                let call = store.data_mut();
                call.enter(names::BUCKET_SET).await?;
                told(set(call, key, value).await)
            })
        },
    )?;
    interface.func_wrap_async(
        "[method]bucket.delete",
        |mut store: Store<'_>, (_, key): (Resource<Bucket>, String)| {
            Box::new(async move {
                let call = store.data_mut();
                call.enter(names::BUCKET_DELETE).await?;
                told(delete(call, key).await)
            })
        },
    )?;
    interface.func_wrap_async("[method]bucket.exists", |mut store: Store<'_>, (_, key): (Resource<Bucket>, String)| {
        Box::new(async move {
            let call = store.data_mut();
            call.enter(names::BUCKET_EXISTS).await?;
            told(get(call, &key).await.map(|value| value.is_some()))
        })
    })
}

fn add_batch(interface: &mut LinkerInstance<'_, Call>) -> wasmtime::Result<()> {
    interface.func_wrap_async("get-many", |mut store: Store<'_>, (_, keys): (Resource<Bucket>, Vec<String>)| {
        Box::new(async move { told(get_many(store.data_mut(), keys).await) })
    })?;
    interface.func_wrap_async("set-many", |mut store: Store<'_>, (_, pairs): (Resource<Bucket>, Pairs)| {
        Box::new(async move { told(set_many(store.data_mut(), pairs).await) })
    })?;
    interface.func_wrap_async("delete-many", |mut store: Store<'_>, (_, keys): (Resource<Bucket>, Vec<String>)| {
        Box::new(async move { told(delete_many(store.data_mut(), keys).await) })
    })
}

/// The atomics of the second draft.
fn add_atomics(interface: &mut LinkerInstance<'_, Call>) -> wasmtime::Result<()> {
    interface.func_wrap_async(
        "increment",
        |mut store: Store<'_>, (_, key, delta): (Resource<Bucket>, String, i64)| {
            Box::new(async move { told(increment(store.data_mut(), &key, delta, i64::checked_add).await) })
        },
    )?;
    interface.resource("cas", ResourceType::host::<Cas>(), |mut store, rep| {
        store.data_mut().ctx().table.delete(Resource::<Cas>::new_own(rep))?;
        Ok(())
    })?;
    interface.func_wrap_async("[static]cas.new", |mut store: Store<'_>, (_, key): (Resource<Bucket>, String)| {
        Box::new(async move {
            let call = store.data_mut();
            call.enter(names::CAS_NEW).await?;
            told(new_cas(call, key).await)
        })
    })?;
    interface.func_wrap_async("[method]cas.current", |mut store: Store<'_>, (cas,): (Resource<Cas>,)| {
        Box::new(async move { told(current(store.data_mut(), &cas).await) })
    })?;
    interface.func_wrap_async("swap", |mut store: Store<'_>, (cas, value): (Resource<Cas>, Vec<u8>)| {
        Box::new(async move { swap(store.data_mut(), cas, value).await })
    })
}

async fn open(call: &mut Call, name: &str) -> Result<Resource<Bucket>, Failed> {
    call.enter(names::STORE_OPEN).await?;
    call.open_store().await??;
    if !BUCKETS.contains(&name) {
        return Err(Error::NoSuchStore.into());
    }
    Ok(call.ctx().table.push(Bucket::default()).map_err(wasmtime::Error::from)?)
}

async fn get(call: &mut Call, key: &str) -> Result<Option<Vec<u8>>, Failed> {
    Ok(call.value_of(key).await??)
}

async fn set(call: &mut Call, key: String, value: Vec<u8>) -> Result<(), Failed> {
    Ok(call.set_value(key, value, None).await??)
}

async fn delete(call: &mut Call, key: String) -> Result<(), Failed> {
    Ok(call.delete_value(key).await??)
}

async fn page(call: &mut Call, after: Option<String>) -> Result<KeyPage, Failed> {
    call.enter(names::BUCKET_LIST_KEYS).await?;
    if after.as_ref().is_some_and(|after| after.len() > KEY_BYTES_MAX) {
        return Err(foreign_cursor().into());
    }
    Ok(call.keys(String::new(), after).await??)
}

fn foreign_cursor() -> Error {
    Error::other("the cursor is not that of the page before")
}

async fn numbered_page(call: &mut Call, bucket: Resource<Bucket>, cursor: Option<u64>) -> Result<NumberedPage, Failed> {
    let known = &call.ctx().table.get(&bucket).map_err(wasmtime::Error::from)?.next_page;
    let after = match (cursor, known) {
        (None, _) => None,
        (Some(number), Some((next, after))) if *next == number => Some(after.clone()),
        _ => return Err(foreign_cursor().into()),
    };
    let page = page(call, after).await?;
    let number = cursor.unwrap_or_default().wrapping_add(1);
    let next_page = page.next.map(|after| (number, after));
    let cursor = next_page.as_ref().map(|(number, _)| *number);
    call.ctx().table.get_mut(&bucket).map_err(wasmtime::Error::from)?.next_page = next_page;
    Ok(NumberedPage { keys: page.keys, cursor })
}

fn check_batch(keys: usize) -> Result<(), Error> {
    if keys <= BATCH_KEYS_MAX {
        return Ok(());
    }
    Err(Error::other(format!("{keys} keys at once; {BATCH_KEYS_MAX} is the most")))
}

async fn get_many(call: &mut Call, keys: Vec<String>) -> Result<Vec<Option<(String, Vec<u8>)>>, Failed> {
    call.enter(names::BATCH_GET_MANY).await?;
    check_batch(keys.len())?;
    let mut found = Vec::new();
    let mut bytes = 0_usize;
    for key in keys {
        let value = get(call, &key).await?;
        bytes = bytes.saturating_add(value.as_ref().map_or(0, Vec::len));
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::other(format!("more than {BATCH_BYTES_MAX} bytes at once; ask for fewer keys")).into());
        }
        found.push(value.map(|value| (key, value)));
    }
    Ok(found)
}

async fn set_many(call: &mut Call, pairs: Pairs) -> Result<(), Failed> {
    call.enter(names::BATCH_SET_MANY).await?;
    check_batch(pairs.len())?;
    for (key, value) in pairs {
        set(call, key, value).await?;
    }
    Ok(())
}

async fn delete_many(call: &mut Call, keys: Vec<String>) -> Result<(), Failed> {
    call.enter(names::BATCH_DELETE_MANY).await?;
    check_batch(keys.len())?;
    for key in keys {
        delete(call, key).await?;
    }
    Ok(())
}

fn digest(value: Option<&[u8]>) -> Option<[u8; 32]> {
    value.map(|value| Sha256::digest(value).into())
}

async fn increment<N: Copy + Default + Display + FromStr>(
    call: &mut Call,
    key: &str,
    delta: N,
    add: impl Fn(N, N) -> Option<N>,
) -> Result<N, Failed> {
    call.enter(names::ATOMICS_INCREMENT).await?;
    for _ in 0..COUNTING_ATTEMPTS_MAX {
        let found = get(call, key).await?;
        let number = |bytes: &Vec<u8>| std::str::from_utf8(bytes).ok()?.parse::<N>().ok();
        let before = match &found {
            None => N::default(),
            Some(bytes) => {
                number(bytes).ok_or_else(|| Error::other("the value of this key is not a decimal number"))?
            }
        };
        let after = add(before, delta).ok_or_else(|| Error::other("the sum does not fit into 64 bits"))?;
        if call.replace_value(key, digest(found.as_deref()), after.to_string().into_bytes()).await?? {
            return Ok(after);
        }
    }
    Err(Error::other("other calls write this key all the time").into())
}

async fn new_cas(call: &mut Call, key: String) -> Result<Resource<Cas>, Failed> {
    let seen = digest(get(call, &key).await?.as_deref());
    Ok(call.ctx().table.push(Cas { key, seen }).map_err(wasmtime::Error::from)?)
}

/// The value, which is the one that a swap compares with from now on.
async fn current(call: &mut Call, cas: &Resource<Cas>) -> Result<Option<Vec<u8>>, Failed> {
    call.enter(names::CAS_CURRENT).await?;
    let key = call.ctx().table.get(cas).map_err(wasmtime::Error::from)?.key.clone();
    let value = get(call, &key).await?;
    call.ctx().table.get_mut(cas).map_err(wasmtime::Error::from)?.seen = digest(value.as_deref());
    Ok(value)
}

async fn swap(call: &mut Call, cas: Resource<Cas>, value: Vec<u8>) -> Told<(), CasError> {
    call.enter(names::ATOMICS_SWAP).await?;
    let Cas { key, seen } = call.ctx().table.delete(cas)?;
    let failed = |error: Error| Ok((Err(CasError::Store(error)),));
    match call.replace_value(&key, seen, value).await? {
        Ok(true) => Ok((Ok(()),)),
        Ok(false) => match new_cas(call, key).await {
            Ok(again) => Ok((Err(CasError::Failed(again)),)),
            Err(Failed::Told(error)) => failed(error),
            Err(Failed::Trap(error)) => Err(error),
        },
        Err(error) => failed(error.into()),
    }
}
